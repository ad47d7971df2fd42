"""What `bjobs -o "..." -json` prints: the jobs of a moment, a record each, with the fields that were asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.formats import _lsf_cells as text_of
from tracekit.ingest.json_items import json_items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile

__all__ = ["read_bjobs"]

_STATUS = {"DONE": "completed", "RUN": "running", "PEND": "pending", "PSUSP": "pending", "WAIT": "pending",
           "USUSP": "running", "SSUSP": "running", "ZOMBI": "node_fail"}  # fmt: skip
_TERM = re.compile(r"TERM_([A-Z_]{1,40})", re.ASCII)


def read_bjobs(opened: OpenedFile, year: str) -> Iterator[list[Row]]:
    """Yield the rows of a listing in blocks; `year` is that of times that carry none."""
    for items in json_items(opened, "RECORDS"):
        rows = []
        for item in items:
            try:
                rows.append(_row(item.value, year) | {"line": item.line})
            except ValueError as error:
                column, _, reason = str(error).partition(": ")
                opened.reject(item.line, column, reason, item.raw)
        if rows:
            yield rows


def _text(held: Mapping[str, Any], name: str) -> str | None:
    value = held.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: is not text")
    return None if value in (None, "", "-") else value


def _row(held: Mapping[str, Any], year: str) -> Row:
    job, index = _text(held, "JOBID"), _text(held, "JOBINDEX")
    if job is None or not re.fullmatch(r"\d{1,15}", job, re.ASCII):
        raise ValueError("JOBID: is not a job id")
    word = _text(held, "STAT")
    status = _STATUS.get(word or "", "unknown")
    if word == "EXIT":
        reason = _TERM.search(_text(held, "EXIT_REASON") or "")
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
    listed = _text(held, "ALLOC_SLOT") or _text(held, "EXEC_HOST") or ""
    try:
        slots = text_of.hosts(listed.split(":")) if listed else {}
        indices = _indices(_text(held, "GPU_ALLOC") or "")
    except ValueError as error:
        raise ValueError(f"EXEC_HOST: {error}") from None
    request = text_of.gpu_request(_text(held, "EFFECTIVE_RESREQ") or _text(held, "COMBINED_RESREQ") or "")
    row: Row = clocks | {
        "job_id": f"{job}[{index}]" if index not in (None, "0") else job,
        "told": max(clocks.values(), default=0.0),
        "status": status,
        "source_status": word,
        "run_status": status,
        "closes": "start_s" not in clocks and "end_s" in clocks,
        "user": _text(held, "USER"),
        "name": _text(held, "JOB_NAME"),
        "partition": _text(held, "QUEUE"),
        "account": _text(held, "PROJ_NAME"),
        "wait_reason": _text(held, "PEND_REASON"),
        "group": job if index not in (None, "0") else None,
    }
    row |= text_of.placed(slots, request, indices)
    gpus = _text(held, "GPU_NUM")
    if gpus is not None and re.fullmatch(r"\d{1,9}", gpus, re.ASCII):
        row["gpu_count"] = float(gpus)
    return row


def _indices(text: str) -> dict[str, set[int]]:
    """Return the GPUs by host in `hostA:0,1;hostB:0`; a GPU is listed again for each task on it."""
    found: dict[str, set[int]] = {}
    for part in text.split(";") if text else ():
        host, _, listed = part.partition(":")
        found[host] = {int(i) for i in listed.split(",") if i.isdecimal() and len(i) < 6}
    return found
