"""A comparison of policies: the main figures, and the difference that each policy makes for the same jobs.

Two policies are compared job by job, over the jobs that both completed; jobs that only one completed do not affect the
difference. The interval resamples whole submission days, because jobs of one day share the queue and are not
independent.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


FEWEST_DAYS = 5
"""Minimum number of submission days for an interval: fewer days are too few blocks to resample."""

_RESAMPLES = 1000
_CHUNK = 4_000_000

_HEADLINE = (
    "jobs",
    "completed",
    "unschedulable",
    "avg_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "avg_queue_s",
    "median_queue_s",
    "p99_queue_s",
    "avg_bounded_slowdown",
    "makespan_s",
    "gpu_utilization_share",
    "fragmentation_share",
    "preemptions",
    "jain_fairness_vc",
    "max_finish_time_ratio",
)
"""Keys of summary.json that a comparison also contains."""

_OUTAGES = ("goodput_share", "lost_gpu_hours", "restarts", "ettr")
"""Further keys that a comparison also contains if outages were replayed."""

_COUNTS = frozenset({"jobs", "completed", "unschedulable", "preemptions", "restarts"})


@dataclass(frozen=True)
class ReplayResult:
    """The result of one policy in a comparison."""

    policy: str
    """Label of the policy, with the parameters that distinguish it from the others."""
    jobs: Jobs
    """The replayed jobs, which are the same for every policy."""
    outcome: Outcome
    """The schedule."""
    summary: Mapping[str, Any]
    """The result of `summarize`."""
    cluster: Cluster | None = None
    """The cluster that the policy ran on, including borrowed nodes, or None if it is not needed."""


def compare_policies(
    results: Sequence[ReplayResult], *, seed: int = 0, measured: NDArray[np.bool_] | None = None
) -> pl.DataFrame:
    """Return one row per policy, with headline figures and the paired difference from the first policy.

    policy, and the headline keys of summary.json
        As in `summarize`.
    goodput_share, lost_gpu_hours, restarts, ettr
        As in `summarize`, but only if outages were replayed.
    common_jobs
        Number of jobs that both this policy and the first completed. All figures below are over these jobs.
    jct_diff_s, queue_diff_s
        Mean over jobs of this policy's value minus the first policy's [s], negative if this policy is faster.
    jct_diff_share, queue_diff_share
        This mean divided by the first policy's mean for these jobs [1], or NULL if the latter is 0.
    jct_diff_low_s, jct_diff_high_s, queue_diff_low_s, queue_diff_high_s
        95 % interval of the mean difference (see `day_intervals`), or NULL if there are fewer than 5 submission days.
    jct_diff_share_low, jct_diff_share_high, queue_diff_share_low, queue_diff_share_high
        95 % interval of the share. Difference and mean are resampled together.
    better_share, equal_share, worse_share
        Share of jobs whose jct is shorter than, equal to, or longer than under the first policy [0..1].
    note
        The reason why an interval is missing, or NULL if the interval exists.

    In the first policy's row, everything after the headline keys is NULL. The differences compare the two schedules,
    not the log. `beside_record` keeps only the differences that the log supports.

    Parameters
    ----------
    results : sequence of ReplayResult
        The results, for the same jobs. The first is the baseline.
    seed : int
        Seed of the resampling. The same seed gives the same intervals.
    measured : array of bool, shape (n,), optional
        Compare only these jobs (see `measured_jobs`).

    Raises
    ------
    UsageError
        No result is given, two results have the same name, or their jobs differ.
    """
    if not results:
        raise UsageError("a comparison needs at least one policy")
    first = results[0]
    names = [r.policy for r in results]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise UsageError(f"two results are called '{name}'", hint="distinguish them by their parameters")
    for other in results[1:]:
        _check_same_jobs(first, other)
    failing = any(result.summary.get("restarts") is not None for result in results)
    keys = (*_HEADLINE, *(_OUTAGES if failing else ()))
    head: dict[str, type[pl.DataType]] = {"policy": pl.String}
    head |= {key: pl.Int64 if key in _COUNTS else pl.Float64 for key in keys}
    rows = [
        [other.policy, *(other.summary[key] for key in keys), *_differences(first, other, seed, measured)]
        for other in results
    ]
    return pl.DataFrame(rows, schema={**head, **_DIFFERENCES}, orient="row")


_PARTS = ("s", "share", "low_s", "high_s", "share_low", "share_high")

_DIFFERENCES: dict[str, type[pl.DataType]] = {
    "common_jobs": pl.Int64,
    **{f"{what}_diff_{part}": pl.Float64 for what in ("jct", "queue") for part in _PARTS},
    **{f"{how}_share": pl.Float64 for how in ("better", "equal", "worse")},
    "note": pl.String,
}


def _check_same_jobs(first: ReplayResult, other: ReplayResult) -> None:
    a, b = first.jobs, other.jobs
    if a is b:
        return
    if len(a) != len(b) or not a.job_id.equals(b.job_id) or not np.array_equal(a.submit_ms, b.submit_ms):
        raise UsageError(
            f"'{first.policy}' and '{other.policy}' did not replay the same jobs",
            hint="compare replays of the same jobs",
        )


def _differences(first: ReplayResult, other: ReplayResult, seed: int, measured: NDArray[np.bool_] | None) -> list[Any]:
    if other is first:
        return [None] * len(_DIFFERENCES)
    common = completed_by_both(first, other, measured)
    n = int(common.sum())
    if not n:
        return [0, *[None] * 15, "no job was completed under both policies"]
    submit = first.jobs.submit_ms[common]
    jct = (other.outcome.end_ms - first.outcome.end_ms)[common]
    queue = (other.outcome.first_start_ms - first.outcome.first_start_ms)[common]
    bases = ((first.outcome.end_ms[common] - submit), (first.outcome.first_start_ms[common] - submit))
    ratios = [(jct, bases[0]), (queue, bases[1])]
    intervals = day_intervals(submission_days(first.jobs)[common], [jct / 1000, queue / 1000], ratios, seed=seed)
    parts: list[float | None] = []
    for k, (diff, base) in enumerate(ratios):
        mean, usual = float(diff.mean()), float(base.mean())
        means, shares_of = (intervals[k], intervals[k + 2]) if intervals else ((None, None), (None, None))
        parts += [mean / 1000, mean / usual if usual else None, *means, *(shares_of if usual else (None, None))]
    shares = [float((jct < 0).mean()), float((jct == 0).mean()), float((jct > 0).mean())]
    note = None if intervals else f"no interval: the jobs were submitted on fewer than {FEWEST_DAYS} days"
    return [n, *parts, *shares, note]


def completed_by_both(
    first: ReplayResult, other: ReplayResult, measured: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Return a mask of the measured jobs that both policies completed, shape (n,)."""
    common: NDArray[np.bool_] = (first.outcome.end_ms >= 0) & (other.outcome.end_ms >= 0)
    return common if measured is None else common & measured


def submission_days(jobs: Jobs) -> NDArray[np.int64]:
    """Return the UTC day of each submission [days after 1970]."""
    first = (naive_utc(jobs.origin) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
    days: NDArray[np.int64] = (jobs.submit_ms + first) // 86_400_000
    return days


def day_intervals(
    days: NDArray[np.int64],
    values: Sequence[NDArray[np.float64]],
    ratios: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]] = (),
    *,
    seed: int,
) -> list[tuple[float, float]] | None:
    """Return the 95 % interval of each mean in `values` and each ratio in `ratios`, by a block bootstrap over days.

    Each of 1,000 resamples draws as many days as the jobs have, with replacement, and takes the mean over all jobs of
    the drawn days. The interval runs from the 2.5th to the 97.5th percentile of these means (linear interpolation). All
    of `values` are resampled together.

    Parameters
    ----------
    days : array of int, shape (n,)
        The block of each job.
    values : sequence of arrays, shape (n,)
        Values whose means are taken.
    ratios : sequence of pairs of arrays, shape (n,)
        Numerators and denominators of the ratios of sums. Resamples with a denominator of 0 are skipped.
    seed : int
        Seed of the resampling.

    Returns
    -------
    list of (low, high), or None if there are fewer than `FEWEST_DAYS` distinct days.
    """
    blocks, place = np.unique(days, return_inverse=True)
    if len(blocks) < FEWEST_DAYS:
        return None
    columns = [*values, *(part for pair in ratios for part in pair)]
    sums = np.stack([np.bincount(place), *(np.bincount(place, weights=v) for v in columns)], axis=1)
    k = len(values)
    generator = np.random.default_rng(seed)
    chance = np.full(len(blocks), 1 / len(blocks))
    means = []
    step = max(1, _CHUNK // len(blocks))
    for done in range(0, _RESAMPLES, step):
        drawn = generator.multinomial(len(blocks), chance, size=min(step, _RESAMPLES - done)) @ sums
        divisors = drawn[:, k + 2 :: 2]
        shares = np.where(divisors != 0, drawn[:, k + 1 :: 2] / np.where(divisors != 0, divisors, 1), np.nan)
        means.append(np.concatenate([drawn[:, 1 : k + 1] / drawn[:, :1], shares], axis=1))
    found = np.concatenate(means)
    found[:, np.isnan(found).all(axis=0)] = 0.0
    low, high = np.nanquantile(found, [0.025, 0.975], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def comparison_rows(compared: pl.DataFrame) -> tuple[list[str], list[list[object]]]:
    """Return the headers and rows of the comparison table for a terminal.

    Times are in hours if the largest in their column is at least an hour, otherwise in seconds. Shares are in percent.
    Unknown figures of the log's own schedule are empty, and so are effects without support (see `effect_sentences`).
    With outages, their costs follow the preemptions.
    """
    first = compared["policy"][0]
    headers = ["policy", "completed"]
    columns: list[list[object]] = [compared["policy"].to_list(), compared["completed"].to_list()]
    for key, title in (
        ("avg_jct_s", "mean JCT"),
        ("median_jct_s", "median JCT"),
        ("avg_queue_s", "mean queue"),
        ("p99_queue_s", "p99 queue"),
        ("makespan_s", "makespan"),
    ):
        values = compared[key].to_list()
        hours = max((v for v in values if v is not None), default=0) >= 3600
        headers.append(f"{title} [{'h' if hours else 's'}]")
        columns.append([None if v is None else float(v) / (3600 if hours else 1) for v in values])
    headers += ["GPUs busy [%]", "preemptions"]
    columns.append(_percents(compared["gpu_utilization_share"]))
    columns.append(compared["preemptions"].to_list())
    if "goodput_share" in compared.columns:
        headers += ["goodput [%]", "lost [GPU-h]", "restarts"]
        columns.append(_percents(compared["goodput_share"]))
        columns += [compared["lost_gpu_hours"].to_list(), compared["restarts"].to_list()]
    headers += [f"JCT against {first}", "better / worse"]
    columns.append([_against(row) for row in compared.iter_rows(named=True)])
    columns.append([_split(row) for row in compared.iter_rows(named=True)])
    return headers, [list(row) for row in zip(*columns, strict=True)]


def _percents(shares: pl.Series) -> list[object]:
    return [None if share is None else round(100 * share, 2) for share in shares.to_list()]


def _against(row: Mapping[str, Any]) -> str | None:
    """Format the change of the mean jct with its interval in percent, such as '-12.3 % (-15.0 to -9.1)'."""
    share, low, high = (row[f"jct_diff_{part}"] for part in ("share", "share_low", "share_high"))
    if share is None:
        return None
    text = f"{_percent(share)} %"
    return text if low is None or not share else f"{text} ({_percent(low)} to {_percent(high)})"


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # adding 0 turns -0 into 0


def _split(row: Mapping[str, Any]) -> str | None:
    if row["better_share"] is None:
        return None
    return f"{100 * row['better_share']:.0f} / {100 * row['worse_share']:.0f} %"
