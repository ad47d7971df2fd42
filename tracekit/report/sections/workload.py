"""Workload: what people ask for, and what they run again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.amounts import amounts, named
from tracekit.report.charts import Panel, bars
from tracekit.report.phrases import gpus, largest
from tracekit.report.sections.interface import Presentation
from tracekit.report.size_curves import size_curve
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

REQUESTS = 14
"""Most numbers of GPUs drawn."""


def gpu_request_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which request is most common and which takes most GPU time."""
    common = largest(rows, "jobs")
    if common is None or common["jobs_share"] is None:
        return None
    share = f"{percent(common['jobs_share'])} of the jobs of known size"
    text = f"The commonest request is {gpus(common['gpu_count'])} ({share})"
    heavy = largest(rows, "gpu_hours_share")
    if heavy is None:
        return text + "."
    if heavy is common:
        return f"{text}, which also takes the most GPU time ({percent(heavy['gpu_hours_share'])})."
    who = f"{gpus(heavy['gpu_count'])} ({percent(heavy['gpu_hours_share'])})"
    return f"{text}; the largest share of GPU time goes to requests for {who}."


def gpu_request_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the share of jobs up to each number of GPUs, and what each takes of jobs and of GPU time."""
    axis = "share of jobs of known size"
    each = _commonest(rows, "gpu_count", title="GPUs asked for", axis=axis, what="commonest requests")
    steps = size_curve(rows)
    if steps is None:
        return each
    return [Panel(steps, title="Jobs up to a size"), *(replace(panel, title="Jobs and GPU time") for panel in each)]


def _commonest(rows: list[Row], column: str, *, title: str, axis: str, what: str) -> list[Panel]:
    """Draw share of jobs beside share of GPU time, by the commonest values of a column."""
    kept = sorted(sorted(rows, key=lambda r: (-r["jobs"], r[column]))[:REQUESTS], key=lambda r: r[column])
    if not kept:
        return []
    named_rows = [{**r, "key": count(r[column])} for r in kept]
    measures = {"jobs_share": "share of jobs", "gpu_hours_share": "share of GPU time"}
    known = {k: v for k, v in measures.items() if any(r.get(k) is not None for r in kept)}
    keys = list(dict.fromkeys(r["key"] for r in named_rows))
    panel = bars(named_rows, key="key", values=keys, title=title, measures=known, axis_title=axis)
    left = len(rows) - len(kept)
    note = f"Drawn: the {len(kept)} {what}; {left} more." if left else ""
    return [replace(panel, note=f"{panel.note} {note}".strip())]


RECURRING = 5
"""Jobs from which on PAI's study calls a group recurring."""

LEAST_GROUPS = 10
"""Fewest groups that are jobs which come again; fewer are classes, such as those of service in openb."""


def no_gangs(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that no gang size is known."""
    known = any(r["instance_count"] is not None for r in rows)
    return None if known or not rows else "The source does not state how many instances jobs start."


def gangs_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many jobs are gangs and how much GPU time they take."""
    known = [r for r in rows if r["instance_count"] is not None]
    jobs = sum(r["jobs"] for r in known)
    if not jobs:
        return None
    if jobs < 0.5 * sum(r["jobs"] for r in rows):
        return f"The source states of {counted(jobs, 'jobs')} alone how many instances they start."
    gangs = [r for r in known if r["instance_count"] > 1]
    share = percent(sum(r["jobs"] for r in gangs) / jobs)
    text = f"{share} of the jobs of known gang size start several instances at once"
    held = [r["gpu_hours_share"] for r in gangs if r["gpu_hours_share"] is not None]
    return f"{text}; they take {percent(min(sum(held), 1.0))} of the GPU time." if held else text + "."


def gangs_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw share of jobs beside share of GPU time, by gang size."""
    known = [r for r in rows if r["instance_count"] is not None]
    axis = "share of all jobs"
    return _commonest(known, "instance_count", title="instances", axis=axis, what="commonest gang sizes")


def recurrence_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many of the listed jobs are in recurring groups, and which group is the largest."""
    if not rows:
        return None
    jobs = sum(r["jobs"] for r in rows)
    again = sum(r["jobs"] for r in rows if r["jobs"] >= RECURRING)
    first = rows[0]
    if len(rows) < LEAST_GROUPS:
        return (
            f"The source puts its jobs into {count(len(rows))} group{'' if len(rows) == 1 else 's'} only: such a group"
            " is a kind of job, and does not show which job is the same as an earlier one."
        )
    text = (
        f"Of the {count(jobs)} jobs in the groups of the table, {percent(again / jobs)} are in groups of at least"
        f" {RECURRING} jobs; the largest, {shorten(first['group'], 40)}, has {count(first['jobs'])}"
    )
    if first["median_run_s"] is None:
        return text + "."
    return f"{text} with a median run time of {duration(first['median_run_s'])}."


def recurrence_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the jobs of the largest groups."""
    shown = named(rows, "group", "no group")
    if not shown:
        return []
    tooltip = [
        alt.Tooltip("jobs:Q", format=","),
        alt.Tooltip("users:Q", format=","),
        alt.Tooltip("run_s_cv:Q", title="spread of run times", format=".2f"),
        alt.Tooltip("gpu_hours:Q", title="GPU-hours", format=",.1f"),
    ]
    total, most = len(rows), "largest groups"
    return [amounts(shown, value="jobs", axis_title="jobs", tooltip=tooltip, total=total, what=most)]


PRESENTATIONS = (
    Presentation("workload/gpu_request", finding=gpu_request_finding, chart=gpu_request_chart),
    Presentation("workload/gangs", finding=gangs_finding, chart=gangs_chart, why_empty=no_gangs),
    Presentation(
        "workload/recurrence",
        finding=recurrence_finding,
        chart=recurrence_chart,
        without_rows="No job belongs to a group by which it could be known again.",
    ),
)
