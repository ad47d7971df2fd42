"""Users and their jobs: who uses the most, who waits, what jobs request, and which jobs recur."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import share
from tracekit.report.bars import amounts, bars, named
from tracekit.report.charts import Chart, Tip, line, series
from tracekit.report.phrases import drawn_note, gpus, largest
from tracekit.report.sections.interface import Presentation
from tracekit.report.spreads import size_curve
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


POINTS = 60
"""Maximum number of points on a curve. A page cannot show more."""

HEAVIEST = 0.1
"""Share of users in the sentence, if the trace has enough users."""

_CURVES = {
    "gpu_time_share": "GPU time",
    "cpu_time_share": "CPU time of CPU jobs",
    "all_cpu_time_share": "CPU time of all jobs",
}


def concentration_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the share of the GPU time that the heaviest tenth of the users takes."""
    few = [r for r in rows if 0 < r["user_share"] <= HEAVIEST] or rows[:1]
    if not few:
        return None
    last = few[-1]
    parts = [f"{percent(last[c])} of the {words}" for c, words in _CURVES.items() if last.get(c) is not None]
    if not parts:
        return None
    if len(rows) == 1:
        return "All jobs belong to a single user."
    number = rows.index(last) + 1
    which = f"heaviest {count(number)} of the {count(len(rows))} users" if number > 1 else "heaviest user"
    who = f"{which} ({percent(last['user_share'])})" if last["user_share"] else which
    *first, final = parts
    return f"The {who} took {', '.join(first)}{' and ' if first else ''}{final}."


def concentration_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the cumulative share of time against the share of users, with the heaviest users first."""
    have = {c: words for c, words in _CURVES.items() if any(r.get(c) is not None for r in rows)}
    if not have or len(rows) < 2:
        return None
    # The curve bends near its start, so it includes all users there and a sample of the rest.
    picked = {*range(min(POINTS // 2, len(rows))), *range(0, len(rows), -(-len(rows) * 2 // POINTS)), len(rows) - 1}
    by = series("of", have.values())
    of = "time" if len(have) > 1 else next(iter(have.values()))
    return Chart(
        [
            {"users": rows[i]["user_share"], "of": words, "share": rows[i][column]}
            for i in sorted(picked)
            for column, words in have.items()
        ],
        x=share("users", "share of the users, heaviest first", whole=True),
        y=share("share", f"share of the {of}"),
        marks=[line(point=True)],
        height=240,
        by=by,
        tips=[Tip("of"), Tip("users", "share of users", ".1%"), Tip("share", "share of time", ".1%")],
    )


def queueing_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say who waited longest, and for how many jobs."""
    waited = [r for r in rows if r["queue_hours"]]
    if not waited:
        return "No job with GPUs waited." if any(r["queue_hours"] is not None for r in rows) else None
    first = waited[0]
    who = f"User {shorten(first['user'], 30)}" if first["user"] is not None else "Jobs without a user"
    jobs = counted(first["gpu_jobs"], "GPU jobs")
    text = f"{who} waited longest: {count(first['queue_hours'])} h in total for {jobs}"
    if first["completed_share"] is None:
        return text + "."
    return f"{text}, of which {percent(first['completed_share'])} completed."


def queueing_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the queueing hours of the users who waited longest."""
    shown = named([r for r in rows if r["queue_hours"]], "user", "no user")
    tips = [
        Tip("queue_hours", "hours in the queue", ",.1f"),
        Tip("gpu_jobs", "GPU jobs", ","),
        Tip("gpu_hours", "GPU-hours", ",.1f"),
        Tip("completed_share", "completed", ".1%"),
    ]
    axis, most, total = "hours in the queue, all GPU jobs", "users who waited longest", len(rows)
    return amounts(shown, value="queue_hours", axis_title=axis, tips=tips, total=total, what=most)


REQUESTS = 14
"""Maximum number of GPU counts shown."""


def gpu_request_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which request is most common and which takes the most GPU time."""
    common = largest(rows, "jobs")
    if common is None or common["jobs_share"] is None:
        return None
    share = f"{percent(common['jobs_share'])} of the jobs of known size"
    text = f"The most common request is {gpus(common['gpu_count'])} ({share})"
    heavy = largest(rows, "gpu_hours_share")
    if heavy is None:
        return text + "."
    if heavy is common:
        return f"{text}, which also takes the most GPU time ({percent(heavy['gpu_hours_share'])})."
    who = f"{gpus(heavy['gpu_count'])} ({percent(heavy['gpu_hours_share'])})"
    return f"{text}. The most GPU time goes to requests for {who}."


def gpu_request_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw the cumulative share of jobs by GPU count, and the share of jobs and GPU time for each count."""
    axis = "share of jobs of known size"
    each = _commonest(rows, "gpu_count", title="GPUs requested", axis=axis, what="most common requests")
    steps = size_curve(rows)
    return [each] if steps is None else [steps, replace(each, title="Jobs and GPU time")]


def _commonest(rows: list[Row], column: str, *, title: str, axis: str, what: str) -> Chart:
    """Draw the share of jobs next to the share of GPU time, for the most common values of a column."""
    kept = sorted(sorted(rows, key=lambda r: (-r["jobs"], r[column]))[:REQUESTS], key=lambda r: r[column])
    named_rows = [{**r, "key": count(r[column])} for r in kept]
    measures = {"jobs_share": "share of jobs", "gpu_hours_share": "share of GPU time"}
    keys = list(dict.fromkeys(r["key"] for r in named_rows))
    note = drawn_note(len(kept), len(rows), what)
    return bars(named_rows, key="key", values=keys, title=title, measures=measures, axis_title=axis, note=note)


RECURRING = 5
"""Minimum number of jobs for a group to count as recurring in the PAI study."""

LEAST_GROUPS = 10
"""Fewer groups are job classes, such as the service classes in openb, not recurring jobs."""


def no_gangs(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that the source does not record gang sizes."""
    known = any(r["instance_count"] is not None for r in rows)
    return None if known or not rows else "The source does not record how many instances each job starts."


def gangs_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many jobs are gangs and how much GPU time they take."""
    known = [r for r in rows if r["instance_count"] is not None]
    jobs = sum(r["jobs"] for r in known)
    if not jobs:
        return None
    if jobs < 0.5 * sum(r["jobs"] for r in rows):
        return f"The source records the number of instances for only {counted(jobs, 'jobs')}."
    gangs = [r for r in known if r["instance_count"] > 1]
    share = percent(sum(r["jobs"] for r in gangs) / jobs)
    text = f"Of the jobs with a known number of instances, {share} start several instances at once"
    held = [r["gpu_hours_share"] for r in gangs if r["gpu_hours_share"] is not None]
    return f"{text}. They take {percent(min(sum(held), 1.0))} of the GPU time." if held else text + "."


def gangs_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the share of jobs next to the share of GPU time, by gang size."""
    known = [r for r in rows if r["instance_count"] is not None]
    axis = "share of all jobs"
    return _commonest(known, "instance_count", title="instances", axis=axis, what="most common gang sizes")


def recurrence_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many of the listed jobs are in recurring groups, and name the largest group."""
    if not rows:
        return None
    jobs = sum(r["jobs"] for r in rows)
    again = sum(r["jobs"] for r in rows if r["jobs"] >= RECURRING)
    first = rows[0]
    if len(rows) < LEAST_GROUPS:
        return (
            f"The source has only {count(len(rows))} job group{'' if len(rows) == 1 else 's'}. So few groups do not"
            " show which jobs repeat an earlier job."
        )
    text = (
        f"Of the {count(jobs)} jobs in the table's groups, {percent(again / jobs)} are in groups of at least"
        f" {RECURRING} jobs. The largest group, {shorten(first['group'], 40)}, has {count(first['jobs'])} jobs"
    )
    if first["median_run_s"] is None:
        return text + "."
    return f"{text} with a median run time of {duration(first['median_run_s'])}."


def recurrence_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the jobs of the largest groups."""
    shown = named(rows, "group", "no group")
    tips = [
        Tip("jobs", "", ","),
        Tip("users", "", ","),
        Tip("run_s_cv", "spread of run times", ".2f"),
        Tip("gpu_hours", "GPU-hours", ",.1f"),
    ]
    return amounts(shown, value="jobs", axis_title="jobs", tips=tips, total=len(rows), what="largest groups")


PRESENTATIONS = (
    Presentation("users/concentration", finding=concentration_finding, chart=concentration_chart),
    Presentation("users/queueing", finding=queueing_finding, chart=queueing_chart),
    Presentation("workload/gpu_request", finding=gpu_request_finding, chart=gpu_request_chart),
    Presentation("workload/gangs", finding=gangs_finding, chart=gangs_chart, why_empty=no_gangs),
    Presentation(
        "workload/recurrence",
        finding=recurrence_finding,
        chart=recurrence_chart,
        without_rows="No job belongs to a group that shows whether it repeats an earlier job.",
    ),
)
