"""Charts that show several traces together, with one colour per trace.

For queries by size class, hour or share, the result's columns determine the chart, so a new query with the same columns
needs no code here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import Axis, axis_values, durations, hours, names, share
from tracekit.report.charts import (
    GPU_CLASSES,
    STATUSES,
    Chart,
    Hues,
    Tip,
    bar,
    dot,
    line,
    size_hues,
    stack,
    status_hues,
)
from tracekit.report.line_labels import named_in_last
from tracekit.report.spreads import ranges
from tracekit.report.theme import colour
from tracekit.schema import UNSUCCESSFUL
from tracekit.text import duration, labels, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracekit.answer import Row
    from tracekit.report.compare import ComparedAnswer

    Draws = Callable[[list[Row], Hues], list[Chart]]

_POINTS = 200
"""Maximum number of points per line. More cannot be distinguished."""
_HEIGHT = 220
_LAST_HOUR = 23
_PALETTE = ("series-1", "series-2", "series-3", "series-4", "series-5", "status-node_fail", "status-out_of_memory")


def trace_hues(traces: Iterable[str]) -> Hues:
    """Return the colour of each trace by its short label. From the eighth trace on, colours repeat."""
    shades = {label: colour(_PALETTE[i % len(_PALETTE)]) for i, label in enumerate(labels(traces).values())}
    return Hues("trace", shades)


def _those_in(rows: Iterable[Row], by: Hues) -> Hues:
    """Return the colours of the traces that have rows."""
    have = {row["trace"] for row in rows}
    return replace(by, colours={name: shade for name, shade in by.colours.items() if name in have})


def compare_charts(answer: ComparedAnswer, traces: Sequence[str]) -> list[Chart]:
    """Return the charts of one question, or none if no chart fits the columns of its result."""
    short = labels(traces)
    rows = [
        {**row["key"], **values, "trace": short[name]}
        for row in answer["rows"]
        for name, values in row["values"].items()
        if values is not None
    ]
    if not rows or "time" in rows[0]:
        return []
    draw = _DRAWS.get(answer["name"]) or _by_shape({c["name"] for c in answer["keys"]}, set(rows[0]))
    return draw(rows, _those_in(rows, trace_hues(traces))) if draw else []


def _by_shape(keys: set[str], columns: set[str]) -> Draws | None:
    """Return the chart for a result with these columns."""
    if keys == {"gpu_class"} and {"p50_s", "p90_s"} <= columns:
        return _durations
    if keys == {"gpu_class"} and any(c.endswith("_share") for c in columns):
        return _shares_by_class
    if keys == {"resource"} and {"p50_pct", "p95_pct"} <= columns:
        return _percentages
    return None


def _arrivals(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw each trace's share of jobs by hour of the day."""
    total: dict[str, int] = {}
    for row in rows:
        total[row["trace"]] = total.get(row["trace"], 0) + row["jobs"]
    shown = [
        {"trace": r["trace"], "hour": r["hour"], "share": r["jobs"] / total[r["trace"]]}
        for r in rows
        if total[r["trace"]]
    ]
    y, note = share("share", "share of jobs"), "Hours are in the time zone of each trace."
    chart = Chart(shown, x=hours(), y=y, marks=[line()], height=_HEIGHT, by=by, note=note)
    return [named_in_last(chart, _LAST_HOUR, "trace")] if shown else []


def _allocated(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the share of GPUs allocated by hour, with one line per cluster."""
    shown = [{k: r[k] for k in ("trace", "cluster", "hour", "allocated_share")} for r in rows]
    shown = [r for r in shown if r["allocated_share"] is not None]
    each = replace(line(), channels={"detail": {"field": "cluster", "type": "nominal"}})
    y, note, have = share("allocated_share", "GPUs allocated"), "One line per cluster.", _those_in(shown, by)
    chart = Chart(shown, x=hours(), y=y, marks=[each], height=_HEIGHT, by=have, note=note)
    return [named_in_last(chart, _LAST_HOUR, "trace")] if shown else []


def _concentration(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the share of GPU time of the heaviest users."""
    shown: list[Row] = []
    for name in by.colours:
        own = sorted(
            (r for r in rows if r["trace"] == name and r["gpu_time_share"] is not None), key=lambda r: r["user_share"]
        )
        step = max(1, len(own) // _POINTS)
        kept = [*own[::step], *own[-1:]]
        shown += [{"trace": name, "users": 0, "share": 0}] if kept else []
        shown += [{"trace": name, "users": r["user_share"], "share": r["gpu_time_share"]} for r in kept]
    x, y = share("users", "users, heaviest first", whole=True), share("share", "share of GPU time", whole=True)
    chart = Chart(shown, x=x, y=y, marks=[line()], height=_HEIGHT, by=_those_in(shown, by))
    return [chart] if shown else []


def _requests(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the cumulative share of GPU jobs by requested GPUs."""
    shown: list[Row] = []
    for name in by.colours:
        own = sorted((r for r in rows if r["trace"] == name and r["gpu_count"] > 0), key=lambda r: r["gpu_count"])
        total, sofar = sum(r["jobs"] for r in own), 0
        for row in own:
            sofar += row["jobs"]
            shown.append({"trace": name, "gpus": row["gpu_count"], "share": sofar / total})
    title, scale = "GPUs of the job (log scale)", {"type": "log", "base": 2}
    x = Axis("gpus", title, scale=scale, labels={"labelOverlap": "greedy"})
    y, mark = share("share", "GPU jobs up to this size", whole=True), line(interpolate="step-after")
    chart = Chart(shown, x=x, y=y, marks=[mark], height=_HEIGHT, by=_those_in(shown, by))
    return [chart] if shown else []


def _statuses(rows: list[Row], by: Hues) -> list[Chart]:
    rows = [{**r, "part": r["status"] or "unknown"} for r in rows]
    return _stacked(rows, by, status_hues(rows, "part"), STATUSES, "status")


def _sizes(rows: list[Row], by: Hues) -> list[Chart]:
    rows = [{**r, "part": r["gpu_class"] or "unknown"} for r in rows]
    sizes = size_hues(rows, "part")
    if any(r["part"] == "unknown" for r in rows):
        grey, words = {"unknown": colour("status-unknown")}, {"unknown": "unknown size"}
        sizes = Hues("part", {**sizes.colours, **grey}, {**sizes.words, **words})
    return _stacked(rows, by, sizes, (*GPU_CLASSES, "unknown"), "GPUs")


def _stacked(rows: list[Row], by: Hues, parts: Hues, order: Sequence[str], title: str) -> list[Chart]:
    """Draw stacked shares of jobs next to those of GPU time, with one bar per trace."""
    charts = []
    for column, words in (("jobs_share", "Share of jobs"), ("gpu_hours_share", "Share of GPU time")):
        known = [
            {**r, "order": order.index(r["part"])}
            for r in rows
            if r.get(column) is not None and r["part"] in parts.colours
        ]
        traces = list(_those_in(known, by).colours)
        chart = Chart(
            known,
            x=share(column, "share of the total", whole=True, stacked=True),
            y=names("trace", traces, step=32),
            marks=[stack(20)],
            by=parts,
            tips=[Tip("trace"), Tip("part", title), Tip(column, "share", ".1%")],
            title=words,
        )
        charts += [chart] if known else []
    return charts


def _grouped(rows: list[Row], by: Hues, column: str, words: str) -> Chart:
    """Return bars for shares [0..1], one per size class and trace."""
    have = {r["gpu_class"] for r in rows}
    classes = [c for c in GPU_CLASSES if c in have]
    known = [r for r in rows if r.get(column) is not None and r["gpu_class"] in classes]
    return Chart(
        known,
        # Without any bars, the axis would have no length.
        x=share(column, words, whole=not any(r[column] for r in known)),
        y=names("gpu_class", classes, "GPUs of the job", step=11 * len(by.colours) + 10),
        marks=[bar(9)],
        by=by,
        apart=True,
        tips=[Tip("trace"), Tip("gpu_class", "GPUs of the job"), Tip(column, "share", ".1%")],
    )


def _shares_by_class(rows: list[Row], by: Hues) -> list[Chart]:
    columns = [c for c in rows[0] if c.endswith("_share") and any(r.get(c) is not None for r in rows)]
    charts = []
    for column in columns[:2]:
        words = column.removesuffix("_share").replace("_", " ")
        chart = _grouped(rows, by, column, words if words.endswith("share") else f"{words} share")
        charts.append(replace(chart, title=f"{words[0].upper()}{words[1:]}" if len(columns) > 1 else ""))
    return charts


def _failures_by_class(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the share of unsuccessful jobs by size, among jobs with a known status."""
    total: dict[tuple[str, str], int] = {}
    failed: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["gpu_class"] is not None and row["status"] not in (None, "unknown"):
            place = (row["trace"], row["gpu_class"])
            total[place] = total.get(place, 0) + row["jobs"]
            failed[place] = failed.get(place, 0) + (row["jobs"] if row["status"] in UNSUCCESSFUL else 0)
    shown = [{"trace": t, "gpu_class": c, "share": failed[t, c] / n} for (t, c), n in total.items() if n]
    note = "Jobs that failed, timed out, lost a node or ran out of memory, of those with a known status."
    return [replace(_grouped(shown, by, "share", "share of jobs that failed"), note=note)] if shown else []


def _durations(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw percentiles of a duration by size class, with one line per trace."""
    shown = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    if not shown:
        return []
    classes = [c for c in GPU_CLASSES if c in {r["gpu_class"] for r in shown}]
    full = "p10_s" in shown[0]
    ends = ("p10_s", "p90_s") if full else ("p50_s", "p90_s")
    number = next((c for c in ("jobs", "waits", "failures") if c in shown[0]), "jobs")
    chart = ranges(
        shown,
        y=names("gpu_class", classes, "GPUs of the job", step=14 * len(by.colours) + 10),
        wide=ends,
        narrow=("p25_s", "p75_s") if full else None,
        title="time (log scale)",
        by=by,
        apart=True,
        tips=[Tip("trace"), Tip("gpu_class", "GPUs"), Tip(number, "", ",")],
        sizes=(2, 6),
        note="Dot: median. Thick line: middle half. Thin line: 10th to 90th percentile."
        if full
        else "Dot: median. Line: up to the 90th percentile.",
    )
    return [chart]


def _waits(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the median wait by size class, with one dot per tenant."""
    shown = [
        {**r, "median": duration(r["p50_s"]), "tenant": shorten(r["vc"] or "none", 30)}
        for r in rows
        if r["gpu_class"] is not None and r["p50_s"] is not None
    ]
    classes = [c for c in GPU_CLASSES if c in {r["gpu_class"] for r in shown}]
    size = {"field": "waits", "type": "quantitative", "scale": {"type": "sqrt", "range": [12, 220]}}
    chart = Chart(
        shown,
        x=durations("p50_s", "median wait (log scale)", axis_values(shown, ["p50_s"])),
        y=names("gpu_class", classes, "GPUs of the job", step=16 * len(by.colours) + 10),
        marks=[replace(dot(opacity=0.75), channels={"size": size})],
        by=by,
        apart=True,
        tips=[Tip("trace"), Tip("tenant"), Tip("gpu_class", "GPUs"), Tip("waits", "", ","), Tip("median", "median")],
        note="One dot per tenant. Larger dots have more waits.",
    )
    return [chart] if shown else []


def _percentages(rows: list[Row], by: Hues) -> list[Chart]:
    """Draw the utilization of each resource, from the median to the 95th percentile."""
    shown = [r for r in rows if r["p50_pct"] is not None]
    chart = ranges(
        shown,
        y=names("resource", list(dict.fromkeys(r["resource"] for r in shown)), step=14 * len(by.colours) + 14),
        wide=("p50_pct", "p95_pct"),
        title="use (%)",
        by=by,
        apart=True,
        tips=[Tip("trace"), Tip("resource"), Tip("samples", "", ",")],
        sizes=(3, 3),
        note="Dot: median. Line: up to the 95th percentile.",
    )
    return [chart] if shown else []


_DRAWS: dict[str, Draws] = {
    "overview/status": _statuses,
    "overview/job_size": _sizes,
    "overview/arrivals_by_hour": _arrivals,
    "queuing/queue_delay": _waits,
    "failures/status_by_size": _failures_by_class,
    "users/concentration": _concentration,
    "utilization/cluster_by_hour": _allocated,
    "workload/gpu_request": _requests,
}
