"""Speeds of jobs by their GPUs: by M8, or goodput with the batch that suits the GPUs and the training so far best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.resizing import speedup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.assumptions.sections.speed import Application
    from tracekit.replay.jobs import Jobs

__all__ = ["BATCHES", "SpeedTable", "application_of", "goodput", "goodput_table", "goodputs", "noise_in", "plain_table"]

BATCHES = 50
"""Batches that are tried, in geometric steps."""
_GPU_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class SpeedTable:
    """Speeds of n jobs on 0, 1, ... GPUs, in stages of their training."""

    speed: NDArray[np.float64]
    """Rows of speeds, one after the other; the speeds of a job are goodput relative to its recorded form."""
    first: NDArray[np.int64]
    """Where the row of each job's first stage begins (n,)."""
    width: NDArray[np.int64]
    """From one stage to the next; 0 if there is only one (n,)."""
    stages: int
    """How many."""
    sigma: float | None
    """The speeds of M8, or None if speeds are goodput."""

    def rows(self, job: NDArray[np.int64], stage: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first rows of jobs in a stage (k,)."""
        return self.first[job] + stage * self.width[job]

    def stage(self, left_ms: NDArray[np.int64], work_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stages of jobs by their remaining work (k,)."""
        done = 1 - left_ms / np.maximum(work_ms, 1)
        return np.clip((done * self.stages).astype(np.int64), 0, self.stages - 1)

    def to_next_stage_ms(
        self, stage: NDArray[np.int64], left_ms: NDArray[np.int64], work_ms: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the work until the next stage of jobs, in the last one until far beyond their end (k,) [ms]."""
        then = work_ms * (1 - (stage + 1) / self.stages)
        return np.where(stage + 1 < self.stages, np.maximum(left_ms - then, 0.0), 2.0**62)

    def between(self, first: NDArray[np.int64], gpus: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the speeds on numbers of GPUs, at least 1, that need not be whole (k,)."""
        if self.sigma is not None:
            return np.asarray(gpus / (1 + self.sigma * (gpus - 1)))
        low = np.floor(gpus).astype(np.int64)
        high = np.ceil(gpus).astype(np.int64)
        return np.asarray(self.speed[first + low] + (gpus - low) * (self.speed[first + high] - self.speed[first + low]))


def plain_table(models: Models, high: NDArray[np.int64]) -> SpeedTable:
    """Return the speeds of M8 up to the most GPUs of any job, in units of that on one."""
    nothing = np.zeros(len(high), np.int64)
    speed = speedup(models, np.arange(int(high.max(initial=1)) + 1))
    return SpeedTable(speed, nothing, nothing, 1, models.elastic.sigma)


def goodputs(
    application: Application,
    gpus: NDArray[np.int64],
    requested: int,
    noise: float,
    local: float,
    batches: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the goodput on GPUs with batches, in units of that on the recorded GPUs with the recorded batch (n, m).

    Pollux: throughput times efficiency, (noise + 1) / (noise + m) with m times the recorded batch.

    Parameters
    ----------
    application : Application
        M43.
    gpus : array
        At least 1 each.
    requested : int
        GPUs of the recorded run.
    noise : float
        Gradient noise scale in units of the recorded batch.
    local : float
        Batch of a GPU that fits into a pass, in units of the recorded one; more takes several passes.
    batches : array
        Batches of all GPUs together, in units of the recorded one.
    """
    a = application
    n = gpus.astype(np.float64)[:, None]
    m = batches[None, :]

    def step(n: NDArray[np.float64], m: NDArray[np.float64]) -> NDArray[np.float64]:
        batch = m * requested / n
        grad = np.ceil(batch / local - 1e-9).clip(1.0) * a.fixed + (1 - a.fixed) * batch
        sync = np.where(n > 1, a.sync + a.more * np.maximum(n - 2, 0), 0.0)
        return np.asarray((grad**a.gamma + sync**a.gamma) ** (1 / a.gamma))

    one = float(step(np.array([[float(requested)]]), np.ones((1, 1)))[0, 0])
    return np.asarray(m / step(n, m) * (noise + 1) / (noise + m) * one)


def goodput(
    application: Application, gpus: NDArray[np.int64], requested: int, noise: float, local: float
) -> NDArray[np.float64]:
    """Return the goodput on numbers of GPUs with the best batch for each (see `goodputs`)."""
    batches = np.geomspace(1.0, max(application.most, 1.0), BATCHES)
    return np.asarray(goodputs(application, gpus, requested, noise, local, batches).max(axis=1))


def application_of(models: Models, jobs: Jobs, profile: str) -> NDArray[np.int64]:
    """Return the class of each job as an index into M43's classes: by recorded GPU time, or the named one (n,)."""
    classes = models.applications.classes
    if profile != "size":
        return np.full(len(jobs), list(classes).index(profile))
    ends = np.array([c.gpu_h for c in classes.values()]) * _GPU_HOUR_MS
    return np.minimum(np.searchsorted(ends, jobs.work_ms * jobs.devices.astype(np.float64)), len(classes) - 1)


def noise_in(application: Application, stage: int, stages: int) -> float:
    """Return the noise in the middle of a stage: it grows by the same factor from each to the next."""
    begin, end = application.noise
    return float(begin * (end / begin) ** ((stage + 0.5) / stages))


def goodput_table(models: Models, jobs: Jobs, high: NDArray[np.int64], profile: str) -> SpeedTable:
    """Return goodputs up to the most GPUs of each job, by its class of application (M43).

    Parameters
    ----------
    profile : str
        'size' for classes by recorded GPU time, or the class of all jobs.
    """
    given = models.applications
    names, asks, kind = list(given.classes), jobs.devices.astype(np.int64), application_of(models, jobs, profile)
    pairs, inverse = np.unique(np.stack([kind, asks], axis=1).reshape(-1, 2), axis=0, return_inverse=True)
    parts: list[NDArray[np.float64]] = [np.zeros(1)]
    starts, widths, size = [], [], 1
    for which, requested in pairs.tolist():
        application = given.classes[names[which]]
        most = int(high[(asks == requested)].max())
        starts.append(size)
        widths.append(most + 1)
        for stage in range(given.stages):
            noise = noise_in(application, stage, given.stages)
            parts += [np.zeros(1), goodput(application, np.arange(1, most + 1), requested, noise, given.local)]
        size += given.stages * (most + 1)
    place = inverse.ravel()
    first, width = np.array(starts, np.int64), np.array(widths, np.int64)
    none = np.zeros(0, np.int64)
    return SpeedTable(
        np.concatenate(parts),
        first[place] if len(place) else none,
        width[place] if len(place) else none,
        given.stages,
        None,
    )
