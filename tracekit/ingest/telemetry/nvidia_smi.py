"""What `nvidia-smi --query-gpu=timestamp,index,... --format=csv -l SECONDS` prints, with units, header or neither.

docs.nvidia.com/deploy/nvidia-smi. A record is a line of one GPU at one time. Times are wall clock of the machine; the
file does not name it, so its name (or that of its folder) has to hold the machine's, as the log has it. A logger that
is started again writes its header once more; those lines are counted as records and left out. A cell such as [N/A] is
no value.

A file may name GPUs by their UUID or bus address alone. nvidia-smi numbers and prints the GPUs of a machine in the
order of their bus addresses, so that order gives the index. Without a header the units and the shape of the cells tell
the columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.records import RecordReader, parse_block
from tracekit.ingest.telemetry._series import Samples, host_of, nothing_read, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import Block
    from tracekit.ingest.sink import OpenedFile, Sink


# Which columns a file of nvidia-smi has that was written with noheader.

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
    """Return whether a line is a record of a GPU: a time, what names the GPU, and at least one number."""
    time, *cells = _cells(line)
    if len(cells) < 2 or not re.fullmatch(TIME, time):
        return False
    kinds = [_kind(cell) for cell in cells]
    names_gpu = bool({"uuid", "pci.bus_id"}.intersection(kinds)) or (
        cells[0].isdecimal() and int(cells[0]) < _MOST_GPUS
    )
    return names_gpu and None not in kinds and "number" in kinds


def guess_names(lines: list[bytes]) -> list[str]:
    """Return the names of the columns of a file without header, as far as its cells tell them.

    Units tell the first column of percents (utilization.gpu) and of W (power.draw), and the only one of MiB
    (memory.used). Without units, the first column of numbers with decimals is power.draw; a single other column is
    utilization.gpu while it is at most 100, and two are utilization.gpu and memory.used, which exceeds 100 at times.
    More columns than these leave open what each is. The rest is called 'column' with its number.
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
    """Return what a cell is; None where nvidia-smi does not print such."""
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
"""The columns that fill a metric of the same meaning and unit (percent, MiB, W); the first that has a value does."""

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
"""What the names of nvidia-smi's columns begin with."""

_NUMBER = r"^\s*([+-]?\d+(?:\.\d+)?)\s*(?:%|MiB|W)?\s*$"
_GUESSED_FROM = 200
"""Lines whose cells tell the columns of a file without header."""

_HEADERS = "header lines inside a file of nvidia-smi, because its logger was restarted"
_NUMBERED = (
    "GPUs that a file of nvidia-smi names only by UUID or bus address; they are numbered in bus order, as "
    "nvidia-smi prints them"
)


def _names(line: bytes) -> list[str]:
    """Return the names in a header without their units, such as utilization.gpu; one that repeats is marked."""
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
    """Reads logs of nvidia-smi."""

    name = "nvidia-smi"
    title = "samples as nvidia-smi --query-gpu=timestamp,index,... --format=csv prints them"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- any name will do
        """Return whether the first line is a header of nvidia-smi's, or a record of a GPU without one."""
        line = head.partition(b"\n")[0]
        return _is_header(line) or are_cells(line)

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str], sink: Sink) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The file's name holds no machine of the log, or several.
        """
        host = host_of(opened.path, hosts)
        reader = RecordReader(opened.stream)
        names = _header(reader, opened.path, sink)
        if not _USED.intersection(names):
            metrics = [name for name in names if name not in {"timestamp", *_IDS}]
            sink.note(f"{opened.path} {nothing_read(metrics)}")
        numbers: dict[str, int] = {}
        for block, bad in reader.blocks(len(names)):
            opened.count(len(block.lines) + len(bad))
            for record in bad:
                opened.reject(record.line, None, record.reason, record.raw)
            if len(block.lines):
                text, parsed = parse_block(block, opened, len(names), ",")
                named = text.rename(dict(zip(text.columns, names, strict=True)))
                yield from _samples(named, parsed, host, numbers, frame, opened, sink)
        examples = [f"{host}: {key} is GPU {number}" for key, number in numbers.items()]
        sink.check("gpus_numbered_by_order", len(numbers), None, _NUMBERED, examples if numbers else None)


def _header(reader: RecordReader, path: str, sink: Sink) -> list[str]:
    """Return the names of the columns; the records wait in the reader."""
    first = reader.first_line() or b""
    if _is_header(first):
        return _names(first)
    lines = [first]
    while len(lines) < _GUESSED_FROM and (line := reader.first_line()) is not None:
        lines.append(line)
    for line in reversed(lines):
        reader.put_back(line)
    names = guess_names(lines)
    sink.note(f"{path} has no header; we assume the columns {', '.join(names)}")
    return names


def _samples(
    text: pl.DataFrame,
    block: Block,
    host: str,
    numbers: dict[str, int],
    frame: TimeFrame,
    opened: OpenedFile,
    sink: Sink,
) -> Iterator[Samples]:
    again = (text["timestamp"].str.strip_chars() == "timestamp").fill_null(value=False)
    sink.check("repeated_headers", int(again.sum()), None, _HEADERS)
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
    """Return the records with an index for every GPU, and enter new GPUs in `numbers`.

    A number that is taken from the order goes without the UUID, so that it names no GPU of other files.
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


READERS = (NvidiaSmiReader(),)
