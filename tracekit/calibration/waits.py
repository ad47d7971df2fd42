"""The waits of a log, those of a replay of the same jobs, and how near they are job by job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["AGREE_S", "AGREE_SHARE", "agreeing", "distance"]

AGREE_S, AGREE_SHARE = 300.0, 0.25
"""Two waits agree within the larger of 5 min and a quarter of the recorded one."""

_GRAIN_S = 300.0
"""Differences well below five minutes count for nothing when replays are ranked [s]; our choice."""


def agreeing(recorded_s: Floats, replayed_s: Floats) -> Bools:
    """Return which waits agree (n,)."""
    near: Bools = np.abs(replayed_s - recorded_s) <= np.maximum(AGREE_S, AGREE_SHARE * recorded_s)
    return near


def distance(recorded_s: Floats, replayed_s: Floats) -> float:
    """Return how far a replay is from the log; 0 where every wait is the same.

    The mean over jobs of |log ((replayed + 5 min) / (recorded + 5 min))|, which no few long waits decide, plus the same
    of the two mean waits, so that the hours waited in all count too.
    """
    if not len(recorded_s):
        return 0.0
    job_by_job = np.abs(np.log((replayed_s + _GRAIN_S) / (recorded_s + _GRAIN_S))).mean()
    whole = abs(np.log((replayed_s.mean() + _GRAIN_S) / (recorded_s.mean() + _GRAIN_S)))
    return float(job_by_job + whole)
