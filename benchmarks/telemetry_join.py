"""Measure the join of GPU samples with jobs during ingest and in queries.

    python benchmarks/telemetry_join.py [--samples 10_000_000] [--memory 4GB] [--keep DIR]

ingest  samples of two metrics into gpu_utilization with the job of each sample, by label on half of the machines and by
        whole machine on the others. The bounds are DuckDB aggregating a long table of the same samples by label
        (Parquet, with the labels of a site's own table), and DuckDB copying that table
query   aggregation of attempt_samples, against DuckDB aggregating the plain gpu_utilization
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from tracekit.characterize.session import Session
from tracekit.databases import connect_duckdb, sql_text
from tracekit.ingest.sink import Sink
from tracekit.ingest.telemetry._complete import join
from tracekit.ingest.telemetry._pivot import SampleFile
from tracekit.ingest.telemetry._series import Labels, SeriesTable
from tracekit.progress import Progress
from tracekit.tables.parquet import files_sql
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

_GPUS = 8
_STEP_S = 30
_DAY = 86_400 // _STEP_S
_BEGIN = datetime(2026, 3, 2, tzinfo=UTC).replace(tzinfo=None)
_METRICS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE")
_JOBS_A_DAY = 8


@contextmanager
def _timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - begin
    print(f"{what}: {seconds[what]:.2f} s", flush=True)


def _job(node: int, run: int) -> str:
    return f"slurm/{node * 1_000_000 + run}"


def _write_log(sink: Sink, nodes: int, days: int) -> None:
    """Write jobs that use whole machines, one after another."""
    length = timedelta(days=1) / _JOBS_A_DAY
    runs = [(node, run) for node in range(nodes) for run in range(days * _JOBS_A_DAY)]
    ids = [_job(*pair) for pair in runs]
    start = [_BEGIN + run * length for _, run in runs]
    jobs = pl.DataFrame({"job_id": ids, "cluster": "slurm", "start_time": start, "submit_time": start})
    jobs = jobs.with_columns(end_time=pl.col("start_time") + length, gpu_count=8.0, status=pl.lit("completed"))
    sink.write("jobs", jobs)
    run = jobs.select("job_id", "start_time", "end_time", "gpu_count", attempt=pl.lit(0), status=pl.lit("completed"))
    sink.write("attempts", run)
    place = pl.DataFrame({"node_id": [f"n{node}" for node, _ in runs]})
    sink.write("placements", pl.concat([run.select("job_id", "attempt", "gpu_count"), place], how="horizontal"))
    names = [f"n{node}" for node in range(nodes)]
    sink.write("nodes", pl.DataFrame({"node_id": names, "cluster": "slurm", "gpu_count": 8.0}))
    sink.flush()
    sink.writer.drain()


def _sample(samples: SampleFile, nodes: int, days: int) -> SeriesTable:
    """Write the samples series by series in the form that readers produce, and return the series."""
    series = SeriesTable()
    rng = np.random.default_rng(7)
    per_job = _DAY // _JOBS_A_DAY
    begin = int(_BEGIN.replace(tzinfo=UTC).timestamp()) * 1_000_000
    for day in range(days):
        times = begin + (day * _DAY + np.arange(_DAY, dtype=np.int64)) * _STEP_S * 1_000_000
        for metric, node, gpu in product(_METRICS, range(nodes), range(_GPUS)):
            values = np.round(rng.uniform(0, 100, _DAY))
            labels = Labels(f"n{node}", gpu, None, None, None, None, None)
            if node % 2:
                samples.add(series.number(labels, metric), times, values)
                continue
            for run in range(_JOBS_A_DAY):
                job = _job(node, day * _JOBS_A_DAY + run).split("/")[1]
                part = slice(run * per_job, (run + 1) * per_job)
                samples.add(series.number(labels._replace(job=job), metric), times[part], values[part])
    return series


def _write_plain(samples: SampleFile, series: SeriesTable, path: Path) -> None:
    """Write the same samples for the bound, as a long table with labels like a site's own."""
    labels = series.frame().select("host", "gpu_index", "job", "metric")
    runs = samples.runs()
    file = None
    for part in runs.iter_slices(500):
        times, values = samples.read(part["offset"].to_list(), part["count"].to_list())
        rows = labels[np.repeat(part["series"].to_numpy(), part["count"].to_numpy())]
        table = rows.with_columns(
            pl.Series("time", times).cast(pl.Datetime("us")), pl.Series("value", values)
        ).to_arrow()
        file = file or pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=rows.columns)
        file.write_table(table)
    if file:
        file.close()


def _query(folder: Path, seconds: dict[str, float], memory: str) -> None:
    trace = Trace.open(folder)
    with _timed("query: bare scan", seconds), connect_duckdb(memory) as con:
        samples = f"read_parquet({files_sql(trace.files('gpu_utilization'))})"
        con.execute(f"SELECT job_id, count(*), sum(utilization_pct) FROM {samples} GROUP BY job_id").fetchall()
    with _timed("query: join", seconds), Session(trace).connect() as con:
        con.execute(f"SET memory_limit = {sql_text(memory)}")
        con.execute("SELECT job_id, count(*), sum(utilization_pct) FROM attempt_samples GROUP BY job_id").fetchall()


def measure(samples: int, memory: str, folder: Path) -> None:
    """Print the times and their ratios."""
    days = 7
    nodes = max(2, round(samples / (days * _DAY * _GPUS * len(_METRICS))))
    count = nodes * days * _DAY * _GPUS * len(_METRICS)
    print(f"{count:,} samples of {nodes} machines with {_GPUS} GPUs, {len(_METRICS)} metrics, {days} days", flush=True)
    seconds: dict[str, float] = {}
    with TraceWriter(folder / "trace", force=True) as writer:
        sink = Sink(writer, {}, Progress(), memory)
        _write_log(sink, nodes, days)
        with SampleFile(folder / "samples") as file:
            with _timed("making", seconds):
                series = _sample(file, nodes, days)
            plain = f"read_parquet({sql_text(folder / 'plain.parquet')})"
            _write_plain(file, series, folder / "plain.parquet")
            with _timed("ingest: bare scan", seconds), connect_duckdb(memory) as con:
                labels = "host, gpu_index, job, metric"
                con.execute(
                    f"SELECT {labels}, count(*), sum(value), max(time) FROM {plain} GROUP BY {labels}"
                ).fetchall()
            with _timed("ingest: bare copy", seconds), connect_duckdb(memory) as con:
                copy = f"COPY (FROM {plain}) TO {sql_text(folder / 'copy.parquet')} (FORMAT parquet, COMPRESSION zstd)"
                con.execute(copy)
            with _timed("ingest: join", seconds), sink.connect() as con:
                sink.attach(con, "jobs", "attempts", "placements", "nodes")
                join(con, file, series, sink)
        for check, entry in sink.checks.items():
            if entry.count:
                raise RuntimeError(check)
        from tracekit.ingest.interface import TimeFrame
        from tracekit.manifest import Manifest
        from tracekit.schema import SCHEMA_VERSION

        frame = TimeFrame("absolute", "UTC")
        writer.commit(
            Manifest(
                format="slurm",
                files=[],
                tracekit_version="0",
                schema_version=SCHEMA_VERSION,
                time_base=frame.base,
                timezone="UTC",
                created="2026-03-09T00:00:00Z",
                tables=writer.tables(),
                checks={},
                options={},
                notes=[],
            )
        )
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB", flush=True)
    _query(folder / "trace", seconds, memory)
    for part, bound in (("ingest", "scan"), ("ingest", "copy"), ("query", "scan")):
        ratio = seconds[f"{part}: join"] / seconds[f"{part}: bare {bound}"]
        print(f"{part}: {ratio:.1f} times the bare {bound}", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        measure(chosen.samples, chosen.memory, chosen.keep)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(chosen.samples, chosen.memory, Path(folder))


if __name__ == "__main__":
    main()
