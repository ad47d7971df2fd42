"""Simulate clusters whose nodes fail under jobs in plain Python, to make logs whose truth is known.

This module shares nothing with the replay engine. Jobs take whole nodes in submission order, and no job passes another.
A failing node stops its job, which continues from its last checkpoint as soon as enough nodes are up and free.
"""

from __future__ import annotations

import datetime as dt
import heapq
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

__all__ = ["GPUS", "HOUR", "Job", "World", "crowded", "rows_of", "simulate", "steady", "waited_gpu_h", "wasted_gpu_h"]

GPUS = 8
HOUR = 3600.0


@dataclass
class Job:
    """A gang of whole nodes, with times in seconds."""

    submit: float
    nodes: int
    work: float


@dataclass
class World:
    """A cluster with its jobs and outages."""

    nodes: int
    jobs: list[Job]
    outages: list[tuple[int, float, float]]
    """Node, begin and end [s]. A node's outages do not overlap."""
    period: float = HOUR
    """Time between two checkpoints, including the cost of one [s]."""
    cost: float = 60.0
    restart: float = 300.0
    spares: int = 0
    """Number of nodes, counted from the end, that are kept free until another node is down."""


@dataclass
class Attempt:
    job: int
    start: float
    end: float
    nodes: list[int]
    hit: bool
    lost: float = 0.0
    """Time spent on work that was lost [s]."""
    restart: float = 0.0


@dataclass
class Run:
    """What happened."""

    attempts: list[Attempt] = field(default_factory=list)
    ends: dict[int, float] = field(default_factory=dict)


def simulate(world: World) -> Run:  # noqa: C901, PLR0912 -- one loop through the events
    """Simulate the world, and return the run."""
    speed = 1 - world.cost / world.period
    left = [job.work / speed for job in world.jobs]  # time including checkpoints
    again = [0.0] * len(left)
    events: list[tuple[float, int, int, int]] = []
    for k, job in enumerate(world.jobs):
        heapq.heappush(events, (job.submit, 2, k, 0))
    for node, since, until in world.outages:
        heapq.heappush(events, (since, 1, node, 0))
        heapq.heappush(events, (until, 1, node, 1))
    up, holds = [True] * world.nodes, [-1] * world.nodes
    running: dict[int, Attempt] = {}
    waiting: list[int] = []
    run = Run()
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, which, back = heapq.heappop(events)
            if kind == 2:
                waiting.append(which)
            elif kind == 0:
                if which in running and abs(running[which].end - now) < 1e-6:
                    for node in running[which].nodes:
                        holds[node] = -1
                    run.attempts.append(running.pop(which))
                    run.ends[which] = now
            else:
                up[which] = bool(back)
                if not back and holds[which] >= 0:
                    k = holds[which]
                    at = running.pop(k)
                    at.end, at.hit = now, True
                    ran = max(now - at.start - at.restart, 0.0)
                    at.restart = min(at.restart, now - at.start)
                    at.lost = ran % world.period
                    left[k] -= ran - at.lost
                    again[k] = world.restart
                    for node in at.nodes:
                        holds[node] = -1
                    run.attempts.append(at)
                    waiting.append(k)
        while waiting:
            k = min(waiting)
            free = [n for n in range(world.nodes) if up[n] and holds[n] < 0]
            # This many nodes may work at a time; the others are spares.
            room = world.nodes - world.spares - sum(h >= 0 for h in holds)
            if min(len(free), room) < world.jobs[k].nodes:
                break
            waiting.remove(k)
            nodes = free[: world.jobs[k].nodes]
            for node in nodes:
                holds[node] = k
            end = round(now + again[k] + left[k], 3)
            running[k] = Attempt(k, now, end, nodes, hit=False, restart=again[k])
            heapq.heappush(events, (end, 0, k, 0))
    run.attempts.sort(key=lambda a: (a.job, a.start))
    return run


def wasted_gpu_h(world: World, run: Run) -> float:
    """Return the allocated GPU-hours without lasting work."""
    held = sum((a.end - a.start) * len(a.nodes) for a in run.attempts)
    useful = sum(world.jobs[k].work * world.jobs[k].nodes for k in run.ends)
    return (held - useful) * GPUS / HOUR


def waited_gpu_h(world: World, run: Run) -> float:
    """Return the GPU-hours that jobs waited, before their first start and after outages."""
    there = sum((run.ends[k] - job.submit) * job.nodes for k, job in enumerate(world.jobs))
    return (there - sum((a.end - a.start) * len(a.nodes) for a in run.attempts)) * GPUS / HOUR


def rows_of(world: World, run: Run, **more: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the tables jobs, attempts, placements, nodes and node_events of a Trace."""

    def at(seconds: float) -> dt.datetime:
        return dt.datetime(2020, 1, 6) + dt.timedelta(milliseconds=round(seconds * 1000))

    jobs, attempts, placements = [], [], []
    for k, job in enumerate(world.jobs):
        own = [a for a in run.attempts if a.job == k]
        size = {"gpu_count": job.nodes * GPUS, "node_count": job.nodes}
        jobs.append(
            {
                "job_id": f"j{k:05}",
                "user": f"u{k % 7}",
                "vc": "v",
                "status": "completed",
                "submit_time": at(job.submit),
                "start_time": at(own[0].start),
                "end_time": at(own[-1].end),
                "queue_s": own[0].start - job.submit,
                "run_s": sum(a.end - a.start for a in own),
                "attempt_count": len(own),
                **size,
            }
        )
        free = job.submit
        for number, one in enumerate(own):
            attempts.append(
                {
                    "job_id": f"j{k:05}",
                    "attempt": number,
                    "start_time": at(one.start),
                    "end_time": at(one.end),
                    "run_s": one.end - one.start,
                    "wait_s": one.start - free,
                    "status": "node_fail" if one.hit else "completed",
                    **size,
                }
            )
            free = one.end
            placements += [
                {
                    "job_id": f"j{k:05}",
                    "attempt": number,
                    "node_id": f"n{n:02}",
                    "gpu_index": list(range(GPUS)),
                    "gpu_count": GPUS,
                }
                for n in one.nodes
            ]
    nodes = [{"node_id": f"n{n:02}", "gpu_count": GPUS} for n in range(world.nodes)]
    events = [
        {"node_id": f"n{n:02}", "start_time": at(a), "end_time": at(b), "state": "down", "cause": "host"}
        for n, a, b in world.outages
    ]
    return {"jobs": jobs, "attempts": attempts, "placements": placements, "nodes": nodes, "node_events": events, **more}


def crowded(rounds: int = 30, away_h: float = 60.0) -> World:
    """Return a cluster in which a node of each large gang fails for long while long jobs use the only other nodes.

    In each five-day round, a gang on 6 of 8 nodes runs for two days, next to two one-node jobs that run for 40 hours,
    and a node of the gang fails after two hours. Later, two one-node jobs wait for a gang of 7 nodes.
    """
    jobs: list[Job] = []
    outages: list[tuple[int, float, float]] = []
    for number in range(rounds):
        rows = [(0, 6, 48), (1, 1, 40), (1.5, 1, 40), (92, 7, 5), (93, 1, 3), (94, 1, 3)]
        begin = number * 120 * HOUR
        jobs += [Job(begin + after * HOUR, nodes, work * HOUR) for after, nodes, work in rows]
        outages.append((0, begin + 2 * HOUR, begin + (2 + away_h) * HOUR))
    return World(8, jobs, outages, period=3660.0)


def steady(
    seed: int,
    *,
    nodes: int = 8,
    wide: int = 6,
    days: int = 60,
    load: float = 0.8,
    per_node_day: float = 0.2,
    repair_h: float = 2.0,
    lemons: int = 0,
    times: float = 1.0,
    work_h: float = 10.0,
    **more: Any,
) -> World:
    """Return a cluster with one-node jobs and gangs of `wide` nodes, whose nodes fail at a constant rate.

    The first nodes are lemons, which fail `times` times as often.
    """
    rng = np.random.default_rng([seed, nodes, wide])
    jobs: list[Job] = []
    held, span = 0.0, days * 24 * HOUR
    while held < load * nodes * span:
        size = wide if rng.random() < 0.4 else 1
        work = float(np.round(rng.lognormal(np.log(work_h * HOUR), 0.6)))
        jobs.append(Job(float(np.round(rng.uniform(0, span))), size, work))
        held += work * size
    jobs.sort(key=lambda job: job.submit)
    outages: list[tuple[int, float, float]] = []
    for node in range(nodes):
        rate = per_node_day * (times if node < lemons else 1.0) / (24 * HOUR)
        now = float(rng.exponential(1 / rate)) if rate > 0 else np.inf
        while now < span:
            until = now + max(float(rng.exponential(repair_h * HOUR)), 60.0)
            outages.append((node, round(now, 3), round(until, 3)))
            now = until + float(rng.exponential(1 / rate))
    return replace(World(nodes, jobs, outages), **more)
