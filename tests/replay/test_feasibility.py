from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.feasibility import Feasibility, check_feasibility

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

HOUR = 3600
DAY = 86_400


def check(jobs: Jobs, cluster: Cluster) -> Feasibility:
    return check_feasibility(jobs, cluster, assign(jobs, cluster))


def loads(table: pl.DataFrame) -> list[tuple[object, ...]]:
    return table.select("scope", "name", "offered_gpu_hours", "capacity_gpu_hours", "load").rows()


def test_load_of_two_days() -> None:
    # 8 GPUs for 48 h. 96 GPU-hours on the first day, 24 on the second.
    jobs = make_jobs([(0, 8, 12 * HOUR), (DAY + 1, 2, 12 * HOUR), (2 * DAY, 1, 0)])
    found = check(jobs, make_cluster([8], model="V100", quota={"vc": 4}))
    assert loads(found.overall) == [
        ("cluster", "", 120, 384, 120 / 384),
        ("pool", "", 120, 384, 120 / 384),
        ("model", "V100", 0, 384, 0),
        ("vc", "vc", 120, 192, 120 / 192),
    ]
    cluster = found.by_day.filter(scope="cluster")
    assert loads(cluster) == [("cluster", "", 96, 192, 0.5), ("cluster", "", 24, 192, 0.125)]
    assert cluster["from_ms"].to_list() == [0, DAY * 1000]
    assert found.verdict == "ok"
    assert found.sentences == ()


def test_capacity_follows_nodes_that_come_and_go() -> None:
    # Node 1 comes at 6 h and leaves at 18 h (told twice); node 0 is always there: 8 * 24 + 4 * 12 GPU-hours.
    cluster = make_cluster(
        [8, 4], absent=[1], changes=[(6 * HOUR, 1, True), (18 * HOUR, 1, False), (20 * HOUR, 1, False)]
    )
    found = check(make_jobs([(0, 1, HOUR)]), cluster)
    assert found.overall["capacity_gpu_hours"].to_list() == [240, 240]


def test_capacity_follows_quotas() -> None:
    cluster = make_cluster([8], quota={"vc": [(-10, 2), (12 * HOUR, 6)], "x": 1})
    found = check(make_jobs([(0, 1, HOUR)]), cluster)
    assert loads(found.overall.filter(scope="vc")) == [("vc", "vc", 1, 96, 1 / 96), ("vc", "x", 0, 24, 0)]


def test_a_fraction_of_a_gpu_loads_a_fraction() -> None:
    found = check(make_jobs([(0, 2, HOUR)], milli=250), make_cluster([8]))
    assert found.overall["offered_gpu_hours"].to_list() == [0.5, 0.5]


def test_gangs_that_never_fit_are_listed_and_do_not_load(golden: Golden) -> None:
    jobs = make_jobs(
        [(0, 1, 10 * HOUR), (1, 9, HOUR), (2, 9, HOUR), (3, 1, HOUR), (4, 1, HOUR), (5, 1, HOUR), (6, 1, HOUR)],
        vc=["a", "a", "a", "b", "a", "a", "a"],
        model=[None, None, None, None, "T4", None, None],
    )
    found = check(jobs, make_cluster([8], domain="a", model="V100"))
    assert found.never.rows() == [
        ("a", None, 9, 2, 18.0, "j1"),
        (None, None, 1, 1, 1.0, "j3"),
        ("a", "T4", 1, 1, 1.0, "j4"),
    ]
    assert found.never_jobs == 4
    assert found.never_share == 20 / 32
    assert found.overall.filter(scope="cluster")["offered_gpu_hours"].to_list() == [12]
    assert found.verdict == "refuse"
    golden(found.sentences)


@pytest.mark.parametrize(("small", "verdict"), [(0, "refuse"), (1, "warning"), (2, "warning")])
def test_half_of_the_jobs_that_never_fit_are_a_warning_and_more_a_refusal(small: int, verdict: str) -> None:
    rows = [(0.0, 9, 1.0)] + [(0.0, 1, 9.0)] * small
    assert check(make_jobs(rows), make_cluster([8])).verdict == verdict


@pytest.mark.parametrize(("hours", "verdict"), [(24, "ok"), (25, "warning"), (48, "warning"), (49, "refuse")])
def test_thresholds_of_the_load(hours: int, verdict: str, golden: Golden) -> None:
    found = check(make_jobs([(0, 8, hours * HOUR)]), make_cluster([8]))
    assert found.verdict == verdict
    golden(found.sentences)


def test_a_full_pool_and_a_full_model_warn(golden: Golden) -> None:
    jobs = make_jobs([(0, 8, 25 * HOUR), (0, 1, 1)], vc=["a", "b"], model=["V100", None])
    cluster = make_cluster([8, 8, 8], domain=["a", "b", "b"], model=["V100", "T4", "T4"])
    found = check(jobs, cluster)
    assert found.verdict == "warning"
    golden(found.sentences)


def test_relaxed_placement_lets_more_fit() -> None:
    jobs, cluster = make_jobs([(0, 5, 1)]), make_cluster([4, 2, 2], rack=["r1", "r2", "r3"])
    assignment = assign(jobs, cluster)
    assert check_feasibility(jobs, cluster, assignment).never_jobs == 1
    assert check_feasibility(jobs, cluster, assignment, relaxed=True).verdict == "ok"
    assert check_feasibility(jobs, cluster, assignment, fit="count").verdict == "ok"


def test_a_hundred_years_have_few_steps() -> None:
    jobs = make_jobs([(0, 1, 1), (100 * 365 * DAY, 1, 1)])
    found = check(jobs, make_cluster([8]))
    assert found.by_day.filter(scope="cluster").height == 2
    assert found.overall["capacity_gpu_hours"][0] == 8 * 24 * 36500


def test_no_jobs() -> None:
    found = check(make_jobs([]), make_cluster([8]))
    assert (found.verdict, found.never_jobs, found.never_share) == ("ok", 0, 0)


@given(job_lists(), clusters())
def test_loads_add_up(jobs: Jobs, cluster: Cluster) -> None:
    found = check(jobs, cluster)
    sums = found.overall.group_by("scope").agg(pl.col("offered_gpu_hours", "capacity_gpu_hours").sum())
    by_scope = {row["scope"]: row for row in sums.iter_rows(named=True)}
    for column in ("offered_gpu_hours", "capacity_gpu_hours"):
        assert np.isclose(by_scope["pool"][column], by_scope["cluster"][column])
    work = float((jobs.work_ms * jobs.devices).sum()) / 3.6e6
    assert np.isclose(by_scope["cluster"]["offered_gpu_hours"] + found.never["gpu_hours"].sum(), work)
    days = float(found.by_day.filter(scope="cluster")["offered_gpu_hours"].sum())
    assert np.isclose(days, by_scope["cluster"]["offered_gpu_hours"])
    assert found.never["jobs"].sum() == found.never_jobs
