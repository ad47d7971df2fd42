"""Traces with and without a problem of known size, for tests of the guidelines."""

from __future__ import annotations

import datetime as dt
from typing import Any

__all__ = ["DAY", "Log", "tables_of", "when"]

DAY = 86400.0
_BEGIN = dt.datetime(2020, 1, 6)


def when(seconds: float) -> dt.datetime:
    """Return the time `seconds` after Monday, 6 January 2020."""
    return _BEGIN + dt.timedelta(seconds=seconds)


class Log:
    """Jobs added one by one, with their GPUs and how busy these were."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, **row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def job(
        self,
        submit: float,
        run_s: float,
        *,
        gpus: float = 1,
        queue_s: float = 0,
        status: str = "completed",
        attempts: tuple[str, ...] = (),
        node: str | None = None,
        **more: Any,
    ) -> str:
        """Add a job with one attempt of `run_s` per status in `attempts`, by default one."""
        name = f"j{len(self.tables.get('jobs', []))}"
        statuses = attempts or (status,)
        start = submit + queue_s
        end = start + run_s * len(statuses)
        fields = {"user": "u", "vc": "v", "node_count": 1, **more}
        self.add(
            "jobs",
            job_id=name,
            status=status,
            submit_time=when(submit),
            start_time=when(start),
            end_time=when(end),
            queue_s=queue_s,
            run_s=end - start,
            gpu_count=gpus,
            attempt_count=len(statuses),
            **fields,
        )
        for number, ended in enumerate(statuses):
            since = start + number * run_s
            self.add(
                "attempts",
                job_id=name,
                attempt=number,
                start_time=when(since),
                end_time=when(since + run_s),
                run_s=run_s,
                wait_s=queue_s if number == 0 else 0,
                gpu_count=gpus,
                node_count=fields["node_count"],
                status=ended,
            )
            if node is not None:
                self.hold(name, node, list(range(int(gpus))), attempt=number)
        return name

    def hold(self, job: str, node: str, gpus: list[int], *, attempt: int = 0) -> None:
        self.add("placements", job_id=job, attempt=attempt, node_id=node, gpu_index=gpus, gpu_count=len(gpus))

    def busy(self, node: str, gpus: list[int], since: float, seconds: float, pct: float) -> None:
        """Add one sample per minute for each GPU."""
        for gpu in gpus:
            for minute in range(int(seconds // 60)):
                time = when(since + 60 * minute)
                self.add("gpu_utilization", time=time, node_id=node, gpu_index=gpu, utilization_pct=pct)

    def used(self, job: str, gpus: float, pct: float) -> None:
        """Set a job's mean utilization of each GPU."""
        self.add("job_usage", job_id=job, gpu_util_pct=pct * gpus)

    def nodes(self, names: str, gpus: int) -> None:
        for name in names:
            self.add("nodes", node_id=name, gpu_count=gpus)


def tables_of(log: Log) -> dict[str, list[dict[str, Any]]]:
    return log.tables
