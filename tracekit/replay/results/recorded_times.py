"""Waits and completion times of the jobs of a replay, as the log recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs


RECORDED = "recorded"
"""Name of the log's own schedule in comparisons."""
TWIN = "twin"
"""Name of the replay that best reproduces the log."""


@dataclass(frozen=True)
class RecordedTimes:
    """When jobs started and ended in the log, in the order of `Jobs` (n,)."""

    queue_ms: NDArray[np.int64]
    """First start minus submission [ms]; -1 if unknown."""
    jct_ms: NDArray[np.int64]
    """Last end minus submission [ms]; -1 if unknown, also if the start is unknown."""


def recorded_times(jobs: Jobs) -> RecordedTimes:
    """Return the recorded times of the jobs of a replay; times in the wrong order become unknown."""
    started = (jobs.recorded_start_ms >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    ended = started & (jobs.recorded_end_ms >= jobs.recorded_start_ms)
    return RecordedTimes(
        np.where(started, jobs.recorded_start_ms - jobs.submit_ms, -1),
        np.where(ended, jobs.recorded_end_ms - jobs.submit_ms, -1),
    )
