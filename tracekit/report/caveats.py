"""What readers must know about a log before they rely on its report: what is missing, and why the log may mislead."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tracekit.characterize.occupancy import FAR_ABOVE
from tracekit.errors import UnknownFormatError
from tracekit.manifest import ASSUMED_ZONE, PROGRAM_ERRORS
from tracekit.report.answers import metrics
from tracekit.report.headline import mixes_kinds, of_gpu_jobs
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.answer import Answer
    from tracekit.ingest.interface import Format
    from tracekit.report.structure import CapacityInfo, Doubt, Lack, Quality
    from tracekit.trace import Trace


_CLOSE = 0.02
"""GPU counts are treated as equal if their relative difference is at most this."""
_FEW = 0.05
"""Below this share of allocated GPUs, jobs are probably missing from the log."""
_IDLE = 0.2
"""From this share of nodes without jobs, jobs are probably missing from the log."""
_MANY = 0.1
"""If the status of at least this share of the jobs is unknown, the report says so."""
_SOME = 0.01
"""Minimum share of records, jobs or GPU-hours that a reported problem affects."""


GPUS, RECORDS, CONTRADICTIONS = "gpus-of-the-cluster", "records-set-aside", "contradictions"
"""Anchors in the data-quality section that explain a caveat."""


def caveats(
    answers: Mapping[str, Answer],
    capacity: CapacityInfo,
    quality: Quality,
    guidelines: dict[str, Any] | None = None,
) -> list[Doubt]:
    """List the reasons why the log may misrepresent the cluster, one line each.

    `answers` is keyed by name. `guidelines` is the document from `tracekit.guidelines`, which lists nodes without jobs.
    """
    known = metrics(answers, "overview/summary", "queuing/gpu_time_held")
    held, jobs = known.get("held_share"), known.get("jobs", 0)
    checks = {check.get("name"): check for check in quality["checks"] if check.get("count")}
    found: list[Doubt] = []

    def doubt(place: str, text: str, more: str = "") -> None:
        found.append({"text": text, "more": more, "place": place})

    _doubt_gpus(doubt, capacity, held)
    unused, nodes = _unused(guidelines)
    if unused and nodes and unused >= _IDLE * nodes:
        text = f"{count(unused)} of {count(nodes)} nodes ran no job, so this log may contain only part of the load."
        doubt("g-power-down", text)
    if held is not None and held < _FEW:
        text = f"Only {percent(held)} of the GPU time is allocated, so this log may contain only part of the load."
        doubt("q-queuing-gpu-time-held", text)
    unknown = of_gpu_jobs(known).get("unknown_status_share", 0)
    if unknown >= _MANY:
        place = "q-overview-status" if "overview/status" in answers else "quality"
        doubt(place, f"How {percent(unknown)} of the {'GPU jobs' if mixes_kinds(known) else 'jobs'} ended is unknown.")
    if said := checks.get(PROGRAM_ERRORS):
        calls = f"{count(said['count'])} of {counted(said['of'] or 0, 'calls')}"
        more = f"The first error is {said['examples'][0]}" if said["examples"] else ""
        doubt(CONTRADICTIONS, f"{calls} to Slurm's programs printed errors, so jobs may be missing.", more)
    records, lost = RECORDS if quality["rejects"] else "quality", checks.get("rejected_gpu_hours")
    if lost and lost["of"] and lost["count"] > _SOME * lost["of"]:
        doubt(records, f"At least {percent(lost['count'] / lost['of'])} of the GPU-hours could not be read.")
    elif quality["rejected"] > _SOME * quality["records"]:
        doubt(records, f"{percent(quality['rejected'] / quality['records'])} of the records could not be read.")
    if (endless := checks.get("running_past_limit")) and endless["count"] >= _SOME * jobs:
        runs = counted(endless["count"], "runs")
        doubt(
            CONTRADICTIONS,
            f"{runs} without a recorded end exceeded the time limit or lost the GPUs to a later run.",
            "They count up to that time. On Slurm, 'sacctmgr show runawayjobs' lists such records and can close them.",
        )
    _doubt_times(doubt, known, CONTRADICTIONS if quality["checks"] else "quality")
    return found


def _doubt_gpus(doubt: Callable[[str, str, str], None], capacity: CapacityInfo, held: float | None) -> None:
    """Report contradictory GPU counts."""
    gpus, shown, word = capacity["gpus"], capacity["alternatives"].get("observed"), capacity["word"]
    if not gpus or not shown:
        return
    if capacity["used"] == "listed" and shown - gpus > _CLOSE * gpus:
        if word.startswith(("listed", "stated by")):
            text = f"Jobs or telemetry show {count(shown)} GPUs, but the source lists {count(gpus)}."
            more = "Some nodes show more GPUs than the source lists, so shares of the cluster may be smaller"
            if held is not None:
                part = f"{percent(held)} of {count(gpus)} GPUs, or {percent(held * gpus / shown)} of {count(shown)}"
                more += f". Jobs used {part}"
        else:
            whose = "the quotas add up to" if "quotas" in word else "the source states"
            text = f"Jobs once used {count(shown)} GPUs, more than the {count(gpus)} that {whose}."
            more = "One of the two numbers is wrong, so shares of the cluster may be smaller"
        doubt(GPUS, text, f"{more}.")
    if "quotas" in word and shown < FAR_ABOVE * gpus:
        text = f"The quotas add up to {count(gpus)} GPUs, but jobs never used more than {count(shown)} at once."
        doubt(GPUS, text, "A quota is a limit and does not count machines, so shares of the cluster may be larger.")


def _doubt_times(doubt: Callable[[str, str, str], None], known: Mapping[str, float], place: str) -> None:
    """Report impossible times, and times that are ambiguous by an hour."""
    impossible = known.get("impossible_times", 0)
    if impossible and impossible >= _SOME * known.get("jobs", 0):
        text = f"{counted(impossible, 'times')} in the log are impossible, such as an end before its start."
        doubt(place, text, "The waits and GPU-hours that depend on these times are unknown.")
    hours, total = known.get("gpu_hours_in_doubt", 0), known.get("gpu_hours", 0)
    if total and hours >= _SOME * total:
        times = counted(known["hour_in_doubt_times"], "times")
        text = f"{times} are ambiguous by an hour, so GPU-hours may be off by up to {count(hours)}."
        part = percent(hours / total)
        more = f"When clocks change, a local time can be either of two instants. This affects {part} of the GPU-hours."
        doubt(place, text, more)


def _unused(guidelines: dict[str, Any] | None) -> tuple[float, float]:
    """Return the numbers of nodes without jobs and of all nodes, if the guideline on idle nodes gives both."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    finding = next((e["finding"] for e in entries if e["id"] == "power-down"), None)
    numbers = {n["key"]: n["value"] for n in finding["numbers"]} if finding else {}
    return numbers.get("unused_nodes") or 0, numbers.get("nodes") or 0


_AGAIN = "tracekit analyze LOGS -o OUT"
_RARE = 0.01
"""Unknown devices are not mentioned if they affect at most this share of the jobs."""


def lacks_of(trace: Trace, answers: Mapping[str, Answer]) -> list[Lack]:
    """List what is missing from the log: the GPUs of jobs, known devices, the time zone, or telemetry.

    For a Trace without jobs, the list is empty.
    `answers` is keyed by name. overview/summary shows whether any job has GPUs.
    """
    known, manifest = metrics(answers), trace.manifest
    if not known.get("jobs"):
        return []
    found: list[Lack] = []

    def lack(name: str, text: str, cure: str) -> None:
        found.append({"name": name, "text": text, "cure": cure})

    from tracekit.ingest.detect import find_format

    member: Format | None = None
    with contextlib.suppress(UnknownFormatError):  # the format of the Trace may not be installed here
        member = find_format(manifest.format)
    records_gpus = manifest.capabilities["gpu_count"].available
    if not records_gpus:
        lack("gpus", "The log does not record the GPUs of jobs.", member.gpu_cure if member else "")
    elif not known.get("gpu_jobs") and member is not None and member.no_gpus_cure:
        lack("gpus", "No job of this log has GPUs.", member.no_gpus_cure)
    for things in ("jobs", "pods"):
        check = manifest.checks.get(f"unknown_devices_of_{things}")
        if check is not None and check.count > _RARE * known["jobs"]:
            example = (check.examples[0] if check.examples else "").rpartition(": ")[2].split("|")[0] or "NAME"
            device, which = shorten(example), counted(check.count, things)
            text = f"The GPUs of {which} are unknown because of devices such as {device}."
            lack("devices", text, f"{_AGAIN} --option gpu_resource={device}=FACTOR")
            break
    if any(note.endswith(ASSUMED_ZONE) for note in manifest.notes):
        text = "Times are interpreted as UTC because the time zone is unknown."
        lack("zone", text, f"{_AGAIN} --option timezone=Area/City")
    measured = manifest.capabilities["utilization"].available or trace.has("job_usage")
    if not measured and (known.get("gpu_jobs") or not records_gpus):
        text = "GPU utilization is unknown because there is no telemetry."
        lack("telemetry", text, f"{_AGAIN} --telemetry http://PROMETHEUS:9090")
    return found
