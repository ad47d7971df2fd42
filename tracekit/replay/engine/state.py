"""The engine's state: arrays of records that compiled functions read and write in place.

Everything is allocated in Python; compiled code allocates nothing. The records are structs of engine/state.pxi. Units:
milliseconds, GPUs, and work in millionths of a millisecond, so that a rate in parts per million takes whole units off
it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EngineState", "struct_dtype"]


@cache
def struct_dtype(name: str) -> np.dtype[np.void]:
    """Return NumPy's type of a struct of the kernel, such as 'Job'."""
    return np.asarray(kernel().EXAMPLES[name]).dtype


class EngineState(NamedTuple):
    """The arrays of one run (see `build`)."""

    g: NDArray[Any]
    """Globals (1,): the clock, sizes, sums and the policy's settings."""
    jobs: NDArray[Any]
    """Job (n,)."""
    nodes: NDArray[Any]
    """Node (N,)."""
    groups: NDArray[Any]
    """Group (G,)."""
    domains: NDArray[Any]
    """Domain (D,)."""
    job_classes: NDArray[Any]
    """JobClass: what jobs of one class ask for, a domain, accepted groups, GPUs, and how far apart these may be."""
    queues: NDArray[Any]
    """Queue: where jobs wait; of one job class each, or one of the whole domain where the first job stops the pass."""
    allocations: NDArray[Any]
    """Allocation: what running jobs hold, as linked lists; unused ones are linked from Globals.unused_allocation. Where
    jobs share GPUs by a plan (Globals.seats) the first rows are the GPUs, with the number of their jobs."""
    bits: NDArray[np.uint64]
    """One bit a node for each group and number of free GPUs: set where the node has exactly that many."""
    tops: NDArray[np.uint64]
    """One bit a word of `bits`: set where the word is not 0."""
    events: NDArray[Any]
    """Entries of the next event of each job."""
    event_at: NDArray[np.int32]
    """Position of each job in `events`, -1 none (n,)."""
    waiting: NDArray[Any]
    """Entries of each queue, one after the other, by key."""
    waiting_at: NDArray[np.int32]
    """Position of each waiting job in its queue (n,)."""
    eviction_queue: NDArray[Any]
    """Entries of each domain's running jobs, last in rank first; entries name a job by n - 1 - index."""
    eviction_at: NDArray[np.int32]
    """Position in `eviction_queue` by n - 1 - index, -1 none (n,)."""
    changes: NDArray[Any]
    """Change: nodes that join and leave."""
    overheads: NDArray[np.int64]
    """Cost of a preemption or migration by the GPUs of the gang, larger ones as the last [ms]."""
    thresholds: NDArray[np.int64]
    """Attained service at which a job's level rises [GPU*ms] (L,)."""
    level_values: NDArray[np.int64]
    """What the key gets as the level, by level (L + 1,)."""
    spread: NDArray[np.int32]
    """Speed on k nodes where k0 would do [ppm] (k0, k)."""
    log: NDArray[Any]
    """LogRow."""
    samples: NDArray[Any]
    """Sample rows of the timeline."""
    touched: NDArray[np.int32]
    """Domains of this instant (D,)."""
    scratch: NDArray[np.int32]
    """Victims of one placement (n at most)."""
    evicted: NDArray[np.int32]
    """Jobs evicted in this pass."""
    active: NDArray[np.int32]
    """Jobs that wait or run, by index, with some that ended; of planners only."""
    loosened: NDArray[np.int32]
    """Nodes on which a job ended or fell in rank in this instant, where nodes list their jobs (Globals.listed)."""
    broken: NDArray[np.int32]
    """Jobs that a failing node stopped in this instant."""
