"""Chronus: leases by hand, reservations against every assignment, and the settings in which it is another policy."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.policies.promises import promises_of, told
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.chronus import Need, Reservations
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.results.comparison import ReplayResult

EXACT = "chronus,lease=10,margin=1,overhead=none"
_WHOLE = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([1, 1, 2, 3, 4, 8]), st.integers(0, 30)), min_size=1, max_size=12
)


def due(low: float, high: float) -> Models:
    """Return models by which deadlines are so many run times after the submission."""
    models = load_models()
    return replace(models, deadlines=replace(models.deadlines, factor=(low, high)))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models | None = None) -> ReplayResult:
    found = Scenario.make(jobs, cluster, models=models).run(policy, log=True)
    assert found.outcome.log is not None
    assert audit(jobs, cluster, found.outcome.log, found.outcome) == []
    return found


def test_leases_are_reserved_late_and_kept(golden: Golden) -> None:
    jobs = make_jobs([(0, 1, 20), (0, 1, 20), (5, 1, 10)])
    # Deadlines at 40, 40 and 25 s. The first has leases 2 and 3, the second what is left: 0 and 1. The third could only
    # have lease 1 (20 s to 25 s is no whole lease), nor does it help to move the others: declined, and it waits for
    # a lease that is nobody's.
    result = run(jobs, make_cluster((1,)), EXACT, due(2, 2))
    assert result.outcome.end_ms.tolist() == [40_000, 20_000, 50_000]
    assert result.summary["late_share"] == pytest.approx(1 / 3)
    golden(told(result))
    # Without promises the smallest remaining goes first at 10 s: 10 s left of job 0, then all of job 2, then job 1.
    none = run(jobs, make_cluster((1,)), f"{EXACT},admission=none", due(2, 2))
    assert none.outcome.end_ms.tolist() == [20_000, 50_000, 30_000]
    assert none.summary["late_share"] == pytest.approx(2 / 3)


def test_a_promised_lease_stops_a_best_effort_job() -> None:
    # Job 0, due at 19.5 s, has one whole lease before it and needs two: declined. Job 1, due at 44 s, has leases 1, 2
    # and 3: job 0 is stopped at 10 s, and goes on at 40 s.
    result = run(make_jobs([(0, 1, 15), (5, 1, 30)]), make_cluster((1,)), EXACT, due(1.3, 1.3))
    assert result.outcome.end_ms.tolist() == [45_000, 40_000]
    assert result.outcome.preemptions.tolist() == [1, 0]
    assert result.summary["late_share"] == 0.5


def test_promised_jobs_run_before_their_time() -> None:
    # Job 0, due at 14.5 s, has lease 0. Job 1, due at 291 s, has leases 19 to 28, and job 2, due at 30 s, lease 2. From
    # 5 s on nobody else wants the GPUs: job 2 goes first by what is left, and job 1 does not fit beside it.
    jobs = make_jobs([(0, 2, 5), (1, 2, 100), (1, 1, 10)])
    result = run(jobs, make_cluster((2,)), EXACT, due(2.9, 2.9))
    assert result.outcome.end_ms.tolist() == [5_000, 115_000, 15_000]
    assert result.summary["late_share"] == 0.0
    # Between leases nothing begins with between=off: job 2 has the GPU from 10 s, job 1 both from 20 s.
    idle = run(jobs, make_cluster((2,)), f"{EXACT},between=off", due(2.9, 2.9))
    assert idle.outcome.end_ms.tolist() == [5_000, 120_000, 20_000]


def test_declined_jobs_last_or_never() -> None:
    # 0.9 of its run time is too little for any job: all are declined, and the smaller goes first, or none ever runs.
    jobs = make_jobs([(0, 1, 30), (0, 1, 20)])
    for how, ends in (("best-effort", [50_000, 20_000]), ("last", [50_000, 20_000]), ("drop", [-1, -1])):
        result = run(jobs, make_cluster((1,)), f"{EXACT},declined={how}", due(0.9, 0.9))
        assert result.outcome.end_ms.tolist() == ends
        assert promises_of(result).declined == 2
    assert "2 never ran" in told(result)
    assert result.outcome.unschedulable.tolist() == [True, True]


def test_the_declined_go_last_behind_jobs_without_deadlines() -> None:
    # Where job 0 alone has a deadline, which it cannot meet, job 1 goes first, though more is left of it.
    jobs = make_jobs([(0, 1, 30), (0, 1, 40)])
    shares = [Scenario.make(jobs, make_cluster((1,)), models=due(0.8, 0.8), seed=seed) for seed in range(60)]
    for scenario in shares:
        result = scenario.run(f"{EXACT},slo=0.5,declined=last")
        deadline = result.outcome.deadline_ms
        assert deadline is not None
        if (deadline >= 0).tolist() == [True, False]:
            assert result.outcome.end_ms.tolist() == [70_000, 40_000]
            return
    raise AssertionError("no seed gives the first job alone a deadline")


@tried(7, 20, rows=_WHOLE, gpus=st.sampled_from([1, 2, 4, 8]))
def test_without_deadlines_it_is_srsf_where_leases_begin(rows: list[tuple[int, int, int]], gpus: int) -> None:
    jobs, cluster = make_jobs([(float(at), g, float(s)) for at, g, s in rows]), make_cluster((gpus,))
    one = run(jobs, cluster, "chronus,slo=0,between=off,overhead=none,lease=1").outcome
    two = run_count(jobs, cluster, "srsf,fit=count")
    assert one.end_ms.tolist() == two


def run_count(jobs: Jobs, cluster: Cluster, policy: str) -> list[int]:
    ends: list[int] = Scenario.make(jobs, cluster).run(policy).outcome.end_ms.tolist()
    return ends


def walk(rows: list[tuple[int, int, int]], gpus: int, lease: int) -> list[int]:
    """SRSF at lease ticks, second by second [s]: at a tick all GPUs are handed out anew, in between none is."""
    left = {j: s for j, (_, g, s) in enumerate(rows) if g <= gpus}
    ends = [-1] * len(rows)
    on: list[int] = []
    for now in range(100_000):
        for j in [j for j in on if left[j] == 0]:
            ends[j] = now
            on.remove(j)
            del left[j]
        if not left:
            break
        if now % lease == 0:
            here = sorted(j for j in left if rows[j][0] <= now)
            free, was, on = gpus, set(on), []
            for j in sorted(here, key=lambda j: (left[j] * rows[j][1], j not in was, j)):
                if rows[j][1] <= free:
                    free -= rows[j][1]
                    on.append(j)
        for j in on:
            left[j] -= 1
    return ends


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([1, 1, 2, 3, 4]), st.integers(1, 30)), min_size=1, max_size=10
    ),
    gpus=st.sampled_from([1, 2, 4]),
    lease=st.sampled_from([3, 7]),
)
def test_without_deadlines_it_is_a_walk_by_leases(rows: list[tuple[int, int, int]], gpus: int, lease: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    jobs, cluster = make_jobs([(float(at), g, float(s)) for at, g, s in rows]), make_cluster((gpus,))
    found = run(jobs, cluster, f"chronus,slo=0,between=off,overhead=none,lease={lease}").outcome
    assert [end // 1000 for end in found.end_ms.tolist()] == walk(rows, gpus, lease)


@tried(7, 20, rows=_WHOLE, gpus=st.sampled_from([1, 4, 8]))
def test_with_endless_leases_nothing_is_stopped(rows: list[tuple[int, int, int]], gpus: int) -> None:
    jobs, cluster = make_jobs([(float(at), g, float(s)) for at, g, s in rows]), make_cluster((gpus,))
    one = run(jobs, cluster, "chronus,slo=0,lease=1e9").outcome
    assert one.preemptions.sum() == 0
    assert one.end_ms.tolist() == run_count(jobs, cluster, "ssf,scan=skip,fit=count")


needs_of = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4)


def possible(needs: list[Need], capacity: int) -> bool:
    """Whether some choice of leases serves all, by trying every one."""
    choices = [list(combinations(range(need.end), need.leases)) for need in needs]
    for chosen in product(*choices):
        load = [0] * 8
        for need, leases in zip(needs, chosen, strict=True):
            for lease in leases:
                load[lease] += need.gpus
        if max(load) <= capacity:
            return True
    return False


@settings(max_examples=examples(150), deadline=None)
@given(rows=needs_of, capacity=st.integers(1, 4), low=st.sampled_from([0, 5, 3000]))
def test_the_program_finds_leases_where_there_are_any(
    rows: list[tuple[int, int, int]], capacity: int, low: int
) -> None:
    needs = [Need(j, 0, gpus, leases, end) for j, (gpus, leases, end) in enumerate(rows)]
    moved = [need._replace(end=need.end + low) for need in needs]
    able = possible(needs, capacity)
    there = np.array([capacity])
    for way in ("one by one", "moved", "program"):
        book = Reservations(1)
        if way == "one by one":
            found = all(book.reserve(need, low, capacity) for need in moved)
        elif way == "moved":
            found = book.move_all(moved, low, there)
        else:
            found = book.solve(moved, low, there, 1000, 1000)
            assert found == able
        assert able or not found
        load: dict[int, int] = {}
        for need, leases in book.of.values():
            assert len(set(leases.tolist())) == need.leases
            assert all(low <= lease < need.end for lease in leases.tolist())
            for lease in leases.tolist():
                load[lease] = load.get(lease, 0) + need.gpus
        assert max(load.values(), default=0) <= capacity
        assert len(book.of) == len(needs) or not found


def test_a_program_too_large_or_unsolved_declines() -> None:
    book, needs = Reservations(1), [Need(0, 0, 1, 2, 4)]
    assert not book.solve(needs, 0, np.array([1]), 100, 3)
    assert book.of == {}
    # What is given back can be had again, and an extension takes leases that are free.
    assert book.reserve(needs[0], 0, 1)
    assert book.of[0][1].tolist() == [2, 3]
    assert not book.reserve(Need(1, 0, 1, 3, 4), 0, 1)
    assert book.extend(0, 1, 0, 1)
    assert book.of[0][1].tolist() == [1, 2, 3]
    assert not book.extend(0, 2, 0, 1)
    book.drop_first(0, 1, 1)
    assert book.of[0][1].tolist() == [2, 3]
    book.free([0], 0)
    assert book.reserve(Need(1, 0, 1, 4, 4), 0, 1)


@settings(max_examples=examples(40), deadline=None)
@given(
    jobs=job_lists(typed=False),
    gpus=st.sampled_from([4, 8]),
    admission=st.sampled_from(["greedy", "program"]),
    high=st.sampled_from([1.5, 6.0]),
)
def test_every_promise_is_kept_where_nothing_disturbs(jobs: Jobs, gpus: int, admission: str, high: float) -> None:
    # One node: no gang is slowed by its places; and restarts cost nothing.
    result = run(
        jobs, make_cluster((gpus,)), f"chronus,lease=2,margin=1,overhead=none,admission={admission}", due(1, high)
    )
    outcome = result.outcome
    promised, kept, _ = promises_of(result)
    assert promised == kept
    assert outcome.deadline_ms is not None
    assert int((outcome.end_ms <= outcome.deadline_ms)[outcome.end_ms >= 0].sum()) >= kept
    able = ~outcome.unschedulable
    assert (outcome.run_ms[able] == jobs.work_ms[able]).all()


@tried(
    4,
    10,
    jobs=job_lists(),
    cluster=clusters(),
    text=st.sampled_from(["", ",between=off", ",declined=drop,slo=0.5", ",declined=last,admission=program"]),
)
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, text: str) -> None:
    one = run(jobs, cluster, f"chronus,lease=3,overhead=gandiva{text}", due(1, 5)).outcome
    two = run(jobs, cluster, f"chronus,lease=3,overhead=gandiva{text}", due(1, 5)).outcome
    assert one.end_ms.tolist() == two.end_ms.tolist()


def test_a_share_of_the_jobs_has_a_deadline_and_counts() -> None:
    jobs = make_jobs([(float(i), 1, 10.0 + i) for i in range(200)])
    half = run(jobs, make_cluster((8,)), f"{EXACT},slo=0.5", due(1, 3))
    every = run(jobs, make_cluster((8,)), EXACT, due(1, 3)).outcome
    deadline = half.outcome.deadline_ms
    assert deadline is not None
    assert every.deadline_ms is not None
    has = deadline >= 0
    assert 70 < has.sum() < 130
    # Who has a deadline has the same one, however many have one.
    assert deadline[has].tolist() == every.deadline_ms[has].tolist()
    assert half.summary["late_share"] == (half.outcome.end_ms[has] > deadline[has]).mean()


def test_values_out_of_range_are_refused() -> None:
    for text in ("lease=0.5", "slo=2", "margin=0.9", "admission=later", "declined=wait", "overhead=nothing"):
        with pytest.raises(UsageError):
            run(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"chronus,{text}")
    wide = run(make_jobs([(0, 9, 10), (0, 1, 10)]), make_cluster((1,)), "chronus").outcome
    assert wide.unschedulable.tolist() == [True, False]
