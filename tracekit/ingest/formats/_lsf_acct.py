"""The records of lsb.acct: fields in a fixed order, with lists whose length stands in front of them."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from tracekit import schema
from tracekit.ingest.formats import _lsf_cells as text_of
from tracekit.ingest.lost_cells import LostValues
from tracekit.ingest.text_lines import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["read_acct"]

_FIELD_LIMIT = 1 << 30
_OTHERS = re.compile(r'"(EVENT_ADRSV_FINISH|JOB_RESIZE|[A-Z_]{3,40})" ', re.ASCII)

_ENTRY = {"askedHosts": 1, "execHosts": 1, "submitExt": 2}
"""Lists, whose length stands in front of them, and the fields of an entry."""
_AFTER_USE = ("runLimit", "options3", "avgMem", "effectiveResReq")
"""Fields behind the list hostRusage."""
_SECTION = re.compile(r"\b(?:select|order|rusage|span|same|cu|affinity)\[")
_DONE, _EXIT = 64, 32  # JOB_STAT_DONE and JOB_STAT_EXIT of lsbatch.h
_EXCLUSIVE = 0x40
"""SUB_EXCLUSIVE, the bit of the field options for `bsub -x`: the job runs by itself on its hosts.

lsbatch.h has the number (OpenLava's: github.com/zjma/openlava, lsbatch/lsbatch.h), which IBM's manual leaves out.
"""
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)


def read_acct(opened: OpenedFile, sink: Sink, devices: text_of.Devices) -> Iterator[list[Row]]:
    """Yield the rows of an accounting file in blocks."""
    csv.field_size_limit(_FIELD_LIMIT)
    for lines in text_lines(opened):
        rows, others, short = [], 0, 0
        for line in lines:
            kind = _OTHERS.match(line.text)
            if kind and kind[1] != "JOB_FINISH":
                others += 1
                continue
            try:
                held = _fields(line.text)
                lost = LostValues()
                rows.append(_row(held, devices, lost) | {"line": line.number})
            except _Fault as fault:
                opened.reject(line.number, fault.column, fault.reason, line.raw)
                continue
            short += "effectiveResReq" not in held
            lost.count(sink)
        devices.count(len(lines))
        sink.check("other_records", others, len(lines), "records of other types than JOB_FINISH; they are not used")
        sink.check(
            "short_records", short, len(lines),
            "records whose end, with the run limit and the resources in use, is missing or of another layout",
        )  # fmt: skip
        if rows:
            yield rows


class _Fault(Exception):  # noqa: N818 -- no error of the program: why a record cannot be used
    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason


def _fields(text: str) -> dict[str, Any]:
    try:
        cells = next(csv.reader([text], delimiter=" ", skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise _Fault(None, f"cannot be parsed: {error}") from None
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
                raise _Fault(column.name, "is missing or of another layout") from None
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
    """Return the fields behind the list of what each host used; none where no layout of that list fits.

    The manual gives an entry six fields: host, memory, swap, user time, system time, and the number of pairs that
    follow, which is 0 in this file. Some records have only the first five. The layout is right if numbers are numbers
    and the effective resource requirement looks like one.
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
    """Return where the list of what each host used ends; ValueError where it has another layout."""
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
    """Return a number without which the record says something else; None for -1, which says that it is not known."""
    text = held.get(name)
    try:
        return None if text is None else _parsed(text)
    except ValueError as error:
        raise _Fault(name, str(error)) from None


def _parsed(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number")
    value = float(text)
    return None if value == -1 else value


def _time(held: Mapping[str, Any], name: str) -> float | None:
    """Return a time [s]; 0 says that there is none."""
    return _number(held, name) or None


def _row(held: Mapping[str, Any], devices: text_of.Devices, lost: LostValues) -> Row:
    if held["type"] != "JOB_FINISH":
        raise _Fault(None, 'is not a record like "JOB_FINISH" "10.1" 1712942618 ...')
    job, index, told = _number(held, "jobId"), _number(held, "idx"), _time(held, "eventTime")
    if job is None or told is None:
        raise _Fault("jobId" if job is None else "eventTime", "is missing")
    name = f"{job:.0f}[{index:.0f}]" if index else f"{job:.0f}"
    slots = lost.read("execHosts", " ".join(held["execHosts"]), lambda _: text_of.hosts(held["execHosts"])) or {}
    start = _time(held, "startTime")
    effective = held.get("effectiveResReq", "")
    request = devices.request(effective)
    if request is None or request.number == 0:
        asked = devices.request(held["resReq"])
        request = asked if asked is not None and asked.number != 0 else request
    options = lost.read("options", held.get("options"), _parsed)
    alone = options is not None and bool(int(options) & _EXCLUSIVE)
    request = devices.settled(name, request, alone=alone)
    status, word = _status(held, lost)
    names = ("ru_utime", "ru_stime", "maxRMem", "runLimit", "numProcessors")
    *cpu, memory, limit, processors = (lost.read(name, held.get(name), _parsed) for name in names)
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
    names = {number: word for word, number in text_of.TERM_WORDS}
    reason = lost.read("exitInfo", held.get("exitInfo"), _parsed)
    word = names.get(int(reason)) if reason is not None else None
    if word is None or word == "UNKNOWN":
        return "failed", "EXIT"
    return text_of.TERMINATION.get(word, "failed"), f"TERM_{word}"
