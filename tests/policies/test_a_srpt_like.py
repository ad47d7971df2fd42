"""The order of one virtual machine: by hand, walked in small steps, and where it is another policy's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.a_srpt_like import virtual_order

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def ends(jobs: Jobs, cluster: Cluster, policy: str) -> list[int]:
    found: list[int] = run_engine(jobs, cluster, policy).end_ms.tolist()
    return found


def test_what_has_waited_is_partly_done() -> None:
    # Two GPUs, so that the virtual machine does 2 GPU*s in a second. It runs j0 (20 GPU*s) from 0 to 2, j2 (4) from 2
    # to 4, j0 again to 12, and j1 (20) from there. When j3 (19) comes at 13, j1 has 18 left, so that j1 ends first.
    jobs = make_jobs([(0, 2, 10), (1, 2, 10), (2, 1, 4), (13, 2, 9.5)])
    assert virtual_order(jobs.arrival_ms, jobs.work_ms * jobs.devices, 2).tolist() == [1, 2, 0, 3]
    # Really j0 runs to 10, j2 to 14, j1 to 24, j3 to 33.5. By size j3 would go before j1.
    one = make_cluster((2,))
    assert ends(jobs, one, "a-srpt-like") == [10_000, 24_000, 14_000, 33_500]
    assert ends(jobs, one, "ssf") == [10_000, 33_500, 14_000, 23_500]


def test_free_gpus_wait_for_nobody() -> None:
    # j1 ends last on the virtual machine, and has the other GPU at once all the same.
    jobs = make_jobs([(0, 1, 5), (0, 1, 50), (1, 1, 5)])
    assert ends(jobs, make_cluster((2,)), "a-srpt-like") == [5_000, 50_000, 10_000]


def walked(arrival: list[int], service: list[int], gpus: int) -> list[int]:
    """Return the place of each job, the machine doing one unit of work at a time."""
    left, done = dict[int, int](), list[int]()
    now = 0
    while len(done) < len(arrival):
        for job, at in enumerate(arrival):
            if at * gpus == now:
                left[job] = service[job]
        # A job with nothing to do is done when it comes.
        for job in [job for job, work in sorted(left.items(), key=lambda row: (row[1], row[0])) if work == 0]:
            done.append(job)
            del left[job]
        if left:
            left[min(left, key=lambda job: (left[job], job))] -= 1
        now += 1
    return [done.index(job) for job in range(len(arrival))]


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=8).map(sorted), gpus=st.integers(1, 5))
def test_the_order_is_that_of_small_steps(rows: list[tuple[int, int]], gpus: int) -> None:
    arrival, service = [row[0] for row in rows], [row[1] for row in rows]
    found = virtual_order(np.array(arrival, np.int64), np.array(service, np.int64), gpus)
    assert found.tolist() == walked(arrival, service, gpus)


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=12).map(sorted),
    gpus=st.integers(1, 4),
    data=st.data(),
)
def test_what_comes_later_decides_nothing(rows: list[tuple[int, int]], gpus: int, data: st.DataObject) -> None:
    arrival, service = np.array(rows, np.int64).T
    known = data.draw(st.integers(1, len(rows)))
    early = virtual_order(arrival[:known], service[:known], gpus)
    late = virtual_order(arrival, service, gpus)[:known]
    assert np.argsort(early).tolist() == np.argsort(late).tolist()


@tried(7, 20, jobs=job_lists(horizon_s=0), cluster=clusters(), scan=st.sampled_from(["stop", "skip"]))
def test_all_at_once_it_is_smallest_first(jobs: Jobs, cluster: Cluster, scan: str) -> None:
    assert ends(jobs, cluster, f"a-srpt-like,scan={scan}") == ends(jobs, cluster, f"ssf,scan={scan}")
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    assert ends(single, cluster, f"a-srpt-like,scan={scan}") == ends(single, cluster, f"sjf,scan={scan}")


@tried(7, 20, jobs=job_lists(), cluster=clusters(), size=st.integers(1, 4), fit=st.sampled_from(["place", "count"]))
def test_jobs_that_are_alike_are_first_in_first_out(jobs: Jobs, cluster: Cluster, size: int, fit: str) -> None:
    alike = replace(jobs, devices=np.full_like(jobs.devices, size), work_ms=np.full_like(jobs.work_ms, 7_000))
    assert ends(alike, cluster, f"a-srpt-like,fit={fit}") == ends(alike, cluster, f"fifo,fit={fit}")


@tried(
    7, 20, jobs=job_lists(), cluster=clusters(), options=st.sampled_from(["", ",scan=skip", ",noise=1", ",fit=count"])
)
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster, options: str) -> None:
    one, two = (run_engine(jobs, cluster, f"a-srpt-like{options}") for _ in range(2))
    assert one.log is not None
    assert two.log is not None
    assert audit(jobs, cluster, one.log, one, preemptive=False, fit="count" if "count" in options else "place") == []
    assert one.log.tobytes() == two.log.tobytes()


def test_a_gang_that_never_fits_is_not_in_the_way() -> None:
    # With j0 on the virtual machine, all of the other two would still be to do when j2 comes, which is shorter.
    jobs = make_jobs([(0, 9, 1), (0, 1, 10), (1, 1, 20), (15, 1, 19)])
    assert ends(jobs, make_cluster((1,)), "a-srpt-like") == [-1, 10_000, 30_000, 49_000]


def test_unknown_noise() -> None:
    with pytest.raises(UsageError, match="not a noise of estimates"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "a-srpt-like,noise=guess")
