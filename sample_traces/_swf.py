"""Write a synthetic log in the Standard Workload Format, with its planted faults.

Times are whole seconds since the start that the header states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_swf"]

FILE = "swf/sample.swf"
JOBS = 200
WINDOW = 7 * 86_400
START = 1_583_020_800  # 2020-03-01 00:00:00 UTC
HEADER = (
    "; Version: 2.2",
    "; Computer: Sample cluster",
    "; Installation: nowhere, all of this is synthetic",
    f"; MaxRecords: {JOBS + 8}",
    "; Preemption: Yes",
    f"; UnixStartTime: {START}",
    "; TimeZone: 3600",
    "; TimeZoneString: Europe/Berlin",
    "; MaxNodes: 16 (four of them with more memory)",
    "; MaxProcs: 128",
    "; Queue: 0 interactive",
    "; Queue: 1 batch",
    "; Queue: 2 batch",
    "; Note: keys may repeat",
    "; Note: this line does",
)
WAIT: Table = ((0, 0), (0.5, 5), (0.9, 3000), (1, 40_000))
RUN: Table = ((0, 0), (0.05, 1), (0.5, 600), (0.9, 20_000), (1, 86_400))
WAITED, RAN, HELD, ASKED, STATUS = 2, 3, 4, 7, 10

Job = list[str]


def write_swf(folder: Path, seed: int) -> list[Quirk]:
    """Write the log below `folder` and return what was planted."""
    draw = Draw(seed, "swf")
    times = sorted(int(draw.share() * WINDOW) for _ in range(JOBS))
    jobs = [_job(number, time, draw) for number, time in enumerate(times, 1)]
    quirks = [
        Quirk(FILE, "header", "start-and-zone", "UnixStartTime and TimeZoneString give dates and hours of the day"),
        Quirk(FILE, "header", "repeated-keys", "Queue and Note stand several times, two queues share a name"),
        Quirk(FILE, "header", "total-only", "MaxNodes and MaxProcs are totals, MaxNodes with a remark behind it"),
    ]
    rows = _planted(jobs, quirks)
    write_rows(folder / FILE, [*HEADER, *rows])
    return quirks


def _job(number: int, time: int, draw: Draw) -> Job:
    size = draw.pick((1, 1, 2, 4, 8, 8, 16, 32))
    run = int(draw.quantile(RUN))
    status = draw.weighted(((1, 70.0), (0, 20.0), (5, 10.0)))
    user = draw.between(1, 15)
    cells = [number, time, int(draw.quantile(WAIT)), run, size, -1, -1, size, 3600 * (1 + run // 3600), 2_097_152,
             status, user, user % 4 + 1, -1, draw.pick((0, 1, 1, 2)), 1, -1, -1]  # fmt: skip
    return [str(cell) for cell in cells]


def _planted(jobs: list[Job], quirks: list[Quirk]) -> list[str]:
    """Return the lines with every oddity, and note them."""
    for place, changes, kind, what in (
        (10, {HELD: "-1"}, "allocated-unknown", "allocated processors are -1, the request is known"),
        (20, {HELD: "-1", ASKED: "-1"}, "no-processors", "allocated and requested processors are -1"),
        (30, {RAN: "0", STATUS: "1"}, "run-zero", "ran for 0 s"),
        (40, {WAITED: "-1"}, "wait-unknown", "the wait is -1"),
        (50, {RAN: "-1", HELD: "-1", STATUS: "5"}, "cancelled-in-queue", "cancelled before it started"),
        (60, {STATUS: "-1"}, "status-unknown", "status -1"),
        (70, {STATUS: "9"}, "odd-status", "status 9 is not in the format"),
        (80, {HELD: "256", ASKED: "256"}, "over-header", "more processors than MaxProcs"),
    ):
        for column, cell in changes.items():
            jobs[place][column] = cell
        quirks.append(Quirk(FILE, f"job {jobs[place][0]}", kind, what))
    rows = ["  ".join(job) for job in jobs]
    swapped = jobs[100]
    swapped[WAITED], swapped[RAN], swapped[STATUS] = "60", "1000", "1"
    parts = ["  ".join(_part(swapped, *cells)) for cells in (("60", "400", "2"), ("300", "600", "3"))]
    rows[100] = "  ".join(swapped)
    quirks.append(Quirk(FILE, f"job {swapped[0]}", "swapped-out", "a line for the whole, then two parts"))
    orphan = [str(JOBS + 1), *jobs[-1][1:]]
    lone = ["  ".join(_part(orphan, "10", "50", "4"))]
    quirks.append(Quirk(FILE, f"job {JOBS + 1}", "parts-only", "a last part without a line for the whole"))
    bad = [
        (" ".join(jobs[5][:12]), "line of 12 fields", "few-fields", "twelve fields"),
        (" ".join(["9001", *jobs[5][1:3], "long", *jobs[5][4:]]), "job 9001", "unreadable-number", "run is a word"),
        (" ".join(["9002", *jobs[5][1:7], "-4", *jobs[5][8:]]), "job 9002", "negative-request", "asks for -4"),
        (rows[3], f"job {jobs[3][0]}", "repeated-number", "the same job again"),
    ]  # fmt: skip
    quirks += [Quirk(FILE, record, kind, what, usable=False) for _, record, kind, what in bad]
    comment = ["", "; a comment between the jobs"]
    return [*rows[:101], *parts, *comment, *rows[101:], *lone, *(row for row, *_ in bad)]


def _part(job: Job, wait: str, run: str, status: str) -> Job:
    part = list(job)
    part[1], part[WAITED], part[RAN], part[STATUS] = "-1", wait, run, status
    return part
