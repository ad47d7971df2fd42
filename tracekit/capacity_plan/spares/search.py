"""How many spares keep a ratio: runs at every number that was looked at, and at more where they decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.capacity_plan.search import interval
from tracekit.capacity_plan.spares.runs import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.capacity_plan.spares.runs import GangRuns, Kind

    Floats = NDArray[np.float64]

__all__ = ["SpareCurve", "SparesAnswer"]

_SHOWN = (0, 1, 2, 4)
"""Numbers of spares that are always looked at, as far as there are so many."""
_NOTHING_MORE = 1e-4
"""Spares are not looked for beyond a number with which the gang waits for no more than this part of the time [1]."""


@dataclass(frozen=True)
class SparesAnswer:
    """How many spares keep the ratio, under one kind of outages."""

    outages: Kind
    spares: int | None
    """Fewest with which the expected ratio is kept, of those looked at; None where none of them does."""
    low: int | None
    high: int | None
    """Fewest with which it is kept in the luckiest run, and in every run but for the unluckiest, as `interval` counts
    them; None where no number does."""
    best_ettr: float
    """Largest expected ratio of any number."""
    best_spares: int
    most_spares: int
    """Beyond it nothing was looked at: there are no more nodes, or more would change nothing."""


class SpareCurve:
    """Runs against spares, under one kind of outages.

    Parameters
    ----------
    runs : GangRuns
    kind : str
        'recorded' or 'model'.
    target : float
        The ratio to be kept [0..1].
    """

    def __init__(self, runs: GangRuns, kind: Kind, target: float) -> None:
        self._runs, self.kind, self._target = runs, kind, target
        self.tried: dict[int, Floats] = {}
        """The `PARTS` by run (resamples, parts), by number of spares."""
        self.most = self._enough()

    def look(self, spares: int) -> Floats:
        """Return the `PARTS` of each run with so many spares."""
        if spares not in self.tried:
            self.tried[spares] = self._runs.of(self.kind, spares)
        return self.tried[spares]

    def _enough(self) -> int:
        """Look at more and more spares until the gang hardly waits, or there are no more; return how many."""
        most = self._runs.most_spares(self.kind)
        for spares in _SHOWN:
            if spares <= most:
                self.look(spares)
        last = max(self.tried)
        while last < most and self.look(last)[:, PARTS.index("waiting_share")].max() > _NOTHING_MORE:
            last = min(max(2 * last, 1), most)
            self.look(last)
        return last

    def answer(self) -> SparesAnswer:
        """Return how many spares keep the ratio; a number counts only if all larger ones looked at keep it too."""
        target, column = self._target, PARTS.index("ettr")
        rules: tuple[Callable[[int], bool], ...] = (
            lambda spares: bool(self.look(spares)[:, column].mean() >= target),
            lambda spares: interval(self.look(spares)[:, column])[1] >= target,
            lambda spares: interval(self.look(spares)[:, column])[0] >= target,
        )
        for rule in rules:
            self._narrow(rule)
        found = [self._first(rule) for rule in rules]
        means = {spares: float(values[:, column].mean()) for spares, values in self.tried.items()}
        best = min(means, key=lambda spares: (-means[spares], spares))
        return SparesAnswer(self.kind, found[0], found[1], found[2], means[best], best, self.most)

    def _first(self, rule: Callable[[int], bool]) -> int | None:
        found = None
        for spares in sorted(self.tried, reverse=True):
            if not rule(spares):
                break
            found = spares
        return found

    def _narrow(self, rule: Callable[[int], bool]) -> None:
        """Halve the gap below the answer until it is one spare."""
        while (found := self._first(rule)) is not None:
            below = max((spares for spares in self.tried if spares < found), default=found)
            if found - below <= 1:
                return
            self.look((found + below) // 2)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a number of spares that was looked at, in order (see docs/plan.md)."""
        return [self._row(spares, values) for spares, values in sorted(self.tried.items())]

    def _row(self, spares: int, values: Floats) -> dict[str, Any]:
        ettr = values[:, PARTS.index("ettr")]
        low, high = interval(ettr)
        row: dict[str, Any] = {"outages": self.kind, "spares": spares}
        row |= {"ettr": float(ettr.mean()), "ettr_low": low, "ettr_high": high}
        row["meets_target"] = row["ettr"] >= self._target
        row |= {name: float(values[:, PARTS.index(name)].mean()) for name in PARTS[1:]}
        return row
