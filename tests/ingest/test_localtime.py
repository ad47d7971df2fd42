"""Wall-clock times become UTC; one that names no single instant is unknown."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest

from tracekit.ingest.localtime import to_utc


def utc(local: str, doubled_hour: str = "null", zone: str = "America/Los_Angeles") -> dt.datetime | None:
    frame = pl.DataFrame({"t": [dt.datetime.fromisoformat(local)]})
    found: dt.datetime | None = frame.select(to_utc(pl.col("t"), zone, doubled_hour)).item()
    return found


@pytest.mark.parametrize(
    ("doubled_hour", "expected"),
    [("null", None), ("first", dt.datetime(2017, 11, 5, 8, 30)), ("second", dt.datetime(2017, 11, 5, 9, 30))],
)
def test_a_time_in_the_doubled_hour_is_unknown_unless_an_hour_is_chosen(
    doubled_hour: str, expected: dt.datetime | None
) -> None:
    assert utc("2017-11-05 01:30", doubled_hour) == expected


@pytest.mark.parametrize("doubled_hour", ["null", "first", "second"])
def test_a_time_in_the_skipped_hour_is_always_unknown(doubled_hour: str) -> None:
    assert utc("2018-03-11 02:30", doubled_hour) is None


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("2017-08-07 12:00", dt.datetime(2017, 8, 7, 19)),
        ("2017-12-22 12:00", dt.datetime(2017, 12, 22, 20)),
        ("2017-11-05 00:59:59", dt.datetime(2017, 11, 5, 7, 59, 59)),
        ("2017-11-05 02:00", dt.datetime(2017, 11, 5, 10)),
        ("2018-03-11 01:59:59", dt.datetime(2018, 3, 11, 9, 59, 59)),
        ("2018-03-11 03:00", dt.datetime(2018, 3, 11, 10)),
    ],
)
def test_other_times_follow_the_zone_of_their_season(local: str, expected: dt.datetime) -> None:
    assert utc(local) == expected


def test_a_zone_without_clock_changes_has_one_offset() -> None:
    assert utc("2020-04-01 00:00", zone="Asia/Shanghai") == dt.datetime(2020, 3, 31, 16)
