"""Search for the number of nodes or spares that meets a target: the numbers tried so far, and which to try next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Figure = Callable[[Floats], Floats]
    """Extracts the target's figure for each resample from the values of all resamples. Lower is better."""
    Rule = Callable[[Floats], bool]
    """Decides whether the values of all resamples meet a target."""


def interval_share(resamples: int) -> float:
    """Return the probability that a new resample lies within `interval` [1]: about 95 %, or less for fewer than 39."""
    return (resamples + 1 - 2 * _outside(resamples)) / (resamples + 1)


def _outside(resamples: int) -> int:
    return max(int(0.025 * (resamples + 1)), 1)


def interval(values: Floats) -> tuple[float, float]:
    """Return the interval for a new resample: the range of the values, without the outermost values on each side."""
    ordered, k = np.sort(values), _outside(len(values))
    return float(ordered[k - 1]), float(ordered[-k])


def spread(values: Floats, stem: str, unit: str = "") -> dict[str, float | None]:
    """Return the mean over the resamples and the ends of its interval, named STEM, STEM_low and STEM_high plus a unit.

    A number is None if it is infinite or there are no values.
    """
    found = (float(values.mean()), *interval(values)) if len(values) else (math.inf,) * 3
    return {
        f"{stem}{end}{unit}": value if math.isfinite(value) else None
        for end, value in zip(("", "_low", "_high"), found, strict=True)
    }


def rules_of(figure: Figure, limit: float) -> tuple[Rule, Rule, Rule]:
    """Return rules for whether a limit is met on average, in the luckiest and in nearly every resample.

    The luckiest and unluckiest resamples are those that `interval` excludes on either side.
    """

    def expected(values: Floats) -> bool:
        return bool(figure(values).mean() <= limit)

    def lucky(values: Floats) -> bool:
        return interval(figure(values))[0] <= limit

    def nearly_always(values: Floats) -> bool:
        return interval(figure(values))[1] <= limit

    return expected, lucky, nearly_always


@dataclass(frozen=True)
class Answer:
    """The number of nodes or spares that meets a target."""

    number: int | None
    """Smallest tried number at which the expected figure meets the target, or None if no tried number does. A number
    counts only if all larger tried numbers also meet the target.
    """
    low: int | None
    high: int | None
    """Smallest tried numbers that meet the target in the luckiest resample, and in all but the unluckiest resamples, or
    None if no tried number does.
    """
    best: float
    """Lowest expected figure among all tried numbers."""
    best_number: int
    least: int
    most: int
    """The smallest and largest tried numbers."""


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
        """Return the smallest tried number that meets a rule, as do all larger tried numbers."""
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

    def answer(self, figure: Figure, limit: float) -> Answer:
        """Return the tried numbers that meet a limit."""
        means = {number: float(figure(values).mean()) for number, values in self.tried.items()}
        best = min(means, key=lambda number: (means[number], number))
        number, low, high = (self.first(rule) for rule in rules_of(figure, limit))
        return Answer(number, low, high, means[best], best, min(means), max(means))
