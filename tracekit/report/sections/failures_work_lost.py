"""Failures: the work that interrupted attempts lose, and how the allocated GPU-hours are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.report.axes import names, number, share
from tracekit.report.charts import Chart, Hues, Tip, bar, diamond, dot, stack, whisker
from tracekit.report.phrases import SEVERAL, drawn_note, largest, sample_size, status_word
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_CAUSES = 12
"""Maximum number of bars."""

_ALL = 1 - 1e-9
"""From this share of lost GPU-hours, attempts count as having saved nothing."""
_WHOLE = 0.995
"""From this share of GPU-hours with known utilization, the rest is not mentioned."""

_PARTS = {
    "useful_gpu_hours": ("useful", "status-completed"),
    "idle_gpu_hours": ("idle", "status-unknown"),
    "lost_gpu_hours": ("lost", "status-failed"),
    "start_up_gpu_hours": ("start-up", "status-cancelled"),
    "queued_gpu_hours": ("waiting for the rest of the gang", "status-pending"),
}
"""Parts of the allocated GPU-hours, in stacking order, with label and colour."""


def lost_work_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how much work interrupted attempts lost, and which cause was the most expensive."""
    lost = sum(r["lost_gpu_hours"] or 0 for r in rows)
    worst = largest(rows, "lost_gpu_hours")
    if not lost or worst is None:
        return None
    attempts, of_all = sum(r["attempts"] for r in rows), sum(r["lost_share"] or 0 for r in rows)
    were = "was" if attempts == 1 else "were"
    held = sum(r["gpu_hours"] or 0 for r in rows)
    saved = "if nothing was saved" if lost > _ALL * held else "since their last checkpoint"
    return (
        f"{counted(attempts, 'runs')} {were} cut short and lost {count(lost)} GPU-hours {saved}, or"
        f" {percent(of_all)} of all allocated GPU-hours. Runs that ended as '{_end(worst)}' account for"
        f" {percent(worst['lost_gpu_hours'] / lost)} of the loss."
    )


def _end(row: Row) -> str:
    status = status_word(row["status"])
    return f"{status} ({shorten(row['cause'], 30)})" if row["cause"] else status


def lost_work_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the GPU-hours lost by status and cause, largest first."""
    known = [r for r in rows if r["lost_gpu_hours"]]
    shown = [{**r, "label": _end(r)} for r in known[:_CAUSES]]
    return Chart(
        shown,
        x=number("lost_gpu_hours", "GPU-hours lost"),
        y=names("label", [r["label"] for r in shown], step=26),
        marks=[bar(14, "status-failed")],
        tips=[
            Tip("label", "ended as"),
            Tip("attempts", "", ","),
            Tip("lost_gpu_hours", "GPU-hours lost", ",.0f"),
            Tip("lost_share", "share of all GPU-hours", ".1%"),
        ],
        note=drawn_note(len(shown), len(known), "largest losses"),
    )


def goodput_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which share of the allocated GPU-hours was useful, and how the rest was spent."""
    every = next((r for r in rows if r["gpu_class"] == "all"), None)
    if every is None or not every["held_gpu_hours"]:
        return None
    held = every["held_gpu_hours"]
    rest = [(column, every[column]) for column in _PARTS if column != "useful_gpu_hours"]
    known = sorted(((column, value) for column, value in rest if value), key=lambda one: -one[1])
    unknown = [_UNKNOWN[column] for column, value in rest if value is None]
    seen = every["idle_known_share"] or 0.0
    sure = not unknown and seen >= _WHOLE and not every["end_unknown_share"]
    most = "" if sure else "at most "
    text = f"Of {count(held)} allocated GPU-hours, {most}{percent(every['goodput_share'])} were useful"
    if known:
        text += ". " + ", ".join(f"{percent(value / held)} {_BECAME[column]}" for column, value in known)
    if every["idle_gpu_hours"] is not None and seen < _WHOLE:
        text += f". Utilization is known for {percent(seen)} of the useful hours"
    if unknown:
        text += f". Unknown: {', '.join(unknown)}"
    return f"{text}."


_BECAME = {
    "idle_gpu_hours": "were idle",
    "lost_gpu_hours": "were lost in runs cut short, if nothing was saved",
    "start_up_gpu_hours": "went into start-up",
    "queued_gpu_hours": "were allocated while part of the gang still waited",
}
_UNKNOWN = {
    "idle_gpu_hours": "how busy GPUs were",
    "lost_gpu_hours": "how runs ended",
    "start_up_gpu_hours": "how long start-up took",
    "queued_gpu_hours": "when the last part of a gang started",
}


def goodput_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw how the GPU-hours of each job size were spent, with one stacked bar per size."""
    classes = [r for r in rows if r["held_gpu_hours"]]
    shown = [
        {
            "gpu_class": r["gpu_class"],
            "part": words,
            "order": order,
            "share": r[column] / r["held_gpu_hours"],
            "hours": r[column],
        }
        for r in classes
        for order, (column, (words, _)) in enumerate(_PARTS.items())
        if r[column]
    ]
    have = {r["part"] for r in shown}
    return Chart(
        shown,
        x=share("share", "share of allocated GPU-hours", whole=True, stacked=True),
        y=names("gpu_class", [r["gpu_class"] for r in classes], "GPUs of the job", step=28),
        marks=[stack(18)],
        by=Hues("part", {words: colour(name) for words, name in _PARTS.values() if words in have}),
        tips=[
            Tip("gpu_class", "GPUs"),
            Tip("part", "part"),
            Tip("hours", "GPU-hours", ",.0f"),
            Tip("share", "", ".1%"),
        ],
        note="'Useful' includes hours with unknown utilization.",
    )


def ettr_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Compare the effective training time ratio of small and large gangs with enough jobs."""
    told = [r for r in rows if r["ettr"] is not None and r["jobs"] >= SEVERAL]
    if not told:
        return f"No size has {SEVERAL} jobs of an hour or more, so the chart shows mostly noise." if rows else None
    small, wide = min(told, key=lambda r: r["gpus"]), max(told, key=lambda r: r["gpus"])
    text = (
        f"With hourly checkpoints, jobs of {_size(wide)} make progress for {percent(wide['ettr'])} of the time since"
        f" submission{_ends(wide)}{sample_size(wide['jobs'])}"
    )
    if small is not wide:
        text += f", and jobs of {_size(small)} for {percent(small['ettr'])}{_ends(small)}{sample_size(small['jobs'])}"
    return f"{text}."


def _size(row: Row) -> str:
    low = row["gpus"] // 2 + 1
    return counted(row["gpus"], "GPUs") if low >= row["gpus"] else f"{count(low)} to {counted(row['gpus'], 'GPUs')}"


def _ends(row: Row) -> str:
    if row["ettr_low"] is None or row["ettr_high"] is None:
        return ""
    return f" ({percent(row['ettr_low'])} to {percent(row['ettr_high'])})"


def ettr_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the ratio for each gang size with its interval, and the ratio expected from the failure rate."""
    known = [{**r, "label": _size(r)} for r in rows if r["ettr"] is not None]
    colours = {"measured": colour("series-1"), "expected by the formula": colour("series-2")}
    measured: dict[str, Any] = {"color": colours["measured"]}
    x = share("ettr", "time in which jobs made progress", whole=True)
    marks = [whisker(x.of("ettr_low"), "ettr_high", **measured), dot(**measured)]
    if any(r["expected_ettr"] is not None for r in known):
        marks.append(diamond(x.of("expected_ettr"), color=colours["expected by the formula"]))
    else:
        del colours["expected by the formula"]
    return Chart(
        known,
        x=x,
        y=names("label", [r["label"] for r in known], step=26),
        marks=marks,
        by=Hues("", colours),
        tips=[
            Tip("label", "gang"),
            Tip("jobs", "", ","),
            Tip("ettr", "measured", ".1%"),
            Tip("expected_ettr", "expected", ".1%"),
        ],
        note="Line: 95 % interval. Only jobs of an hour or more.",
    )


PRESENTATIONS = (
    Presentation("failures/lost_work", finding=lost_work_finding, chart=lost_work_chart),
    Presentation("failures/goodput", finding=goodput_finding, chart=goodput_chart),
    Presentation("failures/ettr", finding=ettr_finding, chart=ettr_chart),
)
