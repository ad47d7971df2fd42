"""Per-minute GPU, CPU and memory use of the Philly servers with telemetry.

The means per size follow Table 3 of Jeon et al. (USENIX ATC 2019), those per number of servers are
chosen targets in the spirit of its Table 5. About one GPU-minute in eight of a running job is idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Quirk
from sample_traces._philly_jobs import FALL_BACK, SERVERS, pacific

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sample_traces._draw import Draw
    from sample_traces._philly_jobs import Job

__all__ = ["BEGIN", "END", "TELEMETRY_SERVERS", "telemetry_files"]

BEGIN = FALL_BACK - 8 * 3600
"""2017-11-04 18:00:00 PDT [s]"""
END = FALL_BACK + 8 * 3600
"""2017-11-05 09:00:00 PST [s]"""
TELEMETRY_SERVERS = tuple(SERVERS)[:8]

TARGET = {
    (1, 1): 53.0, (2, 1): 49.0, (4, 1): 43.5, (4, 2): 41.0, (8, 1): 51.0, (8, 2): 45.0, (8, 4): 39.0,
    (16, 2): 44.5, (16, 3): 42.5, (16, 4): 41.0, (16, 8): 29.0,
}  # fmt: skip
"""Mean utilization [percent] by (GPUs, servers) of an attempt."""
BY_STATUS = {"Pass": 0.0, "Failed": 2.0, "Killed": -5.0}
IDLE_SHARE = 0.12

GPU_FILE = "philly/cluster_gpu_util"
CPU_FILE = "philly/cluster_cpu_util"
MEM_FILE = "philly/cluster_mem_util"

Level = tuple[int, int, float]


def telemetry_files(jobs: list[Job], draw: Draw) -> tuple[dict[str, list[str]], list[Quirk]]:
    """Return the lines of the three utilization files and the oddities in them."""
    gpu = ["time,machineId," + ",".join(f"gpu{index}_util" for index in range(8))]
    cpu = ["time,machine_id,cpu_util"]
    mem = ["time,machine_id,mem_total,mem_free"]
    levels = _levels(jobs, draw)
    for minute in range((END - BEGIN) // 60):
        for server in TELEMETRY_SERVERS:
            cells = _gpu_cells(levels, server, BEGIN + minute * 60, draw)
            gpu += _gpu_rows(minute, server, cells)
            cpu += _cpu_rows(minute, server, cells, draw)
            mem += _mem_rows(minute, server, cells, draw)
    return {GPU_FILE: gpu, CPU_FILE: cpu, MEM_FILE: mem}, list(_quirks())


def _levels(jobs: list[Job], draw: Draw) -> dict[tuple[str, int], list[Level]]:
    """Return (first minute [s], end [s], mean percent) of what runs on each GPU inside the window."""
    levels: dict[tuple[str, int], list[Level]] = {}
    for job in jobs:
        for attempt in job.attempts:
            if attempt.end <= BEGIN or attempt.start >= END:
                continue
            base = TARGET.get((attempt.size, len(attempt.gpus)), 38.0) + BY_STATUS[job.status] + draw.bell()
            span = (attempt.start // 60 * 60, attempt.end, base / (1 - IDLE_SHARE))
            for server, indices in attempt.gpus.items():
                for index in indices:
                    levels.setdefault((server, index), []).append(span)
    return levels


def _gpu_cells(levels: dict[tuple[str, int], list[Level]], server: str, now: int, draw: Draw) -> list[float]:
    """Return utilization [percent] of the GPUs that the server has."""
    cells = []
    for index in range(SERVERS[server]):
        value = 0.0
        for start, end, level in levels.get((server, index), ()):
            if start <= now < end and not draw.chance(IDLE_SHARE):
                value = min(100.0, max(0.1, level + 14 * draw.bell()))
        cells.append(value)
    return cells


def _clock(minute: int) -> str:
    wall, zone = pacific(BEGIN + minute * 60)
    return f"{wall} {zone}"


def _gpu_rows(minute: int, server: str, cells: list[float]) -> list[str]:
    """Return the row of one server and minute, with the planted oddities in its place or beside it."""
    text = [f"{value:.1f}" for value in cells] + [""] * (8 - len(cells))
    clock = _clock(minute)
    match server, minute // 10, minute:
        case "m8", 30, _:
            return []
        case "m14", 70, _:
            text[3] = "NA"
        case "m102", 44, _:
            text[:4] = ["NA"] * 4
    row = f"{clock},{server},{','.join(text)}"
    comma = "" if server == "m29" and minute in {60, 61, 62} else ","
    return [row + comma, *_extra_gpu_rows(minute, server, row)]


def _extra_gpu_rows(minute: int, server: str, row: str) -> list[str]:
    """Return the repeated and the unusable rows that follow a good one."""
    clock, cells = row.split(",", 1)
    extra = {
        ("m21", 500): f"{clock},{server}," + "77.7," * 8,
        ("m3", 800): f"{clock},{server},11.0,12.0",
        ("m3", 801): f"{row},1.0,2.0,3.0,",
        ("m107", 820): f"2017-11-05 25:61:00 PST,{cells},",
        ("m107", 830): f"{clock[:-3]}EST,{cells},",
    }
    return [extra[server, minute]] if (server, minute) in extra else []


def _cpu_rows(minute: int, server: str, cells: list[float], draw: Draw) -> list[str]:
    busy = sum(cells) / (100 * len(cells))
    value = min(100.0, max(0.4, 6 + 48 * busy + 4 * draw.bell()))
    clock = _clock(minute)
    if server == "m8" and 305 <= minute < 310:
        return []
    if server == "m102" and minute // 10 == 44:
        return [f"{clock},{server},NA"]
    rows = [f"{clock},{server},{value:.2f}"]
    if (server, minute) == ("m3", 810):
        rows.append(f"2017-11-05 not-a-time,{server},{value:.2f}")
    return rows


def _mem_rows(minute: int, server: str, cells: list[float], draw: Draw) -> list[str]:
    total = 66_034_176 * len(cells)
    busy = sum(value > 0 for value in cells) / len(cells)
    free = int(total * min(0.95, max(0.02, 0.62 - 0.45 * busy + 0.02 * draw.bell())))
    clock = _clock(minute)
    if server == "m8" and 305 <= minute < 310:
        return []
    if server == "m102" and minute // 10 == 44:
        return [f"{clock},{server},NA,NA"]
    rows = [f"{clock},{server},{total}.0,{free}.0"]
    if (server, minute) == ("m3", 811):
        rows += [f"{clock},{server},{total}.0", f"{clock[:-3]}EST,{server},{total}.0,{free}.0"]
    return rows


def _quirks() -> Iterator[Quirk]:
    """Yield what the row functions above do on purpose."""
    gpu = [
        ("every row but three", "trailing-comma", "row ends with a comma, which makes an empty eleventh field"),
        (f"{_clock(60)},m29 and two minutes after", "no-trailing-comma", "row ends without the comma"),
        (f"{_clock(700)},m14 and nine minutes after", "na-cell", "gpu3 is NA: offline"),
        (f"{_clock(440)},m102 and nine minutes after", "na-row", "all four GPUs are NA, CPU and memory too"),
        ("m102, m107, m115", "empty-cells", "servers with four GPUs leave gpu4 to gpu7 empty, not NA"),
        (f"{_clock(300)},m8 and nine minutes after", "missing-minutes", "no rows, while CPU and memory lack only five"),
        (f"{_clock(500)},m21", "repeated-minute", "two rows for one server and minute, different values"),
        (f"{_clock(420)} and {_clock(480)}", "doubled-hour", "01:00 occurs with PDT and again with PST"),
    ]
    yield from (Quirk(GPU_FILE, record, kind, what) for record, kind, what in gpu)
    yield Quirk(GPU_FILE, f"{_clock(800)},m3 (second row)", "few-fields", "four fields", usable=False)
    yield Quirk(GPU_FILE, f"{_clock(801)},m3 (second row)", "many-fields", "fourteen fields", usable=False)
    yield Quirk(GPU_FILE, "2017-11-05 25:61:00 PST,m107", "unreadable-time", "no such hour or minute", usable=False)
    yield Quirk(GPU_FILE, f"{_clock(830)[:-3]}EST,m107", "unknown-zone", "zone is not Pacific", usable=False)
    yield Quirk(CPU_FILE, "header", "id-spelling", "machine_id here, machineId in the GPU file")
    yield Quirk(CPU_FILE, f"{_clock(440)},m102 and nine minutes after", "na-cell", "cpu_util is NA")
    yield Quirk(CPU_FILE, f"{_clock(305)},m8 and four minutes after", "missing-minutes", "no rows")
    yield Quirk(CPU_FILE, "2017-11-05 not-a-time,m3", "unreadable-time", "text in place of the clock", usable=False)
    yield Quirk(MEM_FILE, f"{_clock(440)},m102 and nine minutes after", "na-cell", "both memory columns are NA")
    yield Quirk(MEM_FILE, f"{_clock(305)},m8 and four minutes after", "missing-minutes", "no rows")
    yield Quirk(MEM_FILE, f"{_clock(811)},m3 (second row)", "few-fields", "mem_free is missing", usable=False)
    yield Quirk(MEM_FILE, f"{_clock(811)[:-3]}EST,m3", "unknown-zone", "zone is not Pacific", usable=False)
