"""Queues by attained service: promotion, who stays inside a queue, and the charge at every event."""

from __future__ import annotations

import pytest

from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tracekit.errors import UsageError

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


@pytest.mark.parametrize("queues", ["", "a", "5/5", "7/3", "0", "-1", "1e12", "nan", "3,4"])
def test_queues_that_cannot_be(queues: str) -> None:
    with pytest.raises(UsageError):
        run_engine(make_jobs(PAIR), make_cluster([4]), f"las,queues={queues}")
