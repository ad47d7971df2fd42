"""In-memory DuckDB databases: an instance of its own, or one of many in the instance that this process shares.

To start an instance takes about 15 ms of processor time, a database inside a running one less than 1 ms.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tracekit.errors import UsageError
from tracekit.interruption import remove_when_interrupted
from tracekit.outputs import SPILL

if TYPE_CHECKING:
    import duckdb
    import polars as pl


_numbers = itertools.count(1)


class Database:
    """An empty in-memory database, given up with all that it holds when it is closed, or not used any more.

    Parameters
    ----------
    memory_limit : str, optional
        Most memory before DuckDB spills to disk, such as '2GB'.
    alone : bool, optional
        Have an instance of its own, whose settings can be changed; otherwise all databases of the same memory limit
        share one, limit included. By default a database with a limit is alone.

    Raises
    ------
    UsageError
        The memory limit is not a size.
    """

    def __init__(self, memory_limit: str | None = None, *, alone: bool | None = None) -> None:
        self._name: str | None = None
        if memory_limit is not None if alone is None else alone:
            self._instance = connect_duckdb(memory_limit)
            return
        self._instance = _shared_instance(memory_limit)
        self._name = f"database_{next(_numbers)}"
        self._instance.cursor().execute(f"ATTACH ':memory:' AS {self._name}")
        self._detach = weakref.finalize(self, _detach, self._instance, self._name)
        self._detach.atexit = False

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a new connection, whose temporary tables, registered frames and settings are its own."""
        con = self._instance.cursor()
        _set_own(con)
        if self._name is not None:
            con.execute(f"USE {self._name}")
            weakref.finalize(con, _let_go, self).atexit = False  # a connection keeps its database
        return con

    def close(self) -> None:
        """Give the database up; its connections are of no more use."""
        if self._name is None:
            self._instance.close()
        else:
            self._detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Streamed:
    """A frame as DuckDB's `register` takes it by Arrow's interface, without an import of Arrow, which takes long."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows once more."""
        return self._frame.__arrow_c_stream__(requested_schema)


def _let_go(_: Database) -> None:
    """Do nothing: until it is called, the database is referred to."""


@cache
def _shared_instance(memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    return connect_duckdb(memory_limit)


def _detach(instance: duckdb.DuckDBPyConnection, name: str) -> None:
    with instance.cursor() as con:
        con.execute(f"DETACH {name}")


def connect_duckdb(memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to a fresh in-memory DuckDB instance with tracekit's settings.

    Parameters
    ----------
    memory_limit : str, optional
        Most memory before DuckDB spills to disk, such as '2GB'; DuckDB's own default otherwise.

    Raises
    ------
    UsageError
        `memory_limit` is not a size.
    """
    import duckdb

    con = duckdb.connect()
    spill = Path(tempfile.gettempdir()) / f"{SPILL}{os.getpid()}"
    remove_when_interrupted(spill)
    con.execute(f"SET temp_directory = {sql_text(spill)}")
    con.execute("SET autoinstall_known_extensions = false")  # nothing in a query may reach the network
    _set_own(con)
    if memory_limit is not None:
        try:
            con.execute(f"SET memory_limit = {sql_text(memory_limit)}")
        except duckdb.Error as error:
            raise UsageError(f"'{memory_limit}' is not a memory size", hint="write it like '2GB'") from error
    return con


def _set_own(con: duckdb.DuckDBPyConnection) -> None:
    """Set what each connection has for itself."""
    con.execute("SET TimeZone = 'UTC'")  # stored times carry no zone
    # Only in notebooks does DuckDB draw a progress bar. Without ipywidgets the bar is off, and setting it is an error.
    shown = "SELECT current_setting('enable_progress_bar')"
    if "IPython" in sys.modules and con.execute(shown).fetchall() != [(False,)]:
        con.execute("SET enable_progress_bar = false")


def sql_text(value: str | Path) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"
