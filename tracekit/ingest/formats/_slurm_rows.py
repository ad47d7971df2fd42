"""Read `sacct` text into rows with fixed columns, whatever columns it has and in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.ingest.cells import typed_cells
from tracekit.ingest.derived import disagrees, in_seconds
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.formats._slurm_records import VC_COLUMNS, read_records
from tracekit.ingest.record_times import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.formats._slurm_records import SacctLayout, SacctRecords
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["read_rows"]

_LIFE = TimeColumns({"Submit": "submit_time", "Start": "start_time", "End": "end_time"}, names="JobID")
_ALL = TimeColumns(
    {"Submit": "submit_time", "Eligible": "eligible_time", "Start": "start_time", "End": "end_time"}, names="JobID"
)
_LINES_PER_FILE = 1 << 40
_JOB_ID = r"^(\d{1,20})(?:_(\d{1,20}|\[[^\]]*\]))?(?:\+(\d{1,9}))?(?:\.(.+))?$"
_RAW_ID = r"^(\d{1,20})(?:\.(.+))?$"

_STATE = pl.Struct({"word": pl.String, "status": pl.String})
_MEMORY = pl.Struct({"gib": pl.Float64, "per": pl.String})
_GRES = pl.Struct({"gpus": pl.Float64, "model": pl.String})
_USAGE = pl.Struct({"gpu_util_pct": pl.Float64, "gpu_memory_gib": pl.Float64, "memory_gib": pl.Float64})
_TRES = pl.Struct(
    {name: pl.String if name == "model" else pl.Float64 for name in text_of.Tres._fields},
)
_CELLS: dict[str, tuple[Callable[[str], Any], pl.DataType]] = {
    "State": (text_of.state, _STATE),
    **dict.fromkeys(("Elapsed", "Suspended", "Timelimit"), (text_of.duration_s, pl.Float64())),
    "TimelimitRaw": (text_of.limit_s, pl.Float64()),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), (text_of.tres, _TRES)),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), (text_of.gres, _GRES)),
    **dict.fromkeys(("AllocCPUS", "NCPUS", "ReqCPUS", "NNodes", "AllocNodes", "NTasks"), (text_of.count, pl.Float64())),
    "ReqMem": (text_of.memory, _MEMORY),
    "NodeList": (text_of.expand_nodes, pl.List(pl.String)),
    "MaxRSS": (text_of.used_gib, pl.Float64()),
    **dict.fromkeys(("TRESUsageInAve", "TRESUsageInTot"), (text_of.usage, _USAGE)),
}
"""How the text of each column is parsed, and the type of the result."""


def read_rows(files: list[SourceFile], sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the usable rows of `sacct` files, steps included, in frames of one shape.

    Times are UTC; the columns named `_local` keep the wall clock, which is never ambiguous, to match and order the
    rows of a job. `ord` rises with the file and the line.
    """
    for number, file in enumerate(files):
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            for layout, records in read_records(opened, sink):
                yield _rows(records, layout, number, opened, times, sink)


def _rows(
    records: SacctRecords, layout: SacctLayout, number: int, opened: OpenedFile, times: RecordTimes, sink: Sink
) -> pl.DataFrame:
    frame, bad = typed_cells(records.text, layout.spec)
    for cell in bad:
        records.faults[cell.row] = (cell.column, cell.reason)
    frame = frame.with_columns(_read_cell(records, frame, name) for name in layout.columns if name in _CELLS)
    spec = schema.source("slurm", "sacct")
    frame = frame.with_columns(
        pl.lit(None, dtype=_CELLS[c.name][1] if c.name in _CELLS else c.polars).alias(c.name)
        for c in spec.columns
        if c.name not in layout.columns
    )
    lines = np.asarray(records.lines, dtype=np.int64)
    frame = frame.with_columns(
        pl.Series("ord", lines + number * _LINES_PER_FILE), pl.Series("line", lines), *_identity()
    )
    records.add_fault(frame["job"].is_null() & frame["JobID"].is_not_null(), "JobID", "is not a job id")
    records.add_fault(frame["raw_id"].is_null() & frame["JobIDRaw"].is_not_null(), "JobIDRaw", "is not a job id")
    records.add_fault(frame["step"].is_null() & frame["Submit"].is_null(), "Submit", "is missing")
    frame = frame.with_columns(_read_series(records, frame["tasks"], "JobID", text_of.array_size, pl.Int64()))
    for row in sorted(records.faults):
        opened.reject(records.lines[row], *records.faults[row], records.raws(row))
    good = np.ones(frame.height, dtype=bool)
    good[list(records.faults)] = False
    return _normal(frame.filter(pl.Series(good)), layout, times, sink)


def _read_cell(records: SacctRecords, frame: pl.DataFrame, name: str) -> pl.Series:
    parse, kind = _CELLS[name]
    return _read_series(records, frame[name], name, parse, kind)


def _read_series(
    records: SacctRecords, texts: pl.Series, column: str, parse: Callable[[str], Any], kind: pl.DataType
) -> pl.Series:
    """Return the cells parsed, each distinct text once; cells that cannot be parsed are recorded as faults."""
    distinct = texts.drop_nulls().unique().to_list()
    values: list[Any] = []
    wrong: dict[str, str] = {}
    for text in distinct:
        try:
            value = parse(text)
        except ValueError as error:
            wrong[text], value = str(error), None
        values.append(value._asdict() if hasattr(value, "_asdict") else value)
    for text, reason in wrong.items():
        records.add_fault(texts == text, column, reason)
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


def _normal(frame: pl.DataFrame, layout: SacctLayout, times: RecordTimes, sink: Sink) -> pl.DataFrame:
    frame = times.dated(frame, _ALL)
    frame = frame.with_columns(
        word=pl.col("State").struct["word"],
        status=pl.col("State").struct["status"],
        **{f"{name}Local": pl.col(name) for name in _ALL.columns},
    )
    frame = times.from_wall_clock(frame, _ALL, sink.options["timezone"], sink.options["doubled_hour"])
    frame = times.ordered(frame, _LIFE)
    frame = frame.with_columns(_resources(layout, sink)).with_columns(_life(layout))
    # Waits that count from Eligible take it as it stands; a step's own is that of no job.
    frame = frame.with_columns(eligible=pl.when(pl.col("step").is_null()).then("Eligible"))
    start = frame.select(pl.when("started").then("Start")).to_series()
    frame = times.eligible(frame, _LIFE, "eligible", start)
    _count_contradictions(frame, sink)
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
        origin=sink.options["queue_from"].title(),
        eligible="eligible",
        start=pl.when("started").then("Start"),
        end=pl.when("ended").then("End"),
        submit_local="SubmitLocal",
        start_local=pl.when("started").then("StartLocal"),
        end_local=pl.when("ended").then("EndLocal"),
        status="status",
        word="word",
        gpu_count="gpus",
        gpu_model="model",
        cpu_count="cpus",
        memory_gib="memory",
        node_count=pl.col("nodes").cast(pl.Int64),
        node_list="NodeList",
        vc=VC_COLUMNS[sink.options["vc"]],
        **{name: pl.col(column) for name, column in VC_COLUMNS.items()},
        user="User",
        name="JobName",
        priority="Priority",
        time_limit_s=pl.coalesce("Timelimit", "TimelimitRaw"),
        **usage,
    )


def _resources(layout: SacctLayout, sink: Sink) -> Iterable[pl.Expr]:
    """Return `nodes`, `cpus`, `memory`, `gpus`, `model`, and what the checks need."""
    listed = pl.coalesce("AllocTRES", "ReqTRES").struct
    held = pl.coalesce("AllocGRES", "ReqGRES").struct
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
    per_gpu = sink.options["shards_per_gpu"]
    fraction = pl.when(listed["shards"] > 0).then(listed["shards"] / float(per_gpu)) if per_gpu else pl.lit(None)
    gpus = (
        pl.when(listed["gpus"] > 0)
        .then(listed["gpus"])
        .when(only_shares)
        .then(fraction)
        .when(held["gpus"] > 0)
        .then(held["gpus"] * nodes)
        .when(listed["gpus"].is_not_null() | held["gpus"].is_not_null() | _no_gres(layout))
        .then(0.0)
    )
    yield gpus.cast(pl.Float64).alias("gpus")
    yield pl.coalesce(listed["model"], held["model"]).alias("model")
    yield (only_shares & gpus.is_null()).alias("unknown_shares")
    yield (listed["typed_gpus"] != listed["gpus"]).alias("typed_differ")


def _no_gres(layout: SacctLayout) -> pl.Expr:
    """Return where an empty GRES cell of an older version means that there are no GPUs."""
    have = layout.columns.keys()
    if {"AllocTRES", "ReqTRES"} & have:
        return pl.lit(value=False)
    asked = pl.lit(value="ReqGRES" in have) & pl.col("ReqGRES").is_null()
    held = pl.lit(value="AllocGRES" in have) & pl.col("AllocGRES").is_null() & pl.col("NodeList").is_not_null()
    return asked | held


def _positive(name: str) -> pl.Expr:
    # sacct prints 0 for what is not allocated yet.
    return pl.when(pl.col(name) > 0).then(name)


def _life(layout: SacctLayout) -> Iterable[pl.Expr]:
    """Return whether a row `started` and `ended`, and the stated run time."""
    stated = pl.coalesce(pl.col("ElapsedRaw").cast(pl.Float64), "Elapsed")
    if "NodeList" in layout.columns:
        nowhere = pl.col("NodeList").is_null()
    else:
        nowhere = (pl.col("status") == "cancelled") & (
            pl.col("AllocTRES").is_null() if "AllocTRES" in layout.columns else pl.lit(value=True)
        )
    instant = (pl.col("StartLocal") == pl.col("EndLocal")) & (stated.fill_null(0) == 0) & nowhere
    planned = pl.col("word") == "PENDING"
    started = pl.col("StartLocal").is_not_null() & ~(instant | planned).fill_null(value=False)
    going = pl.col("status").is_in(["running", "pending"]) & (pl.col("word") != "REQUEUED")
    yield started.alias("started")
    yield (~going.fill_null(value=False)).alias("ended")
    yield stated.alias("stated_s")


def _usage() -> dict[str, pl.Expr]:
    """Return the measured use, summed over the tasks of a step where their number is known."""
    mean, total = pl.col("TRESUsageInAve").struct, pl.col("TRESUsageInTot").struct
    tasks = _positive("NTasks").fill_null(1.0)
    return {
        "gpu_util_pct": pl.coalesce(total["gpu_util_pct"], mean["gpu_util_pct"] * tasks),
        "gpu_memory_used_gib": pl.coalesce(total["gpu_memory_gib"], mean["gpu_memory_gib"] * tasks),
        "memory_used_gib": pl.coalesce("MaxRSS", mean["memory_gib"]),
    }


def _count_contradictions(frame: pl.DataFrame, sink: Sink) -> None:
    jobs = frame.filter(pl.col("step").is_null())
    ours = pl.when(pl.col("started") & pl.col("ended")).then(
        in_seconds(pl.col("End") - pl.col("Start")) - pl.col("Suspended").fill_null(0.0)
    )
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
    ):
        rows = jobs.select(found=found, of=of)
        sink.check_rows(name, rows["found"], meaning, jobs["JobID"], int(rows["of"].sum()))
