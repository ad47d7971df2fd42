"""Select the jobs of a Trace for an export, in submission order, and read them in blocks to save memory.

The work of a job (`work_s`) is the sum of the known run times of its attempts, without the gaps between them. If none
is known, the work is the job's run_s, or else its end minus its start. The replay uses the same definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.databases import sql_text
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

    from tracekit.export.choices import ExportLog, Options
    from tracekit.trace import Trace


_LONGEST_S = 100 * 365 * 86_400
"""Longest plausible run time [s]."""

_LARGEST = 1_000_000_000
"""Largest plausible number of GPUs, cores or nodes in a request."""

_NUMBERS = ("cpu_count", "memory_gib", "time_limit_s")
"""Columns that targets write unchanged."""

_TIMES = ("submit_time", "start_time", "end_time")

_BLOCK = 131_072

_REASONS = {
    "no_submission": "their submission time is unknown",
    "no_size": "their request ({size}) is unknown",
    "too_large": "they request more than a billion ({size})",
    "no_gpu": "they request no GPU (option jobs=all includes them)",
    "fraction": "they request a fraction of a GPU (option fractions)",
    "open": "they are still waiting or running when the trace ends",
    "no_work": "their run time is unknown, or they never ran",
    "negative": "they end before they start, or ran for more than 100 years",
}


@dataclass(frozen=True)
class JobFilter:
    """The rules that select the jobs of a target."""

    cpu_jobs: bool = False
    """Whether jobs without GPUs are included."""
    incomplete: bool = False
    """Whether to include jobs with unknown submission or work."""
    fractions: str = "keep"
    """What to do with requests for a fraction of a GPU: keep, up or leave-out."""
    size: str = "gpu_count"
    """Column with the size of a request: gpu_count, cpu_count or node_count."""
    dated: bool = False
    """Whether the submission must be known, even if incomplete jobs are included."""
    keep_zero: bool = False
    """Whether undated times count from the trace's own zero instead of the first submission."""

    @classmethod
    def from_options(cls, options: Options, **others: Any) -> JobFilter:
        """Return the filter for the options jobs, incomplete and fractions, with other fields by name."""
        given = options.values
        return cls(
            cpu_jobs=given.get("jobs", "gpu") == "all",
            incomplete=given.get("incomplete", "leave-out") == "keep",
            fractions=given.get("fractions", "keep"),
            **others,
        )


@dataclass(frozen=True)
class JobSelection:
    """Jobs in submission order, with ties ordered by job_id."""

    con: duckdb.DuckDBPyConnection
    """Connection to the tables of the Trace, with the jobs as the view `chosen`."""
    file: Path
    """Parquet file with the jobs."""
    trace: Trace
    """Source of the jobs."""
    count: int
    """Number of jobs."""
    origin_us: int
    """Origin of the times `submit_s` [us since 1970]."""
    shift_us: int = 0
    """Shift of all job times [us]. Times in other tables of the Trace are not shifted."""
    time_base: str = "absolute"
    """Kind of times: absolute, shifted or relative."""

    def blocks(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the jobs in blocks, with `n` (from 1) and the named columns, or all columns by default.

        The columns are those of the table jobs, and four more: submit_s, the time since the first submission [s];
        wait_s, the first start minus the submission [s]; work_s [s]; and size, the request in whole or fractional GPUs
        (or CPUs, or nodes).
        """
        before = 1
        for frame in self.blocks_of(self.file, *columns):
            yield frame.with_row_index("n", before).with_columns(pl.col("n").cast(pl.Int64))
            before += frame.height

    def blocks_of(self, file: Path, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file with one row per job, in the same blocks."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_BLOCK, columns=list(columns) or None):
                yield pl.DataFrame(batch)

    def rows(self, query: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in which the jobs are the view `chosen`."""
        return self.con.cursor().execute(query, parameters).fetchall()

    def distinct(self, column: str) -> list[str]:
        """Return the distinct values, except NULL, of a text column, sorted by code point."""
        rows = self.rows(f'SELECT DISTINCT "{column}" FROM chosen WHERE "{column}" IS NOT NULL')
        return sorted(str(row[0]) for row in rows)

    def unknown(self, column: str) -> int:
        """Return the number of jobs for which a column is NULL."""
        return self.count_where(f'"{column}" IS NULL')

    def count_where(self, condition: str) -> int:
        """Return the number of jobs for which an SQL condition is true."""
        return self.number(f"count(*) FILTER ({condition})")

    def number(self, expression: str) -> int:
        """Return an aggregate over the jobs as a whole number, or 0 for NULL."""
        return int(self.rows(f"SELECT {expression} FROM chosen")[0][0] or 0)

    @cached_property
    def machines(self) -> tuple[int, int, int]:
        """Number of GPU nodes in the Trace, most GPUs per node, and total GPUs, or zeros if it lists no nodes."""
        if not self.trace.has("nodes"):
            return 0, 0, 0
        nodes, most, gpus = self.rows(
            "SELECT count(*), max(gpu_count), sum(gpu_count) FROM nodes "
            "WHERE gpu_count BETWEEN 1 AND 1e9 AND gpu_count * 0.0 = 0"
        )[0]
        return int(nodes), int(most or 0), int(gpus or 0)

    @cached_property
    def node_sizes(self) -> list[tuple[int, int]]:
        """Number of GPU nodes of each size in the Trace, and their GPUs per node, largest first."""
        if not self.trace.has("nodes"):
            return []
        return [
            (int(nodes), int(gpus))
            for nodes, gpus in self.rows(
                "SELECT count(*), gpu_count FROM nodes WHERE gpu_count BETWEEN 1 AND 1e9 AND gpu_count * 0.0 = 0 "
                "GROUP BY gpu_count ORDER BY gpu_count DESC"
            )
        ]

    @cached_property
    def peak(self) -> int:
        """Peak number of GPUs (or units of `size`) in use at once, rounded up."""
        return self.peak_by().get((), 0)

    def peak_by(self, *by: str) -> dict[tuple[str | None, ...], int]:
        """Return the peak number of GPUs (or units of `size`) in use at once, rounded up, by the given columns.

        A job uses its GPUs from its recorded start to its end, or from its submission if it has no recorded start.
        """
        keys = [f'"{column}"' for column in by]
        listed = "".join(f", {key}" for key in keys)
        # Count thousandths of a GPU as integers, so the sum does not depend on row order.
        milli = "CAST(round(size * 1000) AS BIGINT)"
        rows = self.rows(
            f"""
            WITH spans AS (
                SELECT epoch_us(coalesce(start_time, submit_time)) AS begins, {milli} AS milli{listed},
                    CASE WHEN start_time IS NULL
                        THEN epoch_us(submit_time) + CAST(round(work_s * 1e6) AS BIGINT)
                        ELSE epoch_us(end_time) END AS ends
                FROM chosen WHERE size > 0
            ), steps AS (
                SELECT begins AS t, milli AS change{listed} FROM spans WHERE ends > begins
                UNION ALL SELECT ends, -milli{listed} FROM spans WHERE ends > begins
            ), at_once AS (SELECT t, sum(change) AS change{listed} FROM steps GROUP BY ALL),
            sums AS (
                SELECT sum(change) OVER ({f"PARTITION BY {', '.join(keys)}" if keys else ""}
                    ORDER BY t ROWS UNBOUNDED PRECEDING) AS held{listed} FROM at_once
            )
            SELECT max(held){listed} FROM sums{f" GROUP BY {', '.join(keys)}" if keys else ""}"""
        )
        return {tuple(row[1:]): -(-int(row[0]) // 1000) for row in rows if row[0] is not None}


def select_jobs(
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    job_filter: JobFilter,
    scratch: Path,
    log: ExportLog,
    first_at_us: int | None = None,
) -> JobSelection:
    """Select the jobs that a target exports, and log how many are skipped, by reason.

    With `first_at_us`, all times shift so that the first submission is at that time [us since 1970].

    Raises
    ------
    UsageError
        The Trace has no jobs, or none that can be exported.
    """
    if not trace.has("jobs"):
        raise UsageError("the Trace has no table jobs", where=trace.path)
    con.execute(f"CREATE OR REPLACE VIEW sized AS {_sized(trace, job_filter)}")
    con.execute(f"CREATE OR REPLACE VIEW judged AS {_judged(job_filter)}")
    counts = dict(con.execute("SELECT reason, count(*) FROM judged GROUP BY reason").fetchall())
    log.jobs = sum(counts.values())
    log.written = counts.pop("", 0)
    size = job_filter.size.removesuffix("_count") + "s"
    log.left_out = {text.format(size=size): counts[key] for key, text in _REASONS.items() if key in counts}
    if not log.written:
        why = "; ".join(f"{count:,}: {reason}" for reason, count in log.left_out.items())
        raise UsageError("no job can be exported" + (f" ({why})" if why else ""), where=trace.path)
    first_us = con.execute("SELECT min(epoch_us(submit_time)) FROM judged WHERE reason = ''").fetchall()[0][0]
    # Whole seconds stay whole.
    origin_us = (first_us or 0) // 1_000_000 * 1_000_000
    if job_filter.keep_zero and trace.manifest.time_base == "relative" and first_at_us is None:
        origin_us = min(origin_us, 0)
    if first_at_us is not None and first_us is None:
        raise UsageError("no job has a known submission time to shift", where="--shift-to", hint="leave it out")
    shift_us = 0 if first_at_us is None else first_at_us - origin_us
    moved = ", ".join(f"{name} + to_microseconds({shift_us}) AS {name}" for name in _TIMES)
    file = scratch / "chosen.parquet"
    con.execute(
        f"COPY (SELECT * EXCLUDE (reason) REPLACE ({moved}), (epoch_us(submit_time) - {origin_us}) / 1e6 AS submit_s, "
        "(epoch_us(start_time) - epoch_us(submit_time)) / 1e6 AS wait_s "
        "FROM judged WHERE reason = '' ORDER BY submit_time NULLS LAST, job_id) "
        f"TO {sql_text(file)} (FORMAT parquet, COMPRESSION zstd)"
    )
    con.execute(f"CREATE OR REPLACE VIEW chosen AS SELECT * FROM read_parquet({sql_text(file)})")
    odd = " OR ".join(f"NOT ({_usable(name)})" for name in _NUMBERS)
    unusable = con.execute(f"SELECT count(*) FILTER ({odd}) FROM jobs").fetchall()[0][0]
    log.changed(unusable, "their cores, memory or time limit is not a usable number and counts as unknown")
    base = trace.manifest.time_base
    if first_at_us is not None:
        log.note("all times were shifted by the same amount, so the dates differ from the log (--shift-to)")
        base = "shifted"
    jobs = JobSelection(con, file, trace, log.written, origin_us + shift_us, shift_us, base)
    if job_filter.fractions == "up":
        changed = jobs.count_where(f'size <> "{job_filter.size}"')
        log.changed(changed, "a fraction of a GPU was rounded up to a whole GPU (option fractions)")
    return jobs


def _usable(column: str) -> str:
    """Return SQL that checks whether a number can be written: finite, and plausible for a machine."""
    return f"{column} * 0 = 0 AND abs({column}) < 1e12"


def _micros(column: str) -> str:
    """Return SQL that converts seconds to whole microseconds, clipped so that sums fit in 63 bits."""
    cut = f"least(greatest({column}, -{2 * _LONGEST_S}), {2 * _LONGEST_S})"
    return f"CASE WHEN {column} * 0 = 0 THEN CAST(round({cut} * 1e6) AS BIGINT) END"


def _sized(trace: Trace, job_filter: JobFilter) -> str:
    asked = f'j."{job_filter.size}"::DOUBLE'
    # Do not use isnan: Parquet statistics exclude NaN, so the optimizer may treat it as always false.
    size = f"CASE WHEN {asked} * 0 = 0 AND {asked} >= 0 THEN {asked} END"
    whole = f"CASE WHEN {size} <= {_LARGEST} THEN ceil({size}) ELSE {size} END"
    work = [_micros("j.run_s"), "epoch_us(j.end_time) - epoch_us(j.start_time)"]
    runs = ""
    if trace.has("attempts"):
        work.insert(0, "CAST(a.us AS BIGINT)")
        runs = (
            f"LEFT JOIN (SELECT job_id, sum({_micros('run_s')}) AS us FROM attempts GROUP BY job_id) a USING (job_id)"
        )
    taken = whole if job_filter.fractions == "up" else size
    usable = ", ".join(f"CASE WHEN {_usable(name)} THEN {name} END AS {name}" for name in _NUMBERS)
    return (
        f"SELECT j.* REPLACE ({usable}), coalesce({', '.join(work)}) / 1e6 AS work_s, {taken} AS size, "
        f"(j.status IN ('running', 'pending') AND j.end_time IS NULL) IS TRUE AS open FROM jobs j {runs}"
    )


def _judged(job_filter: JobFilter) -> str:
    tests = []
    if job_filter.dated or not job_filter.incomplete:
        tests.append(("no_submission", "submit_time IS NULL"))
    if not job_filter.incomplete:
        tests.append(("no_size", "size IS NULL"))
    tests.append(("too_large", f"size > {_LARGEST}"))
    if not job_filter.cpu_jobs:
        tests.append(("no_gpu", "size = 0"))
    if job_filter.fractions == "leave-out":
        tests.append(("fraction", "size <> floor(size)"))
    if not job_filter.incomplete:
        tests.append(("open", "open"))
        tests.append(("no_work", "work_s IS NULL"))
        tests.append(("negative", f"work_s < 0 OR work_s > {_LONGEST_S}"))
    cases = " ".join(f"WHEN {test} THEN '{name}'" for name, test in tests)
    return f"SELECT * EXCLUDE (open), CASE {cases} ELSE '' END AS reason FROM sized"
