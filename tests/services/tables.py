"""A Trace's tables as plain Python values, for comparison with other records."""

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
"""Options that the reader needs for some variants of dumps."""


def ingest(source: Path | str, trace: Path, variant: str = "", *options: str, append: bool = False) -> Trace:
    """Ingest a dump with the command, as an operator does, and return the Trace after validating it."""
    more = (*_ARGUMENTS.get(variant, ()), *options, *(("--append",) if append else ()))
    told = run("ingest", source, "-o", trace, *more)
    assert told.returncode == 0, told.stderr + told.stdout
    opened = Trace.open(trace)
    assert opened.validate() == []
    return opened


def rows(trace: Trace, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, or none if the Trace does not have the table."""
    return trace.scan(table).collect().to_dicts() if trace.has(table) else []


def by_job(trace: Trace) -> dict[str, dict[str, Any]]:
    """Return the rows of jobs by job id."""
    return {row["job_id"]: row for row in rows(trace, "jobs")}


def attempts_of(trace: Trace) -> dict[str, list[tuple[Any, Any, float, str]]]:
    """Return each job's attempts in order, with start, end, GPUs and status."""
    found: dict[str, list[tuple[Any, Any, float, str]]] = {}
    for row in sorted(rows(trace, "attempts"), key=lambda row: (row["job_id"], row["attempt"])):
        part = (row["start_time"], row["end_time"], row["gpu_count"], row["status"])
        found.setdefault(row["job_id"], []).append(part)
    return found


def placements_of(trace: Trace) -> set[tuple[str, int, str]]:
    """Return job, attempt and machine of each placement."""
    return {(row["job_id"], row["attempt"], row["node_id"]) for row in rows(trace, "placements")}


def differing(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """Return the values that differ, as (expected, found) by name."""
    names = sorted(expected.keys() | found.keys())
    return {n: (expected.get(n), found.get(n)) for n in names if expected.get(n) != found.get(n)}
