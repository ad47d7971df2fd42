"""Search for the rules under which a replay waits as the log did.

Candidates are tried in stages, each from the best found so far: the order of jobs, backfilling, quotas and limits,
placement, capacity, and whether jobs start up with a delay. The stages are gone through again until a whole round finds
nothing better. A candidate replaces the best only where it is clearly nearer to the log, or as near and simpler.

Of a long log the candidates of a stage are tried on its first jobs, and only the nearest of them on the whole.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.calibration.candidates import STAGES
from tracekit.calibration.rules import Rules
from tracekit.calibration.waits import distance
from tracekit.calibration.workbench import Settings, Workbench
from tracekit.errors import UsageError
from tracekit.progress import Progress

if TYPE_CHECKING:
    from tracekit.shards.items import SharedItems

__all__ = ["Found", "Tried", "search"]

_GAIN = 0.02
"""A candidate has to be nearer to the log by so much of the distance, and by `_LEAST`, to replace a simpler one."""
_LEAST = 0.002
_ROUNDS = 3
_WORTH = 1.25
"""A candidate is not worth a replay of the whole where it is so many times as far on the excerpt as the best so far."""
_FINALISTS = 3
"""Candidates of a stage that are tried on the whole log, where there is an excerpt."""


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


def search(bench: Workbench, progress: Progress | None = None, shared: SharedItems | None = None) -> Found:
    """Return the candidate whose replay comes nearest to the log.

    Parameters
    ----------
    bench : Workbench
    progress : Progress, optional
        Told of every candidate.
    shared : SharedItems, optional
        Shards that try the candidates of a stage together.

    Raises
    ------
    UsageError
        No candidate can be replayed.
    """
    attempts = _Attempts(bench, progress or Progress(), shared)
    (best,) = attempts.on_all("order", [Settings(Rules(), next(iter(bench.clusters)), bool(bench.startup))])
    for _ in range(_ROUNDS):
        before = best.settings
        for stage, make in STAGES.items():
            finalists = attempts.finalists(stage, list(make(bench, best.settings)), best.settings)
            for candidate in attempts.on_all(stage, finalists):
                if _better(candidate, best):
                    best = candidate
        if best.settings == before:
            break
    if best.why_not is not None:
        raise UsageError(f"no replay of this log can be made: {best.why_not}")
    return Found(best.settings, tuple(attempts.known.values()))


class _Attempts:
    """Candidates that were tried, each once, on the whole log and on the excerpt."""

    def __init__(self, bench: Workbench, progress: Progress, shared: SharedItems | None) -> None:
        self._bench, self._excerpt, self._progress, self._shared = bench, bench.excerpt(), progress, shared
        self.known: dict[Settings, Tried] = {}
        self._screened: dict[Settings, Tried] = {}

    def on_all(self, stage: str, candidates: list[Settings]) -> list[Tried]:
        """Return how near candidates are over the whole log."""
        self._try(self._bench, stage, candidates, self.known)
        return [self.known[settings] for settings in candidates]

    def finalists(self, stage: str, candidates: list[Settings], best: Settings) -> list[Settings]:
        """Return the candidates of a stage that are worth a replay of the whole log, in their order.

        Without an excerpt these are all. With one, they are the nearest there, and none that is clearly further from
        the log there than the best so far.
        """
        if self._excerpt is None:
            return candidates
        self._try(self._excerpt, stage, [best, *candidates], self._screened)
        farthest = _WORTH * self._screened[best].distance + _LEAST
        near = [k for k, one in enumerate(candidates) if self._screened[one].distance <= farthest]
        order = sorted(near, key=lambda k: (self._screened[candidates[k]].distance, k))
        return [candidates[k] for k in sorted(order[:_FINALISTS])]

    def _try(self, bench: Workbench, stage: str, candidates: list[Settings], known: dict[Settings, Tried]) -> None:
        """Add to `known` the candidates that are not there, in their order."""
        new = [settings for settings in dict.fromkeys(candidates) if settings not in known]
        where = "" if bench is self._bench else " on an excerpt"

        def tried(settings: Settings) -> Tried:
            self._progress.stage(f"trying {stage}{where}: {settings.rules.words}")
            return _try(bench, stage, settings)

        def made(settings: Settings) -> dict[str, Any]:
            one = tried(settings)
            return {"distance": one.distance, "mean_s": one.mean_s, "never": one.never, "why_not": one.why_not}

        if self._shared is None:
            known.update((settings, tried(settings)) for settings in new)
            return
        # Which jobs are learnt from is part of what a candidate is: an excerpt and a part of the log have others.
        learnt = self._shared.among(learnt=blake2b(bench.among.tobytes(), digest_size=16).hexdigest())
        makers = {learnt.digest(settings=_facts(settings)): partial(made, settings) for settings in new}
        found = learnt.work.of(makers, f"candidates of the stage '{stage}'")
        known.update((settings, Tried(stage, settings, **one)) for settings, one in zip(new, found, strict=True))


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


def _facts(settings: Settings) -> dict[str, Any]:
    return {"rules": asdict(settings.rules), "capacity": settings.capacity, "delays": settings.delays}


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
