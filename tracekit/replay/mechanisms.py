"""What a policy hands to the engine: one of a few mechanisms, filled in.

A policy is a rule for people; a mechanism is what carries it out. `Ordered` covers every policy that puts jobs into an
order by a key; it is compiled. `Planner` is Python, called when something happened or at rounds, and may do anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numba

from tracekit.replay.compiled import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "KEY_SIGNATURE",
    "Mechanism",
    "Ordered",
    "Plan",
    "Planner",
    "Recorded",
    "View",
    "by_arrival",
    "ordering_key",
]

KEY_SIGNATURE = "int64(int64, int64, int64, int64, int64, int64, int64)"
"""Of a key function: (submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value) -> key."""

_config: Any = numba.config


def ordering_key(function: Callable[[int, int, int, int, int, int, int], int]) -> Any:
    """Compile a key function: jobs with smaller keys go first, ties by submission.

    It is called whenever a job starts to wait, starts to run or changes its level, with whole numbers:

    - submit_ms: submission [ms]
    - gpus: GPUs of the gang
    - estimate_ms: what the policy believes the job will run, in all [ms]
    - remaining_ms: run time that is truly left, with overheads not yet served [ms]; only oracles look at it
    - attained_gpu_ms: service so far [GPU*ms]
    - level: `Ordered.level_values` of the job's level, 0 without levels
    - value: `Ordered.value` of the job, 0 without

    It returns an int64 and must neither read nor write anything else.

    >>> @ordering_key
    ... def shortest_gpu_time_first(submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value):
    ...     return estimate_ms * gpus
    """
    folder = cache_folder()
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder or "")
    try:
        return numba.cfunc(KEY_SIGNATURE, cache=folder is not None and "<" not in function.__code__.co_filename)(
            function
        )
    finally:
        _config.CACHE_DIR = before


@ordering_key
def by_arrival(
    submit_ms: int,
    gpus: int,  # noqa: ARG001 -- keys have one signature
    estimate_ms: int,  # noqa: ARG001
    remaining_ms: int,  # noqa: ARG001
    attained_gpu_ms: int,  # noqa: ARG001
    level: int,  # noqa: ARG001
    value: int,  # noqa: ARG001
) -> int:
    """Earliest submission first."""
    return submit_ms


@dataclass(frozen=True)
class Ordered:
    """Jobs start in the order of a key; with eviction, the key also tells which running jobs may be stopped."""

    key: Any
    """A function made by `ordering_key`."""
    scan: Literal["stop", "skip"] = "stop"
    """What a pass does at the first job that cannot start: end, or pass it over."""
    fit: Literal["place", "count"] = "place"
    """Whether a job needs places on nodes, or only enough free GPUs in number."""
    preemptive: bool = False
    """Whether a waiting job may evict running ones whose key is greater."""
    drift: Literal["none", "time", "any"] = "any"
    """How a key changes while its job runs: 'none' (or only at level crossings), 'time' (falls by one each millisecond
    at full speed), 'any' (asked for anew in each pass; slower)."""
    by_tenant: bool = False
    """Whether jobs of different tenants wait in different queues."""
    by_arrival: bool = False
    """Whether keys never fall behind those of earlier jobs, so that a queue is a line."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""
    value: NDArray[np.int64] | None = None
    """A number of the policy's own for each job (n,)."""
    thresholds: tuple[int, ...] = ()
    """Attained service at which a job's level rises, ascending [GPU*ms]."""
    level_values: tuple[int, ...] = ()
    """What the key is told of each level, one more than thresholds; the level's number when empty."""
    promote_ppm: int = 0
    """A job stopped for so many times its last run [ppm] begins again at the first level; 0 never."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    relax_after_ms: int = 0
    """Wait after which a gang takes GPUs anywhere; 0 never."""
    relax_scope: Literal[1, 2] = 2
    """How far it then goes: 1 one group of nodes, 2 all nodes of one model."""
    age_cap_ms: int = 0
    """Wait after which a job that cannot start ends the pass even when `scan` is 'skip'; 0 never."""
    stall: bool = False
    """Whether every event of the cluster stops each running job for `value` ms, as one peer's simulator has it."""


@dataclass(frozen=True)
class View:
    """What a planner sees: the jobs that wait or run, in order of submission, and the cluster. Arrays are read-only."""

    now_ms: int
    """The time [ms after the first submission]."""
    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs` (k,)."""
    running: NDArray[np.bool_]
    """Whether each runs (k,)."""
    held: NDArray[np.int64]
    """GPUs that each holds, 0 when it waits (k,)."""
    remaining_ms: NDArray[np.int64]
    """Run time left at the recorded speed [ms] (k,); only oracles look at it."""
    attained_gpu_ms: NDArray[np.int64]
    """Service so far [GPU*ms] (k,)."""
    overhead_ms: NDArray[np.int64]
    """Overhead not yet served [ms] (k,)."""
    rate: NDArray[np.int64]
    """Speed of the running ones [ppm of the recorded speed] (k,)."""
    group: NDArray[np.int64]
    """Group of nodes that each runs in, -1 when it waits or by count (k,)."""
    group_gpus: NDArray[np.int64]
    """GPUs of each group's nodes that are there (G,)."""
    group_model: NDArray[np.int64]
    """GPU model of each group, index into `Cluster.models` (G,)."""

    @property
    def gpus(self) -> int:
        """GPUs there are."""
        return int(self.group_gpus.sum())


@dataclass(frozen=True)
class Plan:
    """What a planner wants: GPUs for jobs. A running job that is not named loses its GPUs.

    Jobs are placed in the order given; one that finds no place waits. To ask for more GPUs than a domain has is an
    error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each; 0 is the same as not naming it (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each with these GPUs [ppm of the recorded speed], before spread and GPU model; full when None (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each, -1 any (k,)."""
    wake_ms: int = -1
    """When to be asked again even if nothing happens [ms]; -1 not."""


@dataclass(frozen=True)
class Planner:
    """A policy that looks at all jobs at once and says how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or at rounds."""
    round_ms: int = 0
    """Plans are made only at multiples of this, when something has happened since the last [ms]; 0: at every event."""
    fit: Literal["place", "count"] = "place"
    """Whether gangs need places on nodes, or only enough free GPUs in number."""
    scope: Literal[0, 1, 2] = 2
    """How far apart a gang's GPUs may be: 0 on the fewest nodes, 1 anywhere in a group, 2 on all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""


@dataclass(frozen=True)
class Recorded:
    """No rule: starts and ends are given, and only places are chosen (see `recorded`)."""

    start_ms: NDArray[np.int64]
    """Start of each job [ms], not before its submission; -1 leaves it out (n,)."""
    end_ms: NDArray[np.int64]
    """End of each job [ms], not before its start; -1 leaves it out (n,)."""
    notes: tuple[str, ...] = ()
    """What the reader of the result should know, one sentence each."""


Mechanism: TypeAlias = Ordered | Planner | Recorded
"""Any mechanism."""
"""Any mechanism."""
