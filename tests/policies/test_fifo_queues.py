"""First in, first out with a queue for each VC, user or partition, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.scenario import Scenario

ROWS = [(0, 6, 100), (1, 8, 10), (2, 2, 10), (3, 2, 10)]
"""8 GPUs: the second job waits for all of them; the third and the fourth would fit beside the first."""


def starts(policy: str, **more: list[str]) -> list[float]:
    jobs = make_jobs(ROWS, **more)  # type: ignore[arg-type]  # lists of names, as the builder takes them
    found = Scenario.make(jobs, make_cluster([8])).run(policy)
    return [float(ms) / 1000 for ms in found.outcome.first_start_ms]


def test_a_job_that_cannot_start_holds_up_its_own_queue_alone() -> None:
    vc = ["a", "a", "b", "a"]
    assert starts("fifo", vc=vc) == [0, 100, 110, 110]
    assert starts("fifo,scan=skip", vc=vc) == [0, 100, 2, 12]
    # The third job is of another queue and starts at once; the fourth stands behind the second.
    assert starts("fifo,queues=vc", vc=vc) == [0, 100, 2, 110]
    assert starts("fifo,queues=user", vc=vc, user=["x", "y", "y", "z"]) == [0, 100, 110, 3]
    assert starts("fifo,queues=user", user=["u"] * 4) == starts("fifo")


def test_a_log_without_partitions_is_one_queue() -> None:
    assert starts("fifo,queues=partition") == [0, 100, 110, 110]


def test_partitions_are_queues() -> None:
    from dataclasses import replace

    jobs = replace(make_jobs(ROWS), partition=np.array([0, 1, 1, 0], np.int32), partitions=["p", "q"])
    found = Scenario.make(jobs, make_cluster([8])).run("fifo,queues=partition")
    assert (found.outcome.first_start_ms / 1000).tolist() == [0, 100, 110, 3]


@pytest.mark.parametrize("other", ["relax=60", "age_cap=60"])
def test_what_does_not_go_with_queues_is_refused(other: str) -> None:
    with pytest.raises(UsageError, match="cannot be combined with"):
        starts(f"fifo,queues=vc,{other}")
