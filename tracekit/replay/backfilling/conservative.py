"""The scheduling pass of conservative backfilling.

In the order of the queue, each waiting job gets a reservation: the first time from which enough GPUs of the domain are
free, by number, for as long as it is believed to run. They lie as steps over the believed ends of running jobs (`ends`,
`steps`).

Reservations are made anew in each pass. But as long as everything goes as believed, that gives every job the time it
had: what started since left all reservations as they were, and what ended was to end. So they are kept, and made anew
only after a surprise: an end before its time, a job that runs on, a node that joins or leaves; and in part where a job
found no place when it was due, and now stands in the way of others. A pass in which nobody could start (`openings`)
leaves them as they are: to put them off once is the same as to do it step by step. And a reservation is made only when
a candidate asks that would still run when it could begin: others cannot stand in its way. Behind the jobs that may have
a reservation, others start where they delay none of these.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.replay import kernel
from tracekit.replay.backfilling.reservations import make_reservations
from tracekit.replay.backfilling.waitlist import make_waitlist
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.mechanisms import Backfill

__all__ = ["conservative_steps"]


def conservative_steps(state: EngineState, arrays: Any, mechanism: Backfill) -> Callable[[int], bool]:
    """Return what runs at most so many instants of conservative backfilling and tells whether more are to come.

    Parameters
    ----------
    state : EngineState
        Before the first instant, its nodes there.
    arrays : kernel.State
        The same, for compiled functions.
    mechanism : Backfill
        The policy's rule.
    """
    key = engine_key(mechanism.order.key)
    book, waitlist = make_reservations(state, mechanism), make_waitlist(state, arrays, key)
    return partial(kernel.run_conservative, arrays, key, kernel.Reservations(book), kernel.Waitlist(waitlist))
