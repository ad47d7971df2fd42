"""Philly's telemetry: GPU, CPU and memory samples by minute."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.ingest.csv_table import read_table
from tracekit.ingest.file_tasks import read_each
from tracekit.ingest.record_times import RecordTimes, TimeColumns
from tracekit.ingest.samples import RepeatProof

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import FoundFiles
    from tracekit.ingest.sink import Sink
    from tracekit.schema import TableSchema

__all__ = ["read_gpu_samples", "read_host_samples"]

_KIB_PER_GIB = 1024 * 1024
_LINES = 1 << 40
"""More than any file has."""
_NOT_AVAILABLE = re.compile(rb",[ \t]*NA[ \t]*(?=[,\r\n])")


def _telemetry_schema(name: str, sink: Sink) -> TableSchema:
    spec = schema.source("philly", name)
    if sink.options["times"] == "utc":
        return spec
    columns = tuple(replace(c, zones=dict.fromkeys(c.zones, 0)) if c.zones else c for c in spec.columns)
    return replace(spec, columns=columns)


def read_gpu_samples(files: list[SourceFile], sink: Sink) -> None:
    """Read the GPU files: one row for each cell with a number."""
    proof = RepeatProof()
    for told in read_each([(None, file) for file in files], _read_gpu_file, sink):
        proof.follow(told)
    sink.distinct_samples = proof.holds


def _read_gpu_file(_: None, file: SourceFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Write the samples of a file, and yield what shows whether any repeats."""
    spec = _telemetry_schema("cluster_gpu_util", sink)
    spec = replace(spec, primary_key=())  # repeated samples are counted below, not set aside
    cells = [c.name for c in spec.columns if c.name.startswith("gpu")]

    def count_offline(text: bytes) -> None:
        sink.check(
            "offline_gpu_cells",
            _count_not_available(text),
            None,
            "GPU cells that say NA: the GPU was offline; unlike empty cells, which say that there is no such GPU. "
            "Neither gives a sample",
        )

    proof = RepeatProof()
    times = RecordTimes(sink, file.path)
    for found in read_table(sink, file, spec, inspect=count_offline):
        raw = times.dated(found, TimeColumns({"time": "time"}, names="machineId")).drop_nulls("time")
        proof.add(raw.select("time", node_id="machineId"))
        samples = _long(raw, cells)
        odd = (samples["utilization_pct"] < 0) | (samples["utilization_pct"] > 100)
        sink.check(
            "gpu_utilization_out_of_range", int(odd.sum()), samples.height, "GPU samples below 0 or above 100 percent"
        )
        sink.write("gpu_utilization", samples)
    yield proof.told()


def _long(raw: pl.DataFrame, cells: list[str]) -> pl.DataFrame:
    """Return one row for each cell with a number, row by row."""
    values = raw.select(cells).to_numpy(order="c").ravel()
    known = np.flatnonzero(~np.isnan(values))
    row = known // len(cells)
    return raw.select("time", node_id="machineId")[row].with_columns(
        gpu_index=pl.Series(known - row * len(cells), dtype=pl.Int64),
        utilization_pct=pl.Series(values[known], dtype=pl.Float64),
    )


def _count_not_available(text: bytes) -> int:
    """Return how many cells are NA, with or without blanks around it."""
    array = np.frombuffer(text, dtype=np.uint8)
    at = np.flatnonzero(array == ord("N"))
    if not len(at):
        return 0
    if at[0] and at[-1] + 2 < len(array):
        after = array[at + 2]
        ended = (after == ord(",")) | (after == ord("\r")) | (after == ord("\n"))
        if (ended & (array[at - 1] == ord(",")) & (array[at + 1] == ord("A"))).all():
            return len(at)
    # With blanks in cells, or an N in the name of a machine, only the regular expression is right.
    return len(_NOT_AVAILABLE.findall(text))


def read_host_samples(found: FoundFiles, sink: Sink) -> None:
    """Join the CPU and memory files on time and machine; a sample that only one of them has is kept.

    Of repeated samples the last in the last file is kept. With times=naive all of them are, as in the published
    notebook, where the two hours of a clock change have the same wall clock: the first sample of a time is paired with
    the first, the second with the second, which gets a time one microsecond later, since a row is one machine at one
    time.
    """
    staged = {key: _stage(found.get(key), key, sink) for key in ("cluster_cpu_util", "cluster_mem_util")}
    if not any(staged.values()):
        return
    with sink.connect() as con:
        every = sink.options["times"] == "naive"
        cpu, memory = (_samples_sql(path, key, every=every) for key, path in staged.items())
        sink.writer.copy(
            "host_utilization",
            con,
            "SELECT coalesce(c.time, m.time) + to_microseconds(coalesce(c.nth, m.nth) - 1) AS time, "
            "coalesce(c.machine_id, m.machine_id) AS node_id, "
            f"c.cpu_util AS cpu_pct, (m.mem_total - m.mem_free) / {_KIB_PER_GIB} AS memory_used_gib, "
            f"m.mem_total / {_KIB_PER_GIB} AS memory_total_gib "
            f"FROM ({cpu}) c FULL JOIN ({memory}) m "
            "ON c.time = m.time AND c.machine_id = m.machine_id AND c.nth = m.nth ORDER BY 1, 2",
        )
        samples = f"read_parquet({sql_text(sink.folder / 'host_utilization.parquet')})"
        odd = "cpu_pct NOT BETWEEN 0 AND 100 OR memory_used_gib NOT BETWEEN 0 AND memory_total_gib"
        count, of = con.execute(f"SELECT count(*) FILTER (WHERE {odd}), count(*) FROM {samples}").fetchall()[0]
        sink.check(
            "host_utilization_out_of_range",
            count,
            of,
            "host samples with a CPU share below 0 or above 100 percent, or more memory used than there is, or less "
            "than none; they are kept",
        )


def _stage(files: list[SourceFile], key: str, sink: Sink) -> Path | None:
    every = [((key, number), file) for number, file in enumerate(files)]
    return sink.stage(key, read_each(every, _read_host_file, sink))


def _read_host_file(place: tuple[str, int], file: SourceFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the samples of a file; lines count on from those of the files before, with gaps."""
    key, number = place
    times = RecordTimes(sink, file.path)
    for rows in read_table(sink, file, _telemetry_schema(key, sink)):
        dated = times.dated(rows, TimeColumns({"time": "time"}, names="machine_id")).drop_nulls("time")
        yield dated.with_columns(pl.col("line") + number * _LINES)


def _samples_sql(path: Path | None, key: str, *, every: bool) -> str:
    """Return the query for one file's samples, numbered from 1 for each machine and time: every one, or the last."""
    values = ["cpu_util"] if key == "cluster_cpu_util" else ["mem_total", "mem_free"]
    if path is None:
        nulls = ", ".join(f"NULL::DOUBLE AS {v}" for v in values)
        return f"SELECT NULL::TIMESTAMP AS time, NULL::VARCHAR AS machine_id, {nulls}, NULL::BIGINT AS nth WHERE false"
    samples = f"FROM read_parquet({sql_text(path)})"
    if every:
        nth = "row_number() OVER (PARTITION BY time, machine_id ORDER BY line) AS nth"
        return f"SELECT time, machine_id, {', '.join(values)}, {nth} {samples}"
    # max_by over a struct keeps a NULL of the last row, which max_by over the value would skip.
    last = ", ".join(f"max_by({{'v': {v}}}, line).v AS {v}" for v in values)
    return f"SELECT time, machine_id, {last}, 1::BIGINT AS nth {samples} GROUP BY time, machine_id"
