"""The search for a job, node or user by name or part of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import text
from tracekit.report.table_view import link_to
from tracekit.serve.things.thing import Shown, Thing, rows_of, table

if TYPE_CHECKING:
    import duckdb

    from tracekit.report.sections.interface import TraceFacts
    from tracekit.trace import Trace

__all__ = ["LONGEST", "find"]

LONGEST = 500
"""Maximum length of the search words [characters]."""
_MOST = 20
"""Maximum number of names listed for each kind."""

_NAMES = {
    "job": (("jobs", "job_id"),),
    "node": (("nodes", "node_id"), ("placements", "node_id"), ("node_events", "node_id")),
    "user": (("jobs", "user"),),
}
"""Tables with the names of each kind. The first existing table is used."""


def find(con: duckdb.DuckDBPyConnection, trace: Trace, facts: TraceFacts, words: str) -> str | Thing:
    """Return the address of the item with this name, or a page of names that contain it.

    Parameters
    ----------
    words : str
        Words to search for. Parts of names match in any letter case.
    """
    words = words.strip()[:LONGEST]
    exact: list[str] = []
    tables = []
    for kind, places in _NAMES.items():
        source = next(((t, c) for t, c in places if trace.has(t)), None)
        if source is None or not words:
            continue
        of, column = source
        names = f'SELECT DISTINCT "{column}" FROM {of} WHERE'
        if rows_of(con, f'{names} "{column}" = $words LIMIT 1', words=words):
            exact += filter(None, [link_to(kind, words)])
        like = f'contains(lower("{column}"), lower($words)) ORDER BY length("{column}"), "{column}" LIMIT {_MOST}'
        rows = rows_of(con, f"{names} {like}", words=words)
        if rows:
            note = f"Only the first {_MOST} names are listed." if len(rows) == _MOST else ""
            tables.append(table(f"{kind.capitalize()}s", rows, Shown(facts), note=note))
    if len(exact) == 1:
        return exact[0]
    told = f"Names that contain '{text.shorten(words)}':" if tables else f"No name contains '{text.shorten(words)}'."
    lead = told if words else "Enter all or part of the name of a job, a node or a user."
    return Thing("search", None, [lead], tables=tables, words=words)
