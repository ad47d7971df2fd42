"""Failures: how jobs of each size end, and how often they are tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.charts import (
    GPU_CLASSES,
    STATUSES,
    Panel,
    category,
    data,
    height,
    palette,
    percent_axis,
    status_colours,
    status_legend,
)
from tracekit.report.sections.interface import chart, says
from tracekit.report.text import percent
from tracekit.report.theme import colour
from tracekit.report.words import by_class, enough, gpu_jobs, largest, sample_size, scope

if TYPE_CHECKING:
    from tracekit.report.structure import Row


UNSUCCESSFUL = ("failed", "timeout", "node_fail", "out_of_memory")
"""Statuses that count as a failure, as the Helios study counts them; the view job_classes says the same."""


@says("failures/status_by_size")
def status_finding(rows: list[Row]) -> str | None:
    """Compare the share of unsuccessful jobs between sizes, among jobs whose status is known."""
    total: dict[str, int] = {}
    failed: dict[str, int] = {}
    for row in rows:
        if row["gpu_class"] is not None and row["status"] not in (None, "unknown"):
            total[row["gpu_class"]] = total.get(row["gpu_class"], 0) + row["jobs"]
            if row["status"] in UNSUCCESSFUL:
                failed[row["gpu_class"]] = failed.get(row["gpu_class"], 0) + row["jobs"]
    if not failed:
        return None
    shares = [{"gpu_class": c, "jobs": n, "share": failed.get(c, 0) / n} for c, n in total.items() if n]
    among = scope(shares, "jobs")
    shares = enough(shares, "jobs")
    low, high = largest(shares, "share", sign=-1), largest(shares, "share")
    if low is None or high is None or low is high:
        return None
    return (
        f"{_say(high, 'with a known status ended in failure')}, the most of any size{among};"
        f" the fewest among the {gpu_jobs(low['gpu_class'])}, {percent(low['share'])}{sample_size(low['jobs'])}."
    )


def _say(row: Row, what: str) -> str:
    return f"{percent(row['share'])} of the {gpu_jobs(row['gpu_class'])} {what}{sample_size(row['jobs'])}"


@chart("failures/status_by_size")
def status_chart(rows: list[Row]) -> list[Panel]:
    """Draw the shares of the statuses of each size class."""
    import altair as alt

    order = {s: i for i, s in enumerate(STATUSES)}
    shown = [
        {**r, "end": r["status"] or "unknown", "order": order[r["status"] or "unknown"]}
        for r in rows
        if r["gpu_class"] is not None and (r["status"] or "unknown") in order
    ]
    have = {r["gpu_class"] for r in shown}
    colours = status_colours(r["end"] for r in shown)
    drawn = (
        alt.Chart(data(shown))
        .mark_bar(height=18, stroke=colour("paper"), strokeWidth=1)
        .encode(
            y=category("gpu_class", [c for c in GPU_CLASSES if c in have], "GPUs of the job"),
            x=alt.X(
                "jobs_share:Q",
                stack="zero",
                scale=alt.Scale(domain=[0, 1]),
                axis=percent_axis("share of the jobs of a size"),
            ),
            color=alt.Color("end:N", scale=palette(colours)),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("gpu_class:N", title="GPUs"),
                alt.Tooltip("end:N", title="status"),
                alt.Tooltip("jobs:Q", format=","),
                alt.Tooltip("jobs_share:Q", title="share", format=".1%"),
            ],
        )
        .properties(height=height(len(have), 28))
    )
    return [Panel(drawn, status_legend(colours))] if shown else []


@says("failures/retries")
def retries_finding(rows: list[Row]) -> str | None:
    """Say which size is tried again most often."""
    sizes = list(by_class(rows).values())
    most = largest(enough(sizes, "jobs"), "mean_retries")
    if most is None:
        return None
    if not any(r["mean_retries"] for r in sizes):
        return "No job was tried again."
    among = scope(sizes, "jobs")
    of = f" of the sizes{among}" if among else ""
    text = (
        f"{gpu_jobs(most['gpu_class'])} are tried again most often{of}: {most['mean_retries']:.2f} retries a job"
        f"{sample_size(most['jobs'])}"
    )
    if most["unsuccessful_share"] is not None:
        text += f"; {percent(most['unsuccessful_share'])} of them end unsuccessfully"
    return text[0].upper() + text[1:] + "."


@chart("failures/retries")
def retries_chart(rows: list[Row]) -> list[Panel]:
    """Draw mean retries and share of unsuccessful jobs by size class."""
    have = by_class(rows)
    classes = [c for c in GPU_CLASSES if c in have]
    shown = [have[c] for c in classes]
    return [
        p
        for p in (
            _one(shown, classes, "mean_retries", "retries a job (mean)", share=False),
            _one(shown, classes, "unsuccessful_share", "share of jobs that end unsuccessfully", share=True),
        )
        if p is not None
    ]


def _one(rows: list[Row], classes: list[str], column: str, title: str, *, share: bool) -> Panel | None:
    import altair as alt

    if all(r[column] is None for r in rows):
        return None
    axis = percent_axis(title) if share else alt.Axis(title=title, tickCount=5, labelOverlap="greedy")
    top = max(r[column] or 0 for r in rows)
    drawn = (
        alt.Chart(data(rows))
        .mark_bar(height=14, color=colour("status-failed" if share else "series-1"))
        .encode(
            y=category("gpu_class", classes, "GPUs of the job"),
            x=alt.X(f"{column}:Q", axis=axis, scale=alt.Scale(domain=[0, top or 1], nice=True)),
            tooltip=[
                alt.Tooltip("gpu_class:N", title="GPUs"),
                alt.Tooltip("jobs:Q", format=","),
                alt.Tooltip("mean_retries:Q", title="retries a job", format=".2f"),
                alt.Tooltip("unsuccessful_share:Q", title="unsuccessful", format=".1%"),
            ],
        )
        .properties(height=height(len(classes), 26))
    )
    return Panel(drawn)
