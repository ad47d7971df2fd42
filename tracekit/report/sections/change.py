"""Change: what is different from another time, and whether that is more than noise."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.characterize.changes.compare import GPU_JOBS
from tracekit.report.changed import by_size_of_change, carried, change_words, whole_log
from tracekit.report.charts import Panel, data, height, palette
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, duration, labels, quantity, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_NAMED = 3
"""Most changes named in a sentence."""
_DRAWN = 15
"""Most changes of a part of the jobs that are drawn."""
_FURTHEST = 3.0
"""Largest relative change drawn to scale."""
_LINE = 24
"""Most characters of a line beside the axis."""
_COLOURS = {"changed": "series-2", "noise": "series-1", "too little data": "series-5"}
_WORDS = {"changed": "changed", "noise": "may be noise", "too little data": "too little data"}


def measures_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say what changed by size of job; the page opens with what changed in the whole log."""
    whole = [r for r in rows if whole_log(r)]
    parts = [r for r in rows if not whole_log(r)]
    if not whole:
        return None
    text = _summary(parts, "by size of job", lambda r: f"{r['measure']} of {r['scope']}")
    if any(r["scope"] == GPU_JOBS for r in whole):
        text += " Jobs here are GPU jobs; CPU jobs are a size of their own."
    return text.strip() or None


def vc_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say how many comparisons of tenants show a change, and name those that changed most."""
    where = f"by {facts.tenant.spelled}"
    return _summary(rows, where, lambda r: f"{r['measure']} of {shorten(r['vc'], 30)}") or None


def _summary(rows: list[Row], where: str, name: Callable[[Row], str]) -> str:
    """Return how many of the comparisons of parts show a change, and the largest; '' where there are none."""
    judged = [r for r in rows if r["verdict"] != "too little data"]
    if not rows:
        return ""
    if not judged:
        return f"What changed {where} cannot be told: there is too little data."
    changed = sorted(filter(carried, judged), key=by_size_of_change, reverse=True)
    if not changed:
        return f"None of {counted(len(judged), 'comparisons')} {where} shows a change beyond chance."
    named = "; ".join(f"{name(r)} {change_words(r)}" for r in changed[:_NAMED])
    rest = f"; and {count(len(changed) - _NAMED)} more" if len(changed) > _NAMED else ""
    show = "shows" if len(changed) == 1 else "show"
    return f"{count(len(changed))} of {counted(len(judged), 'comparisons')} {where} {show} a change: {named}{rest}."


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return duration(value)
    ending = " %" if unit in {"share", "percent"} else f" {unit}"
    return f"{quantity(value, unit)}{ending}"


def _change(row: Row) -> str:
    """Return a relative change in words, such as '+12.3 % (+5.0 to +20.1 %)'."""
    share, low, high = (row[f"relative_change{end}"] for end in ("", "_low", "_high"))
    ends = f" ({_signed(low)} to {_signed(high)} %)" if low is not None and high is not None else ""
    return f"{_signed(share)} %{ends}"


def _signed(share: float) -> str:
    return f"{100 * share + 0.0:+,.1f}".replace("-", "\N{MINUS SIGN}")


def measures_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the relative change of every measure over all jobs, and what changed by size of job."""
    whole = [{**r, "what": r["measure"]} for r in rows if whole_log(r)]
    panels = _panels(whole, "GPU jobs" if any(r["scope"] == GPU_JOBS for r in whole) else "All jobs")
    parts = [{**r, "what": f"{r['measure']}, {r['scope']}"} for r in rows if not whole_log(r)]
    return panels + _panels(_changed(parts), "By size of job: what changed", left=_left(parts))


def vc_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw what changed by tenant."""
    named = [{**r, "what": f"{r['measure']}, {r['vc']}"} for r in rows]
    return _panels(_changed(named), "", left=_left(named))


def _changed(rows: list[Row]) -> list[Row]:
    return sorted(filter(carried, rows), key=by_size_of_change, reverse=True)[:_DRAWN]


def _left(rows: list[Row]) -> int:
    return max(0, sum(map(carried, rows)) - _DRAWN)


def _panels(rows: list[Row], title: str, left: int = 0) -> list[Panel]:
    known = [r for r in rows if r["relative_change"] is not None]
    if not known:
        return []
    short = {name: "\n".join(wrap(label, _LINE)) for name, label in labels((r["what"] for r in known), 60).items()}
    shown = [
        {
            "what": short[r["what"]],
            "name": shorten(r["what"], 80),
            "verdict": _WORDS[r["verdict"]],
            "change": r["relative_change"],
            "low": r["relative_change_low"],
            "high": r["relative_change_high"],
            "words": _change(r),
            "before": _value(r["before"], r["unit"]),
            "after": _value(r["after"], r["unit"]),
        }
        for r in known
    ]
    colours = {_WORDS[v]: colour(name) for v, name in _COLOURS.items() if any(r["verdict"] == v for r in known)}
    ends = [v for r in shown for v in (r["change"], r["low"], r["high"]) if v is not None]
    bounds = [max(-1.0, min(ends, default=0.0)), min(_FURTHEST, max(ends, default=0.0))]
    reach = max(abs(bounds[0]), bounds[1], 0.01)
    scale = alt.Scale(domain=[max(-1.0, min(bounds[0], -reach / 4)), max(bounds[1], reach / 4)], clamp=True, nice=False)
    axis = alt.Axis(title="relative change (%)", labelExpr="format(datum.value * 100, '+.4~g')", tickCount=6)
    base = alt.Chart(data(shown)).encode(
        y=alt.Y(
            "what:N",
            sort=None,
            scale=alt.Scale(domain=[r["what"] for r in shown], padding=0.3),
            axis=alt.Axis(title=None, grid=False, labelExpr="split(datum.label, '\\n')"),
        ),
        color=alt.Color("verdict:N", scale=palette(colours)),
        tooltip=[
            alt.Tooltip("name:N", title="measure"),
            alt.Tooltip("before:N"),
            alt.Tooltip("after:N"),
            alt.Tooltip("words:N", title="change"),
            alt.Tooltip("verdict:N"),
        ],
    )
    zero = alt.Chart(data([{"zero": 0}])).mark_rule(color=colour("muted")).encode(x=alt.X("zero:Q", scale=scale))
    line = base.mark_rule(strokeWidth=2, opacity=0.75).encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=alt.X("change:Q", scale=scale, axis=axis))
    note = "Dot: change against the time before. Line: its 95 % interval."
    if max(ends) > _FURTHEST:
        note += " What lies beyond the right edge is drawn at it."
    if len(known) < len(rows):
        note += " Not drawn: what was 0 or unknown before."
    note += f" {left} more." if left else ""
    lines = sum(r["what"].count("\n") + 1 for r in shown)
    drawn = cast("alt.LayerChart", alt.layer(zero, line, point).properties(height=height(lines + len(shown), 14)))
    return [Panel(drawn, tuple(colours.items()), title, note)]


PRESENTATIONS = (
    Presentation("change/measures", finding=measures_finding, chart=measures_chart),
    Presentation("change/by_vc", finding=vc_finding, chart=vc_chart),
)
