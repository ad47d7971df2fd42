"""Standard Workload Format 2.2, which most batch scheduler simulators read.

Source: the definition at the Parallel Workloads Archive (www.cs.huji.ac.il/labs/parallel/workload/swf.html), and Chapin
et al., JSSPP'99. Comment lines begin with a semicolon, a job is a line of 18 numbers, and -1 means unknown. The format
knows only processors. Here, a processor is a GPU or a CPU core (option processors).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit.export.interface import (
    CPU_JOBS,
    FRACTIONS,
    ExportLog,
    Field,
    JobFilter,
    JobSelection,
    Option,
    Options,
    Output,
    Target,
)
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_groups
from tracekit.export.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
    Field("1 job number", "identifies the job", "job_id if all ids are numbers, else from 1 in submission order"),
    Field("2 submit time", "s since the start of the log", "submit_time"),
    Field("3 wait time", "s", "start_time - submit_time"),
    Field("4 run time", "s of wall-clock time", "run_s, or the sum of its attempts (option run_time)"),
    Field("5 allocated processors", "count", "gpu_count of jobs that started (option processors)"),
    Field("6 CPU time", "s per processor", "-1: not in a Trace"),
    Field("7 used memory", "KB per processor", "-1: not in a Trace"),
    Field("8 requested processors", "count", "gpu_count (option processors)"),
    Field("9 requested time", "s", "time_limit_s"),
    Field("10 requested memory", "KB per processor", "memory_gib / processors"),
    Field("11 status", "1 completed, 0 failed, 5 cancelled", "status"),
    Field("12 user", "number", "user, numbered in order of names"),
    Field("13 group", "number", "group, numbered in order of names"),
    Field("14 executable", "number", "-1: not in a Trace"),
    Field("15 queue", "number", "vc, numbered in order of names; the header has the names"),
    Field("16 partition", "number", "cluster, numbered in order of names"),
    Field("17 preceding job", "number", "-1: not in a Trace"),
    Field("18 think time", "s", "-1: not in a Trace"),
)


@dataclass(frozen=True)
class SwfLayout:
    """The layout of a log's lines."""

    run: str = "run_s"
    """Run-time column: run_s for wall-clock time, or work_s for the time without gaps."""
    exact: bool = False
    """Whether fractions of a second are written."""
    memory_unknown: int = -1
    """Memory written for a job without a memory request [KB]."""
    limit_is_run: bool = False
    """Whether the run time replaces a missing requested time. If not, the requested time is unknown."""


@dataclass(frozen=True)
class Numbers:
    """The numbers that replace names."""

    jobs: bool
    """Whether job ids are already numbers."""
    users: dict[str, int]
    groups: dict[str, int]
    queues: dict[str, int]
    partitions: dict[str, int]


def numbered(jobs: JobSelection, log: ExportLog) -> Numbers:
    """Return numbers for users, groups, VCs and clusters: their names if all are numbers, else in order of names."""
    other = jobs.count_where(f"NOT regexp_full_match(job_id, '{_JOB_NUMBER}')")
    if other:
        log.note("some job ids are not numbers, so jobs are numbered from 1 in submission order")
    columns = {name: _numbers(jobs.distinct(name)) for name in ("user", "group", "vc", "cluster")}
    return Numbers(not other, columns["user"], columns["group"], columns["vc"], columns["cluster"])


def _numbers(values: list[str]) -> dict[str, int]:
    if all(re.fullmatch(_NUMBER, value, re.ASCII) for value in values):
        return {value: int(value) for value in values}
    return {value: number for number, value in enumerate(values, start=1)}


def write_swf(
    path: Path,
    jobs: JobSelection,
    numbers: Numbers,
    layout: SwfLayout,
    log: ExportLog,
    *,
    processors: str,
    total: int,
    notes: tuple[str, ...] = (),
) -> None:
    """Write the comment lines, and one line of 18 fields per job.

    Parameters
    ----------
    processors : str
        What a processor represents, such as 'GPU'.
    total : int
        Number of processors in the machine, or 0 if unknown.
    notes : tuple of str
        Further comments.
    """
    with path.open("wb") as file:
        file.write(("\n".join(_header(jobs, numbers, processors, total, notes)) + "\n").encode())
        for lines in _job_lines(jobs, numbers, layout, log):
            file.write(("\n".join(lines) + "\n").encode())


def _job_lines(jobs: JobSelection, numbers: Numbers, layout: SwfLayout, log: ExportLog) -> Iterator[pl.Series]:
    rounded = 0
    for block in jobs.blocks(
        "job_id", "submit_s", "wait_s", "work_s", "run_s", "size", "start_time", "end_time", "submit_time",
        "memory_gib", "time_limit_s", "status", "user", "group", "vc", "cluster",
    ):  # fmt: skip
        started = pl.col("start_time").is_not_null()
        # A job cancelled in the queue leaves after its wait, with run time 0 on 0 processors.
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
    """Format numbers as text: whole numbers without a decimal point, and unknown numbers as -1."""
    known = pl.when(value.is_finite() & (value.abs() < 1e15)).then(value)
    whole = known == known.floor()
    return pl.when(whole).then(known.cast(pl.Int64).cast(pl.String)).otherwise(known.cast(pl.String)).fill_null("-1")


def _header(jobs: JobSelection, numbers: Numbers, processors: str, total: int, notes: tuple[str, ...]) -> list[str]:
    """Return the comment lines before the jobs."""
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
        remarks.append(
            "dates are shifted" if jobs.shift_us else "dates are shifted, so only hours and weekdays are real"
        )
    keys += [("Note", printable(text)) for text in remarks]
    return [f"; {key}: {value}" for key, value in keys]


class SwfTarget(Target):
    """One log in the Standard Workload Format."""

    name = "swf"
    title = "Standard Workload Format 2.2"
    reads = "any simulator that reads Parallel Workloads Archive logs; tracekit reads it with processors_are_gpus=yes"
    fields: ClassVar[tuple[Field, ...]] = FIELDS
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": Option("gpu", "jobs to export: only jobs that request processors, or all", ("gpu", "all")),
        "processors": Option("gpus", "what a processor represents", ("gpus", "cpus")),
        "fractions": Option("up", "how to handle a fraction of a processor", ("up", "keep", "leave-out")),
        "incomplete": Option("keep", "jobs that never ran or have unknown times", ("keep", "leave-out")),
        "run_time": Option(
            "wall", "run time: including the gaps between attempts, or the sum of attempts", ("wall", "attempts")
        ),
        "seconds": Option("whole", "times: in whole seconds, as readers expect, or exact", ("whole", "exact")),
    }
    machines = False
    dates = True
    needs = "nothing; -1 means unknown"
    lost = (
        "names of users, groups and jobs; GPU models, nodes, attempts; statuses except completed, failed and cancelled"
    )
    sources = ("www.cs.huji.ac.il/labs/parallel/workload/swf.html", "Chapin et al., JSSPP'99")

    def job_filter(self, options: Options) -> JobFilter:
        """Return the rules that select the exported jobs."""
        size = "gpu_count" if options.values["processors"] == "gpus" else "cpu_count"
        return JobFilter.from_options(options, size=size, keep_zero=True)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the log."""
        gpus = options.values["processors"] == "gpus"
        attempts = options.values["run_time"] == "attempts"
        layout = SwfLayout(run="work_s" if attempts else "run_s", exact=options.values["seconds"] == "exact")
        numbers = numbered(jobs, log)
        total, notes = jobs.machines[2] if gpus else 0, []
        if not total:
            total = jobs.peak
            held = f"the file has {total:,}, the most that jobs used at once" if total else "it is left out"
            notes += ["MaxProcs is the largest number of processors that jobs used at once"] if total else []
            log.note(f"MaxProcs is not in the Trace: {held}")
        if attempts:
            notes.append("run times are sums of attempts, without the gaps between them")
        undated = jobs.count_where("submit_time IS NULL AND start_time IS NOT NULL")
        log.changed(undated, "times count from the submission, which these jobs lack, so their start time is lost")
        log.changed(
            jobs.count_where("status IN ('timeout', 'node_fail', 'out_of_memory', 'preempted', 'running', 'pending')"),
            "the format has no code for their status, which became failed (0), cancelled (5) or unknown (-1)",
        )
        if numbers.users:
            log.note(f"users are numbered from 1 to {len(numbers.users):,}, because the format has no user names")
        processors = "GPU" if gpus else "CPU core"
        write_swf(out.main, jobs, numbers, layout, log, processors=processors, total=total, notes=tuple(notes))


# AccaSim reads the same format and a system configuration (JSON).
#
# Source: github.com/cgalleguillosm/accasim, `utils/reader_class.py` (the default reader and parser), `utils/misc.py`
# (its patterns, in which every field is a whole number) and config/HPC2N.config. The reader uses submission, duration,
# requested time, requested processors (else allocated processors), and requested memory (else used memory). It stops at
# a job with unknown processors or memory, so neither is -1 here. AccaSim's schedulers use the requested time as the
# expected duration. A processor is a GPU, which the configuration calls a core.

_CONFIG = ".config"
_UNLIMITED_KB = 2**40


class AccaSimTarget(Target):
    """SWF without unknown values, and a system configuration."""

    name = "accasim"
    title = "AccaSim"
    reads = "the workload and the sys_config of AccaSim's Simulator"
    fields = (
        *(f for f in FIELDS if f.name.startswith(("1 ", "2 ", "4 ", "8 ", "12"))),
        Field("9 requested time", "s", "time_limit_s, else the run time (option requested_time)"),
        Field("10 requested memory", "KB per processor", "memory_gib / processors, or 0 if unknown"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": CPU_JOBS,
        "fractions": FRACTIONS,
        "run_time": Option(
            "attempts", "run time: the sum of attempts, or including the gaps between them", ("attempts", "wall")
        ),
        "requested_time": Option(
            "run",
            "requested time of jobs without a time limit: their run time, or unknown; SJF, LJF and EASY order by it",
            ("run", "-1"),
        ),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "node_memory_gib": Option(
            "", "host memory per node [GiB]; if empty, enough never to be the limit", form="positive"
        ),
    }
    companions: ClassVar[Mapping[str, str]] = {_CONFIG: "system configuration: nodes, and cores and memory per node"}
    lost = "CPU cores, GPU models, names; VCs become numbers"
    sources = ("github.com/cgalleguillosm/accasim",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the workload and the system configuration."""
        groups = cluster_groups(jobs, log, options)
        numbers = numbered(jobs, log)
        log.filled("memory", "0 KB", jobs.unknown("memory_gib"))
        from_run = options.values["requested_time"] == "run"
        meant = "the run time" if from_run else "-1"
        log.filled("requested time", meant, jobs.unknown("time_limit_s"), "requested_time")
        run = "work_s" if options.values["run_time"] == "attempts" else "run_s"
        layout = SwfLayout(run=run, memory_unknown=0, limit_is_run=from_run)
        total = sum(nodes * gpus for nodes, gpus in groups)
        write_swf(out.main, jobs, numbers, layout, log, processors="GPU", total=total)
        memory = _UNLIMITED_KB
        if options.values["node_memory_gib"]:
            memory = round(options.positive("node_memory_gib") * 1024**2)
        system = {
            "system_name": "tracekit",
            "equivalence": {"processor": {"core": 1}},
            "groups": {f"g{n}": {"core": gpus, "mem": memory} for n, (_, gpus) in enumerate(groups)},
            "resources": {f"g{n}": nodes for n, (nodes, _) in enumerate(groups)},
        }
        files = (out.target.name, out.target.stem + _CONFIG)
        log.setting(f"Simulator('{files[0]}', '{files[1]}', dispatcher), in which a core is a GPU")
        out.companion(_CONFIG).write_text(json.dumps(system, indent=2) + "\n", encoding="utf-8")


MEMBERS = (AccaSimTarget(), SwfTarget())
