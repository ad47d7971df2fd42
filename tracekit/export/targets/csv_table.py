"""CSV: every column of the table jobs, and a mapping file that lets tracekit read the table back.

Source: docs/columns.md describes the columns, docs/mapping.md the mapping file. Text that a spreadsheet would run as a
formula gets a leading single quote. The mapping file removes the quote again, so nothing is lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit import schema
from tracekit.export.interface import GUARD, ExportLog, Field, JobFilter, JobSelection, Option, Options, Output, Target
from tracekit.export.text import write_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_MAP = ".map.toml"
_DERIVED = ("status", "source_status", "attempt_count")
"""Columns that a mapping file does not fill: they are derived from status words or counted."""

_JOBS = schema.common("jobs")


class CsvTarget(Target):
    """One table of jobs."""

    name = "csv"
    title = "CSV table of jobs"
    reads = "anything; tracekit reads it back with --map FILE.map.toml"
    fields = tuple(Field(c.name, c.description, c.name) for c in _JOBS.columns)
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": Option("all", "jobs to export: all, or only jobs that request GPUs", ("all", "gpu")),
        "incomplete": Option("keep", "jobs that never ran or have unknown times", ("keep", "leave-out")),
        "guard": GUARD,
    }
    companions: ClassVar[Mapping[str, str]] = {_MAP: "mapping file for reading it back"}
    machines = False
    dates = True
    needs = "nothing; an empty cell means unknown"
    lost = "the other tables: attempts, placements, nodes, telemetry"
    sources = ("docs/columns.md", "docs/mapping.md")

    def job_filter(self, options: Options) -> JobFilter:
        """Return the rules that select the exported jobs."""
        return JobFilter.from_options(options, keep_zero=True)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the table and its mapping file."""
        guard = options.yes("guard")
        prefixed = jobs.count_where("starts_with(job_id, cluster || '/')")
        named = jobs.number("count(cluster)")
        # Reading prefixes the id with the cluster again.
        bare = named > 0 and prefixed == jobs.count
        clusters = jobs.distinct("cluster")
        constant = clusters[0] if not bare and len(clusters) == 1 and named == jobs.count else None
        if named and not bare and constant is None:
            log.note("when you read the table back, job ids begin with the cluster name")
        skipped = (*_DERIVED, *_derivable(jobs))
        stated = [name for name in ("queue_s", "run_s") if name not in skipped]
        write_csv(out.main, _rows(jobs, stated, bare=bare), log, guard=guard)
        mapped = [c.name for c in _JOBS.columns if c.name not in skipped and (c.name != "cluster" or constant is None)]
        if not named:
            mapped.remove("cluster")
        log.changed(
            jobs.count_where("status IN ('running', 'pending') AND end_time IS NOT NULL"),
            "they are running or waiting but have an end time, which reading the table back loses",
        )
        log.changed(
            jobs.count_where("attempt_count > 1"),
            "they had several attempts, but a table of jobs has one row per job",
        )
        text = _mapping(out.target.name, mapped, constant, _words(jobs), guard=guard, relative=_relative(jobs))
        out.companion(_MAP).write_text(text, encoding="utf-8")


def _derivable(jobs: JobSelection) -> list[str]:
    """Return the durations that follow from the times for every job. Reading derives them again."""
    beyond = {
        "queue_s": "queue_s IS NOT NULL AND (submit_time IS NULL OR start_time IS NULL)",
        "run_s": "run_s IS NOT NULL AND (start_time IS NULL OR end_time IS NULL)",
    }
    return [name for name, test in beyond.items() if not jobs.count_where(f"{test}")]


def _relative(jobs: JobSelection) -> bool:
    return jobs.time_base == "relative"


def _rows(jobs: JobSelection, stated: list[str], *, bare: bool) -> Iterator[pl.DataFrame]:
    times = [c.name for c in _JOBS.columns if c.kind == "datetime"]
    shown = (
        [pl.col(name).cast(pl.Int64) / 1e6 for name in times]
        if _relative(jobs)
        else [pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ") for name in times]
    )
    for block in jobs.blocks(*_JOBS.names):
        # A duration derived from the times may be negative. Reading would reject it as a separate value.
        frame = block.select(_JOBS.names).with_columns(
            pl.when((pl.col(name) < 0) & pl.col("start_time").is_not_null()).then(None).otherwise(name).alias(name)
            for name in stated
        )
        frame = frame.with_columns(shown)
        if bare:
            own = frame.select(pl.struct("job_id", "cluster"))  # the prefix differs from row to row
            ids = [row["job_id"].removeprefix(f"{row['cluster']}/") for row in own.to_series()]
            frame = frame.with_columns(job_id=pl.Series(ids, dtype=pl.String))
        yield frame


def _words(jobs: JobSelection) -> tuple[str, dict[str, list[str]]]:
    """Return the column of status words, and the words for each status (source words if they determine the status)."""
    rows = jobs.rows("SELECT DISTINCT source_status, status FROM chosen ORDER BY ALL")
    own = [row[0] for row in rows]
    column = "source_status" if None not in own and len(set(own)) == len(own) else "status"
    words: dict[str, set[str]] = {}
    for source, status in rows:
        if status not in (None, "unknown"):
            words.setdefault(str(status), set()).add(str(source if column == "source_status" else status))
    return column, {status: sorted(found) for status, found in sorted(words.items())}


def _mapping(
    name: str,
    columns: list[str],
    cluster: str | None,
    words: tuple[str, dict[str, list[str]]],
    *,
    guard: bool,
    relative: bool,
) -> str:
    lines = ["[source]", f"files = {_quoted(_literal(name))}", 'type = "csv"']
    if relative:
        lines += ['time_base = "relative"', 'time_format = "epoch_s"']
    else:
        lines += ['timezone = "UTC"']
    if cluster is not None:
        lines.append(f"cluster = {_quoted(cluster)}")
    lines += ["", "[jobs.columns]"]
    texts = {c.name for c in _JOBS.columns if c.kind == "string"}
    for column in columns:
        undo = guard and column in texts and column != "workload"
        entry = f"{{ column = {_quoted(column)}, regex = '''(?s)^'?(.*)$''' }}" if undo else _quoted(column)
        lines.append(f"{column} = {entry}")
    if words[1]:
        lines += ["", "[jobs.status]", f"column = {_quoted(words[0])}"]
        lines += [f"{status} = [{', '.join(_quoted(word) for word in found)}]" for status, found in words[1].items()]
    return "\n".join(lines) + "\n"


def _literal(name: str) -> str:
    """Return a pattern that only this name matches."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _quoted(text: str) -> str:
    """Return a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


MEMBERS = (CsvTarget(),)
