"""Convert the text of cells to typed columns, by the schema of the raw file.

Every cell is read as text first. A cell that is not a spelling of unknown and does not convert is unknown. In a column
without which a record says something else (`Column.decides`) it makes its record unusable; the first such column of a
record is reported.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.ingest.lost_cells import NO_LIMIT, NOT_SET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.schema import Column, TableSchema

FIRST_TIME = datetime(1970, 1, 1)
"""Earliest time that a record may hold."""

LAST_TIME = datetime(2262, 1, 1)
"""Latest time that a record may hold: nanoseconds in 64 bits end in that year."""

_SHOWN_ZONES = 4

LAST_SECOND = (LAST_TIME - FIRST_TIME) // timedelta(seconds=1)
"""LAST_TIME in seconds since 1970 [s]."""


class BadCell(NamedTuple):
    """A cell that makes its record unusable."""

    row: int
    """Row in the frame, from 0."""
    column: str
    reason: str


class LostCells(NamedTuple):
    """Cells of one column that cost themselves, not their records."""

    column: str
    reason: str
    rows: pl.Series
    """A mask of the frame's rows."""


def typed_cells(text: pl.DataFrame, schema: TableSchema) -> tuple[pl.DataFrame, list[BadCell], list[LostCells]]:
    """Convert the columns of `text` to the types of `schema`.

    Parameters
    ----------
    text : polars.DataFrame
        A subset of the schema's columns by name: text, or numbers that were parsed already.
    schema : TableSchema
        Types, spellings of unknown values, and constraints.

    Returns
    -------
    frame : polars.DataFrame
        The same rows and columns, typed; bad cells are NULL.
    bad : list of BadCell
        One entry for each unusable row, ordered by row: its first bad column in schema order.
    lost : list of LostCells
        Cells of other columns that cannot be read.
    """
    columns = [schema.column(name) for name in text.columns]
    words = [w for w in schema.missing if w]
    strip = bool(schema.dialect.get("skipInitialSpace"))
    # Almost every number and time converts as it is; blanks and words for unknown are removed only in columns where
    # something did not.
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
    """Return the column with its faulty cells unknown, if it has any; those that state a value are added to `lost`."""
    mended = value
    if column.kind in ("integer", "number") and (value >= min(NOT_SET)).any():
        mended = mended.set(value.cast(pl.Float64).is_in([float(n) for n in NOT_SET]).fill_null(value=False), None)
    for rows, reason in faults:
        silent = (
            text.cast(pl.String).str.to_lowercase().is_in([*NO_LIMIT, *map(str, NOT_SET), "[]"]).fill_null(value=False)
        )
        mended = mended.set(rows, None)
        stated = rows & ~silent & mended.is_null()
        for earlier in lost:
            stated = stated & ~earlier.rows if earlier.column == column.name else stated
        if stated.any():
            lost.append(LostCells(column.name, reason, stated))
    return [] if mended is value else [mended]


def limited(schema: TableSchema, largest: Mapping[str, float]) -> TableSchema:
    """Return `schema` with some columns limited to between 0 and a largest value.

    Columns that are computed with need it: a cell that overflows must reject its record, not end the ingest.
    """
    columns = tuple(replace(c, minimum=0, maximum=largest[c.name]) if c.name in largest else c for c in schema.columns)
    return replace(schema, columns=columns)


def _known(column: Column, words: list[str], strip: bool) -> pl.Expr:
    """Return the cell's text, NULL where it spells an unknown value."""
    cell = pl.col(column.name)
    if strip:
        cell = cell.str.strip_chars()
    if not column.decides:
        words = [*words, "[]"]
    return pl.when(cell.is_in(["", *words])).then(None).otherwise(cell).alias(column.name)


def _converted(column: Column, *, decimals: bool = False) -> pl.Expr:
    cell = pl.col(column.name)
    if column.kind == "integer":
        # Programs save a column in which some whole number is missing with decimals: 7.0.
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
    # Times of a log hardly repeat, so that a cache costs more than it saves.
    return cell.str.to_datetime(form, strict=False, time_unit="us", cache=False)


def _zoned(cell: pl.Expr, column: Column) -> pl.Expr:
    """Parse a time that ends in the name of a zone, as UTC; an unlisted name gives NULL.

    The %Z of strptime accepts any name and ignores it, which would shift the time by hours in silence.
    """
    return cell.map_batches(lambda texts: _zoned_times(texts, column), return_dtype=pl.Datetime("us"))


def _zoned_times(texts: pl.Series, column: Column) -> pl.Series:
    """Parse each run of equal texts once: telemetry lists all machines of a minute one after the other."""
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
    """Return (mask of rows, reason) for each way in which cells of a column can be unusable."""
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
    if column.kind == "datetime" and column.required:  # of a sample, which says nothing without its time
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
