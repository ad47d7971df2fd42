"""Read `sacct` text into rows with fixed columns, whatever columns it has and in whatever order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.ingest.cells import count_lost_rows, says_nothing, typed_cells
from tracekit.ingest.derived import disagrees, in_seconds
from tracekit.ingest.devices import UnknownDevices, device_factors
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.formats import _slurm_devices as devices_of
from tracekit.ingest.formats._slurm_jobstats import JobSummary, count_unreadable, job_summary
from tracekit.ingest.formats._slurm_json import read_json
from tracekit.ingest.formats._slurm_layout import VC_COLUMNS
from tracekit.ingest.formats._slurm_records import read_records
from tracekit.ingest.formats._slurm_resources import STATED, positive, resources
from tracekit.ingest.formats._slurm_times import ALL, LIFE, Resizes, as_wall_clocks, in_utc, stated_seconds
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.record_times import RecordTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.formats._slurm_layout import SacctLayout
    from tracekit.ingest.formats._slurm_records import SacctRecords
    from tracekit.ingest.sink import OpenedFile, Sink


# What rows of `sacct` say against themselves, and what is assumed where they are not clear.


def count_contradictions(frame: pl.DataFrame, sink: Sink) -> None:
    """Count what the rows of a block, in UTC and with their resources, say against themselves."""
    jobs = frame.filter(pl.col("step").is_null())
    timed = pl.col("started") & pl.col("ended") & pl.col("Start").is_not_null()
    ours = pl.when(timed).then(in_seconds(pl.col("End") - pl.col("StartStated")) - pl.col("Suspended").fill_null(0.0))
    listed = pl.col("NodeList").list.len()
    unfinished = ~pl.col("ended") & pl.col("EndLocal").is_not_null()
    for name, found, of, meaning in (
        (
            "duration_disagrees",
            disagrees(pl.col("stated_s"), ours),
            (pl.col("stated_s") - ours).is_not_null(),
            "rows whose stated Elapsed is not End minus Start minus Suspended; the times are used",
        ),
        (
            "end_of_unfinished_job",
            unfinished,
            pl.lit(value=True),
            "rows that carry an end although their state says that they have not ended; the end is not used",
        ),
        (
            "unknown_status_word",
            pl.col("status") == "unknown",
            pl.lit(value=True),
            "rows whose state is not in the format's description; their status is 'unknown'",
        ),
        (
            "node_count_disagrees",
            pl.col("NNodes") != listed,
            pl.col("NNodes").is_not_null() & listed.is_not_null(),
            "rows whose NNodes is not the number of nodes in their NodeList; both are kept",
        ),
        (
            "typed_gpus_disagree",
            pl.col("typed_differ"),
            pl.col("typed_differ").is_not_null(),
            "rows whose typed GPU entries do not add up to gres/gpu; gres/gpu is used",
        ),
        (
            "shared_gpus_unknown",
            pl.col("unknown_shares"),
            pl.lit(value=True),
            "rows with parts of GPUs of unknown size (gres/shard, gres/mps); option shards_per_gpu states the former",
        ),
        (
            "gres_by_number",
            pl.col("gres_by_number"),
            pl.col("AllocGRES").is_not_null() | pl.col("ReqGRES").is_not_null(),
            "rows whose GRES list names 7696487, the number that Slurm makes of the letters gpu; taken for GPUs",
        ),
        (
            "resized_runs",
            pl.col("resized"),
            pl.lit(value=True),
            "rows that go on a job whose size was changed; they state its first start and are counted from the change",
        ),
    ):
        rows = jobs.select(found=found, of=of)
        sink.check_rows(name, rows["found"], meaning, jobs["JobID"], int(rows["of"].sum()))


_LINES_PER_FILE = 1 << 40
_JOB_ID = r"^(\d{1,20})(?:_(\d{1,20}|\[[^\]]*\]))?(?:\+(\d{1,9}))?(?:\.(.+))?$"
_RAW_ID = r"^(\d{1,20})(?:\.(.+))?$"

_TASKS = pl.Struct({"size": pl.Int64, "ranges": pl.List(pl.List(pl.Int64))})
_STATE = pl.Struct({"word": pl.String, "status": pl.String})
_MEMORY = pl.Struct({"gib": pl.Float64, "per": pl.String})
_WORDS = {"model": pl.String, "devices": pl.String, "by_number": pl.Boolean, "typed_differ": pl.Boolean}
_GRES, _REQUEST, _TRES = (
    pl.Struct({name: _WORDS.get(name, pl.Float64) for name in kind._fields})
    for kind in (devices_of.Gres, devices_of.Request, devices_of.Tres)
)
_USAGE = pl.Struct(dict.fromkeys(text_of.Usage._fields, pl.Float64))
_SUMMARY = pl.Struct({name: pl.Boolean if name == "unreadable" else pl.Float64 for name in JobSummary._fields})
_CELLS: dict[str, tuple[Callable[[str], Any], pl.DataType]] = {
    "State": (text_of.state, _STATE),
    "SubmitLine": (devices_of.request, _REQUEST),
    **dict.fromkeys(("Elapsed", "Suspended", "Timelimit", "TotalCPU"), (text_of.duration_s, pl.Float64())),
    "TimelimitRaw": (text_of.limit_s, pl.Float64()),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (devices_of.tres, _TRES)),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), (devices_of.gres, _GRES)),
    **dict.fromkeys(("AllocCPUS", "NCPUS", "ReqCPUS", "NNodes", "AllocNodes", "NTasks"), (text_of.count, pl.Float64())),
    "ReqMem": (text_of.memory, _MEMORY),
    "NodeList": (expand_nodes, pl.List(pl.String)),
    "MaxRSS": (text_of.resident_gib, pl.Float64()),
    "AdminComment": (job_summary, _SUMMARY),
    **dict.fromkeys(("TRESUsageInAve", "TRESUsageInTot"), (text_of.usage, _USAGE)),
}
"""How the text of each column is parsed, and the type of the result."""
_OF_DEVICES = frozenset({"SubmitLine", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"})
"""Columns whose parsers take what devices count as well."""


_MEASURED = ("TRESUsageInAve", "TRESUsageInTot", "MaxRSS")
_UNREAD = (
    "cells of measured use with an invalid number, such as 16E or 18446744073709551615; that number is unknown, "
    "the others of its step are used"
)


_Unread = tuple[str, str, pl.Series, pl.Series]
"""Column, reason, mask of rows, and the texts of all rows."""


class SacctReader:
    """Reads `sacct` files into rows of one shape.

    Attributes
    ----------
    wall_clocks : bool
        Whether any time that was read is a wall clock without zone.
    """

    def __init__(self, sink: Sink) -> None:
        self.wall_clocks = False
        self._sink = sink
        self._resizes = Resizes()
        self._factors = device_factors(sink.options["gpu_resource"])
        self._unknown = UnknownDevices(sink, "jobs")

    def rows(self, files: list[SourceFile]) -> Iterator[pl.DataFrame]:
        """Yield the usable rows, steps included, in frames of one shape.

        Times are UTC; the columns named `_local` keep the wall clock, which is never ambiguous, to match and order the
        rows of a job. `ord` rises with the file and the line.
        """
        for number, file in enumerate(files):
            head = file.head()
            is_json = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
            with self._sink.opened(file) as opened:
                times = RecordTimes(self._sink, opened.path)
                found = read_json(opened, self._sink) if is_json else read_records(opened, self._sink, head)
                for layout, records in found:
                    yield self._rows(records, layout, number, opened, times)
        self._unknown.report()

    def _rows(
        self, records: SacctRecords, layout: SacctLayout, number: int, opened: OpenedFile, times: RecordTimes
    ) -> pl.DataFrame:
        text, instants = as_wall_clocks(records.text)
        frame, bad, lost = typed_cells(text, layout.spec)
        for cell in bad:
            records.faults[cell.row] = (cell.column, cell.reason)
        unread = [(column, reason, rows, text[column]) for column, reason, rows in lost]
        texts = frame
        # A cell that cannot be read is unknown; an empty one says that there is nothing.
        stated = [pl.col(n).is_not_null().alias(f"{n} stated") for n in STATED if n in layout.columns]
        frame = frame.with_columns(*stated, *(pl.lit(value=False).alias(f"{n} stated") for n in STATED
                                              if n not in layout.columns))  # fmt: skip
        frame = frame.with_columns(self._cell(frame, name, unread) for name in layout.columns if name in _CELLS)
        spec = schema.source("slurm", "sacct")
        frame = frame.with_columns(
            pl.lit(None, dtype=_CELLS[c.name][1] if c.name in _CELLS else c.polars).alias(c.name)
            for c in spec.columns
            if c.name not in layout.columns
        )
        frame = frame.with_columns(
            *instants,
            *_identity(),
            pl.Series("ord", records.order + number * _LINES_PER_FILE),
            pl.Series("line", records.lines),
        )
        records.add_fault(frame["job"].is_null() & frame["JobID"].is_not_null(), "JobID", "is not a job id")
        records.add_fault(frame["raw_id"].is_null() & frame["JobIDRaw"].is_not_null(), "JobIDRaw", "is not a job id")
        records.add_fault(frame["step"].is_null() & frame["Submit"].is_null(), "Submit", "is missing")
        tasks: list[_Unread] = []
        frame = frame.with_columns(_read_series(frame["tasks"], "JobID", text_of.array_tasks, _TASKS, tasks))
        for column, reason, rows, _ in tasks:
            records.add_fault(rows, column, reason)
        for row in sorted(records.faults):
            opened.reject(int(records.lines[row]), *records.faults[row], records.raws(row))
        good = np.ones(frame.height, dtype=bool)
        good[list(records.faults)] = False
        for column, reason, rows, cells in unread:
            count_lost_rows(self._sink, column, reason, rows, cells, good)
        kept = pl.Series(good)
        self._sink.rejected_gpu_s += self._gpu_time(frame.filter(~kept), layout)
        self._count_unread(texts.filter(kept), frame.filter(kept), layout)
        return self._normal(frame.filter(kept), layout, times)

    def _gpu_time(self, rejected: pl.DataFrame, layout: SacctLayout) -> float:
        """Return the GPU time of runs that cannot be used, as far as they state it [GPU*s]."""
        runs = rejected.filter(pl.col("step").is_null(), ~pl.col("JobID").str.contains(".", literal=True))
        if runs.is_empty():
            return 0.0
        runs = runs.with_columns(resources(layout.columns, self._sink.options["shards_per_gpu"]))
        span = pl.coalesce(pl.col("ElapsedRaw").cast(pl.Float64), "Elapsed")
        return float(runs.select((span * pl.col("gpus")).sum()).item() or 0)

    def _count_unread(self, stated: pl.DataFrame, read: pl.DataFrame, layout: SacctLayout) -> None:
        """Count measures that are none, such as 16E or 18446744073709551615; each costs its cell."""
        for name in _MEASURED:
            if name in layout.columns:
                lost = (
                    read[name].struct["unread"]
                    if name != "MaxRSS"
                    else read[name].is_null() & stated[name].is_not_null()
                )
                bad = lost.fill_null(0).cast(pl.Int64) > 0
                examples = (name + "=" + stated[name].filter(bad)).unique().sort() if bad.any() else None
                self._sink.check("unreadable_use", int(bad.sum()), stated[name].count(), _UNREAD, examples)

    def _cell(self, frame: pl.DataFrame, name: str, unread: list[_Unread]) -> pl.Series:
        parse, kind = _CELLS[name]
        if name in _OF_DEVICES:
            of_devices: Callable[..., Any] = parse
            parse = partial(of_devices, factors=self._factors)
        return _read_series(frame[name], name, parse, kind, unread)

    def _normal(self, frame: pl.DataFrame, layout: SacctLayout, times: RecordTimes) -> pl.DataFrame:
        options = self._sink.options
        frame = times.dated(frame, ALL)
        frame = frame.with_columns(word=pl.col("State").struct["word"], status=pl.col("State").struct["status"])
        frame, wall_clocks = in_utc(frame, times, options["timezone"], options["doubled_hour"])
        self.wall_clocks |= wall_clocks
        frame = times.ordered(self._resizes.moved(frame), LIFE)
        frame = frame.with_columns(resources(layout.columns, options["shards_per_gpu"])).with_columns(_life(layout))
        # Waits that count from Eligible take it as it stands; a step's own is that of no job.
        frame = frame.with_columns(eligible=pl.when(pl.col("step").is_null()).then("Eligible"))
        start = frame.select(pl.when("started").then("Start")).to_series()
        frame = times.eligible(frame, LIFE, "eligible", start)
        count_contradictions(frame, self._sink)
        jobs = frame.filter(pl.col("step").is_null())
        self._unknown.add(
            jobs.filter(pl.col("devices").is_not_null()).select("JobID", "devices").iter_rows(), jobs.height
        )
        count_unreadable(frame["AdminComment"], frame["JobID"], self._sink)
        return _shaped(frame, options)


def _read_series(
    texts: pl.Series,
    column: str,
    parse: Callable[[str], Any],
    kind: pl.DataType,
    unread: list[_Unread],
) -> pl.Series:
    """Return the cells parsed, each distinct text once; those that cannot be parsed are added to `unread`."""
    distinct = texts.drop_nulls().unique(maintain_order=True).to_list()
    values: list[Any] = []
    wrong: dict[str, list[str]] = {}
    for text in distinct:
        try:
            value = parse(text)
        except ValueError as error:
            value = None
            if not says_nothing(text):
                wrong.setdefault(str(error), []).append(text)
        values.append(value._asdict() if hasattr(value, "_asdict") else value)
    for reason, cells in wrong.items():
        unread.append((column, reason, texts.is_in(cells).fill_null(value=False), texts))
    table = pl.DataFrame({"text": distinct, "value": values}, schema={"text": pl.String, "value": kind}, strict=False)
    keyed = pl.DataFrame({"text": texts})
    return keyed.join(table, on="text", how="left", maintain_order="left")["value"].alias(texts.name)


def _identity() -> Iterable[pl.Expr]:
    """Return the parts of a job's id: `job`, `task`, `tasks`, `component`, `step`, `raw_id`."""
    parts = pl.col("JobID").str.extract_groups(_JOB_ID)
    raw = pl.col("JobIDRaw").str.extract_groups(_RAW_ID)
    task = parts.struct[1]
    yield parts.struct[0].alias("job")
    yield task.alias("task")
    yield pl.when(task.str.starts_with("[")).then(task).alias("tasks")
    yield parts.struct[2].cast(pl.Int64).alias("component")
    yield parts.struct[3].fill_null(raw.struct[1]).alias("step")
    yield raw.struct[0].alias("raw_id")


def _shaped(frame: pl.DataFrame, options: Mapping[str, str]) -> pl.DataFrame:
    """Return the columns that are staged."""
    component = pl.col("component").is_not_null()
    whole = pl.col("job") + pl.when(pl.col("task").is_not_null()).then("_" + pl.col("task")).otherwise(pl.lit(""))
    usage = _usage()
    return frame.select(
        "ord",
        cluster=pl.col("Cluster").fill_null("slurm"),
        key=pl.when(component).then("job").otherwise(pl.coalesce("raw_id", whole)),
        component="component",
        step="step",
        # Raw ids do not show which tasks were submitted as one array.
        array=pl.when(pl.col("task").is_not_null()).then("job"),
        task=pl.col("task").cast(pl.Int64, strict=False),
        task_ranges=pl.col("tasks").struct["ranges"],
        instance_count=pl.col("tasks").struct["size"],
        submit="Submit",
        origin=options["queue_from"].title(),
        eligible="eligible",
        start=pl.when("started").then("Start"),
        end=pl.when("ended").then("End"),
        submit_local="SubmitLocal",
        start_local=pl.when("started").then("StartLocal"),
        end_local=pl.when("ended").then("EndLocal"),
        resized="resized",
        status="status",
        word="word",
        reason="Reason",
        started_by=_started_by(),
        suspended_s="Suspended",
        gpu_count="gpus",
        per_node_gpus="per_node_gpus",
        asked_gpus="asked_gpus",
        has_tres="has_tres",
        gpu_model="model",
        cpu_count="cpus",
        memory_gib="memory",
        node_count=pl.col("nodes").cast(pl.Int64),
        node_list="NodeList",
        vc=VC_COLUMNS[options["vc"]],
        **{name: pl.col(column) for name, column in VC_COLUMNS.items()},
        user="User",
        name="JobName",
        priority="Priority",
        time_limit_s=pl.coalesce("Timelimit", "TimelimitRaw"),
        **usage,
    )


def _started_by() -> pl.Expr:
    """Return which part of the scheduler started a job; a start at submission is the main one's."""
    flags = pl.col("Flags")
    return (
        pl.when(flags.str.contains("SchedBackfill", literal=True))
        .then(pl.lit("backfill"))
        .when(flags.str.contains("SchedMain", literal=True) | flags.str.contains("SchedSubmit", literal=True))
        .then(pl.lit("main"))
    )


def _life(layout: SacctLayout) -> Iterable[pl.Expr]:
    """Return whether a row `started` and `ended`, and the stated run time."""
    stated = stated_seconds()
    if "NodeList" in layout.columns:
        nowhere = ~pl.col("NodeList stated")
    else:
        nowhere = (pl.col("status") == "cancelled") & (
            ~pl.col("AllocTRES stated") if "AllocTRES" in layout.columns else pl.lit(value=True)
        )
    instant = (pl.col("StartLocal") == pl.col("EndLocal")) & (stated.fill_null(0) == 0) & nowhere
    planned = pl.col("word") == "PENDING"
    started = pl.col("StartLocal").is_not_null() & ~(instant | planned).fill_null(value=False)
    # A run that was requeued has ended, and so has the part of one before its size was changed.
    going = pl.col("status").is_in(["running", "pending"]) & ~pl.col("word").is_in(["REQUEUED", "RESIZING"])
    yield started.alias("started")
    yield (~going.fill_null(value=False)).alias("ended")
    yield stated.alias("stated_s")


def _usage() -> dict[str, pl.Expr]:
    """Return the measured use, summed over the tasks of a step where their number is known."""
    mean, total = pl.col("TRESUsageInAve").struct, pl.col("TRESUsageInTot").struct
    of_job = pl.when(pl.col("step").is_null()).then(pl.col("AdminComment")).struct
    tasks = positive("NTasks").fill_null(1.0)
    return {
        "gpu_util_pct": pl.coalesce(total["gpu_util_pct"], mean["gpu_util_pct"] * tasks, of_job["gpu_util_pct"]),
        "gpu_memory_used_gib": pl.coalesce(
            total["gpu_memory_gib"], mean["gpu_memory_gib"] * tasks, of_job["gpu_memory_gib"]
        ),
        "memory_used_gib": pl.coalesce("MaxRSS", mean["memory_gib"], of_job["memory_gib"]),
        "cpu_s": pl.coalesce("TotalCPU", of_job["cpu_s"]),
    }
