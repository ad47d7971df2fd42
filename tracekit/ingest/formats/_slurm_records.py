"""Cut `sacct` text into records: its header, its trailing delimiter, and free text that holds it or line breaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.fields import parse_block
from tracekit.ingest.formats._slurm_layout import find_layout
from tracekit.ingest.formats._slurm_lines import OddLines, join_lines, pieces_of, with_lines_after
from tracekit.ingest.formats._slurm_split import FREE_TEXT, divide
from tracekit.ingest.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tracekit.ingest.formats._slurm_layout import SacctLayout
    from tracekit.ingest.records import BadRecord, Block
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["SacctRecords", "read_records"]


@dataclass
class SacctRecords:
    """Records of one block as text by column, with their lines, their text and their faults."""

    text: pl.DataFrame
    lines: NDArray[np.int64]
    raws: Callable[[int], bytes]
    order: NDArray[np.int64]
    """Rises with the place in the file, and no two records have the same."""
    faults: dict[int, tuple[str | None, str]] = field(default_factory=dict)
    """First fault of a row: column and reason."""

    def add_fault(self, rows: pl.Series, column: str, reason: str) -> None:
        """Record a fault of the rows of a mask."""
        for row in rows.fill_null(value=False).arg_true().to_list():
            self.faults.setdefault(row, (column, reason))


def read_records(opened: OpenedFile, sink: Sink, head: bytes) -> Iterator[tuple[SacctLayout, SacctRecords]]:
    """Yield the records of one export in blocks, as text; what cannot be split into columns is set aside.

    `head` holds the first bytes of the file.

    Raises
    ------
    SourceError
        There is no header line and no option names the columns, or a column is missing or named twice.
    """
    reader = RecordReader(opened.stream, b"|", quoting=False)  # sacct never quotes: a quote is a letter
    line = reader.first_line()
    layout, is_header = find_layout(line, head, opened.path, sink)
    reader.part_at(layout.delimiter.encode(), quoting=layout.quoted)
    if line is not None and not is_header:
        reader.put_back(line)
    for block, bad in with_lines_after(reader.blocks(layout.fields + layout.trailing)):
        odd = OddLines(list(bad)) if layout.quoted else join_lines(block, bad, layout)
        part = _part(block, odd, layout, opened, sink)
        if len(part.lines):
            yield layout, part


def _part(block: Block, odd: OddLines, layout: SacctLayout, opened: OpenedFile, sink: Sink) -> SacctRecords:
    """Return the block's records with those that could be split after all; the others are set aside."""
    opened.count(len(block.lines) + len(odd.joined) + len(odd.alone))
    mended: list[list[str | None]] = []
    whole: list[BadRecord] = []
    for record in odd.alone:
        found = record.reason if layout.quoted else _mend(record, layout)
        if isinstance(found, str):
            opened.reject(record.line, None, found, record.raw)
        else:
            mended.append([cell or None for cell in found])
            whole.append(record)
    width = layout.fields + layout.trailing
    types = {str(i): pl.String for i in range(width)}
    text = pl.DataFrame(schema=types)
    if len(block.lines) and layout.quoted:
        text, block = parse_block(block, opened, width, layout.delimiter)
    elif len(block.lines):
        text = pl.read_csv(block.text, has_header=False, schema=types, separator=layout.delimiter, quote_char=None)
    if odd.tails:
        last = text.to_series(width - 1)
        rows = list(odd.tails)
        longer = [f"{last[row] or ''}\n{odd.tails[row]}" for row in rows]
        text = text.with_columns(last.scatter(rows, longer))
    if mended:
        sink.check(
            "delimiter_in_name",
            len(mended),
            None,
            "records with more delimiters than columns; the free-text columns are taken to hold the rest",
            [fields[layout.columns["JobID"]] or "" for fields in mended],
        )
    if odd.joined or odd.tails:
        jobs = [cells[layout.columns["JobID"]] or "" for _, cells in odd.joined]
        jobs += [text[row, layout.columns["JobID"]] or "" for row in odd.tails]
        sink.check(
            "line_break_in_text",
            len(jobs),
            None,
            "records whose free-text columns hold line breaks; the lines up to the next record are taken to be theirs",
            jobs,
        )
    mended += [[cell or None for cell in cells] for _, cells in odd.joined]
    whole += [record for record, _ in odd.joined]
    if mended:
        extra = [cells + [None] * (width - len(cells)) for cells in mended]
        text = pl.concat([text, pl.DataFrame(extra, schema=types, orient="row")])
    text = text.select(pl.nth(i).alias(name) for name, i in layout.columns.items())
    count = len(block.lines)

    def raw(row: int) -> bytes:
        return block.raw(row) if row < count else whole[row - count].raw

    lines = np.concatenate((block.lines, np.array([record.line for record in whole], dtype=np.int64)))
    return SacctRecords(text, lines, raw, lines)


def _mend(record: BadRecord, layout: SacctLayout) -> list[str] | str:
    """Return the cells of a line whose free text holds the delimiter, or why it is set aside."""
    if not record.reason.startswith("expected "):
        return record.reason
    pieces = pieces_of(record.raw, layout)
    if pieces is None:
        return "is not valid UTF-8"
    if len(pieces) < layout.fields:
        return record.reason
    cells = divide(pieces, layout.names, set(layout.columns.values()), layout.delimiter)
    if cells is not None:
        return cells
    if not any(name in FREE_TEXT for name in layout.names):
        return record.reason
    return (
        f"{record.reason}: the delimiter '{layout.delimiter}' is in a name or a command, and it is not certain in "
        "which; export again with sacct --delimiter and a character that no name holds"
    )
