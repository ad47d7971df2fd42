"""Tiresias: the simulator's job trace and cluster specification, both as CSV.

Source: github.com/SymbioticLab/Tiresias, simulator/README.md, run_sim.py (parse_job_file, parse_cluster_spec), jobs.py
(add_job) and models.py (model names). Each line is a job with job_id, num_gpu, submit_time, iterations, model_name,
duration and interval. Times are whole seconds from 0. The file name must end in .csv, because it determines the
simulator's delimiter. Tiresias's own policies ignore model and iterations. The model determines memory and traffic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit.errors import UsageError
from tracekit.export.interface import FRACTIONS, ExportLog, Field, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_size
from tracekit.export.text import whole_seconds, write_csv
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_SPEC = ".cluster.csv"
_MODELS = (
    "vgg19", "vgg16", "vgg11", "alexnet", "resnet152", "resnet101", "resnet50", "inception4", "inception3",
)  # fmt: skip


class TiresiasTarget(Target):
    """The job trace and its cluster specification."""

    name = "tiresias"
    title = "Tiresias' simulator"
    reads = "--trace_file FILE.csv and --cluster_spec FILE.cluster.csv"
    fields = (
        Field("job_id", "for tracking", "from 0, in submission order"),
        Field("num_gpu", "GPUs", "gpu_count"),
        Field("submit_time", "s since the first submission", "submit_time"),
        Field("iterations", "training steps", "duration times option iterations_per_second"),
        Field("model_name", "one of the simulator's models", "option model"),
        Field("duration", "s", "sum of the attempts' run times, at least 1"),
        Field("interval", "s until the next submission, 0 for the last job", "submit_time"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "fractions": FRACTIONS,
        "model": Option("resnet50", "model of every job", _MODELS),
        "iterations_per_second": Option("1", "training steps per second of a job", form="positive"),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "nodes_per_switch": Option("", "nodes per switch; if empty, all nodes are below one switch", form="count"),
        "cpus_per_node": Option("64", "CPU cores per node", form="count"),
        "memory_per_node": Option("256", "host memory per node [GB]", form="count"),
    }
    companions: ClassVar[Mapping[str, str]] = {_SPEC: "switches, nodes, GPUs, CPU cores and memory"}
    lost = "users, VCs, statuses, attempts, CPU jobs"
    sources = ("github.com/SymbioticLab/Tiresias, simulator/README.md, run_sim.py, jobs.py, models.py",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the trace and the specification."""
        if out.target.suffix != ".csv":
            raise UsageError(
                f"'{out.target.name}' does not end in .csv",
                where="-o",
                hint="Tiresias chooses the delimiter by the file name",
            )
        log.filled("model_name", options.values["model"], jobs.count, "model")
        rate = options.positive("iterations_per_second")
        log.filled("iterations", f"{rate:g} per second of the duration", jobs.count, "iterations_per_second")
        write_csv(out.main, _rows(jobs, options.values["model"], rate, log), log, guard=False)
        nodes, gpus = cluster_size(jobs, log, options)
        below = min(options.count("nodes_per_switch", least=1) or nodes, nodes)
        switches = -(-nodes // below)
        if switches * below != nodes:
            log.note(
                f"{counted(nodes, 'nodes')} became {switches * below:,}: "
                f"each switch has {below} (option nodes_per_switch)"
            )
        host = {name: options.count(name, least=1) for name in ("cpus_per_node", "memory_per_node")}
        log.note(f"CPU cores and memory per node: {host['cpus_per_node']}, {host['memory_per_node']} GB (options)")
        log.setting(
            f"python2.7 run_sim.py --trace_file={out.target.name} --cluster_spec={out.target.stem}{_SPEC} "
            "--scheme=yarn --schedule=dlas-gpu"
        )
        spec = pl.DataFrame(
            {
                "num_switch": [switches],
                "num_node_p_switch": [below],
                "num_gpu_p_node": [gpus],
                "num_cpu_p_node": [host["cpus_per_node"]],
                "mem_p_node": [host["memory_per_node"]],
            }
        )
        spec.write_csv(out.companion(_SPEC))


def _rows(jobs: JobSelection, model: str, rate: float, log: ExportLog) -> Iterator[pl.DataFrame]:
    lengthened = 0
    previous: pl.DataFrame | None = None
    for block in jobs.blocks("submit_s", "work_s", "size"):
        lengthened += int((block["work_s"] < 0.5).sum())
        rows = block.select(
            job_id=pl.col("n") - 1,
            num_gpu=pl.col("size").cast(pl.Int64),
            submit_time=whole_seconds("submit_s"),
            iterations=(pl.col("work_s") * rate + 0.5).floor().cast(pl.Int64).clip(lower_bound=1),
            model_name=pl.lit(model),
            duration=whole_seconds("work_s").clip(lower_bound=1),
        )
        if previous is not None:
            yield _with_intervals(previous, int(rows["submit_time"][0]))
        previous = rows
    if previous is not None:
        yield _with_intervals(previous, int(previous["submit_time"][-1]))
    log.changed(lengthened, "they ran for less than half a second, so their duration is 1 s")


def _with_intervals(rows: pl.DataFrame, following: int) -> pl.DataFrame:
    """Add the column interval, the time to the next submission, which is `following` for the last row [s]."""
    return rows.with_columns(interval=pl.col("submit_time").shift(-1, fill_value=following) - pl.col("submit_time"))


MEMBERS = (TiresiasTarget(),)
