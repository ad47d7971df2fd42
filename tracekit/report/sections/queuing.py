"""Queueing: how long jobs run and how long they wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.report.axes import axis_values, names
from tracekit.report.charts import GPU_CLASSES, Hues, Tip, size_hues
from tracekit.report.phrases import (
    SEVERAL,
    WEEKDAYS,
    by_class,
    drawn_note,
    enough,
    gpu_jobs,
    largest,
    sample_size,
    scope,
    sums,
)
from tracekit.report.sections.interface import Presentation
from tracekit.report.spreads import DISTRIBUTION, curve, ranges
from tracekit.report.structure import ROW_LIMIT
from tracekit.report.week import DAYS, hours_of_week, linear_shades, time_shades
from tracekit.text import count, counted, duration, labels, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.tenant import Tenant


# Distributions of run times and waits, and the hours of the week.

_DRAWN = (
    ("run time", "Run time", "run time", "jobs that ran at most this long"),
    ("wait", "Wait", "wait", "jobs that waited at most this long"),
)
"""A measure, the heading of its chart, and its axis titles."""

LEAST = 3
"""Minimum number of values for a curve."""


def distributions_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the median and the 90th percentile of run times and waits."""
    whole = {r["measure"]: r for r in rows if r["scope"] == "all"}
    run, wait = whole.get("run time"), whole.get("wait")
    told = []
    if run is not None:
        told.append(
            f"Half of the GPU jobs ran for at most {duration(run['p50_s'])}, and one in ten ran for"
            f" {duration(run['p90_s'])} or longer"
        )
    if wait is not None and wait["p90_s"] <= 0:
        told.append("At least nine in ten jobs started at once")
    elif wait is not None:
        half = f"Half waited at most {duration(wait['p50_s'])}" if wait["p50_s"] > 0 else "Half started at once"
        told.append(f"{half}, and one in ten waited {duration(wait['p90_s'])} or longer")
    text = ". ".join(told)
    return f"{text[0].upper()}{text[1:]}." if text else None


def distributions_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the curves of run times and waits, and the waits by job size."""
    charts = []
    for measure, heading, title, share in _DRAWN:
        own = [r for r in rows if r["measure"] == measure and r["scope"] != "size" and r["number"] >= LEAST]
        # A curve of zeros would lie on the edge of the chart.
        if any(r["scope"] == "all" and r["p100_s"] for r in own):
            charts.append(curve(own, facts.tenant.column, title=title, of=share, heading=heading))
    waits = [r for r in rows if r["measure"] == "wait" and r["scope"] == "size"]
    if len(waits) > 1 and any(r["p90_s"] for r in waits):
        charts.append(_waits_by_size(waits))
    return charts


def _waits_by_size(rows: list[Row]) -> Chart:
    columns = ("gpu_class", "number", "mean_s", "p10_s", "p25_s", "p50_s", "p75_s", "p90_s")
    chart = _by_class([{c: r[c] for c in columns} for r in rows], "wait (log scale)", "number")
    return replace(chart, title="Wait by size", wide=True)


def _by_class(rows: list[Row], title: str, count: str) -> Chart:
    """Draw the distribution for each size class; the `count` column has the number of jobs."""
    by = size_hues(rows)
    return ranges(
        rows,
        y=names("gpu_class", list(by.colours), "GPUs of the job", step=30),
        wide=("p10_s", "p90_s"),
        narrow=("p25_s", "p75_s"),
        mean="mean_s",
        title=title,
        by=by,
        tips=[Tip("gpu_class", "GPUs"), Tip(count, "", ",")],
        note=DISTRIBUTION,
    )


def week_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say in which hours of the week the most jobs are submitted and the mean wait is longest."""
    whole = [r for r in rows if r["cluster"] is None and r["jobs_per_hour"] is not None]
    busy = largest(whole, "jobs_per_hour")
    if busy is None or not busy["jobs"]:
        return None
    text = f"Most GPU jobs are submitted on {_hour(busy)}: {count(round(busy['jobs_per_hour'], 1))} in that hour"
    slow = largest([r for r in whole if r["waits"] >= LEAST], "mean_wait_s")
    among = f" (hours with at least {LEAST} waits)" if any(0 < r["waits"] < LEAST for r in whole) else ""
    if slow is None or not slow["mean_wait_s"]:
        return f"{text}."
    return f"{text}. Jobs submitted on {_hour(slow)} wait longest, {duration(slow['mean_wait_s'])} on average{among}."


def _hour(row: Row) -> str:
    return f"{WEEKDAYS[row['weekday'] - 1]}s at {row['hour']:02}:00"


def week_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw submissions next to mean waits, by day and hour of the week."""
    known = [r for r in rows if r["jobs"]]
    if len({(r["weekday"], r["hour"]) for r in known}) < LEAST:
        return []
    whole = [r for r in known if r["cluster"] is None]
    come = linear_shades([r["jobs_per_hour"] for r in whole])
    means = [r["mean_wait_s"] for r in whole if r["mean_wait_s"] is not None]
    wait = time_shades(means)
    drawn = [_cell(r) for r in known]
    when = [Tip("day"), Tip("hour"), Tip("jobs", "jobs, all weeks", ",")]
    jobs = [*when, Tip("come", "jobs per hour")]
    charts = [hours_of_week(drawn, "come", come, hue="series-1", title="Jobs submitted per hour", tips=jobs)]
    if wait.ends:  # a single step would give the whole map one shade
        waits = [*when, Tip("wait", "mean wait (s)", ",")]
        title = "Mean wait by hour of submission"
        charts.append(hours_of_week(drawn, "wait", wait, hue="series-2", title=title, tips=waits))
    return charts


def _cell(row: Row) -> dict[str, Any]:
    cell = {
        "cluster": row["cluster"],
        "names": 0 if row["cluster"] is None else 1,
        "day": DAYS[row["weekday"] - 1],
        "hour": row["hour"],
        "jobs": row["jobs"],
        "come": round(row["jobs_per_hour"], 2),
    }
    # An hour has no wait if all its jobs are still waiting or their waits are unknown.
    return cell if row["mean_wait_s"] is None else {**cell, "wait": round(row["mean_wait_s"])}


TENANTS = 12
"""Maximum number of tenants shown."""

_OUTSTANDING = 1 / 3
"""Minimum share of the waiting time of a tenant that is named."""


def run_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Compare the median run times of the smallest and the largest common sizes of GPU jobs."""
    have = by_class(rows)
    sized = [have[c] for c in GPU_CLASSES[1:] if c in have and have[c]["p50_s"] is not None]
    sized = [row for row in sized if row["jobs"] >= SEVERAL] or sized
    if not sized:
        return None
    first = sized[0]
    text = (
        f"Half of the {gpu_jobs(first['gpu_class'])} ran for at most {duration(first['p50_s'])}"
        f"{sample_size(first['jobs'])}"
    )
    if len(sized) == 1:
        return f"{text}, and one in ten ran for {duration(first['p90_s'])} or longer."
    last = sized[-1]
    more = f"half of the {gpu_jobs(last['gpu_class'])} for at most {duration(last['p50_s'])}{sample_size(last['jobs'])}"
    return f"{text}, {more}."


def run_time_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw run time percentiles by size class."""
    shown = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    return _by_class(shown, "run time (log scale)", "jobs")


def queue_delay_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the tenant that waits most, the largest group, and the group with the largest 90th percentile."""
    rows = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None and r["p90_s"] is not None]
    rows = [r for r in rows if r["gpu_class"] != "0"] or rows
    most = largest(rows, "waits")
    if most is None:
        return None
    if not any(r["p90_s"] > 0 or r["mean_s"] for r in rows):
        waits = counted(sum(r["waits"] for r in rows), "waits")
        return f"No run waited: all {waits}, of jobs of all sizes, were 0 s."
    vc, where = facts.tenant.column, _where(rows, facts.tenant)
    told = [where] if where else []
    worst = largest(enough(rows, "waits"), "p90_s")
    if worst is not None and worst is not most and worst["p90_s"] > most["p90_s"]:
        among = scope(rows, "waits")
        among = f" among groups{among}" if among else ""
        who = f"{_of(worst, vc)}: {_waited(worst)}{sample_size(worst['waits'])}"
        told.append(f"The longest waits{among}: {who}.")
    if not where and (most["p90_s"] > 0 or not told):  # if another sentence says more, skip this
        told.insert(0, f"The largest group is {_of(most, vc)} ({counted(most['waits'], 'starts')}): {_waited(most)}.")
    return " ".join(filter(None, [*told, _by_size(rows)]))


def _by_size(rows: list[Row]) -> str:
    """Compare the mean wait of the smallest and the largest jobs."""
    sizes = [_pooled([r for r in rows if r["gpu_class"] == c], "gpu_class") for c in GPU_CLASSES]
    known = [s for s in sizes if s is not None and s["waits"] >= SEVERAL]
    if len(known) < 2:
        return ""
    small, large = known[0], known[-1]
    return (
        f"The mean queueing delay per run is {duration(small['mean_s'])} for {gpu_jobs(small['gpu_class'])}"
        f"{_tail(small)} and {duration(large['mean_s'])} for {gpu_jobs(large['gpu_class'])}{_tail(large)}."
    )


def _tail(row: Row) -> str:
    """Return what a mean wait hides: its 90th percentile, if all waits are known, and a low number of waits."""
    tail = f" (one in ten {duration(row['p90_s'])} or longer)" if row["p90_s"] is not None else ""
    return f"{tail}{sample_size(row['waits'])}"


def _where(rows: list[Row], tenant: Tenant) -> str:
    """Name the tenant with an outstanding share of the waiting time, or return '' if there is none."""
    vc = tenant.column
    vcs = [_pooled([r for r in rows if r[vc] == name], vc) for name in {r[vc] for r in rows}]
    known = [v for v in vcs if v is not None]
    # A report may contain only the first rows of a long result, which are not representative.
    if len(known) < 2 or len(rows) >= ROW_LIMIT:
        return ""
    waits, waited = sum(v["waits"] for v in known), sum(v["waits"] * v["mean_s"] for v in known)
    most = max(known, key=lambda v: (v["waits"] * v["mean_s"], str(v[vc])))
    time, part = most["waits"] * most["mean_s"] / waited if waited else 0, most["waits"] / waits
    if time < _OUTSTANDING or time < 2 * part:
        return ""
    who = f"Jobs without {tenant.a}" if most[vc] is None else f"Jobs of {shorten(most[vc], 30)}"
    return f"{who} account for {percent(time)} of the waiting time and {percent(part)} of the starts."


def _pooled(rows: list[Row], key: str) -> Row | None:
    """Return the number and mean of the waits in several rows, or None if no wait is known."""
    known = [r for r in rows if r["waits"] and r["mean_s"] is not None]
    waits = sum(r["waits"] for r in known)
    if not waits:
        return None
    mean = sum(r["waits"] * r["mean_s"] for r in known) / waits
    # The percentile of the whole cannot be computed from the percentiles of its parts.
    return {key: known[0][key], "waits": waits, "mean_s": mean, "p90_s": known[0]["p90_s"] if len(known) == 1 else None}


def _waited(row: Row) -> str:
    """Describe the median and the 90th percentile; a wait of 0 counts as no wait."""
    if row["p90_s"] <= 0:
        return "at least nine in ten did not wait"
    tail = f"one in ten waited {duration(row['p90_s'])} or longer"
    middle = "half did not wait" if row["p50_s"] <= 0 else f"half waited {duration(row['p50_s'])} or less"
    return f"{middle}, and {tail}"


def _of(row: Row, vc: str) -> str:
    where = f" in {shorten(row[vc], 30)}" if row[vc] is not None else ""
    return f"{gpu_jobs(row['gpu_class'])}{where}"


def queue_delay_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the median, mean and 90th percentile of waits by size: one chart per tenant, all with the same axis."""
    known = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    if not known:
        return []
    vc = facts.tenant.column
    waits = sums(known, vc, "waits")
    waited = [v for v in waits if any(r["p90_s"] or r["mean_s"] for r in known if r[vc] == v)]
    chosen = sorted(waited, key=lambda v: (-waits[v], v or ""))[:TENANTS]
    named = labels([v for v in chosen if v is not None])
    none = "" if len(waits) == 1 else f"no {facts.tenant.one}"
    shown = [r for r in known if r[vc] in chosen]
    classes = size_hues(shown)
    sizes = Hues("size", dict(classes.legend))
    within = axis_values(shown, ("p50_s", "p90_s", "mean_s"))
    charts = []
    for tenant in chosen:
        own = [
            {"vc": tenant, **{c: r[c] for c in _WAITS}, "size": classes.words[r["gpu_class"]]}
            for r in shown
            if r[vc] == tenant
        ]
        title = none if tenant is None else named.get(tenant, "unknown")
        charts.append(replace(_waits(own, sizes, within), title=title))
    return [*charts[:-1], replace(charts[-1], note=_not_drawn(waits, waited, facts.tenant))] if charts else []


_WAITS = ("gpu_class", "waits", "p50_s", "mean_s", "p90_s")
"""Columns of the waits that a chart shows."""


def _not_drawn(waits: Mapping[str | None, int], waited: Sequence[str | None], tenant: Tenant) -> str:
    """Return a note on the marks and on tenants without a chart."""
    marks = "Dot: median. Diamond: mean. Line: up to the 90th percentile."
    shown = drawn_note(min(len(waited), TENANTS), len(waited), f"{tenant.many} with the most waits")
    none = len(waits) - len(waited)
    unwaited = f"Not shown: {counted(none, tenant.many)} whose jobs never waited." if none else ""
    return " ".join(filter(None, (marks, shown, unwaited)))


def _waits(rows: list[Row], sizes: Hues, within: list[float]) -> Chart:
    """Draw the waits of one tenant by size, with each size at the same position in all charts."""
    return ranges(
        rows,
        y=names("size", list(sizes.colours), step=18),
        wide=("p50_s", "p90_s"),
        mean="mean_s",
        within=within,
        title="wait (log scale)",
        by=sizes,
        tips=[Tip("size", "size"), Tip("waits", "", ",")],
        sizes=(3, 3),
    )


PRESENTATIONS = (
    Presentation("queuing/distributions", finding=distributions_finding, chart=distributions_chart),
    Presentation("queuing/run_time", finding=run_time_finding, chart=run_time_chart),
    Presentation(
        "queuing/queue_delay",
        finding=queue_delay_finding,
        chart=queue_delay_chart,
        without_vcs="How long do runs wait in the queue, and do larger jobs wait longer?",
    ),
    Presentation("queuing/week", finding=week_finding, chart=week_chart),
)
