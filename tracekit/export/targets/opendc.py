"""OpenDC: a workload of tasks and fragments, in two Parquet files in a folder.

Source: github.com/atlarge-research/opendc, site/docs/documentation/Input/Workload.md, and opendc-trace-api,
formats/workload/parquet/TaskSchemas.kt and FragmentSchemas.kt (names, Parquet types, required columns). A task requests
cores and GPUs with their speed [MHz]. Its fragments give the speed in use and for how long. A Trace has no speeds, so
each task has one fragment for its whole run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.export.interface import (
    CPU_JOBS,
    FRACTIONS,
    ExportLog,
    Field,
    JobSelection,
    Option,
    Options,
    Output,
    Target,
)
from tracekit.export.targets._cluster import cluster_groups
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_TASKS = {
    "id": pa.int32(),
    "submission_time": pa.timestamp("ms", tz="UTC"),
    "duration": pa.int64(),
    "cpu_count": pa.int32(),
    "cpu_capacity": pa.float64(),
    "mem_capacity": pa.int64(),
}
_OPTIONAL_OF_TASKS = {"name": pa.string(), "gpu_count": pa.int32(), "gpu_capacity": pa.float64()}
_FRAGMENTS = {"id": pa.int32(), "duration": pa.int64(), "cpu_usage": pa.float64()}


class OpenDCTarget(Target):
    """tasks.parquet and fragments.parquet."""

    name = "opendc"
    title = "OpenDC workload"
    reads = 'workloads: [{"pathToFile": FOLDER, "type": "ComputeWorkload"}] of an experiment'
    folder = True
    fields = (
        Field("tasks id", "int32", "from 1, in submission order"),
        Field("tasks name", "string", "job_id"),
        Field("tasks submission_time", "timestamp [ms]", "submit_time"),
        Field("tasks duration", "ms", "sum of the attempts' run times, at least 1 ms"),
        Field("tasks cpu_count", "cores", "cpu_count rounded up (option cpus)"),
        Field("tasks cpu_capacity", "MHz of all cores", "cpu_count times option cpu_mhz"),
        Field("tasks mem_capacity", "MB", "memory_gib, or 0 if unknown"),
        Field("tasks gpu_count", "GPUs", "gpu_count"),
        Field("tasks gpu_capacity", "MHz of all GPUs", "gpu_count times option gpu_mhz"),
        Field("fragments id", "int32", "the task's"),
        Field("fragments duration", "ms", "the task's"),
        Field("fragments cpu_usage", "MHz", "cpu_capacity times option cpu_load"),
        Field("fragments gpu_usage", "MHz", "gpu_capacity times option gpu_load"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": CPU_JOBS,
        "fractions": FRACTIONS,
        "cpus": Option("1", "CPU cores of a job without a CPU request", form="count"),
        "cpu_mhz": Option("2000", "speed of a core [MHz]", form="positive"),
        "gpu_mhz": Option("1000", "speed of a GPU [MHz]", form="positive"),
        "cpu_load": Option("1", "share of its cores that a job uses, from 0 to 1", form="share"),
        "gpu_load": Option("1", "share of its GPUs that a job uses, from 0 to 1", form="share"),
    }
    dates = True
    lost = "users, VCs, statuses, attempts, GPU models, measured use"
    sources = ("github.com/atlarge-research/opendc, opendc-trace/opendc-trace-api and site/docs",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write both files, with one row group for each block of jobs."""
        cpus = options.count("cpus") or 1
        log.filled("CPU cores", str(cpus), jobs.unknown("cpu_count"), "cpus")
        log.filled("memory", "0 MB", jobs.unknown("memory_gib"))
        log.filled("speed of cores and GPUs", f"{options.values['cpu_mhz']} and {options.values['gpu_mhz']} MHz",
                    jobs.count, "cpu_mhz, gpu_mhz")  # fmt: skip
        log.filled("share of cores and GPUs used", f"{options.values['cpu_load']} and {options.values['gpu_load']}",
                    jobs.count, "cpu_load, gpu_load")  # fmt: skip
        groups = cluster_groups(jobs, log, options)
        hosts = [f"{counted(n, 'hosts')} with {counted(gpus, 'GPUs')}{' each' if n > 1 else ''}" for n, gpus in groups]
        log.setting(f"the experiment's topology needs {' and '.join(hosts)}")
        cpu_mhz, gpu_mhz = options.positive("cpu_mhz"), options.positive("gpu_mhz")
        cpu_load, gpu_load = options.number("cpu_load"), options.number("gpu_load")
        with (
            _writer(out.member("tasks.parquet"), _TASKS, _OPTIONAL_OF_TASKS) as tasks,
            _writer(out.member("fragments.parquet"), _FRAGMENTS, {"gpu_usage": pa.float64()}) as fragments,
        ):
            for block in jobs.blocks("job_id", "submit_time", "work_s", "size", "cpu_count", "memory_gib"):
                # Write at least one core, because a task without cores cannot run.
                rows = block.select(
                    id="n",
                    name="job_id",
                    submission_time=pl.col("submit_time").dt.cast_time_unit("ms").dt.replace_time_zone("UTC"),
                    duration=pl.max_horizontal((pl.col("work_s") * 1000).round().cast(pl.Int64), 1),
                    cpu_count=pl.max_horizontal(pl.col("cpu_count").fill_null(cpus).ceil(), 1),
                    mem_capacity=(pl.col("memory_gib").fill_null(0) * 1024**3 / 1e6).round().cast(pl.Int64),
                    gpu_count="size",
                ).with_columns(cpu_capacity=pl.col("cpu_count") * cpu_mhz, gpu_capacity=pl.col("gpu_count") * gpu_mhz)
                _write(tasks, rows)
                usage = {"cpu_usage": pl.col("cpu_capacity") * cpu_load, "gpu_usage": pl.col("gpu_capacity") * gpu_load}
                _write(fragments, rows.select("id", "duration", **usage))


def _writer(path: Path, required: dict[str, Any], optional: dict[str, Any]) -> pq.ParquetWriter:
    """Open a Parquet file with the types that OpenDC requires."""
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    fields += [pa.field(name, kind) for name, kind in optional.items()]
    return pq.ParquetWriter(path, pa.schema(fields), store_schema=False, compression="snappy")


def _write(writer: pq.ParquetWriter, frame: pl.DataFrame) -> None:
    """Append rows, matching columns by name."""
    writer.write_table(frame.select(writer.schema.names).to_arrow().cast(writer.schema))


MEMBERS = (OpenDCTarget(),)
