"""Read three forms of GPU records, printed by nvidia-smi and dcgmi.

docs.nvidia.com/deploy/nvidia-smi. Times are the machine's wall-clock times. The content does not name the machine, so
the name of the file or folder must contain the machine's name in the log.

`nvidia-smi --query-gpu=timestamp,index,... --format=csv`, with or without units or header: a record is a line about one
GPU at one time. A restarted logger writes its header again; these lines count as records and are skipped. A cell such
as [N/A] means no value. A file may name GPUs only by UUID or bus address: nvidia-smi numbers and prints a machine's
GPUs in bus address order, which gives the index. Without a header, the columns are recognized by the units and form of
their cells.

`nvidia-smi dmon -o DT`, `nvidia-smi pmon -o DT` and `dcgmi dmon` print tables: a record is a line below a header, which
begins with # and is repeated. Without `-o DT`, and in plain dcgmi output, lines have no time. For dcgmi, `| ts
'%Y-%m-%d %H:%M:%S'` adds a time to each line. A dash means no value. pmon prints one line per process. If any process
on a GPU reports use, we add up the use of all its processes at that time. A GPU without processes has no use.

`nvidia-smi -q -x` prints one XML document per time. With `-l SECONDS`, a file contains several documents. A record is a
line. GPUs are numbered in the order in which a document lists them, as nvidia-smi numbers them. N/A means no value, and
values for parts of a divided GPU (MIG) are not used for the whole GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.records import RecordReader, parse_block, text_lines
from tracekit.ingest.telemetry._series import METRICS, Samples, host_of, nothing_read, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import Block, TextLine
    from tracekit.ingest.sink import OpenedFile


# Find the columns of an nvidia-smi file that was written with noheader.

TIME: Final = r"^\s*(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s*$"
UUID: Final = r"^((?:GPU|MIG)-[0-9A-Za-z/-]{4,80})$"
BUS: Final = r"^([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$"
_SMI_NUMBER = re.compile(r"[+-]?\d{1,12}(\.\d{1,6})?(?: (%|MiB|W|MHz))?", re.ASCII)
_OTHER = re.compile(
    r"\[?N/A\]?|\[(?:Not|Unknown|Insufficient|GPU)[^\]]{0,40}\]|P\d{1,2}|\d+\.\d+\.\d+|"
    r"(?:NVIDIA|Tesla|GeForce|Quadro) .{1,60}"
)
_MOST_GPUS = 64


def are_cells(line: bytes) -> bool:
    """Return whether a line is a GPU record, with a time, a cell that names the GPU, and at least one number."""
    time, *cells = _cells(line)
    if len(cells) < 2 or not re.fullmatch(TIME, time):
        return False
    kinds = [_kind(cell) for cell in cells]
    names_gpu = bool({"uuid", "pci.bus_id"}.intersection(kinds)) or (
        cells[0].isdecimal() and int(cells[0]) < _MOST_GPUS
    )
    return names_gpu and None not in kinds and "number" in kinds


def guess_names(lines: list[bytes]) -> list[str]:
    """Guess the column names of a file without a header from its cells.

    With units, the first column in percent is utilization.gpu, the first in W is power.draw, and the only one in MiB is
    memory.used. Without units, the first column with decimals is power.draw, and a single other column with values up
    to 100 is utilization.gpu. Two other columns are utilization.gpu and memory.used, which sometimes exceeds
    100. Three or more other columns stay unknown. Unknown columns are called 'column' followed by their number.
    """
    rows = [_cells(line) for line in lines]
    width = len(rows[0])
    columns = [[row[at] for row in rows if len(row) == width] for at in range(width)]
    names = [f"column {at}" for at in range(width)]
    kinds = [next((kind for kind in map(_kind, column) if kind not in {None, "other"}), "other") for column in columns]
    names[0] = "timestamp"
    for kind in ("uuid", "pci.bus_id"):
        if kind in kinds:
            names[kinds.index(kind)] = kind
    if {"uuid", "pci.bus_id"}.isdisjoint(kinds):
        names[1], kinds[1] = "index", "index"
    found = {
        at: [match for cell in column if (match := _SMI_NUMBER.fullmatch(cell))] for at, column in enumerate(columns)
    }
    numbers = {at: cells for at, cells in found.items() if kinds[at] == "number" and cells}
    units = {at: next((match[2] for match in cells if match[2]), None) for at, cells in numbers.items()}
    if any(units.values()):
        for unit, name in (("%", "utilization.gpu"), ("W", "power.draw"), ("MiB", "memory.used")):
            of_unit = [at for at in numbers if units[at] == unit]
            if of_unit and (unit != "MiB" or len(of_unit) == 1):
                names[of_unit[0]] = name
        return names
    decimals = [at for at, cells in numbers.items() if any(match[1] for match in cells)]
    whole = [at for at in numbers if at not in decimals]
    if decimals:
        names[decimals[0]] = "power.draw"
    large = [at for at in whole if any(float(match[0]) > 100 for match in numbers[at])]
    if len(whole) == 1 and not large:
        names[whole[0]] = "utilization.gpu"
    if len(whole) == 2 and len(large) < 2:
        memory = large[0] if large else whole[1]
        names[memory] = "memory.used"
        names[next(at for at in whole if at != memory)] = "utilization.gpu"
    return names


def _cells(line: bytes) -> list[str]:
    return [cell.strip() for cell in line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split(",")]


def _kind(cell: str) -> str | None:
    """Return the kind of a cell, or None if nvidia-smi prints no such cell."""
    if re.fullmatch(UUID, cell):
        return "uuid"
    if re.fullmatch(BUS, cell):
        return "pci.bus_id"
    if _SMI_NUMBER.fullmatch(cell):
        return "number"
    return "other" if _OTHER.fullmatch(cell) else None


_COLUMNS: Final = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization.gpu",),
    "DCGM_FI_DEV_FB_USED": ("memory.used",),
    "DCGM_FI_DEV_POWER_USAGE": ("power.draw", "power.draw.instant", "power.draw.average"),
}
"""Columns with a metric's meaning and unit (percent, MiB, W). The first column with a value is used."""

_SAME: Final = {"gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
_IDS: Final = ("index", "uuid", "pci.bus_id")
_USED: Final = frozenset(name for names in _COLUMNS.values() for name in names)

_FAMILIES: Final = {
    "clocks",
    "ecc",
    "encoder",
    "fan",
    "fb_memory",
    "memory",
    "pcie",
    "power",
    "temperature",
    "utilization",
}
"""Prefixes of nvidia-smi's column names."""

_NUMBER = r"^\s*([+-]?\d+(?:\.\d+)?)\s*(?:%|MiB|W)?\s*$"
_GUESSED_FROM = 200
"""Number of lines used to determine the columns of a file without a header."""

_HEADERS = "header lines inside an nvidia-smi file, written by a restarted logger"
_NUMBERED = (
    "GPUs that an nvidia-smi file names only by UUID or bus address; they are numbered in bus order, as nvidia-smi "
    "prints them"
)


def _names(line: bytes) -> list[str]:
    """Return a header's names without units, such as utilization.gpu. A repeated name gets a number."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    found: list[str] = []
    for cell in text.split(","):
        name = re.sub(r"\s*\[.*\]\s*$", "", cell).strip()
        name = _SAME.get(name, name)
        found.append(name if name not in found else f"{name} ({len(found)})")
    return found


def _is_header(line: bytes) -> bool:
    names = set(_names(line))
    own = b"gpu_uuid" in line or any(name.partition(".")[0] in _FAMILIES for name in names if name not in _IDS)
    return "timestamp" in names and bool(names.intersection(_IDS)) and own


class NvidiaSmiReader(TelemetryReader):
    """Reads nvidia-smi logs."""

    name = "nvidia-smi"
    title = "samples printed by nvidia-smi --query-gpu=timestamp,index,... --format=csv"

    def looks_right(self, head: bytes) -> bool:
        """Return whether the first line is an nvidia-smi header or, without a header, a GPU record."""
        line = head.partition(b"\n")[0]
        return _is_header(line) or are_cells(line)

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The path of the file names none of the log's machines, or several.
        """
        host = host_of(opened.path, hosts)
        reader = RecordReader(opened.stream)
        names = _header(reader, opened)
        if not _USED.intersection(names):
            metrics = [name for name in names if name not in {"timestamp", *_IDS}]
            opened.sink.note(f"{opened.path} {nothing_read(metrics)}")
        numbers: dict[str, int] = {}
        for block, bad in reader.blocks(len(names)):
            opened.count(len(block.lines) + len(bad))
            for record in bad:
                opened.reject(record.line, None, record.reason, record.raw)
            if len(block.lines):
                text, parsed = parse_block(block, opened, len(names), ",")
                named = text.rename(dict(zip(text.columns, names, strict=True)))
                yield from _samples(named, parsed, host, numbers, frame, opened)
        examples = [f"{host}: {key} is GPU {number}" for key, number in numbers.items()]
        opened.sink.check("gpus_numbered_by_order", len(numbers), None, _NUMBERED, examples if numbers else None)


def _header(reader: RecordReader, opened: OpenedFile) -> list[str]:
    """Return the column names, and leave the records in the reader."""
    first = reader.first_line() or b""
    if _is_header(first):
        return _names(first)
    lines = [first]
    while len(lines) < _GUESSED_FROM and (line := reader.first_line()) is not None:
        lines.append(line)
    for line in reversed(lines):
        reader.put_back(line)
    names = guess_names(lines)
    opened.sink.note(f"{opened.path} has no header; we assume the columns {', '.join(names)}")
    return names


def _samples(
    text: pl.DataFrame, block: Block, host: str, numbers: dict[str, int], frame: TimeFrame, opened: OpenedFile
) -> Iterator[Samples]:
    again = (text["timestamp"].str.strip_chars() == "timestamp").fill_null(value=False)
    opened.sink.check("repeated_headers", int(again.sum()), None, _HEADERS)
    cells = text.with_columns(
        pl.lit(None, dtype=pl.String).alias(name) for name in _IDS if name not in text.columns
    ).select(
        pl.col("timestamp").str.extract(TIME).str.to_datetime("%Y/%m/%d %H:%M:%S%.f", strict=False, time_unit="us"),
        pl.col("index").str.strip_chars().cast(pl.Int64, strict=False).alias("gpu_index"),
        pl.col("uuid").str.strip_chars().str.extract(UUID),
        pl.col("pci.bus_id").str.strip_chars().str.extract(BUS).str.to_uppercase().alias("bus"),
        *(
            pl.coalesce(
                pl.col(name).str.extract(_NUMBER).cast(pl.Float64, strict=False)
                for name in names
                if name in text.columns
            ).alias(metric)
            for metric, names in _COLUMNS.items()
            if not set(names).isdisjoint(text.columns)
        ),
    )
    unnamed = pl.Series(cells.select(pl.all_horizontal(pl.col("gpu_index", "uuid", "bus").is_null())).to_series())
    for mask, column, reason in (
        (cells["timestamp"].is_null(), "timestamp", "is not a time like 2026/01/31 12:00:00.000"),
        (unnamed & cells["timestamp"].is_not_null(), "index", "names no GPU"),
    ):
        for row in (mask & ~again).arg_true().to_list():
            opened.reject(int(block.lines[row]), column, reason, block.raw(row))
    utc = to_utc(cells["timestamp"], frame.timezone)
    cells = cells.with_columns(time=utc).filter(utc.is_not_null() & ~unnamed)
    if cells["gpu_index"].null_count():
        cells = _numbered(cells, numbers)
    yield from samples_of(cells, host)


def _numbered(cells: pl.DataFrame, numbers: dict[str, int]) -> pl.DataFrame:
    """Give every GPU in the records an index, and add new GPUs to `numbers`.

    If an index comes from the order, the UUID is removed: it must not identify a GPU in other files.
    """
    key = pl.coalesce("bus", "uuid")
    bare = cells.filter(pl.col("gpu_index").is_null())
    new = bare.filter(pl.col("bus").is_not_null())["bus"].unique().sort().to_list()
    new += bare.filter(pl.col("bus").is_null())["uuid"].unique(maintain_order=True).to_list()
    for name in new:
        numbers.setdefault(name, len(numbers))
    order = pl.DataFrame({"key": list(numbers), "order": list(numbers.values())}, schema_overrides={"order": pl.Int64})
    known = pl.col("gpu_index").is_not_null()
    return (
        cells.with_columns(key=key)
        .join(order, on="key", how="left", maintain_order="left")
        .with_columns(uuid=pl.when(known).then("uuid"), gpu_index=pl.coalesce("gpu_index", "order"))
    )


_DMON: Final = {
    "sm": "DCGM_FI_DEV_GPU_UTIL",
    "fb": "DCGM_FI_DEV_FB_USED",
    "pwr": "DCGM_FI_DEV_POWER_USAGE",
    "GPUTL": "DCGM_FI_DEV_GPU_UTIL",
    "FBUSD": "DCGM_FI_DEV_FB_USED",
    "POWER": "DCGM_FI_DEV_POWER_USAGE",
    "GRACT": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "SMACT": "DCGM_FI_PROF_SM_ACTIVE",
    "TENSO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "TOTEC": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
}
"""Metric by column name: sm is the GPU's utilization, and fb is its memory [MiB]."""

_BEFORE = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?\s+")
_DAY = re.compile(r"\d{8}", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
_DMON_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_UNITS: Final = {"#YYYYMMDD", "#HH:MM:SS", "#", "#Idx", "ID"}
_STAMPED: Final = "| ts '%Y-%m-%d %H:%M:%S'"


class _Row(NamedTuple):
    time: str
    gpu: int
    pid: str | None
    values: dict[str, float | None]


class MonitorReader(TelemetryReader):
    """Reads the tables of nvidia-smi dmon, nvidia-smi pmon and dcgmi dmon."""

    name = "nvidia-smi-monitor"
    title = "samples printed by nvidia-smi dmon -o DT, nvidia-smi pmon -o DT or dcgmi dmon"

    def looks_right(self, head: bytes) -> bool:
        """Return whether the first line is a header of one of these tables."""
        return _dmon_header(head.partition(b"\n")[0].decode("utf-8", "replace")) is not None

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The path of the file names none of the log's machines, or several.
        """
        host = host_of(opened.path, hosts)
        waiting: list[_Row] = []
        columns: list[str] = []
        for lines in text_lines(opened):
            for line in lines:
                if found := _dmon_header(line.text):
                    if not columns and (why := _use_of_none(found, line.text)):
                        opened.sink.note(f"{opened.path} {why}")
                    columns = [] if _use_of_none(found, line.text) else found
                elif columns and (row := _row(line, columns, opened)):
                    waiting.append(row)
            # The processes of one time may continue in the next block.
            last = waiting[-1].time if waiting else None
            yield from _added_up([row for row in waiting if row.time != last], host, frame)
            waiting = [row for row in waiting if row.time == last]
        yield from _added_up(waiting, host, frame)


def _use_of_none(columns: list[str], header: str) -> str:
    """Return why the lines below a header cannot be used, or '' if they can."""
    if not _DMON.keys() & set(columns):
        return nothing_read(columns)
    if not _BEFORE.match(header) and not {"Date", "Time"} <= set(columns):
        return "has no times with dates and is ignored: log dmon and pmon with -o DT, and dcgmi with " + _STAMPED
    return ""


def _added_up(rows: list[_Row], host: str, frame: TimeFrame) -> Iterator[Samples]:
    """Yield the samples of records that cover complete times, adding up each GPU's processes."""
    used: dict[tuple[str, int], dict[str, float | None]] = {}
    for row in rows:
        found = used.setdefault((row.time, row.gpu), dict.fromkeys(row.values))
        for metric, value in row.values.items():
            if row.pid == "-":
                found[metric] = 0.0
            elif value is not None:
                found[metric] = (found[metric] or 0.0) + value if row.pid is not None else value
    totals = [{"time": time, "gpu_index": gpu, **values} for (time, gpu), values in used.items()]
    yield from _timed(totals, "%Y%m%d %H:%M:%S", host, frame)


def _timed(rows: list[dict[str, Any]], form: str, host: str, frame: TimeFrame) -> Iterator[Samples]:
    """Yield the samples of rows with time (a string in the format `form`), gpu_index, uuid if known, and metrics."""
    if not rows:
        return
    metrics = dict.fromkeys(name for name in METRICS if any(name in row for row in rows))
    schema = {"time": pl.String, "gpu_index": pl.Int64, "uuid": pl.String, **dict.fromkeys(metrics, pl.Float64)}
    table = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    local = table["time"].str.to_datetime(form, strict=False, time_unit="us")
    yield from samples_of(table.with_columns(time=to_utc(local, frame.timezone)).drop_nulls("time"), host)


def _dmon_header(text: str) -> list[str] | None:
    """Return the column names if a line is a header. The time columns are called Date and Time."""
    before = _BEFORE.match(text)
    words = text[before.end() if before else 0 :].split()
    if not words or not words[0].startswith("#"):
        return None
    names = [name for name in [words[0][1:], *words[1:]] if name]
    return names if "Entity" in names or ("gpu" in names and {"sm", "pwr", "pid", "fb"} & set(names)) else None


def _row(line: TextLine, columns: list[str], opened: OpenedFile) -> _Row | None:
    """Return a record, or None for a line of units or a rejected line."""
    before = _BEFORE.match(line.text)
    words = line.text[before.end() if before else 0 :].split()
    if not words or words[0] in _UNITS or words[0].startswith("#"):
        return None
    is_dcgmi = columns[:1] == ["Entity"]
    if is_dcgmi and words[0] == "GPU":
        words = words[1:]
    cells = dict(zip(columns, words, strict=False))
    day, clock = (before["day"].replace("-", ""), before["clock"]) if before else (cells.get("Date"), cells.get("Time"))
    gpu = cells.get("Entity" if is_dcgmi else "gpu", "")
    for column, fits, reason in (
        ("Date", _DAY.fullmatch(day or ""), "has no date like 20260131"),
        ("Time", _CLOCK.fullmatch(clock or ""), "has no time like 12:00:00"),
        ("gpu", gpu.isascii() and gpu.isdecimal() and len(gpu) < 6, "names no GPU"),
        (None, len(words) >= len(columns) or "command" in columns, "has fewer cells than the header"),
    ):
        if not fits:
            opened.reject(line.number, column, reason, line.raw)
            return None
    values = {
        metric: float(cells[name]) if _DMON_NUMBER.fullmatch(cells.get(name, "")) else None
        for name, metric in _DMON.items()
        if name in columns
    }
    return _Row(f"{day} {clock}", int(gpu), cells.get("pid"), values)


_FIELDS: Final = {
    ("utilization", "gpu_util"): "DCGM_FI_DEV_GPU_UTIL",
    ("fb_memory_usage", "used"): "DCGM_FI_DEV_FB_USED",
    ("gpu_power_readings", "instant_power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("gpu_power_readings", "average_power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("gpu_power_readings", "power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("power_readings", "power_draw"): "DCGM_FI_DEV_POWER_USAGE",
}
"""Metric by section and name. If several fill the same metric, the last one with a value counts."""

_OPEN = re.compile(r"\s*<(\w+)(?: [^<>]*)?>\s*")
_CLOSE = re.compile(r"\s*</(\w+)>\s*")
_VALUE = re.compile(r"\s*<(\w+)>([^<]*)</\1>\s*")
_XML_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(?:%|MiB|W)?", re.ASCII)
_XML_TIME: Final = "%a %b %d %H:%M:%S %Y"


class NvidiaSmiXmlReader(TelemetryReader):
    """Reads XML documents printed by nvidia-smi."""

    name = "nvidia-smi-xml"
    title = "samples printed by nvidia-smi -q -x"

    def looks_right(self, head: bytes) -> bool:
        """Return whether a file begins like an nvidia-smi document."""
        start = head[:400].lstrip(b"\xef\xbb\xbf \r\n\t")
        return start.startswith(b"<") and b"<nvidia_smi_log>" in start

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The path of the file names none of the log's machines, or several.
        """
        host = host_of(opened.path, hosts)
        document = _Document()
        for lines in text_lines(opened):
            for line in lines:
                document.take(line.text)
            yield from _timed(document.finished(), _XML_TIME, host, frame)


class _Document:
    """Processes the lines of documents. Elements nested deeper than a GPU's sections are skipped."""

    def __init__(self) -> None:
        self._time = ""
        self._gpu = -1
        self._uuid: str | None = None
        self._inside: list[str] = []
        self._values: dict[str, float] = {}
        self._rows: list[dict[str, Any]] = []

    def take(self, text: str) -> None:
        """Process a line."""
        if value := _VALUE.fullmatch(text):
            self._field(value[1], value[2].strip())
        elif opened := _OPEN.fullmatch(text):
            if opened[1] == "nvidia_smi_log":
                self._inside, self._gpu, self._time = [], -1, ""
            elif opened[1] == "gpu" and self._inside == ["nvidia_smi_log"]:
                self._gpu, self._uuid, self._values = self._gpu + 1, None, {}
            self._inside.append(opened[1])
        elif (closed := _CLOSE.fullmatch(text)) and closed[1] in self._inside:
            while self._inside.pop() != closed[1]:
                pass
            if closed[1] == "gpu" and self._inside == ["nvidia_smi_log"]:
                self._rows.append({"time": self._time, "gpu_index": self._gpu, "uuid": self._uuid, **self._values})

    def _field(self, name: str, text: str) -> None:
        if self._inside == ["nvidia_smi_log"] and name == "timestamp":
            self._time = text
        elif self._inside == ["nvidia_smi_log", "gpu"] and name == "uuid":
            self._uuid = text
        elif len(self._inside) == 3:
            metric = _FIELDS.get((self._inside[2], name))
            number = _XML_NUMBER.fullmatch(text)
            if metric and number:
                self._values[metric] = float(number[1])

    def finished(self) -> list[dict[str, Any]]:
        """Return the rows of complete GPUs, each once."""
        found, self._rows = self._rows, []
        return found


READERS = (NvidiaSmiReader(), MonitorReader(), NvidiaSmiXmlReader())
