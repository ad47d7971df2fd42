"""Caveats: what a reader must know about a log before relying on its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.characterize.occupancy import FAR_ABOVE
from tracekit.manifest import PROGRAM_ERRORS
from tracekit.report.answers import metrics
from tracekit.report.headline import mixes_kinds, of_gpu_jobs
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, Doubt, Quality

__all__ = ["CONTRADICTIONS", "GPUS", "RECORDS", "caveats"]

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


GPUS, RECORDS, CONTRADICTIONS = "gpus-of-the-cluster", "records-set-aside", "contradictions"
"""Places of the part on data quality that show why something is doubtful."""


def caveats(
    answers: Mapping[str, Answer],
    capacity: CapacityInfo,
    quality: Quality,
    guidelines: dict[str, Any] | None = None,
) -> list[Doubt]:
    """Return the reasons why the log may misrepresent the cluster, one line each.

    `answers` are by name; `guidelines` is the document of `tracekit.guidelines`, which states the nodes without jobs.
    """
    known = metrics(answers, "overview/summary", "queuing/gpu_time_held")
    held = known.get("held_share")
    found = _gpus(capacity, held)
    unused, nodes = _unused(guidelines)
    if unused and nodes and unused >= _IDLE * nodes:
        text = f"{count(unused)} of {count(nodes)} nodes ran no job of this log: it may hold a part of the load only."
        found.append(_doubt(text, "g-power-down"))
    if held is not None and held < _FEW:
        text = f"Jobs hold {percent(held)} of the GPU time: this log may hold a part of the load only."
        found.append(_doubt(text, "q-queuing-gpu-time-held"))
    unknown = of_gpu_jobs(known).get("unknown_status_share", 0)
    if unknown >= _MANY:
        whose = "GPU jobs" if mixes_kinds(known) else "jobs"
        place = "q-overview-status" if "overview/status" in answers else "quality"
        found.append(_doubt(f"How {percent(unknown)} of the {whose} ended is unknown.", place))
    found += [*_said(quality), *_lost(quality, known.get("jobs", 0))]
    return found + _times(known, CONTRADICTIONS if quality["checks"] else "quality")


def _doubt(text: str, place: str, more: str = "") -> Doubt:
    return {"text": text, "more": more, "place": place}


def _gpus(capacity: CapacityInfo, held: float | None) -> list[Doubt]:
    """Return caveats about numbers of GPUs that contradict each other."""
    gpus, shown = capacity["gpus"], capacity["alternatives"].get("observed")
    if not gpus or not shown:
        return []
    found = []
    quotas = "quotas" in capacity["word"]
    if capacity["used"] == "listed" and shown - gpus > _CLOSE * gpus:
        if capacity["word"].startswith(("listed", "stated by")):
            text = f"Jobs or telemetry show {count(shown)} GPUs, the source lists {count(gpus)}."
            more = "Some nodes show more GPUs than the source lists, and shares of the cluster may be smaller"
            if held is not None:
                part = f"{percent(held)} of {count(gpus)} GPUs, or {percent(held * gpus / shown)} of {count(shown)}"
                more += f": jobs held {part}"
        else:
            whose = "the quotas add up to" if quotas else "the source states"
            text = f"Jobs once held {count(shown)} GPUs, more than the {count(gpus)} that {whose}."
            more = "One of the two numbers is wrong, and shares of the cluster may be smaller"
        found.append(_doubt(text, GPUS, f"{more}."))
    if quotas and shown < FAR_ABOVE * gpus:
        text = f"The quotas add up to {count(gpus)} GPUs, but jobs never held more than {count(shown)} at once."
        more = "A quota is a limit, not a count of machines: shares of the cluster may be larger."
        found.append(_doubt(text, GPUS, more))
    return found


def _said(quality: Quality) -> list[Doubt]:
    """Return the caveat that programs printed errors while they printed the log."""
    said = next((check for check in quality["checks"] if check.get("name") == PROGRAM_ERRORS and check["count"]), None)
    if said is None:
        return []
    calls = f"{count(said['count'])} of {counted(said['of'] or 0, 'calls')}"
    text = f"{calls} of Slurm's programs printed errors: jobs may be missing."
    return [_doubt(text, CONTRADICTIONS, f"The first one is {said['examples'][0]}" if said["examples"] else "")]


def _lost(quality: Quality, jobs: float) -> list[Doubt]:
    """Return caveats about rejects and the GPU-hours that they cost, and about runs whose ends were lost."""
    checks = {check["name"]: check for check in quality["checks"] if "name" in check}
    found = []
    rejected, gone = checks.get("rejected_gpu_hours"), checks.get("running_past_limit")
    text = ""
    if rejected and rejected["of"] and rejected["count"] > _SOME * rejected["of"]:
        text = f"At least {percent(rejected['count'] / rejected['of'])} of the GPU-hours could not be read."
    elif quality["rejected"] > _SOME * quality["records"]:
        text = f"{percent(quality['rejected'] / quality['records'])} of the records could not be read."
    if text:
        found.append(_doubt(text, RECORDS if quality["rejects"] else "quality"))
    if gone and gone["count"] and gone["count"] >= _SOME * jobs:
        text = f"{counted(gone['count'], 'runs')} without an end passed the time limit or lost the GPUs to a later run."
        more = (
            "They count up to then. On Slurm, 'sacctmgr show runawayjobs' lists such records and offers to close them."
        )
        found.append(_doubt(text, CONTRADICTIONS, more))
    return found


def _times(known: Mapping[str, float], place: str) -> list[Doubt]:
    """Return caveats about impossible times, and about times that are known only to the hour."""
    found = []
    impossible, jobs = known.get("impossible_times", 0), known.get("jobs", 0)
    if impossible >= _SOME * jobs and impossible:
        text = f"{counted(impossible, 'times')} of the log cannot be true, such as an end before its start."
        found.append(_doubt(text, place, "The waits and GPU-hours that need them are unknown."))
    hours, total = known.get("gpu_hours_in_doubt", 0), known.get("gpu_hours", 0)
    if total and hours >= _SOME * total:
        times = counted(known["hour_in_doubt_times"], "times")
        text = f"{times} are ambiguous by an hour: GPU-hours may be off by up to {count(hours)}."
        more = f"Clocks were changed, so that such a time is one of two instants; {percent(hours / total)} in doubt."
        found.append(_doubt(text, place, more))
    return found


def _unused(guidelines: dict[str, Any] | None) -> tuple[float, float]:
    """Return the nodes that ran no job of the log, and all nodes, where the guideline on idle nodes states them."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    finding = next((e["finding"] for e in entries if e["id"] == "power-down"), None)
    numbers = {n["key"]: n["value"] for n in finding["numbers"]} if finding else {}
    return numbers.get("unused_nodes") or 0, numbers.get("nodes") or 0
