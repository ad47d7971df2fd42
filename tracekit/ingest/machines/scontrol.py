"""Read a Slurm cluster's nodes and running jobs, as printed by scontrol in paragraphs or one per line (-o).

`scontrol show nodes` lists machines and their states. Memory is in MiB. A reason ends with its author and time.

`scontrol --details show job`, polled while jobs run, is the only Slurm output that shows which GPUs of which nodes a
multi-node job has. One file may contain several polls, each after a comment with its time. Without a comment, a
record's time is its start plus its run time.

Manual: slurm.schedmd.com/scontrol.html.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.gpu_parts import has_profile, part_of_gpu
from tracekit.ingest.formats._slurm_cells import duration_s
from tracekit.ingest.machines._rows import RecordReader
from tracekit.ingest.machines._slurm import fitness, gpus_of, is_no_machine, listed, words_in
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.records import Record, line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.machines._rows import Cells, Row
    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile

_LONGEST = 4 * 1024 * 1024
"""Maximum length of a record [bytes]."""

_STAMP = re.compile(rb"#\s*(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|\d{9,11})\s*$")


class Printed(NamedTuple):
    """A record of scontrol."""

    text: str
    stamp: str | None
    """The time in the last comment line before the record, unparsed."""


def scontrol_records(stream: ByteReader, key: bytes) -> Iterator[list[Record]]:
    """Yield the records of a file in blocks. A record begins with `key`, such as b'JobId=', on a new line.

    All later lines of a record are indented. A comment with a time ('# 2024-03-04T08:00:00') precedes the records that
    were printed at that time.
    """
    stamp: str | None = None
    parts: list[bytes] = []
    begun, size, number = 0, 0, 0
    for block in line_blocks(stream, _LONGEST):
        found: list[Record] = []
        for line in block:
            number += 1
            plain = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r") if number == 1 else line.rstrip(b"\r")
            if parts and plain[:1] in {b" ", b"\t"} and plain.strip():
                size += len(plain)
                if size <= _LONGEST:
                    parts.append(plain)
                continue
            if parts:
                found.append(_record(begun, parts, size, stamp))
                parts = []
            if plain.startswith(key):
                parts, begun, size = [plain], number, len(plain)
            elif match := _STAMP.match(plain):
                stamp = match[1].decode()
            elif plain.strip() and not plain.startswith(b"#"):
                found.append(Record(number, plain, None, f"does not begin with {key.decode()}"))
        yield found
    if parts:
        yield [_record(begun, parts, size, stamp)]


def _record(line: int, parts: list[bytes], size: int, stamp: str | None) -> Record:
    fault = f"is longer than {_LONGEST} bytes" if size > _LONGEST else None
    raw = b"\n".join(parts)
    return Record(line, raw, Printed(raw.decode("utf-8", "replace"), stamp), fault)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|\s){re.escape(name)}=(\S*)")


def field_of(text: str, name: str) -> str | None:
    """Return a field's first value, without blanks, or None if the field is missing from the record."""
    match = _pattern(name).search(text)
    return None if match is None else match[1]


_REASON = re.compile(r"\sReason=(.*?)\s\[[^\s\[\]@]*@([^\s\[\]]+)\](?=\s|$)", re.DOTALL)


class ScontrolNodes(RecordReader):
    """`scontrol show nodes`."""

    name = "scontrol"
    title = "machines and their states, printed by scontrol show nodes"

    def looks_right(self, head: bytes) -> bool:
        """Return whether the file begins with node records. Lines of slurm.conf are similar but have no CPU counts."""
        text = head.removeprefix(b"\xef\xbb\xbf")
        first = text.split(b"\nNodeName=", 1)[0]
        return text.startswith(b"NodeName=") and re.search(rb"\s(CPUTot|CPUAlloc)=\d", first) is not None

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the records of nodes."""
        return scontrol_records(opened.stream, b"NodeName=")

    def rows(self, value: Printed, cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield a record's machines, and the events that keep them out of service."""
        text = value.text
        names = ("NodeName", "CPUTot", "RealMemory", "State", "Gres", "CfgTRES", "Partitions", "ActiveFeatures")
        fields = {name: field_of(text, name) for name in names}
        lacking = [name for name in names[:4] if not fields[name]]
        if lacking:
            raise ValueError(f"has no {lacking[0]}: the record may be truncated")
        node, state = str(fields["NodeName"]), str(fields["State"])
        if is_no_machine(state):
            return
        cpus, memory = (cells.lost.read(name, fields[name], _whole) for name in ("CPUTot", "RealMemory"))
        gpus = gpus_of(node, cells, fields["Gres"], fields["CfgTRES"])
        event: Row | None = None
        if (unfit := fitness(state)) is not None:
            event = {"state": unfit, "source": "scontrol", "reason": None, "start": (None, None)}
            if (reason := _REASON.search(text)) is not None:
                event |= {"reason": reason[1], "start": cells.optional(reason[2], "Reason")}
        # A node of no partition has no such field.
        partitions, features = words_in(fields["Partitions"] or ""), words_in(fields["ActiveFeatures"])
        yield from listed([node], gpus, cpus, memory, event, partitions=partitions, features=features)


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ValueError("is not a whole number")
    return int(text)


_NODES = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(
    r"(?<![^,])gpu(?::(?!\d{1,6}(?:[(,]|$))([^,:()]+))?(?::(\d{1,6}))?(?:\((?:IDX:([^()]*)|CNT:(\d{1,6}))\))?(?=,|$)"
)
# A job name may contain anything. Slurm writes the fields after it, up to the command.
_OWN = re.compile(r"\sUserId=\S+\(\d+\)\s+GroupId=")
_MOST_INDEX = 4_096


class ScontrolJobs(RecordReader):
    """`scontrol -d show job`."""

    name = "scontrol-jobs"
    title = "GPUs of running jobs, printed by scontrol --details show job"
    kinds = ("held",)

    def looks_right(self, head: bytes) -> bool:
        """Return whether the file begins with job records, after comments and blank lines."""
        return (
            re.match(rb"(?:\xef\xbb\xbf)?(?:(?:#[^\n]*)?\r?\n)*JobId=\d+ (?:[^\n]{0,4000} )?JobName=", head) is not None
        )

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the records of jobs."""
        return scontrol_records(opened.stream, b"JobId=")

    def rows(self, value: Printed, cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield a job's GPUs on each node when the record was printed. A job without GPUs gives no rows."""
        for row in _held(value.text, value.stamp, cells):
            yield "held", row


def _held(text: str, stamp: str | None, cells: Cells) -> list[Row]:
    """Return a job's GPUs on each of its nodes.

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
    known = [(names, found) for names, listed in nodes if (found := _gpus(listed, cells)) is not None]
    held = [(host, *found) for names, found in known for host in expand_nodes(names)]
    if not sum(count for _, count, _ in held):
        return []
    start = cells.time(field_of(text, "StartTime"))
    if start == (None, None):
        raise ValueError("StartTime is not a time")
    now = _now(text, stamp, start, cells)
    het, array = (
        [name for name in (field_of(head, first), field_of(head, second)) if name is not None]
        for first, second in (("HetJobId", "HetJobOffset"), ("ArrayJobId", "ArrayTaskId"))
    )
    return [
        {
            "job": het[0] if len(het) == 2 else str(field_of(head, "JobId")),
            "array_job": "_".join(array) if len(array) == 2 else None,
            "task": het[1] if len(het) == 2 else None,
            "host": host,
            "time_clock": now[0],
            "time": now[1],
            "gpu_count": count,
            "gpu_index": indices,
        }
        for host, count, indices in held
    ]


def _now(text: str, stamp: str | None, start: Any, cells: Cells) -> Any:
    """Return when the record was printed, limited to the time from the job's start to its end."""
    now: tuple[Any, ...]
    if stamp is not None:
        now = cells.time(stamp)
    else:
        ran = timedelta(seconds=duration_s(field_of(text, "RunTime") or "") or 0)
        now = tuple(None if part is None else part + ran for part in start)
    end = cells.time(field_of(text, "EndTime"))
    limits = [(start, max)] + ([] if field_of(text, "JobState") == "RUNNING" else [(end, min)])
    for other, choose in limits:
        now = tuple(
            choose(mine, its) if mine is not None and its is not None else mine
            for mine, its in zip(now, other, strict=True)
        )
    return now


def _gpus(listed: str, cells: Cells) -> tuple[float, list[int] | None] | None:
    """Parse a list like `gpu:a100:2(IDX:0-1)` to the number of GPUs and their indices, or return None if unknown.

    MIG slices count as parts of GPUs, and their indices are not GPU indices. A list with an unknown part or unreadable
    indices is ignored.
    """
    total, indices = 0.0, []
    known = True
    for kept, count, index, several in _GPUS.findall(listed):
        places = [] if index in {"", "N/A"} else cells.lost.read("GRES", index, _places)
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


READERS = (ScontrolNodes(), ScontrolJobs())
