"""Draw how synthetic jobs end: status, whether they ran, attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.model import WorkloadModel


def pick(shares: Floats, u: Floats) -> Whole:
    """Return the index of the share that each number in [0, 1) falls into, in their cumulative sum."""
    edges = shares.cumsum()
    found: Whole = np.searchsorted(edges[:-1] / edges[-1], u, side="right")
    return found


@dataclass(frozen=True)
class Outcomes:
    """How each job ends."""

    group: Whole
    """Place in `statuses.groups`."""
    ran: NDArray[np.bool_]
    attempts: Whole
    """0 for a job that did not run."""


def draw_outcomes(model: WorkloadModel, request: Whole, rng: np.random.Generator) -> Outcomes:
    """Return how each job ends, by the statuses of its size class."""
    return outcomes_of(model, draw_groups(model, request, rng), rng)


def draw_groups(
    model: WorkloadModel,
    request: Whole,
    rng: np.random.Generator,
    *,
    failing: NDArray[np.bool_] | None = None,
    odds: Floats | None = None,
) -> Whole:
    """Return the place of each job's status in `statuses.groups`, by the statuses of its size class.

    Parameters
    ----------
    failing : array (groups,), optional
        Which groups are failures.
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
        if not members.size:  # every job of the class still ran
            members = np.arange(len(groups))
        shares = np.array([groups[m]["jobs"] for m in members], float)
        u = rng.random(mine.size)
        if odds is not None and failing is not None and 0 < (bad := shares[failing[members]].sum() / shares.sum()) < 1:
            # Failures first, so that a number below their share is a failure; that share is stretched to each job's.
            members, shares = (x[np.argsort(~failing[members], kind="stable")] for x in (members, shares))
            limit = np.clip(bad * odds[mine], 0.0, 1.0)
            u = np.where(
                u < limit,
                u / np.maximum(limit, 1e-12) * bad,
                bad + (u - limit) / np.maximum(1 - limit, 1e-12) * (1 - bad),
            )
        group[mine] = members[pick(shares, u)]
    return group


def outcomes_of(model: WorkloadModel, group: Whole, rng: np.random.Generator) -> Outcomes:
    """Return how each job of a status group ends: whether it ran, and in how many attempts."""
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
