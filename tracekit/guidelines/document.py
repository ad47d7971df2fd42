"""The guidelines as a document of JSON values, from which every other form is made."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.guidelines.numbers import shown, span
from tracekit.text import duration, shorten, signed_percent
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.guidelines.effects import Effect, PolicyDifference
    from tracekit.guidelines.interface import Finding, Guideline, Number
    from tracekit.guidelines.judgement import Judgement
    from tracekit.replay.results.effects import Support
    from tracekit.trace import Trace

__all__ = ["FORMAT", "document_of"]

FORMAT = "tracekit-guidelines"

_ROWS = 20
"""Most rows of details; what follows is counted."""
_NAME = 200
_VERDICTS = {
    "better": "The replay bears the advice out.",
    "worse": "The replay speaks against the advice: look for the reason before you follow it.",
    "no change": "The replay shows no gain from the advice.",
    "undecided": "The replay does not decide: the interval, or the assumptions, allow both.",
}


def document_of(trace: Trace, judged: Sequence[Judgement]) -> dict[str, Any]:
    """Return the document: the keys are the same whatever the verdicts, null where there is nothing to say.

    Text from a log appears in `finding.rows` only, made visible and cut.
    """
    return {
        "format": FORMAT,
        "version": 1,
        "tracekit_version": __version__,
        "trace": shorten(trace.path.name, _NAME),
        "source_format": shorten(trace.manifest.format, _NAME),
        "holds": sum(j.verdict == "holds" for j in judged),
        "guidelines": [_entry(j) for j in judged],
    }


def _entry(judged: Judgement) -> dict[str, Any]:
    guideline, holds = judged.guideline, judged.verdict == "holds"
    return {
        "id": guideline.id,
        "title": guideline.title,
        "question": guideline.question,
        "verdict": judged.verdict,
        "why": list(judged.why),
        "thresholds": [_threshold(guideline, k, judged.finding) for k in range(len(guideline.thresholds))],
        "finding": None if judged.finding is None else _finding(guideline, judged.finding),
        "advice": (_own_text(judged.finding, "advice") or guideline.advice) if holds else None,
        "effect": None if judged.effect is None else _effect(judged.effect),
        "no_effect": judged.no_effect or None,
        "record": _record(judged),
        "cost": (_own_text(judged.finding, "cost") or guideline.cost) if holds else None,
        "risk": guideline.risk if holds else None,
        "practice": asdict(guideline.practice) if holds else None,
        "sources": list(guideline.sources),
    }


def _own_text(finding: Finding | None, name: str) -> str:
    return "" if finding is None else getattr(finding, name)


def _threshold(guideline: Guideline, k: int, finding: Finding | None) -> dict[str, Any]:
    threshold = guideline.thresholds[k]
    measure = next(m for m in guideline.measures if m.key == threshold.key)
    value = None if finding is None else finding.numbers[threshold.key].value
    return {
        "key": threshold.key,
        "what": measure.what,
        "side": threshold.side,
        "value": threshold.value,
        "unit": measure.unit,
        "limit": f"{threshold.side} {shown(threshold.value, measure.unit)}",
        "source": threshold.source,
        "crossed": None if value is None else threshold.crossed(value),
    }


def _finding(guideline: Guideline, finding: Finding) -> dict[str, Any]:
    numbers = [
        {
            "key": measure.key,
            "what": measure.what,
            "unit": measure.unit,
            **asdict(finding.numbers[measure.key]),
            "n_of": measure.n_of,
            "text": _with_interval(finding.numbers[measure.key], measure.unit),
        }
        for measure in guideline.measures
    ]
    words = {m.key: shown(finding.numbers[m.key].value, m.unit) for m in guideline.measures}
    return {
        "text": (finding.text or guideline.finding).format(**words),
        "numbers": numbers,
        "rows_title": finding.rows_title or None,
        "rows": [{name: _cell(value) for name, value in row.items()} for row in finding.rows[:_ROWS]],
        "rows_left_out": max(0, len(finding.rows) - _ROWS),
        "notes": [shorten(note, 600) for note in dict.fromkeys(finding.notes)],
    }


def _with_interval(number: Number, unit: str) -> str:
    text = shown(number.value, unit)
    if number.low is None or number.high is None:
        return text
    return f"{text} ({span(number.low, number.high, unit)})"


def _cell(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return shorten(str(value), _NAME)


def _effect(effect: Effect) -> dict[str, Any]:
    first = effect.changes[0]
    share = getattr(first, f"{effect.headline}_diff_share")
    low, high = (getattr(first, f"{effect.headline}_diff_share_{end}") for end in ("low", "high"))
    what = "completion time" if effect.headline == "jct" else "queueing time"
    text = f"{first.policy} instead of {effect.baseline}: mean {what} {_percent(share)}"
    if low is not None and high is not None:
        text += f" ({_percent(low)} to {_percent(high)} by day)"
    same = [c for c in effect.changes if c.policy == first.policy]
    shares = [s for s in (getattr(c, f"{effect.headline}_diff_share") for c in same) if s is not None]
    if len(same) > 1 and shares:
        text += f"; {_percent(min(shares))} to {_percent(max(shares))} over {len(same)} assumptions"
    return {
        "text": f"{text}; {first.jobs:,} jobs, {effect.origin}. {_beside(first, effect)} {_VERDICTS[effect.verdict]}",
        "verdict": effect.verdict,
        "origin": effect.origin,
        "baseline": effect.baseline,
        "headline": effect.headline,
        "changes": [_change(change, effect) for change in effect.changes],
        "best_by_gpu_class": [asdict(best) for best in effect.best_by_class],
        "assumptions": list(effect.assumptions),
        "untold": [{"policy": u.policy, "assumption": u.assumption, "reason": u.sentence} for u in effect.unsupported],
    }


def _change(change: PolicyDifference, effect: Effect) -> dict[str, Any]:
    entry = asdict(change)
    del entry["support"]
    return entry | {"record": _record_of(effect.baseline, change.policy, change.support)}


def _beside(first: PolicyDifference, effect: Effect) -> str:
    """Return what the log recorded of the jobs of an effect."""
    support = first.support
    n = support.recorded_jobs
    jobs = "these jobs" if n == first.jobs else f"the {n:,} of them whose start it records"
    waited, replayed = (duration(wait or 0) for wait in (support.recorded_queue_s, support.baseline_queue_s))
    took = "" if support.recorded_jct_s is None else f", and ended {duration(support.recorded_jct_s)} after submission"
    return f"By the log {jobs} waited {waited} on average ({replayed} under {effect.baseline}){took}."


def _record(judged: Judgement) -> dict[str, Any] | None:
    """Return what the log recorded beside the effect, and whether it carries that; None where nothing was tried."""
    if judged.unsupported is not None:
        unsupported = judged.unsupported
        return _record_of(unsupported.baseline, unsupported.policy, unsupported.support)
    if judged.effect is None:
        return None
    first = judged.effect.changes[0]
    return _record_of(judged.effect.baseline, first.policy, first.support)


def _record_of(baseline: str, policy: str, support: Support) -> dict[str, Any]:
    return {"carried": support.supported, "baseline": baseline, "policy": policy, **asdict(support)}


def _percent(share: float | None) -> str:
    return "unchanged from 0" if share is None else signed_percent(share)
