"""Sentences about the part of the time and of the machines that telemetry covers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tracekit.characterize import Query
from tracekit.report.telemetry_coverage import NO_TELEMETRY, TelemetryCoverage
from tracekit.report.times import local, period_words, span_words
from tracekit.text import count

if TYPE_CHECKING:
    from tracekit.answer import Question
    from tracekit.report.structure import Quality, TimeInfo

__all__ = ["telemetry_note", "telemetry_period"]

_MOST = 0.9
"""Share of the trace, and of its machines, from which on telemetry counts as complete."""


def telemetry_note(
    question: Question, quality: Quality, times: TimeInfo, coverage: TelemetryCoverage = NO_TELEMETRY
) -> str | None:
    """Return what the telemetry behind a query covers, where that is not nearly all of the trace."""
    if not isinstance(question, Query):
        return None
    capabilities = {"utilization", "host_utilization"} & {*question.needs}
    if "gpu_utilization" in (*question.also, *question.one_of) and question.name.startswith("utilization/"):
        capabilities.add("utilization")
    return telemetry_period(capabilities, quality, times, coverage)


def telemetry_period(
    capabilities: set[str], quality: Quality, times: TimeInfo, coverage: TelemetryCoverage = NO_TELEMETRY
) -> str | None:
    """Return what the telemetry of 'utilization' or 'host_utilization' covers, where that is not almost all of it.

    `quality` has the window of each capability, `coverage` the number of machines with samples.
    """
    windows = [
        c["window"] for c in quality["capabilities"] if c["name"] in capabilities and c["available"] and c["window"]
    ]
    period = _period(windows[0], times) if windows else None
    machines = (
        _machines(coverage.gpu_nodes if "utilization" in capabilities else coverage.host_nodes, coverage)
        if windows
        else None
    )
    if period and machines:
        return f"{period}, on {machines}"
    return period or (f"telemetry covers {machines}" if machines else None)


def _machines(number: int | None, coverage: TelemetryCoverage) -> str | None:
    if number is None or not coverage.nodes or number >= _MOST * coverage.nodes:
        return None
    return f"{count(number)} of {count(coverage.nodes)} nodes"


def _period(window: list[str], times: TimeInfo) -> str | None:
    if not times["span_s"]:
        return None
    begin, end = (datetime.fromisoformat(text) for text in window)
    covered = (end - begin).total_seconds()
    if covered >= _MOST * times["span_s"]:
        return None
    whole = span_words(times["span_s"])
    if times["base"] != "absolute":
        return f"telemetry covers {span_words(covered)} of the {whole} of the trace"
    first, last = (local(text, times["timezone"]) for text in window)
    return f"telemetry covers {period_words(first, last)} only, {span_words(covered)} of the {whole} of the trace"
