"""ISO weeks, from Monday to Sunday in the time zone of a log."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from tracekit.errors import UsageError
from tracekit.text import shorten

SLACK = dt.timedelta(days=1)
"""A log that begins or ends so short a time within a week still counts as holding all of it: nights are quiet."""

_FIRST, _LAST = dt.datetime(1900, 1, 1), dt.datetime(9000, 1, 1)
"""Weeks lie between; a time outside is a mistake of a log, near whose ends no calendar reaches."""


@dataclass(frozen=True)
class Week:
    """A week, whose length is 167 or 169 hours where clocks change."""

    year: int
    number: int
    zone: str

    @property
    def name(self) -> str:
        """Such as '2026-W47'."""
        return f"{self.year:04}-W{self.number:02}"

    @property
    def monday(self) -> dt.date:
        """Its first day."""
        return dt.date.fromisocalendar(self.year, self.number, 1)

    @property
    def since(self) -> dt.datetime:
        """Where it begins [UTC, without a zone]."""
        return self._midnight(self.monday)

    @property
    def until(self) -> dt.datetime:
        """Where it ends, exclusive [UTC, without a zone]."""
        return self._midnight(self.monday + dt.timedelta(days=7))

    @property
    def words(self) -> str:
        """Such as '16 to 22 November 2026'."""
        first, last = self.monday, self.monday + dt.timedelta(days=6)
        begin = f"{first.day} {first:%B %Y}" if first.year != last.year else f"{first.day} {first:%B}"
        begin = str(first.day) if first.month == last.month else begin
        return f"{begin} to {last.day} {last:%B %Y}"

    def _midnight(self, day: dt.date) -> dt.datetime:
        local = dt.datetime.combine(day, dt.time(), tzinfo=ZoneInfo(self.zone))
        return local.astimezone(dt.UTC).replace(tzinfo=None)


def week_of(text: str, zone: str) -> Week:
    """Return the week of a text such as '2026-W47'.

    Raises
    ------
    UsageError
        It is no week, or that year has no such week.
    """
    hint = "write it like 2026-W47, as 'date +%G-W%V' prints it"
    found = re.fullmatch(r"(\d{4})-?W(\d{2})", text.strip(), flags=re.ASCII)
    if found is None:
        raise UsageError(f"'{shorten(text)}' is not a week", where="--week", hint=hint)
    year, number = int(found[1]), int(found[2])
    try:
        monday = dt.date.fromisocalendar(year, number, 1)
    except ValueError:
        monday = dt.date.max
    if not _FIRST.date() <= monday <= _LAST.date():
        raise UsageError(f"this week does not exist: {shorten(text)}", where="--week", hint=hint)
    return Week(year, number, zone)


def last_whole_week(end: dt.datetime, zone: str) -> Week:
    """Return the last week that a log holds which ends at `end` [UTC, without a zone]."""
    return _week(_local_day(min(end, _LAST) + SLACK, zone) - dt.timedelta(days=7), zone)


def week_at(moment: dt.datetime, zone: str) -> Week:
    """Return the week of a moment [UTC, without a zone]."""
    return _week(_local_day(moment, zone), zone)


def weeks_before(week: Week, number: int, begin: dt.datetime) -> list[Week]:
    """Return up to so many weeks before one, the oldest first, that a log holds which begins at `begin` [UTC]."""
    found = [_week(week.monday - dt.timedelta(days=7 * back), week.zone) for back in range(number, 0, -1)]
    return [one for one in found if one.since + SLACK >= begin]


def _local_day(moment: dt.datetime, zone: str) -> dt.date:
    within = min(max(moment, _FIRST), _LAST)
    return within.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)).date()


def _week(day: dt.date, zone: str) -> Week:
    year, number, _ = day.isocalendar()
    return Week(year, number, zone)
