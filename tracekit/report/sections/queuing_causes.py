"""Queueing: why jobs wait, which jobs overtake others, and whether waits can be predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.characterize.intervals import FEW
from tracekit.report.bars import bars
from tracekit.report.charts import GPU_CLASSES
from tracekit.report.phrases import gpu_jobs, largest, sample_size
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts


def causes_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say which share of the waits of GPU jobs each cause explains, and which size is affected most."""
    sized = [r for r in rows if r["gpu_class"] != "0" and r["waits"]]
    waits = sum(r["waits"] for r in sized)
    if not waits:
        return None
    fair = sum(r["fair_share_waits"] for r in sized)
    waited = sum(r["wait_s"] for r in sized)
    time = sum(r["fair_share_wait_s"] for r in sized) / waited if fair and waited else None
    more = "" if time is None else f", and {percent(time)} of the waiting time"
    text = f"Of {counted(waits, 'waits')} of GPU jobs, {_part(fair, waits, more)} {_quota(facts)}"
    placed = [r for r in sized if r["fragmentation_waits"] is not None]
    if placed:
        fragmented = sum(r["fragmentation_waits"] for r in placed)
        part = _part(fragmented, waits)
        were = "was" if fragmented == 1 else "were"
        text += f". {part[:1].upper()}{part[1:]} {were} mostly due to scattered free GPUs"
    else:
        text += ". The effect of scattered GPUs is unknown, because the log does not record where jobs ran"
    rest = sum(r["other_waits"] for r in sized)
    if rest:
        which = f"{'the other' if rest < waits else 'all'} {count(rest)}"
        text += f". Enough GPUs were free during {which}"
    hit = largest([r for r in sized if r["waits"] >= FEW], "fair_share_share")
    if hit is not None and hit["fair_share_share"] and len(sized) > 1:
        part = f"{percent(hit['fair_share_share'])} of their waits"
        cause = "quotas affect" if facts.vcs else "this affects"
        text += f". Among sizes with at least {FEW} waits, {cause} {gpu_jobs(hit['gpu_class'])} most ({part})"
    return text + "."


def _part(number: int, waits: int, more: str = "") -> str:
    return f"{count(number)} ({percent(number / waits)}{more})" if number else "none"


def _quota(facts: TraceFacts) -> str:
    if not facts.vcs:
        return "came mostly from too few free GPUs in the whole cluster"
    if facts.quotas:
        return f"came mostly from the quota of their {facts.tenant.one}"
    held = f"came mostly while their {facts.tenant.one} used as many GPUs as it ever did"
    return f"{held} (quotas are unknown)"


def causes_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the share of waits that each cause explains, by size class."""
    known = [r for r in rows if r["waits"] and r["gpu_class"] in GPU_CLASSES[1:]]
    if not known:
        return []
    one = facts.tenant.one
    held = f"quota of the {one}" if facts.quotas else f"{one} at its peak"
    full = held if facts.vcs else "too few free GPUs"
    known = [{**r, **_of_time(r)} for r in known]
    kinds = (
        (
            "Waits",
            {"fair_share_share": full, "fragmentation_share": _SCATTERED},
            "share of the waits with this main cause",
        ),
        ("Time waited", {"fair_share_time": full, "fragmentation_time": _SCATTERED}, "share of the waiting time"),
    )
    drawn = []
    for name, measures, axis in kinds:
        if any(r[c] for r in known for c in measures):
            drawn.append(replace(bars(known, measures=measures, axis_title=axis, count="waits"), title=name))
    return drawn


_SCATTERED = "scattered free GPUs"


def _of_time(row: Row) -> Row:
    """Return the share of the waiting time that each cause explains."""
    return {
        f"{cause}_time": row[f"{cause}_wait_s"] / row["wait_s"]
        if row["wait_s"] and row[f"{cause}_wait_s"] is not None
        else None
        for cause in ("fair_share", "fragmentation")
    }


def order_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say how many jobs overtook another job, and how often the overtaken job could not have started anyway."""
    starts, early = sum(r["starts"] for r in rows), sum(r["out_of_order_starts"] for r in rows)
    if not starts:
        return None
    if not early:
        return f"None of {count(starts)} starts of GPU jobs overtook a job{_of_vc(facts)} that had queued longer."
    part = f" ({percent(early / starts)})" if starts >= FEW else ""
    text = f"{count(early)} of {count(starts)} starts of GPU jobs{part} overtook a job{_of_vc(facts)}"
    known = [r for r in rows if r["harmless_share"] is not None]
    weight = sum(r["out_of_order_starts"] for r in known)
    if weight:
        harmless = sum(r["harmless_share"] * r["out_of_order_starts"] for r in known) / weight
        text += f". {_harm(harmless)}"
    most = largest(rows, "overtaken_jobs")
    if most is not None and most["overtaken_jobs"]:
        whose = gpu_jobs(most["gpu_class"])
        text += f". {whose[0].upper()}{whose[1:]} were overtaken most often ({counted(most['overtaken_jobs'], 'jobs')})"
    return text + "."


def _harm(harmless: float) -> str:
    if harmless == 0:
        return "Each time, an overtaken job could have started too"
    if harmless == 1:
        return "None of the overtaken jobs could have started"
    return f"In {percent(harmless)} of the decidable cases, no overtaken job could have started"


def _of_vc(facts: TraceFacts) -> str:
    return f" of the same {facts.tenant.one}" if facts.vcs else ""


def order_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the share of starts that overtook another job, by size class."""
    known = [r for r in rows if r["out_of_order_share"] is not None]
    if not any(r["out_of_order_share"] for r in known):
        return None
    measures = {"out_of_order_share": "starts that overtook another job"}
    return bars(known, measures=measures, axis_title="share of the starts", count="starts")


def expected_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many waits were within the interval forecast at submission."""
    whole = next((r for r in rows if r["gpu_class"] == "all"), None)
    if whole is None:
        return None
    if not whole["told"]:
        return f"No wait was forecast, because {counted(whole['too_few'], 'jobs')} had too few similar earlier jobs."
    few = f" ({counted(whole['too_few'], 'jobs')} had too few similar earlier jobs)" if whole["too_few"] else ""
    n = sample_size(whole["told"]) or f" of {count(whole['told'])} jobs"
    held = percent(whole["inside_share"])
    return f"{held} of the waits{n} were within the interval forecast at submission{few}."


PRESENTATIONS = (
    Presentation(
        "queuing/delay_causes",
        finding=causes_finding,
        chart=causes_chart,
        without_vcs="Do jobs wait because too few GPUs are free, or because free GPUs are scattered?",
    ),
    Presentation(
        "queuing/out_of_order",
        finding=order_finding,
        chart=order_chart,
        without_vcs="How often do jobs overtake others, and which jobs pay for it?",
    ),
    Presentation(
        "queuing/expected_wait_backtest",
        finding=expected_finding,
        without_rows="No job's wait is known.",
    ),
)
