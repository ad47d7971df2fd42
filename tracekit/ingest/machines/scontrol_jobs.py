"""The GPUs that running jobs hold on each node, as `scontrol --details show job` prints them, also with -o.

Polled while jobs run, it is the only output of Slurm that says how a gang is laid out over its nodes and which GPUs it
has there. Several polls may stand in one file, each after a comment with its time; without one the time of a record is
its start and its run time.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.gpu_parts import has_profile, part_of_gpu
from tracekit.ingest.cells import LostValues
from tracekit.ingest.formats._slurm_cells import duration_s
from tracekit.ingest.machines._interface import HELD, MachineReader
from tracekit.ingest.machines._rows import Clock
from tracekit.ingest.machines._scontrol import field_of, scontrol_records
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_NODES = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(
    r"(?<![^,])gpu(?::(?!\d{1,6}(?:[(,]|$))([^,:()]+))?(?::(\d{1,6}))?(?:\((?:IDX:([^()]*)|CNT:(\d{1,6}))\))?(?=,|$)"
)
# A name may hold anything; what follows is Slurm's own up to the command.
_OWN = re.compile(r"\sUserId=\S+\(\d+\)\s+GroupId=")
_MOST_INDEX = 4_096


class ScontrolJobs(MachineReader):
    """`scontrol -d show job`."""

    name = "scontrol-jobs"
    title = "GPUs that running jobs hold, printed by scontrol --details show job"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether records of jobs begin the file, after comments and blank lines."""
        return (
            re.match(rb"(?:\xef\xbb\xbf)?(?:(?:#[^\n]*)?\r?\n)*JobId=\d+ (?:[^\n]{0,4000} )?JobName=", head) is not None
        )

    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield what each job held on each node at each poll; jobs that hold no GPU say nothing."""
        clock = Clock(frame, sink)
        for records in scontrol_records(opened.stream, b"JobId="):
            rows: list[dict[str, Any]] = []
            for record in records:
                opened.count(1)
                try:
                    if record.fault:
                        raise ValueError(record.fault)
                    lost = LostValues()
                    rows += _held(record.text, record.stamp, clock, lost)
                    lost.count(sink)
                except ValueError as error:
                    opened.reject(record.line, None, str(error), record.raw)
            found = pl.DataFrame(rows, schema={**HELD, "time_clock": pl.Datetime("us")})
            yield "held", found.with_columns(time=clock.utc(found, "time")).select(list(HELD))


def _held(text: str, stamp: str | None, clock: Clock, lost: LostValues) -> list[dict[str, Any]]:
    """Return what a job holds on each of its nodes; receives the GRES indices that cannot be read.

    Raises
    ------
    ValueError
        The record cannot be used.
    """
    own = _OWN.search(text)
    if own is None or field_of(text, "JobId") is None:
        raise ValueError("has no UserId: the record may be truncated")
    text, head = text[own.start() :], text[: own.start()]
    cut = re.search(r"\sCommand=", text)
    nodes = _NODES.findall(text if cut is None else text[: cut.start()])
    known = [(names, found) for names, listed in nodes if (found := _gpus(listed, lost)) is not None]
    held = [(host, *found) for names, found in known for host in expand_nodes(names)]
    if not sum(count for _, count, _ in held):
        return []
    start = clock.read(field_of(text, "StartTime"))
    if start == (None, None):
        raise ValueError("StartTime is not a time")
    now = _now(text, stamp, start, clock)
    het, array = _component(head), _task(head)
    return [
        {
            "job": het[0] if het else str(field_of(head, "JobId")),
            "array_job": array,
            "task": het[1] if het else None,
            "host": host,
            "time_clock": now[0],
            "time": now[1],
            "gpu_count": count,
            "gpu_index": indices,
        }
        for host, count, indices in held
    ]


def _component(head: str) -> tuple[str, str] | None:
    """Return the number of a heterogeneous job and the component's."""
    job, offset = field_of(head, "HetJobId"), field_of(head, "HetJobOffset")
    return None if job is None or offset is None else (job, offset)


def _task(head: str) -> str | None:
    """Return the name of an array's task, JOB_TASK."""
    job, task = field_of(head, "ArrayJobId"), field_of(head, "ArrayTaskId")
    return None if job is None or task is None else f"{job}_{task}"


def _now(text: str, stamp: str | None, start: Any, clock: Clock) -> Any:
    """Return when the record was printed, not before the job's start and, where it has ended, not after its end."""
    now: tuple[Any, ...]
    if stamp is not None:
        now = clock.read(stamp)
    else:
        ran = timedelta(seconds=duration_s(field_of(text, "RunTime") or "") or 0)
        now = tuple(None if part is None else part + ran for part in start)
    end = clock.read(field_of(text, "EndTime"))
    limits = [(start, max)] + ([] if field_of(text, "JobState") == "RUNNING" else [(end, min)])
    for other, choose in limits:
        now = tuple(
            choose(mine, its) if mine is not None and its is not None else mine
            for mine, its in zip(now, other, strict=True)
        )
    return now


def _gpus(listed: str, lost: LostValues) -> tuple[float, list[int] | None] | None:
    """Return the number of GPUs in a list like `gpu:a100:2(IDX:0-1)` and their indices, None where unknown.

    MIG slices count as parts; their indices are not those of GPUs. A list with a part that is not known says nothing,
    nor does one that counts its GPUs by indices that cannot be read.
    """
    total, indices = 0.0, []
    known = True
    for kept, count, index, several in _GPUS.findall(listed):
        places = [] if index in {"", "N/A"} else lost.read("GRES", index, _places)
        number = int(several or count or 0) or (None if places is None else len(places))
        part = part_of_gpu(kept)
        if part is None or number is None:
            return None
        total += number * part.compute
        indices += places or []
        known &= len(places or []) == number and not has_profile(kept)
    return total, sorted(indices) if known else None


def _places(text: str) -> list[int]:
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(piece) > 12:
            raise ValueError("is not a list of GPU indices")
        begin, end = int(first), int(last or first)
        if not begin <= end < _MOST_INDEX:
            raise ValueError("is not a list of GPU indices")
        found += range(begin, end + 1)
    return found


READER = ScontrolJobs()
