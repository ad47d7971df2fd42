"""The arrays of a run under a power cap (see capped.pxi), and the energy that it used."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import NONE
from tracekit.replay.keys import engine_key
from tracekit.replay.outcome import PowerUse
from tracekit.replay.results.energy import idle_energy_kwh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.capping.mechanism import PowerCap
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome


_HOUR = 3_600_000
_MOST_MW = 1 << 40
"""Largest power of a cluster, so that one hour of it [mW * ms] stays far below the 64-bit limit: 1.1 GW."""


class Meter(NamedTuple):
    """The arrays that a capped run needs in addition to the engine's."""

    m: NDArray[Any]
    """Sums, the current step, and what is reported at the end (1,)."""
    running: NDArray[np.int32]
    """Running jobs, in any order."""
    at: NDArray[np.int32]
    """Position of each running job in `running` (n,)."""
    up: NDArray[np.int8]
    """Nodes that are counted as available (N,)."""
    idle: NDArray[np.int64]
    """Idle power of each node [mW] (N,)."""
    busy: NDArray[np.int64]
    """Power of one GPU of each job at full clock [mW] (n,)."""
    rest: NDArray[np.int64]
    """Part of `busy` that the GPU would use while idle [mW] (n,)."""
    speed: NDArray[np.int64]
    """Speed of each step [ppm] (K,)."""
    drawn: NDArray[np.int64]
    """Share of `busy` used at each step [ppm] (K,)."""


def prepare(cap: PowerCap, setting: Setting) -> Run:
    """Return a run of jobs in an order, under a power cap.

    Raises
    ------
    UsageError
        The policy evicts, or the possible power of the GPUs is too large to count.
    """
    if cap.order.preemptive:
        raise UsageError(f"the policy {setting.name}: a power cap works only with policies that do not evict jobs")
    state = build(setting, cap.order)
    arrays = open_nodes(state, setting.cluster)
    power = meter(state, setting.cluster, cap, setting.name)
    step = partial(kernel.run_capped, arrays, kernel.Meter(power), engine_key(cap.order.key))
    return Run(state, step, partial(with_energy, cluster=setting.cluster, found=power))


def meter(state: EngineState, cluster: Cluster, cap: PowerCap, name: str) -> Meter:
    """Return the arrays of a capped run whose nodes have joined, and make the engine list jobs that start and end.

    Raises
    ------
    UsageError
        The possible power of the GPUs is too large to count.
    """
    most = int(cap.idle_mw.sum()) + cluster.total_gpus * int(cap.busy_mw.max(initial=0))
    if most >= _MOST_MW:
        what = f"the policy {name}: the GPUs could draw {most / 1e12:,.1f} GW"
        raise UsageError(what, hint="check the power in --models")
    g = state.g
    g["shared"], g["capped"], g["ended"], g["begun"] = 1, 1, NONE, NONE
    m = np.zeros(1, struct_dtype("MeterRow"))
    up = state.nodes["up"].astype(np.int8)
    m["cap"], m["lowest"] = cap.cap_mw, len(cap.speed_ppm) - 1
    m["present"], m["there"] = (cap.idle_mw * up).sum(), (cluster.gpus * up).sum()
    m["total"] = m["present"]
    m["mean"] = int(cap.idle_mw.sum()) // max(cluster.total_gpus, 1)
    n = len(state.jobs)
    return Meter(
        m,
        np.zeros(min(n, cluster.total_gpus), np.int32),
        np.zeros(n, np.int32),
        up,
        np.ascontiguousarray(cap.idle_mw, np.int64),
        np.ascontiguousarray(cap.busy_mw, np.int64),
        np.ascontiguousarray(cap.rest_mw, np.int64),
        np.array(cap.speed_ppm, np.int64),
        np.array(cap.drawn_ppm, np.int64),
    )


def with_energy(outcome: Outcome, cluster: Cluster, found: Meter) -> Outcome:
    """Return the outcome with the energy at the clocks that were used, and the effect of the cap."""
    m = found.m[0]
    on_top_kwh = (int(m["mwh"]) + int(m["part"]) / _HOUR) / 1e6
    use = PowerUse(
        peak_w=int(m["peak"]) / 1000,
        over_ms=int(m["over_at_end"]),
        slowed_ms=int(m["slowed_at_end"]),
        changes=int(m["changes"]),
    )
    return replace(outcome, energy_kwh=idle_energy_kwh(found.idle, cluster, outcome) + on_top_kwh, power=use)
