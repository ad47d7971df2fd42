"""The numbers of the first screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.answers import metrics, rows_of
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, Headline

__all__ = ["headline"]

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
_LIMIT = 5
_AT_MOST = "observed: there may be more"


def headline(answers: Mapping[str, Answer], capacity: CapacityInfo, telemetry: str | None = None) -> list[Headline]:
    """Return up to five numbers; one that the trace lacks is left out, not shown as 0.

    Each is a metric of a query, but for the number of GPUs, which is the capacity that the report uses. `telemetry`
    says which part of the time utilization covers, where that is not all of it.
    """
    units = {row["metric"]: row["unit"] for name in _SOURCES for row in rows_of(answers, name)}
    known = metrics(answers, *_SOURCES)
    cards: list[Headline] = []
    remarks = _remarks(answers, known, capacity)
    if telemetry is not None:
        remarks["busy_share"] = telemetry
    for metric, label, write, note in _CARDS:
        if metric in known:
            value, unit = known[metric], units[metric]
            remark = remarks.get(metric, "") or note
            sure = metric != "completed_share" or metric not in remarks
            words = label if sure else "known to have completed"
            cards.append({"label": words, "value": value, "unit": unit, "text": write(value), "note": remark})
    if capacity["gpus"]:
        others = "".join(f"; {count(n)} {_by(source)}" for source, n in capacity["alternatives"].items())
        note = (_AT_MOST if capacity["word"] == "observed" else capacity["word"]) + others
        gpus = capacity["gpus"]
        cards.append({"label": "GPUs", "value": gpus, "unit": "GPUs", "text": count(gpus), "note": note})
    return cards[:_LIMIT]


def _remarks(answers: Mapping[str, Answer], known: Mapping[str, float], capacity: CapacityInfo) -> dict[str, str]:
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
    if unknown >= 0.01:
        remarks["completed_share"] = f"{percent(unknown)} have no known status"
    if running:
        more = known.get("running_gpu_hours", 0)
        held = f" hold{'s' if running == 1 else ''} {count(round(more))} more" if more >= 1 else " not counted"
        remarks["gpu_hours"] = f"of finished runs; {counted(running, 'jobs')} still running at the end{held}"
    if "mean_queue_s" in known:
        mean = f"{duration(known['mean_queue_s'])} on average"
        remarks["median_queue_s"] = mean + (f"; {counted(pending, 'jobs')} never started" if pending else "")
    return remarks


def _by(source: str) -> str:
    return f"as {source}" if source in {"listed", "observed", "stated"} else f"by {shorten(source)}"
