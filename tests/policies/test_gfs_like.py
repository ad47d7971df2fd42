"""gfs-like: quota, forecast and evictions by hand, least harm by trying everything, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.policies.networks import takes
from tests.policies.sharing_runs import lawful, same
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.literature.evictable import cheapest_cover, cheapest_nodes
from tracekit.policies.literature.gfs_like import Feedback, Forecast

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

HOUR = 3600


@st.composite
def mixed_jobs(draw: st.DrawFn, *, horizon_s: float = 30) -> Jobs:
    """Guaranteed and spot jobs."""
    jobs = draw(job_lists(most=14, horizon_s=horizon_s))
    flags = draw(st.lists(st.integers(0, 1), min_size=len(jobs), max_size=len(jobs)))
    return replace(jobs, preemptible=np.array(flags, np.int8))


def test_a_guaranteed_job_evicts_the_spot_job_that_loses_least() -> None:
    # Spot on both nodes; at 100 s spot job 0 has lost 100 s on each of 2 GPUs, job 1 50 s. Job 1 leaves, starts
    # again when job 2 ends at 110 s, and does its 50 s again: 110 + 50 + 150.
    jobs = make_jobs([(0, 2, 300), (50, 2, 200), (100, 2, 10)], preemptible=[1, 1, 0])
    found = lawful(jobs, make_cluster((2, 2)), "gfs-like,quota=all", 1)
    assert found.end_ms.tolist() == [300_000, 310_000, 110_000]
    assert found.preemptions.tolist() == [0, 1, 0]
    # With a checkpoint each 30 s they have lost 10 s and 20 s: job 0 leaves, and does 10 s again.
    often = lawful(jobs, make_cluster((2, 2)), "gfs-like,quota=all,checkpoint=30", 1)
    assert often.end_ms.tolist() == [320_000, 250_000, 110_000]
    # Without loss the first is as good as the other; nothing is done again.
    none = lawful(jobs, make_cluster((2, 2)), "gfs-like,quota=all,checkpoint=0", 1)
    assert none.end_ms.tolist() == [310_000, 250_000, 110_000]


def test_who_has_had_its_guaranteed_time_goes_first() -> None:
    # At 100 s job 0 has lost 100 s and is past its 80 s: half of 100 s is less than job 1's 60 s.
    jobs = make_jobs([(0, 1, 300), (40, 1, 200), (100, 1, 10)], preemptible=[1, 1, 0])
    late = lawful(jobs, make_cluster((1, 1)), "gfs-like,quota=all,guarantee=80,harm=0", 1)
    assert late.preemptions.tolist() == [1, 0, 0]
    assert late.end_ms.tolist() == [410_000, 240_000, 110_000]
    within = lawful(jobs, make_cluster((1, 1)), "gfs-like,quota=all,guarantee=200,harm=0", 1)
    assert within.preemptions.tolist() == [0, 1, 0]


def test_an_eviction_counts_beside_the_time_lost() -> None:
    # At 100 s: two jobs that have lost 10 s each on node 0, or one that has lost 100 s on node 1.
    jobs = make_jobs([(0, 2, 300), (90, 1, 200), (90, 1, 200), (100, 2, 10)], preemptible=[1, 1, 1, 0])
    few = lawful(jobs, make_cluster((2, 2)), "gfs-like,quota=all,harm=200", 1)
    assert few.preemptions.tolist() == [1, 0, 0, 0]
    least = lawful(jobs, make_cluster((2, 2)), "gfs-like,quota=all,harm=0", 1)
    assert least.preemptions.tolist() == [0, 1, 1, 0]


def test_spot_jobs_are_packed_and_guaranteed_ones_keep_away() -> None:
    # Job 1 joins job 0; job 2 takes the other node, although the first has fewer free GPUs.
    jobs = make_jobs([(0, 1, 100), (1, 1, 100), (2, 1, 100), (3, 2, 100)], preemptible=[1, 1, 0, 0])
    found = lawful(jobs, make_cluster((4, 4)), "gfs-like", 1)
    assert [row[2] for row in takes(found)] == [0, 0, 1, 1]


def test_a_gang_of_several_nodes_evicts_where_that_does_least_harm() -> None:
    # 6 GPUs are a node and a half. Nodes 0, 1 and 2 have spot jobs of 100, 50 and 10 s: the last two leave.
    jobs = make_jobs([(0, 4, 300), (50, 4, 300), (90, 4, 300), (100, 6, 10)], preemptible=[1, 1, 1, 0])
    found = lawful(jobs, make_cluster((4, 4, 4)), "gfs-like,quota=all,harm=0", 1)
    assert found.preemptions.tolist() == [0, 1, 1, 0]
    assert found.end_ms.tolist() == [300_000, 110_000 + 300_000, 110_000 + 300_000, 110_000]


def test_the_quota_holds_spot_jobs_back_although_gpus_are_free() -> None:
    # For 12 hours a guaranteed job comes at half past and takes all 4 GPUs for a minute: 4 GPUs of peak each hour from
    # hour 0 on, no changes. A spot job of 3 hours that comes then finds a demand of 0 and no changes: it may start.
    rows = [(1800.0 + HOUR * i, 4, 60.0) for i in range(12)]
    jobs = make_jobs([*rows, (12 * HOUR, 4, 60)], preemptible=[0] * 12 + [1])
    one = make_cluster((4,))
    assert run_engine(jobs, one, "gfs-like").first_start_ms[12] == 12 * HOUR * 1000
    # Every other hour: changes of 4 GPUs; the 90 % quantile is 1.28 * 4 > 4. It waits for hours without changes.
    rows = [(1800.0 + 2 * HOUR * i, 4, 60.0) for i in range(6)]
    jobs = make_jobs([*rows, (12 * HOUR, 1, 60)], preemptible=[0] * 6 + [1])
    assert run_engine(jobs, one, "gfs-like,adapt=off").first_start_ms[6] > 12 * HOUR * 1000
    assert run_engine(jobs, one, "gfs-like,quota=all").first_start_ms[6] == 12 * HOUR * 1000
    assert run_engine(jobs, one, "gfs-like,quota=none").first_start_ms[6] == -1


def test_the_factor_bounds_the_spot_gpus() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10), (0, 1, 10)], preemptible=1)
    found = lawful(jobs, make_cluster((4,)), "gfs-like,factor=0.5", 1)
    assert found.first_start_ms.tolist() == [0, 0, 10_000]
    assert (run_engine(jobs, make_cluster((4,)), "gfs-like,factor=0,adapt=off").first_start_ms == -1).all()


def test_forecasts_by_the_hour_of_the_week() -> None:
    demand = Forecast(np.array([[True], [True]]), 0.5, HOUR * 1000)
    gpus = np.array([100])
    # Two weeks: series 0 wants 10 GPUs in hour 5 of the first and 20 in that of the second, series 1 always 3.
    demand.change(1, 3)
    for hour in range(2 * 168):
        peak = {5: 10, 168 + 5: 20}.get(hour, 0)
        demand.change(0, peak)
        demand.change(0, -peak)
        demand.end_hour()
    # An hour without demand, and the next.
    assert demand.forecast(gpus).tolist() == [3.0]
    for _ in range(4):
        demand.end_hour()
    # Hour 4 and hour 5: the median is the mean of 10 and 20, and 3.
    assert demand.forecast(gpus).tolist() == [18.0]
    sure = Forecast(demand.accepts, 0.8413447460685429, HOUR * 1000)
    sure._peaks, sure.hour, sure.now = demand._peaks, demand.hour, demand.now
    # One deviation more: sqrt(50).
    assert sure.forecast(gpus).tolist() == pytest.approx([18 + 50**0.5])
    assert sure.forecast(np.array([20])).tolist() == [20.0]


def test_demand_for_any_model_counts_towards_each() -> None:
    demand = Forecast(np.array([[True, True], [False, True]]), 0.5, HOUR * 1000)
    demand.change(0, 12)
    demand.change(1, 1)
    assert demand.forecast(np.array([8, 16])).tolist() == [4.0, 9.0]
    assert demand.forecast(np.array([0, 0])).tolist() == [0.0, 0.0]


def test_the_factor_falls_by_evictions_and_grows_by_waits() -> None:
    feedback = Feedback(1.0, 0.05, 3_600_000)
    feedback.starts, feedback.evictions = 10, 1
    feedback.end_hour(10**9)
    assert feedback.factor == pytest.approx(0.9)
    feedback.starts = 10
    # 1 of 20 is the target, no more.
    feedback.end_hour(3_600_000)
    assert feedback.factor == pytest.approx(0.9)
    for _ in range(30):
        feedback.end_hour(3_600_001)
    assert feedback.factor == 1.2
    for _ in range(30):
        feedback.starts, feedback.evictions = 1, 1
        feedback.end_hour(0)
    assert feedback.factor == pytest.approx(0.2)


def test_gangs_that_never_fit_are_reported_and_evict_nobody() -> None:
    jobs = make_jobs([(0, 1, 30), (1, 9, 10), (2, 3, 5)], preemptible=[1, 0, 0])
    found = lawful(jobs, make_cluster((2, 2)), "gfs-like", 1)
    assert found.unschedulable.tolist() == [False, True, False]
    # The gang of 3 takes the other node and the free GPU beside the spot job.
    assert found.end_ms.tolist() == [30_000, -1, 7_000]


def test_one_gpu_goes_to_the_guaranteed_job_and_back() -> None:
    jobs = make_jobs([(0, 1, 10), (4, 1, 3), (5, 1, 2)], preemptible=[1, 0, 1])
    # With a restart of 7 s for a preemption and 4 s to do again: 7 + 7 + 4 + 6.
    found = lawful(jobs, make_cluster((1,)), "gfs-like,quota=all,overhead=helios", 1)
    assert found.end_ms.tolist() == [24_000, 7_000, 26_000]


@settings(max_examples=examples(30), deadline=None)
@given(jobs=mixed_jobs(), cluster=clusters(), scan=st.sampled_from(["skip", "stop"]))
def test_without_spot_jobs_it_is_first_in_first_out(jobs: Jobs, cluster: Cluster, scan: str) -> None:
    alone = replace(jobs, preemptible=np.zeros_like(jobs.preemptible))
    assert same(run_engine(alone, cluster, f"gfs-like,scan={scan}"), run_engine(alone, cluster, f"fifo,scan={scan}"))


@settings(max_examples=examples(30), deadline=None)
@given(jobs=mixed_jobs(), cluster=clusters())
def test_without_a_quota_there_are_no_spot_jobs(jobs: Jobs, cluster: Cluster) -> None:
    found = lawful(jobs, cluster, "gfs-like,quota=none", 1)
    hosts = np.flatnonzero(jobs.preemptible == 0)
    alone = run_engine(jobs.rows(hosts), cluster, "fifo,scan=skip")
    assert found.end_ms[hosts].tolist() == alone.end_ms.tolist()
    assert (found.first_start_ms[jobs.preemptible == 1] == -1).all()


@settings(max_examples=examples(40), deadline=None)
@given(
    jobs=mixed_jobs(),
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    gaps=st.lists(st.integers(1, 9_000), min_size=14, max_size=14),
)
def test_with_all_gpus_it_preempts_by_priority(jobs: Jobs, nodes: list[int], gaps: list[int]) -> None:
    times = np.cumsum(gaps)[: len(jobs)].astype(np.int64)
    plain = replace(
        jobs,
        submit_ms=times,
        work_ms=jobs.work_ms + 1,
        devices=np.ones_like(jobs.devices),
        model=np.full_like(jobs.model, -1),
    )
    cluster = make_cluster(nodes)
    theirs = _preempting(plain, sum(nodes))
    assume(theirs is not None)
    assert run_engine(plain, cluster, "gfs-like,quota=all,checkpoint=inf,guarantee=inf").end_ms.tolist() == theirs


def _preempting(jobs: Jobs, gpus: int) -> list[int] | None:
    """Return the ends where guaranteed jobs stop the spot job that started last; None where two started at once."""
    ends: dict[int, int] = {}
    runs: dict[int, int] = {}
    waits: list[int] = []
    now = 0
    work, spot = jobs.work_ms.tolist(), jobs.preemptible.tolist()
    coming = list(enumerate(jobs.submit_ms.tolist()))
    while coming or runs:
        due = [start + work[job] for job, start in runs.items()] + [time for _, time in coming[:1]]
        now = min(due)
        for job in [job for job, start in runs.items() if start + work[job] == now]:
            ends[job] = now
            del runs[job]
        while coming and coming[0][1] == now:
            waits.append(coming.pop(0)[0])
        for job in sorted(waits, key=lambda j: (spot[j], j)):
            if len(runs) == gpus and not spot[job] and any(spot[other] for other in runs):
                order = sorted((start, other) for other, start in runs.items() if spot[other])
                if len(order) > 1 and order[-1][0] == order[-2][0]:
                    return None
                del runs[order[-1][1]]
                waits.append(order[-1][1])
            if len(runs) < gpus:
                runs[job] = now
        waits = [job for job in waits if job not in runs]
    return [ends[job] for job in range(len(jobs))]


@settings(max_examples=examples(40), deadline=None)
@given(
    jobs=mixed_jobs(),
    cluster=clusters(),
    options=st.sampled_from(
        ["", ",quota=all", ",quota=all,checkpoint=7,harm=3,guarantee=5", ",quota=all,checkpoint=inf,overhead=helios"]
    ),
)
def test_every_run_keeps_the_laws(jobs: Jobs, cluster: Cluster, options: str) -> None:
    found = lawful(jobs, cluster, f"gfs-like{options}", 1)
    hosts = jobs.preemptible == 0
    assert (found.preemptions[hosts] == 0).all()
    assert (found.end_ms >= 0).tolist() == (~found.unschedulable & (found.first_start_ms >= 0)).tolist()


@tried(5, 13, jobs=mixed_jobs(horizon_s=4 * HOUR), cluster=clusters(changing=False), data=st.data())
def test_another_future_changes_nothing_before_it(jobs: Jobs, cluster: Cluster, data: st.DataObject) -> None:
    now = data.draw(st.integers(1, 4 * HOUR * 1000))
    long = replace(jobs, work_ms=jobs.work_ms * 100)
    first = run_engine(long, cluster, "gfs-like")
    later = np.flatnonzero(long.submit_ms > now)
    order = np.array(data.draw(st.permutations(later.tolist())), np.int64)
    # Who comes later is somebody else; who runs later than now runs longer.
    mixed = np.concatenate([np.flatnonzero(long.submit_ms <= now), order])
    other = replace(long.rows(mixed), submit_ms=long.submit_ms, job_id=long.job_id)
    ended = (first.end_ms >= 0) & (first.end_ms <= now)
    other = replace(other, work_ms=np.where(ended, other.work_ms, other.work_ms + 5_000))
    second = run_engine(other, cluster, "gfs-like")
    assert first.log is not None
    assert second.log is not None
    assert (first.log[first.log["time_ms"] <= now]).tolist() == (second.log[second.log["time_ms"] <= now]).tolist()


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), max_size=7),
    need=st.integers(1, 8),
)
def test_the_cheapest_cover_is_the_best_of_all(rows: list[tuple[int, int]], need: int) -> None:
    gpus, harm = [row[0] for row in rows], [row[1] for row in rows]
    every = [
        sum(harm[i] for i in some)
        for count in range(len(rows) + 1)
        for some in combinations(range(len(rows)), count)
        if sum(gpus[i] for i in some) >= need
    ]
    found = cheapest_cover(gpus, harm, need)
    if found is None:
        assert not every
        return
    assert found[0] == min(every) == sum(harm[i] for i in found[1])
    assert sum(gpus[i] for i in found[1]) >= need


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), largest=st.integers(2, 4), gpus=st.integers(3, 11))
def test_the_cheapest_nodes_are_the_best_of_all(data: st.DataObject, largest: int, gpus: int) -> None:
    gpus = max(gpus, largest + 1)
    nodes = data.draw(st.integers(2, 4))
    free = np.array(data.draw(st.lists(st.integers(0, largest), min_size=nodes, max_size=nodes)), np.int64)
    part = np.zeros((nodes, 4), np.int64)
    left = largest - free
    for job in range(4):
        for node in range(nodes):
            part[node, job] = data.draw(st.integers(0, int(left[node])))
            left[node] -= part[node, job]
    part = part[:, part.sum(axis=0) > 0]
    harm = np.array(data.draw(st.lists(st.integers(1, 30), min_size=part.shape[1], max_size=part.shape[1])), np.int64)
    every = [
        int(harm[list(some)].sum())
        for count in range(len(harm) + 1)
        for some in combinations(range(len(harm)), count)
        if _holds(free + part[:, list(some)].sum(axis=1), largest, gpus)
    ]
    found = cheapest_nodes(free, part, harm, largest, gpus)
    if found is None:
        assert not every
        return
    place, sizes, leave = found
    assert int(harm[leave].sum()) == min(every)
    assert sum(sizes) == gpus
    assert ((free + part[:, leave].sum(axis=1))[place] >= sizes).all()
    # A short search finds nothing, or a place that may cost more.
    short = cheapest_nodes(free, part, harm, largest, gpus, limit=1)
    if short is not None:
        assert int(harm[short[2]].sum()) >= min(every)
        assert ((free + part[:, short[2]].sum(axis=1))[short[0]] >= short[1]).all()


def _holds(free: np.ndarray, largest: int, gpus: int) -> bool:
    """Tell whether a gang finds whole nodes and one more for the rest."""
    whole, rest = divmod(gpus, largest)
    full = int((free >= largest).sum())
    return full >= whole and (rest == 0 or full > whole or bool(((free >= rest) & (free < largest)).any()))
