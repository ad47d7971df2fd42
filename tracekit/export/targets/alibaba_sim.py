"""Alibaba's two simulators: PAI's (jobs in time), and that of the GPU-sharing study (tasks that only arrive).

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/simulator (simulator.py, utils.py, scheduler.py,
cluster.py) for the layout pai: CSV with a header; num_gpu and num_cpu are those of one instance, num_inst instances
start together; the policies that predict run times read user_dur, group_dur and group_gpu_dur. And
cluster-trace-gpu-v2023/pod_csv_to_yaml.py with github.com/hkust-adsl/kubernetes-scheduler-simulator, data/README.md,
for the layout openb: a list of pods and a list of nodes, in thousandths of a core and of a GPU; times are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.export.interface import ExportLog, Field, JobSelection, Option, Output, Target
from tracekit.export.options import CPU_JOBS, GUARD, Options
from tracekit.export.targets._alibaba_openb import NODE_FIELDS, POD_FIELDS, node_rows, pod_rows
from tracekit.export.targets._alibaba_pai import FIELDS, job_rows
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_groups
from tracekit.export.text import write_csv

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TARGET", "AlibabaSimTarget"]

_NODE_LIST = ".nodes.csv"


class AlibabaSimTarget(Target):
    """Jobs for PAI's simulator, or pods and nodes for that of GPU sharing."""

    name = "alibaba-sim"
    title = "Alibaba's simulators: PAI 2020, GPU sharing 2023"
    reads = "pai: csv_file of Simulator; openb: the lists that become the Kubernetes simulator's pods and nodes"
    fields = (
        *FIELDS,
        *(Field(f"pod {f.name}", f.meaning, f.filled_from) for f in POD_FIELDS),
        *(Field(f"node {f.name}", f.meaning, f.filled_from) for f in NODE_FIELDS),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "layout": Option("pai", "which simulator", ("pai", "openb")),
        "jobs": CPU_JOBS,
        "cpus": Option("0", "CPU cores of a job that states none"),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "gpu_model": Option("V100M16", "openb: GPU model of nodes that state none"),
        "node_cpus": Option("96", "openb: CPU cores of nodes that state none"),
        "node_memory_gib": Option("512", "openb: host memory of nodes that state none"),
        "guard": GUARD,
    }
    companions: ClassVar[Mapping[str, str]] = {_NODE_LIST: "openb only: the nodes"}
    lost = "VCs, statuses, attempts; pai: memory, nodes; openb: users, times"
    sources = (
        "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/simulator and cluster-trace-gpu-v2023",
        "github.com/hkust-adsl/kubernetes-scheduler-simulator",
    )

    def check(self, options: Options) -> None:
        """Refuse options that are not numbers."""
        options.number("cpus")
        options.text("gpu_model")
        for name in ("nodes", "gpus_per_node"):
            options.count(name, least=1)
        for name in ("node_cpus", "node_memory_gib"):
            options.positive(name)

    def beside(self, options: Options) -> tuple[str, ...]:
        """Return the list of nodes, for the layout that has one."""
        return (_NODE_LIST,) if options.values["layout"] == "openb" else ()

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the layout that is asked for."""
        cpus = options.number("cpus")
        log.filled("CPU cores", f"{cpus:g}", jobs.unknown("cpu_count"), "cpus")
        guard = options.yes("guard")
        if options.values["layout"] == "pai":
            write_csv(out.main, job_rows(jobs, log, cpus, out.scratch), log, guard=guard)
            gpus = sum(nodes * each for nodes, each in cluster_groups(jobs, log, options))
            log.setting(
                f"run_simulator.py with CSV_FILE = '{out.target.name}', --arrival_rate -1, without which it draws "
                f"submissions of its own, --num_jobs {jobs.count} and --num_gpus {gpus}"
            )
        else:
            write_csv(out.main, pod_rows(jobs, log, cpus), log, guard=guard)
            write_csv(out.companion(_NODE_LIST), node_rows(jobs, log, options), log, guard=guard)


TARGET = AlibabaSimTarget()
