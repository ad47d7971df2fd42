"""What a reader must know about a log before relying on its report: what it lacks and why it may mislead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.characterize.occupancy import FAR_ABOVE
from tracekit.errors import UnknownFormatError
from tracekit.manifest import ASSUMED_ZONE, PROGRAM_ERRORS
from tracekit.report.answers import metrics
from tracekit.report.headline import mixes_kinds, of_gpu_jobs
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.ingest.interface import Format
    from tracekit.report.structure import CapacityInfo, Doubt, Lack, Quality
    from tracekit.trace import Trace


_CLOSE = 0.02
"""GPU counts whose relative difference is at most this are treated as equal."""
_FEW = 0.05
"""If a smaller share of the GPUs is held, the log probably lacks jobs."""
_IDLE = 0.2
"""If at least this share of the nodes ran no job of the log, the log probably lacks jobs."""
_MANY = 0.1
"""If the status of at least this share of the jobs is unknown, the report says so."""
_SOME = 0.01
"""Problems that affect less than this share of records, jobs or GPU-hours are not reported."""


GPUS, RECORDS, CONTRADICTIONS = "gpus-of-the-cluster", "records-set-aside", "contradictions"
"""Anchors in the data-quality section that explain a caveat."""


def caveats(
    answers: Mapping[str, Answer],
    capacity: CapacityInfo,
    quality: Quality,
    guidelines: dict[str, Any] | None = None,
) -> list[Doubt]:
    """Return why the log may misrepresent the cluster, one line per reason.

    `answers` is keyed by name; `guidelines` is the document of `tracekit.guidelines`, which lists nodes without jobs.
    """
    known = metrics(answers, "overview/summary", "queuing/gpu_time_held")
    held = known.get("held_share")
    found = _gpus(capacity, held)
    unused, nodes = _unused(guidelines)
    if unused and nodes and unused >= _IDLE * nodes:
        text = f"{count(unused)} of {count(nodes)} nodes ran no job of this log: it may contain only part of the load."
        found.append(_doubt(text, "g-power-down"))
    if held is not None and held < _FEW:
        text = f"Jobs hold {percent(held)} of the GPU time: this log may contain only part of the load."
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
    """Return caveats about contradictory GPU counts."""
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
    """Return the caveat that Slurm's programs printed errors while the log was collected."""
    said = next((check for check in quality["checks"] if check.get("name") == PROGRAM_ERRORS and check["count"]), None)
    if said is None:
        return []
    calls = f"{count(said['count'])} of {counted(said['of'] or 0, 'calls')}"
    text = f"{calls} of Slurm's programs printed errors: jobs may be missing."
    return [_doubt(text, CONTRADICTIONS, f"The first one is {said['examples'][0]}" if said["examples"] else "")]


def _lost(quality: Quality, jobs: float) -> list[Doubt]:
    """Return caveats about rejected records, the GPU-hours lost with them, and runs whose end is missing."""
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
            "They count until then. On Slurm, 'sacctmgr show runawayjobs' lists such records and offers to close them."
        )
        found.append(_doubt(text, CONTRADICTIONS, more))
    return found


def _times(known: Mapping[str, float], place: str) -> list[Doubt]:
    """Return caveats about impossible times and about times that are ambiguous by an hour."""
    found = []
    impossible, jobs = known.get("impossible_times", 0), known.get("jobs", 0)
    if impossible >= _SOME * jobs and impossible:
        text = f"{counted(impossible, 'times')} in the log are impossible, such as an end before its start."
        found.append(_doubt(text, place, "The waits and GPU-hours that depend on them are unknown."))
    hours, total = known.get("gpu_hours_in_doubt", 0), known.get("gpu_hours", 0)
    if total and hours >= _SOME * total:
        times = counted(known["hour_in_doubt_times"], "times")
        text = f"{times} are ambiguous by an hour: GPU-hours may be off by up to {count(hours)}."
        more = f"When clocks change, such a time can be either of two instants; {percent(hours / total)} is in doubt."
        found.append(_doubt(text, place, more))
    return found


def _unused(guidelines: dict[str, Any] | None) -> tuple[float, float]:
    """Return how many nodes ran no job of the log, and how many there are, if the guideline on idle nodes has both."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    finding = next((e["finding"] for e in entries if e["id"] == "power-down"), None)
    numbers = {n["key"]: n["value"] for n in finding["numbers"]} if finding else {}
    return numbers.get("unused_nodes") or 0, numbers.get("nodes") or 0


_AGAIN = "tracekit analyze LOGS -o OUT"
_RARE = 0.01
"""If at most this share of the jobs has unknown devices, the report does not mention them."""


def lacks_of(trace: Trace, answers: Mapping[str, Answer]) -> list[Lack]:
    """Return what the log lacks: the GPUs of jobs, known devices, the time zone, or telemetry.

    For a Trace without jobs the list is empty.
    `answers` is keyed by name; overview/summary says whether any job has GPUs.
    """
    known = metrics(answers)
    if not known.get("jobs"):
        return []
    found = []
    can = trace.manifest.capabilities
    member = _format_of(trace)
    states_gpus = can["gpu_count"].available
    if not states_gpus:
        found.append(_lack("gpus", "The log does not record the GPUs of jobs.", member.gpu_cure if member else ""))
    elif not known.get("gpu_jobs") and member is not None and member.no_gpus_cure:
        found.append(_lack("gpus", "No job of this log has GPUs.", member.no_gpus_cure))
    found += _devices(trace, known["jobs"])
    if any(note.endswith(ASSUMED_ZONE) for note in trace.manifest.notes):
        cure = f"{_AGAIN} --option timezone=Area/City"
        found.append(_lack("zone", "Times are read as UTC because the time zone is unknown.", cure))
    if not can["utilization"].available and not trace.has("job_usage") and (known.get("gpu_jobs") or not states_gpus):
        cure = f"{_AGAIN} --telemetry http://PROMETHEUS:9090"
        found.append(_lack("telemetry", "GPU utilization is unknown because there is no telemetry.", cure))
    return found


def _devices(trace: Trace, jobs: float) -> list[Lack]:
    """Return that jobs use unknown devices, with the first such device, unless only a few jobs are affected."""
    for things in ("jobs", "pods"):
        check = trace.manifest.checks.get(f"unknown_devices_of_{things}")
        if check is not None and check.count > _RARE * jobs:
            device = (check.examples[0] if check.examples else "").rpartition(": ")[2].split("|")[0] or "NAME"
            text = (
                f"The GPUs of {counted(check.count, things)} are unknown, because of devices such as {shorten(device)}."
            )
            return [_lack("devices", text, f"{_AGAIN} --option gpu_resource={shorten(device)}=FACTOR")]
    return []


def _lack(name: str, text: str, cure: str) -> Lack:
    return {"name": name, "text": text, "cure": cure}


def _format_of(trace: Trace) -> Format | None:
    """Return the format that the Trace was read from, or None if that format is not installed here."""
    from tracekit.ingest.detect import find_format

    try:
        return find_format(trace.manifest.format)
    except UnknownFormatError:
        return None
