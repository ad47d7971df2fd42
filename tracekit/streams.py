"""Byte streams that decompress content, join files, or show a window of another stream."""

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
"""Maximum memory that an .xz or .zst file may need [log2 bytes]. It is 256 MiB, four times as much as `xz -9` needs."""
_ZSTANDARD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""First bytes of a Zstandard frame, and of a frame that decoders skip."""


class _Decoder(Protocol):
    """Common interface of the decompressors of zlib, bz2, lzma and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decoder_of(head: bytes) -> Callable[[], _Decoder] | None:
    """Return a decompressor factory for content that begins with `head`, or None if it is not compressed."""
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
    """Positions in a gzipped stream's content from which we can read without decompressing the beginning.

    A mark takes about 40 kB, so we keep at most 256. They are farther apart in longer streams.
    """

    def __init__(self) -> None:
        self._gap = _GAP
        self._kept: list[tuple[int, int, _Decoder]] = []

    def add(self, position: int, offset: int, decoder: _Decoder) -> None:
        """Store the decoder at `position` in the content and `offset` in the compressed bytes."""
        copy = getattr(decoder, "copy", None)  # only zlib's decoder has copy
        if copy is None or (self._kept and position - self._kept[-1][0] < self._gap):
            return
        self._kept.append((position, offset, copy()))
        if len(self._kept) > _MARKS:
            self._kept = self._kept[::2]
            self._gap *= 2

    def before(self, position: int) -> tuple[int, int, _Decoder | None]:
        """Return the last mark at or before `position`, or the beginning and None if there is no mark."""
        after = bisect_right(self._kept, position, key=lambda mark: mark[0])
        return self._kept[after - 1] if after else (0, 0, None)


class Inflated(io.RawIOBase):
    """The content of a compressed stream. A read is short only at the end of the content.

    The standard library's file classes ignore data after .bz2 and .xz content, have no memory limit, and cannot resume
    from a mark.

    Parameters
    ----------
    raw : stream
        The compressed bytes. Seeking backwards requires a seekable stream.
    path : str
        Path to show in messages.
    limit : float
        Maximum decompressed size [bytes].
    marks : Marks, optional
        Marks shared with other streams over the same bytes, so that seeking need not decompress from the beginning.

    Raises
    ------
    SourceError
        Raised while reading if the bytes are damaged or truncated, or decompress beyond the limit.
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
        """Close this stream and the compressed stream."""
        self._raw.close()
        super().close()

    def mark(self) -> None:
        """Add a mark at this position if the compression method allows it."""
        self._marks.add(self._position, self._offset - len(self._input), self._decoder)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to `offset` in the content, or to its end if that comes first."""
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

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader passes no other kind
        """Fill `buffer` and return the number of bytes read."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (data := self._next(len(view) - filled)):
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _next(self, size: int) -> bytes:
        """Return up to `size` more bytes, or b'' at the end."""
        data = b""
        while not data:
            if self._decoder.eof and not self._next_member():
                return b""
            ended = not self._input and getattr(self._decoder, "needs_input", True) and not self._refill()
            try:
                data = self._decoder.decompress(self._input, size)
            except MemoryError:
                raise
            except Exception as error:  # each decoder has its own error class
                if "emory" in str(error):
                    what = f"needs more than {1 << _MEMORY_LOG - 20} MiB of memory to unpack"
                    raise SourceError(what, where=self._path, hint="unpack it by hand if you trust it") from error
                raise self._damaged(str(error)) from error
            self._input = getattr(self._decoder, "unconsumed_tail", b"")
            if ended and not data and not self._decoder.eof:
                raise self._damaged("it is truncated")
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
        """Begin the next compressed stream after a finished one, and return whether there is one."""
        # Zero padding is common on tapes and in .xz files.
        rest = (self._decoder.unused_data or self._input).lstrip(b"\0")
        while len(rest) < 6 and self._refill():
            rest = (rest + self._input).lstrip(b"\0")
        self._input = rest
        if not rest:
            return False
        if decoder_of(rest) is None:
            raise self._damaged("other data follows the compressed data")
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

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader passes no other kind
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
    """Return several files as one seekable stream, in the given order. At most one is open at a time.

    Raises
    ------
    EOFError
        Raised while reading if a file was truncated.
    """
    return io.BufferedReader(_Joined(paths), _INPUT)


class Window(io.RawIOBase):
    """The `size` bytes of a seekable stream from `start` on, which `TarFile.extractfile` would copy twice."""

    def __init__(self, stream: ByteStream, start: int, size: int) -> None:
        super().__init__()
        stream.seek(start)
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader passes no other kind
        """Fill `buffer` up to the end of the window, and return the number of bytes read."""
        wanted = memoryview(buffer)[: self._left]
        count = self._stream.readinto(wanted) or 0
        if not count and len(wanted):
            raise EOFError("it is truncated")
        self._left -= count
        return count
