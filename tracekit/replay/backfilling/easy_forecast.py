"""What the estimates predict: when and where the first waiting job (the head) can start, and what it leaves free.

For each domain the forecast keeps a second map of the nodes, as they would be at the time `until`: the jobs expected to
end by then have released their GPUs, and the head holds the place that it will get. Running jobs are in two heaps: jobs
released on this map (last end first) and jobs that keep running (first end first). The forecast time therefore moves
back and forth by one group of ends at a time. Most events do not move it at all: if a job ends early that was expected
to end before this time anyway, nothing changes there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState


class Forecast(NamedTuple):
    """The arrays of one run."""

    aspects: NDArray[np.void]
    """The forecast for each domain (D,)."""
    end: NDArray[np.int64]
    """Expected end of each running job [ms] (n,)."""
    heaps: NDArray[np.void]
    """HEAPs of each domain: jobs that end by `until`, by -end, starting at `low`; the others, by end, starting at
    `high`."""
    at: NDArray[np.int32]
    """Position of each job in its heap (n,)."""
    late_at: NDArray[np.int32]
    """Position of each job in the heap of jobs that run past their expected end, NONE if it is not there (n,)."""
    facts: NDArray[np.void]
    """Start and size of that heap in `heaps`, and whether the estimates are exact (1,)."""


def make_forecast(state: EngineState, *, exact: bool) -> tuple[Forecast, EngineState]:
    """Return the forecast before the first instant, and the second map of nodes.

    The map is a second state, but only the arrays for placement are its own. Its `jobs` have one row per domain: the
    place of the head.
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
    forecast = Forecast(
        aspects,
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
