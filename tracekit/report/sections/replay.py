"""Replay: what other policies would have done to the same jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.replay.results.answers import LEAST
from tracekit.replay.results.recorded_times import RECORDED, TWIN
from tracekit.report.charts import (
    Panel,
    axis_values,
    category,
    data,
    height,
    palette,
    percent_axis,
    position,
    reference,
    time_axis,
    time_scale,
)
from tracekit.report.replay_rows import axis_name, differ, fold, fold_note, label, policy_name
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, duration, percent, signed_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_NAMED = 3
"""Most policies named in a sentence."""
_MUCH = 0.05
"""Above this share of the GPU time, the sentence mentions GPUs that the cluster does not have."""
_SEEN = 0.03
"""Shares that differ by less look alike in a chart from 0 to 100 %: a dot is as wide."""
_TIMES = {
    "jct": ("Completion time", "completion time"),
    "queue": ("Waiting", "wait until the first start"),
}
_SHARES = {"jain_fairness_vc": "fairness between VCs", "gpu_utilization_share": "GPUs held"}
_SHARE_NOTES = {
    "jain_fairness_vc": "Jain's index: at 100 % every VC got an equal part.",
    "gpu_utilization_share": "GPUs held: the part of all GPU time that jobs had, until the last end.",
}


def policies_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the fastest policy that does not know run times, and the fastest that does, as far as the log carries it.

    In a twin effects are told against the log, by 'replay/effects': here stand the twin's own figures and the log's.
    """
    known = [r for r in rows if r["avg_jct_s"] is not None and r["policy"] != RECORDED]
    base = rows[0]
    if len(known) < 2 or base["avg_jct_s"] is None:
        return None
    never = base["jobs"] - base["completed"] if base.get("completed") is not None and base.get("jobs") else 0
    if base["policy"] == TWIN:
        sentences = _twin_and_log(rows)
    elif not any(r["avg_queue_s"] for r in known):
        sentences = [
            f"{_never(never)}: comparing policies shows nothing here.",
            f"From submission to end {_these(base)} take {duration(base['avg_jct_s'])} on average.",
            _recorded(rows, base),
            _unreported(rows),
        ]
    else:
        sentences = _compared(rows, known)
    return " ".join(filter(None, [*sentences, _beyond(rows, facts)]))


def _never(jobs: int) -> str:
    if not jobs:
        return "No job waits under any policy, since in the replays GPUs are never short"
    return f"No job that ends waits under any policy; {counted(jobs, 'jobs')} of those replayed never end"


def _twin_and_log(rows: list[Row]) -> list[str]:
    """Return sentences about the twin and the log that it is of."""
    twin, *others = rows
    log = next((r for r in others if r["policy"] == RECORDED and r["avg_jct_s"] is not None), None)
    text = _under(twin, "In")
    if log is None:
        return [f"{text}."]
    who = "they" if log.get("completed") == twin.get("completed") else _these(log)
    return [f"{text}; by the log {who} took {duration(log['avg_jct_s'])}{_waiting(log, 'waited')}."]


def _under(row: Row, preposition: str) -> str:
    """Return how long jobs take and wait under a policy, or in the twin."""
    return (
        f"{preposition} {policy_name(row)} {_these(row)} take {duration(row['avg_jct_s'])} from submission to end on"
        f" average{_waiting(row, 'wait')}"
    )


def _waiting(row: Row, verb: str) -> str:
    """Return the end of a sentence on completion times: how much of them is waiting."""
    if row["avg_queue_s"] is None:
        return ""
    if not row["avg_queue_s"]:
        return f", and none {'waits' if verb == 'wait' else verb}"
    tail = row.get("p99_queue_s")
    longest = f" (one in a hundred over {duration(tail)})" if tail is not None and verb == "wait" else ""
    return f", {duration(row['avg_queue_s'])} of it waiting{longest}"


def _compared(rows: list[Row], known: list[Row]) -> list[str]:
    """Return sentences about policies under which some jobs wait."""
    base = known[0]
    comparable = [base, *(r for r in known[1:] if r.get("effect_told"))]
    parts = []
    for given, which in (("not given", "need no run times"), ("given", "are given the true run times")):
        group = [r for r in comparable if r["run_times"] == given]
        best = min(group, key=lambda r: r["avg_jct_s"], default=base)
        if best is not base and (best["jct_diff_share"] or 0) < -LEAST:
            parts.append(f"Of the policies that {which}, {_gain(best)}.")
    start = _under(base, "Under")
    if parts:
        return [f"{start}.", *parts, _log_beside(comparable[-1]), _unreported(rows)]
    if len(comparable) == 1:
        return [f"{start}.", _recorded(rows, base), _unreported(rows)]
    little = "" if base["avg_queue_s"] else "Comparing policies shows little here."
    other = "No other policy" if len(comparable) == len(known) else "None of the others that can be compared"
    return [f"{start}. {other} shortens that{_longest(comparable)}.", little, _recorded(rows, base), _unreported(rows)]


def _log_beside(row: Row) -> str:
    """Return what the log let the jobs of an effect wait; '' where the row does not say."""
    if row.get("recorded_queue_s") is None:
        return ""
    return f"By the log they waited {duration(row['recorded_queue_s'])} on average."


def _unreported(rows: list[Row]) -> str:
    """Say which effects are not reported, and why; '' where all are."""
    base, *others = [r for r in rows if r["policy"] != RECORDED]
    unreported = [r for r in others if not r.get("effect_told")]
    if not unreported:
        return ""
    if len(unreported) == len(others) and base.get("effect_reason"):
        return _sentence(base["effect_reason"])
    if len(unreported) == 1:
        return _sentence(unreported[0].get("effect_reason") or "")
    names = [policy_name(r) for r in unreported[:_NAMED]]
    more = f" and {len(unreported) - _NAMED} more" if len(unreported) > _NAMED else ""
    why = "jobs wait longer under them than they did by the log, or the replays do not wait as the log did"
    return f"The effect of {', '.join(names)}{more} cannot be told: {why}."


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _these(row: Row) -> str:
    """Return which jobs the times of a policy are of."""
    done, jobs = row.get("completed"), row.get("jobs")
    if done is None:
        return "these jobs"
    if jobs in {None, done}:
        return f"these {counted(done, 'jobs')}"
    which = "whose start and end it records" if row["policy"] == RECORDED else "that end"
    return f"the {count(done)} of these {counted(jobs, 'jobs')} {which}"


def _longest(known: list[Row]) -> str:
    worst = max(known, key=lambda r: r["avg_jct_s"])
    if (worst.get("jct_diff_share") or 0) <= LEAST:
        return ""
    return (
        f"; under {policy_name(worst)} they take longest, {duration(worst['avg_jct_s'])}"
        f" ({', '.join(filter(None, [signed_percent(worst['jct_diff_share']), _interval(worst)]))})"
    )


def _interval(row: Row) -> str:
    """Return the interval of a change; '' where it is not known."""
    low, high = row["jct_diff_share_low"], row["jct_diff_share_high"]
    if low is None or high is None:
        return ""
    return f"95 % interval {signed_percent(low)} to {signed_percent(high)}"


def _recorded(rows: list[Row], base: Row) -> str:
    """Return how long the jobs waited by the log, where that is known."""
    row = next((r for r in rows if r["policy"] == RECORDED and r["avg_queue_s"]), None)
    if row is None:
        return ""
    who = "they" if row.get("completed") == base.get("completed") else _these(row)
    text = f"By the log {who} waited {duration(row['avg_queue_s'])} on average"
    if row["avg_queue_s"] > (base["avg_queue_s"] or 0):
        text += ", for causes that the replays do not know, such as quotas or reserved nodes"
    return f"{text}."


def _beyond(rows: list[Row], facts: TraceFacts) -> str:
    """Say that the log and the cluster of the replays disagree, where they do so by much."""
    share = next((r.get("beyond_share") for r in rows if r["policy"] == RECORDED), None)
    if share is None or share <= _MUCH:
        return ""
    return (
        f"By the log, {percent(share)} of the GPU-hours of these jobs were on GPUs that the source does not list, on"
        f" some nodes or in some {facts.ingested.many}: compare the policies with each other, not with the log."
    )


def _gain(row: Row) -> str:
    interval = _interval(row)
    ends = f" ({interval})" if interval else ""
    worse = f", while {percent(row['worse_share'])} of the jobs end later" if row["worse_share"] else ""
    return (
        f"{policy_name(row)} gives the shortest times, {duration(row['avg_jct_s'])} on average,"
        f" {signed_percent(row['jct_diff_share'])}{ends}{worse}"
    )


def policies_chart(rows: list[Row], facts: TraceFacts) -> list[Panel]:
    """Draw completion time, waiting, and what it costs in fairness, by policy."""
    known = [{**r, "policy": axis_name(r)} for r in rows if r["avg_jct_s"] is not None]
    times = [what for what in _TIMES if any(differ(known, f"{of}_{what}_s") for of in ("median", "avg", "p99"))]
    shown = {key: facts.ingested.words(words) for key, words in _SHARES.items() if differ(known, key, _SEEN)}
    columns = [f"{of}_{what}_s" for what in times for of in ("median", "avg", "p99")] + list(shown)
    if not columns:
        return []
    folded = fold({r["policy"]: [r[c] for c in columns] for r in known})
    kinds = {r["policy"]: r["run_times"] for r in known}
    drawn = [_as_one(r, folded[r["policy"]], kinds) for r in known if r["policy"] in folded]
    drawn = sorted(drawn, key=_by_wait)
    have = {r["mark"] for r in drawn}
    note = "Dot: mean; line: median to 99th percentile."
    note += "".join(f" {words}." for mark, words in _MARKS.items() if mark in have)
    panels = [Panel(_spans(drawn, what, _TIMES[what][1]), title=_TIMES[what][0]) for what in times]
    panels = [replace(panel, note=note if k == 0 else "") for k, panel in enumerate(panels)]
    if shown:
        panels.append(_dots(drawn, shown, facts))
    first, *others = panels
    return [replace(first, note=f"{first.note} {fold_note(folded)}".strip()), *others]


_BOTH = "given to some"
_LOG = "by the log"
_SHAPES = {"not given": "circle", "given": "triangle-up", _BOTH: "cross", TWIN: "square"}
_MARKS = {
    "given": "Orange triangle: knows the run times",
    _BOTH: "Grey cross: some know the run times",
    TWIN: "Square: the twin",
}
"""What marks other than a dot are."""


def _by_wait(row: Row) -> tuple[bool, float, float]:
    wait = row["avg_queue_s"]
    return wait is None, wait or 0.0, row["avg_jct_s"]


def _as_one(row: Row, others: Sequence[str], kinds: Mapping[str, str]) -> Row:
    """Return a row that stands for other policies too: how it is called, what these know, and its mark.

    The twin keeps its mark among others; the log is no policy, and is a line of its own.
    """
    name = row["policy"]
    if name == RECORDED:
        return {**row, "run_times": _LOG, "mark": _LOG}
    known = {kinds[policy] for policy in (name, *others)}
    run_times = known.pop() if len(known) == 1 else _BOTH
    mark = TWIN if axis_name({"policy": TWIN}) in (name, *others) else run_times
    return {**row, "policy": label(name, others), "run_times": run_times, "mark": mark}


def _spans(rows: list[Row], what: str, title: str) -> alt.LayerChart:
    named = {f"median_{what}_s": "median", f"avg_{what}_s": "mean", f"p99_{what}_s": "99th percentile"}
    low, mean, high = named
    rows = [{**r, **{f"{e}_words": duration(r[e]) for e in named if r[e] is not None}} for r in rows]
    values = axis_values(rows, list(named))
    policies = [r["policy"] for r in rows if r["mark"] != _LOG]
    hue = palette({"not given": colour("series-1"), "given": colour("series-2"), _BOTH: colour("muted")})
    shape = alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values()))
    scale, axis = time_scale(values), time_axis(f"{title} (log scale)", values)
    whole = alt.Chart(data(rows))
    base = whole.transform_filter(alt.datum.mark != _LOG).encode(
        y=category("policy", policies, None),
        color=alt.Color("run_times:N", scale=hue),
        tooltip=[
            alt.Tooltip("policy:N"),
            alt.Tooltip("run_times:N", title="run times"),
            *(alt.Tooltip(f"{key}_words:N", title=words) for key, words in named.items()),
        ],
    )
    x = alt.X(f"{mean}:Q", scale=scale, axis=axis)
    line = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x=alt.X(f"{low}:Q", scale=scale, axis=axis), x2=alt.X2(f"{high}:Q")
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, shape=alt.Shape("mark:N", scale=shape))
    layers = [line, point]
    log = next((r[mean] for r in rows if r["mark"] == _LOG and r[mean] is not None), None)
    if log is not None:
        words = f"by the log {duration(log)}"
        recorded = whole.transform_filter(alt.datum.mark == _LOG)
        layers = [*reference(recorded, x, words, left=position(log, values) > _LEFT), *layers]
    return cast("alt.LayerChart", alt.layer(*layers).properties(height=height(len(policies), 19)))


_LEFT = 0.5
"""Part of the axis beyond which the label of the log stands left of its line."""


def _points(names: list[str]) -> alt.Y:
    """Return a vertical axis of policies for points alone."""
    scale = alt.Scale(domain=names, padding=0.5)
    return alt.Y("policy:N", sort=None, scale=scale, axis=alt.Axis(title=None, grid=False))


def _dots(rows: list[Row], columns: dict[str, str], facts: TraceFacts) -> Panel:
    note = " ".join(facts.ingested.words(_SHARE_NOTES[key]) for key in columns)
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


PRESENTATIONS = (Presentation("replay/policies", finding=policies_finding, chart=policies_chart),)
