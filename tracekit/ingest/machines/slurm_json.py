"""Read the machines of a Slurm cluster and their states, as printed by `sinfo --json` and `scontrol show nodes --json`.

Releases before 23.02 print single nodes under `nodes` in both; later releases print groups of identical nodes under
`sinfo`. Times are epoch seconds. Manual: slurm.schedmd.com/rest_api.html.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tracekit.ingest.json_array import array_items, array_of
from tracekit.ingest.machines._rows import RecordReader, part
from tracekit.ingest.machines._slurm import fitness, gpus_of, is_no_machine, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.machines._rows import Clock, Row
    from tracekit.ingest.records import Record
    from tracekit.ingest.sink import OpenedFile, Sink

_KEYS = ("nodes", "sinfo")
_NODE = re.compile(rb'"(real_memory|slurmd_version|gres_drained|slurmd_start_time)"\s*:')
_GROUP = re.compile(rb'"(weight|sockets)"\s*:')


class SlurmJson(RecordReader):
    """`sinfo --json`, `scontrol show nodes --json`."""

    name = "slurm-json"
    title = "machines and their states, printed by sinfo --json or scontrol show nodes --json"
    repeats = True

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether there is a top-level array of nodes whose members have keys that only nodes have."""
        match = array_of(head, _KEYS)
        if match is None:
            return False
        rest = head[match.end() :]
        return (_NODE if match[1] == b"nodes" else _GROUP).search(rest) is not None and b'"gres"' in rest

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the nodes, or groups of nodes."""
        return array_items(opened, _KEYS)

    def rows(
        self,
        value: dict[str, Any],
        clock: Clock,  # noqa: ARG002 -- times are epoch seconds
        sink: Sink,
        lost: LostValues,
    ) -> Iterator[tuple[str, Row]]:
        """Yield the machines of a record, and the events that keep them out of service."""
        group = "name" not in value
        names = _words(part(value, "nodes", "nodes") if group else value.get("name"))
        state = part(value, "node", "state") if group else value.get("state")
        flags = [word for text in _words(state) + _words(value.get("state_flags")) for word in text.split("+")]
        if not names or not flags:
            raise ValueError("has no node name or no node state")
        if is_no_machine(flags):
            return
        gres = part(value, "gres", "total") if group else value.get("gres")
        gpus = gpus_of(names[0], sink, lost, gres if isinstance(gres, str) else None, _text(value.get("tres")))
        cpus, memory = (
            (_same if group else _number)(value.get(name), name, lost)
            for name in ("cpus", "memory" if group else "real_memory")
        )
        since = _number(part(value, "reason", "time") if group else value.get("reason_changed_at"), "reason time", lost)
        reason = _text(part(value, "reason", "description") if group else value.get("reason"))
        event: Row | None = None
        if (unfit := fitness(flags)) is not None:
            start = datetime(1970, 1, 1) + timedelta(seconds=since) if since else None
            event = {"state": unfit, "reason": reason, "source": "sinfo", "start": (None, start)}
        cluster = _text(value.get("cluster") or value.get("cluster_name"))
        yield from listed(names, gpus, cpus, memory, event, cluster)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any, name: str, lost: LostValues) -> int | None:
    """Return an integer, which may be wrapped as {"set": true, "number": 7}; None if there is none."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        lost.add(name, str(value), "is not a whole number")
        return None
    return value


def _same(value: Any, name: str, lost: LostValues) -> int | None:
    """Return the value shared by all nodes of a group; None if they differ."""
    least, most = (_number(part(value, end), name, lost) for end in ("minimum", "maximum"))
    return least if least == most else None


def _words(value: Any) -> list[str]:
    """Return a word, or the words of a list, as a list."""
    return [str(word) for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]


READERS = (SlurmJson(),)
