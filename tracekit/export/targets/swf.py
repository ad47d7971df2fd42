"""Standard Workload Format 2.2, which most simulators of batch schedulers read.

Source: the definition at the Parallel Workloads Archive (www.cs.huji.ac.il/labs/parallel/workload/swf.html), and
Chapin et al., JSSPP'99: comment lines begin with a semicolon, a job is a line of 18 numbers, -1 is unknown. The format
knows processors only; a GPU is one here, or a CPU core (option processors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.export.interface import Option, Target, Wanted
from tracekit.export.targets._swf_lines import FIELDS, Layout, header_lines, job_lines, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.export.chosen import Chosen
    from tracekit.export.interface import Field, Options
    from tracekit.export.output import Output
    from tracekit.export.told import Told

__all__ = ["TARGET", "Swf"]


class Swf(Target):
    """One log in the Standard Workload Format."""

    name = "swf"
    title = "Standard Workload Format 2.2"
    reads = (
        "any simulator of the Parallel Workloads Archive's logs; tracekit reads it back with processors_are_gpus=yes"
    )
    fields: ClassVar[tuple[Field, ...]] = FIELDS
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": Option("gpu", "which jobs: only those that ask for processors, or all", ("gpu", "all")),
        "processors": Option("gpus", "what a processor is", ("gpus", "cpus")),
        "fractions": Option("up", "what becomes of a part of a processor", ("up", "keep", "leave-out")),
        "incomplete": Option("keep", "jobs that never ran, or whose times are unknown", ("keep", "leave-out")),
        "run_time": Option(
            "wall", "run time with the gaps between attempts, or the sum of attempts", ("wall", "attempts")
        ),
        "seconds": Option("whole", "times in whole seconds, as readers expect, or exact", ("whole", "exact")),
    }
    needs = "nothing: -1 is unknown"
    lost = (
        "names of users, groups and jobs, GPU models, nodes, attempts; statuses other than completed, failed, cancelled"
    )
    sources = ("www.cs.huji.ac.il/labs/parallel/workload/swf.html", "Chapin et al., JSSPP'99")

    def wanted(self, options: Options) -> Wanted:
        """Return which jobs are taken."""
        size = "gpu_count" if options.values["processors"] == "gpus" else "cpu_count"
        return Wanted.by(options, size=size, keep_zero=True)

    def write(self, jobs: Chosen, out: Output, told: Told, options: Options) -> None:
        """Write the log."""
        gpus = options.values["processors"] == "gpus"
        attempts = options.values["run_time"] == "attempts"
        layout = Layout(run="work_s" if attempts else "run_s", exact=options.values["seconds"] == "exact")
        numbers = numbered(jobs, told)
        total, notes = jobs.machines[2] if gpus else 0, []
        if not total:
            total = jobs.peak
            held = f"{total:,}, the most that jobs held at once" if total else "left out"
            notes += ["MaxProcs is the most that jobs held at once"] if total else []
            told.note(f"MaxProcs is not in the Trace: {held}")
        if attempts:
            notes.append("run times are sums of attempts, without the gaps between them")
        merged = jobs.number(
            "count(*) FILTER (status IN ('timeout', 'node_fail', 'out_of_memory', 'preempted', 'running', 'pending'))"
        )
        undated = "count(*) FILTER (submit_time IS NULL AND start_time IS NOT NULL)"
        told.changed(jobs.number(undated), "times count from the submission, which is unknown, so their start is lost")
        told.changed(merged, "their status has no word of its own: it became failed (0), cancelled (5) or unknown (-1)")
        if numbers.users:
            told.note(f"users are numbers, 1 to {len(numbers.users):,}; the format has no place for their names")
        lines = header_lines(jobs, numbers, processors="GPU" if gpus else "CPU core", total=total, notes=notes)
        with out.main.open("wb") as file:
            file.write(("\n".join(lines) + "\n").encode())
            for block in job_lines(jobs, numbers, layout, told):
                file.write(("\n".join(block["line"]) + "\n").encode())


TARGET = Swf()
