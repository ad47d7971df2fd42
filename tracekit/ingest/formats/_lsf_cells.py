"""Parsers for what several kinds of LSF output share: GPUs of a request, lists of hosts, how a job ended.

Each function takes the text of one value and raises ValueError, with the reason, when it cannot be read.
"""

from __future__ import annotations

import re
from typing import Any

from tracekit.ingest.node_lists import MAX_NODES

__all__ = ["TERMINATION", "TERM_WORDS", "GpuRequest", "gpu_request", "hosts", "placed", "wall_s"]

from datetime import datetime
from typing import NamedTuple

_GPUS = re.compile(r"\bngpus(?:_physical|_shared|_excl_p|_excl_t)?=(\d{1,6}(?:\.\d{1,6})?)(?:/(host|task))?", re.ASCII)
_RUSAGE = re.compile(r"rusage\[([^\]]{0,10000})\]")
_MODEL = re.compile(r"\bgmodel=([\w.\-]{1,100})", re.ASCII)
_COMPOUND = re.compile(r"\d+\*\{")
_HOST = re.compile(r"(?:(\d{1,6})\*)?([^\s*<>\"]{1,255})", re.ASCII)
_WALL = re.compile(
    r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d)(?::(\d\d))?(?: (\d{4}))?(?: [A-Z])?", re.ASCII
)
_MONTHS = {
    m: n for n, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}

TERM_WORDS = (
    ("UNKNOWN", 0), ("PREEMPT", 1), ("WINDOW", 2), ("LOAD", 3), ("OTHER", 4), ("RUNLIMIT", 5), ("DEADLINE", 6),
    ("PROCESSLIMIT", 7), ("FORCE_OWNER", 8), ("FORCE_ADMIN", 9), ("REQUEUE_OWNER", 10), ("REQUEUE_ADMIN", 11),
    ("CPULIMIT", 12), ("CHKPNT", 13), ("OWNER", 14), ("ADMIN", 15), ("MEMLIMIT", 16), ("EXTERNAL_SIGNAL", 17),
    ("RMS", 18), ("ZOMBIE", 19), ("SWAP", 20), ("THREADLIMIT", 21), ("SLURM", 22), ("BUCKET_KILL", 23),
    ("CTRL_PID", 24), ("CWD_NOTEXIST", 25), ("REMOVE_HUNG_JOB", 26), ("ORPHAN_SYSTEM", 27), ("PRE_EXEC_FAIL", 28),
    ("DATA", 29), ("MC_RECALL", 30), ("RC_RECLAIM", 31), ("CSM_ALLOC", 32), ("KUBE", 33),
)  # fmt: skip
"""Reasons for which LSF ends a job, as bacct names them (TERM_...), with their number in lsb.acct."""

TERMINATION = {
    **dict.fromkeys(("PREEMPT", "RC_RECLAIM"), "preempted"),
    **dict.fromkeys(("WINDOW", "RUNLIMIT", "DEADLINE", "CPULIMIT"), "timeout"),
    **dict.fromkeys(("MEMLIMIT", "SWAP"), "out_of_memory"),
    **dict.fromkeys(("FORCE_OWNER", "FORCE_ADMIN", "OWNER", "ADMIN", "BUCKET_KILL", "ORPHAN_SYSTEM"), "cancelled"),
    **dict.fromkeys(("REQUEUE_OWNER", "REQUEUE_ADMIN"), "cancelled"),
    **dict.fromkeys(("ZOMBIE", "REMOVE_HUNG_JOB"), "node_fail"),
}
"""The common status of a reason; a job that ended for any other one failed."""


class GpuRequest(NamedTuple):
    """GPUs of a resource requirement."""

    number: float
    per: str
    """'host' or 'task'."""
    model: str | None


def gpu_request(text: str) -> GpuRequest | None:
    """Return the GPUs in the rusage section of `select[...] rusage[ngpus_physical=2.00/host]`; None where untold.

    A number without a unit counts for each host, as `-gpu num=2` does. Of alternatives (`||`) the first one counts. Of
    a compound requirement (`2*{...}+1*{...}`) which host got which part is not told.
    """
    if not text.strip() or _COMPOUND.search(text):
        return None
    model = _MODEL.search(text)
    for section in _RUSAGE.findall(text):
        match = _GPUS.search(section.split("||")[0])
        if match:
            return GpuRequest(float(match[1]), match[2] or "host", model[1] if model else None)
    return GpuRequest(0.0, "host", model[1] if model else None)


def hosts(names: list[str]) -> dict[str, int]:
    """Return the slots by host in a list such as `['4*hostA', 'hostB', 'hostB']`, in order."""
    found: dict[str, int] = {}
    for name in names:
        match = _HOST.fullmatch(name)
        if match is None:
            raise ValueError("is not a list of hosts")
        found[match[2]] = found.get(match[2], 0) + int(match[1] or 1)
        if len(found) > MAX_NODES:
            raise ValueError(f"names more than {MAX_NODES} nodes")
    return found


def placed(slots: dict[str, int], request: GpuRequest | None, indices: dict[str, set[int]]) -> dict[str, Any]:
    """Return the columns of a row of records that tell where a run was, and its GPUs.

    Parameters
    ----------
    slots : dict
        Slots by host.
    request : GpuRequest, optional
        What each host or task got.
    indices : dict
        The GPUs of each host, where they are listed.
    """
    counts: list[float | None] = []
    for host, tasks in slots.items():
        if indices:
            counts.append(float(len(indices.get(host, ()))))
        elif request is None:
            counts.append(None)
        else:
            counts.append(request.number * (tasks if request.per == "task" else 1))
    row: dict[str, Any] = {}
    if slots:
        row["place_node"] = list(slots)
        row["place_gpu_count"] = counts
        row["place_gpu_index"] = [sorted(indices[host]) if host in indices else None for host in slots]
        row["node_count"] = len(slots)
        row["cpu_count"] = float(sum(slots.values()))
    known = [count for count in counts if count is not None]
    if counts and len(known) == len(counts):
        row["gpu_count"] = sum(known)
    elif not counts and request is not None and not request.number:
        row["gpu_count"] = 0.0
    if request is not None and request.model:
        row["gpu_model"] = request.model
    return row


def wall_s(text: str, year: str) -> float:
    """Return a wall clock like `Sun Apr 12 17:23:38 2026` [s since 1970 of that clock]; `year` where it has none."""
    match = _WALL.fullmatch(text.strip())
    if match is None or match[1] not in _MONTHS:
        raise ValueError("is not a time like Apr 12 17:23:38 2026")
    stated = match[6] or year
    if not stated:
        raise ValueError("is a time without a year; set LSB_DISPLAY_YEAR=Y in lsf.conf, or give --option year=NUMBER")
    try:
        moment = datetime(
            int(stated), _MONTHS[match[1]], int(match[2]), int(match[3]), int(match[4]), int(match[5] or 0)
        )
    except ValueError:
        raise ValueError("is not a time like Apr 12 17:23:38 2026") from None
    return (moment - datetime(1970, 1, 1)).total_seconds()
