"""A replay cut into windows of time, against the whole: exact with all state, measured without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_jobs import make
from replay_windows import carried, edges_of, errors_of, resumed, warmed, whole

from tests.effort import examples
from tests.replay.builders import make_cluster, make_jobs

FAR = np.iinfo(np.int64).max
# Submission, GPUs and run time [s] of jobs on one node of 4 GPUs.
ROWS = [(0, 4, 100), (10, 1, 50), (20, 4, 30), (90, 2, 20), (130, 1, 5)]


def test_the_jobs_that_run_and_wait_at_a_cut_go_on_as_they_would_have() -> None:
    jobs, cluster = make_jobs(ROWS), make_cluster([4])
    # First in, first out by hand: j0 to 100, j1 to 150, which keeps j2 out until then, then j3 and j4 behind it.
    start, end = [0, 100_000, 150_000, 180_000, 180_000], [100_000, 150_000, 180_000, 200_000, 185_000]
    for cut in (1, 15_000, 90_000, 100_000, 120_000, 150_000, 199_000):
        found = carried(jobs, cluster, "fifo", [cut, FAR])
        assert (found.start_ms.tolist(), found.end_ms.tolist()) == (start, end), cut


def test_a_job_stopped_before_the_cut_has_the_run_time_left_that_it_did_not_run() -> None:
    jobs, cluster = make_jobs([(0, 4, 100), (30, 4, 40), (50, 4, 10)]), make_cluster([4])
    # Shortest remaining first: j1 takes over at 30, j2 at 50 (10 < 20), j1 goes on at 60 to 80, j0 from 80 to 150.
    start, end = [0, 30_000, 50_000], [150_000, 80_000, 60_000]
    for cut in (10_000, 30_000, 40_000, 50_000, 55_000, 60_000, 70_000, 80_000, 140_000):
        found = carried(jobs, cluster, "srtf", [cut, FAR])
        assert (found.start_ms.tolist(), found.end_ms.tolist()) == (start, end), cut


@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy"])
@settings(max_examples=examples(9))
@given(seed=st.integers(1, 10_000), windows=st.integers(2, 12), load=st.sampled_from([0.5, 0.9, 1.3]))
def test_counted_gpus_give_exactly_the_whole(policy: str, seed: int, windows: int, load: float) -> None:
    jobs, cluster = make(800, load, seed, nodes=6, vcs=2)
    truth = whole(jobs, cluster, f"{policy},fit=count")
    found = carried(jobs, cluster, f"{policy},fit=count", edges_of(jobs, windows))
    assert found.start_ms.tolist() == truth.start_ms.tolist()
    assert found.end_ms.tolist() == truth.end_ms.tolist()


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_saved_arrays_give_exactly_the_whole_on_nodes_too(policy: str) -> None:
    jobs, cluster = make(2000, 0.9, nodes=8, vcs=2)
    truth = whole(jobs, cluster, policy)
    found, saved = resumed(jobs, cluster, policy, 7)
    assert found.start_ms.tolist() == truth.start_ms.tolist()
    assert found.end_ms.tolist() == truth.end_ms.tolist()
    assert saved > 100 * len(jobs)  # they were there to be saved


def test_places_that_are_drawn_again_are_the_only_difference() -> None:
    jobs, cluster = make(3000, 0.9, nodes=8, vcs=2)
    edges = edges_of(jobs, 6)
    assert errors_of(jobs, carried(jobs, cluster, "fifo", edges), whole(jobs, cluster, "fifo"))["differing"] > 0
    same = errors_of(
        jobs, carried(jobs, cluster, "fifo,fit=count", edges), whole(jobs, cluster, "fifo,fit=count")
    )  # fmt: skip
    assert (same["mean"], same["p90"], same["differing"]) == (0, 0, 0)


def test_windows_by_themselves_come_nearer_with_more_days_and_are_the_whole_with_all() -> None:
    jobs, cluster = make(3000, 0.8, nodes=8, vcs=2)
    truth = whole(jobs, cluster, "fifo,fit=count")
    days = float(jobs.submit_ms[-1]) / 86_400_000
    errors = [
        errors_of(jobs, warmed(jobs, cluster, "fifo,fit=count", edges_of(jobs, 4), days * share), truth)
        for share in (0, 0.25, 1)
    ]
    assert errors[0]["differing"] > errors[1]["differing"] > 0
    assert (errors[2]["mean"], errors[2]["differing"]) == (0, 0)
    assert errors[0]["work"] == 1 < errors[1]["work"] < errors[2]["work"]
    # An empty cluster at the begin of a window makes waits too short.
    assert errors[0]["mean"] < 0
