"""Distance between replayed and recorded waits, and the grade of a twin on held-out jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tracekit.replay.jobs import GPU_CLASSES, gpu_class, gpus_of, in_time
from tracekit.replay.results.comparison import FEWEST_DAYS, day_intervals, submission_days
from tracekit.text import alike_durations, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Interval = tuple[float, float] | None

Grade = Literal["close", "fair", "rough", "poor"]

AGREE_S, AGREE_SHARE = 300.0, 0.25
"""Two waits agree if they differ by at most 5 min or a quarter of the recorded wait, whichever is larger."""

_GRAIN_S = 300.0
"""Differences well below five minutes hardly count when replays are ranked [s]. Our choice."""

_DAY_MS = 86_400_000
NEAR_S = 60.0
"""Mean waits that differ by at most this agree, regardless of their ratio [s]. Our choice."""
_RESAMPLES = 200
"""Number of resamples for quantile ratios and correlations. It is lower than for means, because each reads all jobs."""

GRADES: dict[Grade, tuple[float, float, float]] = {
    "close": (1.1, 0.75, 0.15),
    "fair": (1.25, 0.5, 0.35),
    "rough": (1.6, 0.25, 0.6),
}
"""The limits of each grade, our choice: the largest factor between the mean waits in either direction (ignored if the
means are within a minute), the minimum share of waits that agree, and the maximum share of unexplained waiting hours. A
twin that reaches none of these grades is 'poor'. Effects are reported only for 'close' and 'fair' twins.
"""

_TYPES: dict[str, type[pl.DataType]] = {"scope": pl.String, "name": pl.String, "jobs": pl.Int64}
"""Types of a score's columns. All columns not listed here are numbers."""


def agreeing(recorded_s: Floats, replayed_s: Floats) -> Bools:
    """Return a mask of the waits that agree (n,)."""
    return np.abs(replayed_s - recorded_s) <= np.maximum(AGREE_S, AGREE_SHARE * recorded_s)


def job_distances(recorded_s: Floats, replayed_s: Floats) -> Floats:
    """Return |log ((replayed + 5 min) / (recorded + 5 min))| for each wait (n,)."""
    return np.abs(np.log((replayed_s + _GRAIN_S) / (recorded_s + _GRAIN_S)))


def distance(recorded_s: Floats, replayed_s: Floats) -> float:
    """Return the distance between a replay and the log, which is 0 if all waits are equal.

    The distance is the mean of `job_distances` plus the same expression for the two mean waits. A few long waits do not
    dominate the first term, and the second makes total waiting hours count as well.
    """
    if not len(recorded_s):
        return 0.0
    whole = job_distances(recorded_s.mean(keepdims=True), replayed_s.mean(keepdims=True))
    return float(job_distances(recorded_s, replayed_s).mean() + whole[0])


@dataclass(frozen=True)
class Score:
    """A twin compared with the log, over jobs submitted after those used for the calibration."""

    table: pl.DataFrame
    """One row for all jobs (scope 'all'), for each job size ('gpu_class'), for each VC ('vc', name NULL for jobs
    without a VC) and, for a long log, for each part of it ('rolling', with settings chosen before that part). The
    columns are jobs, the mean, median and 90th percentile of the recorded wait and of the wait in the twin [s], ratio
    (twin's mean / recorded mean), agreeing_share (share of jobs whose waits differ by at most 5 min or 25 %),
    rank_correlation (Spearman's), and unexplained_share (recorded waiting hours beyond the wait in the twin / all
    recorded waiting hours). Each of these measures, and the ratios of medians and of 90th percentiles, has a 95 %
    interval over submission days (_low, _high). The interval is NULL if there are fewer than 5 days or the recorded
    value is 0.
    """
    grade: Grade
    queue_correlation: float | None
    """Correlation of queued GPUs in the log and in the twin, hour by hour, or None if either is constant."""
    queue_interval: Interval = None
    """95 % interval of `queue_correlation` over days, or None if there are fewer than 5 days."""

    @property
    def whole(self) -> dict[str, Any]:
        """The row of all jobs."""
        return self.table.row(0, named=True)

    @property
    def carries(self) -> bool:
        """Whether effects can be estimated with this twin."""
        return self.grade in {"close", "fair"}

    @property
    def missed(self) -> str:
        """Why no effects can be estimated with the twin, for display, or '' if they can."""
        whole, (_, alike, _) = self.whole, GRADES["fair"]
        log, twin = alike_durations((whole["recorded_mean_s"], whole["twin_mean_s"]))
        near, explained = _near(whole, "fair")
        found = [] if near else [f"the mean wait is {twin}, in the log {log}"]
        if whole["agreeing_share"] < alike:
            found.append(f"{percent(whole['agreeing_share'])} of the waits agree")
        if not explained:
            found.append(f"{percent(whole['unexplained_share'])} of the waiting hours are unexplained")
        return "; ".join(found)


def score(jobs: Jobs, recorded_s: Floats, twin_s: Floats, among: Bools) -> Score:
    """Score a twin against the log.

    Parameters
    ----------
    jobs : Jobs
    recorded_s, twin_s : array of float, shape (n,)
        First start minus submission [s], or NaN if unknown or if the job never starts.
    among : array of bool, shape (n,)
        Jobs to score. Both waits must be known for at least one of them.
    """
    table = _table(jobs, recorded_s, twin_s, _groups(jobs, among))
    whole = table.row(0, named=True)
    return Score(table, _grade(whole), *_queue_correlation(jobs, recorded_s, twin_s, among))


def score_of_all(jobs: Jobs, recorded_s: Floats, twin_s: Floats, among: Bools) -> pl.DataFrame:
    """Return only the row of all jobs of `Score.table`; the parameters are those of `score`."""
    return _table(jobs, recorded_s, twin_s, [("all", "all", among)])


def _table(
    jobs: Jobs, recorded_s: Floats, twin_s: Floats, groups: Iterable[tuple[str, str | None, Bools]]
) -> pl.DataFrame:
    days = submission_days(jobs)
    rows = [
        {"scope": scope, "name": name, **_row(recorded_s[which], twin_s[which], days[which])}
        for scope, name, which in groups
    ]
    return pl.DataFrame(rows, schema={name: _TYPES.get(name, pl.Float64) for name in rows[0]})


def _groups(jobs: Jobs, among: Bools) -> Iterator[tuple[str, str | None, Bools]]:
    yield "all", "all", among
    classes = gpu_class(gpus_of(jobs))
    for code, name in enumerate(GPU_CLASSES):
        which = among & (classes == code)
        if which.any():
            yield "gpu_class", name, which
    for code in np.unique(jobs.tenant[among]).tolist():
        yield "vc", jobs.tenants[code] if code >= 0 else None, among & (jobs.tenant == code)


def _row(recorded: Floats, twin: Floats, days: NDArray[np.int64]) -> dict[str, Any]:
    alike = agreeing(recorded, twin)
    whole = [np.rint(values * 1000).astype(np.int64) for values in (twin, recorded)]
    pairs = [(whole[0], whole[1]), (np.maximum(whole[1] - whole[0], 0), whole[1])]
    near, ratio, beyond = day_intervals(days, [alike.astype(np.float64)], pairs, seed=0) or (None, None, None)
    p50, p90 = quantile_ratio_intervals(days, twin, recorded, (0.5, 0.9))
    ranks = [pl.Series(values).rank("average").to_numpy() for values in (recorded, twin)]
    waited = float(recorded.sum())
    return {
        "jobs": len(recorded),
        "recorded_mean_s": float(recorded.mean()),
        "twin_mean_s": float(twin.mean()),
        "ratio": float(twin.sum()) / waited if waited else None,
        **_ends("ratio", ratio if waited else None),
        "recorded_p50_s": float(np.median(recorded)),
        "twin_p50_s": float(np.median(twin)),
        **_ends("p50_ratio", p50),
        "recorded_p90_s": float(np.quantile(recorded, 0.9)),
        "twin_p90_s": float(np.quantile(twin, 0.9)),
        **_ends("p90_ratio", p90),
        "agreeing_share": float(alike.mean()),
        **_ends("agreeing", near),
        "rank_correlation": _correlation(*ranks),
        **_ends("rank_correlation", correlation_interval(days, *ranks)),
        "unexplained_share": float(np.maximum(recorded - twin, 0.0).sum()) / waited if waited else None,
        **_ends("unexplained", beyond if waited else None),
    }


def _ends(name: str, interval: tuple[float | None, float | None] | None) -> dict[str, float | None]:
    return dict(zip((f"{name}_low", f"{name}_high"), interval or (None, None), strict=True))


def _correlation(a: Floats, b: Floats) -> float | None:
    """Return the correlation of two arrays (Spearman's if they are ranks), or None if one is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / scale if scale > 0 else None


def _grade(whole: dict[str, Any]) -> Grade:
    for grade, (_, alike, _) in GRADES.items():
        if all(_near(whole, grade)) and whole["agreeing_share"] >= alike:
            return grade
    return "poor"


def _near(whole: dict[str, Any], grade: Grade) -> tuple[bool, bool]:
    """Return whether the mean waits are close enough for a grade, and whether enough waiting hours are explained."""
    factor, _, unexplained = GRADES[grade]
    ratio, apart = whole["ratio"], abs(whole["twin_mean_s"] - whole["recorded_mean_s"])
    near = apart <= NEAR_S or (ratio is not None and 1 / factor <= ratio <= factor)
    return near, apart <= NEAR_S or (whole["unexplained_share"] or 0.0) <= unexplained


def queued_gpus(jobs: Jobs, wait_s: Floats, among: Bools, at_ms: NDArray[np.int64]) -> Floats:
    """Return the GPUs that waiting jobs request at the given instants (k,)."""
    submit = jobs.submit_ms[among]
    start = submit + np.rint(wait_s[among] * 1000).astype(np.int64)
    return in_time(at_ms, submit, start, (gpus_of(jobs) / 1000)[among])


def _queue_correlation(jobs: Jobs, recorded_s: Floats, twin_s: Floats, among: Bools) -> tuple[float | None, Interval]:
    """Return the hourly correlation of the queues, and its interval."""
    submit = jobs.submit_ms[among]
    hours = np.arange(int(submit.min()), int(submit.max()) + 1, 3_600_000, dtype=np.int64)
    log, twin = (queued_gpus(jobs, wait, among, hours) for wait in (recorded_s, twin_s))
    return _correlation(log, twin), correlation_interval(hours // _DAY_MS, log, twin)


# Intervals for quantile ratios and correlations, by resampling whole days.


def quantile_ratio_intervals(
    days: NDArray[np.int64], above: Floats, below: Floats, shares: Sequence[float]
) -> list[Interval]:
    """Return the 95 % interval of each quantile ratio, or None if it has fewer than `FEWEST_DAYS` days or divides by 0.

    Parameters
    ----------
    days : array of int, shape (n,)
        The day (resampling block) of each job.
    above, below : array of float, shape (n,)
        The values whose quantiles are divided.
    shares : sequence of float
        The quantiles [0..1]: the smallest value that is not exceeded by at least this share of the drawn jobs.
    """
    drawn = _drawn(days)
    if drawn is None:
        return [None] * len(shares)
    counts, place = drawn
    top, bottom = (_quantiles(values, place, counts, shares) for values in (above, below))
    return [_outer(top[k] / bottom[k]) if (bottom[k] > 0).all() else None for k in range(len(shares))]


def correlation_interval(days: NDArray[np.int64], a: Floats, b: Floats) -> Interval:
    """Return the 95 % interval of the correlation of two arrays (n,), or None if days are few or one is constant."""
    drawn = _drawn(days)
    if drawn is None:
        return None
    counts, place = drawn
    a, b = a - a.mean(), b - b.mean()
    sums = np.stack([np.bincount(place, weights=w) for w in (np.ones(len(a)), a, b, a * a, b * b, a * b)], axis=1)
    n, x, y, xx, yy, xy = (counts @ sums).T
    scale = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(scale > 1e-9 * n, (xy - x * y / n) / scale, np.nan)
    return None if np.isnan(found).all() else _outer(found)


def _drawn(days: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]] | None:
    """Return how often each resample draws each day (R, D), and the day of each job (n,)."""
    blocks, place = np.unique(days, return_inverse=True)
    if len(blocks) < FEWEST_DAYS:
        return None
    chance = np.full(len(blocks), 1 / len(blocks))
    counts = np.random.default_rng(0).multinomial(len(blocks), chance, _RESAMPLES)
    return counts.astype(np.float64), place


def _quantiles(values: Floats, place: NDArray[np.int64], counts: Floats, shares: Sequence[float]) -> Floats:
    """Return each quantile in each resample (shares, R)."""
    order = np.argsort(values, kind="stable")
    ranked, days = values[order], place[order]
    found = np.empty((len(shares), len(counts)))
    for k, drawn in enumerate(counts):
        whole = np.cumsum(drawn[days])
        found[:, k] = ranked[np.searchsorted(whole, [share * whole[-1] for share in shares])]
    return found


def _outer(values: Floats) -> tuple[float, float]:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)
