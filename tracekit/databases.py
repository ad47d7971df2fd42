"""In-memory DuckDB databases, in separate instances or in one shared instance per process.

Starting an instance takes about 15 ms of CPU time. Adding a database to a running instance takes less than 1 ms.
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
    """A new in-memory database. It is discarded with its content when it is closed or no longer used.

    Parameters
    ----------
    memory_limit : str, optional
        Maximum memory, such as '2GB', before DuckDB spills to disk.
    alone : bool, optional
        Whether to use a separate instance, whose settings can be changed. If not, all databases with the same memory
        limit share one instance and its limit. By default, a database with a limit gets a separate instance.

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
        """Return a new connection with its own temporary tables, registered frames and settings."""
        con = self._instance.cursor()
        _set_own(con)
        if self._name is not None:
            con.execute(f"USE {self._name}")
            weakref.finalize(con, _let_go, self).atexit = False  # a connection keeps its database
        return con

    def close(self) -> None:
        """Discard the database and make its connections unusable."""
        if self._name is None:
            self._instance.close()
        else:
            self._detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Streamed:
    """A frame that DuckDB's `register` reads through Arrow's interface without the slow import of Arrow."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows, on every call from the start."""
        return self._frame.__arrow_c_stream__(requested_schema)


def _let_go(_: Database) -> None:
    """Do nothing. The finalizer keeps a reference to the database until it is called."""


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
        Maximum memory, such as '2GB', before DuckDB spills to disk. The default is DuckDB's own limit.

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
    con.execute("SET autoinstall_known_extensions = false")  # queries must not reach the network
    _set_own(con)
    if memory_limit is not None:
        try:
            con.execute(f"SET memory_limit = {sql_text(memory_limit)}")
        except duckdb.Error as error:
            raise UsageError(f"'{memory_limit}' is not a memory size", hint="for example '2GB'") from error
    return con


def _set_own(con: duckdb.DuckDBPyConnection) -> None:
    """Apply the settings of a single connection."""
    con.execute("SET TimeZone = 'UTC'")  # stored times have no time zone
    # DuckDB draws a progress bar only in notebooks. Without ipywidgets the bar is off, and setting it is an error.
    shown = "SELECT current_setting('enable_progress_bar')"
    if "IPython" in sys.modules and con.execute(shown).fetchall() != [(False,)]:
        con.execute("SET enable_progress_bar = false")


def sql_text(value: str | Path) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"
