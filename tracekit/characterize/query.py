"""What the header of an SQL file states about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.characterize.intervals import Interval

__all__ = ["RESERVED_PARAMS", "Query", "QueryColumn", "QueryParam"]


RESERVED_PARAMS = ("time_base", "timezone")
"""Parameters that are bound to what the manifest says when a query uses them."""


@dataclass(frozen=True)
class QueryParam:
    """A value that the user of a query may choose."""

    name: str
    default: int | float | str
    """Its type is the type of the parameter."""
    meaning: str
    choices: tuple[str, ...] = ()
    """The words allowed; empty when any value is."""


@dataclass(frozen=True)
class QueryColumn:
    """A column of a result."""

    name: str
    unit: str
    """What a number counts; text, class, ... where it is not a number."""
    meaning: str


@dataclass(frozen=True)
class Query:
    """A question, and the SQL that answers it."""

    name: str
    """'queuing/run_time'; the stem of the file for a user's own."""
    title: str
    question: str
    paper: str
    """Table or figure that the answer reproduces."""
    tables: tuple[str, ...]
    """Tables that the Trace must have."""
    needs: tuple[str, ...]
    """Capabilities that the Trace must have."""
    params: tuple[QueryParam, ...]
    columns: tuple[QueryColumn, ...]
    """Columns of the result in order, the key first; empty for a user's file that does not say."""
    sql: str
    """The whole file, so that line numbers hold."""
    path: Path
    also: tuple[str, ...] = ()
    """Tables that are read where the Trace has them, and are empty where it has not."""
    one_of: tuple[str, ...] = ()
    """Tables of which the Trace must have at least one; the others are empty."""
    views: tuple[str, ...] = ()
    """For a shared view: the views it stands on."""
    rule: str = ""
    """Formula, what is in and out, and the source, as free text."""
    shipped: bool = True
    """Whether the file came with tracekit."""
    intervals: tuple[Interval, ...] = ()
    """Columns whose uncertainty can be told."""
    described: bool = True
    """Whether the file has a header."""

    @classmethod
    def of_text(cls, sql: str, path: Path, *, also: tuple[str, ...] = ()) -> Query:
        """Return a query without a header, from its SQL alone; `path` is what its errors name."""
        return cls("sql", "", "", "", (), (), (), (), sql, path, also=also, shipped=False, described=False)
