"""Read `sacct` text into rows with fixed columns, whatever columns it has and in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.ingest.cells import typed_cells
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.formats._slurm_checks import count_contradictions
from tracekit.ingest.formats._slurm_jobstats import JobSummary, count_unreadable, job_summary
from tracekit.ingest.formats._slurm_json import read_json
from tracekit.ingest.formats._slurm_layout import VC_COLUMNS
from tracekit.ingest.formats._slurm_records import read_records
from tracekit.ingest.formats._slurm_resources import STATED, positive, resources
from tracekit.ingest.formats._slurm_times import ALL, LIFE, Resizes, as_wall_clocks, in_utc, stated_seconds
from tracekit.ingest.lost_cells import count_lost_rows, says_nothing
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.record_times import RecordTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.formats._slurm_layout import SacctLayout
    from tracekit.ingest.formats._slurm_records import SacctRecords
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["SacctReader"]

_LINES_PER_FILE = 1 << 40
_JOB_ID = r"^(\d{1,20})(?:_(\d{1,20}|\[[^\]]*\]))?(?:\+(\d{1,9}))?(?:\.(.+))?$"
_RAW_ID = r"^(\d{1,20})(?:\.(.+))?$"

_STATE = pl.Struct({"word": pl.String, "status": pl.String})
_MEMORY = pl.Struct({"gib": pl.Float64, "per": pl.String})
_GRES = pl.Struct({"gpus": pl.Float64, "model": pl.String, "by_number": pl.Boolean, "unknown_numbers": pl.Boolean})
_REQUEST = pl.Struct({"per_node": pl.Float64, "in_all": pl.Float64})
_USAGE = pl.Struct({"gpu_util_pct": pl.Float64, "gpu_memory_gib": pl.Float64, "memory_gib": pl.Float64})
_SUMMARY = pl.Struct({name: pl.Boolean if name == "unreadable" else pl.Float64 for name in JobSummary._fields})
_TRES = pl.Struct(
    {name: pl.String if name == "model" else pl.Float64 for name in text_of.Tres._fields},
)
_CELLS: dict[str, tuple[Callable[[str], Any], pl.DataType]] = {
    "State": (text_of.state, _STATE),
    "SubmitLine": (text_of.request, _REQUEST),
    **dict.fromkeys(("Elapsed", "Suspended", "Timelimit", "TotalCPU"), (text_of.duration_s, pl.Float64())),
    "TimelimitRaw": (text_of.limit_s, pl.Float64()),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (text_of.tres, _TRES)),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), (text_of.gres, _GRES)),
    **dict.fromkeys(("AllocCPUS", "NCPUS", "ReqCPUS", "NNodes", "AllocNodes", "NTasks"), (text_of.count, pl.Float64())),
    "ReqMem": (text_of.memory, _MEMORY),
    "NodeList": (expand_nodes, pl.List(pl.String)),
    "MaxRSS": (text_of.used_gib, pl.Float64()),
    "AdminComment": (job_summary, _SUMMARY),
    **dict.fromkeys(("TRESUsageInAve", "TRESUsageInTot"), (text_of.usage, _USAGE)),
}
"""How the text of each column is parsed, and the type of the result."""


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

    def _rows(
        self, records: SacctRecords, layout: SacctLayout, number: int, opened: OpenedFile, times: RecordTimes
    ) -> pl.DataFrame:
        text, instants = as_wall_clocks(records.text)
        frame, bad, lost = typed_cells(text, layout.spec)
        for cell in bad:
            records.faults[cell.row] = (cell.column, cell.reason)
        unread = [(column, reason, rows, text[column]) for column, reason, rows in lost]
        # A cell that cannot be read is unknown; an empty one says that there is nothing.
        stated = [pl.col(n).is_not_null().alias(f"{n} stated") for n in STATED if n in layout.columns]
        frame = frame.with_columns(*stated, *(pl.lit(value=False).alias(f"{n} stated") for n in STATED
                                              if n not in layout.columns))  # fmt: skip
        frame = frame.with_columns(
            _read_series(frame[name], name, *_CELLS[name], unread) for name in layout.columns if name in _CELLS
        )
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
        frame = frame.with_columns(_read_series(frame["tasks"], "JobID", text_of.array_size, pl.Int64(), tasks))
        for column, reason, rows, _ in tasks:
            records.add_fault(rows, column, reason)
        for row in sorted(records.faults):
            opened.reject(int(records.lines[row]), *records.faults[row], records.raws(row))
        good = np.ones(frame.height, dtype=bool)
        good[list(records.faults)] = False
        for column, reason, rows, texts in unread:
            count_lost_rows(self._sink, column, reason, rows, texts, good)
        return self._normal(frame.filter(pl.Series(good)), layout, times)

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
    distinct = texts.drop_nulls().unique().to_list()
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
        instance_count="tasks",
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
