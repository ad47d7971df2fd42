"""Parsers for what several kinds of LSF output share: GPUs of a request, lists of hosts, how a job ended.

Each function takes the text of one value and raises ValueError, with the reason, when it cannot be read.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.ingest.devices import UnknownDevices, device_factors, is_accelerator
from tracekit.ingest.node_lists import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.sink import Sink

__all__ = ["TERMINATION", "TERM_WORDS", "Devices", "GpuRequest", "gpu_request", "hosts", "placed", "wall_s"]

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

    number: float | None
    """None where it is not known."""
    per: str
    """'host' or 'task'."""
    model: str | None
    devices: frozenset[str] = frozenset()
    """Accelerators that nobody counts."""


def gpu_request(text: str, factors: Mapping[str, float] | None = None) -> GpuRequest | None:
    """Return the GPUs in the rusage section of `select[...] rusage[ngpus_physical=2.00/host]`; None where untold.

    A number without a unit counts for each host, as `-gpu num=2` does. Of alternatives (`||`) the first one counts. Of
    a compound requirement (`2*{...}+1*{...}`) which host got which part is not told. `factors` are the GPUs that other
    resources count, by name, as the option gpu_resource says. An accelerator that is not among them has no number.
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
    """Return the GPUs of what a section reserves, None where it reserves none; `found` has amount and unit by name."""
    plain = [name for name in _GPU_NAMES if name in found and name not in factors][:1]
    weights = {name: factor for name, factor in factors.items() if name in found} | dict.fromkeys(plain, 1.0)
    devices = frozenset(
        name for name, (amount, _) in found.items()
        if amount and name not in weights and name not in _GPU_NAMES and is_accelerator(name)
        and not (weights and "gpu" in name)
    )  # fmt: skip
    if not weights and not devices:
        return None
    units = {found[name][1] for name in weights if found[name][0]}
    if devices or len(units) > 1:
        return GpuRequest(None, "host", model, devices)
    number = sum(factor * found[name][0] for name, factor in weights.items())
    return GpuRequest(number, units.pop() if units else "host", model)


class Devices:
    """What counts as GPUs in requirements, and who asked for what nobody knows.

    Parameters
    ----------
    sink : Sink
        With the option gpu_resource; receives checks and a note.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._factors = device_factors(sink.options["gpu_resource"])
        self._unknown = UnknownDevices(sink, "jobs")
        self._holders: list[tuple[str, str]] = []
        self._whole: list[str] = []

    def request(self, text: str) -> GpuRequest | None:
        """Return the GPUs of a requirement."""
        return gpu_request(text, self._factors)

    def settled(self, job: str, request: GpuRequest | None, *, alone: bool) -> GpuRequest | None:
        """Return the request of a job, with an unknown number where its devices or its hosts make it so.

        Parameters
        ----------
        alone : bool
            Whether the job shares its hosts with no other: it has their GPUs, which nothing tells.
        """
        if request is None:
            return None
        if request.devices:
            self._holders.append((job, "|".join(sorted(request.devices))))
        if alone and request.number == 0:
            self._whole.append(job)
            return request._replace(number=None)
        return request

    def count(self, of: int) -> None:
        """Count what was found among `of` records."""
        self._unknown.add(self._holders, of)
        self._sink.check(
            "whole_nodes_without_gpus", len(self._whole), of,
            "records of whole-node jobs without a number of GPUs; their GPUs are unknown", self._whole,
        )  # fmt: skip
        self._holders, self._whole = [], []

    def report(self) -> None:
        """Name the devices that nobody knows."""
        self._unknown.report()


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
