"""The notes of a comparison: the periods, their weekdays and time zones, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.characterize.changes.measures import CLASS_SHARE, MEASURES
from tracekit.characterize.changes.verdicts import FEWEST_DAYS
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.array_types import Bools
    from tracekit.characterize.changes.periods import Period


__all__ = ["groups_of_days", "remarks"]

_ALIKE = 0.02
"""Up to this difference of the shares of weekend days the two mixes of days count as the same."""


def groups_of_days(before: Period, after: Period) -> tuple[list[Bools], list[Bools]]:
    """Return, for each period, the groups of days within which days are resampled: weekdays and weekends, or all days.

    Two groups need five days of each kind in both periods, and about the same share of weekend days: where the shares
    differ, so would the sums, and the resamples have to reflect that.
    """
    kinds = [_weekend(period) for period in (before, after)]
    apart = all(min(kind.sum(), (~kind).sum()) >= FEWEST_DAYS for kind in kinds)
    if apart and _dated(before, after) and abs(kinds[0].mean() - kinds[1].mean()) <= _ALIKE:
        return [~kinds[0], kinds[0]], [~kinds[1], kinds[1]]
    return [np.ones_like(kinds[0])], [np.ones_like(kinds[1])]


def _weekend(period: Period) -> Bools:
    weekend: Bools = (period.days.to_numpy() + 3) % 7 >= 5  # 1970-01-01 was a Thursday
    return weekend


def _dated(before: Period, after: Period) -> bool:
    """Return whether days of the week are known."""
    return "relative" not in {before.time_base, after.time_base}


def remarks(before: Period, after: Period, *, groups: int, vcs_left: int, split: bool) -> tuple[str, ...]:
    """Return the notes of a comparison, one sentence each without a full stop."""
    notes = [f"{_period('before', before)}; {_period('after', after)}"]
    notes += _time_base(before, after, split=split)
    if before.timezone != after.timezone:
        notes.append(f"days are those of {before.timezone} before and of {after.timezone} after")
    if _dated(before, after):
        notes += _weekends(before, after, groups)
    if not split:
        notes += _order(before, after)
    notes += _left_out(before, after)
    if vcs_left:
        notes.append(f"{vcs_left} virtual clusters with fewer jobs are left out")
    return tuple(notes)


def _period(name: str, period: Period) -> str:
    return f"{name}: {period.dates}, {counted(len(period.days), 'days')}, {counted(period.jobs, 'jobs')}"


def _time_base(before: Period, after: Period, *, split: bool) -> list[str]:
    bases = {before.time_base, after.time_base}
    notes = []
    if "relative" in bases:
        notes.append(
            "times count from the start of a trace, laid on 1970-01-01: a day is 24 h from that start, and the day of"
            " the week is unknown"
        )
    if "shifted" in bases:
        notes.append("dates are shifted: hours and days of the week hold, the dates do not")
    if bases != {"absolute"} and not split:
        notes.append("which of the two periods came first cannot be told from their times")
    return notes


def _weekends(before: Period, after: Period, groups: int) -> list[str]:
    mixes = [float(_weekend(period).mean()) for period in (before, after)]
    if groups > 1:
        return ["days are resampled within weekdays and within weekends"]
    if abs(mixes[0] - mixes[1]) > _ALIKE:
        shares = " and ".join(f"{100 * mix:.1f} %" for mix in mixes)
        return [f"Saturdays and Sundays are {shares} of the days before and after, which alone may change the numbers"]
    return []


def _order(before: Period, after: Period) -> list[str]:
    if not {before.time_base, after.time_base} <= {"absolute"}:
        return []
    if before.days[0] > after.days[-1]:
        return ["the period compared with, called before, is the later one"]
    if before.days[-1] >= after.days[0]:
        return ["the two periods share days"]
    return []


def _left_out(before: Period, after: Period) -> list[str]:
    """Return which measures are missing and why, those with the same reason in one note."""
    reasons: dict[str, list[str]] = {}
    for measure in (*MEASURES, CLASS_SHARE):
        periods = [(name, period.lacks(measure)) for name, period in (("before", before), ("after", after))]
        lacking = [(name, why) for name, why in periods if why is not None]
        if not lacking or (measure.rare and len(lacking) == len(periods)):
            continue
        where = " and ".join(name for name, _ in lacking)
        reasons.setdefault(f"the trace {where} {lacking[0][1]}", []).append(measure.name)
    return [f"left out: {', '.join(names)}, since {why}" for why, names in reasons.items()]
