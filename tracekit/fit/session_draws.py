"""Jobs drawn in sessions: starts, numbers, gaps, and what the jobs of a session have in common.

A session has one tenant. Normal scores of its gaps, and of its run times, are the sum of a part that the whole session
shares and a part of each job, so that any two jobs of it are correlated alike; the shared parts of successive sessions
of a tenant are correlated too. Requests, and statuses within a size class, are copies of the job before as often as was
fitted. Given that, failures fall on the jobs that another follows, and on those that are repeated, as often as in the
log: the share of failures among them is that of Bayes' rule, and all together fail as often as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.fit.arrival_draws import draw_arrivals
from tracekit.fit.job_draws import DrawnTenants, draw_requests, draw_tenants
from tracekit.fit.jobs import FAILURES
from tracekit.fit.outcome_draws import Outcomes, draw_groups, outcomes_of

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.model import WorkloadModel

__all__ = ["DrawnJobs", "draw_sessions", "session_gaps", "session_starts"]

_MORE = 1.02
"""Sessions drawn above those that the jobs need: the last ones still run where the jobs end."""


@dataclass(frozen=True)
class DrawnJobs:
    """Jobs in order of submission, without their run times."""

    seconds: Whole
    """Submission [s since 1970]."""
    tenants: DrawnTenants
    request: Whole
    outcomes: Outcomes
    scores: Floats | None
    """Normal score of the run time within the tenant's VC; None where they are yet to be drawn."""


def session_starts(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Whole, Whole]:
    """Return the second in which each session starts, and its number of jobs.

    Parameters are those of `draw_arrivals`. A load of 2 has twice as many sessions, which are as long as before.
    """
    sessions = arrivals["sessions"]
    own = {**arrivals, **sessions["starts"]}
    sizes, shares = np.asarray(sessions["size"]["sizes"], np.int64), np.asarray(sessions["size"]["shares"], float)
    edges = shares.cumsum()

    def drawn(number: int) -> Whole:
        return sizes[np.searchsorted(edges[:-1] / edges[-1], rng.random(number), side="right")]

    if jobs is None:
        mean = own["batch"]["mean"] * sessions["size"]["mean"]  # of jobs: how many there may be is checked
        own = {**own, "batch": {**own["batch"], "mean": mean}}
        starts, _ = draw_arrivals(own, rng, jobs=None, days=days, load=load)
        return starts, drawn(starts.size)
    number = drawn(int(jobs / sessions["size"]["mean"] * _MORE) + 20)
    while number.sum() < jobs * _MORE:
        number = np.concatenate([number, drawn(number.size // 4 + 20)])
    number = number[: int(np.searchsorted(number.cumsum(), jobs * _MORE)) + 1]
    starts, _ = draw_arrivals(own, rng, jobs=number.size, days=None, load=load)
    return starts, number


def session_gaps(gaps: dict[str, Any], number: Whole, rng: np.random.Generator, shift: Floats | float = 0.0) -> Floats:
    """Return the time between each job's submission and that of the job before in its session [s], 0 for the first.

    Parameters
    ----------
    gaps : dict
        From `gaps_entry`.
    number : array (jobs,)
        Session of each job, in order.
    shift : array (jobs,) or float
        Added to the logarithm of a gap that is not 0.
    """
    together = float(np.clip((gaps["correlation"] or {}).get("correlation", 0.0), 0, 0.99))
    score = _shared(number, together, rng.standard_normal(int(number[-1]) + 1), rng)
    u = special.ndtr(score)
    zero = gaps["zero_share"]
    found = np.zeros(number.size)
    if gaps["quantiles_s"]:
        table = np.asarray(gaps["quantiles_s"], float)
        above = np.interp(np.maximum(u - zero, 0) / max(1 - zero, 1e-12), table[:, 0], table[:, 1])
        moved = np.minimum(above * np.exp(shift), table[-1, 1])
        found = np.where(u < zero, 0.0, moved)
    found[np.flatnonzero(np.diff(number, prepend=-1))] = 0.0
    return found


def draw_sessions(
    model: WorkloadModel,
    arrivals: dict[str, Any],
    rng: np.random.Generator,
    *,
    jobs: int | None,
    days: float | None,
    load: float,
) -> DrawnJobs:
    """Return jobs in sessions. `arrivals` is that part of the model, at the rate that is asked for.

    Raises
    ------
    UsageError
        As `draw_arrivals`.
    """
    sessions = arrivals["sessions"]
    starts, sizes = session_starts(arrivals, rng, jobs=jobs, days=days, load=load)
    if not starts.size:
        nobody = draw_tenants(model, starts, rng)
        return DrawnJobs(starts, nobody, starts, Outcomes(starts, starts > 0, starts), starts.astype(float))
    number = np.repeat(np.arange(starts.size), sizes)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    later = np.ones(number.size, bool)
    later[first] = False
    one = draw_tenants(model, np.arange(starts.size), rng)
    copied = later & (rng.random(number.size) < _copied(sessions["requests"]))
    tenants = replace(one, index=one.index[number], copied=copied)
    request = draw_requests(model, tenants, rng, repeats=1.0)
    group, failed = _draw_statuses(model, sessions, number, request, rng)
    shift: Floats | float = 0.0
    after = sessions["resubmission"]
    if after is not None and failed is not None:
        before = np.concatenate([[False], failed[:-1]])
        shift = np.where(before, *(_slower(after, name) for name in ("after_failure", "after_others")))
    gap = session_gaps(sessions["gaps"], number, rng, shift)
    passed = gap.cumsum()
    step = arrivals["step_s"]
    seconds = (np.floor((starts[number] + passed - passed[first][number]) / step) * step).astype(np.int64)
    scores = _run_time_scores(sessions["run_times"], one.index, number, rng)
    order = np.argsort(seconds, kind="stable")
    if days is not None:
        order = order[seconds[order] < arrivals["start"] + days * 86_400]
    order = order[:jobs]
    ends = outcomes_of(model, group[order], rng)
    return DrawnJobs(
        seconds[order],
        replace(tenants, index=tenants.index[order], copied=copied[order]),
        request[order],
        ends,
        scores[order],
    )


def _copied(repeats: dict[str, Any] | None) -> float:
    return float(repeats["copied"]) if repeats is not None else 0.0


def _slower(after: dict[str, Any], name: str) -> float:
    """Return by how much the logarithm of a gap is above the mean of both kinds."""
    both = [after[n] for n in ("after_failure", "after_others")]
    if any(b["mean_log_gap"] is None for b in both):
        return 0.0
    weights = [b["jobs"] * b["follows"] for b in both]
    mean: float = sum(w * b["mean_log_gap"] for w, b in zip(weights, both, strict=True)) / sum(weights)
    return float(after[name]["mean_log_gap"]) - mean


def _shared(number: Whole, together: float, of_session: Floats, rng: np.random.Generator) -> Floats:
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
    return _shared(number, inside, own, rng)


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
    failing = np.array([name in FAILURES for name in names])
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
