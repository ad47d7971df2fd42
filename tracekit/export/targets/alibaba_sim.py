"""Alibaba's two simulators: PAI's (jobs over time) and the GPU-sharing study's (tasks that arrive and stay).

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/simulator (simulator.py, utils.py, scheduler.py,
cluster.py) for the layout pai: CSV with a header; num_gpu and num_cpu are per instance, num_inst instances start
together, and the policies that predict run times read user_dur, group_dur and group_gpu_dur. Also
cluster-trace-gpu-v2023/pod_csv_to_yaml.py and github.com/hkust-adsl/kubernetes-scheduler-simulator, data/README.md, for
the layout openb: a list of pods and a list of nodes, in thousandths of a core and of a GPU, whose times are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit.databases import sql_text
from tracekit.export.interface import CPU_JOBS, GUARD, ExportLog, Field, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_groups, cluster_size
from tracekit.export.text import whole_seconds, write_csv
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


# Write pods and nodes for the simulator of Alibaba's GPU-sharing study.

_PHASE = {"completed": "Succeeded", "running": "Running", "pending": "Pending", "unknown": "Running"}

POD_FIELDS = (
    Field("name", "name of the pod", "'job-' and a number, in submission order"),
    Field("cpu_milli", "thousandths of a CPU core", "cpu_count (option cpus)"),
    Field("memory_mib", "MiB", "memory_gib, or 0 if unknown"),
    Field("num_gpu", "GPUs that the pod uses", "gpu_count, rounded up"),
    Field("gpu_milli", "thousandths of each GPU, 1000 if several", "gpu_count"),
    Field("gpu_spec", "accepted models, separated by |", "gpu_model"),
    Field("qos", "LS or BE", "BE if preemptible, else LS"),
    Field("pod_phase", "Succeeded, Failed, Running, Pending", "status"),
    Field(
        "creation_time, scheduled_time, deletion_time",
        "s since the first submission",
        "submit_time, start_time, end_time",
    ),
)

NODE_FIELDS = (
    Field("sn", "name", "node_id"),
    Field("cpu_milli", "thousandths of a CPU core", "cpu_count (option node_cpus)"),
    Field("memory_mib", "MiB", "memory_gib (option node_memory_gib)"),
    Field("gpu", "GPUs", "gpu_count; nodes with an unknown count are left out"),
    Field("model", "GPU model", "gpu_model (option gpu_model)"),
)


def pod_rows(jobs: JobSelection, log: ExportLog, cpus: float) -> Iterator[pl.DataFrame]:
    """Yield one pod for each job."""
    log.filled("memory", "0 MiB", jobs.unknown("memory_gib"))
    log.changed(
        jobs.count_where("status IS NULL OR status NOT IN ('completed', 'failed', 'running', 'pending')"),
        "the format has no word for their status, so it became Running if unknown, else Failed",
    )
    log.changed(jobs.count_where("size > 1 AND size <> floor(size)"), "their GPU request was rounded up to whole GPUs")
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
    """Yield the nodes of the Trace, unless the options set the number of nodes."""
    cpus, memory = options.positive("node_cpus"), options.positive("node_memory_gib")
    model = options.text("gpu_model")
    asked = options.sized or options.values["nodes"] or options.values["gpus_per_node"]
    nodes = pl.DataFrame()
    if jobs.trace.has("nodes") and not asked:
        listed = jobs.trace.scan("nodes").sort("node_id").collect()
        nodes = listed.filter(pl.col("gpu_count").is_not_null())
        if unknown := len(listed) - len(nodes):
            log.note(f"{counted(unknown, 'nodes')} left out, because their number of GPUs is unknown")
    if len(nodes):
        for column, value in (("cpu_count", f"{cpus:g}"), ("memory_gib", f"{memory:g}"), ("gpu_model", model)):
            lacking = nodes[column].is_null()
            lacking &= (nodes["gpu_count"] > 0) if column == "gpu_model" else True
            if lacking.any():
                log.note(f"the Trace has no {column} for {counted(int(lacking.sum()), 'nodes')}: {value}")
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


# Write jobs for PAI's simulator.

_ESTIMATES = {
    "user_dur": ("owner",),
    "user_gpu_dur": ("owner", "size"),
    "group_dur": ("owner", "team"),
    "group_gpu_dur": ("owner", "team", "size"),
}
"""Columns of predicted run times, and the columns that earlier jobs must share to count in the mean."""

FIELDS = (
    Field("job_id", "whole number", "from 0, in submission order"),
    Field("user", "submitting user", "user, else 'unknown'"),
    Field("submit_time", "s since the first submission", "submit_time"),
    Field("duration", "s", "sum of the attempts' run times, at least 1"),
    Field("num_inst", "instances that start together", "instance_count, else node_count, else 1"),
    Field("num_gpu", "GPUs per instance, in hundredths", "gpu_count / num_inst"),
    Field("num_cpu", "CPU cores per instance, in hundredths", "cpu_count / num_inst (option cpus)"),
    Field("gpu_type", "CPU, MISC, T4, P100, V100", "gpu_model; CPU without GPUs, MISC if unknown or several"),
    Field("group", "recurring jobs", "group, else the user"),
    Field("wait_time", "wait on the real cluster [s]", "start_time - submit_time, or 0 if unknown"),
    Field("user_dur, user_gpu_dur", "predicted run time [s]", "mean of the user's earlier jobs (with as many GPUs)"),
    Field("group_dur, group_gpu_dur", "predicted run time [s]", "mean of the group's earlier jobs (with as many GPUs)"),
)


def job_rows(jobs: JobSelection, log: ExportLog, cpus: float, scratch: Path) -> Iterator[pl.DataFrame]:
    """Yield the rows of the jobs. `cpus` is the number of CPU cores of a job without a CPU request."""
    log.filled("user", "unknown", jobs.unknown("user"))
    log.filled("group", "the user", jobs.unknown("group"))
    unknown = jobs.count_where("size > 0 AND (gpu_model IS NULL OR contains(gpu_model, '|'))")
    log.filled("gpu_type", "MISC", unknown)
    log.filled("num_inst", "number of nodes, else 1", jobs.unknown("instance_count"))
    log.note(
        "predicted run times are means of earlier jobs; the first job of a user or group gets the mean of all "
        "earlier jobs"
    )
    rounded = 0
    for block in _predicted(jobs, scratch):
        instances = pl.max_horizontal(pl.coalesce("instance_count", "node_count", pl.lit(1, dtype=pl.Int64)), 1)
        rows = block.with_columns(instances=instances)
        gpu = pl.col("size") / pl.col("instances")
        rounded += int(
            rows.select((gpu.round(2) * pl.col("instances") - pl.col("size")).abs() > 1e-6).to_series().sum()
        )
        model = pl.when(pl.col("gpu_model").str.contains("|", literal=True)).then(None).otherwise("gpu_model")
        yield rows.select(
            job_id=pl.col("n") - 1,
            user=pl.col("user").fill_null("unknown"),
            submit_time=whole_seconds("submit_s"),
            duration=whole_seconds("work_s").clip(lower_bound=1),
            num_inst="instances",
            num_gpu=gpu.round(2),
            num_cpu=(pl.col("cpu_count").fill_null(cpus) / pl.col("instances")).round(2),
            gpu_type=pl.when(pl.col("size") == 0).then(pl.lit("CPU")).otherwise(model.fill_null("MISC")),
            group=pl.coalesce("group", "user", pl.lit("unknown")),
            wait_time=pl.col("wait_s").clip(lower_bound=0).fill_null(0).round(),
            **{name: pl.col(name).round(2) for name in _ESTIMATES},
        )
    log.changed(rounded, "their GPUs per instance were rounded to hundredths of a GPU")


def _predicted(jobs: JobSelection, scratch: Path) -> Iterator[pl.DataFrame]:
    """Yield the jobs in blocks, as `JobSelection.blocks` does, with the predicted run times."""
    # Add whole microseconds, so the sums do not depend on how the work is divided.
    micros = "CAST(round(work_s * 1e6) AS BIGINT)"
    means = ", ".join(f"coalesce({_mean(keys)}, {_mean(())}, 0) AS {name}" for name, keys in _ESTIMATES.items())
    file = scratch / "predicted.parquet"
    source = f"read_parquet({sql_text(jobs.file)}, file_row_number = true)"
    jobs.rows(
        f"COPY (SELECT * EXCLUDE (row, us, owner, team, file_row_number), row + 1 AS n, {means} FROM (SELECT *, "
        f"file_row_number AS row, {micros} AS us, coalesce(\"user\", '') AS owner, "
        f'coalesce("group", "user", \'\') AS team FROM {source}) ORDER BY row) TO {sql_text(file)} (FORMAT parquet)'
    )
    yield from jobs.blocks_of(file)


def _mean(keys: tuple[str, ...]) -> str:
    """Return the mean run time of the earlier jobs with the same `keys` [s], or NULL if there are none."""
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    frame = f"({partition}ORDER BY row ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"sum(us) OVER {frame} / 1e6 / count(*) OVER {frame}"


_NODE_LIST = ".nodes.csv"


class AlibabaSimTarget(Target):
    """Jobs for PAI's simulator, or pods and nodes for the GPU-sharing simulator."""

    name = "alibaba-sim"
    title = "Alibaba's simulators: PAI 2020, GPU sharing 2023"
    reads = "pai: csv_file of Simulator; openb: the lists of pods and nodes for the Kubernetes simulator"
    fields = (
        *FIELDS,
        *(Field(f"pod {f.name}", f.meaning, f.filled_from) for f in POD_FIELDS),
        *(Field(f"node {f.name}", f.meaning, f.filled_from) for f in NODE_FIELDS),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "layout": Option("pai", "simulator that reads the files", ("pai", "openb")),
        "jobs": CPU_JOBS,
        "cpus": Option("0", "CPU cores of a job without a CPU request", form="number"),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "gpu_model": Option("V100M16", "openb: GPU model of nodes without a recorded model"),
        "node_cpus": Option("96", "openb: CPU cores of nodes without a recorded count", form="positive"),
        "node_memory_gib": Option("512", "openb: host memory of nodes without a recorded size [GiB]", form="positive"),
        "guard": GUARD,
    }
    companions: ClassVar[Mapping[str, str]] = {_NODE_LIST: "openb only: the nodes"}
    lost = "VCs, statuses, attempts; pai: memory, nodes; openb: users, times"
    sources = (
        "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/simulator and cluster-trace-gpu-v2023",
        "github.com/hkust-adsl/kubernetes-scheduler-simulator",
    )

    def check(self, options: Options) -> None:
        """Reject a GPU model that does not fit on one line."""
        options.text("gpu_model")

    def beside(self, options: Options) -> tuple[str, ...]:
        """Return the suffix of the node list, if the layout has one."""
        return (_NODE_LIST,) if options.values["layout"] == "openb" else ()

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the requested layout."""
        cpus = options.number("cpus")
        log.filled("CPU cores", f"{cpus:g}", jobs.unknown("cpu_count"), "cpus")
        guard = options.yes("guard")
        if options.values["layout"] == "pai":
            write_csv(out.main, job_rows(jobs, log, cpus, out.scratch), log, guard=guard)
            gpus = sum(nodes * each for nodes, each in cluster_groups(jobs, log, options))
            log.setting(
                f"run_simulator.py with CSV_FILE = '{out.target.name}', --arrival_rate -1 (otherwise it generates its "
                f"own submissions), --num_jobs {jobs.count} and --num_gpus {gpus}"
            )
        else:
            write_csv(out.main, pod_rows(jobs, log, cpus), log, guard=guard)
            write_csv(out.companion(_NODE_LIST), node_rows(jobs, log, options), log, guard=guard)


MEMBERS = (AlibabaSimTarget(),)
