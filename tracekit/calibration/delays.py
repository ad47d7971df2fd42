"""Waits that no policy explains: start-up delays on free GPUs, and holds.

A job submitted while most of the cluster is free still starts a little later, because of the scheduler's cycle, image
pulls or the start of all its processes. These delays are measured by job size, on jobs submitted while most of the
cluster was free. In the twin, each job competes for GPUs only after a randomly drawn start-up delay. A hold is recorded
in the log: a job becomes eligible only some time after its submission (because of a dependency, a begin time or a
user's hold).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.jobs import GPU_CLASSES, gpu_class, gpus_of, in_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

QUANTILES = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
"""Quantiles at the midpoints of ten equal parts of a delay distribution."""

_FREE_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""A cluster counts as free if at most this share of its GPUs is requested [1]. The first share with enough jobs is
used. Our choice: low shares come first, so that waits due to fragmentation are not mistaken for delays.
"""
_FEWEST = 30
"""Minimum number of jobs. A job size with fewer jobs uses the delays of all sizes. If there are fewer jobs in total,
the delays are unknown.
"""


def submitted_to_free_gpus(jobs: Jobs, gpus: int, share: float) -> Bools:
    """Return a mask of the jobs that, according to the log, no policy would have delayed at their submission (n,).

    When such a job was submitted, all running and waiting jobs together requested at most `share` of the cluster. The
    user had no other running or waiting job, and the VC's jobs requested at most `share` of the VC's own peak.

    Parameters
    ----------
    jobs : Jobs
        Jobs with recorded starts and ends. A job without them counts as using no GPUs.
    gpus : int
        GPUs of the cluster.
    share : float
        Largest requested share of the cluster that counts as free.
    """
    started = jobs.recorded_start_ms >= jobs.submit_ms
    known = started & (jobs.recorded_end_ms >= jobs.recorded_start_ms)
    size = gpus_of(jobs) / 1000
    asked = asked_at_submission(np.zeros(len(jobs), np.int64), jobs, known)
    free: Bools = started & (asked <= share * gpus)
    if jobs.users:
        free &= asked_at_submission(jobs.user, jobs, known) <= size
    if len(jobs.tenants) > 1:
        own = asked_at_submission(jobs.tenant, jobs, known)
        peak = np.zeros(int(jobs.tenant.max()) + 2)
        np.maximum.at(peak, jobs.tenant, own)
        free &= own <= np.maximum(share * peak[jobs.tenant], size)
    return free


def asked_at_submission(codes: NDArray[Any], jobs: Jobs, known: Bools) -> Floats:
    """Return the GPUs that jobs with the same code use or wait for when each job is submitted, including its own GPUs.

    Parameters
    ----------
    codes : array of int, shape (n,)
        Jobs with the same code are summed together.
    jobs : Jobs
    known : array of bool, shape (n,)
        Jobs whose end is known. Other jobs count as requesting no GPUs.
    """
    size = gpus_of(jobs) / 1000
    found = np.zeros(len(jobs))
    order = np.argsort(codes, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        ended = own[known[own]]
        found[own] = in_time(jobs.submit_ms[own], jobs.submit_ms[ended], jobs.recorded_end_ms[ended], size[ended])
    return np.where(known, found, found + size)


def startup_delays(jobs: Jobs, gpus: int, among: Bools) -> dict[str, tuple[float, ...]]:
    """Return the `QUANTILES` of the start-up delay by job size [s]. The result is empty if it is unknown or always 0.

    Parameters
    ----------
    jobs : Jobs
        Jobs with recorded starts.
    gpus : int
        GPUs of the cluster.
    among : array of bool, shape (n,)
        Jobs to learn from.
    """
    for share in _FREE_SHARES:
        found = submitted_to_free_gpus(jobs, gpus, share) & among
        if int(found.sum()) >= _FEWEST:
            break
    wait = (jobs.recorded_start_ms - jobs.submit_ms) / 1000
    classes = gpu_class(gpus_of(jobs))
    if int(found.sum()) < _FEWEST:
        return {}
    everyone = np.quantile(wait[found], QUANTILES)
    if everyone[-1] < 1:
        return {}
    delays = {}
    for code in np.unique(classes).tolist():
        own = wait[found & (classes == code)]
        delays[GPU_CLASSES[code]] = tuple(np.quantile(own, QUANTILES) if len(own) >= _FEWEST else everyone)
    return {name: tuple(round(float(v), 3) for v in values) for name, values in delays.items()}


def delays_of_jobs(jobs: Jobs, startup: Mapping[str, tuple[float, ...]], seed: int) -> Ints:
    """Return the start-up delay of each job [ms] (n,): a quantile for its size, drawn with equal probability."""
    if not startup:
        return np.zeros(len(jobs), np.int64)
    table = np.zeros((len(GPU_CLASSES), len(QUANTILES)), np.int64)
    for name, values in startup.items():
        table[GPU_CLASSES.index(name)] = np.round(np.array(values) * 1000)
    drawn = np.random.default_rng(seed).integers(0, len(QUANTILES), len(jobs))
    return table[gpu_class(gpus_of(jobs)), drawn]
