"""What a command will need, said on stderr before it begins where that is long or does not fit."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tracekit.errors import TracekitError
from tracekit.places import place_of

if TYPE_CHECKING:
    from tracekit.characterize.query import Query
    from tracekit.estimate.need import Need
    from tracekit.manifest import Manifest

__all__ = [
    "say_need_of_files",
    "say_need_of_jobs",
    "say_need_of_queries",
    "say_need_of_query",
    "say_need_of_sweep",
    "say_need_of_use",
    "say_need_of_validation",
    "say_need_of_wait",
    "tables_of",
]

_USE_TABLES = ("jobs", "attempts", "placements", "gpu_utilization", "job_usage")
"""Tables that tell how GPUs were used."""


def say_need_of_query(trace: str | Path, query: Query, memory_limit: str | None) -> None:
    """Say what a query will need."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_query

        _say(of_query(manifest, tables_of(query, manifest), query.name), memory_limit)


def say_need_of_use(trace: str | Path, memory_limit: str | None) -> None:
    """Say what telling how GPUs were used will need."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_query

        _say(of_query(manifest, _USE_TABLES, "utilization/efficiency", engine=False), memory_limit)


def say_need_of_wait(trace: str | Path, memory_limit: str | None) -> None:
    """Say what asking for the wait of one job will need."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_query

        _say(of_query(manifest, ("jobs", "attempts"), engine=False), memory_limit)


def say_need_of_validation(trace: str | Path, memory_limit: str | None) -> None:
    """Say what the check of a Trace will need."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_validation

        _say(of_validation(manifest), memory_limit)


def say_need_of_queries(trace: str | Path, memory_limit: str | None) -> None:
    """Say what all queries will need together."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_all_queries

        _say(of_all_queries(manifest), memory_limit)


def say_need_of_jobs(
    trace: str | Path,
    kind: str,
    memory_limit: str | None = None,
    *,
    limit: int | None = None,
    runs: int = 1,
    workers: int = 1,
) -> None:
    """Say what work on jobs will need; see `tracekit.estimate.need.of_jobs`."""
    manifest = _manifest(trace)
    if manifest is not None:
        from tracekit.estimate.need import of_jobs

        _say(of_jobs(manifest, kind, limit=limit, runs=runs, workers=workers), memory_limit)


def say_need_of_sweep(file: Path, twin: Path | None, workers: int | None) -> None:
    """Say what the runs of a sweep will need, by its largest Trace; runs that are there already count too."""
    from tracekit.estimate.machine import this_machine
    from tracekit.sweeps.file import read_sweep

    try:
        runs = read_sweep(file, twin)
    except TracekitError:  # which the sweep itself tells
        return
    manifests = {trace: _manifest(trace) for trace in {run.trace for run in runs}}
    jobs = {t: m.tables["jobs"].rows for t, m in manifests.items() if m is not None and "jobs" in m.tables}
    if not jobs:
        return
    largest = max(sorted(jobs), key=jobs.__getitem__)
    limits = [run.limit for run in runs if run.trace == largest]
    known = [limit for limit in limits if limit is not None]
    limit = max(known) if len(known) == len(limits) else None
    workers = min(workers or this_machine().cores, len(runs))
    say_need_of_jobs(largest, "replay", limit=limit, runs=len(runs), workers=workers)


def say_need_of_files(source: str | Path, memory_limit: str | None) -> None:
    """Say what reading raw logs will need; nothing where the source is a Trace, or no files."""
    from tracekit.estimate.need import of_files

    found = of_files(source)
    if found is not None and _manifest(source) is None:
        _say(found, memory_limit)


def _manifest(trace: str | Path) -> Manifest | None:
    """Return the manifest of a Trace; None where there is none to read, which the command itself will tell."""
    from tracekit.manifest import Manifest

    with suppress(TracekitError, OSError, ValueError):
        return Manifest.read(place_of(trace) / "manifest.json")
    return None


def tables_of(query: Query, manifest: Manifest) -> list[str]:
    """Return the tables that a query reads, itself and by its timelines; of SQL without a header those it names."""
    from tracekit.characterize.timeline import timelines_in

    timelines = timelines_in(query)
    found = [*query.tables, *query.one_of, *query.also]
    found += [table for timeline in timelines for table in (*timeline.tables, *timeline.also)]
    if not found:
        words = set(re.findall(r"\w+", query.sql))
        found = [table for table in manifest.tables if table in words]
    return found


def _say(need: Need, memory_limit: str | None) -> None:
    from tracekit.estimate.machine import this_machine
    from tracekit.estimate.need import sentences

    for sentence in sentences(need, this_machine(), memory_limit):
        typer.echo(f"note: {sentence}", err=True)
