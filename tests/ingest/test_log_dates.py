"""Dates that cannot be a log's own, block by block."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.time_faults import FAR, LogDates

DAY = dt.timedelta(days=1)
EPOCH = dt.datetime(1970, 1, 1)
LAST_32_BITS = dt.datetime(2038, 1, 19, 3, 14, 7)
BEGIN = dt.datetime(2020, 4, 1)


def block(*times: dt.datetime | None, repeat: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"time": list(times) * repeat}, schema={"time": pl.Datetime("us")})


def wrong(dates: LogDates, frame: pl.DataFrame) -> list[int]:
    """Return the rows that are impossible."""
    masks = dates.impossible(frame)
    return masks["time"].arg_true().to_list() if "time" in masks else []


def test_a_small_block_is_held_against_the_large_one_before() -> None:
    dates = LogDates()
    assert wrong(dates, block(BEGIN, BEGIN + DAY, repeat=500)) == []
    # Alone, the second block would pass: its times are near each other.
    late = BEGIN + FAR + 2 * DAY
    assert wrong(dates, block(late, late + DAY)) == [0, 1]
    assert wrong(dates, block(BEGIN + DAY, None, EPOCH)) == [2]


def test_a_large_block_moves_the_middle_and_a_block_without_dates_does_not() -> None:
    dates = LogDates()
    late = BEGIN + FAR + 10 * DAY
    assert wrong(dates, block(BEGIN, repeat=1000)) == []
    assert wrong(dates, block(late, repeat=1000)) == []
    assert wrong(dates, block(None, repeat=1000)) == []
    assert wrong(dates, block(BEGIN, late)) == [0]


def test_dates_that_python_cannot_write_are_impossible() -> None:
    year_s = 31_556_952
    frame = pl.DataFrame({"time": [0, -1970 * year_s, 9000 * year_s]})
    times = frame.select((pl.col("time") * 1_000_000).cast(pl.Datetime("us")))
    assert wrong(LogDates(), times) == [1, 2]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((BEGIN, BEGIN, LAST_32_BITS), [2]),  # 18 years off, but where a time is unknown logs write just this
        ((BEGIN, BEGIN, LAST_32_BITS + 3 * DAY), []),
        ((LAST_32_BITS - 30 * DAY, LAST_32_BITS, LAST_32_BITS - DAY), []),  # a log of that very time
        ((BEGIN, BEGIN, EPOCH), [2]),
        ((EPOCH, EPOCH + DAY, EPOCH + 100 * DAY), []),  # times that count from the epoch
        ((BEGIN, BEGIN, EPOCH - DAY), [2]),
    ],
)
def test_known_marks_of_unknown_times(times: tuple[dt.datetime, ...], expected: list[int]) -> None:
    assert wrong(LogDates(), block(*times)) == expected


def _by_the_rule(times: list[dt.datetime | None]) -> list[int]:
    """Return the impossible rows of a first block by the rule in words, one time after the other."""
    held = sorted(t for t in times if t is not None and EPOCH <= t <= dt.datetime(2100, 1, 1))
    later = [t for t in held if t > EPOCH + 2 * DAY] or held
    below, above = (later[(len(later) - 1) // 2], later[len(later) // 2]) if later else (None, None)
    middle = below + (above - below) / 2 if below and above else None
    found = []
    for row, time in enumerate(times):
        if time is None:
            continue
        far = middle is not None and abs(time - middle) > FAR
        mark = middle is not None and abs(middle - LAST_32_BITS) > 366 * DAY and abs(time - LAST_32_BITS) < 2 * DAY
        if far or mark or not EPOCH <= time <= dt.datetime(2262, 1, 1):
            found.append(row)
    return found


_YEARS = st.integers(-5, 300).map(lambda year: EPOCH + year * 365 * DAY)
_MARKS = st.sampled_from([EPOCH, LAST_32_BITS, LAST_32_BITS - 300 * DAY, BEGIN, BEGIN + 3000 * DAY])


@given(st.lists(st.one_of(st.none(), _MARKS, _YEARS), min_size=1, max_size=8))
def test_a_block_is_judged_by_the_rule(times: list[dt.datetime | None]) -> None:
    assert wrong(LogDates(), block(*times)) == _by_the_rule(times)
