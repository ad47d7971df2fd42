"""What a log lacks that most questions need, and the command that adds it: the first thing that a report says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnknownFormatError
from tracekit.manifest import ASSUMED_ZONE
from tracekit.report.answers import metrics
from tracekit.text import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.ingest.interface import Format
    from tracekit.report.structure import Lack
    from tracekit.trace import Trace

__all__ = ["lacks_of"]

_AGAIN = "tracekit analyze LOGS -o OUT"
_FEW = 0.01
"""Share of the jobs whose devices are unknown, up to which nothing is said of them."""


def lacks_of(trace: Trace, answers: Mapping[str, Answer]) -> list[Lack]:
    """Return what the log lacks: GPUs of jobs, known devices, the zone of its times, telemetry.

    A Trace without jobs lacks nothing of this.
    `answers` are by name; overview/summary tells whether a job has GPUs.
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
        found.append(_lack("zone", "Times are read as UTC: no zone is known.", cure))
    if not can["utilization"].available and not trace.has("job_usage") and (known.get("gpu_jobs") or not states_gpus):
        cure = f"{_AGAIN} --telemetry http://PROMETHEUS:9090"
        found.append(_lack("telemetry", "How busy GPUs were is unknown: there is no telemetry.", cure))
    return found


def _devices(trace: Trace, jobs: float) -> list[Lack]:
    """Return that jobs hold devices which nobody knows, with the first of them, if they are not few."""
    for things in ("jobs", "pods"):
        check = trace.manifest.checks.get(f"unknown_devices_of_{things}")
        if check is not None and check.count > _FEW * jobs:
            device = (check.examples[0] if check.examples else "").rpartition(": ")[2].split("|")[0] or "NAME"
            text = (
                f"The GPUs of {counted(check.count, things)} are unknown, because of devices such as {shorten(device)}."
            )
            return [_lack("devices", text, f"{_AGAIN} --option gpu_resource={shorten(device)}=FACTOR")]
    return []


def _lack(name: str, text: str, cure: str) -> Lack:
    return {"name": name, "text": text, "cure": cure}


def _format_of(trace: Trace) -> Format | None:
    """Return the format that the Trace was read from; None where it is not installed here."""
    from tracekit.ingest.detect import find_format

    try:
        return find_format(trace.manifest.format)
    except UnknownFormatError:
        return None
