"""Run a program of the site, such as sacct, and keep what it prints; bounded in time, bytes and memory."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import SourceError
from tracekit.interruption import cleanup_on_interrupt, end_process
from tracekit.outputs import output_errors
from tracekit.text import passed_on, size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

__all__ = ["Ended", "keep_output"]

_PATIENCE_S = 1800.0
"""How long a program may take for one call [s]; a day of a large site takes sacct minutes."""
_MOST_BYTES = 4 << 30
"""Most bytes that one call may print: some 8 million jobs and steps of one day."""
_MOST_ERRORS = 16 << 20
"""Most bytes of errors that one call may print."""
_WORDS = 4096
"""Bytes of the errors that are kept."""
_CHUNK = 1 << 16
_TICK_S = 0.2
"""How often an ended program is noticed although a process that it started still holds its output [s]."""


class Ended(NamedTuple):
    """A program that ended."""

    code: int
    """Its exit code, negative if a signal ended it."""
    words: str
    """The first of what it printed as errors: one printable line without secrets."""
    size: int
    """Bytes that it printed."""


def keep_output(command: list[str], target: Path, variables: Mapping[str, str], *, source: str, away: str) -> Ended:
    """Run a program without a shell, and write what it prints to a file.

    Parameters
    ----------
    command : list of str
        The program, which is looked up in PATH, and its arguments.
    target : Path
        The file.
    variables : mapping
        Variables of its environment, besides those of this process.
    source, away : str
        What names the source in errors, and what to do where there is no such program.

    Raises
    ------
    SourceError
        There is no such program, it takes too long, or its output or its errors do not end.
    OutputError
        The file cannot be written.
    """
    name = command[0]
    program = shutil.which(name)
    if program is None:
        raise SourceError(f"'{name}' is not among the programs in PATH", where=source, hint=away)
    try:
        process = subprocess.Popen(  # noqa: S603 -- a program of the site, and no shell
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
            bufsize=0,
        )
    except OSError as error:
        raise SourceError(f"'{name}' cannot be run: {error.strerror or error}", where=program) from error
    with process, cleanup_on_interrupt(lambda: end_process(process.pid)):
        try:
            with output_errors(target), target.open("wb") as out:
                return _listen(process, name, out, source)
        except BaseException:
            process.kill()
            target.unlink(missing_ok=True)
            raise


def _listen(process: subprocess.Popen[bytes], name: str, out: IO[bytes], source: str) -> Ended:
    """Write the output to `out` until the program ends."""
    until = time.monotonic() + _PATIENCE_S
    words, errors, printed = b"", 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
        selector.register(process.stderr, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
        while selector.get_map():
            over = process.poll() is not None
            left = until - time.monotonic()
            if left <= 0:
                raise _silent(name, source)
            ready = selector.select(0 if over else min(left, _TICK_S))
            if over and not ready:
                break
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    out.write(chunk)
                    printed += len(chunk)
                else:
                    words, errors = words + chunk[: max(0, _WORDS - len(words))], errors + len(chunk)
            if errors > _MOST_ERRORS:
                what = f"'{name}' printed more than {size(_MOST_ERRORS)} of errors: {passed_on(words)}"
                raise SourceError(what, where=source, hint=f"try it by hand: {name}")
            if printed > _MOST_BYTES:
                what = f"'{name}' printed more than {size(_MOST_BYTES)} for one call"
                raise SourceError(what, where=source, hint=f"try it by hand: {name}")
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise _silent(name, source) from error
    return Ended(code, passed_on(words), printed)


def _silent(name: str, source: str) -> SourceError:
    what = f"'{name}' did not end within {_PATIENCE_S:g} s"
    return SourceError(what, where=source, hint="is slurmdbd up? a shorter span takes less")
