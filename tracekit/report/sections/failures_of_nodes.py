"""Node failures: suspect nodes, and when outages occur, what they cost and which gangs they hit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tracekit.report.axes import Axis, names, number, share, shown_time, times
from tracekit.report.bars import bars, named
from tracekit.report.charts import Chart, Hues, Mark, Tip, bar, dot, line, moment_tip, whisker
from tracekit.report.line_labels import named_in_last
from tracekit.report.phrases import drawn_note, largest, sums, whole_hours
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.report.times import local, span_words, start_of_day
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


def by_node_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the nodes that fail more often than by chance, or say that no node does."""
    judged = [r for r in rows if r["p_value"] is not None]
    if not judged or not any(r["failed_trials"] for r in judged):
        return None
    counted = "failures of one session count once"
    bad = [r for r in judged if r["suspect"]]
    if not bad:
        return (
            f"No node has more failed runs than chance explains ({counted}). The most suspect node is"
            f" {_against(judged[0])}.{' For outages, see below.' if facts.outages else ''}"
        )
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    where = "1 node" if len(bad) == 1 else f"{len(bad)} nodes"
    listed = ", ".join(_against(r) for r in bad[:3])
    return f"On {where}, runs fail more often than chance explains ({counted}): {listed}{more}."


def _against(row: Row) -> str:
    late, name = row.get("timed_out_attempts") or 0, shorten(row["node_id"], 30)
    # The rows do not show which trials timed out, only whether none, some or all attempts did.
    ended = "failed" if not late else "timed out" if late == row["failed_attempts"] else "failed or timed out"
    return f"{name} ({count(row['failed_trials'])} {ended}, {count(round(row['expected_failed_trials'], 1))} expected)"


def by_node_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw failed and expected trials of the most suspect nodes."""
    shown = named([r for r in rows if r["p_value"] is not None and r["failed_trials"]], "node_id", "no node")
    shown, by = _judged(shown, "suspect", "more than chance explains", "no more than chance explains")
    x = number("failed_trials", "failures")
    expected = Mark("tick", {"thickness": 2, "size": 20, "color": colour("ink")}, x=x.of("expected_failed_trials"))
    return Chart(
        shown,
        x=x,
        y=names("label", [r["label"] for r in shown], step=24),
        marks=[bar(14), expected],
        by=by,
        tips=[
            Tip("label", "node"),
            Tip("failed_trials", "failures", ","),
            Tip("expected_failed_trials", "expected", ",.1f"),
            Tip("trials", "", ","),
            Tip("failed_attempts", "failed runs", ","),
            Tip("attempts", "", ","),
            Tip("adjusted_p_value", "adjusted p-value", ".2g"),
        ],
        note=f"Shown: {len(shown)} of {len(rows)} nodes, the most suspect first. Line: equal risk.",
    )


def _judged(rows: list[Row], column: str, bad: str, other: str) -> tuple[list[Row], Hues]:
    """Add a 'verdict' in words for a boolean column to the rows; also return the colours of the verdicts."""
    judged = [{**row, "verdict": bad if row[column] else other} for row in rows]
    colours, have = {bad: colour("status-failed"), other: colour("series-1")}, {row["verdict"] for row in judged}
    return judged, Hues("verdict", {words: hue for words, hue in colours.items() if words in have})


_ROW = 13
"""Height of one node's row [px]."""
_NAME = 18
"""Maximum length of a node's name next to its row [characters]."""


def cluster_availability_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much of the time nodes were in service, and what outages cost."""
    known = {r["metric"]: r["value"] for r in rows}
    share = known.get("availability_share")
    if not known.get("outages") or share is None:
        return None
    gpus = known.get("down_gpu_h")
    took = f"{whole_hours(known['down_node_h'])} node-hours" + ("" if gpus is None else f", {_gpu_hours(known)}")
    text = (
        f"The {counted(known['nodes'], 'nodes')} were in service {percent(share)} of the time;"
        f" {counted(known['outages'], 'outages')} on {counted(known['nodes_hit'], 'nodes')} cost {took}"
    )
    most = known["most_down_at_once"]
    return f"{text}, at most {counted(most, 'nodes')} at once."


def _gpu_hours(known: dict[str, float]) -> str:
    hours = f"{whole_hours(known['down_gpu_h'])} GPU-hours"
    if known["known_gpu_nodes"] == known["nodes"]:
        return hours
    return f"and {hours} of the {count(known['known_gpu_nodes'])} nodes whose GPUs are known"


def availability_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say when most nodes were out of service."""
    whole = [r for r in rows if r["node_id"] is None]
    worst = largest(whole, "nodes_down")
    if worst is None or not worst["nodes_down"]:
        return None
    mean = sum(r["nodes_down"] for r in whole) / len(whole)
    if worst["span_h"] < 1:  # the log covers only some hours, so the day carries no information
        return f"On average {_nodes(mean)} out of service."
    at = f" at {local(worst['start_time'], facts.timezone):%H:%M}" if facts.clocked else ""
    return (
        f"On average {_nodes(mean)} out of service. The maximum was {count(round(worst['nodes_down'], 1))}, in the"
        f" {span_words(worst['span_h'] * 3600)} from {start_of_day(worst['start_time'], facts)}{at}."
    )


def _nodes(number: float) -> str:
    shown = round(number, 1) if number >= 0.1 else round(number, 3)
    return f"{count(shown)} {'node was' if shown == 1 else 'nodes were'}"


def availability_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the number of nodes out of service over time, and below it a strip for each of the worst nodes.

    The query limits the number of spans and the number of nodes.
    """
    whole = [r for r in rows if r["node_id"] is None]
    nodes = [r for r in rows if r["node_id"] is not None]
    if not nodes:
        return []
    x = times([r["start_time"] for r in whole], facts, "from", span_h=whole[0]["span_h"])
    return [_through_time(whole, x, facts), _node_strips(nodes, len(whole), x, facts)]


def _through_time(rows: list[Row], x: Axis, facts: TraceFacts) -> Chart:
    spans = Mark("rect", {"color": colour("status-failed")}, x2="to", channels={"y2": {"datum": 0}})
    y = number("nodes", "nodes", ticks=4)
    return Chart(
        [{**_span(r, facts), "nodes": round(r["nodes_down"], 3), "share": r["down_share"]} for r in rows],
        x=x,
        y=replace(y, more={"stack": None}),
        marks=[spans],
        height=110,
        tips=[
            moment_tip(facts, "from"),
            Tip("nodes", "nodes out of service", ",.1f"),
            Tip("share", "of all nodes", ".1%"),
        ],
        title="Nodes out of service, average of each span",
        wide=True,
    )


def _node_strips(nodes: list[Row], spans: int, x: Axis, facts: TraceFacts) -> Chart:
    labels = _labels(nodes)
    darker = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1], "range": [0.15, 1]}}
    mark = Mark("rect", {"color": colour("status-failed")}, x2="to", channels={"opacity": darker})
    note = f"The {count(len(labels))} nodes that were out longest, in {spans} spans. Darker means longer."
    return Chart(
        [
            {**_span(r, facts), "node": labels[r["rank"]], "share": round(r["down_share"], 4), "hours": r["down_h"]}
            for r in nodes
        ],
        x=x,
        y=names("node", list(labels.values()), step=_ROW),
        marks=[mark],
        tips=[
            moment_tip(facts, "from"),
            Tip("node"),
            Tip("share", "share of the span out of service", ".0%"),
            Tip("hours", "hours", ",.1f"),
        ],
        title="When each of the worst nodes was out of service",
        note=note,
        wide=True,
    )


def _labels(nodes: list[Row]) -> dict[int, str]:
    """Return a name for each rank; long names are shortened, and identical short names are followed by the rank."""
    names = {r["rank"]: shorten(r["node_id"], _NAME) for r in nodes}
    alike = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {rank: f"{name} ({rank})" if name in alike else name for rank, name in sorted(names.items())}


def _span(row: Row, facts: TraceFacts) -> dict[str, Any]:
    start = shown_time(row["start_time"], facts)
    if isinstance(start, float):
        return {"from": start, "to": round(start + row["span_h"] / 24, 4)}
    end = local(row["start_time"], facts.timezone) + timedelta(hours=row["span_h"])
    return {"from": start, "to": f"{end.isoformat()[:16]}Z"}


_CAUSES = 12
"""Maximum number of causes shown."""


def out_of_service_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how often nodes were out of service and which cause cost the most hours, even if another is more common."""
    out = [r for r in rows if r["state"] != "degraded"]
    events, going_on = (sum(r[name] for r in out) for name in ("events", "going_on"))
    if not events:
        return None
    text = f"Nodes were out of service {counted(events, 'times')}"
    if going_on:
        text += f" ({count(going_on)} of these times do not end in the log)"
    of, words = _hours_known(out)
    lost = sum(r[of] or 0 for r in out)
    worst = largest(out, of)
    if not lost or worst is None:
        return f"{text}."
    why = f"because of {shorten(worst['cause'], 30)}" if worst["cause"] else "without a recorded reason"
    why = "for an unknown cause" if worst["cause"] == "unknown" else why
    if len(out) == 1:
        return f"{text}, {worst['state']} {why}, with {count(lost)} {words}."
    often = f"In {percent(worst['events'] / events)} of these cases, with {percent(worst[of] / lost)} of the {words}"
    return f"{text}. {often}, they were {worst['state']} {why}."


def _hours_known(rows: list[Row]) -> tuple[str, str]:
    """Return the column for comparing causes and its label: GPU-hours if known, otherwise node-hours."""
    gpus = any(r["gpu_hours"] for r in rows)
    return ("gpu_hours", "GPU-hours") if gpus else ("node_hours", "node-hours")


def cause_shares(rows: list[Row], hours: str) -> list[Row]:
    """Return the causes in failures/out_of_service, except those of degraded nodes, with the most hours first.

    Parameters
    ----------
    rows : list of dict
        Rows of failures/out_of_service.
    hours : str
        Column with the hours to compare: node_hours or gpu_hours.

    Returns
    -------
    list of dict
        cause, hours [h], and its share and events_share [0..1] over all causes; empty if no hours are known.
    """
    out = [row for row in rows if row["state"] != "degraded"]
    hours_of, events_of = sums(out, "cause", hours), sums(out, "cause", "events")
    total, events = sum(hours_of.values()), sum(events_of.values())
    if not total:
        return []
    return [
        {"cause": cause, "hours": took, "share": took / total, "events_share": events_of[cause] / events}
        for cause, took in sorted(hours_of.items(), key=lambda item: (-item[1], item[0] or ""))
    ]


def out_of_service_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw each cause's share of the hours next to its share of the events."""
    of, words = _hours_known([r for r in rows if r["state"] != "degraded"])
    shares = cause_shares(rows, of)
    if not shares:
        return None
    shown = [{**r, "label": shorten(r["cause"], 30) if r["cause"] else "no reason"} for r in shares[:_CAUSES]]
    return bars(
        shown,
        measures={"share": f"share of {words} out of service", "events_share": "share of times out of service"},
        axis_title="share",
        key="label",
        title="cause",
        note=drawn_note(len(shown), len(shares), "causes with the most hours"),
    )


def node_availability_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much of the time the nodes were in service, and which node was out longest."""
    known = [r for r in rows if r["availability_share"] is not None]
    away = [r for r in known if r["events"]]
    if not away:
        return None
    mean = sum(r["availability_share"] for r in known) / len(known)
    worst = min(away, key=lambda r: r["availability_share"])
    share = percent(worst["availability_share"])
    return (
        f"{shorten(worst['node_id'], 40)} was out of service longest: it was in service {share} of the time, all nodes"
        f" {percent(mean)}. {count(len(away))} of {counted(len(known), 'nodes')} {'was' if len(away) == 1 else 'were'}"
        " out at least once."
    )


def repair_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how long nodes took to return after outages with the two most common causes."""
    told = [r for r in rows if r["p50_h"] and r["cause"] not in (None, "unknown")]
    if not told:
        return None
    first, *second = sorted(told, key=lambda r: (-r["events"], r["cause"]))[:2]
    text = f"Half of the {count(first['events'])} outages caused by {first['cause']} ended within"
    text += f" {duration(first['p50_h'] * 3600)}"
    for row in second:
        text += (
            f", and half of the {count(row['events'])} caused by {row['cause']} within {duration(row['p50_h'] * 3600)}"
        )
    return f"{text}."


CHANCE = 0.05
"""If the p-value is above this, simultaneous failures may be chance."""


def time_between_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how long a node works until it fails, and how the failure rate changes over that time."""
    every = next((r for r in rows if r["cause"] == "all"), None)
    if every is None or every["mean_h"] is None:
        return None
    text = (
        f"A node worked {duration(every['mean_h'] * 3600)} on average until it failed, based on"
        f" {counted(every['failures'], 'failures')} on {count(every['failed_nodes'])} of the"
        f" {counted(every['nodes'], 'nodes')}"
    )
    what = _law(every)
    return f"{text}. {what[0].upper()}{what[1:]}." if what else f"{text}."


def _law(row: Row) -> str:
    shape = row["weibull_shape"]
    return {
        "exponential": "one rate fits all nodes, however long they have worked",
        "weibull": "the failure rate is highest when a node has just come back into service, and then falls"
        if shape is not None and shape < 1
        else "the failure rate rises with the time since a node came back into service",
        "gamma": "nodes differ in how often they fail",
        "two_kinds": "a few nodes fail far more often than the rest",
    }.get(row["preferred"], "")


def lemon_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the nodes that fail much more often than the others, or say that no node does."""
    if not any(r["failures"] for r in rows):
        return None
    lemons = [r for r in rows if r["lemon"]]
    if not lemons:
        return "No node clearly fails much more often than the others: the differences may be chance."
    listed = ", ".join(
        f"{shorten(r['node_id'], 30)} ({counted(r['failures'], 'failures')}, {count(round(r['expected_failures'], 1))}"
        " expected)"
        for r in lemons[:3]
    )
    more = f" and {len(lemons) - 3} more" if len(lemons) > 3 else ""
    what = "1 node fails" if len(lemons) == 1 else f"{len(lemons)} nodes fail"
    return f"{what} much more often than the others, beyond chance: {listed}{more}."


def lemon_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the failure rate of the most suspect nodes with its interval."""
    shown = named([r for r in rows if r["failures"]], "node_id", "no node")
    shown, by = _judged(shown, "lemon", "lemon", "may be chance")
    x = number("shrunk_per_1000_d", "failures per 1,000 days")
    note = (
        f"Shown: {len(shown)} of {len(rows)} nodes, the most suspect first. Point: cautious rate, shrunk towards the"
        " rate of all nodes. Line: its 95 % interval."
    )
    return Chart(
        shown,
        x=x,
        y=names("label", [r["label"] for r in shown], step=22),
        marks=[whisker(x.of("shrunk_low"), "shrunk_high"), dot()],
        by=by,
        tips=[
            Tip("label", "node"),
            Tip("failures", "", ","),
            Tip("expected_failures", "expected", ",.1f"),
            Tip("shrunk_per_1000_d", "failures per 1,000 days", ",.1f"),
            Tip("probability", "", ".1%"),
        ],
        note=note,
    )


def at_once_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say whether nodes, and nodes of the same rack, fail together more often than chance explains."""
    every = [r for r in rows if r["cause"] == "all"]
    whole = next((r for r in every if (r["nodes_of"], r["chance"]) == ("any", "times")), None)
    if whole is None or not whole["pairs"]:
        return None
    pairs = f"{counted(whole['pairs'], 'pairs')} of node failures began within an hour of each other"
    if whole["p_value"] is None or whole["p_value"] > CHANCE or not whole["ratio"]:
        return f"{pairs}, which is no more than expected by chance."
    text = (
        f"{pairs}, {count(round(whole['ratio'], 1))} times as many as by chance (p = {whole['p_value']:.2g}), with at"
        f" most {counted(whole['largest_group'], 'nodes')} together"
    )
    rack = next((r for r in every if (r["nodes_of"], r["chance"]) == ("rack", "racks")), None)
    if rack is None or rack["p_value"] is None or not rack["ratio"]:
        return f"{text}."
    if rack["p_value"] > CHANCE:
        return f"{text}. There is no evidence that nodes of one rack fail together more often than other nodes."
    return f"{text}. Nodes of one rack did so {count(round(rack['ratio'], 1))} times as often as any nodes."


def by_gang_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the probability that a large gang loses a node within a day, and compare it with independent failures."""
    known = [r for r in rows if r["hit_share"] is not None]
    if not known:
        return None
    wide = max(known, key=lambda r: r["nodes"])
    middle = next((r for r in known if r["nodes"] ** 2 >= wide["nodes"] and r is not wide), None)
    first, *others = [r for r in (middle, wide) if r is not None]
    job = f"a job on {counted(first['nodes'], 'nodes')}"
    text = f"The probability that {job} loses a node within a day is {percent(first['hit_share'])}"
    for row in others:
        text += f", and {percent(row['hit_share'])} for a job on {counted(row['nodes'], 'nodes')}"
    return f"{text} ({percent(wide['independent_share'])} if nodes failed independently)."


_LINES = {
    "hit_share": ("measured", "status-failed"),
    "independent_share": ("if nodes failed independently", "series-1"),
}


def by_gang_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the probability that a gang is hit, by gang size, next to the probability with independent nodes."""
    known = [r for r in rows if r["hit_share"] is not None]
    if len(known) < 2:
        return None
    shown = [
        {"nodes": r["nodes"], "what": words, "share": r[column]}
        for r in known
        for column, (words, _) in _LINES.items()
        if r[column] is not None
    ]
    sizes = [r["nodes"] for r in known]
    chart = Chart(
        shown,
        x=Axis(
            "nodes",
            "nodes of the job",
            scale={"type": "log", "base": 2, "domain": [sizes[0], sizes[-1]], "nice": False},
            labels={"values": sizes, "format": ",", "labelOverlap": "greedy"},
        ),
        y=share("share", "hit within a day", whole=True),
        marks=[line(1.8, point=True)],
        height=220,
        by=Hues("what", {words: colour(hue) for words, hue in _LINES.values()}),
        tips=[Tip("nodes", "", ","), Tip("what"), Tip("share", "hit within a day", ".1%")],
        note="For jobs on neighbouring nodes, whether or not such a job ran.",
    )
    return named_in_last(chart, sizes[-1])


PRESENTATIONS = (
    Presentation("failures/by_node", finding=by_node_finding, chart=by_node_chart),
    Presentation("failures/cluster_availability", finding=cluster_availability_finding),
    Presentation("failures/availability_over_time", finding=availability_finding, chart=availability_chart),
    Presentation("failures/out_of_service", finding=out_of_service_finding, chart=out_of_service_chart),
    Presentation("failures/node_availability", finding=node_availability_finding),
    Presentation("failures/repair_time", finding=repair_time_finding),
    Presentation("failures/time_between", finding=time_between_finding),
    Presentation("failures/lemon_nodes", finding=lemon_finding, chart=lemon_chart),
    Presentation("failures/at_once", finding=at_once_finding),
    Presentation("failures/by_gang", finding=by_gang_finding, chart=by_gang_chart),
)
