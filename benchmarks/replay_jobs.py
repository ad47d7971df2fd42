"""Generate jobs and a cluster for the replay benchmark from a seed, shaped like Helios and of any size.

About 6,000 GPUs in 8-GPU nodes belong to 60 virtual clusters of very different sizes. Jobs arrive in bursts with a
daily rhythm. Most jobs request one GPU, a few up to 64. Run times are lognormal (median 200 s) and capped at five days.
Each virtual cluster has the same offered load.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl

from tracekit.replay.clusters.cluster import Cluster
from tracekit.replay.jobs import Jobs

__all__ = ["make"]

GPUS = np.array([1, 2, 4, 8, 16, 32, 64])
SHARE = np.array([0.70, 0.08, 0.08, 0.11, 0.02, 0.008, 0.002])
VCS = 60
NODES = 750


def make(count: int, load: float, seed: int = 1, *, nodes: int = NODES, vcs: int = VCS) -> tuple[Jobs, Cluster]:
    """Return `count` jobs that request the share `load` of the cluster's GPU time, and the cluster."""
    random = np.random.default_rng(seed)
    size = np.maximum(np.round(nodes * (w := 1 / np.arange(1, vcs + 1) ** 0.7) / w.sum()), 2).astype(int)
    size[0] += nodes - size.sum()
    gpus = random.choice(GPUS, count, p=SHARE)
    run_s = np.maximum(np.minimum(np.exp(random.normal(np.log(200), 2.6, count)), 5 * 86_400), 1)
    vc = random.choice(vcs, count, p=size / size.sum())
    gpus = np.minimum(gpus, size[vc] * 4)
    submit = np.empty(count)
    for k in range(vcs):
        own = np.flatnonzero(vc == k)
        horizon = (gpus[own] * run_s[own]).sum() / (size[k] * 8) / load
        bursts = np.sort(random.uniform(0, horizon, len(own) // 20 + 1))
        at = np.repeat(bursts, 20)[: len(own)] + random.uniform(0, 60, len(own))
        # More jobs arrive by day than by night.
        submit[own] = at + 3600 * 4 * np.sin(at / 86_400 * 2 * np.pi)
    submit -= submit.min()
    order = np.argsort(submit, kind="stable")
    none = np.full(count, -1, np.int32)
    names = [f"vc{k:02}" for k in range(vcs)]
    jobs = Jobs(
        origin=dt.datetime(2020, 4, 1),
        job_id=pl.Series("job_id", np.arange(count)).cast(pl.String),
        submit_ms=np.round(submit[order] * 1000).astype(np.int64),
        work_ms=np.round(run_s[order] * 1000).astype(np.int64),
        devices=gpus[order].astype(np.int32),
        milli=np.full(count, 1000, np.int32),
        tenant=vc[order].astype(np.int32),
        user=random.integers(0, 2000, count, dtype=np.int32),
        model=none,
        name=random.integers(0, 20_000, count, dtype=np.int32),
        priority=np.zeros(count, np.int32),
        preemptible=none.astype(np.int8),
        cpu_milli=none.astype(np.int64),
        memory_mib=none.astype(np.int64),
        limit_ms=none.astype(np.int64),
        utilization=np.full(count, np.nan),
        recorded_start_ms=none.astype(np.int64),
        recorded_end_ms=none.astype(np.int64),
        tenants=names,
        users=[f"u{k:04}" for k in range(2000)],
        models=[],
    )
    domain = np.repeat(np.arange(vcs, dtype=np.int32), size)
    cluster = Cluster(
        node_id=[f"n{k:04}" for k in range(nodes)],
        gpus=np.full(nodes, 8, np.int32),
        model=np.zeros(nodes, np.int32),
        rack=np.zeros(nodes, np.int32),
        domain=domain,
        serves=np.zeros(nodes, np.int32),
        place=np.arange(nodes, dtype=np.int32),
        cpu_milli=np.full(nodes, -1),
        memory_mib=np.full(nodes, -1),
        models=[""],
        racks=[""],
        domains=names,
        partition_sets=[()],
        tenants=names,
        quota_ms=np.zeros(1, np.int64),
        quota=(size * 8)[None, :].astype(np.int64),
        change_ms=np.zeros(0, np.int64),
        change_node=np.zeros(0, np.int32),
        change_up=np.zeros(0, np.int8),
        absent=np.zeros(nodes, np.int8),
        origin="made for the benchmark",
    )
    return jobs, cluster
