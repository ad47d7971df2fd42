"""What the jobs of a session have to do with each other: numbers, gaps, requests, statuses, run times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from tracekit.fit.run_times import LEAST_JOBS
from tracekit.fit.sessions import share_with_error
from tracekit.fit.shapes import SCORE_LEVELS, job_scores
from tracekit.schema import UNSUCCESSFUL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.sessions import Sessions


GAP_LEVELS = (0.0, 0.001, 0.005, 0.01, *(round(0.02 * k, 2) for k in range(1, 50)), 0.99, 0.995, 0.999, 1.0)
"""Probabilities at which the gaps inside sessions are given."""
_MOST_SIZES = 500
_SIZES = (1, 2, 6, 21, 101, 301)
"""Least jobs of a session of each kind."""
_LEAST_PAIRS = 20


def fit_together(found: Sessions, jobs: pl.DataFrame) -> dict[str, Any]:
    """Return what workload.json says about the jobs of sessions. `jobs` are those of the log, in its order."""
    ordered = jobs[found.order]
    inside, group = found.inside, found.number[1:]
    request = ordered.select(pl.struct("gpu_class", "gpu_count", "node_count", "instance_count").rank("dense"))
    classes = ordered["gpu_class"].to_physical().fill_null(2**32 - 1).to_numpy().astype(np.int64)
    status = ordered["status"].to_physical().fill_null(2**32 - 1).to_numpy().astype(np.int64)
    asked = request[:, 0].to_numpy().astype(np.int64)
    failed = ordered["status"].cast(pl.String).is_in(UNSUCCESSFUL).fill_null(value=False).to_numpy()
    alike = inside & (classes[1:] == classes[:-1])
    return {
        "requests": _repeats(asked, inside, group, found.tenant),
        "statuses": _repeats(status, alike, group, classes),
        "run_times": _run_times(found, ordered),
        "resubmission": _resubmission(found, failed, asked) if failed.any() and not failed.all() else None,
    }


def sizes_entry(sizes: Whole) -> dict[str, Any]:
    """Return how many jobs a session has: mean with standard error, and the share of every number.

    Of more than 500 different numbers those in between are replaced by the next smaller one that is kept.
    """
    values, counts = np.unique(sizes, return_counts=True)
    if values.size > _MOST_SIZES:
        kept = np.unique(np.linspace(0, values.size - 1, _MOST_SIZES).astype(np.int64))
        counts = np.add.reduceat(counts, kept)
        values = values[kept]
    return {
        "mean": float(sizes.mean()),
        "standard_error": float(sizes.std() / np.sqrt(sizes.size)),
        "largest": int(sizes.max()),
        "mean_of_a_job": float((sizes.astype(float) ** 2).sum() / sizes.sum()),
        "sizes": values.tolist(),
        "shares": (counts / counts.sum()).tolist(),
    }


def gaps_entry(found: Sessions, of: NDArray[np.bool_] | None = None) -> dict[str, Any]:
    """Return the gaps inside sessions: how many are 0, the quantiles of the others, and how alike those of one are.

    `of` says which jobs count, whole sessions of them; all by default.
    """
    inside, group = found.inside, found.number[1:]
    if of is not None:
        inside = inside & of[1:]
    gap = np.diff(found.second)[inside]
    zero = share_with_error(gap == 0, group[inside])
    above = gap[gap > 0]
    logs = np.log(above)
    spread = float(logs.std()) if above.size else 0.0
    mean_error = None
    if above.size:
        away = np.bincount(group[inside][gap > 0], logs - logs.mean())
        mean_error = float(np.sqrt(away @ away)) / above.size
    level = np.where(np.diff(found.second) > 0, np.log(np.maximum(np.diff(found.second), 1e-9)), np.nan)
    pairs = inside[1:] & inside[:-1] & np.isfinite(level[1:]) & np.isfinite(level[:-1])
    centre = float(logs.mean()) if above.size else 0.0
    return {
        "zero_share": zero[0] if zero else 0.0,
        "zero_standard_error": zero[1] if zero else None,
        "mean_log": centre if above.size else None,
        "mean_log_standard_error": mean_error,
        "sd_log": spread if above.size else None,
        "quantiles_s": [[p, float(q)] for p, q in zip(GAP_LEVELS, np.quantile(above, GAP_LEVELS), strict=True)]
        if above.size
        else [],
        "correlation": _correlated(level[1:] - centre, level[:-1] - centre, pairs, group[1:]),
    }


def _repeats(value: Whole, pairs: NDArray[np.bool_], group: Whole, within: Whole) -> dict[str, Any] | None:
    """Return how often the next job of a session has the same value, and how often it is a copy.

    Two jobs of one tenant (or size class, `within`) have the same value by chance with the sum of squared shares c; of
    copies there are (p - c) / (1 - c) where a share p is the same.
    """
    rows = np.flatnonzero(pairs)
    found = share_with_error(value[rows + 1] == value[rows], group[rows])
    if found is None:
        return None
    frame = pl.DataFrame({"within": within, "value": value}).group_by("within", "value").len()
    frame = frame.with_columns(pl.col("len") / pl.col("len").sum().over("within"))
    chance = frame.group_by("within").agg((pl.col("len") ** 2).sum().alias("chance"))
    each = pl.DataFrame({"within": within[rows + 1]}).join(chance, on="within", how="left", maintain_order="left")
    by_chance = float(each["chance"].to_numpy().mean())
    copied = 0.0 if by_chance > 1 - 1e-9 else float(np.clip((found[0] - by_chance) / (1 - by_chance), 0, 1))
    return {"pairs": rows.size, "same": found[0], "standard_error": found[1], "by_chance": by_chance, "copied": copied}


def _run_times(found: Sessions, ordered: pl.DataFrame) -> dict[str, Any] | None:
    """Return the correlation of scores of run times: of successive jobs of a session, and of its last with the next."""
    score = job_scores(ordered)
    size = found.sizes[found.number]
    score, by_size = _within_sizes(score, size, ordered)
    known = np.isfinite(score[1:]) & np.isfinite(score[:-1])
    inside = found.inside
    of_tenant = found.tenant[1:] == found.tenant[:-1]
    group = found.number[1:]
    one = _correlated(score[1:], score[:-1], inside & known, group)
    if one is None:
        return None
    return {
        "inside": one,
        "between": _correlated(score[1:], score[:-1], ~inside & of_tenant & known, group),
        "levels": list(SCORE_LEVELS),
        "by_size": by_size,
    }


def _within_sizes(score: Floats, size: Whole, ordered: pl.DataFrame) -> tuple[Floats, list[dict[str, Any]]]:
    """Return each job's normal score among those of sessions of like size, and scores and VCs of each kind.

    Single jobs vary most: the longest runs are theirs, while the hundreds of a large session hardly differ. A kind of
    fewer than 200 jobs is left out, and its jobs keep their scores.
    """
    kind = np.searchsorted(_SIZES, size, side="right") - 1
    found, listed = score.copy(), []
    for i, least in enumerate(_SIZES):
        mine = np.flatnonzero((kind == i) & np.isfinite(score))
        if mine.size < LEAST_JOBS:
            continue
        quantiles = np.quantile(score[mine], special.ndtr(np.array(SCORE_LEVELS)), method="median_unbiased")
        vcs = ordered[mine].select(pl.col("cluster", "vc").cast(pl.String)).group_by("cluster", "vc").len()
        shares = [
            {"cluster": cluster, "vc": vc, "share": jobs / mine.size}
            for cluster, vc, jobs in vcs.sort("len", "cluster", "vc", descending=[True, False, False]).rows()
        ]
        listed.append({"from_jobs": least, "jobs": int(mine.size), "scores": quantiles.tolist(), "vcs": shares})
        rank = np.empty(mine.size)
        rank[np.argsort(score[mine], kind="stable")] = np.arange(1, mine.size + 1)
        found[mine] = special.ndtri(rank / (mine.size + 1))
    return found, listed


def _correlated(a: Floats, b: Floats, pairs: NDArray[np.bool_], group: Whole) -> dict[str, float] | None:
    """Return the correlation of two scores of mean 0, with a standard error for which groups are independent.

    The estimate is sum a b / sum (a^2 + b^2) / 2, so that a group adds a b - r (a^2 + b^2) / 2 to it.
    """
    rows = np.flatnonzero(pairs)
    if rows.size < _LEAST_PAIRS:
        return None
    product, square = a[rows] * b[rows], (a[rows] ** 2 + b[rows] ** 2) / 2
    total = float(square.sum())
    if total < 1e-9:
        return None
    r = float(product.sum()) / total
    away = np.bincount(group[rows], product - r * square)
    return {"pairs": rows.size, "correlation": r, "standard_error": float(np.sqrt(away @ away)) / total}


def _resubmission(found: Sessions, failed: NDArray[np.bool_], asked: Whole) -> dict[str, Any]:
    """Return after failed jobs and after others whether another follows in the session, when, and if it is the same."""
    follows = np.concatenate([found.inside, [False]])
    gap = np.concatenate([np.diff(found.second), [0.0]])
    same = np.concatenate([asked[1:] == asked[:-1], [False]])
    result: dict[str, Any] = {}
    for name, mine in (("after_failure", failed), ("after_others", ~failed)):
        on = share_with_error(follows[mine], found.number[mine])
        rows = mine & follows
        again = share_with_error(same[rows], found.number[rows])
        result[name] = {
            "jobs": int(mine.sum()),
            "follows": on[0] if on else None,
            "follows_standard_error": on[1] if on else None,
            "same_request": again[0] if again else None,
            "same_request_standard_error": again[1] if again else None,
            **_gap_after(gap[rows], found.number[rows]),
        }
    return result


def _gap_after(gap: Floats, group: Whole) -> dict[str, float | None]:
    """Return median, and mean logarithm of gaps above 0 with standard error."""
    above = gap > 0
    if not above.any():
        return {"median_gap_s": None, "mean_log_gap": None, "mean_log_gap_standard_error": None}
    logs = np.log(gap[above])
    away = np.bincount(group[above], logs - logs.mean())
    error = float(np.sqrt(away @ away)) / logs.size
    return {
        "median_gap_s": float(np.median(gap)),
        "mean_log_gap": float(logs.mean()),
        "mean_log_gap_standard_error": error,
    }
