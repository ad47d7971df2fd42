"""Speeds of jobs by GPUs, batch and stage of training, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.goodput import application_of, goodputs, noise_in
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.assumptions.sections.speed import Application, Applications
    from tracekit.replay.jobs import Jobs

__all__ = ["BatchTable"]


class BatchTable:
    """Goodputs (M43) of n jobs with batches of 1, 2, 4, ... times the recorded one.

    Jobs of one application and one request, in one stage of their training, have one *row*.

    Parameters
    ----------
    models : Models
    jobs : Jobs
    low, high : array (n,)
        Fewest and most GPUs of each job.
    profile : str
        As for `goodput.goodput_table`; or 'none', where speeds are M8's and there is one batch and one stage.
    """

    def __init__(
        self, models: Models, jobs: Jobs, low: NDArray[np.int64], high: NDArray[np.int64], profile: str
    ) -> None:
        given, asks = models.applications, jobs.devices.astype(np.int64)
        adapts = profile != "none"
        classes = list(given.classes.values())
        application_code = application_of(models, jobs, profile) if adapts else np.zeros(len(jobs), np.int64)
        kinds = np.stack([application_code, asks, low, high], axis=1).reshape(-1, 4)
        kinds, inverse = np.unique(kinds, axis=0, return_inverse=True)
        self._work_ms, self._kind = jobs.work_ms, inverse.ravel().astype(np.int64)
        self._stages = given.stages if adapts else 1
        speeds: list[NDArray[np.float64]] = [np.zeros(1)]
        best: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        columns: list[tuple[int, int, int, int, int]] = []
        size, of_best = 1, 1
        for which, requested, least, most in kinds.tolist():
            gpus = np.arange(1, most + 1)
            for stage in range(self._stages):
                if adapts:
                    own = _in_stage(given, classes[which], gpus, requested, stage)
                else:
                    own = (elastic_ppm(models, requested, gpus) / PPM)[None, :]
                found = np.concatenate([np.zeros((len(own), 1)), own], axis=1)
                columns.append((size, of_best, most + 1, len(own), least + int(found.max(axis=0)[least:].argmax())))
                speeds.append(found.ravel())
                best.append(found.argmax(axis=0))
                size += found.size
                of_best += most + 1
        self._speed, self._best = np.concatenate(speeds), np.concatenate(best)
        table = np.array(columns, np.int64).reshape(-1, 5).T
        self._first, self._first_best, self._width, self.batches, self.fastest = table
        """Of each row: where its goodputs and its best batches begin, from one batch to the next, how many batches
        there are, and the number of GPUs with which it is fastest."""

    def rows(self, job: NDArray[np.int64], left_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of jobs, by what is left of their work (k,)."""
        done = 1 - left_ms / np.maximum(self._work_ms[job], 1)
        stage = np.clip((done * self._stages).astype(np.int64), 0, self._stages - 1)
        return self._kind[job] * self._stages + stage

    def speed(self, row: NDArray[np.int64], gpus: NDArray[np.int64], batch: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the goodputs on GPUs with batches, given as exponents of two; 0 without GPUs (..., k)."""
        return self._speed[self._first[row] + batch * self._width[row] + gpus]

    def best_batch(self, row: NDArray[np.int64], gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the batch with which each is fastest on so many GPUs (..., k)."""
        return np.asarray(self._best[self._first_best[row] + gpus])


def _in_stage(
    given: Applications, application: Application, gpus: NDArray[np.int64], requested: int, stage: int
) -> NDArray[np.float64]:
    """Return the goodputs of a stage by batch and GPUs (B, n)."""
    batches = np.exp2(np.arange(int(np.log2(application.most)) + 1, dtype=np.float64))
    noise = noise_in(application, stage, given.stages)
    return goodputs(application, gpus, requested, noise, given.local, batches).T
