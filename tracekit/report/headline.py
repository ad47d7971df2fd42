"""The numbers of the first screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.answers import metrics, rows_of
from tracekit.report.first_numbers import first_numbers, plain_number
from tracekit.report.machines_alone import machine_cards
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, Headline

__all__ = ["headline", "mixes_kinds", "of_gpu_jobs"]

_SOURCES = ("overview/summary", "queuing/gpu_time_held", "utilization/held_gpus")
"""Queries that give the numbers, each metric in one of them."""

_CARDS: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("gpu_hours", "GPU-hours", count, "run time times GPUs, over all attempts"),
    ("held_share", "of the GPU time is held", percent, "by jobs, up to the last submission"),
    ("busy_share", "busy while held", percent, "mean GPU utilization of held GPUs"),
    ("median_queue_s", "median wait", duration, "from submission to the first start"),
    ("completed_share", "of jobs completed", percent, "of all jobs, whatever their size"),
    ("jobs", "jobs", count, "submitted"),
    ("median_run_s", "median run time", duration, "from the first start to the last end"),
    ("users", "users", count, "who submitted a job"),
)
_SAME = ("held_share", "busy_share", "median_queue_s", "completed_share")
"""Those that say in other words what the numbers with a course say."""
_LIMIT = 5
_AT_MOST = "observed: there may be more"
_FEW_UNKNOWN = 0.01
"""Share of jobs without a known status below which nothing is said."""
_LABELS_OF_GPU_JOBS = {
    "median wait": "median wait of GPU jobs",
    "of jobs completed": "of GPU jobs completed",
    "known to have completed": "of GPU jobs known to have completed",
    "jobs": "GPU jobs",
    "median run time": "median run time of GPU jobs",
}
"""What the numbers are called where there are CPU jobs too."""


_OF_GPU_JOBS = ("median_queue_s", "mean_queue_s", "completed_share", "unknown_status_share", "median_run_s")
"""Metrics of overview/summary that are of GPU jobs where there are any; the same of CPU jobs stands beside them."""


def of_gpu_jobs(known: Mapping[str, float]) -> dict[str, float]:
    """Return metrics of overview/summary, those of waits, ends and run times over GPU jobs where there are any."""
    if not known.get("gpu_jobs"):
        return dict(known)
    own = {name: known.get(f"gpu_{name}") for name in _OF_GPU_JOBS}
    # An older answer knows all jobs only.
    if all(value is None for value in own.values()):
        return dict(known)
    rest = {name: value for name, value in known.items() if name not in own}
    return rest | {name: value for name, value in own.items() if value is not None}


def mixes_kinds(known: Mapping[str, float]) -> bool:
    """Return whether the trace has jobs with GPUs and others."""
    others = known.get("cpu_jobs", 0) + known.get("jobs_of_unknown_size", 0)
    return bool(known.get("gpu_jobs") and others)


def headline(answers: Mapping[str, Answer], capacity: CapacityInfo, telemetry: str | None = None) -> list[Headline]:
    """Return up to five numbers; one that the trace lacks is left out, not shown as 0.

    Those that are followed through time come first, and others fill their places where the trace lacks them. Without
    jobs they are of machines. Each is a number of a query, but for the number of GPUs, which is the capacity that the
    report uses. `telemetry` says which part of the time utilization covers, where that is not all of it.
    """
    units = {row["metric"]: row["unit"] for name in _SOURCES for row in rows_of(answers, name)}
    every = metrics(answers, *_SOURCES)
    if not every.get("jobs") and (machines := machine_cards(answers)):
        return machines
    known = of_gpu_jobs(every)
    mixed = mixes_kinds(every)
    if mixed:
        known["jobs"] = every["gpu_jobs"]
    remarks = _remarks(answers, known, capacity, mixed=mixed)
    if telemetry is not None:
        remarks["busy_share"] = telemetry
    cards = first_numbers(answers, _first_remarks(remarks, known, answers), gpu_jobs=mixed)
    shown = _SAME if cards else ()
    for metric, label, write, note in _CARDS:
        if metric in known and metric not in shown:
            value, unit = known[metric], units[metric]
            remark = remarks.get(metric, "") or note
            sure = metric != "completed_share" or known.get("unknown_status_share", 0) < _FEW_UNKNOWN
            words = label if sure else "known to have completed"
            if mixed:
                words = _LABELS_OF_GPU_JOBS.get(words, words)
            cards.append(plain_number(words, value, unit, write(value), remark))
    if capacity["gpus"]:
        others = "".join(f"; {count(n)} {_by(source)}" for source, n in capacity["alternatives"].items())
        note = (_AT_MOST if capacity["word"] == "observed" else capacity["word"]) + others
        gpus = capacity["gpus"]
        cards.append(plain_number("GPUs", gpus, "GPUs", count(gpus), note))
    return cards[:_LIMIT]


def _first_remarks(
    remarks: Mapping[str, str], known: Mapping[str, float], answers: Mapping[str, Answer]
) -> dict[str, str]:
    """Return remarks on the numbers that are followed through time, by column."""
    found = {}
    pending = sum(r["jobs"] or 0 for r in rows_of(answers, "overview/status") if r["status"] == "pending")
    if pending:
        found["mean_wait_s"] = f"{counted(pending, 'jobs')} never started"
    if "held_share" in remarks:
        found["held_share"] = remarks["held_share"]
    if "busy_share" in remarks and "busy_share" in known:
        found["used_share"] = f"of all GPUs: {remarks['busy_share']}"
    if known.get("unknown_status_share", 0) >= _FEW_UNKNOWN:
        found["completed_share"] = f"how {percent(known['unknown_status_share'])} of the jobs ended is unknown"
    elif "completed_share" in known:
        tried = any(r["mean_retries"] for r in rows_of(answers, "failures/retries"))
        whole = "; their failed attempts are counted too" if tried else ""
        found["completed_share"] = f"{percent(known['completed_share'])} of the jobs completed{whole}"
    return found


def _remarks(
    answers: Mapping[str, Answer], known: Mapping[str, float], capacity: CapacityInfo, *, mixed: bool
) -> dict[str, str]:
    """Return remarks on numbers by metric: what each leaves out or hides."""
    jobs = {r["status"]: r["jobs"] or 0 for r in rows_of(answers, "overview/status")}
    unknown = known.get("unknown_status_share", 0)
    running, pending = jobs.get("running", 0), jobs.get("pending", 0)
    remarks = {}
    if "held_share" in known:
        still = " (jobs that still run included)" if running else ""
        # What is owned may change with time; then no one number is what the share is of.
        owned = round(known.get("owned_gpus", 0))
        of = f"of {count(owned)} GPUs" if owned == capacity["gpus"] else "by jobs"
        remarks["held_share"] = f"{of}, up to the last submission{still}"
    ends = _ends(known)
    if unknown >= _FEW_UNKNOWN:
        ends.append(f"{percent(unknown)} have no known status")
    if mixed and "cpu_completed_share" in known:
        ends.append(f"CPU jobs: {percent(known['cpu_completed_share'])} completed")
    if ends:
        remarks["completed_share"] = "; ".join(ends)
    if running:
        more = known.get("running_gpu_hours", 0)
        held = f" hold{'s' if running == 1 else ''} {count(round(more))} more" if more >= 1 else " not counted"
        remarks["gpu_hours"] = f"of finished runs; {counted(running, 'jobs')} still running at the end{held}"
    if "mean_queue_s" in known:
        mean = f"{duration(known['mean_queue_s'])} on average"
        beside = "cpu_median_queue_s"
        cpu = f"; median of CPU jobs: {duration(known[beside])}" if mixed and beside in known else ""
        remarks["median_queue_s"] = mean + cpu + (f"; {counted(pending, 'jobs')} never started" if pending else "")
    if mixed:
        others = [
            f"{count(known[name])} {what}"
            for name, what in (("cpu_jobs", "CPU jobs"), ("jobs_of_unknown_size", "of unknown size"))
            if known.get(name)
        ]
        remarks["jobs"] = f"submitted, beside {' and '.join(others)}"
        if "cpu_median_run_s" in known:
            remarks["median_run_s"] = (
                f"from the first start to the last end; CPU jobs: {duration(known['cpu_median_run_s'])}"
            )
    return remarks


def _ends(known: Mapping[str, float]) -> list[str]:
    """Return the shares of the GPU jobs that failed and that ran out of time."""
    parts = [
        f"{percent(known[name])} {word}"
        for name, word in (("gpu_failed_share", "failed"), ("gpu_timeout_share", "timed out"))
        if known.get(name)
    ]
    return [", ".join(parts)] if parts else []


def _by(source: str) -> str:
    return f"as {source}" if source in {"listed", "observed", "stated"} else f"by {shorten(source)}"
