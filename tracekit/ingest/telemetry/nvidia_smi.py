"""Read the output of `nvidia-smi --query-gpu=timestamp,index,... --format=csv`, with or without units or header.

docs.nvidia.com/deploy/nvidia-smi. A record is a line about one GPU at one time. Times are the wall clock of the
machine. The file's content does not name the machine, so the file name (or folder name) must contain its name as in the
log. A restarted logger writes its header again; these lines are counted as records and skipped. A cell such as [N/A]
means no value.

A file may name GPUs only by UUID or bus address. nvidia-smi numbers and prints the GPUs of a machine in bus address
order, so that order gives the index. Without a header, the columns are recognized by the units and form of their cells.
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
    """Return whether a line is a GPU record: a time, a cell that names the GPU, and at least one number."""
    time, *cells = _cells(line)
    if len(cells) < 2 or not re.fullmatch(TIME, time):
        return False
    kinds = [_kind(cell) for cell in cells]
    names_gpu = bool({"uuid", "pci.bus_id"}.intersection(kinds)) or (
        cells[0].isdecimal() and int(cells[0]) < _MOST_GPUS
    )
    return names_gpu and None not in kinds and "number" in kinds


def guess_names(lines: list[bytes]) -> list[str]:
    """Return the column names of a file without a header, as far as its cells reveal them.

    With units, the first column in percent is utilization.gpu, the first in W is power.draw, and the only one in MiB is
    memory.used. Without units, the first column with decimals is power.draw. If there is one other column whose values
    are at most 100, it is utilization.gpu; if there are two, they are utilization.gpu and memory.used, which sometimes
    exceeds 100. If there are more, they stay unknown. Unknown columns are called 'column' with their number.
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
    """Return the kind of a cell; None if nvidia-smi does not print such a cell."""
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
"""Columns that can fill a metric of the same meaning and unit (percent, MiB, W); the first with a value is used."""

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
"""Number of lines used to recognize the columns of a file without a header."""

_HEADERS = "header lines inside an nvidia-smi file, because its logger was restarted"
_NUMBERED = (
    "GPUs that a file of nvidia-smi names only by UUID or bus address; they are numbered in bus order, as "
    "nvidia-smi prints them"
)


def _names(line: bytes) -> list[str]:
    """Return the names in a header without units, such as utilization.gpu; repeated names are marked."""
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
        """Return whether the first line is an nvidia-smi header, or a GPU record if there is no header."""
        line = head.partition(b"\n")[0]
        return _is_header(line) or are_cells(line)

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The file's name contains no machine of the log, or several.
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
    """Return the column names; the records stay in the reader."""
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
    """Return the records with an index for every GPU, and add new GPUs to `numbers`.

    If an index comes from the order, the UUID is removed, so that it identifies no GPU in other files.
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
