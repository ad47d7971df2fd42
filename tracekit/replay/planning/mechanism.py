"""Policies that consider all jobs at once: the mechanism."""

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


@dataclass(frozen=True)
class ClockPower:
    """Power of GPUs as a function of their clock (M7)."""

    draw: PowerDraw
    """Power at full clock."""
    s0: float
    """Share of the peak power that does not fall with the clock [0..1]."""
    cap_mw: int = -1
    """Power cap that the plans aim to keep, idle GPUs included [mW]; -1 if none."""

    def drawn(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of `draw.busy` that is used at the given clocks [0..1]."""
        return np.asarray(self.s0 + (1 - self.s0) * clock**3)


@dataclass(frozen=True)
class Planner:
    """A policy that considers all jobs at once and decides how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or in rounds."""
    begin: Callable[[View], None] | None = None
    """Called before the first plan of every run, to forget the previous run: a planner may run more than once."""
    round_ms: int = 0
    """Make plans only at multiples of this time, if something has happened since the last plan [ms]; 0: at every
    event."""
    gap_ms: int = 0
    """Minimum time between two plans that events request [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name a GPU model other than the one that a job requests."""
    fit: Literal["place", "count"] = "place"
    """'place' if gangs need GPUs on specific nodes, 'count' if they only need enough free GPUs."""
    scope: Literal[0, 1, 2] = 2
    """How far a gang may spread: 0 the fewest nodes, 1 any nodes of a group, 2 all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by number of GPUs; the last entry covers larger gangs [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Expected run times (n,) [ms]; None means the actual ones."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Number of jobs that a GPU may have, set by `Plan.beside` or `Plan.place`. The plan sets their speeds."""
    wide: bool = False
    """Whether to accept jobs that fit only if spread as far as `scope` allows; if not, jobs must fit on the fewest
    nodes."""
    spread: bool = True
    """Whether the engine slows gangs on more nodes than they need (M4); if not, the plan's rates include this
    effect."""

    clocks: ClockPower | None = None
    """Power of GPUs by clock. If given, plans may set clocks, and the energy is computed from them."""
    tell: Callable[[Outcome], Outcome] | None = None
    """Adds what only this policy reports to the outcome."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.clocks is not None and self.share > 1:
            raise ValueError("jobs that share a GPU cannot have separate clocks")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("with fit=count a plan cannot name nodes or share GPUs")

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run controlled by the planner (see `asking.prepare`)."""
        return prepared_by("planning.asking", self, setting)
