"""What `bjobs -o "..." -json` prints: the jobs of a moment, a record each, with the fields that were asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.formats import _lsf_cells as text_of
from tracekit.ingest.json_items import json_items
from tracekit.ingest.lost_cells import LostValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["read_bjobs"]

_STATUS = {"DONE": "completed", "RUN": "running", "PEND": "pending", "PSUSP": "pending", "WAIT": "pending",
           "USUSP": "running", "SSUSP": "running", "ZOMBI": "node_fail"}  # fmt: skip
_OPTIONAL = (
    "ALLOC_SLOT", "EXEC_HOST", "GPU_ALLOC", "EFFECTIVE_RESREQ", "COMBINED_RESREQ", "USER", "JOB_NAME", "QUEUE",
    "PROJ_NAME", "PEND_REASON", "GPU_NUM", "EXIT_REASON", "STAT",
)  # fmt: skip
_TERM = re.compile(r"TERM_([A-Z_]{1,40})", re.ASCII)


def read_bjobs(opened: OpenedFile, year: str, sink: Sink, devices: text_of.Devices) -> Iterator[list[Row]]:
    """Yield the rows of a listing in blocks; `year` is that of times that carry none."""
    for items in json_items(opened, "RECORDS"):
        rows = []
        for item in items:
            try:
                lost = LostValues()
                rows.append(_row(item.value, year, devices, lost) | {"line": item.line})
                lost.count(sink)
            except ValueError as error:
                column, _, reason = str(error).partition(": ")
                opened.reject(item.line, column, reason, item.raw)
        devices.count(len(rows))
        if rows:
            yield rows


def _text(held: Mapping[str, Any], name: str) -> str | None:
    value = held.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: is not text")
    return None if value in (None, "", "-") else value


def _optional(held: Mapping[str, Any], name: str, lost: LostValues) -> str | None:
    """Return a text that a record can be without."""
    try:
        return _text(held, name)
    except ValueError:
        lost.add(name, str(held[name]), "is not text")
        return None


def _row(held: Mapping[str, Any], year: str, devices: text_of.Devices, lost: LostValues) -> Row:
    job, index = _text(held, "JOBID"), _text(held, "JOBINDEX")
    if job is None or not re.fullmatch(r"\d{1,15}", job, re.ASCII):
        raise ValueError("JOBID: is not a job id")
    told = {name: _optional(held, name, lost) for name in _OPTIONAL}
    word = told["STAT"]
    status = _STATUS.get(word or "", "unknown")
    if word == "EXIT":
        reason = _TERM.search(told["EXIT_REASON"] or "")
        status = text_of.TERMINATION.get(reason[1], "failed") if reason else "failed"
        word = f"TERM_{reason[1]}" if reason else word
    clocks = {}
    for key, name in (("submit_s", "SUBMIT_TIME"), ("start_s", "START_TIME"), ("end_s", "FINISH_TIME")):
        text = _text(held, name)
        # Of a job that runs, the end is what its limits or estimates say.
        if text is not None and not (key == "end_s" and status in ("running", "pending", "unknown")):
            try:
                clocks[key] = text_of.wall_s(text, year)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    place = "ALLOC_SLOT" if told["ALLOC_SLOT"] else "EXEC_HOST"
    slots = lost.read(place, told[place], lambda text: text_of.hosts(text.split(":"))) or {}
    indices = _indices(told["GPU_ALLOC"] or "")
    request = devices.request(told["EFFECTIVE_RESREQ"] or told["COMBINED_RESREQ"] or "")
    request = devices.settled(job, request, alone=False)
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
    """Return the GPUs by host in `hostA:0,1;hostB:0`; a GPU is listed again for each task on it."""
    found: dict[str, set[int]] = {}
    for part in text.split(";") if text else ():
        host, _, listed = part.partition(":")
        found[host] = {int(i) for i in listed.split(",") if i.isdecimal() and len(i) < 6}
    return found
