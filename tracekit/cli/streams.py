"""Standard output and error that handle ASCII terminals, full disks, closed streams and closed pipes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

from tracekit.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ReaderGoneError(BaseException):
    """The reader of our output has closed it. Libraries would turn a BrokenPipeError into exit code 1."""


class _Stream:
    """A text stream that distinguishes kinds of failure and escapes characters that its encoding lacks.

    Parameters
    ----------
    stream : TextIO
        The underlying stream.
    talk : bool
        Whether the stream carries messages. Losing them must not make a run fail.
    """

    def __init__(self, stream: TextIO, *, talk: bool) -> None:
        self._stream, self._talk = stream, talk
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # the command-line library would use it to bypass this stream
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text.

        Raises
        ------
        OutputError
            The text cannot be written.
        ReaderGoneError
            The reader is gone.
        """
        with self._failures():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write strings one after the other with `write`."""
        for line in lines:
            self.write(line)

    def write_data(self, text: str) -> None:
        """Write text for programs, with the same bytes on every terminal."""
        buffer = getattr(self._stream, "buffer", None)
        with self._failures():
            if buffer is None:
                self._stream.write(text)
            else:
                self._stream.flush()
                buffer.write(text.encode("utf-8", "backslashreplace"))
                buffer.flush()

    def flush(self) -> None:
        """Write the buffered text."""
        with self._failures():
            self._stream.flush()

    def give_up(self) -> None:
        """Drop unwritten text, which would fail again when Python closes the stream."""
        try:
            self._stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._talk:
                return
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError from None
            reason = error.strerror or str(error)
            raise OutputError(f"cannot write: {reason}", where="standard output", hint="name a file with -o") from error


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Install both streams for the block, and drop unwritten text at its end."""
    _fill_closed()
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as stack:
        found = [s or stack.enter_context(open(os.devnull, "w", encoding="utf-8")) for s in before]  # noqa: PTH123 -- no path
        out, err = _Stream(found[0], talk=False), _Stream(found[1], talk=True)
        sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
        try:
            yield
        finally:
            out.give_up()
            err.give_up()
            sys.stdout, sys.stderr = before


def print_data(text: str) -> None:
    """Print CSV, JSON or Markdown as UTF-8 on any terminal, because other programs read the output."""
    if isinstance(sys.stdout, _Stream):
        sys.stdout.write_data(text)
    else:
        sys.stdout.write(text)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import orjson

    print_data(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode())


def _fill_closed() -> None:
    """Open closed streams on the null device. Otherwise the next opened file would become standard output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
