"""Wall-clock times become UTC; one that names no single instant is unknown."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.localtime import instants, to_utc


def utc(local: str, doubled_hour: str = "null", zone: str = "America/Los_Angeles") -> dt.datetime | None:
    found: dt.datetime | None = to_utc(pl.Series([dt.datetime.fromisoformat(local)]), zone, doubled_hour).item()
    return found


@pytest.mark.parametrize(
    ("doubled_hour", "expected"),
    [
        ("null", None),
        ("bounded", None),  # no other times of a record tell which one fits
        ("first", dt.datetime(2017, 11, 5, 8, 30)),
        ("second", dt.datetime(2017, 11, 5, 9, 30)),
    ],
)
def test_a_time_in_the_doubled_hour_is_unknown_unless_an_hour_is_chosen(
    doubled_hour: str, expected: dt.datetime | None
) -> None:
    assert utc("2017-11-05 01:30", doubled_hour) == expected


@pytest.mark.parametrize(
    ("doubled_hour", "expected"),
    [
        ("null", None),
        ("bounded", None),
        ("first", dt.datetime(2018, 3, 11, 9, 30)),  # 01:30 PST, by a clock that had changed too early
        ("second", dt.datetime(2018, 3, 11, 10, 30)),  # 03:30 PDT, by one that had not changed yet
    ],
)
def test_a_time_in_the_skipped_hour_means_two_instants_as_well(doubled_hour: str, expected: dt.datetime | None) -> None:
    assert utc("2018-03-11 02:30", doubled_hour) == expected


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


@given(
    times=st.lists(st.none() | st.datetimes(dt.datetime(2017, 10, 1), dt.datetime(2018, 4, 1)), max_size=8),
    doubled_hour=st.sampled_from(["null", "first", "second"]),
    zone=st.sampled_from(["America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
)
def test_a_column_of_times_converts_as_each_of_them_does(
    times: list[dt.datetime | None], doubled_hour: str, zone: str
) -> None:
    def instant(local: dt.datetime) -> dt.datetime | None:
        """Return the instant by the standard library, which knows two readings of each wall-clock time."""
        readings = sorted(local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(dt.UTC) for fold in (0, 1))
        if readings[0] != readings[1] and doubled_hour == "null":
            return None
        return readings[doubled_hour == "second"].replace(tzinfo=None)

    found = to_utc(pl.Series(times, dtype=pl.Datetime("us")), zone, doubled_hour).to_list()
    assert found == [None if t is None else instant(t) for t in times]


@pytest.mark.parametrize("year", [-1, 0, 1, 9999, 10_000, 200_000])
def test_a_year_outside_of_pythons_dates_costs_no_other_time(year: int) -> None:
    noon = pl.Series([dt.datetime(2024, 3, 1, 12)], dtype=pl.Datetime("us"))
    far = pl.Series([noon.dt.epoch("us")[0] + (year - 2024) * 31_556_952_000_000]).cast(pl.Datetime("us"))
    for zone in ("America/New_York", "Asia/Shanghai"):
        assert to_utc(pl.concat([noon, far]), zone)[0] == to_utc(noon, zone)[0]
        assert to_utc(far, zone).dt.year().to_list() in ([year], [year - 1], [year + 1])


def test_a_span_of_many_years_keeps_the_offset_of_each() -> None:
    column = pl.Series([dt.datetime(1975, 1, 1), dt.datetime(2017, 8, 7, 12)])
    assert to_utc(column, "America/Los_Angeles").to_list() == [
        dt.datetime(1975, 1, 1, 8),
        dt.datetime(2017, 8, 7, 19),
    ]


@pytest.mark.parametrize(
    ("local", "earliest", "latest"),
    [
        ("2017-11-05 01:30", "2017-11-05 08:30", "2017-11-05 09:30"),  # twice: PDT (-7), then PST (-8)
        ("2017-03-12 02:30", "2017-03-12 09:30", "2017-03-12 10:30"),  # skipped: 01:30 PST, or 03:30 PDT
        ("2017-11-05 02:30", "2017-11-05 10:30", "2017-11-05 10:30"),
    ],
)
def test_a_wall_clock_means_one_instant_or_two(local: str, earliest: str, latest: str) -> None:
    found = instants(pl.Series([dt.datetime.fromisoformat(local), None]), "America/Los_Angeles")
    assert found.earliest.to_list() == [dt.datetime.fromisoformat(earliest), None]
    assert found.latest.to_list() == [dt.datetime.fromisoformat(latest), None]
    assert found.doubtful.to_list() == [earliest != latest, False]


@given(
    st.sampled_from(["Asia/Shanghai", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Africa/Casablanca"]),
    st.datetimes(dt.datetime(2015, 12, 20), dt.datetime(2022, 1, 10)),
    st.lists(st.integers(0, 3 * 86_400), min_size=1, max_size=5),
)
def test_blocks_of_a_log_have_the_offsets_of_their_zone(zone: str, begin: dt.datetime, after_s: list[int]) -> None:
    local = [begin.replace(microsecond=0) + dt.timedelta(seconds=s) for s in after_s]
    found = instants(pl.Series(local, dtype=pl.Datetime("us")), zone)
    here = ZoneInfo(zone)
    for clock, earliest, latest in zip(local, found.earliest, found.latest, strict=True):
        for instant in {earliest, latest}:
            shown = instant.replace(tzinfo=dt.UTC).astimezone(here).replace(tzinfo=None)
            skipped = clock.replace(tzinfo=here).astimezone(dt.UTC).astimezone(here).replace(tzinfo=None) != clock
            assert shown == clock or (skipped and abs(shown - clock) == dt.timedelta(hours=1))
