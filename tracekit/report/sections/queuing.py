"""Queueing: how long jobs run and how long they wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.charts import (
    DISTRIBUTION,
    GPU_CLASSES,
    Panel,
    axis_values,
    category,
    class_colours,
    class_legend,
    height,
    ranges,
    time_tooltips,
)
from tracekit.report.phrases import SEVERAL, by_class, enough, gpu_jobs, largest, sample_size, scope
from tracekit.report.sections.interface import Presentation
from tracekit.report.sections.queuing_distributions import (
    distributions_chart,
    distributions_finding,
    week_chart,
    week_finding,
)
from tracekit.report.structure import ROW_LIMIT
from tracekit.text import count, counted, duration, labels, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import altair as alt

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.tenant import Tenant

TENANTS = 12
"""Most tenants drawn."""

_OUTSTANDING = 1 / 3
"""Share of all the waiting from which on a tenant is named."""


def run_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Compare the median run time of the smallest and the largest GPU jobs of which there are several."""
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
        return f"{text}; one in ten ran for {duration(first['p90_s'])} or longer."
    last = sized[-1]
    more = f"half of the {gpu_jobs(last['gpu_class'])} for at most {duration(last['p50_s'])}{sample_size(last['jobs'])}"
    return f"{text}, {more}."


def run_time_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the run time's percentiles by size class."""
    shown = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    colours = class_colours(r["gpu_class"] for r in shown)
    drawn = ranges(
        shown,
        y=category("gpu_class", list(colours), "GPUs of the job"),
        wide=("p10_s", "p90_s"),
        narrow=("p25_s", "p75_s"),
        mean="mean_s",
        title="run time (log scale)",
        by="gpu_class",
        colours=colours,
        tooltip=time_tooltips("gpu_class", "GPUs", "jobs", ["p10_s", "p25_s", "p50_s", "mean_s", "p75_s", "p90_s"]),
    ).properties(height=height(len(colours), 30))
    return [Panel(drawn, note=DISTRIBUTION)] if shown else []


def queue_delay_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name who waits most, the most common kind of start, and the one with the longest tail (90th percentile)."""
    rows = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None and r["p90_s"] is not None]
    rows = [r for r in rows if r["gpu_class"] != "0"] or rows
    most = largest(rows, "waits")
    if most is None:
        return None
    if not any(r["p90_s"] > 0 or r["mean_s"] for r in rows):
        return f"No wait was longer than 0 s, in {counted(sum(r['waits'] for r in rows), 'waits')} of all sizes."
    where = _where(rows, facts.tenant)
    told = [where] if where else []
    worst = largest(enough(rows, "waits"), "p90_s")
    if worst is not None and worst is not most and worst["p90_s"] > most["p90_s"]:
        among = scope(rows, "waits")
        among = f" of the groups{among}" if among else ""
        told.append(f"The longest tail{among} is that of {_of(worst)}: {_waited(worst)}{sample_size(worst['waits'])}.")
    if not where and (most["p90_s"] > 0 or not told):  # that most do not wait says little beside who does
        told.insert(0, f"Most starts, {count(most['waits'])}, are those of {_of(most)}: {_waited(most)}.")
    return " ".join(filter(None, [*told, _by_size(rows)]))


def _by_size(rows: list[Row]) -> str:
    """Compare the mean wait of the smallest and of the largest jobs."""
    sizes = [_pooled([r for r in rows if r["gpu_class"] == c], "gpu_class") for c in GPU_CLASSES]
    known = [s for s in sizes if s is not None and s["waits"] >= SEVERAL]
    if len(known) < 2:
        return ""
    small, large = known[0], known[-1]
    return (
        f"On average {gpu_jobs(small['gpu_class'])} waited {duration(small['mean_s'])}{_tail(small)},"
        f" {gpu_jobs(large['gpu_class'])} {duration(large['mean_s'])}{_tail(large)}."
    )


def _tail(row: Row) -> str:
    """Return what a mean wait hides: the 90th percentile, where it is known of all the waits, and few waits."""
    tail = f" (one in ten {duration(row['p90_s'])} or longer)" if row["p90_s"] is not None else ""
    return f"{tail}{sample_size(row['waits'])}"


def _where(rows: list[Row], tenant: Tenant) -> str:
    """Name the tenant in which most of the time is waited, where one stands out."""
    vcs = [_pooled([r for r in rows if r["vc"] == vc], "vc") for vc in {r["vc"] for r in rows}]
    known = [v for v in vcs if v is not None]
    # A report may hold only the first rows of a long result, which do not represent the whole.
    if len(known) < 2 or len(rows) >= ROW_LIMIT:
        return ""
    waits, waited = sum(v["waits"] for v in known), sum(v["waits"] * v["mean_s"] for v in known)
    most = max(known, key=lambda v: (v["waits"] * v["mean_s"], str(v["vc"])))
    time, part = most["waits"] * most["mean_s"] / waited if waited else 0, most["waits"] / waits
    if time < _OUTSTANDING or time < 2 * part:
        return ""
    who = f"Jobs without {tenant.a}" if most["vc"] is None else f"Jobs of {shorten(most['vc'], 30)}"
    return f"{who} did {percent(time)} of all the waiting, with {percent(part)} of the starts."


def _pooled(rows: list[Row], key: str) -> Row | None:
    """Return the waits of several rows and their mean; None where none is known."""
    known = [r for r in rows if r["waits"] and r["mean_s"] is not None]
    waits = sum(r["waits"] for r in known)
    if not waits:
        return None
    mean = sum(r["waits"] * r["mean_s"] for r in known) / waits
    # Percentiles of parts do not add up to one of the whole.
    return {key: known[0][key], "waits": waits, "mean_s": mean, "p90_s": known[0]["p90_s"] if len(known) == 1 else None}


def _waited(row: Row) -> str:
    """Return median and 90th percentile in words; a wait of 0 is no wait."""
    if row["p90_s"] <= 0:
        return "nine in ten or more did not wait"
    tail = f"one in ten waited {duration(row['p90_s'])} or longer"
    middle = "half did not wait" if row["p50_s"] <= 0 else f"half waited {duration(row['p50_s'])} or less"
    return f"{middle}, {tail}"


def _of(row: Row) -> str:
    where = f" in {shorten(row['vc'], 30)}" if row["vc"] is not None else ""
    return f"{gpu_jobs(row['gpu_class'])}{where}"


def queue_delay_chart(rows: list[Row], facts: TraceFacts) -> list[Panel]:
    """Draw median, mean and 90th percentile of the waits by size, one chart a tenant, all on one axis."""
    known = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    if not known:
        return []
    waits: dict[str | None, int] = {}
    for row in known:
        waits[row["vc"]] = waits.get(row["vc"], 0) + row["waits"]
    waited = [v for v in waits if any(r["p90_s"] or r["mean_s"] for r in known if r["vc"] == v)]
    chosen = sorted(waited, key=lambda v: (-waits[v], v or ""))[:TENANTS]
    named = labels([v for v in chosen if v is not None])
    none = "" if len(waits) == 1 else f"no {facts.tenant.one}"
    shown = [r for r in known if r["vc"] in chosen]
    colours = class_colours(r["gpu_class"] for r in shown)
    sizes = dict(zip(colours, (words for words, _ in class_legend(colours)), strict=True))
    within = axis_values(shown, ("p50_s", "p90_s", "mean_s"))
    panels = []
    for tenant in chosen:
        own = [{**{c: r[c] for c in _WAITS}, "size": sizes[r["gpu_class"]]} for r in shown if r["vc"] == tenant]
        title = none if tenant is None else named.get(tenant, "unknown")
        panels.append(Panel(_waits(own, sizes, colours, within), title=title))
    return [*panels[:-1], replace(panels[-1], note=_not_drawn(waits, waited, facts.tenant))] if panels else []


_WAITS = ("vc", "gpu_class", "waits", "p50_s", "mean_s", "p90_s")
"""What is drawn of waits."""


def _not_drawn(waits: Mapping[str | None, int], waited: Sequence[str | None], tenant: Tenant) -> str:
    """Return what the lines are, and which tenants have no chart."""
    told = ["Dot: median; diamond: mean; line: to the 90th percentile."]
    left, none = len(waited) - TENANTS, len(waits) - len(waited)
    if left > 0:
        told.append(f"Drawn: the {TENANTS} {tenant.many} with the most waits; {left} more.")
    if none:
        told.append(f"Not drawn: {counted(none, tenant.many)} in which no job waited.")
    return " ".join(told)


def _waits(rows: list[Row], sizes: dict[str, str], colours: dict[str, str], within: list[float]) -> alt.LayerChart:
    """Draw the waits of one tenant by size; each size has its place in all of the charts."""
    drawn = ranges(
        rows,
        y=category("size", list(sizes.values()), None),
        wide=("p50_s", "p90_s"),
        mean="mean_s",
        within=within,
        title="wait (log scale)",
        by="gpu_class",
        colours=colours,
        tooltip=time_tooltips("size", "size", "waits", ["p50_s", "mean_s", "p90_s"]),
        sizes=(3, 3),
    )
    return drawn.properties(height=height(len(sizes), 18))


PRESENTATIONS = (
    Presentation("queuing/distributions", finding=distributions_finding, chart=distributions_chart),
    Presentation("queuing/run_time", finding=run_time_finding, chart=run_time_chart),
    Presentation(
        "queuing/queue_delay",
        finding=queue_delay_finding,
        chart=queue_delay_chart,
        without_vcs="How long do jobs wait, and do larger jobs wait longer?",
    ),
    Presentation("queuing/week", finding=week_finding, chart=week_chart),
)
