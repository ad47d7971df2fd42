"""Pictures of replays: policies side by side, the trade-offs of a sweep, predicted beside recorded waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import altair as alt
import polars as pl

from tracekit.replay.results.recorded_times import RECORDED, TWIN
from tracekit.report.axes import date_axis
from tracekit.report.charts import axis_values, category, data, height, palette, percent_axis, time_axis, time_scale
from tracekit.report.pictures import svg
from tracekit.report.theme import colour
from tracekit.text import shorten

if TYPE_CHECKING:
    from tracekit.calibration.fidelity import Fidelity

__all__ = ["comparison_svg", "fidelity_pictures", "tradeoff_svg"]

_WIDTH = 420


def comparison_svg(compared: pl.DataFrame) -> str:
    """Return two pictures side by side: mean and 99th percentile of JCT, and of queueing, by policy and by the log.

    `compared` is what `beside_record` returns.
    """
    rows = [{**row, "policy": shorten(str(row["policy"]))} for row in compared.iter_rows(named=True)]
    panels = [
        _spans(rows, ("avg_jct_s", "p99_jct_s"), "job completion time: mean (dot) to 99th percentile"),
        _spans(rows, ("avg_queue_s", "p99_queue_s"), "queueing: mean (dot) to 99th percentile"),
    ]
    return svg(alt.hconcat(*panels, spacing=30))


def _spans(rows: list[dict[str, Any]], ends: tuple[str, str], title: str) -> alt.LayerChart:
    names = [row["policy"] for row in rows]
    known = [{key: row[key] for key in ("policy", *ends)} for row in rows if row[ends[0]] is not None]
    values = axis_values(known, ends)
    x = alt.X(f"{ends[0]}:Q", scale=time_scale(values), axis=time_axis(title, values))
    base = alt.Chart(data(known)).encode(y=category("policy", names, None))
    # The log's own schedule is no policy: it stands beside them in a colour of its own.
    hue = alt.condition(alt.datum.policy == RECORDED, alt.value(colour("muted")), alt.value(colour("series-1")))
    line = base.mark_rule(strokeWidth=2, opacity=0.7).encode(color=hue)
    point = base.mark_point(filled=True, size=70, opacity=1).encode(color=hue)
    layers = alt.layer(line.encode(x=x, x2=alt.X2(f"{ends[1]}:Q")), point.encode(x=x))
    return cast("alt.LayerChart", layers.properties(width=_WIDTH, height=height(len(names), 24)))


def tradeoff_svg(runs: pl.DataFrame) -> str:
    """Return the trade-offs of a sweep: mean JCT against utilization, 95th percentile of queueing, and fairness.

    A dashed line is the mean JCT by the log, of runs in a twin. Runs that failed are left out.
    """
    columns = ("avg_jct_s", "gpu_utilization_share", "p95_queue_s", "jain_fairness_vc")
    rows = [
        {**{c: row[c] for c in columns}, "policy": shorten(str(row["policy"]))}
        for row in runs.iter_rows(named=True)
        if row["avg_jct_s"] is not None
    ]
    recorded = _recorded_lines(runs)
    jct = axis_values([*rows, *recorded], ("avg_jct_s",))
    queue = axis_values(rows, ("p95_queue_s",))
    ys = (
        alt.Y("gpu_utilization_share:Q", axis=percent_axis("GPUs busy"), scale=alt.Scale(zero=False)),
        alt.Y("p95_queue_s:Q", axis=time_axis("queueing, 95th percentile", queue), scale=time_scale(queue)),
        alt.Y("jain_fairness_vc:Q", axis=alt.Axis(title="fairness between VCs (Jain)"), scale=alt.Scale(zero=False)),
    )
    x = alt.X("avg_jct_s:Q", axis=time_axis("mean job completion time", jct), scale=time_scale(jct))
    mark = alt.Chart(data(rows)).mark_point(filled=True, size=60, opacity=0.85)
    hover = [alt.Tooltip("policy:N"), alt.Tooltip("avg_jct_s:Q", format=",.0f")]
    hue = alt.Color("policy:N", legend=alt.Legend(title="policy"))
    line = alt.Chart(data(recorded)).encode(x=x)
    log = [
        line.mark_rule(strokeDash=[4, 3], opacity=0.8, color=colour("muted")),
        line.mark_text(align="left", dx=4, color=colour("muted")).encode(alt.Y("place:Q", scale=None), text="label:N"),
    ]
    panels = [
        alt.layer(*(log if recorded else []), mark.encode(x=x, y=y, color=hue, tooltip=hover))
        .resolve_scale(y="independent")
        .properties(width=300, height=260)
        for y in ys
    ]
    return svg(alt.hconcat(*panels, spacing=30))


def _recorded_lines(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the mean JCT by the log of each cluster that was replayed in its twin, and where it is labelled [px]."""
    own = runs.filter((pl.col("policy") == TWIN) & pl.col("recorded_jct_s").is_not_null())
    rows = own.unique(["trace", "cluster_name"], keep="first", maintain_order=True).to_dicts()
    names = [shorten(" ".join(filter(None, (row["trace"], row["cluster_name"])))) for row in rows]
    labels = ["recorded"] if len(rows) == 1 else [f"recorded: {name}" for name in names]
    return [
        {"avg_jct_s": row["recorded_jct_s"], "label": label, "place": 8 + 12 * k}
        for k, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]


def fidelity_pictures(found: Fidelity) -> dict[str, str]:
    """Return pictures of a replay beside its log, by file name: quantiles of the wait, and the queue through time."""
    words = {"recorded": "recorded", "replayed": "replayed"}
    colours = dict(zip(words.values(), (colour("series-1"), colour("series-2")), strict=True))
    hue = alt.Color("what:N", scale=palette(colours), legend=alt.Legend(title=None, orient="top"))
    return {"quantiles.svg": _quantiles(found.quantiles, words, hue), "queue.svg": _queue(found.queue, words, hue)}


def _quantiles(quantiles: pl.DataFrame, words: dict[str, str], hue: alt.Color) -> str:
    columns = {f"{key}_s": word for key, word in words.items()}
    values = axis_values(quantiles.iter_rows(named=True), tuple(columns))
    panels = []
    for (scope, name), part in quantiles.group_by("scope", "name", maintain_order=True):
        rows = [
            {"quantile": row["quantile"], "seconds": row[column], "what": word}
            for row in part.iter_rows(named=True)
            for column, word in columns.items()
        ]
        title = "all jobs" if scope == "all" else f"{name} GPUs"
        chart = alt.Chart(data(rows), title=title).mark_line(interpolate="step-after")
        panels.append(
            chart.encode(
                x=alt.X("quantile:Q", axis=percent_axis("jobs that waited no longer")),
                y=alt.Y("seconds:Q", scale=time_scale(values), axis=time_axis("queueing", values)),
                color=hue,
            ).properties(width=260, height=200)
        )
    return svg(alt.concat(*panels, columns=3, spacing=30))


def _queue(queue: pl.DataFrame, words: dict[str, str], hue: alt.Color) -> str:
    times = queue["time"].dt.replace_time_zone("UTC")
    rows = [
        {"time": int(when.timestamp() * 1000), "gpus": row[f"{key}_gpus"], "what": word}
        for when, row in zip(times, queue.iter_rows(named=True), strict=True)
        for key, word in words.items()
    ]
    chart = alt.Chart(data(rows)).mark_line(interpolate="step-after", strokeWidth=1.5)
    x = alt.X("time:Q", scale=alt.Scale(type="utc", nice=False), axis=date_axis(times[0], times[-1]))
    y = alt.Y("gpus:Q", axis=alt.Axis(title="GPUs that waiting jobs ask for"))
    return svg(chart.encode(x=x, y=y, color=hue).properties(width=2 * _WIDTH, height=240))
