"""Which part of the time and of the machines telemetry covers, in words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tracekit.characterize import Query
from tracekit.report.watched import NOTHING, Watched
from tracekit.report.when import local, span_words
from tracekit.text import count

if TYPE_CHECKING:
    from tracekit.answer import Question
    from tracekit.report.structure import Quality, TimeInfo

__all__ = ["telemetry_note", "telemetry_period"]

_MOST = 0.9
"""Part of the trace, and of its machines, that telemetry covers from which on nothing is said of it."""


def telemetry_note(asked: Question, told: Quality, when: TimeInfo, seen: Watched = NOTHING) -> str | None:
    """Return what the telemetry behind a query covers, where that is not nearly all of the trace."""
    if not isinstance(asked, Query):
        return None
    behind = {"utilization", "host_utilization"} & {*asked.needs}
    if "gpu_utilization" in (*asked.also, *asked.one_of) and asked.name.startswith("utilization/"):
        behind.add("utilization")
    return telemetry_period(behind, told, when, seen)


def telemetry_period(behind: set[str], told: Quality, when: TimeInfo, seen: Watched = NOTHING) -> str | None:
    """Return what the telemetry of these capabilities covers, where that is not nearly all of the trace.

    Parameters
    ----------
    behind : set of str
        'utilization' or 'host_utilization'.
    told : Quality
        With the window of each capability.
    when : TimeInfo
        Of the trace.
    seen : Watched
        How many machines are watched.
    """
    windows = [c["window"] for c in told["capabilities"] if c["name"] in behind and c["available"] and c["window"]]
    period = _period(windows[0], when) if windows else None
    machines = _machines(seen.gpu_nodes if "utilization" in behind else seen.host_nodes, seen) if windows else None
    if period and machines:
        return f"{period}, on {machines}"
    return period or (f"telemetry covers {machines}" if machines else None)


def _machines(number: int | None, seen: Watched) -> str | None:
    if number is None or not seen.nodes or number >= _MOST * seen.nodes:
        return None
    return f"{count(number)} of {count(seen.nodes)} nodes"


def _period(window: list[str], when: TimeInfo) -> str | None:
    if not when["span_s"]:
        return None
    begin, end = (datetime.fromisoformat(text) for text in window)
    covered = (end - begin).total_seconds()
    if covered >= _MOST * when["span_s"]:
        return None
    whole = span_words(when["span_s"])
    if when["base"] == "relative":
        return f"telemetry covers {span_words(covered)} of the {whole} of the trace"
    first, last = (local(text, when["timezone"]) for text in window)
    days = first.strftime("%Y-%m-%d") + ("" if first.date() == last.date() else f" to {last:%Y-%m-%d}")
    return f"telemetry covers {days} only, {span_words(covered)} of the {whole} of the trace"
