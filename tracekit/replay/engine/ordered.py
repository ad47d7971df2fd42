"""Policies that sort jobs by a key, with or without eviction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.run import Setting
    from tracekit.replay.keys import Key


@dataclass(frozen=True)
class Ordered:
    """Jobs start in the order of a key; with eviction, the key also decides which running jobs may be stopped."""

    key: Key
    """A function of `replay.keys`, or one with the same parameters."""
    scan: Literal["stop", "skip"] = "stop"
    """What a pass does at the first job that cannot start: 'stop' ends the pass, 'skip' goes on to the next job."""
    fit: Literal["place", "count"] = "place"
    """'place' if a job needs GPUs on specific nodes, 'count' if it only needs enough free GPUs."""
    preemptive: bool = False
    """Whether a waiting job may evict running jobs with larger keys."""
    drift: Literal["none", "time", "any"] = "any"
    """How a key changes while its job runs: 'none' (or only at level crossings), 'time' (falls by 1 per millisecond at
    full speed), 'any' (recomputed in each pass, which is slower)."""
    by_tenant: bool = False
    """Whether jobs of different tenants wait in separate queues."""
    by_arrival: bool = False
    """Whether keys never decrease from job to job, so that new jobs always join a queue at its end."""
    estimate_ms: NDArray[np.int64] | None = None
    """Expected run times (n,) [ms]; None means the actual ones."""
    value: NDArray[np.int64] | None = None
    """A number that the policy sets for each job; it is passed to the key (n,)."""
    thresholds: tuple[int, ...] = ()
    """Attained service at which a job's level rises, ascending [GPU*ms]."""
    level_values: tuple[int, ...] = ()
    """What the key gets as the job's level, one more than thresholds; if empty, the key gets the level's number."""
    promote_ppm: int = 0
    """A job stopped for at least this multiple of its last run [ppm] returns to the first level; 0 never."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by number of GPUs; the last entry covers larger gangs [ms]; None is 0."""
    relax_after_ms: int = 0
    """Wait after which a gang takes GPUs anywhere; 0 means never."""
    relax_scope: Literal[1, 2] = 2
    """How far such a gang may spread: 1 one group of nodes, 2 all nodes of one model."""
    scopes: tuple[Literal[0, 1, 2], ...] = ()
    """How far a gang may spread, step by step: 0 the fewest nodes, 1 one group, 2 all nodes of one model. The mechanism
    decides when a gang goes to the next step. If empty, `relax_after_ms` applies."""
    age_cap_ms: int = 0
    """Wait after which a job that cannot start ends the pass even if `scan` is 'skip'; 0 means never."""
    stall: bool = False
    """Whether every cluster event stops each running job for `value` ms, as another simulator does."""

    interval_ms: int = 0
    """Jobs start and stop only at multiples of this interval after the first submission [ms]; 0 acts at every event."""

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run of jobs in the order of a mechanism (see ordered.pxi)."""
        state = build(setting, self)
        arrays = open_nodes(state, setting.cluster)
        return Run(state, partial(compiled.run_ordered, arrays, engine_key(self.key), self.preemptive))
