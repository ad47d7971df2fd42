"""Read PBS accounting files (OpenPBS, PBS Professional and Torque), one per day, named YYYYMMDD.

A line is `MM/DD/YYYY HH:MM:SS;TYPE;JOB;attribute=value ...`. Torque's manual lists the types A, C, D, E, Q, R, S and T,
and the times ctime, qtime, etime and start (docs.adaptivecomputing.com, Accounting records). OpenPBS's header acct.h
adds types for reservations, licences and phases of a job, which are counted but not used. Times inside a record are
seconds since 1970. A job's deletion, abort and rerun, and Torque's Q, have only the wall-clock time at the beginning of
the line, without a zone (option timezone).

We assemble a job from all its records, in any file: its submission (ctime), its eligible time (etime), and one run per
start. A run ends with its E record or with the R, C or A record that closed it. A run without a recorded end that is
followed by another run has no end, and its nodes are left out.

Exit_status 0 means completed. OpenPBS reports exceeded memory limits as -26 and -27 (out_of_memory), and exceeded CPU
and wall time limits as -28 and -29 (timeout), as named in job.h. Any other value means failed, including 271 (ended by
SIGTERM, by a limit or qdel). A run that fails after a D record requested its deletion is cancelled.

GPUs come from exec_vnode (OpenPBS) or exec_gpus (Torque), or else from the request in Resource_List, which is ngpus,
select, or nodes=2:ppn=8:gpus=2, where sites also write gpu=2. Resources named in the gpu_resource option also count.
Any other resource named like an accelerator (npu, nmics, ngpus_a100) makes the number unknown, and so do exclusive
nodes (place=excl, place=exclhost, naccesspolicy=singlejob) if no GPUs are mentioned. A vnode such as n1[0] is part of
its host. Array members are separate jobs in their array's group. The cluster is the server in a job's id. Without a
server, the cluster is unknown, and the job's machines keep their plain names. A line may begin with its file's name, as
written by grep.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import polars as pl

from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._records import (
    Devices,
    Fault,
    RecordFormat,
    gpu_weights,
    rows_of,
    uncounted_devices,
    write_records,
)
from tracekit.ingest.interface import FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note
from tracekit.ingest.node_lists import MAX_NODES
from tracekit.ingest.records import text_lines
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile


# Parse a record's values: durations, amounts, requests and places where a job ran.
#
# Each function takes one value as a string. If it cannot be read, the function raises ValueError with the reason.

Place = dict[str, Any]

_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z_][\w.\-]{0,200})=")
_DURATION = re.compile(r"(?:(\d{1,7}):)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d{1,9})?", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([kmgtp]?)([bw]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WORD_BYTES = 8
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_SLOT = re.compile(r"([^/\s]+)(?:/([\d,\-]{1,4000})(?:\*(\d{1,9}))?)?", re.ASCII)
_GPU = re.compile(r"([^/\s]+)-gpu/(\d{1,6})", re.ASCII)
_MOST_SLOTS = 1 << 20
_PAIR = re.compile(r"(?:^|(?<=[:+(\s]))([A-Za-z_]\w{0,80})=(\d{1,9}(?:\.\d{1,9})?)(?=$|[:+)\s])", re.ASCII)

GPU_NAMES = ("ngpus", "gpus", "gpu")
"""Resources that count GPUs in OpenPBS, in Torque, and under a common site-defined name. We use the first one
present."""


class Request(NamedTuple):
    """A job's total request."""

    nodes: float | None
    cpus: float | None
    gpus: float | None
    model: str | None
    """Models named in the chunks, joined by '|'."""
    chunk_gpus: tuple[float, ...]
    """GPUs per node (chunk), in order."""


def attributes(text: str) -> dict[str, str]:
    """Parse the pairs of a message such as `user=ann account="my lab" start=1`. Quotes are removed.

    A value ends before the next word with an equals sign, unless the value is in quotes.
    """
    marks: list[tuple[str, int, int]] = []
    inside = 0
    for match in _KEY.finditer(text):
        if match.start() < inside:
            continue
        marks.append((match[1], match.start(), match.end()))
        if text[match.end() : match.end() + 1] == '"':
            closing = text.find('"', match.end() + 1)
            inside = closing + 1 if closing > 0 else match.end()
    found = {}
    for place, (name, _, begin) in enumerate(marks):
        end = marks[place + 1][1] if place + 1 < len(marks) else len(text)
        value = text[begin:end].strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[name] = value
    return found


def epoch_s(text: str) -> float:
    """Parse a time in seconds since 1970 [s]."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a time in seconds since 1970")
    return float(text)


def duration_s(text: str) -> float:
    """Parse a duration like `02:03:04`, `1:02:03:04` or `7384` [s]."""
    if _NUMBER.fullmatch(text):
        total = float(text)
    else:
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError("is not a duration like 02:03:04")
        first, second, minutes, seconds = (int(part or 0) for part in match.groups())
        # One part before the minutes is hours, and two parts are days and hours.
        days, hours = (first, second) if match[2] is not None else (0, first)
        total = float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
    if total > 1e10:
        raise ValueError("is a duration out of range")
    return total


def amount_gib(text: str) -> float:
    """Parse an amount of memory like `16gb` or `12.5M` [GiB]. A bare number is in bytes, and `w` means 8-byte words."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("is not an amount of memory")
    words = _WORD_BYTES if match[3].lower() == "w" else 1
    return float(match[1]) * words * 2.0 ** (_SCALE[match[2].lower()] - 30)


def count(text: str) -> float:
    """Parse a number of GPUs, processors or nodes."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number")
    return float(text)


def gpus_in(held: Mapping[str, str], factors: Mapping[str, float]) -> float | None:
    """Count the GPUs in a list of resources, or return None if no resource counts as GPUs.

    Parameters
    ----------
    held : mapping
        Amounts by resource name.
    factors : mapping
        GPUs per unit of each resource, by lowercase name, from the gpu_resource option.
    """
    amounts = {name.lower(): amount for name, amount in held.items()}
    weights = gpu_weights(amounts, GPU_NAMES, factors)
    return sum(factor * count(amounts[name]) for name, factor in weights.items()) if weights else None


def unknown_devices(texts: list[str], factors: Mapping[str, float]) -> set[str]:
    """Return the accelerators named in resource chunks that are not counted as GPUs."""
    found: set[str] = set()
    for text in texts:
        names = {name.lower() for name, amount in _PAIR.findall(text) if float(amount)}
        found |= uncounted_devices(names, GPU_NAMES, gpu_weights(names, GPU_NAMES, factors))
    return found


def requested(text: str, factors: Mapping[str, float], model: str | None) -> Request:
    """Parse a request like OpenPBS's `2:ncpus=8:ngpus=2+1:ncpus=4` or Torque's `2:ppn=8:gpus=2+node7:ppn=4`.

    Parameters
    ----------
    factors : mapping
        As in `gpus_in`.
    model : str, optional
        The chunk resource that names the GPU model, or None for Torque, where a name in a request means one node.
    """
    cpus_of, unstated = ("ncpus", 0.0) if model is not None else ("ppn", 1.0)
    nodes = cpus = total = 0.0
    models: set[str] = set()
    chunk_gpus: list[float] = []
    for chunk in text.split("+"):
        first, *parts = chunk.split(":")
        numbered = _NUMBER.fullmatch(first) is not None
        many = float(first) if numbered else 1.0
        if many > MAX_NODES or nodes + many > MAX_NODES:
            raise ValueError(f"needs more than {MAX_NODES} nodes")
        if not numbered and model is not None:
            parts.insert(0, first)
        held = dict(part.partition("=")[::2] for part in parts)
        each = gpus_in(held, factors) or 0.0
        nodes += many
        cpus += many * (count(held[cpus_of]) if cpus_of in held else unstated)
        total += many * each
        chunk_gpus += [each] * int(many)
        if model is not None and held.get(model):
            models.add(held[model])
    return Request(nodes, cpus or None, total, "|".join(sorted(models)) or None, tuple(chunk_gpus))


def run_nodes(
    hosts: str | None, vnodes: str | None, devices: str | None, factors: Mapping[str, float]
) -> tuple[list[Place], float | None]:
    """Return a run's nodes, each once and in order, and the number of slots if known.

    Parameters
    ----------
    hosts : str, optional
        exec_host: `n1/0*8+n2/0*8` (OpenPBS), `n1/0+n1/1` or `n1/0-7` (Torque).
    vnodes : str, optional
        OpenPBS's exec_vnode: `(n1:ncpus=8:ngpus=2)+(n2[0]:ngpus=1+n2[1]:ngpus=1)`. Each part in parentheses is a chunk.
    devices : str, optional
        Torque's exec_gpus: `n1-gpu/0+n1-gpu/1`.
    factors : mapping
        As in `gpus_in`.
    """
    found: dict[str, Place] = {}
    slots = 0.0
    names: list[str] = []
    for part in hosts.split("+") if hosts else ():
        match = _SLOT.fullmatch(part)
        if match is None:
            raise ValueError("is not a list of hosts like n1/0*8+n2/0*8")
        names.append(match[1])
        _at(found, match[1])
        slots += _slots(match[2], match[3])
    if vnodes:
        _add_vnodes(found, vnodes, names, factors)
    if devices:
        _add_devices(found, devices)
    return list(found.values()), slots or None


def _at(found: dict[str, Place], node: str) -> Place:
    """Return a node's entry, and add an entry if the node is new."""
    if not node or len(found) >= MAX_NODES:
        raise ValueError("is not a list of nodes" if not node else f"names more than {MAX_NODES} nodes")
    return found.setdefault(node, {"node": node, "gpu_count": None, "gpu_index": None})


def _add_vnodes(found: dict[str, Place], vnodes: str, names: list[str], factors: Mapping[str, float]) -> None:
    chunks = vnodes.split(")+(")
    for number, chunk in enumerate(chunks):
        for part in chunk.strip("()").split("+"):
            name, *held = part.split(":")
            # The chunks are in the order of the hosts. A vnode may be part of a host, such as n1[0].
            place = _at(found, names[number] if len(names) == len(chunks) else name.partition("[")[0])
            amounts = dict(item.partition("=")[::2] for item in held)
            here = gpus_in(amounts, factors)
            if here is not None:
                place["gpu_count"] = (place["gpu_count"] or 0.0) + here
    for place in found.values():
        place["gpu_count"] = place["gpu_count"] or 0.0


def _add_devices(found: dict[str, Place], devices: str) -> None:
    for part in devices.split("+"):
        match = _GPU.fullmatch(part)
        if match is None:
            raise ValueError("is not a list of GPUs like n1-gpu/0+n1-gpu/1")
        place = _at(found, match[1])
        place["gpu_index"] = sorted({*(place["gpu_index"] or ()), int(match[2])})
    for place in found.values():
        place["gpu_count"] = float(len(place["gpu_index"] or ()))


def _slots(listed: str | None, factor: str | None) -> float:
    if factor is not None:
        return float(factor)
    count = 0
    for part in (listed or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and last.isdecimal():
            count += max(0, int(last) - int(first) + 1)
        elif part.isdecimal():
            count += 1
        if count > _MOST_SLOTS:
            raise ValueError("names too many slots")
    return float(count)


# Turn the lines of a file into rows of `tracekit.ingest.job_records`.

LINE = re.compile(
    r"(?:[^;\s]{1,500}:)?(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?;([A-Za-z]);([^;]{0,1000});(.*)",
    re.ASCII | re.DOTALL,
)
_JOB_ID = re.compile(r"(\d{1,20})(\[\d{0,20}\])?(?:-\d{1,20})?(?:\.(\S{1,900}))?", re.ASCII)
_QUARTER_S = 900
"""Clock offsets are multiples of this [s]."""
_WRITTEN_WITHIN_S = 60
"""Longest delay before the record of a start or an end is written [s]."""
_MOST_OFFSET_S = 15 * 3600
_WAITING = ("running", "pending")
_NOTED = TimeColumns({"noted": "end_time"})

OF_A_JOB = frozenset("QSEDARTC")
"""Record types that show when a job waits, runs and ends."""

_LIMITS = {-24: "failed", -25: "failed", -26: "out_of_memory", -27: "out_of_memory", -28: "timeout", -29: "timeout"}
"""Exit statuses of jobs that OpenPBS killed at a limit of virtual memory, memory, CPU time or wall time."""


class _Line(NamedTuple):
    wall_s: float
    """Wall-clock time at which the line was written [s since 1970 on that clock]."""
    kind: str
    job: str
    text: str
    """The message after the job id."""


def exit_status(code: int) -> str:
    """Return the common status for an Exit_status."""
    return "completed" if code == 0 else _LIMITS.get(code, "failed")


def read_records(opened: OpenedFile, devices: Devices) -> Iterator[list[Row]]:
    """Yield the rows of an accounting file in blocks."""
    clock = _Clock(opened)
    others: list[str] = []
    arrays: list[str] = []

    def rows_in(text: str, lost: LostValues) -> Iterator[Row]:
        line = _parsed(text)
        match = _JOB_ID.fullmatch(line.job)
        if line.kind not in OF_A_JOB:
            others.append(line.job)
        elif match is None:
            raise Fault("job", "is not a job id like 123.server")
        elif match[2] == "[]":
            arrays.append(line.job)
        else:
            yield _row(line, match, opened.sink.options, devices, lost)

    for lines in text_lines(opened):
        others.clear()
        arrays.clear()
        rows = rows_of(opened, lines, rows_in)
        devices.count(len(lines), whole=True)
        opened.sink.check(
            "other_records", len(others), len(lines),
            "records of types other than Q, S, E, D, A, R, T and C (licences, reservations, updates); ignored",
        )  # fmt: skip
        opened.sink.check(
            "array_records", len(arrays), len(lines),
            "records of whole job arrays; only their members are jobs, so an array without members is missing", arrays,
        )  # fmt: skip
        yield clock.filled(rows)


def _parsed(text: str) -> _Line:
    match = LINE.fullmatch(text)
    if match is None:
        raise Fault(None, "is not a record like 03/04/2024 10:11:12;S;123.server;user=ann")
    month, day, year, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        raise Fault("date", "is not a date like 03/04/2024 10:11:12") from None
    return _Line((moment - datetime(1970, 1, 1)).total_seconds(), match[7], match[8], match[9])


def _row(line: _Line, match: re.Match[str], options: Mapping[str, str], devices: Devices, lost: LostValues) -> Row:
    held = attributes(line.text)
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
    row |= {key: _time_s(name, held[name]) for key, name in _TIMES.items() if held.get(name)}
    stated = {key: lost.read(name, held.get(name), read) for key, (name, read) in _VALUES.items()}
    row |= {key: value for key, value in stated.items() if value is not None}
    resources, unknown, whole = _resources(held, options, devices.factors, lost)
    row |= resources
    row |= _life(line, row, held, lost)
    devices.add(line.job, unknown, whole=whole)
    return row


_TEXTS = {"user": "user", "name": "jobname", "account": "account", "partition": "queue"}
_TIMES = {"submit_s": "ctime", "start_s": "start", "end_s": "end"}
"""Times that are essential to the meaning of a record."""
_VALUES: dict[str, tuple[str, Callable[[str], float]]] = {
    "eligible_s": ("etime", epoch_s),
    "time_limit_s": ("Resource_List.walltime", duration_s),
    "memory_gib": ("Resource_List.mem", amount_gib),
    "cpu_s": ("resources_used.cput", duration_s),
    "memory_used_gib": ("resources_used.mem", amount_gib),
}


def _time_s(name: str, text: str) -> float:
    try:
        return epoch_s(text)
    except ValueError as error:
        raise Fault(name, str(error)) from None


def _resources(
    held: Mapping[str, str], options: Mapping[str, str], factors: Mapping[str, float], lost: LostValues
) -> tuple[Row, set[str], bool]:
    """Return the allocated GPUs, processors and nodes, or the requested amounts if no allocation is recorded.

    Also return the unknown devices, and whether the job has whole nodes with an unrecorded number of GPUs.
    """
    model = options["model_resource"]
    where = held.get("exec_vnode") or held.get("exec_host")

    def listed(_: str) -> Any:
        return run_nodes(held.get("exec_host"), held.get("exec_vnode"), held.get("exec_gpus"), factors)

    column = "exec_vnode" if held.get("exec_vnode") else "exec_gpus" if held.get("exec_gpus") else "exec_host"
    places, slots = lost.read(column, where, listed) or ([], None)
    asked = "Resource_List.select" if held.get("Resource_List.select") else "Resource_List.nodes"
    chunks_model = None if asked.endswith("nodes") else model
    request = lost.read(asked, held.get(asked), lambda text: requested(text, factors, chunks_model))
    names = {name.removeprefix("Resource_List."): name for name in held if name.startswith("Resource_List.")}
    gpu_names = [name for name in names if name.lower() in (*GPU_NAMES, *factors)]
    counts = dict.fromkeys((*gpu_names, "ncpus", "nodect"))
    read = {name: lost.read(f"Resource_List.{name}", held.get(f"Resource_List.{name}"), count) for name in counts}
    stated = {name: value for name, value in read.items() if value is not None}
    counted = gpus_in({name: str(stated[name]) for name in gpu_names if name in stated}, factors)
    given = [place["gpu_count"] for place in places]
    of_nodes = request is not None and (request.gpus or not counted)
    if places and None in given and request is not None and of_nodes and len(request.chunk_gpus) == len(places):
        # Torque allocates nodes in the order of the request, each with the number of GPUs requested for it.
        for place, gpus in zip(places, request.chunk_gpus, strict=True):
            place["gpu_count"] = gpus
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
    devices = unknown_devices([*chunks, " ".join(listed_here)], factors)
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
    return {key: value for key, value in found.items() if value is not None}, devices, whole


_COUNTS_GPUS = re.compile(r"(?:^|[:+(])n?gpus?=", re.ASCII | re.IGNORECASE)
_ALONE = re.compile(r"(?:^|:)excl(?:host)?(?:$|:)|^single(?:job|task)$", re.ASCII | re.IGNORECASE)


def _has_whole_nodes(held: Mapping[str, str]) -> bool:
    """Return whether a job has exclusive nodes, according to its placement (OpenPBS) or access policy (Torque)."""
    asked = (held.get(f"Resource_List.{name}", "") for name in ("place", "naccesspolicy"))
    return any(_ALONE.search(text) for text in asked)


def _life(line: _Line, row: Row, held: Mapping[str, str], lost: LostValues) -> Row:
    """Return the job's state by the record type. `clock` names the column that receives the wall-clock time."""
    if line.kind == "Q":
        # Torque's record has only the queue. The job was submitted when it was written.
        return {"status": "pending", "source_status": "Q", "clock": None if "submit_s" in row else "submit_s"}
    if line.kind in "ST":
        if "start_s" not in row:
            raise Fault("start", "is missing")
        return {"status": "running", "source_status": line.kind, "run_status": "running", "end_s": None}
    if line.kind == "E":
        return _end(row, held, lost)
    if line.kind == "D":
        return {"status": None, "deleted": True, "clock": "end_s", "start_s": None, "source_status": "D"}
    closing: Row = {"closes": True, "clock": "end_s", "start_s": None}
    if line.kind == "A":
        return {"status": "failed", "source_status": "A", "run_status": "failed", **closing}
    # R: the job is waiting again. C: the job was put on hold after a checkpoint.
    again: Row = {"status": "pending", "source_status": line.kind, "run_status": "unknown"}
    return again if "start_s" in row and "end_s" in row else {**again, **closing}


def _end(row: Row, held: Mapping[str, str], lost: LostValues) -> Row:
    code = held.get("Exit_status")
    if "end_s" not in row:
        raise Fault("end", "is missing")
    status = "unknown"
    if code is not None:
        if re.fullmatch(r"-?\d{1,9}", code, re.ASCII):
            status = exit_status(int(code))
        else:
            lost.add("Exit_status", code, "is not a whole number")
    return {"status": status, "source_status": None if code is None else f"Exit_status={code}", "run_status": status}


class _Clock:
    """Converts the wall-clock times of records to instants.

    The record of a start or an end also has its instant in seconds. The difference is the clock's UTC offset, which
    also holds for the records around it, through every clock change. A file without such a record is read with the
    configured zone.
    """

    def __init__(self, opened: OpenedFile) -> None:
        self._options = opened.sink.options
        self._times = RecordTimes(opened.sink, opened.path)
        self._offset_s: float | None = None

    def filled(self, rows: list[Row]) -> list[Row]:
        """Add the times that are known only from the wall clock to the rows, and remove the helper keys."""
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
        zone, doubled_hour = self._options["timezone"], self._options["doubled_hour"]
        frame = self._times.from_wall_clock(frame, _NOTED, zone, doubled_hour)
        for row, moment in zip(rows, frame["noted"].dt.timestamp("us").to_list(), strict=True):
            row[row["clock"]] = None if moment is None else moment / 1e6


def _offset_s(row: Row) -> float | None:
    """Return the UTC offset of a record's wall clock [s], or None if the record does not show the offset."""
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
        lines = lines[:-1]  # the last line may be truncated
    return bool(lines) and 2 * sum(LINE.fullmatch(line) is not None for line in lines) > len(lines)


class PbsFormat(RecordFormat):
    """Accounting files of one or several servers."""

    name = "pbs"
    title = "PBS accounting (OpenPBS, PBS Professional, Torque)"
    raw_files = (
        RawFile("accounting", "job records, one file per day: server_priv/accounting/YYYYMMDD", "", _looks_right),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option(
            "UTC", "IANA name of the zone of the wall-clock time at the beginning of each record", check=require_zone
        ),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("queue", "the tenant unit", ("queue", "account", "project", "group")),
        "gpu_resource": GPU_RESOURCE,
        "model_resource": Option("accelerator_model", "name of the resource that gives the GPU model"),
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read all files of the source as one log."""
        zone = sink.options["timezone"]
        write_records(((file, read_records, None) for file in found.get("accounting")), sink)
        sink.retries = True
        read = zone_note(zone, stated="timezone" in sink.stated)
        sink.note(f"the time at the start of each record has no zone and is {read}")
        return TimeFrame("absolute", zone)


FORMAT = PbsFormat()
