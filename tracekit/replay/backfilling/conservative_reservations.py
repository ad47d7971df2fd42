"""What conservative backfilling keeps between passes: believed ends, reservations, and jobs without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import ANY_LIMIT, NONE, SPARE_STEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState

__all__ = ["Reservations", "make_reservations"]


class Reservations(NamedTuple):
    """The arrays of one run."""

    strips: NDArray[np.void]
    """Of each domain: where its running jobs are in `ends`, the GPUs of its nodes that are there, where its steps are
    and in how many more is reserved than is free, where its plan is, the rank of the last job planned, the first time
    planned, whether to plan anew, a queue whose jobs are known to have a place, or NONE, and the steps around the hole
    that was found last (D,)."""
    ends: NDArray[np.void]
    """Believed ends of running jobs, ascending; `free`: GPUs free from then on if nothing else starts."""
    end: NDArray[np.int64]
    """When each running job is believed to end [ms] (n,)."""
    late: NDArray[np.void]
    """HEAP of running jobs that will outlive what is believed, by believed end."""
    late_at: NDArray[np.int32]
    """Position of each job in `late`, NONE when it is not there (n,)."""
    steps: NDArray[np.void]
    """Times at which reservations begin or end, what is reserved from then on, and what is free then. `edge`: what is
    free just before by what is believed of running jobs alone."""
    plan: NDArray[np.void]
    """Waiting jobs of each domain that have been planned, in order: when their reservations begin, NONE for never, for
    how long and how much, and where they are in the waitlist."""
    started: NDArray[np.int64]
    """Jobs started in this pass."""
    lines: NDArray[np.void]
    """Of each queue: the place and the rank of its first job that waits and is not planned, NONE and ANY without; where
    its places end; the GPUs that its jobs ask for; when one of them last stood among the first whose reservations
    begin; a place before which none of them may start in this pass; and the place of the first that waits, planned or
    not, `high` without (Q,)."""
    facts: NDArray[np.void]
    """Sizes and settings (1,)."""


def make_reservations(state: EngineState, depth: int, *, exact: bool) -> Reservations:
    """Return the arrays of a state before the first instant, its nodes there.

    Parameters
    ----------
    depth : int
        The first so many waiting jobs of a domain have reservations; 0 all of them.
    exact : bool
        Whether the estimates are the true run times.
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
    steps = 2 * (planned + room) + SPARE_STEPS + 4
    strips["step_low"] = np.cumsum(steps) - steps
    return Reservations(
        strips,
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
    lines["rank"] = ANY_LIMIT
    lines["high"] = lines["first"] = np.append(state.queues["base"][1:], len(state.waiting))
    lines["gpus"][state.job_classes["queue"]] = state.job_classes["gpus"]
    return lines
