"""Goodputs of jobs by GPUs, batch and stage of training, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.goodput import application_of, goodputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
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
        As for `goodput.goodput_table`.
    """

    def __init__(
        self, models: Models, jobs: Jobs, low: NDArray[np.int64], high: NDArray[np.int64], profile: str
    ) -> None:
        given = models.applications
        classes, asks = list(given.classes.values()), jobs.devices.astype(np.int64)
        kinds = np.stack([application_of(models, jobs, profile), asks, low, high], axis=1).reshape(-1, 4)
        kinds, inverse = np.unique(kinds, axis=0, return_inverse=True)
        self._work_ms, self._kind, self._stages = jobs.work_ms, inverse.ravel().astype(np.int64), given.stages
        speeds: list[NDArray[np.float64]] = [np.zeros(1)]
        best: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        columns: list[tuple[int, int, int, int, int]] = []
        size, of_best = 1, 1
        for which, requested, least, most in kinds.tolist():
            application = classes[which]
            batches = np.exp2(np.arange(int(np.log2(application.most)) + 1, dtype=np.float64))
            begin, end = application.noise
            for stage in range(given.stages):
                noise = begin * (end / begin) ** ((stage + 0.5) / given.stages)
                found = np.zeros((len(batches), most + 1))
                found[:, 1:] = goodputs(application, np.arange(1, most + 1), requested, noise, given.local, batches).T
                columns.append((size, of_best, most + 1, len(batches), least + int(found.max(axis=0)[least:].argmax())))
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
