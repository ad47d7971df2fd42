from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report.axes import TICKS, date_axis, date_ticks, end_on_ticks, hour_axis

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
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)),
    st.timedeltas(min_value=timedelta(minutes=10), max_value=timedelta(days=40_000)),
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
    axis = date_axis(START, START + timedelta(days=300), "Asia/Shanghai").to_dict()
    first = datetime(2017, 11, 1, tzinfo=UTC)
    assert axis["values"]["expr"].startswith(f"[{int(first.timestamp() * 1000)}, ")
    assert axis["labelExpr"] == "utcFormat(datum.value, '%b %Y')"
    assert axis["title"] == "time (Asia/Shanghai)"


def test_hours_can_be_thinned_evenly() -> None:
    axis = hour_axis().to_dict()
    assert axis["values"] == [0, 3, 6, 9, 12, 15, 18, 21]
    assert axis["labelOverlap"] == "parity"


def test_only_round_linear_scales_end_on_ticks() -> None:
    axis = {"tickCount": 4}
    spec: dict[str, Any] = {
        "layer": [
            {"encoding": {"x": {"axis": axis}, "y": {"axis": axis, "scale": {"domainMin": 0, "nice": True}}}},
            {"encoding": {"x": {"axis": axis, "scale": {"type": "log"}}, "y": {"axis": None}}},
            {"encoding": {"x": {"axis": axis, "scale": {"domain": [0, 1]}}, "y": {"axis": {}}}},
        ]
    }
    end_on_ticks(spec)
    scales = [[channel.get("scale") for channel in part["encoding"].values()] for part in spec["layer"]]
    assert scales == [[{"nice": 4}, {"domainMin": 0, "nice": 4}], [{"type": "log"}, None], [{"domain": [0, 1]}, None]]
