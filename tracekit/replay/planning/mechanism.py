"""Policies that look at all jobs at once: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Run, Setting
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.planning.plan import Plan
    from tracekit.replay.planning.view import View
    from tracekit.replay.results.energy import PowerDraw

__all__ = ["ClockPower", "Planner"]


@dataclass(frozen=True)
class ClockPower:
    """What GPUs draw by their clock (M7)."""

    draw: PowerDraw
    """At full clock."""
    s0: float
    """Part of the greatest power that does not fall with the clock [0..1]."""
    cap_mw: int = -1
    """What the plans mean to keep to, idle GPUs included [mW]; -1 nothing."""

    def drawn(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the part of `draw.busy` that is drawn at clocks [0..1]."""
        return np.asarray(self.s0 + (1 - self.s0) * clock**3)


@dataclass(frozen=True)
class Planner:
    """A policy that looks at all jobs at once and says how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or in rounds."""
    begin: Callable[[View], None] | None = None
    """Called once before the first plan of every run, to forget the run before: a planner may be run more than once."""
    round_ms: int = 0
    """Plans are made only at multiples of this, when something has happened since the last [ms]; 0: at every event."""
    gap_ms: int = 0
    """Least time between two plans that events ask for [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name GPU models other than the one that a job asks for."""
    fit: Literal["place", "count"] = "place"
    """Whether gangs need places on nodes, or only enough free GPUs in number."""
    scope: Literal[0, 1, 2] = 2
    """How far apart a gang's GPUs may be: 0 on the fewest nodes, 1 anywhere in a group, 2 on all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Jobs that a GPU may have, put there by `Plan.beside` or `Plan.place`. Their speeds are the plan's."""
    wide: bool = False
    """Whether jobs are accepted that fit only as far apart as `scope` allows; else they must fit the fewest nodes."""
    spread: bool = True
    """Whether the engine slows gangs on more nodes than they need (M4); if not, all of that is in the plan's rates."""

    clocks: ClockPower | None = None
    """What GPUs draw by their clock: with it plans may give clocks, and the energy is that at the clocks given."""
    tell: Callable[[Outcome], Outcome] | None = None
    """Adds what only this policy tells to the outcome."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.clocks is not None and self.share > 1:
            raise ValueError("jobs that share a GPU cannot have separate clocks")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("with fit=count a plan cannot name nodes or share GPUs")

    takes_outages: ClassVar[bool] = True
    """Whether jobs may be stopped by a node that fails under them."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run under the planner (see `asking.prepare`)."""
        return prepared_by("planning.asking", self, setting)
