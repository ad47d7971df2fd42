"""What checkpoints cost and save: best intervals, time to finish, and the useful share of that time.

This is Daly's model (2006). A job works in segments of `interval_s`, each followed by a checkpoint of `cost_s`. The
last segment may be shorter, with a proportional cost. A failure loses the work since the last checkpoint. The job is
then away for `away_s` on average, without further failures, and loads the checkpoint in `restart_s`. If it fails while
loading, it loads again. Failures are detected immediately, and the first start is free.

Sources: Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974); Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22 (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracekit.errors import UsageError


@dataclass(frozen=True)
class CheckpointRule:
    """The checkpoint interval of a job, and the times that saving and restarting take.

    Raises
    ------
    UsageError
        The interval is not above 0, or a time is negative or not finite.
    """

    interval_s: float
    """Work between two checkpoints [s], which is infinite without checkpoints."""
    cost_s: float = 0.0
    """Time for which a checkpoint stops the work [s]. If it exceeds the interval, the job spends most time saving."""
    restart_s: float = 0.0
    """Time from when the job has all nodes again until work resumes [s]."""
    away_s: float = 0.0
    """Mean time from a failure until the job has all nodes again [s]."""

    def __post_init__(self) -> None:
        if not self.interval_s > 0:  # also rejects NaN
            raise UsageError(f"the checkpoint interval must be above 0 s, not {self.interval_s:g} s")
        for name in ("cost_s", "restart_s", "away_s"):
            _check_time(name.removesuffix("_s"), getattr(self, name))

    @property
    def slowdown(self) -> float:
        """Time with checkpoints / time without, if nothing fails [1]."""
        return 1 + self.cost_s / self.interval_s


def young_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints at which the lost time is smallest, to first order [s]: sqrt(2 d M).

    Parameters
    ----------
    cost_s : float
        Cost of a checkpoint, d [s].
    mtbf_s : float
        Mean time between failures of the job, M [s]. If it is infinite, nothing fails and the interval is also
        infinite.

    Raises
    ------
    UsageError
        The cost is negative or not finite, or the mean time is not above 0.
    """
    _check_time("cost", cost_s)
    _check_mean(mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) if cost_s else 0.0


def daly_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints that minimizes lost time, to Daly's higher order [s].

    With cost d and mean time between failures M: sqrt(2dM) * (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M
    (Daly 2006, eq. 37). It is within 0.6 % of `best_interval` if d <= M / 2, and within 7 % at any cost. The ETTR is
    then within 0.2 % of the ETTR at the best interval.

    Parameters
    ----------
    cost_s, mtbf_s : float
        As for `young_interval`.

    Raises
    ------
    UsageError
        As for `young_interval`.
    """
    first = young_interval(cost_s, mtbf_s)
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    part = cost_s / (2 * mtbf_s)
    return first * (1 + math.sqrt(part) / 3 + part / 9) - cost_s if math.isfinite(first) else first


def best_interval(cost_s: float, rate_per_s: float) -> float:
    """Return the work between two checkpoints that minimizes lost time if failures are exponential [s].

    It maximizes `expected_ettr` and is the root of l t = 1 - exp(-l (t + d)), with rate l and cost d. In terms of the
    Lambert function, l t = 1 + W(-exp(-1 - l d)). It does not depend on the restart time or on the time away.

    Parameters
    ----------
    cost_s : float
        Cost of a checkpoint [s]. If it is 0, the shortest interval is the best, and the result is 0.
    rate_per_s : float
        Failures per second of the job's run time. If it is 0, the result is infinite, so the job never saves.

    Raises
    ------
    UsageError
        The cost or the rate is negative or not finite.
    """
    _check_time("cost", cost_s)
    _check_rate(rate_per_s)
    if rate_per_s == 0:
        return math.inf
    x = rate_per_s * cost_s
    y = min(math.sqrt(2 * x), 1.0)
    # Newton's steps descend a convex curve from above until rounding stops them.
    while y > 0:
        step = (y + math.expm1(-(y + x))) / -math.expm1(-(y + x))
        if not step > 1e-15 * y:
            break
        y -= step
    return y / rate_per_s


def expected_failures(work_s: float, rule: CheckpointRule, rate_per_s: float) -> float:
    """Return a job's mean number of failures until its work is done, if failures are exponential.

    A segment of length L, its checkpoint included, has exp(l R) * (exp(l L) - 1) failures on average, including
    failures during restarts, with rate l and restart R. The result is infinite above 1e308.

    Raises
    ------
    UsageError
        The work or the rate is negative or not finite.
    """
    _check_time("work", work_s)
    _check_rate(rate_per_s)
    whole, rest = divmod(work_s, rule.interval_s) if math.isfinite(rule.interval_s) else (0.0, work_s)
    lengths = ((whole, rule.interval_s + rule.cost_s), (1.0, rest * rule.slowdown))
    try:
        return math.exp(rate_per_s * rule.restart_s) * sum(
            number * math.expm1(rate_per_s * length) for number, length in lengths if number and length
        )
    except OverflowError:
        return math.inf


def expected_wall_s(work_s: float, rule: CheckpointRule, rate_per_s: float) -> float:
    """Return the mean time from the start of a job until its work is done, if failures are exponential [s].

    A segment of length L takes exp(l R) * (exp(l L) - 1) * (1 / l + A), with rate l, restart R and mean time away A
    (for A = 0, this is Daly's complete cost function). Without failures, it is the time for the work and its
    checkpoints. The result is infinite above 1e308 s.

    Parameters
    ----------
    work_s : float
        Time that the work takes without failures and checkpoints [s].
    rule : CheckpointRule
    rate_per_s : float
        Failures of the job per second in which it works, saves or restarts.

    Raises
    ------
    UsageError
        The work or the rate is negative or not finite.
    """
    failures = expected_failures(work_s, rule, rate_per_s)
    if rate_per_s == 0:
        return work_s * rule.slowdown
    return failures * (1 / rate_per_s + rule.away_s)


def expected_ettr(rule: CheckpointRule, rate_per_s: float, work_s: float | None = None) -> float:
    """Return the effective training time ratio: mean time of useful work / time from start to end [0..1].

    Failures are exponential. The ratio is the work over its `expected_wall_s`, or that of whole segments if `work_s` is
    not given.

    Parameters
    ----------
    rule : CheckpointRule
    rate_per_s : float
        Failures of the job per second in which it works, saves or restarts.
    work_s : float, optional
        Time that the work itself takes [s]. By default, the work is endless.

    Raises
    ------
    UsageError
        The rate is negative, the work is not above 0, or a value is not finite.
    """
    if work_s is not None and work_s <= 0:
        raise UsageError(f"the work must take more than 0 s, not {work_s:g} s")
    work = rule.interval_s if work_s is None else work_s
    if not math.isfinite(work) and work_s is None:
        _check_rate(rate_per_s)
        return 1.0 if rate_per_s == 0 else 0.0  # endless work never ends if it is never saved
    return work / expected_wall_s(work, rule, rate_per_s)


def _check_time(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UsageError(f"the time of {name} must be at least 0 s, not {value:g} s")


def _check_rate(rate_per_s: float) -> None:
    if not 0 <= rate_per_s < math.inf:
        raise UsageError(f"the failure rate must be at least 0, not {rate_per_s:g} per second")


def _check_mean(mtbf_s: float) -> None:
    if not mtbf_s > 0:
        raise UsageError(f"the mean time between failures must be above 0 s, not {mtbf_s:g} s")
