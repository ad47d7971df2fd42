"""Fixtures for exports: a Trace small enough to check by hand, and a function that exports a Trace."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.export.api import Exported
    from tracekit.trace import Trace

SMALL = [
    # Waits 30 s, runs 100 s on 4 GPUs.
    {"job_id": "a", "cluster": "Earth", "vc": "red", "user": "ann", "status": "completed", "gpu_count": 4,
     "submit_time": "2020-04-02 00:00:00", "start_time": "2020-04-02 00:00:30", "end_time": "2020-04-02 00:02:10",
     "run_s": 100, "queue_s": 30, "cpu_count": 16, "memory_gib": 64, "gpu_model": "V100", "node_count": 1,
     "time_limit_s": 3600, "attempt_count": 1},
    # Two attempts of 50 s and 25 s, with a gap of 25 s between them.
    {"job_id": "b", "cluster": "Earth", "vc": "blue", "user": "bob", "status": "failed", "gpu_count": 8,
     "submit_time": "2020-04-02 00:01:00", "start_time": "2020-04-02 00:01:00", "end_time": "2020-04-02 00:02:40",
     "run_s": 100, "queue_s": 0, "attempt_count": 2},
    # A CPU job.
    {"job_id": "c", "cluster": "Earth", "vc": "red", "user": "ann", "status": "completed", "gpu_count": 0,
     "submit_time": "2020-04-02 00:01:10", "start_time": "2020-04-02 00:01:10", "end_time": "2020-04-02 00:01:20",
     "run_s": 10, "queue_s": 0, "cpu_count": 2},
    # Cancelled after 20 s in the queue.
    {"job_id": "d", "cluster": "Earth", "vc": "red", "user": "cat", "status": "cancelled", "gpu_count": 1,
     "submit_time": "2020-04-02 00:02:00", "end_time": "2020-04-02 00:02:20", "attempt_count": 0},
    # A quarter of a GPU, still running.
    {"job_id": "e", "cluster": "Earth", "vc": "red", "user": "ann", "status": "running", "gpu_count": 0.25,
     "submit_time": "2020-04-02 00:03:00", "start_time": "2020-04-02 00:03:05", "queue_s": 5},
    # Half a GPU for 12.4 s, submitted together with g.
    {"job_id": "f", "cluster": "Earth", "vc": "red", "user": None, "status": "timeout", "gpu_count": 0.5,
     "submit_time": "2020-04-02 00:04:00", "start_time": "2020-04-02 00:04:01", "end_time": "2020-04-02 00:04:13.400",
     "run_s": 12.4, "queue_s": 1},
    # No machine count and no times.
    {"job_id": "g", "cluster": "Earth", "vc": "red", "user": "ann", "status": "unknown",
     "submit_time": "2020-04-02 00:04:00"},
]  # fmt: skip

ATTEMPTS = [
    {"job_id": "a", "attempt": 0, "run_s": 100},
    {"job_id": "b", "attempt": 0, "run_s": 50},
    {"job_id": "b", "attempt": 1, "run_s": 25},
    {"job_id": "c", "attempt": 0, "run_s": 10},
    {"job_id": "e", "attempt": 0},
    {"job_id": "f", "attempt": 0, "run_s": 12.4},
]


@pytest.fixture(scope="session")
def small(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace of seven jobs. a, b and f can be replayed on GPUs, c on CPUs, and d, e and g not at all."""
    return make_trace(jobs=SMALL, attempts=ATTEMPTS)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[Path, Exported]]:
    """Return a function such as `run(trace, "swf", jobs="all")` that exports and returns the main file and the log."""
    numbers = itertools.count()

    def run_export(trace: Trace, to: str, name: str = "out.csv", **options: Any) -> tuple[Path, Exported]:
        out = tmp_path / str(next(numbers)) / name
        return out, export(trace, to, out, options={key: str(value) for key, value in options.items()})

    return run_export
