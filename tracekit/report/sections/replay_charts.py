"""Charts of the replays: policies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tracekit.report.charts import (
    Panel,
    axis_values,
    category,
    class_colours,
    class_legend,
    data,
    height,
    palette,
    percent_axis,
    time_axis,
    time_scale,
)
from tracekit.report.sections.interface import chart
from tracekit.report.theme import colour
from tracekit.text import duration, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

    import altair as alt

    from tracekit.report.structure import Row

__all__ = ["LEAST", "RECORDED", "policy_name"]

RECORDED = "recorded"
"""The policy that starts each job when the log says."""
LEAST = 0.001
"""A change of less than this share of the mean counts as none."""
_SEEN = 0.005
"""Shares that differ by less look alike in a chart from 0 to 100 %."""
_SHARES = {"fairness_share": "fairness between VCs", "gpus_busy_share": "GPUs held"}
_SHARE_NOTES = {
    "fairness_share": (
        "Fairness is Jain's index: at 100 % every VC got the same part of what it asked for, and the lower it is, the"
        " more uneven these parts are."
    ),
    "gpus_busy_share": "GPUs held: the part of all GPU time that jobs had, until the last end.",
}


def policy_name(row: Row) -> str:
    """Return what a policy is called in sentences and on axes."""
    return shorten(str(row["policy"]), 40)


def _differ(rows: Iterable[Row], column: str, least: float | None = None) -> bool:
    """Return whether the policies, the log left aside, differ by so much that it can be seen in a chart."""
    values = [r[column] for r in rows if r["policy"] != RECORDED and r[column] is not None]
    if not values:
        return False
    return bool(max(values) - min(values) > (LEAST * max(map(abs, values)) if least is None else least))


@chart("replay/policies")
def policies_chart(rows: list[Row]) -> list[Panel]:
    """Draw completion time, waiting, and what it costs in fairness, by policy."""
    known = [{**r, "policy": policy_name(r)} for r in rows if r["mean_completion_s"] is not None]
    note = "Dot: mean. Line: from the median to the 99th percentile. Orange: given the true run times in advance."
    times = {
        "completion": ("Completion time", "completion time"),
        "wait": ("Waiting", "wait until the first start"),
    }
    panels = [
        Panel(_spans(known, what, axis), title=title, note=note)
        for what, (title, axis) in times.items()
        if any(_differ(known, f"{of}_{what}_s") for of in ("median", "mean", "p99"))
    ]
    shown = {key: words for key, words in _SHARES.items() if _differ(known, key, _SEEN)}
    if shown:
        panels.append(_dots(known, shown))
    return panels


def _spans(rows: list[Row], what: str, title: str) -> alt.LayerChart:
    import altair as alt

    named = {f"median_{what}_s": "median", f"mean_{what}_s": "mean", f"p99_{what}_s": "99th percentile"}
    low, mean, high = named
    rows = [{**r, **{f"{e}_words": duration(r[e]) for e in named if r[e] is not None}} for r in rows]
    values = axis_values(rows, list(named))
    hue = palette({"not given": colour("series-1"), "given": colour("series-2")})
    scale, axis = time_scale(values), time_axis(f"{title} (log scale)", values)
    base = alt.Chart(data(rows)).encode(
        y=category("policy", [r["policy"] for r in rows], None),
        color=alt.Color("run_times:N", scale=hue),
        tooltip=[
            alt.Tooltip("policy:N"),
            alt.Tooltip("run_times:N", title="run times"),
            *(alt.Tooltip(f"{key}_words:N", title=words) for key, words in named.items()),
        ],
    )
    line = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x=alt.X(f"{low}:Q", scale=scale, axis=axis), x2=alt.X2(f"{high}:Q")
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=alt.X(f"{mean}:Q", scale=scale, axis=axis))
    return cast("alt.LayerChart", alt.layer(line, point).properties(height=height(len(rows), 19)))


def _points(names: list[str]) -> alt.Y:
    """Return a vertical axis of policies for points alone."""
    import altair as alt

    scale = alt.Scale(domain=names, padding=0.5)
    return alt.Y("policy:N", sort=None, scale=scale, axis=alt.Axis(title=None, grid=False))


def _dots(rows: list[Row], columns: dict[str, str]) -> Panel:
    import altair as alt

    note = " ".join(_SHARE_NOTES[key] for key in columns)
    colours = {words: colour(f"series-{i}") for i, words in zip((3, 4), columns.values(), strict=False)}
    long = [
        {"policy": r["policy"], "what": words, "share": r[key]}
        for r in rows
        for key, words in columns.items()
        if r[key] is not None
    ]
    drawn = (
        alt.Chart(data(long))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            y=_points([r["policy"] for r in rows]),
            x=alt.X("share:Q", axis=percent_axis("share"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("what:N", scale=palette(colours)),
            tooltip=[alt.Tooltip("policy:N"), alt.Tooltip("what:N"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(height=height(len(rows), 19))
    )
    title = " and ".join(columns.values())
    return Panel(drawn, tuple(colours.items()), f"{title[:1].upper()}{title[1:]}", note)


@chart("replay/by_gpu_class")
def classes_chart(rows: list[Row]) -> list[Panel]:
    """Draw the mean wait by policy and size class."""
    import altair as alt

    known = [{**r, "policy": policy_name(r)} for r in rows if r["mean_wait_s"] is not None]
    classes = {r["gpu_class"] for r in known}
    if not any(_differ([r for r in known if r["gpu_class"] == c], "mean_wait_s") for c in classes):
        return []
    known = [{**r, "words": duration(r["mean_wait_s"])} for r in known]
    colours = class_colours(r["gpu_class"] for r in known)
    names = list(dict.fromkeys(r["policy"] for r in known))
    values = axis_values(known, ("mean_wait_s",))
    drawn = (
        alt.Chart(data(known))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            y=_points(names),
            x=alt.X("mean_wait_s:Q", scale=time_scale(values), axis=time_axis("mean wait (log scale)", values)),
            color=alt.Color("gpu_class:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("gpu_class:N", title="GPUs"),
                alt.Tooltip("jobs:Q", format=","),
                alt.Tooltip("words:N", title="mean wait"),
            ],
        )
        .properties(height=height(len(names), 19))
    )
    return [Panel(drawn, class_legend(colours), note="Mean wait until the first start.")]
