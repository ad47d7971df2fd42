"""Replays of a plan: every resample on every capacity, in this process or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from tracekit.capacity_plan.processes import ReplayProcesses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from tracekit.capacity_plan.basis import PlanBasis, PlannedRun
    from tracekit.progress import Progress

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
    """

    def __init__(self, basis: PlanBasis, resamples: int, workers: int, progress: Progress) -> None:
        self._basis, self._resamples, self._workers, self._progress = basis, resamples, workers, progress
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
        """
        asked = list(dict.fromkeys(runs))
        missing = sorted((r for r in asked if r not in self._known), key=lambda r: r.growth)
        if missing:
            self._progress.stage(f"replaying {len(missing):,} combinations", total=self._resamples)
            found: dict[int, list[Floats]] = {}
            for number, figures in self._carried_out(missing):
                found[number] = figures
                self._progress.advance(1)
            for place, run in enumerate(missing):
                self._known[run] = np.stack([found[number][place] for number in range(self._resamples)])
        return {run: self._known[run] for run in asked}

    def _carried_out(self, runs: list[PlannedRun]) -> Iterator[tuple[int, list[Floats]]]:
        if self._processes is not None:
            yield from self._processes.resamples(runs, self._resamples)
            return
        for number in range(self._resamples):
            yield number, self._basis.figures(number, runs)
