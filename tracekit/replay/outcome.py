"""The result of one replay: per job, over time, and in sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["LOG_KINDS", "Losses", "Outcome", "PowerUse", "Timeline"]

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


@dataclass(frozen=True)
class Timeline:
    """State at evenly spaced times, each the state that holds from then on (T,)."""

    time_ms: NDArray[np.int64]
    """Times [ms]."""
    running: NDArray[np.int64]
    """Jobs that hold GPUs."""
    pending: NDArray[np.int64]
    """Jobs submitted that wait."""
    busy_milli: NDArray[np.int64]
    """Held GPUs [milli-GPU]."""
    free_milli: NDArray[np.int64]
    """Free GPUs of nodes that are there [milli-GPU]."""
    fragmented_milli: NDArray[np.int64]
    """Free GPUs on nodes that are partly used [milli-GPU]."""


@dataclass(frozen=True)
class PowerUse:
    """What a power cap did, over [0, makespan]."""

    peak_w: float
    """Greatest power of the GPUs, idle ones included [W]."""
    over_ms: int
    """Time above the cap, the clock being at its lowest [ms]."""
    slowed_ms: int
    """Time below full clock [ms]."""
    changes: int
    """Changes of the clock."""


@dataclass(frozen=True)
class Losses:
    """What outages of nodes cost the jobs (n,)."""

    restarts: NDArray[np.int32]
    """How often a failing node stopped the job (n,)."""
    lost_milli_ms: NDArray[np.int64]
    """GPU time of work that had to be done again: since the last checkpoint [milli-GPU * ms] (n,)."""
    progress_ppm: NDArray[np.int32]
    """Part of the time of work that is work, not the saving of it [ppm] (n,)."""


@dataclass(frozen=True)
class Outcome:
    """The schedule of one policy. Arrays have one element a job of `Jobs`, in its order (n,)."""

    first_start_ms: NDArray[np.int64]
    """First start [ms]; -1 never."""
    end_ms: NDArray[np.int64]
    """End [ms]; -1 never."""
    run_ms: NDArray[np.int64]
    """Time in which the job held GPUs, overheads included [ms]."""
    overhead_ms: NDArray[np.int64]
    """Part of `run_ms` without progress: restarts, migrations, resizes [ms]."""
    preemptions: NDArray[np.int32]
    """How often it lost all its GPUs before its end."""
    migrations: NDArray[np.int32]
    """How often it moved to other nodes, or changed its number of GPUs, without having to wait."""
    nodes_spanned: NDArray[np.int32]
    """Nodes of its last allocation; 0 never started, or placed by count."""
    unschedulable: NDArray[np.bool_]
    """Never ended: it can never run on this cluster, or waits for ever under this policy."""
    held_milli_ms: NDArray[np.int64]
    """Integral of the GPUs it held [milli-GPU * ms]."""
    timeline: Timeline
    """Running and waiting jobs, free and fragmented GPUs through time."""
    makespan_ms: int
    """Last end [ms after the first submission]."""
    busy_milli_ms: int
    """Integral of held GPUs over [0, makespan] [milli-GPU * ms]; a shared GPU counts once."""
    free_milli_ms: int
    """Integral of free GPUs of present nodes over the same time [milli-GPU * ms]."""
    fragmented_milli_ms: int
    """Integral of free GPUs on partly used nodes over the same time [milli-GPU * ms]."""
    energy_kwh: float | None
    """Energy of the GPUs by M7 over the same time [kWh] (see `energy`); None before it is computed."""
    events: int
    """Submissions, ends, node changes and timers processed."""
    wall_s: float
    """Time the engine took, compilation left out [s]."""
    columns: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Further columns of the policy, by name (n,); it stands in jobs.parquet for jobs that ended."""
    power: PowerUse | None = None
    """What the power cap did; None without one."""
    notes: tuple[str, ...] = ()
    """What the reader of the result should know of the schedule, one sentence each."""
    losses: Losses | None = None
    """What outages cost; None where they were not replayed."""
    energy_cost: float | None = None
    """What that energy cost by M41; None where the policy does not reckon with prices."""
    deadline_ms: NDArray[np.int64] | None = None
    """Deadline of each job (D7), -1 of one without [ms]; None where the policy does not reckon with deadlines (n,)."""
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the mechanism tells of the run beside the schedule, by a name: title, value and source, one line each."""
    violations: pl.DataFrame | None = None
    """Where the recorded schedule holds more GPUs than there are (see `recording.events`); None of any other."""
    log: NDArray[np.void] | None = None
    """The event log where it was asked for, in order: rows (time_ms, kind, job, node, gpu, value).

    submit (job); start (job; value: rate in ppm of the recorded speed), followed by its take rows (job, node, gpu: the
    GPU's index in the node or -1 where only numbers are kept, value: milli-GPUs); stop (job: loses all its GPUs; value:
    overhead charged when it starts again [ms]); finish (job); rate (job, value: new rate in ppm); up, down (node);
    reject (job: can never run); fail (job, node: an outage of the node stops it; value: overhead when it starts again
    [ms]). A job placed by count takes from node -1.
    """
