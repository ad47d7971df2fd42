"""Replays of a plan: every resample on every capacity, in this process or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracekit.capacity_plan.processes import ReplayProcesses
from tracekit.replay.sweeps.digests import policy_facts
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from tracekit.capacity_plan.basis import PlanBasis, PlannedRun
    from tracekit.progress import Progress
    from tracekit.shards.items import SharedItems

    Floats = NDArray[np.float64]

__all__ = ["PlanReplays"]


class PlanReplays:
    """Carries out runs, each once over all resamples; use it as a context.

    Parameters
    ----------
    basis : PlanBasis
    resamples : int
        How many.
    workers : int
        Processes; 1 replays in this one.
    progress : Progress
        Told of every resample.
    shared : SharedItems, optional
        Shards that share out the resamples of each step of the plan.
    """

    def __init__(
        self,
        basis: PlanBasis,
        resamples: int,
        workers: int,
        progress: Progress,
        shared: SharedItems | None = None,
    ) -> None:
        self._basis, self._resamples, self._workers, self._progress = basis, resamples, workers, progress
        self._shared = shared
        self._known: dict[PlannedRun, Floats] = {}
        self._processes: ReplayProcesses | None = None

    def __enter__(self) -> Self:
        if self._workers > 1:
            self._processes = ReplayProcesses(self._basis, min(self._workers, self._resamples))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._processes is not None:
            self._processes.stop()

    def of(self, runs: Iterable[PlannedRun]) -> dict[PlannedRun, Floats]:
        """Return the `FIGURES` of each run by resample (R, figures).

        Raises
        ------
        UsageError
            A policy cannot run on these jobs, or a process ended before its work was done.
        UnfinishedError
            Shards share the resamples, some of which are missing, and this process only gathers.
        """
        asked = list(dict.fromkeys(runs))
        missing = sorted((r for r in asked if r not in self._known), key=lambda r: r.growth)
        if missing:
            self._progress.stage(f"replaying {len(missing):,} combinations", total=self._resamples)
            found: dict[int, list[Floats]] = {}
            for number, figures in self._numbered(missing):
                found[number] = figures
                self._progress.advance(1)
            for place, run in enumerate(missing):
                self._known[run] = np.stack([found[number][place] for number in range(self._resamples)])
        return {run: self._known[run] for run in asked}

    def _numbered(self, runs: list[PlannedRun]) -> Iterator[tuple[int, list[Floats]]]:
        """Yield every resample with the figures of some runs."""
        numbers = range(self._resamples)
        if self._shared is None:
            yield from self._carried_out(runs, numbers)
            return
        replayed = self._shared.among(runs=[_facts(run) for run in runs])
        work, digests = replayed.work, {replayed.digest(resample=number): number for number in numbers}
        own = work.still_missing(work.to_make(dict.fromkeys(digests, "")))
        for number, figures in self._carried_out(runs, (digests[digest] for digest in own)):
            work.keep(replayed.digest(resample=number), {"figures": [row.tolist() for row in figures]})
        what = f"resamples of {counted(len(runs), 'combinations')}"
        for number, found in zip(numbers, work.gathered(digests, what), strict=True):
            yield number, [np.array(row) for row in found["figures"]]

    def _carried_out(self, runs: list[PlannedRun], numbers: Iterable[int]) -> Iterator[tuple[int, list[Floats]]]:
        if self._processes is not None:
            yield from self._processes.resamples(runs, numbers)
            return
        for number in numbers:
            yield number, self._basis.figures(number, runs)


def _facts(run: PlannedRun) -> dict[str, Any]:
    return {"policy": policy_facts(run.policy), "growth": run.growth, "capacity": run.capacity}
