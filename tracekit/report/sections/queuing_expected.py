"""Queueing: whether waits can be foretold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.phrases import sample_size
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


def expected_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many of the last waits lay in the interval told when they began."""
    whole = next((r for r in rows if r["gpu_class"] == "all"), None)
    if whole is None:
        return None
    if not whole["told"]:
        return f"No wait was forecast: {counted(whole['too_few'], 'jobs')} had too few like them that came earlier."
    few = f"; {counted(whole['too_few'], 'jobs')} had too few like them" if whole["too_few"] else ""
    n = sample_size(whole["told"]) or f" of {count(whole['told'])} jobs"
    held = percent(whole["inside_share"])
    return f"{held} of the waits{n} lay within the interval forecast at submission{few}."


PRESENTATIONS = (
    Presentation(
        "queuing/expected_wait_backtest",
        finding=expected_finding,
        without_rows="No job's wait is known.",
    ),
)
