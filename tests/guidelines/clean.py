"""Clusters with no problem that a guideline is about: enough GPUs, a scheduler that starts what fits, nodes alike."""

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
    """A job that is to come; the order is that of submission."""

    submit: float
    number: int
    gpus: int = field(compare=False)
    run_s: float = field(compare=False)
    status: str = field(compare=False)
    user: int = field(compare=False)
    script: int = field(compare=False)


def clean_world(seed: int) -> Log:
    """Return 14 days of a cluster of 6 to 12 nodes of 8 GPUs, of which 50 to 70 % are held, or 40 to 50 %.

    Jobs come at all hours alike, in sessions of one script of one user. A job takes the emptiest nodes, the fewest
    where they are free, others where not, and waits only where too few GPUs are free; with an odd seed, gangs have 4
    GPUs at most, find room on one node most of the time, and half of them are put on two all the same. GPUs are 60 to
    100 % busy, whatever else is on the node and however the job is spread. A script fails with the risk of its user, of
    its jobs all or each for itself, somewhere on the way, once; nobody tries again what cannot work. Each of two
    tenants may use every GPU.
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
    # Each node fails once, and hits nobody: in the days after the last job.
    last = max(row["end_time"] for row in log.tables["jobs"])
    for node in range(nodes):
        since = last + dt.timedelta(hours=4 * node + 1)
        until = since + dt.timedelta(minutes=20)
        log.add("node_events", node_id=f"n{node:02}", start_time=since, end_time=until, state="down", cause="host")
    return log


def _jobs(rng: np.random.Generator, nodes: int, load: float, most: int) -> list[Job]:
    """Return the jobs in order of submission."""
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
    """Start a job where enough GPUs are free, and return whether that was so."""
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
