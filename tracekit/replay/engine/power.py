"""A cap on the power of the GPUs: the clock of all running jobs is lowered, step by step, until it is kept.

Beside the engine's state stand the sums of what running jobs would draw at full clock and of what they would draw idle,
so that the power at any clock is one multiplication away (M7), and the list of running jobs, looked at only when the
step changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.loop import next_instant
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import list_pass
from tracekit.replay.engine.progress import change_rate
from tracekit.replay.engine.state import PPM
from tracekit.replay.outcome import PowerUse
from tracekit.replay.results.energy import idle_energy_kwh
from tracekit.text import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.cluster import Cluster
    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Mechanism, PowerCap
    from tracekit.replay.outcome import Outcome

__all__ = ["Meter", "cap_of", "meter", "run_capped", "told_power", "with_energy"]

_HOUR = 3_600_000
_MOST_MW = 1 << 40
"""No cluster may draw more, so that an hour of it [mW * ms] is far from the end of 64 bits: 1.1 GW."""

_METER = np.dtype(
    [
        (name, np.int64)
        for name in [
            "cap",
            "lowest",
            "step",
            "size",
            "full",
            "rest",
            "level",
            "total",
            "present",
            "there",
            "mean",
            "change",
            "since",
            "mwh",
            "part",
            "peak",
            "over",
            "slowed",
            "changes",
            "over_at_end",
            "slowed_at_end",
        ]
    ]
)


class Meter(NamedTuple):
    """Arrays of a capped run, beside the engine's."""

    m: NDArray[Any]
    """Sums, the step in force and what is told at the end (1,)."""
    running: NDArray[np.int32]
    """Running jobs, in no order."""
    at: NDArray[np.int32]
    """Position of each running job in `running` (n,)."""
    up: NDArray[np.int8]
    """Nodes that are counted as there (N,)."""
    idle: NDArray[np.int64]
    """Idle power of each node [mW] (N,)."""
    busy: NDArray[np.int64]
    """Of each job a GPU at full clock [mW] (n,)."""
    rest: NDArray[np.int64]
    """Part of `busy` that the GPU would draw idle [mW] (n,)."""
    speed: NDArray[np.int64]
    """Speed of each step [ppm] (K,)."""
    drawn: NDArray[np.int64]
    """Part of `busy` that is drawn at each step [ppm] (K,)."""


def cap_of(mechanism: Mechanism, name: str) -> PowerCap | None:
    """Return the cap of a mechanism, None without one.

    Raises
    ------
    UsageError
        The mechanism cannot have one.
    """
    inside = getattr(mechanism, "order", None)
    if getattr(inside, "power", None) is not None:
        other = type(mechanism).__name__
        raise UsageError(f"the policy {name}: a power cap goes with jobs in one order, not with {other}")
    cap: PowerCap | None = getattr(mechanism, "power", None)
    if cap is not None and getattr(mechanism, "preemptive", False):
        raise UsageError(f"the policy {name}: a power cap goes only with policies that evict nothing")
    return cap


def meter(state: State, cluster: Cluster, cap: PowerCap, name: str) -> Meter:
    """Return the arrays of a capped run, whose nodes have joined, and let the engine tell who starts and ends.

    Raises
    ------
    UsageError
        The GPUs could draw more than can be counted.
    """
    most = int(cap.idle_mw.sum()) + cluster.total_gpus * int(cap.busy_mw.max(initial=0))
    if most >= _MOST_MW:
        what = f"the policy {name}: the GPUs could draw {most / 1e12:,.1f} GW"
        raise UsageError(what, hint="look at the power in --models")
    g = state.g
    g["shared"], g["capped"], g["ended"], g["begun"] = 1, 1, NONE, NONE
    m = np.zeros(1, _METER)
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
        cap.idle_mw,
        cap.busy_mw,
        cap.rest_mw,
        np.array(cap.speed_ppm, np.int64),
        np.array(cap.drawn_ppm, np.int64),
    )


def with_energy(outcome: Outcome, cluster: Cluster, found: Meter) -> Outcome:
    """Return the outcome with the energy at the clocks that there were, and what the cap did."""
    m = found.m[0]
    on_top_kwh = (int(m["mwh"]) + int(m["part"]) / _HOUR) / 1e6
    told = PowerUse(
        peak_w=int(m["peak"]) / 1000,
        over_ms=int(m["over_at_end"]),
        slowed_ms=int(m["slowed_at_end"]),
        changes=int(m["changes"]),
    )
    return replace(outcome, energy_kwh=idle_energy_kwh(found.idle, cluster, outcome) + on_top_kwh, power=told)


def told_power(outcome: Outcome) -> dict[str, str]:
    """Return what a result prints of its power cap; `Outcome.power` is there."""
    found = outcome.power
    if found is None:
        return {}
    span = max(outcome.makespan_ms, 1)
    return {
        "title": "the power cap",
        "value": (
            f"at most {found.peak_w / 1000:,.1f} kW were drawn; the clock was lowered for"
            f" {percent(found.slowed_ms / span)} of the time, and for {percent(found.over_ms / span)} even the lowest"
            " did not keep the cap"
        ),
        "source": "the engine",
    }


@inner
def _book(p: Any, g: Any) -> None:
    """Add the time since the last look at the power that held.

    The energy on top of the idle power is a whole number of mWh and a part of one [mW * ms]. Whole hours go straight to
    the first; the rest of the time, below an hour, times less than 2^40 mW stays below 2^62. The first has room for
    9 * 10^12 kWh.
    """
    m = p.m[0]
    elapsed = g.now - m.since
    if elapsed > 0:
        m.since = g.now
        hours = elapsed // _HOUR
        m.part += m.level * (elapsed - hours * _HOUR)
        carried = m.part // _HOUR
        m.part -= carried * _HOUR
        m.mwh += m.level * hours + carried
        m.peak = max(m.peak, m.total)
        if m.total > m.cap:
            m.over += elapsed
        if m.step > 0:
            m.slowed += elapsed
    if g.last_end == g.now:
        m.over_at_end = m.over
        m.slowed_at_end = m.slowed


@inner
def _count_jobs(s: Any, p: Any) -> None:
    """Take jobs that ended in this instant off the sums, and add those that started."""
    g = s.g[0]
    m = p.m[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        m.full -= s.jobs[j].gpus * p.busy[j]
        m.rest -= s.jobs[j].gpus * p.rest[j]
        m.size -= 1
        last = p.running[m.size]
        p.running[p.at[j]] = last
        p.at[last] = p.at[j]
    while g.begun != NONE:
        j = g.begun
        g.begun = s.jobs[j].stopped
        m.full += s.jobs[j].gpus * p.busy[j]
        m.rest += s.jobs[j].gpus * p.rest[j]
        p.running[m.size] = j
        p.at[j] = m.size
        m.size += 1


@inner
def _idle_power(s: Any, p: Any) -> int:
    """Return what the GPUs draw by being there [mW]; those in use on nodes that left draw the cluster's mean."""
    g = s.g[0]
    m = p.m[0]
    while m.change < g.change:
        index = s.changes[m.change].node
        m.change += 1
        sign = np.int64(s.nodes[index].up) - np.int64(p.up[index])
        p.up[index] = s.nodes[index].up
        m.present += sign * p.idle[index]
        m.there += sign * s.nodes[index].gpus
    return m.present + max(g.busy + g.free - m.there, 0) * m.mean


@inner
def _keep_cap(s: Any, p: Any) -> None:
    """Choose the highest clock at which the cap is kept, the lowest if none does, and let all running jobs have it."""
    g = s.g[0]
    m = p.m[0]
    _book(p, g)
    _count_jobs(s, p)
    idle = _idle_power(s, p)
    step = np.int64(0)
    level = p.drawn[0] * m.full // PPM - m.rest
    while idle + level > m.cap and step < m.lowest and m.size > 0:
        step += 1
        level = p.drawn[step] * m.full // PPM - m.rest
    m.level = level
    m.total = idle + level
    if step == m.step:
        return
    m.step = step
    m.changes += 1
    g.speed = p.speed[step]
    for i in range(m.size):
        j = p.running[i]
        change_rate(s, j, max(g.speed * s.jobs[j].pace // PPM, 1))


@compiled
def run_capped(s: Any, p: Any, key: Any, instants: int) -> bool:
    """Run at most so many instants of an ordering policy under a cap; return False when nothing is left to happen."""
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            list_pass(s, key, d, s.scratch)
        g.touched = 0
        g.loosened = 0
        _keep_cap(s, p)
    return True
