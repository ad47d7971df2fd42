"""Change: what differs from an earlier period, and whether it is more than noise."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from tracekit.characterize.changes.compare import GPU_JOBS
from tracekit.report.axes import Axis, names
from tracekit.report.changed import change_words, largest_changes, relative_words, values_words, whole_log
from tracekit.report.charts import Chart, Hues, Mark, Tip, dot, whisker
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, labels, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_NAMED = 3
"""Maximum number of changes named in a sentence."""
_DRAWN = 15
"""Maximum number of changes in the chart for parts of the jobs."""
_FURTHEST = 3.0
"""Largest relative change shown to scale."""
_LINE = 24
"""Maximum length of an axis label [characters]."""
_COLOURS = {"changed": "series-2", "noise": "series-1", "too little data": "series-5"}
_WORDS = {"changed": "changed", "noise": "may be noise", "too little data": "too little data"}


def measures_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say what changed by job size. Changes of the whole log are in the opening of the page."""
    whole = [r for r in rows if whole_log(r)]
    parts = [r for r in rows if not whole_log(r)]
    if not whole:
        return None
    text = _summary(parts, "by size of job", lambda r: f"{r['measure']} of {r['scope']}")
    if any(r["scope"] == GPU_JOBS for r in whole):
        text += " Only GPU jobs are compared by size. CPU jobs are a separate size class."
    return text.strip() or None


def vc_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say how many tenant comparisons show a change, and name the largest changes."""
    where = f"by {facts.tenant.spelled}"
    return _summary(rows, where, lambda r: f"{r['measure']} of {shorten(r[facts.tenant.column], 30)}") or None


def _summary(rows: list[Row], where: str, name: Callable[[Row], str]) -> str:
    """Return how many comparisons show a change, with the largest changes; '' if nothing was compared."""
    judged = [r for r in rows if r["verdict"] != "too little data"]
    if not rows:
        return ""
    if not judged:
        return f"There is too little data to say what changed {where}."
    changed = largest_changes(judged)
    if not changed:
        return f"None of {counted(len(judged), 'comparisons')} {where} shows a change beyond chance."
    named = "; ".join(f"{name(r)} {change_words(r)}" for r in changed[:_NAMED])
    rest = f"; and {count(len(changed) - _NAMED)} more" if len(changed) > _NAMED else ""
    show = "shows" if len(changed) == 1 else "show"
    return f"{count(len(changed))} of {counted(len(judged), 'comparisons')} {where} {show} a change: {named}{rest}."


def measures_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw the relative change of every measure over all jobs, and the largest changes by job size."""
    whole = [{**r, "what": r["measure"]} for r in rows if whole_log(r)]
    charts = _charts(whole, "GPU jobs" if any(r["scope"] == GPU_JOBS for r in whole) else "All jobs")
    parts = [{**r, "what": f"{r['measure']}, {r['scope']}"} for r in rows if not whole_log(r)]
    return charts + _charts(largest_changes(parts), "Changes by job size", most=_DRAWN)


def vc_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the changes by tenant."""
    named = [{**r, "what": f"{r['measure']}, {r[facts.tenant.column]}"} for r in rows]
    return _charts(largest_changes(named), "", most=_DRAWN)


def _charts(rows: list[Row], title: str, most: int | None = None) -> list[Chart]:
    rows, left = rows[:most], len(rows[len(rows) if most is None else most :])
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
            "words": relative_words(r),
            **dict(zip(("before", "after"), values_words((r["before"], r["after"]), r["unit"]), strict=True)),
        }
        for r in known
    ]
    ends = [v for r in shown for v in (r["change"], r["low"], r["high"]) if v is not None]
    low, high = max(-1.0, min(ends, default=0.0)), min(_FURTHEST, max(ends, default=0.0))
    reach = max(abs(low), high, 0.01)
    domain = [max(-1.0, min(low, -reach / 4)), max(high, reach / 4)]
    x = Axis(
        "change",
        "relative change (%)",
        scale={"domain": domain, "clamp": True, "nice": False},
        labels={"labelExpr": "format(datum.value * 100, '+.4~g')", "tickCount": 6},
    )
    lines = sum(r["what"].count("\n") + 1 for r in shown)
    y = names("what", [r["what"] for r in shown], step=14 * (lines / len(shown) + 1))
    zero = Mark("rule", {"color": colour("muted")}, on="x", rows=[{"change": 0}])
    note = "Dot: change from the earlier period. Line: its 95 % interval."
    if max(ends) > _FURTHEST:
        note += " Values beyond the right edge are shown at the edge."
    if len(known) < len(rows):
        note += " Measures that were 0 or unknown in the earlier period are not shown."
    note += f" {left} more." if left else ""
    chart = Chart(
        shown,
        x=x,
        y=replace(y, labels={**y.labels, "labelExpr": "split(datum.label, '\\n')"}),
        marks=[zero, whisker(x.of("low"), "high"), dot()],
        by=Hues(
            "verdict", {_WORDS[v]: colour(c) for v, c in _COLOURS.items() if any(r["verdict"] == v for r in known)}
        ),
        tips=[Tip("name", "measure"), Tip("before"), Tip("after"), Tip("words", "change"), Tip("verdict")],
        title=title,
        note=note,
    )
    return [chart]


PRESENTATIONS = (
    Presentation("change/measures", finding=measures_finding, chart=measures_chart),
    Presentation("change/by_vc", finding=vc_finding, chart=vc_chart),
)
