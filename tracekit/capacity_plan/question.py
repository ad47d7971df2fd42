"""What is asked of a plan, and what is out of range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.capacity_plan.target import EVERYONE
from tracekit.errors import UsageError
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from tracekit.capacity_plan.target import JobGroup, WaitTarget

__all__ = ["HourlyCosts", "PlanQuestion"]

_FEWEST_RESAMPLES = 5
_MOST_RESAMPLES = 1000
_LARGEST_GROWTH = 100.0
_MOST_NODES = 1_000_000
_HIGHEST = 1e12


@dataclass(frozen=True)
class HourlyCosts:
    """What nodes and waiting cost, in any one currency.

    Raises
    ------
    UsageError
        A cost is below 0, or not a number.
    """

    node: float | None = None
    """Of owning a node for an hour."""
    wait: float | None = None
    """Of an hour that a job waits."""

    def __post_init__(self) -> None:
        for option, value in (("--node-cost", self.node), ("--wait-cost", self.wait)):
            if value is not None and not (math.isfinite(value) and 0 <= value <= _HIGHEST):
                raise UsageError(f"a cost must be at least 0, not {value:g}", where=option, hint="give a plain number")


@dataclass(frozen=True)
class PlanQuestion:
    """What is asked of a twin.

    Raises
    ------
    UsageError
        A number is out of range.
    """

    target: WaitTarget | None = None
    group: JobGroup = EVERYONE
    """Whose wait counts."""
    numbers: tuple[int, ...] | None = None
    """Numbers of nodes to look at, and no others; by default those that tell most (see `default_numbers`)."""
    model: str | None = None
    """The GPU model whose nodes vary; None varies all in proportion."""
    growths: tuple[float, ...] = (1.0,)
    """Jobs a day as multiples of the log's."""
    policies: tuple[str, ...] = ()
    """Tried beside the twin's own, as `tracekit replay -p` takes them."""
    costs: HourlyCosts = HourlyCosts()
    resamples: int = 40
    seed: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        for number in self.numbers or ():
            if not 1 <= number <= _MOST_NODES:
                what = f"a number of nodes must be from 1 to {_MOST_NODES:,}, not {number:,}"
                raise UsageError(what, where="--nodes", hint="give whole numbers above 0")
        if self.numbers == ():
            raise UsageError("the list of node counts is empty", where="--nodes", hint="write it like 10,12,16")
        for growth in self.growths:
            if not 0 < growth <= _LARGEST_GROWTH:  # which no NaN is
                what = f"the growth must be above 0 and at most {_LARGEST_GROWTH:g}, not {growth:g}"
                raise UsageError(what, where="--growth", hint="1 is the load of the log, 1.2 is a fifth more")
        if not self.growths:
            raise UsageError("the list of growth factors is empty", where="--growth", hint="1 is the load of the log")
        if not _FEWEST_RESAMPLES <= self.resamples <= _MOST_RESAMPLES:
            what = (
                f"the number of resamples must be from {_FEWEST_RESAMPLES} to {_MOST_RESAMPLES:,}, not "
                f"{self.resamples:,}"
            )
            raise UsageError(what, where="--resamples", hint="40 are enough for 95 % intervals")
        for policy in self.policies:
            named_policy(policy)
