"""Standard output and error that cope with ASCII terminals, full disks, closed streams and readers that have gone."""

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
    """The reader of our output has gone; not a BrokenPipeError, which libraries in between turn into exit code 1."""


class _Stream:
    """A text stream whose failures are distinguished; characters that its encoding lacks are spelled out.

    Parameters
    ----------
    stream : TextIO
        Where the text goes.
    talk : bool
        Whether these are messages, whose loss must not make a run fail.
    """

    def __init__(self, stream: TextIO, *, talk: bool) -> None:
        self._stream, self._talk = stream, talk
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # or the command-line library would write past this stream
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text.

        Raises
        ------
        OutputError
            It cannot be written.
        ReaderGoneError
            Nobody reads it.
        """
        with self._failures():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other, as `write` does."""
        for line in lines:
            self.write(line)

    def write_data(self, text: str) -> None:
        """Write text that programs read: the same bytes wherever it goes."""
        buffer = getattr(self._stream, "buffer", None)
        with self._failures():
            if buffer is None:
                self._stream.write(text)
            else:
                self._stream.flush()
                buffer.write(text.encode("utf-8", "backslashreplace"))
                buffer.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        with self._failures():
            self._stream.flush()

    def give_up(self) -> None:
        """Drop what could not be written, or it would fail again when Python closes the stream."""
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
    """Put both streams in place for the block; what could not be written is dropped at its end."""
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
    """Print CSV, JSON or Markdown: as UTF-8 whatever the terminal, since other programs read it."""
    if isinstance(sys.stdout, _Stream):
        sys.stdout.write_data(text)
    else:
        sys.stdout.write(text)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import orjson

    print_data(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode())


def _fill_closed() -> None:
    """Open closed streams on the null device, or the next file that is opened would become standard output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
