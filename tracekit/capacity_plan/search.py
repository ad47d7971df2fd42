"""Search for the number of nodes or spares that meets a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Measure = Callable[[Floats], "Ends"]
    """Summarizes the target's figure over the values of all resamples. Lower is better."""
    Rule = Callable[[Floats], bool]
    """Decides whether the values of all resamples meet a target."""


class Ends(NamedTuple):
    """A figure with the ends of its interval."""

    value: float
    low: float
    high: float


def interval_share(resamples: int) -> float:
    """Return the probability that a new resample is inside `interval` [1]: about 95 %, or less for fewer than 39."""
    return (resamples + 1 - 2 * _outside(resamples)) / (resamples + 1)


def _outside(resamples: int) -> int:
    return max(int(0.025 * (resamples + 1)), 1)


def interval(values: Floats) -> tuple[float, float]:
    """Return the interval for a new resample: the range of the values, without the outermost values on each side."""
    ordered, k = np.sort(values), _outside(len(values))
    return float(ordered[k - 1]), float(ordered[-k])


def mean_of(values: Floats) -> Ends:
    """Return the mean over the resamples, with the interval for a new resample."""
    return Ends(float(values.mean()), *interval(values))


def log_among(values: Floats) -> Ends:
    """Return the value of the log, which comes first, with the interval for a further month.

    The other values are those of drawn months, or NaN if unknown. The interval includes the log, which is also a month.
    """
    log, months = float(values[0]), values[1:][~np.isnan(values[1:])]
    low, high = interval(months) if len(months) else (log, log)
    return Ends(log, float(np.minimum(low, log)), float(np.maximum(high, log)))


def spread(found: Ends, stem: str, unit: str = "") -> dict[str, float | None]:
    """Return the numbers as STEM, STEM_low and STEM_high plus a unit. Infinite and unknown numbers are None."""
    return {
        f"{stem}{end}{unit}": value if math.isfinite(value) else None
        for end, value in zip(("", "_low", "_high"), found, strict=True)
    }


def rules_of(measure: Measure, limit: float) -> tuple[Rule, Rule, Rule]:
    """Return rules that compare a limit with the figure, the luckiest resample and nearly every resample.

    The luckiest and unluckiest resamples are those that `interval` excludes on either side.
    """

    def expected(values: Floats) -> bool:
        return measure(values).value <= limit

    def lucky(values: Floats) -> bool:
        return measure(values).low <= limit

    def nearly_always(values: Floats) -> bool:
        return measure(values).high <= limit

    return expected, lucky, nearly_always


@dataclass(frozen=True)
class Answer:
    """The number of nodes or spares that meets a target."""

    number: int | None
    """Smallest tried number at which the figure meets the target, or None if no tried number does. A number counts only
    if all larger tried numbers also meet the target.
    """
    low: int | None
    high: int | None
    """Smallest tried numbers that meet the target in the luckiest resample and in all but the unluckiest, or None.
    """
    best: float
    """Lowest figure among all tried numbers."""
    best_number: int
    least: int
    most: int
    """The smallest and largest tried numbers."""

    @property
    def or_fewer(self) -> bool:
        """Whether even the smallest tried number meets the target."""
        return self.number == self.least > 1


class Curve:
    """The results for the tried numbers of nodes or spares.

    Parameters
    ----------
    measure : callable
        Returns the values by resample (R, figures) for each given number.
    """

    def __init__(self, measure: Callable[[list[int]], Mapping[int, Floats]]) -> None:
        self._measure = measure
        self.tried: dict[int, Floats] = {}
        """The values by resample (R, figures) for each tried number."""

    def look(self, numbers: Iterable[int]) -> None:
        """Measure at the given numbers, except those already tried."""
        self.tried |= self._measure([number for number in dict.fromkeys(numbers) if number not in self.tried])

    def first(self, rule: Rule) -> int | None:
        """Return the smallest tried number from which all tried numbers meet a rule."""
        found = None
        for number in sorted(self.tried, reverse=True):
            if not rule(self.tried[number]):
                break
            found = number
        return found

    def narrow(self, rules: Sequence[Rule], fine: float = 0.0) -> None:
        """Bisect the gap below the first number that meets each rule, down to this share of the number or down to 1."""
        while True:
            numbers, wanted = sorted(self.tried), set()
            for rule in rules:
                found = self.first(rule)
                if found is None or found == numbers[0]:
                    continue
                below = numbers[numbers.index(found) - 1]
                if found - below > max(1, fine * found):
                    wanted.add((found + below) // 2)
            if not wanted:
                return
            self.look(wanted)

    def answer(self, measure: Measure, limit: float) -> Answer:
        """Return the tried numbers that meet a limit."""
        found = {number: measure(values).value for number, values in self.tried.items()}
        best = min(found, key=lambda number: (found[number], number))
        number, low, high = (self.first(rule) for rule in rules_of(measure, limit))
        return Answer(number, low, high, found[best], best, min(found), max(found))
