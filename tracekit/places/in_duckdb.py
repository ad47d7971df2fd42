"""Let DuckDB read objects in stores by address.

DuckDB accepts any fsspec file system. Ours gives it an `ObjectReader`, so SQL and Python read a store in the same way,
with the same credentials, limits and errors.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

from tracekit.errors import StoreError
from tracekit.places.address import SCHEMES, Address, place_of
from tracekit.places.reader import ObjectReader, was_opened

if TYPE_CHECKING:
    import duckdb


def connect_stores(con: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read from all stores."""
    con.register_filesystem(_Stores())


class _Stores(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The methods that DuckDB needs from a read-only file system."""

    protocol = tuple(SCHEMES)
    cachable = False
    """Each connection has its own instance, which is not cached and ends with the connection."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def unstrip_protocol(self, name: str) -> str:
        """Return an address unchanged."""
        return name

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the address itself: tables are named one by one, and a name may contain any character."""
        return [path]

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether the object exists."""
        address = place_of(path)
        return isinstance(address, Address) and (was_opened(address) or address.is_file())

    isfile = exists

    def open(self, path: str, mode: str = "rb", **_: Any) -> ObjectReader:
        """Open an object for reading.

        Raises
        ------
        StoreError
            The object cannot be opened, or DuckDB tries to write.
        """
        address = place_of(path)
        if mode != "rb" or not isinstance(address, Address):
            raise StoreError("is in an object store, which tracekit can only read", where=path)
        reader = ObjectReader(address)
        self._sizes[path] = reader.size
        return reader

    def size(self, path: str) -> int:
        """Return the size of an open object [bytes]."""
        if path not in self._sizes:
            self._sizes[path] = place_of(path).stat().st_size
        return self._sizes[path]

    def modified(self, path: str) -> dt.datetime:
        """Return a constant time: a reader rejects an object that was replaced since it was first opened."""
        del path
        return dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
