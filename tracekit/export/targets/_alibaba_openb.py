"""Pods and nodes as the simulator of Alibaba's GPU-sharing study reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.export.interface import ExportLog, Field, JobSelection, Options
from tracekit.export.targets._cluster import cluster_size
from tracekit.export.text import whole_seconds
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NODE_FIELDS", "POD_FIELDS", "node_rows", "pod_rows"]

_PHASE = {"completed": "Succeeded", "running": "Running", "pending": "Pending", "unknown": "Running"}

POD_FIELDS = (
    Field("name", "name of the pod", "'job-' and a number, in order of submission"),
    Field("cpu_milli", "thousandths of a CPU core", "cpu_count (option cpus)"),
    Field("memory_mib", "MiB", "memory_gib, 0 where unknown"),
    Field("num_gpu", "GPUs it touches", "gpu_count, rounded up"),
    Field("gpu_milli", "thousandths of each GPU: 1000 for several", "gpu_count"),
    Field("gpu_spec", "accepted models, | between them", "gpu_model"),
    Field("qos", "LS or BE", "BE where preemptible, else LS"),
    Field("pod_phase", "Succeeded, Failed, Running, Pending", "status"),
    Field(
        "creation_time, scheduled_time, deletion_time",
        "s from the first submission on",
        "submit_time, start_time, end_time",
    ),
)

NODE_FIELDS = (
    Field("sn", "name", "node_id"),
    Field("cpu_milli", "thousandths of a CPU core", "cpu_count (option node_cpus)"),
    Field("memory_mib", "MiB", "memory_gib (option node_memory_gib)"),
    Field("gpu", "GPUs", "gpu_count; nodes whose count is unknown are left out"),
    Field("model", "GPU model", "gpu_model (option gpu_model)"),
)


def pod_rows(jobs: JobSelection, log: ExportLog, cpus: float) -> Iterator[pl.DataFrame]:
    """Yield one pod for each job."""
    log.filled("memory", "0 MiB", jobs.unknown("memory_gib"))
    log.changed(
        jobs.count_where("status IS NULL OR status NOT IN ('completed', 'failed', 'running', 'pending')"),
        "the format has no word for their status: Running where it is unknown, else Failed",
    )
    log.changed(jobs.count_where("size > 1 AND size <> floor(size)"), "whole GPUs and a part became whole GPUs")
    digits = max(4, len(str(jobs.count)))
    for block in jobs.blocks():
        size, word = pl.col("size"), pl.col("status").fill_null("unknown")
        phase = word.replace_strict(_PHASE, default="Failed", return_dtype=pl.String)
        timed = block.with_columns(
            scheduled=(pl.col("submit_s") + pl.col("wait_s")),
            deleted=pl.col("submit_s") + (pl.col("end_time") - pl.col("submit_time")).dt.total_microseconds() / 1e6,
        )
        yield timed.select(
            name="job-" + (pl.col("n") - 1).cast(pl.String).str.zfill(digits),
            cpu_milli=(pl.col("cpu_count").fill_null(cpus) * 1000).round().cast(pl.Int64),
            memory_mib=(pl.col("memory_gib").fill_null(0) * 1024).round().cast(pl.Int64),
            num_gpu=size.ceil().cast(pl.Int64),
            gpu_milli=pl.when(size == 0).then(0).when(size >= 1).then(1000)
            .otherwise(pl.max_horizontal((size * 1000).round(), 1)).cast(pl.Int64),
            gpu_spec=pl.col("gpu_model"),
            qos=pl.when(pl.col("preemptible")).then(pl.lit("BE")).otherwise(pl.lit("LS")),
            pod_phase=phase,
            creation_time=whole_seconds("submit_s"),
            deletion_time=whole_seconds("deleted"),
            scheduled_time=whole_seconds("scheduled"),
        )  # fmt: skip


def node_rows(jobs: JobSelection, log: ExportLog, options: Options) -> Iterator[pl.DataFrame]:
    """Yield the nodes: those of the Trace, unless the options say how many there are."""
    cpus, memory = options.positive("node_cpus"), options.positive("node_memory_gib")
    model = options.text("gpu_model")
    asked = options.sized or options.values["nodes"] or options.values["gpus_per_node"]
    nodes = pl.DataFrame()
    if jobs.trace.has("nodes") and not asked:
        listed = jobs.trace.scan("nodes").sort("node_id").collect()
        nodes = listed.filter(pl.col("gpu_count").is_not_null())
        if unknown := len(listed) - len(nodes):
            log.note(f"{counted(unknown, 'nodes')} left out: number of GPUs unknown")
    if len(nodes):
        for column, value in (("cpu_count", f"{cpus:g}"), ("memory_gib", f"{memory:g}"), ("gpu_model", model)):
            lacking = nodes[column].is_null()
            lacking &= (nodes["gpu_count"] > 0) if column == "gpu_model" else True
            if lacking.any():
                log.note(f"{column} is not in the Trace for {counted(int(lacking.sum()), 'nodes')}: {value}")
    else:
        count, gpus = cluster_size(jobs, log, options)
        log.note(f"each node has {counted(gpus, 'GPUs')} {model}, {cpus:g} CPU cores and {memory:g} GiB (options)")
        nodes = pl.DataFrame(
            {"node_id": [f"node-{n:04d}" for n in range(count)], "gpu_count": [gpus] * count},
            schema={"node_id": pl.String, "gpu_count": pl.Int64},
        ).with_columns(
            cpu_count=pl.lit(None, dtype=pl.Float64),
            memory_gib=pl.lit(None, dtype=pl.Float64),
            gpu_model=pl.lit(None, dtype=pl.String),
        )
    gpus_of = pl.col("gpu_count").cast(pl.Int64)
    yield nodes.select(
        sn="node_id",
        cpu_milli=(pl.col("cpu_count").fill_null(cpus) * 1000).round().cast(pl.Int64),
        memory_mib=(pl.col("memory_gib").fill_null(memory) * 1024).round().cast(pl.Int64),
        gpu=gpus_of,
        model=pl.when(gpus_of > 0).then(pl.col("gpu_model").fill_null(model)),
    )
