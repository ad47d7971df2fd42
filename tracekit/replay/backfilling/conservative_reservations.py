"""What conservative backfilling keeps between passes: expected ends, reservations, and jobs without a reservation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import ANY_LIMIT, NONE, SPARE_STEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState


class Reservations(NamedTuple):
    """The arrays of one run."""

    strips: NDArray[np.void]
    """For each domain: position of its running jobs in `ends`; GPUs of its available nodes; position of its steps, and
    number of steps that reserve more than is free; position of its plan; rank of the last planned job; first planned
    time; whether to plan again; a queue whose jobs are known to have a place, or NONE; and the steps around the gap
    that was found last (D,)."""
    ends: NDArray[np.void]
    """Expected ends of running jobs, ascending; `free`: GPUs free from then on if nothing else starts."""
    end: NDArray[np.int64]
    """Expected end of each running job [ms] (n,)."""
    late: NDArray[np.void]
    """HEAP of running jobs that will run past their expected end, by expected end."""
    late_at: NDArray[np.int32]
    """Position of each job in `late`, NONE if it is not there (n,)."""
    steps: NDArray[np.void]
    """Times at which reservations begin or end, what is reserved from then on, and what is free then. `edge`: what is
    free just before, if only the running jobs' expected ends count."""
    plan: NDArray[np.void]
    """Planned waiting jobs of each domain, in order: when their reservations begin (NONE for never), for how long and
    how many GPUs, and their places in the waitlist."""
    started: NDArray[np.int64]
    """Jobs started in this pass."""
    lines: NDArray[np.void]
    """For each queue: place and rank of its first waiting job that is not planned (NONE and ANY if there is none); the
    end of its places; the GPUs that its jobs request; when one of them was last among the first whose reservations
    begin; a place before which none of them may start in this pass; and the place of the first waiting job, planned or
    not (`high` if there is none) (Q,)."""
    facts: NDArray[np.void]
    """Sizes and settings (1,)."""


def make_reservations(state: EngineState, depth: int, *, exact: bool) -> Reservations:
    """Return the arrays for a state before the first instant, with its nodes available.

    Parameters
    ----------
    depth : int
        Number of waiting jobs of a domain that get reservations, from the head of the queue; 0 means all.
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
