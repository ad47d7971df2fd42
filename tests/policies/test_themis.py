"""Themis: leases by hand, auctions against every outcome, and the laws on random cases."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.themis import best_bundles, best_sizes

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

RIGID = "themis,interval=0"


def run(jobs: Jobs, cluster: Cluster, policy: str, gang: str = "exact") -> Outcome:
    outcome = run_engine(jobs, cluster, policy)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang=gang) == []
    return outcome


def test_leases_of_a_minute_go_round() -> None:
    # One bids at a time. At 60 s the two that wait have ratio 2, who ran has (60 + 60) / 120 = 1; at 120 s the third
    # has 3, the second (120 + 60) / 120 = 1.5, the first 1 * (1 + 1) = 2; at 180 s the first and the second have 3, the
    # third 2: each has had its first lease by then, and each ends with its second.
    outcome = run(make_jobs([(0, 1, 120)] * 3), make_cluster((1,)), f"{RIGID},lease=60")
    assert sorted(outcome.first_start_ms.tolist()) == [0, 60_000, 120_000]
    assert sorted(outcome.end_ms.tolist()) == [240_000, 300_000, 360_000]


def test_an_estimate_in_place_of_the_released_ratio() -> None:
    # At 60 s: who ran (60 + 60) / 120, the short one (60 + 30) / 30, and it keeps the GPU to its end.
    outcome = run(make_jobs([(0, 1, 120), (1, 1, 30)]), make_cluster((1,)), f"{RIGID},lease=60,waiting=estimate")
    assert outcome.end_ms.tolist() == [150_000, 90_000]


def test_what_the_bidder_leaves_goes_to_the_others() -> None:
    # f=1: one bids. The gang, of three GPUs, or the pair: either leaves GPUs for jobs that do not bid.
    outcome = run(make_jobs([(0, 3, 60), (0, 1, 60)]), make_cluster((4,)), f"{RIGID},f=1")
    assert outcome.first_start_ms.tolist() == [0, 0]


def test_elastic_sizes_share_out_all_gpus() -> None:
    # Two jobs of 2 GPUs on 4, both bid: from 1 each, one GPU after the other to whom it helps most: 2 and 2.
    outcome = run(make_jobs([(0, 2, 60)] * 2), make_cluster((4,)), f"{RIGID},form=elastic,f=0", "elastic")
    assert outcome.end_ms.tolist() == [60_000, 60_000]
    # Alone it has twice its request: S(4) / S(2) = (4 / 1.09) / (2 / 1.03) = 1.889908.
    alone = run(make_jobs([(0, 2, 60)]), make_cluster((4,)), f"{RIGID},form=elastic", "elastic")
    assert alone.end_ms.tolist() == [math.ceil(60_000 / 1.889908)]


def test_numbers_out_of_range_are_refused() -> None:
    for text in ("f=1.5", "lease=0", "form=liquid", "bidders=0"):
        with pytest.raises(UsageError):
            run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"themis,{text}")


@settings(max_examples=25, deadline=None)
@given(
    bids=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=5),
    free=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_the_winners_have_the_largest_product(bids: list[tuple[int, int, int]], free: tuple[int, int]) -> None:
    gain = np.array([b[0] for b in bids], np.float64)
    gpus = np.array([b[1] for b in bids])
    may = np.array([[b[2] & 1, b[2] & 2] for b in bids]) > 0
    best = 0.0
    for pools in itertools.product((-1, 0, 1), repeat=len(bids)):
        at = np.array(pools)
        used = [int(gpus[at == p].sum()) for p in (0, 1)]
        allowed = all(p < 0 or may[i, p] for i, p in enumerate(pools))
        if allowed and used[0] <= free[0] and used[1] <= free[1]:
            best = max(best, float(gain[at >= 0].sum()))
    won = best_bundles(gain, gpus, may, np.array(free))
    assert all(p < 0 or may[i, p] for i, p in enumerate(won.tolist()))
    assert all(int(gpus[won == p].sum()) <= free[p] for p in (0, 1))
    assert float(gain[won >= 0].sum()) == pytest.approx(best)
    short = best_bundles(gain, gpus, may, np.array(free), nodes=1)
    assert all(int(gpus[short == p].sum()) <= free[p] for p in (0, 1))
    near = best_bundles(gain, gpus, may, np.array(free), gap=0.2)
    assert float(gain[near >= 0].sum()) >= 0.8 * best - 1e-9


@settings(max_examples=25, deadline=None)
@given(
    bidders=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=3),
    free=st.integers(0, 10),
    sigma=st.sampled_from([0.0, 0.03, 0.5]),
)
def test_sizes_have_the_largest_product(bidders: list[tuple[int, int]], free: int, sigma: float) -> None:
    low, high = [b[0] for b in bidders], [b[0] + b[1] for b in bidders]

    def speed(_: int, n: int) -> float:
        return n / (1 + sigma * (n - 1))

    sizes, left = best_sizes(low, high, free, speed)
    assert sum(sizes) + left == free
    served = [i for i, n in enumerate(sizes) if n]
    every = itertools.product(*(range(low[i], high[i] + 1) for i in served))
    best = max(math.prod(speed(0, n) for n in ns) for ns in every if sum(ns) <= free)
    assert math.prod(speed(0, sizes[i]) for i in served) == pytest.approx(best)


@settings(max_examples=10, deadline=None)
@given(times=st.lists(st.integers(0, 40), min_size=1, max_size=12), work=st.integers(1, 30), gpus=st.integers(1, 4))
def test_with_endless_leases_jobs_alike_are_first_in_first_out(times: list[int], work: int, gpus: int) -> None:
    jobs = make_jobs([(at, 1, work) for at in times])
    outcome = run(jobs, make_cluster((gpus,)), f"{RIGID},lease=1e9")
    assert sorted(outcome.end_ms.tolist()) == sorted(run_engine(jobs, make_cluster((gpus,)), "fifo,scan=skip").end_ms)
    assert outcome.preemptions.sum() == 0


@tried(7, 20, jobs=job_lists(), cluster=clusters(), form=st.sampled_from(["rigid", "elastic"]))
def test_the_laws_hold_and_room_for_all_is_used(jobs: Jobs, cluster: Cluster, form: str) -> None:
    gang = "exact" if form == "rigid" else "elastic"
    text = f"themis,form={form},lease=5,interval=1,overhead=gandiva,resize=1"
    one, two = run(jobs, cluster, text, gang), run(jobs, cluster, text, gang)
    assert one.end_ms.tolist() == two.end_ms.tolist()
    if form == "rigid":
        wide = run(jobs, make_cluster((400, 400), model=["A100", "V100"]), f"{RIGID},lease=5")
        assert wide.preemptions.sum() == 0
        able = wide.unschedulable == 0
        assert (wide.first_start_ms[able] == jobs.submit_ms[able]).all()
