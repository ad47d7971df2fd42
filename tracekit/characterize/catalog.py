"""Find shipped queries by name, and a user's own queries by path."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import resources
from tracekit.characterize.header import QUERY_PARTS, USER_PARTS, parse_query
from tracekit.errors import QueryError, nearest

if TYPE_CHECKING:
    from tracekit.characterize.query import Query

_LARGEST_FILE = 1 << 20


@cache
def list_queries() -> tuple[Query, ...]:
    """Return the shipped queries, ordered by name.

    Raises
    ------
    QueryError
        The header of a shipped file is damaged.
    """
    files = sorted(resources.folder("queries").glob("*/*.sql"))
    return tuple(_shipped(path) for path in files if path.parent.name != "views")


def find_query(name_or_path: str | Path) -> Query:
    """Return a query by its name, or read a user's own file.

    Parameters
    ----------
    name_or_path : str or Path
        'queuing/run_time', or the path of a file that ends in .sql. A user's file needs no header.

    Raises
    ------
    QueryError
        There is no such query, or the file cannot be read.
    """
    if isinstance(name_or_path, Path) or name_or_path.endswith(".sql"):
        path = Path(name_or_path)
        return parse_query(read_sql(path), path, name=path.stem, parts=USER_PARTS, shipped=False)
    queries = {query.name: query for query in list_queries()}
    if name_or_path not in queries:
        raise QueryError(f"no query '{name_or_path}'", hint=_suggest(name_or_path, queries))
    return queries[name_or_path]


def read_sql(path: Path) -> str:
    """Return the text of an SQL file.

    Raises
    ------
    QueryError
        The file is missing, is not text, or is larger than any query.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise QueryError("is too large for a query", where=path, hint="give an SQL text file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise QueryError(f"cannot read the query: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise QueryError("is not UTF-8 text", where=path, hint="give an SQL text file") from error


@cache
def _shipped(path: Path) -> Query:
    return parse_query(read_sql(path), path, name=f"{path.parent.name}/{path.stem}", parts=QUERY_PARTS)


def _suggest(name: str, names: dict[str, Query]) -> str:
    """Return a hint for an unknown name; the last part alone is often all that a user remembers."""
    same = sorted(n for n in names if n.rpartition("/")[2] == name.rpartition("/")[2])
    return nearest(same[0], same) if same else nearest(name, names)
