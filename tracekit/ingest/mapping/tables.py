"""Fill jobs, attempts, placements and the other tables from mapped files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.ingest.cells import LAST_TIME, LostCells
from tracekit.ingest.csv_table import SeenKeys
from tracekit.ingest.derived import disagrees, in_seconds, single_attempts
from tracekit.ingest.mapping.blocks import chooser, read_rows
from tracekit.ingest.mapping.convert import cell_text, converted, reject_rows, rule_text
from tracekit.ingest.mapping.model import Jobs
from tracekit.ingest.mapping.values import FACTORS, meanings
from tracekit.ingest.node_lists import expand_nodes, split_outside
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.mapping.blocks import RawRows
    from tracekit.ingest.mapping.model import LogMap, NodeList, Section, Table
    from tracekit.ingest.mapping.rules import ColumnRule
    from tracekit.ingest.sink import OpenedFile, Sink


def unusable_events(
    table: Section[Table], rows: RawRows, frame: pl.DataFrame, times: RecordTimes
) -> dict[int, tuple[str, str]]:
    """Return the node events with impossible times, each with the log's column and the first fault.

    A missing end means that the event continues, so a record with an unusable end is rejected: without the end it would
    mean something else.

    Parameters
    ----------
    table : Section
        The rules that fill node_events.
    rows : RawRows
        The records.
    frame : DataFrame
        The columns of node_events, one row per record.
    times : RecordTimes
        Finds dates that are impossible in the log.
    """
    labels = {name: rule.label for name in ("start_time", "end_time") if (rule := table.rule(name)) is not None}
    wrong = times.no_dates(frame, list(labels))
    found = [(name, wrong[name], "cannot be a date of this log") for name in labels]
    end = table.rule("end_time")
    if end is not None and end.reads_text:
        stated = rule_text(end, rows, table.keys)[0].is_not_null()
        found.append(("end_time", stated & frame["end_time"].is_null(), "means no instant"))
        found.append(("end_time", frame["end_time"] < frame["start_time"], "is before the start"))
    bad: dict[int, tuple[str, str]] = {}
    for name, mask, reason in found:
        for row in mask.fill_null(value=False).arg_true().to_list():
            bad.setdefault(row, (labels[name], reason))
    return bad


_UNFINISHED = ("running", "pending")
_UNREAD = "(too long)"
"""Status word for a cell that is too long for a regular expression; no list contains it."""
_TIMES = TimeColumns({name: name for name in ("submit_time", "start_time", "end_time")})
_ALL_TIMES = TimeColumns({name: name for name in ("submit_time", "eligible_time", "start_time", "end_time")})


def read_mapped_table(table: Section[Table], files: list[SourceFile], log_map: LogMap, sink: Sink) -> None:
    """Read the files of one table into the sink.

    Raises
    ------
    UsageError
        The mapping names a column that is missing from a file.
    SourceError
        A file cannot be read.
    """
    rules = list(table.rules)
    rules += [rule for rule in (table.status, table.nodes) if rule is not None]
    seen = SeenKeys(schema.common(table.key).primary_key)
    for file in files:
        prefix = f"{file.path}:" if len(files) > 1 else ""
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            for rows in read_rows(opened, table.keys, chooser(rules, file.path, sink)):
                _write(table, log_map, sink, opened, rows, prefix, seen, times)


def _write(
    table: Section[Table],
    log_map: LogMap,
    sink: Sink,
    opened: OpenedFile,
    rows: RawRows,
    prefix: str,
    seen: SeenKeys,
    times: RecordTimes,
) -> None:
    cells = converted(table.rules, rows, table.keys, prefix, _keys(table))
    lost = cells.lost
    bad = dict(cells.bad)
    nodes = None
    if isinstance(table.keys, Jobs) and table.keys.nodes is not None:
        listed = table.keys.nodes
        nodes = _node_parts(listed, cell_text(listed.column, rows, table.keys))
        example = listed.pattern or ("gpu[01-03]" if listed.expand else "...")
        wrong = nodes.filter(pl.col("node").is_null())["row"].unique()
        if len(wrong):
            nodes = nodes.filter(~pl.col("row").is_in(wrong.implode()))
            mask = pl.int_range(rows.frame.height, eager=True).is_in(wrong.implode())
            lost = [*lost, LostCells(listed.column, f"is not a list of nodes like {example}", mask)]
    frame = schema.common(table.key).conform(cells.frame)
    frame = _with_cluster(table, frame, log_map)
    if table.key == "node_events":
        bad = unusable_events(table, rows, frame, times) | bad
    usable = np.ones(frame.height, dtype=bool)
    usable[list(bad)] = False
    key = schema.common(table.key).primary_key
    if key:
        for row in seen.repeats(frame, usable):
            bad[row] = (", ".join(key), "repeats the key of an earlier record")
    source = None
    if table.status is not None:
        source, unread = rule_text(table.status, rows, table.keys)
        source = source.cast(pl.String)
        for mask, reason in unread:
            lost = [*lost, LostCells(table.status.label, reason, mask)]
            source = source.set(mask, _UNREAD)
    usable = reject_rows(opened, rows, bad, lost)
    kept = pl.Series(usable)
    frame = frame.filter(kept)
    if table.key != "jobs":
        sink.write(table.key, frame)
        return
    source = None if source is None else source.filter(kept)
    frame = frame.with_columns(
        pl.Series("line", rows.lines, dtype=pl.Int64).filter(kept), kept.arg_true().cast(pl.Int64).alias("row")
    )
    clocks = cells.local.filter(kept) if cells.local.width else cells.local
    frame = times.from_wall_clock(frame, _ALL_TIMES, table.keys.timezone, table.keys.doubled_hour, clocks=clocks)
    _write_jobs(table, frame, source, nodes, times, sink)


def _keys(table: Section[Table]) -> set[str]:
    """Return the durations that replace times. Without them, a job would seem never to start or end."""
    if table.key != "jobs":
        return set()
    keys = {"queue_s"} if table.rule("start_time") is None else set()
    return keys | ({"run_s"} if table.rule("end_time") is None or table.rule("start_time") is None else set())


def _with_cluster(table: Section[Table], frame: pl.DataFrame, log_map: LogMap) -> pl.DataFrame:
    if "cluster" not in frame.columns:
        return frame
    if table.rule("cluster") is None:
        return frame.with_columns(cluster=pl.lit(log_map.source.cluster, dtype=pl.String))
    rule = table.rule("cluster")
    if table.key == "jobs" and rule is not None and rule.reads_text:
        # Job ids may repeat across clusters.
        front = (pl.col("cluster") + "/").fill_null("")
        return frame.with_columns(job_id=front + pl.col("job_id"))
    return frame


def _write_jobs(
    table: Section[Table],
    frame: pl.DataFrame,
    source: pl.Series | None,
    nodes: pl.DataFrame | None,
    times: RecordTimes,
    sink: Sink,
) -> None:
    if source is not None and table.status is not None:
        frame = _with_status(frame, source, table.status, sink)
    jobs = _with_times(frame, table, times)
    if nodes is not None and table.rule("node_count") is None:
        counts = nodes.group_by("row").agg(n=pl.col("node").n_unique().cast(pl.Int64))
        jobs = jobs.join(counts, on="row", how="left", maintain_order="left").with_columns(node_count="n").drop("n")
    _count_contradictions(frame, jobs, table, sink)
    sink.write("jobs", jobs.drop("row"))
    started = pl.col("attempt_count") == 1
    if nodes is not None:
        sink.write("placements", _placements(jobs, nodes))
    sink.write("attempts", single_attempts(jobs.filter(started)))


def _with_status(frame: pl.DataFrame, source: pl.Series, rule: ColumnRule, sink: Sink) -> pl.DataFrame:
    known = meanings(source, rule.words)
    unlisted = source.is_not_null() & known.is_null()
    status = pl.select(
        pl.when(source.is_not_null()).then(known.fill_null("unknown")).otherwise(pl.lit(rule.default, dtype=pl.String))
    ).to_series()
    found = source.filter(unlisted).unique(maintain_order=True)
    sink.check(
        "unknown_status_word",
        int(unlisted.sum()),
        frame.height,
        "records with a status that the mapping does not list; their status is 'unknown'",
        found,
    )
    return frame.with_columns(status.alias("status"), source.alias("source_status"))


def _seconds(value: pl.Expr) -> pl.Expr:
    return pl.duration(microseconds=(value * 1e6).round().cast(pl.Int64))


def _with_times(frame: pl.DataFrame, table: Section[Table], times: RecordTimes) -> pl.DataFrame:
    """Derive missing columns: the start from the wait, the end from the run time, and the durations from the times."""
    unfinished = pl.col("status").is_in(_UNFINISHED).fill_null(value=False)
    ran = (pl.col("run_s") > 0).fill_null(value=False)
    if table.rule("start_time") is None:
        # A job that was cancelled in the queue waited but never started.
        start = pl.col("submit_time") + _seconds(pl.col("queue_s"))
        frame = frame.with_columns(start_time=pl.when(ran & (start <= LAST_TIME)).then(start))
    end = pl.col("end_time")
    if table.rule("end_time") is None:
        end = pl.col("start_time") + _seconds(pl.col("run_s"))
        end = pl.when(end <= LAST_TIME).then(end)
    frame = times.dated(frame.with_columns(end_time=pl.when(~unfinished).then(end)), _ALL_TIMES)
    frame = times.ordered(frame, _TIMES)
    frame = times.eligible(frame, _TIMES, "eligible_time", frame["start_time"])
    run = in_seconds(pl.col("end_time") - pl.col("start_time"))
    queue = in_seconds(pl.col("start_time") - pl.col("submit_time"))
    # A recorded duration is ignored if the record's times contradict each other.
    no_start = pl.col("began") & pl.col("start_time").is_null()
    no_end = pl.col("finished") & pl.col("end_time").is_null()
    return frame.with_columns(
        run_s=pl.coalesce(run, pl.when(~unfinished & ~no_start & ~no_end).then("run_s")),
        queue_s=pl.coalesce(queue, pl.when(~no_start).then("queue_s")),
        attempt_count=(pl.col("began") | ran).cast(pl.Int64),
    ).drop("line", "began", "finished")


def _count_contradictions(frame: pl.DataFrame, jobs: pl.DataFrame, table: Section[Table], sink: Sink) -> None:
    for name, column, meaning in (
        (
            "duration_disagrees",
            "run_s",
            "jobs whose recorded duration differs from end minus start; the times are used",
        ),
        (
            "queue_disagrees",
            "queue_s",
            "jobs whose recorded wait differs from start minus submission; the times are used",
        ),
    ):
        rule = table.rule(column)
        if rule is None:
            continue
        unit_s = max(1.0, FACTORS["s"].get(rule.entry.unit or "s", 1.0))
        differ = disagrees(frame[column], jobs[column], unit_s)
        sink.check_rows(name, differ, meaning, jobs["job_id"], differ.count())
    if table.rule("end_time") is not None:
        ended = frame["end_time"].is_not_null() & frame["status"].is_in(_UNFINISHED)
        meaning = "jobs with an end although their status is not final; the end is ignored"
        sink.check_rows("end_of_unfinished_job", ended, meaning, jobs["job_id"])


def _node_parts(nodes: NodeList, cells: pl.Series) -> pl.DataFrame:
    """Return one row per listed node, with row, node (NULL if unreadable), and gpu_index and gpu_count as strings."""
    if nodes.expand:
        cells = _split_outside(cells.cast(pl.String), nodes.separator)
    parts = (
        cells.cast(pl.String)
        .alias("cell")
        .to_frame()
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .drop_nulls("cell")
        .with_columns(part=pl.col("cell").str.split(_PART if nodes.expand else nodes.separator))
        .select("row", "part")
        .explode("part")
        .with_columns(part=pl.col("part").str.strip_chars())
        .filter(pl.col("part") != "")
    )
    text = pl.lit(None, dtype=pl.String)
    if nodes.pattern is None:
        return _expanded(parts.select("row", node="part", gpu_index=text, gpu_count=text), nodes)
    # The whole part must match, because extra text indicates another layout.
    groups = parts["part"].str.extract_groups(f"^(?:{nodes.pattern})$").struct.unnest()
    have = groups.columns
    named = pl.concat([parts.select("row"), groups], how="horizontal").select(
        "row",
        node=pl.when(pl.col("node") != "").then("node"),
        gpu_index=pl.col("gpu_index") if "gpu_index" in have else text,
        gpu_count=pl.col("gpu_count") if "gpu_count" in have else text,
    )
    return _expanded(named, nodes)


_PART = "\x1f"
"""Separates the parts of a list that is split outside brackets; no node name contains it."""


def _split_outside(cells: pl.Series, separator: str) -> pl.Series:
    distinct = cells.drop_nulls().unique().to_list()
    parted = [_PART.join(split_outside(cell, separator)) for cell in distinct]
    return cells.replace_strict(distinct, parted, default=None, return_dtype=pl.String)


def _expanded(parts: pl.DataFrame, nodes: NodeList) -> pl.DataFrame:
    """Return one row per node of a range. Other text becomes NULL."""
    if not nodes.expand:
        return parts
    names: list[str] = parts["node"].drop_nulls().unique().to_list()
    lists: list[list[str] | None] = []
    for name in names:
        try:
            lists.append(expand_nodes(name))
        except ValueError:
            lists.append(None)
    table = pl.DataFrame({"node": names, "each": lists}, schema={"node": pl.String, "each": pl.List(pl.String)})
    joined = parts.join(table, on="node", how="left", maintain_order="left").explode("each")
    return joined.select("row", node="each", gpu_index="gpu_index", gpu_count="gpu_count")


def _placements(jobs: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per node of each started job, even if the job lists the node twice."""
    texts = nodes["gpu_index"].drop_nulls().unique()
    indices = pl.DataFrame({"gpu_index": texts, "index": pl.Series(map(_gpu_indices, texts), dtype=pl.List(pl.Int64))})
    stated = pl.when(pl.col("gpu_count").is_not_null().any()).then(
        pl.col("gpu_count").cast(pl.Float64, strict=False).sum()
    )
    held = (
        nodes.join(indices, on="gpu_index", how="left", maintain_order="left")
        .group_by("row", "node", maintain_order=True)
        .agg(index=pl.col("index").explode().drop_nulls().unique().sort(), stated=stated)
        .with_columns(index=pl.when(pl.col("index").list.len() > 0).then("index"), alone=pl.len().over("row") == 1)
    )
    started = jobs.filter(pl.col("attempt_count") == 1).select("row", "job_id", "gpu_count", "start_time", "end_time")
    return held.join(started, on="row", how="inner", maintain_order="left").select(
        "job_id",
        attempt=pl.lit(0, dtype=pl.Int64),
        node_id="node",
        gpu_index="index",
        gpu_count=pl.coalesce(
            pl.col("index").list.len().cast(pl.Float64), "stated", pl.when("alone").then("gpu_count")
        ),
        start_time="start_time",
        end_time="end_time",
    )


def _gpu_indices(text: str) -> list[int]:
    """Parse GPU indices such as 0-3,7. A range of more than 1,024 numbers is ignored."""
    spans = re.findall(r"(?<!\d)(\d{1,18})(?!\d)(?:\s*-\s*(\d{1,18})(?!\d))?", text, re.ASCII)
    ranges = (range(int(first), int(last or first) + 1) for first, last in spans)
    return [index for some in ranges if len(some) <= _MOST_GPUS for index in some]


_MOST_GPUS = 1_024
