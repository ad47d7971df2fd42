"""The recorded schedule, carried out again and checked against the cluster."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.replay.builders import ORIGIN, make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.policies.arrival import Recorded
from tracekit.replay.recording.mechanism import violations, violations_note
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace


def at(seconds: float) -> dt.datetime:
    return ORIGIN.replace(tzinfo=None) + dt.timedelta(seconds=seconds)


def four_jobs() -> Jobs:
    """Return jobs of 6, 4, 2 and 1 GPUs; the first two overlap on what has 8, the last has no start."""
    return make_jobs(
        [(0, 6, 100), (10, 4, 50), (20, 2, 0), (30, 1, 20)],
        recorded_start_ms=[5_000, 50_000, 120_000, -1],
        recorded_end_ms=[105_000, 100_000, 120_000, -1],
    )


def test_starts_and_ends_are_those_of_the_log_whatever_fits() -> None:
    result = Scenario.make(four_jobs(), make_cluster((8,))).run("recorded")
    outcome = result.outcome
    assert outcome.first_start_ms.tolist() == [5_000, 50_000, 120_000, -1]
    assert outcome.end_ms.tolist() == [105_000, 100_000, 120_000, -1]
    assert outcome.run_ms.tolist() == [100_000, 50_000, 0, 0]
    assert outcome.unschedulable.tolist() == [False] * 4
    # 6 GPUs for 100 s and 4 for 50 s; until the last end at 120 s, 8 were free for 20 s and 2 for 100 s.
    assert outcome.busy_milli_ms == 800_000 * 1000
    assert outcome.free_milli_ms == 360_000 * 1000
    assert outcome.fragmented_milli_ms == 200_000 * 1000
    assert outcome.makespan_ms == 120_000
    assert result.summary["completed"] == 3


def test_a_gang_takes_scattered_gpus_before_it_counts_as_without_a_node() -> None:
    jobs = make_jobs(
        [(0, 6, 10), (0, 6, 10), (0, 4, 10)], recorded_start_ms=[0, 0, 1_000], recorded_end_ms=[10_000] * 3
    )
    assert Scenario.make(jobs, make_cluster((8, 8))).run("recorded").outcome.nodes_spanned.tolist() == [1, 1, 2]
    crowded = Scenario.make(jobs, make_cluster((8, 4, 2))).run("recorded").outcome
    # 6 of the 8; then 6 on all three nodes (2, 4, 0 are free: scattered); then none.
    assert crowded.nodes_spanned.tolist() == [1, 2, 0]
    assert crowded.busy_milli_ms == (60_000 + 60_000 + 36_000) * 1000


def test_too_many_gpus_are_reported_by_domain_and_time(golden: Golden) -> None:
    scenario = Scenario.make(four_jobs(), make_cluster((8,)))
    found = scenario.run("recorded").outcome.violations
    assert found is not None
    expected = pl.DataFrame(
        {
            "time": [at(50)],
            "until": [at(100)],
            "kind": ["domain"],
            "name": [""],
            "wanted": [10.0],
            "there_were": [8.0],
        }
    )
    assert found.schema == expected.schema
    assert found.equals(expected)
    # 2 GPUs too many for 50 s.
    golden([violations_note(found), violations_note(found.clear())])


def test_nodes_that_leave_take_their_gpus_with_them() -> None:
    cluster = make_cluster((8, 4), changes=[(60, 1, False), (80, 1, True)])
    found = Scenario.make(four_jobs(), cluster).run("recorded").outcome.violations
    assert found is not None
    assert found.select("time", "until", "wanted", "there_were").rows() == [(at(60), at(80), 10.0, 8.0)]


def test_a_vc_without_nodes_has_no_gpus() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)], vc=["a", "b"], recorded_start_ms=[0, 0], recorded_end_ms=[10_000, 5_000])
    result = Scenario.make(jobs, make_cluster((8,), domain="a")).run("recorded")
    assert result.outcome.violations is not None
    assert result.outcome.violations.select("until", "name", "wanted", "there_were").rows() == [
        (at(5), "(VCs without nodes)", 1.0, 0.0)
    ]
    assert result.outcome.end_ms.tolist() == [10_000, 5_000]


def test_placements_tell_nodes(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        jobs=[{"job_id": f"j{i}", "submit_time": "2020-01-01 00:00"} for i in range(3)],
        placements=[
            {
                "job_id": f"j{i}",
                "attempt": 0,
                "node_id": node,
                "gpu_count": gpus,
                "start_time": at(start),
                "end_time": at(100),
            }
            for i, node, gpus, start in [(0, "n0", 3, 0), (1, "n0", 2, 40), (2, "n9", 1, 99)]
        ],
    )
    jobs = make_jobs([(0, 3, 100), (0, 2, 60), (0, 1, 1)], recorded_start_ms=[0, 40_000, 99_000],
                     recorded_end_ms=[100_000] * 3)  # fmt: skip
    scenario = Scenario.make(jobs, make_cluster((4, 4)))
    mechanism = Recorded().mechanism(jobs, scenario.cluster, scenario.models, 0)
    found = violations(jobs, scenario.cluster, scenario.assignment, mechanism, trace)
    assert found.drop("until").rows() == [(at(40), "node", "n0", 5.0, 4.0), (at(99), "node", "n9", 1.0, 0.0)]


def test_what_the_log_does_not_tell_is_left_out_and_counted(golden: Golden) -> None:
    jobs = make_jobs(
        [(0, 1, 100), (0, 1, 100), (10, 1, 100), (0, 2, 50)],
        recorded_start_ms=[-1, 20_000, 5_000, 1_000],
        recorded_end_ms=[-1, -1, 105_000, 51_000],
    )
    # The builder orders by submission: the job that starts before it is submitted comes last.
    mechanism = Recorded().mechanism(jobs, make_cluster(), Scenario.make(jobs, make_cluster()).models, 0)
    assert sorted(mechanism.start_ms.tolist()) == [-1, -1, -1, 1_000]
    golden(mechanism.notes)


def test_nothing_recorded_is_an_error() -> None:
    with pytest.raises(UsageError, match="no job has a recorded start and end; a changed load"):
        Scenario.make(make_jobs([(0, 1, 1)]), make_cluster()).run("recorded")


def test_random_schedules_keep_their_sums() -> None:
    random = np.random.default_rng(7)
    n = 400
    submit = np.sort(random.integers(0, 1000, n))
    start = submit + random.integers(0, 50, n)
    end = start + random.integers(0, 200, n)
    gpus = random.integers(1, 12, n)
    jobs = make_jobs(
        [(int(s), int(g), int(e - b)) for s, g, b, e in zip(submit, gpus, start, end, strict=True)],
        recorded_start_ms=(start * 1000).tolist(),
        recorded_end_ms=(end * 1000).tolist(),
    )
    outcome = Scenario.make(jobs, make_cluster((8,) * 20)).run("recorded").outcome
    held = int(((end - start) * gpus).sum()) * 1_000_000
    assert outcome.held_milli_ms.sum() == held
    assert outcome.busy_milli_ms == held
    assert outcome.timeline.running.max() <= n
    assert outcome.timeline.pending[-1] >= 0
