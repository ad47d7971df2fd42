"""Axes whose ticks must fall on round values: dates, hours of the day, and amounts that begin at 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt

__all__ = ["date_axis", "date_ticks", "end_on_ticks", "hour_axis"]

TICKS = 10
"""Most dates on an axis; a narrow chart shows every second or fourth of them."""

_STEPS = (
    *(timedelta(minutes=m) for m in (1, 5, 15, 30)),
    *(timedelta(hours=h) for h in (1, 2, 3, 6, 12)),
    *(timedelta(days=d) for d in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120)
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def hour_axis() -> alt.Axis:
    """Return an axis for the hours of a day, labelled every 3 hours, or every 6 or 12 where that is too close."""
    import altair as alt

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
    import altair as alt

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
