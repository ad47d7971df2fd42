"""Lines and header of the Standard Workload Format, for the targets that write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.export.interface import ExportLog, Field, JobSelection
from tracekit.export.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_STATUS = {
    "completed": 1,
    "failed": 0,
    "timeout": 0,
    "node_fail": 0,
    "out_of_memory": 0,
    "cancelled": 5,
    "preempted": 5,
}
_NUMBER = r"0|[1-9][0-9]{0,8}"
_JOB_NUMBER = r"0|[1-9][0-9]{0,14}"

FIELDS = (
    Field("1 job number", "identifies the job", "job_id where all are numbers, else 1 and up in order of submission"),
    Field("2 submit time", "s since the start of the log", "submit_time"),
    Field("3 wait time", "s", "start_time - submit_time"),
    Field("4 run time", "s by the wall clock", "run_s, or the sum of the attempts (option run_time)"),
    Field("5 allocated processors", "count", "gpu_count of jobs that started (option processors)"),
    Field("6 CPU time", "s of a processor", "-1: not in a Trace"),
    Field("7 used memory", "KB of a processor", "-1: not in a Trace"),
    Field("8 requested processors", "count", "gpu_count (option processors)"),
    Field("9 requested time", "s", "time_limit_s"),
    Field("10 requested memory", "KB of a processor", "memory_gib / processors"),
    Field("11 status", "1 completed, 0 failed, 5 cancelled", "status"),
    Field("12 user", "number", "user, numbered in the order of names"),
    Field("13 group", "number", "group, numbered in the order of names"),
    Field("14 executable", "number", "-1: not in a Trace"),
    Field("15 queue", "number", "vc, numbered in the order of names; the header has the names"),
    Field("16 partition", "number", "cluster, numbered in the order of names"),
    Field("17 preceding job", "number", "-1: not in a Trace"),
    Field("18 think time", "s", "-1: not in a Trace"),
)


@dataclass(frozen=True)
class SwfLayout:
    """How the lines of a log are written."""

    run: str = "run_s"
    """Column of the run time: run_s by the wall clock, work_s without gaps."""
    exact: bool = False
    """Whether parts of a second are written."""
    memory_unknown: int = -1
    """Memory of a job that states none [KB]."""
    limit_is_run: bool = False
    """Whether the requested time of a job that states none is its run time; else it is unknown."""


@dataclass(frozen=True)
class Numbers:
    """The numbers that stand for names."""

    jobs: bool
    """Whether job ids are numbers already."""
    users: dict[str, int]
    groups: dict[str, int]
    queues: dict[str, int]
    partitions: dict[str, int]


def numbered(jobs: JobSelection, log: ExportLog) -> Numbers:
    """Return numbers of users, groups, VCs and clusters: their own where all are numbers, else in order of name."""
    other = jobs.count_where(f"NOT regexp_full_match(job_id, '{_JOB_NUMBER}')")
    if other:
        log.note("some job ids are not numbers, so jobs are numbered from 1 in order of submission")
    columns = {name: _numbers(jobs.distinct(name)) for name in ("user", "group", "vc", "cluster")}
    return Numbers(not other, columns["user"], columns["group"], columns["vc"], columns["cluster"])


def _numbers(values: list[str]) -> dict[str, int]:
    if all(re.fullmatch(_NUMBER, value, re.ASCII) for value in values):
        return {value: int(value) for value in values}
    return {value: number for number, value in enumerate(values, start=1)}


def write_lines(
    path: Path, header: list[str], jobs: JobSelection, numbers: Numbers, layout: SwfLayout, log: ExportLog
) -> None:
    """Write the header and a line of 18 fields for each job."""
    with path.open("wb") as file:
        file.write(("\n".join(header) + "\n").encode())
        for lines in _job_lines(jobs, numbers, layout, log):
            file.write(("\n".join(lines) + "\n").encode())


def _job_lines(jobs: JobSelection, numbers: Numbers, layout: SwfLayout, log: ExportLog) -> Iterator[pl.Series]:
    rounded = 0
    for block in jobs.blocks(
        "job_id", "submit_s", "wait_s", "work_s", "run_s", "size", "start_time", "end_time", "submit_time",
        "memory_gib", "time_limit_s", "status", "user", "group", "vc", "cluster",
    ):  # fmt: skip
        started = pl.col("start_time").is_not_null()
        # A job cancelled in the queue leaves it after its wait, and ran for no time on no processor.
        gave_up = ~started & (pl.col("status") == "cancelled").fill_null(value=False)
        waited = (pl.col("end_time") - pl.col("submit_time")).dt.total_microseconds() / 1e6
        wall = pl.coalesce("run_s", (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
        ran = pl.coalesce("work_s", wall) if layout.run == "work_s" else wall
        wait = pl.when(gave_up).then(waited).otherwise("wait_s")
        run = pl.when(gave_up & waited.is_not_null()).then(0.0).when(gave_up).then(None).otherwise(ran)
        size = pl.when(pl.col("size").is_nan()).then(None).otherwise("size")
        memory = (pl.col("memory_gib") * 1024**2 / pl.when(pl.col("size") > 0).then("size")).round()
        times = block.select(
            pl.col("submit_s").alias("submit"),
            wait.alias("wait"),
            run.alias("run"),
            pl.col("time_limit_s").alias("limit"),
        )
        if not layout.exact:
            rounded += int(times.select(pl.any_horizontal(pl.all() != pl.all().floor()).sum()).item() or 0)
            times = times.with_columns((pl.all() + 0.5).floor())
        limit = times["limit"].fill_null(times["run"]) if layout.limit_is_run else times["limit"]
        number = pl.col("job_id") if numbers.jobs else pl.col("n").cast(pl.String)
        parts = (
            number,
            *(_plain(pl.lit(times[name])) for name in ("submit", "wait", "run")),
            _plain(pl.when(started).then(size)),
            pl.lit("-1"),
            pl.lit("-1"),
            _plain(size),
            _plain(pl.lit(limit)),
            _plain(memory.fill_null(layout.memory_unknown)),
            pl.col("status").replace_strict(_STATUS, default=-1, return_dtype=pl.Int64).cast(pl.String).fill_null("-1"),
            _number("user", numbers.users),
            _number("group", numbers.groups),
            pl.lit("-1"),
            _number("vc", numbers.queues),
            _number("cluster", numbers.partitions),
            pl.lit("-1"),
            pl.lit("-1"),
        )
        yield block.select(line=pl.concat_str(parts, separator=" "))["line"]
    log.changed(rounded, "times were rounded to whole seconds (option seconds)")


def _number(column: str, numbers: dict[str, int]) -> pl.Expr:
    found = pl.col(column).replace_strict(numbers, default=None, return_dtype=pl.Int64) if numbers else pl.lit(-1)
    return found.cast(pl.String).fill_null("-1")


def _plain(value: pl.Expr) -> pl.Expr:
    """Return numbers as text: whole ones without a point, -1 where unknown."""
    known = pl.when(value.is_finite() & (value.abs() < 1e15)).then(value)
    whole = known == known.floor()
    return pl.when(whole).then(known.cast(pl.Int64).cast(pl.String)).otherwise(known.cast(pl.String)).fill_null("-1")


def header_lines(jobs: JobSelection, numbers: Numbers, *, processors: str, total: int, notes: list[str]) -> list[str]:
    """Return the comment lines before the jobs.

    Parameters
    ----------
    processors : str
        What a processor is: 'GPU'.
    total : int
        Processors of the machine; 0 is unknown.
    """
    base = jobs.time_base
    keys = [("Version", "2.2")]
    if len(numbers.partitions) == 1:
        keys.append(("Computer", printable(next(iter(numbers.partitions)))))
    keys += [("Conversion", "tracekit"), ("MaxJobs", str(jobs.count)), ("MaxRecords", str(jobs.count))]
    if base != "relative":
        start = pl.Series([jobs.origin_us]).cast(pl.Datetime("us"))
        keys.append(("UnixStartTime", str(jobs.origin_us // 1_000_000)))
        keys.append(("TimeZoneString", printable(jobs.trace.timezone)))
        keys.append(("StartTime", str(start.dt.strftime("%a %b %d %H:%M:%S UTC %Y").item())))
    nodes = jobs.machines[0]
    keys += [("MaxNodes", str(nodes))] if nodes else []
    keys += [("MaxProcs", str(total))] if total else []
    for key, plural, found in (
        ("Queue", "MaxQueues", numbers.queues),
        ("Partition", "MaxPartitions", numbers.partitions),
    ):
        if found:
            keys.append((plural, str(len(found))))
            keys += [(key, f"{number} {printable(name)}") for name, number in found.items() if str(number) != name]
    remarks = [f"a processor is a {processors}", *notes]
    if base == "shifted":
        remarks.append("dates are shifted" if jobs.shift_us else "dates are shifted: only hours and weekdays hold")
    keys += [("Note", printable(text)) for text in remarks]
    return [f"; {key}: {value}" for key, value in keys]
