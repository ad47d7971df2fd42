"""Overview: what the trace contains, and how large jobs are, when they are submitted and how they end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import hours, number
from tracekit.report.bars import bars
from tracekit.report.charts import GPU_CLASSES, STATUSES, Chart, Mark, Tip
from tracekit.report.headline import mixes_kinds
from tracekit.report.phrases import gpu_jobs, hour_span, largest, status_word
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, duration, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_BOTH = {"jobs_share": "share of jobs", "gpu_hours_share": "share of GPU time"}
_UNKNOWN = "unknown"


def summary_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the numbers of jobs, users and GPU-hours."""
    value = {r["metric"]: r["value"] for r in rows}
    if not value.get("jobs"):
        return None
    known = {metric: number for metric, number in value.items() if number is not None}
    mixed = mixes_kinds(known)
    text = f"The trace has {count(value['jobs'])} jobs"
    if mixed:
        text += f", {count(known['gpu_jobs'])} of them with GPUs,"
    if value.get("users"):
        text += f" of {count(value['users'])} users"
    if value.get("gpu_hours"):
        text += f", which took {count(value['gpu_hours'])} GPU-hours"
    if mixed:
        halves = [
            f"half of the {kind} jobs ran {duration(known[name])} or less"
            for kind, name in (("GPU", "gpu_median_run_s"), ("CPU", "cpu_median_run_s"))
            if name in known
        ]
        medians = " and ".join(halves)
        text += f". {medians[0].upper()}{medians[1:]}" if medians else ""
    elif value.get("median_run_s") is not None:
        text += f". Half of the jobs ran for at most {duration(value['median_run_s'])}"
    return text + "."


def status_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many jobs complete, and what the other jobs cost."""
    by = {r["status"]: r for r in rows}
    done = by.get("completed")
    if done is None:
        return None
    share, jobs = _kind(rows)
    whole = "the GPU jobs" if share == _GPU_SHARE else "all jobs"
    beside = done.get("cpu_jobs_share") if share == _GPU_SHARE else None
    cpu = f" ({percent(beside)} of the CPU jobs)" if beside is not None else ""
    text = f"{percent(done[share])} of the {jobs} completed{cpu}"
    if done["gpu_hours_share"] is None:
        return text + "."
    running = by.get("running", {}).get("jobs") or 0
    of = "GPU time of finished runs" if running else "GPU time"
    text += f" and took {percent(done['gpu_hours_share'])} of the {of}"
    other = largest([r for r in rows if r["status"] not in {"completed", "running", "pending"}], "gpu_hours_share")
    if other and other["status"]:
        who = f"{status_word(other['status'])} jobs" if other["status"] != _UNKNOWN else "jobs of unknown status"
        text += f". {who[0].upper()}{who[1:]} make up {percent(other[share])} of {whole} and took"
        text += f" {percent(other['gpu_hours_share'])}"
        second = {"failed": "timeout", "timeout": "failed"}.get(other["status"])
        row = by.get(second) if second else None
        if row is not None and row[share]:
            part = f" and took {percent(row['gpu_hours_share'])}" if row["gpu_hours_share"] else ""
            text += f", {status_word(second)} jobs {percent(row[share])}{part}"
    more = f". Not counted: {counted(running, 'jobs')} still running" if running else ""
    return f"{text}{more}."


_GPU_SHARE = "gpu_jobs_share"


def _kind(rows: list[Row]) -> tuple[str, str]:
    """Return the share column to report and the name of its jobs, which are GPU jobs if the trace also has CPU jobs."""
    gpu = sum(r.get("gpu_jobs") or 0 for r in rows)
    return (_GPU_SHARE, "GPU jobs") if 0 < gpu < sum(r["jobs"] or 0 for r in rows) else ("jobs_share", "jobs")


def status_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the share of jobs next to the share of GPU time, by status."""
    shown = [{**r, "key": status_word(r["status"])} for r in rows]
    order = [status_word(s) for s in (*STATUSES, None)]
    have = {r["key"] for r in shown}
    share, jobs = _kind(rows)
    words = {share: f"share of {jobs}", "gpu_hours_share": _BOTH["gpu_hours_share"]}
    chart = _both(shown, [s for s in dict.fromkeys(order) if s in have], None, words)
    note = "GPU time includes only finished runs, so running jobs have none yet." if "running" in have else ""
    return replace(chart, note=note)


def size_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which size is most common and which uses the most GPU time."""
    sized = [r for r in rows if r["gpu_class"] not in (None, "0")]
    total = sum(r["jobs"] for r in rows)
    gpu = sum(r["jobs"] for r in sized)
    mixed = 0 < gpu < total
    of, whole = ("of the GPU jobs", gpu) if mixed else ("of all jobs", total)
    common, heavy = largest(sized if mixed else rows, "jobs"), largest(rows, "gpu_hours_share")
    if common is None or common["gpu_class"] is None or not whole:
        return None
    who = gpu_jobs(common["gpu_class"])
    part = common["jobs"] / whole if mixed else common["jobs_share"]
    cpu = sum(r["jobs"] for r in rows if r["gpu_class"] == "0")
    more = f", plus {counted(cpu, 'CPU jobs')}" if mixed and cpu else ""
    text = f"{who[0].upper()}{who[1:]} are the most common ({percent(part)} {of}{more})"
    if heavy is None or heavy["gpu_class"] is None:
        return text + "."
    if heavy is common:
        return f"{text}, and they also take the most GPU time ({percent(heavy['gpu_hours_share'])})."
    heavy_part = heavy["jobs"] / whole if mixed else heavy["jobs_share"]
    return (
        f"{text}. The most GPU time ({percent(heavy['gpu_hours_share'])}) goes to {gpu_jobs(heavy['gpu_class'])}, which"
        f" are {percent(heavy_part)} of the {'GPU jobs' if mixed else 'jobs'}."
    )


def size_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the share of jobs next to the share of GPU time, by size class."""
    shown = [{**r, "key": r["gpu_class"] or _UNKNOWN} for r in rows]
    have = {r["key"] for r in shown}
    return _both(shown, [c for c in (*GPU_CLASSES, _UNKNOWN) if c in have], "GPUs of the job")


def _both(rows: list[Row], values: list[str], title: str | None, words: dict[str, str] = _BOTH) -> Chart:
    return bars(rows, key="key", values=values, title=title, measures=words, axis_title="share of the total")


def arrivals_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the busiest and the quietest hour."""
    gpu = sum(r.get("gpu_jobs") or 0 for r in rows)
    mixed = 0 < gpu < sum(r["jobs"] for r in rows)
    column = "gpu_jobs" if mixed else "jobs"
    high, low = largest(rows, column), largest(rows, column, sign=-1)
    if high is None or low is None or high[column] == low[column]:
        return None
    busy = f"{hour_span(high['hour'])} ({counted(high[column], 'GPU jobs' if mixed else 'jobs')})"
    quiet = f"{hour_span(low['hour'])} ({count(low[column])})"
    return f"Over all days, the busiest hour is between {busy}, and the quietest is between {quiet}."


def arrivals_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the mean number of submissions per hour, only for GPU jobs if the trace also has CPU jobs."""
    mixed = 0 < sum(r.get("gpu_jobs") or 0 for r in rows) < sum(r["jobs"] for r in rows)
    if mixed:
        rows = [
            {**r, "drawn": r["mean_jobs_per_day"] * (r["gpu_jobs"] or 0) / r["jobs"] if r["jobs"] else 0.0}
            for r in rows
        ]
    column, kind = ("drawn", "GPU jobs") if mixed else ("mean_jobs_per_day", "jobs")
    tips = [
        Tip("hour", "hour"),
        Tip(column, f"{kind} per day", ",.1f"),
        Tip("jobs", "jobs, all days", ","),
        Tip("gpu_jobs", "of them with GPUs", ","),
    ]
    y = number(column, f"{kind} per day in this hour", ticks=4)
    return Chart(rows, x=hours(type="ordinal"), y=y, marks=[Mark("bar")], height=200, tips=tips)


def through_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Describe the differences between the two halves of the log."""
    halves = [row for row in rows if row["period"] == "half"]
    if len(halves) < 2:
        return None
    first, second = halves
    told = [
        f"{what} {write(first[column])} -> {write(second[column])}"
        for column, what, write in _COURSE
        if first[column] is not None and second[column] is not None
    ]
    return f"Changes from the first half of the log to the second: {', '.join(told)}." if told else None


_COURSE = (
    ("mean_wait_s", "mean wait", duration),
    ("p90_wait_s", "90th percentile of waits", duration),
    ("held_share", "GPU time allocated", percent),
    ("used_share", "mean use of GPUs", percent),
    ("completed_share", "GPU time of completed jobs", percent),
)


PRESENTATIONS = (
    Presentation("overview/summary", finding=summary_finding),
    Presentation("overview/through_time", finding=through_time_finding),
    Presentation("overview/status", finding=status_finding, chart=status_chart),
    Presentation("overview/job_size", finding=size_finding, chart=size_chart),
    Presentation("overview/arrivals_by_hour", finding=arrivals_finding, chart=arrivals_chart),
)
