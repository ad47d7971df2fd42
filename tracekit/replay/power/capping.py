"""A cap on GPU power."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled
from tracekit.replay.outcome import PowerUse
from tracekit.replay.results.energy import idle_energy_kwh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.build import Ordered
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.outcome import Outcome

_HOUR = 3_600_000
_MOST_MW = 1 << 40
"""Largest power of a cluster: 1.1 GW. One hour of it [mW * ms] stays far below the 64-bit limit."""


@dataclass(frozen=True)
class PowerCap:
    """Runs jobs in an order and keeps the power of all GPUs, including idle GPUs, within a cap (M7).

    All running jobs have the same clock: the highest clock that keeps the cap, or the lowest if none does.
    """

    order: Ordered
    """The order of the jobs, which must not evict."""
    cap_mw: int
    """Power cap for all GPUs together [mW], or 2^62 for no cap."""
    speed_ppm: tuple[int, ...]
    """Speed of a job at each clock [ppm], descending from 1,000,000 (K,)."""
    drawn_ppm: tuple[int, ...]
    """Share of `busy_mw` used at each clock [ppm], starting with 1,000,000 (K,)."""
    idle_mw: NDArray[np.int64]
    """Power of all GPUs of each node while it has no jobs [mW] (N,)."""
    busy_mw: NDArray[np.int64]
    """Utilization of each job times the peak power of its GPU [mW] (n,)."""
    rest_mw: NDArray[np.int64]
    """Utilization of each job times the idle power of its GPU, which `busy_mw` replaces [mW] (n,)."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run of jobs in an order, under a power cap.

        Raises
        ------
        UsageError
            The policy evicts, or the possible power of the GPUs is too large to count.
        """
        name, cluster = setting.name, setting.cluster
        if self.order.preemptive:
            raise UsageError(f"the policy {name}: a power cap works only with policies that do not evict jobs")
        most = int(self.idle_mw.sum()) + cluster.total_gpus * int(self.busy_mw.max(initial=0))
        if most >= _MOST_MW:
            what = f"the policy {name}: the GPUs could draw {most / 1e12:,.1f} GW"
            raise UsageError(what, hint="check the power in --models")
        state = build(setting, self.order)
        arrays = open_nodes(state, cluster)
        # The engine lists jobs that start and end.
        state.g["shared"], state.g["capped"], state.g["ended"], state.g["begun"] = 1, 1, NONE, NONE
        up, n = state.nodes["up"].astype(np.int8), len(state.jobs)
        m = np.zeros(1, struct_dtype("MeterRow"))
        m["cap"], m["lowest"] = self.cap_mw, len(self.speed_ppm) - 1
        m["present"], m["there"] = (self.idle_mw * up).sum(), (cluster.gpus * up).sum()
        m["total"] = m["present"]
        m["mean"] = int(self.idle_mw.sum()) // max(cluster.total_gpus, 1)
        meter = compiled.Meter(
            m=m,
            running=np.zeros(min(n, cluster.total_gpus), np.int32),
            at=np.zeros(n, np.int32),
            up=up,
            idle=np.ascontiguousarray(self.idle_mw, np.int64),
            busy=np.ascontiguousarray(self.busy_mw, np.int64),
            rest=np.ascontiguousarray(self.rest_mw, np.int64),
            speed=np.array(self.speed_ppm, np.int64),
            drawn=np.array(self.drawn_ppm, np.int64),
        )
        step = partial(compiled.run_capped, arrays, meter, engine_key(self.order.key))
        return Run(state, step, partial(self._with_energy, cluster, m))

    def _with_energy(self, cluster: Cluster, m: NDArray[Any], outcome: Outcome) -> Outcome:
        """Add the energy at the clocks that were used, and the effect of the cap, to the outcome."""
        found = m[0]
        on_top_kwh = (int(found["mwh"]) + int(found["part"]) / _HOUR) / 1e6
        use = PowerUse(
            peak_w=int(found["peak"]) / 1000,
            over_ms=int(found["over_at_end"]),
            slowed_ms=int(found["slowed_at_end"]),
            changes=int(found["changes"]),
        )
        energy = idle_energy_kwh(self.idle_mw, cluster, outcome) + on_top_kwh
        return replace(outcome, energy_kwh=energy, power=use)
