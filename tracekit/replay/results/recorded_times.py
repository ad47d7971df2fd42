"""What the log recorded beside a replay, and whether the effect of a policy can be told.

A policy is compared with a baseline, a replay of the same jobs. Nobody can stand behind the difference where the
baseline does not wait as the log did, since it then describes a cluster that nobody ran, nor where the policy waits
longer than the log did, since the log then was the better schedule already. Every report of an effect asks here.

The wait is the log's own: first start minus submission. All means are over the same jobs: those that the log, the
baseline and the policy all start, and that both replays end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Ints = NDArray[np.int64]

__all__ = ["NEAR_MS", "NO_RECORD", "RECORDED", "RecordedTimes", "Support", "recorded_times", "support_of"]

RECORDED = "recorded"
"""What the log's own schedule is called beside policies."""

NEAR_MS = 60_000
"""Mean waits of the baseline and of the log that differ by no more agree [ms]; our choice."""

_MORE, _LESS = 5, 4
"""They agree too within this ratio, 1.25, either way; whole numbers, so that no rounding decides. Our choice."""

NO_RECORD = "the log records no waits that these replays could be held against; the effect cannot be told"
"""Where no job has a recorded start, or the replay changed the submissions."""


@dataclass(frozen=True)
class RecordedTimes:
    """When the log let jobs start and end, in the order of `Jobs` (n,)."""

    queue_ms: Ints
    """First start minus submission [ms]; -1 unknown."""
    jct_ms: Ints
    """Last end minus submission [ms]; -1 unknown, as where the start is."""


def recorded_times(jobs: Jobs) -> RecordedTimes:
    """Return what the log recorded of the jobs of a replay; times in the wrong order are unknown."""
    started = (jobs.recorded_start_ms >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    ended = started & (jobs.recorded_end_ms >= jobs.recorded_start_ms)
    return RecordedTimes(
        np.where(started, jobs.recorded_start_ms - jobs.submit_ms, -1),
        np.where(ended, jobs.recorded_end_ms - jobs.submit_ms, -1),
    )


@dataclass(frozen=True)
class Support:
    """Whether an effect can be told, and the mean waits that decide it."""

    recorded_jobs: int
    """Jobs that the means are over."""
    recorded_queue_s: float | None
    """Their mean wait by the log [s]; None without such a job."""
    recorded_jct_s: float | None
    """Their mean completion time by the log [s], of those whose end it tells."""
    baseline_queue_s: float | None
    """Their mean wait under the baseline [s]."""
    policy_queue_s: float | None
    """Their mean wait under the policy [s]."""
    reason: str | None
    """Why the effect cannot be told, a sentence without its capital and full stop; None where it can."""

    @property
    def told(self) -> bool:
        """Whether the effect can be told."""
        return self.reason is None

    @property
    def sentence(self) -> str | None:
        """The reason as a sentence."""
        return None if self.reason is None else f"{self.reason[:1].upper()}{self.reason[1:]}."


def support_of(policy: str, record: RecordedTimes, baseline_ms: Ints, policy_ms: Ints | None) -> Support:
    """Return whether the effect of a policy against a baseline can be told.

    It can where the mean wait under the baseline is within a factor of 1.25 of the recorded one, or within a minute of
    it, and the mean wait under the policy is no longer than the recorded one.

    Parameters
    ----------
    policy : str
        What to call it.
    record : RecordedTimes
        Of the jobs that both replays end, arrays of shape (n,).
    baseline_ms, policy_ms : array of int, shape (n,)
        First start minus submission of these jobs [ms]; no `policy_ms` holds the baseline alone against the log.
    """
    known = record.queue_ms >= 0
    jobs = int(known.sum())
    if not jobs:
        return Support(0, None, None, None, None, NO_RECORD)
    waits = (record.queue_ms, baseline_ms, baseline_ms if policy_ms is None else policy_ms)
    recorded, baseline, changed = (int(w[known].sum()) for w in waits)
    ended = record.jct_ms[record.jct_ms >= 0]
    means = [total / jobs / 1000 for total in (recorded, baseline, changed)]
    reason = None
    near = _LESS * baseline <= _MORE * recorded and _LESS * recorded <= _MORE * baseline
    if not near and abs(baseline - recorded) > NEAR_MS * jobs:
        reason = f"a replay does not reproduce this log ({_against(means[1], means[0])} waited); {_CANNOT}"
    elif policy_ms is not None and changed > recorded:
        reason = f"jobs wait longer under {policy} than they did by the log ({_against(means[2], means[0])}); {_CANNOT}"
    return Support(jobs, means[0], float(ended.mean()) / 1000 if len(ended) else None, means[1], means[2], reason)


_CANNOT = "the effect cannot be told"


def _against(replayed_s: float, recorded_s: float) -> str:
    """Return two mean waits in one unit, so that they can be compared at a glance.

    Examples
    --------
    >>> _against(69_840, 1425), _against(0, 90), _against(12.34, 0)
    ('19.4 h against 0.40 h', '0 min against 1.50 min', '12.3 s against 0 s')
    """
    longest = max(replayed_s, recorded_s)
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (0, "s")) if longest >= s)
    return " against ".join(f"{_number(value / (size or 1))} {unit}" for value in (replayed_s, recorded_s))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
