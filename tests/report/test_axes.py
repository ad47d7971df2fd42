from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report.axes import TICKS, date_ticks, dates, days, durations, hours, names, number, share, time_ends

START = datetime(2017, 10, 9, 7, 13)  # a Monday


@pytest.mark.parametrize(
    ("span", "ticks"),
    [
        (timedelta(hours=5), ["09 08:00", "09 09:00", "09 10:00", "09 11:00", "09 12:00"]),
        (timedelta(days=4), ["09 12:00", "10 00:00", "10 12:00", "11 00:00", "11 12:00", "12 00:00"]),
        (timedelta(days=12), ["11 00:00", "13 00:00", "15 00:00", "17 00:00", "19 00:00", "21 00:00"]),
        (timedelta(days=25), ["16 00:00", "23 00:00", "30 00:00"]),
        (timedelta(days=200), ["01 00:00"] * 6),
    ],
)
def test_ticks_stand_where_people_count(span: timedelta, ticks: list[str]) -> None:
    assert [f"{t:%d %H:%M}" for t in date_ticks(START, START + span)][: len(ticks)] == ticks


@given(
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2000, 1, 1)),
    st.timedeltas(min_value=timedelta(minutes=10), max_value=timedelta(days=95_000)),  # up to 2260
)
def test_ticks_are_few_even_and_inside(first: datetime, span: timedelta) -> None:
    ticks = date_ticks(first, first + span)
    assert 1 <= len(ticks) <= TICKS + 1
    assert first <= ticks[0].replace(tzinfo=None)
    assert ticks[-1].replace(tzinfo=None) <= first + span
    steps = [after - before for before, after in pairwise(ticks)]
    # Months, and what they add up to, differ by days.
    assert not steps or max(steps) - min(steps) <= timedelta(days=3)


def test_dates_are_written_as_numbers_and_months_with_their_year() -> None:
    axis = dates("time", START, START + timedelta(days=300), "Asia/Shanghai").channel()["axis"]
    first = datetime(2017, 11, 1, tzinfo=UTC)
    assert axis["values"]["expr"].startswith(f"[{int(first.timestamp() * 1000)}, ")
    assert axis["labelExpr"] == "utcFormat(datum.value, '%b %Y')"
    assert axis["title"] == "time (Asia/Shanghai)"


def test_hours_can_be_thinned_evenly() -> None:
    axis = hours().channel()["axis"]
    assert axis["values"] == [0, 3, 6, 9, 12, 15, 18, 21]
    assert axis["labelOverlap"] == "parity"


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        ([12 * 60, 5 * 86400], (600, 7 * 86400), [600, 3600, 6 * 3600, 86400, 7 * 86400]),
        ([15, 20 * 3600], (10, 86400), [10, 60, 600, 3600, 6 * 3600, 86400]),
        ([0, 0.2, 20 * 3600], (0, 86400), [0, 1, 10, 60, 600, 3600, 6 * 3600, 86400]),
        ([0, 86400.3], (0, 86400), [0, 1, 10, 60, 600, 3600, 6 * 3600, 86400]),
        ([3600, 3600], (1800, 3600), [1800, 3600]),
        ([], (0, 60), [0, 1, 10, 60]),
    ],
)
def test_durations_stand_between_ticks(values: list[float], ends: tuple[float, float], ticks: list[float]) -> None:
    assert time_ends(values) == ends
    axis = durations("s", "t", values)
    assert axis.labels["values"] == ticks
    domain = axis.scale["domain"]
    assert domain == ([-0.15, ends[1]] if ends[0] < 1 else list(ends))


@given(st.lists(st.floats(min_value=0, max_value=365 * 86400), min_size=1))
def test_an_axis_of_durations_has_no_value_beyond_its_ticks_and_little_empty_room(values: list[float]) -> None:
    axis = durations("s", "t", values)
    ticks, (low, top) = axis.labels["values"], axis.scale["domain"]
    assert ticks == sorted(set(ticks))
    assert ticks[-1] == top >= max(values) / 1.005
    assert top <= 3.1 * max(*values, 60)
    if low >= 1:
        assert ticks[0] == low <= min(values) * 1.005
        assert min(values) <= 3.1 * low
    assert all(low <= tick <= top for tick in ticks)
    assert all(after >= 1.9 * before for before, after in pairwise(t for t in ticks if t))


@pytest.mark.parametrize(
    ("last", "ticks"),
    [(149.3, list(range(0, 141, 20))), (0.0, [0.0]), (1.3, [0, 0.25, 0.5, 0.75, 1, 1.25]), (44, list(range(0, 41, 5)))],
)
def test_days_end_with_the_data(last: float, ticks: list[float]) -> None:
    axis = days("time", last)
    assert axis.labels["values"] == ticks
    assert axis.scale["domain"] == [0, last or 1]


def test_numbers_and_shares_from_0_on_end_on_ticks() -> None:
    for axis in (number("x", "x", ticks=4), share("x", "x")):
        assert axis.scale == {"domainMin": 0, "nice": axis.labels["tickCount"]}
    assert share("x", "x", whole=True).scale == {"domain": [0, 1]}
    assert number("x", "x", scale={"zero": False}).scale == {"zero": False}


def test_an_axis_of_names_is_as_long_as_these_and_its_title_need() -> None:
    assert names("x", ["a", "b", "c"], step=20).length == 60
    assert names("x", [], step=20).length == 20
    assert names("x", ["a"], "title", step=20).length == 96


def test_the_same_axis_serves_another_column() -> None:
    axis = share("mean", "share of jobs", stacked=True)
    assert axis.of("low").channel() == {**axis.channel(), "field": "low"}
    assert axis.channel()["stack"] == "zero"
