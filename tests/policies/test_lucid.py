"""Lucid: profiler, pairs and modes by hand, and without them the order alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same, sharing_jobs
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

PLAIN = "lucid,profile=0,pack=on"


def test_a_pair_slows_down_and_who_is_left_recovers() -> None:
    # u = 0.2 and 0.4, scores 0 and 1: speeds 1 - 0.5 * 0.08 = 0.96. Job 1 ends after 96 / 0.96 = 100 s; job 0 did 96.
    jobs = make_jobs([(0, 2, 196), (0, 2, 96)], utilization=[0.2, 0.4])
    outcome = lawful(jobs, make_cluster((2,)), PLAIN, 2)
    # By expected GPU time job 1 is first; job 0 would be more than twice as long: 196 > 2 * 96.
    assert outcome.first_start_ms.tolist() == [96_000, 0]
    both = lawful(jobs, make_cluster((2,)), f"{PLAIN},ratio=3", 2)
    assert both.end_ms.tolist() == [200_000, 100_000]


def test_two_busy_jobs_never_share_but_a_busy_and_a_light_one_do() -> None:
    jobs = make_jobs([(0, 1, 50), (0, 1, 60), (0, 1, 70)], utilization=[0.9, 0.9, 0.1])
    outcome = lawful(jobs, make_cluster((1,)), PLAIN, 2)
    # 2 + 2 is more than 2: the second waits; 2 + 0 is not: 1 - 0.5 * 0.09 = 0.955.
    assert outcome.first_start_ms.tolist() == [0, 50_000 * 1_000_000 // 955_000 + 1, 0]


@pytest.mark.parametrize(("first", "starts"), [("off", [0, 0]), ("on", [0, 0])])
def test_a_partner_is_looked_for_before_idle_gpus_unless_told(first: str, starts: list[int]) -> None:
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], utilization=0.4)
    outcome = lawful(jobs, make_cluster((2,)), f"{PLAIN},idle_first={first}", 2)
    assert outcome.first_start_ms.tolist() == starts
    # Together both have 1 - 0.5 * 0.16 = 0.92 of their speed.
    assert outcome.end_ms.tolist() == [100_000, 100_000] if first == "on" else [108_696, 108_696]


def test_small_jobs_are_profiled_first_and_leave_in_time() -> None:
    # One node of four is the profiler. Job 0 ends there; job 1 leaves it after 20 s, 80 s left; job 2 is too large.
    jobs = make_jobs([(0, 2, 10), (0, 2, 100), (0, 5, 30)])
    cluster = make_cluster((8, 8, 4, 8))
    outcome = lawful(jobs, cluster, "lucid,time=20,factor=2,pack=off", 2)
    assert outcome.end_ms.tolist() == [10_000, 100_000, 30_000]
    assert outcome.migrations.tolist() == [0, 1, 0]
    charged = lawful(jobs, cluster, "lucid,time=20,factor=2,pack=off,overhead=lucid", 2)
    assert charged.end_ms.tolist() == [10_000, 140_000, 30_000]


def test_in_the_profiler_the_smallest_is_first_and_nobody_passes_it() -> None:
    jobs = make_jobs([(0, 1, 5), (1, 3, 9), (2, 2, 9), (3, 1, 9)])
    # One node of 4 GPUs: at 1 s the job of 3 starts; the one of 2 at 2 s does not fit, but the last is
    # before it, with fewer GPUs: it waits for the GPU of the first, until 5 s.
    outcome = lawful(jobs, make_cluster((4, 4, 4, 4)), "lucid,profile=4,pack=off,factor=1", 2)
    assert outcome.first_start_ms.tolist() == [0, 1000, 10_000, 5000]


def test_nobody_is_packed_while_few_come() -> None:
    jobs = make_jobs([(0, 1, 50), (1, 1, 50), (2, 2, 50), (3, 1, 50)], utilization=0.1)
    calm = lawful(jobs, make_cluster((1, 2)), "lucid,profile=0,calm=4", 2)
    off = lawful(jobs, make_cluster((1, 2)), "lucid,profile=0,pack=off", 2)
    assert same(calm, off)
    busy = lawful(jobs, make_cluster((1, 2)), "lucid,profile=0,calm=1", 2)
    # At the first look there was one arrival; the next is at 100 s, when all of one GPU have ended.
    assert busy.first_start_ms.tolist()[:2] == [0, 1000]


@tried(7, 20, jobs=sharing_jobs(), cluster=clusters())
def test_without_pairs_and_profiler_it_is_smallest_first(jobs: Jobs, cluster: Cluster) -> None:
    assert same(run_engine(jobs, cluster, "lucid,profile=0,pack=off"), run_engine(jobs, cluster, "ssf"))
    models = load_models()
    full = replace(models, memory=replace(models.memory, level="single"))
    ours = Scenario.make(jobs, cluster, models=full).run(PLAIN).outcome
    assert same(ours, run_engine(jobs, cluster, "ssf,scan=skip"))


@tried(5, 15, jobs=sharing_jobs(), cluster=clusters())
def test_the_laws_hold(jobs: Jobs, cluster: Cluster) -> None:
    lawful(jobs, cluster, "lucid,time=7,calm=0,overhead=lucid,noise=helios", 2)
    lawful(jobs, cluster, "lucid,profile=1,pack=on,score=4,ratio=inf,idle_first=on", 2)


def test_a_cluster_of_one_gpu_has_no_profiler() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 2, 10)])
    assert run_engine(jobs, make_cluster((1,)), "lucid").end_ms.tolist() == [10_000, -1]
    assert np.isfinite(run_engine(jobs, make_cluster((1,)), "lucid").busy_milli_ms)
    with pytest.raises(UsageError, match="score"):
        run_engine(jobs, make_cluster((1,)), "lucid,score=5")
