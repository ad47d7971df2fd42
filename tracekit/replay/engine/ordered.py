"""Policies that put jobs into an order, with or without eviction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Run, Setting
    from tracekit.replay.keys import Key

__all__ = ["Ordered"]


@dataclass(frozen=True)
class Ordered:
    """Jobs start in the order of a key; with eviction, the key also decides which running jobs may be stopped."""

    key: Key
    """A function of `replay.keys`, or one with the same parameters."""
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
    """A number of the policy's own for each job, passed to the key (n,)."""
    thresholds: tuple[int, ...] = ()
    """Attained service at which a job's level rises, ascending [GPU*ms]."""
    level_values: tuple[int, ...] = ()
    """What the key gets as the job's level, one more than thresholds; the level's number when empty."""
    promote_ppm: int = 0
    """A job stopped for so many times its last run [ppm] begins again at the first level; 0 never."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    relax_after_ms: int = 0
    """Wait after which a gang takes GPUs anywhere; 0 never."""
    relax_scope: Literal[1, 2] = 2
    """How far it then goes: 1 one group of nodes, 2 all nodes of one model."""
    scopes: tuple[Literal[0, 1, 2], ...] = ()
    """How far apart a gang's GPUs may be, one step after the other: 0 on the fewest nodes, 1 in one group, 2 on all
    nodes of one model. What leads to the next step is the mechanism's. Empty: as `relax_after_ms` has it."""
    age_cap_ms: int = 0
    """Wait after which a job that cannot start ends the pass even when `scan` is 'skip'; 0 never."""
    stall: bool = False
    """Whether every event of the cluster stops each running job for `value` ms, as one peer's simulator has it."""

    interval_ms: int = 0
    """Jobs start and stop only at multiples of it after the first submission; 0 at every event [ms]."""

    takes_outages: ClassVar[bool] = True
    """Whether jobs may be stopped by a node that fails under them."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run of jobs in this order (see ordered.pxi)."""
        return prepared_by("engine.run_ordered", self, setting)
