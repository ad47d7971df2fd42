"""Utilization: how busy the GPUs, CPUs and memories are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.amounts import amounts, named
from tracekit.report.charts import (
    Panel,
    category,
    height,
    number_tooltips,
    ranges,
    status_colours,
    status_legend,
)
from tracekit.report.phrases import gpus
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, duration, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

SIZES = 8
"""Most job sizes drawn."""


def held_gpus_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say the mean over all samples."""
    known = {r["metric"]: r["value"] for r in rows}
    attempts = sum(facts.telemetry.attempts.values())
    of = f" of {counted(attempts, 'attempts')}" if attempts else ""
    return (
        f"GPUs that jobs held were {100 * known['busy_share']:.1f} % busy on average, over"
        f" {count(known['samples'])} samples{of}."
    )


def gpu_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say the means of the most and the least busy size."""
    pooled: dict[float, tuple[int, float]] = {}
    for row in rows:
        if row["mean_pct"] is not None and row["gpu_count"] is not None:
            n, total = pooled.get(row["gpu_count"], (0, 0.0))
            pooled[row["gpu_count"]] = (n + row["samples"], total + row["samples"] * row["mean_pct"])
    samples = sum(n for n, _ in pooled.values())
    # Sizes that hold next to nothing of the time would name an accident.
    sizes = {g: t / n for g, (n, t) in pooled.items() if n >= 0.01 * samples}
    if len(sizes) < 2:
        return None
    low, high = min(sizes, key=lambda g: sizes[g]), max(sizes, key=lambda g: sizes[g])
    return (
        f"Jobs of {gpus(low)} kept their GPUs least busy, {sizes[low]:.1f} % on average, jobs of {gpus(high)} most,"
        f" {sizes[high]:.1f} %."
    )


def gpu_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the utilization's percentiles by job size and status."""
    known = [r for r in rows if r["p50_pct"] is not None and r["gpu_count"] is not None]
    if not known:
        return []
    samples: dict[float, int] = {}
    for row in known:
        samples[row["gpu_count"]] = samples.get(row["gpu_count"], 0) + row["samples"]
    kept = sorted(sorted(samples, key=lambda g: (-samples[g], g))[:SIZES])
    shown = [
        {**r, "size": count(r["gpu_count"]), "end": r["status"] or "unknown"} for r in known if r["gpu_count"] in kept
    ]
    colours = status_colours(r["end"] for r in shown)
    drawn = ranges(
        shown,
        y=category("size", [count(g) for g in kept], "GPUs of the job"),
        wide=("p5_pct", "p95_pct"),
        narrow=("p25_pct", "p75_pct"),
        title="GPU utilization (%)",
        by="end",
        colours=colours,
        apart=True,
        tooltip=number_tooltips(
            {"size": "GPUs", "end": "status"},
            "samples",
            ["mean_pct", "p5_pct", "p25_pct", "p50_pct", "p75_pct", "p95_pct"],
        ),
        sizes=(2, 6),
        mean="mean_pct",
    ).properties(height=height(len(kept), 15 * len(colours) + 10))
    note = "Dot: median; diamond: mean; lines: the middle half, 5th to 95th percentile."
    if len(kept) < len(samples):
        note += f" Drawn: the {len(kept)} sizes with the most samples; {len(samples) - len(kept)} more."
    return [Panel(drawn, status_legend(colours), note=note)]


def dedicated_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say the mean of each of the sizes that were seen most."""
    seen = sorted(rows, key=lambda r: (-r["samples"], r["gpu_count"]))[:3]
    parts = [f"{r['mean_pct']:.1f} % in jobs of {gpus(r['gpu_count'])}" for r in sorted(seen, key=_size)]
    if not parts:
        return None
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"GPUs of whole nodes were busy {listed}."


def _size(row: Row) -> float:
    return float(row["gpu_count"])


def dedicated_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw median, 90th and 95th percentile by job size."""
    kept = sorted(sorted(rows, key=lambda r: (-r["samples"], r["gpu_count"]))[:SIZES], key=_size)
    shown = [{**r, "size": gpus(r["gpu_count"])} for r in kept]
    if not shown:
        return []
    drawn = ranges(
        shown,
        y=category("size", [r["size"] for r in shown], None),
        wide=("p50_pct", "p95_pct"),
        narrow=("p50_pct", "p90_pct"),
        title="GPU utilization (%)",
        tooltip=number_tooltips({"size": "GPUs"}, "samples", ["mean_pct", "p50_pct", "p90_pct", "p95_pct"]),
        sizes=(2, 6),
        mean="mean_pct",
    ).properties(height=height(len(shown), 26))
    note = "Dot: median; diamond: mean; lines: to the 90th and the 95th percentile."
    if len(rows) > len(shown):
        note += f" Drawn: the {len(shown)} sizes with the most samples; {len(rows) - len(shown)} more."
    return [Panel(drawn, note=note)]


def idle_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much the listed jobs waste, and which is the worst."""
    if not rows:
        return None
    wasted, worst = sum(r["wasted_gpu_h"] for r in rows), rows[0]
    whose = f" of {shorten(worst['user'], 30)}" if worst["user"] is not None else ""
    jobs = "1 job" if len(rows) == 1 else f"the {count(len(rows))} jobs"
    text = f"{jobs} of the table wasted {count(wasted)} GPU-hours"
    if len(rows) == 1:
        return f"{text} (mean utilization {worst['mean_pct']:.1f} %)."
    what = f"job {shorten(worst['job_id'], 40)}{whose} held {gpus(worst['gpu_count'])} for {duration(worst['run_s'])}"
    return (
        f"{text[0].upper()}{text[1:]}, the first alone {count(worst['wasted_gpu_h'])}:"
        f" {what} at a mean of {worst['mean_pct']:.1f} %."
    )


def idle_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the GPU-hours that the listed jobs waste, by user."""
    wasted: dict[str | None, float] = {}
    jobs: dict[str | None, int] = {}
    for row in rows:
        wasted[row["user"]] = wasted.get(row["user"], 0.0) + row["wasted_gpu_h"]
        jobs[row["user"]] = jobs.get(row["user"], 0) + 1
    order = sorted(wasted, key=lambda u: (-wasted[u], u or ""))
    users = [{"user": u, "wasted_gpu_h": wasted[u], "jobs": jobs[u]} for u in order]
    if not users:
        return []
    shown = named(users, "user", "no user")
    tooltip = [
        alt.Tooltip("wasted_gpu_h:Q", title="GPU-hours wasted", format=",.1f"),
        alt.Tooltip("jobs:Q", title="idle jobs", format=","),
    ]
    axis = "GPU-hours wasted by idle jobs"
    left = len(users) - len(shown)
    panel = amounts(shown, value="wasted_gpu_h", axis_title=axis, tooltip=tooltip)
    note = f"Drawn: the {len(shown)} users who waste most; {left} more." if left else ""
    return [Panel(panel.chart, note=note)]


def host_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say the median and the 95th percentile of each resource."""
    parts = [f"{_resource(r)} {r['p50_pct']:.1f} % ({r['p95_pct']:.1f} %)" for r in rows if r["p50_pct"] is not None]
    return f"Median use of the machines (95th percentile): {', '.join(parts)}." if parts else None


def _resource(row: Row) -> str:
    return "CPU" if row["resource"] == "cpu" else str(row["resource"])


def host_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw median, 90th and 95th percentile of each resource."""
    shown = [r for r in rows if r["p50_pct"] is not None]
    if not shown:
        return []
    shown = [{**r, "resource": _resource(r)} for r in shown]
    words = [r["resource"] for r in shown]
    drawn = ranges(
        shown,
        y=category("resource", words, None),
        wide=("p50_pct", "p95_pct"),
        narrow=("p50_pct", "p90_pct"),
        title="use of the machine (%)",
        tooltip=number_tooltips({"resource": "resource"}, "samples", ["mean_pct", "p50_pct", "p90_pct", "p95_pct"]),
    ).properties(height=height(len(words), 34))
    return [Panel(drawn, note="Dot: median; lines: to the 90th and the 95th percentile.")]


PRESENTATIONS = (
    Presentation("utilization/held_gpus", finding=held_gpus_finding),
    Presentation("utilization/gpu_by_size_status", finding=gpu_finding, chart=gpu_chart),
    Presentation("utilization/dedicated", finding=dedicated_finding, chart=dedicated_chart),
    Presentation(
        "utilization/idle_jobs",
        finding=idle_finding,
        chart=idle_chart,
        without_rows="No job with telemetry held GPUs for an hour or more at 10 % utilization or less.",
    ),
    Presentation("utilization/host", finding=host_finding, chart=host_chart),
)
