"""Overview: what the trace holds, how jobs end, how large they are, when they come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.axes import hour_axis
from tracekit.report.charts import GPU_CLASSES, STATUSES, Panel, bars, data
from tracekit.report.phrases import gpu_jobs, hour_span, largest, status_word
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, duration, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_BOTH = {"jobs_share": "share of jobs", "gpu_hours_share": "share of GPU time"}
_UNKNOWN = "unknown"


def summary_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much the trace holds."""
    value = {r["metric"]: r["value"] for r in rows}
    if not value.get("jobs"):
        return None
    text = f"The trace holds {count(value['jobs'])} jobs"
    if value.get("users"):
        text += f" of {count(value['users'])} users"
    if value.get("gpu_hours"):
        text += f", which took {count(value['gpu_hours'])} GPU-hours"
    if value.get("median_run_s") is not None:
        text += f"; half of the jobs with a known run time ran for at most {duration(value['median_run_s'])}"
    return text + "."


def status_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many jobs complete, and what the others cost."""
    by = {r["status"]: r for r in rows}
    done = by.get("completed")
    if done is None:
        return None
    text = f"{percent(done['jobs_share'])} of the jobs completed"
    if done["gpu_hours_share"] is None:
        return text + "."
    running = by.get("running", {}).get("jobs") or 0
    of = "GPU time of finished runs" if running else "GPU time"
    text += f" and took {percent(done['gpu_hours_share'])} of the {of}"
    other = largest([r for r in rows if r["status"] not in {"completed", "running", "pending"}], "gpu_hours_share")
    if other and other["status"]:
        who = f"{status_word(other['status'])} jobs" if other["status"] != _UNKNOWN else "jobs of unknown status"
        text += f"; {who}, {percent(other['jobs_share'])} of all, took {percent(other['gpu_hours_share'])}"
    more = f"; what {counted(running, 'jobs')} that still run have held is in neither" if running else ""
    return f"{text}{more}."


def status_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw share of jobs beside share of GPU time, by status."""
    shown = [{**r, "key": status_word(r["status"])} for r in rows]
    order = [status_word(s) for s in (*STATUSES, None)]
    have = {r["key"] for r in shown}
    panel = _both(shown, [s for s in dict.fromkeys(order) if s in have], None)
    note = "GPU time is that of finished runs: running jobs have none yet." if "running" in have else ""
    return [replace(panel, note=note)]


def size_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which size is most common and which takes most GPU time."""
    common, heavy = largest(rows, "jobs_share"), largest(rows, "gpu_hours_share")
    if common is None or common["gpu_class"] is None:
        return None
    who = gpu_jobs(common["gpu_class"])
    text = f"{who[0].upper()}{who[1:]} are the most common, {percent(common['jobs_share'])} of all"
    if heavy is None or heavy["gpu_class"] is None:
        return text + "."
    if heavy is common:
        return f"{text}, and they also take the most GPU time, {percent(heavy['gpu_hours_share'])}."
    return (
        f"{text}; the most GPU time, {percent(heavy['gpu_hours_share'])}, goes to {gpu_jobs(heavy['gpu_class'])},"
        f" which are {percent(heavy['jobs_share'])} of the jobs."
    )


def size_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw share of jobs beside share of GPU time, by size class."""
    shown = [{**r, "key": r["gpu_class"] or _UNKNOWN} for r in rows]
    have = {r["key"] for r in shown}
    return [_both(shown, [c for c in (*GPU_CLASSES, _UNKNOWN) if c in have], "GPUs of the job")]


def _both(rows: list[Row], values: list[str], title: str | None) -> Panel:
    measures = {k: v for k, v in _BOTH.items() if any(r.get(k) is not None for r in rows)}
    return bars(rows, key="key", values=values, title=title, measures=measures, axis_title="share of the total")


def arrivals_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say when the busiest and the quietest hour are."""
    high, low = largest(rows, "jobs"), largest(rows, "jobs", sign=-1)
    if high is None or low is None or high["jobs"] == low["jobs"]:
        return None
    busy = f"{hour_span(high['hour'])} ({counted(high['jobs'], 'jobs')})"
    quiet = f"{hour_span(low['hour'])} ({count(low['jobs'])})"
    return f"The busiest hour is that between {busy}, the quietest that between {quiet}, over all days together."


def arrivals_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the mean number of submissions of each hour."""
    drawn = (
        alt.Chart(data(rows))
        .mark_bar()
        .encode(
            x=alt.X("hour:O", axis=hour_axis(), scale=alt.Scale(paddingInner=0.18)),
            y=alt.Y("mean_jobs_per_day:Q", axis=alt.Axis(title="jobs a day in this hour", tickCount=4)),
            tooltip=[
                alt.Tooltip("hour:O", title="hour"),
                alt.Tooltip("mean_jobs_per_day:Q", title="jobs a day", format=",.1f"),
                alt.Tooltip("jobs:Q", title="jobs, all days", format=","),
                alt.Tooltip("gpu_jobs:Q", title="of them with GPUs", format=","),
            ],
        )
        .properties(height=200)
    )
    return [Panel(drawn)]


PRESENTATIONS = (
    Presentation("overview/summary", finding=summary_finding),
    Presentation("overview/status", finding=status_finding, chart=status_chart),
    Presentation("overview/job_size", finding=size_finding, chart=size_chart),
    Presentation("overview/arrivals_by_hour", finding=arrivals_finding, chart=arrivals_chart),
)
