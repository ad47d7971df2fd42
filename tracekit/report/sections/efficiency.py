"""GPU-hours: who gets them, how many are used, idle or lost, and their cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import names, number
from tracekit.report.bars import amounts, named
from tracekit.report.charts import Chart, Hues, Tip, stack
from tracekit.report.phrases import drawn_note, sums
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_PARTS = {"used": "series-3", "idle": "series-2", "unknown": "series-5"}
"""Parts of the allocated GPU-hours, with their colours."""

_LITTLE = 0.5
"""If telemetry covers a smaller share of the GPU-hours, a sentence says so."""


def efficiency_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say how many GPU-hours were used and lost, and who wastes most."""
    held = _sum(rows, "held_gpu_h")
    if not held:
        return None
    used, idle = _sum(rows, "used_gpu_h"), _sum(rows, "idle_gpu_h")
    covered = used + idle
    text = f"Jobs took {count(held)} GPU-hours"
    if covered:
        text += (
            f". Utilization is known for {_of(covered, held)} of them: {percent(used / covered)} were used and"
            f" {percent(idle / covered)} were idle"
        )
    else:
        text += ". How many of them were used is unknown"
    lost = {
        "failed": _sum(rows, "failed_gpu_h"),
        "timed out": _sum(rows, "timeout_gpu_h"),
        "were preempted": _sum(rows, "preempted_gpu_h"),
    }
    if any(lost.values()):
        text += f". Runs that {_listed(lost, held)}"
    worst = rows[0]
    if worst["wasted_gpu_h"]:
        wasted = f"{count(worst['wasted_gpu_h'])}"
        if worst["held_gpu_h"]:
            wasted += f", {percent(worst['wasted_gpu_h'] / worst['held_gpu_h'])} of its own"
        least = " at least" if (worst["coverage_share"] or 0) < _LITTLE else ""
        # All GPU-hours of a failed attempt count as wasted, although the attempt may have saved its work.
        kept = ", if failed runs saved nothing" if any(lost.values()) else ""
        text += f". {_who(worst['key'], facts)} wasted most,{least} {wasted}{kept}"
    return text + "."


def _listed(lost: dict[str, float], held: float) -> str:
    """Describe the GPU-hours of attempts by unsuccessful status: 'failed took 4 (2.0 %), those that ...'."""
    first, *others = [(how, _of(hours, held)) for how, hours in lost.items() if hours]
    return ", ".join([f"{first[0]} took {first[1]}", *(f"those that {how} {hours}" for how, hours in others)])


def _who(key: str | None, facts: TraceFacts) -> str:
    by = facts.efficiency_by
    word = {"vc": facts.tenant.one, "gpu_model": "GPU model", "qos": "QOS"}.get(by, by)
    return f"Jobs without a {word}" if key is None else f"{word[:1].upper()}{word[1:]} {shorten(key, 30)}"


def _of(hours: float, held: float) -> str:
    return f"{count(hours)} ({percent(hours / held)})" if held else count(hours)


def _sum(rows: list[Row], column: str) -> float:
    return sum(float(r[column]) for r in rows if r[column] is not None)


def efficiency_chart(rows: list[Row], facts: TraceFacts) -> Chart:
    """Draw the GPU-hours of each key as used, idle and unknown, with the worst key first."""
    known = [r for r in rows if r["held_gpu_h"]]
    shown = named(known, "key", f"no {facts.efficiency_by.replace('_', ' ')}")
    long = [
        {"label": r["label"], "part": part, "order": place, "hours": hours, "share": hours / r["held_gpu_h"]}
        for r in shown
        for place, (part, hours) in enumerate(zip(_PARTS, _hours(r), strict=True))
        if hours > 0
    ]
    have = {r["part"] for r in long}
    notes = [
        "Unknown: not measured." if "unknown" in have else "",
        drawn_note(len(shown), len(known), "most wasteful"),
    ]
    return Chart(
        long,
        x=replace(number("hours", "GPU-hours allocated"), more={"stack": "zero"}),
        y=names("label", [r["label"] for r in shown], step=24),
        marks=[stack(14)],
        by=Hues("part", {words: colour(name) for words, name in _PARTS.items() if words in have}),
        tips=[
            Tip("label", "name"),
            Tip("part", "part"),
            Tip("hours", "GPU-hours", ",.1f"),
            Tip("share", "of GPU-hours allocated", ".1%"),
        ],
        note=" ".join(filter(None, notes)),
    )


def _hours(row: Row) -> tuple[float, float, float]:
    used, idle = row["used_gpu_h"] or 0.0, row["idle_gpu_h"] or 0.0
    return used, idle, max(row["held_gpu_h"] - used - idle, 0.0)


def jobs_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much the listed jobs wasted, and why the first job is listed."""
    wasted = _sum(rows, "wasted_gpu_h")
    if not rows or not wasted:
        return None
    first = rows[0]
    whose = f" of {shorten(first['user'], 30)}" if first["user"] is not None else ""
    name = f"{shorten(first['job_id'], 40)}{whose}"
    if len(rows) == 1:
        return f"Job {name} {first['reason']}."
    job = f"{name}, which {first['reason']}"
    return f"The {count(len(rows))} jobs in the table wasted {count(wasted)} GPU-hours. Worst: {job}."


def bill_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say what the GPU-hours cost, including idle, failed and waiting hours."""
    priced = [r for r in rows if r["cost"] is not None]
    without = sum(r["gpu_hours"] or 0 for r in rows if r["cost"] is None)
    unpriced = f" Another {count(without)} GPU-hours have no price." if without else ""
    if not priced:
        return unpriced.strip() or None
    currency = shorten(priced[0]["currency"], 10)
    total = _sum(priced, "cost")

    def money(amount: float) -> str:
        return f"{amount:,.2f} {currency}"

    text = f"{count(_sum(priced, 'gpu_hours'))} GPU-hours cost {money(total)}"
    parts = [
        f"{money(_sum(priced, column))} {what}"
        for column, what in (("idle_cost", "for idle GPUs"), ("failed_cost", "for failed runs"))
        if any(r[column] for r in priced)
    ]
    if parts:
        text += f", including {' and '.join(parts)}"
    waited = _sum(priced, "waiting_cost")
    if waited:
        text += f". The GPU-hours that jobs waited for are worth {money(waited)}"
    return f"{text}.{unpriced}"


def bill_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the cost by the first column of the bill."""
    by = next(iter(rows[0]))
    costs = sums((row for row in rows if row["cost"] is not None), by, "cost")
    order = sorted(costs, key=lambda key: (-costs[key], key is None, key or ""))
    shown = named([{by: key, "cost": costs[key]} for key in order if costs[key]], by, f"no {by.replace('_', ' ')}")
    tips = [Tip("cost", "cost", ",.2f")]
    axis = f"cost ({shorten(rows[0]['currency'], 10)})"
    what = "with the highest cost"
    return amounts(shown, value="cost", axis_title=axis, tips=tips, total=len(order), what=what)


PRESENTATIONS = (
    Presentation("utilization/efficiency", finding=efficiency_finding, chart=efficiency_chart),
    Presentation(
        "utilization/jobs_to_look_at",
        finding=jobs_finding,
        without_rows="No job of a GPU-hour or more failed, was preempted, or was idle.",
    ),
    Presentation(
        "money/bill",
        finding=bill_finding,
        chart=bill_chart,
        without_rows="No GPU job has a known run time.",
    ),
)
