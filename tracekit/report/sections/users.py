"""Users: how few take most of the cluster, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.amounts import amounts, named
from tracekit.report.charts import Panel, data, palette, percent_axis
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

POINTS = 60
"""Most points of a curve; more cannot be distinguished on a page."""

HEAVIEST = 0.1
"""The share of users in the sentence, where there are enough users."""

_CURVES = {
    "gpu_time_share": "GPU time",
    "cpu_time_share": "CPU time of CPU jobs",
    "all_cpu_time_share": "CPU time of all jobs",
}


def concentration_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say what the heaviest tenth of the users takes."""
    few = [r for r in rows if 0 < r["user_share"] <= HEAVIEST] or rows[:1]
    if not few:
        return None
    last = few[-1]
    parts = [f"{percent(last[c])} of the {words}" for c, words in _CURVES.items() if last.get(c) is not None]
    if not parts:
        return None
    if len(rows) == 1:
        return "All jobs are those of a single user."
    number = rows.index(last) + 1
    which = f"heaviest {count(number)} of the {count(len(rows))} users" if number > 1 else "heaviest user"
    who = f"{which} ({percent(last['user_share'])})" if last["user_share"] else which
    *first, final = parts
    return f"The {who} took {', '.join(first)}{' and ' if first else ''}{final}."


def concentration_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the share of the time against the share of the users, heaviest first."""
    have = {c: words for c, words in _CURVES.items() if any(r.get(c) is not None for r in rows)}
    if not have or len(rows) < 2:
        return []
    # The curve bends at its beginning: it has all of the first users and a sample of the others.
    picked = {*range(min(POINTS // 2, len(rows))), *range(0, len(rows), -(-len(rows) * 2 // POINTS)), len(rows) - 1}
    colours = {words: colour(f"series-{i}") for i, words in enumerate(have.values(), 1)}
    shown = [
        {"users": rows[i]["user_share"], "of": words, "share": rows[i][column]}
        for i in sorted(picked)
        for column, words in have.items()
    ]
    of = "time" if len(colours) > 1 else next(iter(colours))
    drawn = (
        alt.Chart(data(shown))
        .mark_line(point=True)
        .encode(
            x=alt.X("users:Q", axis=percent_axis("share of the users, heaviest first"), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("share:Q", axis=percent_axis(f"share of the {of}"), scale=alt.Scale(domainMin=0)),
            color=alt.Color("of:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("of:N"),
                alt.Tooltip("users:Q", title="share of users", format=".1%"),
                alt.Tooltip("share:Q", title="share of time", format=".1%"),
            ],
        )
        .properties(height=240)
    )
    return [Panel(drawn, tuple(colours.items()))]


def queueing_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say who waited longest, and for how many jobs."""
    waited = [r for r in rows if r["queue_hours"]]
    if not waited:
        return "No job with GPUs waited." if any(r["queue_hours"] is not None for r in rows) else None
    first = waited[0]
    who = f"User {shorten(first['user'], 30)}" if first["user"] is not None else "Jobs without a user"
    text = f"{who} waited longest, {count(first['queue_hours'])} h over {counted(first['gpu_jobs'], 'GPU jobs')}"
    if first["completed_share"] is None:
        return text + "."
    return f"{text}, of which {percent(first['completed_share'])} completed."


def queueing_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the hours in the queue of the users who waited most."""
    shown = named([r for r in rows if r["queue_hours"]], "user", "no user")
    if not shown:
        return []
    tooltip = [
        alt.Tooltip("queue_hours:Q", title="hours in the queue", format=",.1f"),
        alt.Tooltip("gpu_jobs:Q", title="GPU jobs", format=","),
        alt.Tooltip("gpu_hours:Q", title="GPU-hours", format=",.1f"),
        alt.Tooltip("completed_share:Q", title="completed", format=".1%"),
    ]
    axis, most, total = "hours in the queue, all GPU jobs", "users who waited most", len(rows)
    return [amounts(shown, value="queue_hours", axis_title=axis, tooltip=tooltip, total=total, what=most)]


PRESENTATIONS = (
    Presentation("users/concentration", finding=concentration_finding, chart=concentration_chart),
    Presentation("users/queueing", finding=queueing_finding, chart=queueing_chart),
)
