"""Write synthetic job logs in the form of the Acme release, with their planted faults.

Shares of types, sizes and states follow Hu et al. (NSDI 2024) loosely. Times are whole seconds with their offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_acme"]

SEREN, KALOS = "acme/trace_seren.csv", "acme/trace_kalos.csv"
UTILIZATION = "acme/seren_GPU_UTIL.csv"
JOBS = 120
FIRST = 1_683_000_000  # 2023-05-02 04:00:00 UTC
WINDOW = 7 * 86_400
HEADERS = {
    SEREN: "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time",
    KALOS: "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
    "end_time,fail_time,stop_time,duration,queue,gpu_time",
}
OFFSETS = {SEREN: ("+08:00", 8 * 3600), KALOS: ("+00:00", 0)}
TYPES = {
    SEREN: (("Eval", 60.0), ("Debug", 12.0), ("SFT", 10.0), ("MLLM", 8.0), ("Pretrain", 4.0), ("Other", 6.0)),
    KALOS: (("Eval", 80.0), ("Debug", 8.0), ("Pretrain", 6.0), ("Other", 6.0)),
}
SIZES = {"Eval": (1, 1, 1, 2), "Debug": (8, 16), "SFT": (8, 8, 32), "MLLM": (8, 16), "Pretrain": (256, 512),
         "Other": (0, 0, 1)}  # fmt: skip
STATES = (("COMPLETED", 52.0), ("FAILED", 38.0), ("CANCELLED", 10.0))
WAIT: Table = ((0, 2), (0.5, 10), (0.9, 500), (1, 8000))
RUN: Table = ((0, 5), (0.5, 120), (0.9, 5000), (1, 90_000))

Row = dict[str, str]


def write_acme(folder: Path, seed: int) -> list[Quirk]:
    """Write the logs of both clusters and one utilization file below `folder`, and return what was planted."""
    quirks: list[Quirk] = []
    for file in (SEREN, KALOS):
        draw = Draw(seed, file)
        times = sorted(FIRST + int(draw.share() * WINDOW) for _ in range(JOBS))
        rows = [_job(file, number, time, draw) for number, time in enumerate(times)]
        _plant(file, rows, times, quirks)
        write_rows(folder / file, [HEADERS[file], *_with_unusable(file, rows, quirks)])
    draw = Draw(seed, UTILIZATION)
    samples = [f"{_time(SEREN, FIRST + 15 * n)},{draw.between(0, 100)},{draw.between(0, 100)}" for n in range(4)]
    write_rows(folder / UTILIZATION, ["Time,10.0.0.1,10.0.0.2", *samples, f"{_time(SEREN, FIRST + 60)},,50"])
    quirks.append(Quirk(UTILIZATION, "file", "wide-utilization", "a column per server and a blank cell; not read"))
    return quirks


def _time(file: str, seconds: int) -> str:
    zone, shift = OFFSETS[file]
    return stamp(seconds + shift) + zone


def _job(file: str, number: int, submitted: int, draw: Draw) -> Row:
    kind, state = draw.weighted(TYPES[file]), draw.weighted(STATES)
    gpus = draw.pick(SIZES[kind])
    wait, run = int(draw.quantile(WAIT)), int(draw.quantile(RUN))
    started, ended = submitted + wait, submitted + wait + run
    kalos = file == KALOS
    # Kalos states the time from submission to the end as the duration.
    duration = wait + run if kalos else run
    row = {
        "job_id": f"dlc{draw.word(12)}" if kalos else str(5_000_000 + number),
        "user": f"u{draw.between(1, 20)}",
        "node_num": str(max(1, gpus // 8)),
        "gpu_num": str(gpus),
        "cpu_num": str(max(4, gpus * 16)),
        "type": kind,
        "state": state,
        "submit_time": _time(file, submitted),
        "start_time": _time(file, started),
        "end_time": _time(file, ended),
        "duration": str(duration),
        "queue": f"{wait}.0" if kalos else str(wait),
        "gpu_time": str(duration * gpus),
    }
    if kalos:
        row |= {
            "mem_per_pod_GB": "800",
            "shared_mem_per_pod": "100.0",
            "fail_time": row["end_time"] if state == "FAILED" else "",
            "stop_time": row["end_time"] if state == "CANCELLED" else "",
        }
    return row


def _plant(file: str, rows: list[Row], times: list[int], quirks: list[Quirk]) -> None:
    """Change jobs in place and note what was done or found."""

    def note(row: Row, kind: str, what: str) -> None:
        quirks.append(Quirk(file, row["job_id"], kind, what))

    for place, changes, kind, what in (
        (10, {"state": "TIMEOUT"}, "rare-state", "state TIMEOUT"),
        (11, {"state": "NODE_FAIL"}, "rare-state", "state NODE_FAIL"),
        (12, {"state": "RUNNING"}, "unfinished-with-end", "RUNNING, yet it has an end"),
        (13, {"state": "EXPLODED"}, "unknown-state", "state EXPLODED"),
        (14, {"type": "Chat"}, "unknown-type", "type Chat"),
        (15, {"gpu_num": "0", "gpu_time": "0"}, "cpu-job", "no GPU"),
        (16, {"queue": "99999"}, "queue-disagrees", "queue is not start minus submission"),
        (17, {"duration": "99999"}, "duration-disagrees", "duration is neither reading of the times"),
    ):
        rows[place] |= changes
        if file == KALOS and "state" in changes:
            rows[place] |= {"fail_time": "", "stop_time": ""}
        note(rows[place], kind, what)
    for place, blank in ((20, ""), (21, "NULL")):
        rows[place] |= {"state": "CANCELLED", "start_time": blank, "duration": "0", "gpu_time": "0"}
        if file == KALOS:
            rows[place] |= {"fail_time": "", "stop_time": rows[place]["end_time"]}
        note(rows[place], "cancelled-before-start", f"start_time is {blank or 'blank'}")
    if file == SEREN:
        rows[30]["submit_time"] = stamp(times[30] + 7 * 3600) + "+07:00"
        note(rows[30], "other-offset", "submit_time carries +07:00")
        return
    note(rows[0], "duration-holds-queue", "duration and gpu_time hold the wait, as in all of Kalos")
    rows[31]["queue"] = rows[31]["queue"].replace(".0", ".37")
    note(rows[31], "decimal-queue", "queue is a decimal")
    for place, column, state in ((32, "fail_time", "FAILED"), (33, "stop_time", "CANCELLED")):
        rows[place] |= {"state": state, "fail_time": "", "stop_time": ""}
        rows[place][column] = rows[place]["start_time"]
        note(rows[place], f"{column.replace('_', '-')}-disagrees", f"{column} is not end_time")


def _with_unusable(file: str, rows: list[Row], quirks: list[Quirk]) -> list[str]:
    """Return the lines with four more that no reader can keep."""
    names = HEADERS[file].split(",")
    lines = [",".join(row[name] for name in names) for row in rows]
    model = rows[50]
    for place, changes, record, kind, what in (
        (60, {"submit_time": model["submit_time"][:19]}, "bad-1", "no-offset", "submit_time carries no offset"),
        (70, {"gpu_num": "-8"}, "bad-2", "negative-request", "asks for -8 GPUs"),
        (80, {}, model["job_id"], "repeated-id", "the same job again"),
    ):
        row = model | {"job_id": record} | changes
        lines.insert(place, ",".join(row[name] for name in names))
        quirks.append(Quirk(file, record, kind, what, usable=False))
    lines.insert(90, "bad-3,u1,1")
    quirks.append(Quirk(file, "bad-3", "few-fields", "three fields", usable=False))
    return lines
