"""Standard Workload Format 2.2, which most simulators of batch schedulers read.

Source: the definition at the Parallel Workloads Archive (www.cs.huji.ac.il/labs/parallel/workload/swf.html), and
Chapin et al., JSSPP'99: comment lines begin with a semicolon, a job is a line of 18 numbers, -1 is unknown. The format
knows processors only; a GPU is one here, or a CPU core (option processors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.export.interface import ExportLog, Field, JobFilter, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._swf_lines import FIELDS, SwfLayout, header_lines, numbered, write_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


class SwfTarget(Target):
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
    machines = False
    dates = True
    needs = "nothing: -1 is unknown"
    lost = (
        "names of users, groups and jobs, GPU models, nodes, attempts; statuses other than completed, failed, cancelled"
    )
    sources = ("www.cs.huji.ac.il/labs/parallel/workload/swf.html", "Chapin et al., JSSPP'99")

    def job_filter(self, options: Options) -> JobFilter:
        """Return which jobs are taken."""
        size = "gpu_count" if options.values["processors"] == "gpus" else "cpu_count"
        return JobFilter.from_options(options, size=size, keep_zero=True)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the log."""
        gpus = options.values["processors"] == "gpus"
        attempts = options.values["run_time"] == "attempts"
        layout = SwfLayout(run="work_s" if attempts else "run_s", exact=options.values["seconds"] == "exact")
        numbers = numbered(jobs, log)
        total, notes = jobs.machines[2] if gpus else 0, []
        if not total:
            total = jobs.peak
            held = f"{total:,}, the most that jobs held at once" if total else "left out"
            notes += ["MaxProcs is the most that jobs held at once"] if total else []
            log.note(f"MaxProcs is not in the Trace: {held}")
        if attempts:
            notes.append("run times are sums of attempts, without the gaps between them")
        undated = jobs.count_where("submit_time IS NULL AND start_time IS NOT NULL")
        log.changed(undated, "times count from the submission, which is unknown, so their start is lost")
        log.changed(
            jobs.count_where("status IN ('timeout', 'node_fail', 'out_of_memory', 'preempted', 'running', 'pending')"),
            "their status has no word of its own: it became failed (0), cancelled (5) or unknown (-1)",
        )
        if numbers.users:
            log.note(f"users are numbered from 1 to {len(numbers.users):,}, because the format has no user names")
        lines = header_lines(jobs, numbers, processors="GPU" if gpus else "CPU core", total=total, notes=notes)
        write_lines(out.main, lines, jobs, numbers, layout, log)


TARGET = SwfTarget()
