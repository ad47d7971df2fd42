"""The numbers of the first screen with their course: waits, use and outcomes, in the whole log and in its halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.report.answers import rows_of
from tracekit.text import count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer, Row
    from tracekit.report.structure import Headline

__all__ = ["FIRST", "first_numbers", "plain_number", "state"]

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
    _Number("waited_h", "waited by all jobs together", _hours, "hours", "until their first start"),
    _Number("held_share", "of the GPU time is held", percent, "share", "by jobs, up to the last submission"),
    _Number("used_share", "mean use of GPUs", percent, "share", "of all GPUs that have telemetry, held or not"),
    _Number("completed_share", "of the GPU time went into completed jobs", percent, "share", "of jobs that ended"),
)


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
        tail = f"one job in ten waits longer than {duration(most)}" if most >= 1 else "nine jobs in ten start at once"
        note = f"{tail}; {remark}" if remark else tail
    known = [row[number.column] for row in halves]
    change = " → ".join(map(number.write, known)) if len(known) > 1 and None not in known else None
    return {
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
    return {"label": label, "value": value, "unit": unit, "text": words, "note": note, "change": None, "series": []}


_AT_ONCE_S = 60.0
"""Waits below which jobs are said to start at once [s]."""
_FULL = 0.9
"""Share of the GPU time held from which on a cluster is called full."""


def state(answers: Mapping[str, Answer]) -> str:
    """Return how long jobs wait and how full the cluster is, one sentence; '' where the trace does not tell."""
    whole = next((row for row in rows_of(answers, FIRST) if row["period"] == "whole"), None)
    if whole is None or whole["mean_wait_s"] is None:
        return ""
    mean, most, held = whole["mean_wait_s"], whole["p90_wait_s"], whole["held_share"]
    if mean < _AT_ONCE_S and most < _AT_ONCE_S:
        waits = "Jobs start at once"
    elif most < _AT_ONCE_S:
        waits = f"Most jobs start at once and a few wait long, {duration(mean)} on average over all"
    elif mean > most:
        waits = (
            f"Nine jobs in ten wait {duration(most)} or less, and the others so long that the mean is {duration(mean)}"
        )
    else:
        waits = f"Jobs wait {duration(mean)} on average, and one in ten longer than {duration(most)}"
    if held is None:
        return f"{waits}."
    if held >= _FULL:
        return f"{waits}; the cluster is full: jobs hold {percent(held)} of its GPU time."
    return f"{waits}; {percent(1 - held)} of the GPU time is held by no job."
