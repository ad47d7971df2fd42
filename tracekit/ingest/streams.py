"""Streams that raw files are read through: inflated, joined from parts, or a window of another stream."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from bisect import bisect_right
from contextlib import ExitStack
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ByteStream", "Inflated", "Joined", "Marks", "Window", "inflater"]

ByteStream = io.RawIOBase | io.BufferedIOBase

_INPUT = 256 * 1024
_MARKS = 256
_GAP = 1 << 20
_XZ_MEMORY = 256 * 1024 * 1024
"""Most memory that an .xz file may ask for [bytes]; `xz -9` asks for a quarter of it."""

_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class _Decoder(Protocol):
    """What zlib, bz2 and lzma decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def inflater(head: bytes) -> Callable[[], _Decoder] | None:
    """Return what makes a decompressor for content that begins with `head`; None when that is not compressed."""
    if head.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(wbits=31)
    if head.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if head.startswith(b"\xfd7zXZ\0"):
        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    return None


class Marks:
    """Places in an inflated stream from which it can go on without its beginning.

    Only gzip allows it. A mark takes some 40 kB, so that few are kept: the further the stream goes, the wider apart.
    """

    def __init__(self) -> None:
        self._gap = _GAP
        self._kept: list[tuple[int, int, _Decoder]] = []

    def add(self, position: int, offset: int, decoder: _Decoder) -> None:
        """Remember how to go on at `position` of the content, `offset` of the compressed bytes being read."""
        copy = getattr(decoder, "copy", None)
        if copy is None or (self._kept and position - self._kept[-1][0] < self._gap):
            return
        self._kept.append((position, offset, copy()))
        if len(self._kept) > _MARKS:
            self._kept = self._kept[::2]
            self._gap *= 2

    def before(self, position: int) -> tuple[int, int, _Decoder] | None:
        """Return the last mark at or before `position`, with a decompressor of its own."""
        after = bisect_right(self._kept, position, key=lambda mark: mark[0])
        if not after:
            return None
        at, offset, decoder = self._kept[after - 1]
        return at, offset, decoder.copy()  # type: ignore[attr-defined]  # only such are kept


class Inflated(io.RawIOBase):
    """The content of a compressed stream; reads are always filled up to the end of the content.

    Parameters
    ----------
    raw : stream
        The compressed bytes; has to be seekable for seeking backwards.
    path : str
        For messages.
    limit : float
        Most bytes that it may inflate to [bytes].
    marks : Marks, optional
        Shared with other streams over the same bytes, so that seeking need not inflate from the beginning.

    Raises
    ------
    SourceError
        While reading: the bytes are damaged or cut short, or inflate beyond the limit.
    """

    def __init__(self, raw: ByteStream, path: str, limit: float, marks: Marks | None = None) -> None:
        super().__init__()
        self._raw, self._path, self._limit = raw, path, limit
        self._marks = marks or Marks()
        self._input = raw.read(_INPUT) or b""
        self._offset = len(self._input)
        self._position = 0
        if self._input.startswith(_ZSTANDARD):
            raise SourceError("is compressed with Zstandard", where=path, hint="unpack it with 'zstd -d' first")
        fresh = inflater(self._input)
        if fresh is None:
            raise self._damaged("it does not begin like compressed data")
        self._fresh = fresh
        self._decoder = fresh()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def mark(self) -> None:
        """Remember this position, if the compression allows to."""
        self._marks.add(self._position, self._offset - len(self._input), self._decoder)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to `offset` of the content, or to its end if that is nearer; backwards only as far as a mark allows."""
        if whence:
            raise io.UnsupportedOperation("only positions from the start are known")
        mark = self._marks.before(offset)
        if mark is not None and not self._position <= mark[0] <= offset and self._position <= offset:
            mark = None
        if mark is not None:
            self._position, self._offset, self._decoder = mark
            self._raw.seek(self._offset)
            self._input = b""
        elif offset < self._position:
            self._raw.seek(0)
            self._position, self._offset, self._decoder, self._input = 0, 0, self._fresh(), b""
        while self._position < offset and self._next(min(1 << 20, offset - self._position)):
            pass
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        """Fill `buffer`; return how many bytes there were."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (data := self._next(len(view) - filled)):
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _next(self, size: int) -> bytes:
        """Return up to `size` bytes more, b'' at the end."""
        while True:
            if self._decoder.eof and not self._next_member():
                return b""
            if not self._input and self._hungry():
                self._refill()
            ended = not self._input and self._hungry()
            try:
                data = self._decoder.decompress(self._input, size)
            except (zlib.error, lzma.LZMAError, OSError) as error:
                if "Memory usage limit" in str(error):
                    what = f"asks for more than {_XZ_MEMORY >> 20} MiB of memory to be unpacked"
                    raise SourceError(what, where=self._path, hint="unpack it by hand if you trust it") from error
                raise self._damaged(str(error)) from error
            self._input = getattr(self._decoder, "unconsumed_tail", b"")
            if data:
                self._position += len(data)
                self._refuse_bomb()
                return data
            if ended and not self._decoder.eof:
                raise self._damaged("it is cut short")

    def _hungry(self) -> bool:
        return bool(getattr(self._decoder, "needs_input", True))

    def _refill(self) -> None:
        self._input = self._raw.read(_INPUT) or b""
        self._offset += len(self._input)

    def _next_member(self) -> bool:
        """Go on with what follows a finished stream of compressed data; return whether anything does."""
        # Padding with zeros is usual on tapes and in .xz files.
        rest = (self._decoder.unused_data or self._input).lstrip(b"\0")
        while len(rest) < 6:
            self._refill()
            if not self._input:
                break
            rest = (rest + self._input).lstrip(b"\0")
        self._input = rest
        if not rest:
            return False
        if inflater(rest) is None:
            raise self._damaged("something else follows the compressed data")
        self._decoder = self._fresh()
        return True

    def _refuse_bomb(self) -> None:
        if self._position > self._limit:
            what = f"inflates beyond {self._limit:,.0f} bytes"
            raise SourceError(what, where=self._path, hint="raise --max-inflation if you trust it")

    def _damaged(self, why: str) -> SourceError:
        return SourceError(f"the archive is damaged: {why}", where=self._path, hint="fetch it again")


class Joined(io.RawIOBase):
    """Several files as one stream, in the order given; at most one of them is open."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self._paths = paths
        self._ends = list(accumulate(path.stat().st_size for path in paths))
        self._position = 0
        self._part = -1
        self._open = ExitStack()
        self._stream: io.FileIO | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the whole."""
        return self._position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to `offset` from the start (whence 0), from here (1) or from the end (2)."""
        base = (0, self._position, self._ends[-1])[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        """Fill `buffer` up to the end of the last part; return how many bytes there were."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (count := self._read_part(view[filled:])):
            filled += count
        return filled

    def _read_part(self, view: memoryview) -> int:
        part = bisect_right(self._ends, self._position)
        if part == len(self._paths):
            return 0
        start = self._ends[part - 1] if part else 0
        if part != self._part or self._stream is None:
            self._open.close()
            self._stream = self._open.enter_context(self._paths[part].open("rb", buffering=0))
            self._part = part
        self._stream.seek(self._position - start)
        count = self._stream.readinto(view[: self._ends[part] - self._position])
        if not count:
            raise EOFError(f"'{self._paths[part].name}' became shorter")
        self._position += count
        return count

    def close(self) -> None:
        """Close the part at hand."""
        self._open.close()
        super().close()


class Window(io.RawIOBase):
    """The `size` bytes from `start` on of a seekable stream."""

    def __init__(self, stream: ByteStream, start: int, size: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = size
        stream.seek(start)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        """Fill `buffer` as far as the window goes; return how many bytes there were."""
        wanted = memoryview(buffer)[: self._left]
        count = self._stream.readinto(wanted) or 0
        if not count and len(wanted):
            raise EOFError("it is cut short")
        self._left -= count
        return count
