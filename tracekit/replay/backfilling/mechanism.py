"""Backfilling: later jobs start first if, according to the estimates, they delay no earlier job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.setting import Run
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Setting


@dataclass(frozen=True)
class Backfill:
    """Jobs start in the order of a key, and later jobs may go first if, by the estimates, they delay no earlier job.

    A running job that exceeds its estimate is expected to run twice as long, and so on; it is never stopped.
    """

    order: Ordered
    """Key, fit, estimates, and when gangs relax; `scan` is ignored. It must not evict and must have no levels."""
    kind: Literal["easy", "conservative"] = "easy"
    """Which jobs must not be delayed: only the first waiting job, or every job with a reservation."""
    depth: int = 16
    """For 'conservative': how many waiting jobs of a domain get reservations, from the head of the queue; 0 means
    all."""

    def __post_init__(self) -> None:
        order = self.order
        if order.preemptive or order.thresholds or order.stall or order.age_cap_ms or order.by_tenant or order.scopes:
            raise ValueError("backfilling has no eviction, levels, age cap, tenants' queues or steps of scope")
        if self.depth < 0:
            raise ValueError(f"a depth of {self.depth} reservations")

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which later jobs may go first (see easy.pxi and conservative.pxi)."""
        from tracekit.replay import kernel
        from tracekit.replay.backfilling.conservative_reservations import make_reservations
        from tracekit.replay.backfilling.easy_forecast import make_forecast
        from tracekit.replay.backfilling.waitlist import make_waitlist
        from tracekit.replay.engine.build import build, open_nodes

        key, exact = engine_key(self.order.key), self.order.estimate_ms is None
        order = replace(self.order, scan="skip", by_arrival=False, drift="none")
        state = build(setting, order, kind="Backfill")
        # The pass needs to know which jobs ended or relaxed, and what the ended ones held.
        state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, kernel.NONE, kernel.NONE, 1
        # Conservative backfilling finds jobs in its waitlist; queues only count them, which rings do faster.
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
