"""Queueing: the distributions of run times and waits, and the hours of the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.report.charts import DISTRIBUTION, Panel, category, class_colours, height, ranges, time_tooltips
from tracekit.report.phrases import largest
from tracekit.report.spread_charts import DAYS, curve, hours_of_week, linear_shades, time_shades
from tracekit.text import count, duration

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_DRAWN = (
    ("run time", "Run time", "run time", "jobs that ran no longer"),
    ("wait", "Wait", "wait", "waits that lasted no longer"),
)
"""A measure, the heading of its chart, and the words at its axes."""

LEAST = 3
"""Fewest values that a curve is drawn of."""

_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def distributions_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say the median and the 90th percentile of run times and of waits."""
    whole = {r["measure"]: r for r in rows if r["scope"] == "all"}
    run, wait = whole.get("run time"), whole.get("wait")
    told = []
    if run is not None:
        told.append(
            f"Half of the GPU jobs ran for at most {duration(run['p50_s'])}, one in ten for {duration(run['p90_s'])} or"
            " longer"
        )
    if wait is not None and wait["p90_s"] <= 0:
        told.append("nine jobs in ten or more started at once")
    elif wait is not None:
        half = f"half waited at most {duration(wait['p50_s'])}" if wait["p50_s"] > 0 else "half started at once"
        told.append(f"{half}, one in ten waited {duration(wait['p90_s'])} or longer")
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}." if text else None


def distributions_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the curves of run times and waits, and the waits of each size."""
    panels = []
    for measure, heading, title, share in _DRAWN:
        own = [r for r in rows if r["measure"] == measure and r["scope"] != "size" and r["number"] >= LEAST]
        # A curve of zeros would be an edge of the chart.
        if any(r["scope"] == "all" and r["p100_s"] for r in own):
            panels.append(Panel(curve(own, title=title, share=share), title=heading))
    waits = [r for r in rows if r["measure"] == "wait" and r["scope"] == "size"]
    if len(waits) > 1 and any(r["p90_s"] for r in waits):
        panels.append(_waits_by_size(waits))
    return panels


def _waits_by_size(rows: list[Row]) -> Panel:
    colours = class_colours(r["gpu_class"] for r in rows)
    columns = ("gpu_class", "number", "mean_s", "p10_s", "p25_s", "p50_s", "p75_s", "p90_s")
    drawn = ranges(
        [{c: r[c] for c in columns} for r in rows],
        y=category("gpu_class", list(colours), "GPUs of the job"),
        wide=("p10_s", "p90_s"),
        narrow=("p25_s", "p75_s"),
        mean="mean_s",
        title="wait (log scale)",
        by="gpu_class",
        colours=colours,
        tooltip=time_tooltips("gpu_class", "GPUs", "number", ["p50_s", "mean_s", "p75_s", "p90_s"]),
    )
    return Panel(drawn.properties(height=height(len(colours), 30)), title="Wait by size", note=DISTRIBUTION, wide=True)


def week_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say in which hour of the week most jobs come, and which waits are longest on average."""
    whole = [r for r in rows if r["cluster"] is None and r["jobs_per_hour"] is not None]
    busy = largest(whole, "jobs_per_hour")
    if busy is None or not busy["jobs"]:
        return None
    text = f"Most GPU jobs come on {_hour(busy)}: {count(round(busy['jobs_per_hour'], 1))} in that hour"
    slow = largest([r for r in whole if r["waits"] >= LEAST], "mean_wait_s")
    among = f" (hours of {LEAST} waits or more)" if any(0 < r["waits"] < LEAST for r in whole) else ""
    if slow is None or not slow["mean_wait_s"]:
        return f"{text}."
    return f"{text}. Those that come on {_hour(slow)} wait longest, {duration(slow['mean_wait_s'])} on average{among}."


def _hour(row: Row) -> str:
    return f"{_DAY_NAMES[row['weekday'] - 1]}s at {row['hour']:02}:00"


def week_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw arrivals, and beside them mean waits, by day and hour of the week."""
    known = [r for r in rows if r["jobs"]]
    if len({(r["weekday"], r["hour"]) for r in known}) < LEAST:
        return []
    whole = [r for r in known if r["cluster"] is None]
    come = linear_shades([r["jobs_per_hour"] for r in whole])
    means = [r["mean_wait_s"] for r in whole if r["mean_wait_s"] is not None]
    wait = time_shades(means)
    drawn = [_cell(r) for r in known]
    when = [alt.Tooltip("day:N"), alt.Tooltip("hour:O"), alt.Tooltip("jobs:Q", title="jobs, all weeks", format=",")]
    panels = [
        hours_of_week(
            drawn,
            "come",
            come,
            hue="series-1",
            title="Jobs submitted in an hour",
            tooltip=[*when, alt.Tooltip("come:Q", title="jobs in this hour")],
        )
    ]
    if wait.ends:  # waits of one step would be a map of one shade
        panels.append(
            hours_of_week(
                drawn,
                "wait",
                wait,
                hue="series-2",
                title="Mean wait of jobs submitted then",
                tooltip=[*when, alt.Tooltip("wait:Q", title="mean wait (s)", format=",")],
            )
        )
    return panels


def _cell(row: Row) -> dict[str, Any]:
    cell = {
        "cluster": row["cluster"],
        "names": 0 if row["cluster"] is None else 1,
        "day": DAYS[row["weekday"] - 1],
        "hour": row["hour"],
        "jobs": row["jobs"],
        "come": round(row["jobs_per_hour"], 2),
    }
    # An hour whose jobs all wait still, or wait an unknown time, has none.
    return cell if row["mean_wait_s"] is None else {**cell, "wait": round(row["mean_wait_s"])}
