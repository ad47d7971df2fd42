"""Axes whose ticks must fall on round values: dates, hours of the day, durations, and amounts that begin at 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = [
    "date_axis",
    "date_ticks",
    "day_axis",
    "day_scale",
    "end_on_ticks",
    "hour_axis",
    "time_axis",
    "time_ends",
    "time_scale",
]

TICKS = 10
"""Most dates on an axis; a narrow chart shows every second or fourth of them."""

_STEPS = (
    *(timedelta(minutes=m) for m in (1, 5, 15, 30)),
    *(timedelta(hours=h) for h in (1, 2, 3, 6, 12)),
    *(timedelta(days=d) for d in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def hour_axis() -> alt.Axis:
    """Return an axis for the hours of a day, labelled every 3 hours, or every 6 or 12 where that is too close."""
    return alt.Axis(
        title="hour of the day",
        labelAngle=0,
        values=list(range(0, 24, 3)),
        labelExpr="datum.value + ':00'",
        labelOverlap="parity",
        labelSeparation=6,
    )


def date_axis(first: datetime, last: datetime, timezone: str = "UTC") -> alt.Axis:
    """Return an axis of times from `first` to `last`, at equal distances that people count in.

    The times are those that clocks of the time zone show, drawn as if they were of UTC.
    """
    ticks = date_ticks(first, last)
    words = "utcFormat(datum.value, '%-d %b')"
    if any(t.hour or t.minute for t in ticks):
        words = f"utchours(datum.value) + utcminutes(datum.value) ? utcFormat(datum.value, '%H:%M') : {words}"
    elif len(ticks) > 1 and ticks[1] - ticks[0] >= timedelta(days=28):
        words = "utcFormat(datum.value, '%b %Y')"
    # As numbers: a list of times would become calls of datetime(), of which the page's interpreter makes no date.
    values = ", ".join(str(int(t.timestamp() * 1000)) for t in ticks)
    return alt.Axis(
        title=f"time ({timezone})",
        values=alt.ExprRef(f"[{values}]"),
        labelExpr=words,
        labelOverlap="parity",
        labelSeparation=12,
    )


def date_ticks(first: datetime, last: datetime) -> list[datetime]:
    """Return at most `TICKS` round times in UTC from `first` to `last`.

    They are minutes, hours, midnights, Mondays or first days of months, whichever are close enough.

    Examples
    --------
    >>> [f"{t:%d %b}" for t in date_ticks(datetime(2017, 10, 9, 7), datetime(2017, 11, 13))]
    ['16 Oct', '23 Oct', '30 Oct', '06 Nov', '13 Nov']
    """
    first, last = (t.replace(tzinfo=UTC) if t.tzinfo is None else t.astimezone(UTC) for t in (first, last))
    step = next((s for s in _STEPS if (last - first) // s < TICKS), None)
    if step is None:
        return _months(first, last)
    # Whole weeks begin on a Monday, everything shorter falls on midnight.
    start = _MONDAY if step.days % 7 == 0 else first.replace(hour=0, minute=0, second=0, microsecond=0)
    tick = start + step * -((start - first) // step)
    found = []
    while tick <= last:
        found.append(tick)
        tick += step
    return found


def _months(first: datetime, last: datetime) -> list[datetime]:
    begin, end = (12 * t.year + t.month - 1 for t in (first, last))
    step = next((m for m in _MONTHS if (end - begin) // m < TICKS), _MONTHS[-1])
    found = [datetime(m // 12, m % 12 + 1, 1, tzinfo=UTC) for m in range(-(-begin // step) * step, end + 1, step)]
    return [t for t in found if first <= t <= last]


_DAY_STEPS = (0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 90, 180, 365, 730)
_DAY_TICKS = 9


def day_axis(last: float, timezone: str | None = None) -> alt.Axis:
    """Return an axis of days from the start of a trace to `last`, labelled at a few round days.

    Days that begin at midnight in a time zone count from that before the trace.
    """
    step = next((s for s in _DAY_STEPS if last / s < _DAY_TICKS), _DAY_STEPS[-1])
    ticks = [number * step for number in range(int(last / step) + 1)]
    title = "days since the start of the trace" if timezone is None else f"days since the first midnight ({timezone})"
    return alt.Axis(title=title, values=ticks, labelOverlap="parity", labelSeparation=8)


def day_scale(last: float) -> alt.Scale:
    """Return the scale from the start of a trace to the day `last`, which need not be a round one."""
    return alt.Scale(domain=[0, last or 1], nice=False)


_DAY_S = 86400
_TICKS_S = (0, 1, 10, 60, 600, 3600, 6 * 3600, *(days * _DAY_S for days in (1, 7, 30, 365)))
_ENDS_S = (
    *(1, 2, 5, 10, 30),
    *(minutes * 60 for minutes in (1, 2, 5, 10, 30)),
    *(hours * 3600 for hours in (1, 2, 6, 12)),
    *(days * _DAY_S for days in (1, 2, 4, 7, 14, 30, 60, 120, 365)),
)
"""Where an axis of durations may begin and end: close enough that little room stays empty."""
_LEAST_TOP_S = 60
_APART = 1.9
"""Least ratio of a tick and the end beside it."""
_APART_OF_SPAN = 0.1
"""Least part of a logarithmic axis between them, so that the ends keep their labels on a narrow one."""
_SAME = 1.005
"""Ratio up to which a value counts as on a tick."""

_TICK_WORDS = (
    "datum.value === 0 ? '0' : datum.value < 60 ? datum.value + ' s' : datum.value < 3600 ? datum.value / 60 + ' min'"
    " : datum.value < 86400 ? datum.value / 3600 + ' h' : datum.value / 86400 + ' d'"
)


def time_ends(values: Iterable[float]) -> tuple[float, float]:
    """Return the round durations [s] just below and just above all values.

    Below 1 s, and above a year, there is none: there the value itself is the end.

    Examples
    --------
    >>> time_ends([15 * 60, 20 * 3600]), time_ends([0, 5]), time_ends([3600])
    ((600, 86400), (0, 60), (1800, 3600))
    """
    known = [v for v in values if v >= 0] or [0]
    least, most = min(known), max(*known, _LEAST_TOP_S)
    top = next((end for end in _ENDS_S if most <= end * _SAME), most * 1.1)
    low = max((end for end in _ENDS_S if end <= least * _SAME and end < top), default=least)
    return low, top


def time_scale(values: Iterable[float]) -> alt.Scale:
    """Return a logarithmic scale for durations [s] that also has a place for 0 and ends on ticks of `time_axis`.

    Waits of 0 are common and must show: where any value is below 1 s, the scale is linear up to 1 s and
    logarithmic beyond.
    """
    low, top = time_ends(values)
    if low < 1:
        return alt.Scale(type="symlog", constant=1, domain=[-0.15, top], nice=False)
    return alt.Scale(type="log", domain=[low, top], nice=False)


def time_axis(title: str, values: Iterable[float]) -> alt.Axis:
    """Return an axis for durations [s] with ticks at both ends, and at 1 min, 1 h, 1 d and others between."""
    low, top = time_ends(values)
    apart = max(_APART, (top / max(low, 1)) ** _APART_OF_SPAN)
    inner = [t for t in _TICKS_S if low * apart <= t <= top / apart]
    ticks = sorted({*inner, *(end for end in (low, top) if end in _ENDS_S or end == 0)})
    return alt.Axis(title=title, values=ticks, labelExpr=_TICK_WORDS, labelOverlap="greedy", labelSeparation=8)


def end_on_ticks(spec: Any) -> None:
    """Let every linear axis of a Vega-Lite specification that states its number of ticks end on a tick.

    Vega-Lite rounds the ends of a scale for about 10 ticks; where fewer are drawn, marks would stand beyond the last.
    """
    if isinstance(spec, list):
        for part in spec:
            end_on_ticks(part)
    elif isinstance(spec, dict):
        for part in spec.values():
            end_on_ticks(part)
        axis = spec.get("axis")
        number = axis.get("tickCount") if isinstance(axis, dict) else None
        scale = spec.get("scale") or {}
        rounded = scale.get("nice", "domain" not in scale)
        if number and rounded is True and scale.get("type", "linear") == "linear" and "timeUnit" not in spec:
            spec["scale"] = {**scale, "nice": number}
