"""What checkpoints cost and save, by renewal theory: best intervals, time to finish, the part of it that is useful.

The model is that of Daly (2006). Work is done in segments: `interval_s` of work, then a checkpoint of `cost_s`; the
last segment may be shorter, with its part of the cost. A failure loses what was done since the last checkpoint. The
gang is then away for `away_s` in the mean, in which nothing else fails, and loads the checkpoint in `restart_s`, in
which it may fail again and begin to load anew. Failures are found at once, and the first start is free.

Sources: Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974); Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22 (2006); the
renewal reward theorem, for example Ross, "Stochastic Processes", 2nd ed. (1996), section 3.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracekit.errors import UsageError

__all__ = [
    "CheckpointRule",
    "best_interval",
    "best_weibull_interval",
    "daly_interval",
    "expected_ettr",
    "expected_failures",
    "expected_wall_s",
    "weibull_ettr",
    "young_interval",
]

_ONE_BY_ONE = 4_096
"""Segments whose survival is summed one by one; the sum of those after them is an integral, and two corrections."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_LEAST_SHAPE = 0.01
"""Below it the mean of a Weibull distribution is beyond 1e157 times its scale."""
_GRID = 240
"""Intervals that are looked at before the best of them is refined, equal steps of the logarithm."""


@dataclass(frozen=True)
class CheckpointRule:
    """How often a gang saves its work, and what that and a restart take.

    Raises
    ------
    UsageError
        The interval is not above 0, or a time is below 0 or not finite.
    """

    interval_s: float
    """Work between two checkpoints [s]; infinite where none are made."""
    cost_s: float = 0.0
    """Time that a checkpoint holds up the work [s]. It may exceed the interval: most time then goes into saving."""
    restart_s: float = 0.0
    """From having all nodes again until the work goes on [s]."""
    away_s: float = 0.0
    """Mean time from a failure until the gang has all nodes again [s]."""

    def __post_init__(self) -> None:
        if not self.interval_s > 0:  # which no NaN is
            raise UsageError(f"the checkpoint interval must be above 0 s, not {self.interval_s:g} s")
        for name in ("cost_s", "restart_s", "away_s"):
            _check_time(name.removesuffix("_s"), getattr(self, name))

    @property
    def slowdown(self) -> float:
        """Time with checkpoints / time without, where nothing fails [1]."""
        return 1 + self.cost_s / self.interval_s


def young_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints that loses least time, to the first order [s]: sqrt(2 d M).

    Parameters
    ----------
    cost_s : float
        Of a checkpoint, d [s].
    mtbf_s : float
        Mean time between failures of the gang, M [s]; infinite where nothing fails, and so is then the interval.

    Raises
    ------
    UsageError
        The cost is below 0 or not finite, or the mean time is not above 0.
    """
    _check_time("cost", cost_s)
    _check_mean(mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) if cost_s else 0.0


def daly_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints that loses least time, to Daly's higher order [s].

    With cost d and mean time between failures M: sqrt(2dM) * (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M
    (Daly 2006, eq. 37). It is within 0.6 % of `best_interval` where d <= M / 2, and within 7 % at any cost; the
    ETTR is then within 0.2 % of that at the best interval.

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
    """Return the work between two checkpoints that loses least time, where failures are exponential [s].

    It maximizes `expected_ettr` and is the root of l t = 1 - exp(-l (t + d)), with rate l and cost d; in terms of the
    Lambert function l t = 1 + W(-exp(-1 - l d)). Neither the time to restart nor that away moves it.

    Parameters
    ----------
    cost_s : float
        Of a checkpoint [s]. Where it is 0 the least interval is the best, and the answer is 0.
    rate_per_s : float
        Failures of the gang in a second of its run time; where it is 0 the answer is infinite: never save.

    Raises
    ------
    UsageError
        The cost or the rate is below 0 or not finite.
    """
    _check_time("cost", cost_s)
    _check_rate(rate_per_s)
    if rate_per_s == 0:
        return math.inf
    x = rate_per_s * cost_s
    y = min(math.sqrt(2 * x), 1.0)
    # From above, Newton's steps fall on a convex curve until rounding stops them.
    while y > 0:
        step = (y + math.expm1(-(y + x))) / -math.expm1(-(y + x))
        if not step > 1e-15 * y:
            break
        y -= step
    return y / rate_per_s


def expected_failures(work_s: float, rule: CheckpointRule, rate_per_s: float) -> float:
    """Return how often a gang fails on average until its work is done, where failures are exponential.

    A segment of length L, its checkpoint included, meets exp(l R) * (exp(l L) - 1) failures, those of restarts
    included, with rate l and restart R. Infinite where that is beyond 1e308.

    Raises
    ------
    UsageError
        The work or the rate is below 0 or not finite.
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
    """Return the mean time from the start of a gang until its work is done, where failures are exponential [s].

    A segment of length L takes exp(l R) * (exp(l L) - 1) * (1 / l + A), with rate l, restart R and mean time away A
    (for A = 0 Daly's complete cost function). Without failures it is the work and its checkpoints. Infinite beyond
    1e308 s.

    Parameters
    ----------
    work_s : float
        Time that the work takes without failures and checkpoints [s].
    rule : CheckpointRule
    rate_per_s : float
        Failures of the gang in a second in which it works, saves or restarts.

    Raises
    ------
    UsageError
        The work or the rate is below 0 or not finite.
    """
    failures = expected_failures(work_s, rule, rate_per_s)
    if rate_per_s == 0:
        return work_s * rule.slowdown
    return failures * (1 / rate_per_s + rule.away_s)


def expected_ettr(rule: CheckpointRule, rate_per_s: float, work_s: float | None = None) -> float:
    """Return the effective training time ratio: time of useful work / time from start to end, in the mean [0..1].

    Where failures are exponential: the work over its `expected_wall_s`; of whole segments without a given work.

    Parameters
    ----------
    rule : CheckpointRule
    rate_per_s : float
        Failures of the gang in a second in which it works, saves or restarts.
    work_s : float, optional
        Time that the work takes by itself [s]; by default it is long.

    Raises
    ------
    UsageError
        The rate is below 0, the work is not above 0, or one is not finite.
    """
    if work_s is not None and work_s <= 0:
        raise UsageError(f"the work must take more than 0 s, not {work_s:g} s")
    work = rule.interval_s if work_s is None else work_s
    if not math.isfinite(work) and work_s is None:
        _check_rate(rate_per_s)
        return 1.0 if rate_per_s == 0 else 0.0  # endless work is never done where it is never saved
    return work / expected_wall_s(work, rule, rate_per_s)


def weibull_ettr(rule: CheckpointRule, shape: float, scale_s: float) -> float:
    """Return the effective training time ratio of long work where times between failures are Weibull [0..1].

    Each time between failures X begins with a restart R and holds as many segments of length L as fit: by the renewal
    reward theorem the ratio is interval * sum over k >= 1 of S(R + k L) / (E[X] + A), with survival S(x) =
    exp(-(x / scale) ** shape) and mean time away A. With shape 1 that is `expected_ettr` at rate 1 / scale. The gang as
    a whole renews at each failure: below shape 1 it fails soonest just after a restart. Intervals are all the same;
    where the hazard changes with age, other schedules may be better still.

    Parameters
    ----------
    rule : CheckpointRule
    shape, scale_s : float
        Of the gang's times between failures, as scipy.stats.weibull_min(shape, scale=scale_s) has them; not of its
        nodes'.

    Raises
    ------
    UsageError
        The shape is below 0.01, the scale is not above 0, or one is not finite.
    """
    _check_weibull(shape, scale_s)
    mean = scale_s * math.gamma(1 + 1 / shape)
    if not math.isfinite(rule.interval_s):
        return 0.0
    return (
        rule.interval_s
        * _survivals(rule.restart_s, rule.interval_s + rule.cost_s, shape, scale_s)
        / (mean + rule.away_s)
    )


def best_weibull_interval(cost_s: float, restart_s: float, shape: float, scale_s: float) -> float:
    """Return the work between two checkpoints that maximizes `weibull_ettr` [s], found by numbers.

    It is the best of 240 intervals between a thousandth of the cost and a thousand times the larger of scale and cost,
    refined between its neighbours. Where a checkpoint costs nothing the least interval is the best, and the answer 0.

    Raises
    ------
    UsageError
        A time is below 0, the shape below 0.01, the scale not above 0, or one is not finite.
    """
    _check_weibull(shape, scale_s)
    _check_time("cost", cost_s)
    _check_time("restart", restart_s)
    if cost_s == 0:
        return 0.0

    def loss(logarithm: float) -> float:
        return -weibull_ettr(CheckpointRule(math.exp(logarithm), cost_s, restart_s), shape, scale_s)

    low, high = math.log(cost_s / 1000), math.log(1000 * max(scale_s, cost_s))
    grid = [low + (high - low) * k / (_GRID - 1) for k in range(_GRID)]
    values = [loss(x) for x in grid]
    best = min(range(_GRID), key=values.__getitem__)
    a, b = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    # Golden section: of a smooth minimum rounding leaves about half of the digits.
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_c, at_d = loss(c), loss(d)
    while b - a > 1e-8:
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - _GOLDEN * (b - a)
            at_c = loss(c)
        else:
            a, c, at_c = c, d, at_d
            d = a + _GOLDEN * (b - a)
            at_d = loss(d)
    return math.exp((a + b) / 2)


def _survivals(first_s: float, step_s: float, shape: float, scale_s: float) -> float:
    """Return the sum of S(first + k step) over k = 1, 2, ..., to about 1e-9 of it."""
    total, last = 0.0, first_s
    for k in range(1, _ONE_BY_ONE + 1):
        last = first_s + k * step_s
        part = math.exp(-_hazard(last, shape, scale_s))
        total += part
        if part < 1e-13 * total or part == 0:
            return total
    from scipy import special

    # Euler and Maclaurin: the sum after the last one is the integral over the step, less half of the last, and less a
    # twelfth of its slope.
    z = _hazard(last, shape, scale_s)
    alive = math.exp(-z)
    integral = scale_s / shape * float(special.gammaincc(1 / shape, z)) * math.gamma(1 / shape)
    slope = -alive * shape * z / last
    return total + integral / step_s - alive / 2 - step_s * slope / 12


def _hazard(x_s: float, shape: float, scale_s: float) -> float:
    """Return (x / scale) ** shape, the hazard up to x; no more than exp(700), beyond which a number has no room."""
    return math.exp(min(shape * math.log(x_s / scale_s), 700.0))


def _check_time(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UsageError(f"the time of {name} must be at least 0 s, not {value:g} s")


def _check_rate(rate_per_s: float) -> None:
    if not 0 <= rate_per_s < math.inf:
        raise UsageError(f"the failure rate must be at least 0, not {rate_per_s:g} per second")


def _check_mean(mtbf_s: float) -> None:
    if not mtbf_s > 0:
        raise UsageError(f"the mean time between failures must be above 0 s, not {mtbf_s:g} s")


def _check_weibull(shape: float, scale_s: float) -> None:
    if not _LEAST_SHAPE <= shape < math.inf:
        raise UsageError(f"the shape of the Weibull distribution must be at least {_LEAST_SHAPE:g}, not {shape:g}")
    if not 0 < scale_s < math.inf:
        raise UsageError(f"the scale of the Weibull distribution must be above 0 s, not {scale_s:g} s")
