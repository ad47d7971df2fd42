"""A Trace with values that two engines may treat differently, small enough to check by hand.

It has three clusters and jobs without a cluster, NULL wherever it is allowed, shares of GPUs, and ties in every order.
At the end of the trace, one job waits and another runs. Telemetry covers three days, of which only one has samples
between whole minutes, and one GPU appears on only one day. Times are in Los Angeles around the hour that the clock
repeats (5 November 2017, 1:00 to 2:00 local time, 8:00 to 10:00 UTC).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

__all__ = ["plant", "plant_nothing"]

_BEGIN = dt.datetime(2017, 11, 4, 20)
_STATUS = ("completed", "failed", "timeout", "node_fail", "cancelled", "preempted", "unknown", None)
_CLUSTERS = ("north", "south", "west", None)
ZONE = {"timezone": "America/Los_Angeles"}


def plant(make_trace: Callable[..., Trace]) -> Trace:
    """Write the Trace."""
    jobs, attempts, placements = _work()
    return make_trace(
        jobs=jobs,
        attempts=attempts,
        placements=placements,
        nodes=_nodes(),
        capacity=[
            {"time": _BEGIN, "cluster": "north", "vc": None, "gpu_count": 8},
            {"time": _BEGIN + dt.timedelta(hours=9), "cluster": "north", "vc": None, "gpu_count": 12},
            {"time": _BEGIN, "cluster": "south", "vc": "b", "gpu_count": 2.5},
        ],
        gpu_utilization=_samples(),
        host_utilization=_hosts(),
        job_usage=[
            {"job_id": f"j{k}", "gpu_util_pct": 12.345678 * (k % 9), "memory_gib": 1 + k / 7, "cpu_s": 100.0 * k}
            for k in range(0, 60, 3)
        ],
        node_events=_events(),
        failures=[
            {
                "job_id": f"j{k}",
                "attempt": 0 if k % 4 else None,
                "time": None if k % 3 else _BEGIN,
                "reason": reason,
                "category": category,
            }
            for k in range(1, 60, 8)
            for reason, category in (("ecc", "infrastructure"), ("oom", None))
        ],
        doubtful_times=[
            {
                "source_file": "log",
                "line": 3,
                "job_id": "j7",
                "attempt": None,
                "column": "end_time",
                "earliest": _BEGIN,
                "latest": _BEGIN + dt.timedelta(hours=1),
            },
            {"source_file": "log", "line": 4, "job_id": "j9", "attempt": 0, "column": "start_time"},
        ],
        manifest_overrides=ZONE,
    )


def plant_nothing(make_trace: Callable[..., Trace]) -> Trace:
    """Write a Trace with one job about which nothing is known, and all other tables without rows."""
    return make_trace(jobs=[{"job_id": "alone"}], attempts=[{"job_id": "alone", "attempt": 0}], manifest_overrides=ZONE)


def _work() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    jobs: list[dict[str, Any]] = []
    attempts: list[dict[str, Any]] = []
    placements: list[dict[str, Any]] = []
    for k in range(72):
        cluster = _CLUSTERS[(k + k // 8) % 4]
        gpus = (1, 2, 0.25, 8, None, 0, 1 / 3, 4)[k % 8]
        submit = _BEGIN + dt.timedelta(minutes=17 * k)
        wait, run = 60.0 * (k % 5), 1800.0 + 600 * (k % 6) + k / 7
        tries = 2 if k % 7 == 3 else 1
        pending, running = k == 71, k == 70
        start = None if pending else submit + dt.timedelta(seconds=wait)
        first, own = start, []
        for number in range(0 if pending else tries):
            end = None if running or start is None else start + dt.timedelta(seconds=run)
            own.append(end)
            attempts.append(
                {
                    "job_id": f"j{k}",
                    "attempt": number,
                    "start_time": start,
                    "end_time": end,
                    "run_s": None if end is None else run,
                    "wait_s": wait if number == 0 else 30.0,
                    "gpu_count": gpus,
                    "node_count": 2 if gpus == 8 else 1,
                    "status": "running" if running else (None if number < tries - 1 else _STATUS[k % 8]),
                }
            )
            for node in range(2 if gpus == 8 else 1):
                each = None if gpus is None else gpus / (2 if gpus == 8 else 1)
                indexes = list(range(int(each))) if each is not None and each >= 1 else None
                placements.append(
                    {
                        "job_id": f"j{k}",
                        "attempt": number,
                        "node_id": f"{cluster or 'none'}{(k + node) % 3}",
                        "gpu_index": indexes,
                        "gpu_count": each,
                        "start_time": start if k % 3 else None,
                        "end_time": end if k % 3 else None,
                    }
                )
            start = None if end is None else end + dt.timedelta(seconds=30)
        jobs.append(
            {
                "job_id": f"j{k}",
                "cluster": cluster,
                "vc": ("a", "b", None)[k % 3],
                "user": None if k % 11 == 0 else f"u{k % 5}",
                "group": None if k % 4 == 0 else f"g{k % 3}",
                "name": f"n{k % 6}",
                "status": "pending" if pending else "running" if running else _STATUS[k % 8],
                "submit_time": submit,
                "start_time": first,
                "end_time": own[-1] if own else None,
                "queue_s": None if pending else wait,
                "run_s": None if pending or running else run * tries,
                "gpu_count": gpus,
                "cpu_count": 4.0 if k % 2 else None,
                "memory_gib": 32.0,
                "time_limit_s": 36_000.0,
                "node_count": None if pending else (2 if gpus == 8 else 1),
                "instance_count": 1 + k % 3,
                "attempt_count": len(own),
                "gpu_model": ("V100", "A100", "A100|V100", None)[k % 4],
                "account": f"acc{k % 2}",
                "partition": "p",
                "qos": None,
                "eligible_time": submit,
                "wait_reason": ("Resources", "QOSMaxJobsLimit", "Dependency", None, "(odd)")[k % 5],
                "started_by": ("main", "backfill", None)[k % 3],
            }
        )
    return jobs, attempts, placements


def _nodes() -> list[dict[str, Any]]:
    return [
        {
            "node_id": f"{cluster or 'none'}{k}",
            "cluster": cluster,
            "gpu_count": None if k == 2 else 4,
            "gpu_model": "V100" if k else "A100",
            "rack": f"r{k % 2}",
        }
        for cluster in _CLUSTERS
        for k in range(3)
    ]


def _samples() -> list[dict[str, Any]]:
    found = []
    for day in range(3):
        for minute in range(0, 400, 5):
            for k, cluster in enumerate(("north", "south", "west")):
                for gpu in range(4 if day == 1 else 2):
                    # Only the last day has samples between whole minutes.
                    second = 7 if day == 2 and minute % 50 == 0 else 0
                    value = None if (minute + gpu) % 45 == 0 else ((minute * 7 + gpu * 13 + k) % 1000) / 9.7
                    found.append(
                        {
                            "time": _BEGIN + dt.timedelta(hours=8 * day, minutes=minute, seconds=second),
                            "node_id": f"{cluster}{minute % 3}",
                            "gpu_index": gpu,
                            "utilization_pct": value,
                            "sm_active_pct": None if minute % 4 else 50.0 + gpu,
                        }
                    )
    return found


def _hosts() -> list[dict[str, Any]]:
    return [
        {
            "time": _BEGIN + dt.timedelta(minutes=30 * k),
            "node_id": f"north{k % 3}",
            "cpu_pct": None if k % 9 == 0 else 100 * (k % 7) / 7,
            "memory_used_gib": 10 + k / 3,
            "memory_total_gib": None if k % 13 == 0 else 256.0,
        }
        for k in range(90)
    ]


def _events() -> list[dict[str, Any]]:
    states = ("down", "drained", "maintenance", "degraded")
    return [
        {
            "node_id": f"{('north', 'south', 'west')[k % 3]}{k % 2}",
            "start_time": _BEGIN + dt.timedelta(minutes=37 * k),
            "end_time": None if k == 30 else _BEGIN + dt.timedelta(minutes=37 * k + 11 * (k % 8)),
            "state": states[k % 4],
            "cause": ("gpu", None, "maintenance", "network", "unknown")[k % 5],
        }
        for k in range(31)
    ]
