"""The sandbox: SQL of unknown origin reads the tables of one Trace and nothing else.

DuckDB's own settings enforce it: no file but those of the tables, no network, no extension, no variable of the Python
program, and no way to change that. What the SQL may take of time and memory is in `tracekit.characterize.limits`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.tables.parquet import files_sql
from tracekit.trace import MANIFEST_NAME

if TYPE_CHECKING:
    import duckdb

    from tracekit.trace import Trace

__all__ = ["lies_in_trace", "lock"]


def lies_in_trace(file: Path) -> bool:
    """Return whether a file came with a Trace: it lies in the folder of one, by its path or by where links lead."""
    folders = {*Path(os.path.realpath(file)).parents, *Path(os.path.abspath(file)).parents}  # noqa: PTH100 -- resolves no link
    return any(
        (folder / MANIFEST_NAME).is_file() and any(any(folder.glob(p)) for p in ("*.parquet", "*/cluster=*"))
        for folder in folders
    )


def lock(con: duckdb.DuckDBPyConnection, trace: Trace) -> None:
    """Shut a connection to the tables of `trace` off from everything else, for good."""
    # Settings that DuckDB 1.5 and 2.0 both document; paths are allowed before access is taken away.
    files = files_sql([path for table in trace.tables for path in trace.files(table)])
    con.execute(f"SET allowed_paths = {files}")
    for setting in (
        "python_enable_replacements = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",  # the last one: from here on nothing can be set
    ):
        con.execute(f"SET {setting}")
