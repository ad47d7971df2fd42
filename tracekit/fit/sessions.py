"""Find sessions, in which a tenant submits jobs in quick succession, and fit the properties that the jobs share.

A session is a run of successive submissions by one tenant with gaps up to a threshold. The tenant is the user, or the
VC if users are unknown. If both are unknown, sessions span the whole log. The threshold is the gap at which two
lognormal distributions, fitted by maximum likelihood (EM) to the gaps between a tenant's successive submissions, have
equal weighted density. Below it, the distribution of short gaps is more likely.

A log has sessions if two conditions hold by five standard errors: close pairs (gaps up to the threshold) are 1.5 times
as frequent as with independent arrivals at each tenant's rate, and the next batch belongs to the same tenant more often
than the tenants' shares explain. Simultaneous bursts of all tenants are not sessions.

Standard errors treat whole sessions as independent. If session s has n_s pairs and y_s of them are hits, the standard
error of the share p of hits is sqrt(sum (y_s - p n_s)^2) / sum n_s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from tracekit.fit.run_times import LEAST_JOBS
from tracekit.fit.shapes import SCORE_LEVELS, job_scores
from tracekit.schema import UNSUCCESSFUL

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.fit.process import Clock


LEAST_RATIO = 1.5
"""Minimum ratio of close pairs to those of independent arrivals for sessions."""
LEAST_ERRORS = 5.0
"""Minimum excess of close pairs over those among independent arrivals [standard errors]."""
_VALUES = 20_000
"""Number of gaps to which the mixture is fitted; these are evenly spaced quantiles of all gaps."""
_ROUNDS = 200
_LEAST_GAPS = 200
_LONGEST_S = 86_400.0
"""Maximum threshold [s]."""


class Threshold(NamedTuple):
    """The longest gap within a session, and the two distributions that determine it."""

    seconds: float
    parts: dict[str, float]
    """weight_1, s_1 and scale_1 [s] of the short gaps, and weight_2, s_2 and scale_2 [s] of the long gaps."""


@dataclass(frozen=True)
class Sessions:
    """The jobs of a log, ordered by tenant, session and submission."""

    by: str
    """user, vc or nobody."""
    threshold: Threshold
    order: Ints
    """Index of each job in the log (jobs,)."""
    number: Ints
    """Session of each job, numbered from 0 in that order."""
    tenant: Ints
    """Tenant of each job; each job of an unknown tenant gets a separate number."""
    second: Floats
    """Submission of each job [s], in steps of the log's clock."""
    evidence: dict[str, float]

    @property
    def first(self) -> Ints:
        """Index of the first job of each session."""
        return np.flatnonzero(np.diff(self.number, prepend=-1))

    @property
    def sizes(self) -> Ints:
        """Number of jobs in each session."""
        return np.bincount(self.number)

    @property
    def inside(self) -> Bools:
        """Whether each job except the first follows another job of its session (jobs - 1,)."""
        return np.equal(self.number[1:], self.number[:-1])


def tenants_of(jobs: pl.DataFrame) -> tuple[str, Ints]:
    """Return the kind of tenant and the number of each job's tenant; each unknown tenant gets a separate number.

    Tenants are users if at least half of the jobs have a user, otherwise VCs under the same condition, otherwise
    nobody.
    """
    for by, columns in (("user", ["user"]), ("vc", ["cluster", "vc"])):
        if all(c in jobs.columns for c in columns) and jobs[by].null_count() <= jobs.height / 2:
            code = jobs.select(pl.struct(columns).rank("dense"))[:, 0].to_numpy().astype(np.int64)
            unknown = jobs[by].is_null().to_numpy()
            return by, np.where(unknown, code.max(initial=0) + 1 + np.arange(code.size), code)
    return "nobody", np.zeros(jobs.height, np.int64)


def threshold_of(gaps: Floats, step: float) -> Threshold | None:
    """Return the gap above which a tenant's next job is more likely to belong to another session, or None.

    `gaps` are the gaps above 0 between successive submissions of a tenant [s]; the threshold is a multiple of `step`.
    """
    if gaps.size < _LEAST_GAPS:
        return None
    logs = np.log(np.sort(gaps))
    if logs.size > _VALUES:
        logs = logs[np.linspace(0, logs.size - 1, _VALUES).astype(np.int64)]
    weight, mean = np.array([0.5, 0.5]), np.quantile(logs, [0.25, 0.9])
    # The clock cannot distinguish gaps shorter than one step.
    spread = np.full(2, max(float(logs.std()), 0.1))
    for _ in range(_ROUNDS):
        log = np.log(weight) - np.log(spread) - ((logs[:, None] - mean) / spread) ** 2 / 2
        member = np.exp(log - log.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        each = np.maximum(member.sum(axis=0), 1e-9)
        before, mean = mean, member.T @ logs / each
        weight = each / each.sum()
        spread = np.maximum(np.sqrt((member * (logs[:, None] - mean) ** 2).sum(axis=0) / each), 0.1)
        if np.abs(mean - before).max() < 1e-6:
            break
    short, long = np.argsort(mean)
    grid = np.linspace(mean[short], mean[long], 2001)
    log = np.log(weight) - np.log(spread) - ((grid[:, None] - mean) / spread) ** 2 / 2
    beyond = np.flatnonzero(log[:, long] > log[:, short])
    if not beyond.size or not beyond[0] or min(weight) < 0.01:
        return None
    seconds = min(max(step, float(np.floor(np.exp(grid[beyond[0]]) / step)) * step), _LONGEST_S)
    parts = {
        f"{name}_{k}": float(x)
        for k, i in enumerate((short, long), start=1)
        for name, x in (("weight", weight[i]), ("s", spread[i]), ("scale", np.exp(mean[i])))
    }
    return Threshold(seconds, parts)


def find_sessions(jobs: pl.DataFrame, ticks: Floats, step: float, clock: Clock) -> Sessions | str:
    """Return the sessions of a log, or the reason why there are none.

    Parameters
    ----------
    jobs : DataFrame
        Jobs in submission order, with user, cluster and vc if known.
    ticks : array (jobs,)
        Submissions, in steps of the log's clock [s].
    step : float
        Step of the log's clock [s].
    clock : Clock
        Rate of all batches.
    """
    by, tenant = tenants_of(jobs)
    order = np.lexsort((np.arange(ticks.size), ticks, tenant))
    second, owner = ticks[order], tenant[order]
    same, gap = owner[1:] == owner[:-1], np.diff(second)
    apart = same & (gap > 0)
    threshold = threshold_of(gap[apart], step)
    if threshold is None:
        return f"the gaps between successive submissions of a {_WORDS[by]} do not separate into short and long ones"
    evidence = _close_pairs(second, owner, apart, threshold.seconds, clock)
    often = evidence["close_pairs"] / max(evidence["close_pairs_if_independent"], 1e-9)
    away = evidence["close_pairs"] - evidence["close_pairs_if_independent"]
    limit = LEAST_ERRORS * float(np.sqrt(evidence["close_pairs_if_independent"] + 1))
    if often < LEAST_RATIO or away < limit:
        return f"submissions within {threshold.seconds:g} s are {often:.3g} times as frequent as independent ones"
    owned = _ownership(tenant, ticks)
    if owned is not None:
        evidence |= {"next_of_same_tenant": owned[0], "next_if_independent": owned[1]}
        if owned[0] - owned[1] < LEAST_ERRORS * owned[2]:
            return f"the next batch is the same {_WORDS[by]}'s in {owned[0]:.3g} of all cases, {owned[1]:.3g} by chance"
    number = np.concatenate([[0], (~(same & (gap <= threshold.seconds))).cumsum()])
    return Sessions(by, threshold, order, number, owner, second, evidence)


_WORDS = {"user": "user", "vc": "VC", "nobody": "log"}


def _close_pairs(second: Floats, owner: Ints, apart: Bools, threshold_s: float, clock: Clock) -> dict[str, float]:
    """Count the gaps up to the threshold, and compute the number expected if submissions are independent."""
    rows = np.flatnonzero(apart)
    gap = second[rows + 1] - second[rows]
    _, place, jobs = np.unique(owner, return_inverse=True, return_counts=True)
    # A tenant's share of the rate is its distinct times divided by those of all tenants.
    times = np.bincount(place.ravel()[rows], minlength=jobs.size) + 1
    share = (times / clock.hits.sum())[place.ravel()[rows]]
    total = np.concatenate([[0.0], clock.hits.cumsum()])
    begin, end = (np.interp(second[rows] + x, clock.edges_s, total) for x in (0.0, threshold_s))
    due = -np.expm1(-share * (end - begin))
    return {"close_pairs": float((gap <= threshold_s).sum()), "close_pairs_if_independent": float(due.sum())}


def _ownership(tenant: Ints, ticks: Floats) -> tuple[float, float, float] | None:
    """Return the share of next batches by the same tenant, the share expected by chance, and the standard error.

    The first job of each one-second batch counts. The result is None if there is only one tenant.
    """
    heads = tenant[np.flatnonzero(np.diff(ticks, prepend=-np.inf))]
    _, counts = np.unique(heads, return_counts=True)
    if counts.size < 2 or heads.size < 2:
        return None
    chance = float(((counts / heads.size) ** 2).sum())
    share = float((heads[1:] == heads[:-1]).mean())
    return share, chance, float(np.sqrt(max(chance * (1 - chance), 1e-9) / heads.size))


def share_with_error(hits: Bools, group: Ints) -> tuple[float, float] | None:
    """Return the share of hits and its standard error, treating groups as independent, or None if there is no data."""
    if not hits.size:
        return None
    p = float(hits.mean())
    away = np.bincount(group, hits.astype(float) - p)
    return p, float(np.sqrt(away @ away)) / hits.size


# Fit the properties that a session's jobs share: numbers, gaps, requests, statuses, run times.

GAP_LEVELS = (0.0, 0.001, 0.005, 0.01, *(round(0.02 * k, 2) for k in range(1, 50)), 0.99, 0.995, 0.999, 1.0)
"""Probabilities at which the quantiles of gaps within sessions are given."""
_MOST_SIZES = 500
_SIZES = (1, 2, 6, 21, 101, 301)
"""Minimum number of jobs in sessions of each kind."""
_LEAST_PAIRS = 20


def fit_together(found: Sessions, jobs: pl.DataFrame) -> dict[str, Any]:
    """Return the entry in workload.json on the jobs of sessions; `jobs` are the log's jobs, in the log's order."""
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


def sizes_entry(sizes: Ints) -> dict[str, Any]:
    """Return the mean number of jobs per session with its standard error, and the share of each number.

    At most 500 different numbers are kept. The others are replaced by the next smaller one.
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


def gaps_entry(found: Sessions, of: Bools | None = None) -> dict[str, Any]:
    """Return the gaps within sessions: the share of zeros, the quantiles of the other gaps, and their correlation.

    `of` selects the jobs that count, as whole sessions; by default all jobs count.
    """
    inside, group = found.inside, found.number[1:]
    if of is not None:
        inside = inside & of[1:]
    gap = np.diff(found.second)[inside]
    zero = share_with_error(gap == 0, group[inside])
    above = gap[gap > 0]
    logs = np.log(above)
    spread = float(logs.std()) if above.size else 0.0
    mean_error = _mean_error(logs, group[inside][gap > 0]) if above.size else None
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


def _repeats(value: Ints, pairs: Bools, group: Ints, within: Ints) -> dict[str, Any] | None:
    """Return the share of next jobs in a session with the same value, and the share of copies.

    Two jobs of one tenant (or size class, `within`) have the same value by chance with probability c, the sum of
    squared shares. If a share p has the same value, the share of copies is (p - c) / (1 - c).
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
    """Return the correlations of run time scores between successive jobs, within sessions and between sessions."""
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


def _within_sizes(score: Floats, size: Ints, ordered: pl.DataFrame) -> tuple[Floats, list[dict[str, Any]]]:
    """Return each job's normal score among jobs of sessions of similar size, and the scores and VCs of each kind.

    Single jobs vary most and include the longest runs, while hundreds of jobs in a large session hardly differ. Kinds
    with fewer than 200 jobs are excluded, and their jobs keep their scores.
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


def _correlated(a: Floats, b: Floats, pairs: Bools, group: Ints) -> dict[str, float] | None:
    """Return the correlation of two scores of mean 0, with a standard error that treats groups as independent.

    The estimate is sum a b / sum (a^2 + b^2) / 2, so each group contributes a b - r (a^2 + b^2) / 2.
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


def _resubmission(found: Sessions, failed: Bools, asked: Ints) -> dict[str, Any]:
    """Return how often and after what delay a job follows a failed or other job, and how often requests are equal."""
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


def _gap_after(gap: Floats, group: Ints) -> dict[str, float | None]:
    """Return the median, and the mean logarithm of gaps above 0 with its standard error."""
    above = gap > 0
    if not above.any():
        return {"median_gap_s": None, "mean_log_gap": None, "mean_log_gap_standard_error": None}
    logs = np.log(gap[above])
    return {
        "median_gap_s": float(np.median(gap)),
        "mean_log_gap": float(logs.mean()),
        "mean_log_gap_standard_error": _mean_error(logs, group[above]),
    }


def _mean_error(values: Floats, group: Ints) -> float:
    """Return the standard error of a mean, treating groups as independent."""
    away = np.bincount(group, values - values.mean())
    return float(np.sqrt(away @ away)) / values.size
