"""Accounting files of PBS: OpenPBS, PBS Professional and Torque, one a day, named YYYYMMDD.

A line is `MM/DD/YYYY HH:MM:SS;TYPE;JOB;attribute=value ...`. Torque's manual lists the types A, C, D, E, Q, R, S, T and
the times ctime, qtime, etime, start (docs.adaptivecomputing.com, Accounting records); OpenPBS's header acct.h adds
those of reservations, licences and phases of a job, which are counted and not used. Times inside a record are seconds
since 1970; only the deletion, the abort and the rerun of a job, and Torque's Q, have no other time than the wall clock
in front, which is in no stated zone (option timezone).

A job is what its records say together, whatever file they are in: submission (ctime), from when it could start (etime),
a run for each start, with the end of its E record, or of the R, C or A record that closed it. A run that another one
followed without a word of its end has no end, and its nodes are left out.

Exit_status 0 is completed; OpenPBS states limits as -26, -27 (memory: out_of_memory), -28 and -29 (processor time, wall
time: timeout), as job.h names them; any other is failed, 271 (ended by SIGTERM) among them, which both a limit and
qdel cause. A run that ends otherwise than well after a D record asked for it is cancelled.

GPUs are those of exec_vnode (OpenPBS) or exec_gpus (Torque), else those that Resource_List asks for: ngpus, select,
or nodes=2:ppn=8:gpus=2, where sites also write gpu=2. A resource that the option gpu_resource names counts too.
Another one whose name is that of an accelerator (npu, nmics, ngpus_a100) makes the number unknown, and so do nodes
that a job has for itself (place=excl, place=exclhost, naccesspolicy=singlejob) without a word about GPUs. A vnode
such as n1[0] is a part of its host. Members of arrays are jobs of their own, in the group of their array. The cluster
is the server in a job's id; without one it is unknown, and the machines of such a job keep their plain names. A line
may begin with the name of its file, as grep writes it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import polars as pl

from tracekit.ingest.cells import LostValues
from tracekit.ingest.devices import GPU_RESOURCE, UnknownDevices, device_factors
from tracekit.ingest.formats import _pbs_cells as text_of
from tracekit.ingest.formats._record_append import merge_records
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_records import combine_records, record_frame, write_job_tables
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note
from tracekit.ingest.record_times import RecordTimes, TimeColumns
from tracekit.ingest.records import text_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import duckdb

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.records import TextLine
    from tracekit.ingest.sink import OpenedFile


# From the lines of PBS accounting files to rows of `tracekit.ingest.job_records`.

LINE = re.compile(
    r"(?:[^;\s]{1,500}:)?(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?;([A-Za-z]);([^;]{0,1000});(.*)",
    re.ASCII | re.DOTALL,
)
_JOB_ID = re.compile(r"(\d{1,20})(\[\d{0,20}\])?(?:-\d{1,20})?(?:\.(\S{1,900}))?", re.ASCII)
_LINES_PER_FILE = 1 << 40
_QUARTER_S = 900
"""Offsets of clocks are multiples of it [s]."""
_WRITTEN_WITHIN_S = 60
"""A record of a start or an end is written within so long of it [s]."""
_MOST_OFFSET_S = 15 * 3600
_WAITING = ("running", "pending")
_NOTED = TimeColumns({"noted": "end_time"})

OF_A_JOB = frozenset("QSEDARTC")
"""Types of records that tell when a job waits, runs and ends."""

_LIMITS = {-24: "failed", -25: "failed", -26: "out_of_memory", -27: "out_of_memory", -28: "timeout", -29: "timeout"}
"""What OpenPBS writes where it killed a job for a limit: virtual memory, memory, processor time, wall time."""


class _Fault(Exception):  # noqa: N818 -- no error of the program: why a record cannot be used
    """Why a record cannot be used: the column, and what is wrong with it."""

    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason


class _Line(NamedTuple):
    wall_s: float
    """Wall clock at which it was written [s since 1970 of that clock]."""
    kind: str
    job: str
    text: str


def exit_status(code: int) -> str:
    """Return the common status of an Exit_status."""
    return "completed" if code == 0 else _LIMITS.get(code, "failed")


def read_records(files: list[SourceFile], sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the usable records of accounting files in frames to stage."""
    unknown = UnknownDevices(sink, "jobs")
    for number, file in enumerate(files):
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            clock = _Clock(times, sink)
            for lines in text_lines(opened):
                rows = list(_rows(lines, number, opened, sink, unknown))
                if rows:
                    yield record_frame(clock.fill(rows), times)
    unknown.report()


def _rows(lines: list[TextLine], number: int, opened: OpenedFile, sink: Sink, unknown: UnknownDevices) -> Iterator[Row]:
    others = arrays = 0
    examples: list[str] = []
    holders: list[tuple[str, str]] = []
    wholes: list[str] = []
    for line in lines:
        try:
            parsed = _parsed(line.text)
            match = _JOB_ID.fullmatch(parsed.job)
            if parsed.kind not in OF_A_JOB:
                others += 1
                continue
            if match is None:
                raise _Fault("job", "is not a job id like 123.server")
            if match[2] == "[]":
                arrays += 1
                examples = [*examples[:4], parsed.job]
                continue
            lost = LostValues()
            row = _row(parsed, match, sink.options, lost)
            devices, whole = row.pop("devices"), row.pop("whole")
        except _Fault as fault:
            opened.reject(line.number, fault.column, fault.reason, line.raw)
            continue
        lost.count(sink)
        if devices:
            holders.append((parsed.job, "|".join(sorted(devices))))
        if whole:
            wholes.append(parsed.job)
        yield row | {"line": line.number, "ord": number * _LINES_PER_FILE + line.number}
    unknown.add(holders, len(lines))
    sink.check(
        "whole_nodes_without_gpus", len(wholes), len(lines),
        "records of whole-node jobs without a number of GPUs; their GPUs are unknown", wholes,
    )  # fmt: skip
    sink.check(
        "other_records", others, len(lines),
        "records of types other than Q, S, E, D, A, R, T and C (licences, reservations, updates); ignored",
    )  # fmt: skip
    sink.check(
        "array_records", arrays, len(lines),
        "records of whole job arrays; only their members are jobs, so an array without members is missing",
        examples,
    )  # fmt: skip


def _parsed(text: str) -> _Line:
    match = LINE.fullmatch(text)
    if match is None:
        raise _Fault(None, "is not a record like 03/04/2024 10:11:12;S;123.server;user=ann")
    month, day, year, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        raise _Fault("date", "is not a date like 03/04/2024 10:11:12") from None
    return _Line((moment - datetime(1970, 1, 1)).total_seconds(), match[7], match[8], match[9])


def _row(line: _Line, match: re.Match[str], options: Mapping[str, str], lost: LostValues) -> Row:
    held = text_of.attributes(line.text)
    array = f"{match[1]}[].{match[3]}" if match[3] else f"{match[1]}[]"
    row: Row = {
        "job_id": line.job,
        "told": line.wall_s,
        "wall_s": line.wall_s,
        "cluster": match[3],
        "group": array if match[2] else held.get("group"),
    }
    row |= {key: held[name] for key, name in _TEXTS.items() if held.get(name)}
    row["vc"] = held.get({"partition": "queue"}.get(options["vc"], options["vc"])) or None
    row |= {key: _named(name, text_of.epoch_s)(held[name]) for key, name in _TIMES.items() if held.get(name)}
    stated = {key: lost.read(name, held.get(name), read) for key, (name, read) in _VALUES.items()}
    row |= {key: value for key, value in stated.items() if value is not None}
    row |= _resources(held, options, lost)
    return row | _life(line, row, held, lost)


_TEXTS = {"user": "user", "name": "jobname", "account": "account", "partition": "queue"}
_TIMES = {"submit_s": "ctime", "start_s": "start", "end_s": "end"}
"""Times without which a record says something else."""
_VALUES: dict[str, tuple[str, Callable[[str], float]]] = {
    "eligible_s": ("etime", text_of.epoch_s),
    "time_limit_s": ("Resource_List.walltime", text_of.duration_s),
    "memory_gib": ("Resource_List.mem", text_of.amount_gib),
    "cpu_s": ("resources_used.cput", text_of.duration_s),
    "memory_used_gib": ("resources_used.mem", text_of.amount_gib),
}


def _named(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    def reading(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise _Fault(name, str(error)) from None

    return reading


def _resources(held: Mapping[str, str], options: Mapping[str, str], lost: LostValues) -> Row:
    """Return GPUs, processors and nodes: what was given where the record says so, else what was asked for."""
    factors, model = device_factors(options["gpu_resource"]), options["model_resource"]
    where = held.get("exec_vnode") or held.get("exec_host")

    def listed(_: str) -> Any:
        return text_of.places(held.get("exec_host"), held.get("exec_vnode"), held.get("exec_gpus"), factors)

    column = "exec_vnode" if held.get("exec_vnode") else "exec_gpus" if held.get("exec_gpus") else "exec_host"
    places, slots = lost.read(column, where, listed) or ([], None)
    asked = "Resource_List.select" if held.get("Resource_List.select") else "Resource_List.nodes"
    request = lost.read(
        asked,
        held.get(asked),
        lambda text: (
            text_of.node_request(text, factors)
            if asked.endswith("nodes")
            else text_of.select_request(text, factors, model)
        ),
    )
    names = {name.removeprefix("Resource_List."): name for name in held if name.startswith("Resource_List.")}
    gpu_names = [name for name in names if name.lower() in (*text_of.GPU_NAMES, *factors)]
    counts = dict.fromkeys((*gpu_names, "ncpus", "nodect"))
    read = {
        name: lost.read(f"Resource_List.{name}", held.get(f"Resource_List.{name}"), text_of.count) for name in counts
    }
    stated = {name: value for name, value in read.items() if value is not None}
    counted = text_of.gpus_in({name: str(stated[name]) for name in gpu_names if name in stated}, factors)
    given = [place["gpu_count"] for place in places]
    of_nodes = request is not None and (request.gpus or not counted)
    if places and None in given and request is not None and of_nodes and len(request.chunk_gpus) == len(places):
        # Torque gives the nodes of a request in its order, and as many GPUs on each as were asked for there.
        for place, count in zip(places, request.chunk_gpus, strict=True):
            place["gpu_count"] = count
        given = list(request.chunk_gpus)
    total = sum(given) if places and None not in given else counted
    if total is None and request is not None:
        total = request.gpus
    unread = any(name in lost for name in (column, asked, *(f"Resource_List.{n}" for n in gpu_names)))
    if total is None and not unread and (held.get("Resource_List.ncpus") or request is not None):
        total = 0.0
    if len(places) == 1 and given == [None]:
        places[0]["gpu_count"] = total
    chunks = [held[name] for name in (asked, "exec_vnode") if held.get(name)]
    listed_here = [f"{name}={held[full]}" for name, full in names.items() if name not in ("select", "nodes")]
    devices = text_of.unknown_devices([*chunks, " ".join(listed_here)], factors)
    whole = not total and _has_whole_nodes(held) and not gpu_names and not held.get("exec_gpus")
    whole = whole and not any(_COUNTS_GPUS.search(chunk) for chunk in chunks)
    if devices or whole:
        total = None
        for place in places:
            place["gpu_count"] = None
    nodes = float(len(places)) if places else stated.get("nodect") or (request.nodes if request else None)
    cpus = stated.get("ncpus") or (request.cpus if request else None) or slots
    found = {
        "place_node": [place["node"] for place in places] or None,
        "place_gpu_count": [place["gpu_count"] for place in places] or None,
        "place_gpu_index": [place["gpu_index"] for place in places] or None,
        "gpu_count": total,
        "cpu_count": cpus,
        "node_count": None if nodes is None else int(nodes),
        "gpu_model": (request.model if request else None) or held.get(f"Resource_List.{model}") or None,
    }
    return {key: value for key, value in found.items() if value is not None} | {"devices": devices, "whole": whole}


_COUNTS_GPUS = re.compile(r"(?:^|[:+(])n?gpus?=", re.ASCII | re.IGNORECASE)
_ALONE = re.compile(r"(?:^|:)excl(?:host)?(?:$|:)|^single(?:job|task)$", re.ASCII | re.IGNORECASE)


def _has_whole_nodes(held: Mapping[str, str]) -> bool:
    """Return whether a job shares its nodes with no other: placed so (OpenPBS), or by the access policy (Torque)."""
    asked = (held.get(f"Resource_List.{name}", "") for name in ("place", "naccesspolicy"))
    return any(_ALONE.search(text) for text in asked)


def _life(  # noqa: PLR0911 -- one a type of record
    line: _Line, row: Row, held: Mapping[str, str], lost: LostValues
) -> Row:
    """Return what the type of a record says of the job's state; `clock` asks for its wall clock as `end_s`."""
    if line.kind == "Q":
        # Torque's says no more than the queue: the job was submitted when it was written.
        return {"status": "pending", "source_status": "Q", "clock": None if "submit_s" in row else "submit_s"}
    if line.kind in "ST":
        if "start_s" not in row:
            raise _Fault("start", "is missing")
        return {"status": "running", "source_status": line.kind, "run_status": "running", "end_s": None}
    if line.kind == "E":
        return _end(row, held, lost)
    if line.kind == "D":
        return {"status": None, "deleted": True, "clock": "end_s", "start_s": None, "source_status": "D"}
    if line.kind == "A":
        return {"status": "failed", "source_status": "A", "run_status": "failed", "closes": True, "clock": "end_s",
                "start_s": None}  # fmt: skip
    # R: the job waits again; C: it was held after a checkpoint.
    if "start_s" in row and "end_s" in row:
        return {"status": "pending", "source_status": line.kind, "run_status": "unknown"}
    return {"status": "pending", "source_status": line.kind, "run_status": "unknown", "closes": True, "clock": "end_s",
            "start_s": None}  # fmt: skip


def _end(row: Row, held: Mapping[str, str], lost: LostValues) -> Row:
    code = held.get("Exit_status")
    if "end_s" not in row:
        raise _Fault("end", "is missing")
    status = "unknown"
    if code is not None:
        if re.fullmatch(r"-?\d{1,9}", code, re.ASCII):
            status = exit_status(int(code))
        else:
            lost.add("Exit_status", code, "is not a whole number")
    return {"status": status, "source_status": None if code is None else f"Exit_status={code}", "run_status": status}


class _Clock:
    """Turns the wall clock of records into instants.

    A record of a start or an end states its own instant too, to seconds: the difference is the clock's offset, which
    holds for the records around it, through every clock change. A file without such a record is read by the zone.
    """

    def __init__(self, times: RecordTimes, sink: Sink) -> None:
        self._times, self._sink = times, sink
        self._offset_s: float | None = None

    def fill(self, rows: list[Row]) -> list[Row]:
        """Fill the times that only the wall clock tells, and drop the helper keys."""
        offsets = [_offset_s(row) for row in rows]
        known = next((offset for offset in offsets if offset is not None), None)
        current = known if self._offset_s is None else self._offset_s
        alone = []
        for row, offset in zip(rows, offsets, strict=True):
            current = current if offset is None else offset
            clock = row.get("clock")
            if clock and current is not None:
                row[clock] = row["wall_s"] - current
            elif clock:
                alone.append(row)
        self._offset_s = current
        if alone:
            self._by_zone(alone)
        for row in rows:
            row.pop("clock", None)
            row.pop("wall_s")
        return rows

    def _by_zone(self, rows: list[Row]) -> None:
        frame = pl.DataFrame(
            {name: [row[name] for row in rows] for name in ("job_id", "line", "wall_s")},
            schema={"job_id": pl.String, "line": pl.Int64, "wall_s": pl.Float64},
        ).with_columns(noted=(pl.col("wall_s") * 1e6).cast(pl.Int64).cast(pl.Datetime("us")))
        options = self._sink.options
        frame = self._times.from_wall_clock(frame, _NOTED, options["timezone"], options["doubled_hour"])
        for row, moment in zip(rows, frame["noted"].dt.timestamp("us").to_list(), strict=True):
            row[row["clock"]] = None if moment is None else moment / 1e6


def _offset_s(row: Row) -> float | None:
    """Return how far the wall clock of a record is ahead of UTC [s], None where the record does not tell."""
    told = row.get("end_s") if row["status"] not in _WAITING else row.get("start_s")
    if told is None:
        return None
    offset = round((row["wall_s"] - told) / _QUARTER_S) * float(_QUARTER_S)
    near = abs(row["wall_s"] - told - offset) <= _WRITTEN_WITHIN_S
    return offset if near and abs(offset) <= _MOST_OFFSET_S else None


_TRIED = 20


def _looks_right(head: bytes) -> bool:
    """Return whether most of the first lines are accounting records."""
    lines = [line for line in head.decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:_TRIED] if line.strip()]
    if len(lines) > 1 and len(head.splitlines()) <= len(lines):
        lines = lines[:-1]  # the last one may be cut
    return bool(lines) and 2 * sum(LINE.fullmatch(line) is not None for line in lines) > len(lines)


class PbsFormat(Format):
    """Accounting files of one or several servers."""

    name = "pbs"
    title = "PBS accounting (OpenPBS, PBS Professional, Torque)"
    raw_files = (
        RawFile("accounting", "records of jobs, a file a day: server_priv/accounting/YYYYMMDD", "", _looks_right),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option("UTC", "IANA name of the zone of the wall clock in front of each record"),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("queue", "what the tenant unit is", ("queue", "account", "project", "group")),
        "gpu_resource": GPU_RESOURCE,
        "model_resource": Option("accelerator_model", "name of the resource that tells a GPU's model"),
    }
    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine what both exports say of a job: its records may lie in files of several days."""
        merge_records(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every file of the source as one log."""
        zone = sink.options["timezone"]
        require_zone(zone)
        staged = sink.stage("records", read_records(found.get("accounting"), sink))
        if staged is not None:
            with sink.connect() as con:
                combine_records(con, staged, sink)
                write_job_tables(con, sink)
        sink.retries = True
        read = zone_note(zone, stated="timezone" in sink.stated)
        sink.note(f"the time at the start of each record has no zone and is {read}")
        return TimeFrame("absolute", zone)


FORMAT = PbsFormat()
