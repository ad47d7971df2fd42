"""The pictures of plans: waits against nodes, with the target and what the log recorded; useful time against spares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tracekit.report.charts import axis_values, data, palette, time_axis, time_scale
from tracekit.report.pictures import svg
from tracekit.report.theme import colour
from tracekit.text import counted, duration, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    import altair as alt

__all__ = ["plan_svg", "spares_svg"]

_METRICS = {"mean": "mean wait", "p50": "median wait", "p90": "90th percentile of the wait", "p99": "99th percentile"}
_COLOURS = 8


def plan_svg(facts: Mapping[str, Any]) -> str:
    """Return the wait of the target, else the 90th percentile, against nodes: a line a policy and load, with intervals.

    Parameters
    ----------
    facts : mapping
        What plan.json holds.
    """
    return svg(_chart(facts))


def spares_svg(facts: Mapping[str, Any]) -> str:
    """Return the part of a gang's time that is useful work against spares: a line a kind of outages, with intervals.

    Parameters
    ----------
    facts : mapping
        What plan.json holds.
    """
    return svg(_spares_chart(facts))


def _spares_chart(facts: Mapping[str, Any]) -> alt.LayerChart:
    import altair as alt

    names = {"recorded": "outages of the log", "model": "outages drawn from it"}
    rows = [
        {
            "spares": row["spares"],
            **{name: 100 * row[name] for name in ("ettr", "ettr_low", "ettr_high")},
            "what": names[row["outages"]],
        }
        for row in facts["spares"]
    ]
    asked = 100 * facts["target"]["ettr"]
    colours = {name: colour(f"series-{i + 1}") for i, name in enumerate(names.values())}
    scale = alt.Scale(zero=False)
    x = alt.X("spares:Q", axis=alt.Axis(title="spares", format="d", values=sorted({r["spares"] for r in rows})))
    y = alt.Y("ettr:Q", scale=scale, axis=alt.Axis(title="useful time [%]"))
    hue = alt.Color("what:N", scale=palette(colours), legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(data(rows)).encode(x=x, color=hue)
    rule = alt.Chart(data([{"ettr": asked, "words": f"target {asked:g} %"}]))
    layers: list[alt.Chart] = [
        base.mark_area(opacity=0.15).encode(y=alt.Y("ettr_low:Q", scale=scale), y2=alt.Y2("ettr_high:Q")),
        base.mark_line(point=True).encode(y=y),
        rule.mark_rule(strokeDash=[4, 3], color=colour("muted")).encode(y=y),
        rule.mark_text(align="left", dx=6, color=colour("muted")).encode(x=alt.value("width"), y=y, text="words:N"),
    ]
    title = f"a gang on {counted(facts['gang']['nodes'], 'nodes')}"
    return cast("alt.LayerChart", alt.layer(*layers).properties(width=520, height=300, title=title))


def _chart(facts: Mapping[str, Any]) -> alt.LayerChart:
    import altair as alt

    target = facts["target"]
    metric = "p90" if target is None else target["metric"]
    rows = [
        {
            "nodes": row["nodes"],
            "wait_s": row[f"{metric}_wait_s"],
            "low_s": row[f"{metric}_wait_low_s"],
            "high_s": row[f"{metric}_wait_high_s"],
            "what": _label(row),
        }
        for row in facts["capacity"]
    ]
    rows = [row for row in rows if row["wait_s"] is not None]
    names = list(dict.fromkeys(row["what"] for row in rows))
    colours = {name: colour(f"series-{i % _COLOURS + 1}") for i, name in enumerate(names)}
    marks = [{"nodes": facts["recorded"]["nodes"], "wait_s": facts["recorded"][f"{metric}_wait_s"], "what": "recorded"}]
    lines = [] if target is None else [{"wait_s": target["limit_s"], "words": f"target {duration(target['limit_s'])}"}]
    values = axis_values([*rows, *marks, *lines], ("wait_s", "low_s", "high_s"))
    x = alt.X("nodes:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="nodes", format="d", tickMinStep=1))
    y = alt.Y("wait_s:Q", scale=time_scale(values), axis=time_axis(_METRICS[metric], values))
    hue = alt.Color("what:N", scale=palette(colours), legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(data(rows)).encode(x=x, color=hue)
    layers: list[alt.Chart] = [
        base.mark_area(opacity=0.15).encode(y=alt.Y("low_s:Q", scale=time_scale(values)), y2=alt.Y2("high_s:Q")),
        base.mark_line(point=True).encode(y=y),
    ]
    if lines:
        rule = alt.Chart(data(lines))
        layers.append(rule.mark_rule(strokeDash=[4, 3], color=colour("muted")).encode(y=y))
        text = rule.mark_text(align="left", dx=6, color=colour("muted"))
        layers.append(text.encode(x=alt.value("width"), y=y, text="words:N"))
    point = alt.Chart(data(marks)).mark_point(filled=True, shape="diamond", size=110, color=colour("ink"))
    label = alt.Chart(data(marks)).mark_text(align="left", dx=9, color=colour("ink"))
    layers += [point.encode(x=x, y=y), label.encode(x=x, y=y, text="what:N")]
    whose = "" if target is None else f", {target['for']}"
    title = f"{shorten(facts['cluster'], 30)}{whose}"
    return cast("alt.LayerChart", alt.layer(*layers).properties(width=520, height=300, title=title))


def _label(row: Mapping[str, Any]) -> str:
    name = "the twin's policy" if row["policy"] == "twin" else shorten(str(row["policy"]), 40)
    return name if row["growth"] == 1 else f"{name}, {row['growth']:g} times the jobs"
