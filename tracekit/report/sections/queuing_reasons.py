"""Queueing: what held jobs back by the word of the scheduler, and what started them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.sections.interface import Presentation
from tracekit.text import count, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_CHOSEN = ("limit", "dependency", "begin time", "held")
"""Groups that are no contention: more nodes would not have started these jobs any sooner."""


def reasons_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which part of the waiting limits, dependencies and begin times explain."""
    gpu = sum(r.get("gpu_jobs") or 0 for r in rows)
    jobs, column = (gpu, "gpu_wait_share") if gpu else (sum(r["jobs"] for r in rows), "wait_share")
    shares = {r["reason_group"]: r[column] or 0.0 for r in rows}
    held = sum(shares.get(name, 0.0) for name in _CHOSEN)
    if not sum(shares.values()):
        return None
    limit, who = shares.get("limit", 0.0), "GPU jobs" if gpu else "jobs"
    if not held and not shares.get("unlisted"):
        return f"By the scheduler no limit, dependency or begin time held up any of {count(jobs)} {who} that waited."
    text = (
        f"Of the time that {count(jobs)} {who} waited, limits held them for {percent(limit)}, and dependencies, begin"
        f" times or people for {percent(held - limit)}"
    )
    if shares.get("unlisted"):
        text += f"; the reason for {percent(shares['unlisted'])} is not in Slurm's list"
    return text + "."


def started_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which part of the GPU jobs backfill started."""
    gpu = [r for r in rows if r["gpu_class"] != "0"]
    jobs, filled = sum(r["jobs"] for r in gpu), sum(r["backfill_jobs"] for r in gpu)
    return f"Backfill started {count(filled)} of {count(jobs)} GPU jobs ({percent(filled / jobs)})." if jobs else None


def no_words(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that the source does not tell why jobs waited, or what started them."""
    return None if rows else "The source does not tell; sacct does, with Reason and Flags among its columns."


PRESENTATIONS = (
    Presentation("queuing/wait_reasons", finding=reasons_finding, why_empty=no_words),
    Presentation("queuing/started_by", finding=started_finding, why_empty=no_words),
)
