"""How evenly a schedule serves: Jain's index over virtual clusters, and finish-time fairness of jobs.

Both have several definitions in the literature; those used here stand below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.results.sizes import gpus_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["finish_time_ratios", "jain_index", "mean_contention", "service_ratios"]


def service_ratios(jobs: Jobs, outcome: Outcome, measured: NDArray[np.bool_]) -> dict[int, float]:
    """Return the service ratio of each VC, by its index in `jobs.tenants`.

    The ratio is sum(GPUs * work) / sum(GPUs * time in the system) over the VC's measured jobs that can run: the pace at
    which the VC's demand progressed, 1 where no job ever waited. GPUs are those asked for, work is the run time on the
    recorded GPUs, time in the system ends with the job or, where it never completed, with the replay; a job that never
    completed adds no work. Jobs that can never run, and those without a VC, are left out; a VC whose jobs took no time
    has no ratio.
    """
    ours = measured & (jobs.tenant >= 0) & ~outcome.unschedulable
    done = outcome.end_ms >= 0
    gpus = gpus_of(jobs)[ours] / 1000
    end = np.where(done, outcome.end_ms, np.maximum(outcome.makespan_ms, jobs.submit_ms))[ours]
    work = np.where(done, jobs.work_ms, 0)[ours]
    vcs = len(jobs.tenants)
    served = np.bincount(jobs.tenant[ours], weights=gpus * work, minlength=vcs)
    demand = np.bincount(jobs.tenant[ours], weights=gpus * (end - jobs.submit_ms[ours]), minlength=vcs)
    return {i: float(served[i] / demand[i]) for i in range(vcs) if demand[i] > 0}


def jain_index(values: Sequence[float]) -> float | None:
    """Return (sum x)^2 / (n * sum x^2) [1/n..1]: 1 where all are served alike, 1/n where one gets everything.

    None for fewer than two values, or where nobody got anything. Jain, Chiu and Hawe, "A Quantitative Measure of
    Fairness and Discrimination for Resource Allocation in Shared Computer Systems" (DEC-TR-301, 1984).
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or not x.any():
        return None
    return min(1.0, float(x.sum() ** 2 / (len(x) * (x**2).sum())))


def mean_contention(jobs: Jobs, outcome: Outcome) -> NDArray[np.float64]:
    """Return the mean contention over each job's time in the system [1], NaN where it did not complete, shape (n,).

    Contention at a time is the GPUs that all jobs in the system ask for, running and waiting, over the GPUs of the
    cluster (its mean over the replay where nodes come and go). Jobs that can never run do not contend; jobs that never
    completed contend until the replay ends. A job that took no time sees the contention of no other moment: NaN.
    """
    capacity = (outcome.busy_milli_ms + outcome.free_milli_ms) / max(outcome.makespan_ms, 1)
    found = np.full(len(jobs), np.nan)
    if not capacity:
        return found
    inside = ~outcome.unschedulable
    done = inside & (outcome.end_ms > jobs.submit_ms)
    last = np.where(outcome.end_ms >= 0, outcome.end_ms, np.maximum(outcome.makespan_ms, jobs.submit_ms))
    milli = gpus_of(jobs)
    times = np.concatenate([jobs.submit_ms[inside], last[inside]])
    change = np.concatenate([milli[inside], -milli[inside]])
    steps, place = np.unique(times, return_inverse=True)
    # Whole numbers below 2^53, so the floats of bincount are exact.
    demand = np.cumsum(np.bincount(place, weights=change))
    area = np.concatenate([[0.0], np.cumsum(demand[:-1] * np.diff(steps))])
    start, end = np.searchsorted(steps, jobs.submit_ms[done]), np.searchsorted(steps, last[done])
    found[done] = (area[end] - area[start]) / (last[done] - jobs.submit_ms[done]) / capacity
    return found


def finish_time_ratios(jobs: Jobs, outcome: Outcome) -> NDArray[np.float64]:
    """Return rho = jct / (work * max(1, mean contention)) of each job [1], shape (n,).

    The finish time in the shared cluster over the one that the job would have alone on its part of it: the measure of
    Themis (Mahajan et al., NSDI 2020) with the contention of `mean_contention`. At most 1 means that sharing did not
    harm the job. NaN where the job did not complete or has no work.
    """
    known = (outcome.end_ms >= 0) & (jobs.work_ms > 0)
    alone = np.where(known, jobs.work_ms, 1) * np.fmax(1.0, mean_contention(jobs, outcome))
    return np.where(known, (outcome.end_ms - jobs.submit_ms) / alone, np.nan)
