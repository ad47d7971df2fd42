"""Calibrate the twin of 100,000 jobs on one cluster: time and memory of the whole, and of a plain replay of them.

    python benchmarks/calibrate.py [JOBS]

The log is a replay: EASY backfilling by time limits on 6,000 GPUs. Limits: 60 s and 2 GiB on 2 cores.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from replay_jobs import make

from tracekit.calibration.api import calibrate_jobs
from tracekit.calibration.search import Workbench
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    jobs, cluster = make(count, load=0.9)
    random = np.random.default_rng(2)
    limit = jobs.work_ms * random.choice([1, 2, 4, 8], count)
    jobs = replace(jobs, limit_ms=limit, priority=random.choice([0, 1, 2], count).astype(np.int32))
    whole = replace(cluster, domain=np.zeros_like(cluster.domain), domains=[""])
    begun = time.perf_counter()
    outcome = Scenario.make(jobs, whole).run("easy,noise=limit").outcome
    bound = time.perf_counter() - begun
    log = replace(jobs, recorded_start_ms=outcome.first_start_ms, recorded_end_ms=outcome.end_ms)
    known = outcome.first_start_ms >= 0

    def nodes(partitioned: bool) -> Cluster:
        return cluster if partitioned else whole

    seen = known & (log.submit_ms < 0.6 * log.submit_ms.max())
    begun = time.perf_counter()
    found = calibrate_jobs(Workbench(log, {"stated": nodes}, seen))
    wall = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} jobs: one replay {bound:.1f} s; calibration {wall:.1f} s, {peak:,.0f} MiB")
    print(f"  {len(found.tried)} candidates on the whole log")
    print(f"  {found.settings.rules.words}; grade {found.score.grade}, ratio {found.score.whole['ratio']:.3f}")


if __name__ == "__main__":
    main()
