"""Read the output of `bhist -l` and `bacct -l`: one block of lines per job, with its events and GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.formats import _lsf_cells as text_of
from tracekit.ingest.formats._records import Fault, rows_of
from tracekit.ingest.records import MAX_RECORD, Record, text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.formats._records import Devices
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile

BLOCK = re.compile(r"Job <(\d{1,15}(?:\[\d{1,10}\])?)>,", re.ASCII)
_EVENT = re.compile(
    r"((?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?): (.*)", re.ASCII | re.DOTALL
)
_INDENT = " " * 10
"""Start of a continuation line: the output is wrapped at the terminal width."""
_STATED = re.compile(r"(Job Name|User|Project|Queue|User Group|Job Group) <([^<>]{0,4000})>")
_BRACKETS = re.compile(r"<([^<>]{0,4000})>")
_LIMIT = re.compile(r"\s*(\d{1,9}(?:\.\d)?) min of ", re.ASCII)
_CPU = re.compile(r"CPU time used is (\d{1,15}(?:\.\d{1,9})?) seconds", re.ASCII)
_STATES = ["PEND", "PSUSP", "RUN", "USUSP", "SSUSP", "UNKWN", "TOTAL"]
_BATCH = 5_000


def read_history(opened: OpenedFile, devices: Devices) -> Iterator[list[Row]]:
    """Yield the rows of a history in blocks. A job's output is one record."""
    options = opened.sink.options
    rows: list[Row] = []
    for block in _blocks(opened):
        found = rows_of(opened, [block], lambda lines, lost: _rows(lines, options["year"], devices, lost))
        if found:
            devices.count(1, whole=True)
        rows += found
        if len(rows) >= _BATCH:
            yield text_of.of_cluster(rows, options)
            rows = []
    yield text_of.of_cluster(rows, options)


def _blocks(opened: OpenedFile) -> Iterator[Record]:
    """Yield each job's output as one record of lines. Lines before the first record are headings."""
    begin, size = 0, 0
    block: list[str] = []
    for lines in text_lines(opened):
        for line in lines:
            opened.count(-1)  # blocks are the records, not lines
            if BLOCK.match(line.text):
                if block:
                    yield Record(begin, "\n".join(block).encode(), block)
                opened.count(1)
                begin, size, block = line.number, 0, []
            size += len(line.text)
            if begin and size <= MAX_RECORD:
                block.append(line.text)
    if block:
        yield Record(begin, "\n".join(block).encode(), block)


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield the lines, with wrapped lines rejoined."""
    whole: list[str] = []
    for line in lines:
        goes_on = bool(whole) and line.startswith(_INDENT) and (BLOCK.match(whole[0]) or _EVENT.match(whole[0]))
        if whole and not goes_on:
            yield "".join(whole)
            whole = []
        whole.append(line.lstrip() if goes_on else line)
    if whole:
        yield "".join(whole)


class _Told(NamedTuple):
    """Data in a block, other than events."""

    gpus: dict[str, set[int]]
    limit_s: float | None
    suspended_s: float | None


def _rows(block: list[str], year: str, devices: Devices, lost: LostValues) -> Iterator[Row]:
    lines = list(_joined(block))
    match = BLOCK.match(lines[0])
    assert match is not None  # noqa: S101 -- every block begins with a match
    head = dict(_STATED.findall(lines[0].partition(", Command <")[0]))
    row: Row = {"job_id": match[1], "user": head.get("User"), "name": head.get("Job Name") or None}
    row |= {"account": head.get("Project"), "partition": head.get("Queue"), "group": head.get("Job Group")}
    told = _told(lines)
    row |= {"time_limit_s": told.limit_s, "suspended_s": told.suspended_s}
    if "[" in match[1] and row["group"] is None:
        row["group"] = match[1].partition("[")[0]
    events = [(m[1], m[2]) for line in lines[1:] if (m := _EVENT.fullmatch(line))]
    if not any(text.startswith("Submitted") for _, text in events):
        raise Fault(None, "has no event 'Submitted'; print it with bhist -l or bacct -l")
    yield from _runs(row, events, told, year, devices, lost)


def _runs(  # noqa: C901 -- one branch per kind of event
    row: Row,
    events: list[tuple[str, str]],
    told: _Told,
    year: str,
    devices: Devices,
    lost: LostValues,
) -> Iterator[Row]:
    """Yield a row per run, and a row that shows why the job waits or how it ended without running."""
    run: Row | None = None
    last: Row = dict(row)
    alone = any(text.startswith("Submitted") and "Exclusive Execution" in text for _, text in events)
    for clock, text in events:
        moment = text_of.wall_s(clock, year)
        if text.startswith("Submitted"):
            queue = re.search(r"to Queue <([^<>]{0,4000})>", text)
            row = row | {"submit_s": moment, "partition": row.get("partition") or (queue[1] if queue else None)}
            last = row | {"told": moment, "status": "pending", "source_status": "PEND"}
        elif text.startswith("Dispatched"):
            if run is not None:
                yield run
            run = row | {"told": moment, "start_s": moment, "status": "running", "source_status": "RUN"}
            run |= {"run_status": "running"} | _dispatched(text, row["job_id"], told.gpus, devices, lost, alone=alone)
        elif text.startswith(("Done successfully", "Exited", "Completed")):
            ended: Row = {"end_s": moment, "told": moment} | _ended(text)
            if run is None:
                last |= ended | {"closes": True}
            elif "end_s" in run:
                # Completed follows Exited and names the reason.
                if str(ended["source_status"]).startswith("TERM_"):
                    run |= {key: ended[key] for key in ("status", "run_status", "source_status")}
            else:
                run |= ended
        elif text.startswith("Pending") and run is not None:
            if "end_s" not in run:
                run |= {"end_s": moment, "run_status": "unknown"}
            yield run | {"status": None, "source_status": None}
            run, last = None, row | {"told": moment, "status": "pending", "source_status": "PEND"}
    yield last if run is None else run


def _dispatched(
    text: str, job: str, gpus: dict[str, set[int]], devices: Devices, lost: LostValues, *, alone: bool
) -> Row:
    """Return the nodes and GPUs of `Dispatched 4 Task(s) on Host(s) <a> <b>, ..., Effective RES_REQ <...>`."""
    before, _, after = text.partition("Effective RES_REQ <")
    names = [name for part in _BRACKETS.findall(before.partition(", Allocated")[0]) for name in part.split()]
    slots = lost.read("Dispatched", " ".join(names), lambda _: text_of.hosts(names)) or {}
    # The table truncates host names to its width.
    indices = {}
    for short, found in gpus.items():
        fits = [host for host in slots if host.startswith(short)]
        if len(fits) == 1:
            indices[fits[0]] = found
    request = text_of.gpu_request(after, devices.factors)
    return text_of.placed(slots, text_of.settled(job, request, devices, alone=alone), indices)


def _ended(text: str) -> Row:
    cpu = _CPU.search(text)
    used = {"cpu_s": float(cpu[1])} if cpu else {}
    if text.startswith("Done") or "<done>" in text:
        return used | {"status": "completed", "run_status": "completed", "source_status": "DONE"}
    status, word = text_of.exited(text)
    return used | {"status": status, "run_status": status, "source_status": word}


def _told(lines: list[str]) -> _Told:
    gpus: dict[str, set[int]] = {}
    limit: float | None = None
    suspended: float | None = None
    place = 0
    while place < len(lines):
        line = lines[place].strip()
        if line == "GPU_ALLOCATION:":
            place = _gpu_table(lines, place + 2, gpus)
            continue
        if line == "RUNLIMIT" and place + 1 < len(lines) and (match := _LIMIT.match(lines[place + 1])):
            limit = float(match[1]) * 60
        if line.split() == _STATES and place + 1 < len(lines):
            cells = lines[place + 1].split()
            if len(cells) == len(_STATES) and all(cell.isdecimal() and len(cell) < 12 for cell in cells):
                suspended = float(cells[3]) + float(cells[4])
        place += 1
    return _Told(gpus, limit, suspended)


def _gpu_table(lines: list[str], place: int, gpus: dict[str, set[int]]) -> int:
    """Read rows with host, task and GPU, and return the end of the table. Later rows of the same host omit its name."""
    host = ""
    while place < len(lines):
        line = lines[place]
        cells = line.split()
        if not line.startswith(" ") or len(cells) < 2:
            break
        if not line.startswith("  "):
            host = cells.pop(0)
        if len(cells) < 2 or not cells[1].isdecimal() or len(cells[1]) > 6 or not host:
            break
        gpus.setdefault(host, set()).add(int(cells[1]))
        place += 1
    return place
