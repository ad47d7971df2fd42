"""Read the jobs that wait or run now, from `squeue --json` of Slurm 21.08 and later.

Manual: slurm.schedmd.com/squeue.html (--json). Numbers are plain, or objects such as `{"set": true, "infinite": false,
"number": 5}`. A state is one word or a list of words. A waiting array is one record that stands for all its tasks. The
GPUs of a running job come from `tres_alloc_str`, otherwise from `tres_req_str`, or else from `tres_per_job` and
`tres_per_node`. On several nodes, `gres_detail` gives the GPUs of each; without it, each node has an even share.

A job is held back, and not ahead of others, while its reason is a dependency, a begin time or a hold, or while its
earliest start is in the future.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import polars as pl

from tracekit.errors import SourceError
from tracekit.ingest.formats._records import at, items
from tracekit.ingest.formats._slurm_cells import array_tasks, gres, status_of, tres
from tracekit.ingest.formats._slurm_json import number_of, state_of, text_of
from tracekit.ingest.node_lists import expand_nodes
from tracekit.tables.live_queue import QUEUE, Queue
from tracekit.text import counted

_HINT = "write the file with: squeue --json > queue.json"
_MOST_BYTES = 1 << 30
"""Maximum size of a file. A job takes about 5 KB."""
_HELD_BACK = ("Dependency", "BeginTime", "JobHeld", "JobHoldMaxRequeue")
"""Beginnings of the reasons of jobs that may not start yet."""
_MOST_GPUS = 1e6
_MOST_SECONDS = 1e11


def read_squeue(path: str | Path) -> Queue:
    """Return the jobs that wait or run, and the time of the snapshot.

    Parameters
    ----------
    path : str or Path
        A file with the output of `squeue --json` for all users.

    Raises
    ------
    SourceError
        The file cannot be read or is not the output of `squeue --json`.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise SourceError("is larger than any queue", where=file, hint=_HINT)
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=file) from error
    except ValueError as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"is not JSON: {str(error)[:200]}", where=file, hint=_HINT) from error
    if not isinstance(at(document, "jobs"), list):
        raise SourceError("has no list of jobs", where=file, hint=_HINT)
    records = items(document, "jobs")
    if records and not any("job_state" in record for record in records):
        raise SourceError("is not the output of squeue: no job has a job_state", where=file, hint=_HINT)
    moment = _moment(document, records)
    if moment is None:
        raise SourceError("has neither jobs with times nor its own time", where=file, hint=_HINT)
    rows: list[dict[str, Any]] = []
    unread = len(document["jobs"]) - len(records)
    for record in records:
        try:
            rows += _rows(record, moment)
        except ValueError:
            unread += 1
    jobs = pl.DataFrame(rows, schema=QUEUE)
    unknown = jobs["gpu_count"].null_count()
    notes = [f"{counted(unread, 'jobs')} of the queue could not be read"] * (unread > 0)
    notes += [f"the GPUs of {counted(unknown, 'jobs')} of the queue are unknown"] * (unknown > 0)
    return Queue(jobs, round(moment * 1e6), tuple(notes))


def _time(value: Any) -> float | None:
    """Return a time [s since 1970], or None if it is unknown; Slurm writes 0 for an unknown time."""
    seconds = number_of(value)
    return float(seconds) if seconds is not None and 0 < seconds < _MOST_SECONDS else None


def _moment(document: Any, records: list[dict[str, Any]]) -> float | None:
    """Return the time of the file [s since 1970]: its own or, in old versions, the last submission or start in it."""
    found = [_time(document.get("last_update"))]
    if found == [None]:
        # The start of a waiting job is a forecast.
        names = [("submit_time", *(("start_time",) if _status(job) == "running" else ())) for job in records]
        found = [_time(job.get(name)) for job, some in zip(records, names, strict=True) for name in some]
    return max((time for time in found if time is not None), default=None)


def _status(job: dict[str, Any]) -> str | None:
    word = state_of(job.get("job_state"))
    return None if word is None else status_of(word)


def _rows(job: dict[str, Any], moment: float) -> list[dict[str, Any]]:
    """Return a row for each task of a waiting or running record.

    Raises
    ------
    ValueError
        A list or an amount cannot be read.
    """
    status = _status(job)
    if status not in {"pending", "running"}:
        return []
    nodes = expand_nodes(text) if (text := text_of(job.get("nodes"))) else []
    waiting = status == "pending" and not nodes  # while its nodes boot, a job is pending but has them
    reason, eligible = text_of(job.get("state_reason")) or "", _time(job.get("eligible_time"))
    if waiting and (reason.startswith(_HELD_BACK) or (eligible is not None and eligible > moment)):
        return []
    gpus, minutes = _gpus(job, waiting=waiting), number_of(job.get("time_limit"))
    begun = _time(job.get("submit_time" if waiting else "start_time"))
    row = {
        "partitions": [name for name in (text_of(job.get("partition")) or "").split(",") if name],
        "gpu_count": gpus,
        "limit_s": None if minutes is None or not 0 < minutes < _MOST_SECONDS else minutes * 60.0,
        "since": round((moment if begun is None else min(begun, moment)) * 1e6),
        "waiting": waiting,
        "nodes": nodes,
        "node_gpus": _of_nodes(job, gpus, len(nodes)),
    }
    listed = text_of(job.get("array_task_string")) if waiting else None
    return [row] * ((array_tasks(listed).size or 1) if listed else 1)


def _gpus(job: dict[str, Any], *, waiting: bool) -> float | None:
    """Return a job's GPUs, or None if they are unknown."""
    found = None
    for name in ("tres_req_str",) if waiting else ("tres_alloc_str", "tres_req_str"):
        if found is None and (text := text_of(job.get(name))):
            found = tres(text).gpus
    per_job, per_node = text_of(job.get("tres_per_job")), text_of(job.get("tres_per_node"))
    if not found and per_job:
        found = gres(per_job).gpus
    if not found and per_node and (count := number_of(job.get("node_count"))):
        each = gres(per_node).gpus
        found = None if each is None else each * count
    if found is not None and not 0 <= found <= _MOST_GPUS:
        raise ValueError("is not a number of GPUs")
    return found


def _of_nodes(job: dict[str, Any], gpus: float | None, nodes: int) -> list[float | None]:
    """Return a running job's GPUs on each of its nodes."""
    details = job.get("gres_detail")
    if isinstance(details, list) and len(details) == nodes and all(isinstance(text, str) for text in details):
        return [gres(text).gpus for text in details]
    return [None if gpus is None else gpus / max(nodes, 1)] * nodes
