"""Replay: what other policies would have done to the same jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tracekit.report.charts import (
    GPU_CLASSES,
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
from tracekit.report.sections.interface import chart, says
from tracekit.report.theme import colour
from tracekit.report.words import gpu_jobs
from tracekit.text import count, duration, percent, shorten, signed_percent

if TYPE_CHECKING:
    import altair as alt

    from tracekit.report.structure import Row

_RECORDED = "recorded"
_LEAST = 0.001
"""A change of less than this share of the mean counts as none."""


@says("replay/policies")
def policies_finding(rows: list[Row]) -> str | None:
    """Name the fastest policy that is given no run times, and the fastest that is."""
    known = [r for r in rows if r["mean_completion_s"] is not None and r["policy"] != _RECORDED]
    if len(known) < 2 or rows[0]["mean_completion_s"] is None:
        return None
    base = rows[0]
    if not any(r["mean_wait_s"] for r in known):
        return (
            f"In the replays GPUs are never short: no job waits under any policy, and {_name(base)} completes the jobs"
            f" in {duration(base['mean_completion_s'])} on average.{_recorded(rows)} Comparing policies tells nothing"
            " here."
        )
    blind = min((r for r in known if r["run_times"] == "not given"), key=lambda r: r["mean_completion_s"], default=None)
    told = min((r for r in known if r["run_times"] == "given"), key=lambda r: r["mean_completion_s"], default=None)
    parts = []
    for row, words in ((blind, "Of the policies that are given no run times"), (told, "of those that are given them")):
        if row is not None and row is not base and (row["change_share"] or 0) < -_LEAST:
            parts.append(f"{words}, {_gain(row)}")
    start = f"Under {_name(base)} jobs take {duration(base['mean_completion_s'])} from submission to end on average"
    start += f", {duration(base['mean_wait_s'])} of it waiting" if base["mean_wait_s"] is not None else ""
    if not parts:
        return f"{start}; none of the other policies shortens that.{_recorded(rows)}{_vain(base)}"
    text = "; ".join(parts)
    return f"{start}. {text[:1].upper()}{text[1:]}."


def _vain(base: Row) -> str:
    return "" if base["mean_wait_s"] else " Comparing policies tells little here."


def _recorded(rows: list[Row]) -> str:
    """Return how long the jobs waited by the log, where that is known."""
    row = next((r for r in rows if r["policy"] == _RECORDED and r["mean_wait_s"]), None)
    if row is None:
        return ""
    return (
        f" By the log they waited {duration(row['mean_wait_s'])}, for causes that a replay does not know, such as"
        " quotas or reserved nodes."
    )


def _gain(row: Row) -> str:
    ends = ""
    if row["change_low_share"] is not None and row["change_high_share"] is not None:
        ends = f" ({signed_percent(row['change_low_share'])} to {signed_percent(row['change_high_share'])} by day)"
    worse = f", and {percent(row['later_share'])} of the jobs end later" if row["later_share"] else ""
    return (
        f"{_name(row)} gives the shortest completion times, {duration(row['mean_completion_s'])} on average,"
        f" {signed_percent(row['change_share'])}{ends}{worse}"
    )


def _name(row: Row) -> str:
    return shorten(str(row["policy"]), 40)


@chart("replay/policies")
def policies_chart(rows: list[Row]) -> list[Panel]:
    """Draw completion time, waiting, and what it costs in fairness, by policy."""
    known = [{**r, "policy": _name(r)} for r in rows if r["mean_completion_s"] is not None]
    if not known:
        return []
    note = "Dot: mean. Line: median to 99th percentile. Orange: given the true run times in advance."
    panels = [Panel(_spans(known, "completion", "completion time"), title="Completion time", note=note)]
    if any(r["p99_wait_s"] for r in known if r["policy"] != _RECORDED):
        panels.append(Panel(_spans(known, "wait", "wait until the first start"), title="Waiting", note=note))
    shares = {"fairness_share": "fairness between VCs (Jain)", "gpus_busy_share": "GPUs held"}
    shown = {k: w for k, w in shares.items() if any(r[k] is not None for r in known)}
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

    note = "100 % fair: every VC got the same part of what it asked for." if "fairness_share" in columns else ""
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
    return Panel(drawn, tuple(colours.items()), "Fairness and utilization", note)


@says("replay/by_gpu_class")
def classes_finding(rows: list[Row]) -> str | None:
    """Name the policy with the shortest mean wait for the smallest and the largest GPU jobs."""
    found = []
    for name in GPU_CLASSES[1:]:
        waits = [r for r in rows if r["gpu_class"] == name and r["mean_wait_s"] is not None]
        waits = [r for r in waits if r["policy"] != _RECORDED]
        if len(waits) > 1:
            found.append((name, waits[0], min(waits, key=lambda r: r["mean_wait_s"])))
    if found and not any(r["mean_wait_s"] for r in rows if r["policy"] != _RECORDED):
        return "No job of any size waits under any policy."
    if found and not any(first["mean_wait_s"] for _, first, _ in found):
        return f"Under {_name(found[0][1])} no job of any size waits, so that no other policy can spare it a wait."
    parts = [
        f"{gpu_jobs(name)} wait {duration(first['mean_wait_s'])} on average under {_name(first)}, and"
        f" {duration(best['mean_wait_s'])} at best ({_name(best)})"
        for name, first, best in ([found[0]] if found else []) + (found[-1:] if len(found) > 1 else [])
    ]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else None


@says("replay/by_vc")
def tenants_finding(rows: list[Row]) -> str | None:
    """Name the VC that would pay most for another policy."""
    known = [r for r in rows if r["mean_wait_s"] is not None and r["policy"] != _RECORDED]
    if not known:
        return None
    base = {r["vc"]: r["mean_wait_s"] for r in known if r["policy"] == known[0]["policy"]}
    worst = max((r for r in known if r["vc"] in base), key=lambda r: r["mean_wait_s"] - base[r["vc"]])
    before = base[worst["vc"]]
    if worst["mean_wait_s"] <= before:
        return f"No VC waits longer under another policy than under {_name(known[0])}."
    return (
        f"The most would be paid by VC {shorten(str(worst['vc']), 30)} under {_name(worst)}: its jobs would wait"
        f" {duration(worst['mean_wait_s'])} on average instead of {duration(before)} under {_name(known[0])}."
    )


@says("replay/assumptions")
def assumptions_finding(rows: list[Row]) -> str | None:
    """Say how many there are."""
    return f"The replays rest on {count(len(rows))} assumptions; the table gives each with its source."


@chart("replay/by_gpu_class")
def classes_chart(rows: list[Row]) -> list[Panel]:
    """Draw the mean wait by policy and size class."""
    import altair as alt

    known = [{**r, "policy": _name(r)} for r in rows if r["mean_wait_s"] is not None]
    if not any(r["mean_wait_s"] for r in known if r["policy"] != _RECORDED):
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
