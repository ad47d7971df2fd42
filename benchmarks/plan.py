"""Measure a capacity plan with 12 numbers of nodes, 20 resamples and 50,000 jobs.

    python benchmarks/plan.py [--jobs 50000] [--workers 2]

The jobs request 85 % of 256 GPUs over 60 days, with 1 to 16 GPUs each. They run first in, first out, but may pass a job
that cannot start. The twin uses exactly this rule, so the measurement covers only the plan. The limit is 120 s on 2
cores.
"""

from __future__ import annotations

import argparse
import datetime as dt
import resource
import time
from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.calibration.api import graded
from tracekit.calibration.rules import Rules
from tracekit.calibration.workbench import Settings, Workbench
from tracekit.capacity_plan.plan import plan_cluster
from tracekit.capacity_plan.question import PlanQuestion, wait_target
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster
from tracekit.replay.jobs import Jobs

NODES, DAYS, LOAD, LIMIT_S = 32, 60, 0.85, 120.0
NUMBERS = (28, 29, 30, 31, 32, 33, 34, 36, 38, 40, 44, 48)


def jobs_of(count: int) -> Jobs:
    """Return the jobs, without a recorded schedule."""
    random = np.random.default_rng(1)
    hours = np.sort(random.uniform(0, DAYS * 24, count))
    submit = np.round((hours - hours[0]) * 3_600_000).astype(np.int64)
    gpus = random.choice([1, 2, 4, 8, 16], count, p=[0.6, 0.15, 0.1, 0.13, 0.02]).astype(np.int32)
    run = np.clip(random.lognormal(7.0, 1.6, count), 5, 3 * 86_400)
    run *= LOAD * NODES * 8 * DAYS * 86_400 / (gpus * run).sum()
    none = np.full(count, -1, np.int32)
    return Jobs(
        origin=dt.datetime(2020, 4, 1),
        job_id=pl.Series("job_id", np.arange(count)).cast(pl.String),
        submit_ms=submit,
        work_ms=np.round(run * 1000).astype(np.int64),
        devices=gpus,
        milli=np.full(count, 1000, np.int32),
        tenant=random.integers(0, 8, count, dtype=np.int32),
        user=random.integers(0, 200, count, dtype=np.int32),
        model=none,
        name=none,
        priority=np.zeros(count, np.int32),
        preemptible=none.astype(np.int8),
        cpu_milli=none.astype(np.int64),
        memory_mib=none.astype(np.int64),
        limit_ms=none.astype(np.int64),
        utilization=np.full(count, np.nan),
        recorded_start_ms=none.astype(np.int64),
        recorded_end_ms=none.astype(np.int64),
        tenants=[f"vc{k}" for k in range(8)],
        users=[f"u{k:03}" for k in range(200)],
        models=[],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    jobs = jobs_of(options.jobs)
    cluster = make_cluster([Node(f"n{k:02}", 8) for k in range(NODES)], QuotaTable.none(), "made for the benchmark")
    settings = Settings(Rules(scan="skip"), "stated", False)
    seen = jobs.submit_ms < 0.6 * jobs.submit_ms.max()
    outcome, _ = Workbench(jobs, {"stated": lambda *_: cluster}, seen).replay(settings)
    recorded = replace(jobs, recorded_start_ms=outcome.first_start_ms, recorded_end_ms=outcome.end_ms)
    twin = graded(Workbench(recorded, {"stated": lambda *_: cluster}, seen), settings)
    question = PlanQuestion(wait_target("p90<=1h"), numbers=NUMBERS, resamples=20, workers=options.workers)
    begun = time.perf_counter()
    made = plan_cluster(twin, question)
    wall = time.perf_counter() - begun
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    print(made if isinstance(made, str) else made.sentences[0])
    print("| case | wall | peak memory of a process | at most |")
    print("|---|---|---|---|")
    case = f"{len(NUMBERS)} numbers of nodes, 20 resamples of {options.jobs:,} jobs, {options.workers} processes"
    print(f"| {case} | {wall:.1f} s | {peak:,.0f} MiB | {LIMIT_S:.0f} s |")


if __name__ == "__main__":
    main()
