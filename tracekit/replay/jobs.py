"""The jobs of a replay: flat arrays, one element a job, ordered by the time from which they compete for GPUs.

That is their submission, unless the jobs are held back.

Times are integer milliseconds after `origin`; a GPU is 1,000 milli-GPUs.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["Jobs", "LeftOut", "naive_utc"]


def naive_utc(time: dt.datetime) -> dt.datetime:
    """Return a time in UTC without its zone; one that names no zone is UTC already."""
    return time if time.tzinfo is None else time.astimezone(dt.UTC).replace(tzinfo=None)


@dataclass(frozen=True)
class LeftOut:
    """Jobs of a trace that a replay cannot run, by reason."""

    reason: str
    """What the jobs lack, in a few words, such as 'no run time'."""
    jobs: int
    """How many jobs."""
    gpu_hours: float | None
    """Their GPU-hours by the log [GPU*h]; None unknown."""


@dataclass(frozen=True)
class Jobs:
    """The jobs of a replay, sorted by arrival (see `arrival_ms`); ties keep the order of the trace.

    All arrays have the shape (n,). Indices into the name lists are -1 where unknown.
    """

    origin: dt.datetime
    """The first submission; every time counts from here."""
    job_id: pl.Series
    """Names of the jobs (String)."""
    submit_ms: NDArray[np.int64]
    """Submission [ms]."""
    work_ms: NDArray[np.int64]
    """Run time on the recorded GPUs, queueing and suspension left out (D1) [ms]."""
    devices: NDArray[np.int32]
    """GPUs that the gang touches, at least 1."""
    milli: NDArray[np.int32]
    """What it asks of each of them, 1..1000 [milli-GPU]; 1000 is a whole GPU."""
    tenant: NDArray[np.int32]
    """Index into `tenants` (virtual clusters)."""
    user: NDArray[np.int32]
    """Index into `users`."""
    model: NDArray[np.int32]
    """GPU model asked for, index into `models`; -1 takes any."""
    name: NDArray[np.int32]
    """Job name or recurrence group, equal numbers for equal names; -1 unknown."""
    priority: NDArray[np.int32]
    """Larger is more urgent; 0 unknown."""
    preemptible: NDArray[np.int8]
    """1 yes, 0 no, -1 unknown."""
    cpu_milli: NDArray[np.int64]
    """CPU request of the whole job [milli-cores]; -1 unknown."""
    memory_mib: NDArray[np.int64]
    """Host memory request of the whole job [MiB]; -1 unknown."""
    limit_ms: NDArray[np.int64]
    """Time limit [ms]; -1 unknown."""
    utilization: NDArray[np.float64]
    """Mean GPU utilization [0..1]; NaN unknown."""
    recorded_start_ms: NDArray[np.int64]
    """First start in the log [ms]; -1 unknown."""
    recorded_end_ms: NDArray[np.int64]
    """End in the log [ms]; -1 unknown."""
    partition: NDArray[np.int32] | None = None
    """Index into `partitions`; None where the log knows none."""
    tenants: list[str] = field(default_factory=list)
    """Names of the virtual clusters, sorted."""
    users: list[str] = field(default_factory=list)
    """Names of the users, sorted."""
    partitions: list[str] = field(default_factory=list)
    """Names of the partitions or queues that jobs were submitted to, sorted."""
    models: list[str] = field(default_factory=list)
    """Names of the GPU models asked for, sorted."""
    left_out: tuple[LeftOut, ...] = ()
    """Jobs of the trace that are not here."""
    held_ms: NDArray[np.int64] | None = None
    """Time after its submission for which a job does not compete for GPUs [ms]; None where every job does at once."""

    @property
    def arrival_ms(self) -> NDArray[np.int64]:
        """When each job begins to compete for GPUs [ms], ascending (n,)."""
        return self.submit_ms if self.held_ms is None else self.submit_ms + self.held_ms

    def held_back(self, held_ms: NDArray[np.int64]) -> tuple[Jobs, NDArray[np.int64]]:
        """Return these jobs, each competing only so long after its submission, and the place where each stood before.

        Jobs are sorted by the time from which they compete; ties keep their order.

        Parameters
        ----------
        held_ms : array of int, shape (n,)
            At least 0 [ms].
        """
        order = np.argsort(self.submit_ms + held_ms, kind="stable")
        return replace(self, held_ms=held_ms).rows(order), order

    def rows(self, chosen: NDArray[np.int64]) -> Jobs:
        """Return some of the jobs, or all, in the order given; what was left out of the trace stays as it was."""
        arrays: dict[str, Any] = {
            f.name: value[chosen] for f in fields(self) if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        return replace(self, job_id=self.job_id.gather(chosen), **arrays)

    def shares_left_out(self) -> list[tuple[LeftOut, float | None]]:
        """Return what is left out, each with its share of all GPU-hours known of [1]."""
        replayed = float((self.work_ms.astype(np.float64) * self.devices * self.milli).sum()) / 3.6e9
        everything = replayed + sum(part.gpu_hours or 0.0 for part in self.left_out)
        return [
            (part, part.gpu_hours / everything if part.gpu_hours is not None and everything else None)
            for part in self.left_out
        ]

    def __len__(self) -> int:
        return len(self.submit_ms)
