"""Build machines and events record by record: machine lists are short."""

from __future__ import annotations

import re
from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from tracekit.ingest.cells import LostValues
from tracekit.ingest.companion import Companion
from tracekit.ingest.localtime import decided, instants
from tracekit.ingest.node_events import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import Record
    from tracekit.ingest.sink import OpenedFile, Sink

Row = dict[str, Any]

_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_UNSET = frozenset({"", "none", "unknown", "n/a", "(null)"})
_UNIX = datetime(1970, 1, 1)


MACHINE = {
    "host": pl.String(),
    "cluster": pl.String(),
    "gpu_count": pl.Int64(),
    "gpu_model": pl.String(),
    "gpu_memory_gib": pl.Float64(),
    "cpu_count": pl.Int64(),
    "memory_gib": pl.Float64(),
    "rack": pl.String(),
    "partitions": pl.List(pl.String()),
    "features": pl.List(pl.String()),
}
"""Columns of a listed machine. `host` is its name as spelled in the source. Unknown values are NULL."""

EVENT = {
    "host": pl.String(),
    "cluster": pl.String(),
    "start_time": pl.Datetime("us"),
    "end_time": pl.Datetime("us"),
    "state": pl.String(),
    "cause": pl.String(),
    "source_cause": pl.String(),
    "source": pl.String(),
}
"""Columns of an event, with times in UTC and the words of the node_events table.

A machine list shows states at one time, so its events have no end, and `source` is in LISTS.
"""

HELD = {
    "job": pl.String(),
    "array_job": pl.String(),
    "task": pl.String(),
    "host": pl.String(),
    "time": pl.Datetime("us"),
    "gpu_count": pl.Float64(),
    "gpu_index": pl.List(pl.Int64()),
}
"""Columns for the GPUs that a job uses on a machine at one time.

`job` is the scheduler's job number, `array_job` is the name of an array task (JOB_TASK), and `task` is the component of
a heterogeneous job.
"""


class Cells:
    """Reads one file's time cells, which may be wall-clock times, epoch seconds or times with an offset.

    Attributes
    ----------
    sink : Sink
        Receives the file's data.
    lost : LostValues
        The current record's unreadable cells.
    """

    def __init__(self, frame: TimeFrame, sink: Sink) -> None:
        self._frame, self.sink = frame, sink
        self.lost = LostValues()

    def time(self, text: str | None) -> tuple[datetime | None, datetime | None]:
        """Return a wall-clock time or an instant in UTC. Both are None if `text` contains no time.

        Raises
        ------
        ValueError
            The text is not a time.
        """
        if text is None or text.strip().lower() in _UNSET:
            return None, None
        text = text.strip()
        if _EPOCH.fullmatch(text):
            return None, _UNIX + timedelta(seconds=int(text))
        match = _TIME.fullmatch(text)
        if match is None:
            raise ValueError("is not a time like 2024-03-04T08:00:00")
        moment = datetime.fromisoformat(match[1])
        if match[2] is None:
            return moment, None
        aware = datetime.fromisoformat(match[1] + ("+00:00" if match[2] == "Z" else match[2]))
        return None, aware.astimezone(UTC).replace(tzinfo=None)

    def optional(self, text: str | None, column: str) -> tuple[datetime | None, datetime | None]:
        """Return a time like `time`. If `text` is not a time, return (None, None) and add it to `lost`."""
        try:
            return self.time(text)
        except ValueError as error:
            self.lost.add(column, str(text), str(error))
            return None, None

    def utc(self, frame: pl.DataFrame, name: str, *, late: bool = False) -> pl.Series:
        """Return the UTC times from a column of wall-clock times, `name` + '_clock', and a column of instants, `name`.

        In the hour that a clock change repeats or skips, use the first of two instants, or the second if `late`.
        """
        found = instants(frame[f"{name}_clock"], self._frame.timezone)
        self.sink.check_rows(
            "ambiguous_machine_times",
            found.doubtful,
            "times in machine files in the hour that a clock change repeats or skips; a start is the first possible "
            "instant, an end the last",
            frame["host"],
        )
        return frame.select(pl.coalesce(name, decided(found, "second" if late else "first").alias("clock"))).to_series()


def said(text: str | None) -> str | None:
    """Return a cell's text, or None if the cell contains no value."""
    return None if text is None or text.strip().lower() in _UNSET else text.strip()


class RecordReader(Companion):
    """Reads one kind of machine file, record by record."""

    kinds: ClassVar[tuple[str, ...]] = ("machine", "event")
    """The kinds of rows that the file provides."""
    repeats: ClassVar[bool] = False
    """Whether a machine may have several records, one per partition. We use the last, with the partitions of all."""

    @abstractmethod
    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the records of a file in blocks."""

    @abstractmethod
    def rows(self, value: Any, cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield the rows of a record, each with its kind.

        A machine has the columns of MACHINE, an event has the columns that `_events_frame` reads, and a row of kind
        'held' has the columns of HELD and `time_clock`. Missing values are NULL.

        Raises
        ------
        ValueError
            The record cannot be used.
        """

    def _add(self, found: dict[object, tuple[str, Row]], kind: str, row: Row) -> None:
        """Add a row. It replaces an earlier row of the same machine, but keeps its partitions."""
        key = (kind, row["cluster"], row["host"]) if self.repeats else len(found)
        if kind == "machine" and key in found and row["partitions"] is not None:
            row["partitions"] = sorted({*row["partitions"], *(found[key][1]["partitions"] or ())})
        found[key] = kind, row

    def read(self, opened: OpenedFile, frame: TimeFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield frames with their kind 'machine', 'event' or 'held', and with the columns of MACHINE, EVENT or HELD.

        Wall-clock times are in the zone of `frame`. Events without a start, or whose state leaves the node in service,
        are counted but not yielded.

        Raises
        ------
        SourceError
            The file is not of this kind.
        """
        sink, cells = opened.sink, Cells(frame, opened.sink)
        for records in self.records(opened):
            found: dict[object, tuple[str, Row]] = {}
            for record in records:
                opened.count(1)
                cells.lost = LostValues()
                try:
                    for kind, row in self.rows(record.checked(), cells):
                        self._add(found, kind, row)
                except ValueError as error:
                    opened.reject(record.line, None, str(error), record.raw)
                    continue
                cells.lost.count(sink)
            machines, events, held = (
                [row for of, row in found.values() if of == kind] for kind in ("machine", "event", "held")
            )
            timed = [event for event in events if event["start"] != (None, None)]
            if len(timed) < len(events):
                untimed = [event["host"] for event in events if event["start"] == (None, None)]
                sink.check("states_without_time", len(untimed), None, _UNTIMED, untimed)
            if "machine" in self.kinds:
                rows = [{name: machine.get(name) for name in MACHINE} for machine in machines]
                yield "machine", pl.DataFrame(rows, schema=MACHINE)
            if "event" in self.kinds:
                yield "event", _events_frame([event for event in timed if event["state"] is not None], cells)
            if self.kinds == ("event",):
                fit = [f"{event['host']}: {event['words']}" for event in events if event["state"] is None]
                sink.check("events_of_fit_nodes", len(fit), len(events), _FIT, fit)
            if "held" in self.kinds:
                shown = pl.DataFrame(held, schema={**HELD, "time_clock": pl.Datetime("us")})
                yield "held", shown.with_columns(time=cells.utc(shown, "time")).select(list(HELD))


_FIT = "events whose state does not take a node out of service"
_UNTIMED = "machines that a list shows out of service without a start time; they get no event"


def unknown_devices(sink: Sink, host: str, devices: str) -> None:
    """Count a machine with unknown devices."""
    sink.check(
        "unknown_devices_of_machines",
        1,
        None,
        "listed machines with unknown devices; their number of GPUs is unknown (the option gpu_resource sets how many "
        "GPUs a device counts as)",
        [f"{host}: {devices}"],
    )


def _events_frame(rows: list[Row], cells: Cells) -> pl.DataFrame:
    """Convert rows with host, cluster, state, reason and source to events.

    Each row may have a start and an end as returned by `Cells.time`.
    """
    table: list[Mapping[str, Any]] = []
    for row in rows:
        start, end = row.get("start", (None, None)), row.get("end", (None, None))
        cause = cause_of(row["reason"])
        table.append(
            {
                **{name: row.get(name) for name in ("host", "cluster", "state", "source")},
                "start_time_clock": start[0],
                "start_time": start[1],
                "end_time_clock": end[0],
                "end_time": end[1],
                "cause": "maintenance" if cause is None and row["state"] == "maintenance" else cause,
                "source_cause": said(row["reason"]),
            }
        )
    clocks = {f"{name}_clock": pl.Datetime("us") for name in ("start_time", "end_time")}
    frame = pl.DataFrame(table, schema={**EVENT, **clocks})
    return frame.with_columns(
        start_time=cells.utc(frame, "start_time"), end_time=cells.utc(frame, "end_time", late=True)
    ).select(list(EVENT))


def part(value: Any, *names: str) -> Any:
    """Return the value under nested names in objects, or None if any name is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
