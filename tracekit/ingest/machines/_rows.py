"""Rows of machines and events, as readers build them one by one: lists of machines are short."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest.devices import device_factors
from tracekit.ingest.formats._slurm_cells import gres, tres
from tracekit.ingest.localtime import decided, instants
from tracekit.ingest.machines._causes import cause_of
from tracekit.ingest.machines._interface import EVENT, MACHINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.lost_cells import LostValues
    from tracekit.ingest.sink import Sink

__all__ = ["Clock", "events_frame", "gpus_of", "machines_frame", "no_start", "said", "typed_events", "unknown_devices"]

_MOST_GPUS = 4_096
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_UNSET = frozenset({"", "none", "unknown", "n/a", "(null)"})
_UNIX = datetime(1970, 1, 1)


class Clock:
    """Turns the times of one file into UTC: wall clocks of the log's zone, epoch seconds, times with an offset."""

    def __init__(self, frame: TimeFrame, sink: Sink) -> None:
        self._frame, self._sink = frame, sink

    def read(self, text: str | None) -> tuple[datetime | None, datetime | None]:
        """Return a wall clock, or an instant in UTC; both None where the text names no time.

        Raises
        ------
        ValueError
            It is not a time.
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

    def optional(self, text: str | None, column: str, lost: LostValues) -> tuple[datetime | None, datetime | None]:
        """Return a time as `read` does, (None, None) where it is no time: it is added to `lost`."""
        try:
            return self.read(text)
        except ValueError as error:
            lost.add(column, str(text), str(error))
            return None, None

    def utc(self, frame: pl.DataFrame, name: str, *, late: bool = False) -> pl.Series:
        """Return the UTC of a column of wall clocks, `name` + '_clock', and one of instants, `name`.

        In the hour that a clock change doubles or skips it is the first of the two instants, or the later if `late`.
        """
        found = instants(frame[f"{name}_clock"], self._frame.timezone)
        self._sink.check_rows(
            "ambiguous_machine_times",
            found.doubtful,
            "times in machine files inside the hour that a clock change doubles or skips; starts are read as the first "
            "instant that they can mean, ends as the last",
            frame["host"],
        )
        return frame.select(pl.coalesce(name, decided(found, "second" if late else "first").alias("clock"))).to_series()


def said(text: str | None) -> str | None:
    """Return the words of a cell, None for one that says nothing."""
    return None if text is None or text.strip().lower() in _UNSET else text.strip()


def gpus_of(
    host: str, sink: Sink, lost: LostValues, listed: str | None, configured: str | None = None
) -> tuple[int | None, str | None]:
    """Return the GPUs of a node and their model, None where unknown or of several models.

    GPUs in MIG slices are the fewest cards that can hold the slices. A device that is not understood makes the number
    unknown, and is counted under its name. So does a list that cannot be read, or gives more GPUs than any machine has.

    Parameters
    ----------
    host : str
        The node, or the list of nodes.
    sink : Sink
        Has the option gpu_resource, where the format has it, and counts devices that are not understood.
    listed : str, optional
        Slurm's GRES of the node, `gpu:a100:4(S:0-1)`; `(null)` has none.
    configured : str, optional
        Its TRES, `cpu=32,gres/gpu=4`, used where `listed` has no GPU, or GPUs without a type.
    lost : LostValues
        Receives a list that cannot be read.
    """
    if listed is None and configured is None:
        return None, None
    try:
        return _gpus_of(host, sink, listed, configured)
    except ValueError as error:
        lost.add("gres", str(listed if listed is not None else configured), str(error))
        return None, None


def _gpus_of(host: str, sink: Sink, listed: str | None, configured: str | None) -> tuple[int | None, str | None]:
    factors = device_factors(sink.options.get("gpu_resource", ""))
    found = gres(listed or "", factors)
    gpus, model, devices = found.cards, found.model, found.devices
    if (not gpus or model is None) and devices is None and said(configured):
        stated = tres(str(configured), factors)
        if not gpus or stated.model is not None:
            gpus, model, devices = stated.cards, stated.model, stated.devices
    if devices is not None:
        unknown_devices(sink, host, devices)
        return None, None
    if gpus is None or gpus > _MOST_GPUS:
        raise ValueError(f"has {gpus or 0:.0f} GPUs, more than any real machine")
    return round(gpus), None if model is None or "|" in model else model


def unknown_devices(sink: Sink, host: str, devices: str) -> None:
    """Count a machine whose devices are not understood."""
    sink.check(
        "unknown_devices_of_machines",
        1,
        None,
        "listed machines with unknown devices; the list does not show how many GPUs they have "
        "(the option gpu_resource sets how many GPUs a device counts)",
        [f"{host}: {devices}"],
    )


def machines_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as machines; what a row lacks is NULL."""
    return pl.DataFrame([{name: row.get(name) for name in MACHINE} for row in rows], schema=MACHINE)


def events_frame(rows: list[dict[str, Any]], clock: Clock) -> pl.DataFrame:
    """Return rows with host, cluster, state, reason and source as events.

    Each may have start and end as `Clock.read` gives them.
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
    return typed_events(pl.DataFrame(table, schema={**EVENT, **clocks}), clock)


def typed_events(frame: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return events in UTC."""
    return frame.with_columns(
        start_time=clock.utc(frame, "start_time"), end_time=clock.utc(frame, "end_time", late=True)
    ).select(list(EVENT))


def no_start(sink: Sink, hosts: list[str]) -> None:
    """Count machines that a list shows out of service without saying since when."""
    if hosts:
        sink.check(
            "states_without_time",
            len(hosts),
            None,
            "machines that a list shows out of service without a start time; they make no event",
            hosts,
        )
