"""Join the lines of a `sacct` record whose free text holds line breaks, such as a script after `sbatch --wrap`.

Lines with too few columns are candidates. Where the job id stands in front of all free text, a line begins a record
when every column in front of the free text has its form, and all lines up to the next record are one. Where it does not
(`--format=ALL`), the fewest lines that make up all columns are, if no line is left over. In both cases the joined text
has to divide in one way, with each column in its form and line breaks in commands and comments alone; otherwise each
line is set aside.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.formats._slurm_split import SEVERAL_LINES, begins_record, divide, fits
from tracekit.ingest.records import BadRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tracekit.ingest.formats._slurm_layout import SacctLayout
    from tracekit.ingest.records import Block

__all__ = ["OddLines", "join_lines", "pieces_of", "with_lines_after"]

_MOST_LINES = 2000
"""Most lines that are taken for one record, or are held back because their record may have begun before."""
_MOST_TRIES = 16
"""Most numbers of lines that are tried for a record where nothing else tells where it ends."""
_MOST_FAILED = 500
"""Most failures of such trials in one block of the file; then its lines are not joined any more."""
_CURE = (
    ": a line break may be in a name or a command, and it is not certain where the record ends; export again without "
    "the columns of free text (SubmitLine, Comment, ...) or with sacct --json"
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
