"""Who may send beside others: by hand, by brute force and by the published threshold; and smallest service first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.networks import assert_alike, ideal, run, takes, talking
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.literature.contention import sum_of_ends

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

times = st.floats(1.0, 100.0)
factors = st.floats(1.0, 4.0)


@settings(max_examples=100, deadline=None)
@given(a=times, b=times, x=factors, y=factors, delay=st.floats(0.0, 1.0))
def test_the_sum_of_ends_by_steps_and_no_delay_between_is_better(
    a: float, b: float, x: float, y: float, delay: float
) -> None:
    def ends(late: float) -> float:
        """The second begins so much later: the first is alone until then."""
        if late >= a:
            return a + late + b
        left, until = [a - late, b], late
        # Both go on until one ends; then the other alone.
        step = min(left[0] * x, left[1] * y)
        return (until + step) * 2 + max(left[0] - step / x, 0.0) + max(left[1] - step / y, 0.0)

    assert sum_of_ends(a, b, x, y) == pytest.approx(ends(0.0))
    assert min(ends(0.0), ends(a)) <= ends(delay * a) + 1e-9


@settings(max_examples=50, deadline=None)
@given(old=times, share=st.floats(0.01, 0.99), extra=st.floats(0.0, 2.0))
def test_for_those_that_only_send_it_is_the_published_threshold(old: float, share: float, extra: float) -> None:
    slower, new = 2 + extra, old * share
    joins = sum_of_ends(old, new, slower, slower) < old + old + new
    threshold = 1 / (2 * (1 + extra))
    assert joins == (share < threshold) or share == pytest.approx(threshold)


THREE = make_cluster((2, 2, 2))


@pytest.mark.parametrize(("accept", "start"), [("test", 0), ("two", 0), ("any", 0), ("never", 10)])
def test_a_short_gang_joins_a_long_one(accept: str, start: int) -> None:
    # Job 0 has nodes 0 and 1, job 1 would have 2 and 1. Each computes 1 s and sends 4/3 of 0.75 Gbit, 1 s alone, so
    # that they take 1.5 times as long together: ends at 3 and 11 s; one after the other at 10 and 12 s.
    jobs = make_jobs([(0, 3, 10), (0.001, 3, 2)])
    found = run(jobs, THREE, f"ada-srsf,accept={accept},gap=0", talking(message_mb=93.75))
    if start:
        assert found.first_start_ms[1] == 10_000
        assert found.end_ms.tolist() == [10_000, 12_000]
    else:
        assert found.first_start_ms[1] == 1
        assert np.abs(found.end_ms - [11_000, 3_001]).max() <= 2


@pytest.mark.parametrize(("work", "waits"), [(8, True), (2, False)])
def test_where_both_only_send_the_lengths_decide(work: int, waits: bool) -> None:
    # Together both take twice as long. 10 and 8 s: 16 + 18 joined, 10 + 18 one after the other; 10 and 2 s: 4 + 12
    # and 10 + 12.
    found = run(make_jobs([(0, 3, 10), (0.001, 3, work)]), THREE, "ada-srsf,gap=0", talking(compute_s=0.000001))
    assert (found.first_start_ms[1] > 1) == waits


def test_least_work_first() -> None:
    # Nodes of 2: job 0 (10 s) on node 0, job 1 (20 s) on node 1, a third of one GPU goes where least is left.
    jobs = make_jobs([(0, 1, 20), (1, 1, 5), (2, 1, 1), (3, 1, 1)])
    lwf = takes(run(jobs, make_cluster((2, 2)), "ada-srsf,gap=0", talking()))
    assert [row[2] for row in lwf] == [0, 1, 1, 1]
    first = takes(run(jobs, make_cluster((2, 2)), "ada-srsf,gap=0,place=first-fit", talking()))
    assert [row[2] for row in first] == [0, 0, 1, 1]


def test_kappa_keeps_larger_gangs_together() -> None:
    jobs = make_jobs([(0, 1, 5), (1, 3, 10)])
    cluster = make_cluster((3, 2, 3))
    # Node 0 has a job: the gang has all of node 2; with kappa=3 nodes 1 and 2, which are idle.
    together = takes(run(jobs, cluster, "ada-srsf,gap=0", talking()))
    assert together[1:] == [(1_000, 1, 2, 3)]
    apart = takes(run(jobs, cluster, "ada-srsf,gap=0,kappa=3", talking()))
    assert apart[1:] == [(1_000, 1, 1, 2), (1_000, 1, 2, 1)]


def _one_model(cluster: Cluster) -> Cluster:
    order = np.lexsort((cluster.rack, cluster.domain))
    return replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters())
def test_single_gpus_are_smallest_service_first(jobs: Jobs, cluster: Cluster) -> None:
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    one = _one_model(cluster)
    mine, other = run(single, one, "ada-srsf,gap=0"), run(single, one, "ssf,scan=skip")
    assert mine.end_ms.tolist() == other.end_ms.tolist()


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_where_links_slow_nobody_gangs_need_only_enough_gpus(jobs: Jobs, cluster: Cluster) -> None:
    one = _one_model(cluster)
    mine = run(jobs, one, "ada-srsf,gap=0,accept=any", ideal())
    assert mine.end_ms.tolist() == run(jobs, one, "ssf,scan=skip,fit=count", ideal()).end_ms.tolist()


@tried(5, 15, jobs=job_lists(typed=False))
def test_on_one_node_nobody_sends(jobs: Jobs) -> None:
    node = make_cluster((20,), domain="")
    for accept in ("never", "two", "any"):
        assert_alike(jobs, node, "ada-srsf,gap=0", f"ada-srsf,gap=0,accept={accept}", talking())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("look=2", "accept=never,gap=0", "accept=two,place=first-fit", "kappa=4,noise=1,gap=1"):
        one, two = run(jobs, cluster, f"ada-srsf,{options}"), run(jobs, cluster, f"ada-srsf,{options}")
        assert takes(one) == takes(two)
        assert one.end_ms.tolist() == two.end_ms.tolist()
