"""Parse a mapping file's rules, each of which fills one column of a Trace. Errors name the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import polars as pl

from tracekit.decode import NonEmpty, Text, dotted
from tracekit.errors import nearest
from tracekit.ingest.mapping.expression import Expression, parse_expression
from tracekit.ingest.mapping.values import EPOCHS, FACTORS, TEXT_UNITS, format_fault, units_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from tracekit.decode import Place
    from tracekit.errors import UsageError
    from tracekit.schema import Column
    from tracekit.toml_text import TomlText

_SOURCES = ("column", "columns", "expression", "file", "line", "value")
_LONGEST_REGEX = 1_000
_LONGEST_WORD = 300
"""Maximum length of a word with * or ? [characters]."""
_BOOLEAN = {"true": "true", "yes": "true", "1": "true", "false": "false", "no": "false", "0": "false"}
_PYTHON = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Source of a column's values."""

    column: Text | None = None
    columns: Annotated[tuple[Text, ...], NonEmpty()] | None = None
    """Several columns whose strings are joined."""
    expression: Text | None = None
    file: Text | None = None
    """A regular expression that extracts the value from the file name."""
    line: bool | None = None
    """Whether the value is the record's number in its file."""
    value: object = None
    """A constant value."""
    default: object = None
    """Default for records without a value."""
    format: Text | None = None
    """Time format, if it differs from the file's format."""
    lookup: Text | None = None
    """The lookup table that gives the meaning of the string."""
    missing: Text | tuple[str, ...] | None = None
    """Further words for an unknown value."""
    regex: Text | None = None
    separator: str | None = None
    """Separator between the strings of several columns."""
    unit: Text | None = None
    words: dict[str, Text | tuple[str, ...]] | None = None
    """The source's words for each of the Trace's words."""


class Spot(NamedTuple):
    """A place in a mapping file."""

    text: TomlText
    place: Place = ()

    def below(self, *names: str) -> Spot:
        """Return a place inside this place."""
        return Spot(self.text, (*self.place, *names))

    def error(self, what: str, name: str | None = None, hint: str | None = None) -> UsageError:
        """Return the error to raise for a key at this place, or for the place itself."""
        return self.text.error(self.place if name is None else (*self.place, name), what, hint)

    @property
    def data(self) -> dict[str, Any]:
        """The file's keys at this place."""
        found: Any = self.text.data
        for name in self.place:
            found = found[name]
        return dict(found)

    def only(self, given: Iterable[str], allowed: Iterable[str]) -> None:
        """Check that only allowed keys are given.

        Raises
        ------
        UsageError
            A key is not allowed.
        """
        known = list(allowed)
        for name in given:
            if name not in known:
                raise self.error("no such key", name, nearest(name[:80], known))

    def choice(self, name: str, value: str | None, choices: Iterable[str]) -> None:
        """Check that a key's value is one of the choices or missing.

        Raises
        ------
        UsageError
            The value is not one of the choices.
        """
        known = list(choices)
        if value is not None and value not in known:
            raise self.error(f"'{value}' is not an allowed value", name, nearest(value[:80], known))


class LookedUp(NamedTuple):
    """The content of a lookup table."""

    words: Mapping[str, str]
    exact: bool
    """Whether * and ? in the keys are ordinary characters, as in a file."""


@dataclass(frozen=True)
class ColumnRule:
    """The rule that produces the values of one column."""

    target: Column
    """The column to fill."""
    key: str
    """Dotted key in the mapping file."""
    file: Path
    """The mapping file, for messages."""
    entry: Entry
    """Source of the values."""
    keep_empty: bool = False
    """Whether joining several columns keeps an empty cell's place, rather than skipping it."""
    expression: Expression | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    """The Trace's word for each source word."""
    tables: Mapping[str, LookedUp] = field(default_factory=dict)
    """Content of the rule's lookup tables, once they have been read."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns of the raw file that the rule reads."""
        if self.expression is not None:
            return tuple(dict.fromkeys([*self.expression.names, *(of for _, of in self.expression.calls.values())]))
        return (self.entry.columns or ()) if self.entry.column is None else (self.entry.column,)

    @property
    def lookups(self) -> tuple[str, ...]:
        """Lookup tables that the rule names."""
        if self.expression is not None:
            return tuple(table for table, _ in self.expression.calls.values())
        return () if self.entry.lookup is None else (self.entry.lookup,)

    @property
    def default(self) -> Any:
        """Default for records without a value."""
        return self.entry.default

    @property
    def factor(self) -> float:
        """Factor from the log's unit to the target's unit, if the values are numbers."""
        own, unit = self.entry.unit, self.target.unit
        return 1.0 if own is None or unit is None or own in TEXT_UNITS.values() else FACTORS[unit][own]

    @property
    def separator(self) -> str:
        """Separator between the strings of several columns."""
        if self.entry.separator is not None:
            return self.entry.separator
        return " " if self.target.kind == "datetime" else "."

    @property
    def reads_text(self) -> bool:
        """Whether the values come from text, that is, from cells or the file name."""
        return bool(self.entry.column or self.entry.columns or self.entry.file)

    @property
    def label(self) -> str:
        """Name of the column in the rejects table."""
        return ", ".join(self.sources) or self.target.name


def parse_rule(
    spot: Spot, given: str | Entry, target: Column, *, relative: bool = False, lookups: Collection[str] | None = None
) -> ColumnRule:
    """Parse the rule at a place in the file. `lookups` names the lookup tables that the rule may use.

    Raises
    ------
    UsageError
        The entry is wrong.
    """
    entry = Entry(column=given) if isinstance(given, str) else given
    sources = [key for key in _SOURCES if getattr(entry, key) is not None]
    if len(sources) != 1:
        raise spot.error("needs exactly one of column, columns, expression, file, line and value")
    if entry.line is False or (entry.line and target.kind not in ("string", "integer")):
        raise spot.error("line = true numbers records, so it needs a text or integer column", "line")
    _refuse_idle(spot, entry, sources[0], target)
    if entry.columns is not None and target.kind not in ("string", "datetime"):
        raise spot.error(f"{target.name} is not a string or a time", "columns", 'use expression = "..." for numbers')
    if entry.lookup is not None and lookups is None:
        raise spot.error("applies only to table columns", "lookup", "remove it")
    check_regex(spot, "file", entry.file)
    spot.choice("lookup", entry.lookup, lookups or ())
    expression = _expression(spot, entry, target, lookups or ())
    _check_constant(spot, "value", entry.value, target)
    check_regex(spot, "regex", entry.regex)
    check_format(spot, "format", entry.format, relative=relative)
    _check_unit(spot, entry, target)
    _check_constant(spot, "default", entry.default, target)
    words = _words(spot, entry, target)
    return ColumnRule(target, dotted(spot.place), spot.text.path, entry, expression=expression, words=words)


def _refuse_idle(spot: Spot, entry: Entry, given: str, target: Column) -> None:
    """Reject keys that have no effect."""
    cells, text = given in ("column", "columns"), given in ("column", "columns", "file")
    fits = {
        "regex": cells,
        "format": text and target.kind == "datetime",
        "unit": (text or given == "expression") and bool(units_of(target.unit)),
        "words": text and target.kind in ("string", "boolean"),
        "default": (text or given == "expression") and target.kind != "datetime",
        "missing": cells or given == "expression",
        "separator": given == "columns",
        "lookup": text,
    }
    for key, useful in fits.items():
        if getattr(entry, key) is not None and not useful:
            raise spot.error(f"has no effect on {target.name} with {given}", key, "remove it")


def _expression(spot: Spot, entry: Entry, target: Column, lookups: Collection[str]) -> Expression | None:
    text = entry.expression
    if text is None:
        return None
    if target.kind not in ("number", "integer"):
        raise spot.error(f"{target.name} is not a number", "expression", 'use column = "..."')
    try:
        return parse_expression(text, lookups)
    except ValueError as error:
        raise spot.error(f"'{text}' {error}", "expression") from error


def _check_constant(spot: Spot, key: str, value: object, target: Column) -> None:
    if value is None:
        return
    kinds = _PYTHON.get(target.kind)
    if kinds is None:
        raise spot.error(f"{target.name} cannot be constant", key, 'use column = "..."')
    if not isinstance(value, kinds) or (isinstance(value, bool) and target.kind != "boolean"):
        raise spot.error(f"{value!r} does not fit {target.name} ({target.kind})", key)
    if target.enum and value not in target.enum:
        raise spot.error(f"'{value}' is not a {target.name}", key, nearest(str(value), target.enum))
    if isinstance(value, int | float) and target.minimum is not None and value < target.minimum:
        raise spot.error(f"is below {target.minimum:g}", key)


def _check_unit(spot: Spot, entry: Entry, target: Column) -> None:
    spot.choice("unit", entry.unit, units_of(target.unit))
    if entry.expression is not None and entry.unit in TEXT_UNITS.values():
        what = f"'{entry.unit}' needs text, but an expression gives a number"
        raise spot.error(what, "unit", "use column, or another unit")


def check_regex(spot: Spot, key: str, pattern: str | None, named: tuple[str, ...] = ()) -> None:
    """Check that Polars accepts a regular expression. `named` lists the allowed group names."""
    if pattern is None:
        return
    if len(pattern) > _LONGEST_REGEX:
        raise spot.error(f"is longer than {_LONGEST_REGEX:,} characters", key, "write a shorter regular expression")
    try:
        groups = pl.Series([""]).str.extract_groups(pattern).struct.fields
        pl.Series([""]).str.extract(pattern, 0)
    except pl.exceptions.PolarsError as error:
        reason = next((row for row in str(error).splitlines() if row.startswith("error:")), "error: cannot be used")
        raise spot.error(
            f"bad regular expression '{pattern}': {reason.removeprefix('error:').strip()}",
            key,
            "use Rust syntax, without look-around",
        ) from error
    for group in groups if named else ():
        if group not in named:
            raise spot.error(f"the group '{group}' is not allowed", key, f"name groups {', '.join(named)}")
    if named and named[0] not in groups:
        raise spot.error(f"has no group '{named[0]}'", key, f"write (?<{named[0]}>...)")


def check_format(spot: Spot, key: str, form: str | None, *, relative: bool) -> None:
    """Check that a time format is valid or missing."""
    if form is None:
        return
    if fault := format_fault(form):
        raise spot.error(f"'{form}' is not a time format", key, fault)
    if relative and form not in EPOCHS:
        raise spot.error("relative times are numbers", key, f"use one of: {', '.join(EPOCHS)}")


def _words(spot: Spot, entry: Entry, target: Column) -> dict[str, str]:
    if entry.words is None:
        # Without a list, the source must use the Trace's words.
        return _BOOLEAN if target.kind == "boolean" else {word: word for word in target.enum}
    allowed = ("false", "true") if target.kind == "boolean" else target.enum
    if allowed:
        spot.below("words").only(entry.words, allowed)
    return word_table(spot.below("words"), entry.words)


def check_patterns(spot: Spot, words: Iterable[str]) -> None:
    """Check that no word with * or ? is too long."""
    for word in words:
        if len(word) > _LONGEST_WORD and ("*" in word or "?" in word):
            what = f"'{word[:20]}...' is a pattern of more than {_LONGEST_WORD} characters"
            raise spot.error(what, hint="shorten it")


def word_table(spot: Spot, words: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    """Return a mapping from source word to common word, given the source words for each common word."""
    found: dict[str, str] = {}
    for name, given in words.items():
        check_patterns(spot, several(given))
        for word in several(given):
            if found.setdefault(word, name) != name:
                raise spot.error(f"'{word}' is also under {found[word]}", name, "keep one of them")
    return found


def several(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Convert a single string to a list with one entry, and return a list unchanged."""
    return (given,) if isinstance(given, str) else given
