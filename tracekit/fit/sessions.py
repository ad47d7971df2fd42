"""Sessions: jobs that a tenant submits one soon after the other, and what the jobs of a session have in common.

A session is a run of successive submissions of one tenant with gaps of at most a threshold. The tenant is the user, or
the VC where users are unknown, or nobody where both are: then sessions are those of the log as a whole. The threshold
is where two lognormal distributions, fitted to the gaps between successive submissions of a tenant by maximum
likelihood (EM), have equal weighted density: shorter gaps are more likely those of the quick kind.

There are sessions where close pairs (gaps up to the threshold) are 1.5 times as frequent as with independent arrivals
at the rate of each tenant, by five standard errors, and where the next batch of the log is the same tenant's more often
than by the tenants' shares, by five standard errors too. Bursts of all tenants at once are no sessions.

Standard errors take whole sessions as independent: that of a share p of n_s pairs in session s, y_s of them hits, is
sqrt(sum (y_s - p n_s)^2) / sum n_s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.independence import Clock


LEAST_RATIO = 1.5
"""Close pairs over those of independent arrivals, from which on there are sessions."""
LEAST_ERRORS = 5.0
"""Standard errors by which they have to be more."""
_VALUES = 20_000
"""Gaps that the mixture is fitted to: evenly spaced quantiles of all."""
_ROUNDS = 200
_LEAST_GAPS = 200
_LONGEST_S = 86_400.0
"""Longest threshold."""


class Threshold(NamedTuple):
    """The longest gap inside a session, and the two distributions it follows from."""

    seconds: float
    parts: dict[str, float]
    """weight_1, s_1, scale_1 [s] of the short gaps, weight_2, s_2, scale_2 of the long ones."""


@dataclass(frozen=True)
class Sessions:
    """The jobs of a log in the order of tenants, sessions and submission."""

    by: str
    """user, vc or nobody."""
    threshold: Threshold
    order: Whole
    """Place of each job in the log (jobs,)."""
    number: Whole
    """Session of each job, 0, 1, ... in that order."""
    tenant: Whole
    """Tenant of each job; a job of unknown tenant has one of its own."""
    second: Floats
    """Submission of each job [s], in steps of the log's clock."""
    evidence: dict[str, float]

    @property
    def first(self) -> Whole:
        """Place of the first job of each session."""
        return np.flatnonzero(np.diff(self.number, prepend=-1))

    @property
    def sizes(self) -> Whole:
        """Jobs of each session."""
        return np.bincount(self.number)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each job but the first follows another of its session (jobs - 1,)."""
        return np.equal(self.number[1:], self.number[:-1])


def tenants_of(jobs: pl.DataFrame) -> tuple[str, Whole]:
    """Return what tells tenants apart, and the number of each job's tenant; unknown ones have a number of their own.

    Users are taken where at least half of the jobs have one, then VCs, then nobody.
    """
    for by, columns in (("user", ["user"]), ("vc", ["cluster", "vc"])):
        if all(c in jobs.columns for c in columns) and jobs[by].null_count() <= jobs.height / 2:
            code = jobs.select(pl.struct(columns).rank("dense"))[:, 0].to_numpy().astype(np.int64)
            unknown = jobs[by].is_null().to_numpy()
            return by, np.where(unknown, code.max(initial=0) + 1 + np.arange(code.size), code)
    return "nobody", np.zeros(jobs.height, np.int64)


def threshold_of(gaps: Floats, step: float) -> Threshold | None:
    """Return the gap above which a tenant's next job is more likely of another session; None where none is.

    `gaps` are those between successive submissions of a tenant [s], above 0; the threshold is a multiple of `step`.
    """
    if gaps.size < _LEAST_GAPS:
        return None
    logs = np.log(np.sort(gaps))
    if logs.size > _VALUES:
        logs = logs[np.linspace(0, logs.size - 1, _VALUES).astype(np.int64)]
    weight, mean = np.array([0.5, 0.5]), np.quantile(logs, [0.25, 0.9])
    # A clock of whole steps does not tell gaps apart below one.
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
    """Return the sessions of a log, or why there are none.

    Parameters
    ----------
    jobs : DataFrame
        In order of submission, with user, cluster and vc where these are known.
    ticks : array (jobs,)
        Submissions, in steps of the log's clock [s].
    step : float
        [s]
    clock : Clock
        The rate of all batches.
    """
    by, tenant = tenants_of(jobs)
    order = np.lexsort((np.arange(ticks.size), ticks, tenant))
    second, owner = ticks[order], tenant[order]
    same, gap = owner[1:] == owner[:-1], np.diff(second)
    apart = same & (gap > 0)
    threshold = threshold_of(gap[apart], step)
    if threshold is None:
        return f"the gaps between successive submissions of a {_WORDS[by]} are not of a short and a long kind"
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


def _close_pairs(
    second: Floats, owner: Whole, apart: NDArray[np.bool_], threshold_s: float, clock: Clock
) -> dict[str, float]:
    """Return how many gaps are at most the threshold, and how many are if each tenant's submissions are independent."""
    rows = np.flatnonzero(apart)
    gap = second[rows + 1] - second[rows]
    _, place, jobs = np.unique(owner, return_inverse=True, return_counts=True)
    # Distinct times of a tenant by those of all tenants: its share of the rate.
    times = np.bincount(place.ravel()[rows], minlength=jobs.size) + 1
    share = (times / clock.hits.sum())[place.ravel()[rows]]
    total = np.concatenate([[0.0], clock.hits.cumsum()])
    begin, end = (np.interp(second[rows] + x, clock.edges_s, total) for x in (0.0, threshold_s))
    due = -np.expm1(-share * (end - begin))
    return {"close_pairs": float((gap <= threshold_s).sum()), "close_pairs_if_independent": float(due.sum())}


def _ownership(tenant: Whole, ticks: Floats) -> tuple[float, float, float] | None:
    """Return how often the next batch is the same tenant's, how often by the shares, and the error of that.

    Of batches of one second the first job counts. None where there is one tenant.
    """
    heads = tenant[np.flatnonzero(np.diff(ticks, prepend=-np.inf))]
    _, counts = np.unique(heads, return_counts=True)
    if counts.size < 2 or heads.size < 2:
        return None
    chance = float(((counts / heads.size) ** 2).sum())
    share = float((heads[1:] == heads[:-1]).mean())
    return share, chance, float(np.sqrt(max(chance * (1 - chance), 1e-9) / heads.size))


def share_with_error(hits: NDArray[np.bool_], group: Whole) -> tuple[float, float] | None:
    """Return the share of hits and its standard error, whole groups being independent; None without any."""
    if not hits.size:
        return None
    p = float(hits.mean())
    away = np.bincount(group, hits.astype(float) - p)
    return p, float(np.sqrt(away @ away)) / hits.size
