"""Read machines and their outages, printed by Slurm's programs as tables or JSON.

`sinfo`, with or without -N: the header names the columns, and a row describes all nodes in its list. A number with a
plus is a group's minimum and is ignored. Manual: slurm.schedmd.com/sinfo.html.

`sacctmgr --parsable2 show event`, or --parsable: times are wall-clock times of the machine that printed them. The first
row of a cluster has no node but contains the cluster's TRES. Manual: slurm.schedmd.com/sacctmgr.html.

`sinfo --json` and `scontrol show nodes --json`: releases before 23.02 print single nodes under `nodes` in both. Later
releases print groups of identical nodes under `sinfo`. Times are epoch seconds. Manual:
slurm.schedmd.com/rest_api.html.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tracekit.errors import SourceError
from tracekit.ingest.json_array import array_items, array_of
from tracekit.ingest.machines._rows import RecordReader, part, said
from tracekit.ingest.machines._slurm import fitness, gpus_of, is_no_machine, is_node_state, listed, words_in
from tracekit.ingest.node_lists import expand_nodes
from tracekit.ingest.records import Joined, Record, line_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.machines._rows import Cells, Row
    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile

_LONGEST = 1024 * 1024
"""Maximum length of a row [bytes]."""


def table_rows(
    stream: ByteReader,
    header: Callable[[bytes], list[str]],
    *,
    delimiter: str | None = "|",
    free: str = "",
    skip: int = 0,
) -> Iterator[list[Record]]:
    """Yield the rows of a table in blocks. The value of each row is its cells by column name.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file.
    header : function (line) -> names
        Returns the column names, or raises an error.
    delimiter : str, optional
        Delimiter between cells, or None for any number of blanks.
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
    found: dict[str, str] = {}  # if several columns have the same name, the first is used
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

    def looks_right(self, head: bytes) -> bool:
        """Return whether sinfo printed the header and the first row has a node state."""
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

    def rows(self, value: dict[str, str], cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield the machines of a row, and the events that keep them out of service."""
        state = value["state"]
        if not is_node_state(state):
            raise ValueError(f"'{state[:40]}' is not a node state")
        if is_no_machine(state):
            return
        gpus = gpus_of(value["nodelist"], cells, value.get("gres"))
        printed = value.get("cpus") or value.get("cpus_of", "").rpartition("/")[2]
        memory, cpus = (
            cells.lost.read("memory", value.get("memory"), _number),
            cells.lost.read("cpus", printed, _number),
        )
        event: Row | None = None
        if (unfit := fitness(state)) is not None:
            since = cells.optional(value.get("timestamp"), "timestamp")
            event = {"state": unfit, "reason": value.get("reason"), "source": "sinfo", "start": since}
        partitions = words_in(value.get("partition"))
        features = words_in(value.get("active_features", value.get("avail_features", value.get("avail_fe"))))
        yield from listed([value["nodelist"]], gpus, cpus, memory, event, value.get("cluster"), partitions, features)


def _layout(head: bytes) -> tuple[list[str], str | None, int] | None:
    """Return the column names, the delimiter, and the number of lines before the header. None for other tables."""
    lines = head.removeprefix(b"\xef\xbb\xbf")[:8_192].decode("utf-8", "replace").splitlines()
    for skip, line in enumerate(lines[:2]):
        delimiter = next((mark for mark in _DELIMITERS if mark in line), None)
        names = [name.strip().lower() for name in (line.split() if delimiter is None else line.split(delimiter))]
        # The --long output begins with the date.
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

    def looks_right(self, head: bytes) -> bool:
        """Return whether the first line names the event columns."""
        return {"nodename", "timestart"} <= set(_names(head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]))

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the rows of the table.

        Raises
        ------
        SourceError
            The state column or the end column is missing.
        """
        return table_rows(opened.stream, _header(opened.path), free="reason")

    def rows(self, value: dict[str, str], cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield a row's events, one for each node. A cluster's row has no node."""
        if not value["nodename"]:
            return
        start, end = cells.time(value["timestart"]), cells.time(value["timeend"])
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


_KEYS = ("nodes", "sinfo")
_NODE = re.compile(rb'"(real_memory|slurmd_version|gres_drained|slurmd_start_time)"\s*:')
_GROUP = re.compile(rb'"(weight|sockets)"\s*:')


class SlurmJson(RecordReader):
    """`sinfo --json`, `scontrol show nodes --json`."""

    name = "slurm-json"
    title = "machines and their states, printed by sinfo --json or scontrol show nodes --json"
    repeats = True

    def looks_right(self, head: bytes) -> bool:
        """Return whether the file has a top-level array whose members have keys that only nodes have."""
        match = array_of(head, _KEYS)
        if match is None:
            return False
        rest = head[match.end() :]
        return (_NODE if match[1] == b"nodes" else _GROUP).search(rest) is not None and b'"gres"' in rest

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the nodes, or groups of nodes."""
        return array_items(opened, _KEYS)

    def rows(self, value: dict[str, Any], cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield a record's machines, and the events that keep them out of service."""
        group = "name" not in value
        names = _words(part(value, "nodes", "nodes") if group else value.get("name"))
        state = part(value, "node", "state") if group else value.get("state")
        flags = [word for text in _words(state) + _words(value.get("state_flags")) for word in text.split("+")]
        if not names or not flags:
            raise ValueError("has no node name or no node state")
        if is_no_machine(flags):
            return
        gres = part(value, "gres", "total") if group else value.get("gres")
        gpus = gpus_of(names[0], cells, gres if isinstance(gres, str) else None, _text(value.get("tres")))
        cpus, memory = (
            (_same if group else _wrapped)(value.get(name), name, cells)
            for name in ("cpus", "memory" if group else "real_memory")
        )
        since = _wrapped(
            part(value, "reason", "time") if group else value.get("reason_changed_at"), "reason time", cells
        )
        reason = _text(part(value, "reason", "description") if group else value.get("reason"))
        event: Row | None = None
        if (unfit := fitness(flags)) is not None:
            start = datetime(1970, 1, 1) + timedelta(seconds=since) if since else None
            event = {"state": unfit, "reason": reason, "source": "sinfo", "start": (None, start)}
        cluster = _text(value.get("cluster") or value.get("cluster_name"))
        partitions = _listed_words(part(value, "partition", "name") if group else value.get("partitions"))
        features = _listed_words(part(value, "features", "active") if group else value.get("active_features"))
        yield from listed(names, gpus, cpus, memory, event, cluster, partitions, features)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _wrapped(value: Any, name: str, cells: Cells) -> int | None:
    """Return an integer, which may be wrapped as {"set": true, "number": 7}, or None if it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        cells.lost.add(name, str(value), "is not a whole number")
        return None
    return value


def _same(value: Any, name: str, cells: Cells) -> int | None:
    """Return the value shared by all nodes of a group, or None if the nodes differ."""
    least, most = (_wrapped(part(value, end), name, cells) for end in ("minimum", "maximum"))
    return least if least == most else None


def _listed_words(value: Any) -> list[str] | None:
    """Return the words of a list or of a text with commas, sorted; None if the value is missing."""
    if value is None:
        return None
    return words_in(",".join(_words(value)))


def _words(value: Any) -> list[str]:
    """Convert a word, or the words of a list, to a list."""
    return [str(word) for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]


READERS = (SinfoTable(), SacctmgrEvents(), SlurmJson())
