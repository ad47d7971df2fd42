"""Search for the rules with which the waits of a replay match those of the log.

Candidates are tried in stages, each starting from the best candidate so far: job order, backfilling, quotas and limits,
placement, capacity, and start-up delays. The stages are repeated until a whole round finds nothing better. A candidate
replaces the best one only if it is clearly closer to the log, or equally close and simpler.

For a long log, the candidates of a stage are tried on its first jobs, and only the closest of them are tried on the
whole log.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tracekit.calibration.delays import in_time
from tracekit.calibration.reasons import USER_GPUS, VC_GPUS, stage_shares
from tracekit.calibration.rules import Backfill, Estimates, HoldingLimits, Order, Queues, Quotas, Rules, Scan
from tracekit.calibration.score import distance, job_distances
from tracekit.calibration.workbench import FEWEST_JOBS, SPANS, Settings, Workbench
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.jobs import gpus_of
from tracekit.runs.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs


def most_held_while_waiting(
    jobs: Jobs, codes: NDArray[Any], among: NDArray[np.bool_], named: NDArray[np.bool_] | None = None
) -> int:
    """Return the most GPUs that one owner used while its job waited, or 0 if no owner waited while using GPUs.

    A limit cannot be lower than this value. If the limit often holds jobs back, it equals this value.

    Parameters
    ----------
    jobs : Jobs
        Jobs with recorded starts and ends.
    codes : array of int, shape (n,)
        The owner of each job, such as `Jobs.user`, or -1 if the owner is unknown.
    among : array of bool, shape (n,)
        Jobs to learn from.
    named : array of bool, shape (n,), optional
        Jobs that waited for the limit. By default, any job may have waited for it.
    """
    size = gpus_of(jobs) / 1000
    known = among & (codes >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    known &= jobs.recorded_end_ms >= jobs.recorded_start_ms
    rows = np.flatnonzero(known)
    if not len(rows):
        return 0
    rows = rows[np.argsort(codes[rows], kind="stable")]
    most = 0.0
    for own in np.split(rows, np.flatnonzero(np.diff(codes[rows])) + 1):
        submit, start, end = jobs.submit_ms[own], jobs.recorded_start_ms[own], jobs.recorded_end_ms[own]
        waits = start > submit if named is None else (start > submit) & named[own]
        if not waits.any():
            continue
        # Usage can peak only right after a start, and a job's wait lasts until just before its own start.
        moments = np.concatenate([start, submit])
        held = in_time(moments, start, end, size[own])
        waiting = in_time(moments, submit[waits], start[waits], np.ones(int(waits.sum())))
        most = max(most, float(held[waiting > 0].max(initial=0.0)))
    return int(np.floor(most + 1e-6))


_SCANS: tuple[Scan, ...] = ("stop", "skip")
_QUOTAS: tuple[Quotas, ...] = ("limits", "idle", "reclaim")
_ORACLE: tuple[Estimates, ...] = ("oracle",)
_HALF_LIVES_S = (0.0, 86_400.0, 604_800.0)
_BACKFILLS: tuple[Backfill, ...] = ("easy", "conservative")
_FITS: tuple[Literal["place", "count"], ...] = ("place", "count")
_PLACEMENTS = ("worst-fit", "first-fit")
_RELAX_S = (60.0, 600.0, 3600.0)
"""The values that candidates try in addition to the defaults."""


def _orders(bench: Workbench, best: Rules) -> Iterator[Rules]:
    rules = replace(best, backfill="none", limits=HoldingLimits())
    if not rules.partitioned:
        rules = replace(rules, quotas="none")
    for queues in _queues(bench.jobs):
        yield replace(_plain(rules), queues=queues)
    rules = replace(rules, queues="one")
    for order in _known_orders(bench):
        for scan in _SCANS:
            for estimates in _estimates(bench.jobs) if order in {"shortest", "smallest"} else _ORACLE:
                for half in _HALF_LIVES_S if order.startswith("fair-share") else (0.0,):
                    yield _clean(replace(rules, order=order, scan=scan, estimates=estimates, half_life_s=half))


def _known_orders(bench: Workbench) -> list[Order]:
    """Return the orders for which the log has the necessary data."""
    jobs = bench.jobs
    orders: list[Order] = ["arrival"]
    if len(np.unique(jobs.priority)) > 1:
        orders.append("priority")
    if len(jobs.tenants) > 1:
        orders.append("fair-share-vc")
    if len(jobs.users) > 1:
        orders.append("fair-share-user")
    orders += ["shortest", "smallest"]
    if bench.preempts:
        orders += ["attained", "shortest-left"]
    return orders


def _queues(jobs: Jobs) -> Iterator[Queues]:
    if len(jobs.tenants) > 1:
        yield "vc"
    if len(jobs.partitions) > 1:
        yield "partition"


def _plain(rules: Rules) -> Rules:
    """Return rules with one queue in submission order that keep their quotas, limits and placement."""
    return replace(
        rules,
        order="arrival",
        scan="stop",
        queues="one",
        backfill="none",
        estimates="oracle",
        half_life_s=0.0,
        relax_s=0.0,
    )


def _clean(rules: Rules) -> Rules:
    """Return the rules without the settings that are incompatible with their order."""
    return replace(rules, relax_s=0.0) if rules.fault() else rules


def _estimates(jobs: Jobs) -> tuple[Estimates, ...]:
    return ("limit", "oracle") if (jobs.limit_ms >= 0).any() else _ORACLE


def _backfilling(bench: Workbench, best: Rules) -> Iterator[Rules]:
    if best.limits or best.quotas not in {"none", "partitions"}:
        return
    plain = replace(_plain(best), relax_s=best.relax_s)
    bases = [plain, replace(plain, order="priority")] if len(np.unique(bench.jobs.priority)) > 1 else [plain]
    for base in bases:
        for kind in _BACKFILLS:
            for estimates in _estimates(bench.jobs):
                yield replace(base, backfill=kind, estimates=estimates)


def _limits(bench: Workbench, best: Rules) -> Iterator[Rules]:
    jobs = bench.jobs
    unlimited = replace(best, quotas="none", limits=HoldingLimits())
    if best != unlimited:
        yield unlimited
    if len(jobs.tenants) > 1:
        for scan in _SCANS:
            yield replace(unlimited, quotas="partitions", scan=scan, backfill="none")
        yield replace(unlimited, quotas="partitions")
    of_vc = len(jobs.tenants) > 1 and _may_limit(bench, VC_GPUS)
    of_user = len(jobs.users) > 1 and _may_limit(bench, USER_GPUS)
    for scan in _SCANS:
        base = replace(_plain(unlimited), scan=scan)
        if of_vc:
            for quotas in _QUOTAS:
                yield replace(base, quotas=quotas)
            if most := _most_held(bench, VC_GPUS, jobs.tenant):
                yield replace(base, limits=HoldingLimits(vc_gpus=most))
        if of_user and (most := _most_held(bench, USER_GPUS, jobs.user)):
            yield replace(base, limits=HoldingLimits(user_gpus=most))


def _may_limit(bench: Workbench, family: str) -> bool:
    """Return whether the log may come from a scheduler with limits of a family.

    If the log names the reasons of enough jobs, it also names those limits that hold jobs back.
    """
    reasons = bench.reasons
    if reasons is None or int((reasons.words.is_not_null().to_numpy() & bench.among).sum()) < FEWEST_JOBS:
        return True
    return bool((reasons.naming(family) & bench.among).any())


def _most_held(bench: Workbench, family: str, codes: NDArray[Any]) -> int:
    """Return the limit that the jobs to learn from suggest, or 0 if they suggest none."""
    named = None if bench.reasons is None else bench.reasons.naming(family)
    if named is not None and not (named & bench.among).any():
        named = None
    return most_held_while_waiting(bench.jobs, codes, bench.among, named)


def _placements(_: Workbench, best: Rules) -> Iterator[Rules]:
    for fit in _FITS:
        yield replace(best, fit=fit, placement="consolidate", relax_s=0.0)
    for name in _PLACEMENTS:
        yield replace(best, placement=name, fit="place", relax_s=0.0)
    for relax in _RELAX_S:
        changed = replace(best, relax_s=relax, fit="place")
        if changed.fault() is None:
            yield changed


_RULES: dict[str, Callable[[Workbench, Rules], Iterator[Rules]]] = {
    "order": _orders,
    "backfilling": _backfilling,
    "quotas and limits": _limits,
    "placement": _placements,
}
"""The stages that try rules, in order."""
_STAGES = (*_RULES, "capacity", "start-up delay")


def _stages(bench: Workbench) -> list[str]:
    """Return the stages in the order in which they are tried: first those for which the log gives the most waiting."""
    if bench.reasons is None:
        return list(_STAGES)
    shares = stage_shares(bench.reasons.summed(np.where(bench.among, bench.recorded_s, np.nan)))
    return sorted(_STAGES, key=lambda stage: -shares.get(stage, 0.0))


def _candidates(stage: str, bench: Workbench, best: Settings) -> Iterator[Settings]:
    """Yield the candidates of a stage. Each candidate changes one setting of the best settings so far."""
    if stage in _RULES:
        yield from (best._replace(rules=rules) for rules in _RULES[stage](bench, best.rules))
    elif stage == "capacity":
        yield from (best._replace(capacity=name) for name in bench.clusters)
        if "events" in bench.clusters:
            # Waits caused by missing nodes resemble waits caused by another rule, so each capacity is tried with
            # its own rules.
            other = "stated" if best.capacity == "events" else "events"
            yield from _candidates("order", bench, best._replace(capacity=other, rules=Rules()))
    elif bench.startup:
        yield best._replace(delays=not best.delays)


_GAIN = 0.02
"""A candidate replaces a simpler one only if it is closer to the log by this share of the distance plus `_LEAST`."""
_LEAST = 0.002
_ROUNDS = 3
_WORTH = 1.25
"""A candidate is not tried on the whole log if its distance on the excerpt exceeds the best distance by this factor."""
_FINALISTS = 3
"""Maximum number of candidates per stage that are tried on the whole log if there is an excerpt."""


class Tried(NamedTuple):
    """A candidate that was replayed."""

    stage: str
    settings: Settings
    distance: float
    """Distance from the log over the jobs to learn from (see `score.distance`)."""
    mean_s: float
    """Mean wait of the jobs to learn from in the replay [s]."""
    never: int
    """Number of jobs that started in the log but never start in the replay."""
    why_not: str | None = None
    """Reason why the candidate could not be replayed."""
    by_span: Sequence[float] = ()
    """Sum of `score.job_distances` over all jobs submitted in each of `Workbench.spans`; empty if not replayed."""


class Found(NamedTuple):
    """The result of a search."""

    best: Settings
    tried: tuple[Tried, ...]
    """The tried candidates, in order."""


def search(bench: Workbench, progress: Progress | None = None, ledger: Ledger | None = None) -> Found:
    """Return the candidate whose replay best reproduces the log.

    Parameters
    ----------
    bench : Workbench
    progress : Progress, optional
        Reports every candidate.
    ledger : Ledger, optional
        Ledger in which shards share the candidates of a stage. It already contains their common facts.

    Raises
    ------
    UsageError
        No candidate can be replayed.
    """
    attempts = _Attempts(bench, progress or Progress(), ledger or Ledger())
    stages = _stages(bench)
    (best,) = attempts.on_all("order", [Settings(Rules(), next(iter(bench.clusters)), bool(bench.startup))])
    for _ in range(_ROUNDS):
        before = best.settings
        for stage in stages:
            finalists = attempts.finalists(stage, list(_candidates(stage, bench, best.settings)), best.settings)
            for candidate in attempts.on_all(stage, finalists):
                if _better(candidate, best):
                    best = candidate
        if best.settings == before:
            break
    if best.why_not is not None:
        raise UsageError(f"this log cannot be replayed: {best.why_not}")
    return Found(best.settings, tuple(attempts.known.values()))


class _Attempts:
    """The candidates tried so far on the whole log and on the excerpt. Each is tried only once."""

    def __init__(self, bench: Workbench, progress: Progress, ledger: Ledger) -> None:
        self._bench, self._excerpt, self._progress, self._ledger = bench, bench.excerpt(), progress, ledger
        self.known: dict[Settings, Tried] = {}
        self._screened: dict[Settings, Tried] = {}

    def on_all(self, stage: str, candidates: list[Settings]) -> list[Tried]:
        """Try the candidates on the whole log and return the results."""
        self._try(self._bench, stage, candidates, self.known)
        return [self.known[settings] for settings in candidates]

    def finalists(self, stage: str, candidates: list[Settings], best: Settings) -> list[Settings]:
        """Return the candidates of a stage that are worth a replay of the whole log, in their given order.

        Without an excerpt, these are all the candidates. With an excerpt, they are the candidates closest to the log on
        the excerpt, except those that are clearly worse there than the best so far.
        """
        if self._excerpt is None:
            return candidates
        self._try(self._excerpt, stage, [best, *candidates], self._screened)
        farthest = _WORTH * self._screened[best].distance + _LEAST
        near = [k for k, one in enumerate(candidates) if self._screened[one].distance <= farthest]
        order = sorted(near, key=lambda k: (self._screened[candidates[k]].distance, k))
        return [candidates[k] for k in sorted(order[:_FINALISTS])]

    def _try(self, bench: Workbench, stage: str, candidates: list[Settings], known: dict[Settings, Tried]) -> None:
        """Try the candidates that are not in `known`, in order, and add their results to it."""
        new = [settings for settings in dict.fromkeys(candidates) if settings not in known]
        where = "" if bench is self._bench else " on an excerpt"

        def made(settings: Settings) -> dict[str, Any]:
            self._progress.stage(f"trying {stage}{where}: {settings.rules.words()}")
            return _tried(bench, settings)

        # The jobs to learn from also identify a run, because they differ for an excerpt or a part of the log.
        learnt = blake2b(bench.among.tobytes(), digest_size=16).hexdigest()
        ledger = self._ledger.about(learnt=learnt, since=str(bench.jobs.origin))
        makers = {ledger.digest(settings=_facts(settings)): partial(made, settings) for settings in new}
        found = ledger.results(makers, f"candidates of the stage '{stage}'")
        known.update((settings, Tried(stage, settings, **one)) for settings, one in zip(new, found, strict=True))


def _tried(bench: Workbench, settings: Settings) -> dict[str, Any]:
    """Replay the settings and return the resulting fields of `Tried`."""
    try:
        waits = bench.times(settings).queue_s
    except UsageError as error:
        return {"distance": np.inf, "mean_s": np.nan, "never": 0, "why_not": error.what}
    recorded = bench.recorded_s
    known = ~np.isnan(recorded)
    both = bench.among & known
    never = int((both & np.isnan(waits)).sum())
    filled = bench.at_least(waits)
    apart, mean = distance(recorded[both], filled[both]), float(filled[both].mean())
    sums = np.bincount(bench.spans[known], job_distances(recorded[known], filled[known]), SPANS)
    return {"distance": apart, "mean_s": mean, "never": never, "why_not": None, "by_span": sums.tolist()}


def _facts(settings: Settings) -> dict[str, Any]:
    return {"rules": asdict(settings.rules), "capacity": settings.capacity, "delays": settings.delays}


def _better(candidate: Tried, best: Tried) -> bool:
    """Return whether a candidate is better than the best so far. If it is not simpler, it must be clearly closer."""
    if np.inf in (candidate.distance, best.distance):
        return candidate.distance < best.distance
    gain = best.distance - candidate.distance
    margin = _LEAST + _GAIN * best.distance
    simpler = _complexity(candidate.settings) < _complexity(best.settings)
    return gain > (-margin if simpler else margin)


def _complexity(settings: Settings) -> int:
    return settings.rules.complexity + settings.delays
