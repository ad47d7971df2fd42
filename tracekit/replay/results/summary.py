"""The figures of one replay, as in summary.json.

Job times are in seconds, over completed jobs. Quantiles are interpolated linearly. Unknown figures, such as the mean of
no jobs, are None. Cluster figures (utilization, fragmentation, energy, makespan) always cover the whole replay, even if
only some jobs are measured.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.jobs import GPU_CLASSES, gpu_class, gpus_of, naive_utc, recorded_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


# Fairness of a schedule: Jain's index over virtual clusters, and finish-time fairness of jobs.
#
# Both have several definitions in the literature; the functions describe ours.


def service_ratios(jobs: Jobs, outcome: Outcome, measured: NDArray[np.bool_]) -> dict[int, float]:
    """Return the service ratio of each VC, by its index in `jobs.tenants`.

    The ratio is sum(GPUs * work) / sum(GPUs * time in the system) over the VC's measured jobs that can run. It is the
    rate at which the VC's demand progressed: 1 if no job ever waited. GPUs are the requested GPUs, and work is the run
    time on the recorded GPUs. Time in the system ends with the job or, if the job never completed, with the replay. A
    job that never completed adds no work. Jobs that can never run and jobs without a VC are excluded. A VC whose jobs
    took no time has no ratio.
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
    """Return (sum x)^2 / (n * sum x^2) [1/n..1], which is 1 if all values are equal and 1/n if one gets everything.

    Return None if there are fewer than two values or all are 0. Source: Jain, Chiu and Hawe, "A Quantitative Measure of
    Fairness and Discrimination for Resource Allocation in Shared Computer Systems" (DEC-TR-301, 1984).
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or not x.any():
        return None
    return min(1.0, float(x.sum() ** 2 / (len(x) * (x**2).sum())))


def mean_contention(jobs: Jobs, outcome: Outcome) -> NDArray[np.float64]:
    """Return the mean contention over each job's time in the system [1], or NaN if it did not complete (n,).

    Contention at a given time is the number of GPUs that all jobs in the system request, running or waiting, divided by
    the cluster's GPUs (their mean over the replay if nodes come and go). Jobs that can never run do not contend. Jobs
    that never completed contend until the replay ends. The mean contention of a job that took no time is NaN.
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
    # Integers below 2^53: the floats of bincount are exact.
    demand = np.cumsum(np.bincount(place, weights=change))
    area = np.concatenate([[0.0], np.cumsum(demand[:-1] * np.diff(steps))])
    start, end = np.searchsorted(steps, jobs.submit_ms[done]), np.searchsorted(steps, last[done])
    found[done] = (area[end] - area[start]) / (last[done] - jobs.submit_ms[done]) / capacity
    return found


def finish_time_ratios(jobs: Jobs, outcome: Outcome) -> NDArray[np.float64]:
    """Return rho = jct / (work * max(1, mean contention)) of each job [1], shape (n,).

    This is the finish time in the shared cluster divided by the finish time alone on its part of the cluster: the
    measure of Themis (Mahajan et al., NSDI 2020) with the contention of `mean_contention`. A value of at most 1 means
    that sharing did not harm the job. The value is NaN if the job did not complete or has no work.
    """
    known = (outcome.end_ms >= 0) & (jobs.work_ms > 0)
    alone = np.where(known, jobs.work_ms, 1) * np.fmax(1.0, mean_contention(jobs, outcome))
    return np.where(known, (outcome.end_ms - jobs.submit_ms) / alone, np.nan)


SLOWDOWN_BOUND_MS = 10_000
"""In a slowdown, shorter jobs count with this run time [ms]."""

_GPU_HOUR = 3.6e9
"""One GPU-hour [milli-GPU * ms]."""


def summarize(
    jobs: Jobs,
    cluster: Cluster,
    outcome: Outcome,
    *,
    policy: str,
    parameters: Mapping[str, Any],
    placement: str,
    assumptions: Any,
    measured: NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    """Return the figures of a replay, with exactly the keys of summary.json, in order.

    All values depend only on the jobs, the cluster and the schedule, except engine.wall_s and engine.jobs_per_s.

    Parameters
    ----------
    jobs, cluster, outcome
        The jobs, the cluster and the schedule.
    policy, parameters, placement, assumptions
        The settings of the replay, copied unchanged except that NaN becomes None.
    measured : array of bool, shape (n,), optional
        Count only these jobs (see `measured_jobs`) in the number of jobs, times, preemptions and classes.
    """
    table = _JobFigures(jobs, outcome, np.ones(len(jobs), dtype=bool) if measured is None else measured)
    engine_s = outcome.wall_s
    return {
        "policy": policy,
        "parameters": _clean(parameters),
        "placement": placement,
        "assumptions": _clean(assumptions),
        "cluster": {"nodes": cluster.machines, "gpus": cluster.total_gpus},
        **table.counts(table.all),
        **table.job_times(table.all),
        "makespan_s": outcome.makespan_ms / 1000,
        # Allocated GPU time divided by the GPU time of present nodes, over [0, makespan]. GPUs that are still in use on
        # a node that is leaving count in both, so the share never exceeds 1.
        "gpu_utilization_share": _ratio(outcome.busy_milli_ms, outcome.busy_milli_ms + outcome.free_milli_ms),
        # Free GPU time on partly used nodes divided by all free GPU time, in the same period.
        "fragmentation_share": _ratio(outcome.fragmented_milli_ms, outcome.free_milli_ms),
        "preemptions": int(outcome.preemptions[table.all].sum()),
        "migrations": int(outcome.migrations[table.all].sum()),
        "gpu_hours_lost_to_overhead": table.overhead_gpu_hours(table.all),
        # The costs of outages, or None if no outages were replayed (see `_JobFigures.losses`).
        **table.losses(table.all),
        "jain_fairness_vc": jain_index(list(service_ratios(jobs, outcome, table.measured).values())),
        "max_finish_time_ratio": _largest(finish_time_ratios(jobs, outcome)[table.measured]),
        # Share of the completed jobs with a deadline (D7) that ended after it. Only for policies with deadlines.
        "late_share": table.late_share(table.all),
        "energy_kwh": _number(outcome.energy_kwh),
        # According to M41. Only for policies that use prices.
        "energy_cost": _number(outcome.energy_cost),
        "by_gpu_class": table.by_gpu_class(),
        "by_vc": table.by_vc(),
        "engine": {
            "events": int(outcome.events),
            "wall_s": engine_s,
            "jobs_per_s": len(jobs) / engine_s if engine_s > 0 else None,
        },
    }


def measured_jobs(jobs: Jobs, start: dt.datetime | None, end: dt.datetime | None) -> NDArray[np.bool_]:
    """Return a mask of the jobs that were submitted in [start, end) in the time of the replay (n,).

    A replay starts with an empty cluster and ends without new jobs. To exclude warm-up and drain, a study replays all
    jobs but measures only those in between.

    Raises
    ------
    UsageError
        No job was submitted during this period.
    """
    inside = np.ones(len(jobs), dtype=bool)
    for time, after in ((start, True), (end, False)):
        if time is not None:
            limit = (naive_utc(time) - naive_utc(jobs.origin)) / dt.timedelta(milliseconds=1)
            inside &= (jobs.submit_ms >= limit) if after else (jobs.submit_ms < limit)
    if not inside.any():
        last = jobs.origin + dt.timedelta(milliseconds=int(jobs.submit_ms.max(initial=0)))
        raise UsageError(
            "no job was submitted in the measuring window", hint=f"submissions run from {jobs.origin} to {last}"
        )
    return inside


def bounded_slowdown(jobs: Jobs, outcome: Outcome) -> NDArray[np.float64]:
    """Return max(1, jct / max(work, 10 s)) of each job [1], or NaN if it did not complete (n,).

    This is the bounded slowdown of Feitelson and Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling" (JSSPP
    1998), with jct as the response time and the run time on the recorded GPUs as the time that the job needs.
    """
    return _slowdown(jobs, outcome.end_ms - jobs.submit_ms, outcome.end_ms >= 0)


def _slowdown(jobs: Jobs, jct_ms: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    ratio = np.maximum(1.0, jct_ms / np.maximum(jobs.work_ms, SLOWDOWN_BOUND_MS))
    return np.where(known, ratio, np.nan)


def recorded_figures(jobs: Jobs, measured: NDArray[np.bool_] | None = None) -> dict[str, Any] | None:
    """Return the jobs' figures in the log itself, with the keys of summary.json, or None if the log has no times.

    Parameters
    ----------
    jobs : Jobs
        The replayed jobs.
    measured : array of bool, shape (n,), optional
        Count only these jobs.
    """
    record = recorded_times(jobs)
    all_of = np.ones(len(jobs), dtype=bool) if measured is None else measured
    known = all_of & (record.jct_ms >= 0)
    if not known.any():
        return None
    slowdown = _slowdown(jobs, record.jct_ms, known)[known]
    return {
        "jobs": int(all_of.sum()),
        "completed": int(known.sum()),
        **_job_times(record.jct_ms[known] / 1000, record.queue_ms[known] / 1000, slowdown),
    }


class _JobFigures:
    """The times of jobs, and figures over any subset of them."""

    def __init__(self, jobs: Jobs, outcome: Outcome, measured: NDArray[np.bool_]) -> None:
        self.jobs, self.outcome, self.measured = jobs, outcome, measured
        self.all = np.flatnonzero(measured)
        self.completed = outcome.end_ms >= 0
        self.jct = (outcome.end_ms - jobs.submit_ms) / 1000
        self.queue = (outcome.first_start_ms - jobs.submit_ms) / 1000
        self.slowdown = bounded_slowdown(jobs, outcome)

    def counts(self, rows: NDArray[np.int64]) -> dict[str, int]:
        return {
            "jobs": len(rows),
            "completed": int(self.completed[rows].sum()),
            "unschedulable": int(self.outcome.unschedulable[rows].sum()),
        }

    def job_times(self, rows: NDArray[np.int64]) -> dict[str, float | None]:
        done = rows[self.completed[rows]]
        return _job_times(self.jct[done], self.queue[done], self.slowdown[done])

    def late_share(self, rows: NDArray[np.int64]) -> float | None:
        """Return the share of completed jobs with a deadline that ended after it [1]."""
        due = self.outcome.deadline_ms
        if due is None:
            return None
        done = rows[self.completed[rows] & (due[rows] >= 0)]
        return float((self.outcome.end_ms[done] > due[done]).mean()) if len(done) else None

    def overhead_gpu_hours(self, rows: NDArray[np.int64]) -> float:
        """Return the allocated GPU time without progress [GPU*h]: a job's overhead times its mean number of GPUs."""
        some = rows[self.outcome.overhead_ms[rows] > 0]
        held = self.outcome.held_milli_ms[some] / np.maximum(self.outcome.run_ms[some], 1)
        return float((held * self.outcome.overhead_ms[some]).sum() / _GPU_HOUR)

    def losses(self, rows: NDArray[np.int64]) -> dict[str, float | int | None]:
        """Return the costs of outages for some jobs, or None if there were no outages.

        Part of the allocated GPU time goes into restarts and other overheads, part into redone work (lost), and part
        into saving checkpoints. The rest is useful, and `goodput_share` is its share [1]. `ettr`, the effective
        training time ratio [0..1], is the useful part of the run time of the jobs that ended, divided by the time from
        submission to end, waits included. Each job is weighted by its requested GPUs (Kokolis et al., "Revisiting
        Reliability in Large-Scale Machine Learning Research Clusters", 2024). GPUs beyond the request, in an elastic
        gang or a block, do not count.
        """
        losses = self.outcome.losses
        if losses is None:
            return dict.fromkeys(("goodput_share", "lost_gpu_hours", "restarts", "ettr"))
        held = self.outcome.held_milli_ms[rows].astype(np.float64)
        overhead = held / np.maximum(self.outcome.run_ms[rows], 1) * self.outcome.overhead_ms[rows]
        lost = losses.lost_milli_ms[rows].astype(np.float64)
        useful = (held - overhead - lost) * (losses.progress_ppm[rows] / 1e6)
        done = self.completed[rows]
        gpus = gpus_of(self.jobs)[rows].astype(np.float64)
        asked = gpus * (self.outcome.end_ms[rows] - self.jobs.submit_ms[rows])
        trained = gpus * self.outcome.run_ms[rows] * useful / np.maximum(held, 1)
        return {
            "goodput_share": _ratio(float(useful.sum()), float(held.sum())),
            "lost_gpu_hours": float(lost.sum() / _GPU_HOUR),
            "restarts": int(losses.restarts[rows].sum()),
            "ettr": _ratio(float(trained[done].sum()), float(asked[done].sum())),
        }

    def by_gpu_class(self) -> list[dict[str, Any]]:
        classes = gpu_class(gpus_of(self.jobs))
        rows = _groups(classes, self.all)
        return [{"gpu_class": GPU_CLASSES[key], **self._group(group)} for key, group in rows]

    def by_vc(self) -> list[dict[str, Any]]:
        """Return one row per VC, sorted by name. Jobs without a VC come last."""
        ratios = service_ratios(self.jobs, self.outcome, self.measured)
        found = sorted(_groups(self.jobs.tenant, self.all), key=lambda item: item[0] < 0)
        return [
            {
                "name": self.jobs.tenants[key] if key >= 0 else None,
                **self._group(group),
                "service_ratio": ratios.get(key),
            }
            for key, group in found
        ]

    def _group(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        times = self.job_times(rows)
        return {
            **self.counts(rows),
            # Allocated GPU time in the replay, overheads included.
            "gpu_hours": float(self.outcome.held_milli_ms[rows].astype(np.float64).sum() / _GPU_HOUR),
            **times,
            "preemptions": int(self.outcome.preemptions[rows].sum()),
            **self.losses(rows),
        }


def _job_times(
    jct: NDArray[np.float64], queue: NDArray[np.float64], slowdown: NDArray[np.float64]
) -> dict[str, float | None]:
    """Return the figures for the times of jobs that ended [s], in the order of summary.json."""
    return {
        "avg_jct_s": _mean(jct),
        **dict(zip(("median_jct_s", "p95_jct_s", "p99_jct_s"), _quantiles(jct), strict=True)),
        "avg_queue_s": _mean(queue),
        **dict(zip(("median_queue_s", "p95_queue_s", "p99_queue_s"), _quantiles(queue), strict=True)),
        "max_queue_s": _largest(queue),
        "avg_bounded_slowdown": _mean(slowdown),
    }


def _groups(keys: NDArray[Any], rows: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the rows of each key, with keys ascending and rows in order."""
    order = rows[np.argsort(keys[rows], kind="stable")]
    names, first = np.unique(keys[order], return_index=True)
    return list(zip(names.tolist(), np.split(order, first[1:]), strict=True)) if len(order) else []


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantiles(values: NDArray[np.float64]) -> list[float | None]:
    """Return the median and the 95th and 99th percentiles, linearly interpolated."""
    if not len(values):
        return [None, None, None]
    return [float(v) for v in np.quantile(values, [0.5, 0.95, 0.99])]


def _largest(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _clean(value: Any) -> Any:
    """Convert `value` to JSON types. Numbers that JSON cannot represent become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_clean(v) for v in value]
    return value
