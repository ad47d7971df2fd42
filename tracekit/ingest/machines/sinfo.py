"""Read tables of machines and their outages printed by Slurm's programs, delimited or in columns.

`sinfo`, with or without -N: the header names the columns, and a node list stands for all its nodes. A number with a
plus is the minimum of a group and is not used for a single machine. Manual: slurm.schedmd.com/sinfo.html.

`sacctmgr --parsable2 show event`, or --parsable: times are the wall clock of the machine that printed them. The first
row of a cluster has no node; it contains the cluster's TRES. Manual: slurm.schedmd.com/sacctmgr.html.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import SourceError
from tracekit.ingest.machines._rows import RecordReader, said
from tracekit.ingest.machines._slurm import fitness, gpus_of, is_no_machine, is_node_state, listed
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.records import Joined, Record, line_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.machines._rows import Clock, Row
    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile, Sink

_LONGEST = 1024 * 1024
"""Longest row that is read [bytes]."""


def table_rows(
    stream: ByteReader,
    header: Callable[[bytes], list[str]],
    *,
    delimiter: str | None = "|",
    free: str = "",
    skip: int = 0,
) -> Iterator[list[Record]]:
    """Yield the rows of a table in blocks; the value of each row is its cells by column name.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file.
    header : function (line) -> names
        Returns the column names; may raise an error.
    delimiter : str, optional
        Delimiter between cells; None for any number of blanks.
    free : str
        The free-text column, which may contain anything, including the delimiter.
    skip : int
        Number of lines before the header.
    """
    names: list[str] | None = None
    number = 0
    for block in line_blocks(stream, _LONGEST):
        found = []
        for line in block:
            number += 1
            plain = line.rstrip(b"\r")
            if number <= skip or not plain.strip():
                continue
            if names is None:
                names = header(plain.removeprefix(b"\xef\xbb\xbf"))
                continue
            found.append(_row(number, plain, names, delimiter, free))
        yield found


def _row(number: int, raw: bytes, names: list[str], delimiter: str | None, free: str) -> Record:
    if len(raw) > _LONGEST:
        return Record(number, raw, None, f"is longer than {_LONGEST} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Record(number, raw, None, "is not UTF-8")
    cells = re.split(r"\s+", text.strip()) if delimiter is None else text.split(delimiter)
    extra = len(cells) - len(names)
    if extra > 0 and free in names:
        at = names.index(free)
        cells[at : at + extra + 1] = [(delimiter or " ").join(cells[at : at + extra + 1])]
    if len(cells) != len(names):
        return Record(number, raw, None, f"expected {len(names)} cells, found {len(cells)}")
    found: dict[str, str] = {}  # the first of several columns with the same name
    for name, cell in zip(names, cells, strict=True):
        found.setdefault(name, cell.strip())
    return Record(number, raw, found)


_JOBS = frozenset(
    {"jobid", "job_id", "name", "st", "priority", "time_left", "nodelist(reason)", "start_time", "jobname"}
)
"""Columns of squeue and sacct, whose tables also have node lists and states."""
_SIZES = frozenset({"gres", "cpus", "memory", "s:c:t", "partition"})
_DELIMITERS = "|;,\t"


class SinfoTable(RecordReader):
    """`sinfo`."""

    name = "sinfo"
    title = "machines, printed by sinfo -N with --format or --long"
    repeats = True

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether the header is sinfo's and the first row shows a node state."""
        layout = _layout(head)
        if layout is None:
            return False
        names, delimiter, skip = layout
        rows = [line for line in head.splitlines()[skip + 1 : skip + 3] if line.strip()]
        if not rows:
            return False
        text = rows[0].decode("utf-8", "replace").strip()
        cells = text.split() if delimiter is None else text.split(delimiter)
        at = names.index("state")
        return len(cells) > at and is_node_state(cells[at])

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the rows of the table."""
        head = opened.stream.read(65_536)
        names, delimiter, skip = _layout(head) or ([], "|", 0)
        stream = Joined(head, opened.stream)
        return table_rows(stream, lambda _: names, delimiter=delimiter, free="reason", skip=skip)

    def rows(self, value: dict[str, str], clock: Clock, sink: Sink, lost: LostValues) -> Iterator[tuple[str, Row]]:
        """Yield the machines of a row, and the events that keep them out of service."""
        state = value["state"]
        if not is_node_state(state):
            raise ValueError(f"'{state[:40]}' is not a node state")
        if is_no_machine(state):
            return
        gpus = gpus_of(value["nodelist"], sink, lost, value.get("gres"))
        printed = value.get("cpus") or value.get("cpus_of", "").rpartition("/")[2]
        memory, cpus = lost.read("memory", value.get("memory"), _number), lost.read("cpus", printed, _number)
        event: Row | None = None
        if (unfit := fitness(state)) is not None:
            since = clock.optional(value.get("timestamp"), "timestamp", lost)
            event = {"state": unfit, "reason": value.get("reason"), "source": "sinfo", "start": since}
        yield from listed([value["nodelist"]], gpus, cpus, memory, event, value.get("cluster"))


def _layout(head: bytes) -> tuple[list[str], str | None, int] | None:
    """Return the column names, the delimiter and the number of lines before the header; None for another table."""
    lines = head.removeprefix(b"\xef\xbb\xbf")[:8_192].decode("utf-8", "replace").splitlines()
    for skip, line in enumerate(lines[:2]):
        delimiter = next((mark for mark in _DELIMITERS if mark in line), None)
        names = [name.strip().lower() for name in (line.split() if delimiter is None else line.split(delimiter))]
        # The output of --long begins with the date.
        if {"nodelist", "state"} <= set(names) and set(names) & _SIZES and not set(names) & _JOBS:
            names = ["cpus_of" if name.startswith("cpus(") else name for name in names]
            return (names, delimiter, skip) if delimiter or names[-1] == "reason" or "reason" not in names else None
    return None


def _number(text: str | None) -> int | None:
    if not text or text.endswith("+") or text.lower() == "n/a":
        return None
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        raise ValueError(f"'{text[:40]}' is not a whole number")
    return int(text)


_COMMAND = "sacctmgr --parsable2 show event format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"


class SacctmgrEvents(RecordReader):
    """`sacctmgr show event`."""

    name = "sacctmgr"
    kinds = ("event",)
    title = "times in which nodes were down or drained, printed by sacctmgr --parsable2 show event"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether the first line names the event columns."""
        return {"nodename", "timestart"} <= set(_names(head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]))

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the rows of the table.

        Raises
        ------
        SourceError
            The column for the state or the end is missing.
        """
        return table_rows(opened.stream, _header(opened.path), free="reason")

    def rows(
        self,
        value: dict[str, str],
        clock: Clock,
        sink: Sink,  # noqa: ARG002 -- nothing to count
        lost: LostValues,  # noqa: ARG002 -- a row with a cell that cannot be read is rejected
    ) -> Iterator[tuple[str, Row]]:
        """Yield the events of a row, one for each node; the row of a cluster has no node."""
        if not value["nodename"]:
            return
        start, end = clock.read(value["timestart"]), clock.read(value["timeend"])
        if start == (None, None):
            raise ValueError("TimeStart is not a time")
        if any(a is not None and b is not None and b < a for a, b in zip(start, end, strict=True)):
            raise ValueError("TimeEnd is before TimeStart")
        event = {
            "cluster": said(value.get("cluster")),
            "state": fitness(value["state"]),
            "words": value["state"],
            "reason": value.get("reason"),
            "source": "slurm",
            "start": start,
            "end": end,
        }
        for host in expand_nodes(value["nodename"]):
            yield "event", {**event, "host": host}


def _names(line: bytes) -> list[str]:
    return [name.strip().lower() for name in line.decode("utf-8", "replace").strip("\r\n").split("|")]


def _header(path: str) -> Callable[[bytes], list[str]]:
    def read(line: bytes) -> list[str]:
        names = _names(line)
        for name in ("nodename", "timestart", "timeend", "state"):
            if name not in names:
                raise SourceError(
                    f"the column '{name}' is missing", where=path, line=1, hint=f"write it with: {_COMMAND}"
                )
        return names

    return read


READERS = (SinfoTable(), SacctmgrEvents())
