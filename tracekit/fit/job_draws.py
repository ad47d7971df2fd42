"""Draw the user and VC, the request, the outcome and the run time of each synthetic job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.fit.splice import drawn_durations, longest_drawn

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.fit.model import WorkloadModel


def pick(shares: Floats, u: Floats) -> Ints:
    """Return, for each number in [0, 1), the index of the share whose cumulative interval contains it."""
    edges = shares.cumsum()
    return np.searchsorted(edges[:-1] / edges[-1], u, side="right")


def originals(copied: Bools) -> Ints:
    """Return the index of each item's original: the last earlier item that is not a copy, or the item itself."""
    return np.maximum.accumulate(np.where(copied, 0, np.arange(copied.size)))


@dataclass(frozen=True)
class Outcomes:
    """Outcome of each job."""

    group: Ints
    """Index in `statuses.groups`."""
    ran: Bools
    attempts: Ints
    """Number of attempts of each job, or 0 if it did not run."""


def draw_outcomes(model: WorkloadModel, request: Ints, rng: np.random.Generator) -> Outcomes:
    """Draw the outcome of each job from the statuses of its size class."""
    return outcomes_of(model, draw_groups(model, request, rng), rng)


def draw_groups(
    model: WorkloadModel,
    request: Ints,
    rng: np.random.Generator,
    *,
    failing: Bools | None = None,
    odds: Floats | None = None,
) -> Ints:
    """Draw the index of each job's status in `statuses.groups` from the statuses of its size class.

    Parameters
    ----------
    failing : array (groups,), optional
        Whether each group is a failure.
    odds : array (jobs,), optional
        Factor on each job's probability of failure.
    """
    groups = model.document["statuses"]["groups"]
    requests = model.document["sizes"]["requests"]
    sizes = [r["gpu_class"] for r in requests]
    size_of = np.array([list(dict.fromkeys(sizes)).index(s) for s in sizes])[request]
    group = np.empty(request.size, np.int64)
    for i, name in enumerate(dict.fromkeys(sizes)):
        mine = np.flatnonzero(size_of == i)
        members = np.flatnonzero([g["gpu_class"] == name for g in groups])
        if not members.size:  # all jobs of this class were still running
            members = np.arange(len(groups))
        shares = np.array([groups[m]["jobs"] for m in members], float)
        u = rng.random(mine.size)
        if odds is not None and failing is not None and 0 < (bad := shares[failing[members]].sum() / shares.sum()) < 1:
            # Failures come first, so a number below their share is a failure. Each job's odds scale that share.
            members, shares = (x[np.argsort(~failing[members], kind="stable")] for x in (members, shares))
            limit = np.clip(bad * odds[mine], 0.0, 1.0)
            u = np.where(
                u < limit,
                u / np.maximum(limit, 1e-12) * bad,
                bad + (u - limit) / np.maximum(1 - limit, 1e-12) * (1 - bad),
            )
        group[mine] = members[pick(shares, u)]
    return group


def outcomes_of(model: WorkloadModel, group: Ints, rng: np.random.Generator) -> Outcomes:
    """Draw the outcomes of jobs with given status groups: whether each job ran, and its number of attempts."""
    groups = model.document["statuses"]["groups"]
    never = np.array([g["no_run_time_share"] for g in groups], float)
    ran = rng.random(group.size) >= never[group]
    attempts = np.where(ran, 1, 0)
    for i, one in enumerate(groups):
        if one["attempts"] and one["attempts"] != [1]:
            mine = np.flatnonzero((group == i) & ran)
            drawn = pick(np.asarray(one["attempt_shares"], float), rng.random(mine.size))
            attempts[mine] = np.asarray(one["attempts"], np.int64)[drawn]
    return Outcomes(group, ran, attempts)


@dataclass(frozen=True)
class DrawnTenants:
    """The tenant of each job."""

    index: Ints
    """Index in the list of tenants."""
    copied: Bools
    """Whether the job has the same tenant as the previous job of its batch."""
    names: list[tuple[str | None, str | None, str | None]]
    """User, cluster and VC of each tenant."""
    shares: Floats
    """Each tenant's share of the jobs."""
    classes: Floats
    """Shares of the size classes by tenant, with that of unknown size last."""


def draw_tenants(model: WorkloadModel, batch: Ints, rng: np.random.Generator) -> DrawnTenants:
    """Draw the tenant of each job; jobs of one batch share a tenant as often as in the log."""
    users, arrivals = model.document["users"], model.document["arrivals"]
    listed = users["tenants"]
    names = [(t["user"], t["cluster"], t["vc"]) for t in listed]
    classes = np.array([t["gpu_class_shares"] for t in listed], float).reshape(len(listed), -1)
    shares = np.array([t["share"] for t in listed], float)
    if users["other_tenants"]:
        others = users["other_tenants"]
        where = [names[i][1:] for i in pick(shares, (np.arange(others) + 0.5) / others)]
        first = users["users"] + 1
        names += [(f"u{first + i}", *where[i]) for i in range(others)]
        mean = (shares[:, None] * classes).sum(axis=0) / shares.sum()
        classes = np.concatenate([classes, np.broadcast_to(mean, (others, classes.shape[1]))])
        shares = np.concatenate([shares, np.full(others, users["other_share"] / others)])
    own = pick(shares, rng.random(batch.size))
    together = np.concatenate([[False], batch[1:] == batch[:-1]])
    copied = together & (rng.random(batch.size) < arrivals["batch"]["same_user_share"])
    unknown = np.maximum(1 - classes.sum(axis=1, keepdims=True), 0)
    return DrawnTenants(own[originals(copied)], copied, names, shares, np.concatenate([classes, unknown], axis=1))


def draw_requests(
    model: WorkloadModel, tenants: DrawnTenants, rng: np.random.Generator, *, repeats: float | None = None
) -> Ints:
    """Draw the index of each job's request in the list of requests.

    A job whose tenant is copied repeats the previous request with probability `repeats`, by default as in batches.
    """
    requests = model.document["sizes"]["requests"]
    order = [*model.document["users"]["gpu_classes"], None]
    shares = np.array([r["share"] for r in requests], float)
    edges = tenants.classes.cumsum(axis=1)
    u = rng.random(tenants.index.size) * edges[tenants.index, -1]
    size_class = np.zeros(tenants.index.size, np.int64)
    for i in range(len(order) - 1):
        size_class += u >= edges[tenants.index, i]
    found = np.empty(tenants.index.size, np.int64)
    for i, name in enumerate(order):
        mine = np.flatnonzero(size_class == i)
        members = np.flatnonzero([r["gpu_class"] == name for r in requests])
        if not members.size:  # all requests of the class are too rare to be listed
            members = np.arange(len(requests))
        found[mine] = members[pick(shares[members], rng.random(mine.size))]
    chance = model.document["arrivals"]["batch"]["same_request_share"] if repeats is None else repeats
    return found[originals(tenants.copied & (rng.random(found.size) < chance))]


def draw_run_times(
    model: WorkloadModel,
    tenants: DrawnTenants,
    request: Ints,
    outcomes: Outcomes,
    rng: np.random.Generator,
    *,
    scores: Floats | None = None,
) -> Floats:
    """Draw the run time of each job [s], or NaN if it did not run.

    Each job has a normal score that is correlated with the score of its user's previous job and shifted to the ranks of
    its VC. The run time is the quantile, at that score, of the distribution fitted to the job's group. Jobs drawn in
    sessions already have scores. Pass them as `scores`, which is modified.
    """
    if scores is None:
        scores = _scores_of_users(model, tenants, rng)
    order_of = [*model.document["users"]["gpu_classes"], None]
    class_of = np.array([order_of.index(r["gpu_class"]) for r in model.document["sizes"]["requests"]])[request]
    _shift_to_vcs(model, tenants, scores, class_of)
    groups = model.document["statuses"]["groups"]
    sizes = [r["gpu_class"] for r in model.document["sizes"]["requests"]]
    found = np.full(scores.size, np.nan)
    distinct = list(dict.fromkeys(sizes))
    size_of = np.array([distinct.index(s) for s in sizes])[request]
    key = outcomes.group * len(distinct) + size_of
    key[~outcomes.ran] = len(groups) * len(distinct)
    order = _sorted(key)
    ends = np.concatenate([[0], np.bincount(key, minlength=len(groups) * len(distinct) + 1).cumsum()])
    for i in range(len(groups) * len(distinct)):
        mine = order[ends[i] : ends[i + 1]]
        if mine.size:
            group, size = divmod(i, len(distinct))
            found[mine] = durations_at(model, distinct[size], groups[group]["status"], scores[mine])
    return found


def _scores_of_users(model: WorkloadModel, tenants: DrawnTenants, rng: np.random.Generator) -> Floats:
    """Draw normal scores that are correlated between a user's successive jobs."""
    places: dict[str | None, int] = {}
    users = np.array([places.setdefault(name[0], len(places)) for name in tenants.names], np.int64)[tenants.index]
    scores = rng.standard_normal(users.size)
    rho = model.document["correlation"]["correlation"]
    if rho:
        rho = float(np.clip(rho, -0.99, 0.99))
        order = _sorted(users)
        noise = scores[order] * np.sqrt(1 - rho**2)
        noise[:1] /= np.sqrt(1 - rho**2)
        # One chain runs through all users, so each user's first job is correlated with another user's last job. This
        # changes neither a user's statistics nor the distribution of scores.
        scores[order] = _chained(noise, rho)
    return scores


def _sorted(numbers: Ints) -> Ints:
    """Return the stable sort order of small integers. 16-bit integers sort ten times faster."""
    small = numbers.astype(np.uint16) if numbers.size and numbers.max() < 2**16 else numbers
    return np.argsort(small, kind="stable")


def _chained(noise: Floats, rho: float) -> Floats:
    """Return y with y[t] = noise[t] + rho * y[t - 1]; each round doubles how far back the sums reach."""
    found, step = noise.copy(), 1
    while step < found.size and abs(rho) ** step > 1e-17:
        found[step:] += rho**step * found[:-step]
        step *= 2
    return found


_REACH = np.linspace(-8.0, 8.0, 801)


def _shift_to_vcs(model: WorkloadModel, tenants: DrawnTenants, scores: Floats, size_class: Ints) -> None:
    """Convert scores within a VC to scores among all jobs of the same size class, in place.

    The jobs of a VC keep their ranks from the log. The VCs of one class cover the ranks unevenly, so each class's
    scores are made normal again.
    """
    part = model.document["correlation"]
    if not part["vcs"]:
        return
    levels = np.asarray(part["levels"], float)
    rising = 1e-9 * np.arange(levels.size)
    places = {(v["cluster"], v["vc"]): np.asarray(v["scores"], float) + rising for v in part["vcs"]}
    vcs = [name[1:] for name in tenants.names]
    distinct = [vc for vc in dict.fromkeys(vcs) if vc in places]
    of_tenant = np.array([distinct.index(vc) if vc in places else -1 for vc in vcs])
    of_job = of_tenant[tenants.index]
    for i, vc in enumerate(distinct):
        mine = np.flatnonzero(of_job == i)
        scores[mine] = through(scores[mine], levels, places[vc])
    below = np.array([special.ndtr(through(_REACH, places[vc], levels)) for vc in distinct] + [special.ndtr(_REACH)])
    for i in range(tenants.classes.shape[1]):
        weight = np.bincount(of_tenant % below.shape[0], tenants.shares * tenants.classes[:, i], below.shape[0])
        if weight.sum() > 0:
            mixed = np.clip(weight @ below / weight.sum(), 1e-15, 1 - 1e-15)
            mine = np.flatnonzero(size_class == i)
            scores[mine] = np.interp(scores[mine], _REACH, special.ndtri(mixed))


def through(values: Floats, known: Floats, placed: Floats) -> Floats:
    """Map values as `known` maps to `placed`; values outside keep their distance from the nearest end."""
    inside = np.clip(values, known[0], known[-1])
    return np.interp(inside, known, placed) + (values - inside)


def durations_at(model: WorkloadModel, size: str | None, status: str | None, scores: Floats) -> Floats:
    """Return the run times [s] of jobs of a size class and status at given normal scores."""
    entry = _entry(model, size, status)
    shape, ratio = model.shape(entry)
    # Run times longer than any in the log are drawn only if jobs of the group and its pool were still running. Files
    # written by earlier versions do not record the number of these jobs for pooled groups.
    longest = min(
        longest_drawn(model.document["source"]["longest_s"], one["n"], one["right_censored"])
        for one in (entry, shape)
        if "right_censored" in one
    )
    step = shape["resolution_s"]
    drawn = drawn_durations(shape, longest / ratio, scores)
    return np.minimum(np.round(drawn * ratio / step) * step, longest)


def _entry(model: WorkloadModel, size: str | None, status: str | None) -> dict[str, Any]:
    """Return the entry for a size class and status, or else the first existing entry for class, status or all jobs."""
    for key in ({"gpu_class": size, "status": status}, {"gpu_class": size}, {"status": status}):
        if all(v is not None for v in key.values()):
            entry = model.run_time("until_end", **key)
            if entry is not None:
                return entry
    return model.whole
