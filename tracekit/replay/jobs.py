"""The jobs of a replay: flat arrays with one element per job, sorted by the time at which a job starts to compete.

A job competes for GPUs from its submission, unless it is held back.

Times are integer milliseconds after `origin`, and a GPU is 1,000 milli-GPUs.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


def naive_utc(time: dt.datetime) -> dt.datetime:
    """Convert a time to UTC without a time zone. A time that has no zone is taken as UTC."""
    return time if time.tzinfo is None else time.astimezone(dt.UTC).replace(tzinfo=None)


@dataclass(frozen=True)
class LeftOut:
    """Jobs of a trace that cannot be replayed, for one reason."""

    reason: str
    """The reason in a few words, such as 'no run time'."""
    jobs: int
    """Number of these jobs."""
    gpu_hours: float | None
    """GPU-hours of these jobs in the log [GPU*h], or None if unknown."""


@dataclass(frozen=True)
class Jobs:
    """The jobs of a replay, sorted by arrival (see `arrival_ms`). Ties keep the order of the trace.

    All arrays have shape (n,). An index into a name list is -1 if the name is unknown.
    """

    origin: dt.datetime
    """First submission, from which all times count."""
    job_id: pl.Series
    """Job names (String)."""
    submit_ms: NDArray[np.int64]
    """Submission time [ms]."""
    work_ms: NDArray[np.int64]
    """Run time on the recorded GPUs, without queueing and suspension (D1) [ms]."""
    devices: NDArray[np.int32]
    """Number of GPUs that the job uses, at least 1."""
    milli: NDArray[np.int32]
    """The job's request per GPU, 1..1000 [milli-GPU], where 1000 is a whole GPU."""
    tenant: NDArray[np.int32]
    """Index into `tenants` (virtual clusters)."""
    user: NDArray[np.int32]
    """Index into `users`."""
    model: NDArray[np.int32]
    """Requested GPU model, index into `models`, or -1 to accept any."""
    name: NDArray[np.int32]
    """Job name or recurrence group, with equal numbers for equal names, or -1 if unknown."""
    priority: NDArray[np.int32]
    """Priority, or 0 if unknown. A larger number is more urgent."""
    preemptible: NDArray[np.int8]
    """1 if the job is preemptible, 0 if not, -1 if unknown."""
    cpu_milli: NDArray[np.int64]
    """CPU request of the whole job [milli-cores], or -1 if unknown."""
    memory_mib: NDArray[np.int64]
    """Host memory request of the whole job [MiB], or -1 if unknown."""
    limit_ms: NDArray[np.int64]
    """Time limit [ms], or -1 if unknown."""
    utilization: NDArray[np.float64]
    """Mean GPU utilization [0..1], or NaN if unknown."""
    recorded_start_ms: NDArray[np.int64]
    """First start in the log [ms], or -1 if unknown."""
    recorded_end_ms: NDArray[np.int64]
    """End in the log [ms], or -1 if unknown."""
    partition: NDArray[np.int32] | None = None
    """Index into `partitions`, or None if the log has no partitions."""
    tenants: list[str] = field(default_factory=list)
    """Virtual cluster names, sorted."""
    users: list[str] = field(default_factory=list)
    """User names, sorted."""
    partitions: list[str] = field(default_factory=list)
    """Names of the partitions or queues to which jobs were submitted, sorted."""
    models: list[str] = field(default_factory=list)
    """Requested GPU models, sorted."""
    left_out: tuple[LeftOut, ...] = ()
    """Jobs of the trace that are excluded from the replay."""
    held_ms: NDArray[np.int64] | None = None
    """Time after its submission at which each job starts to compete for GPUs [ms], or None if all compete at once."""
    qos: NDArray[np.int32] | None = None
    """Index into `qoses` (quality of service), or None if the log has none."""
    qoses: list[str] = field(default_factory=list)
    """Names of the qualities of service, sorted."""
    array: NDArray[np.int32] | None = None
    """Number of the job's array, or -1 if it belongs to none that limits its tasks; None if no job does."""
    array_most: NDArray[np.int64] | None = None
    """How many tasks of its array may run at once (see `array`), or None if no job belongs to such an array."""
    preempted_ms: NDArray[np.int64] | None = None
    """Part of `work_ms` in runs that were preempted and followed by another run, which starts over [ms] (n,). It is not
    part of the work if the replay preempts jobs itself. None if unknown."""
    failed_ms: NDArray[np.int64] | None = None
    """The same for runs that a node failure ended [ms] (n,)."""
    others: Others | None = None
    """Further jobs that a site's rules take into account, or None if there are none."""

    @property
    def arrival_ms(self) -> NDArray[np.int64]:
        """Time at which each job starts to compete for GPUs [ms], ascending (n,)."""
        return self.submit_ms if self.held_ms is None else self.submit_ms + self.held_ms

    def held_back(self, held_ms: NDArray[np.int64]) -> tuple[Jobs, NDArray[np.int64]]:
        """Hold each job back for some time after its submission; return the jobs and each job's previous index.

        Jobs are sorted by the time at which they start to compete. Ties keep their order.

        Parameters
        ----------
        held_ms : array of int, shape (n,)
            Time for which each job is held back, at least 0 [ms].
        """
        order = np.argsort(self.submit_ms + held_ms, kind="stable")
        return replace(self, held_ms=held_ms).rows(order), order

    def rows(self, chosen: NDArray[np.int64]) -> Jobs:
        """Return the chosen jobs in the given order. `left_out` stays the same."""
        arrays: dict[str, Any] = {
            f.name: value[chosen] for f in fields(self) if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        return replace(self, job_id=self.job_id[chosen], **arrays)

    def starting_over(self, *, preempted: bool, failed: bool) -> Jobs:
        """Return the jobs without the work that was lost because they were preempted, or because a node failed."""
        lost = [part for part, out in ((self.preempted_ms, preempted), (self.failed_ms, failed)) if out]
        work = self.work_ms - sum(part for part in lost if part is not None)
        others = self.others
        if others is not None:
            others = replace(others, jobs=others.jobs.starting_over(preempted=preempted, failed=failed))
        return replace(self, work_ms=np.maximum(work, np.minimum(self.work_ms, 1)), others=others)

    def shares_left_out(self) -> list[tuple[LeftOut, float | None]]:
        """Return each entry of `left_out` with its share of all known GPU-hours [1]."""
        replayed = float((self.work_ms.astype(np.float64) * self.devices * self.milli).sum()) / 3.6e9
        everything = replayed + sum(part.gpu_hours or 0.0 for part in self.left_out)
        return [
            (part, part.gpu_hours / everything if part.gpu_hours is not None and everything else None)
            for part in self.left_out
        ]

    def __len__(self) -> int:
        return len(self.submit_ms)


@dataclass(frozen=True)
class Others:
    """Jobs that a replay does not report, but that use the same nodes or count towards the same limits.

    Only the rules of a site include them (see `replay/site`).
    """

    jobs: Jobs
    """The jobs, with times after the origin of the replay. A job that started before then has the rest of its run time
    left."""
    elsewhere: NDArray[np.bool_]
    """Whether each job ran on other nodes. In a replay, it then runs at its recorded time, until which it is held back.
    All other jobs request no GPUs, and compete for CPUs and memory (n,)."""

    def since(self, begin_ms: int) -> Others:
        """Return the jobs that had not ended by a time, with times after it."""
        return others_since(self.jobs, self.elsewhere, begin_ms)


def others_since(jobs: Jobs, elsewhere: NDArray[np.bool_], begin_ms: int) -> Others:
    """Return the jobs that had not ended by a time, as other jobs of a replay that begins then [ms]."""
    jobs = jobs.rows(kept := np.flatnonzero(jobs.recorded_end_ms > begin_ms))
    elsewhere = elsewhere[kept]
    start = jobs.recorded_start_ms
    ran_ms = np.where(jobs.submit_ms < begin_ms, np.maximum(begin_ms - start, 0), 0)
    submit = np.maximum(jobs.submit_ms - begin_ms, 0)
    held = np.where(elsewhere, np.maximum(start - begin_ms, 0) - submit, 0)
    order = np.argsort(submit + held, kind="stable")
    work = np.where(elsewhere, jobs.recorded_end_ms - start, jobs.work_ms)
    left = np.maximum(work - ran_ms, 1)
    later = replace(
        jobs,
        origin=jobs.origin + dt.timedelta(milliseconds=begin_ms),
        submit_ms=submit,
        held_ms=held,
        work_ms=left,
        limit_ms=np.where(jobs.limit_ms < 0, -1, np.maximum(jobs.limit_ms - ran_ms, left)),
        preempted_ms=_lost(elsewhere | (ran_ms > 0), jobs.preempted_ms),
        failed_ms=_lost(elsewhere | (ran_ms > 0), jobs.failed_ms),
        recorded_start_ms=np.maximum(start - begin_ms, 0),
        recorded_end_ms=jobs.recorded_end_ms - begin_ms,
    )
    return Others(later.rows(order), elsewhere[order])


def _lost(none: NDArray[np.bool_], lost_ms: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    return None if lost_ms is None else np.where(none, 0, lost_ms)


_NAMES = {"tenant": "tenants", "user": "users", "partition": "partitions", "model": "models", "qos": "qoses"}
"""The arrays of `Jobs` that are indices into lists of names."""


def with_others(jobs: Jobs) -> tuple[Jobs, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the jobs and their `others` together, sorted by arrival.

    Others that arrive after the last job are left out.

    Returns
    -------
    jobs : Jobs
        All jobs (m,).
    own : array of int, shape (n,)
        The index in the result of each of the given jobs.
    elsewhere : array of bool, shape (m,)
        Whether each job runs on other nodes (see `Others`).
    """
    if jobs.others is None or not len(jobs):
        return jobs, np.arange(len(jobs)), np.zeros(len(jobs), np.bool_)
    arrive = jobs.others.jobs.arrival_ms <= jobs.arrival_ms[-1]
    others, away = jobs.others.jobs.rows(np.flatnonzero(arrive)), jobs.others.elsewhere[arrive]
    arrival = np.concatenate([jobs.arrival_ms, others.arrival_ms])
    order = np.argsort(arrival, kind="stable")
    changed: dict[str, Any] = {"held_ms": arrival - np.concatenate([jobs.submit_ms, others.submit_ms])}
    for column, names in _NAMES.items():
        known = sorted({*getattr(jobs, names), *getattr(others, names)})
        codes = [_recoded(getattr(part, column), len(part), getattr(part, names), known) for part in (jobs, others)]
        changed |= {column: np.concatenate(codes), names: known}
    for f in fields(jobs):
        values = [getattr(part, f.name) for part in (jobs, others)]
        if f.name not in changed and any(isinstance(value, np.ndarray) for value in values):
            absent = -1 if f.name == "array" else 0
            filled = [np.full(len(p), absent) if v is None else v for v, p in zip(values, (jobs, others), strict=True)]
            if f.name == "array":  # arrays of others have numbers of their own
                filled[1] = np.where(filled[1] >= 0, filled[1] + int(filled[0].max(initial=-1)) + 1, -1)
            changed[f.name] = np.concatenate(filled).astype(next(v.dtype for v in values if v is not None))
    changed["job_id"] = jobs.job_id.clone().extend(others.job_id)
    joined = replace(jobs, others=None, **changed).rows(order)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return joined, place[: len(jobs)], np.concatenate([np.zeros(len(jobs), np.bool_), away])[order]


def _recoded(codes: NDArray[np.int32] | None, count: int, names: list[str], known: list[str]) -> NDArray[np.int32]:
    """Return the index in `known` of each job's name, or -1 if it is unknown (n,)."""
    if codes is None:
        return np.full(count, -1, np.int32)
    place = {name: k for k, name in enumerate(known)}
    # The last entry is for unknown names, because their code -1 indexes it.
    return np.array([*(place[name] for name in names), -1], np.int32)[codes]


# The size classes of jobs, as in the view queries/views/job_classes.sql, for arrays.

GPU_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")
"""The classes in order. A class includes its upper limit, so 4.5 GPUs are in '5-8'."""


def gpus_of(jobs: Jobs) -> NDArray[np.int64]:
    """Return the total request of each job [milli-GPU], shape (n,)."""
    return jobs.devices.astype(np.int64) * jobs.milli


def gpu_class(milli: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the index in `GPU_CLASSES` for requests in milli-GPUs, shape (n,)."""
    # A limit belongs to the class below it, except that 1 GPU has its own class.
    return np.searchsorted(np.array([0, 999, 1000, 4000, 8000]), milli).astype(np.int8)


# The recorded waits and completion times of a replay's jobs.

RECORDED = "recorded"
"""Name of the log's own schedule in comparisons."""
TWIN = "twin"
"""Name of the replay that best reproduces the log."""


@dataclass(frozen=True)
class RecordedTimes:
    """Recorded starts and ends of jobs, in the order of `Jobs` (n,)."""

    queue_ms: NDArray[np.int64]
    """First start minus submission [ms], or -1 if unknown."""
    jct_ms: NDArray[np.int64]
    """Last end minus submission [ms], or -1 if it or the start is unknown."""


def recorded_times(jobs: Jobs) -> RecordedTimes:
    """Return the recorded times of a replay's jobs. Times in the wrong order become unknown."""
    started = (jobs.recorded_start_ms >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    ended = started & (jobs.recorded_end_ms >= jobs.recorded_start_ms)
    return RecordedTimes(
        np.where(started, jobs.recorded_start_ms - jobs.submit_ms, -1),
        np.where(ended, jobs.recorded_end_ms - jobs.submit_ms, -1),
    )


def in_time(
    at: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64], amount: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For each instant (n,), return the sum of the amounts (m,) whose half-open interval [begin, end) contains it."""
    by_begin, by_end = np.argsort(begin, kind="stable"), np.argsort(end, kind="stable")
    risen = np.concatenate([[0.0], np.cumsum(amount[by_begin])])
    fallen = np.concatenate([[0.0], np.cumsum(amount[by_end])])
    up = risen[np.searchsorted(begin[by_begin], at, side="right")]
    down = fallen[np.searchsorted(end[by_end], at, side="right")]
    return up - down
