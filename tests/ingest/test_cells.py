"""Cells become typed values by their schema; one that does not is unknown, or names its record's fault."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from tracekit.ingest.cells import (
    FIRST_TIME,
    LAST_SECOND,
    LAST_TIME,
    BadCell,
    LostValues,
    count_lost,
    count_lost_rows,
    limited,
    says_nothing,
    typed_cells,
)
from tracekit.schema import Column, Kind, TableSchema

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

TIME = "%Y-%m-%d %H:%M:%S"


def table(*columns: Column, missing: tuple[str, ...] = ("", "NA"), strip: bool = False) -> TableSchema:
    return TableSchema("t", "T", "A table.", columns, missing=missing, dialect={"skipInitialSpace": strip})


def convert(column: Column, *cells: str | None, strip: bool = False) -> tuple[list[object], list[tuple[int, str]]]:
    frame = pl.DataFrame({column.name: cells}, schema={column.name: pl.String})
    typed, bad, lost = typed_cells(frame, table(column, strip=strip))
    assert typed.schema[column.name] == column.polars
    assert not bad or column.decides
    assert not lost or not column.decides
    assert all(rows.any() for _, _, rows in lost)
    faults = [(cell.row, cell.reason) for cell in bad]
    faults += [(row, reason) for _, reason, rows in lost for row in rows.arg_true()]
    return typed[column.name].to_list(), sorted(faults)


def test_whole_numbers_are_read_and_others_set_aside() -> None:
    column = Column("n", "integer", "A count.")
    assert convert(column, "7", " -3 ", "NA", None, "1.5", "x", "9223372036854775808") == (
        [7, -3, None, None, None, None, None],
        [(4, "is not a whole number"), (5, "is not a whole number"), (6, "is not a whole number")],
    )


def test_numbers_must_be_finite() -> None:
    column = Column("n", "number", "A size.")
    assert convert(column, "1.5", "2e3", "", "1e999", "x") == (
        [1.5, 2000.0, None, None, None],
        [(3, "is not a finite number"), (4, "is not a number")],
    )


def test_numbers_keep_to_their_bounds() -> None:
    column = Column("n", "integer", "A share.", minimum=0, maximum=1000)
    assert convert(column, "0", "1000", "-1", "1001") == (
        [0, 1000, None, None],
        [(2, "is below 0"), (3, "is above 1000")],
    )


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_no_limit_and_not_set_are_unknown_and_no_fault(kind: Kind) -> None:
    cells = ("7", "inf", "UNLIMITED", "NaN", "[]", "4294967295", "4294967294", "18446744073709551615", "4294967293")
    assert convert(Column("n", kind, "A limit."), *cells) == ([7, *[None] * 7, 4294967293], [])
    assert convert(Column("n", kind, "A limit."), "18446744073709551614") == ([None], [])
    assert convert(Column("s", "string", "A list."), "a", "[]", "inf") == (["a", None, "inf"], [])


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_the_smallest_word_for_not_set_is_found_alone(kind: Kind) -> None:
    assert convert(Column("n", kind, "A limit."), "4294967294") == ([None], [])
    assert convert(Column("n", kind, "A limit."), "4294967293") == ([4294967293], [])


def test_a_cell_is_lost_once_and_each_column_has_its_own() -> None:
    number = Column("n", "number", "A size.", maximum=10)
    assert convert(number, "3", "1e999") == ([3.0, None], [(1, "is not a finite number")])
    spec = table(number, Column("m", "integer", "Another.", minimum=0))
    _, bad, lost = typed_cells(pl.DataFrame({"n": ["x", "1"], "m": ["-1", "2"]}), spec)
    assert not bad
    assert [(one.column, one.rows.arg_true().to_list()) for one in lost] == [("n", [0]), ("m", [0])]


def test_whole_numbers_may_be_saved_with_decimals() -> None:
    assert convert(Column("n", "integer", "A count."), "7.0", "-3.0", "x", "7.5") == (
        [7, -3, None, None],
        [(2, "is not a whole number"), (3, "is not a whole number")],
    )


def test_a_record_is_unusable_for_what_it_cannot_be_without_alone() -> None:
    spec = table(
        Column("id", "integer", "A name.", required=True),
        Column("t", "number", "A start.", key=True),
        Column("day", "date", "A day.", format="%Y-%m-%d"),
        Column("since", "date", "Another.", format="%Y-%m-%d", key=False),
        Column("n", "integer", "A size.", minimum=0),
    )
    good = {"id": "1", "t": "2", "day": "2020-01-01", "since": "2020-01-01", "n": "3"}
    rows = [good, *(good | {name: "x"} for name in good), good | {"n": "-1"}]
    frame, bad, lost = typed_cells(pl.DataFrame(rows), spec)
    assert [(cell.row, cell.column) for cell in bad] == [(1, "id"), (2, "t"), (3, "day")]
    assert [(column, rows.arg_true().to_list()) for column, _, rows in lost] == [("since", [4]), ("n", [5]), ("n", [6])]
    assert frame.select("id", "t", "day").row(4) == (1, 2.0, dt.date(2020, 1, 1))
    assert frame["n"].to_list() == [3, 3, 3, 3, 3, None, None]


def test_text_keeps_its_blanks_unless_the_dialect_drops_them() -> None:
    column = Column("s", "string", "A name.")
    assert convert(column, " a ", "NA", "", None) == ([" a ", None, None, None], [])
    assert convert(column, " a ", " NA", strip=True) == (["a", None], [])


def test_a_required_cell_must_be_known() -> None:
    column = Column("s", "string", "A name.", required=True)
    assert convert(column, "a", "", "NA") == (["a", None, None], [(1, "is missing"), (2, "is missing")])


def test_times_follow_their_format() -> None:
    column = Column("t", "datetime", "A time.", format=TIME)
    reason = f"is not a time like {TIME}"
    assert convert(column, "2017-10-03 01:02:03", "2017-10-33 01:02:03", "2017-10-03", "2017-10-03 01:02:03 PDT") == (
        [dt.datetime(2017, 10, 3, 1, 2, 3), None, None, None],
        [(1, reason), (2, reason), (3, reason)],
    )


def test_times_and_dates_beyond_what_tools_hold_are_set_aside() -> None:
    moment = Column("t", "datetime", "A sample's time.", format=TIME, required=True)
    day = Column("d", "date", "A day.", format="%Y-%m-%d")
    out = "is a date out of range"
    assert convert(moment, "1969-12-31 23:59:59", "1970-01-01 00:00:00", "2262-01-01 00:00:01")[1] == [
        (0, out),
        (2, out),
    ]
    assert convert(day, "1969-12-31", "1970-01-01", "2262-01-02", "2020-02-30")[1] == [
        (0, out),
        (2, out),
        (3, "is not a date like %Y-%m-%d"),
    ]


def test_a_date_of_a_record_may_be_any() -> None:
    column = Column("t", "datetime", "A job's time.", format=TIME)
    assert convert(column, "1600-01-01 00:00:00", "9999-12-31 23:59:59") == (
        [dt.datetime(1600, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)],
        [],
    )


def test_a_zone_word_is_honoured_and_an_unlisted_one_set_aside() -> None:
    column = Column("t", "datetime", "A time.", format=TIME, zones={"PST": -8, "PDT": -7})
    assert convert(column, "2017-11-05 01:30:00 PDT", "2017-11-05 01:30:00 PST", "2017-11-05 01:30:00 CET") == (
        [dt.datetime(2017, 11, 5, 8, 30), dt.datetime(2017, 11, 5, 9, 30), None],
        [(2, f"is not a time like {TIME} with one of the zones PST, PDT")],
    )


def test_the_first_bad_column_in_schema_order_is_named_once_for_a_record() -> None:
    spec = table(Column("a", "integer", "A.", key=True), Column("b", "integer", "B.", key=True))
    frame = pl.DataFrame({"b": ["x", "2", "x"], "a": ["x", "1", "3"]})
    _, bad, _ = typed_cells(frame.select("a", "b"), spec)
    assert bad == [BadCell(0, "a", "is not a whole number"), BadCell(2, "b", "is not a whole number")]


def test_limits_hold_for_the_columns_named_and_no_other() -> None:
    spec = limited(table(Column("a", "integer", "A."), Column("b", "integer", "B.", key=True)), {"b": 9})
    _, bad, lost = typed_cells(pl.DataFrame({"a": ["-1", "99"], "b": ["-1", "99"]}), spec)
    assert lost == []
    assert bad == [BadCell(0, "b", "is below 0"), BadCell(1, "b", "is above 9")]


@pytest.mark.parametrize("cell", ["0x10", "1_000", "1,5", "٣", "--1"])
def test_spellings_of_numbers_that_logs_do_not_use_are_set_aside(cell: str) -> None:
    assert convert(Column("n", "integer", "A count."), cell) == ([None], [(0, "is not a whole number")])


def test_the_first_and_the_last_time_are_times_still() -> None:
    assert (str(FIRST_TIME), str(LAST_TIME)) == ("1970-01-01 00:00:00", "2262-01-01 00:00:00")
    # 292 years, of which 71 are leap years: 1972 to 2260, without 2100 and 2200.
    assert LAST_SECOND == (292 * 365 + 71) * 86_400
    column = Column("t", "datetime", "A sample's time.", format="%Y-%m-%d %H:%M:%S%.f", required=True)
    cells = ("1970-01-01 00:00:00", "1969-12-31 23:59:59", "2262-01-01 00:00:00", "2262-01-01 00:00:00.000001")
    assert convert(column, *cells)[1] == [(1, "is a date out of range"), (3, "is a date out of range")]


def test_the_first_and_the_last_day_are_days_still() -> None:
    column = Column("d", "date", "A day.", format="%Y-%m-%d")
    cells = ("1970-01-01", "1969-12-31", "2262-01-01", "2262-01-02")
    assert convert(column, *cells)[1] == [(1, "is a date out of range"), (3, "is a date out of range")]


@pytest.mark.parametrize(
    ("zones", "shown"),
    [("PST PDT", "PST, PDT"), ("AAA BBB CCC DDD", "AAA, BBB, CCC, DDD"), ("A B C D E", "A, B, C, D, ...")],
)
def test_a_reason_names_four_zones_at_most(zones: str, shown: str) -> None:
    column = Column("t", "datetime", "A time.", format=TIME, zones=dict.fromkeys(zones.split(), 0))
    ((_, reason),) = convert(column, "x")[1]
    assert reason == f"is not a time like {TIME} with one of the zones {shown}"


def test_times_in_zones_may_repeat_alternate_and_be_unknown() -> None:
    column = Column("t", "datetime", "A time.", format=TIME, zones={"PST": -8, "PDT": -7})
    winter, summer = "2017-01-01 00:00:00 PST", "2017-07-01 00:00:00 PDT"
    eight, seven = dt.datetime(2017, 1, 1, 8), dt.datetime(2017, 7, 1, 7)
    assert convert(column, winter, summer, winter, winter) == ([eight, seven, eight, eight], [])
    assert convert(column, None, winter, None, "", summer) == ([None, eight, None, None, seven], [])


class Heard:
    """The checks and notes that a sink gets."""

    def __init__(self) -> None:
        self.checks: list[tuple[Any, ...]] = []
        self.notes: list[str] = []

    def check(self, *counted: object) -> None:
        self.checks.append(counted)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("text", ["Unlimited", " infinite ", "4294967295", "18446744073709551614", "[]"])
def test_words_and_numbers_for_no_limit_say_nothing(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize("text", ["7", "4294967293", "[1]", "none"])
def test_other_words_and_numbers_say_something(text: str) -> None:
    assert not says_nothing(text)


@pytest.mark.parametrize(
    ("column", "name", "shown"),
    [
        ("Time Limit (h)", "unreadable_time_limit_h", "Time Limit (h)"),
        ("_ReqMem_", "unreadable_reqmem", "_ReqMem_"),
        ("???", "unreadable_column", "???"),
        ("x" * 100, "unreadable_" + "x" * 60, "x" * 80),
    ],
)
def test_a_lost_cell_is_counted_under_the_name_of_its_column(column: str, name: str, shown: str) -> None:
    sink = Heard()
    count_lost(cast("Sink", sink), column, "is not a number", ["y" * 81, "z"])
    count_lost(cast("Sink", sink), column, "is not a number", ["z"], 7)
    words = f"unreadable cells of the column '{shown}'; they become unknown, and their records are kept"
    assert sink.checks == [
        (name, 2, None, words, ["y" * 80 + ": is not a number", "z: is not a number"]),
        (name, 7, None, words, ["z: is not a number"]),
    ]


def test_values_of_a_record_are_lost_by_column() -> None:
    lost = LostValues()
    assert (lost.read("a", "7", int), lost.read("a", "", int), lost.read("a", None, int)) == (7, None, None)
    assert (lost.read("a", "unlimited", int), len(lost), "a" in lost) == (None, 0, False)
    assert lost.read("a", "x", int) is None
    lost.add("b", "y", "is odd")
    assert (len(lost), "a" in lost, "b" in lost, "c" in lost) == (2, True, True, False)
    sink = Heard()
    lost.count(cast("Sink", sink))
    assert [(name, count, examples) for name, count, _, _, examples in sink.checks] == [
        ("unreadable_a", 1, ["x: invalid literal for int() with base 10: 'x'"]),
        ("unreadable_b", 1, ["y: is odd"]),
    ]
    with pytest.raises(ZeroDivisionError):
        lost.read("a", "0", lambda text: 1 // int(text))  # only a ValueError means an unreadable cell


@pytest.mark.parametrize(
    ("cells", "lost", "noted"),
    [
        ("xxx1111-", 3, False),
        ("xxx111--", 3, False),  # half of those that say something
        ("xxx11---", 3, True),
        ("xxxxxxx-", 7, True),
        ("xxx11ii-", 3, True),
        ("111ii---", 0, False),
    ],
)
def test_lost_cells_of_used_records_are_counted_and_most_of_a_column_noted(cells: str, lost: int, noted: bool) -> None:
    """An x is unreadable, i is unreadable in a record that is not used, - is empty."""
    texts = pl.Series([None if cell == "-" else cell for cell in cells])
    rows, usable = pl.Series([cell in "xi" for cell in cells]), np.array([cell != "i" for cell in cells])
    sink = Heard()
    count_lost_rows(cast("Sink", sink), "c" * 100, "is not a number", rows, texts, usable)
    assert [(count, len(examples)) for _, count, _, _, examples in sink.checks] == [(lost, min(lost, 5))] * bool(lost)
    note = f"most cells of the column '{'c' * 80}' cannot be read (is not a number) and become unknown"
    assert sink.notes == [note] * noted
