"""The numbers on the first screen: waits, utilization and outcomes over time.

If the trace lacks a number, another takes its place. For a trace without jobs, the numbers describe machines. The
sentence about waits and load uses the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.report.answers import metrics, rows_of
from tracekit.report.phrases import whole_hours
from tracekit.report.times import span_words
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, Headline

FIRST = "overview/through_time"
"""Query for the numbers over time: over the whole log, its halves and its spans."""
MACHINES = "failures/cluster_availability"
"""Query for the numbers about machines."""
_SOURCES = ("overview/summary", "queuing/gpu_time_held", "utilization/held_gpus")
"""Queries for the other numbers. Each metric comes from one of them."""


class _Number(NamedTuple):
    name: str
    """Column or metric of the number."""
    label: str
    write: Callable[[float], str]
    unit: str
    note: str
    """Note that is shown with the number, unless there is a remark."""
    label_of_gpu_jobs: str = ""
    """Label for traces that also have CPU jobs, if it differs."""


def _hours(hours: float) -> str:
    return f"{count(round(hours, 1 if hours < 10 else 0))} h"


_WAIT, _RUN = "from submission to the first start", "from the first start to the last end"
_ENDED = "of all jobs of any size"
_WITH_COURSE = (
    _Number("mean_wait_s", "mean wait", duration, "s", _WAIT, "mean wait of GPU jobs"),
    _Number("waited_h", "total waiting time", _hours, "hours", "until their first start"),
    _Number("held_share", "GPUs allocated", percent, "share", "to jobs, up to the last submission"),
    _Number("used_share", "mean use of GPUs", percent, "share", "of all GPUs with telemetry, allocated or not"),
    _Number("completed_share", "of the GPU time spent on jobs that completed", percent, "share", "of jobs that ended"),
)
NAMES = tuple(number.name for number in _WITH_COURSE)
"""The numbers with their labels, in display order."""
_SAME = ("held_share", "busy_share", "median_queue_s", "completed_share")
"""Names of other numbers with the same meaning."""

_COMPLETED = _Number("completed_share", "of jobs completed", percent, "share", _ENDED, "of GPU jobs completed")
_KNOWN = _COMPLETED._replace(label="known to have completed", label_of_gpu_jobs="of GPU jobs known to have completed")
"""The share of completed jobs, for traces where the status of other jobs is unknown."""
_OTHERS = (
    _Number("gpu_hours", "GPU-hours", count, "GPU-hours", "run time times GPUs, over all runs"),
    _Number("held_share", "GPUs allocated", percent, "share", "to jobs, up to the last submission"),
    _Number("busy_share", "busy while allocated", percent, "share", "mean GPU utilization of allocated GPUs"),
    _Number("median_queue_s", "median wait", duration, "s", _WAIT, "median wait of GPU jobs"),
    _COMPLETED,
    _Number("jobs", "jobs", count, "jobs", "submitted", "GPU jobs"),
    _Number("median_run_s", "median run time", duration, "s", _RUN, "median run time of GPU jobs"),
    _Number("users", "users", count, "users", "who submitted a job"),
)
_LIMIT = 5
"""Maximum number of numbers shown."""
_FEW_UNKNOWN = 0.01
"""Minimum share of jobs with unknown status that is mentioned."""
_A_WEEK_H = 168

_OF_GPU_JOBS = ("median_queue_s", "mean_queue_s", "completed_share", "unknown_status_share", "median_run_s")
"""Metrics in overview/summary that cover only GPU jobs if the trace has GPU jobs."""


def of_gpu_jobs(known: Mapping[str, float]) -> dict[str, float]:
    """Return metrics from overview/summary. If the trace has GPU jobs, waits, ends and run times cover only these."""
    if not known.get("gpu_jobs"):
        return dict(known)
    own = {name: known[f"gpu_{name}"] for name in _OF_GPU_JOBS if f"gpu_{name}" in known}
    return {name: value for name, value in known.items() if name not in _OF_GPU_JOBS} | own


def mixes_kinds(known: Mapping[str, float]) -> bool:
    """Return whether the trace has both GPU jobs and CPU jobs."""
    others = known.get("cpu_jobs", 0) + known.get("jobs_of_unknown_size", 0)
    return bool(known.get("gpu_jobs") and others)


def headline(answers: Mapping[str, Answer], capacity: CapacityInfo, telemetry: str | None = None) -> list[Headline]:
    """Return up to five numbers. Missing numbers are omitted, not shown as 0.

    Numbers over time come first, and others take the place of missing ones. Without jobs, the numbers describe
    machines. Each number comes from a query, except the number of GPUs, which is the capacity that the report uses.
    `telemetry` says how much of the time the utilization covers, unless it covers everything.
    """
    every = metrics(answers, *_SOURCES)
    if not every.get("jobs") and (machines := machine_cards(answers)):
        return machines
    known = of_gpu_jobs(every)
    mixed = mixes_kinds(every)
    if mixed:
        known["jobs"] = every["gpu_jobs"]
    over_time, others = _remarks(answers, known, capacity, telemetry, mixed=mixed)
    cards = first_numbers(answers, over_time, gpu_jobs=mixed)
    shown = _SAME if cards else ()
    for number in _OTHERS:
        if number.name in known and number.name not in shown:
            unsure = number.name == "completed_share" and known.get("unknown_status_share", 0) >= _FEW_UNKNOWN
            note = others.get(number.name, "") or number.note
            cards.append(_card(_KNOWN if unsure else number, known[number.name], note, gpu_jobs=mixed))
    if capacity["gpus"]:
        word = "observed: there may be more" if capacity["word"] == "observed" else capacity["word"]
        for source, gpus in capacity["alternatives"].items():
            by = f"as {source}" if source in {"listed", "observed", "stated"} else f"by {shorten(source)}"
            word += f"; {count(gpus)} {by}"
        cards.append(_card(_Number("gpus", "GPUs", count, "GPUs", ""), capacity["gpus"], word))
    return cards[:_LIMIT]


def _card(number: _Number, value: float, note: str, *, gpu_jobs: bool = False) -> Headline:
    """Return a number without a time series."""
    return {
        "name": "",
        "label": (gpu_jobs and number.label_of_gpu_jobs) or number.label,
        "value": value,
        "unit": number.unit,
        "text": number.write(value),
        "note": note,
        "change": None,
        "series": [],
    }


def _remarks(
    answers: Mapping[str, Answer],
    known: Mapping[str, float],
    capacity: CapacityInfo,
    telemetry: str | None,
    *,
    mixed: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return remarks on what the numbers exclude or hide, by name: for numbers over time, and for others."""
    jobs = {r["status"]: r["jobs"] or 0 for r in rows_of(answers, "overview/status")}
    running, pending = jobs.get("running", 0), jobs.get("pending", 0)
    waiting = f"{counted(pending, 'jobs')} never started" if pending else ""
    unknown = known.get("unknown_status_share", 0)

    over_time: dict[str, str | None] = {"mean_wait_s": waiting}
    others: dict[str, str | None] = {"busy_share": telemetry}
    if "held_share" in known:
        # If the number of owned GPUs changes over time, the share has no single denominator.
        owned = round(known.get("owned_gpus", 0))
        of = f"of {count(owned)} GPUs" if owned == capacity["gpus"] else "to jobs"
        still = " (including running jobs)" if running else ""
        over_time["held_share"] = others["held_share"] = f"{of}, up to the last submission{still}"
    if telemetry is not None and "busy_share" in known:
        over_time["used_share"] = f"of all GPUs ({telemetry})"
    bad = (("gpu_failed_share", "failed"), ("gpu_timeout_share", "timed out"))
    ends = [", ".join(f"{percent(known[name])} {word}" for name, word in bad if known.get(name))]
    if unknown >= _FEW_UNKNOWN:
        over_time["completed_share"] = f"how {percent(unknown)} of the jobs ended is unknown"
        ends.append(f"{percent(unknown)} have no known status")
    elif "completed_share" in known:
        tried = any(r["mean_retries"] for r in rows_of(answers, "failures/retries"))
        whole = ", counting their failed runs" if tried else ""
        over_time["completed_share"] = f"{percent(known['completed_share'])} of the jobs completed{whole}"
    if mixed and "cpu_completed_share" in known:
        ends.append(f"CPU jobs: {percent(known['cpu_completed_share'])} completed")
    others["completed_share"] = "; ".join(filter(None, ends))
    if running:
        more = known.get("running_gpu_hours", 0)
        held = f" took {count(round(more))} more" if more >= 1 else f" {'is' if running == 1 else 'are'} not counted"
        others["gpu_hours"] = f"of finished runs ({counted(running, 'jobs')} still running at the end{held})"
    if "mean_queue_s" in known:
        median = known.get("cpu_median_queue_s") if mixed else None
        cpu = "" if median is None else f"median of CPU jobs: {duration(median)}"
        mean = f"{duration(known['mean_queue_s'])} on average"
        others["median_queue_s"] = "; ".join(filter(None, (mean, cpu, waiting)))
    if mixed:
        kinds = (("cpu_jobs", "CPU jobs"), ("jobs_of_unknown_size", "of unknown size"))
        more_jobs = " and ".join(f"{count(known[name])} {what}" for name, what in kinds if known.get(name))
        others["jobs"] = f"submitted, plus {more_jobs}"
        if "cpu_median_run_s" in known:
            others["median_run_s"] = f"{_RUN} (CPU jobs: {duration(known['cpu_median_run_s'])})"
    return {k: v for k, v in over_time.items() if v}, {k: v for k, v in others.items() if v}


def first_numbers(answers: Mapping[str, Answer], remarks: Mapping[str, str], *, gpu_jobs: bool) -> list[Headline]:
    """Return the numbers over time that are available for the trace.

    Parameters
    ----------
    answers : mapping
        Answers by name. Without an answer to `FIRST`, the result is empty.
    remarks : mapping
        Remarks on numbers, by name.
    gpu_jobs : bool
        Whether the trace also has jobs without GPUs, which are excluded from these numbers.
    """
    rows = rows_of(answers, FIRST)
    whole = next((row for row in rows if row["period"] == "whole"), None)
    if whole is None:
        return []
    halves, spans = ([row for row in rows if row["period"] == period] for period in ("half", "span"))
    cards: list[Headline] = []
    for number in _WITH_COURSE:
        name, remark = number.name, remarks.get(number.name)
        if whole[name] is None:
            continue
        note = remark or number.note
        if name == "mean_wait_s" and whole["p90_wait_s"] is not None:
            most = whole["p90_wait_s"]
            tail = TAILS["long" if most >= 1 else "none"].format(most=duration(most))
            note = f"{tail}; {remark}" if remark else tail
        card = _card(number, whole[name], note, gpu_jobs=gpu_jobs)
        known = [row[name] for row in halves]
        change = " → ".join(map(number.write, known)) if len(known) > 1 and None not in known else None
        series = [row[name] for row in spans] if len(spans) > 1 else []
        cards.append({**card, "name": name, "change": change, "series": series})
    return cards


def machine_cards(answers: Mapping[str, Answer]) -> list[Headline]:
    """Return the numbers about machines for the first screen, or none if the trace records no node events."""
    known = metrics(answers, MACHINES)
    if not known.get("nodes") or known.get("availability_share") is None:
        return []
    gpus = known.get("down_gpu_h")
    cost = "GPUs of nodes are unknown" if gpus is None else f"{whole_hours(gpus)} GPU-hours"
    if gpus is not None and known["known_gpu_nodes"] < known["nodes"]:
        cost += f" on the {count(known['known_gpu_nodes'])} nodes with known GPUs"
    going_on = f" ({counted(known['going_on'], 'events')} had not ended)" if known["going_on"] else ""
    # A rate per hour or day would be too small to read.
    yearly = f"{count(round(known['outages_per_node_year'], 2))} per node per year"
    often = yearly if known["observed_h"] >= _A_WEEK_H else f"in {span_words(known['observed_h'] * 3600)}"
    numbers = (
        _Number("availability_share", "of the time in service", percent, "share", "the mean over all nodes"),
        _Number("nodes", "nodes", count, "nodes", f"{count(known['nodes_hit'])} of them had an outage"),
        _Number("outages", "outages", count, "outages", f"{often}{going_on}"),
        _Number("down_node_h", "node-hours out of service", whole_hours, "hours", cost),
        _Number("most_down_at_once", "nodes out at once", count, "nodes", "maximum at any time"),
    )
    return [_card(number, known[number.name], number.note) for number in numbers]


AT_ONCE_S = 60.0
"""Jobs start at once if they wait less than this [s]."""
FULL = 0.9
"""A cluster is full if at least this share of its GPU time is allocated."""
TAILS = {
    "long": "one in ten jobs waits longer than {most}",
    "none": "nine in ten jobs start at once",
}
"""Sentences about the 90th percentile of waits."""
STATES = {
    "at once": "Jobs start at once",
    "few": "Most jobs start at once, but a few wait long: {mean} on average",
    "tail": "Nine in ten jobs wait at most {most}, but the others wait so long that the mean is {mean}",
    "long": "Jobs wait {mean} on average, and one in ten waits longer than {most}",
}
"""Sentences about waits. The page's script fills in the values for a part."""
HELD = {
    "full": "{waits}. The cluster is full: {held} of its GPU time is allocated.",
    "free": "{waits}. Of the GPU time, {free} is unallocated.",
    "part": "{waits}. Of the GPU time, {held} is allocated to them.",
    "unknown": "{waits}.",
}
"""Sentences about the allocated GPU time of a cluster or part of its jobs, and for unknown values."""
MUCH_LOST = 1 / 3
"""Minimum share of allocated GPU time lost by interrupted runs that the first screen mentions."""
LOST = "Interrupted runs lost up to {lost} of the allocated GPU time."
NO_GPU_JOBS = {
    "none": "No job of this log has GPUs.",
    "unknown": "It is unknown which jobs have GPUs.",
}
"""Sentences shown instead of waits if no job is known to have GPUs."""
LACKING = {
    "number": "unknown",
    "none": "the log has no data for this part",
    "machines": "telemetry covers GPUs and not the jobs of this part",
    "waits": "The log does not record how long these jobs waited.",
    "jobs": "No job of this part was submitted.",
}
"""Wording for a part without data: instead of a number, in its note, or instead of the sentence."""
OF_PART = {
    "held_share": "to this part's jobs, of all owned GPUs",
    "completed_share": "of this part's jobs that ended",
}
"""Notes on a part's numbers, by name."""


def no_gpu_jobs(answers: Mapping[str, Answer]) -> str:
    """Return the sentence shown instead of all waits, even of CPU jobs, if no job is known to have GPUs."""
    known = metrics(answers)
    if not known.get("jobs") or known.get("gpu_jobs"):
        return ""
    return NO_GPU_JOBS["unknown" if known.get("jobs_of_unknown_size") else "none"]


def state(answers: Mapping[str, Answer], *, some: bool = False) -> str:
    """Say how long jobs wait and how full the cluster is, or return '' if this is unknown.

    With `some`, the answers cover only some of the cluster's jobs and do not show how full the cluster is.
    """
    whole = next((row for row in rows_of(answers, FIRST) if row["period"] == "whole"), None)
    if whole is None or whole["mean_wait_s"] is None:
        return ""
    if without := no_gpu_jobs(answers):
        return without
    mean, most, held = whole["mean_wait_s"], whole["p90_wait_s"], whole["held_share"]
    if mean < AT_ONCE_S and most < AT_ONCE_S:
        form = "at once"
    elif most < AT_ONCE_S:
        form = "few"
    else:
        form = "tail" if mean > most else "long"
    waits = STATES[form].format(mean=duration(mean), most=duration(most))
    form = "unknown" if held is None else "part" if some else "full" if held >= FULL else "free"
    shares = {} if held is None else {"held": percent(held), "free": percent(1 - held)}
    said = HELD[form].format(waits=waits, **shares)
    lost = sum(row["lost_share"] or 0 for row in rows_of(answers, "failures/lost_work"))
    return said if lost < MUCH_LOST else f"{said} {LOST.format(lost=percent(lost))}"
