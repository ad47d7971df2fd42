"""The result of one replay, per job, over time and in total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray


LOG_KINDS = {
    "submit": 1,
    "start": 2,
    "take": 3,
    "stop": 4,
    "finish": 5,
    "rate": 6,
    "up": 7,
    "down": 8,
    "reject": 9,
    "fail": 10,
}
"""Kinds of rows in an event log (see `Outcome.log`)."""


def fact(title: str, value: str, source: str) -> dict[str, str]:
    """Return an entry for a result's assumptions, with an assumed or measured value and its source."""
    return {"title": title, "value": value, "source": source}


@dataclass(frozen=True)
class Timeline:
    """State of the cluster at evenly spaced times. Each row applies from its time on (T,)."""

    time_ms: NDArray[np.int64]
    """Times [ms]."""
    running: NDArray[np.int64]
    """Running jobs."""
    pending: NDArray[np.int64]
    """Waiting jobs."""
    busy_milli: NDArray[np.int64]
    """Allocated GPUs [milli-GPU]."""
    free_milli: NDArray[np.int64]
    """Free GPUs on available nodes [milli-GPU]."""
    fragmented_milli: NDArray[np.int64]
    """Free GPUs on nodes that are partly used [milli-GPU]."""


@dataclass(frozen=True)
class PowerUse:
    """The effect of a power cap over [0, makespan]."""

    peak_w: float
    """Peak GPU power, idle GPUs included [W]."""
    over_ms: int
    """Time above the cap with the clock at its lowest [ms]."""
    slowed_ms: int
    """Time below full clock [ms]."""
    changes: int
    """Number of clock changes."""


@dataclass(frozen=True)
class Losses:
    """The costs of node outages by job (n,)."""

    restarts: NDArray[np.int32]
    """How often a node failure stopped the job (n,)."""
    lost_milli_ms: NDArray[np.int64]
    """GPU time of work that had to be redone, because it came after the last checkpoint [milli-GPU * ms] (n,)."""
    progress_ppm: NDArray[np.int32]
    """Share of working time spent on work, not on saving it [ppm] (n,)."""


@dataclass(frozen=True)
class Outcome:
    """The schedule of one policy. Arrays have one element per job, in the order of `Jobs` (n,)."""

    first_start_ms: NDArray[np.int64]
    """First start [ms], or -1 if the job never started."""
    end_ms: NDArray[np.int64]
    """End [ms], or -1 if the job never ended."""
    run_ms: NDArray[np.int64]
    """Time for which the job had GPUs, overheads included [ms]."""
    overhead_ms: NDArray[np.int64]
    """Part of `run_ms` without progress: restarts, migrations and resizes [ms]."""
    preemptions: NDArray[np.int32]
    """How often the job lost all its GPUs before its end."""
    migrations: NDArray[np.int32]
    """How often the job moved to other nodes or changed its number of GPUs without waiting."""
    nodes_spanned: NDArray[np.int32]
    """Number of nodes of the last allocation, or 0 if the job never started or was placed by count."""
    unschedulable: NDArray[np.bool_]
    """Whether the job never ended, because it can never run on this cluster or waits forever under this policy."""
    held_milli_ms: NDArray[np.int64]
    """Integral of the job's allocated GPUs [milli-GPU * ms]."""
    timeline: Timeline
    """Running and waiting jobs, and free and fragmented GPUs, over time."""
    makespan_ms: int
    """Last end [ms after the first submission]."""
    busy_milli_ms: int
    """Integral of allocated GPUs over [0, makespan] [milli-GPU * ms]. A shared GPU counts once."""
    free_milli_ms: int
    """Integral of free GPUs on available nodes over the same time [milli-GPU * ms]."""
    fragmented_milli_ms: int
    """Integral of free GPUs on partly used nodes over the same time [milli-GPU * ms]."""
    energy_kwh: float | None
    """GPU energy over the same time according to M7 [kWh] (see `energy`), or None until it is computed."""
    events: int
    """Number of submissions, ends, node changes and timers processed."""
    wall_s: float
    """Time that the engine took, without compilation [s]."""
    columns: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Further columns that the policy adds to jobs.parquet for jobs that ended, by name (n,)."""
    power: PowerUse | None = None
    """The effect of the power cap, or None without a cap."""
    notes: tuple[str, ...] = ()
    """Notes for readers of the schedule, one sentence each."""
    losses: Losses | None = None
    """The costs of outages, or None if no outages were replayed."""
    energy_cost: float | None = None
    """Cost of the GPU energy according to M41, or None if the policy does not use prices."""
    deadline_ms: NDArray[np.int64] | None = None
    """Deadline of each job (D7) [ms], or -1 if it has none (n,). None if the policy does not use deadlines."""
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Further results of the mechanism by name, each with title, value and source."""
    violations: pl.DataFrame | None = None
    """Times at which the recorded schedule uses more GPUs than exist (see `violations`). None for other schedules."""
    log: NDArray[np.void] | None = None
    """The event log if it was requested, in order: rows (time_ms, kind, job, node, gpu, value).

    - submit (job)
    - start (job, value): value is the speed in ppm of the recorded speed; the job's take rows follow
    - take (job, node, gpu, value): value is in milli-GPUs; gpu is the GPU's index in the node, or -1 if only counts are
      kept; node is -1 if the job is placed by count
    - stop (job, value): the job loses all its GPUs; value is the overhead charged when it starts again [ms]
    - finish (job)
    - rate (job, value): value is the new speed in ppm
    - up, down (node)
    - reject (job): the job can never run
    - fail (job, node, value): an outage of the node stops the job; value is the overhead charged when it starts again
      [ms]
    """
