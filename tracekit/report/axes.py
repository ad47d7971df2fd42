"""Chart axes for numbers, shares, durations, names, hours of the day and times, with ticks at round values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tracekit.report.times import local, trace_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.facts import TraceFacts

TICKS = 10
"""Maximum number of dates on an axis. A narrow chart shows every second or fourth date."""


@dataclass(frozen=True)
class Axis:
    """A column of a chart's rows, and how its values map to positions (as Vega-Lite properties)."""

    column: str
    title: str | None = None
    type: str = "quantitative"
    """Vega-Lite type of the values: quantitative, nominal, ordinal or temporal."""
    scale: Mapping[str, Any] = field(default_factory=dict)
    """Scale of the axis: its type and its two ends."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    """Ticks and their labels."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other properties of the channel, such as stacking."""
    length: float = 0.0
    """Length of the axis [px], if it depends on the values."""

    def of(self, column: str) -> Axis:
        """Return the same axis for another column."""
        return replace(self, column=column)

    def channel(self) -> dict[str, Any]:
        """Return the axis as a Vega-Lite channel."""
        scale = {"scale": dict(self.scale)} if self.scale else {}
        return {"field": self.column, "type": self.type, "axis": {"title": self.title, **self.labels}, **scale} | dict(
            self.more
        )


def number(column: str, title: str | None, *, ticks: int = 5, scale: Mapping[str, Any] | None = None) -> Axis:
    """Return an axis for numbers that starts at 0 and ends at a tick; `scale` overrides this."""
    # Vega-Lite rounds the end for about 10 ticks. With fewer ticks, marks would lie beyond the last tick.
    ends = {"domainMin": 0, "nice": ticks} if scale is None else scale
    return Axis(column, title, scale=ends, labels={"tickCount": ticks, "labelOverlap": "greedy"})


def share(column: str, title: str, *, whole: bool = False, stacked: bool = False) -> Axis:
    """Return an axis for shares [0..1], labelled in percent. It starts at 0 and, with `whole`, ends at 100 %."""
    words = "format(datum.value * 100, '.4~g')"
    ends = {"domain": [0, 1]} if whole else {"domainMin": 0, "nice": 5}
    labels = {"labelExpr": words, "tickCount": 5, "labelOverlap": "greedy"}
    return Axis(column, f"{title} (%)", scale=ends, labels=labels, more={"stack": "zero"} if stacked else {})


def percentage(column: str, title: str) -> Axis:
    """Return an axis for percentages [0..100]."""
    return Axis(column, title, scale={"domain": [0, 100], "clamp": True}, labels={"values": [0, 25, 50, 75, 100]})


def names(column: str, values: Sequence[str], title: str | None = None, *, step: float) -> Axis:
    """Return a vertical axis with names in the given order and `step` pixels per name."""
    # A list in `sort` would become an expression with names from the log; a domain does not.
    scale = {"domain": list(values), "paddingInner": 0.25, "paddingOuter": 0.12}
    length = max(max(len(values), 1) * step, _TITLED if title else 0)
    return Axis(column, title, "nominal", scale, {"grid": False}, {"sort": None}, length)


_TITLED = 96
"""Minimum height of an axis with a title [px]. A shorter axis would cut off the title."""


def hours(column: str = "hour", type: str = "quantitative") -> Axis:  # noqa: A002 -- the word of Vega-Lite
    """Return an axis for the hours of a day, labelled every 3 hours, or every 6 or 12 hours if space is short."""
    labels = {
        "labelAngle": 0,
        "values": list(range(0, 24, 3)),
        "labelExpr": "datum.value + ':00'",
        "labelOverlap": "parity",
        "labelSeparation": 6,
    }
    scale = {"domain": [0, 23]} if type == "quantitative" else {"paddingInner": 0.18}
    return Axis(column, "hour of the day", type, scale, labels)


_STEPS = (
    *(timedelta(minutes=m) for m in (1, 5, 15, 30)),
    *(timedelta(hours=h) for h in (1, 2, 3, 6, 12)),
    *(timedelta(days=d) for d in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def times(moments: Iterable[str], facts: TraceFacts, column: str = "time", *, span_h: float = 0.0) -> Axis:
    """Return an axis from the first of several times (ISO) to the last, or to `span_h` hours after the last.

    The axis shows dates and hours in the trace's time zone, or days if the trace has no dates. The rows contain values
    returned by `shown_time`.
    """
    moments = list(moments)
    if not facts.dated:
        return days(column, max(trace_day(m, facts) for m in moments) + span_h / 24, clock_of(facts))
    known = [local(m, facts.timezone) for m in moments]
    return dates(column, min(known), max(known) + timedelta(hours=span_h), facts.timezone)


def shown_time(time: str, facts: TraceFacts) -> str | float:
    """Return a time as charts use it: local time in the trace's time zone, or days since the start of the trace."""
    # Add Z, because a browser treats times without a zone as its own local time.
    return f"{local(time, facts.timezone).isoformat()[:16]}Z" if facts.dated else trace_day(time, facts)


def clock_of(facts: TraceFacts) -> str | None:
    """Return the time zone that defines the days of an undated trace, or None if day 0 begins with the trace."""
    return facts.timezone if facts.clocked else None


def dates(column: str, first: datetime, last: datetime, timezone: str = "UTC") -> Axis:
    """Return an axis of times from `first` to `last`, with evenly spaced ticks in the usual calendar units.

    The times are local times in the time zone, plotted as if they were UTC.
    """
    ticks = date_ticks(first, last)
    words = "utcFormat(datum.value, '%-d %b')"
    if any(t.hour or t.minute for t in ticks):
        words = f"utchours(datum.value) + utcminutes(datum.value) ? utcFormat(datum.value, '%H:%M') : {words}"
    elif len(ticks) > 1 and ticks[1] - ticks[0] >= timedelta(days=28):
        words = "utcFormat(datum.value, '%b %Y')"
    # A list of times would become calls to datetime(), which the page cannot evaluate, so use numbers.
    values = ", ".join(str(int(t.timestamp() * 1000)) for t in ticks)
    labels = {
        "values": {"expr": f"[{values}]"},
        "labelExpr": words,
        "labelOverlap": "parity",
        "labelSeparation": 12,
    }
    return Axis(column, f"time ({timezone})", "temporal", {"type": "utc"}, labels)


def date_ticks(first: datetime, last: datetime) -> list[datetime]:
    """Return at most `TICKS` round times in UTC from `first` to `last`.

    The times are minutes, hours, midnights, Mondays or first days of months, depending on which spacing fits.

    Examples
    --------
    >>> [f"{t:%d %b}" for t in date_ticks(datetime(2017, 10, 9, 7), datetime(2017, 11, 13))]
    ['16 Oct', '23 Oct', '30 Oct', '06 Nov', '13 Nov']
    """
    first, last = (t.replace(tzinfo=UTC) if t.tzinfo is None else t.astimezone(UTC) for t in (first, last))
    step = next((s for s in _STEPS if (last - first) // s < TICKS), None)
    if step is None:
        return _months(first, last)
    # Whole weeks begin on a Monday. Shorter steps are aligned to midnight.
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


def days(column: str, last: float, timezone: str | None = None) -> Axis:
    """Return an axis for days from the start of a trace to `last`, with labels at a few round days.

    If days begin at midnight in a time zone, they are counted from the last midnight before the trace.
    """
    step = next((s for s in _DAY_STEPS if last / s < _DAY_TICKS), _DAY_STEPS[-1])
    ticks = [number * step for number in range(int(last / step) + 1)]
    title = "days since the start of the trace" if timezone is None else f"days since the first midnight ({timezone})"
    labels = {"values": ticks, "labelOverlap": "parity", "labelSeparation": 8}
    return Axis(column, title, scale={"domain": [0, last or 1], "nice": False}, labels=labels)


_DAY_S = 86400
_TICKS_S = (0, 1, 10, 60, 600, 3600, 6 * 3600, *(days * _DAY_S for days in (1, 7, 30, 365)))
_ENDS_S = (
    *(1, 2, 5, 10, 30),
    *(minutes * 60 for minutes in (1, 2, 5, 10, 30)),
    *(hours * 3600 for hours in (1, 2, 6, 12)),
    *(days * _DAY_S for days in (1, 2, 4, 7, 14, 30, 60, 120, 365)),
)
"""Durations at which an axis may begin and end. They are dense enough to leave little empty space."""
_LEAST_TOP_S = 60
_APART = 1.9
"""Minimum ratio between a tick and the adjacent end of the axis."""
_APART_OF_SPAN = 0.1
"""Minimum distance from a tick to the end of a logarithmic axis, as a fraction, so narrow axes keep both end labels."""
_SAME = 1.005
"""A value is on a tick if their ratio is at most this."""

_TICK_WORDS = (
    "datum.value === 0 ? '0' : datum.value < 60 ? datum.value + ' s' : datum.value < 3600 ? datum.value / 60 + ' min'"
    " : datum.value < 86400 ? datum.value / 3600 + ' h' : datum.value / 86400 + ' d'"
)


def axis_values(rows: Iterable[Row], columns: Sequence[str]) -> list[float]:
    """Return the numbers in the named columns."""
    return [row[c] for row in rows for c in columns if isinstance(row.get(c), int | float)]


def time_ends(values: Iterable[float]) -> tuple[float, float]:
    """Return the round durations [s] just below the smallest and just above the largest value.

    Below 1 s and above a year, the value itself is returned.

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


def position(value: float, values: Sequence[float]) -> float:
    """Return the position of a duration on the axis of `values` [0..1]."""
    low, top = time_ends(values)
    whole = math.log1p(top) - math.log1p(low)
    return (math.log1p(value) - math.log1p(low)) / whole if whole else 0.0


def durations(column: str, title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis for durations [s], with ticks at both ends and at 1 min, 1 h, 1 d and so on.

    Waits of 0 are common and must be visible, so if any value is below 1 s, the scale is linear up to 1 s and
    logarithmic above.
    """
    low, top = time_ends(values := list(values))
    apart = max(_APART, (top / max(low, 1)) ** _APART_OF_SPAN)
    inner = [t for t in _TICKS_S if low * apart <= t <= top / apart]
    ticks = sorted({*inner, *(end for end in (low, top) if end in _ENDS_S or end == 0)})
    labels = {"values": ticks, "labelExpr": _TICK_WORDS, "labelOverlap": "greedy", "labelSeparation": 8}
    scale = {"type": "log", "domain": [low, top], "nice": False}
    if low < 1:
        scale = {"type": "symlog", "constant": 1, "domain": [-0.15, top], "nice": False}
    return Axis(column, title, scale=scale, labels=labels)
