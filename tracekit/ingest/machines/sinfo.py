"""The machines of a Slurm cluster, as `sinfo` prints them: -N or not, delimited or in columns.

Manual: slurm.schedmd.com/sinfo.html. The header decides which columns there are; a node list stands for all its nodes.
Numbers with a plus are the least of a group and say nothing about one machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.cells import LostValues
from tracekit.ingest.machines._interface import MachineReader
from tracekit.ingest.machines._rows import Clock, events_frame, gpus_of, machines_frame, no_start
from tracekit.ingest.machines._slurm_states import fitness, is_no_machine, is_node_state
from tracekit.ingest.machines._table import table_rows
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_JOBS = frozenset(
    {"jobid", "job_id", "name", "st", "priority", "time_left", "nodelist(reason)", "start_time", "jobname"}
)
"""Columns of squeue and sacct, whose tables have node lists and states too."""
_SIZES = frozenset({"gres", "cpus", "memory", "s:c:t", "partition"})
_DELIMITERS = "|;,\t"


class SinfoTable(MachineReader):
    """`sinfo`."""

    name = "sinfo"
    title = "machines, printed by sinfo -N with --format or --long"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether the header is that of sinfo, and the first row shows the state of a node."""
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

    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield machines, and an event for each that is out of service with a reason that has a time."""
        clock = Clock(frame, sink)
        head, stream = _peek(opened)
        layout = _layout(head)
        names, delimiter, skip = layout if layout is not None else ([], "|", 0)
        for rows in table_rows(stream, lambda _: names, delimiter=delimiter, free="reason", skip=skip):
            # A node has a row for each of its partitions.
            machines: dict[tuple[Any, str], dict[str, Any]] = {}
            events: dict[tuple[Any, str], dict[str, Any]] = {}
            for row in rows:
                opened.count(1)
                try:
                    lost = LostValues()
                    for machine, event in _nodes(row.checked(), clock, sink, lost):
                        key = (machine["cluster"], machine["host"])
                        machines[key] = machine
                        if event is not None:
                            events[key] = event
                    lost.count(sink)
                except ValueError as error:
                    opened.reject(row.line, None, str(error), row.raw)
            no_start(sink, [event["host"] for event in events.values() if event["start"] == (None, None)])
            yield "machine", machines_frame(list(machines.values()))
            timed = [event for event in events.values() if event["start"] != (None, None)]
            yield "event", events_frame(timed, clock)


class _Again:
    """A stream whose first bytes were looked at."""

    def __init__(self, head: bytes, opened: OpenedFile) -> None:
        self._head, self._opened = head, opened

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        head, self._head = self._head, b""
        return head or self._opened.stream.read(size)


def _peek(opened: OpenedFile) -> tuple[bytes, _Again]:
    head = opened.stream.read(65_536)
    return head, _Again(head, opened)


def _layout(head: bytes) -> tuple[list[str], str | None, int] | None:
    """Return the names of the columns, the delimiter and the lines before the header; None for another table."""
    lines = head.removeprefix(b"\xef\xbb\xbf")[:8_192].decode("utf-8", "replace").splitlines()
    for skip, line in enumerate(lines[:2]):
        delimiter = next((mark for mark in _DELIMITERS if mark in line), None)
        names = [name.strip().lower() for name in (line.split() if delimiter is None else line.split(delimiter))]
        # Long output begins with the date.
        if {"nodelist", "state"} <= set(names) and set(names) & _SIZES and not set(names) & _JOBS:
            names = ["cpus_of" if name.startswith("cpus(") else name for name in names]
            return (names, delimiter, skip) if delimiter or names[-1] == "reason" or "reason" not in names else None
    return None


def _nodes(
    cells: dict[str, str], clock: Clock, sink: Sink, lost: LostValues
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    if not is_node_state(cells["state"]):
        raise ValueError(f"'{cells['state'][:40]}' is not a node state")
    if is_no_machine(cells["state"]):
        return
    gpus, model = gpus_of(cells["nodelist"], sink, lost, cells.get("gres"))
    cpus = cells.get("cpus") or cells.get("cpus_of", "").rpartition("/")[2]
    memory, processors = lost.read("memory", cells.get("memory"), _number), lost.read("cpus", cpus, _number)
    unfit = fitness(cells["state"])
    since = (None, None) if unfit is None else clock.optional(cells.get("timestamp"), "timestamp", lost)
    for host in expand_nodes(cells["nodelist"]):
        machine = {
            "host": host,
            "cluster": cells.get("cluster"),
            "gpu_count": gpus,
            "gpu_model": model,
            "cpu_count": processors,
            "memory_gib": None if memory is None else memory / 1024,
        }
        event = None
        if unfit is not None:
            event = {
                "host": host,
                "cluster": cells.get("cluster"),
                "state": unfit,
                "reason": cells.get("reason"),
                "source": "sinfo",
                "start": since,
            }
        yield machine, event


def _number(text: str | None) -> int | None:
    if not text or text.endswith("+") or text.lower() == "n/a":
        return None
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        raise ValueError(f"'{text[:40]}' is not a whole number")
    return int(text)


READER = SinfoTable()
