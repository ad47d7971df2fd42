"""How many nodes a target takes: waits at every capacity that was tried, and more capacities where they decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.capacity_plan.basis import FIGURES, PlannedRun
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.capacity_plan.nodes import NodeAxis
    from tracekit.capacity_plan.replays import PlanReplays
    from tracekit.capacity_plan.target import WaitTarget

    Floats = NDArray[np.float64]

__all__ = [
    "NodesAnswer",
    "WaitCurve",
    "default_numbers",
    "figure",
    "interval",
    "interval_share",
    "paired_change",
    "steps_up",
    "target_waits",
]

_FURTHER = (4, 8)
"""How many times as many nodes are tried where no capacity of the grid keeps the target."""
_FINE = 0.01
"""The answer is sought to this share of the nodes, or to one node [1]."""
_GRID = 8


def interval_share(resamples: int) -> float:
    """Return the chance that another resample lies within `interval` [1]: about 95 %, less with fewer than 39."""
    return (resamples + 1 - 2 * _outside(resamples)) / (resamples + 1)


def _outside(resamples: int) -> int:
    return max(int(0.025 * (resamples + 1)), 1)


def figure(values: Floats, name: str) -> Floats:
    """Return one of the `FIGURES` by resample, those left out that do not have it (at most R,)."""
    column: Floats = values[:, FIGURES.index(name)]
    return column[~np.isnan(column)]


def target_waits(values: Floats, target: WaitTarget) -> Floats:
    """Return the wait that a target is about by resample [s].

    It is infinite where any job never starts, be it of the group or not: a cluster on which some jobs can never run
    keeps no target, however little the others wait.
    """
    waits: Floats = values[:, FIGURES.index(f"{target.metric}_wait_s")].copy()
    endless = np.isinf(values[:, FIGURES.index("waiting_hours_per_day")])
    waits[endless] = np.inf
    return waits[endless | ~np.isnan(waits)]


def interval(values: Floats) -> tuple[float, float]:
    """Return between which values those of another resample lie: the ends but for the outermost on either side."""
    ordered, k = np.sort(values), _outside(len(values))
    return float(ordered[k - 1]), float(ordered[-k])


def default_numbers(axis: NodeAxis, offered_nodes: float) -> list[int]:
    """Return the numbers of nodes to look at where none are asked for.

    Eight in equal ratios, and those that there are. They begin where the load fills every GPU, yet not below a quarter
    of the nodes that there are, nor above these; they end at twice of what there are, or of what the load fills.

    Parameters
    ----------
    axis : NodeAxis
    offered_nodes : float
        Nodes that the offered load keeps busy.
    """
    now, filled = max(axis.now, 1), max(int(np.ceil(offered_nodes)), 1)
    low, high = min(max(filled, -(-now // 4)), now), 2 * max(now, filled)
    return sorted({round(n) for n in np.geomspace(low, high, _GRID).tolist()} | {now})


def steps_up(now: int) -> list[int]:
    """Return how many nodes more are looked at: one, and 10 % and 25 % of those there are."""
    return sorted({1, max(round(0.1 * now), 1), max(round(0.25 * now), 1)})


@dataclass(frozen=True)
class NodesAnswer:
    """How many nodes a target takes, under one policy and at one load."""

    policy: str
    growth: float
    nodes: int | None
    """Fewest nodes with which the expected figure keeps the target, of those tried; None where none does."""
    low: int | None
    high: int | None
    """Fewest with which it is kept in the luckiest and in every resample but for the unluckiest, as `interval` counts
    them; None where no number tried does."""
    or_fewer: bool
    """Whether the least number tried keeps the target."""
    best_s: float | None
    """Least expected figure of any capacity [s]; None where some job never starts on any."""
    best_nodes: int
    most_nodes: int
    """The largest number tried."""
    full: bool = False
    """Whether the jobs ask for all GPUs of these nodes, or more: what waits then grows as long as that lasts."""

    def sentence(self, target: WaitTarget, who: str, what: str = "nodes") -> str:
        """Return the answer for people.

        Parameters
        ----------
        target : WaitTarget
        who : str
            Whose wait it is.
        what : str
            What is counted, in the plural.
        """
        if self.nodes is None:
            best = "jobs that never start" if self.best_s is None else duration(self.best_s)
            return (
                f"no number up to {counted(self.most_nodes, what)} keeps {target.words} for {who}: the best is {best}, "
                f"with {counted(self.best_nodes, what)}"
            )
        high = f"more than {self.most_nodes:,}" if self.high is None else f"{self.high:,}"
        fewer = " or fewer" if self.or_fewer else ""
        verb = "keeps" if self.nodes == 1 else "keep"
        full = ", though the load fills them: over more than this month waits would grow" if self.full else ""
        return f"{counted(self.nodes, what)}{fewer} ({self.low:,} to {high}) {verb} {target.words} for {who}{full}"


class WaitCurve:
    """Waits by number of nodes, under one policy and at one load.

    Parameters
    ----------
    replays : PlanReplays
    axis : NodeAxis
    policy : str
    growth : float
    """

    def __init__(self, replays: PlanReplays, axis: NodeAxis, policy: str, growth: float) -> None:
        self._replays, self._axis, self._policy, self._growth = replays, axis, policy, growth
        self.tried: dict[int, Floats] = {}
        """The `FIGURES` by resample (R, figures), by number of nodes."""

    def run(self, number: int) -> PlannedRun:
        """Return what is replayed with so many nodes."""
        return PlannedRun(self._policy, self._growth, self._axis.at(number))

    def look(self, numbers: Iterable[int]) -> None:
        """Replay with some numbers of nodes."""
        wanted = {number: self.run(number) for number in numbers if number not in self.tried}
        found = self._replays.of(wanted.values())
        self.tried |= {number: found[run] for number, run in wanted.items()}

    def answer(self, target: WaitTarget, *, refine: bool) -> NodesAnswer:
        """Return how many nodes a target takes.

        Parameters
        ----------
        target : WaitTarget
        refine : bool
            Look at more numbers of nodes than were tried so far, where they decide.
        """
        limit = target.limit_s

        def waits(number: int) -> Floats:
            return target_waits(self.tried[number], target)

        def expected(number: int) -> bool:
            return bool(waits(number).mean() <= limit)

        def lucky(number: int) -> bool:
            return interval(waits(number))[0] <= limit

        def nearly_always(number: int) -> bool:
            return interval(waits(number))[1] <= limit

        rules = (expected, lucky, nearly_always)
        if refine:
            self._widen(expected)
            self._narrow(rules)
        numbers = sorted(self.tried)
        nodes, low, high = (self._first(rule) for rule in rules)
        means = {number: float(waits(number).mean()) for number in numbers}
        best = min(numbers, key=lambda number: (means[number], number))
        return NodesAnswer(
            self._policy,
            self._growth,
            nodes,
            low,
            high,
            nodes == numbers[0] and nodes > 1,
            means[best] if np.isfinite(means[best]) else None,
            best,
            numbers[-1],
        )

    def _first(self, rule: Callable[[int], bool]) -> int | None:
        """Return the least number from which on a rule holds for all that were tried."""
        found = None
        for number in sorted(self.tried, reverse=True):
            if not rule(number):
                break
            found = number
        return found

    def _widen(self, rule: Callable[[int], bool]) -> None:
        """Look further up where no number keeps the target, further down where all do."""
        for times in _FURTHER:
            if self._first(rule) is None:
                self.look([times * max(self._axis.now, 1)])
        while (least := min(self.tried)) > 1 and self._first(rule) == least:
            self.look([least // 2])

    def _narrow(self, rules: Sequence[Callable[[int], bool]]) -> None:
        """Halve the gaps below the answers until they are small."""
        while True:
            numbers, wanted = sorted(self.tried), set()
            for rule in rules:
                found = self._first(rule)
                if found is None or found == numbers[0]:
                    continue
                below = numbers[numbers.index(found) - 1]
                if found - below > max(1, _FINE * found):
                    wanted.add((found + below) // 2)
            if not wanted:
                return
            self.look(wanted)


def paired_change(here: Floats, there: Floats, name: str) -> dict[str, Any]:
    """Return the expected change of a wait from one capacity to another over the same resamples, with its interval [s].

    Keys: the name of the figure with change_s, change_low_s, change_high_s; None where jobs never start.
    """
    column = FIGURES.index(name)
    stem = name.removesuffix("_s")
    known = ~np.isnan(here[:, column])
    before, after = here[known, column], there[known, column]
    if not len(before) or np.isinf(before).any() or np.isinf(after).any():
        return dict.fromkeys((f"{stem}_change_s", f"{stem}_change_low_s", f"{stem}_change_high_s"))
    change = after - before
    low, high = interval(change)
    return {
        f"{stem}_change_s": float(change.mean()),
        f"{stem}_change_low_s": low,
        f"{stem}_change_high_s": high,
    }
