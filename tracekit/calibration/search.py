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
from urllib.parse import quote

import numpy as np

from tracekit.calibration.reasons import USER_GPUS, USER_JOBS, VC_GPUS, VC_JOBS, stage_shares
from tracekit.calibration.rules import (
    Backfill,
    Estimates,
    HoldingLimits,
    Order,
    Queues,
    Quotas,
    Rules,
    Scan,
    SiteSettings,
)
from tracekit.calibration.score import distance, job_distances
from tracekit.calibration.workbench import FEWEST_JOBS, SPANS, Settings, Workbench, may_be_site
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.jobs import gpus_of, in_time, with_others
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


_BEHIND: tuple[Literal["strict", "passing", "easy"], ...] = ("passing", "easy", "strict")
_OFTEN = 10
"""A limit is tried only if so many jobs waited while their owners would have exceeded it with them; our choice."""


def _site_limits(bench: Workbench, best: Rules) -> Iterator[Rules]:
    """Yield each set of limits that the log suggests, with each way to pass a job that cannot start."""
    if not may_be_site(bench.jobs):
        return
    base = _site_of(best)
    groups = _seen_limits(bench)
    sets: list[tuple[str, ...]] = [(), *(option for options in groups for option in options)]
    # All kinds of limits together, all but one, and each next to those found so far.
    together = [options[0] for options in groups]
    sets += [
        tuple(text for option in together if option is not left_out for text in option)
        for left_out in (None, *together)
    ]
    sets += [tuple(dict.fromkeys([*_site(base).limits, *option])) for option in sets[1:]]
    for limits in dict.fromkeys(sets):
        yield from _each_way(base, limits=limits)


def _site_orders(bench: Workbench, best: Rules) -> Iterator[Rules]:
    """Yield each order, and each partition as a tier that goes first, with each way to pass a job that cannot start."""
    if not may_be_site(bench.jobs):
        return
    base = _site_of(best)
    for order in _known_orders(bench):
        if order not in _PREEMPTIVE:
            for estimates in _estimates(bench.jobs) if order in {"shortest", "smallest"} else (base.estimates,):
                yield from _each_way(replace(base, order=order, estimates=estimates))
    known = bench.jobs.partitions
    for name in known if 1 < len(known) <= _MOST_TIERS else ():
        rest = tuple(other for other in _site(base).tiers if other != name)
        for tiers in dict.fromkeys([(name, *rest), (*rest, name), rest]):
            yield from _each_way(base, tiers=tiers)


def _site_preemption(bench: Workbench, best: Rules) -> Iterator[Rules]:
    """Yield the rules by which jobs may stop others that the log suggests, with each way to pass."""
    base = _site_of(best)
    for preempts in dict.fromkeys([(), *bench.stoppers]) if bench.stoppers else ():
        yield from _each_way(base, preempts=preempts)


_PREEMPTIVE = frozenset({"attained", "shortest-left"})
_MOST_TIERS = 8
"""With more partitions, tiers are not tried."""


def _each_way(rules: Rules, **changes: tuple[str, ...]) -> Iterator[Rules]:
    """Yield the rules of a site with other limits or tiers, in their order or by arrival, with each way to pass."""
    for one in dict.fromkeys((rules, replace(rules, order="arrival"))):
        for behind in _BEHIND:
            yield replace(one, site=replace(_site(one), behind=behind, **changes))


def _site_of(rules: Rules) -> Rules:
    """Return the rules of a site that are closest to other rules."""
    if rules.site is not None:
        return rules
    behind = "easy" if rules.backfill != "none" else "passing" if rules.scan == "skip" else "strict"
    order: Order = "arrival" if rules.order in _PREEMPTIVE else rules.order
    return Rules(order, estimates="limit", site=SiteSettings(behind=behind))  # type: ignore[arg-type]  # one of _BEHIND


def _site(rules: Rules) -> SiteSettings:
    return rules.site or SiteSettings()


def _seen_limits(bench: Workbench) -> list[list[tuple[str, ...]]]:
    """Return limits at which the owners of jobs waited again and again, in the form of the policy `site`.

    There is one list for the GPUs and one for the jobs of users and of VCs. It has a limit for all owners, if two of
    them waited at the same amount or no owner ever used more, and then the limit of each owner that waited.
    """
    jobs, places, _ = with_others(bench.jobs)
    # Others count until the last of the jobs to learn from was submitted.
    among = jobs.submit_ms <= int(bench.jobs.submit_ms[bench.among].max(initial=0))
    among[places] = bench.among
    found: list[list[tuple[str, ...]]] = []
    for per, codes, names in (("user", jobs.user, jobs.users), ("vc", jobs.tenant, jobs.tenants)):
        for of, amount in (("gpus", gpus_of(jobs) / 1000), ("jobs", np.ones(len(jobs)))):
            if len(names) < 2 or not _may_limit(bench, _FAMILIES[per, of]):
                continue
            seen = _waited_at(jobs, codes, among, amount)
            often = {owner: most for owner, (most, wanted) in seen.items() if _exceeding(wanted, most) >= _OFTEN}
            values = list(often.values())
            common = {most for most in values if values.count(most) > 1}
            highest = max((most for most, _ in seen.values()), default=0)
            if sum(_exceeding(wanted, highest) for _, wanted in seen.values()) >= _OFTEN:
                common.add(highest)
            options: list[tuple[str, ...]] = [(f"{per}:{of}:{most}",) for most in sorted(common)]
            if often:
                each = sorted(often.items())
                options.append(tuple(f"{per}:{quote(names[owner], safe='')}:{of}:{most}" for owner, most in each))
            if options:
                found.append(options)
    return found


def _exceeding(wanted: NDArray[np.float64], most: int) -> int:
    return int((wanted > most + 1e-6).sum())


_FAMILIES = {
    ("user", "gpus"): USER_GPUS,
    ("user", "jobs"): USER_JOBS,
    ("vc", "gpus"): VC_GPUS,
    ("vc", "jobs"): VC_JOBS,
}
"""The families of reasons that name a limit of a user or VC on GPUs or jobs."""


def _waited_at(
    jobs: Jobs, codes: NDArray[Any], among: NDArray[np.bool_], amount: NDArray[np.float64]
) -> dict[int, tuple[int, NDArray[np.float64]]]:
    """Return the most that each owner used, and for each of its waits what it would have used with the waiting job.

    The latter is taken in the middle of the wait.

    Parameters
    ----------
    jobs, codes, among
        As for `most_held_while_waiting`.
    amount : array of float, shape (n,)
        What each job uses while it runs.
    """
    known = among & (codes >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    known &= jobs.recorded_end_ms >= jobs.recorded_start_ms
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(codes[rows], kind="stable")]
    found: dict[int, tuple[int, NDArray[np.float64]]] = {}
    for own in np.split(rows, np.flatnonzero(np.diff(codes[rows])) + 1) if len(rows) else ():
        submit, start, end = jobs.submit_ms[own], jobs.recorded_start_ms[own], jobs.recorded_end_ms[own]
        most = float(in_time(np.concatenate([start, submit]), start, end, amount[own]).max(initial=0.0))
        waits = start > submit + _WAITED_MS
        wanted = in_time((submit + start) // 2, start, end, amount[own]) + amount[own]
        found[int(codes[own[0]])] = int(np.floor(most + 1e-6)), wanted[waits]
    return found


_WAITED_MS = 60_000
"""Shorter waits do not count as waits at a limit."""


_RULES: dict[str, Callable[[Workbench, Rules], Iterator[Rules]]] = {
    "order": _orders,
    "backfilling": _backfilling,
    "quotas and limits": _limits,
    "placement": _placements,
    "limits of a site": _site_limits,
    "order of a site": _site_orders,
    "preemption of a site": _site_preemption,
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
        # Waits caused by missing nodes resemble waits caused by another rule, so each capacity is tried with its own
        # rules.
        for other in ("stated", "events", "outages") if "events" in bench.clusters else ():
            if other != best.capacity and other in bench.clusters:
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


class Replays:
    """The candidates replayed so far, shared by searches that learn from different jobs of one log.

    Parameters
    ----------
    learnt : sequence of array of bool, shape (n,)
        The jobs from which each search learns.
    """

    def __init__(self, learnt: Sequence[NDArray[np.bool_]] = ()) -> None:
        self._learnt = learnt
        self._known: dict[tuple[str, Settings, tuple[Any, ...]], dict[str, Any]] = {}

    def tried(self, bench: Workbench, settings: Settings) -> dict[str, Any]:
        """Return the fields of `Tried` that follow from a replay, which is replayed only once."""
        delays = tuple(bench.startup.items()) if settings.delays else ()
        if (_digest(bench.among), settings, delays) not in self._known:
            found = _tried(bench, settings, [bench.among, *self._same_log(bench)])
            self._known |= {(name, settings, delays): one for name, one in found.items()}
        return self._known[_digest(bench.among), settings, delays]

    def _same_log(self, bench: Workbench) -> list[NDArray[np.bool_]]:
        """Return the sets of jobs for all the jobs of a workbench, which may be an excerpt."""
        return [among for among in self._learnt if len(among) == len(bench.jobs)]


def search(
    bench: Workbench, progress: Progress | None = None, ledger: Ledger | None = None, replays: Replays | None = None
) -> Found:
    """Return the candidate whose replay best reproduces the log.

    Parameters
    ----------
    bench : Workbench
    progress : Progress, optional
        Reports every candidate.
    ledger : Ledger, optional
        Ledger in which shards share the candidates of a stage. It already contains their common facts.
    replays : Replays, optional
        Replays of other searches in the same log.

    Raises
    ------
    UsageError
        No candidate can be replayed.
    """
    attempts = _Attempts(bench, progress or Progress(), ledger or Ledger(), replays or Replays())
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

    def __init__(self, bench: Workbench, progress: Progress, ledger: Ledger, replays: Replays) -> None:
        self._bench, self._excerpt, self._progress, self._ledger = bench, bench.excerpt(), progress, ledger
        self._replays = replays
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
            return self._replays.tried(bench, settings)

        # The jobs to learn from also identify a run, because they differ for an excerpt or a part of the log.
        ledger = self._ledger.about(learnt=_digest(bench.among), since=str(bench.jobs.origin))
        makers = {ledger.digest(settings=_facts(settings)): partial(made, settings) for settings in new}
        found = ledger.results(makers, f"candidates of the stage '{stage}'")
        known.update((settings, Tried(stage, settings, **one)) for settings, one in zip(new, found, strict=True))


def _tried(bench: Workbench, settings: Settings, learnt: list[NDArray[np.bool_]]) -> dict[str, dict[str, Any]]:
    """Replay the settings and return the resulting fields of `Tried`, by the digest of the jobs to learn from."""
    try:
        waits = bench.times(settings).queue_s
    except UsageError as error:
        why_not = {"distance": np.inf, "mean_s": np.nan, "never": 0, "why_not": error.what}
        return {_digest(among): why_not for among in learnt}
    recorded = bench.recorded_s
    known = ~np.isnan(recorded)
    filled = bench.at_least(waits)
    sums = np.bincount(bench.spans[known], job_distances(recorded[known], filled[known]), SPANS)
    found = {}
    for among in learnt:
        both = among & known
        never = int((both & np.isnan(waits)).sum())
        apart, mean_s = distance(recorded[both], filled[both]), float(filled[both].mean())
        one = {"distance": apart, "mean_s": mean_s, "never": never, "why_not": None, "by_span": sums.tolist()}
        found[_digest(among)] = one
    return found


def _digest(among: NDArray[np.bool_]) -> str:
    return blake2b(among.tobytes(), digest_size=16).hexdigest()


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
