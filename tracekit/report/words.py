"""Small phrases that several findings share."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tracekit.characterize.intervals import FEW

if TYPE_CHECKING:
    from tracekit.answer import Row

__all__ = [
    "FEW",
    "SEVERAL",
    "busy_samples",
    "by_class",
    "enough",
    "gpu_jobs",
    "held_gpu_hours",
    "held_share",
    "largest",
    "owned_gpus",
    "sample_size",
    "scope",
    "status_word",
    "submitted_until",
    "unknown_share",
]


SEVERAL = 5
"""Below this number of observations a sentence does not mention them."""


def gpu_jobs(gpu_class: str) -> str:
    """Return what jobs of a size class are called.

    Examples
    --------
    >>> gpu_jobs("0"), gpu_jobs("1"), gpu_jobs("<1"), gpu_jobs("2-4"), gpu_jobs(">8")
    ('CPU jobs', '1-GPU jobs', 'jobs of less than 1 GPU', 'jobs of 2-4 GPUs', 'jobs of more than 8 GPUs')
    """
    special = {"0": "CPU jobs", "1": "1-GPU jobs", "<1": "jobs of less than 1 GPU", ">8": "jobs of more than 8 GPUs"}
    return special.get(gpu_class, f"jobs of {gpu_class} GPUs")


def status_word(status: str | None) -> str:
    """Return a status as a word; NULL and 'unknown' are told apart from nothing else."""
    return (status or "unknown").replace("_", " ")


def unknown_share(rows: list[Row]) -> float:
    """Return the share of the jobs whose status is not known [1]; the rows are those of overview/status."""
    return float(sum(r["jobs_share"] or 0 for r in rows if r["status"] in {None, "unknown"}))


def largest(rows: list[Row], column: str, sign: int = 1) -> Row | None:
    """Return the first row with the largest (sign -1: smallest) known value of a column."""
    known = [r for r in rows if r.get(column) is not None]
    return max(known, key=lambda r: sign * r[column], default=None)


def by_class(rows: list[Row]) -> dict[str, Row]:
    """Return rows by size class, jobs of unknown size left out."""
    return {r["gpu_class"]: r for r in rows if r["gpu_class"] is not None}


def busy_samples(rows: list[Row]) -> tuple[int, float]:
    """Return the number of samples of held GPUs and the sum of their utilization [%].

    The rows are those of utilization/gpu_by_size_status of known size.
    """
    known = [r for r in rows if r["mean_pct"] is not None and r["gpu_count"] is not None]
    return sum(r["samples"] for r in known), sum(r["samples"] * r["mean_pct"] for r in known)


def submitted_until(rows: list[Row], last: str | None) -> list[Row]:
    """Return the rows of intervals that end by the last submission, of those of queuing/cluster_timeline.

    Later ones tell how the jobs of the log run out, not how full the cluster was: they count neither as idle nor as
    held. All rows are returned where the last submission is not known, or no interval ends before it.
    """
    times = sorted({r["time"] for r in rows})
    if last is None or len(times) < 2:
        return rows
    first, second = map(datetime.fromisoformat, times[:2])
    until = datetime.fromisoformat(last).replace(tzinfo=first.tzinfo) - (second - first)
    kept = {time for time in times if datetime.fromisoformat(time) <= until}
    return [r for r in rows if r["time"] in kept] or rows


def held_share(rows: list[Row], last: str | None = None) -> float | None:
    """Return the GPU time held / that owned [1], over the rows of queuing/cluster_timeline that tell what is owned.

    `last` is the time of the last submission, after which nothing counts.
    """
    known = [r for r in submitted_until(rows, last) if r["capacity_gpus"] is not None]
    owned = sum(r["capacity_gpus"] for r in known)
    return sum(r["running_gpus"] for r in known) / owned if owned else None


def owned_gpus(rows: list[Row]) -> float | None:
    """Return the GPUs owned on average, over the rows of queuing/cluster_timeline that tell it [GPUs]."""
    known = [r for r in rows if r["capacity_gpus"] is not None]
    times = len({r["time"] for r in known})
    return float(sum(r["capacity_gpus"] for r in known) / times) if times else None


def held_gpu_hours(rows: list[Row]) -> float | None:
    """Return the GPU-hours that jobs held, over the rows of queuing/cluster_timeline; None for fewer than two times."""
    times = sorted({r["time"] for r in rows})[:2]
    if len(times) < 2:
        return None
    first, second = map(datetime.fromisoformat, times)
    return float(sum(r["running_gpus"] for r in rows) * (second - first).total_seconds() / 3600)


def enough(rows: list[Row], column: str, least: int = FEW) -> list[Row]:
    """Return the rows with at least `least` observations, or all rows when there is none."""
    return [r for r in rows if (r[column] or 0) >= least] or rows


def scope(rows: list[Row], column: str, least: int = FEW, what: str = "") -> str:
    """Return the words that say which rows `enough` left in, '' when it left all; it counts `what`, or the column."""
    return f" with at least {least} {what or column}" if len(enough(rows, column, least)) < len(rows) else ""


def sample_size(number: int) -> str:
    """Return a remark on a small number of observations; '' for a large one.

    Examples
    --------
    >>> sample_size(7), sample_size(3000)
    (' (n = 7)', '')
    """
    return f" (n = {number})" if number < FEW else ""
