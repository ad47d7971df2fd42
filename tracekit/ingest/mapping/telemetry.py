"""Fill gpu_utilization and host_utilization from samples of any layout.

Samples become rows of time, node, GPU, metric and value in a Parquet file. DuckDB, which can spill to disk, then joins
all metrics of a GPU or host at one time into one row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import UsageError
from tracekit.ingest.file_tasks import read_each
from tracekit.ingest.mapping.blocks import chooser, read_rows
from tracekit.ingest.mapping.convert import converted, reject_rows, usable_rows
from tracekit.ingest.mapping.rules import ColumnRule, Entry
from tracekit.ingest.time_faults import RecordTimes, TimeColumns
from tracekit.schema import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.mapping.model import LogMap, Section, Telemetry
    from tracekit.ingest.sink import OpenedFile, Sink

_STAGED = {
    "time": pl.Datetime("us"),
    "node_id": pl.String(),
    "gpu_index": pl.Int64(),
    "job_id": pl.String(),
    "metric": pl.String(),
    "value": pl.Float64(),
}
_GPU, _HOST = "gpu_utilization", "host_utilization"


def read_telemetry(log_map: LogMap, files: Mapping[str, list[SourceFile]], sink: Sink) -> None:
    """Read every telemetry section into the sink. The keys of `files` are the sections' dotted keys."""
    gpus: pl.DataFrame | None = None
    if log_map.gpus is not None:
        nothing = pl.DataFrame(schema={"uuid": pl.String, "node_id": pl.String, "gpu_index": pl.Int64})
        found = [frame for file in files[log_map.gpus.key] for frame in usable_rows(log_map.gpus, file, sink)]
        # If a UUID repeats, the first row is used.
        gpus = pl.concat([nothing, *found]).unique("uuid", keep="first", maintain_order=True)
    every = [(section.key, file) for section in log_map.telemetry for file in files[section.key]]
    read = partial(_read_file, {section.key: section for section in log_map.telemetry}, gpus)
    staged = sink.stage("mapped_telemetry", read_each(every, read, sink))
    if staged is not None:
        _join(staged, log_map, sink)


def _read_file(
    sections: Mapping[str, Section[Telemetry]], gpus: pl.DataFrame | None, key: str, file: SourceFile, sink: Sink
) -> Iterator[pl.DataFrame]:
    section = sections[key]
    with sink.opened(file) as opened:
        times = RecordTimes(sink, opened.path)
        wide = section.keys.layout == "wide"
        for frame in _wide(section, opened, sink) if wide else _narrow(section, gpus, opened, sink):
            dated = times.dated(frame, TimeColumns({"time": "time"}, names="node_id")).drop_nulls("time")
            yield dated.select(pl.col(name).cast(kind) for name, kind in _STAGED.items())


def _narrow(
    section: Section[Telemetry], gpus: pl.DataFrame | None, opened: OpenedFile, sink: Sink
) -> Iterator[pl.DataFrame]:
    """Yield samples from files with one record per metric (long) or per server with all its metrics (row)."""
    metrics = section.metrics
    in_row = section.keys.layout == "row"
    rules = [*section.rules, *(metrics.values() if in_row else ())]
    for rows in read_rows(opened, section.keys, chooser(rules, opened.path, sink)):
        cells = converted(rules, rows, section.keys)
        bad = dict(cells.bad)
        frame = cells.frame.with_columns(line=pl.Series(rows.lines, dtype=pl.Int64))
        if gpus is not None and "uuid" in frame.columns:
            frame = frame.join(gpus, on="uuid", how="left", maintain_order="left")
            for row in frame["node_id"].is_null().arg_true().to_list():
                bad.setdefault(row, ("uuid", "is not in the table of GPUs"))
        frame = frame.with_columns(
            pl.lit(None, dtype=_STAGED[name]).alias(name)
            for name in ("gpu_index", "job_id")
            if name not in frame.columns
        )
        if in_row:
            wide = frame.filter(pl.Series(reject_rows(opened, rows, bad, cells.lost)))
            # Both tables have metrics of the same name, so the name includes the table.
            wide = wide.rename({rule.target.name: name for name, rule in metrics.items()})
            kept = wide.unpivot(
                list(metrics),
                index=["time", "node_id", "gpu_index", "job_id", "line"],
                variable_name="metric",
                value_name="value",
            ).drop_nulls("value")
        else:
            frame, unread = _long_values(metrics, frame)
            for row, reason in unread.items():
                bad.setdefault(row, ("value", reason))
            kept = frame.filter(pl.Series(reject_rows(opened, rows, bad, cells.lost)))
            _count_unmapped(kept, sink)
            kept = kept.drop_nulls(["metric", "value"])
        yield kept


def _long_values(metrics: Mapping[str, ColumnRule], frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, str]]:
    """Rename metrics as in the Trace, and convert values to numbers in the Trace's units."""
    names = {rule.sources[0]: name for name, rule in metrics.items()}
    factors = {name: rule.factor for name, rule in metrics.items()}
    metric = frame["metric"].replace_strict(names, default=None, return_dtype=pl.String)
    number = frame["value"].cast(pl.Float64, strict=False)
    # An unused metric may have any value.
    unread = metric.is_not_null() & frame["value"].is_not_null() & ~number.is_finite().fill_null(value=False)
    # As in the other layouts, only metrics with a minimum in the schema reject values below 0.
    bounded = [name for name, rule in metrics.items() if rule.target.minimum is not None]
    least = metric.is_in(bounded) & (number < 0).fill_null(value=False)
    bad = dict.fromkeys(unread.arg_true().to_list(), "is not a finite number")
    bad |= dict.fromkeys(least.arg_true().to_list(), "is below 0")
    factor = metric.replace_strict(factors, default=None, return_dtype=pl.Float64)
    return (
        frame.with_columns(source_metric=frame["metric"]).with_columns(
            metric.alias("metric"), (number * factor).alias("value")
        ),
        bad,
    )


def _count_unmapped(frame: pl.DataFrame, sink: Sink) -> None:
    other = frame["metric"].is_null()
    sink.check(
        "unmapped_metric",
        int(other.sum()),
        frame.height,
        "samples of metrics that the mapping does not name; ignored",
        frame["source_metric"].filter(other).unique(maintain_order=True),
    )


def _wide(section: Section[Telemetry], opened: OpenedFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield samples from a matrix with one row per time and one column per server."""
    ((name, metric),) = section.metrics.items()
    rules: list[ColumnRule] = []
    servers: list[str] = []

    def choose(header: list[str] | None) -> list[str]:
        if header is None:
            raise UsageError(
                f"{opened.path} contains JSON lines, which have no columns",
                where=f"{metric.file}, key {section.key}",
                hint='use layout = "row"',
            )
        time = section.rules[0] if section.rules else None
        first = header[0] if time is None else time.sources[0]
        spec = Column("time", "datetime", "", required=True)
        rules.append(time or ColumnRule(spec, f"{section.key}.time", metric.file, Entry(column=first)))
        chooser(rules, opened.path, sink)([first] if first in header else header)
        pattern = "" if section.keys.server is None else f"^(?:{section.keys.server})$"
        named = pl.Series([name for name in dict.fromkeys(header) if name and name != first], dtype=pl.String)
        servers.extend(named.filter(named.str.contains(pattern)))
        if not servers:
            raise UsageError(
                f"no column of {opened.path} matches a server",
                where=f"{metric.file}, key {section.key}.server",
                hint="the pattern must match a whole column name",
            )
        for server in servers:
            value = replace(metric.target, name=server, required=False)
            rules.append(replace(metric, target=value, entry=replace(metric.entry, column=server)))
        return [first, *servers]

    for rows in read_rows(opened, section.keys, choose):
        cells = converted(rules, rows, section.keys)
        frame = cells.frame.with_columns(line=pl.Series(rows.lines, dtype=pl.Int64))
        frame = frame.filter(pl.Series(reject_rows(opened, rows, cells.bad, cells.lost)))
        tall = frame.unpivot(servers, index=["time", "line"], variable_name="server", value_name="value").drop_nulls(
            "value"
        )
        text = pl.lit(None, dtype=pl.String)
        tall = tall.with_columns(job_id=text)
        if section.keys.server is None:
            yield tall.with_columns(node_id="server", gpu_index=text, metric=pl.lit(name))
            continue
        names = pl.Series("server", servers)
        parts = names.str.extract_groups(f"^(?:{section.keys.server})$").struct.unnest()
        where = pl.concat([names.to_frame(), parts], how="horizontal").select(
            "server", node_id="node", gpu_index=pl.col("gpu") if "gpu" in parts.columns else text
        )
        yield tall.join(where, on="server", how="left").with_columns(metric=pl.lit(name))


def _join(staged: Path, log_map: LogMap, sink: Sink) -> None:
    """Write one row per time and GPU or host, with its metrics."""
    mapped = {name for section in log_map.telemetry for name in section.metrics}
    for table in (_GPU, _HOST):
        columns = [c.name for c in schema.common(table).columns]
        metrics = [c for c in columns if f"{table}.{c}" in mapped]
        if not metrics:
            continue
        key = "time, node_id, gpu_index, job_id" if table == _GPU else "time, node_id"
        rows = f"FROM read_parquet({sql_text(staged)}) WHERE starts_with(metric, '{table}.')"
        values = ", ".join(f"max(value) FILTER (WHERE metric = '{table}.{c}') AS {c}" for c in metrics)
        with sink.connect() as con:
            query = (
                f"SELECT count(*), coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n {rows} GROUP BY {key}, metric)"
            )
            groups, repeats = con.execute(query).fetchall()[0]
            if not groups:
                continue
            sink.check(
                f"repeated_{table}_values",
                int(repeats),
                int(groups + repeats),
                "several values of a metric for the same time and place; the largest is used",
            )
            sink.writer.copy(table, con, f"SELECT {key}, {values} {rows} GROUP BY {key} ORDER BY {key}")
