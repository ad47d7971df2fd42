"""Utilization: how busy GPUs, CPUs and memory are, and what share of its own GPUs each tenant uses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import hours, names, number, share
from tracekit.report.bars import amounts, bars, named
from tracekit.report.charts import Chart, Tip, line, series, status_hues
from tracekit.report.line_labels import named_in_last
from tracekit.report.phrases import drawn_note, gpus, hour_span, largest, sums
from tracekit.report.sections.interface import Presentation, no_tenants
from tracekit.report.spreads import ranges, tails
from tracekit.text import count, counted, duration, labels, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


SIZES = 8
"""Maximum number of job sizes shown."""


def held_gpus_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Give the mean utilization over all samples."""
    known = {r["metric"]: r["value"] for r in rows}
    attempts = sum(facts.telemetry.attempts.values())
    of = f" of {counted(attempts, 'runs')}" if attempts else ""
    return (
        f"Allocated GPUs were busy {100 * known['busy_share']:.1f} % of the time on average, based on"
        f" {count(known['samples'])} samples{of}."
    )


def gpu_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the mean utilization of the busiest and the least busy size."""
    pooled: dict[float, tuple[int, float]] = {}
    for row in rows:
        if row["mean_pct"] is not None and row["gpu_count"] is not None:
            n, total = pooled.get(row["gpu_count"], (0, 0.0))
            pooled[row["gpu_count"]] = (n + row["samples"], total + row["samples"] * row["mean_pct"])
    samples = sum(n for n, _ in pooled.values())
    # Sizes with little GPU time would only add noise.
    sizes = {g: t / n for g, (n, t) in pooled.items() if n >= 0.01 * samples}
    if len(sizes) < 2:
        return None
    low, high = min(sizes, key=lambda g: sizes[g]), max(sizes, key=lambda g: sizes[g])
    return (
        f"GPU utilization is lowest for jobs of {gpus(low)} ({sizes[low]:.1f} % on average) and highest for jobs of"
        f" {gpus(high)}, {sizes[high]:.1f} %."
    )


def gpu_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw utilization percentiles by job size and status."""
    known = [r for r in rows if r["p50_pct"] is not None and r["gpu_count"] is not None]
    samples = sums(known, "gpu_count", "samples")
    kept = sorted(sorted(samples, key=lambda g: (-samples[g], g))[:SIZES])
    shown = [
        {**r, "size": count(r["gpu_count"]), "end": r["status"] or "unknown"} for r in known if r["gpu_count"] in kept
    ]
    by = status_hues(shown, "end")
    note = "Dot: median. Diamond: mean. Lines: the middle half, and 5th to 95th percentile."
    more = drawn_note(len(kept), len(samples), "sizes with the most samples")
    return ranges(
        shown,
        y=names("size", [count(g) for g in kept], "GPUs of the job", step=15 * len(by.colours) + 10),
        wide=("p5_pct", "p95_pct"),
        narrow=("p25_pct", "p75_pct"),
        title="GPU utilization (%)",
        by=by,
        apart=True,
        tips=[Tip("size", "GPUs"), Tip("end", "status"), Tip("samples", "", ",")],
        sizes=(2, 6),
        mean="mean_pct",
        note=f"{note} {more}".strip(),
    )


def dedicated_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the mean utilization of the sizes with the most samples."""
    seen = sorted(rows, key=lambda r: (-r["samples"], r["gpu_count"]))[:3]
    parts = [f"{r['mean_pct']:.1f} % for {gpus(r['gpu_count'])}" for r in sorted(seen, key=_size)]
    if not parts:
        return None
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"For jobs on whole nodes, mean GPU utilization is {listed}."


def _size(row: Row) -> float:
    return float(row["gpu_count"])


def dedicated_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the median, 90th and 95th percentile by job size."""
    kept = sorted(sorted(rows, key=lambda r: (-r["samples"], r["gpu_count"]))[:SIZES], key=_size)
    shown = [{**r, "size": gpus(r["gpu_count"])} for r in kept]
    note = drawn_note(len(shown), len(rows), "sizes with the most samples")
    return tails(shown, names("size", [r["size"] for r in shown], step=26), [Tip("size", "GPUs")], note=note)


def idle_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much the listed jobs waste, and name the worst job."""
    if not rows:
        return None
    wasted, worst = sum(r["wasted_gpu_h"] for r in rows), rows[0]
    whose = f" of {shorten(worst['user'], 30)}" if worst["user"] is not None else ""
    jobs = "1 job" if len(rows) == 1 else f"the {count(len(rows))} jobs"
    text = f"{jobs} in the table wasted {count(wasted)} GPU-hours"
    if len(rows) == 1:
        return f"{text} (mean utilization {worst['mean_pct']:.1f} %)."
    what = f"job {shorten(worst['job_id'], 40)}{whose} ran for {duration(worst['run_s'])} on {gpus(worst['gpu_count'])}"
    return (
        f"{text[0].upper()}{text[1:]}, of which the first job wasted {count(worst['wasted_gpu_h'])}:"
        f" {what} with a mean utilization of {worst['mean_pct']:.1f} %."
    )


def idle_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the GPU-hours that the listed jobs waste by user."""
    wasted, jobs = sums(rows, "user", "wasted_gpu_h"), Counter(row["user"] for row in rows)
    order = sorted(wasted, key=lambda u: (-wasted[u], u or ""))
    users = [{"user": u, "wasted_gpu_h": wasted[u], "jobs": jobs[u]} for u in order]
    shown = named(users, "user", "no user")
    tips = [Tip("wasted_gpu_h", "GPU-hours wasted", ",.1f"), Tip("jobs", "idle jobs", ",")]
    chart = amounts(shown, value="wasted_gpu_h", axis_title="GPU-hours wasted by idle jobs", tips=tips)
    return replace(chart, note=drawn_note(len(shown), len(users), "users who waste the most"))


def host_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the median and the 95th percentile of each resource."""
    parts = [f"{_resource(r)} {r['p50_pct']:.1f} % ({r['p95_pct']:.1f} %)" for r in rows if r["p50_pct"] is not None]
    return f"Median use of the machines, with the 95th percentile: {', '.join(parts)}." if parts else None


def _resource(row: Row) -> str:
    return "CPU" if row["resource"] == "cpu" else str(row["resource"])


def host_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the median, 90th and 95th percentile of each resource."""
    shown = [{**r, "resource": _resource(r)} for r in rows if r["p50_pct"] is not None]
    return ranges(
        shown,
        y=names("resource", [r["resource"] for r in shown], step=34),
        wide=("p50_pct", "p95_pct"),
        narrow=("p50_pct", "p90_pct"),
        title="use of the machine (%)",
        tips=[Tip("resource", "resource"), Tip("samples", "", ",")],
        note="Dot: median. Lines: up to the 90th and the 95th percentile.",
    )


CLUSTERS = 4
"""Maximum number of clusters shown."""

VCS = 15
"""Maximum number of tenants shown."""


def vc_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the tenants that use the largest and the smallest share of their own GPUs, and give their waits."""
    known = [r for r in rows if r["allocated_share_mean"] is not None]
    most, least = largest(known, "allocated_share_mean"), largest(known, "allocated_share_mean", -1)
    several = len({r["cluster"] for r in rows}) > 1
    if most is None or least is None:
        return None
    base = "its own GPUs" if facts.quotas else "its peak number of GPUs"
    share = percent(most["allocated_share_mean"])
    text = f"On average {_vc(most, facts, several=several)} used {share} of {base}{_waits(most)}"
    if most is not least:
        text += f", and {_vc(least, facts, several=several)} {percent(least['allocated_share_mean'])}{_waits(least)}"
    return f"{text}."


def _vc(row: Row, facts: TraceFacts, *, several: bool) -> str:
    vc = row[facts.tenant.column]
    name = f"jobs without {facts.tenant.a}" if vc is None else shorten(vc, 30)
    return f"{name} in {shorten(row['cluster'], 30)}" if several and row["cluster"] is not None else name


def _waits(row: Row) -> str:
    return f" (median wait {duration(row['queue_p50_s'])})" if row["queue_p50_s"] is not None else ""


def vc_chart(rows: list[Row], facts: TraceFacts) -> Chart:
    """Draw the mean share of its own GPUs that each tenant used, with the largest tenant first."""
    vc = facts.tenant.column
    known = [r for r in rows if r["allocated_share_mean"] is not None and r["capacity_gpus"]]
    chosen = sorted(known, key=lambda r: (-r["capacity_gpus"], r["cluster"] or "", r[vc] or ""))[:VCS]
    several, one = len({r["cluster"] for r in known}) > 1, facts.tenant.one
    names = [" ".join(w for w in (r["cluster"] if several else None, r[vc] or f"no {one}") if w) for r in chosen]
    short = labels(names)
    shown = [{**r, "tenant": short[name]} for r, name in zip(chosen, names, strict=True)]
    return bars(
        shown,
        key="tenant",
        values=[r["tenant"] for r in shown],
        title=None,
        measures={"allocated_share_mean": f"share of the {one}'s GPUs"},
        axis_title=f"share of the {one}'s own GPU time that was allocated"
        if facts.quotas
        else f"mean share of the {one}'s peak",
        note=drawn_note(len(shown), len(known), f"{facts.tenant.many} with the most GPUs"),
    )


def hour_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the hours in which the most and the fewest GPUs are allocated."""
    known = [r for r in rows if r["allocated_share"] is not None]
    most, least = largest(known, "allocated_share"), largest(known, "allocated_share", -1)
    if most is None or least is None or most is least:
        return None
    where = f" in {shorten(most['cluster'], 30)}" if len({r["cluster"] for r in known}) > 1 else ""
    other = f" in {shorten(least['cluster'], 30)}" if where else ""
    what = "The largest share of a cluster's GPUs is" if where else "The most GPUs are"
    return (
        f"{what} allocated between {hour_span(most['hour'])}{where}, {percent(most['allocated_share'])} on average,"
        f" and the {'smallest' if where else 'fewest'} between {hour_span(least['hour'])}{other},"
        f" {percent(least['allocated_share'])}."
    )


def hour_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw the share of GPUs allocated, the GPU utilization and the submissions by hour, with one line per cluster.

    If only some jobs have GPUs, the chart also shows the submissions of GPU jobs.
    """
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))[:CLUSTERS]
    named = labels([c for c in clusters if c is not None])
    names = {named[c] if c is not None else "no cluster": c for c in clusters}
    by = series("cluster", names)
    shown = [
        {
            "hour": r["hour"],
            "cluster": words,
            "held": r["allocated_share"],
            "busy": None if r["gpu_util_pct"] is None else r["gpu_util_pct"] / 100,
            "jobs": r["submitted_jobs"],
            "gpu_jobs": r["submitted_gpu_jobs"],
        }
        for words, cluster in names.items()
        for r in rows
        if r["cluster"] == cluster
    ]
    kinds = [
        ("Allocated to jobs", share("held", "GPUs allocated"), ".1%", ""),
        ("Computing", share("busy", "utilization"), ".1%", "Of all GPUs with telemetry."),
        ("Submitted", number("jobs", "jobs", ticks=4), ",.1f", "Mean number of jobs."),
        ("Submitted, with GPUs", number("gpu_jobs", "jobs with GPUs", ticks=4), ",.1f", "Only jobs of known size."),
    ]
    if all(r["gpu_jobs"] in (None, r["jobs"]) for r in shown):
        kinds.pop()
    charts = []
    for title, y, form, note in kinds:
        chart = Chart(
            # The line has a gap at hours with an unknown number.
            [{k: r[k] for k in ("hour", "cluster", y.column)} for r in shown],
            x=hours(),
            y=y,
            marks=[line(1.5, point=True)],
            height=150,
            by=by,
            tips=[Tip("cluster"), Tip("hour", "hour"), Tip(y.column, "", form)],
            title=title,
            note=note,
        )
        charts.append(named_in_last(chart, 23, "cluster"))
    return charts


PRESENTATIONS = (
    Presentation("utilization/held_gpus", finding=held_gpus_finding),
    Presentation("utilization/gpu_by_size_status", finding=gpu_finding, chart=gpu_chart),
    Presentation("utilization/dedicated", finding=dedicated_finding, chart=dedicated_chart),
    Presentation(
        "utilization/idle_jobs",
        finding=idle_finding,
        chart=idle_chart,
        without_rows="No job with telemetry used its GPUs at 10 % utilization or less for an hour or more.",
    ),
    Presentation("utilization/host", finding=host_finding, chart=host_chart),
    Presentation("utilization/vc", finding=vc_finding, chart=vc_chart, why_empty=no_tenants("use")),
    Presentation("utilization/cluster_by_hour", finding=hour_finding, chart=hour_chart),
)
