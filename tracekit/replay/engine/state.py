"""The engine's state: arrays of records that compiled functions read and write in place.

Everything is allocated here, in Python; compiled code allocates nothing (see `compiled`). Units: milliseconds, GPUs,
and work in millionths of a millisecond, so that a rate in parts per million takes whole units off it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DONE",
    "DRIFT_ANY",
    "DRIFT_NONE",
    "DRIFT_TIME",
    "FUTURE",
    "KIND_FINISH",
    "KIND_TIMER",
    "PPM",
    "REJECTED",
    "RUNNING",
    "WAITING",
    "State",
    "records",
]

PPM = 1_000_000
"""The recorded speed."""

FUTURE, WAITING, RUNNING, DONE, REJECTED = range(5)
"""Status of a job."""

KIND_FINISH, KIND_TIMER = 0, 3
"""Kinds of entries in the event heap, in the order of an instant; an entry's key is time * 4 + kind."""

DRIFT_NONE, DRIFT_TIME, DRIFT_ANY = range(3)
"""How the key of a running job changes: not at all, by -1 each millisecond, or in a way that must be asked for."""

# What every start and end of a job touches stands first, so that it shares cache lines.
_FIELDS = {
    "JOB": """submit:i8 remaining:i8 since:i8 overhead:i8 attained:i8 ran:i8 first:i8 rate:i4 gpus:i4 demand:i4
        take:i4 nodes:i4 level:i4 status:i1 never:i1 pace:i4 overhead_done:i8 end:i8 key:i8 estimate:i8 value:i8
        stopped:i8 base:i8 begun:i8 preemptions:i4 migrations:i4 evicted:i4 tenant:i4""",
    "NODE": "free:i4 gpus:i4 group:i4 bit:i4 up:i4 holder:i4",
    # These stand before JOB and NODE: numba would take a record that only has more fields at its end for the other.
    "BLOCK_JOB": "spare:i1",
    "BLOCK_NODE": "busy:u8 blocks:i4",
    "SEAT_NODE": "seat:i4",
    "GROUP": "domain:i4 low:i4 high:i4 largest:i4 words:i4 bits:i4 tops:i4 summary:i4 model:i4 speed:i4",
    "DOMAIN": """group_low:i4 group_high:i4 queue_low:i4 queue_high:i4 free:i4 held:i4 rank_base:i4 rank_size:i4
        touched:i4 freed:i4 ranked:i4""",
    "DEMAND": "accept:u8 domain:i4 gpus:i4 scope:i4 queue:i4 relaxed:i4 tenant:i4",
    "QUEUE": "base:i8 head:i8 size:i8 domain:i4 blocked:i4 tenant:i4 gpus:i4",
    "TAKE": "key:i8 node:i4 gpus:i4 next:i4 gpu:i4 job:i4 before:i4 after:i4",
    "HOST": "bound:u8 soft:u8 chain:i4 bit:i4 base:i4 width:i4 up:i4 changed:i4",
    "CELL": "node:i4 gpu:i4 level:i4 chain:i4",
    "CELLS": "seen:i8 changed:i8 evicted:i8 failed:i8",
    "HEAP": "key:i8 job:i8",
    "CHANGE": "time:i8 node:i4 up:i4",
    "VIEW": """job:i8 held:i8 remaining_ms:i8 attained:i8 overhead_ms:i8 rate:i8 group:i8 since_ms:i8 running:?""",
    "TENANCY": """pick:i8 across:i8 limit:i8 reclaim:i8 fair:i8 own:i8 others:i8 borrowing:i8 cap:i8 theta:i8 period:i8
        keep:i8 attempt:i8 backoff:i8 attempts:i8 resources:i8 attributed:i8 row:i8 seen:i8""",
    "ACCOUNT": """use:i8 quota:i8 weight:i8 borrow:i8 lend:i8 cpu:i8 memory:i8 share:i8 decayed:i8 settled:i8 over:i8
        turn:i8 waiting:i4 place:i4 stuck:i4 eased:i4 candidate:i4 pool:i4 queue_low:i4 queue_high:i4 rank_base:i4
        rank_size:i4""",
    "POOL": """low:i8 high:i8 open:i8 gpus:i8 cpu:i8 memory:i8 cpu_all:i8 memory_all:i8 use:i8 over:i8 lend:i8 lent:i8
        round:i8""",
    "CLAIM": "priority:i8 cpu:i8 memory:i8 mark:i8 delayed:i8 tries:i4 out:i4 refused:i4",
    "LOG": "time_ms:i8 kind:i1 job:i4 node:i4 gpu:i4 value:i8",
    "SAMPLE": "time:i8 running:i8 pending:i8 busy:i8 free:i8 fragmented:i8",
    "GLOBAL": """now:i8 jobs:i8 submitted:i8 change:i8 changes:i8 event_size:i8 free_take:i8 serial:i8 log_on:i8
        log_size:i8 running:i8 pending:i8 busy:i8 free:i8 fragmented:i8 busy_ms:i8 free_ms:i8 fragmented_ms:i8
        sample_at:i8 sample_step:i8 samples:i8 touched:i8 evicted:i8 listed:i8 loosened:i8 events:i8
        last_end:i8 busy_at_end:i8 free_at_end:i8 fragmented_at_end:i8 skip:i8 by_count:i8 ring:i8 rule:i8
        preemptive:i8 drift:i8 relax_ms:i8 age_cap:i8 levels:i8 promote:i8 stall:i8 planned:i8 shared:i8
        tenants:i8 ended:i8 rung:i8 active:i8 wake:i8 asked:i8 culprit:i8 scope:i8 keeps:i8
        capped:i8 speed:i8 begun:i8 lacking:i8""",
}


def records(*names: str) -> np.dtype[np.void]:
    """Return the record type of that name, such as 'JOB', or of several, one after the other."""
    pairs = [field.split(":") for name in names for field in _FIELDS[name].split()]
    return np.dtype([(field, kind) for field, kind in pairs], align=True)


class State(NamedTuple):
    """The arrays of one run (see `build`)."""

    g: NDArray[Any]
    """GLOBAL (1,): the clock, sizes, sums and the policy's settings."""
    jobs: NDArray[Any]
    """JOB (n,)."""
    nodes: NDArray[Any]
    """NODE (N,)."""
    groups: NDArray[Any]
    """GROUP (G,)."""
    domains: NDArray[Any]
    """DOMAIN (D,)."""
    demands: NDArray[Any]
    """DEMAND: what jobs ask for: a domain, the groups they accept, GPUs, and how far apart these may be."""
    queues: NDArray[Any]
    """QUEUE: where jobs wait; of one demand each, or one of the whole domain where the first job stops the pass."""
    takes: NDArray[Any]
    """TAKE: what running jobs hold, as chains; unused ones are chained from GLOBAL.free_take. Where nodes have a `seat`
    the first rows are the GPUs, with the number of their jobs."""
    bits: NDArray[np.uint64]
    """One bit a node for each group and number of free GPUs: set where the node has exactly that many."""
    tops: NDArray[np.uint64]
    """One bit a word of `bits`: set where the word is not 0."""
    events: NDArray[Any]
    """HEAP of the next event of each job."""
    event_at: NDArray[np.int32]
    """Position of each job in `events`, -1 none (n,)."""
    waiting: NDArray[Any]
    """HEAP of each queue, one after the other, by key."""
    waiting_at: NDArray[np.int32]
    """Position of each waiting job in its queue (n,)."""
    ranks: NDArray[Any]
    """HEAP of each domain's running jobs, last in rank first; entries name a job by n - 1 - index."""
    rank_at: NDArray[np.int32]
    """Position in `ranks` by n - 1 - index, -1 none (n,)."""
    changes: NDArray[Any]
    """CHANGE: nodes that join and leave."""
    overheads: NDArray[np.int64]
    """Cost of a preemption or migration by the GPUs of the gang, larger ones as the last [ms]."""
    thresholds: NDArray[np.int64]
    """Attained service at which a job's level rises [GPU*ms] (L,)."""
    level_values: NDArray[np.int64]
    """What the key function is told of each level (L + 1,)."""
    spread: NDArray[np.int32]
    """Speed on k nodes where k0 would do [ppm] (k0, k)."""
    log: NDArray[Any]
    """LOG rows."""
    samples: NDArray[Any]
    """SAMPLE rows of the timeline."""
    touched: NDArray[np.int32]
    """Domains of this instant (D,)."""
    scratch: NDArray[np.int32]
    """Victims of one placement (n at most)."""
    evicted: NDArray[np.int32]
    """Jobs evicted in this pass."""
    active: NDArray[np.int32]
    """Jobs that wait or run, by index, with some that ended; of planners only."""
    loosened: NDArray[np.int32]
    """Nodes on which a job ended or fell in rank in this instant, where nodes list their jobs (GLOBAL.listed)."""
