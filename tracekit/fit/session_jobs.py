"""What the jobs of synthetic sessions have in common: requests, statuses, normal scores of run times.

Normal scores of run times are the sum of a part that the whole session shares and a part of each job, so that any two
jobs of a session are correlated alike; the shared parts of successive sessions of a tenant are correlated too.
Requests, and statuses within a size class, are copies of the job before as often as was fitted. Given that, failures
fall on the jobs that another follows, and on those that are repeated, as often as in the log: the share of failures
among them is that of Bayes' rule, and all together fail as often as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.fit.job_draws import draw_requests
from tracekit.fit.outcome_draws import draw_groups, outcomes_of
from tracekit.schema import UNSUCCESSFUL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.job_draws import DrawnTenants
    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.outcome_draws import Outcomes


class SessionJobs(NamedTuple):
    """Jobs in the order of their sessions."""

    request: Whole
    """Place in the list of requests."""
    group: Whole
    """Place in the list of statuses."""
    failed: NDArray[np.bool_] | None
    """None where the model does not tell failures from others."""
    scores: Floats
    """Normal score of the run time within the tenant's VC."""


def draw_together(
    model: WorkloadModel, sessions: dict[str, Any], number: Whole, tenants: DrawnTenants, rng: np.random.Generator
) -> SessionJobs:
    """Return the jobs of sessions.

    Parameters
    ----------
    model : WorkloadModel
    sessions : dict
        `arrivals.sessions` of the model.
    number : array (jobs,)
        Session of each job, 0, 1, ..., rising.
    tenants : DrawnTenants
        Those of the jobs, one a session.
    rng : Generator
    """
    first = np.flatnonzero(np.diff(number, prepend=-1))
    copied = rng.random(number.size) < _copied(sessions["requests"])
    copied[first] = False
    request = draw_requests(model, replace(tenants, copied=copied), rng, repeats=1.0)
    group, failed = _draw_statuses(model, sessions, number, request, rng)
    return SessionJobs(
        request, group, failed, _run_time_scores(sessions["run_times"], tenants.index[first], number, rng)
    )


def jobs_in_sessions(
    model: WorkloadModel, seconds: Whole, tenants: DrawnTenants, rng: np.random.Generator
) -> tuple[Whole, Outcomes, Floats]:
    """Return requests, outcomes and scores of jobs whose submissions and tenants are from elsewhere, such as a log.

    Their sessions are found as `tracekit.fit.sessions` finds them, by the threshold of the model.

    Parameters
    ----------
    model : WorkloadModel
        One with sessions.
    seconds : array (jobs,)
        Submissions, rising [s].
    tenants : DrawnTenants
    rng : Generator
    """
    sessions = model.document["arrivals"]["sessions"]
    part = {"user": slice(0, 1), "vc": slice(1, 3), "nobody": slice(0, 0)}[sessions["by"]]
    places: dict[tuple[str | None, ...], int] = {}
    owners = [places.setdefault(tuple(name)[part], len(places)) for name in tenants.names]
    owner = np.array(owners, np.int64)[tenants.index]
    order = np.lexsort((np.arange(seconds.size), seconds, owner))
    same = np.diff(owner[order]) == 0
    apart = ~(same & (np.diff(seconds[order]) <= sessions["threshold_s"]))
    number = np.concatenate([[0], apart.cumsum()])[: seconds.size]
    jobs = draw_together(model, sessions, number, replace(tenants, index=tenants.index[order]), rng)
    back = np.empty(order.size, np.int64)
    back[order] = np.arange(order.size)
    return jobs.request[back], outcomes_of(model, jobs.group[back], rng), jobs.scores[back]


def _copied(repeats: dict[str, Any] | None) -> float:
    return float(repeats["copied"]) if repeats is not None else 0.0


def shared_scores(number: Whole, together: float, of_session: Floats, rng: np.random.Generator) -> Floats:
    """Return normal scores of jobs of which a share of the variance is their session's."""
    found: Floats = np.sqrt(together) * of_session[number] + np.sqrt(1 - together) * rng.standard_normal(number.size)
    return found


def _run_time_scores(part: dict[str, Any] | None, tenant: Whole, number: Whole, rng: np.random.Generator) -> Floats:
    """Return a normal score for each job. `tenant` is that of each session, `number` the session of each job."""
    own = rng.standard_normal(tenant.size)
    if part is None:
        return rng.standard_normal(number.size)
    inside = float(np.clip(part["inside"]["correlation"], 0, 0.999))
    between = (part["between"] or {}).get("correlation", 0.0)
    rho = float(np.clip(between / max(inside, 1e-9), 0, 0.99))
    order = np.argsort(tenant, kind="stable")
    mine = own[order] * np.sqrt(1 - rho**2)
    fresh = np.diff(tenant[order], prepend=-1) != 0
    mine[fresh] = own[order][fresh]
    own[order] = _chained_within(mine, fresh, rho)
    return _shift_to_sizes(part, shared_scores(number, inside, own, rng), number)


def _shift_to_sizes(part: dict[str, Any], scores: Floats, number: Whole) -> Floats:
    """Return scores among all jobs of the VC, of scores among the jobs of sessions of like size."""
    listed = part.get("by_size") or []
    if not listed:
        return scores
    size = np.bincount(number)[number]
    # A size below the first kind, or of one too rare to be listed, is as the next smaller one, else as it is.
    kind = np.searchsorted([b["from_jobs"] for b in listed], size, side="right") - 1
    levels = np.asarray(part["levels"], float)
    found = scores.copy()
    for i, band in enumerate(listed):
        mine = np.flatnonzero(kind == i)
        placed = np.asarray(band["scores"], float) + 1e-9 * np.arange(levels.size)
        inside = np.clip(scores[mine], levels[0], levels[-1])
        found[mine] = np.interp(inside, levels, placed) + (scores[mine] - inside)
    return found


def _chained_within(noise: Floats, fresh: Any, rho: float) -> Floats:
    """Return y with y[t] = noise[t] + rho y[t - 1], and y[t] = noise[t] where it is fresh."""
    found, factor, step = noise.copy(), np.where(fresh, 0.0, rho), 1
    while step < found.size and np.abs(factor).max() > 1e-17:
        found[step:] = found[step:] + factor[step:] * found[:-step]
        factor = np.concatenate([np.zeros(step), factor[step:] * factor[:-step]])
        step *= 2
    return found


def _draw_statuses(
    model: WorkloadModel, sessions: dict[str, Any], number: Whole, request: Whole, rng: np.random.Generator
) -> tuple[Whole, Any]:
    """Return the status group of each job, and whether it failed; the latter None where failures are alike."""
    after = sessions["resubmission"]
    copying = _copied(sessions["statuses"])
    names = [g["status"] for g in model.document["statuses"]["groups"]]
    failing = np.array([name in UNSUCCESSFUL for name in names])
    odds = None
    if after is not None:
        follows = np.concatenate([number[1:] == number[:-1], [False]])
        again = np.concatenate([request[1:] == request[:-1], [False]])
        last, repeated, other = _odds(after)
        odds = np.where(follows, np.where(again, repeated, other), last)
        # A copied status is that of a job that another follows: what is not copied makes up for it.
        later = np.concatenate([[False], follows[:-1]])
        mean = _odds_of_followed(after)
        odds = np.where(later, (odds - copying * mean) / max(1 - copying, 1e-9), odds)
    group = draw_groups(model, request, rng, failing=failing, odds=odds)
    classes = np.array([r["gpu_class"] or "" for r in model.document["sizes"]["requests"]])[request]
    alike = (number[1:] == number[:-1]) & (classes[1:] == classes[:-1])
    copied = np.concatenate([[False], alike]) & (rng.random(number.size) < copying)
    source = np.maximum.accumulate(np.where(copied, 0, np.arange(number.size)))
    group = group[source]
    return group, failing[group] if after is not None else None


def _odds(after: dict[str, Any]) -> tuple[float, float, float]:
    """Return P(failed | kind) / P(failed) of jobs that are the last, are repeated, and are followed by another kind."""
    f, o = after["after_failure"], after["after_others"]
    share = float(f["jobs"] / (f["jobs"] + o["jobs"]))
    follow = share * f["follows"] + (1 - share) * o["follows"]

    def repeats(one: dict[str, Any]) -> float:
        return float(one["follows"] * (one["same_request"] if one["same_request"] is not None else 0.0))

    again = share * repeats(f) + (1 - share) * repeats(o)
    last = (1 - float(f["follows"])) / max(1 - follow, 1e-9)
    other = (float(f["follows"]) - repeats(f)) / max(follow - again, 1e-9)
    return last, repeats(f) / max(again, 1e-9), other


def _odds_of_followed(after: dict[str, Any]) -> float:
    f, o = after["after_failure"], after["after_others"]
    share = f["jobs"] / (f["jobs"] + o["jobs"])
    return float(f["follows"] / max(share * f["follows"] + (1 - share) * o["follows"], 1e-9))
