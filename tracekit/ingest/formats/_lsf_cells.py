"""Parse values that several kinds of LSF output share: GPU requests, host lists, and how a job ended.

Each function takes one value as a string. If it cannot be read, the function raises ValueError with the reason. An
unreadable time raises a `Fault`, because without the time the record would mean something else.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.ingest.formats._records import Fault, gpu_weights, uncounted_devices
from tracekit.ingest.node_lists import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.formats._records import Devices

_AMOUNT = re.compile(r"\b([A-Za-z_]\w{0,80})=(\d{1,6}(?:\.\d{1,6})?)(?:/(host|task))?(?![\w.])", re.ASCII)
_GPU_NAMES = ("ngpus_physical", "ngpus", "ngpus_shared", "ngpus_excl_p", "ngpus_excl_t")
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

_TERM = re.compile(r"TERM_([A-Z_]{1,40})", re.ASCII)
TERM_WORDS = (
    "UNKNOWN", "PREEMPT", "WINDOW", "LOAD", "OTHER", "RUNLIMIT", "DEADLINE", "PROCESSLIMIT", "FORCE_OWNER",
    "FORCE_ADMIN", "REQUEUE_OWNER", "REQUEUE_ADMIN", "CPULIMIT", "CHKPNT", "OWNER", "ADMIN", "MEMLIMIT",
    "EXTERNAL_SIGNAL", "RMS", "ZOMBIE", "SWAP", "THREADLIMIT", "SLURM", "BUCKET_KILL", "CTRL_PID", "CWD_NOTEXIST",
    "REMOVE_HUNG_JOB", "ORPHAN_SYSTEM", "PRE_EXEC_FAIL", "DATA", "MC_RECALL", "RC_RECLAIM", "CSM_ALLOC", "KUBE",
)  # fmt: skip
"""Reasons why LSF ends a job, as named by bacct (TERM_...). lsb.acct stores the index in this list, from 0."""

_TERMINATION = {
    **dict.fromkeys(("PREEMPT", "RC_RECLAIM"), "preempted"),
    **dict.fromkeys(("WINDOW", "RUNLIMIT", "DEADLINE", "CPULIMIT"), "timeout"),
    **dict.fromkeys(("MEMLIMIT", "SWAP"), "out_of_memory"),
    **dict.fromkeys(("FORCE_OWNER", "FORCE_ADMIN", "OWNER", "ADMIN", "BUCKET_KILL", "ORPHAN_SYSTEM"), "cancelled"),
    **dict.fromkeys(("REQUEUE_OWNER", "REQUEUE_ADMIN"), "cancelled"),
    **dict.fromkeys(("ZOMBIE", "REMOVE_HUNG_JOB"), "node_fail"),
}
"""The common status for each reason. For any other reason, the job failed."""


def exited(text: str) -> tuple[str, str]:
    """Return the common status of a job that did not complete, and LSF's word, from the TERM_... reason in `text`."""
    reason = _TERM.search(text)
    return (_TERMINATION.get(reason[1], "failed"), reason[0]) if reason else ("failed", "EXIT")


class GpuRequest(NamedTuple):
    """The GPUs in a resource requirement."""

    number: float | None
    """Number of GPUs, or None if unknown."""
    per: str
    """'host' or 'task'."""
    model: str | None
    devices: frozenset[str] = frozenset()
    """Accelerators whose GPU count is unknown."""


def gpu_request(text: str, factors: Mapping[str, float] | None = None) -> GpuRequest | None:
    """Return the GPUs in the rusage section of `select[...] rusage[ngpus_physical=2.00/host]`, or None if not given.

    A number without a unit applies to each host, as in `-gpu num=2`. If the requirement has alternatives (`||`), the
    first is used. For a compound requirement (`2*{...}+1*{...}`), LSF does not record which host got which part.
    `factors` gives the GPUs that other resources count as, by name, from the gpu_resource option. For other
    accelerators, the number is unknown.
    """
    if not text.strip() or _COMPOUND.search(text):
        return None
    model = _MODEL.search(text)
    for section in _RUSAGE.findall(text):
        found = {
            name.lower(): (float(amount), per or "host")
            for name, amount, per in _AMOUNT.findall(section.split("||")[0])
        }
        request = _counted(found, factors or {}, model[1] if model else None)
        if request is not None:
            return request
    return GpuRequest(0.0, "host", model[1] if model else None)


def _counted(
    found: Mapping[str, tuple[float, str]], factors: Mapping[str, float], model: str | None
) -> GpuRequest | None:
    """Return the GPUs that a section reserves, or None. `found` has the amount and unit by name."""
    weights = gpu_weights(found, _GPU_NAMES, factors)
    devices = frozenset(uncounted_devices((n for n, (amount, _) in found.items() if amount), _GPU_NAMES, weights))
    if not weights and not devices:
        return None
    units = {found[name][1] for name in weights if found[name][0]}
    if devices or len(units) > 1:
        return GpuRequest(None, "host", model, devices)
    number = sum(factor * found[name][0] for name, factor in weights.items())
    return GpuRequest(number, units.pop() if units else "host", model)


def settled(job: str, request: GpuRequest | None, devices: Devices, *, alone: bool) -> GpuRequest | None:
    """Return a job's request, and add its devices to `devices`. For whole hosts, the number is unknown.

    Parameters
    ----------
    alone : bool
        Whether the job uses its hosts exclusively. It then has all their GPUs, and the number is not recorded.
    """
    if request is None:
        return None
    whole = alone and request.number == 0
    devices.add(job, request.devices, whole=whole)
    return request._replace(number=None) if whole else request


def of_cluster(rows: list[dict[str, Any]], options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Fill in the cluster and the tenant of record rows."""
    tenant = {"queue": "partition", "project": "account"}[options["vc"]]
    return [row | {"cluster": options["cluster"], "vc": row.get(tenant)} for row in rows]


def hosts(names: list[str]) -> dict[str, int]:
    """Return the number of slots per host from a list such as `['4*hostA', 'hostB', 'hostB']`, in order."""
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
    """Return the columns of a record row for a run's placement and GPUs.

    Parameters
    ----------
    slots : dict
        Number of slots per host.
    request : GpuRequest, optional
        The GPUs allocated to each host or task.
    indices : dict
        GPU indices by host, if listed.
    """
    counts: list[float | None] = []
    for host, tasks in slots.items():
        if indices:
            counts.append(float(len(indices.get(host, ()))))
        elif request is None or request.number is None:
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
    elif not counts and request is not None and request.number == 0:
        row["gpu_count"] = 0.0
    if request is not None and request.model:
        row["gpu_model"] = request.model
    return row


def wall_s(text: str, year: str, column: str | None = None) -> float:
    """Parse a time like `Sun Apr 12 17:23:38 2026` to s since 1970. `year` is used if `text` has no year."""
    match = _WALL.fullmatch(text.strip())
    if match is None or match[1] not in _MONTHS:
        raise Fault(column, "is not a time like Apr 12 17:23:38 2026")
    stated = match[6] or year
    if not stated:
        reason = "is a time without a year; set LSB_DISPLAY_YEAR=Y in lsf.conf, or give --option year=NUMBER"
        raise Fault(column, reason)
    try:
        moment = datetime(
            int(stated), _MONTHS[match[1]], int(match[2]), int(match[3]), int(match[4]), int(match[5] or 0)
        )
    except ValueError:
        raise Fault(column, "is not a time like Apr 12 17:23:38 2026") from None
    return (moment - datetime(1970, 1, 1)).total_seconds()
