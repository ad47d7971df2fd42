"""Cut `sacct` text into records: its header, its trailing delimiter, and names that hold the delimiter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.csv_table import note_unused
from tracekit.ingest.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.records import BadRecord, Block
    from tracekit.ingest.sink import OpenedFile, Sink
    from tracekit.schema import TableSchema

__all__ = ["VC_COLUMNS", "SacctLayout", "SacctRecords", "header_names", "read_records"]

VC_COLUMNS = {"account": "Account", "partition": "Partition", "qos": "QOS"}
"""Column of the tenant unit by the option's value."""

_COMMAND = (
    "sacct --parsable2 --allusers --duplicates --format=JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,"
    "Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,Account,Partition,QOS,User,Priority"
)
"""A command whose output this format reads, for messages."""

_NEEDED = ("JobID", "Submit", "Start", "End", "State")
# Columns in which anybody may write anything, the delimiter included.
_FREE_TEXT = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "constraints", "extra", "submitline", "workdir"}
    | {"container", "stdin", "stdout", "stderr"}
)


@dataclass(frozen=True)
class SacctLayout:
    """The layout of the lines of one file."""

    columns: dict[str, int]
    """Position of each column that is read, in schema order."""
    fields: int
    trailing: bool
    """Whether a delimiter ends each line."""
    free_text: int | None
    """Position of the only free-text column; None when there is none or several."""
    spec: TableSchema


@dataclass
class SacctRecords:
    """Records of one block as text by column, with their lines, their text and their faults."""

    text: pl.DataFrame
    lines: list[int]
    raws: Callable[[int], bytes]
    faults: dict[int, tuple[str | None, str]] = field(default_factory=dict)
    """First fault of a row: column and reason."""

    def add_fault(self, rows: pl.Series, column: str, reason: str) -> None:
        """Record a fault of the rows of a mask."""
        for row in rows.fill_null(value=False).arg_true().to_list():
            self.faults.setdefault(row, (column, reason))


def header_names(line: bytes) -> list[str]:
    """Return the names in a header line, in lower case; empty when it is not a header of `sacct`."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip("\r\n ")
    names = [name.strip().lower() for name in text.split("|")]
    return names if {"jobid", "state"} & set(names) else []


def read_records(opened: OpenedFile, sink: Sink) -> Iterator[tuple[SacctLayout, SacctRecords]]:
    """Yield the records of one export in blocks, as text; what cannot be split into columns is set aside.

    Raises
    ------
    SourceError
        There is no header line, or it lacks a column or names one twice.
    """
    reader = RecordReader(opened.stream, b"|", quoting=False)  # sacct never quotes: a quote is a letter
    layout = _layout(reader.first_line(), opened.path, sink)
    for block, bad in reader.blocks(layout.fields + layout.trailing):
        opened.count(len(block.lines) + len(bad))
        part = _part(block, bad, layout, opened, sink)
        if part.lines:
            yield layout, part


def _layout(line: bytes | None, path: str, sink: Sink) -> SacctLayout:
    names = header_names(line) if line else []
    if not names:
        what = "has no header line that names the columns" if line else "is empty"
        raise SourceError(what, where=path, line=1, hint=f"write it with: {_COMMAND}")
    trailing = not names[-1]
    names = names[:-1] if trailing else names
    spec = schema.source("slurm", "sacct")
    columns = {name: names.index(name.lower()) for name in spec.names if name.lower() in names}
    for name in columns:
        if names.count(name.lower()) > 1:
            hint = "name each column once after --format"
            raise SourceError(f"the header names '{name}' twice", where=path, line=1, hint=hint)
    for name in _NEEDED:
        if name not in columns:
            raise SourceError(f"the column '{name}' is missing", where=path, line=1, hint=f"write it with: {_COMMAND}")
    for option, default, column in (
        ("vc", "account", VC_COLUMNS[sink.options["vc"]]),
        ("queue_from", "submit", sink.options["queue_from"].title()),
    ):
        if column not in columns and sink.options[option] != default:
            hint = f"add {column} to --format, or leave {option}={sink.options[option]} away"
            raise SourceError(f"the column '{column}' is missing", where=path, line=1, hint=hint)
    known = {name.lower() for name in spec.names}
    note_unused(sink, path, [name for name in names if name not in known])
    free = [position for position, name in enumerate(names) if name in _FREE_TEXT]
    used = replace(spec, columns=tuple(spec.column(name) for name in columns))
    return SacctLayout(columns, len(names), trailing, free[0] if len(free) == 1 else None, used)


def _part(block: Block, bad: list[BadRecord], layout: SacctLayout, opened: OpenedFile, sink: Sink) -> SacctRecords:
    """Return the block's records with those that could be split after all; the others are set aside."""
    mended: list[list[str | None]] = []
    whole: list[BadRecord] = []
    for record in bad:
        fields = _mend(record, layout)
        if fields is None:
            opened.reject(record.line, None, record.reason, record.raw)
        else:
            mended.append([cell or None for cell in fields])
            whole.append(record)
    width = layout.fields + layout.trailing
    types = {str(i): pl.String for i in range(width)}
    text = pl.DataFrame(schema=types)
    if len(block.lines):
        text = pl.read_csv(block.text, has_header=False, schema=types, separator="|", quote_char=None)
    if mended:
        extra = [cells + [None] * (width - len(cells)) for cells in mended]
        text = pl.concat([text, pl.DataFrame(extra, schema=types, orient="row")])
        sink.check(
            "delimiter_in_name",
            len(mended),
            None,
            "records with more delimiters than columns; the free-text column is taken to hold the rest",
            [fields[layout.columns["JobID"]] or "" for fields in mended],
        )
    text = text.select(pl.nth(i).alias(name) for name, i in layout.columns.items())
    count = len(block.lines)

    def raw(row: int) -> bytes:
        return block.raw(row) if row < count else whole[row - count].raw

    return SacctRecords(text, [*block.lines.tolist(), *(record.line for record in whole)], raw)


def _mend(record: BadRecord, layout: SacctLayout) -> list[str] | None:
    """Split a record from both ends, when only one column can hold the extra delimiters; else None."""
    if not record.reason.startswith("expected "):
        return None
    try:
        fields = record.raw.decode("utf-8").split("|")
    except UnicodeDecodeError:
        return None
    if layout.trailing and len(fields) > layout.fields and not fields[-1]:
        fields.pop()
    extra = len(fields) - layout.fields
    if extra == 0 and layout.trailing:
        return fields
    if extra <= 0 or layout.free_text is None:
        return None
    first = layout.free_text
    return [*fields[:first], "|".join(fields[first : first + extra + 1]), *fields[first + extra + 1 :]]
