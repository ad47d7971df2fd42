"""Read a mapped log's raw files (delimited text, JSON lines or Parquet) as blocks of cells."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from tracekit.errors import SourceError, UsageError, nearest
from tracekit.ingest.csv_table import header_columns
from tracekit.ingest.json_array import document_runs
from tracekit.ingest.records import MAX_RECORD, RecordReader, line_blocks, parse_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tracekit.ingest.mapping.model import Reading
    from tracekit.ingest.mapping.rules import ColumnRule
    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile, Sink

    Choose = Callable[[list[str] | None], list[str]]

_BATCH = 65_536
_UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class RawRows:
    """A block of records from a file."""

    frame: pl.DataFrame
    """The selected columns under their own names, as strings or in the types of a Parquet file."""
    lines: NDArray[np.int64]
    """Line of each record, or its row in Parquet, counted from 1."""
    raw: Callable[[int], bytes]
    """Returns the text of a record."""
    path: str
    """Path of the file within the source."""


def kind_of(name: str, reading: Reading) -> str:
    """Return the type of a file: csv, jsonl or parquet."""
    if reading.type:
        return reading.type
    lower = name.lower()
    if reading.records is not None:
        return "jsonl"
    if lower.endswith((".jsonl", ".ndjson", ".json")):
        return "jsonl"
    return "parquet" if lower.endswith((".parquet", ".pq")) else "csv"


def chooser(rules: Iterable[ColumnRule], path: str, sink: Sink) -> Choose:
    """Return a function that selects the rules' columns from a header and raises an error if one is missing."""
    needed = {name: rule for rule in reversed(list(rules)) for name in rule.sources}

    def choose(header: list[str] | None) -> list[str]:
        if header is None:
            return list(needed)
        for name, rule in needed.items():
            if name not in header:
                raise UsageError(
                    f"{path} has no column '{name}'",
                    where=f"{rule.file}, key {rule.key}",
                    hint=nearest(name, header)[:200],
                )
        unused = [name[:60] for name in header if name and name not in needed]
        if unused:
            shown = ", ".join(unused[:8]) + (" ..." if len(unused) > 8 else "")
            sink.note(f"{path}: ignored columns that the mapping does not name: {shown}")
        return list(needed)

    return choose


def read_rows(opened: OpenedFile, reading: Reading, choose: Choose) -> Iterator[RawRows]:
    """Yield the records of a file in blocks. Records that cannot be parsed are rejected.

    Parameters
    ----------
    choose : function (header or None) -> list of str
        Takes the file's columns, or None for JSON lines, where each record has its own. Returns the columns to read.

    Raises
    ------
    SourceError
        The file is not of the expected type.
    """
    kind = kind_of(opened.path, reading)
    if kind == "parquet":
        yield from _parquet_rows(opened, choose)
    elif kind == "jsonl" and reading.records is not None:
        yield from _document_rows(opened, reading.records, choose)
    elif kind == "jsonl":
        yield from _json_rows(opened, reading, choose)
    else:
        yield from _csv_rows(opened, reading, choose)


def _csv_rows(opened: OpenedFile, reading: Reading, choose: Choose) -> Iterator[RawRows]:
    delimiter = reading.delimiter or ("\t" if opened.path.lower().endswith(".tsv") else ",")
    reader = RecordReader(_uncommented(opened, reading), delimiter.encode())
    header = [] if isinstance(reading.header, bool) else list(reading.header)
    if not header:
        first = reader.first_line()
        while reading.comment and first is not None and not first.strip():
            first = reader.first_line()
        if first is None:
            raise SourceError("is empty", where=opened.path, hint="the header line is missing")
        header = header_columns(first, delimiter)
    wanted = choose(header)
    for name in wanted:
        if header.count(name) > 1:
            raise SourceError(
                f"the header names '{name}' twice", where=opened.path, line=1, hint="rename one of the columns"
            )
    for block, bad in reader.blocks(len(header)):
        opened.count(len(block.lines) + len(bad))
        for record in bad:
            opened.reject(record.line, None, record.reason, record.raw)
        if len(block.lines):
            text, parsed = parse_block(block, opened, len(header), delimiter)
            frame = text.select(pl.nth(header.index(name)).alias(name) for name in wanted)
            yield RawRows(frame, parsed.lines, parsed.raw, opened.path)


class _Uncommented:
    """A stream that replaces comments by empty lines, so that the other lines keep their numbers.

    Parameters
    ----------
    stream : ByteReader
        The file's content.
    begin : bytes
        Prefix of comment lines.
    """

    def __init__(self, stream: ByteReader, begin: bytes) -> None:
        self._stream = stream
        self._comment = re.compile(rb"(?m)^" + re.escape(begin) + rb"[^\r\n]*")
        self._rest = b""
        self._first = True

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, as whole lines unless a line is too long, or b'' at the end."""
        data = self._rest
        self._rest = b""
        while chunk := self._stream.read(size):
            data += chunk
            if b"\n" in chunk or len(data) > MAX_RECORD:
                break
        if self._first:
            self._first = False
            data = data.removeprefix(_UTF8_BOM)
        end = data.rfind(b"\n") + 1 if chunk else len(data)
        if end:
            data, self._rest = data[:end], data[end:]
        return self._comment.sub(b"", data)


def _uncommented(opened: OpenedFile, reading: Reading) -> ByteReader:
    return _Uncommented(opened.stream, reading.comment.encode()) if reading.comment else opened.stream


def _document_rows(opened: OpenedFile, place: str, choose: Choose) -> Iterator[RawRows]:
    wanted = choose(None)
    for run in document_runs(opened.stream, opened.path, place):
        for record in run.bad:
            opened.count(1)
            opened.reject(record.line, None, record.reason, record.raw)
        yield from _objects(opened, zip(run.lines.tolist(), run.texts, strict=True), wanted)


def _json_rows(opened: OpenedFile, reading: Reading, choose: Choose) -> Iterator[RawRows]:
    wanted = choose(None)
    line = 1
    for block in line_blocks(_uncommented(opened, reading), MAX_RECORD):
        if line == 1 and _begins_array(block):
            raise SourceError(
                "contains one JSON array, not one object per line",
                where=opened.path,
                hint='write records = "." in the mapping',
            )
        yield from _objects(opened, enumerate(block, line), wanted)
        line += len(block)


def _begins_array(block: list[bytes]) -> bool:
    """Return whether a JSON file is one array of objects."""
    head = b"".join(line.strip() for line in block[:3])[:200].removeprefix(b"\xef\xbb\xbf")
    return head == b"[" or head.replace(b" ", b"").startswith(b"[{")


def _objects(opened: OpenedFile, texts: Iterable[tuple[int, bytes]], wanted: list[str]) -> Iterator[RawRows]:
    """Yield the columns of JSON objects, given each object's line and text."""
    columns: dict[str, list[str | None]] = {name: [] for name in wanted}
    lines, raws = [], []
    for here, raw in texts:
        if not raw.strip():
            continue
        opened.count(1)
        record, reason = _json_record(raw)
        if record is None:
            opened.reject(here, None, reason, raw)
            continue
        for name, cells in columns.items():
            cells.append(_json_text(_dig(record, name)))
        lines.append(here)
        raws.append(raw)
    if lines:
        frame = pl.DataFrame(columns, schema=dict.fromkeys(wanted, pl.String))
        yield RawRows(frame, np.array(lines, dtype=np.int64), raws.__getitem__, opened.path)


def _json_record(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    if len(raw) > MAX_RECORD:
        return None, f"longer than {MAX_RECORD} bytes"
    try:
        record = orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None, "is not JSON"
    return (record, "") if isinstance(record, dict) else (None, "is not a JSON object")


def _dig(value: Any, path: str) -> Any:
    """Return the value at a dotted path. Keys may contain dots. A number selects one list item, and * selects each."""
    if isinstance(value, dict):
        if path in value:
            return value[path]
        dot = path.find(".")
        while dot >= 0:
            if path[:dot] in value:
                return _dig(value[path[:dot]], path[dot + 1 :])
            dot = path.find(".", dot + 1)
    elif isinstance(value, list):
        head, _, rest = path.partition(".")
        if head == "*":
            found = (_dig(item, rest) if rest else item for item in value)
            return [item for item in found if item is not None]
        if head.removeprefix("-").isdecimal() and -len(value) <= int(head) < len(value):
            return _dig(value[int(head)], rest) if rest else value[int(head)]
    return None


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ",".join(str(v) for v in value)
    return str(value) if isinstance(value, int | float) else orjson.dumps(value).decode()


def _parquet_rows(opened: OpenedFile, choose: Choose) -> Iterator[RawRows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as copy:
        # A Parquet reader starts at the end of the file, but the source may be a stream inside an archive.
        shutil.copyfileobj(opened.stream, copy, 1 << 20)
        copy.seek(0)
        with _parquet_errors(opened.path):
            file = pq.ParquetFile(copy)
            names = list(file.schema_arrow.names)
        wanted = choose(names)
        with _parquet_errors(opened.path):
            batches = file.iter_batches(_BATCH, columns=wanted)
        row = 0
        while True:
            with _parquet_errors(opened.path):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)  # a damaged batch would crash the process in Polars
                frame = _plain(pl.DataFrame(pa.Table.from_batches([batch])).select(wanted))
            opened.count(frame.height)
            lines = np.arange(row + 1, row + 1 + frame.height)
            row += frame.height
            yield RawRows(frame, lines, partial(_row_text, frame), opened.path)


@contextmanager
def _parquet_errors(path: str) -> Iterator[None]:
    """Raise a clear error if a Parquet file cannot be read; pyarrow raises OSError for damage."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError) as error:
        # The text after a colon is about library internals.
        what = str(error).splitlines()[0].partition(":")[0][:200]
        raise SourceError(f"cannot be read as Parquet: {what}", where=path, hint="fetch it again") from error


def _row_text(frame: pl.DataFrame, row: int) -> bytes:
    return ", ".join(f"{k}={v}" for k, v in frame.row(row, named=True).items()).encode()


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert the frame to only numbers, times and strings."""
    found = []
    for name, kind in frame.schema.items():
        column = pl.col(name)
        if isinstance(kind, pl.List):
            column = column.cast(pl.List(pl.String)).list.join(",")
        elif isinstance(kind, pl.Decimal):
            column = column.cast(pl.Float64)
        elif not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Datetime, pl.Date)):
            column = column.cast(pl.String, strict=False)
        found.append(column)
    return frame.select(found)
