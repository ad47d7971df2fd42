"""Windows of rounds: worked by hand, the program against every way to share out, and the laws."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.shockwave_like import Window, greedy, log_progress, solve
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.results.comparison import ReplayResult

FAIR = "shockwave-like,round=10,k=0,rhomax=inf,window=1,overhead=none"


def run(jobs: Jobs, cluster: Cluster, policy: str) -> ReplayResult:
    found = Scenario.make(jobs, cluster).run(policy, log=True)
    assert found.outcome.log is not None
    assert audit(jobs, cluster, found.outcome.log, found.outcome) == []
    return found


def told(result: ReplayResult) -> str:
    return str(result.summary["assumptions"]["windows"]["value"])


@pytest.mark.parametrize("solver", ["greedy", "program"])
def test_each_round_goes_where_the_logarithm_grows_most(solver: str) -> None:
    # At 0, 0.2, ... 1 the logarithm is -13.816, -1.609, -0.916, -0.511, -0.223, 0. A round is a half of the first job
    # and a quarter of the second: from 0 they gain 13.102 and 12.379; then 0.714 against 12.379, against 0.723 from
    # 0.25 to 0.5, and against 0.419 from there to 0.75. So first, second, second, first, and the second to its end.
    jobs = make_jobs([(0, 1, 20), (0, 1, 40)])
    result = run(jobs, make_cluster((1,)), f"{FAIR},solver={solver}")
    assert result.outcome.end_ms.tolist() == [40_000, 60_000]


def test_idle_gpus_go_to_the_longest(golden: Golden) -> None:
    # For a GPU, from nothing: the gang 13.102 / 2, job 1 (a tenth) 6.103, job 2 (a fifth) 12.206. The gang does not
    # fit beside job 2; the GPU left is for the longest, job 1. At 10 s: 6.551 for the gang, 6.103, 0.693: the gang. At
    # 20 s: 0.357, 6.103, 0.693: jobs 1 and 2. At 30 s: 0.357, 0.347, 0.405: job 2, and job 1 as the longest. At 40 s:
    # 0.357, 0.347, 0.288: the gang, to its end. Then there is room for both, with 70 s and 20 s left.
    jobs = make_jobs([(0, 2, 20), (0, 1, 100), (0, 1, 50)])
    result = run(jobs, make_cluster((2,)), FAIR)
    assert result.outcome.end_ms.tolist() == [50_000, 120_000, 70_000]
    golden(told(result))


def test_the_longest_job_counts_by_its_price() -> None:
    # Where time costs much the longest job has both rounds of the window, and after that the one that is longer then.
    jobs = make_jobs([(0, 1, 60), (0, 1, 20)])
    text = "shockwave-like,round=10,rhomax=inf,window=2,overhead=none"
    for solver in ("greedy", "program"):
        dear = run(jobs, make_cluster((1,)), f"{text},k=1000,solver={solver}")
        # 60 and 20 s left: two rounds for the first, and again; then 20 and 20.
        assert dear.outcome.first_start_ms[1] >= 40_000
        free = run(jobs, make_cluster((1,)), f"{text},k=0,solver={solver}")
        assert free.outcome.first_start_ms[1] < 20_000


def test_who_is_beyond_the_bound_goes_first() -> None:
    # Job 1 comes when job 0 has run for ten rounds of a hundred: at a share of one GPU for two jobs the fair end of
    # either lies behind a window of one round, so that the bound holds for a time; job 1 has the round by its progress.
    jobs = make_jobs([(0, 1, 1000), (100, 1, 15)])
    result = run(jobs, make_cluster((1,)), "shockwave-like,round=10,window=1,k=0,overhead=none")
    assert result.outcome.end_ms[1] <= 160_000
    assert "without the bound" in told(result)


def window_of(rows: list[tuple[int, int, int]], capacity: int, rounds: int, k: float, needs: list[float]) -> Window:
    gpus, whole, done = (np.array(column) for column in zip(*rows, strict=True))
    whole = whole / 2
    left = whole * (1 - done / 4)
    return Window(
        gpus=gpus,
        pool=np.zeros(len(rows), np.int64),
        capacity=np.array([capacity]),
        left=left,
        whole=whole,
        weight=np.arange(1, len(rows) + 1, dtype=np.float64),
        need=np.minimum(left, np.array(needs[: len(rows)])),
        rounds=rounds,
        k=k,
    )


def best_of_all(window: Window) -> float:
    """Return the largest objective of all ways to give rounds; minus infinity where none meets the needs."""
    jobs, best = len(window.left), -np.inf
    for bits in product((0, 1), repeat=jobs * window.rounds):
        given_rounds = np.array(bits).reshape(jobs, window.rounds)
        if (window.gpus @ given_rounds > window.capacity[0]).any():
            continue
        planned = given_rounds.sum(axis=1).astype(np.float64)
        if (np.minimum(planned, window.left) >= window.need - 1e-9).all():
            best = max(best, window.value(planned))
    return best


windows: Any = st.builds(
    window_of,
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 2),
    st.sampled_from([0.0, 0.05, 1.0, 1000.0]),
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 2.0]), min_size=4, max_size=4),
)


@settings(max_examples=examples(150), deadline=None)
@given(windows)
def test_the_program_is_the_best_of_all(window: Window) -> None:
    best = best_of_all(window)
    solved = solve(window, 60, 0.0)
    assert not solved.stopped
    assert solved.impossible == (best == -np.inf)
    if solved.rounds is not None:
        assert (window.gpus @ solved.rounds <= window.capacity[0]).all()
        assert window.value(solved.rounds.sum(axis=1).astype(np.float64)) == pytest.approx(best, rel=1e-6, abs=1e-6)


@settings(max_examples=examples(150), deadline=None)
@given(windows)
def test_the_greedy_way_keeps_to_the_window(window: Window) -> None:
    counts = greedy(window)
    needs = int((np.ceil(window.need - 1e-9) * window.gpus).sum())
    room = int(window.capacity[0]) * window.rounds
    assert (counts is None) == (needs > room or bool((window.need > window.rounds).any()))
    if counts is not None:
        assert int((counts * window.gpus).sum()) <= room
        assert (counts <= window.rounds).all()
        assert (np.minimum(counts, window.left) >= window.need - 1e-9).all()


@tried(
    12,
    33,
    rows=st.lists(st.tuples(st.just(1), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=5),
    capacity=st.integers(1, 4),
)
def test_among_jobs_of_one_size_the_greedy_way_is_the_best_for_one_round(
    rows: list[tuple[int, int, int]], capacity: int
) -> None:
    window = window_of(rows, capacity, 1, 0.0, [0.0] * len(rows))
    counts = greedy(window)
    assert counts is not None
    assert window.value(counts.astype(np.float64)) == pytest.approx(best_of_all(window), abs=1e-9)


@tried(
    4,
    10,
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 60)), min_size=2, max_size=5),
    gpus=st.integers(1, 4),
)
def test_every_round_is_proportionally_fair(rows: list[tuple[int, int]], gpus: int) -> None:
    # The first round of a replay with k=0, rhomax=inf, window=1, against every choice of jobs for it.
    rows = [(min(g, gpus), s) for g, s in rows]
    jobs = make_jobs([(0, g, float(s)) for g, s in rows])
    outcome = run(jobs, make_cluster((gpus,)), f"{FAIR},solver=program,gap=0").outcome
    begun = [j for j in range(len(rows)) if outcome.first_start_ms[j] == 0]

    def grown(chosen: list[int]) -> float:
        progress = np.array([min(10 / rows[j][1], 1.0) for j in chosen])
        return float((log_progress(progress) - log_progress(np.zeros(len(chosen)))).sum())

    every = [[j for j in range(len(rows)) if bits >> j & 1] for bits in range(2 ** len(rows))]
    able = [chosen for chosen in every if sum(rows[j][0] for j in chosen) <= gpus]
    # What is idle goes to others: never less than the best.
    assert grown(begun) >= max(map(grown, able)) - 1e-6


def test_a_limit_gives_the_best_so_far_and_tells() -> None:
    jobs = make_jobs([(0, g, 300.0 + 7 * i) for i, g in enumerate([3, 5, 2, 4, 1, 3, 2, 5, 4, 3])])
    text = "shockwave-like,round=10,solver=program,window=10"
    short = run(jobs, make_cluster((8,)), f"{text},limit=0")
    assert (short.outcome.end_ms >= 0).all()
    assert "hit the limit with the best solution so far" in told(short)
    large = run(jobs, make_cluster((8,)), f"{text},cells=10")
    assert "0 programs were solved" in told(large)


def test_with_room_for_all_nobody_waits_beyond_a_round() -> None:
    jobs = make_jobs([(0, 2, 100), (3, 1, 50), (15, 4, 30)])
    outcome = run(jobs, make_cluster((8,)), "shockwave-like,round=10").outcome
    assert outcome.first_start_ms.tolist() == [0, 10_000, 20_000]
    assert outcome.preemptions.sum() == 0


@tried(4, 6, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("text", ["", ",window=1,k=10"])
def test_the_laws_hold(text: str, jobs: Jobs, cluster: Cluster) -> None:
    lawful(jobs, cluster, f"shockwave-like,round=5,overhead=gandiva{text}")


@settings(max_examples=examples(8), deadline=None)
@given(jobs=job_lists(most=6), cluster=clusters())
def test_the_laws_hold_with_programs(jobs: Jobs, cluster: Cluster) -> None:
    lawful(jobs, cluster, "shockwave-like,round=10,window=2,solver=program")


def lawful(jobs: Jobs, cluster: Cluster, policy: str) -> None:
    one, two = run(jobs, cluster, policy).outcome, run(jobs, cluster, policy).outcome
    assert one.end_ms.tolist() == two.end_ms.tolist()
    assert ((one.end_ms >= 0) | one.unschedulable).all()


def test_rounds_shorter_than_a_restart_end_all_jobs() -> None:
    # A restart costs 20 s, so that a round of 5 s alone would be no progress.
    jobs = make_jobs([(i % 7, 1 + i % 3, 20.0 + i) for i in range(12)])
    outcome = run(jobs, make_cluster((4,)), "shockwave-like,round=5,window=1").outcome
    assert (outcome.end_ms >= 0).all()
    assert (outcome.run_ms - outcome.overhead_ms == jobs.work_ms).all()


def test_values_out_of_range_are_refused() -> None:
    for text in ("round=0", "window=0", "rhomax=-1", "solver=gurobi", "k=inf", "overhead=nothing"):
        with pytest.raises(UsageError):
            run(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"shockwave-like,{text}")
    wide = run(make_jobs([(0, 9, 10), (0, 1, 10)]), make_cluster((1,)), "shockwave-like").outcome
    assert wide.unschedulable.tolist() == [True, False]
