"""Phrases that several findings share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.characterize.intervals import FEW
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.answer import Row


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SEVERAL = 5
"""Minimum number of observations of a group that sentences mention."""


def gpu_jobs(gpu_class: str) -> str:
    """Return the name of the jobs of a size class.

    Examples
    --------
    >>> gpu_jobs("0"), gpu_jobs("1"), gpu_jobs("<1"), gpu_jobs("2-4"), gpu_jobs(">8")
    ('CPU jobs', '1-GPU jobs', 'jobs of less than 1 GPU', 'jobs of 2-4 GPUs', 'jobs of more than 8 GPUs')
    """
    special = {"0": "CPU jobs", "1": "1-GPU jobs", "<1": "jobs of less than 1 GPU", ">8": "jobs of more than 8 GPUs"}
    return special.get(gpu_class, f"jobs of {gpu_class} GPUs")


def bad_ends(failed: float, timed_out: float, of: float) -> str:
    """Describe how unsuccessful jobs ended: failed or timed out.

    Examples
    --------
    >>> bad_ends(2, 0, 10), bad_ends(0, 1, 10)
    ('failed', 'ran out of time (timeout)')
    >>> bad_ends(2, 1, 10)
    'failed (20.0 %) or ran out of time (timeout, 10.0 %)'
    """
    if not timed_out:
        return "failed"
    if not failed:
        return "ran out of time (timeout)"
    return f"failed ({percent(failed / of)}) or ran out of time (timeout, {percent(timed_out / of)})"


def gpus(number: float) -> str:
    """Return a number of GPUs in words.

    Examples
    --------
    >>> gpus(0), gpus(1), gpus(0.5), gpus(16)
    ('no GPU', '1 GPU', '0.5 GPUs', '16 GPUs')
    """
    return "no GPU" if number == 0 else counted(number, "GPUs")


def hour_span(hour: int) -> str:
    """Return the start and end of an hour of the day.

    Examples
    --------
    >>> hour_span(9), hour_span(23)
    ('09:00 and 10:00', '23:00 and 00:00')
    """
    return f"{hour:02}:00 and {(hour + 1) % 24:02}:00"


def status_word(status: str | None) -> str:
    """Return a status as a word; NULL becomes 'unknown'."""
    return (status or "unknown").replace("_", " ")


def largest(rows: list[Row], column: str, sign: int = 1) -> Row | None:
    """Return the first row with the largest known value of a column, or with the smallest if `sign` is -1."""
    known = [r for r in rows if r.get(column) is not None]
    return max(known, key=lambda r: sign * r[column], default=None)


def by_class(rows: list[Row]) -> dict[str, Row]:
    """Return the rows by size class, except for jobs of unknown size."""
    return {r["gpu_class"]: r for r in rows if r["gpu_class"] is not None}


def enough(rows: list[Row], column: str) -> list[Row]:
    """Return the rows with at least `FEW` observations, or all rows if no row has that many."""
    return [r for r in rows if (r[column] or 0) >= FEW] or rows


def scope(rows: list[Row], column: str, what: str = "") -> str:
    """Describe the rows that `enough` kept, counting `what` or the column, or return '' if it kept all."""
    return f" with at least {FEW} {what or column}" if len(enough(rows, column)) < len(rows) else ""


def sums(rows: Iterable[Row], key: str, column: str) -> dict[Any, Any]:
    """Sum a column for each value of the key, in row order. Unknown numbers count as 0.

    Examples
    --------
    >>> sums([{"user": "a", "jobs": 2}, {"user": "b", "jobs": 1}, {"user": "a", "jobs": None}], "user", "jobs")
    {'a': 2, 'b': 1}
    """
    found: dict[Any, Any] = {}
    for row in rows:
        found[row[key]] = found.get(row[key], 0) + (row[column] or 0)
    return found


def drawn_note(shown: int, known: int, what: str) -> str:
    """Return a note that a chart shows only some of its rows, or '' if it shows all.

    Examples
    --------
    >>> drawn_note(3, 5, "largest users"), drawn_note(5, 5, "largest users")
    ('Shown: the 3 largest users. Not shown: 2 more.', '')
    """
    return f"Shown: the {shown} {what}. Not shown: {known - shown} more." if known > shown else ""


def sample_size(number: int) -> str:
    """Return a remark if there are few observations, otherwise ''.

    Examples
    --------
    >>> sample_size(7), sample_size(3000)
    (' (n = 7)', '')
    """
    return f" (n = {number})" if number < FEW else ""


def whole_hours(hours: float) -> str:
    """Write hours as a whole number, or with decimals below ten hours, so small values do not become 0."""
    return count(round(hours) if hours >= 10 else hours)
