"""ISO weeks in a time zone, worked out by calendar and clock."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tracekit.digests.weeks import last_whole_week, week_of, weeks_before
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tests.reviewed import Golden


def test_week_begins_on_monday_in_its_zone() -> None:
    week = week_of("2026-W47", "Asia/Tokyo")
    assert week.monday == dt.date(2026, 11, 16)
    assert week.since == dt.datetime(2026, 11, 15, 15)
    assert week.until == dt.datetime(2026, 11, 22, 15)
    assert week.words == "16 to 22 November 2026"


def test_week_of_a_clock_change_has_169_hours() -> None:
    # Europe left summer time on Sunday, 25 October 2026.
    week = week_of("2026W43", "Europe/Berlin")
    assert (week.since, week.until) == (dt.datetime(2026, 10, 18, 22), dt.datetime(2026, 10, 25, 23))


def test_names_at_the_turn_of_the_year(golden: Golden) -> None:
    golden(week_of("2020-W53", "UTC").words)
    (before,) = weeks_before(week_of("2021-W01", "UTC"), 1, dt.datetime(2020, 1, 1))
    assert before.name == "2020-W53"


@pytest.mark.parametrize(
    "text", ["2026-47", "2026-W54", "2021-W53", "2026-W00", "", "W47", "9999-W52", "0000-W01", "٢٠٢٦-W47"]
)
def test_what_is_not_a_week(text: str) -> None:
    with pytest.raises(UsageError, match="--week: "):
        week_of(text, "UTC")


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("2026-11-22T23:50:00", "2026-W47"),  # Sunday night
        ("2026-11-22T00:00:00", "2026-W47"),  # a day before the end of the week: quiet nights are no gap
        ("2026-11-21T23:59:59", "2026-W46"),
        ("2026-11-28T12:00:00", "2026-W47"),
        ("2026-11-29T00:00:00", "2026-W48"),
        ("9999-12-31T23:59:59", "8999-W52"),  # 1 January 9000 is a Wednesday
    ],
)
def test_last_whole_week(end: str, name: str) -> None:
    assert last_whole_week(dt.datetime.fromisoformat(end), "UTC").name == name


def test_weeks_before_are_whole() -> None:
    week = week_of("2026-W47", "UTC")
    names = [one.name for one in weeks_before(week, 8, dt.datetime(2026, 10, 27))]
    assert names == ["2026-W44", "2026-W45", "2026-W46"]  # W44 began a day before the log, W43 eight
    assert len(weeks_before(week, 8, dt.datetime(2020, 1, 1))) == 8


def test_a_history_that_begins_in_year_1_holds_every_week_before() -> None:
    week = week_of("2026-W47", "UTC")
    assert [one.name for one in weeks_before(week, 2, dt.datetime(1, 1, 1))] == ["2026-W45", "2026-W46"]
