"""Convert a `sacct` row's cells to times in UTC and allocated resources.

The resulting rows have the same columns for every export.

`SLURM_TIME_FORMAT=%s` makes sacct print seconds since 1970, and `%FT%T%z` makes it print a wall-clock time with its
offset. Both are instants and need no zone. Any other time is the machine's wall-clock time. If a wall-clock time is
ambiguous, Elapsed decides.

A resized job has two rows. The first has the state RESIZING and ends at the resize. The second was submitted at the
resize but shows the start of the first, so we start it at the resize.
"""

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
from tracekit.ingest.formats._slurm_json import read_json
from tracekit.ingest.formats._slurm_text import VC_COLUMNS, read_text
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.formats._slurm_text import SacctLayout, SacctRecords
    from tracekit.ingest.sink import OpenedFile, Sink


_LINES_PER_FILE = 1 << 40
_JOB_ID = r"^(\d{1,20})(?:_(\d{1,20}|\[[^\]]*\]))?(?:\+(\d{1,9}))?(?:\.(.+))?$"
_RAW_ID = r"^(\d{1,20})(?:\.(.+))?$"

_TASKS = pl.Struct({"size": pl.Int64, "ranges": pl.List(pl.List(pl.Int64))})
_MEMORY = pl.Struct({"gib": pl.Float64, "per": pl.String})
_WORDS = {"model": pl.String, "devices": pl.String, "by_number": pl.Boolean, "typed_differ": pl.Boolean}
_GRES, _REQUEST, _TRES = (
    pl.Struct({name: _WORDS.get(name, pl.Float64) for name in kind._fields})
    for kind in (text_of.Gres, text_of.Request, text_of.Tres)
)
_USAGE = pl.Struct(dict.fromkeys(text_of.Usage._fields, pl.Float64))
_SUMMARY = pl.Struct({name: pl.Boolean if name == "unreadable" else pl.Float64 for name in text_of.JobSummary._fields})
_CELLS: dict[str, tuple[Callable[[str], Any], pl.DataType]] = {
    "State": (text_of.state, pl.String()),
    "SubmitLine": (text_of.request, _REQUEST),
    **dict.fromkeys(("Elapsed", "Suspended", "Timelimit", "TotalCPU"), (text_of.duration_s, pl.Float64())),
    "TimelimitRaw": (text_of.limit_s, pl.Float64()),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (text_of.tres, _TRES)),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), (text_of.gres, _GRES)),
    **dict.fromkeys(("AllocCPUS", "NCPUS", "ReqCPUS", "NNodes", "AllocNodes", "NTasks"), (text_of.count, pl.Float64())),
    "ReqMem": (text_of.memory, _MEMORY),
    "NodeList": (expand_nodes, pl.List(pl.String)),
    "MaxRSS": (text_of.resident_gib, pl.Float64()),
    "AdminComment": (text_of.job_summary, _SUMMARY),
    **dict.fromkeys(("TRESUsageInAve", "TRESUsageInTot"), (text_of.usage, _USAGE)),
}
"""How to parse the text of each column, and the type of the result."""
_OF_DEVICES = frozenset({"SubmitLine", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"})
"""Columns whose parsers also need the device factors."""


_MEASURED = ("TRESUsageInAve", "TRESUsageInTot", "MaxRSS")
_UNREAD = (
    "cells of measured use with an invalid number, such as 16E or 18446744073709551615; that number is unknown, "
    "but the step's other numbers are used"
)
_STATED = ("AllocTRES", "ReqTRES", "NodeList")
"""Columns with an extra column, such as `AllocTRES stated`, which shows whether the cell has a value."""

_LIFE = TimeColumns({"Submit": "submit_time", "Start": "start_time", "End": "end_time"}, names="JobID")
_TIMES = TimeColumns(
    {"Submit": "submit_time", "Eligible": "eligible_time", "Start": "start_time", "End": "end_time"}, names="JobID"
)

_Unread = tuple[str, str, pl.Series, pl.Series]
"""Column, reason, row mask, and the cells of all rows."""


class SacctReader:
    """Reads `sacct` files into rows with the same columns.

    Attributes
    ----------
    wall_clocks : bool
        Whether any time so far is a wall-clock time without a zone.
    """

    def __init__(self, sink: Sink) -> None:
        self.wall_clocks = False
        self._sink = sink
        self._resizes = _Resizes()
        self._factors = device_factors(sink.options["gpu_resource"])
        self._unknown = UnknownDevices(sink, "jobs")

    def rows(self, files: list[SourceFile]) -> Iterator[pl.DataFrame]:
        """Yield the usable rows, including steps, in frames with the same columns.

        Times are UTC. The columns named `_local` keep the wall-clock time as written, for matching and ordering the
        rows of a job. `ord` increases with file and line.
        """
        for number, file in enumerate(files):
            head = file.head()
            is_json = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
            with self._sink.opened(file) as opened:
                times = RecordTimes(self._sink, opened.path)
                found = read_json(opened, self._sink) if is_json else read_text(opened, self._sink, head)
                for layout, records in found:
                    yield self._rows(records, layout, number, opened, times)
        self._unknown.report()

    def _rows(
        self, records: SacctRecords, layout: SacctLayout, number: int, opened: OpenedFile, times: RecordTimes
    ) -> pl.DataFrame:
        text, instants = _as_wall_clocks(records.text)
        frame, bad, lost = typed_cells(text, layout.spec)
        for cell in bad:
            records.faults[cell.row] = (cell.column, cell.reason)
        unread = [(column, reason, rows, text[column]) for column, reason, rows in lost]
        texts = frame
        # An unreadable cell is unknown, and an empty cell means none.
        stated = {
            f"{n} stated": pl.col(n).is_not_null() if n in layout.columns else pl.lit(value=False) for n in _STATED
        }
        frame = frame.with_columns(**stated)
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
        """Return the recorded GPU time of unusable runs [GPU*s]."""
        runs = rejected.filter(pl.col("step").is_null(), ~pl.col("JobID").str.contains(".", literal=True))
        if runs.is_empty():
            return 0.0
        runs = runs.with_columns(_resources(layout.columns, self._sink.options["shards_per_gpu"]))
        return float(runs.select((_stated_seconds() * pl.col("gpus")).sum()).item() or 0)

    def _count_unread(self, stated: pl.DataFrame, read: pl.DataFrame, layout: SacctLayout) -> None:
        """Count invalid measurements, such as 16E or 18446744073709551615. Only the affected cell becomes unknown."""
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
        frame = times.dated(frame, _TIMES)
        frame = frame.with_columns(word="State", status=text_of.slurm_status(pl.col("State")))
        clocks = (pl.col(name).is_not_null() & ~pl.col(f"{name}Instant") for name in _TIMES.columns)
        self.wall_clocks |= frame.select(pl.any_horizontal(clocks).any()).item()
        frame = _in_utc(frame, times, options["timezone"], options["doubled_hour"])
        frame = times.ordered(self._resizes.moved(frame), _LIFE)
        frame = frame.with_columns(_resources(layout.columns, options["shards_per_gpu"])).with_columns(_life(layout))
        # Waits from Eligible use the recorded time. A step's Eligible is not its job's.
        frame = frame.with_columns(eligible=pl.when(pl.col("step").is_null()).then("Eligible"))
        start = frame.select(pl.when("started").then("Start")).to_series()
        frame = times.eligible(frame, _LIFE, "eligible", start)
        jobs = frame.filter(pl.col("step").is_null())
        _count_contradictions(jobs, self._sink)
        self._unknown.add(
            jobs.filter(pl.col("devices").is_not_null()).select("JobID", "devices").iter_rows(), jobs.height
        )
        told = frame["AdminComment"].struct.field("unreadable")
        if told.count():
            meaning = "malformed Jobstats summaries in AdminComment; ignored"
            self._sink.check_rows("unreadable_jobstats", told, meaning, frame["JobID"], told.count())
        return _shaped(frame, options)


def _read_series(
    texts: pl.Series,
    column: str,
    parse: Callable[[str], Any],
    kind: pl.DataType,
    unread: list[_Unread],
) -> pl.Series:
    """Parse cells, each distinct string once, and add unreadable cells to `unread`."""
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
    """Return the parts of a job's id: `job`, `task`, `tasks`, `component`, `step` and `raw_id`."""
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
    """Return the columns to stage."""
    component = pl.col("component").is_not_null()
    whole = pl.col("job") + pl.when(pl.col("task").is_not_null()).then("_" + pl.col("task")).otherwise(pl.lit(""))
    # The main scheduler can also start a job at submission.
    flags = pl.col("Flags")
    return frame.select(
        "ord",
        cluster=pl.col("Cluster").fill_null("slurm"),
        key=pl.when(component).then("job").otherwise(pl.coalesce("raw_id", whole)),
        component="component",
        step="step",
        # Raw ids do not show which tasks belong to one array.
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
        started_by=pl.when(flags.str.contains("SchedBackfill", literal=True))
        .then(pl.lit("backfill"))
        .when(flags.str.contains("SchedMain", literal=True) | flags.str.contains("SchedSubmit", literal=True))
        .then(pl.lit("main")),
        constraint="Constraints",
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
        **_usage(),
    )


def _life(layout: SacctLayout) -> Iterable[pl.Expr]:
    """Return a row's `started` and `ended` columns, and its recorded run time."""
    stated = _stated_seconds()
    if "NodeList" in layout.columns:
        nowhere = ~pl.col("NodeList stated")
    else:
        nowhere = (pl.col("status") == "cancelled") & (
            ~pl.col("AllocTRES stated") if "AllocTRES" in layout.columns else pl.lit(value=True)
        )
    instant = (pl.col("StartLocal") == pl.col("EndLocal")) & (stated.fill_null(0) == 0) & nowhere
    planned = pl.col("word") == "PENDING"
    started = pl.col("StartLocal").is_not_null() & ~(instant | planned).fill_null(value=False)
    # A requeued run has ended, and so has the part of a run before a resize.
    going = pl.col("status").is_in(["running", "pending"]) & ~pl.col("word").is_in(["REQUEUED", "RESIZING"])
    yield started.alias("started")
    yield (~going.fill_null(value=False)).alias("ended")
    yield stated.alias("stated_s")


def _usage() -> dict[str, pl.Expr]:
    """Return the measured use, summed over a step's tasks if their number is known."""
    mean, total = pl.col("TRESUsageInAve").struct, pl.col("TRESUsageInTot").struct
    of_job = pl.when(pl.col("step").is_null()).then(pl.col("AdminComment")).struct
    tasks = _positive("NTasks").fill_null(1.0)
    return {
        "gpu_util_pct": pl.coalesce(total["gpu_util_pct"], mean["gpu_util_pct"] * tasks, of_job["gpu_util_pct"]),
        "gpu_memory_used_gib": pl.coalesce(
            total["gpu_memory_gib"], mean["gpu_memory_gib"] * tasks, of_job["gpu_memory_gib"]
        ),
        "memory_used_gib": pl.coalesce("MaxRSS", mean["memory_gib"], of_job["memory_gib"]),
        "cpu_s": pl.coalesce("TotalCPU", of_job["cpu_s"]),
    }


# Times: instants, wall-clock times, and rows that continue a resized job.

_INSTANT = r"^\d{1,12}$|^\d{4}-.*(?:Z|[+-]\d\d:?\d\d)$"
_WRITTEN = "%Y-%m-%dT%H:%M:%S"
_MOST_RESIZES = 1_000_000
"""Maximum number of resized jobs to remember."""


def _as_wall_clocks(text: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.Series]]:
    """Rewrite instants as UTC wall-clock times; return the cells, and their masks as `<name>Instant` columns."""
    cells = []
    where = []
    none = pl.repeat(value=False, n=text.height, eager=True)
    for name in _TIMES.columns:
        found = text[name].str.contains(_INSTANT).fill_null(value=False) if name in text.columns else none
        where.append(found.alias(f"{name}Instant"))
        if not found.any():
            continue
        cell = pl.col(name)
        zoned = cell.str.replace(r"Z$", "+0000").str.replace(r"([+-]\d\d):(\d\d)$", "${1}${2}")
        instant = pl.coalesce(
            cell.str.to_integer(strict=False).clip(0, 10**10).mul(1_000_000).cast(pl.Datetime("us")),
            zoned.str.to_datetime(f"{_WRITTEN}%z", strict=False, time_unit="us", cache=False).dt.replace_time_zone(
                None
            ),
        )
        cells.append(pl.when(found).then(pl.coalesce(instant.dt.to_string(_WRITTEN), cell)).otherwise(cell).alias(name))
    return text.with_columns(cells), where


def _stated_seconds() -> pl.Expr:
    """Return a row's recorded run time, excluding suspension [s]."""
    return pl.coalesce(pl.col("ElapsedRaw").cast(pl.Float64), "Elapsed")


def _in_utc(frame: pl.DataFrame, times: RecordTimes, zone: str, doubled_hour: str) -> pl.DataFrame:
    """Convert times to UTC, and keep the wall-clock times as `<name>Local` columns.

    If a wall-clock time near a clock change can mean two instants, Elapsed decides between them if possible.
    """
    instants = [name for name in _TIMES.columns if frame[f"{name}Instant"].any()]
    clocks = frame.select(pl.when(~pl.col(f"{name}Instant")).then(name).alias(name) for name in _TIMES.columns)
    frame = frame.with_columns(pl.col(name).alias(f"{name}Local") for name in _TIMES.columns).with_columns(
        pl.when(f"{name}Instant")
        .then(pl.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None))
        .otherwise(name)
        .alias(f"{name}Local")
        for name in instants
    )
    seconds = frame.select(_lasted()).to_series()
    return times.from_wall_clock(
        frame, _TIMES, zone, doubled_hour, clocks=clocks if instants else None, lasted=("Start", "End", seconds)
    )


def _lasted() -> pl.Expr:
    """Return a row's recorded time from start to end, including suspension [s]."""
    return _stated_seconds() + pl.col("Suspended").fill_null(0.0)


class _Resizes:
    """Finds rows that continue a resized job, by remembering the rows in the RESIZING state."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Move starts to the resize, and return the rows with the recorded start and whether the start was moved.

        A start before the submission is that of the job's first row if we saw that row or if the recorded run time
        counts from this start. Otherwise, it contradicts the submission.
        """
        key = pl.concat_str(
            pl.col("Cluster").fill_null(""),
            pl.coalesce("JobIDRaw", "JobID"),
            pl.col("StartLocal").dt.to_string(_WRITTEN),
            separator="/",
        )
        own = pl.col("step").is_null()
        resizing = frame.filter(own & (pl.col("word") == "RESIZING")).select(key).to_series().drop_nulls()
        if len(self._seen) < _MOST_RESIZES:
            self._seen.update(resizing)
        early = own & (pl.col("Start") < pl.col("Submit")) & (pl.col("End") >= pl.col("Submit")).fill_null(value=True)
        frame = frame.with_columns(resized=early.fill_null(value=False), StartStated="Start")
        if not frame["resized"].any():
            return frame
        rows = frame.filter("resized").with_columns(key=key).select(self._goes_on()).to_series()
        marks = frame["resized"].scatter(frame["resized"].arg_true(), rows)
        return frame.with_columns(marks).with_columns(
            pl.when("resized").then(change).otherwise(start).alias(start)
            for start, change in (("Start", "Submit"), ("StartLocal", "SubmitLocal"))
        )

    def _goes_on(self) -> pl.Expr:
        lasted = _lasted()
        whole, before = in_seconds(pl.col("End") - pl.col("Start")), in_seconds(pl.col("Submit") - pl.col("Start"))
        counted = pl.when(pl.col("End").is_null()).then(lasted >= before).otherwise((lasted - whole).abs() < 1.0)
        return pl.col("key").is_in(list(self._seen)).fill_null(value=False) | counted.fill_null(value=False)


# A row's nodes, CPUs, memory and GPUs, from the columns of every Slurm version.


def _resources(columns: Collection[str], shards_per_gpu: str) -> Iterable[pl.Expr]:
    """Yield the expressions for each row's resources, for a frame of parsed `sacct` rows.

    If a TRES list contains GPUs, only that list is used. Otherwise, the GRES columns and the command are used. An
    unknown device makes `gpus` unknown, and `devices` names it.

    Parameters
    ----------
    columns : collection of str
        Columns of the file.
    shards_per_gpu : str
        Number of shards per GPU, or '' if unknown.

    Yields
    ------
    polars.Expr
        One expression per column. The columns are `nodes`, `cpus`, `memory` [GiB], `devices` (names), `gpus` [GPUs],
        `model`, and the GPUs requested per node and in total, `per_node_gpus` and `asked_gpus` [GPUs]. The Boolean
        columns `has_tres`, `unknown_shares`, `typed_differ` and `gres_by_number` are for the checks. NULL means
        unknown.

    Raises
    ------
    ValueError
        `shards_per_gpu` is not a number.
    """
    listed = pl.coalesce("AllocTRES", "ReqTRES").struct
    held, asked_gres = pl.col("AllocGRES").struct, pl.col("ReqGRES").struct
    nodes = pl.coalesce(
        _positive("NNodes"), _positive("AllocNodes"), listed["nodes"], pl.col("NodeList").list.len().cast(pl.Float64)
    )
    cpus = pl.coalesce(listed["cpus"], *(_positive(name) for name in ("AllocCPUS", "NCPUS", "ReqCPUS")))
    asked = pl.col("ReqMem").struct
    per = pl.when(asked["per"] == "c").then(cpus).when(asked["per"] == "n").then(nodes).otherwise(1.0)
    memory = pl.when(asked["gib"] > 0).then(asked["gib"] * per)
    yield nodes.alias("nodes")
    yield cpus.alias("cpus")
    yield pl.coalesce(listed["memory_gib"], memory).alias("memory")
    shares = (listed["shards"] > 0) | (listed["mps"] > 0)
    only_shares = (shares & (listed["gpus"] == 0)).fill_null(value=False)
    fraction = (
        pl.when(listed["shards"] > 0).then(listed["shards"] / float(shards_per_gpu)) if shards_per_gpu else pl.lit(None)
    )
    # slurmctld stores the job's total in AllocGRES, and sbatch requests an amount per node in ReqGRES. If both are
    # equal for several nodes, both are per node.
    alike = (held["gpus"] == asked_gres["gpus"]).fill_null(value=False)
    line = pl.col("SubmitLine").struct
    others = pl.coalesce(held["devices"], asked_gres["devices"], line["devices"])
    stated = (listed["gpus"] > 0).fill_null(value=False)
    devices = pl.when(~stated & ~only_shares).then(pl.coalesce(listed["devices"], others))
    gpus = (
        pl.when(stated)
        .then(listed["gpus"])
        .when(only_shares)
        .then(fraction)
        .when(devices.is_not_null())
        .then(None)
        .when(held["gpus"] > 0)
        .then(pl.when(alike).then(held["gpus"] * nodes).otherwise(held["gpus"]))
        .when(asked_gres["gpus"] > 0)
        .then(asked_gres["gpus"] * nodes)
        .when(_unread())
        .then(None)
        .when(
            listed["gpus"].is_not_null()
            | held["gpus"].is_not_null()
            | asked_gres["gpus"].is_not_null()
            | _no_gres(columns)
        )
        .then(0.0)
    )
    yield devices.alias("devices")
    yield gpus.cast(pl.Float64).alias("gpus")
    yield pl.coalesce(listed["model"], held["model"], asked_gres["model"]).alias("model")
    per_node = pl.coalesce(line["per_node"], pl.when(asked_gres["gpus"] > 0).then(asked_gres["gpus"]))
    yield per_node.alias("per_node_gpus")
    yield pl.coalesce(per_node * nodes, line["in_all"]).alias("asked_gpus")
    yield (listed["shards"].is_not_null()).alias("has_tres")
    yield (only_shares & gpus.is_null()).alias("unknown_shares")
    yield listed["typed_differ"].alias("typed_differ")
    numbered = held["by_number"].fill_null(value=False) | asked_gres["by_number"].fill_null(value=False)
    yield (numbered & ~stated).alias("gres_by_number")


def _unread() -> pl.Expr:
    """Mask the rows whose relevant TRES cell is unreadable."""
    held, asked = (pl.col(f"{name} stated") & pl.col(name).is_null() for name in ("AllocTRES", "ReqTRES"))
    return held | (pl.col("AllocTRES").is_null() & asked)


def _no_gres(columns: Collection[str]) -> pl.Expr:
    """Mask the rows whose empty GRES cell means 0 GPUs, as in versions without TRES.

    `columns` are the file's columns.
    """
    if {"AllocTRES", "ReqTRES"} & set(columns):
        return pl.lit(value=False)
    asked = pl.lit(value="ReqGRES" in columns) & pl.col("ReqGRES").is_null()
    held = pl.lit(value="AllocGRES" in columns) & pl.col("AllocGRES").is_null() & pl.col("NodeList stated")
    return asked | held


def _positive(name: str) -> pl.Expr:
    """Replace 0, which sacct prints before an allocation, by NULL in a count column."""
    return pl.when(pl.col(name) > 0).then(name)


# Count contradictions within rows, and assumptions about unclear rows.


def _count_contradictions(jobs: pl.DataFrame, sink: Sink) -> None:
    """Count contradictions in a block's rows other than steps, after times are in UTC and resources are parsed."""
    timed = pl.col("started") & pl.col("ended") & pl.col("Start").is_not_null()
    ours = pl.when(timed).then(in_seconds(pl.col("End") - pl.col("StartStated")) - pl.col("Suspended").fill_null(0.0))
    lists_gres = pl.col("AllocGRES").is_not_null() | pl.col("ReqGRES").is_not_null()
    odd = jobs.select(
        duration_disagrees=disagrees(pl.col("stated_s"), ours),
        end_of_unfinished_job=~pl.col("ended") & pl.col("EndLocal").is_not_null(),
        unknown_status_word=pl.col("status").eq_missing(pl.lit("unknown")),
        node_count_disagrees=pl.col("NNodes") != pl.col("NodeList").list.len(),
        typed_gpus_disagree="typed_differ",
        shared_gpus_unknown="unknown_shares",
        gres_by_number=pl.when(lists_gres).then("gres_by_number"),
        resized_runs="resized",
    )
    sink.check_flags(odd, _MEANINGS, jobs["JobID"], compared=True)


_MEANINGS = {
    "duration_disagrees": "rows whose recorded Elapsed is not End minus Start minus Suspended; the times are used",
    "end_of_unfinished_job": "rows with an end although their state is not final; the end is ignored",
    "unknown_status_word": "rows with a state that the format does not define; their status is 'unknown'",
    "node_count_disagrees": "rows whose NNodes is not the number of nodes in their NodeList; both are kept",
    "typed_gpus_disagree": "rows whose typed GPU entries do not add up to gres/gpu; the gres/gpu value is used",
    "shared_gpus_unknown": "rows with parts of GPUs of unknown size (gres/shard, gres/mps); the option shards_per_gpu "
    "sets the size of a shard",
    "gres_by_number": "rows whose GRES list names 7696487, the number that Slurm computes from the letters gpu; these "
    "devices count as GPUs",
    "resized_runs": "rows that continue a resized job; they show its first start, but we count them from the resize",
}
