"""Which cluster of several is replayed, and how much of the waiting is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.calibration.workbench import clusters_by_waiting
from tracekit.replay.part import part_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


def test_the_share_is_that_of_gpu_jobs_as_where_a_twin_is_reported(make_trace: Callable[..., Trace]) -> None:
    """Of 240 s that GPU jobs waited 60 s are a's; that its CPU job waited is no matter of GPUs."""
    jobs = [
        {"job_id": "1", "cluster": "a", "gpu_count": 1, "queue_s": 60},
        {"job_id": "2", "cluster": "a", "gpu_count": 0, "queue_s": 9000},
        {"job_id": "3", "cluster": "b", "gpu_count": 8, "queue_s": 180},
        {"job_id": "4", "cluster": "b", "gpu_count": 8, "queue_s": None},
    ]
    trace = make_trace(jobs=jobs)
    part = part_of(trace, "a")
    assert part is not None
    assert (part.cluster, part.others) == ("a", ("b",))
    assert part.waiting_share == pytest.approx(0.25)
    assert clusters_by_waiting(trace) == {"b": pytest.approx(0.75), "a": pytest.approx(0.25)}
    assert part_of(make_trace(jobs=jobs[:2]), "a") is None
