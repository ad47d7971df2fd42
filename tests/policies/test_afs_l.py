"""AFS-L: worked by hand, against a plain tournament, and the settings in which it is another policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.resized import assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FREE = "afs-l,gap=0,resize=0,overhead=none"


def test_equal_gains_go_to_the_shorter_job() -> None:
    jobs = make_jobs([(0, 2, 100), (0, 2, 40)])
    outcome = run(jobs, make_cluster((4,)), FREE)
    # Minima of 1, speed linear. Job 1 is the shorter, 80 against 200 s on one GPU: the first GPU is its. A second would
    # add 1/1 to it, and to job 0 the whole of its speed, no more: its again. A third adds 1/2, less than job 0's whole;
    # now job 0, at 200 s, gains 1/2 of the speed after, and job 1, at 40 s, 1/2 of the speed before: job 1 has 3.
    assert takes(outcome)[:2] == [(0, 1, 3), (0, 0, 1)]
    # 80 GPU*s take 26.667 s, of which job 0 did its own: 200 - 26.667 = 173.333 left, on 4 GPUs 43.333 s.
    assert outcome.end_ms.tolist() == [pytest.approx(70_000, abs=2), 26_667]


def test_the_longer_job_has_what_the_shorter_one_makes_little_of() -> None:
    jobs = make_jobs([(0, 4, 100), (0, 4, 40)])
    outcome = run(jobs, make_cluster((4,)), FREE, elastic(sigma=1.0))
    # Nobody gains by more than one GPU: both have one, and two stay idle.
    assert sorted(takes(outcome)[:2]) == [(0, 0, 1), (0, 1, 1)]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 3), st.integers(0, 6)), min_size=1, max_size=7),
    free=st.integers(0, 20),
    sigma=st.sampled_from([0.0, 0.03, 0.5]),
)
def test_each_gpu_goes_to_who_wins_the_knock_out(rows: list[tuple[int, int, int]], free: int, sigma: float) -> None:
    count = len(rows)
    low = np.array([r[1] for r in rows])
    high, work = low + [r[2] for r in rows], np.array([float(r[0]) for r in rows])
    speed = np.arange(12) / (1 + sigma * np.maximum(np.arange(12) - 1, 0))
    gpus, line = np.zeros(count, np.int64), np.arange(count)
    left = kernel().divide_by_pairs(line, work, low, high, speed, free, gpus, np.zeros(2 * count, np.int64))

    def beats(a: int, b: int, have: list[int]) -> int:
        length = [work[j] / speed[max(have[j], low[j])] for j in (a, b)]
        short, long = (b, a) if length[1] < length[0] else (a, b)
        if have[short] == 0:
            return short
        after = speed[have[long] + 1 if have[long] else low[long]]
        gain = (after - speed[have[long]]) / after
        now = speed[have[short]]
        return long if gain > (speed[have[short] + 1] - now) / now else short

    have, out = [0] * count, [False] * count
    left_over = free
    while left_over > 0 and not all(out):
        tree = [-1] * count + [-1 if out[j] else j for j in range(count)]
        for i in range(count - 1, 0, -1):
            a, b = tree[2 * i], tree[2 * i + 1]
            tree[i] = max(a, b) if min(a, b) < 0 else beats(a, b, have)
        j = tree[1]
        step = 1 if have[j] else int(low[j])
        if step > left_over:
            out[j] = True
            continue
        have[j], left_over = have[j] + step, left_over - step
        out[j] = have[j] >= high[j] or speed[have[j] + 1] <= speed[have[j]]
    assert (gpus.tolist(), left) == (have, left_over)


@settings(max_examples=10, deadline=None)
@given(jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_jobs_of_fixed_size_are_shortest_remaining_first(jobs: Jobs, cluster: Cluster) -> None:
    rigid = elastic(rigid=True)
    one = run(jobs, cluster, f"{FREE},fit=count", rigid)
    same(one, run(jobs, cluster, "srtf,scan=skip,fit=count", rigid))


def test_with_room_for_all_everyone_has_the_most() -> None:
    jobs = make_jobs([(0, 1, 60), (60, 2, 60), (60, 4, 60)])
    outcome = run(jobs, make_cluster((8, 8)), "afs-l")
    assert sorted((j, n) for _, j, n in takes(outcome)) == [(0, 2), (1, 4), (2, 8)]


@tried(4, 12, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_the_laws_hold(sigma: float, jobs: Jobs, cluster: Cluster) -> None:
    assert_lawful(jobs, cluster, run(jobs, cluster, "afs-l,gap=1", elastic(sigma=sigma)))
