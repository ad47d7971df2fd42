"""Charts that show several traces together, one colour a trace.

Queries that ask the same of size classes, of hours or of shares get their chart from the shape of the result, so that
a new query of that shape needs nothing here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.report.axes import hour_axis
from tracekit.report.charts import (
    GPU_CLASSES,
    STATUSES,
    Panel,
    axis_values,
    category,
    class_colours,
    class_legend,
    data,
    height,
    palette,
    percent_axis,
    ranges,
    status_colours,
    status_legend,
    time_axis,
    time_scale,
    time_tooltips,
)
from tracekit.report.line_labels import LineEnd, end_labels, named_at_ends, nice_top
from tracekit.report.theme import colour
from tracekit.schema import UNSUCCESSFUL
from tracekit.text import labels

if TYPE_CHECKING:
    from tracekit.answer import Row


# Charts of lines that show several traces together: through the day, over users, over sizes.

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


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracekit.answer import Row
    from tracekit.report.compare_structure import ComparedAnswer

    Draws = Callable[[list[Row], dict[str, str]], list[Panel]]

_PALETTE = ("series-1", "series-2", "series-3", "series-4", "series-5", "status-node_fail", "status-out_of_memory")


def trace_colours(names: Iterable[str]) -> dict[str, str]:
    """Return the colour of each trace by its short label; from the eighth trace on colours repeat."""
    return {label: colour(_PALETTE[i % len(_PALETTE)]) for i, label in enumerate(labels(names).values())}


def compare_panels(answer: ComparedAnswer, names: Sequence[str]) -> list[Panel]:
    """Return the charts of one question; none when its result has no shape that a chart is known for."""
    short = labels(names)
    rows = [
        {**row["key"], **values, "trace": short[name]}
        for row in answer["rows"]
        for name, values in row["values"].items()
        if values is not None
    ]
    if not rows or "time" in rows[0]:
        return []
    answered = {row["trace"] for row in rows}
    colours = {name: shade for name, shade in trace_colours(names).items() if name in answered}
    draw = _DRAWS.get(answer["name"]) or _by_shape({c["name"] for c in answer["keys"]}, set(rows[0]))
    return draw(rows, colours) if draw else []


def _by_shape(keys: set[str], columns: set[str]) -> Draws | None:
    """Return the chart for a result with these columns."""
    if keys == {"gpu_class"} and {"p50_s", "p90_s"} <= columns:
        return _durations
    if keys == {"gpu_class"} and any(c.endswith("_share") for c in columns):
        return _shares_by_class
    if keys == {"resource"} and {"p50_pct", "p95_pct"} <= columns:
        return _percentages
    return None


def _stacked(kind: str, order: Sequence[str], colour_of: Callable[[Iterable[str]], dict[str, str]]) -> Draws:
    """Return the chart of shares that make up a whole, one bar a trace; jobs beside GPU time."""

    def draw(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
        place = {value: i for i, value in enumerate(order)}
        shown = [{**r, "part": r[kind] or "unknown"} for r in rows]
        shades = colour_of(r["part"] for r in shown)
        if any(r["part"] == "unknown" and "unknown" not in shades for r in shown):
            shades["unknown"] = colour("status-unknown")  # a job of unknown size
        panels = []
        sizes = class_legend({c: v for c, v in shades.items() if c != "unknown"})
        legend = status_legend(shades) if kind == "status" else sizes
        if kind != "status" and "unknown" in shades:
            legend = (*sizes, ("unknown size", shades["unknown"]))
        for column, words in (("jobs_share", "Share of jobs"), ("gpu_hours_share", "Share of GPU time")):
            known = [
                {**r, "order": place.get(r["part"], len(place))}
                for r in shown
                if r.get(column) is not None and r["part"] in shades
            ]
            if not known:
                continue
            have = {r["trace"] for r in known}
            drawn = (
                alt.Chart(data(known))
                .mark_bar(height=20, stroke=colour("paper"), strokeWidth=1)
                .encode(
                    y=category("trace", [n for n in colours if n in have], None),
                    x=alt.X(
                        f"{column}:Q",
                        stack="zero",
                        scale=alt.Scale(domain=[0, 1]),
                        axis=percent_axis("share of the total"),
                    ),
                    color=alt.Color("part:N", scale=palette(shades)),
                    order=alt.Order("order:Q"),
                    tooltip=[
                        alt.Tooltip("trace:N"),
                        alt.Tooltip("part:N", title=kind.replace("gpu_class", "GPUs")),
                        alt.Tooltip(f"{column}:Q", title="share", format=".1%"),
                    ],
                )
                .properties(height=height(len(have), 32))
            )
            panels.append(Panel(drawn, legend, title=words))
        return panels

    return draw


def _grouped(
    rows: list[Row], colours: dict[str, str], *, key: str, values: Sequence[str], title: str, column: str, words: str
) -> Panel:
    """Return bars, one a category and trace, for shares [0..1]."""
    known = [r for r in rows if r.get(column) is not None and r[key] in values]
    # Without any bar the axis would have no length.
    scale = alt.Scale(domainMin=0, nice=True) if any(r[column] for r in known) else alt.Scale(domain=[0, 1])
    drawn = (
        alt.Chart(data(known))
        .mark_bar(height=9)
        .encode(
            y=category(key, values, title),
            yOffset=alt.YOffset("trace:N", scale=alt.Scale(domain=list(colours))),
            x=alt.X(f"{column}:Q", axis=percent_axis(words), scale=scale),
            color=alt.Color("trace:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("trace:N"),
                alt.Tooltip(f"{key}:N", title=title),
                alt.Tooltip(f"{column}:Q", title="share", format=".1%"),
            ],
        )
        .properties(height=height(len(values), 11 * len(colours) + 10))
    )
    return Panel(drawn, tuple(colours.items()))


def _shares_by_class(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    have = {r["gpu_class"] for r in rows}
    columns = [c for c in rows[0] if c.endswith("_share") and any(r.get(c) is not None for r in rows)]
    classes = [c for c in GPU_CLASSES if c in have]
    panels = []
    for column in columns[:2]:
        words = column.removesuffix("_share").replace("_", " ")
        panel = _grouped(
            rows,
            colours,
            key="gpu_class",
            values=classes,
            title="GPUs of the job",
            column=column,
            words=words if words.endswith("share") else f"{words} share",
        )
        panels.append(
            Panel(panel.chart, panel.legend, title=f"{words[0].upper()}{words[1:]}" if len(columns) > 1 else "")
        )
    return panels


def _failures_by_class(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the share of unsuccessful jobs among those of a size whose status is known."""
    total: dict[tuple[str, str], int] = {}
    failed: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["gpu_class"] is not None and row["status"] not in (None, "unknown"):
            place = (row["trace"], row["gpu_class"])
            total[place] = total.get(place, 0) + row["jobs"]
            failed[place] = failed.get(place, 0) + (row["jobs"] if row["status"] in UNSUCCESSFUL else 0)
    shown = [{"trace": t, "gpu_class": c, "share": failed[t, c] / n} for (t, c), n in total.items() if n]
    have = {r["gpu_class"] for r in shown}
    if not shown:
        return []
    panel = _grouped(
        shown,
        colours,
        key="gpu_class",
        values=[c for c in GPU_CLASSES if c in have],
        title="GPUs of the job",
        column="share",
        words="share of jobs that failed",
    )
    note = "Failed, timed out, lost a node or ran out of memory, of the jobs with a known status."
    return [Panel(panel.chart, panel.legend, note=note)]


def _durations(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw percentiles of a time by size class, one line a trace."""
    shown = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    if not shown:
        return []
    have = {r["gpu_class"] for r in shown}
    full = "p10_s" in shown[0]
    ends = ("p10_s", "p90_s") if full else ("p50_s", "p90_s")
    number = next((c for c in ("jobs", "waits", "failures") if c in shown[0]), "jobs")
    classes = [c for c in GPU_CLASSES if c in have]
    drawn = ranges(
        shown,
        y=category("gpu_class", classes, "GPUs of the job"),
        wide=ends,
        narrow=("p25_s", "p75_s") if full else None,
        title="time (log scale)",
        by="trace",
        colours=colours,
        apart=True,
        tooltip=[alt.Tooltip("trace:N"), *time_tooltips("gpu_class", "GPUs", number, [ends[0], "p50_s", "p90_s"])],
        sizes=(2, 6),
    ).properties(height=height(len(classes), 14 * len(colours) + 10))
    note = (
        "Dot: median. Thick line: middle half. Thin line: 10th to 90th percentile."
        if full
        else "Dot: median. Line: up to the 90th percentile."
    )
    return [Panel(drawn, tuple(colours.items()), note=note)]


def _waits(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the median wait of each tenant by size class, one dot a tenant."""
    from tracekit.text import duration, shorten

    shown = [
        {**r, "median": duration(r["p50_s"]), "tenant": shorten(r["vc"] or "none", 30)}
        for r in rows
        if r["gpu_class"] is not None and r["p50_s"] is not None
    ]
    have = {r["gpu_class"] for r in shown}
    if not shown:
        return []
    values = axis_values(shown, ["p50_s"])
    classes = [c for c in GPU_CLASSES if c in have]
    drawn = (
        alt.Chart(data(shown))
        .mark_point(filled=True, opacity=0.75)
        .encode(
            y=category("gpu_class", classes, "GPUs of the job"),
            yOffset=alt.YOffset("trace:N", scale=alt.Scale(domain=list(colours))),
            x=alt.X("p50_s:Q", scale=time_scale(values), axis=time_axis("median wait (log scale)", values)),
            size=alt.Size("waits:Q", scale=alt.Scale(type="sqrt", range=[12, 220])),
            color=alt.Color("trace:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("trace:N"),
                alt.Tooltip("tenant:N"),
                alt.Tooltip("gpu_class:N", title="GPUs"),
                alt.Tooltip("waits:Q", format=","),
                alt.Tooltip("median:N", title="median"),
            ],
        )
        .properties(height=height(len(classes), 16 * len(colours) + 10))
    )
    return [Panel(drawn, tuple(colours.items()), note="One dot is a tenant, larger with more waits.")]


def _percentages(rows: list[Row], colours: dict[str, str]) -> list[Panel]:
    """Draw the use of each resource, from the median to the 95th percentile."""
    shown = [r for r in rows if r["p50_pct"] is not None]
    if not shown:
        return []
    values = list(dict.fromkeys(r["resource"] for r in shown))
    drawn = ranges(
        shown,
        y=category("resource", values, None),
        wide=("p50_pct", "p95_pct"),
        title="use (%)",
        by="trace",
        colours=colours,
        apart=True,
        tooltip=[
            alt.Tooltip("trace:N"),
            alt.Tooltip("resource:N"),
            alt.Tooltip("samples:Q", format=","),
            alt.Tooltip("p50_pct:Q", title="median (%)", format=".1f"),
            alt.Tooltip("p95_pct:Q", title="95th percentile (%)", format=".1f"),
        ],
        sizes=(3, 3),
    ).properties(height=height(len(values), 14 * len(colours) + 14))
    return [Panel(drawn, tuple(colours.items()), note="Dot: median. Line: up to the 95th percentile.")]


_DRAWS: dict[str, Draws] = {
    "overview/status": _stacked("status", STATUSES, status_colours),
    "overview/job_size": _stacked("gpu_class", GPU_CLASSES, class_colours),
    "overview/arrivals_by_hour": arrivals,
    "queuing/queue_delay": _waits,
    "failures/status_by_size": _failures_by_class,
    "users/concentration": concentration,
    "utilization/cluster_by_hour": allocated,
    "workload/gpu_request": requests,
}
