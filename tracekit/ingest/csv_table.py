"""Read a delimited raw file as typed frames, and reject unusable records with a reason."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import SourceError
from tracekit.ingest.cells import count_lost_rows, typed_cells
from tracekit.ingest.records import RecordReader, parse_block, prefetched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.records import BadRecord, Block
    from tracekit.ingest.sink import OpenedFile, Sink
    from tracekit.schema import TableSchema


@prefetched  # parses a block while the caller works on the previous one
def read_table(
    sink: Sink,
    file: SourceFile,
    schema: TableSchema,
    *,
    delimiter: str = ",",
    columns: list[str] | None = None,
    adapt: Callable[[TableSchema, list[str]], TableSchema] | None = None,
    inspect: Callable[[bytes], None] | None = None,
) -> Iterator[pl.DataFrame]:
    """Read the usable records of a raw file as frames, in file order.

    Parameters
    ----------
    sink : Sink
        Receives the file's record counts and its rejects.
    file : SourceFile
        The raw file.
    schema : TableSchema
        The file's columns. The dialect defines whether there is a header line. Records that repeat the primary key are
        rejected.
    delimiter : str
        One character.
    columns : list of str, optional
        Column order of a file without a header line. The default is the schema's order.
    adapt : function (schema, header) -> schema, optional
        Returns the schema that fits the header, for files with varying columns.
    inspect : function (text) -> None, optional
        Receives the text of the records with the right number of fields, block by block, before parsing.

    Returns
    -------
    iterator of polars.DataFrame
        The schema's columns that are in the file, typed, and `line` (Int64), the line on which the record starts.

    Raises
    ------
    SourceError
        The file is empty although a header line is expected, or a column is missing.
    """
    with sink.opened(file) as opened:
        reader = RecordReader(opened.stream, delimiter.encode())
        header = _header(reader, opened, schema, delimiter, columns)
        if header is None:
            return
        if adapt is not None:
            schema = adapt(schema, header)
        used = _used_columns(header, schema, opened.path)
        note_unused(sink, opened.path, [name for name in header if name and name not in schema.names])
        seen = SeenKeys(schema.primary_key)
        trailing = bool(schema.dialect.get("trailingDelimiter"))
        width = len(header) + trailing
        for found in reader.blocks(len(header), trailing=trailing, loosely=True):
            block, bad, cells = _examined(*found, width, delimiter, schema, used)
            opened.count(len(block.lines) + len(bad))
            for record in bad:
                opened.reject(record.line, None, record.reason, record.raw)
            if not len(block.lines):
                continue
            if inspect is not None:
                inspect(block.text)
            if cells is None:
                cells, block = parse_block(block, opened, width, delimiter)
            named = cells.select(pl.col(str(i)).alias(n) for n, i in used.items())
            frame = _usable(sink, opened, block, named, schema, seen)
            if frame.height:
                yield frame


def _examined(
    block: Block, bad: list[BadRecord], width: int, delimiter: str, schema: TableSchema, used: dict[str, int]
) -> tuple[Block, list[BadRecord], pl.DataFrame | None]:
    """Return the complete records, the rejected records, and the fields as parsed by `_numbers`."""
    cells = _numbers(block, width, delimiter, schema, used) if len(block.lines) else None
    if block.examine is None or (cells is not None and not cells[str(width - 1)].has_nulls()):
        return block, bad, cells
    # Some records may lack the last field. If none does, the parsed fields are right.
    exact, bad = block.examine()
    if bad or len(exact.lines) != len(block.lines):
        cells = _numbers(exact, width, delimiter, schema, used) if len(exact.lines) else None
    return exact, bad, cells


def header_columns(line: bytes, delimiter: str = ",") -> list[str]:
    """Return the column names in a header line, with surrounding blanks removed."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip("\r\n")
    try:
        cells = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:  # a lone carriage return, or a cell longer than the module allows
        cells = text.split(delimiter)
    return [cell.strip() for cell in cells]


def header_begins(*names: str) -> Callable[[bytes], bool]:
    """Return a test on a file's first bytes, for a header line that begins with these columns."""
    return lambda head: header_columns(head.partition(b"\n")[0])[: len(names)] == list(names)


def header_has(*names: str) -> Callable[[bytes], bool]:
    """Return a test on a file's first bytes, for a header line with all these columns."""
    return lambda head: set(names) <= set(header_columns(head.partition(b"\n")[0]))


def _header(
    reader: RecordReader, opened: OpenedFile, schema: TableSchema, delimiter: str, columns: list[str] | None
) -> list[str] | None:
    first = reader.first_line()
    if schema.dialect.get("header", True):
        if first is None:
            raise SourceError(
                "is empty", where=opened.path, hint="a header line is missing: " + delimiter.join(schema.names)
            )
        names = header_columns(first, delimiter)
        if schema.dialect.get("trailingDelimiter") and names and not names[-1]:
            names.pop()
        return names
    if first is None:
        return None
    names = columns or list(schema.names)
    # Some copies of headerless files have a header anyway.
    if header_columns(first, delimiter) != names:
        reader.put_back(first)
    return names


def _used_columns(header: list[str], schema: TableSchema, path: str) -> dict[str, int]:
    """Return the position of each used column, in schema order."""
    for name in header:
        if header.count(name) > 1 and name in schema.names:
            raise SourceError(f"the header names '{name}' twice", where=path, line=1, hint="rename one of the columns")
    optional_after = schema.dialect.get("optionalAfter")
    optional = False
    used = {}
    for name in schema.names:
        if name in header:
            used[name] = header.index(name)
        elif not optional:
            found = ", ".join(header)[:200].strip() or "nothing"
            raise SourceError(f"the column '{name}' is missing", where=path, line=1, hint=f"the header has: {found}")
        optional = optional or name == optional_after
    return used


def note_unused(sink: Sink, path: str, unused: list[str]) -> None:
    """Add a note that names the columns that are not read."""
    if unused:
        shown = ", ".join(name[:60] for name in unused[:8]) + (" ..." if len(unused) > 8 else "")
        sink.note(f"{path}: ignored columns: {shown}")


def _numbers(
    block: Block, width: int, delimiter: str, schema: TableSchema, used: dict[str, int]
) -> pl.DataFrame | None:
    """Return the used fields of a block with numbers parsed, or None if a numeric field is not a number.

    Most blocks are clean, and parsing numbers directly is faster than reading text first.
    """
    types: dict[str, pl.DataType] = {str(i): pl.String() for i in range(width)}
    for name, position in used.items():
        column = schema.column(name)
        if column.kind in ("integer", "number"):
            types[str(position)] = column.polars
    words = [word for word in schema.missing if word]
    positions = sorted({*used.values(), width - 1})  # if the last field is present, the record is complete
    try:
        cells = pl.read_csv(
            block.text,
            has_header=False,
            columns=positions,
            schema=types,
            separator=delimiter,
            null_values=words,
            missing_columns="insert",  # if no record has the empty field after a final delimiter
        )
    except pl.exceptions.PolarsError:
        return None
    return cells if cells.height == len(block.lines) else None


def _usable(
    sink: Sink, opened: OpenedFile, block: Block, text: pl.DataFrame, schema: TableSchema, seen: SeenKeys
) -> pl.DataFrame:
    frame, bad, lost = typed_cells(text, schema)
    frame = frame.with_columns(pl.Series("line", block.lines, dtype=pl.Int64))
    for row, column, reason in bad:
        opened.reject(int(block.lines[row]), column, reason, block.raw(row))
    rows = np.ones(frame.height, dtype=bool)
    rows[[b.row for b in bad]] = False
    if schema.primary_key:
        key = ", ".join(schema.primary_key)
        for row in seen.repeats(frame, rows):
            opened.reject(int(block.lines[row]), key, "repeats the key of an earlier record", block.raw(row))
            rows[row] = False
    for column, reason, found in lost:
        count_lost_rows(sink, column, reason, found, text[column], rows)
    return frame if rows.all() else frame.filter(pl.Series(rows))


class SeenKeys:
    """Finds records that repeat the key of an earlier record.

    While keys only increase, as job numbers do in most logs, it stores only the last key. Once a key does not increase,
    it stores a set of hashes, and once a hash repeats, a set of the keys themselves.
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = list(key)
        self._kept: list[pl.DataFrame] = []
        self._last: int | None = None
        self._hashes: set[int] | None = None
        self._seen: set[Any] | None = None

    def repeats(self, frame: pl.DataFrame, usable: NDArray[np.bool_]) -> list[int]:
        """Return the usable rows of `frame` whose key was seen before."""
        keys = frame.select(self._key).filter(pl.Series(usable))
        if self._seen is None:
            if (self._hashes is None and self._rises(keys)) or self._is_fresh(keys):
                self._kept.append(keys)
                return []
            self._seen = {row for kept in self._kept for row in kept.rows()}
            self._kept.clear()
        found = []
        for row, value in zip(np.flatnonzero(usable), keys.rows(), strict=True):
            if value in self._seen:
                found.append(int(row))
            self._seen.add(value)
        return found

    def _rises(self, keys: pl.DataFrame) -> bool:
        single = keys.to_series() if len(self._key) == 1 else None
        if single is None or single.dtype != pl.Int64:
            return False
        if not len(single):
            return True
        rises = bool((single.diff().drop_nulls() > 0).all()) and (self._last is None or single[0] > self._last)
        if rises:
            self._last = single[-1]
        return rises

    def _is_fresh(self, keys: pl.DataFrame) -> bool:
        """Return whether all the keys' hashes are new. If so, add the hashes."""
        if self._hashes is None:
            self._hashes = {value for kept in self._kept for value in _hashes(kept)}
        hashes = _hashes(keys)
        fresh = set(hashes)
        if len(fresh) < len(hashes) or not self._hashes.isdisjoint(fresh):
            return False
        self._hashes |= fresh
        return True


def _hashes(keys: pl.DataFrame) -> list[int]:
    return keys.hash_rows(seed=1).to_list()
