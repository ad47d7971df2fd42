"""A job as `sacct` prints it, the rows that it becomes, and files of such jobs with changed values."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]

__all__ = ["ATTEMPT_ROW", "JOB", "JOB_ROW", "PLACEMENT", "WAITING", "numbered", "sacct", "the_job"]

# Waits 10 s, and runs for an hour on 4 GPUs of each of two nodes.
JOB = {
    "JobID": "7",
    "JobIDRaw": "7",
    "Submit": "2024-03-04T08:00:00",
    "Eligible": "2024-03-04T08:00:04",
    "Start": "2024-03-04T08:00:10",
    "End": "2024-03-04T09:00:10",
    "State": "COMPLETED",
    "Elapsed": "01:00:00",
    "Suspended": "00:00:00",
    "Timelimit": "1-02:03:04",
    "AllocTRES": "billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=512G,node=2",
    "ReqTRES": "billing=64,cpu=64,gres/gpu=8,mem=512G,node=2",
    "NNodes": "2",
    "NodeList": "gpu[01-02]",
    "Account": "vision",
    "Partition": "long",
    "QOS": "normal",
    "User": "u1",
    "JobName": "train",
    "Priority": "4000",
}
JOB_ROW = {
    "job_id": "slurm/7",
    "cluster": "slurm",
    "vc": "vision",
    "user": "u1",
    "name": "train",
    "status": "completed",
    "source_status": "COMPLETED",
    "submit_time": "2024-03-04 08:00:00",
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
    "queue_s": 10.0,
    "run_s": 3600.0,
    "gpu_count": 8.0,
    "cpu_count": 64.0,
    "memory_gib": 512.0,
    "gpu_model": "a100",
    "node_count": 2,
    "attempt_count": 1,
    "priority": 4000,
    "time_limit_s": 93_784.0,
    "suspended_s": 0.0,
    "account": "vision",
    "partition": "long",
    "qos": "normal",
    "eligible_time": "2024-03-04 08:00:04",
}
ATTEMPT_ROW = {
    "job_id": "slurm/7",
    "attempt": 0,
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
    "run_s": 3600.0,
    "wait_s": 10.0,
    "gpu_count": 8.0,
    "node_count": 2,
    "status": "completed",
}
PLACEMENT = {
    "job_id": "slurm/7",
    "attempt": 0,
    "gpu_count": 4.0,
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
}
WAITING = {"Start": "Unknown", "Elapsed": "00:00:00", "AllocTRES": "", "NodeList": "None assigned"}


def sacct(*rows: dict[str, str], columns: Iterable[str] = (), trailing: bool = False) -> dict[str, str]:
    """Return a source of one file, where each row is the job above with changes."""
    names = list(columns) or list(dict.fromkeys([*JOB, *itertools.chain(*rows)]))
    end = "|\n" if trailing else "\n"
    lines = [names, *([{**JOB, **row}.get(name, "") for name in names] for row in rows)]
    return {"sacct.txt": "".join("|".join(line) + end for line in lines)}


def numbered(changes: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return a source of one file with the job above for each item, with the item's changes and ids from 1."""
    return sacct(*({"JobID": str(n), "JobIDRaw": str(n), **change} for n, change in enumerate(changes, 1)))


def the_job(trace: Trace, rows: Rows) -> dict[str, Any]:
    (row,) = rows(trace, "jobs")
    return row
