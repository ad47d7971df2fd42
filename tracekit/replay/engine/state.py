"""The engine's state: arrays of records that compiled functions read and write in place.

Python allocates all arrays, compiled code none. The records are structs of engine/state.pxi. Units: milliseconds, GPUs,
and work in millionths of a millisecond. A rate in parts per million then subtracts whole units.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


NONE = -1
"""No node, no job, or the end of a linked list (as in state.pxi)."""


@cache
def struct_dtype(name: str) -> np.dtype[np.void]:
    """Return the NumPy dtype of a struct of the kernel, such as 'Job'."""
    return np.asarray(kernel().EXAMPLES[name]).dtype


class EngineState(NamedTuple):
    """The arrays of one run (see `build`)."""

    g: NDArray[Any]
    """Globals (1,): the clock, sizes, totals and the policy's settings."""
    jobs: NDArray[Any]
    """Job (n,)."""
    nodes: NDArray[Any]
    """Node (N,)."""
    groups: NDArray[Any]
    """Group (G,)."""
    domains: NDArray[Any]
    """Domain (D,)."""
    job_classes: NDArray[Any]
    """JobClass: the request of one class of jobs: domain, accepted groups, GPUs, and how far GPUs may be spread."""
    queues: NDArray[Any]
    """Queue: waiting jobs. Each queue has one job class, or a whole domain if its first job stops the pass."""
    allocations: NDArray[Any]
    """Allocation: the GPUs of running jobs, as linked lists. Unused allocations are linked from
    Globals.unused_allocation. If jobs share GPUs by a plan (Globals.seats), the first rows are the GPUs, with their
    numbers of jobs."""
    bits: NDArray[np.uint64]
    """One bit per node for each group and number of free GPUs, set if the node has exactly this number free."""
    tops: NDArray[np.uint64]
    """One bit per word of `bits`, set if the word is not 0."""
    events: NDArray[Any]
    """Heap of the next event of each job."""
    event_at: NDArray[np.int32]
    """Position of each job in `events`, or -1 if it is not there (n,)."""
    waiting: NDArray[Any]
    """Entries of the queues, one queue after the other, sorted by key."""
    waiting_at: NDArray[np.int32]
    """Position of each waiting job in its queue (n,)."""
    eviction_queue: NDArray[Any]
    """Entries of each domain's running jobs, lowest rank first. An entry stores a job as n - 1 - index."""
    eviction_at: NDArray[np.int32]
    """Position in `eviction_queue` by n - 1 - index, or -1 if the job is not there (n,)."""
    changes: NDArray[Any]
    """Change: a node that joins or leaves."""
    overheads: NDArray[np.int64]
    """Cost of a preemption or migration by number of GPUs [ms]. The last entry covers larger gangs."""
    thresholds: NDArray[np.int64]
    """Attained service at which a job's level rises [GPU*ms] (L,)."""
    level_values: NDArray[np.int64]
    """The value that the key gets, by level (L + 1,)."""
    spread: NDArray[np.int32]
    """Speed on k nodes if k0 nodes are enough [ppm] (k0, k)."""
    log: NDArray[Any]
    """LogRow."""
    samples: NDArray[Any]
    """Sample rows of the timeline."""
    touched: NDArray[np.int32]
    """Domains with events in this instant (D,)."""
    scratch: NDArray[np.int32]
    """Jobs to evict for one placement (n at most)."""
    evicted: NDArray[np.int32]
    """Jobs evicted in this pass."""
    active: NDArray[np.int32]
    """Waiting and running jobs, by index, and some jobs that ended. Only planners use this array."""
    loosened: NDArray[np.int32]
    """Nodes on which a job ended or dropped in rank in this instant, if nodes list their jobs (Globals.listed)."""
    broken: NDArray[np.int32]
    """Jobs that a node failure stopped in this instant."""
