"""The months of a log, cut where prices change: in each period every GPU-hour of one kind has one price."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Period", "periods_between"]


@dataclass(frozen=True)
class Period:
    """A time in which no month and no price begins."""

    since: dt.datetime
    """First moment [UTC]."""
    until: dt.datetime
    """First moment after it [UTC]."""
    month: str
    """Such as '2026-11', in the time zone of the Trace."""


def periods_between(
    first: dt.datetime, last: dt.datetime, changes: Collection[dt.datetime], timezone: str
) -> list[Period]:
    """Return the periods that cover the time from `first` to `last` [UTC], in order and without gaps.

    Parameters
    ----------
    first, last : datetime
        Ends of the log.
    changes : collection of datetime
        Where a period begins too, such as those of prices [UTC].
    timezone : str
        Zone in which months begin.
    """
    zone = ZoneInfo(timezone)
    year, month = _local(first, zone)
    months: list[tuple[dt.datetime, str]] = []
    while not months or months[-1][0] <= last:
        begin = dt.datetime(year, month, 1, tzinfo=zone).astimezone(dt.UTC).replace(tzinfo=None)
        months.append((begin, f"{year:04}-{month:02}"))
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    found = []
    for (begin, name), (end, _) in pairwise(months):
        times = [begin, *sorted(time for time in changes if begin < time < end), end]
        found += [Period(since, until, name) for since, until in pairwise(times)]
    return found


def _local(time: dt.datetime, zone: ZoneInfo) -> tuple[int, int]:
    """Return year and month of a time [UTC] in a zone."""
    there = time.replace(tzinfo=dt.UTC).astimezone(zone)
    return there.year, there.month
