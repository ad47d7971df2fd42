"""Draw arrival times from a fitted process, either batch by batch or as jobs in sessions.

A session has one tenant. The normal scores of its gaps share a component, so a fast session is fast throughout. The
normal score of a run time is a shared component plus the job's own, so any two jobs of a session are equally
correlated. The shared components of a tenant's successive sessions are also correlated. Requests, and statuses within a
size class, copy the previous job as often as was fitted. Jobs followed by another job, and repeated jobs, fail as often
as in the log. Their share of failures follows from Bayes' rule; the overall share does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from tracekit.errors import UsageError
from tracekit.fit.job_draws import (
    DrawnTenants,
    Outcomes,
    draw_groups,
    draw_requests,
    draw_tenants,
    originals,
    outcomes_of,
    pick,
    through,
)
from tracekit.fit.rate import HOUR_S, with_hours
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS
from tracekit.schema import UNSUCCESSFUL

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.fit.model import WorkloadModel


_LEAST_ABOVE = 0.02
"""Minimum share of gaps above `least` for which rejection sampling is used."""


def level_at(rate: dict[str, Any], length: float, days: Floats) -> Floats:
    """Return the rate in an average hour at given times since the beginning [days].

    After the end of the log, the rate stays at its last value. `length` is the length of the log [days]. Files written
    by earlier versions have no pieces.
    """
    pieces = rate.get("pieces") or []
    if pieces:
        ends = np.array([p["to_day"] for p in pieces[:-1]])
        return np.array([p["per_hour"] for p in pieces], float)[np.searchsorted(ends, days, side="right")]
    trend, per_hour = float(rate["trend_per_day"]), float(rate["per_hour"])
    return per_hour * np.exp(np.minimum(trend * np.minimum(days, length), 500.0))


def draw_batches(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Ints, Ints]:
    """Return the submission second and the batch number of each job.

    Parameters
    ----------
    arrivals : dict
        The arrivals part of workload.json.
    jobs, days : optional
        Number of jobs or of days; exactly one is not None.
    load : float
        Factor on the rate. Bursts keep their number of arrivals and become shorter by this factor.

    Raises
    ------
    UsageError
        The span would exceed 100 years or contain more than `MOST_JOBS` jobs.
    """
    rate, mean = arrivals["rate"], arrivals["batch"]["mean"]
    turns = [0.0, arrivals["days"], *(p["from_day"] for p in rate.get("pieces") or [])]
    fastest = load * float(level_at(rate, arrivals["days"], np.array(turns)).max())
    if jobs is not None and jobs / mean / fastest / 24 > LONGEST_DAYS:
        raise _too_long()
    hours, operational = _clock(arrivals, days, load)
    limit = float(operational[-1]) if days is not None else np.inf
    if days is not None and limit * mean > MOST_JOBS:
        raise UsageError(f"would give more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    wanted = int((jobs or 0) / mean) + 1 if jobs is not None else int(limit) + 1
    times = _operational_times(arrivals, rng, int(wanted * 1.02) + 50, limit)
    sizes = _sizes(arrivals["batch"], times.size, rng)
    while jobs is not None and sizes.sum() < jobs:
        more = _operational_times(arrivals, rng, wanted // 4 + 50, np.inf) + times[-1]
        times = np.concatenate([times, more])
        sizes = np.concatenate([sizes, _sizes(arrivals["batch"], more.size, rng)])
    if jobs is not None:
        needed = int(np.searchsorted(sizes.cumsum(), jobs)) + 1
        times, sizes = times[:needed], sizes[:needed]
        hours, operational = _clock(arrivals, None, load, until=float(times[-1]))
    step = arrivals["step_s"]
    real = np.interp(times, operational, arrivals["start"] // HOUR_S * HOUR_S + HOUR_S * hours)
    seconds = (np.floor(real / step) * step).astype(np.int64)
    batch = np.repeat(np.arange(seconds.size), sizes)
    return np.repeat(seconds, sizes)[:jobs], batch[:jobs]


def _too_long() -> UsageError:
    return UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")


def _clock(
    arrivals: dict[str, Any], days: float | None, load: float, *, until: float | None = None
) -> tuple[Floats, Floats]:
    """Return the hours since the beginning, and the expected number of arrivals up to each hour."""
    rate = arrivals["rate"]
    first_hour = arrivals["start"] // HOUR_S * HOUR_S
    offset = (arrivals["start"] - first_hour) / HOUR_S
    if until is None and days is None:
        return np.zeros(1), np.zeros(1)  # the number of jobs determines the span
    number = 24 * 7 if days is None else int(np.ceil(days * 24 + offset))
    while True:
        if number > LONGEST_DAYS * 24:
            raise _too_long()
        whole = with_hours(int(first_hour), number, arrivals["timezone"])
        profile = np.asarray(rate["profile"], float)
        # After the end of the log, the trend is unknown, so the rate stays constant.
        each = load * level_at(rate, arrivals["days"], whole.days) * profile[whole.of_week % profile.size]
        each[0] *= 1 - offset
        if days is not None:
            each[-1] *= 1 - (number - offset - days * 24)
        total = np.concatenate([[0.0], each.cumsum()])
        if until is None or total[-1] > until:
            return np.concatenate([[offset], np.arange(1, number + 1)]), total
        number *= 2


def _operational_times(arrivals: dict[str, Any], rng: np.random.Generator, number: int, limit: float) -> Floats:
    """Return `number` arrivals of the fitted process at mean rate 1, or all arrivals below a finite limit."""
    process = arrivals["process"]
    parameters: dict[str, float] = next(
        (c["parameters"] for c in arrivals["candidates"] if c["process"] == process), {}
    )
    return operational_times(process, parameters, rng, number, limit)


def operational_times(
    process: str, parameters: dict[str, float], rng: np.random.Generator, number: int, limit: float
) -> Floats:
    """Return `number` arrivals of a process at mean rate 1, or all arrivals below a finite limit."""
    draw = {"poisson": _poisson, "gamma_renewal": _gamma, "mmpp": _modulated}[process]
    times = draw(rng, number, parameters)
    while np.isfinite(limit) and times[-1] < limit:
        times = np.concatenate([times, times[-1] + draw(rng, number // 4 + 50, parameters)])
    return times[times < limit]


def _poisson(rng: np.random.Generator, number: int, _: dict[str, float]) -> Floats:
    return rng.exponential(size=number).cumsum()


def _gamma(rng: np.random.Generator, number: int, p: dict[str, float]) -> Floats:
    a, scale, least = p["a"], p["scale"], p["least"]
    above = float(special.gammaincc(a, least / scale))
    mean = a * scale * float(special.gammaincc(a + 1, least / scale)) / above
    gaps: Floats = np.empty(0)
    if above < _LEAST_ABOVE:
        # Few gaps are above `least`, so invert the upper tail instead of rejecting draws.
        gaps = np.asarray(special.gammainccinv(a, above * rng.random(number)) * scale, float)
    else:
        while gaps.size < number:
            drawn = rng.gamma(a, scale, size=int((number - gaps.size) / above * 1.05) + 50)
            gaps = np.concatenate([gaps, drawn[drawn > least]])
        gaps = gaps[:number]
    return (gaps / mean).cumsum()


def _modulated(rng: np.random.Generator, number: int, p: dict[str, float]) -> Floats:
    """Draw arrivals of a process that starts in a state drawn from its stationary distribution."""
    length = 1 / p["to_busy"], 1 / p["to_quiet"]
    rates = p["quiet_rate"], p["busy_rate"]
    mean = (length[0] * rates[0] + length[1] * rates[1]) / (length[0] + length[1])
    first = int(rng.random() < length[1] / (length[0] + length[1]))
    work = rng.exponential(size=number).cumsum()
    states = 2 + 2 * int(number / (length[0] * rates[0] + length[1] * rates[1]))
    ends, done = np.zeros(1), np.zeros(1)
    while done[-1] < work[-1]:
        stay = rng.exponential(size=states)
        which = (np.arange(states) + first) % 2
        spent = stay * np.where(which == 1, length[1], length[0])
        ends = np.concatenate([ends, ends[-1] + spent.cumsum()])
        done = np.concatenate([done, done[-1] + (spent * np.where(which == 1, rates[1], rates[0])).cumsum()])
    return np.interp(work, done, ends) * mean


def _sizes(batch: dict[str, Any], number: int, rng: np.random.Generator) -> Ints:
    return np.asarray(batch["sizes"], np.int64)[pick(np.asarray(batch["shares"], float), rng.random(number))]


# Draw sessions: their starts, numbers of jobs and gaps, and the properties that their jobs share.

_MORE = 1.02
"""Factor on the number of sessions to draw. The last sessions continue beyond the last job."""


@dataclass(frozen=True)
class DrawnJobs:
    """Jobs in submission order, without their run times."""

    seconds: Ints
    """Submission of each job [s since 1970]."""
    tenants: DrawnTenants
    request: Ints
    outcomes: Outcomes
    scores: Floats | None
    """Normal score of the run time within the tenant's VC, or None if the scores are not yet drawn."""


class SessionJobs(NamedTuple):
    """Jobs ordered by session."""

    request: Ints
    """Index in the list of requests."""
    group: Ints
    """Index in the list of statuses."""
    failed: Bools | None
    """Whether each job failed, or None if the model does not distinguish failures."""
    scores: Floats
    """Normal score of the run time within the tenant's VC."""


def draw_together(
    model: WorkloadModel, sessions: dict[str, Any], number: Ints, tenants: DrawnTenants, rng: np.random.Generator
) -> SessionJobs:
    """Draw the jobs of sessions.

    Parameters
    ----------
    model : WorkloadModel
    sessions : dict
        `arrivals.sessions` of the model.
    number : array (jobs,)
        Session of each job, numbered from 0 in increasing order.
    tenants : DrawnTenants
        Tenants of the jobs, one per session.
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


def jobs_in_sessions(model: WorkloadModel, seconds: Ints, tenants: DrawnTenants, rng: np.random.Generator) -> DrawnJobs:
    """Draw jobs for given submissions and tenants, such as those of a log.

    Sessions are found as in `tracekit.fit.sessions`, with the model's threshold.

    Parameters
    ----------
    model : WorkloadModel
        A model with sessions.
    seconds : array (jobs,)
        Submissions in increasing order [s].
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
    outcomes = outcomes_of(model, jobs.group[back], rng)
    return DrawnJobs(seconds, tenants, jobs.request[back], outcomes, jobs.scores[back])


def _copied(repeats: dict[str, Any] | None) -> float:
    return float(repeats["copied"]) if repeats is not None else 0.0


def shared_scores(number: Ints, together: float, of_session: Floats, rng: np.random.Generator) -> Floats:
    """Draw the normal scores of jobs, which share part of their variance within a session."""
    return np.sqrt(together) * of_session[number] + np.sqrt(1 - together) * rng.standard_normal(number.size)


def _run_time_scores(part: dict[str, Any] | None, tenant: Ints, number: Ints, rng: np.random.Generator) -> Floats:
    """Draw a normal score for each job; `tenant` gives each session's tenant, and `number` each job's session."""
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


def _shift_to_sizes(part: dict[str, Any], scores: Floats, number: Ints) -> Floats:
    """Convert scores among the jobs in sessions of similar size to scores among all jobs of the VC."""
    listed = part.get("by_size") or []
    if not listed:
        return scores
    size = np.bincount(number)[number]
    # Sizes of an unlisted rare kind count as the next smaller kind; below the first kind, scores do not change.
    kind = np.searchsorted([b["from_jobs"] for b in listed], size, side="right") - 1
    levels = np.asarray(part["levels"], float)
    found = scores.copy()
    for i, band in enumerate(listed):
        mine = np.flatnonzero(kind == i)
        placed = np.asarray(band["scores"], float) + 1e-9 * np.arange(levels.size)
        found[mine] = through(scores[mine], levels, placed)
    return found


def _chained_within(noise: Floats, fresh: Any, rho: float) -> Floats:
    """Return y with y[t] = noise[t] + rho y[t - 1], or y[t] = noise[t] if `fresh` is set at t."""
    found, factor, step = noise.copy(), np.where(fresh, 0.0, rho), 1
    while step < found.size and np.abs(factor).max() > 1e-17:
        found[step:] = found[step:] + factor[step:] * found[:-step]
        factor = np.concatenate([np.zeros(step), factor[step:] * factor[:-step]])
        step *= 2
    return found


def _draw_statuses(
    model: WorkloadModel, sessions: dict[str, Any], number: Ints, request: Ints, rng: np.random.Generator
) -> tuple[Ints, Any]:
    """Draw the status group of each job, and whether the job failed (None if failures are not distinguished)."""
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
        # A copied status comes from a job that is followed by another. The other statuses compensate for this.
        later = np.concatenate([[False], follows[:-1]])
        mean = _odds_of_followed(after)
        odds = np.where(later, (odds - copying * mean) / max(1 - copying, 1e-9), odds)
    group = draw_groups(model, request, rng, failing=failing, odds=odds)
    classes = np.array([r["gpu_class"] or "" for r in model.document["sizes"]["requests"]])[request]
    alike = (number[1:] == number[:-1]) & (classes[1:] == classes[:-1])
    copied = np.concatenate([[False], alike]) & (rng.random(number.size) < copying)
    group = group[originals(copied)]
    return group, failing[group] if after is not None else None


def _odds(after: dict[str, Any]) -> tuple[float, float, float]:
    """Return P(failed | kind) / P(failed) for jobs that are last, are repeated, or are followed by another kind."""
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


def session_starts(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Ints, Ints]:
    """Draw the start second and the number of jobs of each session.

    Parameters are those of `draw_batches`. A load of 2 gives twice as many sessions of the same length.
    """
    sessions = arrivals["sessions"]
    own = {**arrivals, **sessions["starts"], "sessions": None}
    sizes, shares = np.asarray(sessions["size"]["sizes"], np.int64), np.asarray(sessions["size"]["shares"], float)

    def drawn(number: int) -> Ints:
        return sizes[pick(shares, rng.random(number))]

    if jobs is None:
        mean = own["batch"]["mean"] * sessions["size"]["mean"]  # jobs per step, because the number of jobs is limited
        own = {**own, "batch": {**own["batch"], "mean": mean}}
        starts, _ = draw_batches(own, rng, jobs=None, days=days, load=load)
        return starts, drawn(starts.size)
    number = drawn(int(jobs / sessions["size"]["mean"] * _MORE) + 20)
    while number.sum() < jobs * _MORE:
        number = np.concatenate([number, drawn(number.size // 4 + 20)])
    number = number[: int(np.searchsorted(number.cumsum(), jobs * _MORE)) + 1]
    starts, _ = draw_batches(own, rng, jobs=number.size, days=None, load=load)
    return starts, number


def session_gaps(gaps: dict[str, Any], number: Ints, rng: np.random.Generator, shift: Floats | float = 0.0) -> Floats:
    """Draw the time from the session's previous submission to each job's [s], which is 0 for the first job.

    Parameters
    ----------
    gaps : dict
        From `gaps_entry`.
    number : array (jobs,)
        Session of each job, in order.
    shift : array (jobs,) or float
        Number added to the logarithm of each nonzero gap.
    """
    together = float(np.clip((gaps["correlation"] or {}).get("correlation", 0.0), 0, 0.99))
    score = shared_scores(number, together, rng.standard_normal(int(number[-1]) + 1), rng)
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


def session_seconds(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> Ints:
    """Draw the sorted submissions of jobs in sessions, without their other properties [s since 1970]."""
    starts, sizes = session_starts(arrivals, rng, jobs=jobs, days=days, load=load)
    number = np.repeat(np.arange(starts.size), sizes)
    gap = session_gaps(arrivals["sessions"]["gaps"], number, rng) if number.size else np.zeros(0)
    seconds = np.sort(_seconds(starts, number, gap, arrivals["step_s"]))
    if days is not None:
        seconds = seconds[seconds < arrivals["start"] + days * 86_400]
    return seconds[:jobs]


def _seconds(starts: Ints, number: Ints, gap: Floats, step: float) -> Ints:
    """Return the time at which each job is submitted, in steps of the log's clock."""
    passed = gap.cumsum()
    before = passed[np.flatnonzero(np.diff(number, prepend=-1))][number]
    return (np.floor((starts[number] + passed - before) / step) * step).astype(np.int64)


def draw_sessions(
    model: WorkloadModel,
    arrivals: dict[str, Any],
    rng: np.random.Generator,
    *,
    jobs: int | None,
    days: float | None,
    load: float,
) -> DrawnJobs:
    """Draw jobs in sessions; `arrivals` is the arrivals part of the model at the requested rate.

    Raises
    ------
    UsageError
        As in `draw_batches`.
    """
    sessions = arrivals["sessions"]
    starts, sizes = session_starts(arrivals, rng, jobs=jobs, days=days, load=load)
    if not starts.size:
        nobody = draw_tenants(model, starts, rng)
        return DrawnJobs(starts, nobody, starts, Outcomes(starts, starts > 0, starts), starts.astype(float))
    number = np.repeat(np.arange(starts.size), sizes)
    one = _tenants(model, sessions, sizes, rng)
    tenants = replace(one, index=one.index[number], copied=np.zeros(number.size, bool))
    together = draw_together(model, sessions, number, tenants, rng)
    shift: Floats | float = 0.0
    after = sessions["resubmission"]
    if after is not None and together.failed is not None:
        before = np.concatenate([[False], together.failed[:-1]])
        shift = np.where(before, *(_slower(after, name) for name in ("after_failure", "after_others")))
    gap = session_gaps(sessions["gaps"], number, rng, shift)
    seconds = _seconds(starts, number, gap, arrivals["step_s"])
    order = np.argsort(seconds, kind="stable")
    if days is not None:
        order = order[seconds[order] < arrivals["start"] + days * 86_400]
    order = order[:jobs]
    return DrawnJobs(
        seconds[order],
        replace(tenants, index=tenants.index[order], copied=tenants.copied[order]),
        together.request[order],
        outcomes_of(model, together.group[order], rng),
        together.scores[order],
    )


def _tenants(model: WorkloadModel, sessions: dict[str, Any], sizes: Ints, rng: np.random.Generator) -> DrawnTenants:
    """Draw each session's tenant: first a VC with sessions of similar size, then a tenant by its share of jobs."""
    found = draw_tenants(model, np.arange(sizes.size), rng)
    kinds = (sessions["run_times"] or {}).get("by_size") or []
    vcs = [name[1:] for name in found.names]
    whole: dict[tuple[str | None, str | None], float] = {}
    for vc, share in zip(vcs, found.shares, strict=True):
        whole[vc] = whole.get(vc, 0.0) + float(share)
    kind = np.searchsorted([k["from_jobs"] for k in kinds], sizes, side="right") - 1
    index = found.index.copy()
    for i, one in enumerate(kinds):
        own = {(v["cluster"], v["vc"]): v["share"] for v in one["vcs"]}
        weights = found.shares * np.array([own.get(vc, 0.0) / whole[vc] if whole[vc] else 0.0 for vc in vcs])
        mine = np.flatnonzero(kind == i)
        if weights.sum() > 0:
            index[mine] = pick(weights, rng.random(mine.size))
    return replace(found, index=index)


def _slower(after: dict[str, Any], name: str) -> float:
    """Return the mean logarithm of one kind's gaps minus that of both kinds."""
    both = [after[n] for n in ("after_failure", "after_others")]
    if any(b["mean_log_gap"] is None for b in both):
        return 0.0
    weights = [b["jobs"] * b["follows"] for b in both]
    mean: float = sum(w * b["mean_log_gap"] for w, b in zip(weights, both, strict=True)) / sum(weights)
    return float(after[name]["mean_log_gap"]) - mean
