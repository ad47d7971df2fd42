"""Convert a raw file's cells to typed columns by a mapping file's rules.

An unreadable cell becomes unknown, or rejects its record if the record is meaningless without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.ingest.cells import LAST_SECOND, NO_LIMIT, NOT_SET, LostCells, count_lost_rows, lose
from tracekit.ingest.mapping.blocks import chooser, read_rows
from tracekit.ingest.mapping.rules import several
from tracekit.ingest.mapping.values import clock_seconds, meanings, quantity, read_times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.mapping.blocks import RawRows
    from tracekit.ingest.mapping.expression import Expression
    from tracekit.ingest.mapping.model import Reading, Section
    from tracekit.ingest.mapping.rules import ColumnRule
    from tracekit.ingest.sink import OpenedFile, Sink

_SAYS_NOTHING = (*NO_LIMIT, *map(str, NOT_SET))

_LARGEST = 1e15
"""Largest accepted number. Results computed from it are finite."""

_LONGEST_SEEN = 10_000
"""Maximum length of a string passed to regular expressions and lookup tables [characters]."""


class Converted(NamedTuple):
    """The columns that the rules produce for some records."""

    frame: pl.DataFrame
    """One column per rule, named after its target."""
    local: pl.DataFrame
    """Wall-clock times, for times given without a zone."""
    bad: dict[int, tuple[str, str]]
    """Unusable records, each with its first problem: column and reason."""
    lost: list[LostCells]
    """Unreadable cells whose records can still be used."""


class _Cells(NamedTuple):
    values: pl.Series
    faults: list[tuple[pl.Series, str]]
    local: pl.Series | None = None


def converted(
    rules: Iterable[ColumnRule], rows: RawRows, reading: Reading, prefix: str = "", keys: Collection[str] = ()
) -> Converted:
    """Apply rules to records.

    Parameters
    ----------
    keys : collection of str
        Additional columns whose unreadable cells reject their record.
    prefix : str
        Prefix of line numbers used as ids, if the source has several files.
    """
    columns, clocks = [], []
    bad: dict[int, tuple[str, str]] = {}
    lost: list[LostCells] = []
    for rule in rules:
        cells = _cells(rule, rows, reading, prefix)
        values, local = cells.values, cells.local
        faults = [(mask.fill_null(value=False), reason) for mask, reason in [*cells.faults, *_limits(rule, values)]]
        if rule.target.decides or rule.target.name in keys:
            for mask, reason in faults:
                for row in mask.arg_true().to_list():
                    bad.setdefault(row, (rule.label, reason))
        elif any(mask.any() for mask, _ in faults):
            # A default replaces an empty cell, but not an unreadable cell.
            faulty = lose(rule.label, faults, _silent(rule, rows), lost)
            values = values.set(faulty, None)
            local = None if local is None else local.set(faulty, None)
        columns.append(values.alias(rule.target.name))
        if local is not None:
            clocks.append(local.alias(rule.target.name))
    return Converted(pl.DataFrame(columns), pl.DataFrame(clocks), bad, lost)


def _silent(rule: ColumnRule, rows: RawRows) -> pl.Series:
    """Return a mask of the rows whose cell for the rule contains no value."""
    silent = pl.Series(np.zeros(rows.frame.height, dtype=bool))
    for name in rule.sources:
        text = rows.frame[name].cast(pl.String, strict=False).str.strip_chars().str.to_lowercase()
        silent |= text.is_in(_SAYS_NOTHING).fill_null(value=False)
    return silent


def reject_rows(
    opened: OpenedFile, rows: RawRows, bad: dict[int, tuple[str, str]], lost: Sequence[LostCells] = ()
) -> NDArray[np.bool_]:
    """Reject the bad records, count the other records' unreadable cells, and return a mask of the usable records."""
    usable = np.ones(rows.frame.height, dtype=bool)
    for row in sorted(bad):
        column, reason = bad[row]
        opened.reject(int(rows.lines[row]), column, reason, rows.raw(row))
        usable[row] = False
    for column, reason, found in lost:
        name = column if column in rows.frame.columns else column.partition(", ")[0]
        texts = rows.frame[name] if name in rows.frame.columns else _file_name(rows)
        count_lost_rows(opened.sink, column, reason, found, texts, usable)
    return usable


def usable_rows(section: Section[Reading], file: SourceFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the columns that the rules of a section produce for the usable records of a file."""
    with sink.opened(file) as opened:
        for rows in read_rows(opened, section.keys, chooser(section.rules, file.path, sink)):
            cells = converted(section.rules, rows, section.keys)
            yield cells.frame.filter(pl.Series(reject_rows(opened, rows, cells.bad, cells.lost)))


def cell_text(name: str, rows: RawRows, reading: Reading, missing: str | tuple[str, ...] | None = None) -> pl.Series:
    """Return a column's stripped cells, or NULL if unknown. `missing` lists further words for unknown."""
    cells = rows.frame[name]
    words = ["", "[]", *several(reading.missing), *several(missing or ())]
    if cells.dtype.is_integer() and len(words) > 2:
        return cells.set(cells.cast(pl.String).is_in(words).fill_null(value=False), None)
    if cells.dtype != pl.String:
        return cells
    text = pl.col(name).str.strip_chars()
    known = pl.when(text.is_in(words)).then(None).otherwise(text)
    return cells.to_frame(name).select(known.alias(name)).to_series()


def rule_text(rule: ColumnRule, rows: RawRows, reading: Reading) -> tuple[pl.Series, list[tuple[pl.Series, str]]]:
    """Return the cells as a rule reads them, and masks of the unreadable cells.

    Join several columns, extract the match of the regular expression, and look up its meaning. A Parquet column keeps
    its type if the rule does none of these.
    """
    if rule.entry.file is not None:
        texts = _file_name(rows)
        found = _matched(texts, rule.entry.file)
        if found.null_count():
            raise UsageError(
                f"{rows.path} does not match the regular expression '{rule.entry.file[:80]}'",
                where=f"{rule.file}, key {rule.key}",
                hint="change it, or select the files with the files key",
            )
    else:
        found = (
            _joined(rule, rows, reading)
            if rule.entry.columns
            else cell_text(rule.sources[0], rows, reading, rule.entry.missing)
        )
    faults = []
    if rule.entry.regex is not None or rule.entry.lookup is not None:
        found = found.cast(pl.String)
        long = (found.str.len_chars() > _LONGEST_SEEN).fill_null(value=False)
        if long.any():
            faults.append((long, f"is longer than {_LONGEST_SEEN:,} characters"))
            found = found.set(long, None)
    if rule.entry.regex is not None:
        found = _matched(found, rule.entry.regex)
    if rule.entry.lookup is not None:
        found, absent = _looked_up(found, rule, rule.entry.lookup)
        faults.append(absent)
    return found, faults


def _looked_up(texts: pl.Series, rule: ColumnRule, table: str) -> tuple[pl.Series, tuple[pl.Series, str]]:
    """Look up strings in a lookup table, and return their meanings and a mask of the strings not found."""
    meant = meanings(texts, rule.tables[table].words, exact=rule.tables[table].exact)
    return meant, (texts.is_not_null() & meant.is_null(), f"is not in the lookup table {table}")


def _file_name(rows: RawRows) -> pl.Series:
    return pl.Series([rows.path], dtype=pl.String).new_from_index(0, rows.frame.height)


def _matched(texts: pl.Series, regex: str) -> pl.Series:
    groups = pl.Series([""]).str.extract_groups(regex).struct.fields
    return texts.str.extract(regex, 1 if groups else 0)


def _joined(rule: ColumnRule, rows: RawRows, reading: Reading) -> pl.Series:
    """Join several columns' strings. The result is unknown if all columns are unknown, or for a time if any is."""
    cells = pl.DataFrame(
        [
            cell_text(name, rows, reading, rule.entry.missing).cast(pl.String).alias(str(i))
            for i, name in enumerate(rule.sources)
        ]
    )
    known = pl.any_horizontal(pl.all().is_not_null())
    if rule.target.kind == "datetime":
        known = pl.all_horizontal(pl.all().is_not_null())
    each = pl.all().fill_null("") if rule.keep_empty else pl.all()
    text = pl.concat_str(each, separator=rule.separator, ignore_nulls=True)
    return cells.select(pl.when(known).then(text).alias("joined")).to_series()


def _cells(rule: ColumnRule, rows: RawRows, reading: Reading, prefix: str) -> _Cells:
    height, target = rows.frame.height, rule.target
    if rule.entry.line:
        lines = pl.Series(rows.lines, dtype=pl.Int64)
        if target.kind == "integer":
            return _Cells(lines, [])
        return _Cells(lines.to_frame("x").select(pl.lit(prefix) + pl.col("x").cast(pl.String)).to_series(), [])
    if rule.entry.value is not None:
        return _Cells(pl.Series([rule.entry.value], dtype=target.polars).new_from_index(0, height), [])
    if rule.expression is not None:
        return _expression(rule, rule.expression, rows, reading)
    text, unread = rule_text(rule, rows, reading)
    cells = _typed(rule, text, reading)
    return cells._replace(faults=[*unread, *cells.faults])


def _typed(rule: ColumnRule, text: pl.Series, reading: Reading) -> _Cells:
    """Return the values of strings or of a Parquet column."""
    target = rule.target
    if target.kind == "datetime":
        form = rule.entry.format or reading.time_format
        times = read_times(text, form, reading.timezone, reading.doubled_hour)
        faults = [(times.unread, f"is not a time like {form}")]
        if target.required:  # without its time, a sample or a quota is useless, but a job is not
            faults.append((times.out_of_range, "is a date out of range"))
        return _Cells(times.utc, faults, times.local)
    if target.kind == "string":
        return _words(rule, text.cast(pl.String))
    if target.kind == "boolean":
        return _boolean(rule, text.cast(pl.String))
    return _finish(rule, _number(rule, text), text.is_not_null())


def _number(rule: ColumnRule, cells: pl.Series) -> pl.Series:
    unit = rule.target.unit
    if rule.entry.unit == "clock":
        return clock_seconds(cells.cast(pl.String))
    if rule.entry.unit == "quantity" and unit:
        return quantity(cells.cast(pl.String), unit)
    return cells.cast(pl.Float64, strict=False) * rule.factor


def _finish(rule: ColumnRule, number: pl.Series, stated: pl.Series) -> _Cells:
    """Add faults and the default to a numeric column, and convert it to integers if its target is an integer."""
    whole = rule.target.kind == "integer"
    word = (
        "a whole number"
        if whole
        else "a number" + {"clock": " like 1-02:03:04", "quantity": " like 16Gi"}.get(rule.entry.unit or "", "")
    )
    faults = [
        (stated & number.is_null(), f"is not {word}"),
        (~number.is_finite(), "is not a finite number"),
        (number > _LARGEST, f"is above {_LARGEST:g}"),
        (number < -_LARGEST, f"is below {-_LARGEST:g}"),
    ]
    if rule.default is not None:
        number = number.fill_null(float(rule.default))
    if whole:
        faults.append((number != number.round(), f"is not {word}"))
        number = number.cast(pl.Int64, strict=False)
    return _Cells(number, faults)


def _expression(rule: ColumnRule, expression: Expression, rows: RawRows, reading: Reading) -> _Cells:
    faults, columns = [], []
    read: dict[str, tuple[str | None, str]] = {name: (None, name) for name in expression.names}
    for alias, (table, name) in {**read, **expression.calls}.items():
        text = cell_text(name, rows, reading, rule.entry.missing)
        if table is not None:
            text, absent = _looked_up(text.cast(pl.String), rule, table)
            faults.append(absent)
        number = text.cast(pl.Float64, strict=False)
        faults.append((text.is_not_null() & number.is_null(), f"'{alias}' is not a number"))
        columns.append(number.alias(alias))
    value = pl.DataFrame(columns).select(expression.polars.alias("x")).to_series() * rule.factor
    stated = pl.Series(np.zeros(rows.frame.height, dtype=bool))
    finished = _finish(rule, value, stated)
    return _Cells(finished.values, [*faults, *finished.faults])


def _words(rule: ColumnRule, text: pl.Series) -> _Cells:
    faults = []
    if rule.words:
        words = meanings(text, rule.words)
        if rule.target.enum:
            faults.append((text.is_not_null() & words.is_null(), f"is not a listed word for {rule.target.name}"))
        text = words if rule.target.enum else words.fill_null(text)
    return _Cells(text if rule.default is None else text.fill_null(rule.default), faults)


def _boolean(rule: ColumnRule, text: pl.Series) -> _Cells:
    words = {word.lower(): meaning == "true" for word, meaning in rule.words.items()}
    value = text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
    fault = (text.is_not_null() & value.is_null(), f"is not one of {', '.join(rule.words)}")
    return _Cells(value if rule.default is None else value.fill_null(rule.default), [fault])


def _limits(rule: ColumnRule, values: pl.Series) -> list[tuple[pl.Series, str]]:
    target = rule.target
    faults = []
    # A wall-clock time that never occurred becomes unknown and does not reject its record.
    if target.required and target.kind != "datetime":
        faults.append((values.is_null(), "is missing"))
    if target.minimum is not None:
        faults.append((values < target.minimum, f"is below {target.minimum:g}"))
    if target.unit == "s":
        # Durations are added to times, which must not overflow. Negative durations are unusable.
        faults += [(values < 0, "is below 0"), (values > LAST_SECOND, f"is above {LAST_SECOND}")]
    if target.maximum is not None:
        faults.append((values > target.maximum, f"is above {target.maximum:g}"))
    if target.kind == "datetime" and target.required:
        faults.append((values.is_null(), "is missing, or means no instant"))
    return faults
