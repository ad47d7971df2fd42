"""Times as a report shows them: in the time zone of the trace, or as days since its start."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tracekit.text import duration

if TYPE_CHECKING:
    from tracekit.report.facts import TraceFacts

_START = datetime.fromisoformat("1970-01-01T00:00:00")
"""Origin of times without a date."""
_DAY = "%-d %B %Y"


def local(time: str, timezone: str) -> datetime:
    """Convert an ISO time (UTC unless it has an offset) to local time in a time zone.

    Examples
    --------
    >>> local("2017-11-05T12:00:00+00:00", "America/Los_Angeles").isoformat()
    '2017-11-05T04:00:00'
    """
    known = datetime.fromisoformat(time)
    known = known.replace(tzinfo=UTC) if known.tzinfo is None else known
    try:
        return known.astimezone(ZoneInfo(timezone)).replace(tzinfo=None)
    except OverflowError:  # the time is at the end of the calendar, so no hours can be added
        return known.replace(tzinfo=None)


def span_words(seconds: float) -> str:
    """Write a time span in days, or in hours or minutes if it is short.

    Examples
    --------
    >>> span_words(3024000), span_words(57600), span_words(150)
    ('35 days', '16.0 hours', '2.5 min')
    """
    if seconds < 2 * 3600:
        return duration(seconds)
    days = seconds / 86400
    return f"{days:,.0f} days" if days >= 3 else f"{seconds / 3600:,.1f} hours"


def trace_day(time: str, facts: TraceFacts) -> float:
    """Convert a time in an undated trace to a day number. The first day begins at 0.

    Examples
    --------
    >>> from tracekit.report.facts import TraceFacts
    >>> trace_day("1970-01-03T12:00:00+00:00", TraceFacts(dated=False))
    2.5
    >>> trace_day("1970-01-20T04:00:00", TraceFacts(dated=False, day_zero="1970-01-17T16:00:00"))
    2.5
    """
    start = _START if facts.day_zero is None else datetime.fromisoformat(facts.day_zero)
    return round((datetime.fromisoformat(time[:19]) - start).total_seconds() / 86400, 4)


def midnight_before(time: str, timezone: str) -> str:
    """Return the local midnight before an ISO time in a time zone (ISO, UTC).

    Examples
    --------
    >>> midnight_before("1970-01-18T17:07:08", "Asia/Shanghai")
    '1970-01-18T16:00:00'
    """
    begun = local(time, timezone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=ZoneInfo(timezone))
    return begun.astimezone(UTC).replace(tzinfo=None).isoformat()


def start_of_day(time: str, facts: TraceFacts) -> str:
    """Write the day of an ISO time: a date in the trace's time zone, or the day of the trace (from 0)."""
    return local(time, facts.timezone).strftime(_DAY) if facts.dated else f"day {floor(trace_day(time, facts))}"


def moment_words(time: str, facts: TraceFacts) -> str:
    """Write an ISO time to the minute: a date or a day of the trace, with the time of day if it is known.

    Examples
    --------
    >>> from tracekit.report.facts import TraceFacts
    >>> moment_words("2020-05-03T09:30:00", TraceFacts())
    '3 May 2020 09:30'
    >>> moment_words("1970-01-03T12:00:00", TraceFacts(dated=False))
    'day 2.50'
    """
    if facts.dated:
        return f"{local(time, facts.timezone):%-d %b %Y %H:%M}"
    if facts.clocked:
        return f"{start_of_day(time, facts)}, {local(time, facts.timezone):%H:%M}"
    return f"day {trace_day(time, facts):.2f}"


def period_words(first: datetime, last: datetime) -> str:
    """Write the range from one day to another, both included. Shared parts, such as the year, appear once.

    Examples
    --------
    >>> period_words(datetime(2017, 11, 4), datetime(2017, 11, 5, 3))
    '4 to 5 November 2017'
    >>> period_words(datetime(2020, 3, 31), datetime(2020, 5, 3))
    '31 March to 3 May 2020'
    """
    if first.date() == last.date():
        return last.strftime(_DAY)
    shared = "%-d" if (first.year, first.month) == (last.year, last.month) else "%-d %B"
    return f"{first.strftime(shared if first.year == last.year else _DAY)} to {last.strftime(_DAY)}"
