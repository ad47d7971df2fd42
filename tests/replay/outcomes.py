"""Outcomes for tests, derived from hand-written start and end times of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.outcome import Outcome, Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.jobs import Jobs

__all__ = ["make_outcome"]


def make_outcome(
    jobs: Jobs, spans: Sequence[tuple[float, float] | None], *, gpus: int = 8, free_fragmented: float = 0.0, **more: Any
) -> Outcome:
    """Return the outcome in which job i of `jobs` uses its GPUs during spans[i] = (start, end) [s], or never runs.

    The cluster always has `gpus` GPUs. A share of `free_fragmented` of the free GPU time is on partly used nodes. Every
    other field may be given by its name, with arrays as lists in the order of `jobs`.
    """
    start = np.array([-1 if s is None else round(s[0] * 1000) for s in spans], dtype=np.int64)
    end = np.array([-1 if s is None else round(s[1] * 1000) for s in spans], dtype=np.int64)
    held = (end - start) * jobs.devices * jobs.milli
    makespan = max(0, int(end.max(initial=0)))
    busy = int(held.sum())
    free = gpus * 1000 * makespan - busy
    n = len(jobs)
    none = np.zeros(0, dtype=np.int64)
    fields: dict[str, Any] = {
        "first_start_ms": start,
        "end_ms": end,
        "run_ms": end - start,
        "overhead_ms": np.zeros(n, dtype=np.int64),
        "preemptions": np.zeros(n, dtype=np.int32),
        "migrations": np.zeros(n, dtype=np.int32),
        "nodes_spanned": (start >= 0).astype(np.int32),
        "unschedulable": start < 0,
        "held_milli_ms": held,
        "timeline": Timeline(none, none, none, none, none, none),
        "makespan_ms": makespan,
        "busy_milli_ms": busy,
        "free_milli_ms": free,
        "fragmented_milli_ms": round(free_fragmented * free),
        "energy_kwh": None,
        "events": 2 * n,
        "wall_s": 0.5,
    }
    for name, value in more.items():
        old = fields[name]
        fields[name] = np.array(value, dtype=old.dtype) if isinstance(old, np.ndarray) else value
    return Outcome(**fields)
