"""Shared code for formats that read job records one by one: PBS, LSF, Flux and Kubernetes.

A record that cannot be used raises a `Fault`. An unreadable optional value becomes unknown and is counted (see
`LostValues`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from tracekit.ingest.cells import LostValues
from tracekit.ingest.devices import UnknownDevices, device_factors, is_accelerator
from tracekit.ingest.interface import Format
from tracekit.ingest.job_records import combine_records, record_frame, write_job_tables
from tracekit.ingest.merge_jobs import merge_records
from tracekit.ingest.time_faults import RecordTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    import duckdb
    import polars as pl

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.records import Record, TextLine
    from tracekit.ingest.sink import OpenedFile, Sink

    Reader = Callable[[OpenedFile, "Devices"], Iterator[list[Row]]]


class RecordFormat(Format):
    """A format whose records become rows of `tracekit.ingest.job_records`."""

    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:  # noqa: ARG002 -- as others need them
        """Combine what both exports record about each job, because its records may be in the files of several days."""
        merge_records(con)


def write_records(sources: Iterable[tuple[SourceFile, Reader, tuple[str, str] | None]], sink: Sink) -> int:
    """Write the common tables for the records in some files, and return the number of jobs with several attempts.

    Parameters
    ----------
    sources : iterable of (SourceFile, function, (str, str) or None)
        Each file, the function that yields its rows in blocks and, for wall-clock times, their zone and the rule for
        the repeated hour.
    """
    return write_frames(_frames(sources, sink), sink)


def _frames(sources: Iterable[tuple[SourceFile, Reader, tuple[str, str] | None]], sink: Sink) -> Iterator[pl.DataFrame]:
    devices = Devices(sink)
    number = 0
    for file, read, wall in sources:
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            for rows in read(opened, devices):
                for row in rows:
                    number += 1
                    row["ord"] = number
                if rows:
                    yield record_frame(rows, times, wall)
    devices.report()


def write_frames(
    frames: Iterable[pl.DataFrame],
    sink: Sink,
    combine: Callable[[duckdb.DuckDBPyConnection, Path, Sink], None] = combine_records,
) -> int:
    """Write the common tables for rows in frames, and return the number of jobs with several attempts.

    `combine` builds the tables of `tracekit.ingest.job_records` from the staged rows.
    """
    staged = sink.stage("records", frames)
    if staged is None:
        return 0
    with sink.connect() as con:
        combine(con, staged, sink)
        return write_job_tables(con, sink)


class Fault(Exception):  # noqa: N818 -- not a program error but the reason why a record cannot be used
    """Why a record is unusable: the reason, and the column, or None for the whole record."""

    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason


@contextmanager
def record(opened: OpenedFile, line: int, raw: bytes) -> Iterator[LostValues]:
    """Give a with block one record's `LostValues`, and count them at its end. A `Fault` rejects the record."""
    lost = LostValues()
    try:
        yield lost
    except Fault as fault:
        opened.reject(line, fault.column, fault.reason, raw)
    else:
        lost.count(opened.sink)


def rows_of(
    opened: OpenedFile, records: Iterable[Record | TextLine], parse: Callable[[Any, LostValues], Iterable[Row]]
) -> list[Row]:
    """Return the rows that `parse` makes from each record, with the record's line. A `Fault` rejects the record."""
    rows: list[Row] = []
    for line, raw, content, *_ in records:
        with record(opened, line, raw) as lost:
            rows += [row | {"line": line} for row in parse(content, lost)]
    return rows


class Devices:
    """Records which devices count as GPUs, and which jobs use unknown devices.

    Parameters
    ----------
    sink : Sink
        Contains the gpu_resource option, and receives checks and a note.
    things : str
        The owners of the devices: 'jobs' or 'pods'.

    Attributes
    ----------
    factors : dict
        GPUs per device from the option, by lowercase device name [GPUs].
    """

    def __init__(self, sink: Sink, things: str = "jobs") -> None:
        self.factors = device_factors(sink.options["gpu_resource"])
        self._sink = sink
        self._unknown = UnknownDevices(sink, things)
        self._holders: list[tuple[str, str]] = []
        self._whole: list[str] = []

    def add(self, holder: str, devices: Collection[str], *, whole: bool = False) -> None:
        """Add a job's unknown devices. With `whole`, the job has whole nodes with an unknown number of GPUs."""
        if devices:
            self._holders.append((holder, "|".join(sorted(devices))))
        if whole:
            self._whole.append(holder)

    def count(self, of: int, *, whole: bool = False) -> None:
        """Count the jobs added since the last call, out of `of`. With `whole`, also count jobs with whole nodes."""
        self._unknown.add(self._holders, of)
        if whole:
            self._sink.check(
                "whole_nodes_without_gpus", len(self._whole), of,
                "records of whole-node jobs without a number of GPUs; the number is unknown", self._whole,
            )  # fmt: skip
        self._holders, self._whole = [], []

    def report(self) -> None:
        """Add a note that names the unknown devices."""
        self._unknown.report()


def gpu_weights(names: Collection[str], gpu_names: tuple[str, ...], factors: Mapping[str, float]) -> dict[str, float]:
    """Return how many GPUs each resource counts as [GPUs], by lowercase name, without other resources.

    The gpu_resource option (`factors`) has precedence. Of the other `gpu_names`, only the first one present counts.
    """
    plain = [name for name in gpu_names if name in names and name not in factors][:1]
    return {name: factor for name, factor in factors.items() if name in names} | dict.fromkeys(plain, 1.0)


def uncounted_devices(names: Iterable[str], gpu_names: tuple[str, ...], weights: Mapping[str, float]) -> set[str]:
    """Return the accelerators among resources that are not counted as GPUs.

    If GPUs are already counted (`weights`), other resources with `gpu` in the name only describe these GPUs.
    """
    others = {name for name in names if name not in weights and name not in gpu_names and is_accelerator(name)}
    return {name for name in others if not (weights and "gpu" in name)}


# Read values of JSON records.


def at(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None if part of the path is missing or not an object."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def items(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects of the array at a path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Any, *path: str) -> str | None:
    """Return the string at a path, or None if it is missing.

    Raises
    ------
    Fault
        The value is not a string.
    """
    found = at(value, *path)
    if found is None or isinstance(found, str):
        return found or None
    raise Fault(".".join(path), "is not text")


def optional(value: Any, lost: LostValues, *path: str) -> str | None:
    """Return the optional string at a path, or None if it is missing or not a string."""
    try:
        return text(value, *path)
    except Fault as fault:
        lost.add(".".join(path), str(at(value, *path)), fault.reason)
        return None
