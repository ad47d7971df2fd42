"""Read an object by ranges of bytes.

Arrow and DuckDB read Parquet through this, and so does the ingest of raw logs. Threads of DuckDB share one open file,
and each calls `seek` and then `read`: with one position for all they would take each other's bytes, so that each thread
has a position of its own. A stream has one for all, since another thread may go on where one has stopped.
"""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tracekit.errors import StoreError
from tracekit.places.stores import asked_of, native_path, recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.places.names import ObjectName

__all__ = ["ObjectReader", "forget", "was_opened"]

_AHEAD = 8 << 20
"""Bytes that a stream asks for at once: latency then costs little, and memory stays small."""

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
        There is no such object, the store does not answer, or the object was replaced since it was first opened; the
        first two also while it is read.
    """

    def __init__(self, address: ObjectName, *, ahead: bool = False) -> None:
        super().__init__()
        self._address, self._ahead = address, ahead
        self._own: Any = SimpleNamespace() if ahead else threading.local()
        self._own.position = 0
        self._block, self._begin = b"", 0

        def opened(client: Any) -> tuple[Any, int, tuple[str, ...]]:
            file = client.open_input_file(native_path(address))
            return file, file.size(), _version(file.metadata() or {})

        found = asked_of(address, opened)
        self._file: Any = found[0]
        self.size: int = found[1]
        if _versions.setdefault(str(address), found[1:]) != found[1:]:
            self._file.close()
            raise recorded(
                StoreError("was replaced while it was read", where=str(address), hint="run the command again")
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
            raise ValueError("there is nothing before the beginning of a file")
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
        data = self._range(begin, left if size is None or size < 0 else min(size, left))
        self._own.position = begin + len(data)
        return data

    def close(self) -> None:
        """Give the object back."""
        if not self.closed:
            self._block = b""
            self._file.close()
        super().close()

    def _taken(self, begin: int, size: int) -> bytes | memoryview:
        """Return bytes from a position on, with `ahead` out of the block that was asked for last."""
        if not self._ahead:
            return self._range(begin, min(size, max(0, self.size - begin)))
        if not self._begin <= begin < self._begin + len(self._block):
            self._block, self._begin = self._range(begin, min(_AHEAD, max(0, self.size - begin))), begin
        return memoryview(self._block)[begin - self._begin :][:size]

    def _range(self, begin: int, size: int) -> bytes:
        if size <= 0:
            return b""
        data: bytes = asked_of(self._address, lambda _: self._file.read_at(size, begin), size)
        if len(data) != size:
            what = f"gave {len(data):,} bytes where {size:,} were asked for"
            raise recorded(StoreError(what, where=str(self._address), hint="try again"))
        return data


def _version(stated: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={value}" for name, value in stated.items() if str(name).lower() in _VERSION))
