"""Split the records of a block into fields."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.ingest.records import Block
    from tracekit.ingest.sink import OpenedFile


def parse_block(block: Block, opened: OpenedFile, width: int, delimiter: str) -> tuple[pl.DataFrame, Block]:
    """Return the fields of a block as text, and the block of those records; what cannot be parsed is set aside.

    The columns are named '0', '1', ... up to `width`.
    """
    types = {str(i): pl.String for i in range(width)}
    try:
        text = pl.read_csv(block.text, has_header=False, schema=types, separator=delimiter, missing_columns="insert")
    except pl.exceptions.PolarsError:
        return _parse_one_by_one(block, opened, width, delimiter)
    if text.height != len(block.lines):
        return _parse_one_by_one(block, opened, width, delimiter)
    return text, block


def _parse_one_by_one(block: Block, opened: OpenedFile, width: int, delimiter: str) -> tuple[pl.DataFrame, Block]:
    rows: list[list[str | None]] = []
    good = np.zeros(len(block.lines), dtype=bool)
    csv.field_size_limit(1 << 30)
    for row, line in enumerate(block.lines):
        raw = block.raw(row)
        try:
            parsed = list(csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), delimiter=delimiter, strict=True))
        except csv.Error as error:
            opened.reject(int(line), None, f"cannot be parsed: {error}", raw)
            continue
        if len(parsed) != 1 or len(parsed[0]) > width:
            opened.reject(int(line), None, "cannot be parsed: its quotes are misplaced", raw)
            continue
        cells = [cell or None for cell in parsed[0]]
        rows.append(cells + [None] * (width - len(cells)))
        good[row] = True
    text = pl.DataFrame(rows, schema={str(i): pl.String for i in range(width)}, orient="row")
    return text, block.filter(good)
