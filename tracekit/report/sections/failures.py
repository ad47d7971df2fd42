"""Failures: how jobs of each size end, how often they are retried, and what failures cost each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.intervals import FEW
from tracekit.report.axes import names, number, share
from tracekit.report.bars import amounts, named
from tracekit.report.charts import (
    GPU_CLASSES,
    STATUSES,
    Chart,
    Tip,
    bar,
    size_hues,
    stack,
    status_hues,
)
from tracekit.report.phrases import bad_ends, by_class, enough, gpu_jobs, largest, sample_size, scope, sums
from tracekit.report.sections.interface import Presentation
from tracekit.report.spreads import ranges
from tracekit.schema import UNSUCCESSFUL
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


_KNOWN = 0.5
"""Minimum share of jobs with a known status for sizes to be compared."""

CHANCE = 0.05
"""If the p-value is above this, differences between shares may be chance."""


def status_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Compare the share of unsuccessful jobs between sizes, among jobs with a known status."""
    open_ends = (None, "unknown", "running", "pending")
    ended = [r for r in rows if r["gpu_class"] is not None and r["status"] not in open_ends]
    total = sums(ended, "gpu_class", "jobs")
    failed = sums((r for r in ended if r["status"] in UNSUCCESSFUL), "gpu_class", "jobs")
    late = sums((r for r in ended if r["status"] == "timeout"), "gpu_class", "jobs")
    if not failed:
        return f"None of the {counted(sum(total.values()), 'jobs')} with a known end failed." if total else None
    jobs = sums(rows, "gpu_class", "jobs")
    every = {c: jobs[c] for c in total}
    if sum(total.values()) < _KNOWN * sum(every.values()):
        return _hardly_known(failed, late, every)
    shares = [
        {"gpu_class": c, "jobs": n, "share": failed.get(c, 0) / n, "late": late.get(c, 0) / n}
        for c, n in total.items()
        if n
    ]
    text = _compared(_of_gpu_jobs(shares))
    cpu = next((s for s in enough(shares, "jobs") if s["gpu_class"] == "0"), None)
    beside = f" {_cpu(cpu)}" if cpu is not None and cpu["share"] and len(shares) > 1 else ""
    return f"{text}{beside}" if text is not None else None


def _of_gpu_jobs(rows: list[Row]) -> list[Row]:
    """Return the rows of GPU jobs, or all rows if there are no GPU jobs."""
    return [r for r in rows if r["gpu_class"] != "0"] or rows


def _compared(shares: list[Row]) -> str | None:
    """Say which sizes are unsuccessful most and least often."""
    among = scope(shares, "jobs", what="such jobs")
    shares = enough(shares, "jobs")
    low, high = largest(shares, "share", sign=-1), largest(shares, "share")
    if low is None or high is None:
        return None
    if len(shares) < 2:
        return f"{_say(high)}. Other sizes have fewer than {FEW} of these jobs." if among else f"{_say(high)}."
    if low["share"] == high["share"] or _alike(shares):
        which = f" (sizes{among})" if among else ""
        return f"{_range(low, high)}{which}."
    return (
        f"{_say(high)}, the largest share of any size{among}."
        f" The share is smallest for {gpu_jobs(low['gpu_class'])}: {percent(low['share'])}{_parts(low)}"
        f"{sample_size(low['jobs'])}."
    )


def _hardly_known(failed: dict[str, int], late: dict[str, int], every: dict[str, int]) -> str | None:
    """Give the known share of failures by size. Most statuses are unknown, so sizes cannot be compared."""
    common = sorted(every, key=lambda c: -every[c])[:2]
    parts = [f"{percent((failed.get(c, 0) - late.get(c, 0)) / every[c])} of the {gpu_jobs(c)}" for c in common]
    text = f"How most jobs ended is unknown, so sizes cannot be compared. Known to have failed: {', '.join(parts)}"
    if any(late.values()):
        timed = [f"{percent(late.get(c, 0) / every[c])} of the {gpu_jobs(c)}" for c in common]
        text += f". Known to have timed out: {', '.join(timed)}"
    return f"{text}."


def _range(low: Row, high: Row) -> str:
    if low["share"] == high["share"]:
        alike = "are unsuccessful" if low["late"] else "fail"
        return f"All sizes {alike} equally often: {percent(low['share'])} of the jobs with a known end {_ended(low)}"
    return (
        f"The differences may be chance: {_say(low)}, and {percent(high['share'])} of the {gpu_jobs(high['gpu_class'])}"
        f"{_parts(high)}{sample_size(high['jobs'])}"
    )


def _alike(shares: list[Row]) -> bool:
    """Return whether the differences between shares may be chance (chi-squared test, p at least 0.05)."""
    from scipy.special import chdtrc

    failed = [round(r["share"] * r["jobs"]) for r in shares]
    share = sum(failed) / sum(r["jobs"] for r in shares)
    if share in (0, 1):
        return True
    # Pearson's statistic for a table with two rows: failed and not failed.
    expected = [(r["jobs"] * share, n) for r, n in zip(shares, failed, strict=True)]
    statistic = sum((n - mean) ** 2 / (mean * (1 - share)) for mean, n in expected)
    return bool(chdtrc(len(shares) - 1, statistic) > CHANCE)


def _cpu(row: Row) -> str:
    how = f"did not succeed{_parts(row)}" if row["late"] else "failed"
    return f"Of the CPU jobs, {percent(row['share'])} {how}{sample_size(row['jobs'])}."


def _say(row: Row) -> str:
    who = f"{percent(row['share'])} of the {gpu_jobs(row['gpu_class'])} with a known end"
    return f"{who} {_ended(row)}{sample_size(row['jobs'])}"


def _ended(row: Row) -> str:
    return bad_ends(row["share"] - row["late"], row["late"], 1)


def _parts(row: Row) -> str:
    """Return the failed and timed-out parts of a share in parentheses, if both occur."""
    if not row["late"]:
        return ""
    return f" ({percent(row['share'] - row['late'])} failed, {percent(row['late'])} timed out)"


def status_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the status shares of each size class."""
    order = {s: i for i, s in enumerate(STATUSES)}
    shown = [
        {**r, "end": r["status"] or "unknown", "order": order[r["status"] or "unknown"]}
        for r in rows
        if r["gpu_class"] is not None and (r["status"] or "unknown") in order
    ]
    have = {r["gpu_class"] for r in shown}
    by = status_hues(shown, "end")
    return Chart(
        shown,
        x=share("jobs_share", "share of the jobs of a size", whole=True, stacked=True),
        y=names("gpu_class", [c for c in GPU_CLASSES if c in have], "GPUs of the job", step=28),
        marks=[stack(18)],
        by=by,
        tips=[Tip("gpu_class", "GPUs"), Tip("end", "status"), Tip("jobs", "", ","), Tip("jobs_share", "share", ".1%")],
        note="Jobs with an unknown end are included." if {"running", "pending", "unknown"} & {*by.colours} else "",
    )


def retries_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which size is retried most often."""
    sizes = _of_gpu_jobs(list(by_class(rows).values()))
    most = largest(enough(sizes, "jobs"), "mean_retries")
    if most is None:
        return None
    if not any(r["mean_retries"] for r in sizes):
        return "No job was retried."
    among = scope(sizes, "jobs")
    of = f" of the sizes{among}" if among else ""
    text = (
        f"{gpu_jobs(most['gpu_class'])} are retried most often{of}: {most['mean_retries']:.2f} retries per job"
        f"{sample_size(most['jobs'])}"
    )
    if most["unsuccessful_share"] is not None:
        late = most.get("timeout_share") or 0
        text += f". Of these jobs, {percent(most['unsuccessful_share'])} never succeed"
        text += f", {percent(late)} because they time out" if late else ""
    return text[0].upper() + text[1:] + "."


def retries_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw mean retries and the share of unsuccessful jobs by size class."""
    have = by_class(rows)
    classes = [c for c in GPU_CLASSES if c in have]
    shown = [have[c] for c in classes]
    tips = [
        Tip("gpu_class", "GPUs"),
        Tip("jobs", "", ","),
        Tip("mean_retries", "retries per job", ".2f"),
        Tip("unsuccessful_share", "unsuccessful", ".1%"),
    ]
    y = names("gpu_class", classes, "GPUs of the job", step=26)
    measures = {
        "series-1": number("mean_retries", "retries per job (mean)"),
        "status-failed": share("unsuccessful_share", "share of jobs that end unsuccessfully"),
    }
    return [Chart(shown, x=x, y=y, marks=[bar(14, hue)], tips=tips) for hue, x in measures.items()]


def reasons_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the most common reason and the most expensive one."""
    if not rows:
        return None
    trials, common = sum(r["trials"] for r in rows), rows[0]
    text = (
        f"The most common reason is {shorten(common['reason'])}: {percent(common['trials'] / trials)} of"
        f" {count(trials)} failed runs"
    )
    costly = largest(rows, "rtf_demand_share")
    if costly is None:
        return text + "."
    if costly is common:
        return f"{text}, and {percent(costly['rtf_demand_share'])} of their GPU time."
    return f"{text}. {shorten(costly['reason'])} takes the most GPU time ({percent(costly['rtf_demand_share'])})."


def reasons_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw failed attempts and GPU-hours of the most common reasons."""
    shown = named(rows, "reason", "no reason")
    tips = [
        Tip("category"),
        Tip("trials", "failed runs", ","),
        Tip("jobs", "", ","),
        Tip("users", "", ","),
        Tip("gpu_hours", "GPU-hours", ",.1f"),
    ]
    return [
        amounts(shown, value="trials", axis_title="failed runs", tips=tips, hue="status-failed"),
        amounts(shown, value="gpu_hours", axis_title="GPU-hours of failed runs", tips=tips),
    ]


def run_time_to_failure_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say how fast attempts of the most common size fail, and what all failures cost."""
    rows = _of_gpu_jobs(rows)
    common = largest(rows, "failures")
    if common is None:
        return None
    late = sum(r.get("timeouts") or 0 for r in rows)
    which = "failed or timed out" if late else "failed"
    text = (
        f"Half of the runs of {gpu_jobs(common['gpu_class'])} that {which} did so within"
        f" {duration(max(common['p50_s'], 0))}{sample_size(common['failures'])}"
    )
    lost = sum(r["gpu_hours_lost"] or 0 for r in rows)
    worst = largest(rows, "gpu_hours_lost")
    if not lost or worst is None:
        return text + "."
    share = f"{percent(worst['gpu_hours_lost'] / lost)} of them for {gpu_jobs(worst['gpu_class'])}"
    every = sum(r["failures"] for r in rows)
    told = f". Of these {counted(every, 'runs')}, {count(late)} timed out" if late else ""
    tried = " (including runs that were retried)" if facts.retried else ""
    return f"{text}. All such runs{tried} took {count(lost)} GPU-hours, {share}{told}."


def run_time_to_failure_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the median, 90th and 95th percentile of the run time to failure by size class."""
    by = size_hues(rows)
    return ranges(
        rows,
        y=names("gpu_class", list(by.colours), "GPUs of the job", step=30),
        wide=("p50_s", "p95_s"),
        narrow=("p50_s", "p90_s"),
        title="run time to failure (log scale)",
        by=by,
        tips=[Tip("gpu_class", "GPUs"), Tip("failures", "", ",")],
        note="Dot: median. Lines: up to the 90th and the 95th percentile.",
    )


def by_user_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the user who loses the most GPU time to failures."""
    worst = largest(rows, "gpu_hours_lost")
    if worst is None or not worst["gpu_hours_lost"]:
        return None
    whose = f"of user {shorten(worst['user'], 30)}" if worst["user"] is not None else "of jobs without a user"
    tried = " (including runs that were retried)" if facts.retried else ""
    text = f"Failed runs {whose}{tried} took the most GPU time, {count(worst['gpu_hours_lost'])} GPU-hours"
    if worst["failed_share"] is None:
        return text + "."
    if not worst["failed_share"]:
        return f"{text}. None of these jobs failed in the end{sample_size(worst['jobs'])}."
    late, bad = worst.get("timed_out_jobs") or 0, worst["failed_jobs"]
    ended = bad_ends(bad - late, late, bad / worst["failed_share"]) if bad else "failed"
    return f"{text}. Of these jobs, {percent(worst['failed_share'])} {ended}{sample_size(worst['jobs'])}."


def by_user_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the GPU-hours lost to failures by user."""
    losers = [r for r in rows if r["gpu_hours_lost"]]
    tips = [
        Tip("gpu_hours_lost", "GPU-hours lost", ",.1f"),
        Tip("failed_jobs", "failed jobs", ","),
        Tip("jobs", "", ","),
        Tip("failed_share", "failed", ".1%"),
    ]
    return amounts(
        named(losers, "user", "no user"),
        value="gpu_hours_lost",
        axis_title="GPU-hours of failed runs",
        tips=tips,
        hue="status-failed",
        total=len(losers),
        what="users who lose most GPU-hours",
    )


PRESENTATIONS = (
    Presentation("failures/status_by_size", finding=status_finding, chart=status_chart),
    Presentation("failures/retries", finding=retries_finding, chart=retries_chart),
    Presentation("failures/reasons", finding=reasons_finding, chart=reasons_chart),
    Presentation("failures/run_time_to_failure", finding=run_time_to_failure_finding, chart=run_time_to_failure_chart),
    Presentation("failures/by_user", finding=by_user_finding, chart=by_user_chart),
)
