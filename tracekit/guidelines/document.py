"""The verdicts on guidelines, and the JSON document from which the Markdown and HTML versions are made."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tracekit.calibration.effect import HEADLINES
from tracekit.calibration.losses import ASSUMED
from tracekit.calibration.workbench import UNNAMED
from tracekit.faults import Fault, Faults
from tracekit.replay.jobs import TWIN
from tracekit.replay.panels import spoken
from tracekit.text import alike_durations, count, duration, percent, shorten
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.calibration.effect import TwinEffect
    from tracekit.guidelines.effects import Effect, ExpectedChange, Losses, UntoldEffect
    from tracekit.guidelines.interface import Finding, Guideline, Number
    from tracekit.replay.results.effects import Support
    from tracekit.trace import Trace


FORMAT = "tracekit-guidelines"

_ROWS = 20
"""Maximum number of detail rows. Any further rows are only counted."""
_NAME = 200
_VERDICTS = {
    "better": ("Yes", ""),
    "worse": ("No", "the replay contradicts the advice, so find out why before you follow it"),
    "no change": ("No", "the replay shows no gain"),
    "undecided": ("Effect uncertain", "the interval includes no change, or the assumptions disagree"),
}
"""Whether the replays support the advice, with a note for each outcome."""


Verdict = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Judgement:
    """The judgement on one guideline for a Trace."""

    guideline: Guideline
    verdict: Verdict
    why: tuple[str, ...]
    """The missing data or the thresholds that were not crossed. Empty if the guideline holds."""
    finding: Finding | None = None
    """None if the Trace lacks data that the guideline needs."""
    effect: Effect | None = None
    """The expected effect according to the replay, only for guidelines that hold."""
    no_effect: str = ""
    """Why the effect is missing, only for guidelines that hold."""
    losses: Losses | None = None
    """The expected effect on the cost of outages, for guidelines about outages that hold."""
    untold: UntoldEffect | None = None
    """The effect that no twin supports, if this is why the effect is missing."""


def document_of(trace: Trace, judged: Sequence[Judgement], faults: Faults | None = None) -> dict[str, Any]:
    """Return the document. It has the same keys for every verdict; missing values are null.

    Text from a log appears only in `finding.rows`, with visible control characters and long text shortened. If a
    guideline cannot be written, its entry says so, and `faults` records it.
    """
    faults = Faults() if faults is None else faults
    entries = [_written(j, faults) for j in judged]
    return {
        "format": FORMAT,
        "version": 1,
        "tracekit_version": __version__,
        "trace": shorten(trace.path.name, _NAME),
        "source_format": shorten(trace.manifest.format, _NAME),
        "holds": sum(entry["verdict"] == "holds" for entry in entries),
        "guidelines": entries,
    }


def _written(judged: Judgement, faults: Faults) -> dict[str, Any]:
    entry = faults.run(f"the text of the guideline {judged.guideline.id}", _entry, judged)
    if isinstance(entry, Fault):
        return _entry(Judgement(judged.guideline, "cannot tell", (entry.remark,)))
    return entry


def _entry(judged: Judgement) -> dict[str, Any]:
    guideline, holds = judged.guideline, judged.verdict == "holds"
    entry = {
        "id": guideline.id,
        "title": guideline.title,
        "question": guideline.question,
        "verdict": judged.verdict,
        "why": list(judged.why),
        "thresholds": [_threshold(guideline, k, judged.finding) for k in range(len(guideline.thresholds))],
        "finding": None if judged.finding is None else _finding(guideline, judged.finding),
        "advice": (_own_text(judged.finding, "advice") or guideline.advice) if holds else None,
        "effect": None if judged.effect is None else _effect(judged.effect),
        "losses": None if judged.losses is None else _losses(judged.losses),
        "no_effect": judged.no_effect or None,
        "record": _record(judged),
        "cost": (_own_text(judged.finding, "cost") or guideline.cost) if holds else None,
        "risk": guideline.risk if holds else None,
        "practice": asdict(guideline.practice) if holds else None,
        "sources": list(guideline.sources),
    }
    # If JSON cannot represent a value, only this guideline fails, not the whole document.
    orjson.dumps(entry)
    return entry


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
    same = [c.main for c in effect.changes if c.change == first.change]
    text = f"{spoken(first.change)}, {effect.main.words}"
    if len(same) > 1:
        least, most = alike_durations([pick(one.changed_s for one in same) for pick in (min, max)])
        text += f"; {least} to {most} under {len(same)} assumptions"
    return {
        "text": _sentence_of(effect.verdict, text, _missing(effect)),
        "verdict": effect.verdict,
        "origin": "replays in the simulation of the log",
        "baseline": TWIN,
        "headline": effect.main.headline,
        "changes": [_change(change) for change in effect.changes],
        "best_by_gpu_class": [asdict(best) for best in effect.best_by_class],
        "assumptions": list(effect.assumptions),
        "untold": [
            {"cluster": u.cluster, "policy": u.change, "assumption": u.assumption, "reason": _sentence(u.reason)}
            for u in effect.untold
        ],
    }


def _losses(losses: Losses) -> dict[str, Any]:
    best = losses.effects[0]
    where = "" if best.cluster == UNNAMED else f", in {shorten(best.cluster, _NAME)}"
    return {
        "text": " ".join([_sentence_of(best.verdict, f"{losses.words}{where}"), *losses.untold]),
        "verdict": best.verdict,
        "origin": "replays in the simulation of the log, with its outages",
        "assumed": ASSUMED.words,
        "changes": [
            {
                **asdict(effect),
                "cluster": shorten(effect.cluster, _NAME),
                "saved_gpu_h": effect.saved_gpu_h,
                "verdict": effect.verdict,
            }
            for effect in losses.effects
        ],
        "untold": list(losses.untold),
    }


def _missing(effect: Effect) -> str:
    """Name the clusters in which the effect is unknown."""
    first = effect.changes[0]
    told = {one.cluster for one in first.clusters}
    names = dict.fromkeys(
        shorten(u.cluster, _NAME) for u in effect.untold if u.change in {first.change, ""} and u.cluster not in told
    )
    return f"unknown for {' and '.join(names)}" if names else ""


def _sentence_of(verdict: str, what: str, untold: str = "") -> str:
    """Say whether the advice helps, and why. "Yes" becomes "Likely" if a cluster has no result."""
    word, why = _VERDICTS[verdict]
    word = "Likely" if word == "Yes" and untold else word
    return f"{word}: {'; '.join(filter(None, (what, why, untold)))}."


def _change(change: ExpectedChange) -> dict[str, Any]:
    main = change.main
    entry: dict[str, Any] = {"policy": change.change, "assumption": change.assumption, "headline": main.headline}
    entry |= {"jobs": main.jobs, "text": main.words}
    for what in HEADLINES:
        one: TwinEffect = getattr(change, what)
        entry |= {f"recorded_{what}_s": one.recorded_s, f"expected_{what}_s": one.changed_s}
        entry |= {f"expected_{what}_low_s": one.low_s, f"expected_{what}_high_s": one.high_s}
        entry |= {f"{what}_diff_s": one.changed_s - one.recorded_s, f"{what}_diff_share": one.share}
        entry |= {
            f"{what}_diff_share_{end}": s / one.recorded_s - 1 if one.recorded_s else None
            for end, s in (("low", one.low_s), ("high", one.high_s))
        }
    entry["saved_h"] = main.saved_h
    entry["clusters"] = [
        {
            "cluster": shorten(one.cluster, _NAME),
            "jobs": one.jobs,
            "recorded_s": one.recorded_s,
            "expected_s": one.changed_s,
            "low_s": one.low_s,
            "high_s": one.high_s,
        }
        for one in change.clusters
    ]
    return entry | {"record": _record_of(change.change, change.support)}


def _record(judged: Judgement) -> dict[str, Any] | None:
    """Return the recorded values for the effect, and whether a twin supports it, or None if nothing was tried."""
    if judged.untold is not None:
        first = judged.untold.untold[0]
        return _record_of(first.change, judged.untold.support)
    if judged.effect is None:
        return None
    first_change = judged.effect.changes[0]
    return _record_of(first_change.change, first_change.support)


def _record_of(policy: str, support: Support) -> dict[str, Any]:
    return {"carried": support.supported, "baseline": TWIN, "policy": policy, **asdict(support)}


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


# Numbers with their units, for sentences.


def shown(value: float | None, unit: str) -> str:
    """Format a number with its unit.

    Examples
    --------
    >>> shown(0.123, "share"), shown(5.25, "percent"), shown(7560, "s"), shown(1234.5, "GPU-hours")
    ('12.3 %', '5.2 points', '2.1 h', '1,234 GPU-hours')
    >>> shown(2.5, "ratio"), shown(None, "share"), shown(1, "nodes")
    ('2.5', 'unknown', '1 node')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "share":
        return percent(value)
    if unit == "percent":
        return f"{value:.1f} points"
    if unit == "s":
        return duration(value)
    if unit == "ratio":
        return count(value)
    return f"{count(value)} {unit.removesuffix('s') if value == 1 else unit}"


def span(low: float, high: float, unit: str) -> str:
    """Format an interval, with its unit only once.

    Examples
    --------
    >>> span(0.1, 0.25, "share"), span(1, 2, "ratio"), span(60, 7200, "s")
    ('10.0 to 25.0 %', '1 to 2', '1 min to 2 h')
    """
    first, last = shown(low, unit), shown(high, unit)
    word = last.rpartition(" ")[2]
    same = unit != "s" and " " in last and first.endswith(f" {word}")
    return f"{first.removesuffix(f' {word}') if same else first} to {last}"
