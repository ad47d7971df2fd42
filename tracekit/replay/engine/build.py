"""Policies that sort jobs by a key, and the engine's arrays for one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import numbered
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, EngineState, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.keys import Key
    from tracekit.replay.outages.asked import Checkpoints


@dataclass(frozen=True)
class Ordered:
    """Jobs start in the order of a key. With eviction, the key also decides which running jobs may be stopped."""

    key: Key
    """A function of `replay.keys`, or one with the same parameters."""
    scan: Literal["stop", "skip"] = "stop"
    """What a pass does at the first job that cannot start: 'stop' ends the pass, 'skip' goes on to the next job."""
    fit: Literal["place", "count"] = "place"
    """'place' if a job needs GPUs on specific nodes, 'count' if it only needs enough free GPUs."""
    preemptive: bool = False
    """Whether a waiting job may evict running jobs with larger keys."""
    drift: Literal["none", "time", "any"] = "any"
    """How a key changes while its job runs. 'none': not at all, or only when the job's level changes. 'time': it falls
    by 1 per millisecond at full speed. 'any': it is recomputed in each pass, which is slower."""
    by_tenant: bool = False
    """Whether jobs of different tenants wait in separate queues."""
    by_arrival: bool = False
    """Whether keys never decrease from job to job, so that new jobs always join the end of a queue."""
    estimate_ms: NDArray[np.int64] | None = None
    """Expected run times [ms], or None for the actual run times (n,)."""
    value: NDArray[np.int64] | None = None
    """A number that the policy sets for each job and that is passed to the key (n,)."""
    thresholds: tuple[int, ...] = ()
    """Attained service at which a job's level rises, ascending [GPU*ms]."""
    level_values: tuple[int, ...] = ()
    """The values that the key gets for the levels, one more than there are thresholds. If empty, the level numbers."""
    promote_ppm: int = 0
    """A job that pauses for at least this multiple of its last run [ppm] returns to the first level. 0 means never."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost per preemption or migration by number of GPUs [ms], or None for 0. The last entry covers larger gangs."""
    relax_after_ms: int = 0
    """Wait after which a gang takes GPUs anywhere, or 0 for never."""
    relax_scope: Literal[1, 2] = 2
    """How far such a gang may spread: over one group of nodes (1) or all nodes of one model (2)."""
    scopes: tuple[Literal[0, 1, 2], ...] = ()
    """How far a gang may spread, step by step: over the fewest nodes (0), one group (1) or all nodes of one model (2).
    The mechanism decides when a gang goes to the next step. If empty, `relax_after_ms` applies."""
    age_cap_ms: int = 0
    """Wait after which a job that cannot start ends the pass even if `scan` is 'skip', or 0 for never."""
    stall: bool = False
    """Whether every cluster event stops each running job for `value` ms, as some simulators do."""

    interval_ms: int = 0
    """Jobs start and stop only at multiples of this interval after the first submission [ms], or at any event if 0."""

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run of jobs in this order (see ordered.pxi)."""
        state = build(setting, self)
        arrays = open_nodes(state, setting.cluster)
        return Run(state, partial(compiled.run_ordered, arrays, engine_key(self.key), self.preemptive))


RULES = {
    "consolidate": "BEST_FIT",
    "best-fit": "BEST_FIT",
    "worst-fit": "WORST_FIT",
    "spread": "WORST_FIT",
    "first-fit": "FIRST_FIT",
    "buddy": "BUDDY",
}
"""Names of the placement rules, with the kernel's constant for each (see placement.pxi for the rules)."""


SAMPLES = 2048
"""Largest number of rows in a timeline. A full table keeps every second row."""


def build(setting: Setting, order: Ordered, *, rule: str | None = None, kind: str = "Ordered") -> EngineState:
    """Return the state before the first instant, when no node has joined yet.

    Parameters
    ----------
    setting : Setting
        The input of the run.
    order : Ordered
        The order of waiting jobs. Jobs of one class share a queue, sorted by key.
    rule : str, optional
        A placement of `RULES` instead of the setting's, for mechanisms that choose places themselves.
    kind : str
        The kind of mechanism that calls this function.

    Raises
    ------
    UsageError
        Placement in buddy blocks was requested, but is not possible.
    """
    jobs, cluster, assignment = setting.jobs, setting.cluster, setting.assignment
    if rule is None:
        rule = setting.rule
        _check_rule(rule, cluster, kind)
    log_rows, spread = setting.log_rows, setting.spread
    scopes = _scopes(order)
    buddy = rule == "buddy" and order.fit == "place"
    job_classes, class_of, never = _job_classes(jobs, assignment, order, buddy=buddy)
    queues, domains, room = lay_queues(assignment, job_classes, class_of, order)
    nodes, groups, bits, tops = _index(cluster, assignment)
    table = np.zeros(len(jobs), struct_dtype("Job"))
    estimate = jobs.work_ms if order.estimate_ms is None else np.ascontiguousarray(order.estimate_ms, np.int64)
    value = np.zeros(len(jobs), np.int64) if order.value is None else np.ascontiguousarray(order.value, np.int64)
    compiled.fill_jobs(
        table, jobs.arrival_ms, jobs.work_ms, jobs.devices, class_of, estimate, value, never.view(np.uint8)
    )
    changes = np.zeros(len(cluster.change_ms), struct_dtype("Change"))
    changes["time"], changes["node"], changes["up"] = cluster.change_ms, cluster.change_node, cluster.change_up
    changes["kills"] = 0 if cluster.change_kills is None else cluster.change_kills
    g = np.zeros(1, struct_dtype("Globals"))
    g["jobs"], g["changes"], g["log_on"] = len(jobs), len(changes), log_rows > 0
    # A job that cannot start blocks only its own queue: its class, or all classes that may use the same nodes.
    g["skip"] = order.scan == "skip" or len(assignment.queue_sets) > 1
    g["by_count"] = order.fit == "count"
    g["ring"] = order.by_arrival and not order.preemptive and len(scopes) == 1
    g["rule"], g["blocks"] = getattr(compiled, RULES[rule]), buddy
    g["preemptive"], g["drift"] = order.preemptive, getattr(compiled, f"DRIFT_{order.drift.upper()}")
    g["relax_ms"], g["age_cap"] = order.relax_after_ms, order.age_cap_ms
    g["levels"], g["stall"], g["wake"] = len(order.thresholds), order.stall, NONE
    g["interval"] = order.interval_ms
    g["promote"], g["speed"], g["lacking"] = order.promote_ppm, 1_000_000, 1
    if setting.checkpoints is not None:
        _let_save(table, g, setting.checkpoints, by_count=order.fit == "count")
    g["listed"] = order.preemptive and order.fit == "place" and g["drift"] != compiled.DRIFT_ANY
    nodes["holder"] = NONE
    g["sample_step"] = _sample_step(jobs)
    held = cluster.total_gpus
    running = min(len(jobs), held)
    allocations = unused_allocations(2 * held + 1)
    n = len(jobs)
    waits_in_events = len(scopes) > 1 or order.promote_ppm > 0
    eviction_queue = 0
    if order.preemptive:
        base = np.minimum(_gpus_of_domains(cluster), n)
        domains["eviction_base"] = np.concatenate([[0], np.cumsum(base)[:-1]])
        eviction_queue = int(base.sum())
    levels = order.level_values or tuple(range(len(order.thresholds) + 1))
    return EngineState(
        g=g,
        jobs=table,
        nodes=nodes,
        groups=groups,
        domains=domains,
        job_classes=job_classes,
        queues=queues,
        allocations=allocations,
        bits=bits,
        tops=tops,
        events=np.zeros(n if waits_in_events else running, struct_dtype("Entry")),
        event_at=np.full(n, NONE, np.int32),
        waiting=np.zeros(room, struct_dtype("Entry")),
        waiting_at=np.full(n, NONE, np.int32),
        eviction_queue=np.zeros(eviction_queue, struct_dtype("Entry")),
        eviction_at=np.full(n if order.preemptive else 0, NONE, np.int32),
        changes=changes,
        overheads=np.zeros(1, np.int64) if order.overhead_ms is None else order.overhead_ms.astype(np.int64),
        thresholds=np.array(order.thresholds, np.int64),
        level_values=np.array(levels, np.int64),
        spread=np.zeros((1, 1), np.int32) if spread is None else np.ascontiguousarray(spread, np.int32),
        log=np.zeros(log_rows, struct_dtype("LogRow")),
        samples=np.zeros(SAMPLES, struct_dtype("Sample")),
        touched=np.zeros(len(domains), np.int32),
        scratch=np.zeros(running if order.preemptive else 0, np.int32),
        evicted=np.zeros(running if order.preemptive else 0, np.int32),
        active=np.zeros(0, np.int32),
        loosened=np.zeros(len(allocations) if g["listed"][0] else 0, np.int32),
        broken=np.zeros(0 if setting.checkpoints is None else running, np.int32),
    )


def _let_save(table: NDArray[np.void], g: NDArray[np.void], checkpoints: Checkpoints, *, by_count: bool) -> None:
    """Write the checkpoints of jobs into the arrays of a run.

    Raises
    ------
    UsageError
        Gangs are placed by count, so their nodes are unknown.
    """
    if by_count:
        raise UsageError("outages stop the jobs of a node, but with fit=count jobs have no nodes", hint="use fit=place")
    table["saved"], table["period"], table["saving"] = (
        table["remaining"],
        checkpoints.period_ms,
        checkpoints.progress_ppm,
    )
    g["restart"] = checkpoints.restart_ms
    # A stopped job rejoins its queue, but a ring has no room for it.
    g["ring"] = 0


def _check_rule(rule: str, cluster: Cluster, kind: str) -> None:
    if rule != "buddy":
        return
    if kind != "Ordered":
        raise UsageError(
            f"the placement 'buddy' does not work with a policy of the kind {kind}",
            hint="use it with fifo, sjf, ssf, qssf, srtf, srsf, las or gittins, or choose another placement",
        )
    wide = np.flatnonzero(cluster.gpus > compiled.MOST_GPUS)
    if len(wide):
        raise UsageError(
            f"node {cluster.node_id[wide[0]]} has {cluster.gpus[wide[0]]} GPUs; the placement 'buddy' divides nodes of "
            f"at most {compiled.MOST_GPUS}",
            hint="choose another placement",
        )


def _scopes(order: Ordered) -> tuple[int, ...]:
    """Return the scopes within which a gang may spread, step by step."""
    if order.scopes:
        return order.scopes
    return (0, order.relax_scope) if order.relax_after_ms > 0 else (0,)


def unused_allocations(count: int) -> NDArray[np.void]:
    """Return unused allocations, each linked to the next."""
    allocations = np.zeros(count, struct_dtype("Allocation"))
    allocations["next"] = np.arange(1, count + 1)
    allocations["next"][-1] = NONE
    allocations["gpu"] = NONE
    return allocations


def _gpus_of_domains(cluster: Cluster) -> NDArray[np.int64]:
    return np.bincount(cluster.domain, weights=cluster.gpus, minlength=len(cluster.domains)).astype(np.int64)


def _sample_step(jobs: Jobs) -> int:
    """Return an initial sampling step that is long enough that the longest job alone does not fill the table [ms]."""
    horizon = int(jobs.arrival_ms[-1] + jobs.work_ms.max()) if len(jobs) else 0
    return max(horizon // SAMPLES, 1)


def _job_classes(
    jobs: Jobs, assignment: Assignment, order: Ordered, *, buddy: bool
) -> tuple[NDArray[np.void], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the distinct job classes, the class of each job, and the jobs that can never run.

    If gangs relax after some time, each class is followed by its relaxed forms.
    """
    code = assignment.kind.astype(np.int64)
    if order.by_tenant:
        code = code * (int(jobs.tenant.max(initial=-1)) + 2) + jobs.tenant + 1
    class_of, first = numbered(code)
    scopes = _scopes(order)
    widest = max(scopes)
    if buddy:
        fits = assignment.can_ever_fit("blocks")
    else:
        fits = assignment.can_ever_fit(order.fit, relaxed=widest > 0, scope=1 if widest == 1 else 2)
    forms = len(scopes)
    job_classes = np.zeros(max(len(first), 1) * forms, struct_dtype("JobClass"))
    rows = job_classes[: len(first) * forms]
    jobs_of_rows, form = np.repeat(first, forms), np.tile(np.arange(forms), len(first))
    rows["accept"] = assignment.kind_accept[assignment.kind[jobs_of_rows]]
    rows["domain"] = np.maximum(assignment.domain[jobs_of_rows], 0)
    rows["gpus"] = jobs.devices[jobs_of_rows]
    rows["tenant"] = jobs.tenant[jobs_of_rows] if order.by_tenant else NONE
    rows["scope"] = np.array(scopes)[form]
    rows["relaxed"] = np.where(form + 1 < forms, np.arange(len(rows)) + 1, NONE)
    return job_classes, class_of * np.int32(forms), ~fits


def lay_queues(
    assignment: Assignment, job_classes: NDArray[np.void], class_of: NDArray[np.int32], order: Ordered
) -> tuple[NDArray[np.void], NDArray[np.void], int]:
    """Return the queues (grouped by domain), the domains, and how much room the queues need in total."""
    domains = np.zeros(max(assignment.domains, 1), struct_dtype("Domain"))
    for d in range(assignment.domains):
        domains["group_low"][d], domains["group_high"][d] = assignment.groups_of(d)
    per_class = np.bincount(class_of, minlength=len(job_classes))
    forms = len(_scopes(order))
    for form in range(1, forms):
        per_class[form::forms] = per_class[::forms]
    if order.scan == "stop":
        number = np.zeros(len(job_classes), np.int64)
        number[class_of] = assignment.kind_queue[assignment.kind]
        for form in range(1, forms):
            number[form::forms] = number[::forms]
        tenant = job_classes["tenant"].astype(np.int64) + 1 if order.by_tenant else np.zeros_like(number)
        code = job_classes["domain"] * np.int64(tenant.max(initial=0) + 1) + tenant
        code = code * len(assignment.queue_sets) + number
        _, first, queue_of = np.unique(code, return_index=True, return_inverse=True)
        room = np.bincount(queue_of, weights=per_class).astype(np.int64)
        queues = np.zeros(len(first), struct_dtype("Queue"))
        queues["domain"] = job_classes["domain"][first]
        if order.by_tenant:
            queues["tenant"] = job_classes["tenant"][first]
    else:
        by_queue = np.lexsort((job_classes["tenant"], job_classes["domain"]))
        queue_of = np.empty(len(job_classes), np.int64)
        queue_of[by_queue] = np.arange(len(job_classes))
        room = per_class[by_queue]
        queues = np.zeros(len(job_classes), struct_dtype("Queue"))
        queues["domain"], queues["tenant"] = job_classes["domain"][by_queue], job_classes["tenant"][by_queue]
    job_classes["queue"] = queue_of
    queues["base"] = np.concatenate([[0], np.cumsum(room)[:-1]])
    domains["queue_low"] = np.searchsorted(queues["domain"], np.arange(len(domains)), "left")
    domains["queue_high"] = np.searchsorted(queues["domain"], np.arange(len(domains)), "right")
    return queues, domains, int(room.sum())


def _index(
    cluster: Cluster, assignment: Assignment
) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the nodes, the groups and the empty bit index. Nodes join when the run begins."""
    groups = np.zeros(len(assignment.group_low), struct_dtype("Group"))
    nodes = np.zeros(cluster.nodes, struct_dtype("Node"))
    bits = tops = 0
    for k, row in enumerate(groups):
        low, high = int(assignment.group_low[k]), int(assignment.group_high[k])
        words = (high - low + 63) // 64
        summary = (words + 63) // 64
        row["domain"], row["model"] = assignment.group_domain[k], assignment.group_model[k]
        row["first"], row["next"] = assignment.group_first[k], NONE
        earlier = np.flatnonzero(assignment.group_first[:k] == row["first"])
        if len(earlier):
            groups["next"][earlier[-1]] = k
        row["low"], row["high"], row["largest"] = low, high, cluster.gpus[low:high].max(initial=0)
        row["words"], row["summary"], row["bits"], row["tops"], row["speed"] = words, summary, bits, tops, 1_000_000
        bits += words * (int(row["largest"]) + 1)
        tops += summary * (int(row["largest"]) + 1)
        nodes["group"][low:high] = k
        nodes["bit"][low:high] = np.arange(high - low)
    nodes["gpus"] = nodes["free"] = cluster.gpus
    return nodes, groups, np.zeros(bits, np.uint64), np.zeros(tops, np.uint64)


def open_nodes(state: EngineState, cluster: Cluster) -> Any:
    """Add the nodes that are available from the beginning; return the state for compiled functions."""
    arrays = compiled.State(state)
    compiled.open_nodes(arrays, cluster.absent)
    return arrays
