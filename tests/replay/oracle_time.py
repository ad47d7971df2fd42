"""The oracle's handling of time: instants, running jobs, progress and the event log (see `oracle.py`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.replay.places import NodeMap, Take, Want, find_place, wants
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Fit", "Mode", "OracleOutcome", "Replay", "Row", "Rule", "Scan"]

Fit = Literal["place", "count"]
Mode = Literal["list", "preemptive", "easy", "conservative", "fair"]
Scan = Literal["stop", "skip"]

Row = tuple[int, int, int, int, int, int]
"""A row of the event log: time_ms, kind, job, node, gpu, value."""

FULL_SPEED = 1_000_000


@dataclass(frozen=True)
class Rule:
    """A policy's rules, as far as the oracle supports them."""

    order: str = "fifo"
    """fifo, sjf or ssf (static keys), or srtf, srsf or las (for the preemptive pass)."""
    mode: Mode = "list"
    scan: Scan = "stop"
    placement: str = "consolidate"
    """See `tests.replay.places`."""
    fit: Fit = "place"
    relax_ms: tuple[int, ...] = ()
    """Waits since submission after which a job accepts one group, then one GPU model [ms]."""
    overhead_ms: tuple[int, int, int] = (0, 0, 0)
    """Cost of a preemption or migration for 1, 2 to 8 and more GPUs [ms]."""
    thresholds: tuple[int, ...] = ()
    """LAS levels in ascending order [GPU*ms]."""
    estimates: tuple[int, ...] | None = None
    """Run times that backfilling assumes [ms], or None for exact run times."""
    keys: tuple[int, ...] | None = None
    """Static keys that replace those of `order`."""
    weights: Mapping[str, int] | None = None
    """Tenant weights for the mode fair, or None for their quotas (1 for each tenant if there are no quotas)."""
    hard_quota: bool = False
    """Whether a tenant's jobs may use at most its quota."""
    speed: Callable[[int, Mapping[int, list[Take]]], int] | None = None
    """Rate of a running job [ppm] from the places of all running jobs, or None for full speed."""
    period_ms: tuple[int, ...] | None = None
    """Each job's time from one checkpoint to the next, including saving [ms], or None if no node fails."""
    progress_ppm: tuple[int, ...] = ()
    """Part of the time between checkpoints in which each job does work."""
    restart_ms: int = 0
    """Length of the restart after a node failure [ms]."""


@dataclass
class OracleOutcome:
    """The schedule, with the same fields as tracekit's Outcome."""

    first_start_ms: list[int]
    end_ms: list[int]
    run_ms: list[int]
    overhead_ms: list[int]
    preemptions: list[int]
    migrations: list[int]
    nodes_spanned: list[int]
    unschedulable: list[bool]
    held_milli_ms: list[int]
    makespan_ms: int
    restarts: list[int]
    """Number of node failures under each job."""
    lost_milli_ms: list[int]
    """GPU time of each job's work that had to be done again [milli-GPU * ms]."""
    places: list[list[Take]]
    """Last place of each job."""
    reservations: list[list[int]]
    """Starts promised to each job in each pass (conservative backfilling) [ms]."""
    log: list[Row]


@dataclass
class _Job:
    """The oracle's state of a running or waiting job."""

    remaining: int
    """Work left [ms * ppm]."""
    overhead: int = 0
    """Overhead that remains before work continues [ms]."""
    rate: int = FULL_SPEED
    since: int = 0
    """Time at which the figures above were correct."""
    place: list[Take] = field(default_factory=list)
    started: int = -1
    """Last start."""
    first_start: int = -1
    end: int = -1
    run: int = 0
    lost: int = 0
    held: int = 0
    """Integral of allocated GPUs [GPU*ms]."""
    preemptions: int = 0
    migrations: int = 0
    rejected: bool = False
    unsaved: list[int] = field(default_factory=list)
    """Rate in each ms of work since the last checkpoint, in order."""
    restarts: int = 0
    thrown_away: int = 0
    """GPU time of work that had to be done again [GPU*ms]."""


class Replay:
    """Time, events, jobs and GPUs. `schedule` decides what to start."""

    def __init__(self, jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
        if any(int(milli) != 1000 for milli in jobs.milli):
            raise ValueError("the oracle places whole GPUs only")
        self.jobs, self.cluster, self.rule = jobs, cluster, rule
        self.submit = [int(t) for t in jobs.submit_ms]
        self.work = [int(w) for w in jobs.work_ms]
        self.want: list[Want] = wants(jobs, cluster)
        self.state = [_Job(remaining=w * FULL_SPEED) for w in self.work]
        self.nodes = NodeMap(cluster)
        self.now = min([0, *(int(t) for t in cluster.change_ms)]) - 1
        self.next_submit = self.next_change = 0
        self.next_quota = 1
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.usage: dict[tuple[int, int], int] = defaultdict(int)  # (domain, tenant) -> GPUs in use
        self.reservations: list[list[int]] = [[] for _ in self.submit]
        self.log: list[Row] = []

    # ---- time ----

    def run(self) -> OracleOutcome:
        """Step from instant to instant until no job is left or nothing more can happen."""
        while self.next_submit < len(self.submit) or self.running or self.waiting:
            ends = {job: self.end_of(job) for job in self.running}
            timers = self.timers()
            times = [*ends.values(), *timers.values(), *self.submit[self.next_submit : self.next_submit + 1]]
            times += [int(t) for t in self.cluster.change_ms[self.next_change : self.next_change + 1]]
            times += self.quota_times()[:1]
            if not times:
                break
            self.now = min(times)
            touched = self.finish([job for job, end in sorted(ends.items()) if end == self.now])
            touched |= self.change_nodes() | self.change_quotas() | self.arrive()
            touched |= {self.want[job].domain for job, at in timers.items() if at == self.now}
            for domain in sorted(touched):
                self.schedule(domain)
            self.change_rates()
        return self.outcome()

    def timers(self) -> dict[int, int]:
        """Return when a domain needs a pass although nothing ends or arrives."""
        found = {}
        for job in self.running:
            state = self.state[job]
            beyond = [limit for limit in self.rule.thresholds if limit > state.held]
            if self.rule.order == "las" and beyond:
                count = sum(n for _, _, n in state.place)
                at = state.since - (-(beyond[0] - state.held) // count)
                if at <= self.now:  # an earlier settling already crossed it within this ms
                    continue
                found[job] = at
        for job in self.waiting:
            later = [self.submit[job] + wait for wait in self.rule.relax_ms]
            later = [at for at in later if at > self.now]
            if later:
                found[job] = min(later)
        return found

    def quota_times(self) -> list[int]:
        """Return future quota changes if the rule uses quotas."""
        if not (self.rule.hard_quota or (self.rule.mode == "fair" and self.rule.weights is None)):
            return []
        return [int(t) for t in self.cluster.quota_ms[self.next_quota :]]

    def finish(self, ended: list[int]) -> set[int]:
        """End the jobs whose work is done."""
        for job in ended:
            self.settle(job)
            state = self.state[job]
            assert state.remaining == 0
            assert state.overhead == 0
            self.give(job, state.place)
            self.running.remove(job)
            state.end = self.now
            self.write("finish", job)
        return {self.want[job].domain for job in ended}

    def change_nodes(self) -> set[int]:
        """Let nodes join and leave."""
        touched = set()
        changes = self.cluster.change_ms
        while self.next_change < len(changes) and changes[self.next_change] == self.now:
            node = int(self.cluster.change_node[self.next_change])
            up = bool(self.cluster.change_up[self.next_change])
            self.nodes.up[node] = up
            self.log.append((self.now, LOG_KINDS["up" if up else "down"], -1, node, -1, 0))
            if self.cluster.change_kills is not None and self.cluster.change_kills[self.next_change]:
                self.fail(node)
            touched.add(self.nodes.domain[node])
            self.next_change += 1
        return touched

    def fail(self, node: int) -> None:
        """Stop the jobs on a node, which lose their work since the last checkpoint and need a restart.

        Reading: a restart that was under way begins again. If the remaining overhead is longer, it applies instead.
        """
        for job in sorted(self.running):
            state = self.state[job]
            if node not in {n for n, _, _ in state.place}:
                continue
            self.settle(job)
            state.remaining += sum(state.unsaved)
            state.thrown_away += len(state.unsaved) * sum(n for _, _, n in state.place)
            state.unsaved = []
            state.restarts += 1
            state.overhead = max(state.overhead, self.rule.restart_ms)
            self.give(job, state.place)
            self.running.remove(job)
            self.waiting.add(job)
            self.log.append((self.now, LOG_KINDS["fail"], job, node, -1, state.overhead))

    def change_quotas(self) -> set[int]:
        """Apply the next row of quotas. Reading: this happens along with node changes, and every domain gets a pass."""
        touched = False
        while self.quota_times() and self.quota_times()[0] == self.now:
            self.next_quota += 1
            touched = True
        return set(range(len(self.cluster.domains))) if touched else set()

    def arrive(self) -> set[int]:
        """Queue the jobs submitted now, or reject those that can never run. Reading: a rejection causes no pass."""
        touched = set()
        while self.next_submit < len(self.submit) and self.submit[self.next_submit] == self.now:
            job = self.next_submit
            self.next_submit += 1
            self.write("submit", job)
            if self.can_ever_run(job):
                self.waiting.add(job)
                touched.add(self.want[job].domain)
            else:
                self.state[job].rejected = True
                self.write("reject", job)
        return touched

    def can_ever_run(self, job: int) -> bool:
        """Return whether a job could be placed on the empty cluster with all nodes present."""
        empty = NodeMap(self.cluster)
        empty.up = [True] * len(empty.up)
        rule = self.rule
        place = find_place(empty, self.want[job], rule.placement, rule.fit, len(rule.relax_ms))
        column = self.quota_column(job)
        if place is None or not rule.hard_quota or column < 0:
            return place is not None
        return sum(n for _, _, n in place) <= max(int(row[column]) for row in self.cluster.quota)

    # ---- one job ----

    def settle(self, job: int) -> None:
        """Update a running job's figures to the current time, first overhead, then work."""
        state = self.state[job]
        passed = self.now - state.since
        sat_out = min(passed, state.overhead)
        state.overhead -= sat_out
        state.lost += sat_out
        state.remaining = max(0, state.remaining - (passed - sat_out) * state.rate)
        if self.rule.period_ms is not None:
            state.unsaved += [state.rate] * (passed - sat_out)
            period = self.rule.period_ms[job]
            del state.unsaved[: len(state.unsaved) // period * period]
        state.run += passed
        state.held += passed * sum(n for _, _, n in state.place)
        state.since = self.now

    def end_of(self, job: int) -> int:
        """Return when a running job ends if nothing changes."""
        state = self.state[job]
        return state.since + state.overhead + -(-state.remaining // state.rate)

    def start(self, job: int, place: list[Take]) -> None:
        """Start a waiting job on its GPUs."""
        state = self.state[job]
        self.take(job, place)
        self.waiting.remove(job)
        self.running.add(job)
        state.place, state.since, state.started = place, self.now, self.now
        if state.first_start < 0:
            state.first_start = self.now
        state.rate = self.speed_of(job)
        self.write("start", job, value=state.rate)
        for node, gpu, count in place:
            if gpu < 0:
                self.log.append((self.now, LOG_KINDS["take"], job, node, -1, count * 1000))
            else:
                self.log += [(self.now, LOG_KINDS["take"], job, node, gpu + i, 1000) for i in range(count)]

    def take(self, job: int, place: list[Take]) -> None:
        """Mark GPUs as used by a job."""
        self.nodes.take(place, self.want[job].domain)
        self.usage[self.want[job].domain, int(self.jobs.tenant[job])] += sum(n for _, _, n in place)

    def give(self, job: int, place: list[Take]) -> None:
        """Mark GPUs as no longer used by a job."""
        self.nodes.give(place, self.want[job].domain)
        self.usage[self.want[job].domain, int(self.jobs.tenant[job])] -= sum(n for _, _, n in place)

    def speed_of(self, job: int) -> int:
        """Return a running job's rate among the jobs that run now [ppm]."""
        if self.rule.speed is None:
            return FULL_SPEED if self.rule.period_ms is None else self.rule.progress_ppm[job]
        return self.rule.speed(job, {other: self.state[other].place for other in self.running})

    def change_rates(self) -> None:
        """After the passes, let every running job continue at the rate that its current neighbours allow."""
        for job in sorted(self.running) if self.rule.speed else []:
            rate = self.speed_of(job)
            if rate != self.state[job].rate:
                self.settle(job)
                self.state[job].rate = rate
                self.write("rate", job, value=rate)

    def write(self, kind: str, job: int, value: int = 0) -> None:
        """Append a job's row to the log."""
        self.log.append((self.now, LOG_KINDS[kind], job, -1, -1, value))

    def find(self, job: int) -> list[Take] | None:
        """Return where a job may start now under the rule's placement and quotas."""
        level = sum(self.now - self.submit[job] >= wait for wait in self.rule.relax_ms)
        place = find_place(self.nodes, self.want[job], self.rule.placement, self.rule.fit, level)
        return place if place is not None and self.within_quota(job, place) else None

    def quota_column(self, job: int) -> int:
        """Return the quota table's column for a job, or -1 if its tenant has no quota."""
        tenant = int(self.jobs.tenant[job])
        name = self.jobs.tenants[tenant] if tenant >= 0 else None
        return self.cluster.tenants.index(name) if name in self.cluster.tenants else -1

    def within_quota(self, job: int, place: list[Take]) -> bool:
        """Return whether a job's tenant may use these GPUs in addition."""
        column = self.quota_column(job) if self.rule.hard_quota else -1
        if column < 0:
            return True
        held = sum(n for (_, tenant), n in self.usage.items() if tenant == int(self.jobs.tenant[job]))
        return held + sum(n for _, _, n in place) <= int(self.cluster.quota[self.next_quota - 1][column])

    def key(self, job: int) -> tuple[int, ...]:
        """Return the sort key of a job. Smaller keys come first, and equal keys are ordered by index."""
        rule, state = self.rule, self.state[job]
        gpus = self.want[job].gpus
        if rule.keys is not None:
            return (rule.keys[job],)
        # Reading: the remaining time includes the time for saving work.
        speed = FULL_SPEED if rule.period_ms is None else rule.progress_ppm[job]
        left = -(-state.remaining // speed) + state.overhead
        # This is called very often, so compute only what the order needs.
        match rule.order:
            case "fifo":
                found = (self.submit[job],)
            case "sjf":
                found = (self.work[job],)
            case "ssf":
                found = (self.work[job] * gpus,)
            case "srtf":
                found = (left,)
            case "srsf":
                found = (left * gpus,)
            case "las":
                return (sum(limit <= state.held for limit in rule.thresholds), self.submit[job])
            case _:
                raise KeyError(rule.order)
        return found

    def schedule(self, domain: int) -> None:
        """Run one scheduling pass over a domain."""
        raise NotImplementedError

    # ---- result ----

    def outcome(self) -> OracleOutcome:
        """Return the outcome of the replay."""
        jobs = self.state
        return OracleOutcome(
            first_start_ms=[j.first_start for j in jobs],
            end_ms=[j.end for j in jobs],
            run_ms=[j.run for j in jobs],
            overhead_ms=[j.lost for j in jobs],
            preemptions=[j.preemptions for j in jobs],
            migrations=[j.migrations for j in jobs],
            nodes_spanned=[len({node for node, _, _ in j.place if node >= 0}) for j in jobs],
            unschedulable=[j.end < 0 for j in jobs],
            held_milli_ms=[j.held * 1000 for j in jobs],
            makespan_ms=max([0, *(j.end for j in jobs)]),
            restarts=[j.restarts for j in jobs],
            lost_milli_ms=[j.thrown_away * 1000 for j in jobs],
            places=[j.place for j in jobs],
            reservations=self.reservations,
            log=self.log,
        )
