"""Plots of replays and plans: policies side by side, trade-offs, waits compared with the log, and waits by nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.report.axes import Axis, axis_values, dates, durations, names, number, share
from tracekit.report.charts import Chart, Hues, Mark, Tip, band, dot, line, series, whisker
from tracekit.report.pictures import side_by_side, svg
from tracekit.report.theme import colour
from tracekit.text import counted, duration, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.calibration.fidelity import Fidelity

_WIDTH = 420
_DASHED = {"strokeDash": [4, 3], "opacity": 0.8, "color": colour("muted")}


def comparison_svg(compared: pl.DataFrame) -> str:
    """Return two plots side by side: mean and 99th percentile of JCT and of queueing, by policy and in the log.

    `compared` is the result of `beside_record`.
    """
    rows = [{**row, "policy": shorten(str(row["policy"]))} for row in compared.iter_rows(named=True)]
    charts = [
        _spans(rows, ("avg_jct_s", "p99_jct_s"), "job completion time: mean (dot) to 99th percentile"),
        _spans(rows, ("avg_queue_s", "p99_queue_s"), "queueing: mean (dot) to 99th percentile"),
    ]
    return svg(side_by_side(charts, _WIDTH))


def _spans(rows: list[Row], ends: tuple[str, str], title: str) -> Chart:
    known = [{key: row[key] for key in ("policy", *ends)} for row in rows if row[ends[0]] is not None]
    x, policies = durations(ends[0], title, axis_values(known, ends)), [row["policy"] for row in rows]
    # The log's own schedule is not a policy, so it has its own colour.
    grey = {"test": {"field": "policy", "equal": RECORDED}, "value": colour("muted")}
    hue = {"color": {"condition": grey, "value": colour("series-1")}}
    marks = [replace(mark, channels=hue) for mark in (whisker(x, ends[1], opacity=0.7), dot(size=70))]
    return Chart(known, x=x, y=names("policy", policies, step=24), marks=marks)


def tradeoff_svg(runs: pl.DataFrame) -> str:
    """Plot the trade-offs of a sweep: mean JCT against utilization, 95th percentile of queueing, and fairness.

    For runs in a twin, a dashed line shows the mean JCT in the log. Failed runs are left out.
    """
    columns = ("avg_jct_s", "gpu_utilization_share", "p95_queue_s", "jain_fairness_vc")
    rows = [
        {**{c: row[c] for c in columns}, "policy": shorten(str(row["policy"]))}
        for row in runs.iter_rows(named=True)
        if row["avg_jct_s"] is not None
    ]
    recorded = _recorded_means(runs)
    x = durations("avg_jct_s", "mean job completion time", axis_values([*rows, *recorded], ("avg_jct_s",)))
    free = {"zero": False, "nice": 5}
    ys = (
        replace(share("gpu_utilization_share", "GPUs busy"), scale=free),
        durations("p95_queue_s", "queueing, 95th percentile", axis_values(rows, ("p95_queue_s",))),
        number("jain_fairness_vc", "fairness between VCs (Jain)", scale=free),
    )
    by = {"color": {"field": "policy", "type": "nominal"}}
    points = replace(dot(opacity=0.85), channels=by, tips=[Tip("policy"), Tip("avg_jct_s", "", ",.0f")])
    marks = [*(mark for k, row in enumerate(recorded) for mark in _by_log(row, 8 + 12 * k)), points]
    return svg(side_by_side([Chart(rows, x=x, y=y, marks=marks, height=260) for y in ys], 300))


def _by_log(row: Row, place: float) -> list[Mark]:
    """Return a vertical line at a mean from the log, with its label `place` pixels from the top."""
    label = {"y": {"value": place}, "text": {"field": "label", "type": "nominal"}}
    text = {"align": "left", "dx": 4, "color": colour("muted")}
    return [Mark("rule", _DASHED, on="x", rows=[row]), Mark("text", text, on="x", rows=[row], channels=label)]


def _recorded_means(runs: pl.DataFrame) -> list[Row]:
    """Return the mean JCT in the log, with a label, for each cluster that was replayed in its twin."""
    own = runs.filter((pl.col("policy") == TWIN) & pl.col("recorded_jct_s").is_not_null())
    rows = own.unique(["trace", "cluster_name"], keep="first", maintain_order=True).to_dicts()
    clusters = [shorten(" ".join(filter(None, (row["trace"], row["cluster_name"])))) for row in rows]
    labels = ["recorded"] if len(rows) == 1 else [f"recorded: {name}" for name in clusters]
    return [{"avg_jct_s": row["recorded_jct_s"], "label": label} for row, label in zip(rows, labels, strict=True)]


_BOTH = ("recorded", "replayed")


def fidelity_pictures(found: Fidelity) -> dict[str, str]:
    """Plot a replay next to its log, by file name: quantiles of the wait, and the queue over time."""
    by, through = series("what", _BOTH), line(1.5, interpolate="step-after")
    values = axis_values(found.quantiles.iter_rows(named=True), [f"{what}_s" for what in _BOTH])
    quantiles = [
        Chart(
            [
                {"quantile": row["quantile"], "s": row[f"{what}_s"], "what": what}
                for row in part.iter_rows(named=True)
                for what in _BOTH
            ],
            x=share("quantile", "jobs that waited at most this long", whole=True),
            y=durations("s", "queueing", values),
            marks=[through],
            height=200,
            by=by,
            title="all jobs" if scope == "all" else f"{name} GPUs",
        )
        for (scope, name), part in found.quantiles.group_by("scope", "name", maintain_order=True)
    ]
    moments = found.queue["time"].dt.replace_time_zone("UTC")
    time = dates("time", moments[0], moments[-1])
    queue = Chart(
        [
            {"time": int(when.timestamp() * 1000), "gpus": row[f"{what}_gpus"], "what": what}
            for when, row in zip(moments, found.queue.iter_rows(named=True), strict=True)
            for what in _BOTH
        ],
        x=replace(time, scale={**time.scale, "nice": False}),
        y=number("gpus", "GPUs that waiting jobs request"),
        marks=[through],
        height=240,
        by=by,
    )
    pictures = {
        "quantiles.svg": side_by_side(quantiles, 260, columns=3),
        "queue.svg": side_by_side([queue], 2 * _WIDTH),
    }
    return {name: svg(picture) for name, picture in pictures.items()}


_METRICS = {"mean": "mean wait", "p50": "median wait", "p90": "90th percentile of the wait", "p99": "99th percentile"}
_COLOURS = 5
"""Number of line colours. Further lines repeat the colours."""


def plan_svg(facts: Mapping[str, Any]) -> str:
    """Plot waits by node count, with one line and interval per policy and load.

    The wait is the target's metric or, if there is no target, the 90th percentile.

    Parameters
    ----------
    facts : mapping
        The content of plan.json.
    """
    target, recorded = facts["target"], facts["recorded"]
    metric = "p90" if target is None else target["metric"]
    columns = {"s": f"{metric}_wait_s", "low": f"{metric}_wait_low_s", "high": f"{metric}_wait_high_s"}
    rows = [
        {"nodes": row["nodes"], **{new: row[column] for new, column in columns.items()}, "what": _label(row)}
        for row in facts["capacity"]
    ]
    rows = [row for row in rows if row["s"] is not None]
    log = {"nodes": recorded["nodes"], "s": recorded[f"{metric}_wait_s"], "words": "recorded"}
    limit = [] if target is None else [{"s": target["limit_s"], "words": f"target {duration(target['limit_s'])}"}]
    today = [
        Mark("point", {"filled": True, "shape": "diamond", "size": 110, "color": colour("ink")}, rows=[log]),
        Mark("text", {"align": "left", "dx": 9, "color": colour("ink")}, rows=[log], channels=_WORDS),
    ]
    chart = _with_band(
        rows,
        x=Axis("nodes", "nodes", scale={"zero": False}, labels={"format": "d", "tickMinStep": 1}),
        y=durations("s", _METRICS[metric], axis_values([*rows, log, *limit], list(columns))),
        target=limit,
        more=today,
    )
    whose = "" if target is None else f", {target['for']}"
    return svg(side_by_side([chart], 520, title=f"{shorten(facts['cluster'], 30)}{whose}"))


def _label(row: Mapping[str, Any]) -> str:
    name = "the log's policy" if row["policy"] == "twin" else shorten(str(row["policy"]), 40)
    return name if row["growth"] == 1 else f"{name}, {row['growth']:g} times the jobs"


def spares_svg(facts: Mapping[str, Any]) -> str:
    """Plot a gang's share of useful time by number of spares, with one line and interval per kind of outages.

    Parameters
    ----------
    facts : mapping
        The content of plan.json.
    """
    kinds = {"recorded": "outages in the log", "model": "simulated outages"}
    columns = {"s": "ettr", "low": "ettr_low", "high": "ettr_high"}
    rows = [
        {
            "spares": row["spares"],
            **{new: 100 * row[column] for new, column in columns.items()},
            "what": kinds[row["outages"]],
        }
        for row in facts["spares"]
    ]
    asked = 100 * facts["target"]["ettr"]
    chart = _with_band(
        rows,
        x=Axis("spares", "spares", labels={"format": "d", "values": sorted({r["spares"] for r in rows})}),
        y=Axis("s", "useful time [%]", scale={"zero": False}),
        target=[{"s": asked, "words": f"target {asked:g} %"}],
    )
    return svg(side_by_side([chart], 520, title=f"a job on {counted(facts['gang']['nodes'], 'nodes')}"))


_WORDS = {"text": {"field": "words", "type": "nominal"}}


def _with_band(rows: list[Row], *, x: Axis, y: Axis, target: Sequence[Row], more: Sequence[Mark] = ()) -> Chart:
    """Draw one line per 'what' with its interval ('low' to 'high'), and the target as a dashed line."""
    hues = {what: colour(f"series-{i % _COLOURS + 1}") for i, what in enumerate(dict.fromkeys(r["what"] for r in rows))}
    marks = [band(y.of("low"), "high"), line(point=True)]
    if target:
        text = {"align": "left", "dx": 6, "color": colour("muted")}
        beside = {"x": {"value": "width"}, **_WORDS}
        marks.append(Mark("rule", _DASHED, on="y", rows=target))
        marks.append(Mark("text", text, on="y", rows=target, channels=beside))
    return Chart(rows, x=x, y=y, marks=[*marks, *more], height=300, by=Hues("what", hues))
