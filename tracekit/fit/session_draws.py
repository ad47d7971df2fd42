"""Jobs drawn in sessions: when sessions start, how many jobs they have, and the gaps between these.

A session has one tenant. Normal scores of its gaps have a part that the whole session shares, so that a quick session
is quick throughout. What else its jobs have in common is drawn by `tracekit.fit.session_jobs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.fit.batch_draws import draw_batches
from tracekit.fit.job_draws import DrawnTenants, draw_tenants
from tracekit.fit.outcome_draws import Outcomes, outcomes_of, pick
from tracekit.fit.session_jobs import draw_together, shared_scores

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.model import WorkloadModel


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

    Parameters are those of `draw_batches`. A load of 2 has twice as many sessions, which are as long as before.
    """
    sessions = arrivals["sessions"]
    own = {**arrivals, **sessions["starts"], "sessions": None}
    sizes, shares = np.asarray(sessions["size"]["sizes"], np.int64), np.asarray(sessions["size"]["shares"], float)
    edges = shares.cumsum()

    def drawn(number: int) -> Whole:
        return sizes[np.searchsorted(edges[:-1] / edges[-1], rng.random(number), side="right")]

    if jobs is None:
        mean = own["batch"]["mean"] * sessions["size"]["mean"]  # of jobs: how many there may be is checked
        own = {**own, "batch": {**own["batch"], "mean": mean}}
        starts, _ = draw_batches(own, rng, jobs=None, days=days, load=load)
        return starts, drawn(starts.size)
    number = drawn(int(jobs / sessions["size"]["mean"] * _MORE) + 20)
    while number.sum() < jobs * _MORE:
        number = np.concatenate([number, drawn(number.size // 4 + 20)])
    number = number[: int(np.searchsorted(number.cumsum(), jobs * _MORE)) + 1]
    starts, _ = draw_batches(own, rng, jobs=number.size, days=None, load=load)
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
) -> Whole:
    """Return the submissions of jobs in sessions [s since 1970], rising, and nothing else of the jobs."""
    starts, sizes = session_starts(arrivals, rng, jobs=jobs, days=days, load=load)
    number = np.repeat(np.arange(starts.size), sizes)
    gap = session_gaps(arrivals["sessions"]["gaps"], number, rng) if number.size else np.zeros(0)
    seconds = np.sort(_seconds(starts, number, gap, arrivals["step_s"]))
    if days is not None:
        seconds = seconds[seconds < arrivals["start"] + days * 86_400]
    return seconds[:jobs]


def _seconds(starts: Whole, number: Whole, gap: Floats, step: float) -> Whole:
    """Return when each job is submitted, in steps of the log's clock."""
    passed = gap.cumsum()
    before = passed[np.flatnonzero(np.diff(number, prepend=-1))][number]
    found: Whole = (np.floor((starts[number] + passed - before) / step) * step).astype(np.int64)
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
        As `draw_batches`.
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


def _tenants(model: WorkloadModel, sessions: dict[str, Any], sizes: Whole, rng: np.random.Generator) -> DrawnTenants:
    """Return the tenant of each session: of the VCs that have sessions of like size, in a VC by the jobs of each."""
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
    """Return by how much the logarithm of a gap is above the mean of both kinds."""
    both = [after[n] for n in ("after_failure", "after_others")]
    if any(b["mean_log_gap"] is None for b in both):
        return 0.0
    weights = [b["jobs"] * b["follows"] for b in both]
    mean: float = sum(w * b["mean_log_gap"] for w, b in zip(weights, both, strict=True)) / sum(weights)
    return float(after[name]["mean_log_gap"]) - mean
