"""The machines of a Slurm cluster and their states, as `scontrol show nodes` prints them, also with -o.

Manual: slurm.schedmd.com/scontrol.html. Memory is in MiB; a reason ends with who gave it and when.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.cells import LostValues
from tracekit.ingest.machines._interface import MachineReader
from tracekit.ingest.machines._rows import Clock, events_frame, gpus_of, machines_frame, no_start
from tracekit.ingest.machines._scontrol import field_of, scontrol_records
from tracekit.ingest.machines._slurm_states import fitness, is_no_machine
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_REASON = re.compile(r"\sReason=(.*?)\s\[[^\s\[\]@]*@([^\s\[\]]+)\](?=\s|$)", re.DOTALL)


class ScontrolNodes(MachineReader):
    """`scontrol show nodes`."""

    name = "scontrol"
    title = "machines and their states, printed by scontrol show nodes"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether records of nodes begin the file; a line of slurm.conf begins alike but counts no CPUs."""
        text = head.removeprefix(b"\xef\xbb\xbf")
        first = text.split(b"\nNodeName=", 1)[0]
        return text.startswith(b"NodeName=") and re.search(rb"\s(CPUTot|CPUAlloc)=\d", first) is not None

    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield machines, and an event for each that is out of service with a reason that has a time."""
        clock = Clock(frame, sink)
        for records in scontrol_records(opened.stream, b"NodeName="):
            machines: list[dict[str, Any]] = []
            events: list[dict[str, Any]] = []
            untimed: list[str] = []
            for record in records:
                opened.count(1)
                try:
                    if record.fault:
                        raise ValueError(record.fault)
                    lost = LostValues()
                    found, event = _node(record.text, clock, sink, lost)
                    lost.count(sink)
                except ValueError as error:
                    opened.reject(record.line, None, str(error), record.raw)
                    continue
                machines += found
                if event is not None and event["start"] == (None, None):
                    untimed += [row["host"] for row in found]
                elif event is not None:
                    events += [{**event, "host": row["host"]} for row in found]
            no_start(sink, untimed)
            yield "machine", machines_frame(machines)
            yield "event", events_frame(events, clock)


def _node(text: str, clock: Clock, sink: Sink, lost: LostValues) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the machines of a record, and what keeps them from work.

    Raises
    ------
    ValueError
        The record cannot be used.
    """
    values = {name: field_of(text, name) for name in ("NodeName", "CPUTot", "RealMemory", "State", "Gres", "CfgTRES")}
    lacking = [name for name in ("NodeName", "CPUTot", "RealMemory", "State") if not values[name]]
    if lacking:
        raise ValueError(f"has no {lacking[0]}: the record may be truncated")
    state = str(values["State"])
    if is_no_machine(state):
        return [], None
    cpus, memory = (lost.read(name, values[name], _whole) for name in ("CPUTot", "RealMemory"))
    gpus, model = gpus_of(str(values["NodeName"]), sink, lost, values["Gres"], values["CfgTRES"])
    machine = {
        "gpu_count": gpus,
        "gpu_model": model,
        "cpu_count": cpus,
        "memory_gib": None if memory is None else memory / 1024,
    }
    unfit = fitness(state)
    event: dict[str, Any] | None = None
    if unfit is not None:
        reason = _REASON.search(text)
        event = {"state": unfit, "source": "scontrol", "reason": None, "start": (None, None)}
        if reason is not None:
            event |= {"reason": reason[1], "start": clock.optional(reason[2], "Reason", lost)}
    return [{**machine, "host": host} for host in expand_nodes(str(values["NodeName"]))], event


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ValueError("is not a whole number")
    return int(text)


READER = ScontrolNodes()
