"""Backfilling: later jobs go ahead where, by the estimates, they delay none before them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.setting import Run
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Setting

__all__ = ["Backfill"]


@dataclass(frozen=True)
class Backfill:
    """Jobs start in the order of a key, and later ones may go ahead where, by the estimates, they delay none before.

    A running job that outlives its estimate is believed to run twice as long as that, and so on; it is never stopped.
    """

    order: Ordered
    """Key, fit, estimates, and when gangs relax; `scan` is of no meaning. It evicts nothing and has no levels."""
    kind: Literal["easy", "conservative"] = "easy"
    """Who must not be delayed: only the first job that waits, or every one that has a reservation."""
    depth: int = 16
    """Conservative: the first so many waiting jobs of a domain have reservations; 0 all of them."""

    def __post_init__(self) -> None:
        order = self.order
        if order.preemptive or order.thresholds or order.stall or order.age_cap_ms or order.by_tenant or order.scopes:
            raise ValueError("backfilling has neither eviction, levels, an age cap, tenants' queues nor steps of scope")
        if self.depth < 0:
            raise ValueError(f"a depth of {self.depth} reservations")

    takes_outages: ClassVar[bool] = True
    """Whether jobs may be stopped by a node that fails under them."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which later jobs may go ahead (see easy.pxi and conservative.pxi)."""
        from tracekit.replay import kernel
        from tracekit.replay.backfilling.conservative_reservations import make_reservations
        from tracekit.replay.backfilling.easy_forecast import make_forecast
        from tracekit.replay.backfilling.waitlist import make_waitlist
        from tracekit.replay.engine.build import build, open_nodes

        key, exact = engine_key(self.order.key), self.order.estimate_ms is None
        order = replace(self.order, scan="skip", by_arrival=False, drift="none")
        state = build(setting, order, kind="Backfill")
        # The pass wants to hear of jobs that ended or relaxed, and what the ended held.
        state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, kernel.NONE, kernel.NONE, 1
        # Conservative backfilling finds jobs in its waitlist; queues only count them, which rings do at less cost.
        state.g["ring"] = self.kind == "conservative" and setting.checkpoints is None
        arrays = open_nodes(state, setting.cluster)
        waitlist = kernel.Waitlist(make_waitlist(state, arrays, key))
        if self.kind == "easy":
            forecast, later = make_forecast(state, exact=exact)
            step = partial(kernel.run_easy, arrays, key, kernel.State(later), kernel.Forecast(forecast), waitlist)
        else:
            reservations = kernel.Reservations(make_reservations(state, self.depth, exact=exact))
            step = partial(kernel.run_conservative, arrays, key, reservations, waitlist)
        return Run(state, step)
