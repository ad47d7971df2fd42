"""The tables of a Trace as plain Python, for comparison with other records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.command import run
from tests.services.dumps import README_COLUMNS
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["attempts_of", "by_job", "differing", "ingest", "placements_of"]

_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "headerless": ("--option", f"fields={README_COLUMNS}"),
}
"""What the reader has to be told of some variants of dump."""


def ingest(source: Path | str, trace: Path, variant: str = "", *options: str, append: bool = False) -> Trace:
    """Ingest a dump with the command, as an operator does, and return a valid Trace."""
    more = (*_ARGUMENTS.get(variant, ()), *options, *(("--append",) if append else ()))
    told = run("ingest", source, "-o", trace, *more)
    assert told.returncode == 0, told.stderr + told.stdout
    opened = Trace.open(trace)
    assert opened.validate() == []
    return opened


def rows(trace: Trace, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, none where the Trace does not have it."""
    return trace.scan(table).collect().to_dicts() if trace.has(table) else []


def by_job(trace: Trace) -> dict[str, dict[str, Any]]:
    """Return the rows of jobs by their id."""
    return {row["job_id"]: row for row in rows(trace, "jobs")}


def attempts_of(trace: Trace) -> dict[str, list[tuple[Any, Any, float, str]]]:
    """Return start, end, GPUs and status of each attempt, in order, by job."""
    found: dict[str, list[tuple[Any, Any, float, str]]] = {}
    for row in sorted(rows(trace, "attempts"), key=lambda row: (row["job_id"], row["attempt"])):
        part = (row["start_time"], row["end_time"], row["gpu_count"], row["status"])
        found.setdefault(row["job_id"], []).append(part)
    return found


def placements_of(trace: Trace) -> set[tuple[str, int, str]]:
    """Return job, attempt and machine of each placement."""
    return {(row["job_id"], row["attempt"], row["node_id"]) for row in rows(trace, "placements")}


def differing(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """Return what is not the same, as (expected, found) by name."""
    names = sorted(expected.keys() | found.keys())
    return {n: (expected.get(n), found.get(n)) for n in names if expected.get(n) != found.get(n)}
