"""How many nodes, or spares, keep a target: what numbers were tried, and which more decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Figure = Callable[[Floats], Floats]
    """Takes from the values of all resamples the figure of each that a target is about; less is better."""
    Rule = Callable[[Floats], bool]
    """Whether the values of all resamples keep a target."""


def interval_share(resamples: int) -> float:
    """Return the chance that another resample lies within `interval` [1]: about 95 %, less with fewer than 39."""
    return (resamples + 1 - 2 * _outside(resamples)) / (resamples + 1)


def _outside(resamples: int) -> int:
    return max(int(0.025 * (resamples + 1)), 1)


def interval(values: Floats) -> tuple[float, float]:
    """Return between which values those of another resample lie: the ends but for the outermost on either side."""
    ordered, k = np.sort(values), _outside(len(values))
    return float(ordered[k - 1]), float(ordered[-k])


def rules_of(figure: Figure, limit: float) -> tuple[Rule, Rule, Rule]:
    """Return whether a limit is kept in the mean, in the luckiest resample, and in every one but for the unluckiest.

    The lucky and the unlucky are counted as `interval` does.
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
    """How many keep a target."""

    number: int | None
    """Fewest with which the expected figure keeps the target, of those tried; None where none does. A number counts
    only if all larger ones that were tried keep it too."""
    low: int | None
    high: int | None
    """Fewest with which it is kept in the luckiest, and in every resample but for the unluckiest; None where no number
    tried does."""
    best: float
    """Least expected figure of any number."""
    best_number: int
    least: int
    most: int
    """The smallest and the largest number that was tried."""


class Curve:
    """What was found at some numbers, of nodes or of spares.

    Parameters
    ----------
    measure : callable
        Returns the values by resample (R, figures) at each of some numbers.
    """

    def __init__(self, measure: Callable[[list[int]], Mapping[int, Floats]]) -> None:
        self._measure = measure
        self.tried: dict[int, Floats] = {}
        """The values by resample (R, figures), by number."""

    def look(self, numbers: Iterable[int]) -> None:
        """Measure at some numbers, those that were tried left out."""
        self.tried |= self._measure([number for number in dict.fromkeys(numbers) if number not in self.tried])

    def first(self, rule: Rule) -> int | None:
        """Return the least number from which on a rule holds at all that were tried."""
        found = None
        for number in sorted(self.tried, reverse=True):
            if not rule(self.tried[number]):
                break
            found = number
        return found

    def narrow(self, rules: Sequence[Rule], fine: float = 0.0) -> None:
        """Halve the gaps below the numbers from which on rules hold, to this share of them, or to one."""
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
        """Return how many keep a limit, of the numbers that were tried."""
        means = {number: float(figure(values).mean()) for number, values in self.tried.items()}
        best = min(means, key=lambda number: (means[number], number))
        number, low, high = (self.first(rule) for rule in rules_of(figure, limit))
        return Answer(number, low, high, means[best], best, min(means), max(means))
