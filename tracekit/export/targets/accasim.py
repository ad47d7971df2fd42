"""AccaSim: a workload in the Standard Workload Format and a system configuration (JSON).

Source: github.com/cgalleguillosm/accasim, `utils/reader_class.py` (the default reader and parser), `utils/misc.py` (its
patterns: every field is a whole number) and config/HPC2N.config. Its reader takes submission, duration, requested time,
requested processors, else allocated ones, and requested memory, else used memory; it stops at a job whose processors or
memory are unknown, so that neither is -1 here. Its schedulers take the requested time for the expected duration. A
processor is a GPU; the configuration calls it core.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

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
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_groups
from tracekit.export.targets.swf import FIELDS, SwfLayout, numbered, write_swf

if TYPE_CHECKING:
    from collections.abc import Mapping


_CONFIG = ".config"
_UNLIMITED_KB = 2**40


class AccaSimTarget(Target):
    """SWF without unknown numbers, and the system."""

    name = "accasim"
    title = "AccaSim"
    reads = "the workload and the sys_config of its Simulator"
    fields = (
        *(f for f in FIELDS if f.name.startswith(("1 ", "2 ", "4 ", "8 ", "12"))),
        Field("9 requested time", "s", "time_limit_s, else the run time (option requested_time)"),
        Field("10 requested memory", "KB of a processor", "memory_gib / processors, 0 where unknown"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": CPU_JOBS,
        "fractions": FRACTIONS,
        "run_time": Option(
            "attempts", "run time as the sum of attempts, or with the gaps between them", ("attempts", "wall")
        ),
        "requested_time": Option(
            "run",
            "of jobs without a time limit: their run time, or unknown; SJF, LJF and EASY order by it",
            ("run", "-1"),
        ),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "node_memory_gib": Option("", "host memory of a node; empty: so much that it never limits"),
    }
    companions: ClassVar[Mapping[str, str]] = {_CONFIG: "system configuration: nodes, cores and memory of each"}
    lost = "CPU cores, GPU models, names, VCs other than as a number"
    sources = ("github.com/cgalleguillosm/accasim",)

    def check(self, options: Options) -> None:
        """Refuse a memory size that is not a number."""
        if options.values["node_memory_gib"]:
            options.positive("node_memory_gib")

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the workload and the system."""
        groups = cluster_groups(jobs, log, options)
        numbers = numbered(jobs, log)
        log.filled("memory", "0 KB", jobs.unknown("memory_gib"))
        from_run = options.values["requested_time"] == "run"
        meant = "the run time" if from_run else "-1"
        log.filled("requested time", meant, jobs.unknown("time_limit_s"), "requested_time")
        run = "work_s" if options.values["run_time"] == "attempts" else "run_s"
        layout = SwfLayout(run=run, memory_unknown=0, limit_is_run=from_run)
        total = sum(nodes * gpus for nodes, gpus in groups)
        write_swf(out.main, jobs, numbers, layout, log, processors="GPU", total=total)
        memory = _UNLIMITED_KB
        if options.values["node_memory_gib"]:
            memory = round(options.positive("node_memory_gib") * 1024**2)
        system = {
            "system_name": "tracekit",
            "equivalence": {"processor": {"core": 1}},
            "groups": {f"g{n}": {"core": gpus, "mem": memory} for n, (_, gpus) in enumerate(groups)},
            "resources": {f"g{n}": nodes for n, (nodes, _) in enumerate(groups)},
        }
        files = (out.target.name, out.target.stem + _CONFIG)
        log.setting(f"Simulator('{files[0]}', '{files[1]}', dispatcher): a core is a GPU")
        out.companion(_CONFIG).write_text(json.dumps(system, indent=2) + "\n", encoding="utf-8")


TARGET = AccaSimTarget()
