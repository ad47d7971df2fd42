"""What both kinds of pages show of a part of a digest: numbers as people read them, and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.digests.document import ChangeInfo, Digest, Figures, Part

__all__ = ["OVERVIEW_HEADS", "SERIES_HEADS", "overview_row", "part_view"]

SERIES_HEADS = ("week", "jobs", "GPU-hours", "used", "median wait", "p90 wait", "failed", "timed out")
OVERVIEW_HEADS = ("jobs", "GPU-hours", "used", "idle GPU-hours", "failed GPU-hours", "median wait", "changed")
_VERDICTS = {"above": "more than usual", "below": "less than usual", "usual": "as usual", "too few": "cannot be told"}


def part_view(digest: Digest, part: Part) -> dict[str, Any]:
    """Return the cards, sentences and tables of a part."""
    figures = part["figures"]
    weeks = [*zip(digest["weeks_before"], part["weeks"], strict=True), (digest["week"], figures)]
    return {
        "cards": _cards(digest, figures),
        "changed": [_sentence(c) for c in part["changes"] if c["verdict"] in {"above", "below"}],
        "unchanged": part["unmade"] or _unchanged(digest, part["changes"]),
        "comparison": [_compared(c) for c in part["changes"]],
        "series": [_week_row(name, week) for name, week in weeks],
    }


def overview_row(part: Part) -> list[str]:
    """Return the cells of a part in the table of the operator's page, behind its name."""
    f = part["figures"]
    changed = [f"{_arrow(c)} {c['words']}" for c in part["changes"] if c["verdict"] in {"above", "below"}]
    return [
        _count(f["jobs"]),
        _hours(f["held_gpu_h"]),
        _percent(f["used_share"]),
        _hours(f["idle_gpu_h"]),
        _hours(f["failed_gpu_h"]),
        _duration(f["wait_p50_s"]),
        ", ".join(changed),
    ]


def _cards(digest: Digest, f: Figures) -> list[dict[str, str]]:
    idle = "no telemetry of these jobs"
    if f["idle_gpu_h"] is not None:
        idle = f"{_hours(f['idle_gpu_h'])} GPU-hours idle; telemetry of {_percent(f['coverage_share'])} of the time"
    waiting = f"90 % within {_duration(f['wait_p90_s'])}; {_count(f['waiting'])} waited at the end"
    beside = f"{text.counted(f['cpu_jobs'], 'CPU jobs')} besides" if f["cpu_jobs"] else "submitted"
    lost = f"{_hours(f['failed_gpu_h'])} in failed, {_hours(f['timeout_gpu_h'])} in timed out attempts"
    if f["running_gpu_h"]:
        lost += f", {_hours(f['running_gpu_h'])} in jobs that still run"
    ended = f"{_count(f['failed'])} of {_count(f['ended'])} that ended; {_count(f['timeout'])} timed out"
    cards = (
        (digest["jobs_are"], _count(f["jobs"]), beside),
        ("GPU-hours held", _hours(f["held_gpu_h"]), lost),
        ("of them used", _percent(f["used_share"]), idle),
        ("median wait", _duration(f["wait_p50_s"]), waiting),
        ("failed jobs", _percent(f["failed_share"]), ended),
    )
    return [{"label": label, "text": value, "note": note} for label, value, note in cards]


def _sentence(change: ChangeInfo) -> str:
    word = "above" if change["verdict"] == "above" else "below"
    value, low, high = (_amount(change[key], change["unit"]) for key in ("value", "usual_low", "usual_high"))
    words = change["words"]
    return f"{words[:1].upper()}{words[1:]}: {value}, {word} the usual {low} to {high}."


def _unchanged(digest: Digest, found: Sequence[ChangeInfo]) -> str:
    """Return the sentence for a week without a change."""
    judged = [c for c in found if c["verdict"] != "too few"]
    if not judged:
        return "Too few jobs, or too few whole weeks before, to tell what has changed."
    return f"No change beyond the usual scatter of the {len(digest['weeks_before'])} weeks before."


def _compared(change: ChangeInfo) -> list[str]:
    unit = change["unit"]
    usual = text.MISSING
    if change["usual_low"] is not None and change["usual_high"] is not None:
        usual = f"{_amount(change['usual_low'], unit)} to {_amount(change['usual_high'], unit)}"
    cells = (_amount(change[key], unit) for key in ("value", "before"))
    return [change["words"], *cells, usual, _VERDICTS[change["verdict"]]]


def _week_row(week: str, f: Figures) -> list[str]:
    return [
        week,
        _count(f["jobs"]),
        _hours(f["held_gpu_h"]),
        _percent(f["used_share"]),
        _duration(f["wait_p50_s"]),
        _duration(f["wait_p90_s"]),
        _percent(f["failed_share"]),
        _count(f["timeout"]),
    ]


def _arrow(change: ChangeInfo) -> str:
    return "more:" if change["verdict"] == "above" else "less:"


def _amount(value: float | None, unit: str) -> str:
    if unit == "s":
        return _duration(value)
    if unit == "share":
        return _percent(value)
    return _hours(value) if unit == "GPU-hours" else _count(value)


def _count(value: float | None) -> str:
    return text.MISSING if value is None else text.count(round(value))


def _hours(value: float | None) -> str:
    if value is None:
        return text.MISSING
    return "< 0.1" if 0 < value < 0.05 else text.count(round(value, 1))


def _percent(value: float | None) -> str:
    return text.MISSING if value is None else text.percent(value)


def _duration(value: float | None) -> str:
    return text.MISSING if value is None else text.duration(value)
