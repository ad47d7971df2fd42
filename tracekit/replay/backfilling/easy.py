"""The scheduling pass of EASY backfilling.

The queue goes from its head as far as it can. For the first job that must wait, the head, the estimates of running jobs
tell when it can start and where (`forecast`). A job behind it, in the order of the queue, may start now where it has a
place now and either should end by that moment, or would hold only GPUs that are left then beside the head's place.

Waiting jobs of one demand stand in one queue, and whether they have a place, and whether that place is spare, is the
same for all of them; so a pass asks once a queue, and then searches for the first job that is short enough.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.replay import kernel
from tracekit.replay.backfilling.forecast import make_forecast
from tracekit.replay.backfilling.waitlist import make_waitlist
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.mechanisms import Backfill

__all__ = ["easy_steps"]


def easy_steps(state: EngineState, arrays: Any, mechanism: Backfill) -> Callable[[int], bool]:
    """Return what runs at most so many instants of EASY backfilling and tells whether more are to come.

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
    waitlist = make_waitlist(state, arrays, key)
    forecast, later = make_forecast(state, exact=mechanism.order.estimate_ms is None)
    return partial(
        kernel.run_easy, arrays, key, kernel.State(later), kernel.Forecast(forecast), kernel.Waitlist(waitlist)
    )
