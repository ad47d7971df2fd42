"""Clusters without any problem that guidelines look for: enough GPUs, prompt scheduling, and similar nodes."""

from __future__ import annotations

import datetime as dt
import heapq
from dataclasses import dataclass, field

import numpy as np

from tests.guidelines.planted import Log, when

__all__ = ["clean_world"]

DAYS = 14
GPUS = 8
SAMPLE_S = 1800
SIZES = (1, 1, 1, 2, 2, 4, 8)


@dataclass(order=True)
class Job:
    """A future job. Jobs are ordered by submission."""

    submit: float
    number: int
    gpus: int = field(compare=False)
    run_s: float = field(compare=False)
    status: str = field(compare=False)
    user: int = field(compare=False)
    script: int = field(compare=False)


def clean_world(seed: int) -> Log:
    """Return 14 days of a cluster of 6 to 12 8-GPU nodes, with 50 to 70 % (or 40 to 50 %) of the GPUs allocated.

    Jobs arrive evenly over the day, in sessions of one script of one user. A job takes the emptiest nodes, and as few
    nodes as possible if they are free. It waits only if too few GPUs are free. With an odd seed, gangs have at most 4
    GPUs and fit on one node most of the time, but half of them are put on two nodes anyway. GPUs are 60 to 100 % busy,
    regardless of other jobs on the node and of the job's spread. A script fails once at a random point with its user's
    risk, either in all of its jobs or independently in each. Nobody retries a job that cannot work. Both tenants may
    use every GPU.
    """
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(6, 13))
    log = Log()
    for node in range(nodes):
        log.add("nodes", node_id=f"n{node:02}", gpu_count=GPUS)
    for vc in ("a", "b"):
        log.add("capacity", time=when(0), vc=vc, gpu_count=nodes * GPUS)
    careless = 0.5 * (seed % 2)
    load, most = (rng.uniform(0.4, 0.5), 4) if careless else (rng.uniform(0.5, 0.7), GPUS)
    jobs = _jobs(rng, nodes, float(load), most)
    free = [list(range(GPUS)) for _ in range(nodes)]
    ends: list[tuple[float, int, list[tuple[int, list[int]]]]] = []
    queue: list[Job] = []
    for job in [*jobs, Job(np.inf, len(jobs), 0, 0, "", 0, 0)]:
        while ends and ends[0][0] <= job.submit:
            now, _, parts = heapq.heappop(ends)
            for node, gpus in parts:
                free[node] = sorted(free[node] + gpus)
            for waiting in queue[:]:
                if _started(log, rng, waiting, now, free, ends, careless):
                    queue.remove(waiting)
        if np.isfinite(job.submit) and not _started(log, rng, job, job.submit, free, ends, careless):
            queue.append(job)
    # Each node fails once without affecting a job, in the days after the last job.
    last = max(row["end_time"] for row in log.tables["jobs"])
    for node in range(nodes):
        since = last + dt.timedelta(hours=4 * node + 1)
        until = since + dt.timedelta(minutes=20)
        log.add("node_events", node_id=f"n{node:02}", start_time=since, end_time=until, state="down", cause="host")
    return log


def _jobs(rng: np.random.Generator, nodes: int, load: float, most: int) -> list[Job]:
    """Return the jobs in submission order."""
    users = int(rng.integers(8, 20))
    risks = rng.uniform(0.02, 0.15, users)
    alike = rng.uniform(0, 1)
    jobs: list[Job] = []
    held = 0.0
    while held < load * nodes * GPUS * DAYS * 86400:
        user, begin = int(rng.integers(users)), float(rng.uniform(0, DAYS * 86400))
        broken = rng.random() < risks[user]
        script = int(rng.integers(3))
        gpus = min(int(rng.choice(SIZES)), most)
        for _ in range(int(rng.integers(1, 8))):
            failed = broken if rng.random() < alike else rng.random() < risks[user]
            run_s = float(np.clip(rng.lognormal(9.3, 0.8), 900, 60_000))
            if failed:
                run_s *= rng.uniform(0.2, 1)
            submit = begin + float(rng.uniform(0, 3 * 3600))
            jobs.append(Job(submit, len(jobs), gpus, run_s, "failed" if failed else "completed", user, script))
            held += gpus * run_s
    return sorted(jobs)


def _started(
    log: Log,
    rng: np.random.Generator,
    job: Job,
    now: float,
    free: list[list[int]],
    ends: list[tuple[float, int, list[tuple[int, list[int]]]]],
    careless: float,
) -> bool:
    """Start a job if enough GPUs are free, and return whether it started."""
    if sum(map(len, free)) < job.gpus:
        return False
    missing, parts = job.gpus, []
    most = (job.gpus + 1) // 2 if job.gpus > 1 and rng.random() < careless else job.gpus
    for node in sorted(range(len(free)), key=lambda n: -len(free[n])):
        most = min(most, missing)
        taken, free[node] = free[node][:most], free[node][most:]
        missing -= len(taken)
        parts.append((node, taken))
        if not missing:
            break
    heapq.heappush(ends, (now + job.run_s, job.number, parts))
    name = log.job(
        job.submit,
        job.run_s,
        gpus=job.gpus,
        queue_s=now - job.submit,
        status=job.status,
        user=f"u{job.user}",
        vc="ab"[job.user % 2],
        name=f"script{job.script}",
        node_count=len(parts),
        partition="main",
    )
    if job.status == "failed":
        log.add("failures", job_id=name, attempt=0, time=when(now), reason="syntax_error", category="user")
    usual = rng.uniform(60, 100)
    for node, gpus in parts:
        log.hold(name, f"n{node:02}", gpus)
        for time in np.arange(now, now + job.run_s, SAMPLE_S):
            for gpu in gpus:
                pct = float(np.clip(usual + rng.normal(0, 10), 0, 100))
                row = {"time": when(time // 60 * 60), "node_id": f"n{node:02}", "gpu_index": gpu}
                log.add("gpu_utilization", **row, utilization_pct=pct)
    return True
