"""The numbers of the first screen with their course: waits, use and outcomes, in the whole log and in its halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.report.answers import metrics, rows_of
from tracekit.text import count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer, Row
    from tracekit.report.structure import Headline

__all__ = [
    "AT_ONCE_S",
    "FIRST",
    "FULL",
    "HELD",
    "LACKING",
    "NAMES",
    "NO_GPU_JOBS",
    "OF_PART",
    "STATES",
    "TAILS",
    "first_numbers",
    "no_gpu_jobs",
    "plain_number",
    "state",
]

FIRST = "overview/through_time"
"""The query that gives them."""


@dataclass(frozen=True)
class _Number:
    column: str
    label: str
    write: Callable[[float], str]
    unit: str
    note: str


def _hours(hours: float) -> str:
    return f"{count(round(hours, 1 if hours < 10 else 0))} h"


_NUMBERS = (
    _Number("mean_wait_s", "mean wait", duration, "s", "from submission to the first start"),
    _Number("waited_h", "total waiting time", _hours, "hours", "until their first start"),
    _Number("held_share", "of the GPU time is held", percent, "share", "by jobs, up to the last submission"),
    _Number("used_share", "mean use of GPUs", percent, "share", "of all GPUs that have telemetry, held or not"),
    _Number(
        "completed_share",
        "of the GPU time spent on jobs that completed",
        percent,
        "share",
        "of jobs that ended",
    ),
)
NAMES = tuple(number.column for number in _NUMBERS)
"""What the numbers are called, in their order."""


def first_numbers(answers: Mapping[str, Answer], remarks: Mapping[str, str], *, gpu_jobs: bool) -> list[Headline]:
    """Return the numbers that the trace has.

    Parameters
    ----------
    answers : mapping
        By name; without one to `FIRST` there are none.
    remarks : mapping
        What to say of a number besides, by its column.
    gpu_jobs : bool
        Whether there are jobs without GPUs too, which these numbers leave out.
    """
    rows = rows_of(answers, FIRST)
    whole = next((row for row in rows if row["period"] == "whole"), None)
    if whole is None:
        return []
    halves = [row for row in rows if row["period"] == "half"]
    spans = [row for row in rows if row["period"] == "span"]
    return [
        _card(number, whole, halves, spans, remarks.get(number.column), gpu_jobs=gpu_jobs)
        for number in _NUMBERS
        if whole[number.column] is not None
    ]


def _card(
    number: _Number, whole: Row, halves: list[Row], spans: list[Row], remark: str | None, *, gpu_jobs: bool
) -> Headline:
    note = remark or number.note
    if number.column == "mean_wait_s" and whole["p90_wait_s"] is not None:
        most = whole["p90_wait_s"]
        tail = TAILS["long" if most >= 1 else "none"].format(most=duration(most))
        note = f"{tail}; {remark}" if remark else tail
    known = [row[number.column] for row in halves]
    change = " → ".join(map(number.write, known)) if len(known) > 1 and None not in known else None
    return {
        "name": number.column,
        "label": f"{number.label} of GPU jobs" if gpu_jobs and number.column == "mean_wait_s" else number.label,
        "value": whole[number.column],
        "unit": number.unit,
        "text": number.write(whole[number.column]),
        "note": note,
        "change": change,
        "series": [row[number.column] for row in spans] if len(spans) > 1 else [],
    }


def plain_number(label: str, value: float, unit: str, words: str, note: str) -> Headline:
    """Return a number that is not followed through time."""
    return {
        "name": "",
        "label": label,
        "value": value,
        "unit": unit,
        "text": words,
        "note": note,
        "change": None,
        "series": [],
    }


AT_ONCE_S = 60.0
"""Waits below which jobs are said to start at once [s]."""
FULL = 0.9
"""Share of the GPU time held from which on a cluster is called full."""
TAILS = {
    "long": "one job in ten waits longer than {most}",
    "none": "nine jobs in ten start at once",
}
"""What is said of the 90th percentile of waits."""
STATES = {
    "at once": "Jobs start at once",
    "few": "Most jobs start at once and a few wait long, {mean} on average over all",
    "tail": "Nine jobs in ten wait {most} or less, and the others so long that the mean is {mean}",
    "long": "Jobs wait {mean} on average, and one in ten longer than {most}",
}
"""What is said of waits; the page's script fills in those of a part."""
HELD = {
    "full": "{waits}; the cluster is full: jobs hold {held} of its GPU time.",
    "free": "{waits}; {free} of the GPU time is held by no job.",
    "part": "{waits}; they hold {held} of the GPU time.",
    "unknown": "{waits}.",
}
"""What is said of the GPU time held: of a cluster, of some of its jobs, and where it is not known."""
MUCH_LOST = 1 / 3
"""Share of the GPU time held that attempts which were cut short may have lost, from which on it is said at once."""
LOST = "up to {lost} of what jobs held was lost in attempts that were cut short"
NO_GPU_JOBS = {
    "none": "No job of this log has GPUs.",
    "unknown": "Which jobs have GPUs is unknown.",
}
"""What is said in place of waits where no job is known to have GPUs."""
LACKING = {
    "number": "not told",
    "none": "the log holds none of it here",
    "machines": "GPUs have telemetry, not the jobs of this part",
    "waits": "The log does not tell how long these jobs waited.",
    "jobs": "No job of this part was submitted.",
}
"""What is said of a part in place of a number, beside it, and in place of the sentence."""
OF_PART = {
    "held_share": "by the jobs of this part, of all that is owned",
    "completed_share": "of the jobs of this part that ended",
}
"""What is said beside numbers of a part, by their names."""


def no_gpu_jobs(answers: Mapping[str, Answer]) -> str:
    """Return what is said in place of waits where no job is known to have GPUs, since waits of others are no answer."""
    known = metrics(answers)
    if not known.get("jobs") or known.get("gpu_jobs"):
        return ""
    return NO_GPU_JOBS["unknown" if known.get("jobs_of_unknown_size") else "none"]


def state(answers: Mapping[str, Answer], *, some: bool = False) -> str:
    """Return how long jobs wait and how full the cluster is, one sentence; '' where the trace does not tell.

    `some` says that these are some of the cluster's jobs, which do not tell how full it is.
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
    return said if lost < MUCH_LOST else f"{said.removesuffix('.')}; {LOST.format(lost=percent(lost))}."
