"""Which columns a file of nvidia-smi has that was written with noheader."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["BUS", "TIME", "UUID", "are_cells", "guess_names"]

TIME: Final = r"^\s*(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s*$"
UUID: Final = r"^((?:GPU|MIG)-[0-9A-Za-z/-]{4,80})$"
BUS: Final = r"^([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$"
_NUMBER = re.compile(r"[+-]?\d{1,12}(\.\d{1,6})?(?: (%|MiB|W|MHz))?", re.ASCII)
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
    found = {at: [match for cell in column if (match := _NUMBER.fullmatch(cell))] for at, column in enumerate(columns)}
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
    if _NUMBER.fullmatch(cell):
        return "number"
    return "other" if _OTHER.fullmatch(cell) else None
