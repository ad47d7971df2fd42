"""Which columns the lines of a `sacct` export have, and what parts them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.errors import SourceError, UsageError
from tracekit.ingest.csv_table import note_unused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.ingest.sink import Sink
    from tracekit.schema import TableSchema

__all__ = ["COMMAND", "VC_COLUMNS", "SacctLayout", "check_delimiter", "find_layout", "layout_of", "looks_like_sacct"]

VC_COLUMNS = {"account": "Account", "partition": "Partition", "qos": "QOS"}
"""Column of the tenant unit by the option's value."""

COMMAND = (
    "sacct --parsable2 --allusers --duplicates --format=JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,"
    "Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,Account,Partition,QOS,User,Priority"
)
"""A command whose output this format reads, for messages."""

_NEEDED = ("JobID", "Submit", "Start", "End", "State")
_BETWEEN = re.compile(r"[^A-Za-z0-9_]+")
_JOB = re.compile(r"\d{1,20}(?:_\d{1,20}|_\[[^\]|]*\])?(?:\+\d{1,9})?(?:\.\w{1,40})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,6}", re.ASCII)
_ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "RUNNING", "PENDING", "PREEMPTED", "NODE_FAIL"})


@dataclass(frozen=True)
class SacctLayout:
    """The layout of the lines of one file."""

    columns: dict[str, int]
    """Position of each column that is read, in schema order."""
    names: tuple[str, ...]
    """Every column in lower case."""
    delimiter: str
    trailing: bool
    """Whether a delimiter ends each line."""
    spec: TableSchema
    quoted: bool = False
    """Whether cells may be in quotes, as pandas and Excel write them and sacct does not."""

    @property
    def fields(self) -> int:
        """Number of columns."""
        return len(self.names)


def check_delimiter(text: str) -> str:
    """Return the delimiter that the option states, '' for none.

    Raises
    ------
    UsageError
        It is not one character that can part columns.
    """
    found = "\t" if text == "\\t" else text
    if found and (len(found) > 1 or not found.isascii() or found.isalnum() or found in '\r\n" '):
        hint = "use the same single character here and in sacct --delimiter, one that no name contains, such as ^"
        raise UsageError(f"'{text[:40]}' is not a delimiter", where="--option delimiter", hint=hint)
    return found


def _header(line: bytes, delimiter: str = "") -> tuple[list[str], str]:
    """Return the names in a header line, in lower case, and the delimiter; no names where it is no header of sacct."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip("\r\n ").replace('"', "")
    if not delimiter:
        between = set(_BETWEEN.findall(text[:20_000]))
        # With another delimiter than the usual one, all needed columns have to be there: many tables have a state.
        names = [name.lower() for name in _BETWEEN.split(text[:20_000])]
        other = between.pop() if len(between) == 1 and {n.lower() for n in _NEEDED} <= set(names) else "|"
        delimiter = other if other.strip(" ") else "|"
    names = [name.strip().lower() for name in text.split(delimiter)]
    return (names if {"jobid", "state"} & set(names) else []), delimiter


def _is_quoted(head: bytes, delimiter: str) -> bool:
    """Return whether a table was saved by a program that puts cells in quotes.

    sacct never does: a quote of its own is a letter. The header tells, or the first line that has as many columns in
    one way of reading and not in the other.
    """
    header, *lines = head.decode("utf-8", "replace").splitlines()
    if '"' in header:
        return True
    fields = header.count(delimiter) + 1
    for line in lines if head.endswith(b"\n") else lines[:-1]:  # the last one may be cut
        if '"' not in line:
            continue
        plain = line.count(delimiter) + 1 in (fields, fields + header.endswith(delimiter))
        try:
            parsed = next(csv.reader([line], delimiter=delimiter, strict=True))
        except csv.Error:
            parsed = []
        if (len(parsed) == fields) != plain:
            return not plain
    return delimiter == ","


def _is_fixed_width(head: bytes) -> bool:
    """Return whether sacct printed a table for people: blanks between the names of columns, dashes below them."""
    names, _, below = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    words = {word.lower() for word in names.decode("utf-8", "replace").split()}
    dashes = below.partition(b"\n")[0].split()
    return {"jobid", "state"} <= words or (len(dashes) > 1 and all(not word.strip(b"-") for word in dashes))


def looks_like_sacct(head: bytes) -> bool:
    """Return whether a file's first bytes are those of an export as text, with header line or without."""
    line = head.partition(b"\n")[0]
    if {"jobid", "state"} <= set(_header(line)[0]) or (_is_fixed_width(head) and b"JobID" in line):
        return True
    cells = line[:20_000].decode("utf-8", "replace").split("|")
    return (
        len(cells) >= len(_NEEDED)
        and any(_JOB.fullmatch(cell) for cell in cells)
        and any(cell.partition(" ")[0] in _ENDED for cell in cells)
        and any(_TIME.fullmatch(cell) for cell in cells)
    )


def find_layout(line: bytes | None, head: bytes, path: str, sink: Sink) -> tuple[SacctLayout, bool]:
    """Return the layout of an export by its first line and its first bytes, and whether that line is a header.

    Raises
    ------
    SourceError
        There is no header line and the option fields names no columns, or a column is missing or named twice.
    """
    if line is None:
        raise SourceError("is empty", where=path, line=1, hint=f"write it with: {COMMAND}")
    stated = check_delimiter(sink.options["delimiter"])
    names, delimiter = _header(line, stated)
    if names:
        if len(delimiter) > 1 or not delimiter.isascii():
            what = f"its column delimiter is '{delimiter[:20]}', which is not a single character"
            raise SourceError(what, where=path, line=1, hint="give sacct --delimiter one character, such as ^")
        trailing = not names[-1]
        quoted = _is_quoted(head, delimiter)
        names = names[:-1] if trailing else names
        return layout_of(names, delimiter, path, sink, trailing=trailing, quoted=quoted), True
    if _is_fixed_width(head):
        what = "write it again with --parsable2: sacct printed a table for people, which cuts long cells"
        raise SourceError(what, where=path, line=1, hint=f"as in: {COMMAND}")
    listed = [name.partition("%")[0].strip().lower() for name in sink.options["fields"].split(",")]
    if listed == [""]:
        hint = f"name its columns, as sacct --format did, with --option fields=JobID,...; or write it with: {COMMAND}"
        raise SourceError("has no header line that names the columns", where=path, line=1, hint=hint)
    delimiter = stated or "|"
    cells = line.split(delimiter.encode())
    trailing = len(cells) == len(listed) + 1 and not cells[-1].strip()
    return layout_of(listed, delimiter, path, sink, trailing=trailing), False


def layout_of(
    names: Sequence[str], delimiter: str, path: str, sink: Sink, *, trailing: bool, quoted: bool = False
) -> SacctLayout:
    """Return the layout of lines with these columns, in lower case.

    Raises
    ------
    SourceError
        A column that is needed, by the format or by an option, is missing; or one is there twice.
    """
    spec = schema.source("slurm", "sacct")
    columns = {name: names.index(name.lower()) for name in spec.names if name.lower() in names}
    for name in columns:
        if names.count(name.lower()) > 1:
            hint = "name each column once after --format"
            raise SourceError(f"the header names '{name}' twice", where=path, line=1, hint=hint)
    for name in _NEEDED:
        if name not in columns:
            raise SourceError(f"the column '{name}' is missing", where=path, line=1, hint=f"write it with: {COMMAND}")
    _require_columns(columns, path, sink.options)
    known = {name.lower() for name in spec.names}
    note_unused(sink, path, [name for name in names if name and name not in known])
    used = replace(spec, columns=tuple(spec.column(name) for name in columns))
    return SacctLayout(columns, tuple(names), delimiter, trailing, used, quoted)


def _require_columns(columns: Mapping[str, int], path: str, options: Mapping[str, str]) -> None:
    for option, default, column in (
        ("vc", "account", VC_COLUMNS[options["vc"]]),
        ("queue_from", "submit", options["queue_from"].title()),
    ):
        if column not in columns and options[option] != default:
            hint = f"add {column} to --format, or leave out {option}={options[option]}"
            raise SourceError(f"the column '{column}' is missing", where=path, line=1, hint=hint)
