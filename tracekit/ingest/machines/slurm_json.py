"""The machines of a Slurm cluster and their states, as `sinfo --json` and `scontrol show nodes --json` print them.

Releases before 23.02 print a node as `nodes` in both; later ones print groups of alike nodes as `sinfo`. Times are
epoch seconds. Manual: slurm.schedmd.com/rest_api.html.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tracekit.ingest.cells import LostValues
from tracekit.ingest.machines._interface import MachineReader
from tracekit.ingest.machines._json_items import array_of, json_items, part, words
from tracekit.ingest.machines._rows import Clock, events_frame, gpus_of, machines_frame, no_start
from tracekit.ingest.machines._slurm_states import fitness, is_no_machine
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_KEYS = ("nodes", "sinfo")
_NODE = re.compile(rb'"(real_memory|slurmd_version|gres_drained|slurmd_start_time)"\s*:')
_GROUP = re.compile(rb'"(weight|sockets)"\s*:')


class SlurmJson(MachineReader):
    """`sinfo --json`, `scontrol show nodes --json`."""

    name = "slurm-json"
    title = "machines and their states, printed by sinfo --json or scontrol show nodes --json"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether an array of nodes stands at the top, whose members have what only nodes have."""
        match = array_of(head, _KEYS)
        if match is None:
            return False
        rest = head[match.end() :]
        return (_NODE if match[1] == b"nodes" else _GROUP).search(rest) is not None and b'"gres"' in rest

    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield machines, and an event for each that is out of service with a reason that has a time."""
        clock = Clock(frame, sink)
        for items in json_items(opened, _KEYS):
            machines: dict[tuple[Any, str], dict[str, Any]] = {}
            events: dict[tuple[Any, str], dict[str, Any]] = {}
            for item in items:
                opened.count(1)
                try:
                    if item.fault:
                        raise ValueError(item.fault)
                    lost = LostValues()
                    for machine, event in _nodes(item.value, sink, lost):
                        key = (machine["cluster"], machine["host"])
                        machines[key] = machine
                        if event is not None:
                            events[key] = event
                    lost.count(sink)
                except ValueError as error:
                    opened.reject(item.line, None, str(error), item.raw)
            no_start(sink, [event["host"] for event in events.values() if event["start"] == (None, None)])
            yield "machine", machines_frame(list(machines.values()))
            timed = [event for event in events.values() if event["start"] != (None, None)]
            yield "event", events_frame(timed, clock)


def _nodes(
    value: dict[str, Any], sink: Sink, lost: LostValues
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    group = "name" not in value
    names = words(part(value, "nodes", "nodes") if group else value.get("name"))
    state = part(value, "node", "state") if group else value.get("state")
    flags = [word for text in words(state) + words(value.get("state_flags")) for word in text.split("+")]
    if not names or not flags:
        raise ValueError("has no node name or no node state")
    if is_no_machine(flags):
        return
    listed = part(value, "gres", "total") if group else value.get("gres")
    gpus, model = gpus_of(names[0], sink, lost, listed if isinstance(listed, str) else None, _text(value.get("tres")))
    cpus, memory = (
        (_same if group else _number)(value.get(name), name, lost)
        for name in ("cpus", "memory" if group else "real_memory")
    )
    since = _number(part(value, "reason", "time") if group else value.get("reason_changed_at"), "reason time", lost)
    reason = _text(part(value, "reason", "description") if group else value.get("reason"))
    unfit = fitness(flags)
    for host in (host for name in names for host in expand_nodes(name)):
        machine = {
            "host": host,
            "cluster": _text(value.get("cluster") or value.get("cluster_name")),
            "gpu_count": gpus,
            "gpu_model": model,
            "cpu_count": cpus,
            "memory_gib": None if memory is None else memory / 1024,
        }
        event: dict[str, Any] | None = None
        if unfit is not None:
            start = datetime(1970, 1, 1) + timedelta(seconds=since) if since else None
            event = {"host": host, "cluster": machine["cluster"], "state": unfit, "reason": reason, "source": "sinfo"}
            event["start"] = (None, start)
        yield machine, event


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any, name: str, lost: LostValues) -> int | None:
    """Return a whole number, also one inside {"set": true, "number": 7}; None where there is none."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        lost.add(name, str(value), "is not a whole number")
        return None
    return value


def _same(value: Any, name: str, lost: LostValues) -> int | None:
    """Return what every node of a group has, None where they differ."""
    least, most = (_number(part(value, end), name, lost) for end in ("minimum", "maximum"))
    return least if least == most else None


READER = SlurmJson()
