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
        return replace(self, job_id=self.job_id.gather(chosen), **arrays)

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
