"""Waits, starts and use through time, walked event by event over the rows of every sample trace."""

from __future__ import annotations

import bisect
import datetime as dt
import statistics
from collections import defaultdict
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from tests.characterize.asking import Asking, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _pytest.mark import ParameterSet

    from tracekit.trace import Trace

T = TypeVar("T")
Row = dict[str, Any]
Tenant = tuple[str | None, str | None]
Results = dict[tuple[Any, ...], tuple[Any, ...]]

WITHOUT_MACHINES = ("kubernetes", "lsf", "pbs", "slurm")  # their nodes are those of jobs
MICRO = 1_000_000  # times are whole microseconds and GPUs whole millionths, so that nothing here is rounded
DAY = 86_400
HALF_HOUR = 1800
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Span(NamedTuple):
    """GPUs held or asked for from a moment to another."""

    since: int
    until: int
    gpus: int


class Queued(NamedTuple):
    """One period in the queue."""

    job: str
    tenant: Tenant
    since: int
    until: int
    gpus: int
    started: bool


def millionths(gpus: float | None) -> int:
    return round((gpus or 0) * MICRO)


def class_of(gpus: int) -> str:
    edges = {"0": 0, "<1": MICRO - 1, "1": MICRO, "2-4": 4 * MICRO, "5-8": 8 * MICRO}
    return next((name for name, most in edges.items() if gpus <= most), ">8")


def known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


class World:
    """A sample trace as rows, asked for its state one moment at a time by looking at every row."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ask = Asking(trace)
        self.rows: dict[str, list[Row]] = defaultdict(list)
        for table in ("jobs", "attempts", "placements", "nodes", "capacity", "gpu_utilization"):
            if trace.has(table):
                frame = trace.scan(table).collect()
                self.rows[table] = frame.with_columns(pl.col(pl.Datetime).cast(pl.Int64)).rows(named=True)
        self.jobs = {job["job_id"]: job for job in self.rows["jobs"]}
        self.tenants = list({self.tenant(job): None for job in self.jobs})
        columns = ("submit_time", "start_time", "end_time")
        times = known(row.get(c) for table in ("jobs", "attempts") for row in self.rows[table] for c in columns)
        self.first, self.last = min(times), max(times)
        self.lost = self._lost()
        self.runs: dict[Tenant, list[Span]] = defaultdict(list)
        for a in self.rows["attempts"]:
            end = self.until(a) if a["end_time"] is None and a["status"] == "running" else a["end_time"]
            if a["start_time"] is not None and end is not None and a["start_time"] <= end:
                self.runs[self.tenant(a["job_id"])].append(Span(a["start_time"], end, millionths(a["gpu_count"])))
        self.placed = self._placed()
        self.owner = self._owners()
        self.memory: dict[tuple[Any, ...], Any] = {}

    def tenant(self, job: str) -> Tenant:
        return self.jobs[job]["cluster"], self.jobs[job]["vc"]

    def until(self, attempt: Row) -> int:
        """Return until when a run without an end counts: its time limit, or the run that has its GPUs."""
        lost: int = self.lost.get((attempt["job_id"], attempt["attempt"]), self.last)
        return min(self._bound(attempt), lost)

    def _bound(self, attempt: Row) -> int:
        """Return the time limit of a run without an end, once the log is an hour past it."""
        limit, start = self.jobs[attempt["job_id"]]["time_limit_s"], attempt["start_time"]
        lost = limit and start is not None and start + (limit + 3600) * MICRO < self.last
        return int(start + limit * MICRO) if lost else self.last

    def _lost(self) -> dict[tuple[str, int], int]:
        """Return when a later run took the GPUs of a run without an end: node by node, from start to start."""
        attempts = {(a["job_id"], a["attempt"]): a for a in self.rows["attempts"]}
        listed = {n["node_id"]: n["gpu_count"] for n in self.rows["nodes"] if n["gpu_count"] is not None}
        opened, ended = defaultdict(list), defaultdict(list)
        for p in self.rows["placements"]:
            key = p["job_id"], p["attempt"]
            whole, node, gpus = attempts.get(key), p["node_id"], p["gpu_count"]
            if node in listed:
                index = p["gpu_index"]
                listed[node] = max(listed[node], (gpus or 0) if index is None else max(index, default=-1) + 1)
            if whole is None or not gpus:
                continue
            since, until = (whole[c] if p[c] is None else p[c] for c in ("start_time", "end_time"))
            if until is None and whole["status"] == "running" and since is not None:
                opened[node].append((since, key, self._bound(whole), gpus))
            elif since is not None and until is not None and until > since:
                ended[node].append((since, until, gpus))
        found: dict[tuple[str, int], int] = {}
        for node, parts in opened.items():
            gone: set[tuple[str, int]] = set()
            for time in sorted({row[0] for row in (*parts, *ended[node])}) if node in listed else ():
                alive = sorted(row for row in parts if row[0] <= time < row[2] and row[1] not in gone)
                held = sum(row[2] for row in ended[node] if row[0] <= time < row[1]) + sum(row[3] for row in alive)
                for since, key, _, gpus in alive:
                    if since < time and held > listed[node] + 1e-5:
                        gone.add(key)
                        held -= gpus
                        found[key] = min(time, found.get(key, time))
        return found

    def _placed(self) -> dict[str, list[Span]]:
        attempts = {(a["job_id"], a["attempt"]): a for a in self.rows["attempts"]}
        found: dict[str, list[Span]] = defaultdict(list)
        parts: dict[tuple[str, int], list[float | None]] = defaultdict(list)
        for p in self.rows["placements"]:
            parts[p["job_id"], p["attempt"]].append(p["gpu_count"])
        for p in self.rows["placements"]:
            key = p["job_id"], p["attempt"]
            whole = attempts.get(key)
            if whole is None:
                continue  # an instance of a job that never got to an attempt
            gpus = p["gpu_count"]
            if gpus is None and not any(known(parts[key])):
                gpus = (whole["gpu_count"] or 0) / len(parts[key])
            since, until = (whole[c] if p[c] is None else p[c] for c in ("start_time", "end_time"))
            if until is None and whole["status"] == "running":
                until = self.until(whole)
            if since is not None and until is not None:
                found[p["node_id"]].append(Span(since, until, millionths(gpus)))
        return found

    def _owners(self) -> dict[str, str | None]:
        seen = {p["node_id"]: self.jobs[p["job_id"]]["cluster"] for p in self.rows["placements"]}
        listed = {n["node_id"]: n["cluster"] for n in self.rows["nodes"] if n["cluster"] is not None}
        return dict.fromkeys((n["node_id"] for n in self.rows["nodes"]), None) | seen | listed

    def own_nodes(self, job: str) -> frozenset[str] | None:
        """Return the nodes on which jobs of a job's partition may run; None if that is no fewer than the cluster's."""
        own = [nodes for names, nodes in self.groups if self.jobs[job]["partition"] in names]
        return frozenset(own[0]) if own else None

    @cached_property
    def groups(self) -> list[tuple[set[str], set[str]]]:
        """Return partitions that share nodes, with these: none unless two such groups have 30 GPU jobs that started.

        The nodes of a partition are those on which its jobs ran.
        """
        groups: list[tuple[set[str], set[str]]] = []
        for p in self.rows["placements"]:
            name = self.jobs[p["job_id"]]["partition"]
            if name is not None:
                met = [g for g in groups if name in g[0] or p["node_id"] in g[1]]
                groups = [g for g in groups if g not in met]
                groups.append(({name}.union(*(g[0] for g in met)), {p["node_id"]}.union(*(g[1] for g in met))))
        started = [j["partition"] for j in self.rows["jobs"] if j["start_time"] is not None and (j["gpu_count"] or 0)]
        enough = sum(sum(name in g[0] for name in started) >= 30 for g in groups)
        return groups if enough > 1 else []

    def sizes(self, rule: str) -> dict[str, int]:
        """Return the GPUs of each node whose number is known, as listed or as observed."""
        if ("sizes", rule) not in self.memory and rule == "listed" and self.trace.manifest.format in WITHOUT_MACHINES:
            self.memory["sizes", rule] = {}  # the nodes of jobs are no list
        if ("sizes", rule) not in self.memory:
            shown = [(n["node_id"], n["gpu_count"] or 0) for n in self.rows["nodes"]]
            if rule == "observed":
                for p in self.rows["placements"]:
                    index = p["gpu_index"]
                    number = -(-millionths(p["gpu_count"]) // MICRO) if index is None else max(index, default=-1) + 1
                    shown.append((p["node_id"], number))
                shown += [(u["node_id"], u["gpu_index"] + 1) for u in self.rows["gpu_utilization"]]
            most: dict[str, int] = defaultdict(int)
            for node, gpus in shown:
                most[node] = max(most[node], gpus * MICRO)
            self.memory["sizes", rule] = {node: gpus for node, gpus in most.items() if gpus}
        found: dict[str, int] = self.memory["sizes", rule]
        return found

    def used(self, tenant: Tenant, time: int, *, arriving: bool = True) -> int:
        """Return the GPUs held at a moment; not `arriving`: without what starts just then."""
        key = ("used", tenant, time, arriving)
        if key not in self.memory:
            runs = self.runs[tenant]
            self.memory[key] = sum(r.gpus for r in runs if r.since < time + arriving and time < r.until)
        found: int = self.memory[key]
        return found

    def free(
        self, cluster: str | None, time: int, rule: str, *, arriving: bool = True, among: frozenset[str] | None = None
    ) -> list[tuple[int, int]]:
        """Return size and free GPUs of each node of a cluster, or of some of its nodes."""
        key = ("free", cluster, time, rule, arriving, among)
        if key not in self.memory:
            self.memory[key] = [
                (size, size - sum(p.gpus for p in self.placed[node] if p.since < time + arriving and time < p.until))
                for node, size in self.sizes(rule).items()
                if self.owner[node] == cluster and (among is None or node in among)
            ]
        found: list[tuple[int, int]] = self.memory[key]
        return found

    def fits(
        self,
        cluster: str | None,
        gang: int,
        time: int,
        rule: str,
        *,
        arriving: bool = True,
        among: frozenset[str] | None = None,
    ) -> bool:
        """Return whether the fewest nodes that can hold a gang are free: hand the largest part to the fullest fit."""
        left = sorted(
            (free for _, free in self.free(cluster, time, rule, arriving=arriving, among=among)), reverse=True
        )
        if not left:
            return True  # a cluster without nodes keeps nobody waiting for them
        size = max(size for size, _ in self.free(cluster, time, rule, among=among))
        while gang > size:
            if not left or left.pop(0) < size:
                return False
            gang -= size
        return bool(left) and left[0] >= gang

    def stated(self, tenant: Tenant) -> list[tuple[int, int]]:
        """Return from when on a tenant owns how many GPUs by the capacity table, or without a VC by the node list."""
        cluster, vc = tenant
        rows = [
            (c["time"], millionths(c["gpu_count"]))
            for c in self.rows["capacity"]
            if (c["cluster"], c["vc"]) == tenant and c["gpu_count"] is not None
        ]
        if rows or vc is not None:
            return sorted(rows, key=lambda row: row[0])
        listed = known(n["gpu_count"] for n in self.rows["nodes"] if n["cluster"] == cluster)
        return [(self.first, sum(listed) * MICRO)] if listed else []

    def quota(self, tenant: Tenant, source: str) -> list[tuple[int, int]]:
        """Return from when on a tenant may use how many GPUs; the first number counts before, too."""
        key = ("quota", tenant, source)
        if key not in self.memory:
            if source == "capacity" or (source == "auto" and any(self.stated(t) for t in self.tenants)):
                self.memory[key] = self.stated(tenant)
            elif source == "p95":
                self.memory[key] = [(self.first, self._p95(tenant))]
            else:
                most = max((self.used(tenant, r.since) for r in self.runs[tenant]), default=0)
                self.memory[key] = [(self.first, most)]
        found: list[tuple[int, int]] = self.memory[key]
        return found

    def most_held(self, cluster: str | None) -> float | None:
        """Return the most GPUs that the jobs of a cluster hold at one time; None where they never hold any."""
        key = ("most", cluster)
        if key not in self.memory:
            own = [t for t in self.tenants if t[0] == cluster]
            starts = {r.since for t in own for r in self.runs[t]}
            self.memory[key] = max((sum(self.used(t, at) for t in own) for at in starts), default=0) / MICRO or None
        found: float | None = self.memory[key]
        return found

    def _p95(self, tenant: Tenant) -> int:
        """Return the least number that a tenant holds no more than for 95 % of the time between its first and last."""
        held = [r for r in self.runs[tenant] if r.gpus]
        moments = sorted({t for r in held for t in (r.since, r.until)})
        lengths = [(self.used(tenant, a), b - a) for a, b in pairwise(moments)]
        whole = sum(length for _, length in lengths)
        for level in sorted({gpus for gpus, _ in lengths}):
            if sum(length for gpus, length in lengths if gpus <= level) >= Fraction(95, 100) * whole:
                return level
        return 0

    def allowed(self, tenant: Tenant, time: int, source: str) -> int | None:
        steps = self.quota(tenant, source)
        current = [gpus for since, gpus in steps if since <= time]
        return current[-1] if current else (steps[0][1] if steps else None)

    def waits(self) -> list[Queued]:
        """Return the known waits that ended in a start; the GPUs of a job of unknown size are -1."""
        found = []
        for a in self.rows["attempts"]:
            if a["start_time"] is not None and a["wait_s"] is not None and a["wait_s"] >= 0:
                since = a["start_time"] - round(a["wait_s"] * MICRO)
                gpus = self.jobs[a["job_id"]]["gpu_count"]
                size = -1 if gpus is None else millionths(gpus)
                found.append(Queued(a["job_id"], self.tenant(a["job_id"]), since, a["start_time"], size, started=True))
        return found

    def never_tried(self) -> list[Queued]:
        """Return the waits of jobs without an attempt: to their end, or for ever."""
        tried = {a["job_id"] for a in self.rows["attempts"]}
        found = []
        for name, job in self.jobs.items():
            end = self.last if job["end_time"] is None and job["status"] == "pending" else job["end_time"]
            begin = job["submit_time"]
            if name not in tried and begin is not None and end is not None and begin <= end:
                size = millionths(job["gpu_count"])
                found.append(Queued(name, self.tenant(name), begin, end, size, started=False))
        return found

    def moments(self, tenant: Tenant, source: str) -> list[int]:
        """Return when anything changes that decides whether a job of a tenant can start."""
        key = ("moments", tenant, source)
        if key not in self.memory:
            nodes = [p for node, held in self.placed.items() if self.owner[node] == tenant[0] for p in held]
            spans = [*self.runs[tenant], *nodes]
            quota = [since for since, _ in self.quota(tenant, source)]
            self.memory[key] = sorted({*quota, *(r.since for r in spans), *(r.until for r in spans)})
        found: list[int] = self.memory[key]
        return found

    def bins(self, step_s: int) -> range:
        """Return the whole steps since 1970 that cover the trace."""
        step = step_s * MICRO
        return range(self.first // step, max(self.first // step + 1, -(-self.last // step)))


def delay_causes(world: World, quota: str = "auto", capacity: str = "observed") -> Results:
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0, 0])
    for wait in world.waits():
        if wait.gpus < 0 or wait.since == wait.until:
            continue
        fair = fragmented = 0
        own = world.own_nodes(wait.job)
        moments = world.moments(wait.tenant, quota)
        inside = moments[bisect.bisect_right(moments, wait.since) : bisect.bisect_left(moments, wait.until)]
        for begin, end in pairwise([wait.since, *inside, wait.until]) if wait.gpus else ():
            allowed = world.allowed(wait.tenant, begin, quota)
            if allowed is not None and world.used(wait.tenant, begin) + wait.gpus > allowed:
                fair += end - begin
            elif world.placed and not world.fits(wait.tenant[0], wait.gpus, begin, capacity, among=own):
                fragmented += end - begin
        parts = [fair, fragmented, wait.until - wait.since - fair - fragmented]
        row = rows[class_of(wait.gpus)]
        row[0] += 1
        row[1 + parts.index(max(parts))] += 1
        row[4] += fair
        row[5] += fragmented
        row[6] += wait.until - wait.since
    results: Results = {}
    for size, (n, fair_n, fragmented_n, other_n, fair, fragmented, whole) in rows.items():
        seen = bool(world.placed and world.sizes(capacity))
        scattered = (fragmented_n, fragmented_n / n, fragmented / MICRO) if seen else (None, None, None)
        shares, seconds = (fair_n / n, scattered[1]), (whole / MICRO, fair / MICRO, scattered[2])
        results[size,] = (n, fair_n, scattered[0], other_n, *shares, *seconds)
    return results


def out_of_order(world: World, quota: str = "auto", capacity: str = "observed") -> Results:
    queue: dict[Tenant, list[Queued]] = defaultdict(list)
    for queued in [*world.waits(), *world.never_tried()]:
        if queued.gpus > 0:
            # A job that still waits at the end of the trace has waited through all starts.
            waits_on = not queued.started and world.jobs[queued.job]["end_time"] is None
            queue[queued.tenant].append(queued._replace(until=queued.until + waits_on))
    rows: dict[str, list[Any]] = defaultdict(lambda: [0, 0, set(), 0, 0])
    for tenant, own in queue.items():
        for one in own:
            row = rows[class_of(one.gpus)]
            if any(other.started and other.since > one.since and other.until < one.until for other in own):
                row[2].add(one.job)
            row[0] += one.started
            passed = [other.gpus for other in own if other.since < one.since and other.until > one.until]
            if not one.started or not passed:
                continue
            row[1] += 1
            allowed = world.allowed(tenant, one.until, quota)
            if allowed is not None:
                room = world.used(tenant, one.until, arriving=False) + min(passed) <= allowed
                nodes = not world.placed or world.fits(tenant[0], min(passed), one.until, capacity, arriving=False)
                row[3] += not (room and nodes)
                row[4] += 1
    return {
        (size,): (starts, early, early / starts if starts else None, len(jobs), harmless / told if told else None)
        for size, (starts, early, jobs, harmless, told) in rows.items()
    }


def means(spans: Iterable[Span], step_s: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return the mean number of spans, and of their GPUs, in each step that they touch."""
    step = step_s * MICRO
    number: dict[int, int] = defaultdict(int)
    gpus: dict[int, int] = defaultdict(int)
    for span in spans:
        for k in range(span.since // step, -(-span.until // step)):
            inside = min(span.until, (k + 1) * step) - max(span.since, k * step)
            number[k] += inside
            gpus[k] += inside * span.gpus
    return {k: v / step for k, v in number.items()}, {k: v / step / MICRO for k, v in gpus.items()}


def owned(world: World, tenant: Tenant, k: int, step_s: int, quota: str) -> float | None:
    """Return the mean GPUs that a tenant may use in a step."""
    begin, end = k * step_s * MICRO, (k + 1) * step_s * MICRO
    cuts = [since for since, _ in world.quota(tenant, quota) if begin < since < end]
    parts = [(world.allowed(tenant, a, quota), b - a) for a, b in pairwise([begin, *cuts, end])]
    told = [gpus * length for gpus, length in parts if gpus is not None]
    return sum(told) / (end - begin) / MICRO if told else None


def timeline(world: World, step_s: int, quota: str = "auto") -> Results:
    asked: dict[Tenant, list[Span]] = defaultdict(list)
    for wait in [*world.waits(), *world.never_tried()]:
        asked[wait.tenant].append(Span(wait.since, wait.until, max(wait.gpus, 0)))
    results: Results = {}
    for tenant in world.tenants:
        running, held = means(world.runs[tenant], step_s)
        pending, wanted = means(asked[tenant], step_s)
        for k in world.bins(step_s):
            values = [found.get(k, 0.0) for found in (running, pending, held, wanted)]
            results[k * step_s * MICRO, *tenant] = (*values, owned(world, tenant, k, step_s, quota))
    return results


def cluster_timeline(world: World, step_s: int, quota: str = "auto") -> Results:
    rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for (time, cluster, _), values in timeline(world, step_s, quota).items():
        rows[time, cluster].append(values)
    results: Results = {}
    for (time, cluster), parts in rows.items():
        *loads, gpus = zip(*parts, strict=True)
        totals = [
            (c["time"], c["gpu_count"])
            for c in world.rows["capacity"]
            if c["cluster"] == cluster and c["vc"] is None and c["gpu_count"] is not None and c["time"] <= time
        ]
        several = [g for g in gpus if g is not None]
        owned_gpus: float | None = sum(several) if several else None
        asked = quota in {"auto", "capacity"}
        if asked and not any(c["cluster"] == cluster and c["vc"] is not None for c in world.rows["capacity"]):
            owned_gpus = world.most_held(cluster)
        listed = [n["gpu_count"] for n in world.rows["nodes"] if n["cluster"] == cluster and n["gpu_count"] is not None]
        if asked and listed:
            totals, owned_gpus = [], float(sum(listed))
        results[time, cluster] = (*map(sum, loads), float(max(totals)[1]) if totals else owned_gpus)
    return results


def quantile(values: list[float], share: Fraction) -> float | None:
    ordered = sorted(values)
    if not ordered:
        return None
    rank = share * (len(ordered) - 1)
    low, part = int(rank), float(rank % 1)
    return ordered[low] * (1 - part) + ordered[min(low + 1, len(ordered) - 1)] * part


def counted(world: World, step_s: int, until: str) -> Callable[[int], bool]:
    """Return whether an interval that begins at a time [us] counts."""
    last = max(job["submit_time"] for job in world.jobs.values() if job["submit_time"] is not None)
    return lambda time: until == "end" or time + step_s * MICRO <= last


def use_of_vcs(world: World, step_s: int = 3600, quota: str = "auto", until: str = "end") -> Results:
    waits: dict[Tenant, list[float]] = defaultdict(list)
    for a in world.rows["attempts"]:
        if a["wait_s"] is not None and (world.jobs[a["job_id"]]["gpu_count"] or 0) > 0:
            waits[world.tenant(a["job_id"])].append(a["wait_s"])
    loads: dict[Tenant, list[tuple[float, float | None]]] = defaultdict(list)
    counts = counted(world, step_s, until)
    for (time, cluster, vc), (_, _, held, _, gpus) in timeline(world, step_s, quota).items():
        if counts(time):
            loads[cluster, vc].append((held, gpus))
    results: Results = {}
    for tenant, rows in loads.items():
        told = [gpus for _, gpus in rows if gpus is not None]
        usable = [(held, gpus) for held, gpus in rows if gpus]
        held, gpus = (sum(column) for column in zip(*usable, strict=True)) if usable else (0, 0)
        points = [quantile([h / g for h, g in usable], Fraction(p, 4)) for p in (1, 2, 3)]
        median = statistics.median(waits[tenant]) if waits[tenant] else None
        results[tenant] = (statistics.fmean(told) if told else None, held / gpus if gpus else None, *points, median)
    return results


def cluster_by_hour(world: World, quota: str = "auto", rule: str = "mean", until: str = "end") -> Results:
    zone = ZoneInfo(world.trace.timezone)

    def local(time: int) -> dt.datetime:
        return (EPOCH + dt.timedelta(microseconds=time)).astimezone(zone)

    counts = counted(world, HALF_HOUR, until)
    shares: dict[tuple[Any, int], list[float]] = defaultdict(lambda: [0, 0])
    for (time, cluster), (_, _, held, _, gpus) in cluster_timeline(world, HALF_HOUR, quota).items():
        total = shares[cluster, local(time).hour]
        if gpus and counts(time):
            total[0] += min(held, gpus) if rule == "clipped" else held
            total[1] += gpus
    submitted: dict[tuple[Any, int], list[float | None]] = defaultdict(list)
    for job in world.jobs.values():
        if job["submit_time"] is not None:
            submitted[job["cluster"], local(job["submit_time"]).hour].append(job["gpu_count"])
    dates = [local(job["submit_time"]).date() for job in world.jobs.values() if job["submit_time"] is not None]
    days = (max(dates) - min(dates)).days + 1
    sized = {job["cluster"] for job in world.jobs.values() if job["gpu_count"] is not None}
    only = {job["cluster"] for job in world.jobs.values()}
    listed = {n["node_id"]: n["cluster"] for n in world.rows["nodes"]}
    samples: dict[tuple[Any, int], list[float]] = defaultdict(list)
    for u in world.rows["gpu_utilization"]:
        cluster = listed.get(u["node_id"]) or (next(iter(only)) if len(only) == 1 else None)
        if u["utilization_pct"] is not None:
            samples[cluster, local(u["time"]).hour].append(u["utilization_pct"])
    results: Results = {}
    for key, (held, gpus) in shares.items():
        busy = statistics.fmean(samples[key]) if samples[key] else None
        with_gpus = sum(1 for g in submitted[key] if g) / days if key[0] in sized else None
        results[key] = (held / gpus if gpus else None, busy, len(submitted[key]) / days, with_gpus)
    return results


def gpu_time_held(world: World, step_s: int, quota: str = "auto") -> Results:
    load = cluster_timeline(world, step_s, quota)
    if not load:
        return {}
    submitted = max(known(job["submit_time"] for job in world.rows["jobs"]))
    early = {key: row for key, row in load.items() if key[0] + step_s * MICRO <= submitted}
    counted = early if early and len({time for time, _ in load}) > 1 else load
    owned = [(row[2], row[4]) for row in counted.values() if row[4] is not None]
    every = {key[0]: row[4] for key, row in load.items() if row[4] is not None}
    total = sum(row[4] for row in load.values() if row[4] is not None)
    still = [a for a in world.rows["attempts"] if a["status"] == "running" and a["end_time"] is None]
    running = sum((world.until(a) - a["start_time"]) / MICRO * (a["gpu_count"] or 0) for a in still if a["start_time"])
    gpus = sum(g for _, g in owned)
    hours = sum(row[2] for row in load.values()) * step_s / 3600
    return {
        ("held_share",): (sum(held for held, _ in owned) / gpus if gpus else None, "share"),
        ("held_gpus",): (sum(row[2] for row in counted.values()) / len({time for time, _ in counted}), "GPUs"),
        ("owned_gpus",): (total / len(every) if every else None, "GPUs"),
        ("held_gpu_hours",): (hours if len({time for time, _ in load}) > 1 else None, "GPU-hours"),
        ("running_gpu_hours",): (running / 3600, "GPU-hours"),
    }


def fragmentation(world: World, step_s: int = DAY, capacity: str = "observed") -> Results:
    bins = world.bins(step_s)
    results: Results = {}
    for k in range(bins.start, bins.stop + 1):
        time = k * step_s * MICRO
        for cluster in {world.owner[node] for node in world.sizes(capacity)}:
            left = [(size, max(0, free)) for size, free in world.free(cluster, time, capacity)]
            whole = [size for size, free in left if free == size]
            gang = sum(whole) + max((free for size, free in left if free < size), default=0)
            free = sum(free for _, free in left)
            results[time, cluster, None] = (free / MICRO, len(whole), gang / MICRO)
    return results


RECOMPUTED: dict[str, tuple[int, Callable[..., Results]]] = {
    "queuing/delay_causes": (1, delay_causes),
    "queuing/out_of_order": (1, out_of_order),
    "queuing/timeline": (3, timeline),
    "queuing/cluster_timeline": (2, cluster_timeline),
    "queuing/gpu_time_held": (1, gpu_time_held),
    "utilization/vc": (2, use_of_vcs),
    "utilization/cluster_by_hour": (2, cluster_by_hour),
    "locality/fragmentation": (3, fragmentation),
}
"""By query: how many columns are the key, and the recomputation."""

USES: dict[str, list[Row]] = {
    "queuing/delay_causes": [{}, {"quota": "peak"}, {"quota": "p95"}, {"capacity": "listed"}],
    "queuing/out_of_order": [{}, {"quota": "peak"}, {"quota": "p95"}, {"capacity": "listed"}],
    "queuing/timeline": [{"step_s": s, "quota": q} for s in (DAY, DAY // 4) for q in ("auto", "peak")],
    "queuing/cluster_timeline": [{"step_s": s, "quota": q} for s in (DAY, DAY // 4) for q in ("auto", "peak")],
    "queuing/gpu_time_held": [{"step_s": s, "quota": q} for s in (DAY, DAY // 4) for q in ("auto", "peak")],
    "utilization/vc": [{}, {"quota": "peak"}, {"quota": "p95"}, {"until": "last_submission"}],
    "utilization/cluster_by_hour": [
        *({"quota": q, "rule": r} for q in ("auto", "peak") for r in ("mean", "clipped")),
        {"until": "last_submission"},
    ],
    "locality/fragmentation": [{"step_s": DAY, "capacity": c} for c in ("observed", "listed")],
}
"""By query: the parameters it is tried with."""


def cases() -> list[ParameterSet]:
    """Return samples, queries and parameters.

    Of each sample the second tier asks a query in two ways, which take turns; the nightly run asks it in all.
    """
    found = []
    for number, sample in enumerate(samples("slurm")):
        for name, uses in USES.items():
            for way, params in enumerate(uses):
                later = (way - 2 * number) % len(uses) >= 2
                marks = [pytest.mark.slow] if sample.marks and later else sample.marks
                found.append(pytest.param(*sample.values, name, params, marks=marks))
    return found


@pytest.fixture(scope="session")
def world_of(sample_trace: Callable[[str], Trace]) -> Callable[[str], World]:
    """Return a function that reads a sample trace, once each."""
    return cache(lambda name: World(sample_trace(name)))


@pytest.mark.parametrize(("sample", "name", "params"), cases(), ids=str)
def test_the_query_agrees_with_a_walk_from_event_to_event(
    world_of: Callable[[str], World], sample: str, name: str, params: Row
) -> None:
    world = world_of(sample)
    if world.ask.is_refused(name):
        return
    keys, recompute = RECOMPUTED[name]
    expected = recompute(world, **params)
    frame = world.ask(name, **params).with_columns(pl.col(pl.Datetime).cast(pl.Int64))
    found = {row[:keys]: row[keys:] for row in frame.rows()}
    assert len(found) == frame.height, "a key stands twice"
    assert set(found) == set(expected)
    # Seconds and counts of events are exact; the mean of each VC is rounded to millionths before it is summed.
    exact = name in ("queuing/delay_causes", "queuing/out_of_order", "locality/fragmentation")
    off = 1e-12 if exact else 1e-6 * len(world.tenants)
    for key, values in expected.items():
        close = tuple(pytest.approx(v, rel=off, abs=off) if isinstance(v, float) else v for v in values)
        assert found[key] == close, key


def test_the_sample_traces_hold_every_cause_and_both_kinds_of_overtaking(world_of: Callable[[str], World]) -> None:
    # Agreement on waits that all have one cause would say little.
    causes = [delay_causes(world_of(name)).values() for name in ("helios", "philly", "slurm")]
    fair, fragmented, other = (sum(row[i] or 0 for rows in causes for row in rows) for i in (1, 2, 3))
    assert fair > 50
    assert fragmented >= 5
    assert other > 500
    early = [row for name in ("philly", "slurm") for row in out_of_order(world_of(name)).values()]
    assert sum(row[1] for row in early) > 30
    assert {row[4] for row in early} - {None, 0.0}
