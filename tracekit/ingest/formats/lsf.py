"""Read IBM Spectrum LSF logs: lsb.acct, and the output of bhist -l, bacct -l and bjobs -o ... -json.

In lsb.acct (ibm.com/docs, lsb.acct), each line is a finished job, with fields in a fixed order and times in seconds
since 1970. Waiting and running jobs are missing. The manual lists options3 before runLimit, but in records of known
jobs the run limit comes first, so we use that order. Each host's usage takes six fields, of which the last is the
number of pairs that follow, or five in some records. We use the layout in which the effective resource requirement
looks like one. Newer versions add fields at the end. If a line ends before that requirement or fits neither layout, we
use it without the requirement and count it (short_records). exitInfo is LSF's reason for ending a job, as a number from
the manual's table of termination reasons.

bhist -l reads the event log, so it shows every run of a job. bacct -l shows only the last run. The times of both and of
bjobs are wall-clock times without a zone (option timezone), and without a year unless LSB_DISPLAY_YEAR is set (option
year).

A job starts when it is dispatched. Its GPUs come from the GPU_ALLOCATION or GPU_ALLOC table, or else from the effective
resource requirement, where rusage[ngpus_physical=2.00/host] is per host and /task is per slot. If both are missing, and
for compound requirements, the GPUs are unknown. Resources in the gpu_resource option also count. Any other resource
named like an accelerator makes the number unknown, as do exclusive hosts (bsub -x) without any mention of GPUs.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from tracekit import schema
from tracekit.errors import UsageError
from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats import _lsf_cells as text_of
from tracekit.ingest.formats._lsf_history import read_history
from tracekit.ingest.formats._records import Devices, Fault, RecordFormat, optional, rows_of, text, write_records
from tracekit.ingest.interface import FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.json_array import json_items
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note
from tracekit.ingest.records import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile


# Read lsb.acct records, which have fields in a fixed order and lists preceded by their length.

_FIELD_LIMIT = 1 << 30
_OTHERS = re.compile(r'"(EVENT_ADRSV_FINISH|JOB_RESIZE|[A-Z_]{3,40})" ', re.ASCII)

_ENTRY = {"askedHosts": 1, "execHosts": 1, "submitExt": 2}
"""Lists, each preceded by its length, and the fields of one entry."""
_AFTER_USE = ("runLimit", "options3", "avgMem", "effectiveResReq")
"""Fields after the hostRusage list."""
_SECTION = re.compile(r"\b(?:select|order|rusage|span|same|cu|affinity)\[")
_DONE, _EXIT = 64, 32  # JOB_STAT_DONE and JOB_STAT_EXIT of lsbatch.h
_EXCLUSIVE = 0x40
"""SUB_EXCLUSIVE, the bit for `bsub -x` in the options field: the job uses its hosts exclusively.

The number comes from OpenLava's lsbatch.h (github.com/zjma/openlava, lsbatch/lsbatch.h). IBM's manual omits it.
"""
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)


def read_acct(opened: OpenedFile, devices: Devices) -> Iterator[list[Row]]:
    """Yield the rows of an accounting file in blocks."""
    csv.field_size_limit(_FIELD_LIMIT)
    seen: Counter[str] = Counter()

    def rows_in(line: str, lost: LostValues) -> Iterator[Row]:
        kind = _OTHERS.match(line)
        if kind and kind[1] != "JOB_FINISH":
            seen["other"] += 1
            return
        held = _fields(line)
        yield _finished(held, devices, lost)
        seen["short"] += "effectiveResReq" not in held

    for lines in text_lines(opened):
        seen.clear()
        rows = rows_of(opened, lines, rows_in)
        devices.count(len(lines), whole=True)
        check = opened.sink.check
        check("other_records", seen["other"], len(lines), "records of types other than JOB_FINISH; ignored")
        check(
            "short_records", seen["short"], len(lines),
            "records whose last part (run limit and used resources) is missing or has an unknown layout",
        )  # fmt: skip
        yield text_of.of_cluster(rows, opened.sink.options)


def _fields(text: str) -> dict[str, Any]:
    try:
        cells = next(csv.reader([text], delimiter=" ", skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise Fault(None, f"cannot be parsed: {error}") from None
    held: dict[str, Any] = {}
    at = 0
    for column in schema.source("lsf", "acct").columns:
        if column.name == "hostRusage":
            held |= _after_use(cells, at)
            break
        try:
            at = _take(cells, at, column.name, held)
        except (IndexError, ValueError):
            if column.required:
                raise Fault(column.name, "is missing or has an unknown layout") from None
            break
    return held


def _take(cells: list[str], at: int, name: str, held: dict[str, Any]) -> int:
    if name not in _ENTRY:
        held[name] = cells[at]
        return at + 1
    count = int(cells[at])
    end = at + 1 + count * _ENTRY[name]
    if count < 0 or end > len(cells):
        raise ValueError
    held[name] = cells[at + 1 : end]
    return end


def _after_use(cells: list[str], at: int) -> dict[str, str]:
    """Return the fields after the list of host usage, or none if no layout of that list fits.

    According to the manual, an entry has six fields: host, memory, swap, user time, system time, and the number of
    pairs that follow, which is 0 in this file. Some records have only the first five. A layout fits if all numbers can
    be read and the effective resource requirement has the form of a requirement.
    """
    for fields in (6, 5):
        try:
            end = _past_use(cells, at, fields)
            found = dict(zip(_AFTER_USE, cells[end : end + len(_AFTER_USE)], strict=True))
        except (IndexError, ValueError):
            continue
        numbers = all(_NUMBER.fullmatch(found[name]) for name in _AFTER_USE[:-1])
        effective = found["effectiveResReq"]
        if numbers and (not effective.strip() or _SECTION.search(effective)):
            return found
    return {}


def _past_use(cells: list[str], at: int, fields: int) -> int:
    """Return the end of the list of host usage, or raise a ValueError if the list has another layout."""
    count = int(cells[at])
    end = at + 1
    if not 0 <= count <= len(cells):
        raise ValueError
    for _ in range(count):
        entry = cells[end : end + fields]
        if len(entry) < fields or not all(_NUMBER.fullmatch(text) for text in entry[1:]):
            raise ValueError
        pairs = int(entry[5]) if fields == 6 else 0
        if pairs < 0:
            raise ValueError
        end += fields + 2 * pairs
    return end


def _number(held: Mapping[str, Any], name: str) -> float | None:
    """Return an essential number of a record, or None for -1, which means unknown."""
    text = held.get(name)
    try:
        return None if text is None else _parsed(text)
    except ValueError as error:
        raise Fault(name, str(error)) from None


def _parsed(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number")
    value = float(text)
    return None if value == -1 else value


def _amount(text: str) -> float | None:
    """Return a requested or used amount. -1 means unknown."""
    value = _parsed(text)
    if value is not None and value < 0:
        raise ValueError("is below 0")
    return value


def _time(held: Mapping[str, Any], name: str) -> float | None:
    """Return a time [s], or None for 0, which means no time."""
    return _number(held, name) or None


def _finished(held: Mapping[str, Any], devices: Devices, lost: LostValues) -> Row:
    if held["type"] != "JOB_FINISH":
        raise Fault(None, 'is not a record like "JOB_FINISH" "10.1" 1712942618 ...')
    job, index, told = _number(held, "jobId"), _number(held, "idx"), _time(held, "eventTime")
    if job is None or told is None:
        raise Fault("jobId" if job is None else "eventTime", "is missing")
    name = f"{job:.0f}[{index:.0f}]" if index else f"{job:.0f}"
    slots = lost.read("execHosts", " ".join(held["execHosts"]), lambda _: text_of.hosts(held["execHosts"])) or {}
    start = _time(held, "startTime")
    effective = held.get("effectiveResReq", "")
    request = text_of.gpu_request(effective, devices.factors)
    if request is None or request.number == 0:
        asked = text_of.gpu_request(held["resReq"], devices.factors)
        request = asked if asked is not None and asked.number != 0 else request
    options = lost.read("options", held.get("options"), _parsed)
    alone = options is not None and bool(int(options) & _EXCLUSIVE)
    request = text_of.settled(name, request, devices, alone=alone)
    status, word = _status(held, lost)
    names = ("ru_utime", "ru_stime", "maxRMem", "runLimit", "numProcessors")
    *cpu, memory, limit, processors = (lost.read(name, held.get(name), _amount) for name in names)
    row: Row = {
        "job_id": name,
        "told": told,
        "submit_s": _time(held, "submitTime"),
        "eligible_s": None,
        "start_s": start,
        "end_s": told,
        "closes": start is None,
        "status": status,
        "run_status": status,
        "source_status": word,
        "user": held["userName"] or None,
        "name": held["jobName"] or None,
        "partition": held["queue"] or None,
        "account": held["projectName"] or None,
        "group": held.get("jobGroupName") or (f"{job:.0f}" if index else None),
        "cpu_count": processors or None,
        "time_limit_s": limit or None,
        "cpu_s": None if None in cpu else sum(value or 0.0 for value in cpu),
        "memory_used_gib": None if memory is None else memory / 2**20,
    }
    return row | text_of.placed(slots if start is not None else {}, request, {})


def _status(held: Mapping[str, Any], lost: LostValues) -> tuple[str, str]:
    code = lost.read("jStatus", held["jStatus"], _parsed)
    if code == _DONE:
        return "completed", "DONE"
    if code != _EXIT:
        return "unknown", f"jStatus={held['jStatus']}"
    reason = lost.read("exitInfo", held.get("exitInfo"), _parsed)
    word = dict(enumerate(text_of.TERM_WORDS)).get(int(reason or 0), "UNKNOWN")
    return text_of.exited("" if word == "UNKNOWN" else f"TERM_{word}")


# Read the output of `bjobs -o "..." -json`, which has one record per current job with the requested fields.

_STATUS = {"DONE": "completed", "RUN": "running", "PEND": "pending", "PSUSP": "pending", "WAIT": "pending",
           "USUSP": "running", "SSUSP": "running", "ZOMBI": "node_fail"}  # fmt: skip
_OPTIONAL = (
    "ALLOC_SLOT", "EXEC_HOST", "GPU_ALLOC", "EFFECTIVE_RESREQ", "COMBINED_RESREQ", "USER", "JOB_NAME", "QUEUE",
    "PROJ_NAME", "PEND_REASON", "GPU_NUM", "EXIT_REASON", "STAT",
)  # fmt: skip


def read_bjobs(opened: OpenedFile, devices: Devices) -> Iterator[list[Row]]:
    """Yield the rows of a listing in blocks."""
    year = opened.sink.options["year"]
    for items in json_items(opened, "RECORDS"):
        rows = rows_of(opened, items, lambda held, lost: [_listed(held, year, devices, lost)])
        devices.count(len(rows), whole=True)
        yield text_of.of_cluster(rows, opened.sink.options)


def _listed(stated: Mapping[str, Any], year: str, devices: Devices, lost: LostValues) -> Row:
    held = {name: value for name, value in stated.items() if value != "-"}  # a dash means no value
    job, index = text(held, "JOBID"), text(held, "JOBINDEX")
    if job is None or not re.fullmatch(r"\d{1,15}", job, re.ASCII):
        raise Fault("JOBID", "is not a job id")
    told = {name: optional(held, lost, name) for name in _OPTIONAL}
    word = told["STAT"]
    status = _STATUS.get(word or "", "unknown")
    if word == "EXIT":
        status, word = text_of.exited(told["EXIT_REASON"] or "")
    clocks = {}
    for key, name in (("submit_s", "SUBMIT_TIME"), ("start_s", "START_TIME"), ("end_s", "FINISH_TIME")):
        clock = text(held, name)
        # A running job's end is only an estimate or comes from its limits.
        if clock is not None and not (key == "end_s" and status in ("running", "pending", "unknown")):
            clocks[key] = text_of.wall_s(clock, year, name)
    place = "ALLOC_SLOT" if told["ALLOC_SLOT"] else "EXEC_HOST"
    slots = lost.read(place, told[place], lambda names: text_of.hosts(names.split(":"))) or {}
    indices = _indices(told["GPU_ALLOC"] or "")
    request = text_of.gpu_request(told["EFFECTIVE_RESREQ"] or told["COMBINED_RESREQ"] or "", devices.factors)
    request = text_of.settled(job, request, devices, alone=False)
    row: Row = clocks | {
        "job_id": f"{job}[{index}]" if index not in (None, "0") else job,
        "told": max(clocks.values(), default=0.0),
        "status": status,
        "source_status": word,
        "run_status": status,
        "closes": "start_s" not in clocks and "end_s" in clocks,
        "user": told["USER"],
        "name": told["JOB_NAME"],
        "partition": told["QUEUE"],
        "account": told["PROJ_NAME"],
        "wait_reason": told["PEND_REASON"],
        "group": job if index not in (None, "0") else None,
    }
    row |= text_of.placed(slots, request, indices)
    gpus = lost.read("GPU_NUM", told["GPU_NUM"], _count)
    if gpus is not None:
        row["gpu_count"] = gpus
    return row


def _count(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError("is not a number of GPUs")
    return float(text)


def _indices(text: str) -> dict[str, set[int]]:
    """Parse the GPUs per host in `hostA:0,1;hostB:0`. A GPU is listed once for each task on it."""
    found: dict[str, set[int]] = {}
    for part in text.split(";") if text else ():
        host, _, listed = part.partition(":")
        found[host] = {int(i) for i in listed.split(",") if i.isdecimal() and len(i) < 6}
    return found


def _require_year(text: str) -> None:
    if text and not re.fullmatch(r"(19|20)\d\d", text, re.ASCII):
        raise UsageError(f"'{text}' is not a year", where="--option year", hint="give a year such as 2024")


class LsfFormat(RecordFormat):
    """Accounting and history of one cluster."""

    name = "lsf"
    gpu_cure = "bhist -a -l -u all > bhist.txt"
    title = "IBM Spectrum LSF (lsb.acct, bhist, bacct, bjobs)"
    raw_files = (
        RawFile("acct", "finished jobs: lsb.acct", r"lsb\.acct(\.\d+)?", lambda head: _first(head, rb'"JOB_FINISH" "')),
        RawFile(
            "history", "events of jobs, printed by bhist -l or bacct -l", "",
            lambda head: re.search(rb"(?m)^Job <\d+(\[\d+\])?>, ", head) is not None,
        ),
        RawFile(
            "bjobs", 'current jobs, printed by bjobs -o "..." -json', "",
            lambda head: re.match(rb'\s*\{\s*"COMMAND"\s*:\s*"bjobs"', head) is not None,
        ),
    )  # fmt: skip
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("lsf", "name of the cluster"),
        "timezone": Option(
            "UTC", "IANA name of the zone in which bhist, bacct and bjobs printed their times", check=require_zone
        ),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "year": Option(
            "",
            "year of printed times without a year; if it is not given, their records are rejected",
            check=_require_year,
        ),
        "vc": Option("queue", "the tenant unit", ("queue", "project")),
        "gpu_resource": GPU_RESOURCE,
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read all files of the source as one log."""
        zone = sink.options["timezone"]
        printed = (zone, sink.options["doubled_hour"])
        readers = (("acct", read_acct, None), ("history", read_history, printed), ("bjobs", read_bjobs, printed))
        sources = ((file, read, wall) for kind, read, wall in readers for file in found.get(kind))
        several = write_records(sources, sink)
        sink.retries = bool(found.get("history")) or several > 0
        if found.get("history") or found.get("bjobs"):
            sink.note(f"printed times have no zone and are {zone_note(zone, stated='timezone' in sink.stated)}")
        return TimeFrame("absolute", zone)


def _first(head: bytes, begin: bytes) -> bool:
    """Return whether one of the first lines begins with `begin`. lsb.acct may begin with other records."""
    return any(line.startswith(begin) for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:20])


FORMAT = LsfFormat()
