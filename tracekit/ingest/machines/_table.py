"""Rows of small tables that programs of Slurm print: delimited, or in columns with blanks between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.records import line_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.records import ByteReader

_LONGEST = 1024 * 1024
"""Longest row that is read [bytes]."""


class TableRow(NamedTuple):
    """One row."""

    line: int
    raw: bytes
    cells: dict[str, str]
    """By the name of the column; of columns that share a name the first."""
    fault: str | None

    def checked(self) -> dict[str, str]:
        """Return the cells.

        Raises
        ------
        ValueError
            The row cannot be cut into cells.
        """
        if self.fault:
            raise ValueError(self.fault)
        return self.cells


def table_rows(
    stream: ByteReader,
    header: Callable[[bytes], list[str]],
    *,
    delimiter: str | None = "|",
    free: str = "",
    skip: int = 0,
) -> Iterator[list[TableRow]]:
    """Yield the rows of a table in blocks.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file.
    header : function (line) -> names
        Returns the names of the columns; may raise.
    delimiter : str, optional
        What stands between cells; None for blanks, any number of them.
    free : str
        The column in which anybody may write anything, the delimiter included.
    skip : int
        Lines before the header.
    """
    names: list[str] | None = None
    number = 0
    for block in line_blocks(stream, _LONGEST):
        found = []
        for line in block:
            number += 1
            plain = line.rstrip(b"\r")
            if number <= skip or not plain.strip():
                continue
            if names is None:
                names = header(plain.removeprefix(b"\xef\xbb\xbf"))
                continue
            found.append(_row(number, plain, names, delimiter, free))
        yield found


def _row(number: int, raw: bytes, names: list[str], delimiter: str | None, free: str) -> TableRow:
    if len(raw) > _LONGEST:
        return TableRow(number, raw, {}, f"is longer than {_LONGEST} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return TableRow(number, raw, {}, "is not UTF-8")
    cells = re.split(r"\s+", text.strip()) if delimiter is None else text.split(delimiter)
    extra = len(cells) - len(names)
    if extra > 0 and free in names:
        at = names.index(free)
        cells[at : at + extra + 1] = [(delimiter or " ").join(cells[at : at + extra + 1])]
    if len(cells) != len(names):
        return TableRow(number, raw, {}, f"expected {len(names)} cells, found {len(cells)}")
    found: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=True):
        found.setdefault(name, cell.strip())
    return TableRow(number, raw, found, None)
