"""What a reader must know of a log before believing what a report says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.words import held_share, unknown_share
from tracekit.text import count, percent

if TYPE_CHECKING:
    from tracekit.report.structure import Answer, CapacityInfo, Quality

__all__ = ["doubts_of"]

_CLOSE = 0.02
"""Numbers of GPUs that differ by less count as one."""
_FEW = 0.05
"""Share of the GPUs held below which a log hardly holds all jobs."""
_MANY = 0.1
"""Share of the jobs without a known end that a reader must know of."""
_SOME = 0.01
"""Share of unreadable records that a reader must know of."""


def doubts_of(answers: list[Answer], capacity: CapacityInfo, quality: Quality) -> list[str]:
    """Return what makes the log a poor witness of the cluster, one sentence each.

    Parameters
    ----------
    answers : list of Answer
        Of all queries.
    capacity : CapacityInfo
        The number of GPUs used and its alternatives.
    quality : Quality
        How far the numbers can be trusted.
    """
    doubts = []
    rows = {a["name"]: a["rows"] for a in answers}
    gpus = capacity["gpus"]
    shown = capacity["alternatives"].get("observed")
    if gpus and shown and abs(shown - gpus) > _CLOSE * gpus:
        doubts.append(
            f"The source lists {count(gpus)} GPUs, while jobs and telemetry show {count(shown)}; the shares of the"
            " cluster on this page depend on which is right."
        )
    held = held_share(rows.get("queuing/cluster_timeline", []))
    if held is not None and held < _FEW:
        doubts.append(
            f"The jobs of this log hold {percent(held)} of the GPUs: it may be a part of the load only, and does not"
            " tell how full the cluster was."
        )
    unknown = unknown_share(rows.get("overview/status", []))
    if unknown >= _MANY:
        doubts.append(f"How {percent(unknown)} of the jobs ended is unknown.")
    if quality["rejected"] > _SOME * quality["records"]:
        doubts.append(f"{percent(quality['rejected'] / quality['records'])} of the records could not be read.")
    return doubts
