"""Workload: what people ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.charts import Panel, bars
from tracekit.report.sections.interface import chart, says
from tracekit.report.text import count, percent
from tracekit.report.words import largest

if TYPE_CHECKING:
    from tracekit.report.structure import Row

REQUESTS = 14
"""Most numbers of GPUs drawn."""


@says("workload/gpu_request")
def gpu_request_finding(rows: list[Row]) -> str | None:
    """Say which request is most common and which takes most GPU time."""
    common = largest(rows, "jobs")
    if common is None or common["jobs_share"] is None:
        return None
    text = f"The commonest request is {_gpus(common['gpu_count'])} ({percent(common['jobs_share'])} of the jobs)"
    heavy = largest(rows, "gpu_hours_share")
    if heavy is None:
        return text + "."
    if heavy is common:
        return f"{text}, which also takes the most GPU time ({percent(heavy['gpu_hours_share'])})."
    who = f"{_gpus(heavy['gpu_count'])} ({percent(heavy['gpu_hours_share'])})"
    return f"{text}; the largest share of GPU time goes to requests for {who}."


def _gpus(number: float) -> str:
    if number == 0:
        return "no GPU"
    return "1 GPU" if number == 1 else f"{count(number)} GPUs"


@chart("workload/gpu_request")
def gpu_request_chart(rows: list[Row]) -> list[Panel]:
    """Draw share of jobs beside share of GPU time, by number of GPUs."""
    kept = sorted(sorted(rows, key=lambda r: (-r["jobs"], r["gpu_count"]))[:REQUESTS], key=lambda r: r["gpu_count"])
    named = [{**r, "key": count(r["gpu_count"])} for r in kept]
    measures = {"jobs_share": "share of jobs", "gpu_hours_share": "share of GPU time"}
    known = {k: v for k, v in measures.items() if any(r.get(k) is not None for r in kept)}
    keys = list(dict.fromkeys(r["key"] for r in named))
    panel = bars(
        named, key="key", values=keys, title="GPUs asked for", measures=known, axis_title="share of jobs of known size"
    )
    left = len(rows) - len(kept)
    note = f"Drawn: the {len(kept)} commonest requests; {left} more in the table." if left else ""
    return [Panel(panel.chart, panel.legend, note=note)]
