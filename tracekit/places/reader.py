"""Read an object by ranges of bytes.

Arrow and DuckDB read Parquet through this, and so does the ingest of raw logs. Threads of DuckDB share one open file,
and each calls `seek` and then `read`: with one position for all they would take each other's bytes, so that each thread
has a position of its own. A stream has one for all, since another thread may go on where one has stopped.
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
"""Bytes that a stream asks for at once: latency then costs little, and memory stays small."""

_CHANGED = "run the command again; if it fails again, the store has a fault"

_versions: dict[str, tuple[int, tuple[str, ...]]] = {}
"""Size and version of each object when it was first opened, by address."""
_VERSION = {"etag", "generation", "last-modified"}
"""What stores state of an object that changes with its content."""


def forget(folder: ObjectName) -> None:
    """Take the objects below a folder as they are now: what is opened next may differ from what was read before."""
    for name in [name for name in _versions if name.startswith(f"{folder}/") or name == str(folder)]:
        _versions.pop(name, None)


def was_opened(address: ObjectName) -> bool:
    """Return whether the object was opened already, so that the store need not be asked whether there is one."""
    return str(address) in _versions


class ObjectReader(io.RawIOBase):
    """An object of a store as a stream that can seek.

    Parameters
    ----------
    address : ObjectName
        The object.
    ahead : bool
        Whether it is a stream that is read from its beginning to its end: 8 MiB are then asked for at once.

    Raises
    ------
    StoreError
        There is no such object, the store does not answer, the object was replaced since it was first opened, or it
        has another size than the listing in which it was found; the first two also while it is read. A stream that
        reads ahead fails too when the store gives fewer bytes than the object has.
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
            what = f"has {self.size:,} bytes, but the listing of its folder says {listed:,}"
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
        """Return the position of this thread.

        Raises
        ------
        UnsupportedOperation
            The thread has none: it did not open the file, and has not called `seek`.
        """
        position: int | None = getattr(self._own, "position", None)
        if position is None:
            raise io.UnsupportedOperation("this thread has no position in the file")
        return position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set the position of this thread, and return it."""
        base = self.tell() if whence == io.SEEK_CUR else (0, 0, self.size)[whence]
        if base + offset < 0:
            raise ValueError("the position is before the start of the file")
        self._own.position = base + offset
        return base + offset

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        """Fill `buffer` from the position of this thread; return how many bytes there were."""
        wanted = memoryview(buffer).cast("B")
        data = self._taken(self.tell(), len(wanted))
        wanted[: len(data)] = data
        self._own.position = self.tell() + len(data)
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return as many bytes from the position of this thread, fewer only at the end."""
        begin = self.tell()
        left = max(0, self.size - begin)
        data = bytes(self._range(begin, left if size is None or size < 0 else min(size, left)))
        self._own.position = begin + len(data)
        return data

    def close(self) -> None:
        """Give the object back."""
        if not self.closed:
            self._block = b""
            self._object.close()
        super().close()

    def _taken(self, begin: int, size: int) -> bytes | bytearray | memoryview:
        """Return bytes from a position on, with `ahead` out of the block that was asked for last."""
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
        """Return a range of the object, every byte of which the store gave.

        Arrow's client of S3 calls an answer complete that is too short: the rest of the buffer stays as it was. So the
        buffer is filled with a byte that nobody can guess. If the last byte is that one, the range is read once more
        into another byte, which happens by chance once in 256 times.
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
        """Read from a position of the object into a buffer; return the number of bytes that the client counts."""
        self._object.seek(begin)
        count: int = self._object.readinto(buffer)
        return count

    def _require(self, given: int, size: int) -> None:
        if given != size:
            what = f"gave {given:,} bytes instead of {size:,}; the object has {self.size:,}"
            raise recorded(StoreError(what, where=str(self._address), hint=_CHANGED))


def _version(stated: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={value}" for name, value in stated.items() if str(name).lower() in _VERSION))
