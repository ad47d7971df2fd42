"""Read an object by byte ranges.

Arrow, DuckDB and the ingest of raw logs read through this module. DuckDB's threads share one open file and each call
`seek`, then `read`, so each thread needs its own position. A stream has one position, because another thread may
continue where one has stopped.
"""

from __future__ import annotations

import io
import secrets
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tracekit.errors import StoreError
from tracekit.places.stores import asked_of, native_path, recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.places.stores import ObjectName


_AHEAD = 8 << 20
"""Number of bytes that a stream requests at once, a compromise between latency and memory."""

_CHANGED = "run the command again; if it fails again, the store is faulty"

_versions: dict[str, tuple[int, tuple[str, ...]]] = {}
"""Size and version of each object when it was first opened, by address."""
_VERSION = {"etag", "generation", "last-modified"}
"""Metadata keys of stores whose values change with an object's content."""


def forget(folder: ObjectName) -> None:
    """Forget the versions of the objects below a folder, so objects opened next may differ from earlier ones."""
    for name in [name for name in _versions if name.startswith(f"{folder}/") or name == str(folder)]:
        _versions.pop(name, None)


def was_opened(address: ObjectName) -> bool:
    """Return whether the object was already opened, so that we need not ask the store whether it exists."""
    return str(address) in _versions


class ObjectReader(io.RawIOBase):
    """An object in a store as a seekable stream.

    Parameters
    ----------
    address : ObjectName
        The object.
    ahead : bool
        Whether the stream is read from beginning to end. If so, 8 MiB are requested at once.

    Raises
    ------
    StoreError
        The object does not exist, the store does not respond, the object was replaced since it was first opened, or its
        size differs from the listing in which it was found. The first two can also happen during reading. A stream that
        reads ahead also fails if the store returns fewer bytes than the object has.
    """

    def __init__(self, address: ObjectName, *, ahead: bool = False) -> None:
        super().__init__()
        self._address, self._ahead = address, ahead
        self._own: Any = SimpleNamespace() if ahead else threading.local()
        self._own.position = 0
        self._block: bytes | bytearray = b""
        self._begin = 0

        def opened(client: Any) -> tuple[Any, int, tuple[str, ...]]:
            file = client.open_input_file(native_path(address))
            return file, file.size(), _version(file.metadata() or {})

        found = asked_of(address, opened)
        self._object: Any = found[0]
        self.size: int = found[1]
        listed = getattr(address, "listed", None)
        if listed is not None and listed != self.size:
            self._object.close()
            what = f"has {self.size:,} bytes, but its folder's listing says {listed:,}"
            raise recorded(StoreError(what, where=str(address), hint=_CHANGED))
        if _versions.setdefault(str(address), found[1:]) != found[1:]:
            self._object.close()
            raise recorded(
                StoreError("was replaced while we read it", where=str(address), hint="run the command again")
            )

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return this thread's position.

        Raises
        ------
        UnsupportedOperation
            This thread has no position, because it did not open the file and has not called `seek`.
        """
        position: int | None = getattr(self._own, "position", None)
        if position is None:
            raise io.UnsupportedOperation("this thread has no position in the file")
        return position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set this thread's position, and return it."""
        base = self.tell() if whence == io.SEEK_CUR else (0, 0, self.size)[whence]
        if base + offset < 0:
            raise ValueError("the position is before the start of the file")
        self._own.position = base + offset
        return base + offset

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader passes no other kind
        """Fill `buffer` from this thread's position and return the number of bytes read."""
        wanted = memoryview(buffer).cast("B")
        data = self._taken(self.tell(), len(wanted))
        wanted[: len(data)] = data
        self._own.position = self.tell() + len(data)
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes from this thread's position, or fewer at the end."""
        begin = self.tell()
        left = max(0, self.size - begin)
        data = bytes(self._range(begin, left if size is None or size < 0 else min(size, left)))
        self._own.position = begin + len(data)
        return data

    def close(self) -> None:
        """Close the object."""
        if not self.closed:
            self._block = b""
            self._object.close()
        super().close()

    def _taken(self, begin: int, size: int) -> bytes | bytearray | memoryview:
        """Return bytes from a position. With `ahead`, they come from the block that was requested last."""
        if not self._ahead:
            return self._range(begin, min(size, max(0, self.size - begin)))
        if not self._begin <= begin < self._begin + len(self._block):
            self._block, self._begin = self._range(begin, min(_AHEAD, max(0, self.size - begin))), begin
        return memoryview(self._block)[begin - self._begin :][:size]

    def _range(self, begin: int, size: int) -> bytes | bytearray:
        if size <= 0:
            return b""
        if self._ahead:
            return self._counted(begin, size)
        data: bytes = asked_of(self._address, lambda _: self._object.read_at(size, begin), size)
        self._require(len(data), size)
        return data

    def _counted(self, begin: int, size: int) -> bytearray:
        """Return a range of the object, after checking that the store sent every byte of it.

        Arrow's S3 client takes a short response as complete and leaves the rest of the buffer unchanged. So we first
        fill the buffer with a random byte. If the last byte still has that value (by chance, once in 256 times), we
        read the range again with another fill byte.
        """
        first, given = secrets.randbelow(256), 0
        for mark in (first, first ^ 0xFF):
            buffer = bytearray([mark]) * size
            filled = asked_of(self._address, partial(self._fill, begin, buffer), size)
            if filled == size and buffer[-1] != mark:
                return buffer
            given = max(given, len(buffer[:filled].rstrip(bytes([mark]))))
        self._require(given, size)
        return buffer

    def _fill(self, begin: int, buffer: bytearray, _: Any) -> int:
        """Read from a position in the object into a buffer, and return the number of bytes that the client reports."""
        self._object.seek(begin)
        count: int = self._object.readinto(buffer)
        return count

    def _require(self, given: int, size: int) -> None:
        if given != size:
            what = f"returned {given:,} bytes instead of {size:,}; the object has {self.size:,}"
            raise recorded(StoreError(what, where=str(self._address), hint=_CHANGED))


def _version(stated: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={value}" for name, value in stated.items() if str(name).lower() in _VERSION))
