"""Locality: what spreading a job over nodes has to do with its wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.charts import (
    Panel,
    axis_values,
    category,
    class_colours,
    class_legend,
    height,
    palette,
    ranges,
    time_axis,
    time_scale,
    time_tooltips,
)
from tracekit.report.sections.interface import chart, says
from tracekit.report.text import duration
from tracekit.report.words import SEVERAL, gpu_jobs, sample_size

if TYPE_CHECKING:
    from tracekit.report.structure import Row

NODE_COUNTS = 16
"""Most numbers of nodes drawn."""

_CLASSES = ("5-8", ">8")
"""The classes that the paper draws; smaller jobs hardly ever spread."""


@says("locality/delay_by_spread")
def delay_by_spread_finding(rows: list[Row]) -> str | None:
    """Compare the waits of jobs of one class on few and on more nodes."""
    for gpu_class in _CLASSES:
        known = [r for r in rows if r["gpu_class"] == gpu_class and r["p50_s"] is not None]
        have = [r for r in known if r["jobs"] >= SEVERAL]
        if len(have) >= 2:
            few, many = have[0], have[-1]
            return (
                f"Of the {gpu_jobs(gpu_class)}, those on {_nodes(few['node_count'])} had a median wait of"
                f" {duration(few['p50_s'])}{sample_size(few['jobs'])}, those on {_nodes(many['node_count'])} one of"
                f" {duration(many['p50_s'])}{sample_size(many['jobs'])}."
            )
    if rows and all(r["node_count"] == 1 for r in rows):
        return "Every job ran on one node, so the trace cannot show an effect of spreading."
    return None


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


@chart("locality/delay_by_spread")
def delay_by_spread_chart(rows: list[Row]) -> list[Panel]:
    """Draw median and 90th percentile of the first wait by number of nodes."""
    import altair as alt

    known = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    paper = [r for r in known if r["gpu_class"] in _CLASSES]
    shown = paper if len({r["node_count"] for r in paper}) >= 2 else known
    counts = sorted({r["node_count"] for r in shown})
    if not counts:
        return []
    # Wide jobs are few and of many widths; the commonest widths carry the picture.
    jobs = {n: sum(r["jobs"] for r in shown if r["node_count"] == n) for n in counts}
    kept = sorted(sorted(counts, key=lambda n: (-jobs[n], n))[:NODE_COUNTS])
    shown = [{**r, "nodes": str(r["node_count"])} for r in shown if r["node_count"] in kept]
    colours = class_colours(r["gpu_class"] for r in shown)
    values = axis_values(shown, ["p50_s", "p90_s"])
    drawn = ranges(
        shown,
        y=category("nodes", [str(n) for n in kept], "nodes of the job"),
        wide=("p50_s", "p90_s"),
        dot="p50_s",
        scale=time_scale(values),
        axis=time_axis("wait before the first start (log scale)", values),
        more={
            "yOffset": alt.YOffset("gpu_class:N", scale=alt.Scale(domain=list(colours))),
            "color": alt.Color("gpu_class:N", scale=palette(colours)),
        },
        tooltip=[alt.Tooltip("nodes:N"), *time_tooltips("gpu_class", "GPUs", "jobs", ["p50_s", "p90_s"])],
        sizes=(3, 3),
    ).properties(height=height(len(kept), 13 * len(colours) + 10))
    note = "Dot: median wait. Line: up to the 90th percentile."
    if len(kept) < len(counts):
        note += f" Drawn: the {len(kept)} commonest numbers of nodes; {len(counts) - len(kept)} more in the table."
    return [Panel(drawn, class_legend(colours), note=note)]
