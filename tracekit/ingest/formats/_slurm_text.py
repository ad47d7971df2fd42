"""Read the text of a `sacct` export: find its columns, its delimiter and the end of each record.

Names, comments and commands may contain anything, including the delimiter or line breaks. We repair such a record if
the columns around the free text allow only one way to split it, and reject it otherwise.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.errors import SourceError, UsageError
from tracekit.ingest.csv_table import note_unused
from tracekit.ingest.records import BadRecord, RecordReader, parse_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.ingest.records import Block
    from tracekit.ingest.sink import OpenedFile, Sink
    from tracekit.schema import TableSchema

VC_COLUMNS = {"account": "Account", "partition": "Partition", "qos": "QOS"}
"""Tenant column for each value of the option."""

COMMAND = (
    "sacct --parsable2 --allusers --duplicates --format=JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,"
    "Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,Account,Partition,QOS,User,Priority"
)
"""A command that writes this format, for messages."""

_NEEDED = ("JobID", "Submit", "Start", "End", "State")
_BETWEEN = re.compile(r"[^A-Za-z0-9_]+")
_JOB = re.compile(r"\d{1,20}(?:_\d{1,20}|_\[[^\]|]*\])?(?:\+\d{1,9})?(?:\.\w{1,40})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,6}", re.ASCII)
_ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "RUNNING", "PENDING", "PREEMPTED", "NODE_FAIL"})


@dataclass(frozen=True)
class SacctLayout:
    """The line layout of one file."""

    columns: dict[str, int]
    """Position of each used column, in schema order."""
    names: tuple[str, ...]
    """Names of all columns in lower case."""
    delimiter: str
    trailing: bool
    """Whether each line ends with a delimiter."""
    spec: TableSchema
    quoted: bool = False
    """Whether cells may be quoted, as by pandas and Excel; sacct never quotes."""

    @property
    def fields(self) -> int:
        """Number of columns."""
        return len(self.names)


def check_delimiter(text: str) -> str:
    """Return the delimiter set by the option, or ''.

    Raises
    ------
    UsageError
        The option is not a single character that can be a delimiter.
    """
    found = "\t" if text == "\\t" else text
    if found and (len(found) > 1 or not found.isascii() or found.isalnum() or found in '\r\n" '):
        hint = "use the same single character, such as ^, here and in sacct --delimiter; names must not contain it"
        raise UsageError(f"'{text[:40]}' is not a delimiter", where="--option delimiter", hint=hint)
    return found


def _header(line: bytes, delimiter: str = "") -> tuple[list[str], str]:
    """Return a header line's column names, in lower case, and the delimiter. Other lines give no names."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip("\r\n ").replace('"', "")
    if not delimiter:
        between = set(_BETWEEN.findall(text[:20_000]))
        # With an unusual delimiter, all required columns must be present: many tables have a State column.
        names = [name.lower() for name in _BETWEEN.split(text[:20_000])]
        other = between.pop() if len(between) == 1 and {n.lower() for n in _NEEDED} <= set(names) else "|"
        delimiter = other if other.strip(" ") else "|"
    names = [name.strip().lower() for name in text.split(delimiter)]
    return (names if {"jobid", "state"} & set(names) else []), delimiter


def _is_quoted(head: bytes, delimiter: str) -> bool:
    """Return whether a table was saved by a program that quotes cells.

    sacct never quotes cells, so a quote in its output is an ordinary character. The header decides if it can, or else
    the first line that has the right number of columns in only one of the two readings.
    """
    header, *lines = head.decode("utf-8", "replace").splitlines()
    if '"' in header:
        return True
    fields = header.count(delimiter) + 1
    for line in lines if head.endswith(b"\n") else lines[:-1]:  # the last line may be truncated
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
    """Return whether this is sacct's human-readable table, with blanks between column names and dashes below them."""
    names, _, below = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    words = {word.lower() for word in names.decode("utf-8", "replace").split()}
    dashes = below.partition(b"\n")[0].split()
    return {"jobid", "state"} <= words or (len(dashes) > 1 and all(not word.strip(b"-") for word in dashes))


def looks_like_sacct(head: bytes) -> bool:
    """Return whether a file begins like a text export, with or without a header line."""
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
    """Find an export's layout from its first line and first bytes, and whether that line is a header.

    Raises
    ------
    SourceError
        There is neither a header line nor a fields option, or a column is missing or named twice.
    """
    if line is None:
        raise SourceError("is empty", where=path, line=1, hint=f"write it with: {COMMAND}")
    stated = check_delimiter(sink.options["delimiter"])
    names, delimiter = _header(line, stated)
    if names:
        if len(delimiter) > 1 or not delimiter.isascii():
            what = f"its column delimiter is '{delimiter[:20]}', which is not a single character"
            raise SourceError(what, where=path, line=1, hint="use a single character in sacct --delimiter, such as ^")
        trailing = not names[-1]
        quoted = _is_quoted(head, delimiter)
        names = names[:-1] if trailing else names
        return layout_of(names, delimiter, path, sink, trailing=trailing, quoted=quoted), True
    if _is_fixed_width(head):
        what = "export it again with --parsable2: this is sacct's table for reading, which truncates long cells"
        raise SourceError(what, where=path, line=1, hint=f"for example: {COMMAND}")
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
    """Return the layout of lines with these columns, given in lower case.

    Raises
    ------
    SourceError
        A column required by the format or by an option is missing, or a column occurs twice.
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
    for option, default, column in (
        ("vc", "account", VC_COLUMNS[sink.options["vc"]]),
        ("queue_from", "submit", sink.options["queue_from"].title()),
    ):
        if column not in columns and sink.options[option] != default:
            hint = f"add {column} to --format, or leave out {option}={sink.options[option]}"
            raise SourceError(f"the column '{column}' is missing", where=path, line=1, hint=hint)
    known = {name.lower() for name in spec.names}
    note_unused(sink, path, [name for name in names if name and name not in known])
    used = replace(spec, columns=tuple(spec.column(name) for name in columns))
    return SacctLayout(columns, tuple(names), delimiter, trailing, used, quoted)


# Split a line of `sacct` whose free text contains the delimiter, or lines whose free text contains line breaks.
#
# Names, comments and command lines are free text and may contain anything. The columns before the first and after the
# last free-text column are counted from both ends. The columns between two free-text columns have known forms, such as
# times, durations or lists. We keep only the divisions in which every cell of these columns has the right form, and
# split the line if they agree on every used column.

FREE_TEXT = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "constraints", "extra", "submitline", "workdir"}
    | {"container", "stdin", "stdout", "stderr", "stdinexpanded", "stdoutexpanded", "stderrexpanded", "failednode"}
)
"""Free-text columns in lower case. Their cells may contain anything, including the delimiter."""

SEVERAL_LINES = frozenset({"comment", "admincomment", "systemcomment", "extra", "submitline"})
"""Free-text columns in which line breaks are likely. In a job's name or a folder, they would mean damage."""

_MOST_EXTRA = 64
"""Maximum number of delimiters in free text for which we try divisions. Each adds one division per column."""

_WORDS = r"Unknown|None|N/A|\(null\)|INVALID|UNLIMITED|Partition_Limit|NOT_SET"
_FORMS = {
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{1,12}",
    "duration": r"(?:\d{1,9}-)?(?:\d{1,9}:)*\d{1,9}(?:\.\d{1,9})?",
    "amount": r"-?\d{1,20}(?:\.\d{1,9})?[KMGTPEkmgtpe]?[Bbcn]?",
    "code": r"\d{1,5}:\d{1,5}",
    "tres": r"[^\s=,]+=[^=,]*(?:,[^\s=,]+=[^=,]*)*",
    "gres": r"[^\s,]+(?:,[^\s,]+)*",
    "state": r"[A-Z_]+\+?(?: by .+)?",
    "job": r"\d{1,20}\S*",
    "nodes": r"[\w.,\[\]-]+|None assigned",
    "word": r"\S*",
}
_KINDS = {
    "time": "submit eligible start end",
    "duration": "elapsed suspended timelimit cputime totalcpu usercpu systemcpu planned reserved avecpu mincpu resvcpu "
    "plannedcpu",
    "amount": "elapsedraw timelimitraw cputimeraw resvcpuraw plannedcpuraw uid gid associd dbindex qosraw wckeyid "
    "priority consumedenergy consumedenergyraw reservationid alloccpus allocnodes ncpus reqcpus nnodes ntasks reqnodes "
    "reqmem maxrss averss maxvmsize avevmsize maxpages avepages maxdiskread maxdiskwrite avediskread avediskwrite "
    "avecpufreq maxrsstask maxvmsizetask maxpagestask maxdiskreadtask maxdiskwritetask mincputask restarts",
    "code": "exitcode derivedexitcode",
    "tres": "alloctres reqtres tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin "
    "tresusageinminnode tresusageinmintask tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode "
    "tresusageoutmaxtask tresusageoutmin tresusageoutminnode tresusageoutmintask tresusageouttot",
    "gres": "allocgres reqgres",
    "state": "state",
    "job": "jobid jobidraw",
    "nodes": "nodelist maxrssnode maxvmsizenode maxpagesnode maxdiskreadnode maxdiskwritenode mincpunode",
    "word": "account partition qos user cluster group wckey reason flags mcslabel layout reqcpufreq reqcpufreqgov "
    "reqcpufreqmin reqcpufreqmax reservation blockid sluid licenses",
}
_ALWAYS = frozenset({"jobid", "submit", "state"})
_FORM_OF = {
    name: re.compile(_FORMS[kind] if name in _ALWAYS else f"(?:{_FORMS[kind]}|{_WORDS})?", re.ASCII)
    for kind, names in _KINDS.items()
    for name in names.split()
}
"""The form of each column that is not free text. Other columns may contain any text without the delimiter."""

# Key: first piece and width of each remaining used column. Value: first piece of each of these columns.
_Divisions = dict[tuple[int, ...], tuple[int, ...]]


def divide(pieces: Sequence[str], names: Sequence[str], read: Collection[int], delimiter: str) -> list[str] | None:
    """Divide a line into cells, or return None if the division is uncertain.

    Parameters
    ----------
    pieces : sequence of str
        The line, split at every delimiter.
    names : sequence of str
        The columns, in lower case.
    read : collection of int
        Positions of the used columns.
    delimiter : str
        Joins the pieces of one cell.
    """
    extra = len(pieces) - len(names)
    free = [place for place, name in enumerate(names) if name in FREE_TEXT]
    if extra < 0 or (extra and not free) or (extra > _MOST_EXTRA and len(free) > 1):
        return None
    if not extra:
        return list(pieces)
    first, last = free[0], free[-1]
    if first == last:
        end = first + 1 + extra
        return [*pieces[:first], delimiter.join(pieces[first:end]), *pieces[end:]]
    # The divisions of the rest of the line, by the number of extra pieces before the current column.
    found: list[_Divisions] = [{(): ()} if shift == extra else {} for shift in range(extra + 1)]
    for place in range(last, first - 1, -1):
        found = [_before(place, shift, pieces, names, read, found) for shift in range(extra + 1)]
    if len(found[0]) != 1:
        return None
    (begins,) = found[0].values()
    ends = (*begins[1:], last + 1 + extra)
    middle = [delimiter.join(pieces[a:b]) for a, b in zip(begins, ends, strict=True)]
    return [*pieces[:first], *middle, *pieces[last + 1 + extra :]]


def fits(cells: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether every cell of a record has its column's form."""
    return all(name in SEVERAL_LINES or _may_be(name, cell) for name, cell in zip(names, cells, strict=True))


def begins_record(pieces: Sequence[str], names: Sequence[str]) -> bool | None:
    """Return whether a line begins a record, or None if no job id precedes the free text."""
    first = next((place for place, name in enumerate(names) if name in FREE_TEXT), len(names))
    if "jobid" not in names[:first]:
        return None
    return len(pieces) > first and fits(pieces[:first], names[:first])


def _may_be(name: str, cell: str) -> bool:
    form = _FORM_OF.get(name)
    return "\n" not in cell and (form is None or form.fullmatch(cell) is not None)


def _before(
    place: int, shift: int, pieces: Sequence[str], names: Sequence[str], read: Collection[int], after: list[_Divisions]
) -> _Divisions:
    """Return the divisions from one column on, at most two: two already contradict each other."""
    begin = place + shift
    if names[place] in FREE_TEXT:
        widths = range(len(after) - shift)
        if names[place] not in SEVERAL_LINES:
            widths = range(next((w for w in widths if "\n" in pieces[begin + w]), len(widths)))
    else:
        widths = range(1 if _may_be(names[place], pieces[begin]) else 0)
    found: _Divisions = {}
    for width in widths:
        for key, begins in after[shift + width].items():
            found.setdefault((begin, width, *key) if place in read else key, (begin, *begins))
            if len(found) > 1:
                return found
    return found


# Join the lines of a `sacct` record whose free text contains line breaks, such as a script after `sbatch --wrap`.
#
# Lines with too few columns are candidates. If the job id comes before all free text, a line begins a record when every
# column before the free text has its form, and that record extends to the next one. Otherwise (`--format=ALL`), we join
# the fewest lines that make up all columns, if no line is left over. In both cases, the joined text must divide in
# exactly one way, with each column in its form and line breaks only in commands and comments. If not, each line is
# rejected.

_MOST_LINES = 2000
"""Maximum number of lines that are joined into one record, or kept because their record may have begun earlier."""
_MOST_TRIES = 16
"""Maximum number of line counts to try for a record if nothing else shows where it ends."""
_MOST_FAILED = 500
"""Maximum number of failed attempts to join lines in one block of the file. After that, we stop joining its lines."""
_CURE = (
    ": a name or a command may contain a line break, so the end of the record is uncertain; export again without "
    "free-text columns (SubmitLine, Comment, ...) or with sacct --json"
)


@dataclass
class OddLines:
    """A block's lines with the wrong number of columns, sorted by kind."""

    alone: list[BadRecord] = field(default_factory=list)
    """Lines that cannot be joined to another line, in order."""
    joined: list[tuple[BadRecord, list[str]]] = field(default_factory=list)
    """Records that consist of several lines, with their cells."""
    tails: dict[int, str] = field(default_factory=dict)
    """Lines that continue the last column of a record in the block, by the record's row."""
    failed: int = 0
    """Number of failed attempts to join lines."""


def pieces_of(raw: bytes, layout: SacctLayout) -> list[str] | None:
    """Split a line at every delimiter except a trailing one, or return None if the line is not valid UTF-8."""
    try:
        pieces = raw.decode("utf-8").split(layout.delimiter)
    except UnicodeDecodeError:
        return None
    if layout.trailing and len(pieces) > layout.fields and not pieces[-1]:
        pieces.pop()
    return pieces


def with_lines_after(blocks: Iterable[tuple[Block, list[BadRecord]]]) -> Iterator[tuple[Block, list[BadRecord]]]:
    """Yield each block with the odd lines after it, even if they were read with the next block."""
    before: tuple[Block, list[BadRecord]] | None = None
    for block, bad in blocks:
        rest = bad
        if before is not None:
            leading = sum(1 for record in bad if not len(block.lines) or record.line < block.lines[0])
            if 0 < leading <= _MOST_LINES and len(before[1]) <= _MOST_LINES:
                before[1].extend(bad[:leading])
                rest = bad[leading:]
                if not len(block.lines):
                    continue
            yield before
        before = block, rest
    if before is not None:
        yield before


def join_lines(block: Block, bad: Sequence[BadRecord], layout: SacctLayout) -> OddLines:
    """Sort a block's odd lines, and join the lines that form one record."""
    odd = OddLines()
    if SEVERAL_LINES.isdisjoint(layout.names):
        odd.alone = list(bad)
        return odd
    # Lines between two regular records are examined together.
    rows = np.searchsorted(block.lines, [record.line for record in bad]).tolist()
    first = 0
    while first < len(bad):
        last = first
        while last + 1 < len(bad) and rows[last + 1] == rows[first]:
            last += 1
        _join(bad[first : last + 1], rows[first] - 1, layout, odd)
        first = last + 1
    return odd


def _join(lines: Sequence[BadRecord], row: int, layout: SacctLayout, odd: OddLines) -> None:
    """Sort the odd lines after a regular record into `odd`. Row -1 means the lines before the first record."""
    pieces = [pieces_of(line.raw, layout) if line.reason.startswith("expected ") else None for line in lines]
    begins = [None if found is None else begins_record(found, layout.names) for found in pieces]
    if len(lines) == 1 and not (row >= 0 and begins[0] is False and _goes_on(pieces, layout)):
        odd.alone += lines
        return
    if all(begin is None for begin in begins):
        _join_fewest(lines, pieces, layout, odd)
        return
    heads = [place for place, begin in enumerate(begins) if begin]
    end = heads[0] if heads else len(lines)
    if end and row >= 0 and _goes_on(pieces[:end], layout):
        odd.tails[row] = b"\n".join(line.raw for line in lines[:end]).decode("utf-8")
    else:
        odd.alone += [_uncertain(line, layout) for line in lines[:end]]
    for begin, stop in pairwise([*heads, len(lines)]):
        own = lines[begin:stop]
        record = _record(own, layout) if 1 < len(own) <= _MOST_LINES and None not in pieces[begin:stop] else None
        if record is None:
            odd.alone += own if len(own) == 1 else [_uncertain(line, layout) for line in own]
        else:
            odd.joined.append(record)


def _goes_on(pieces: Sequence[list[str] | None], layout: SacctLayout) -> bool:
    """Return whether the lines can continue the last column of the previous record."""
    if layout.trailing or layout.names[-1] not in SEVERAL_LINES or len(pieces) > _MOST_LINES:
        return False
    place = layout.columns["JobID"]
    # A line that begins with a job id may be a truncated record.
    return all(
        found is not None and not (len(found) > place + 1 and fits(found[place : place + 1], ["jobid"]))
        for found in pieces
    )


def _join_fewest(
    lines: Sequence[BadRecord], pieces: Sequence[list[str] | None], layout: SacctLayout, odd: OddLines
) -> None:
    """Join the fewest lines that make up all columns, starting at any line, if no line is left over."""
    if None in pieces or len(lines) > _MOST_LINES:
        odd.alone += lines
        return
    delimiters = list(accumulate((len(found or ()) - 1 for found in pieces), initial=0))
    joined, alone = [], []
    begin = 0
    while begin < len(lines) and odd.failed < _MOST_FAILED:
        if delimiters[begin + 1] - delimiters[begin] >= layout.fields - 1:
            alone.append(lines[begin])
            begin += 1
            continue
        # Take the fewest lines that contain enough delimiters.
        fewest = bisect_left(delimiters, delimiters[begin] + layout.fields - 1, begin + 1)
        for end in range(fewest, min(fewest + _MOST_TRIES, len(lines) + 1)):
            record = _record(lines[begin:end], layout)
            if record is not None:
                joined.append(record)
                begin = end
                break
            odd.failed += 1
        else:
            break
    if begin < len(lines):
        odd.alone += [_uncertain(line, layout) for line in lines]
    else:
        odd.joined += joined
        odd.alone += alone


def _record(lines: Sequence[BadRecord], layout: SacctLayout) -> tuple[BadRecord, list[str]] | None:
    """Join lines into one record with its cells, or return None if they may not be one record."""
    whole = BadRecord(lines[0].line, b"\n".join(line.raw for line in lines), lines[0].reason)
    pieces = pieces_of(whole.raw, layout)
    if pieces is None:
        return None
    cells = divide(pieces, layout.names, set(layout.columns.values()), layout.delimiter)
    return (whole, cells) if cells is not None and fits(cells, layout.names) else None


def _uncertain(line: BadRecord, layout: SacctLayout) -> BadRecord:
    """Return a line. If it has too few columns, its reason also says how to avoid this."""
    if not line.reason.startswith("expected ") or line.raw.count(layout.delimiter.encode()) >= layout.fields - 1:
        return line
    return BadRecord(line.line, line.raw, line.reason + _CURE)


@dataclass
class SacctRecords:
    """Records of one block as text columns, with line numbers, raw text and faults."""

    text: pl.DataFrame
    lines: NDArray[np.int64]
    raws: Callable[[int], bytes]
    order: NDArray[np.int64]
    """Unique number of each record, increasing with the position in the file."""
    faults: dict[int, tuple[str | None, str]] = field(default_factory=dict)
    """First fault of each row: column and reason."""

    def add_fault(self, rows: pl.Series, column: str, reason: str) -> None:
        """Record a fault for the masked rows."""
        for row in rows.fill_null(value=False).arg_true().to_list():
            self.faults.setdefault(row, (column, reason))


def read_text(opened: OpenedFile, sink: Sink, head: bytes) -> Iterator[tuple[SacctLayout, SacctRecords]]:
    """Yield the records of one export in blocks, as text. Lines that do not split into columns are rejected.

    `head` contains the file's first bytes.

    Raises
    ------
    SourceError
        There is no header line and no option names the columns, or a column is missing or named twice.
    """
    reader = RecordReader(opened.stream, b"|", quoting=False)  # sacct never quotes, so a quote is an ordinary character
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
    """Return the block's records, including repaired records, and reject the others."""
    opened.count(len(block.lines) + len(odd.joined) + len(odd.alone))
    mended: list[tuple[BadRecord, list[str]]] = []
    for record in odd.alone:
        found = record.reason if layout.quoted else _mend(record, layout)
        if isinstance(found, str):
            opened.reject(record.line, None, found, record.raw)
        else:
            mended.append((record, found))
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
    job = layout.columns["JobID"]
    if mended:
        sink.check(
            "delimiter_in_name",
            len(mended),
            None,
            "records with more delimiters than columns; the extra delimiters belong to the free-text columns",
            [cells[job] for _, cells in mended],
        )
    if odd.joined or odd.tails:
        jobs = [cells[job] for _, cells in odd.joined] + [text[row, job] or "" for row in odd.tails]
        sink.check(
            "line_break_in_text",
            len(jobs),
            None,
            "records with line breaks in free-text columns; all lines up to the next record belong to these columns",
            jobs,
        )
    mended += odd.joined
    if mended:
        extra = [[cell or None for cell in cells] + [None] * (width - len(cells)) for _, cells in mended]
        text = pl.concat([text, pl.DataFrame(extra, schema=types, orient="row")])
    text = text.select(pl.nth(i).alias(name) for name, i in layout.columns.items())
    count = len(block.lines)

    def raw(row: int) -> bytes:
        return block.raw(row) if row < count else mended[row - count][0].raw

    lines = np.concatenate((block.lines, np.array([record.line for record, _ in mended], dtype=np.int64)))
    return SacctRecords(text, lines, raw, lines)


def _mend(record: BadRecord, layout: SacctLayout) -> list[str] | str:
    """Divide a line whose free text contains the delimiter, or return the reason for rejecting the line."""
    if not record.reason.startswith("expected "):
        return record.reason
    pieces = pieces_of(record.raw, layout)
    if pieces is None:
        return "is not valid UTF-8"
    used = set(layout.columns.values())
    cells = divide(pieces, layout.names, used, layout.delimiter)
    place = layout.columns.get("Constraints")
    if cells is None and place is not None:
        # A constraint may contain the delimiter, as in a|b. It becomes unknown, but the line is not rejected.
        cells = divide(pieces, layout.names, used - {place}, layout.delimiter)
        if cells is not None:
            cells[place] = ""
    if cells is not None:
        return cells
    if len(pieces) < layout.fields or FREE_TEXT.isdisjoint(layout.names):
        return record.reason
    return (
        f"{record.reason}: a name or a command contains the delimiter '{layout.delimiter}', but we cannot tell "
        "which one; export again with sacct --delimiter and a character that no name contains"
    )
