"""Read tables printed by `nvidia-smi dmon -o DT`, `nvidia-smi pmon -o DT` and `dcgmi dmon`, and `nvidia-smi -q -x`.

docs.nvidia.com/deploy/nvidia-smi. Times are the wall clock of the machine, to the second, and the file name (or folder
name) must contain the machine's name.

In a table, a record is a line below a header, which begins with # and is repeated. Without `-o DT`, and in plain dcgmi
output, lines have no time; for dcgmi, `| ts '%Y-%m-%d %H:%M:%S'` puts one before each line. A dash means no value. pmon
has one line per process: the use of a GPU's processes at one time is added up if any of them reports it. A GPU without
processes has no use.

`nvidia-smi -q -x` prints one XML document per time; with `-l SECONDS`, a file contains several. A record is a line.
GPUs are numbered in the order in which a document lists them, like nvidia-smi numbers them. N/A means no value, and
values for parts of a divided GPU (MIG) are not used for the whole GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.records import text_lines
from tracekit.ingest.telemetry._metrics import METRICS
from tracekit.ingest.telemetry._series import Samples, host_of, nothing_read, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import TextLine
    from tracekit.ingest.sink import OpenedFile

_COLUMNS: Final = {
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
"""Metric by column name: sm is the GPU's utilization, fb its memory [MiB]."""

_BEFORE = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?\s+")
_DAY = re.compile(r"\d{8}", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
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
        """Return whether the first line is a header of such a table."""
        return _header(head.partition(b"\n")[0].decode("utf-8", "replace")) is not None

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The file's name contains no machine of the log, or several.
        """
        host = host_of(opened.path, hosts)
        waiting: list[_Row] = []
        columns: list[str] = []
        for lines in text_lines(opened):
            for line in lines:
                if found := _header(line.text):
                    if not columns and (why := _use_of_none(found, line.text)):
                        opened.sink.note(f"{opened.path} {why}")
                    columns = [] if _use_of_none(found, line.text) else found
                elif columns and (row := _row(line, columns, opened)):
                    waiting.append(row)
            # The processes of one time may continue in the next block.
            last = waiting[-1].time if waiting else None
            yield from _samples([row for row in waiting if row.time != last], host, frame)
            waiting = [row for row in waiting if row.time == last]
        yield from _samples(waiting, host, frame)


def _use_of_none(columns: list[str], header: str) -> str:
    """Return why the lines below a header cannot be used; '' if they can."""
    if not _COLUMNS.keys() & set(columns):
        return nothing_read(columns)
    if not _BEFORE.match(header) and not {"Date", "Time"} <= set(columns):
        return "has no times with dates and is ignored: log dmon and pmon with -o DT, dcgmi with " + _STAMPED
    return ""


def _samples(rows: list[_Row], host: str, frame: TimeFrame) -> Iterator[Samples]:
    """Yield the samples of records that cover complete times; the processes of a GPU are added up."""
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
    """Yield the samples of rows with time (text in the format `form`), gpu_index, uuid if known, and metrics."""
    if not rows:
        return
    metrics = dict.fromkeys(name for name in METRICS if any(name in row for row in rows))
    schema = {"time": pl.String, "gpu_index": pl.Int64, "uuid": pl.String, **dict.fromkeys(metrics, pl.Float64)}
    table = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    local = table["time"].str.to_datetime(form, strict=False, time_unit="us")
    yield from samples_of(table.with_columns(time=to_utc(local, frame.timezone)).drop_nulls("time"), host)


def _header(text: str) -> list[str] | None:
    """Return the column names if a line is a header; the time columns are called Date and Time."""
    before = _BEFORE.match(text)
    words = text[before.end() if before else 0 :].split()
    if not words or not words[0].startswith("#"):
        return None
    names = [name for name in [words[0][1:], *words[1:]] if name]
    return names if "Entity" in names or ("gpu" in names and {"sm", "pwr", "pid", "fb"} & set(names)) else None


def _row(line: TextLine, columns: list[str], opened: OpenedFile) -> _Row | None:
    """Return a record; None for a line of units or a rejected line."""
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
        metric: float(cells[name]) if _NUMBER.fullmatch(cells.get(name, "")) else None
        for name, metric in _COLUMNS.items()
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
"""Metric by section and name; if several fill the same metric, the last in the document with a value is used."""

_OPEN = re.compile(r"\s*<(\w+)(?: [^<>]*)?>\s*")
_CLOSE = re.compile(r"\s*</(\w+)>\s*")
_VALUE = re.compile(r"\s*<(\w+)>([^<]*)</\1>\s*")
_XML_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(?:%|MiB|W)?", re.ASCII)
_XML_TIME: Final = "%a %b %d %H:%M:%S %Y"


class NvidiaSmiXmlReader(TelemetryReader):
    """Reads XML documents of nvidia-smi."""

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
            The file's name contains no machine of the log, or several.
        """
        host = host_of(opened.path, hosts)
        document = _Document()
        for lines in text_lines(opened):
            for line in lines:
                document.take(line.text)
            yield from _timed(document.finished(), _XML_TIME, host, frame)


class _Document:
    """Processes the lines of documents; elements nested deeper than a section of a GPU are skipped."""

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


READERS = (MonitorReader(), NvidiaSmiXmlReader())
