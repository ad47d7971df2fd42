"""Convert cells to typed columns, using the schema of the raw file.

Every cell is first read as text. If it cannot be converted, it becomes unknown. If the column is essential to the
meaning of the record, such as the id, a job's times or a sample's machine (`Column.decides`), the whole record is
unusable. The report names the first such column of the record. In any other column, unreadable cells are counted and
the record is kept. Words and numbers that mean "no limit" or "not set" become unknown and are not counted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink
    from tracekit.schema import Column, TableSchema

Value = TypeVar("Value")

NO_LIMIT = ("inf", "+inf", "infinity", "+infinity", "infinite", "unlimited", "nan")
"""Words for an unknown or unlimited number, in lower case."""

NOT_SET = (2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1)
"""Numbers that Slurm and other programs write for "not set" or "no limit"."""

_NUMBERS = frozenset(str(number) for number in NOT_SET)

FIRST_TIME = datetime(1970, 1, 1)
"""Earliest time allowed in a record."""

LAST_TIME = datetime(2262, 1, 1)
"""Latest time allowed in a record: 64-bit nanoseconds overflow in that year."""

_SHOWN_ZONES = 4

LAST_SECOND = (LAST_TIME - FIRST_TIME) // timedelta(seconds=1)
"""LAST_TIME in seconds since 1970 [s]."""


class BadCell(NamedTuple):
    """A cell that makes its record unusable."""

    row: int
    """Row in the frame, counted from 0."""
    column: str
    reason: str


class LostCells(NamedTuple):
    """Unreadable cells of one column. Their records can still be used."""

    column: str
    reason: str
    rows: pl.Series
    """Mask of the affected rows of the frame."""


def typed_cells(text: pl.DataFrame, schema: TableSchema) -> tuple[pl.DataFrame, list[BadCell], list[LostCells]]:
    """Convert the columns of `text` to the types of `schema`.

    Parameters
    ----------
    text : polars.DataFrame
        A subset of the schema's columns by name, as strings or as numbers that are already parsed.
    schema : TableSchema
        Types, words for unknown values, and constraints.

    Returns
    -------
    frame : polars.DataFrame
        The same rows and columns, with their types. Bad cells are NULL.
    bad : list of BadCell
        One entry per unusable row, in row order, with the row's first bad column in schema order.
    lost : list of LostCells
        Unreadable cells of other columns.
    """
    columns = [schema.column(name) for name in text.columns]
    words = [w for w in schema.missing if w]
    strip = bool(schema.dialect.get("skipInitialSpace"))
    # Almost all numbers and times convert as they are, so blanks and words for unknown are removed only in columns
    # where a conversion failed.
    plain = text.select(_known(c, words, strip) if c.kind == "string" else pl.col(c.name) for c in columns)
    frame = plain.select(pl.col(c.name) if plain[c.name].dtype == c.polars else _converted(c) for c in columns)
    odd = [c for c in columns if frame[c.name].null_count() > plain[c.name].null_count()]
    cleaned = plain.with_columns(_known(c, words, strip=True) for c in odd)
    frame = frame.with_columns(cleaned.select(_converted(c, decimals=True) for c in odd))
    found: dict[int, BadCell] = {}
    lost: list[LostCells] = []
    unknown: list[pl.Series] = []
    for column in columns:
        faults = _faults(column, cleaned[column.name], frame[column.name])
        if not column.decides:
            unknown += _without(column, cleaned[column.name], frame[column.name], faults, lost)
            continue
        for rows, reason in faults:
            for row in rows.arg_true().to_list():
                found.setdefault(row, BadCell(row, column.name, reason))
    return frame.with_columns(unknown), [found[row] for row in sorted(found)], lost


def _without(
    column: Column, text: pl.Series, value: pl.Series, faults: list[tuple[pl.Series, str]], lost: list[LostCells]
) -> list[pl.Series]:
    """Set faulty cells of the column to unknown, and add those that contain a value to `lost`."""
    mended = value
    if column.kind in ("integer", "number") and (value >= min(NOT_SET)).any():
        mended = mended.set(value.cast(pl.Float64).is_in([float(n) for n in NOT_SET]).fill_null(value=False), None)
    if faults:
        words = [*NO_LIMIT, *map(str, NOT_SET), "[]"]
        silent = text.cast(pl.String).str.to_lowercase().is_in(words).fill_null(value=False)
        mended = mended.set(lose(column.name, faults, silent, lost), None)
    return [] if mended is value else [mended]


def lose(label: str, faults: list[tuple[pl.Series, str]], silent: pl.Series, lost: list[LostCells]) -> pl.Series:
    """Add the faulty cells of a column to `lost`, each once. Cells without a value are not added.

    Returns
    -------
    Series of Boolean
        Mask of all faulty cells.
    """
    seen = silent
    for rows, reason in faults:
        if (rows & ~seen).any():
            lost.append(LostCells(label, reason, rows & ~seen))
        seen = seen | rows
    return reduce(or_, (rows for rows, _ in faults))


def limited(schema: TableSchema, largest: Mapping[str, float]) -> TableSchema:
    """Return `schema` with some columns limited to the range from 0 to a largest value.

    Columns used in calculations need this limit: an overflowing cell must reject its record, not end the ingest.
    """
    columns = tuple(replace(c, minimum=0, maximum=largest[c.name]) if c.name in largest else c for c in schema.columns)
    return replace(schema, columns=columns)


def _known(column: Column, words: list[str], strip: bool) -> pl.Expr:
    """Return the cell's text, or NULL if it is a word for an unknown value."""
    cell = pl.col(column.name)
    if strip:
        cell = cell.str.strip_chars()
    if not column.decides:
        words = [*words, "[]"]
    return pl.when(cell.is_in(["", *words])).then(None).otherwise(cell).alias(column.name)


def _converted(column: Column, *, decimals: bool = False) -> pl.Expr:
    cell = pl.col(column.name)
    if column.kind == "integer":
        # Some programs write whole numbers as 7.0 if any value in the column is missing.
        whole = cell.str.replace(r"^(-?[0-9]+)\.0$", "${1}") if decimals else cell
        return whole.cast(pl.Int64, strict=False)
    if column.kind == "number":
        return cell.cast(pl.Float64, strict=False)
    if column.kind == "date":
        return cell.str.to_date(column.format, strict=False)
    if column.kind == "datetime":
        return _zoned(cell, column) if column.zones else _instant(cell, column.format)
    return cell


def _instant(cell: pl.Expr, form: str | None) -> pl.Expr:
    # Times in a log rarely repeat, so a cache costs more than it saves.
    return cell.str.to_datetime(form, strict=False, time_unit="us", cache=False)


def _zoned(cell: pl.Expr, column: Column) -> pl.Expr:
    """Parse a time that ends in a zone name, and convert it to UTC. Return NULL for an unlisted zone name.

    strptime's %Z accepts any name and ignores it, which would silently shift the time by hours.
    """
    return cell.map_batches(lambda texts: _zoned_times(texts, column), return_dtype=pl.Datetime("us"))


def _zoned_times(texts: pl.Series, column: Column) -> pl.Series:
    """Parse each run of equal strings once: telemetry lists all machines of one minute together."""
    begins = texts.ne_missing(texts.shift(1))
    if len(begins):
        begins[0] = True
    width = len(next(iter(column.zones)))
    text = pl.col("text")
    hours = text.str.tail(width).replace_strict(column.zones, default=None, return_dtype=pl.Int64)
    local = _instant(text.str.head(-width).str.strip_chars_end(), column.format)
    utc = texts.filter(begins).to_frame("text").select((local - pl.duration(hours=hours)).alias(texts.name)).to_series()
    return utc.gather(begins.cum_sum() - 1)


def _faults(column: Column, cleaned: pl.Series, value: pl.Series) -> list[tuple[pl.Series, str]]:
    """For each reason why a cell of the column can be unusable, return the reason and a row mask."""
    faults = []
    if value.null_count() > cleaned.null_count():
        faults.append((value.is_null() & cleaned.is_not_null(), _not_a(column)))
    if column.required and cleaned.null_count():
        faults.append((cleaned.is_null(), "is missing"))
    if column.kind == "number" and not value.drop_nulls().is_finite().all():
        faults.append((~value.is_finite(), "is not a finite number"))
    if column.minimum is not None:
        faults.append((value < column.minimum, f"is below {column.minimum:g}"))
    if column.maximum is not None:
        faults.append((value > column.maximum, f"is above {column.maximum:g}"))
    if column.kind == "datetime" and column.required:  # the time of a sample, which is meaningless without it
        faults.append(((value < FIRST_TIME) | (value > LAST_TIME), "is a date out of range"))
    if column.kind == "date":
        faults.append(((value < FIRST_TIME.date()) | (value > LAST_TIME.date()), "is a date out of range"))
    return [(mask.fill_null(value=False), reason) for mask, reason in faults if mask.any()]


def _not_a(column: Column) -> str:
    words = {"integer": "a whole number", "number": "a number", "datetime": "a time", "date": "a date"}
    form = f" like {column.format}" if column.format else ""
    listed = list(column.zones)
    known = ", ".join(listed) if len(listed) <= _SHOWN_ZONES else f"{', '.join(listed[:_SHOWN_ZONES])}, ..."
    zones = f" with one of the zones {known}" if column.zones else ""
    return f"is not {words[column.kind]}{form}{zones}"


def says_nothing(text: str) -> bool:
    """Return whether a cell says only "no limit" or "not set", or is an empty list.

    Examples
    --------
    >>> says_nothing("UNLIMITED"), says_nothing("4294967295"), says_nothing("[]"), says_nothing("7")
    (True, True, True, False)
    """
    word = text.strip().lower()
    return word in NO_LIMIT or word in _NUMBERS or word == "[]"


def count_lost(sink: Sink, column: str, reason: str, examples: list[str], count: int | None = None) -> None:
    """Count unreadable cells of a column. `examples` has some of their values, or all if `count` is not given."""
    slug = re.sub(r"[^0-9a-z]+", "_", column.lower()).strip("_")[:60] or "column"
    sink.check(
        f"unreadable_{slug}",
        len(examples) if count is None else count,
        None,
        f"unreadable cells of the column '{column[:80]}'; they become unknown, and their records are kept",
        [f"{text[:80]}: {reason}" for text in examples],
    )


class LostValues:
    """Collects the unreadable values of one record, for readers that handle one record at a time."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, str]] = []

    def read(self, column: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        """Return the value of an optional cell, or None if it is empty, not set or unreadable."""
        if not text or says_nothing(text):
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.add(column, text, str(error))
            return None

    def add(self, column: str, text: str, reason: str) -> None:
        """Add an unreadable value."""
        self._found.append((column, text, reason))

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, column: object) -> bool:
        return any(column == found for found, _, _ in self._found)

    def count(self, sink: Sink) -> None:
        """Count the unreadable values by column. Call this only for records that are used."""
        for column, text, reason in self._found:
            count_lost(sink, column, reason, [text])


def count_lost_rows(
    sink: Sink, column: str, reason: str, rows: pl.Series, texts: pl.Series, usable: NDArray[np.bool_]
) -> None:
    """Count the masked cells in usable records, and add a note if most cells of the column are unreadable."""
    kept = pl.Series(usable)
    lost, stated = texts.filter(rows & kept), texts.filter(kept).drop_nulls()
    if not len(lost):
        return
    count_lost(sink, column, reason, [str(text) for text in lost.head(5)], len(lost))
    if 2 * len(lost) > len(stated):
        sink.note(f"most cells of the column '{column[:80]}' cannot be read ({reason}) and become unknown")
