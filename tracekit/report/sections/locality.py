"""Locality: how spreading a job over nodes and sharing nodes relate to waits and utilization."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tracekit.characterize.intervals import FEW
from tracekit.report.axes import names
from tracekit.report.bars import bars
from tracekit.report.charts import GPU_CLASSES, Tip, series, size_hues
from tracekit.report.phrases import SEVERAL, drawn_note, enough, gpu_jobs, gpus, largest, sample_size, scope, sums
from tracekit.report.sections.interface import Presentation
from tracekit.report.spreads import ranges, tails
from tracekit.text import count, counted, duration, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts

NODE_COUNTS = 16
"""Maximum number of node counts shown."""

SIZES = 8
"""Maximum number of job sizes shown."""

LEAST_SAMPLES = 60
"""Minimum number of samples of a group in a sentence. In most traces, 60 samples cover an hour of one GPU."""

PAPER_SIZE = 16
"""The job size in the paper's table of spread."""

_CLASSES = ("5-8", ">8")
"""The size classes in the paper's figure. Smaller jobs are rarely spread over nodes."""


def delay_by_spread_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Compare the waits of jobs of one size class between few and more nodes."""
    for gpu_class in _CLASSES:
        have = _with_known_waits(rows, gpu_class)
        if len(have) >= 2:
            few, many = have[0], have[-1]
            if few["p50_s"] == many["p50_s"] == 0:
                return (
                    f"Half or more of the {gpu_jobs(gpu_class)} started at once, both on"
                    f" {_nodes(few['node_count'])}{sample_size(few['jobs'])} and on"
                    f" {_nodes(many['node_count'])}{sample_size(many['jobs'])}."
                )
            return (
                f"The median wait of {gpu_jobs(gpu_class)} was {duration(few['p50_s'])} on {_nodes(few['node_count'])}"
                f"{sample_size(few['jobs'])} and {duration(many['p50_s'])} on {_nodes(many['node_count'])}"
                f"{sample_size(many['jobs'])}."
            )
    if rows and all(r["node_count"] == 1 for r in rows):
        return "Every job ran on one node, so the trace cannot show an effect of spreading."
    return "Too few large jobs ran on different numbers of nodes to compare their waits."


def _with_known_waits(rows: list[Row], gpu_class: str) -> list[Row]:
    """Return the rows of a class with several known waits."""
    return [r for r in rows if r["gpu_class"] == gpu_class and r["p50_s"] is not None and r["jobs"] >= SEVERAL]


def _nodes(number: int) -> str:
    return counted(number, "nodes")


def delay_by_spread_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the median and the 90th percentile of the first wait by number of nodes."""
    known = [r for r in rows if r["gpu_class"] is not None and r["p50_s"] is not None]
    if not any(len(_with_known_waits(known, c)) >= 2 for c in GPU_CLASSES):
        return None
    paper = [r for r in known if r["gpu_class"] in _CLASSES]
    shown = paper if len({r["node_count"] for r in paper}) >= 2 else known
    counts = sorted({r["node_count"] for r in shown})
    if not counts:
        return None
    # Jobs on many nodes are few, and their node counts vary, so only the most common node counts are shown.
    jobs = sums(shown, "node_count", "jobs")
    kept = sorted(sorted(counts, key=lambda n: (-jobs[n], n))[:NODE_COUNTS])
    shown = [{**r, "nodes": str(r["node_count"])} for r in shown if r["node_count"] in kept]
    by = size_hues(shown)
    more = drawn_note(len(kept), len(counts), "most common node counts")
    return ranges(
        shown,
        y=names("nodes", [str(n) for n in kept], "nodes of the job", step=13 * len(by.colours) + 10),
        wide=("p50_s", "p90_s"),
        title="wait before the first start (log scale)",
        by=by,
        apart=True,
        tips=[Tip("nodes"), Tip("gpu_class", "GPUs"), Tip("jobs", "", ",")],
        sizes=(3, 3),
        note=f"Dot: median. Line: up to the 90th percentile. {more}".strip(),
    )


def relaxation_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the size class with the largest share of jobs on more nodes than needed."""
    spread = [r for r in _spread_shares(rows) if r["gpu_class"] not in {"<1", "1"}] or _spread_shares(rows)
    if not spread:
        return None
    if not any(r["share"] for r in spread):
        return "Every job ran on as few nodes as possible."
    among = scope(spread, "jobs")
    most = largest(enough(spread, "jobs"), "share")
    if most is None or not most["share"]:
        return None
    waited = _waited(rows, most["gpu_class"])
    return (
        f"{percent(most['share'])} of the {gpu_jobs(most['gpu_class'])} ran on more nodes than they"
        f" need{sample_size(most['jobs'])}, the largest share of any size{among}.{waited}"
    )


def _waited(rows: list[Row], gpu_class: str) -> str:
    """Compare the mean first wait of spread and compact jobs of a class, if their waits are known."""
    own = [r for r in rows if r["gpu_class"] == gpu_class and r["mean_queue_s"] is not None]
    kinds = [[r for r in own if (r["relaxation"] > 1) == wide] for wide in (True, False)]
    waits = [sum(r["waits"] for r in kind) for kind in kinds]
    if min(waits) < SEVERAL:
        return ""
    wide, close = (sum(r["waits"] * r["mean_queue_s"] for r in kind) / n for kind, n in zip(kinds, waits, strict=True))
    return (
        f" They waited {duration(wide)} on average{sample_size(waits[0])}, other jobs of this size {duration(close)}"
        f"{sample_size(waits[1])}."
    )


def _spread_shares(rows: list[Row]) -> list[Row]:
    """Return the number of jobs and the share on more nodes than needed, by size class."""
    jobs = sums(rows, "gpu_class", "jobs")
    wide = sums((row for row in rows if row["relaxation"] > 1), "gpu_class", "jobs")
    return [{"gpu_class": c, "jobs": jobs[c], "share": wide.get(c, 0) / jobs[c]} for c in GPU_CLASSES if c in jobs]


def relaxation_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the share of jobs on more nodes than needed, by size class."""
    shown = _spread_shares(rows)
    axis = "share of jobs on more nodes than needed"
    return bars(shown, measures={"share": "on more nodes than needed"}, axis_title=axis, count="jobs")


def utilization_by_spread_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Compare attempts of one size between the fewest and the most nodes."""
    known = [r for r in rows if r["samples"] >= LEAST_SAMPLES]
    sizes: dict[float, list[Row]] = {}
    for row in known:
        sizes.setdefault(row["gpu_count"], []).append(row)
    several = {size: own for size, own in sizes.items() if len(own) >= 2}
    if not several:
        return None
    # Prefer the paper's size. Otherwise, use the size with the most samples.
    size = PAPER_SIZE if PAPER_SIZE in several else max(several, key=lambda g: sum(r["samples"] for r in several[g]))
    few, many = several[size][0], several[size][-1]
    seen = [facts.telemetry.attempts.get((float(size), r["node_count"])) for r in (few, many)]
    return (
        f"Runs with {gpus(size)} used them {few['mean_pct']:.1f} % on average on {_nodes(few['node_count'])}"
        f"{_seen(few, seen[0])} and {many['mean_pct']:.1f} % on {_nodes(many['node_count'])}{_seen(many, seen[1])}"
        f"{_beware(seen)}."
    )


def _seen(row: Row, attempts: int | None) -> str:
    of = "" if attempts is None else f" of {counted(attempts, 'runs')}"
    return f" ({count(row['samples'])} samples{of})"


def _beware(attempts: list[int | None]) -> str:
    """Warn if many samples come from few attempts. Samples of one attempt are similar."""
    few = [n for n in attempts if n is not None and n < FEW]
    return ". With so few runs, the difference may have other causes" if few else ""


def utilization_by_spread_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw utilization percentiles of sizes that ran on several different node counts."""
    widths = Counter(row["gpu_count"] for row in rows)
    several = [r for r in rows if widths[r["gpu_count"]] >= 2] or rows
    kept = sorted(several, key=lambda r: -r["samples"])[:NODE_COUNTS]
    shown = [{**r, "layout": f"{gpus(r['gpu_count'])}, {_nodes(r['node_count'])}"} for r in several if r in kept]
    left = len(rows) - len(shown)
    note = f"The table has {left} more combinations of size and node count." if left else ""
    tips = [Tip("layout", "GPUs and nodes")]
    return tails(shown, names("layout", [r["layout"] for r in shown], step=26), tips, note=note)


_ALONE, _SHARED = "alone on its nodes", "sharing a node"


def utilization_by_colocation_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Compare exclusive and shared nodes for the size with the most samples of both."""
    alone = {r["gpu_count"]: r for r in rows if not r["colocated"]}
    beside = {r["gpu_count"]: r for r in rows if r["colocated"]}
    if not rows:
        return None
    if not beside or not alone:
        return "No two jobs ever used GPUs of the same node at the same time." if alone else None
    both = [g for g in alone if g in beside and min(alone[g]["samples"], beside[g]["samples"]) >= LEAST_SAMPLES]
    if not both:
        return None
    size = max(both, key=lambda g: min(alone[g]["samples"], beside[g]["samples"]))
    seen = facts.telemetry.of_size(size) if facts.telemetry.attempts else None
    own = "Runs" if seen is None else counted(seen, "runs")
    return (
        f"{own} with {gpus(size)} used them {alone[size]['mean_pct']:.1f} % on average while alone on their nodes,"
        f" and {beside[size]['mean_pct']:.1f} % while sharing a node{_beware([seen])}."
    )


def utilization_by_colocation_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw utilization percentiles on exclusive and shared nodes, by size."""
    samples = sums(rows, "gpu_count", "samples")
    kept = sorted(sorted(samples, key=lambda g: (-samples[g], g))[:SIZES])
    shown = [
        {**r, "size": gpus(r["gpu_count"]), "company": _SHARED if r["colocated"] else _ALONE}
        for r in rows
        if r["gpu_count"] in kept
    ]
    note = drawn_note(len(kept), len(samples), "sizes with the most samples")
    tips, by = [Tip("size", "GPUs"), Tip("company", "when")], series("company", (_ALONE, _SHARED))
    return tails(shown, names("size", [gpus(g) for g in kept], step=40), tips, note=note, by=by)


PRESENTATIONS = (
    Presentation("locality/delay_by_spread", finding=delay_by_spread_finding, chart=delay_by_spread_chart),
    Presentation("locality/relaxation", finding=relaxation_finding, chart=relaxation_chart),
    Presentation(
        "locality/utilization_by_spread", finding=utilization_by_spread_finding, chart=utilization_by_spread_chart
    ),
    Presentation(
        "locality/utilization_by_colocation",
        finding=utilization_by_colocation_finding,
        chart=utilization_by_colocation_chart,
    ),
)
