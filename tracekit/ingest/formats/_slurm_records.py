"""Cut `sacct` text into records: its header, its trailing delimiter, and free text that holds it or line breaks."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.formats._slurm_layout import find_layout
from tracekit.ingest.records import BadRecord, RecordReader, parse_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.ingest.formats._slurm_layout import SacctLayout
    from tracekit.ingest.records import Block
    from tracekit.ingest.sink import OpenedFile, Sink


# Divide a line of `sacct` whose free text holds the delimiter, or lines whose free text holds line breaks.
#
# Anybody may write anything into names, comments and command lines. The columns in front of the first of them and
# behind the last are counted from both ends; those between two of them have forms (times, durations, lists), and of
# all divisions only those remain in which every such cell has its form. A line is divided where they agree on every
# column that is read.

FREE_TEXT = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "constraints", "extra", "submitline", "workdir"}
    | {"container", "stdin", "stdout", "stderr", "stdinexpanded", "stdoutexpanded", "stderrexpanded", "failednode"}
)
"""Columns in which anybody may write anything, the delimiter included; in lower case."""

SEVERAL_LINES = frozenset({"comment", "admincomment", "systemcomment", "extra", "submitline"})
"""Those of them in which line breaks are likely: in a job's name or a folder they would be damage."""

_MOST_EXTRA = 64
"""Most delimiters in free text for which divisions are tried; each adds a division for each column."""

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
"""The form of each column that is no free text; cells of other columns may be anything without the delimiter."""

# By what is read of the columns from here on: where each of these columns begins, counted in pieces.
_Divisions = dict[tuple[int, ...], tuple[int, ...]]


def divide(pieces: Sequence[str], names: Sequence[str], read: Collection[int], delimiter: str) -> list[str] | None:
    """Return the cells of a line, or None where its division is not certain.

    Parameters
    ----------
    pieces : sequence of str
        The line, cut at every delimiter.
    names : sequence of str
        The columns, in lower case.
    read : collection of int
        Positions of the columns that matter.
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
    # The divisions from a column on, by how many pieces more than columns there are before it.
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
    """Return whether every cell of a record has the form of its column."""
    return all(name in SEVERAL_LINES or _may_be(name, cell) for name, cell in zip(names, cells, strict=True))


def begins_record(pieces: Sequence[str], names: Sequence[str]) -> bool | None:
    """Return whether a line is the begin of a record; None where no job id is in front of the free text."""
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
    """Return the divisions from one column on: two at most, since two already contradict each other."""
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


# Join the lines of a `sacct` record whose free text holds line breaks, such as a script after `sbatch --wrap`.
#
# Lines with too few columns are candidates. Where the job id stands in front of all free text, a line begins a record
# when every column in front of the free text has its form, and all lines up to the next record are one. Where it does
# not (`--format=ALL`), the fewest lines that make up all columns are, if no line is left over. In both cases the
# joined text has to divide in one way, with each column in its form and line breaks in commands and comments alone;
# otherwise each line is set aside.

_MOST_LINES = 2000
"""Most lines that are taken for one record, or are held back because their record may have begun before."""
_MOST_TRIES = 16
"""Most numbers of lines that are tried for a record where nothing else tells where it ends."""
_MOST_FAILED = 500
"""Most failures of such trials in one block of the file; then its lines are not joined any more."""
_CURE = (
    ": a name or a command may contain a line break, so the end of the record is uncertain; export again without "
    "free-text columns (SubmitLine, Comment, ...) or with sacct --json"
)


@dataclass
class OddLines:
    """What the lines of a block are that do not have the right number of columns."""

    alone: list[BadRecord] = field(default_factory=list)
    """Lines that belong to no other, in order."""
    joined: list[tuple[BadRecord, list[str]]] = field(default_factory=list)
    """Records of several lines, with their cells."""
    tails: dict[int, str] = field(default_factory=dict)
    """Lines that go on the last column of a record of the block, by its row."""
    failed: int = 0
    """How many trials of joining lines came to nothing."""


def pieces_of(raw: bytes, layout: SacctLayout) -> list[str] | None:
    """Return a line cut at every delimiter but one that ends it; None where it is not valid UTF-8."""
    try:
        pieces = raw.decode("utf-8").split(layout.delimiter)
    except UnicodeDecodeError:
        return None
    if layout.trailing and len(pieces) > layout.fields and not pieces[-1]:
        pieces.pop()
    return pieces


def with_lines_after(blocks: Iterable[tuple[Block, list[BadRecord]]]) -> Iterator[tuple[Block, list[BadRecord]]]:
    """Yield each block with the odd lines that follow it, though they were read with the next one."""
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
    """Return which of a block's odd lines are one record."""
    odd = OddLines()
    if SEVERAL_LINES.isdisjoint(layout.names):
        odd.alone = list(bad)
        return odd
    # Lines between two regular records are looked at together.
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
    """Sort the odd lines behind one regular record, -1 for none, into `odd`."""
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
    """Return whether lines can be the rest of the last column of the record before them."""
    if layout.trailing or layout.names[-1] not in SEVERAL_LINES or len(pieces) > _MOST_LINES:
        return False
    place = layout.columns["JobID"]
    # What begins with a job id may be a record that was cut off.
    return all(
        found is not None and not (len(found) > place + 1 and fits(found[place : place + 1], ["jobid"]))
        for found in pieces
    )


def _join_fewest(
    lines: Sequence[BadRecord], pieces: Sequence[list[str] | None], layout: SacctLayout, odd: OddLines
) -> None:
    """Join the fewest lines that make up all columns each, if that leaves no line over; wherever a record may begin."""
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
        # The fewest lines whose delimiters are enough.
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
    """Return several lines as one record with its cells; None where they are none for certain."""
    whole = BadRecord(lines[0].line, b"\n".join(line.raw for line in lines), lines[0].reason)
    pieces = pieces_of(whole.raw, layout)
    if pieces is None or len(pieces) < layout.fields:
        return None
    cells = divide(pieces, layout.names, set(layout.columns.values()), layout.delimiter)
    return (whole, cells) if cells is not None and fits(cells, layout.names) else None


def _uncertain(line: BadRecord, layout: SacctLayout) -> BadRecord:
    """Return a line with the cure as its reason, if it has too few columns."""
    if not line.reason.startswith("expected ") or line.raw.count(layout.delimiter.encode()) >= layout.fields - 1:
        return line
    return BadRecord(line.line, line.raw, line.reason + _CURE)


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
            "records with more delimiters than columns; the free-text columns get the rest",
            [fields[layout.columns["JobID"]] or "" for fields in mended],
        )
    if odd.joined or odd.tails:
        jobs = [cells[layout.columns["JobID"]] or "" for _, cells in odd.joined]
        jobs += [text[row, layout.columns["JobID"]] or "" for row in odd.tails]
        sink.check(
            "line_break_in_text",
            len(jobs),
            None,
            "records with line breaks in free-text columns; these columns get all lines up to the next record",
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
        f"{record.reason}: the delimiter '{layout.delimiter}' is in a name or a command, but we cannot tell in "
        "which; export again with sacct --delimiter and a character that no name contains"
    )
