"""Queueing: how full the cluster is over time, who waits, and why according to the scheduler."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.report.phrases import drawn_note, largest, sums
from tracekit.report.sections.interface import Presentation, no_tenants
from tracekit.report.structure import ROW_LIMIT
from tracekit.report.through_time import gpu_lines, held_above_waiting
from tracekit.report.times import local, start_of_day
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts


FEW_HELD = 0.05
"""Below this share of allocated GPUs, jobs of the cluster are probably missing from the log."""

CLUSTERS = 4
"""Maximum number of clusters shown."""

VCS = 6
"""Maximum number of tenants shown over time."""


def held_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which share of the GPU time is allocated, and how many GPUs that is."""
    known = {r["metric"]: r["value"] for r in rows}
    if not known.get("held_gpus"):
        return None
    share, mean = known.get("held_share"), f"an average of {count(round(known['held_gpus']))} GPUs"
    if share is None:
        return f"Up to the last submission, {mean} were allocated."
    text = f"Up to the last submission, {percent(share)} of the cluster's GPU time was allocated ({mean})"
    return f"{text}. The log may contain only some of the cluster's jobs." if share < FEW_HELD else f"{text}."


def timeline_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Give the maximum number of allocated GPUs, and say when the queue was longest."""
    if not any(r["running_gpus"] for r in rows):
        return None
    times = sorted({r["time"] for r in rows})
    text = f"At the peak, jobs used {count(round(max(sums(rows, 'time', 'running_gpus').values())))} GPUs"
    above = len({r["time"] for r in rows if (r["capacity_gpus"] or float("inf")) < r["running_gpus"] - 0.5})
    if above:
        # A caveat on the first screen may mention a moment with more GPUs than its span's average.
        first, second = (datetime.fromisoformat(time) for time in (times[0], times[min(1, len(times) - 1)]))
        text += f", averaged over {duration((second - first).total_seconds())}" if first < second else ""
        owned = {"owned": "are owned", "quotas": "the quotas add up to"}.get(facts.capacity, f"were {facts.capacity}")
        text += f". In {count(above)} of the {counted(len(times), 'spans')} shown, jobs used more than {owned}"
    worst = largest(rows, "pending_gpus")
    if worst is not None and worst["pending_gpus"] >= 1:
        waiting, used = counted(round(worst["pending_gpus"]), "GPUs"), count(round(worst["running_gpus"]))
        text += f". The queue was longest {_minute(worst['time'], facts)}: jobs waited for {waiting} and used {used}"
    return text + "."


def submitting(rows: list[Row], facts: TraceFacts) -> list[Row]:
    """Return the rows of intervals that end by the last submission, or all rows if there are none.

    Later rows are omitted, because the log has no later jobs: GPUs only seem idle as the logged jobs end.
    """
    moments = {r["time"]: local(r["time"], "UTC") for r in rows}
    if facts.last_submission is None or len(moments) < 2:
        return rows
    step = min(b - a for a, b in pairwise(sorted(moments.values())))
    last = local(facts.last_submission, "UTC")
    ended = {time for time, moment in moments.items() if moment + step <= last}
    return [r for r in rows if r["time"] in ended] if ended else rows


def vc_timeline_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the tenant that waits for the most GPUs, and the tenant that uses the most."""
    if len(rows) >= ROW_LIMIT:
        # A report contains only the first rows of a long result, which may not cover the whole period.
        return "The table shows the means over the first intervals. The file contains all intervals."
    vc = facts.tenant.column
    means = _means(submitting(rows, facts), vc)
    most = max(means, key=lambda m: (m["running_gpus"], str(m[vc])))
    if not any(m["running_gpus"] or m["pending_gpus"] for m in means):
        return None
    text = f"{_who(most, facts)} used the most GPUs, {count(round(most['running_gpus'], 1))} on average"
    worst, peak = max(means, key=lambda m: (m["pending_gpus"], str(m[vc]))), largest(rows, "pending_gpus")
    if not worst["pending_gpus"] or peak is None:
        return f"{text}. No job waited for GPUs."
    mean = count(round(worst["pending_gpus"], 2))
    who = "" if worst is most else f"{_who(worst, facts)} "
    return (
        f"{text}, and {who}waited for the most ({mean}). {_who(peak, facts)} had the longest queue:"
        f" {count(round(peak['pending_gpus'], 1))} GPUs {_minute(peak['time'], facts)}, while using"
        f" {count(round(peak['running_gpus'], 1))}."
    )


def _means(rows: list[Row], vc: str) -> list[Row]:
    """Return the mean numbers of GPUs that each tenant used and waited for; `vc` is the tenant's column."""
    own: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in rows:
        own.setdefault((row["cluster"], row[vc]), []).append(row)
    return [
        {
            "cluster": cluster,
            vc: tenant,
            "running_gpus": sum(r["running_gpus"] for r in part) / len(part),
            "pending_gpus": sum(r["pending_gpus"] for r in part) / len(part),
        }
        for (cluster, tenant), part in own.items()
    ]


def _who(row: Row, facts: TraceFacts) -> str:
    tenant = row[facts.tenant.column]
    return f"jobs without {facts.tenant.a}" if tenant is None else shorten(tenant, 30)


def vc_timeline_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the GPUs used and waited for over time, for the tenants with the highest numbers."""
    if len(rows) >= ROW_LIMIT:
        return []
    vc = facts.tenant.column
    means = sorted(_means(rows, vc), key=lambda m: (-m["pending_gpus"] - m["running_gpus"], str(m[vc])))
    shown = means[:VCS]
    note = drawn_note(len(shown), len(means), f"{facts.tenant.many} that used and waited for the most")
    return [
        held_above_waiting(
            [r for r in rows if (r["cluster"], r[vc]) == (mean["cluster"], mean[vc])],
            facts,
            title=_who(mean, facts),
            note=note if mean is shown[-1] else "",
            height=150,
        )
        for mean in shown
    ]


def _minute(time: str, facts: TraceFacts) -> str:
    """Write an ISO time in words, to the minute."""
    at = f" at {local(time, facts.timezone):%H:%M}" if facts.clocked else ""
    return f"on {start_of_day(time, facts)}{at}"


def timeline_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the GPUs allocated, waited for and available over time, with one chart per cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    drawn = []
    for cluster in clusters[:CLUSTERS]:
        own = [r for r in rows if r["cluster"] == cluster]
        top, owned, note = max(r["running_gpus"] for r in own), facts.capacity, ""
        if top < FEW_HELD * max((r["capacity_gpus"] or 0 for r in own), default=0):
            # A line this high would flatten the curve of allocated GPUs.
            owned = ""
            note = f"The '{facts.capacity}' line is not shown because it is far above the others."
        title = cluster or "" if len(clusters) > 1 else ""
        drawn.append(held_above_waiting(own, facts, title=title, owned=owned, note=note))
    return drawn


def fragmentation_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say what share of the free GPUs a large gang could have used."""
    rows = submitting(rows, facts)
    free = sum(r["free_gpus"] for r in rows)
    if not free:
        return "No GPU was free at any of the sampled times." if rows else None
    usable = sum(r["largest_gang"] for r in rows)
    whole = sum(1 for r in rows if r["whole_free_nodes"]) / len(rows)
    when = "at all times" if whole == 1 else f"{percent(whole)} of the time"
    return (
        f"On average, one job with good locality could have used {percent(usable / free)} of the free GPUs. At least"
        f" one node was completely free {when}."
    )


def fragmentation_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the free GPUs and the largest gang that would fit, over time, with one chart per cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    lines = {"free_gpus": "free", "largest_gang": "usable by one job"}
    return [
        gpu_lines([r for r in rows if r["cluster"] == c], lines, facts, title=c or "" if len(clusters) > 1 else "")
        for c in clusters[:CLUSTERS]
    ]


_CHOSEN = ("limit", "dependency", "begin time", "held")
"""Reasons other than contention: more nodes would not have started these jobs sooner."""


def reasons_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much of the waiting time limits, dependencies and begin times explain."""
    gpu = sum(r.get("gpu_jobs") or 0 for r in rows)
    jobs, column = (gpu, "gpu_wait_share") if gpu else (sum(r["jobs"] for r in rows), "wait_share")
    shares = {r["reason_group"]: r[column] or 0.0 for r in rows}
    held = sum(shares.get(name, 0.0) for name in _CHOSEN)
    if not sum(shares.values()):
        return None
    limit, who = shares.get("limit", 0.0), "GPU jobs" if gpu else "jobs"
    if not held and not shares.get("unlisted"):
        return (
            f"According to the scheduler, no limit, dependency or begin time delayed the {count(jobs)} waiting {who}."
        )
    text = (
        f"Limits explain {percent(limit)} of the time that {count(jobs)} {who} waited. Dependencies, begin times and"
        f" manual holds explain {percent(held - limit)}"
    )
    if shares.get("unlisted"):
        text += f". For {percent(shares['unlisted'])}, the reason is not in Slurm's list"
    return text + "."


def started_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which share of the GPU jobs was started by backfilling."""
    gpu = [r for r in rows if r["gpu_class"] != "0"]
    jobs, filled = sum(r["jobs"] for r in gpu), sum(r["backfill_jobs"] for r in gpu)
    return f"Backfill started {count(filled)} of {count(jobs)} GPU jobs ({percent(filled / jobs)})." if jobs else None


def no_words(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that the source does not record why jobs waited or what started them."""
    return None if rows else "The source does not record this. sacct does, in its Reason and Flags columns."


PRESENTATIONS = (
    Presentation("queuing/gpu_time_held", finding=held_finding),
    Presentation("queuing/cluster_timeline", finding=timeline_finding, chart=timeline_chart),
    Presentation(
        "queuing/timeline", finding=vc_timeline_finding, chart=vc_timeline_chart, why_empty=no_tenants("load")
    ),
    Presentation("locality/fragmentation", finding=fragmentation_finding, chart=fragmentation_chart),
    Presentation("queuing/wait_reasons", finding=reasons_finding, why_empty=no_words),
    Presentation("queuing/started_by", finding=started_finding, why_empty=no_words),
)
