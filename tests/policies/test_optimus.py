"""Optimus: worked by hand, the best of all divisions on small cases, and the settings in which it is another policy."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.resized import assert_all_work_done, assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.speeds import server_speed
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

AT_ONCE = "optimus,interval=0"


def test_each_gpu_goes_where_it_takes_off_most() -> None:
    jobs = make_jobs([(0, 4, 400), (0, 4, 100)])
    outcome = run(jobs, make_cluster((6,)), "optimus")
    # One each. One unit of work is 1,600 s and 400 s on one GPU. Further ones take off, in s: the first 800, 267, 133,
    # 80; the second 200, 67. The four largest: 800, 267, 200, 133; so 4 and 2.
    assert takes(outcome)[:2] == [(0, 0, 4), (0, 1, 2)]
    # The second ends at 200 s, but plans are made every 600 s: the first ends at 400 s on its 4.
    assert outcome.end_ms.tolist() == [400_000, 200_000]


def test_plans_follow_what_is_left() -> None:
    jobs = make_jobs([(0, 2, 3000), (0, 2, 1200)])
    outcome = run(jobs, make_cluster((4,)), "optimus")
    # 6,000 and 2,400 s on one GPU. The second GPU takes off 3,000 and 1,200, the third of the first 1,000: 2 and 2.
    # At 600 s 4,800 and 1,200 s are left: 2,400, 800 and 600: the third GPU of the first now wins, and both resize,
    # for 30 s without progress. The second needs 1,200 s more, the first 4,800 / 3 = 1,600 s. The second ends at
    # 1,830 s, and the next plan, at 2,400 s, comes too late for the first.
    assert takes(outcome) == [(0, 0, 2), (0, 1, 2), (600, 0, 3), (600, 1, 1)]
    assert outcome.end_ms.tolist() == [2_230_000, 1_830_000]


def test_the_shortest_go_first_where_not_all_fit() -> None:
    jobs = make_jobs([(0, 1, 300), (0, 1, 100), (0, 1, 200)])
    outcome = run(jobs, make_cluster((2,)), AT_ONCE + ",resize=0,overhead=none")
    # Both GPUs are minima: of jobs 1 and 2. At 100 s job 0 starts; at 200 s it has 200 s left and both GPUs.
    assert outcome.end_ms.tolist() == [300_000, 100_000, 200_000]


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 99)), min_size=1, max_size=3),
    gpus=st.integers(4, 9),
    sigma=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_no_division_has_less_time_left_in_sum(rows: list[tuple[int, int]], gpus: int, sigma: float) -> None:
    jobs, models = make_jobs([(0, g, run_s) for g, run_s in rows]), elastic(sigma=sigma)
    outcome = run(jobs, make_cluster((gpus,)), "optimus", models)
    given_gpus = {j: n for at, j, n in takes(outcome) if at == 0}

    def left(job: int, n: int) -> float:
        g, run_s = rows[job]
        return run_s * g / (1 + sigma * (g - 1)) * (1 + sigma * (n - 1)) / n

    ranges = [range(max(-(-g // 4), 1), 2 * g + 1) for g, _ in rows]
    best = min(
        sum(left(j, n) for j, n in enumerate(division)) for division in product(*ranges) if sum(division) <= gpus
    )
    assert sum(left(j, n) for j, n in given_gpus.items()) == pytest.approx(best)


@settings(max_examples=12, deadline=None)
@given(jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_jobs_of_fixed_size_are_shortest_remaining_first(jobs: Jobs, cluster: Cluster) -> None:
    rigid = elastic(rigid=True)
    one = run(jobs, cluster, f"{AT_ONCE},fit=count,overhead=none", rigid)
    same(one, run(jobs, cluster, "srtf,scan=skip,fit=count", rigid))


def test_gpus_that_make_nobody_faster_stay_idle() -> None:
    outcome = run(make_jobs([(0, 8, 60), (0, 4, 60)]), make_cluster((8,)), "optimus", elastic(sigma=1.0))
    assert takes(outcome) == [(0, 0, 2), (0, 1, 1)]


@pytest.mark.parametrize("servers", ["on", "off"])
def test_with_room_for_all_everyone_has_the_most(servers: str) -> None:
    jobs = make_jobs([(0, 1, 60), (0, 2, 60), (0, 4, 60)])
    models = load_models()
    # Servers that cost nothing: workers always gain.
    models = replace(models, servers=replace(models.servers, worker=0.0, server=0.0, per_gpu=10.0))
    outcome = run(jobs, make_cluster((8, 8)), f"optimus,servers={servers}", models)
    assert sorted((j, n) for _, j, n in takes(outcome)) == [(0, 2), (1, 4), (2, 8)]


def test_workers_and_servers_by_turns() -> None:
    models = load_models()
    models = replace(models, servers=replace(models.servers, fixed=0.5, pull=0.5, worker=0.0, server=0.0))
    # Time of a unit on w workers and p servers: 0.5 / w + 0.5 / p. From 1, 1: both take 0.25 off, the worker first;
    # then the server; then by thirds, and so on: of 4 GPUs and 4 places for servers, 4 and 4.
    jobs = make_jobs([(0, 2, 100)])
    outcome = run(jobs, make_cluster((4,)), "optimus,servers=on", models)
    assert takes(outcome) == [(0, 0, 4)]
    # At 2 and 2, the request, a unit takes 0.5; at 4 and 4 it takes 0.25.
    assert outcome.end_ms.tolist() == [50_000]
    # Places for 2 servers: worker, server, worker; the second server more finds no place, which ends it all at 3 and 2.
    few = replace(models, servers=replace(models.servers, per_gpu=0.5))
    outcome = run(jobs, make_cluster((4,)), "optimus,servers=on", few)
    assert takes(outcome) == [(0, 0, 3)]
    # 0.5 / 3 + 0.5 / 2 = 5 / 12 of the 1/2 at the request: 100 s take 83.333 s.
    assert outcome.end_ms[0] == pytest.approx(83_333, abs=1)


def test_measured_servers_relieve_workers() -> None:
    speed = server_speed(load_models(), [1, 4, 4, 12], [1, 1, 4, 4])
    # 4 workers at one server wait for it: 0.73 + 1 + 0.08 + 0.001; at four 0.73 + 0.25 + 0.08 + 0.004.
    assert speed[1] == pytest.approx(4 / 1.811)
    assert speed[2] == pytest.approx(4 / 1.064)
    assert speed[0] < speed[1] < speed[2] < speed[3]


def test_without_a_place_for_servers_nobody_runs() -> None:
    models = load_models()
    models = replace(models, servers=replace(models.servers, per_gpu=0.0))
    outcome = run(make_jobs([(0, 1, 10)]), make_cluster((4,)), "optimus,servers=on", models)
    assert outcome.end_ms.tolist() == [-1]


@tried(4, 8, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("policy", ["optimus,interval=5", "optimus,interval=5,servers=on", AT_ONCE])
def test_the_laws_hold(policy: str, jobs: Jobs, cluster: Cluster) -> None:
    assert_lawful(jobs, cluster, run(jobs, cluster, policy))


@tried(4, 10, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_all_work_is_done(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("servers=on,resize=0,overhead=none", "servers=on", "servers=off"):
        outcome = run(jobs, cluster, f"optimus,interval=5,{options}", load_models())
        assert ((outcome.end_ms >= 0) | (outcome.unschedulable > 0)).all()
        assert_all_work_done(jobs, outcome)


def test_only_servers_are_reported_where_there_are_any() -> None:
    made = Scenario.make(make_jobs([(0, 1, 10)]), make_cluster((4,)))
    assert "M28" not in made.run("optimus").summary["assumptions"]
    assert "M28" in made.run("optimus,servers=on").summary["assumptions"]


def test_an_unknown_preset_is_an_error() -> None:
    with pytest.raises(UsageError, match="overhead preset"):
        run(make_jobs([(0, 1, 10)]), make_cluster((4,)), "optimus,overhead=nothing")
