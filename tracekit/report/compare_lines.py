"""Charts of lines that show several traces together: through the day, over users, over sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.report.axes import hour_axis
from tracekit.report.charts import Panel, data, palette, percent_axis
from tracekit.report.line_labels import LineEnd, end_labels, named_at_ends, nice_top

if TYPE_CHECKING:
    from tracekit.answer import Row

__all__ = ["allocated", "arrivals", "concentration", "requests"]

_POINTS = 200
"""Most points of one line; more cannot be distinguished."""


_HEIGHT = 220
_LAST_HOUR = 23


def _line(rows: list[Row], colours: dict[str, str], *, x: alt.X, y: alt.Y, detail: str | None = None) -> Panel:
    encodings: dict[str, Any] = {"x": x, "y": y, "color": alt.Color("trace:N", scale=palette(colours))}
    if detail is not None:
        encodings["detail"] = alt.Detail(f"{detail}:N")
    drawn = alt.Chart(data(rows)).mark_line(strokeWidth=2).encode(**encodings).properties(height=_HEIGHT)
    return Panel(drawn, tuple(colours.items()))


def _with_names(panel: Panel, rows: list[Row], colours: dict[str, str], column: str, y: alt.Y) -> Panel:
    """Return lines through the day with their names at the last hour, where each trace has one line."""
    last = [r for r in rows if r["hour"] == _LAST_HOUR]
    names = {r["trace"] for r in rows}
    if len(last) != len(names) or {r["trace"] for r in last} != names or not isinstance(panel.chart, alt.Chart):
        return panel
    ends = [LineEnd(r["trace"], r[column], colours[r["trace"]], {"trace": r["trace"]}) for r in last]
    top = nice_top(max(r[column] for r in rows), y["axis"]["tickCount"])
    drawn, at_ends = named_at_ends(panel.chart, end_labels(ends, top=top, height=_HEIGHT, axis=y))
    return replace(panel, chart=drawn, ends=at_ends)


def arrivals(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the share of a trace's jobs that each hour of the day has."""
    total: dict[str, int] = {}
    for row in rows:
        total[row["trace"]] = total.get(row["trace"], 0) + row["jobs"]
    shown = [
        {"trace": r["trace"], "hour": r["hour"], "share": r["jobs"] / total[r["trace"]]}
        for r in rows
        if total[r["trace"]]
    ]
    if not shown:
        return []
    y = alt.Y("share:Q", axis=percent_axis("share of jobs"), scale=alt.Scale(domainMin=0))
    panel = _line(shown, colours, x=alt.X("hour:Q", axis=hour_axis(), scale=alt.Scale(domain=[0, 23])), y=y)
    panel = replace(panel, note="Each in the time zone of its trace.")
    return [_with_names(panel, shown, colours, "share", y)]


def allocated(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the share of GPUs allocated by hour, one line a cluster."""
    shown = [{k: r[k] for k in ("trace", "cluster", "hour", "allocated_share")} for r in rows]
    shown = [r for r in shown if r["allocated_share"] is not None]
    if not shown:
        return []
    y = alt.Y("allocated_share:Q", axis=percent_axis("GPUs allocated"), scale=alt.Scale(domainMin=0))
    have = {n: c for n, c in colours.items() if any(r["trace"] == n for r in shown)}
    x = alt.X("hour:Q", axis=hour_axis(), scale=alt.Scale(domain=[0, 23]))
    panel = replace(_line(shown, have, x=x, y=y, detail="cluster"), note="One line is a cluster.")
    return [_with_names(panel, shown, have, "allocated_share", y)]


def concentration(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw how much of the GPU time the heaviest users take."""
    shown: list[Row] = []
    for name in colours:
        own = sorted(
            (r for r in rows if r["trace"] == name and r["gpu_time_share"] is not None), key=lambda r: r["user_share"]
        )
        step = max(1, len(own) // _POINTS)
        kept = [*own[::step], *own[-1:]]
        shown += [{"trace": name, "users": 0, "share": 0}] if kept else []
        shown += [{"trace": name, "users": r["user_share"], "share": r["gpu_time_share"]} for r in kept]
    whole = alt.Scale(domain=[0, 1])
    panel = _line(
        shown,
        {n: c for n, c in colours.items() if any(r["trace"] == n for r in shown)},
        x=alt.X("users:Q", axis=percent_axis("users, heaviest first"), scale=whole),
        y=alt.Y("share:Q", axis=percent_axis("share of GPU time"), scale=whole),
    )
    return [panel] if shown else []


def requests(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the share of GPU jobs that ask for at most so many GPUs."""
    shown: list[Row] = []
    for name in colours:
        own = sorted((r for r in rows if r["trace"] == name and r["gpu_count"] > 0), key=lambda r: r["gpu_count"])
        total, sofar = sum(r["jobs"] for r in own), 0
        for row in own:
            sofar += row["jobs"]
            shown.append({"trace": name, "gpus": row["gpu_count"], "share": sofar / total})
    if not shown:
        return []
    drawn = (
        alt.Chart(data(shown))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "gpus:Q",
                scale=alt.Scale(type="log", base=2),
                axis=alt.Axis(title="GPUs of the job (log scale)", labelOverlap="greedy"),
            ),
            y=alt.Y("share:Q", axis=percent_axis("GPU jobs up to that size"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("trace:N", scale=palette(colours)),
        )
        .properties(height=220)
    )
    have = {r["trace"] for r in shown}
    return [Panel(drawn, tuple((n, c) for n, c in colours.items() if n in have))]
