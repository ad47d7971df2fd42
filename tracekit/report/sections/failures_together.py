"""Failures: how long nodes work until they fail, which are lemons, which fail together, and what that does to gangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.report.amounts import named
from tracekit.report.charts import Panel, category, data, height, palette, percent_axis
from tracekit.report.line_labels import LineEnd, end_labels, named_at_ends
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

CHANCE = 0.05
"""p-value above which failures count as coming together no more often than by chance."""


def time_between_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how long a node works until it fails, and what the times say of the rate."""
    every = next((r for r in rows if r["cause"] == "all"), None)
    if every is None or every["mean_h"] is None:
        return None
    text = (
        f"A node worked {duration(every['mean_h'] * 3600)} on average until it failed, by"
        f" {counted(every['failures'], 'failures')} of {count(every['failed_nodes'])} of the"
        f" {counted(every['nodes'], 'nodes')}"
    )
    what = _law(every)
    return f"{text}; {what}." if what else f"{text}."


def _law(row: Row) -> str:
    shape = row["weibull_shape"]
    return {
        "exponential": "one rate fits all nodes, however long they have worked",
        "weibull": "the rate of failures is highest when a node has just come back, and then falls"
        if shape is not None and shape < 1
        else "the rate of failures rises with the time since a node came back",
        "gamma": "nodes differ in how often they fail",
        "two_kinds": "nodes are not alike: a few fail far more often than the rest",
    }.get(row["preferred"], "")


def lemon_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the nodes that fail much more often than the others, or say that none does."""
    if not any(r["failures"] for r in rows):
        return None
    lemons = [r for r in rows if r["lemon"]]
    if not lemons:
        return "No node certainly fails much more often than the others: what differs may be chance."
    listed = ", ".join(
        f"{shorten(r['node_id'], 30)} ({counted(r['failures'], 'failures')}, {count(round(r['expected_failures'], 1))}"
        " expected)"
        for r in lemons[:3]
    )
    more = f" and {len(lemons) - 3} more" if len(lemons) > 3 else ""
    what = "1 node fails" if len(lemons) == 1 else f"{len(lemons)} nodes fail"
    return f"{what} much more often than the others, and chance does not explain it: {listed}{more}."


def lemon_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the rate of the most suspect nodes with its interval."""
    shown = named([r for r in rows if r["failures"]], "node_id", "no node")
    if not shown:
        return []
    words = {True: "lemon", False: "may be chance"}
    shown = [{**r, "verdict": words[bool(r["lemon"])]} for r in shown]
    colours = {words[True]: colour("status-failed"), words[False]: colour("series-1")}
    scale = alt.Scale(domainMin=0, nice=True)
    base = alt.Chart(data(shown)).encode(
        y=category("label", [r["label"] for r in shown], None),
        color=alt.Color("verdict:N", scale=palette(colours)),
        tooltip=[
            alt.Tooltip("label:N", title="node"),
            alt.Tooltip("failures:Q", format=","),
            alt.Tooltip("expected_failures:Q", title="expected", format=",.1f"),
            alt.Tooltip("shrunk_per_1000_d:Q", title="failures in 1,000 days", format=",.1f"),
            alt.Tooltip("probability:Q", format=".1%"),
        ],
    )
    axis = alt.Axis(title="failures in 1,000 days", tickCount=5, labelOverlap="greedy")
    line = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x=alt.X("shrunk_low:Q", axis=axis, scale=scale), x2=alt.X2("shrunk_high:Q")
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=alt.X("shrunk_per_1000_d:Q", axis=axis))
    drawn = cast("alt.LayerChart", alt.layer(line, point).properties(height=height(len(shown), 22)))
    legend = {w: c for w, c in colours.items() if any(r["verdict"] == w for r in shown)}
    note = (
        f"Drawn: {len(shown)} of {len(rows)} nodes, the most suspect first. Point: a cautious rate, pulled towards"
        " that of all; line: its 95 % interval."
    )
    return [Panel(drawn, tuple(legend.items()), note=note)]


def at_once_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say whether nodes fail together more often than chance explains, and whether those of one rack do."""
    every = [r for r in rows if r["cause"] == "all"]
    whole = next((r for r in every if (r["nodes_of"], r["chance"]) == ("any", "times")), None)
    if whole is None or not whole["pairs"]:
        return None
    pairs = f"{counted(whole['pairs'], 'pairs')} of failures of two nodes began within an hour of each other"
    if whole["p_value"] is None or whole["p_value"] > CHANCE or not whole["ratio"]:
        return f"{pairs}, which chance explains."
    text = (
        f"{pairs}, {count(round(whole['ratio'], 1))} times as many as by chance (p = {whole['p_value']:.2g}), at most"
        f" {counted(whole['largest_group'], 'nodes')} together"
    )
    rack = next((r for r in every if (r["nodes_of"], r["chance"]) == ("rack", "racks")), None)
    if rack is None or rack["p_value"] is None or not rack["ratio"]:
        return f"{text}."
    if rack["p_value"] > CHANCE:
        return f"{text}. That nodes of one rack fail together more than others is not shown."
    return f"{text}. Nodes of one rack did so {count(round(rack['ratio'], 1))} times as often as any nodes."


def by_gang_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how likely a wide gang loses a node within a day, and what independent nodes would give."""
    known = [r for r in rows if r["hit_share"] is not None]
    if not known:
        return None
    wide = max(known, key=lambda r: r["nodes"])
    middle = next((r for r in known if r["nodes"] ** 2 >= wide["nodes"] and r is not wide), None)
    first, *others = [r for r in (middle, wide) if r is not None]
    gang = f"a gang of {counted(first['nodes'], 'nodes')}"
    text = f"{percent(first['hit_share'])} is the chance that {gang} loses one within a day"
    for row in others:
        text += f", {percent(row['hit_share'])} that one of {counted(row['nodes'], 'nodes')} does"
    return f"{text} ({percent(wide['independent_share'])} if nodes failed independently)."


_LINES = {
    "hit_share": ("measured", "status-failed"),
    "independent_share": ("if nodes failed independently", "series-1"),
}


_HEIGHT = 220


def by_gang_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the probability that a gang is hit against its size, beside that of independent nodes."""
    known = [r for r in rows if r["hit_share"] is not None]
    if len(known) < 2:
        return []
    colours = {words: colour(name) for words, name in _LINES.values()}
    shown = [
        {"nodes": r["nodes"], "what": words, "share": r[column]}
        for r in known
        for column, (words, _) in _LINES.items()
        if r[column] is not None
    ]
    sizes = [r["nodes"] for r in known]
    y = alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=percent_axis("hit within a day"))
    lines = (
        alt.Chart(data(shown))
        .mark_line(point=True, strokeWidth=1.8)
        .encode(
            x=alt.X(
                "nodes:Q",
                scale=alt.Scale(type="log", base=2, domain=[sizes[0], sizes[-1]], nice=False),
                axis=alt.Axis(title="nodes of the gang", values=sizes, format=",", labelOverlap="greedy"),
            ),
            y=y,
            color=alt.Color("what:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("nodes:Q", format=","),
                alt.Tooltip("what:N"),
                alt.Tooltip("share:Q", title="hit within a day", format=".1%"),
            ],
        )
        .properties(height=_HEIGHT)
    )
    ends = [LineEnd(r["what"], r["share"], colours[r["what"]], {}) for r in shown if r["nodes"] == sizes[-1]]
    drawn, at_ends = named_at_ends(lines, end_labels(ends, top=1, height=_HEIGHT, axis=y))
    note = "Gangs of neighbouring nodes, whether or not one ran there."
    return [Panel(drawn, tuple(colours.items()), note=note, ends=at_ends)]


PRESENTATIONS = (
    Presentation("failures/time_between", finding=time_between_finding),
    Presentation("failures/lemon_nodes", finding=lemon_finding, chart=lemon_chart),
    Presentation("failures/at_once", finding=at_once_finding),
    Presentation("failures/by_gang", finding=by_gang_finding, chart=by_gang_chart),
)
