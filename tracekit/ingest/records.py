"""Split a text stream into records and fields. Text that is not a valid record is rejected.

A record is a line, or several lines if a quoted field contains line breaks. Blocks of complete records with the right
number of fields go to the CSV parser. Everything else is reported with its line and text. Usually (no quotes, no stray
bytes, every line complete), a few NumPy passes over the bytes are enough. Only other blocks are examined record by
record. If a delimiter alone cannot separate the records, the reader takes the lines from `text_lines` and splits them
itself.
"""

from __future__ import annotations

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tracekit.ingest.sink import OpenedFile

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

P = ParamSpec("P")
T = TypeVar("T")

MAX_RECORD = 32 * 1024 * 1024
"""Maximum length of a record [bytes]. Longer records are rejected."""

_CHUNK = 8 * 1024 * 1024
_LINE_CHUNK = 4 * 1024 * 1024
"""Number of bytes that `line_blocks` reads at once. Lines as Python objects need several times this memory."""
_MAX_QUOTED_LINES = 1_000
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_UTF8_BOM = b"\xef\xbb\xbf"


class ByteReader(Protocol):
    """A readable byte stream."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, or b'' at the end."""
        ...


class Joined:
    """A stream with extra bytes before it (such as bytes already read from it) and after it."""

    def __init__(self, before: bytes, stream: ByteReader, after: bytes = b"") -> None:
        self._before, self._stream, self._after = before, stream, after

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, or b'' at the end."""
        if self._before:
            chunk, self._before = self._before, b""
            return chunk
        chunk = self._stream.read(size)
        if not chunk:
            chunk, self._after = self._after, b""
        return chunk


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator. A second thread computes each item while the caller works on the one before.

    An exception is raised in place of its item. If the caller stops early, the thread is joined, so it does not outlive
    the iteration.
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="tracekit-prefetch") as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # the only other type is the sentinel's


def prefetched(items: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return a function that yields the same items as `items`, through `prefetch`."""

    @wraps(items)
    def ahead(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return prefetch(items(*args, **kwargs))

    return ahead


class Block:
    """Complete records, each with the right number of fields.

    Parameters
    ----------
    text : bytes
        The records, each of which ends with a line feed.
    lines : int64 array, shape (records,)
        Line in the file on which each record starts, counted from 1.
    spans : tuple of two int64 arrays, shape (records,), optional
        Start and end of each record in `text`, without the line end. By default, each line is a record.
    examine : function () -> (Block, list of BadRecord), optional
        Examines each record. Set if only the total number of delimiters in the block was counted.
    """

    def __init__(
        self,
        text: bytes,
        lines: Ints,
        spans: tuple[Ints, Ints] | None = None,
        examine: Callable[[], tuple[Block, list[BadRecord]]] | None = None,
    ) -> None:
        self.text = text
        self.lines = lines
        self.examine = examine
        self._spans = spans

    @property
    def spans(self) -> tuple[Ints, Ints]:
        """Start and end of each record in `text`, without the line end."""
        if self._spans is None:
            array = np.frombuffer(self.text, dtype=np.uint8)
            ends = np.flatnonzero(array == _NEWLINE)
            starts = np.concatenate(([0], ends[:-1] + 1))
            self._spans = starts, _without_return(array, starts, ends)
        return self._spans

    def raw(self, row: int) -> bytes:
        """Return one record's text."""
        starts, ends = self.spans
        return self.text[starts[row] : ends[row]]

    def filter(self, good: Bools) -> Block:
        """Return the block with only the selected records. `text` is unchanged."""
        starts, ends = self.spans
        return Block(self.text, self.lines[good], (starts[good], ends[good]))


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be parsed."""

    line: int
    """Line on which the record starts, counted from 1."""
    raw: bytes
    """Text of the record."""
    reason: str
    """Why the record cannot be parsed."""


class Record(NamedTuple):
    """A record that is read individually, or text that is not a record."""

    line: int
    """Line on which the record begins, counted from 1."""
    raw: bytes
    value: Any
    """Content of the record."""
    fault: str | None = None
    """Why the record cannot be used, or None if it can."""

    def checked(self) -> Any:
        """Return the content of the record.

        Raises
        ------
        ValueError
            The record cannot be used.
        """
        if self.fault:
            raise ValueError(self.fault)
        return self.value


class RecordReader:
    """Read the records of one delimited file.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file's content.
    delimiter : bytes
        One byte between fields.
    quoting : bool
        Whether a quoted field may contain delimiters and line ends. If not, a quote is an ordinary character.
    """

    def __init__(self, stream: ByteReader, delimiter: bytes = b",", *, quoting: bool = True) -> None:
        self._stream = stream
        self._delimiter = delimiter[0]
        self._quoting = quoting
        self._carry = b""
        self._line = 1

    def first_line(self) -> bytes | None:
        """Read the stream's first line, without line end and byte order mark, or return None if the file is empty."""
        while b"\n" not in self._carry and len(self._carry) <= MAX_RECORD and self._fill():
            pass
        line, found, self._carry = self._carry.partition(b"\n")
        if not line and not found:
            return None
        self._line += 1
        return line.removeprefix(_UTF8_BOM).removesuffix(b"\r")

    def put_back(self, line: bytes) -> None:
        """Undo `first_line`: the line was a record."""
        self._carry = line + b"\n" + self._carry
        self._line -= 1

    def part_at(self, delimiter: bytes, *, quoting: bool) -> None:
        """Set the one-byte delimiter and the quoting according to the first line, before any block is read."""
        self._delimiter = delimiter[0]
        self._quoting = quoting

    @prefetched
    def blocks(
        self, fields: int, *, trailing: bool = False, loosely: bool = False
    ) -> Iterator[tuple[Block, list[BadRecord]]]:
        """Yield the remaining records in blocks, each with its rejected records.

        Parameters
        ----------
        fields : int
            Number of fields in a record.
        trailing : bool
            Whether a record may end with a delimiter.
        loosely : bool
            If the total number of delimiters is right, yield the block without examining each record, and set
            `examine`. The caller must check that no record has too few fields. In that case, no record has too many
            fields.
        """
        while True:
            more = self._fill()
            data, self._carry = self._split(more)
            if data:
                loose = self._loose(data, fields) if loosely and not trailing else None
                yield (loose, []) if loose else self._examine(data, self._line, fields, trailing)
                self._line += int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE))
            if not more and not self._carry:
                return

    def _fill(self) -> bool:
        chunk = self._stream.read(_CHUNK)
        self._carry += chunk
        return bool(chunk)

    def _split(self, more: bool) -> tuple[bytes, bytes]:
        """Split the bytes read so far into complete lines and the rest."""
        data = self._carry
        if not more:
            return (data if data.endswith(b"\n") or not data else data + b"\n"), b""
        whole = cut = data.rfind(b"\n") + 1
        if self._quoted(data) and data.count(b'"', 0, cut) & 1:
            cut = _before_open_quote(data, cut)
        if not cut and len(data) > MAX_RECORD:
            if whole:  # a quote opened in the first line has stayed open for longer than the longest record
                return data[:whole], data[whole:]
            # A line without an end is rejected later as too long.
            return data + b"\n", self._skip_line()
        return data[:cut], data[cut:]

    def _quoted(self, data: bytes) -> bool:
        return self._quoting and b'"' in data

    def _skip_line(self) -> bytes:
        while chunk := self._stream.read(_CHUNK):
            end = chunk.find(b"\n")
            if end >= 0:
                return chunk[end + 1 :]
        return b""

    def _plain(self, data: bytes) -> bool:
        return not self._quoted(data) and b"\0" not in data and data.isascii()

    def _loose(self, data: bytes, fields: int) -> Block | None:
        """Return the lines as a block if their total number of delimiters is right."""
        if fields == 1 or len(data) > MAX_RECORD or not self._plain(data):
            return None
        array = np.frombuffer(data, dtype=np.uint8)
        count = np.count_nonzero(array == _NEWLINE)
        if np.count_nonzero(array == self._delimiter) != count * (fields - 1):
            return None
        line = self._line
        return Block(data, np.arange(line, line + count), examine=lambda: self._examine(data, line, fields, False))

    def _examine(self, data: bytes, line: int, fields: int, trailing: bool) -> tuple[Block, list[BadRecord]]:
        array = np.frombuffer(data, dtype=np.uint8)
        if self._plain(data):
            ends = _regular_ends(array, self._delimiter, fields + trailing)
            # A record that ends with a delimiter has one more, empty field.
            if ends is not None and (not trailing or _all_closed(array, ends, self._delimiter)):
                return Block(data, np.arange(line, line + len(ends))), []
        return self._examine_closely(data, array, line, fields, trailing)

    def _examine_closely(
        self, data: bytes, array: NDArray[np.uint8], line: int, fields: int, trailing: bool
    ) -> tuple[Block, list[BadRecord]]:
        newlines = np.flatnonzero(array == _NEWLINE)
        line_starts = np.concatenate(([0], newlines[:-1] + 1))
        quotes = np.flatnonzero(array == _QUOTE) if self._quoting else np.empty(0, dtype=np.int64)
        first, last = _join_quoted_lines(array, newlines, quotes, self._delimiter, (fields, fields + trailing))
        starts, stops = line_starts[first], newlines[last]
        ends = _without_return(array, starts, stops)
        lines = line + first
        reasons = _reasons(data, array, quotes, starts, ends, self._delimiter, fields, trailing)
        blank = ends == starts
        bad_rows = [row for row in sorted(reasons) if not blank[row]]
        bad = [BadRecord(int(lines[r]), data[starts[r] : ends[r]], reasons[r]) for r in bad_rows]
        good = ~blank
        good[bad_rows] = False
        if good.all():
            return Block(data, lines, (starts, ends)), bad
        kept = array[np.repeat(good, stops + 1 - starts)].tobytes()
        sizes = (stops + 1 - starts)[good]
        new_starts = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else np.empty(0, dtype=np.int64)
        return Block(kept, lines[good], (new_starts, new_starts + (ends - starts)[good])), bad


def line_blocks(stream: ByteReader, longest: int) -> Iterator[list[bytes]]:
    """Yield all lines of a stream in blocks. A line longer than `longest` is truncated to one byte more than that."""
    carry = b""
    while chunk := stream.read(_LINE_CHUNK):
        head, found, tail = chunk.rpartition(b"\n")
        if found:
            yield (carry + head).split(b"\n")
            carry = tail
        else:
            carry += tail
        carry = carry[: longest + 1]
    if carry:
        yield [carry]


class TextLine(NamedTuple):
    """A line of valid text."""

    number: int
    """Line number in the file, counted from 1."""
    raw: bytes
    """Text without the line end."""
    text: str


def text_lines(opened: OpenedFile) -> Iterator[list[TextLine]]:
    """Yield and count a file's lines. Lines that are not valid text are rejected, and blank lines are skipped."""
    number = 0
    for block in line_blocks(opened.stream, MAX_RECORD):
        lines = []
        for line in block:
            number += 1
            raw = (line.removeprefix(_UTF8_BOM) if number == 1 else line).removesuffix(b"\r")
            if not raw.strip():
                continue
            opened.count(1)
            reason = _fault(raw)
            if reason:
                opened.reject(number, None, reason, raw)
                continue
            try:
                lines.append(TextLine(number, raw, raw.decode("utf-8")))
            except UnicodeDecodeError:
                opened.reject(number, None, "is not valid UTF-8", raw)
        if lines:
            yield lines


def _fault(raw: bytes) -> str:
    if len(raw) > MAX_RECORD:
        return f"longer than {MAX_RECORD} bytes"
    return "contains a NUL byte" if b"\0" in raw else ""


def parse_block(block: Block, opened: OpenedFile, width: int, delimiter: str) -> tuple[pl.DataFrame, Block]:
    """Parse a block's fields as strings, and return them with their block. Records that do not parse are rejected.

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


def _before_open_quote(data: bytes, cut: int) -> int:
    """Return the start of the last line with an open quote, whose record may continue, or else `cut`."""
    end = cut - 1
    for _ in range(_MAX_QUOTED_LINES):
        start = data.rfind(b"\n", 0, end) + 1
        if data.count(b'"', start, end) & 1:
            return start if cut - start <= MAX_RECORD else cut
        if not start:
            break
        end = start - 1
    return cut


def _all_closed(array: NDArray[np.uint8], ends: Ints, delimiter: int) -> bool:
    """Return whether a delimiter precedes every line end, or the carriage return before it."""
    last = array[ends - 1]
    return bool(((last == delimiter) | ((last == _RETURN) & (array[ends - 2] == delimiter))).all())


def _regular_ends(array: NDArray[np.uint8], delimiter: int, fields: int) -> Ints | None:
    """Return the line ends if every line has exactly `fields` fields, or None if not."""
    marks = np.flatnonzero((array == delimiter) | (array == _NEWLINE))
    if len(marks) % fields:
        return None
    ends = marks[fields - 1 :: fields]
    regular = (array[ends] == _NEWLINE).all() and np.count_nonzero(array[marks] == _NEWLINE) == len(ends)
    if regular and len(array) > MAX_RECORD and (np.diff(ends, prepend=-1) > MAX_RECORD).any():
        return None
    # In a one-column table, an empty line would count as a record.
    if fields == 1 and regular and (np.diff(ends, prepend=-1) == 1).any():
        return None
    return ends if regular else None


def _without_return(array: NDArray[np.uint8], starts: Ints, ends: Ints) -> Ints:
    closed: Ints = ends - ((ends > starts) & (array[ends - 1] == _RETURN))
    return closed


def _join_quoted_lines(
    array: NDArray[np.uint8], newlines: Ints, quotes: Ints, delimiter: int, widths: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Return the first and last line of each record.

    A line with an odd number of quotes continues to the next such line if this gives a record with the right number of
    fields. Otherwise, its quote is stray, and the line is a record of its own.
    """
    count = len(newlines)
    alone = np.arange(count)
    if not len(quotes):
        return alone, alone
    per_line = np.diff(np.searchsorted(quotes, newlines), prepend=0)
    odd = np.flatnonzero(per_line & 1)
    swallowed = np.zeros(count, dtype=bool)
    last = alone.copy()
    position = 0
    while position + 1 < len(odd):
        begin, end = int(odd[position]), int(odd[position + 1])
        start = int(newlines[begin - 1]) + 1 if begin else 0
        if end - begin <= _MAX_QUOTED_LINES and _field_count(array[start : newlines[end]], delimiter) in widths:
            swallowed[begin + 1 : end + 1] = True
            last[begin] = end
            position += 2
        else:
            position += 1
    first = np.flatnonzero(~swallowed)
    return first, last[first]


def _field_count(record: NDArray[np.uint8], delimiter: int) -> int:
    inside = np.cumsum(record == _QUOTE) & 1
    return int(np.count_nonzero((record == delimiter) & (inside == 0))) + 1


def _reasons(
    data: bytes,
    array: NDArray[np.uint8],
    quotes: Ints,
    starts: Ints,
    ends: Ints,
    delimiter: int,
    fields: int,
    trailing: bool,
) -> dict[int, str]:
    """Return the reason why each bad record cannot be parsed, by row number."""
    found: dict[int, str] = {}
    counts, unclosed = _fields_per_record(array, quotes, starts, ends, delimiter)
    closed_by_delimiter = (ends > starts) & (array[ends - 1] == delimiter)
    fits = (counts == fields) | (closed_by_delimiter & (counts == fields + 1)) if trailing else counts == fields
    for row in np.flatnonzero(~fits).tolist():
        found[row] = f"expected {fields} fields, found {counts[row]}"
    for row in np.flatnonzero(unclosed).tolist():
        found[row] = "a quote is not closed"
    for row in _rows_of(np.flatnonzero(array == 0), starts):
        found[row] = "contains a NUL byte"
    if not data.isascii():
        for row in _rows_of(np.flatnonzero(array >= 128), starts):
            try:
                data[starts[row] : ends[row]].decode("utf-8")
            except UnicodeDecodeError:
                found[row] = "is not valid UTF-8"
    for row in np.flatnonzero(ends - starts > MAX_RECORD).tolist():
        found[row] = f"longer than {MAX_RECORD} bytes"
    return found


def _fields_per_record(
    array: NDArray[np.uint8], quotes: Ints, starts: Ints, ends: Ints, delimiter: int
) -> tuple[Ints, Bools]:
    """Count each record's fields, and return the counts and whether a quote is left open in the record."""
    marks = np.flatnonzero(array == delimiter)
    unclosed = np.zeros(len(starts), dtype=bool)
    if len(quotes):
        before = np.searchsorted(quotes, starts)
        unclosed = ((np.searchsorted(quotes, ends) - before) & 1).astype(bool)
        row = np.searchsorted(starts, marks, side="right") - 1
        marks = marks[((np.searchsorted(quotes, marks) - before[row]) & 1) == 0]
    return np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1, unclosed


def _rows_of(positions: Ints, starts: Ints) -> list[int]:
    return [int(row) for row in np.unique(np.searchsorted(starts, positions, side="right") - 1)]
