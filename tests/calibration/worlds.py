"""Simulate clusters with a known scheduler in plain Python, to make logs whose truth is known.

This module shares nothing with the replay engine. A world consists of jobs, nodes and a rule that picks the waiting job
to start next. The simulator steps through submissions, ends and node changes, and records when each job starts. To find
the true effect of a change, the same simulation runs with another rule.
"""

from __future__ import annotations

import datetime as dt
import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.replay.builders import make_cluster, make_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["KINDS", "Job", "World", "make_world", "rows_of", "simulate", "simulated"]

DAY = 86_400.0


@dataclass
class Job:
    """One job, with times in seconds."""

    submit: float
    gpus: int
    run: float
    limit: float
    user: int
    vc: int
    priority: int = 0
    delay: float = 0.0
    """Start-up delay from the job's submission until it competes."""


@dataclass
class World:
    """A cluster and its rule."""

    kind: str
    jobs: list[Job]
    nodes: list[int]
    """Number of GPUs on each node."""
    node_vc: list[int] = field(default_factory=list)
    """VC that owns each node, or empty if all VCs share the nodes."""
    quota: list[int] = field(default_factory=list)
    """Each VC's quota in GPUs, if VCs have quotas."""
    user_limit: int = 0
    down: list[tuple[float, float, int]] = field(default_factory=list)
    """Begin, end and node. No job starts on the node during this time, but running jobs continue."""
    start: list[float] = field(default_factory=list)
    """Time of each job's first start."""
    end: list[float] = field(default_factory=list)
    """Time at which each job ended. If empty, each job ends its run time after its start."""

    def to_replay(self) -> tuple[Jobs, Cluster]:
        """Return the jobs and the cluster that a log of this world shows."""
        jobs = make_jobs(
            [(j.submit, j.gpus, j.run) for j in self.jobs],
            vc=[f"vc{j.vc}" for j in self.jobs],
            user=[f"u{j.user}" for j in self.jobs],
            priority=[j.priority for j in self.jobs],
            limit_ms=[round(j.limit * 1000) for j in self.jobs],
            recorded_start_ms=[round(s * 1000) for s in self.start],
            recorded_end_ms=[round(end * 1000) for end in self.end]
            or [round((s + j.run) * 1000) for s, j in zip(self.start, self.jobs, strict=True)],
        )
        quota = {f"vc{v}": q for v, q in enumerate(self.quota)} if self.quota else None
        changes = sorted(c for a, b, node in self.down for c in ((a, node, False), (b, node, True)))
        return jobs, make_cluster(self.nodes, quota=quota, changes=changes)


def rows_of(world: World) -> dict[str, list[dict[str, Any]]]:
    """Return the tables jobs, attempts, nodes and node_events of a world's Trace."""

    def at(seconds: float) -> dt.datetime:
        return dt.datetime(2020, 1, 1) + dt.timedelta(milliseconds=round(seconds * 1000))

    jobs, attempts = [], []
    for k, (job, start) in enumerate(zip(world.jobs, world.start, strict=True)):
        ran = {
            "job_id": f"j{k:05}",
            "start_time": at(start),
            "end_time": at(start + job.run),
            "run_s": job.run,
            "gpu_count": job.gpus,
            "status": "completed",
        }
        wait = round(start - job.submit, 3)
        asked = {"vc": f"vc{job.vc}", "user": f"u{job.user}", "time_limit_s": job.limit, "priority": job.priority}
        times = {"submit_time": at(job.submit), "eligible_time": at(job.submit + job.delay), "queue_s": wait}
        jobs.append({**ran, **asked, **times, "attempt_count": 1})
        attempts.append({**ran, "attempt": 0, "wait_s": wait})
    nodes = [{"node_id": f"n{n}", "gpu_count": gpus} for n, gpus in enumerate(world.nodes)]
    events = [
        {"node_id": f"n{n}", "start_time": at(begin), "end_time": at(end), "state": "down"}
        for begin, end, n in world.down
    ]
    return {"jobs": jobs, "attempts": attempts, "nodes": nodes, "node_events": events}


class _State:
    """Running and waiting jobs at one moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.free = list(world.nodes)
        self.up = [True] * len(world.nodes)
        self.waiting: list[int] = []
        self.running: dict[int, tuple[float, list[tuple[int, int]]]] = {}
        self.held_user: dict[int, int] = {}
        self.held_vc: dict[int, int] = {}
        self.left = [job.run for job in world.jobs]
        """Remaining run time of each job [s]."""

    def nodes_of(self, job: Job) -> Iterator[int]:
        for n, up in enumerate(self.up):
            if up and (not self.world.node_vc or self.world.node_vc[n] == job.vc):
                yield n

    def place(self, job: Job, free: list[int] | None = None) -> list[tuple[int, int]] | None:
        """Return nodes for a gang: the fullest node that fits it, or empty nodes and the fullest node for the rest."""
        free = self.free if free is None else free
        nodes = list(self.nodes_of(job))
        size = max(self.world.nodes)
        found: list[tuple[int, int]] = []
        left = job.gpus
        if left > size:
            for n in nodes:
                if left >= size and free[n] == size:
                    found.append((n, size))
                    left -= size
            if left >= size:
                return None
        if left:
            taken = {n for n, _ in found}
            fits = [n for n in nodes if free[n] >= left and n not in taken]
            if not fits:
                return None
            found.append((min(fits, key=lambda n: (free[n], n)), left))
        return found

    def start(self, k: int, now: float, places: list[tuple[int, int]]) -> None:
        job = self.world.jobs[k]
        for n, g in places:
            self.free[n] -= g
        self.waiting.remove(k)
        self.running[k] = (now, places)
        self.held_user[job.user] = self.held_user.get(job.user, 0) + job.gpus
        self.held_vc[job.vc] = self.held_vc.get(job.vc, 0) + job.gpus

    def end(self, k: int) -> None:
        job = self.world.jobs[k]
        for n, g in self.running.pop(k)[1]:
            self.free[n] += g
        self.held_user[job.user] -= job.gpus
        self.held_vc[job.vc] -= job.gpus

    def stop(self, k: int, now: float) -> None:
        self.left[k] -= now - self.running[k][0]
        self.end(k)
        self.waiting.append(k)


def simulate(world: World, kind: str | None = None) -> list[float]:
    """Return when each job starts under the world's rule or under another rule [s]."""
    return simulated(world, kind)[0]


def simulated(world: World, kind: str | None = None) -> tuple[list[float], list[float]]:
    """Return when each job starts first and when it ends [s]."""
    kind = kind or world.kind
    state = _State(world)
    rule = _RULES[kind]
    events: list[tuple[float, int, int, int]] = []  # at the same instant, ends precede changes, which precede arrivals
    for k, job in enumerate(world.jobs):
        heapq.heappush(events, (round(job.submit + job.delay, 3), 2, k, k))
    for begin, end, node in world.down:
        heapq.heappush(events, (begin, 1, 0, node))
        heapq.heappush(events, (end, 1, 1, node))
    starts, ends = ([float("nan")] * len(world.jobs) for _ in range(2))
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, what, up, k = heapq.heappop(events)
            if what == 0:
                # A job that has since been stopped ends at another time.
                if k in state.running and abs(state.running[k][0] + state.left[k] - now) < 0.001:
                    state.end(k)
                    ends[k] = now
            elif what == 1:
                state.up[k] = bool(up)
            else:
                state.waiting.append(k)
        while (chosen := rule(state, now)) is not None:
            k, places = chosen
            state.start(k, now, places)
            starts[k] = now if starts[k] != starts[k] else starts[k]
            heapq.heappush(events, (round(now + state.left[k], 3), 0, k, k))
    return starts, ends


_Choice = tuple[int, list[tuple[int, int]]] | None


def _arrived(state: _State) -> list[int]:
    return sorted(state.waiting, key=lambda k: (state.world.jobs[k].submit + state.world.jobs[k].delay, k))


def _first(state: _State, order: list[int], may: Callable[[Job], bool] | None = None, *, stop: bool = False) -> _Choice:
    for k in order:
        job = state.world.jobs[k]
        if may is not None and not may(job):
            continue
        places = state.place(job)
        if places is not None:
            return k, places
        if stop:
            return None
    return None


def _strict(state: _State, now: float) -> _Choice:
    return _first(state, _arrived(state)[:1])


def _passing(state: _State, now: float) -> _Choice:
    return _first(state, _arrived(state))


def _priority(state: _State, now: float) -> _Choice:
    order = sorted(_arrived(state), key=lambda k: -state.world.jobs[k].priority)
    return _first(state, order)


def _fair_share(state: _State, now: float) -> _Choice:
    order = sorted(_arrived(state), key=lambda k: state.held_user.get(state.world.jobs[k].user, 0))
    return _first(state, order)


def _partitions(state: _State, now: float) -> _Choice:
    heads: dict[int, int] = {}
    for k in _arrived(state):
        heads.setdefault(state.world.jobs[k].vc, k)
    return _first(state, list(heads.values()))


def _user_limit(state: _State, now: float) -> _Choice:
    limit = state.world.user_limit
    return _first(state, _arrived(state), lambda job: state.held_user.get(job.user, 0) + job.gpus <= limit)


def _quotas(state: _State, now: float) -> _Choice:
    quota = state.world.quota
    return _first(state, _arrived(state), lambda job: state.held_vc.get(job.vc, 0) + job.gpus <= quota[job.vc])


def _lent(state: _State, now: float) -> _Choice:
    """VCs may use what other VCs leave of their quotas, which add up to less than all GPUs."""
    most = sum(state.world.quota)
    return _first(state, _arrived(state), lambda job: sum(state.held_vc.values()) + job.gpus <= most)


def _reclaimed(state: _State, now: float) -> _Choice:
    """Lend quotas, but let a job within its VC's quota stop the youngest jobs of VCs above their quotas."""
    world, jobs = state.world, state.world.jobs
    for k in _arrived(state):
        job = jobs[k]
        if state.held_vc.get(job.vc, 0) + job.gpus <= world.quota[job.vc]:
            _make_room(state, job, now)
        if sum(state.held_vc.values()) + job.gpus <= sum(world.quota) and (places := state.place(job)) is not None:
            return k, places
    return None


def _make_room(state: _State, job: Job, now: float) -> None:
    world, stopped = state.world, []
    free, held = list(state.free), dict(state.held_vc)
    young = sorted(state.running, key=lambda k: (-state.running[k][0], -k))
    while sum(held.values()) + job.gpus > sum(world.quota) or state.place(job, free) is None:
        over = [k for k in young if k not in stopped and held[world.jobs[k].vc] > world.quota[world.jobs[k].vc]]
        if not over:
            return
        stopped.append(over[0])
        held[world.jobs[over[0]].vc] -= world.jobs[over[0]].gpus
        for n, g in state.running[over[0]][1]:
            free[n] += g
    for k in stopped:
        state.stop(k, now)


def _shortest(state: _State, now: float) -> _Choice:
    """Use the order of QSSF with perfect knowledge (least GPU time first), in which later jobs may pass."""
    jobs = state.world.jobs
    return _first(state, sorted(_arrived(state), key=lambda k: jobs[k].run * jobs[k].gpus))


def _easy(state: _State, now: float) -> _Choice:
    order = _arrived(state)
    if not order:
        return None
    places = state.place(state.world.jobs[order[0]])
    if places is not None:
        return order[0], places
    shadow, beside = _reservation(state, state.world.jobs[order[0]], now)
    for k in order[1:]:
        job = state.world.jobs[k]
        places = state.place(job)
        if places is not None and (now + job.limit <= shadow or all(beside[n] >= g for n, g in places)):
            return k, places
    return None


def _reservation(state: _State, head: Job, now: float) -> tuple[float, list[int]]:
    """Return when the first job can start by the limits of running jobs, and what is then free next to it."""
    free = list(state.free)
    ends = sorted((max(begin + state.world.jobs[k].limit, now), k) for k, (begin, _) in state.running.items())
    for end, k in ends:
        for n, g in state.running[k][1]:
            free[n] += g
        reserved = state.place(head, free)
        if reserved is not None:
            for n, g in reserved:
                free[n] -= g
            return end, free
    return float("inf"), free


_RULES: dict[str, Callable[[_State, float], _Choice]] = {
    "strict": _strict,
    "passing": _passing,
    "priority": _priority,
    "fair-share": _fair_share,
    "partitions": _partitions,
    "user-limit": _user_limit,
    "quotas": _quotas,
    "lent": _lent,
    "queues": _partitions,
    "reclaimed": _reclaimed,
    "easy": _easy,
    "shortest": _shortest,
    "delays": _passing,
    "nodes-down": _passing,
}
_LATER = ("lent", "reclaimed", "queues")
# Add new kinds at the end, because a kind's position is part of its seed.
KINDS = (*(kind for kind in _RULES if kind not in _LATER), *_LATER)


def make_world(kind: str, seed: int, load: float, *, jobs: int = 1500, nodes: int = 8, days: float = 28.0) -> World:
    """Return a simulated world of a kind, whose jobs request `load` times its GPUs over `days` days."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    size = 8
    total = nodes * size
    hours = random.uniform(0, days * 24, 4 * jobs)
    daily = 0.6 + 0.4 * np.sin((hours % 24 - 8) / 24 * 2 * np.pi)
    submit = np.sort(hours[random.random(len(hours)) < daily][:jobs]) * 3600
    submit = np.round(submit - submit[0])
    count = len(submit)
    gpus = random.choice([1, 2, 4, 8, 16], count, p=[0.5, 0.15, 0.15, 0.17, 0.03])
    run = np.clip(random.lognormal(8.5, 1.4, count), 30, 3 * DAY)
    run = np.round(run * load * total * days * DAY / (gpus * run).sum())
    run = np.maximum(run, 1.0)
    users = random.choice(12, count, p=np.arange(12, 0, -1) / 78)
    vcs = users % 4
    limit = np.round(run * random.choice([1.2, 2.0, 4.0, 8.0], count))
    priority = random.choice([0, 100, 500], count, p=[0.6, 0.3, 0.1]) if kind == "priority" else np.zeros(count, int)
    delay = np.zeros(count)
    if kind == "delays":
        delay = np.round(random.lognormal(np.log(60 + 30 * gpus), 0.5), 3)
    made = [
        Job(
            submit=float(submit[k]),
            gpus=int(gpus[k]),
            run=float(run[k]),
            limit=float(limit[k]),
            user=int(users[k]),
            vc=int(vcs[k]),
            priority=int(priority[k]),
            delay=float(delay[k]),
        )
        for k in range(count)
    ]
    world = World(kind, made, [size] * nodes)
    if kind == "partitions":
        world.node_vc = [n % 4 for n in range(nodes)]
        world.quota = [size * world.node_vc.count(v) for v in range(4)]
    elif kind == "quotas":
        world.quota = [total // 4] * 4
    elif kind == "lent":
        world.quota = [3 * total // 16] * 4
    elif kind == "reclaimed":
        world.quota = [total // 4] * 4
    elif kind == "user-limit":
        world.user_limit = total // 4
    elif kind == "nodes-down":
        world.down = [((6 + 7 * i) * DAY, (9 + 7 * i) * DAY, n) for i in range(3) for n in (2 * i, 2 * i + 1)]
    if kind == "partitions":
        # Leave out gangs that are too large for any VC.
        world.jobs = [j for j in world.jobs if j.gpus <= min(world.quota)]
    starts, ends = simulated(world)
    return replace(world, start=starts, end=ends)
