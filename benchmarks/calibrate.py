"""Calibrate a twin on 100,000 jobs of one cluster, and compare time and memory with a plain replay of these jobs.

    python benchmarks/calibrate.py [JOBS]

The log itself comes from a replay of EASY backfilling by time limits on 600 GPUs with 20 VCs and 300 users. The limits
are 60 s and 2 GiB on 2 cores.
"""

from __future__ import annotations

import datetime as dt
import resource
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.calibration.api import calibrate_jobs
from tracekit.calibration.workbench import Workbench
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster
from tracekit.replay.jobs import Jobs
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster

_NODES, _VCS, _USERS = 80, 20, 300
_LOAD = 1.02


def main() -> None:
    """Run the measurement and print the results."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    jobs = _jobs(count)
    begun = time.perf_counter()
    outcome = Scenario.make(jobs, _cluster(partitioned=False)).run("easy,noise=limit").outcome
    bound = time.perf_counter() - begun
    log = replace(jobs, recorded_start_ms=outcome.first_start_ms, recorded_end_ms=outcome.end_ms)
    seen = (outcome.first_start_ms >= 0) & (log.submit_ms < 0.6 * log.submit_ms.max())
    begun = time.perf_counter()
    found = calibrate_jobs(Workbench(log, {"stated": lambda partitioned, _: _cluster(partitioned=partitioned)}, seen))
    wall = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} jobs: one replay {bound:.1f} s; calibration {wall:.1f} s, {peak:,.0f} MiB")
    print(f"{len(found.tried)} candidates on the whole log; {found.settings.rules.words}")
    whole = found.score.whole
    waits = f"the twin waits {whole['twin_mean_s']:,.0f} s, the log {whole['recorded_mean_s']:,.0f} s"
    print(f"grade {found.score.grade}; {waits}")


def _jobs(count: int) -> Jobs:
    random = np.random.default_rng(1)
    gpus = random.choice([1, 2, 4, 8, 16], count, p=[0.6, 0.12, 0.12, 0.14, 0.02]).astype(np.int32)
    run_s = np.clip(np.exp(random.normal(np.log(900), 1.8, count)), 10, 3 * 86_400)
    span = (gpus * run_s).sum() / (_NODES * 8) / _LOAD
    submit = np.sort(random.uniform(0, span, count)).round(3)
    user = np.minimum(random.geometric(0.02, count) - 1, _USERS - 1).astype(np.int32)
    unknown = partial(np.full, count, -1)
    return Jobs(
        origin=dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        job_id=pl.Series([f"j{k}" for k in range(count)]),
        submit_ms=(submit * 1000).astype(np.int64),
        work_ms=(run_s * 1000).astype(np.int64),
        devices=gpus,
        milli=np.full(count, 1000, np.int32),
        tenant=(user % _VCS).astype(np.int32),
        user=user,
        model=unknown(dtype=np.int32),
        name=unknown(dtype=np.int32),
        priority=random.choice([0, 1, 2], count).astype(np.int32),
        preemptible=unknown(dtype=np.int8),
        cpu_milli=unknown(dtype=np.int64),
        memory_mib=unknown(dtype=np.int64),
        limit_ms=(run_s * random.choice([1.2, 2, 4, 8], count) * 1000).astype(np.int64),
        utilization=np.full(count, np.nan),
        recorded_start_ms=unknown(dtype=np.int64),
        recorded_end_ms=unknown(dtype=np.int64),
        tenants=[f"vc{k:02d}" for k in range(_VCS)],
        users=[f"user{k:03d}" for k in range(_USERS)],
    )


def _cluster(*, partitioned: bool) -> Cluster:
    vcs = [f"vc{k:02d}" for k in range(_VCS)]
    nodes = [Node(f"n{k:03d}", 8, domain=vcs[k % _VCS] if partitioned else "") for k in range(_NODES)]
    quotas = QuotaTable(vcs, np.zeros(1, np.int64), np.full((1, _VCS), _NODES * 8 // _VCS))
    return make_cluster(nodes, quotas, "of the benchmark")


if __name__ == "__main__":
    main()
