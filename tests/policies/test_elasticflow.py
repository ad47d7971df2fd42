"""ElasticFlow: shares by hand, rigid jobs against a plain walk, admission against every order, and the laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.policies.promises import promises_of, told
from tests.policies.resized import assert_lawful, elastic, same, takes
from tests.policies.resized import run as run_plain
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.deadlines import Levels
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from typing import Any

    from tests.reviewed import Golden
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.results.comparison import ReplayResult

EXACT = "elasticflow,slot=0,margin=1,resize=0,overhead=none"
_ROWS = st.lists(
    st.tuples(st.integers(0, 15), st.sampled_from([1, 1, 2, 3, 4]), st.integers(1, 20)), min_size=1, max_size=9
)


def due(low: float, high: float, **changes: Any) -> Models:
    """Return models by which deadlines are so many run times after the submission, and speed is linear by default."""
    models = elastic(**changes)
    return replace(models, deadlines=replace(models.deadlines, factor=(low, high)))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models) -> ReplayResult:
    found = Scenario.make(jobs, cluster, models=models).run(policy, log=True)
    assert_lawful(jobs, cluster, found.outcome)
    return found


def test_least_shares_first_and_the_rest_to_the_earliest() -> None:
    # 200 and 400 GPU*s, both due at 200 s: least shares 1 and 2. The GPU left doubles the first job (speed is linear,
    # so that no job's GPU time grows, and the earlier one goes first). At 100 s it ends; the other, of which half is
    # left, still needs 2 and has all 4.
    result = run(make_jobs([(0, 2, 100), (0, 4, 100)]), make_cluster((4,)), EXACT, due(2, 2))
    assert takes(result.outcome) == [(0, 0, 2), (0, 1, 2), (100, 1, 4)]
    assert result.outcome.end_ms.tolist() == [100_000, 150_000]
    assert result.summary["late_share"] == 0.0


def test_who_finds_no_share_is_declined_and_has_what_is_left(golden: Golden) -> None:
    # A third job like the second: 1 GPU is left until 200 s, which is half of what it needs. It has that GPU, its
    # fewest, and from 200 s on all 4 for the 200 GPU*s that are left.
    jobs, cluster = make_jobs([(0, 2, 100), (0, 4, 100), (0, 4, 100)]), make_cluster((4,))
    result = run(jobs, cluster, EXACT, due(2, 2))
    assert result.outcome.end_ms.tolist() == [200_000, 200_000, 250_000]
    assert result.summary["late_share"] == pytest.approx(1 / 3)
    dropped = run(jobs, cluster, f"{EXACT},declined=drop", due(2, 2))
    # The GPU is free for growth, then half of all: the two end as in the test above.
    assert dropped.outcome.end_ms.tolist() == [100_000, 150_000, -1]
    golden([told(result), told(dropped)])


def test_a_promise_stops_best_effort_jobs(golden: Golden) -> None:
    # Deadlines after half the run time. Job 0: 400 GPU*s, due at 50 s, would need 8 of 4 GPUs: declined; it has 4 as
    # long as nobody else is there. Job 1: 40 GPU*s, due at 15 s, would need 8 too. Job 2: 40 GPU*s on one GPU, due at
    # 30 s, needs 2 and has them from 10 s to its end.
    jobs = make_jobs([(0, 4, 100), (10, 4, 10), (10, 1, 40)])
    result = run(jobs, make_cluster((4,)), EXACT, due(0.5, 0.5))
    golden(told(result))
    # At 10 s 2 GPUs are left, one each, no level more fits. At 30 s job 1 has 20 GPU*s left and grows first, by its
    # deadline at 15 s: 2 of 4 GPUs is a level, but 3 is none. 10 s later all 4 are job 0's: of its 400 it had
    # 40 by 10 s, 20 more by 30 s, 20 by 40 s at 2 GPUs: 320 on 4.
    assert takes(result.outcome)[:4] == [(0, 0, 4), (10, 2, 2), (10, 0, 1), (10, 1, 1)]
    assert result.outcome.end_ms.tolist() == [120_000, 40_000, 30_000]


def test_what_is_left_goes_where_gpu_time_grows_least() -> None:
    # By M8 a GPU more costs sigma times the work left on one GPU: least for the shorter job, though it came later.
    models = due(1, 1, sigma=0.03)
    result = run(make_jobs([(0, 1, 100), (0, 1, 50)]), make_cluster((3,)), f"{EXACT},slo=0", models)
    fast = 2 / 1.03
    short = 50_000 / fast
    assert result.outcome.end_ms.tolist() == pytest.approx([short + (100_000 - short) / fast, short], abs=2)
    assert result.summary["late_share"] is None
    # Where a GPU more makes nobody faster, none is given.
    idle = run(make_jobs([(0, 4, 60)]), make_cluster((8,)), f"{EXACT},slo=0", due(1, 1, sigma=1.0))
    assert takes(idle.outcome) == [(0, 0, 1)]


def test_levels_are_powers_of_two_or_the_request() -> None:
    g = np.array([1, 3, 8, 3])
    levels = Levels(elastic(), g, np.array([1, 1, 2, 1]), np.array([2, 6, 16, 6]))
    rows = [levels.gpus[a : a + n].tolist() for a, n in zip(levels.first.tolist(), levels.count.tolist(), strict=True)]
    assert rows == [[1, 2], [1, 2, 4], [2, 4, 8, 16], [1, 2, 4]]
    assert levels.fastest.tolist() == [2_000_000, 1_333_333, 2_000_000, 1_333_333]
    rigid = Levels(elastic(rigid=True), g, g, g)
    assert rigid.least.tolist() == [1, 3, 8, 3]


def ends_by_deadline(now: int, left: dict[int, int], gpus: list[int], due_ms: list[int], total: int) -> dict[int, int]:
    """Return when jobs would end, the earliest deadline first at every moment, jobs that do not fit passed over."""
    left, ends = dict(left), {}
    while left:
        on = chosen(sorted(left, key=lambda j: (due_ms[j], j)), gpus, total)
        step = min(left[j] for j in on)
        now += step
        for j in on:
            left[j] -= step
            if left[j] == 0:
                ends[j] = now
                del left[j]
    return ends


def chosen(order: list[int], gpus: list[int], free: int) -> list[int]:
    """Return who has GPUs, in an order, passing over those who do not fit."""
    on = []
    for j in order:
        if gpus[j] <= free:
            free -= gpus[j]
            on.append(j)
    return on


def walk(rows: list[tuple[int, int, int]], due_ms: list[int], total: int, *, drop: bool) -> list[int]:
    """Return the ends under admission and the earliest deadline first, for jobs of fixed size [ms]."""
    submit, gpus, work = [r[0] * 1000 for r in rows], [r[1] for r in rows], [r[2] * 1000 for r in rows]
    ends, left = [-1] * len(rows), {}
    promised: set[int] = set()
    never: set[int] = set()
    on: list[int] = []
    now = 0
    while True:
        for j in [j for j in range(len(rows)) if submit[j] == now and gpus[j] <= total]:
            left[j] = work[j]
            would = ends_by_deadline(now, {i: left[i] for i in [*promised, j]}, gpus, due_ms, total)
            if all(end <= due_ms[i] for i, end in would.items()):
                promised.add(j)
            elif drop:
                never.add(j)
        first = sorted((j for j in left if j in promised), key=lambda j: (due_ms[j], j))
        others = sorted((j for j in left if j not in promised and j not in never), key=lambda j: (j not in on, j))
        on = chosen([*first, *others], gpus, total)
        ahead = [at for at in submit if at > now] + [now + left[j] for j in on]
        if not ahead:
            return ends
        step = min(ahead) - now
        now += step
        for j in on:
            left[j] -= step
            if left[j] == 0:
                ends[j] = now
                del left[j]
        promised &= set(left)
        on = [j for j in on if j in left]


@tried(18, 50, rows=_ROWS, total=st.sampled_from([1, 2, 4]), high=st.sampled_from([1.5, 3.0, 6.0]), drop=st.booleans())
def test_jobs_of_fixed_size_are_a_walk_by_deadlines(
    rows: list[tuple[int, int, int]], total: int, high: float, drop: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    jobs, models = make_jobs([(float(a), g, float(s)) for a, g, s in rows]), due(0.9, high, rigid=True)
    text = EXACT + (",declined=drop" if drop else "")
    found = run(jobs, make_cluster((total,)), text, models).outcome
    due_ms = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, 0).tolist()
    assert found.end_ms.tolist() == walk(rows, due_ms, total, drop=drop)


@tried(12, 33, works=st.lists(st.integers(1, 20), min_size=1, max_size=5), high=st.sampled_from([2.0, 4.0, 8.0]))
def test_one_by_one_a_job_is_promised_wherever_some_order_serves_all(works: list[int], high: float) -> None:
    jobs, models = make_jobs([(0, 4, float(s)) for s in works]), due(1, high, rigid=True)
    due_ms = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, 0).tolist()
    promised: list[int] = []

    def serves(order: tuple[int, ...]) -> bool:
        ends = np.cumsum([works[j] * 1000 for j in order])
        return all(end <= due_ms[j] for j, end in zip(order, ends.tolist(), strict=True))

    for j in range(len(works)):
        if any(serves(order) for order in permutations([*promised, j])):
            promised.append(j)
    result = run(jobs, make_cluster((4,)), EXACT, models)
    assert promises_of(result)[:2] == (len(promised), len(promised))
    assert all(result.outcome.end_ms[j] <= due_ms[j] for j in promised)


@tried(
    7,
    20,
    jobs=job_lists(typed=False),
    gpus=st.sampled_from([4, 8]),
    high=st.sampled_from([1.0, 3.0, 8.0]),
    sigma=st.sampled_from([0.0, 0.03]),
)
def test_every_promise_is_kept_where_changes_cost_nothing(jobs: Jobs, gpus: int, high: float, sigma: float) -> None:
    result = run(jobs, make_cluster((gpus,)), EXACT, due(0.4, high, sigma=sigma))
    promised, in_time, _ = promises_of(result)
    assert promised == in_time


@settings(max_examples=examples(40), deadline=None)
@given(jobs=job_lists(), cluster=clusters(changing=False))
def test_without_deadlines_jobs_of_fixed_size_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    rigid = elastic(rigid=True)
    one = run_plain(jobs, cluster, f"{EXACT},slo=0,fit=count", rigid)
    same(one, run_plain(jobs, cluster, "fifo,scan=skip,fit=count", rigid))


def test_with_room_for_all_everyone_has_the_most() -> None:
    result = run(make_jobs([(0, 1, 60), (0, 2, 60), (0, 4, 60)]), make_cluster((8, 8)), EXACT, due(1, 1))
    assert sorted((j, n) for _, j, n in takes(result.outcome)) == [(0, 2), (1, 4), (2, 8)]


def test_plans_are_made_once_in_a_slot() -> None:
    # Come at 1 s, seen at 60 s; ended at 110 s, seen at 120 s.
    jobs = make_jobs([(0, 1, 200), (1, 1, 50)])
    models = due(9, 9, rigid=True)
    result = run(jobs, make_cluster((1,)), "elasticflow,margin=1,resize=0,overhead=none", models)
    # Job 1, due at 451 s, goes first from 60 s; job 0, due at 1,800 s, goes on at 120 s with 140 s left.
    assert result.outcome.end_ms.tolist() == [260_000, 110_000]


@tried(4, 8, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("text", ["", ",slot=0", ",admission=off,slot=2", ",declined=drop,slo=0.5,slot=2"])
def test_the_laws_hold(text: str, jobs: Jobs, cluster: Cluster) -> None:
    models = due(0.5, 4, sigma=0.03)
    one = run(jobs, cluster, f"elasticflow{text}", models).outcome
    same(one, run(jobs, cluster, f"elasticflow{text}", models).outcome)
    if "drop" not in text:
        assert ((one.end_ms >= 0) | one.unschedulable).all()


def test_values_out_of_range_are_refused() -> None:
    for text in ("slo=2", "margin=0.9", "admission=maybe", "declined=last", "overhead=nothing"):
        with pytest.raises(UsageError):
            run(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"elasticflow,{text}", load_models())
    wide = run(make_jobs([(0, 9, 10), (0, 1, 10)]), make_cluster((1,)), "elasticflow", load_models())
    assert wide.outcome.unschedulable.tolist() == [True, False]
