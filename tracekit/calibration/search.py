"""Search for the rules under which a replay waits as the log did.

Candidates are tried in stages, each from the best found so far: the order of jobs, backfilling, quotas and limits,
placement, capacity, and whether jobs start up with a delay. The stages are gone through again until a whole round finds
nothing better. A candidate replaces the best only where it is clearly nearer to the log, or as near and simpler.

Of a long log the candidates of a stage are tried on its first jobs, and only the nearest of them on the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.calibration.delays import delays_of_jobs, startup_delays
from tracekit.calibration.limits import most_held_while_waiting
from tracekit.calibration.rules import Estimates, Limits, Order, Quotas, Rules, Scan
from tracekit.calibration.waits import AGREE_S, distance
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

__all__ = ["Found", "Settings", "Tried", "Workbench", "search"]

_GAIN = 0.02
"""A candidate has to be nearer to the log by so much of the distance, and by `_LEAST`, to replace a simpler one."""
_LEAST = 0.002
_ROUNDS = 3
_EXCERPT, _WAITED = 20_000, 1000
"""Jobs of an excerpt at the least, and how many of them have to have waited longer than `AGREE_S`."""
_WORTH = 1.25
"""A candidate is not worth a replay of the whole where it is so many times as far on the excerpt as the best so far."""
_FINALISTS = 3
"""Candidates of a stage that are tried on the whole log, where there is an excerpt."""
_SCANS: tuple[Scan, ...] = ("stop", "skip")
_QUOTAS: tuple[Quotas, ...] = ("limits", "idle", "reclaim")
_ORACLE: tuple[Estimates, ...] = ("oracle",)
_HALF_LIVES_S = (0.0, 86_400.0, 604_800.0)
_PLACEMENTS = ("worst-fit", "first-fit")
_RELAX_S = (60.0, 600.0, 3600.0)
"""The values of settings that candidates have, beside the defaults."""


class Settings(NamedTuple):
    """One candidate."""

    rules: Rules
    capacity: str
    """A name of `Workbench.clusters`."""
    delays: bool
    """Whether jobs start up with a delay."""


@dataclass
class Workbench:
    """The jobs of one cluster, what they may have run on, and what was tried on them."""

    jobs: Jobs
    """With recorded starts."""
    clusters: Mapping[str, Callable[[bool], Cluster]]
    """Makes the cluster, in one piece or with nodes for each VC, by the name of where its capacity comes from. The
    first is what the source states."""
    among: Bools
    """Jobs to learn from: those of the first part of the log whose start is known (n,)."""
    held_ms: Ints | None = None
    """From submission to eligibility by the log [ms]; None where it tells no holds (n,)."""
    models: Models = field(default_factory=lambda: load_models(None))
    seed: int = 0
    delays: dict[str, tuple[float, ...]] | None = None
    """Start-up delays by size of gang [s]; None reads them from the jobs to learn from."""
    made: dict[tuple[str, bool], Cluster] = field(default_factory=dict)
    """Clusters that were asked for already, by capacity and whether each VC has nodes of its own."""

    def cluster(self, settings: Settings) -> Cluster:
        """Return the cluster of a candidate."""
        key = (settings.capacity, settings.rules.partitioned)
        if key not in self.made:
            self.made[key] = self.clusters[settings.capacity](settings.rules.partitioned)
        return self.made[key]

    @property
    def startup(self) -> dict[str, tuple[float, ...]]:
        """Start-up delays by size of gang [s]."""
        if self.delays is None:
            gpus = next(iter(self.clusters.values()))(False).total_gpus
            self.delays = startup_delays(self.jobs, gpus, self.among)
        return self.delays

    def excerpt(self) -> Workbench | None:
        """Return the first jobs to learn from, enough of which waited; None where these are most of them.

        The log begins with them, so that a replay of them alone meets the cluster as the log did.
        """
        learn = np.flatnonzero(self.among)
        waited = np.cumsum(np.nan_to_num(self.recorded_s[learn]) > AGREE_S)
        enough = max(_EXCERPT, int(np.searchsorted(waited, _WAITED)) + 1)
        if enough >= len(learn) / 2:
            return None
        rows = np.arange(learn[enough - 1] + 1)
        held = None if self.held_ms is None else self.held_ms[rows]
        return replace(self, jobs=self.jobs.rows(rows), among=self.among[rows], held_ms=held, delays=self.startup)

    def held_back(self, *, delays: bool) -> tuple[Jobs, Ints]:
        """Return the jobs as they compete for GPUs, and the place of each in `jobs`."""
        held = np.zeros(len(self.jobs), np.int64) if self.held_ms is None else self.held_ms
        if delays:
            held = held + delays_of_jobs(self.jobs, self.startup, self.seed)
        return self.jobs.held_back(held)

    def replay(self, settings: Settings, policy: str | None = None) -> tuple[Outcome, Ints]:
        """Return the schedule under a candidate, or under another policy in its place, and whose rows these are.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        from tracekit.replay.engine.run import simulate

        rules = settings.rules
        jobs, order = self.held_back(delays=settings.delays)
        cluster = self.cluster(settings)
        chosen = named_policy(policy or rules.policy)
        mechanism = chosen.mechanism(jobs, cluster, self.models, self.seed)
        outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism, name=chosen.label, rule=rules.placement)
        return outcome, order

    def waits_s(self, settings: Settings, policy: str | None = None) -> NDArray[np.float64]:
        """Return first start minus submission of each of `jobs` [s]; NaN where it never starts (n,)."""
        outcome, order = self.replay(settings, policy)
        start = np.empty(len(self.jobs), np.int64)
        start[order] = outcome.first_start_ms
        return np.where(start >= 0, (start - self.jobs.submit_ms) / 1000, np.nan)

    @property
    def recorded_s(self) -> NDArray[np.float64]:
        """First start minus submission by the log [s]; NaN unknown (n,)."""
        wait = (self.jobs.recorded_start_ms - self.jobs.submit_ms) / 1000
        return np.where(self.jobs.recorded_start_ms >= self.jobs.submit_ms, wait, np.nan)


class Tried(NamedTuple):
    """A candidate that was replayed."""

    stage: str
    settings: Settings
    distance: float
    """How far from the log it is, over the jobs to learn from (see `waits.distance`)."""
    mean_s: float
    """Its mean wait over these jobs [s]."""
    never: int
    """Jobs that started in the log and never start here."""
    why_not: str | None = None
    """Why it could not be replayed."""


class Found(NamedTuple):
    """What a search found."""

    best: Settings
    tried: tuple[Tried, ...]
    """In the order in which they were tried."""


def search(bench: Workbench, progress: Progress | None = None) -> Found:
    """Return the candidate whose replay comes nearest to the log.

    Raises
    ------
    UsageError
        No candidate can be replayed.
    """
    attempts = _Attempts(bench, progress or Progress())
    best = attempts.on_all("order", Settings(Rules(), next(iter(bench.clusters)), bool(bench.startup)))
    for _ in range(_ROUNDS):
        before = best.settings
        for stage, make in _STAGES.items():
            for settings in attempts.finalists(stage, list(make(bench, best.settings)), best.settings):
                candidate = attempts.on_all(stage, settings)
                if _better(candidate, best):
                    best = candidate
        if best.settings == before:
            break
    if best.why_not is not None:
        raise UsageError(f"no replay of this log can be made: {best.why_not}")
    return Found(best.settings, tuple(attempts.known.values()))


class _Attempts:
    """Candidates that were tried, each once, on the whole log and on the excerpt."""

    def __init__(self, bench: Workbench, progress: Progress) -> None:
        self._bench, self._excerpt, self._progress = bench, bench.excerpt(), progress
        self.known: dict[Settings, Tried] = {}
        self._screened: dict[Settings, Tried] = {}

    def on_all(self, stage: str, settings: Settings) -> Tried:
        """Return how near a candidate is over the whole log."""
        if settings not in self.known:
            self._progress.stage(f"trying {stage}: {settings.rules.words}")
            self.known[settings] = _try(self._bench, stage, settings)
        return self.known[settings]

    def finalists(self, stage: str, candidates: list[Settings], best: Settings) -> list[Settings]:
        """Return the candidates of a stage that are worth a replay of the whole log, in their order.

        Without an excerpt these are all. With one, they are the nearest there, and none that is clearly further from
        the log there than the best so far.
        """
        if self._excerpt is None:
            return candidates
        for settings in (best, *candidates):
            if settings not in self._screened:
                self._progress.stage(f"trying {stage} on an excerpt: {settings.rules.words}")
                self._screened[settings] = _try(self._excerpt, stage, settings)
        farthest = _WORTH * self._screened[best].distance + _LEAST
        near = [k for k, one in enumerate(candidates) if self._screened[one].distance <= farthest]
        order = sorted(near, key=lambda k: (self._screened[candidates[k]].distance, k))
        return [candidates[k] for k in sorted(order[:_FINALISTS])]


def _try(bench: Workbench, stage: str, settings: Settings) -> Tried:
    try:
        waits = bench.waits_s(settings)
    except UsageError as error:
        return Tried(stage, settings, np.inf, np.nan, 0, error.what)
    recorded = bench.recorded_s
    both = bench.among & ~np.isnan(recorded)
    never = int((both & np.isnan(waits)).sum())
    # A job that never starts waits until the log ends, at the least.
    last = float(bench.jobs.submit_ms.max()) / 1000
    filled = np.where(np.isnan(waits), np.maximum(last - bench.jobs.submit_ms / 1000, 0.0), waits)
    return Tried(stage, settings, distance(recorded[both], filled[both]), float(filled[both].mean()), never)


def _better(candidate: Tried, best: Tried) -> bool:
    """Return whether a candidate is nearer than the best, clearly so where it is the more complicated one."""
    if np.inf in (candidate.distance, best.distance):
        return candidate.distance < best.distance
    gain = best.distance - candidate.distance
    margin = _LEAST + _GAIN * best.distance
    simpler = _complexity(candidate.settings) < _complexity(best.settings)
    return gain > (-margin if simpler else margin)


def _complexity(settings: Settings) -> int:
    return settings.rules.complexity + settings.delays


def _orders(bench: Workbench, best: Settings) -> Iterator[Settings]:
    jobs, rules = bench.jobs, replace(best.rules, backfill="none", limits=Limits())
    if not rules.partitioned:
        rules = replace(rules, quotas="none")
    orders: list[Order] = ["arrival"]
    if len(np.unique(jobs.priority)) > 1:
        orders.append("priority")
    if len(jobs.tenants) > 1:
        orders.append("fair-share-vc")
    if len(jobs.users) > 1:
        orders.append("fair-share-user")
    orders += ["shortest", "smallest"]
    for order in orders:
        for scan in _SCANS:
            for estimates in _estimates(jobs) if order in {"shortest", "smallest"} else _ORACLE:
                halves = _HALF_LIVES_S if order.startswith("fair-share") else (0.0,)
                for half in halves:
                    yield best._replace(
                        rules=_clean(replace(rules, order=order, scan=scan, estimates=estimates, half_life_s=half))
                    )


def _clean(rules: Rules) -> Rules:
    """Return rules without settings that their order does not go with."""
    return replace(rules, relax_s=0.0) if rules.fault() else rules


def _estimates(jobs: Jobs) -> tuple[Estimates, ...]:
    return ("limit", "oracle") if (jobs.limit_ms >= 0).any() else ("oracle",)


def _backfilling(bench: Workbench, best: Settings) -> Iterator[Settings]:
    rules = best.rules
    if rules.limits or rules.quotas not in {"none", "partitions"}:
        return
    plain = replace(rules, order="arrival", scan="stop", half_life_s=0.0)
    bases = [plain, replace(plain, order="priority")] if len(np.unique(bench.jobs.priority)) > 1 else [plain]
    for base in bases:
        for kind in ("easy", "conservative"):
            for estimates in _estimates(bench.jobs):
                yield best._replace(rules=replace(base, backfill=kind, estimates=estimates))


def _limits(bench: Workbench, best: Settings) -> Iterator[Settings]:
    jobs, rules = bench.jobs, best.rules
    unlimited = replace(rules, quotas="none", limits=Limits())
    if rules != unlimited:
        yield best._replace(rules=unlimited)
    if len(jobs.tenants) > 1:
        for scan in _SCANS:
            yield best._replace(rules=replace(unlimited, quotas="partitions", scan=scan, backfill="none"))
        yield best._replace(rules=replace(unlimited, quotas="partitions"))
    plain = replace(
        unlimited, order="arrival", backfill="none", estimates="oracle", half_life_s=0.0, relax_s=0.0, scan="skip"
    )
    for scan in _SCANS:
        base = replace(plain, scan=scan)
        if len(jobs.tenants) > 1:
            for quotas in _QUOTAS:
                yield best._replace(rules=replace(base, quotas=quotas))
            most = most_held_while_waiting(jobs, jobs.tenant, bench.among)
            if most:
                yield best._replace(rules=replace(base, limits=Limits(vc_gpus=most)))
        if len(jobs.users) > 1:
            most = most_held_while_waiting(jobs, jobs.user, bench.among)
            if most:
                yield best._replace(rules=replace(base, limits=Limits(user_gpus=most)))


def _placements(_: Workbench, best: Settings) -> Iterator[Settings]:
    rules = best.rules
    for fit in ("place", "count"):
        yield best._replace(rules=replace(rules, fit=fit, placement="consolidate", relax_s=0.0))
    for name in _PLACEMENTS:
        yield best._replace(rules=replace(rules, placement=name, fit="place", relax_s=0.0))
    for relax in _RELAX_S:
        changed = replace(rules, relax_s=relax, fit="place")
        if changed.fault() is None:
            yield best._replace(rules=changed)


def _capacities(bench: Workbench, best: Settings) -> Iterator[Settings]:
    for name in bench.clusters:
        yield best._replace(capacity=name)


def _delays(bench: Workbench, best: Settings) -> Iterator[Settings]:
    if bench.startup:
        yield best._replace(delays=not best.delays)


_STAGES: dict[str, Callable[[Workbench, Settings], Iterator[Settings]]] = {
    "order": _orders,
    "backfilling": _backfilling,
    "quotas and limits": _limits,
    "placement": _placements,
    "capacity": _capacities,
    "start-up delay": _delays,
}
"""The stages in their order."""
