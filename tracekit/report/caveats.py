"""Caveats: what a reader must know about a log before relying on its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.characterize.quotas import FAR_ABOVE
from tracekit.report.answers import metrics
from tracekit.report.headline import mixes_kinds, of_gpu_jobs
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, Quality

__all__ = ["caveats"]

_CLOSE = 0.02
"""Numbers of GPUs that differ by less count as one."""
_FEW = 0.05
"""Share of the GPUs held below which a log probably lacks jobs."""
_IDLE = 0.2
"""Share of the nodes without a job of the log from which on it probably lacks jobs."""
_MANY = 0.1
"""Share of the jobs without a known end that a reader must know of."""
_SOME = 0.01
"""Share of unreadable records that a reader must know of."""


def caveats(
    answers: Mapping[str, Answer],
    capacity: CapacityInfo,
    quality: Quality,
    guidelines: dict[str, Any] | None = None,
) -> list[str]:
    """Return the reasons why the log may misrepresent the cluster, one sentence each.

    `answers` are by name; `guidelines` is the document of `tracekit.guidelines`, which states the nodes without jobs.
    """
    found = []
    gpus = capacity["gpus"]
    shown = capacity["alternatives"].get("observed")
    known = metrics(answers, "overview/summary", "queuing/gpu_time_held")
    held = known.get("held_share")
    if gpus and shown and capacity["used"] == "listed" and shown - gpus > _CLOSE * gpus:
        if capacity["word"].startswith(("listed", "stated by")):
            text = (
                "On some nodes jobs or telemetry show more GPUs than the source lists; with these the cluster has"
                f" {count(shown)} GPUs instead of {count(gpus)}, and shares of the cluster are smaller"
            )
            if held is not None:
                part = f"{percent(held)} of {count(gpus)} GPUs, or {percent(held * gpus / shown)} of {count(shown)}"
                text += f": jobs held {part}"
        else:
            whose = "the quotas add up to" if "quotas" in capacity["word"] else "the source states"
            text = (
                f"At one time jobs held {count(shown)} GPUs, more than the {count(gpus)} that {whose}: one of the two"
                " numbers is wrong, and shares of the cluster may be smaller"
            )
        found.append(f"{text}.")
    if gpus and shown and "quotas" in capacity["word"] and shown < FAR_ABOVE * gpus:
        found.append(
            f"The quotas add up to {count(gpus)} GPUs, and jobs never held more than {count(shown)} at one time: quotas"
            " are no machines, and shares of the cluster may be larger."
        )
    unused, nodes = _unused(guidelines)
    if unused and nodes and unused >= _IDLE * nodes:
        found.append(
            f"{count(unused)} of {count(nodes)} nodes ran no job of this log: it may be a part of the load only."
        )
    if held is not None and held < _FEW:
        found.append(
            f"The jobs of this log hold {percent(held)} of the GPUs: it may be a part of the load only, and does not"
            " show how full the cluster was."
        )
    unknown = of_gpu_jobs(known).get("unknown_status_share", 0)
    if unknown >= _MANY:
        whose = "GPU jobs" if mixes_kinds(known) else "jobs"
        found.append(f"How {percent(unknown)} of the {whose} ended is unknown.")
    if quality["rejected"] > _SOME * quality["records"]:
        found.append(f"{percent(quality['rejected'] / quality['records'])} of the records could not be read.")
    return found + _times(known)


def _times(known: Mapping[str, float]) -> list[str]:
    """Return caveats about impossible times, and about times that are known only to the hour."""
    found = []
    impossible, jobs = known.get("impossible_times", 0), known.get("jobs", 0)
    if impossible >= _SOME * jobs and impossible:
        found.append(
            f"{counted(impossible, 'times')} of the log cannot be true, such as an end before its start: the waits and"
            " GPU-hours that need them are unknown."
        )
    hours, total = known.get("gpu_hours_in_doubt", 0), known.get("gpu_hours", 0)
    if total and hours >= _SOME * total:
        times = counted(known["hour_in_doubt_times"], "times")
        found.append(
            f"{times} of the log may mean either of two instants an hour apart,"
            f" since clocks were changed: the GPU-hours may be off by up to {count(hours)}, {percent(hours / total)}."
        )
    return found


def _unused(guidelines: dict[str, Any] | None) -> tuple[float, float]:
    """Return the nodes that ran no job of the log, and all nodes, where the guideline on idle nodes states them."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    finding = next((e["finding"] for e in entries if e["id"] == "power-down"), None)
    numbers = {n["key"]: n["value"] for n in finding["numbers"]} if finding else {}
    return numbers.get("unused_nodes") or 0, numbers.get("nodes") or 0
