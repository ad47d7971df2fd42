"""Streams of bytes: decompressed by the decoders of the standard library, joined from parts, or cut to a window."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import sys
import zlib
from bisect import bisect_right
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ByteStream = io.RawIOBase | io.BufferedIOBase

_INPUT = 256 * 1024
_MARKS = 256
_GAP = 1 << 20
_MEMORY_LOG = 28
"""Most memory that an .xz or .zst file may ask for [log2 bytes]: 256 MiB, four times what `xz -9` asks for."""
_ZSTANDARD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""How a frame of Zstandard begins, or a frame that decoders skip."""


class _Decoder(Protocol):
    """What the decompressors of zlib, bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decoder_of(head: bytes) -> Callable[[], _Decoder] | None:
    """Return a factory of decompressors for content that begins with `head`; None when it is not compressed."""
    if head.startswith(b"\x1f\x8b"):
        return partial(zlib.decompressobj, wbits=31)
    if head.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if head.startswith(b"\xfd7zXZ\0"):
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=1 << _MEMORY_LOG)
    if _ZSTANDARD.match(head):
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        return partial(zstd.ZstdDecompressor, options={zstd.DecompressionParameter.window_log_max: _MEMORY_LOG})
    return None


class Marks:
    """Places in the content of a gzipped stream from which it can be read without its beginning.

    A mark takes about 40 kB, so that at most 256 are kept: the longer the stream, the wider apart.
    """

    def __init__(self) -> None:
        self._gap = _GAP
        self._kept: list[tuple[int, int, _Decoder]] = []

    def add(self, position: int, offset: int, decoder: _Decoder) -> None:
        """Remember the decoder at `position` of the content, `offset` of the compressed bytes."""
        copy = getattr(decoder, "copy", None)  # only zlib's has one
        if copy is None or (self._kept and position - self._kept[-1][0] < self._gap):
            return
        self._kept.append((position, offset, copy()))
        if len(self._kept) > _MARKS:
            self._kept = self._kept[::2]
            self._gap *= 2

    def before(self, position: int) -> tuple[int, int, _Decoder | None]:
        """Return the last mark at or before `position`; the beginning, without a decoder, where there is none."""
        after = bisect_right(self._kept, position, key=lambda mark: mark[0])
        return self._kept[after - 1] if after else (0, 0, None)


class Inflated(io.RawIOBase):
    """The content of a compressed stream; a read is short only at the end of the content.

    The file classes of the standard library ignore what follows .bz2 and .xz data, have no limit of memory, and cannot
    resume from a mark.

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
        fresh = decoder_of(self._input)
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

    def close(self) -> None:
        """Close the compressed stream too."""
        self._raw.close()
        super().close()

    def mark(self) -> None:
        """Remember this position, if the compression allows it."""
        self._marks.add(self._position, self._offset - len(self._input), self._decoder)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to `offset` of the content, or to its end if that comes first."""
        if whence:
            raise io.UnsupportedOperation("only positions from the start are known")
        at, raw_at, decoder = self._marks.before(offset)
        if not at <= self._position <= offset:
            self._raw.seek(raw_at)
            self._position, self._offset, self._input = at, raw_at, b""
            self._decoder = self._fresh() if decoder is None else decoder.copy()  # type: ignore[attr-defined]  # see Marks
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
        data = b""
        while not data:
            if self._decoder.eof and not self._next_member():
                return b""
            ended = not self._input and getattr(self._decoder, "needs_input", True) and not self._refill()
            try:
                data = self._decoder.decompress(self._input, size)
            except MemoryError:
                raise
            except Exception as error:  # each decoder has its own class of errors
                if "emory" in str(error):
                    what = f"needs more than {1 << _MEMORY_LOG - 20} MiB of memory to unpack"
                    raise SourceError(what, where=self._path, hint="unpack it by hand if you trust it") from error
                raise self._damaged(str(error)) from error
            self._input = getattr(self._decoder, "unconsumed_tail", b"")
            if ended and not data and not self._decoder.eof:
                raise self._damaged("it is cut short")
        self._position += len(data)
        if self._position > self._limit:
            what = f"inflates beyond {self._limit:,.0f} bytes"
            raise SourceError(what, where=self._path, hint="raise --max-inflation if you trust it")
        return data

    def _refill(self) -> bool:
        self._input = self._raw.read(_INPUT) or b""
        self._offset += len(self._input)
        return bool(self._input)

    def _next_member(self) -> bool:
        """Begin the next compressed stream behind a finished one; return whether there is one."""
        # Padding with zeros is usual on tapes and in .xz files.
        rest = (self._decoder.unused_data or self._input).lstrip(b"\0")
        while len(rest) < 6 and self._refill():
            rest = (rest + self._input).lstrip(b"\0")
        self._input = rest
        if not rest:
            return False
        if decoder_of(rest) is None:
            raise self._damaged("something else follows the compressed data")
        self._decoder = self._fresh()
        return True

    def _damaged(self, why: str) -> SourceError:
        return SourceError(f"the archive is damaged: {why}", where=self._path, hint="fetch it again")


class _Joined(io.RawIOBase):
    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self._paths = paths
        self._ends = list(accumulate(path.stat().st_size for path in paths))
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._position = max(0, (0, self._position, self._ends[-1])[whence] + offset)
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        part = bisect_right(self._ends, self._position)
        if part == len(self._paths):
            return 0
        left = self._ends[part] - self._position
        with self._paths[part].open("rb", buffering=0) as stream:
            stream.seek(self._position - (self._ends[part - 1] if part else 0))
            count = stream.readinto(memoryview(buffer)[:left])
        if not count:
            raise EOFError(f"'{self._paths[part].name}' was truncated")
        self._position += count
        return count


def joined(paths: list[Path]) -> io.BufferedReader:
    """Return several files as one seekable stream, in the order given; at most one of them is open.

    Raises
    ------
    EOFError
        While reading: a file was truncated.
    """
    return io.BufferedReader(_Joined(paths), _INPUT)


class Window(io.RawIOBase):
    """The `size` bytes of a seekable stream that begin at `start`; `TarFile.extractfile` would copy them twice."""

    def __init__(self, stream: ByteStream, start: int, size: int) -> None:
        super().__init__()
        stream.seek(start)
        self._stream, self._left = stream, size

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
