"""Let DuckDB read objects by their addresses.

DuckDB takes any file system of fsspec. This one has no client of its own: it hands DuckDB an `ObjectReader`, so that
SQL and Python read a store in one way, with the same credentials, limits and errors.
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
    """Let a connection read from every store."""
    con.register_filesystem(_Stores())


class _Stores(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """What DuckDB asks of a file system that it only reads from."""

    protocol = tuple(SCHEMES)
    cachable = False
    """Each connection has its own, which ends with it."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def unstrip_protocol(self, name: str) -> str:
        """Return an address as it is."""
        return name

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the address itself: tables are named one by one, and a name may hold any character."""
        return [path]

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is such an object."""
        address = place_of(path)
        return isinstance(address, Address) and (was_opened(address) or address.is_file())

    isfile = exists

    def open(self, path: str, mode: str = "rb", **_: Any) -> ObjectReader:
        """Open an object for reading.

        Raises
        ------
        StoreError
            It cannot be opened, or DuckDB wants to write.
        """
        address = place_of(path)
        if mode != "rb" or not isinstance(address, Address):
            raise StoreError("is in an object store, which tracekit only reads", where=path)
        reader = ObjectReader(address)
        self._sizes[path] = reader.size
        return reader

    def size(self, path: str) -> int:
        """Return the number of bytes of an object that is open."""
        if path not in self._sizes:
            self._sizes[path] = place_of(path).stat().st_size
        return self._sizes[path]

    def modified(self, path: str) -> dt.datetime:
        """Return one time for all: a reader refuses an object that was replaced since it was first opened."""
        del path
        return dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
