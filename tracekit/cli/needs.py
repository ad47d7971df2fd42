"""If a command takes long or does not fit in memory, print beforehand on stderr what it needs."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tracekit.errors import TracekitError
from tracekit.estimate import Need, need_of, need_of_files, need_of_queries, sentences, this_machine
from tracekit.places import place_of

if TYPE_CHECKING:
    from tracekit.characterize.query import Query
    from tracekit.manifest import Manifest


def say_need(trace: str | Path, work: str, memory_limit: str | None = None, **how: Any) -> None:
    """Print what work on a Trace needs (see `tracekit.estimate.need_of`). The work 'queries' runs all queries."""
    manifest = manifest_of(trace)
    if manifest is not None:
        _say(need_of_queries(manifest) if work == "queries" else need_of(manifest, work, **how), memory_limit)


def say_need_of_files(source: str | Path, memory_limit: str | None) -> None:
    """Print what reading raw logs needs, or nothing if the source is a Trace or has no files."""
    found = need_of_files(source)
    if found is not None and manifest_of(source) is None:
        _say(found, memory_limit)


def manifest_of(trace: str | Path) -> Manifest | None:
    """Return a Trace's manifest, or None if it cannot be read, which the command itself reports."""
    from tracekit.manifest import Manifest

    with suppress(TracekitError, OSError, ValueError):
        return Manifest.read(place_of(trace) / "manifest.json")
    return None


def tables_of(query: Query) -> set[str]:
    """Return the tables that a query and its timelines read, or all words of SQL without a header."""
    from tracekit.characterize.timeline import timelines_in

    found = {*query.tables, *query.one_of, *query.also}
    found.update(table for timeline in timelines_in(query) for table in (*timeline.tables, *timeline.also))
    return found or set(re.findall(r"\w+", query.sql))


def _say(need: Need, memory_limit: str | None) -> None:
    for sentence in sentences(need, this_machine(), memory_limit):
        typer.echo(f"note: {sentence}", err=True)
