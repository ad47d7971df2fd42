"""Idle nodes are switched off, and switched on again when jobs wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled
from tracekit.replay.outcome import fact
from tracekit.replay.results.energy import KWH_MW_MS, idle_cost, idle_energy_kwh
from tracekit.text import counted, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.costs import PowerPrices
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.build import Ordered
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome


@dataclass(frozen=True)
class Switching:
    """Runs jobs in an order, switches idle nodes off, and on again when jobs wait.

    Nodes of one domain and GPU model form a pool, and each pool is handled separately.
    """

    order: Ordered
    """The order of the jobs, which must not evict and must place jobs on nodes."""
    off_after_ms: int
    """Time for which a node must be completely idle before it may be switched off [ms], or 2^62 for never."""
    wake_ms: int
    """Time from the decision to switch a node on until jobs may start there, at least 1 [ms]."""
    reserve_nodes: int
    """Number of completely idle nodes of each pool that stay on."""
    reserve_gpus: int
    """Number of free GPUs of each pool that stay on."""
    idle_mw: NDArray[np.int64]
    """Power of all GPUs of each node while it is on without a job [mW] (N,)."""
    off_mw: NDArray[np.int64]
    """Power of each node while it is off [mW] (N,)."""
    on_top_mw: NDArray[np.int64]
    """Additional power of a GPU with a job on it, by job [mW] (n,)."""
    prices: PowerPrices
    """Energy prices."""
    held_ms: NDArray[np.int64] | None = None
    """Time for which the policy makes each job wait after its submission [ms] (n,), or None if it delays no job."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run of jobs in an order, on nodes that are switched.

        Raises
        ------
        UsageError
            The order evicts, or jobs are placed by count.
        """
        if self.order.preemptive or self.order.fit != "place":
            raise UsageError(
                f"the policy {setting.name}: nodes can be switched off only if jobs have places and the policy does "
                "not evict jobs"
            )
        places = None
        order = self.order
        if self.held_ms is not None:
            jobs, places = setting.jobs.held_back(self.held_ms)
            setting = replace(setting, jobs=jobs, assignment=assign(jobs, setting.cluster))
            if order.estimate_ms is not None:
                order = replace(order, estimate_ms=order.estimate_ms[places])
        state = build(setting, order)
        cluster = setting.cluster
        # One more change per node, for its pending switch.
        changes = np.concatenate([state.changes, np.zeros(cluster.nodes, state.changes.dtype)])
        state = state._replace(changes=changes)
        arrays = open_nodes(state, cluster)
        rule, pools = self._rule(), _pools(state)
        unknown = np.full(cluster.nodes, NONE, np.int64)
        switches = compiled.Switches(
            m=rule,
            pools=pools,
            status=np.zeros(cluster.nodes, np.int8),
            due=unknown,
            idle_since=unknown.copy(),
            price=np.array(self.prices.price, np.float64),
        )
        step = partial(compiled.run_switched, arrays, switches, engine_key(order.key))
        return Run(state, step, partial(_complete, self, cluster, pools, places))

    def _rule(self) -> NDArray[Any]:
        m = np.zeros(1, struct_dtype("SwitchRow"))
        m["off_after"], m["wake_ms"] = self.off_after_ms, self.wake_ms
        m["reserve_nodes"], m["reserve_gpus"] = self.reserve_nodes, self.reserve_gpus
        m["lead"], m["paid"] = self.prices.lead_ms, self.prices.paid(0)
        return m


_PER_JOB = (
    "first_start_ms",
    "end_ms",
    "run_ms",
    "overhead_ms",
    "preemptions",
    "migrations",
    "nodes_spanned",
    "unschedulable",
    "held_milli_ms",
)


def _pools(state: EngineState) -> NDArray[Any]:
    groups = state.groups
    # Groups are sorted by domain, then model.
    change = (np.diff(groups["domain"]) != 0) | (np.diff(groups["model"]) != 0)
    low = np.concatenate([[0], np.flatnonzero(change) + 1]) if len(groups) else np.zeros(0, np.int64)
    high = np.append(low[1:], len(groups))[: len(low)]
    pools = np.zeros(len(low), struct_dtype("SwitchPool"))
    pools["domain"], pools["group_low"], pools["group_high"] = groups["domain"][low], low, high
    pools["node_low"], pools["node_high"] = groups["low"][low], groups["high"][high - 1]
    total = np.concatenate([[0], np.cumsum(state.nodes["gpus"])])
    pools["gpus"] = total[pools["node_high"]] - total[pools["node_low"]]
    return pools


def _complete(
    rule: Switching, cluster: Cluster, pools: NDArray[Any], places: NDArray[np.int64] | None, outcome: Outcome
) -> Outcome:
    """Return the outcome with jobs in their own order, and with the energy adjusted for nodes that were off."""
    if places is not None:
        outcome = _in_order(outcome, places)
    there = replace(outcome, free_milli_ms=outcome.free_milli_ms + 1000 * int(pools["down_ms_at_end"].sum()))
    always_on = idle_energy_kwh(rule.idle_mw, cluster, there)
    # The nodes of a pool have one GPU model.
    saved_mw = ((rule.idle_mw - rule.off_mw) / np.maximum(cluster.gpus, 1))[pools["node_low"]]
    saved = float((saved_mw * pools["off_ms_at_end"]).sum()) / KWH_MW_MS
    on_top = float((outcome.held_milli_ms * (rule.on_top_mw / 1000)).sum()) / KWH_MW_MS
    cost = idle_cost(rule.idle_mw, cluster, outcome.makespan_ms, rule.prices, always_on)
    cost -= float((saved_mw * pools["unpaid_at_end"]).sum()) / KWH_MW_MS
    cost += _cost_on_top(outcome, rule)
    off_ms = float(pools["off_ms_at_end"].sum())
    gpu_ms = (outcome.busy_milli_ms + there.free_milli_ms) / 1000
    wakes = int(pools["wakes_at_end"].sum())
    effect = (
        f"{percent(off_ms / gpu_ms) if gpu_ms else 'none'} of the GPU time of all nodes; "
        f"{counted(wakes, 'wake-ups')} of {rule.wake_ms / 1000:g} s; "
        f"{saved:,.1f} kWh saved of {always_on + on_top:,.1f} kWh; "
        f"the energy cost {cost:,.2f} {rule.prices.unit}"
    )
    facts = {**outcome.facts, "switched nodes": fact("nodes that were switched off", effect, "the engine")}
    return replace(outcome, energy_kwh=always_on - saved + on_top, energy_cost=cost, facts=facts)


def _cost_on_top(outcome: Outcome, rule: Switching) -> float:
    """Return the cost of the jobs' energy beyond the idle power. No job was stopped, so each ran without a break."""
    done = np.flatnonzero(outcome.end_ms >= 0)
    first, end = outcome.first_start_ms[done], outcome.end_ms[done]
    milli = outcome.held_milli_ms[done] / np.maximum(end - first, 1)
    paid = rule.prices.paid(end) - rule.prices.paid(first)
    return float((milli / 1000 * rule.on_top_mw[done] * paid).sum()) / KWH_MW_MS


def _in_order(outcome: Outcome, places: NDArray[np.int64]) -> Outcome:
    """Return an outcome in submission order. The values of job i come from position `places[i]`."""
    back: dict[str, Any] = {}
    for name in _PER_JOB:
        values = getattr(outcome, name)
        back[name] = np.empty_like(values)
        back[name][places] = values
    log = outcome.log
    if log is not None:
        log = log.copy()
        named = log["job"] >= 0
        log["job"][named] = places[log["job"][named]]
    return replace(outcome, **back, log=log)
