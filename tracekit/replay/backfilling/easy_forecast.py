"""What the estimates say of the time to come: when the first waiting job can start, where, and what is left beside it.

For each domain the forecast keeps a second map of the nodes, as it would be at the moment `until`: the jobs believed to
end by then have given back their GPUs, and the job that is aimed for holds the place it will get. Running jobs stand in
two heaps, those released on this map (the last to end first) and those that run on (the first to end first), so that
the moment moves to and fro by one group of ends at a time. Most events do not move it at all: a job that ends sooner
than believed, but was to end before the moment anyway, changes nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState

__all__ = ["Forecast", "make_forecast"]


class Forecast(NamedTuple):
    """The arrays of one run."""

    aspects: NDArray[np.void]
    """What is believed of each domain (D,)."""
    end: NDArray[np.int64]
    """When each running job is believed to end [ms] (n,)."""
    heaps: NDArray[np.void]
    """HEAPs of each domain: its jobs that end by `until`, by -end, from `low`; the others, by end, from `high`."""
    at: NDArray[np.int32]
    """Position of each job in the one of these in which it is (n,)."""
    late_at: NDArray[np.int32]
    """Position of each job in the heap of those that outlive what is believed, NONE when it is not there (n,)."""
    facts: NDArray[np.void]
    """Where in `heaps` that heap is and how many it has, and whether the estimates are the truth (1,)."""


def make_forecast(state: EngineState, *, exact: bool) -> tuple[Forecast, EngineState]:
    """Return what is believed before the first instant, and the second map of nodes.

    The map is a second state, though only what placing needs is its own. Its `jobs` are one row a domain, the place of
    the job that is aimed for.
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
