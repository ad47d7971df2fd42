"""Charts of the replays: policies side by side, those that change nothing in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tracekit.replay.panel import PANEL
from tracekit.replay.results.record import RECORDED
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
    from collections.abc import Iterable, Mapping, Sequence

    import altair as alt

    from tracekit.answer import Row

__all__ = ["LEAST", "RECORDED", "alike", "in_panel_order", "policy_name"]

LEAST = 0.001
"""A change of less than this share of the mean counts as none."""
_SEEN = 0.005
"""Shares that differ by less look alike in a chart from 0 to 100 %."""
_FOLDED = 3
"""From so many policies on, those whose numbers are alike are drawn as one."""
_TIMES = {
    "completion": ("Completion time", "completion time"),
    "wait": ("Waiting", "wait until the first start"),
}
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


def in_panel_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of the standard panel, whose first policy the others are compared with."""
    places = {name: place for place, name in enumerate(PANEL)}
    return sorted(rows, key=lambda r: places.get(r["policy"], len(places)))


def alike(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Return whether two lists hold the same numbers, up to `LEAST` of each."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and b is not None and abs(a - b) > LEAST * max(abs(a), abs(b)):
            return False
    return True


def _folded(numbers: Mapping[str, Sequence[float | None]]) -> dict[str, list[str]]:
    """Return which policies are drawn, each with those that it stands for besides itself."""
    groups: dict[str, list[str]] = {}
    for name, found in numbers.items():
        same = (first for first in groups if RECORDED not in {first, name} and alike(numbers[first], found))
        first = next(same, None)
        if first is None:
            groups[name] = []
        else:
            groups[first].append(name)
    many = {first: others for first, others in groups.items() if len(others) + 1 >= _FOLDED}
    hidden = {name for others in many.values() for name in others}
    return {name: many.get(name, []) for name in numbers if name not in hidden}


def _label(name: str, others: Sequence[str]) -> str:
    return f"{name} and {len(others)} more" if others else name


def _named(folded: Mapping[str, Sequence[str]]) -> str:
    """Return which policies a chart draws as one."""
    return " ".join(f"As {name}: {'; '.join(others)}." for name, others in folded.items() if others)


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
    times = [what for what in _TIMES if any(_differ(known, f"{of}_{what}_s") for of in ("median", "mean", "p99"))]
    shown = {key: words for key, words in _SHARES.items() if _differ(known, key, _SEEN)}
    columns = [f"{of}_{what}_s" for what in times for of in ("median", "mean", "p99")] + list(shown)
    if not columns:
        return []
    folded = _folded({r["policy"]: [r[c] for c in columns] for r in known})
    kinds = {r["policy"]: r["run_times"] for r in known}
    drawn = [{**r, **_as_one(r["policy"], folded[r["policy"]], kinds)} for r in known if r["policy"] in folded]
    drawn = [{**r, "run_times": _LOG} if r["policy"] == RECORDED else r for r in drawn]
    have = {r["run_times"] for r in drawn}
    note = "Dot: mean. Line: from the median to the 99th percentile."
    note += " Orange: given the true run times in advance." if "given" in have else ""
    note += " Grey: some are given the true run times in advance, some are not." if _BOTH in have else ""
    note += " Green: the log's own schedule; dashed: its mean." if _LOG in have else ""
    panels = [Panel(_spans(drawn, what, _TIMES[what][1]), title=_TIMES[what][0], note=note) for what in times]
    if shown:
        panels.append(_dots(drawn, shown))
    first, *others = panels
    return [replace(first, note=f"{first.note} {_named(folded)}".strip()), *others]


_BOTH = "given to some"
_LOG = "by the log"


def _as_one(name: str, others: Sequence[str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return how a line of a chart is called that stands for several policies, and what they know."""
    told = {kinds[policy] for policy in (name, *others)}
    return {"policy": _label(name, others), "run_times": told.pop() if len(told) == 1 else _BOTH}


def _spans(rows: list[Row], what: str, title: str) -> alt.LayerChart:
    import altair as alt

    named = {f"median_{what}_s": "median", f"mean_{what}_s": "mean", f"p99_{what}_s": "99th percentile"}
    low, mean, high = named
    rows = [{**r, **{f"{e}_words": duration(r[e]) for e in named if r[e] is not None}} for r in rows]
    values = axis_values(rows, list(named))
    hue = palette(
        {"not given": colour("series-1"), "given": colour("series-2"), _BOTH: colour("muted"), _LOG: colour("series-3")}
    )
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
    layers = [line, point]
    if any(r["policy"] == RECORDED for r in rows):
        # A line at the log's own mean, with which every policy can be compared at a glance.
        log = alt.Chart(data(rows)).transform_filter(alt.datum.policy == RECORDED)
        dashed = log.mark_rule(strokeDash=[4, 3], opacity=0.8, color=colour("series-3"))
        layers.insert(0, dashed.encode(x=alt.X(f"{mean}:Q", scale=scale, axis=axis)))
    return cast("alt.LayerChart", alt.layer(*layers).properties(height=height(len(rows), 19)))


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
    found: dict[str, dict[str, float | None]] = {}
    for r in in_panel_order(known):
        found.setdefault(r["policy"], dict.fromkeys(sorted(classes)))[r["gpu_class"]] = r["mean_wait_s"]
    folded = _folded({name: list(waits.values()) for name, waits in found.items()})
    names = {name: _label(name, others) for name, others in folded.items()}
    drawn = [
        {**r, "policy": names[r["policy"]], "words": duration(r["mean_wait_s"])} for r in known if r["policy"] in names
    ]
    colours = class_colours(r["gpu_class"] for r in drawn)
    values = axis_values(drawn, ("mean_wait_s",))
    picture = (
        alt.Chart(data(drawn))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            y=category("policy", list(names.values()), None),
            # Below each other, since equal waits would hide each other.
            yOffset=alt.YOffset("gpu_class:N", scale=alt.Scale(domain=list(colours))),
            x=alt.X("mean_wait_s:Q", scale=time_scale(values), axis=time_axis("mean wait (log scale)", values)),
            color=alt.Color("gpu_class:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("gpu_class:N", title="GPUs"),
                alt.Tooltip("jobs:Q", format=","),
                alt.Tooltip("words:N", title="mean wait"),
            ],
        )
        .properties(height=height(len(names), max(19, 9 * len(colours))))
    )
    note = f"Mean wait until the first start. {_named(folded)}".strip()
    return [Panel(picture, class_legend(colours), note=note)]
