"""What a log lacks that most questions need, and the command that adds it: the first thing that a report says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnknownFormatError
from tracekit.manifest import ASSUMED_ZONE
from tracekit.report.answers import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.ingest.interface import Format
    from tracekit.report.structure import Lack
    from tracekit.trace import Trace

__all__ = ["lacks_of"]

_AGAIN = "tracekit analyze LOGS -o OUT"


def lacks_of(trace: Trace, answers: Mapping[str, Answer]) -> list[Lack]:
    """Return what the log lacks: GPUs of jobs, the zone of its times, telemetry; nothing for a Trace without jobs.

    `answers` are by name; overview/summary tells whether a job has GPUs.
    """
    known = metrics(answers)
    if not known.get("jobs"):
        return []
    found = []
    can = trace.manifest.capabilities
    member = _format_of(trace)
    counted = can["gpu_count"].available
    if not counted:
        found.append(_lack("gpus", "The log does not record the GPUs of jobs.", member.gpu_cure if member else ""))
    elif not known.get("gpu_jobs") and member is not None and member.no_gpus_cure:
        found.append(_lack("gpus", "No job of this log has GPUs.", member.no_gpus_cure))
    if any(note.endswith(ASSUMED_ZONE) for note in trace.manifest.notes):
        cure = f"{_AGAIN} --option timezone=Area/City"
        found.append(_lack("zone", "Times are read as UTC: no zone is known.", cure))
    if not can["utilization"].available and not trace.has("job_usage") and (known.get("gpu_jobs") or not counted):
        cure = f"{_AGAIN} --telemetry http://PROMETHEUS:9090"
        found.append(_lack("telemetry", "How busy GPUs were is unknown: there is no telemetry.", cure))
    return found


def _lack(name: str, text: str, cure: str) -> Lack:
    return {"name": name, "text": text, "cure": cure}


def _format_of(trace: Trace) -> Format | None:
    """Return the format that the Trace was read from; None where it is not installed here."""
    from tracekit.ingest.detect import find_format

    try:
        return find_format(trace.manifest.format)
    except UnknownFormatError:
        return None
