"""When nodes were not fit for work, as `sacctmgr --parsable2 show event` prints it, or --parsable.

Manual: slurm.schedmd.com/sacctmgr.html. Times are wall clocks of the machine that printed them. The first row of a
cluster has no node: it states the cluster's TRES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.errors import SourceError
from tracekit.ingest.machines._interface import MachineReader
from tracekit.ingest.machines._rows import Clock, events_frame, said
from tracekit.ingest.machines._slurm_states import fitness
from tracekit.ingest.machines._table import table_rows
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_COMMAND = "sacctmgr --parsable2 show event format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"


class SacctmgrEvents(MachineReader):
    """`sacctmgr show event`."""

    name = "sacctmgr"
    title = "times in which nodes were down or drained, printed by sacctmgr --parsable2 show event"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- the content decides
        """Return whether the first line names the columns of events."""
        return {"nodename", "timestart"} <= set(_names(head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]))

    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield events; those of states in which a node works are counted.

        Raises
        ------
        SourceError
            There is no column for the state or the end.
        """
        clock = Clock(frame, sink)
        other: list[str] = []
        events = 0
        for rows in table_rows(opened.stream, _header(opened.path), free="reason"):
            found: list[dict[str, Any]] = []
            for row in rows:
                opened.count(1)
                try:
                    made = _events(row.checked(), clock)
                except ValueError as error:
                    opened.reject(row.line, None, str(error), row.raw)
                    continue
                events += len(made)
                other += [f"{e['host']}: {row.cells['state']}" for e in made if e["state"] is None]
                found += [event for event in made if event["state"] is not None]
            frame_ = events_frame(found, clock)
            yield "event", frame_
        sink.check(
            "events_of_fit_nodes", len(other), events, "events whose state does not take a node out of service", other
        )


def _names(line: bytes) -> list[str]:
    return [name.strip().lower() for name in line.decode("utf-8", "replace").strip("\r\n").split("|")]


def _header(path: str) -> Any:
    def read(line: bytes) -> list[str]:
        names = _names(line)
        for name in ("nodename", "timestart", "timeend", "state"):
            if name not in names:
                raise SourceError(
                    f"the column '{name}' is missing", where=path, line=1, hint=f"write it with: {_COMMAND}"
                )
        return names

    return read


def _events(cells: dict[str, str], clock: Clock) -> list[dict[str, Any]]:
    if not cells["nodename"]:
        return []
    start, end = clock.read(cells["timestart"]), clock.read(cells["timeend"])
    if start == (None, None):
        raise ValueError("TimeStart is not a time")
    if any(a is not None and b is not None and b < a for a, b in zip(start, end, strict=True)):
        raise ValueError("TimeEnd is before TimeStart")
    event = {
        "cluster": said(cells.get("cluster")),
        "state": fitness(cells["state"]),
        "reason": cells.get("reason"),
        "source": "slurm",
        "start": start,
        "end": end,
    }
    return [{**event, "host": host} for host in expand_nodes(cells["nodename"])]


READER = SacctmgrEvents()
