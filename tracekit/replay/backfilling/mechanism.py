"""Backfilling: later jobs start first if, according to the estimates, they delay no earlier job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.build import Ordered
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState


@dataclass(frozen=True)
class Backfill:
    """Jobs start in the order of a key, but later jobs may go first if, by the estimates, they delay no earlier job.

    A running job that exceeds its estimate is expected to run twice as long, and so on. It is never stopped.
    """

    order: Ordered
    """Key, fit, estimates, and when gangs relax. `scan` is ignored. The order must not evict and must have no
    levels."""
    kind: Literal["easy", "conservative"] = "easy"
    """The jobs that must not be delayed: only the first waiting job, or every job with a reservation."""
    depth: int = 16
    """For 'conservative', the number of a domain's waiting jobs that get reservations, from the head of the queue, or 0
    for all."""

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
        key, exact = engine_key(self.order.key), self.order.estimate_ms is None
        order = replace(self.order, scan="skip", by_arrival=False, drift="none")
        state = build(setting, order, kind="Backfill")
        # The pass needs the jobs that ended or relaxed, and the allocations of the ended jobs.
        state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, NONE, NONE, 1
        # Conservative backfilling finds jobs in its waitlist. Its queues only count jobs, which rings do faster.
        state.g["ring"] = self.kind == "conservative" and setting.checkpoints is None
        arrays = open_nodes(state, setting.cluster)
        waitlist = make_waitlist(state, arrays, key)
        if self.kind == "easy":
            forecast, later = make_forecast(state, exact=exact)
            step = partial(compiled.run_easy, arrays, key, compiled.State(later), forecast, waitlist)
        else:
            reservations = make_reservations(state, self.depth, exact=exact)
            step = partial(compiled.run_conservative, arrays, key, reservations, waitlist)
        return Run(state, step)


# Waiting jobs by their request, in key order, to find the first job that is short enough quickly.
#
# Each queue is a range of places in key order, one for every job that will ever wait in it. A place holds its job's
# estimate while the job waits. We keep the minimum of every 16 places, of every 16 of these, and so on, so a search
# reads a few dozen numbers, however long the queue is.

_NOBODY = 1 << 62
"""Larger than every estimate."""


def make_waitlist(state: EngineState, arrays: Any, key: Any) -> Any:
    """Return the places of all jobs of a state in which no job waits yet."""
    n, room = len(state.jobs), len(state.waiting)
    keys = np.empty(n, np.int64)
    compiled.keys(arrays, key, keys)
    order = np.argsort(keys, kind="stable")
    queue_of = state.job_classes["queue"][state.jobs["job_class"]]
    kind = np.uint16 if len(state.queues) < 1 << 16 else np.int64
    order = order[np.argsort(queue_of[order].astype(kind), kind="stable")]
    slot = np.empty(n, np.int32)
    first = np.searchsorted(queue_of[order], np.arange(len(state.queues)))
    slot[order] = np.arange(n) - first[queue_of[order]]
    rank = np.empty(n, np.int32)
    rank[np.argsort(keys, kind="stable")] = np.arange(n)
    job = np.zeros(room, np.int64)
    for form in (state.job_classes["queue"], _relaxed_queue(state)):
        of_job = form[state.jobs["job_class"]]
        there = of_job != NONE
        job[state.queues["base"][of_job[there]] + slot[there]] = np.flatnonzero(there)
    sizes = [room]
    while sizes[-1] > 16:
        sizes.append((sizes[-1] + 15) // 16)
    level = np.concatenate([[0], np.cumsum([(size + 15) // 16 * 16 for size in sizes])]).astype(np.int64)
    least = np.full(level[-1], _NOBODY)
    return compiled.Waitlist(slot=slot, job=job, rank=rank[job], least=least, level=level)


def _relaxed_queue(state: EngineState) -> NDArray[np.int64]:
    relaxed = state.job_classes["relaxed"]
    return np.where(relaxed == NONE, NONE, state.job_classes["queue"][relaxed])


# The forecast of the estimates: time and place at which the first waiting job (the head) can start, and the GPUs that
# it leaves free.
#
# For each domain the forecast keeps a second map of the nodes, as they would be at the time `until`: the jobs expected
# to end by then have released their GPUs, and the head has the place that it will get. Running jobs are in two heaps:
# jobs released on this map (last end first) and jobs that keep running (first end first). The forecast time moves back
# and forth by one group of ends at a time. Most events do not move it at all: if a job ends early but was expected to
# end before this time, nothing changes there.


def make_forecast(state: EngineState, *, exact: bool) -> tuple[Any, EngineState]:
    """Return the forecast before the first instant, and the second map of nodes.

    The map is a second state that shares all arrays except those for placement. Its `jobs` array has one row per
    domain, for the place of the head.
    """
    n = len(state.jobs)
    gpus = np.bincount(
        state.groups["domain"][state.nodes["group"]], weights=state.nodes["gpus"], minlength=len(state.domains)
    ).astype(np.int64)
    aspects = np.zeros(len(state.domains), struct_dtype("Aspect"))
    aspects["low"] = np.cumsum(gpus) - gpus
    aspects["high"] = aspects["low"] + int(gpus.sum())
    aspects["until"] = aspects["head"] = NONE
    room = int(gpus.sum())
    forecast = compiled.Forecast(
        aspects=aspects,
        end=np.zeros(n, np.int64),
        heaps=np.zeros(3 * room, struct_dtype("Entry")),
        at=np.full(n, NONE, np.int32),
        late_at=np.full(n, NONE, np.int32),
        facts=np.array([(2 * room, 0, exact)], struct_dtype("ForecastFacts")),
    )
    rows = np.zeros(len(state.domains), struct_dtype("Job"))
    rows["allocation"] = NONE
    return forecast, state._replace(
        g=state.g.copy(),
        jobs=rows,
        nodes=state.nodes.copy(),
        domains=state.domains.copy(),
        allocations=state.allocations.copy(),
        bits=state.bits.copy(),
        tops=state.tops.copy(),
    )


# Conservative backfilling keeps expected ends, reservations, and jobs without a reservation between passes.


def make_reservations(state: EngineState, depth: int, *, exact: bool) -> Any:
    """Return the arrays for a state before the first instant, whose nodes are already available.

    Parameters
    ----------
    depth : int
        Number of a domain's waiting jobs that get reservations, from the head of the queue, or 0 for all.
    exact : bool
        Whether the estimates are the actual run times.
    """
    n = len(state.jobs)
    domain_of = state.groups["domain"][state.nodes["group"]]
    gpus = state.nodes["gpus"].astype(np.int64)
    room = np.bincount(domain_of, weights=gpus, minlength=len(state.domains)).astype(np.int64)
    there = np.bincount(domain_of, weights=gpus * state.nodes["up"], minlength=len(state.domains)).astype(np.int64)
    jobs = np.bincount(state.job_classes["domain"][state.jobs["job_class"]], minlength=len(state.domains))
    planned = np.minimum(jobs, depth or n)
    strips = np.zeros(len(state.domains), struct_dtype("Strip"))
    strips["low"] = strips["high"] = np.cumsum(room)
    strips["there"], strips["stale"] = there, 1
    strips["plan_low"] = np.cumsum(planned) - planned
    steps = 2 * (planned + room) + compiled.SPARE_STEPS + 4
    strips["step_low"] = np.cumsum(steps) - steps
    return compiled.Reservations(
        strips=strips,
        ends=np.zeros(int(room.sum()), struct_dtype("End")),
        end=np.zeros(n, np.int64),
        late=np.zeros(min(n, int(room.sum())), struct_dtype("Entry")),
        late_at=np.full(n, NONE, np.int32),
        steps=np.zeros(int(steps.sum()), struct_dtype("Step")),
        plan=np.zeros(int(planned.sum()), struct_dtype("Reservation")),
        started=np.zeros(int(room.max(initial=0)) + 1, np.int64),
        lines=_lines(state),
        facts=np.array([(0, exact, depth or n, 0)], struct_dtype("ReservationFacts")),
    )


def _lines(state: EngineState) -> NDArray[np.void]:
    lines = np.zeros(len(state.queues), struct_dtype("Line"))
    lines["place"] = lines["due"] = NONE
    lines["rank"] = compiled.ANY_LIMIT
    lines["high"] = lines["first"] = np.append(state.queues["base"][1:], len(state.waiting))
    lines["gpus"][state.job_classes["queue"]] = state.job_classes["gpus"]
    return lines
