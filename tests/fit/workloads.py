"""Small Traces with known workloads."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

__all__ = ["workload"]

_START = dt.datetime(2020, 4, 6)


def workload(size: int, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return jobs and attempts of two VCs and four users, with 8-GPU jobs that complete and 1-GPU jobs that may
    fail."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(600, size))
    jobs, attempts = [], []
    for i in range(size):
        big = rng.random() < 0.25
        failed = not big and rng.random() < 0.3
        run = float(np.round(rng.lognormal(8.5 if big else 5.0 if failed else 7.0, 1.0)))
        submit = _START + dt.timedelta(seconds=round(float(at[i])))
        start = submit + dt.timedelta(seconds=30)
        tries = 2 if failed else 1
        jobs.append(
            {
                "job_id": f"j{i}",
                "vc": "a" if rng.random() < 0.7 else "b",
                "user": f"u{rng.integers(4)}",
                "status": "failed" if failed else "completed",
                "submit_time": submit,
                "start_time": start,
                "end_time": start + dt.timedelta(seconds=run + 50 * (tries - 1)),
                "queue_s": 30.0,
                "run_s": run + 50.0 * (tries - 1),
                "gpu_count": 8.0 if big else 1.0,
                "node_count": 1,
                "attempt_count": tries,
            }
        )
        # Two attempts with 50 s between them, so the job was allocated GPUs for `run`.
        first = float(round(run / 2)) if failed else run
        for k, part in enumerate([first, run - first][:tries]):
            attempts.append(
                {
                    "job_id": f"j{i}",
                    "attempt": k,
                    "run_s": part,
                    "status": None if k < tries - 1 else jobs[-1]["status"],
                }
            )
    return {"jobs": jobs, "attempts": attempts}
