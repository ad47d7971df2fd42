"""Planners that name nodes: a job goes exactly there, and what cannot be is an error of one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.places import NodeMap, find_place, wants
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Plan, Planner, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

PLACED = ("first_start_ms", "end_ms", "run_ms", "nodes_spanned", "unschedulable", "held_milli_ms")


def run(jobs: Jobs, cluster: Cluster, plan: Callable[[View], Plan], **options: Any) -> Outcome:
    planner = Planner(plan, **{"names_nodes": True, **options})
    outcome = simulate(jobs, cluster, assign(jobs, cluster), planner, name="toy", log=True)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic") == []
    return outcome


def ints(*values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def takes(outcome: Outcome) -> list[tuple[int, int, int, int]]:
    """Rows (time, job, node, GPUs) of what jobs take."""
    assert outcome.log is not None
    return sorted(
        (int(r["time_ms"]), int(r["job"]), int(r["node"]), int(r["value"]) // 1000)
        for r in outcome.log
        if r["kind"] == 3
    )


def each(v: View, jobs: Jobs) -> Any:
    return jobs.devices[v.job].astype(np.int64)


def one(*rows: Any, **options: Any) -> Callable[[View], Plan]:
    """A plan for jobs 0 and 1 with a GPU and two, of which rows are named."""
    return lambda _: Plan(ints(0, 1), ints(1, 2), place=ints(*rows), **options)


FAULTS: dict[str, tuple[Callable[[View], Any], str]] = {
    "no node": (one((0, 5, 1)), "named node 5 of 4: job j0, at 0 s"),
    "node below": (one((0, -1, 1)), "named node -1 of 4: job j0"),
    "no place": (one((2, 0, 1)), "named nodes for place 2 of a plan of 2 jobs"),
    "place below": (one((-1, 0, 1)), "named nodes for place -1 of a plan of 2 jobs"),
    "larger than the node": (one((1, 3, 2)), "named 2 GPUs of node n3, which has 1: job j1"),
    "none": (one((1, 0, 0), (1, 1, 2)), "named 0 GPUs of node n0, which has 4: job j1"),
    "twice": (one((1, 0, 1), (1, 0, 1)), "named GPUs of node n0 twice: job j1"),
    "too few": (one((1, 0, 1)), "named nodes for 1 GPUs, but gave 2: job j1"),
    "too many": (one((0, 0, 1), (0, 1, 1)), "named nodes for 2 GPUs, but gave 1: job j0"),
    "columns": (one((0, 0)), "named nodes, but not in rows of 3 whole numbers"),
    "a GPU's index": (one((0, 0, 1, 0)), "named nodes, but not in rows of 3 whole numbers"),
    "fractions": (lambda _: Plan(ints(0), ints(1), place=np.array([(0, 0, 1.0)])), "rows of 3 whole numbers"),
    "models": (one((1, 0, 1), (1, 2, 1)), "named nodes of several GPU models: job j1"),
    "another model": (lambda _: Plan(ints(2), ints(1), place=ints((0, 2, 1))), "n2, which the job may not use: job j2"),
    "another group": (one((0, 0, 1), group=ints(1, -1)), "named node n0, which the job may not use: job j0"),
    "another than the plan's": (one((0, 0, 1), model=ints(1, -1)), "n0, which the job may not use: job j0"),
    "away": (one((1, 1, 2)), "named node n1, which is away: job j1, at 0 s"),
    "full": (
        lambda _: Plan(ints(0, 1), ints(3, 2), place=ints((0, 0, 3), (1, 0, 2))),
        "named 2 GPUs of node n0, which has 1 free: job j1",
    ),
    "beside": (lambda _: Plan(ints(0), ints(1), beside=ints(0)), "needs a Planner with a share of at least 2"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_place_is_an_error_of_one_line(case: str) -> None:
    jobs = make_jobs([(0, 1, 10), (0, 2, 10), (0, 1, 10)], model=[None, None, "A"], models=["A", "B"])
    cluster = make_cluster((4, 4, 4, 1), model=["A", "A", "B", "B"], absent=[1], changes=[(100, 1, True)])
    with pytest.raises(UsageError) as error:
        run(jobs, cluster, FAULTS[case][0])
    assert "the policy toy" in error.value.what
    assert FAULTS[case][1] in error.value.what
    assert "\n" not in str(error.value)


def test_only_planners_that_say_so_name_nodes() -> None:
    with pytest.raises(UsageError, match="needs a Planner with names_nodes=True"):
        run(make_jobs([(0, 1, 1)]), make_cluster((1,)), one((0, 0, 1)), names_nodes=False)
    with pytest.raises(ValueError, match="cannot name nodes"):
        Planner(one(), names_nodes=True, fit="count")


def test_a_node_of_another_domain_may_not_be_used() -> None:
    cluster = make_cluster((2, 2), domain=["a", "b"])
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)], vc=["b", "a"])
    with pytest.raises(UsageError, match="named node n1, which the job may not use: job j1"):
        run(jobs, cluster, lambda _: Plan(ints(0, 1), ints(1, 1), place=ints((0, 0, 1), (1, 1, 1))))
    named = run(jobs, cluster, lambda _: Plan(ints(0, 1), ints(1, 1), place=ints((0, 1, 1), (1, 0, 1)), keep=True))
    assert takes(named) == [(0, 0, 1, 1), (0, 1, 0, 1)]


def test_jobs_go_where_the_plan_says_before_those_that_go_anywhere() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 2, 10), (0, 3, 10)]), make_cluster((4, 4))
    # By itself the engine puts the first on node 0, where the third is named.
    outcome = run(
        jobs,
        cluster,
        lambda v: (
            Plan(v.job, each(v, jobs), place=ints((1, 1, 1), (1, 0, 1), (2, 0, 3)), keep=True)
            if v.now_ms == 0
            else Plan(v.job, each(v, jobs))
        ),
    )
    assert takes(outcome) == [(0, 0, 1, 2), (0, 1, 0, 1), (0, 1, 1, 1), (0, 2, 0, 3)]
    assert outcome.nodes_spanned.tolist() == [1, 2, 1]


def test_a_job_that_is_named_elsewhere_moves_and_one_that_is_where_it_is_named_goes_on() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (2, 1, 10), (4, 1, 10)]), make_cluster((4, 4))

    def plan(v: View) -> Plan:
        at = {0: [(0, 1, 2)], 2000: [(0, 1, 1), (0, 0, 1)], 4000: [(0, 0, 1), (0, 1, 1)]}.get(v.now_ms, [])
        return Plan(v.job, each(v, jobs), place=ints(*at).reshape(-1, 3))

    outcome = run(jobs, cluster, plan, overhead_ms=ints(0, 1000, 3000))
    assert outcome.end_ms.tolist() == [13_000, 12_000, 14_000]
    assert outcome.migrations.tolist() == [1, 0, 0]
    assert [row for row in takes(outcome) if row[1] == 0] == [(0, 0, 1, 2), (2000, 0, 0, 1), (2000, 0, 1, 1)]


def test_two_jobs_change_places() -> None:
    jobs, cluster = make_jobs([(0, 4, 10), (0, 4, 10), (5, 4, 1)]), make_cluster((4, 4))
    outcome = run(
        jobs,
        cluster,
        lambda v: (
            Plan(ints(0, 1), ints(4, 4), place=ints((0, int(v.now_ms > 0), 4), (1, int(v.now_ms == 0), 4)))
            if v.now_ms < 6000
            else Plan(v.job, each(v, jobs), keep=True)
        ),
        overhead_ms=ints(0, 1000, 1000),
    )
    assert outcome.end_ms.tolist() == [11_000, 11_000, 12_000]
    assert outcome.migrations.tolist() == [1, 1, 0]


def test_an_optional_job_waits_where_its_node_is_full_or_away() -> None:
    jobs = make_jobs([(0, 3, 10), (0, 2, 10), (0, 1, 10)])
    cluster = make_cluster((4, 4), absent=[1], changes=[(3, 1, True)])

    def plan(v: View) -> Plan:
        at = [(i, {0: 0, 1: 0, 2: 1}[j], int(jobs.devices[j])) for i, j in enumerate(v.job.tolist())]
        return Plan(v.job, each(v, jobs), place=ints(*at).reshape(-1, 3), optional=len(at))

    assert run(jobs, cluster, plan).end_ms.tolist() == [10_000, 20_000, 13_000]


def test_a_job_on_a_node_that_left_goes_on_where_it_is_named() -> None:
    jobs, cluster = make_jobs([(0, 1, 10), (4, 1, 1)]), make_cluster((2, 2), changes=[(2, 1, False)])
    outcome = run(jobs, cluster, lambda v: Plan(v.job, each(v, jobs), place=ints((0, 1, 1))[: int(v.now_ms < 10_000)]))
    assert outcome.end_ms.tolist() == [10_000, 5_000]
    assert outcome.migrations.tolist() == [0, 0]


def test_naming_a_node_names_its_model() -> None:
    jobs, cluster = make_jobs([(0, 1, 10)], model="A"), make_cluster((1, 1), model=["A", "B"])
    planner = Planner(lambda v: Plan(ints(0), ints(1), place=ints((0, 1, 1))), any_model=True, names_nodes=True)
    outcome = simulate(jobs, cluster, assign(jobs, cluster), planner, log=True)
    assert takes(outcome) == [(0, 0, 1, 1)]


def test_a_planner_sees_nodes_and_where_jobs_run() -> None:
    seen: list[list[Any]] = []

    def plan(v: View) -> Plan:
        seen.append([v.node_gpus.tolist(), v.node_free.tolist(), v.places.tolist(), v.pairs.tolist()])
        with pytest.raises(ValueError, match="read-only"):
            v.places[:] = 0
        return Plan(v.job, each(v, jobs), optional=len(v.job))

    jobs = make_jobs([(0, 6, 10), (1, 1, 1)])
    cluster = make_cluster((4, 4), changes=[(0.5, 1, False)])
    run(jobs, cluster, plan)
    assert seen[0] == [[4, 4], [4, 4], [], []]
    assert seen[1] == [[4, 0], [0, 0], [[0, 0, 4, -1], [0, 1, 2, -1]], []]
    assert seen[-1] == [[4, 0], [4, 0], [], []]


def fifo(jobs: Jobs, cluster: Cluster, placement: str) -> Callable[[View], Plan]:
    """First come, first served, strict placement worked out in plain Python."""
    asked = wants(jobs, cluster)

    def plan(v: View) -> Plan:
        nodes = NodeMap(cluster)
        nodes.used = (cluster.gpus - v.node_free).tolist()
        nodes.up = (v.node_gpus > 0).tolist()
        for node in np.flatnonzero(v.node_gpus == 0).tolist():
            nodes.used[node] = 0
        rows: list[tuple[int, int, int]] = []
        chosen: list[int] = []
        stopped: set[int] = set()
        for j in v.job[~v.running].tolist():
            place = None if asked[j].domain in stopped else find_place(nodes, asked[j], placement)
            if place is None:
                stopped.add(asked[j].domain)
                continue
            nodes.take(place, asked[j].domain)
            rows += [(len(chosen), node, count) for node, _, count in place]
            chosen.append(j)
        return Plan(ints(*chosen), jobs.devices[chosen].astype(np.int64), place=ints(*rows).reshape(-1, 3), keep=True)

    return plan


@tried(35, 100, job_lists(), clusters(), st.sampled_from(["consolidate", "worst-fit", "first-fit"]))
def test_fifo_by_nodes_is_fifo(jobs: Jobs, cluster: Cluster, placement: str) -> None:
    named = run(jobs, cluster, fifo(jobs, cluster, placement))
    truth = simulate(
        jobs, cluster, assign(jobs, cluster), Ordered(by_arrival, by_arrival=True), rule=placement, log=True
    )
    assert takes(named) == takes(truth)
    for name in PLACED:
        assert getattr(named, name).tolist() == getattr(truth, name).tolist(), name
    for name in ("busy_milli_ms", "free_milli_ms", "fragmented_milli_ms", "makespan_ms"):
        assert getattr(named, name) == getattr(truth, name), name
