"""Audit replays: read the event log and the inputs, recompute everything, and name each broken law.

The auditor knows neither the engine nor the policy. Arguments tell it what a policy allows (borrowing, sharing,
resizing).
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

from tests.replay.ledger import Ledger, Moment
from tests.replay.places import NodeMap, Want, find_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.asked import Checkpoints

__all__ = ["audit", "quotas_of"]

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
_TIMELINE = ("running", "pending", "busy_milli", "free_milli", "fragmented_milli")


def quotas_of(cluster: Cluster) -> dict[str, list[tuple[int, int]]]:
    """Return a cluster's quotas as (from ms, GPUs) steps for each tenant."""
    return {
        name: [(int(at), int(row[column])) for at, row in zip(cluster.quota_ms, cluster.quota, strict=True)]
        for column, name in enumerate(cluster.tenants)
    }


def audit(
    jobs: Jobs,
    cluster: Cluster,
    log: Iterable[Any],
    outcome: object | None = None,
    *,
    quotas: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    residents: int = 1,
    memory: Sequence[int] | None = None,
    gang: str = "exact",
    overhead_ms: tuple[int, int, int] | None = None,
    speed: Callable[[int, Mapping[int, list[tuple[int, int, int]]]], int] | None = None,
    placement: str | None = None,
    fit: str = "place",
    relax_ms: Sequence[int] = (),
    scan: str = "stop",
    conserve: bool = False,
    preemptive: bool = True,
    checkpoints: Checkpoints | None = None,
) -> list[str]:
    """Return a sentence for every law that a replay breaks, or [] if it breaks none.

    Parameters
    ----------
    log
        Rows (time_ms, kind, job, node, gpu, value) as described at `Outcome.log`, as tuples or a structured array.
    outcome
        The engine's report. Missing fields are not compared. None checks only the log.
    quotas
        Steps (from ms, GPUs) per tenant that a start may not exceed, or None if the policy borrows.
    residents
        Number of jobs that may share a GPU whose index is logged. With 1, every GPU is exclusive.
    memory
        Memory of each job on each of its GPUs [1/1000 of a GPU's]. The sum on a GPU must not exceed 1000.
    gang
        What a job is allocated: devices * milli ('exact'), at least that (whole blocks or nodes, 'rounded'), or
        anything ('elastic').
    overhead_ms
        Cost of a preemption or migration for 1, 2 to 8 and more GPUs, or None to leave the log's figures unchecked.
    speed
        Rate of a running job [ppm] from the places (node, gpu, GPUs) of all running jobs, or None to check no rates.
    placement, fit, relax_ms, scan
        The placement rule, used to check rejections and jobs that wait at the end, or None to skip these checks.
    conserve
        Whether no waiting job may be placeable at the end of an instant (list policies that skip).
    preemptive
        Whether stop rows are allowed.
    checkpoints
        How jobs save their work if nodes fail, or None if no node fails.
    """
    ledger = Ledger(jobs, cluster, residents=residents, memory=memory, gang=gang, quotas=quotas)
    ledger.overhead_ms, ledger.speed, ledger.preemptive = overhead_ms, speed, preemptive
    ledger.checkpoints = checkpoints
    rule = _Places(ledger, placement, fit, tuple(relax_ms))
    if conserve:
        ledger.at_end_of_instant = rule.check_conservation
    for row in log:
        ledger.read(*(int(value) for value in row))
    ledger.close()
    if placement is not None:
        rule.check_rejections()
        rule.check_left_waiting(everyone=scan == "skip")
    if outcome is not None:
        ledger.broken += _compare(ledger, outcome)
    return ledger.broken


class _Places:
    """Checks that need the placement rule."""

    def __init__(self, ledger: Ledger, placement: str | None, fit: str, relax_ms: tuple[int, ...]) -> None:
        self.ledger, self.placement, self.fit, self.relax_ms = ledger, placement or "consolidate", fit, relax_ms

    def fits(self, nodes: NodeMap, job: int) -> bool:
        """Return whether a waiting job could start at the ledger's time."""
        ledger = self.ledger
        level = sum(ledger.now - int(ledger.jobs.submit_ms[job]) >= wait for wait in self.relax_ms)
        place = find_place(nodes, ledger.want[job], self.placement, self.fit, level)
        return place is not None and ledger.quota_left(job) >= sum(count for _, _, count in place)

    def check_conservation(self) -> None:
        """Name the waiting jobs that could start."""
        ledger = self.ledger
        if ledger.broken:
            return
        nodes = ledger.node_map()
        refused: set[tuple[Want, int]] = set()
        for job in sorted(ledger.waiting):
            asked = (ledger.want[job], int(ledger.jobs.tenant[job]))
            if not self.relax_ms and asked in refused:
                continue
            if self.fits(nodes, job):
                ledger.fail(f"job {job} waits although it could be placed")
            refused.add(asked)

    def check_rejections(self) -> None:
        """Check that a job is rejected if and only if it cannot be placed on the empty cluster."""
        ledger = self.ledger
        empty = NodeMap(ledger.cluster)
        empty.up = [True] * len(empty.up)
        for job, want in enumerate(ledger.want):
            place = find_place(empty, want, self.placement, self.fit, len(self.relax_ms))
            possible = place is not None and sum(n for _, _, n in place) <= ledger.most_quota(job)
            if possible and job in ledger.rejected:
                ledger.fail(f"job {job} is rejected although the empty cluster could hold it")
            if not possible and job in ledger.waiting:
                ledger.fail(f"job {job} waits for ever although the empty cluster cannot hold it")

    def check_left_waiting(self, *, everyone: bool) -> None:
        """Check that jobs waiting at the log's end cannot be placed, or at least one per domain if the scan stops."""
        ledger = self.ledger
        if ledger.broken:
            return
        nodes = ledger.node_map()
        for domain in sorted({ledger.want[job].domain for job in ledger.waiting}):
            waiting = sorted(job for job in ledger.waiting if ledger.want[job].domain == domain)
            able = [job for job in waiting if self.fits(nodes, job)]
            if able and (everyone or len(able) == len(waiting)):
                ledger.fail(f"job {able[0]} is left waiting at the end although it could be placed")


def _compare(ledger: Ledger, outcome: object) -> list[str]:
    """Compare the engine's report with the log."""
    found = []
    for name in _PER_JOB:
        if not hasattr(outcome, name):
            continue
        said = [int(value) for value in getattr(outcome, name)]
        told = ledger.per_job(name)
        if len(said) != len(told):
            found.append(f"outcome.{name} has {len(said)} elements for {len(told)} jobs")
            continue
        found += [
            f"outcome.{name}[{job}] is {a}, the log says {b}"
            for job, (a, b) in enumerate(zip(said, told, strict=True))
            if a != b
        ]
    losses = getattr(outcome, "losses", None)
    for name in ("restarts", "lost_milli_ms") if losses is not None else ():
        if getattr(losses, name).tolist() != ledger.per_job(name):
            found.append(f"losses.{name} are {getattr(losses, name).tolist()}, the log says {ledger.per_job(name)}")
    makespan = max([0, *ledger.per_job("end_ms")])
    sums = {"makespan_ms": makespan, **ledger.integrals(makespan)}
    for name, value in sums.items():
        if hasattr(outcome, name) and int(getattr(outcome, name)) != value:
            found.append(f"outcome.{name} is {int(getattr(outcome, name))}, the log says {value}")
    timeline = getattr(outcome, "timeline", None)
    if timeline is not None:
        found += _compare_timeline(ledger, timeline)
    return found


def _compare_timeline(ledger: Ledger, timeline: Any) -> list[str]:
    """Compare each row of the timeline with the state from its time on."""
    found = []
    times = [moment.time for moment in ledger.moments]
    rows = {name: getattr(timeline, name).tolist() for name in _TIMELINE if name not in ledger.unknown()}
    for index, time in enumerate(timeline.time_ms.tolist()):
        before = bisect.bisect_right(times, time) - 1
        moment: Moment = ledger.moments[before] if before >= 0 else ledger.first_moment
        for name, values in rows.items():
            said, told = values[index], getattr(moment, name)
            if said != told:
                found.append(f"timeline.{name} at {time} ms is {said}, the log says {told}")
    return found
