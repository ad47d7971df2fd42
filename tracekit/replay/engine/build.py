"""Lay out the engine's arrays for one run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.engine.blocks import MOST_GPUS
from tracekit.replay.engine.compiled import compiled
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.placement import BUDDY, RULES
from tracekit.replay.engine.state import DRIFT_ANY, DRIFT_NONE, DRIFT_TIME, FUTURE, PPM, State, records
from tracekit.replay.mechanisms import (
    Backfill,
    Cells,
    Fractional,
    Ordered,
    Planner,
    Recorded,
    Sharing,
    Tenants,
    by_arrival,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.cluster import Cluster
    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism


__all__ = ["SAMPLES", "build", "lay_queues"]

SAMPLES = 2048
"""Most rows of a timeline; a full table keeps every second row."""

_DRIFTS = {"none": DRIFT_NONE, "time": DRIFT_TIME, "any": DRIFT_ANY}


def build(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Mechanism,
    *,
    rule: str = "consolidate",
    spread: NDArray[np.int32] | None = None,
    log_rows: int = 0,
) -> State:
    """Return the state before the first instant.

    Parameters
    ----------
    jobs, cluster, assignment
        What runs, where, and which nodes each job accepts.
    mechanism : Ordered or Planner
        The policy's rule.
    rule : str
        A placement of `placement.RULES`.
    spread : array (k0, k) of int32, optional
        Speed of a gang on k nodes where k0 would do [ppm]; 1,000,000 everywhere when None.
    log_rows : int
        Room for the event log; 0 keeps none.

    Raises
    ------
    UsageError
        Placement in buddy blocks was asked for where there is none.
    """
    _check_rule(rule, cluster, mechanism)
    if isinstance(mechanism, Planner):
        state = build(jobs, cluster, assignment, _unqueued(mechanism), rule=rule, spread=spread, log_rows=log_rows)
        return _planned(state, mechanism)
    if isinstance(mechanism, Fractional):
        # Divided GPUs are laid out by `fractional_build`; here is what any policy has.
        return build(jobs, cluster, assignment, replace(mechanism.order, fit="count"), rule=rule, log_rows=log_rows)
    if isinstance(mechanism, Recorded):
        state = build(jobs, cluster, assignment, Ordered(by_arrival), rule=rule, log_rows=log_rows)
        # What did run had a place: a gang may be anywhere among nodes of one model.
        state.demands["scope"] = 2
        return state
    if isinstance(mechanism, Cells | Tenants):
        rule = "buddy" if isinstance(mechanism, Cells) else rule
        jobs, mechanism = replace(jobs, tenant=mechanism.tenant), mechanism.order
    if isinstance(mechanism, Backfill):
        order = replace(mechanism.order, scan="skip", by_arrival=False, drift="none")
        state = build(jobs, cluster, assignment, order, rule=rule, spread=spread, log_rows=log_rows)
        # The pass wants to hear of jobs that ended or relaxed, and what the ended held.
        state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, NONE, NONE, 1
        # Conservative backfilling finds jobs in its waitlist; queues only count them, which rings do at less cost.
        state.g["ring"] = mechanism.kind == "conservative"
        return state
    if isinstance(mechanism, Sharing):
        return _shared(jobs, cluster, assignment, mechanism, spread, log_rows)
    scopes = _scopes(mechanism)
    buddy = RULES[rule] == BUDDY and mechanism.fit == "place"
    demands, demand_of, never = _demands(jobs, assignment, mechanism, buddy=buddy)
    queues, domains, room = lay_queues(assignment, demands, demand_of, mechanism)
    nodes, groups, bits, tops = _index(cluster, assignment, buddy=buddy)
    table = np.zeros(len(jobs), records("BLOCK_JOB", "JOB") if buddy else records("JOB"))
    estimate = jobs.work_ms if mechanism.estimate_ms is None else mechanism.estimate_ms
    value = np.zeros(len(jobs), np.int64) if mechanism.value is None else mechanism.value
    _fill_jobs(table, jobs.submit_ms, jobs.work_ms, jobs.devices, demand_of, estimate, value, never)
    changes = np.zeros(len(cluster.change_ms), records("CHANGE"))
    changes["time"], changes["node"], changes["up"] = cluster.change_ms, cluster.change_node, cluster.change_up
    g = np.zeros(1, records("GLOBAL"))
    g["jobs"], g["changes"], g["log_on"] = len(jobs), len(changes), log_rows > 0
    g["skip"], g["by_count"] = mechanism.scan == "skip", mechanism.fit == "count"
    g["ring"] = mechanism.by_arrival and not mechanism.preemptive and len(scopes) == 1
    g["rule"], g["preemptive"], g["drift"] = RULES[rule], mechanism.preemptive, _DRIFTS[mechanism.drift]
    g["relax_ms"], g["age_cap"] = mechanism.relax_after_ms, mechanism.age_cap_ms
    g["levels"], g["stall"], g["wake"] = len(mechanism.thresholds), mechanism.stall, NONE
    g["promote"], g["speed"], g["lacking"] = mechanism.promote_ppm, PPM, 1
    g["listed"] = mechanism.preemptive and mechanism.fit == "place" and mechanism.drift != "any"
    nodes["holder"] = NONE
    g["sample_step"] = _sample_step(jobs)
    held = int(cluster.gpus.sum())
    running = min(len(jobs), held)
    takes = _unused_takes(2 * held + 1)
    n = len(jobs)
    waits_in_events = len(scopes) > 1 or mechanism.promote_ppm > 0
    ranks = 0
    if mechanism.preemptive:
        base = np.minimum(_gpus_of_domains(cluster), n)
        domains["rank_base"] = np.concatenate([[0], np.cumsum(base)[:-1]])
        ranks = int(base.sum())
    levels = mechanism.level_values or tuple(range(len(mechanism.thresholds) + 1))
    return State(
        g=g,
        jobs=table,
        nodes=nodes,
        groups=groups,
        domains=domains,
        demands=demands,
        queues=queues,
        takes=takes,
        bits=bits,
        tops=tops,
        events=np.zeros(n if waits_in_events else running, records("HEAP")),
        event_at=np.full(n, NONE, np.int32),
        waiting=np.zeros(room, records("HEAP")),
        waiting_at=np.full(n, NONE, np.int32),
        ranks=np.zeros(ranks, records("HEAP")),
        rank_at=np.full(n if mechanism.preemptive else 0, NONE, np.int32),
        changes=changes,
        overheads=np.zeros(1, np.int64) if mechanism.overhead_ms is None else mechanism.overhead_ms.astype(np.int64),
        thresholds=np.array(mechanism.thresholds, np.int64),
        level_values=np.array(levels, np.int64),
        spread=np.zeros((1, 1), np.int32) if spread is None else spread,
        log=np.zeros(log_rows, records("LOG")),
        samples=np.zeros(SAMPLES, records("SAMPLE")),
        touched=np.zeros(len(domains), np.int32),
        scratch=np.zeros(running if mechanism.preemptive else 0, np.int32),
        evicted=np.zeros(running if mechanism.preemptive else 0, np.int32),
        active=np.zeros(0, np.int32),
        loosened=np.zeros(len(takes) if g["listed"][0] else 0, np.int32),
    )


def _check_rule(rule: str, cluster: Cluster, mechanism: Mechanism) -> None:
    if RULES[rule] != BUDDY or isinstance(mechanism, Cells | Fractional | Sharing):
        return  # these choose places in their own way
    if not isinstance(mechanism, Ordered):
        raise UsageError(
            f"the placement 'buddy' does not go with a policy of the kind {type(mechanism).__name__}",
            hint="use it with fifo, sjf, ssf, qssf, srtf, srsf, las or gittins, or choose another placement",
        )
    wide = np.flatnonzero(cluster.gpus > MOST_GPUS)
    if len(wide):
        raise UsageError(
            f"node {cluster.node_id[wide[0]]} has {cluster.gpus[wide[0]]} GPUs; the placement 'buddy' divides nodes of "
            f"at most {MOST_GPUS}",
            hint="choose another placement",
        )


def _scopes(mechanism: Ordered) -> tuple[int, ...]:
    """Return how far apart a gang may be, step after step."""
    if mechanism.scopes:
        return mechanism.scopes
    return (0, mechanism.relax_scope) if mechanism.relax_after_ms > 0 else (0,)


def _shared(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Sharing,
    spread: NDArray[np.int32] | None,
    log_rows: int,
) -> State:
    """Return the state of a policy that shares GPUs: jobs of equal memory and utilization wait in one line."""
    kinds = np.column_stack([mechanism.utilization_ppm * mechanism.test, np.atleast_2d(mechanism.memory_ppm)[0]])
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    # A gang may be anywhere among nodes of one model.
    order = Ordered(mechanism.key, scan="skip", drift="none", by_tenant=True, scopes=(2,))
    alike = replace(jobs, tenant=kind.reshape(-1).astype(np.int32))
    state = build(alike, cluster, assignment, order, spread=spread, log_rows=log_rows)
    state.g["shared"], state.g["ended"] = 1, NONE
    most = min(len(jobs), int(cluster.gpus.sum()) * mechanism.residents)
    return state._replace(events=np.zeros(most, records("HEAP")))


def _planned(state: State, planner: Planner) -> State:
    """Return the state of a planner: nothing is queued, and several jobs may share a GPU."""
    n, share = len(state.jobs), planner.share
    state.g["planned"], state.g["scope"], state.g["asked"] = 1, planner.scope, NONE
    # The last demand is where a plan's wish is written before it is placed.
    wish = np.zeros(1, state.demands.dtype)
    state = state._replace(active=np.zeros(n, np.int32), demands=np.concatenate([state.demands, wish]))
    if share == 1:
        return state
    gpus = state.nodes["gpus"]
    total = int(gpus.sum())
    nodes = np.zeros(len(gpus), records("SEAT_NODE", "NODE"))
    for field in state.nodes.dtype.names or ():
        nodes[field] = state.nodes[field]
    nodes["seat"] = np.cumsum(gpus) - gpus
    # Twice the seats: a job that moves keeps its old chain until it has the new one.
    takes = _unused_takes(total + 2 * total * share + 1)
    state.g["free_take"] = total
    return state._replace(nodes=nodes, takes=takes, events=np.zeros(min(n, total * share), records("HEAP")))


def _unused_takes(count: int) -> NDArray[np.void]:
    takes = np.zeros(count, records("TAKE"))
    takes["next"] = np.arange(1, count + 1)
    takes["next"][-1] = NONE
    takes["gpu"] = NONE
    return takes


def _unqueued(planner: Planner) -> Ordered:
    # A gang that may be spread has a place wherever a relaxed one has.
    return Ordered(
        by_arrival,
        scan="stop",
        fit=planner.fit,
        overhead_ms=planner.overhead_ms,
        estimate_ms=planner.estimate_ms,
        relax_after_ms=0,
    )


def _gpus_of_domains(cluster: Cluster) -> NDArray[np.int64]:
    return np.bincount(cluster.domain, weights=cluster.gpus, minlength=len(cluster.domains)).astype(np.int64)


def _sample_step(jobs: Jobs) -> int:
    """Return a first step that the longest job alone would not fill the table with [ms]."""
    horizon = int(jobs.submit_ms[-1] + jobs.work_ms.max()) if len(jobs) else 0
    return max(horizon // SAMPLES, 1)


def _demands(
    jobs: Jobs, assignment: Assignment, mechanism: Ordered, *, buddy: bool
) -> tuple[NDArray[np.void], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the distinct demands, each job's demand, and which jobs can never run.

    Where a gang relaxes after a while, each demand is followed by its relaxed forms.
    """
    largest = int(jobs.devices.max(initial=1)) + 1
    models = int(jobs.model.max(initial=-1)) + 2
    code = (assignment.domain.astype(np.int64) * models + jobs.model + 1) * largest + jobs.devices
    if mechanism.by_tenant:
        code = code * (int(jobs.tenant.max(initial=-1)) + 2) + jobs.tenant + 1
    distinct, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    scopes = _scopes(mechanism)
    widest = max(scopes)
    if buddy:
        fits = assignment.can_ever_fit("blocks")
    else:
        fits = assignment.can_ever_fit(mechanism.fit, relaxed=widest > 0, scope=1 if widest == 1 else 2)
    forms = len(scopes)
    demands = np.zeros(max(len(distinct), 1) * forms, records("DEMAND"))
    for k in range(len(distinct)):
        j = first[k]
        for form in range(forms):
            row = demands[k * forms + form]
            row["accept"] = assignment.accept_of(int(j))
            row["domain"] = max(int(assignment.domain[j]), 0)
            row["gpus"] = jobs.devices[j]
            row["tenant"] = jobs.tenant[j] if mechanism.by_tenant else NONE
            row["scope"] = scopes[form]
            row["relaxed"] = k * forms + form + 1 if form + 1 < forms else NONE
    return demands, (inverse * forms).astype(np.int32), ~fits


def lay_queues(
    assignment: Assignment, demands: NDArray[np.void], demand_of: NDArray[np.int32], mechanism: Ordered
) -> tuple[NDArray[np.void], NDArray[np.void], int]:
    """Return queues, those of a domain side by side, domains, and the room that all queues need together."""
    domains = np.zeros(max(assignment.domains, 1), records("DOMAIN"))
    for d in range(assignment.domains):
        domains["group_low"][d], domains["group_high"][d] = assignment.groups_of(d)
    per_demand = np.bincount(demand_of, minlength=len(demands))
    forms = len(_scopes(mechanism))
    for form in range(1, forms):
        per_demand[form::forms] = per_demand[::forms]
    if mechanism.scan == "stop" and mechanism.by_tenant:
        pairs = demands["domain"].astype(np.int64) * (int(demands["tenant"].max()) + 1) + demands["tenant"]
        _, first, queue_of = np.unique(pairs, return_index=True, return_inverse=True)
        room = np.bincount(queue_of, weights=per_demand).astype(np.int64)
        queues = np.zeros(len(first), records("QUEUE"))
        queues["domain"], queues["tenant"] = demands["domain"][first], demands["tenant"][first]
    elif mechanism.scan == "stop":
        queue_of = demands["domain"].astype(np.int64)
        room = np.bincount(assignment.domain[assignment.domain >= 0], minlength=len(domains))
        queues = np.zeros(len(domains), records("QUEUE"))
        queues["domain"] = np.arange(len(domains))
    else:
        order = np.lexsort((demands["tenant"], demands["domain"]))
        queue_of = np.empty(len(demands), np.int64)
        queue_of[order] = np.arange(len(demands))
        room = per_demand[order]
        queues = np.zeros(len(demands), records("QUEUE"))
        queues["domain"], queues["tenant"] = demands["domain"][order], demands["tenant"][order]
    demands["queue"] = queue_of
    queues["base"] = np.concatenate([[0], np.cumsum(room)[:-1]])
    domains["queue_low"] = np.searchsorted(queues["domain"], np.arange(len(domains)), "left")
    domains["queue_high"] = np.searchsorted(queues["domain"], np.arange(len(domains)), "right")
    return queues, domains, int(room.sum())


def _index(
    cluster: Cluster, assignment: Assignment, *, buddy: bool
) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return nodes and groups, and the empty bit index; nodes join when the run begins."""
    groups = np.zeros(len(assignment.group_low), records("GROUP"))
    nodes = np.zeros(cluster.nodes, records("BLOCK_NODE", "NODE") if buddy else records("NODE"))
    bits = tops = 0
    for k, row in enumerate(groups):
        low, high = int(assignment.group_low[k]), int(assignment.group_high[k])
        words = (high - low + 63) // 64
        summary = (words + 63) // 64
        row["domain"], row["model"] = assignment.group_domain[k], assignment.group_model[k]
        row["low"], row["high"], row["largest"] = low, high, cluster.gpus[low:high].max(initial=0)
        row["words"], row["summary"], row["bits"], row["tops"], row["speed"] = words, summary, bits, tops, PPM
        bits += words * (int(row["largest"]) + 1)
        tops += summary * (int(row["largest"]) + 1)
        nodes["group"][low:high] = k
        nodes["bit"][low:high] = np.arange(high - low)
    nodes["gpus"] = nodes["free"] = cluster.gpus
    return nodes, groups, np.zeros(bits, np.uint64), np.zeros(tops, np.uint64)


@compiled
def _fill_jobs(
    table: Any, submit: Any, work: Any, devices: Any, demand: Any, estimate: Any, value: Any, never: Any
) -> None:
    for j in range(len(table)):
        job = table[j]
        job.submit = submit[j]
        job.remaining = work[j] * PPM
        job.gpus = devices[j]
        job.demand = demand[j]
        job.estimate = estimate[j]
        job.value = value[j]
        job.never = never[j]
        job.first = job.end = NONE
        job.take = NONE
        job.status = FUTURE
        job.key = job.since = job.attained = job.overhead = job.ran = job.overhead_done = job.stopped = 0
        job.base = job.begun = 0
        job.rate = job.pace = PPM
        job.preemptions = job.migrations = job.nodes = job.evicted = job.level = job.tenant = 0
