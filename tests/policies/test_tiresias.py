"""Queues by attained service: promotion, who stays inside a queue, and the charge at every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

PAIR = [(0, 4, 10), (1, 4, 20)]
"""Each needs all of the 4 GPUs; 12 GPU*s are 3 s."""


@pytest.mark.parametrize(
    ("promote", "ends_s", "preemptions"),
    [
        # The first falls at 3 and gives way; the second falls at 6 and gives way to the earlier one, for good.
        ("0", [13, 30], [1, 1]),
        # Half of its last run of 3 s after each stop, the first is in the first queue again, earlier than the second:
        # it runs 0-3, 4.5-7.5, 9-12, 13.5-14.5. The second runs between, each time for 1.5 s, promoted as well.
        ("0.5", [14.5, 30], [3, 3]),
        # Twice its last run: the second, stopped at 6 after 3 s, is promoted at 12, falls at 15 and gives way again.
        # The first, stopped at 3 after 3 s, runs from 6 on and is never promoted.
        ("2", [16, 30], [2, 2]),
    ],
)
def test_promotion_after_a_wait(promote: str, ends_s: list[float], preemptions: list[int]) -> None:
    jobs, cluster = make_jobs(PAIR), make_cluster([4])
    outcome = run_engine(jobs, cluster, f"las,queues=12,promote={promote}")
    assert (outcome.end_ms / 1000).tolist() == ends_s
    assert outcome.preemptions.tolist() == preemptions
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []


@pytest.mark.parametrize(
    ("within", "ends_s", "preemptions"),
    [
        ("submit", [13, 30], [1, 1]),
        # The second, in the same queue from 6 on, keeps its GPUs to its end at 23.
        ("running", [30, 23], [1, 0]),
    ],
)
def test_who_goes_first_inside_a_queue(within: str, ends_s: list[float], preemptions: list[int]) -> None:
    outcome = run_engine(make_jobs(PAIR), make_cluster([4]), f"las,queues=12,within={within}")
    assert (outcome.end_ms / 1000).tolist() == ends_s
    assert outcome.preemptions.tolist() == preemptions


@pytest.mark.parametrize(
    ("rows", "queues", "ends_s", "preemptions"),
    [
        # The first falls at 3, and the second takes its GPUs at 5; that one falls at 8 and gives them back at 10. The
        # first ends at 15, when the second starts again with 15 s left.
        (PAIR, "12", [15, 30], [1, 1]),
        # What ends at 7 leaves its GPUs idle until 10, and who comes at 11 waits until 15 although there is room.
        ([(0, 4, 7), (1, 2, 20), (11, 2, 3)], "none", [7, 30, 18], [0, 0, 0]),
        # The last start is at the next decision although nothing else happens then.
        ([(1, 4, 1), (1, 4, 1), (2, 4, 1)], "none", [6, 11, 16], [0, 0, 0]),
    ],
)
def test_decisions_every_five_seconds(
    rows: list[tuple[float, int, float]], queues: str, ends_s: list[int], preemptions: list[int]
) -> None:
    jobs, cluster = make_jobs(rows), make_cluster([4])
    outcome = run_engine(jobs, cluster, f"las,queues={queues},interval=5")
    assert (outcome.end_ms / 1000).tolist() == ends_s
    assert outcome.preemptions.tolist() == preemptions
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []


@tried(21, 60, jobs=job_lists(), cluster=clusters(), interval=st.sampled_from(["0.5", "7", "60"]))
def test_with_an_interval_nothing_starts_or_stops_in_between(jobs: Jobs, cluster: Cluster, interval: str) -> None:
    outcome = run_engine(jobs, cluster, f"las,queues=20,interval={interval}")
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []
    log = outcome.log
    decided = log["time_ms"][np.isin(log["kind"], [LOG_KINDS["start"], LOG_KINDS["stop"]])]
    assert (decided % round(float(interval) * 1000) == 0).all()
    # Nobody who could run is forgotten: whoever ends without an interval ends with one.
    free = run_engine(jobs, cluster, "las,queues=20")
    assert ((outcome.end_ms >= 0) == (free.end_ms >= 0)).all()


@tried(21, 60, jobs=job_lists(), cluster=clusters())
def test_an_interval_of_a_millisecond_changes_nothing(jobs: Jobs, cluster: Cluster) -> None:
    often, always = (run_engine(jobs, cluster, f"las,queues=20{more}") for more in (",interval=0.001", ""))
    assert often.end_ms.tolist() == always.end_ms.tolist()
    assert often.preemptions.tolist() == always.preemptions.tolist()


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las"])
def test_an_overhead_at_every_event(policy: str) -> None:
    # At 10 the second comes and at 30 it ends: each time the first, then running, loses 7 s; who starts does not.
    outcome = run_engine(
        make_jobs([(0, 1, 100), (10, 1, 20)]), make_cluster([2]), f"{policy},overhead=helios,charge=event"
    )
    assert outcome.end_ms.tolist() == [114_000, 30_000]
    assert outcome.overhead_ms.tolist() == [14_000, 0]
    assert outcome.preemptions.tolist() == [0, 0]


def test_an_event_sooner_than_the_overhead_is_over_begins_it_anew() -> None:
    # One GPU, 7 s: events at 10 and 12 take 2 + 7 s together.
    rows = [(0.0, 1, 100.0), (10, 1, 500), (12, 1, 500)]
    outcome = run_engine(make_jobs(rows), make_cluster([1]), "srtf,overhead=helios,charge=event")
    assert outcome.end_ms[0] == 109_000


@pytest.mark.parametrize(
    ("fit", "ends_s", "preemptions"),
    [
        # Nodes of 4. At 1 the third, with least left, evicts the second, which has most left, until 6.
        ("place", [10, 25, 6], [0, 1, 0]),
        # By number all three fit, so nobody is stopped; the third finds 1 + 1 GPUs and waits for the first to end.
        ("quota", [10, 20, 15], [0, 0, 0]),
    ],
)
def test_who_is_planned_by_number_and_finds_no_place(fit: str, ends_s: list[int], preemptions: list[int]) -> None:
    jobs, cluster = make_jobs([(0, 3, 10), (0, 3, 20), (1, 2, 5)]), make_cluster([4, 4])
    outcome = run_engine(jobs, cluster, f"srtf,fit={fit}")
    assert (outcome.end_ms / 1000).tolist() == ends_s
    assert outcome.preemptions.tolist() == preemptions


@tried(
    14,
    40,
    jobs=job_lists(),
    cluster=clusters(),
    policy=st.sampled_from(["srtf", "srsf", "las,queues=20", "las,queues=5/20,within=running,interval=7"]),
)
def test_plans_by_number_keep_the_laws(jobs: Jobs, cluster: Cluster, policy: str) -> None:
    outcome = run_engine(jobs, cluster, f"{policy},fit=quota,overhead=helios")
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []


@tried(
    21,
    60,
    rows=st.lists(
        st.tuples(st.integers(0, 30), st.just(1), st.integers(1, 40)), min_size=1, max_size=12, unique_by=lambda r: r[0]
    ),
)
def test_with_jobs_of_one_gpu_quota_is_place(rows: list[tuple[int, int, int]]) -> None:
    jobs, cluster = make_jobs(sorted(rows)), make_cluster([2, 1])
    ends = [run_engine(jobs, cluster, f"las,queues=5/20,fit={fit}").end_ms.tolist() for fit in ("quota", "place")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("more", ["charge=event", "scan=stop", "promote=1"])
def test_what_does_not_go_with_a_plan_by_number(more: str) -> None:
    with pytest.raises(UsageError, match=f"fit=quota cannot be combined with {more.partition('=')[0]}="):
        run_engine(make_jobs(PAIR), make_cluster([4]), f"las,fit=quota,{more}")


@pytest.mark.parametrize("queues", ["", "a", "5/5", "7/3", "0", "-1", "1e12", "nan", "3,4"])
def test_queues_that_cannot_be(queues: str) -> None:
    with pytest.raises(UsageError):
        run_engine(make_jobs(PAIR), make_cluster([4]), f"las,queues={queues}")
