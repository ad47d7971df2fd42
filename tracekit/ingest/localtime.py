"""Convert wall-clock times to UTC without guessing when a time is ambiguous."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

import polars as pl

from tracekit.errors import UsageError
from tracekit.manifest import ASSUMED_ZONE
from tracekit.timezones import is_known_zone

_HOUR = timedelta(hours=1)
_LONGEST_GRID_US = timedelta(days=3_660) // timedelta(microseconds=1)
"""Maximum time span to search hour by hour for clock changes [us]."""

_EPOCH = datetime(1970, 1, 1)
_GRID_FIRST, _GRID_LAST = datetime(1, 1, 2), datetime(9999, 12, 30)
_GRID_FIRST_US, _GRID_LAST_US = ((end - _EPOCH) // timedelta(microseconds=1) for end in (_GRID_FIRST, _GRID_LAST))

DOUBLED_HOUR = ("bounded", "null", "first", "second")
"""Ways to read a wall-clock time in the hour that a clock change repeats or skips."""

DOUBLED_HOUR_MEANING = (
    "rule for a time in the hour that a clock change repeats or skips. bounded uses the first possible instant that "
    "fits the record's other times, with its bounds in the table doubtful_times; null makes the time unknown; first "
    "and second use the first or the second possible instant"
)

_POLARS_WORD: dict[str, Literal["null", "earliest", "latest"]] = {
    "null": "null",
    "first": "earliest",
    "second": "latest",
}


class Instants(NamedTuple):
    """Possible instants of wall-clock times, as two series in naive UTC that are equal if only one is possible."""

    earliest: pl.Series
    latest: pl.Series

    @property
    def certain(self) -> bool:
        """Whether both are the same series: no wall-clock time is near a clock change."""
        return self.earliest is self.latest

    @property
    def doubtful(self) -> pl.Series:
        """Mask of the times with two possible instants."""
        return (self.earliest != self.latest).fill_null(value=False)


def instants(local: pl.Series, zone: str) -> Instants:
    """Return the first and the last instant that each wall-clock time may mean.

    A time in the hour that occurs twice may mean either instant. A time in the skipped hour comes from a clock that was
    changed too early or too late, so it means an instant one hour earlier or later. The result is NULL if the time is
    NULL.

    Parameters
    ----------
    local : Series of Datetime without zone
        Wall-clock times.
    zone : str
        IANA zone name.
    """
    utc = _series_to_utc(local, zone, "null")
    odd = local.is_not_null() & utc.is_null()
    if not odd.any():
        return Instants(utc, utc)
    times = local.filter(odd)
    found = pl.DataFrame(
        {
            "first": _by_zone(times, zone, "first"),
            "second": _by_zone(times, zone, "second"),
            "before": _by_zone(times + _HOUR, zone, "null") - _HOUR,
            "behind": _by_zone(times - _HOUR, zone, "null") + _HOUR,
        }
    )
    places = odd.arg_true()
    earliest, latest = (
        utc.clone().scatter(places, found.select(pl.coalesce(names)).to_series())
        for names in (("first", "before"), ("second", "behind"))
    )
    return Instants(earliest, latest)


def to_utc(local: pl.Series, zone: str, doubled_hour: str = "null") -> pl.Series:
    """Convert naive wall-clock times of `zone` to naive UTC.

    Parameters
    ----------
    local : Series of Datetime without zone
        Wall-clock times.
    zone : str
        IANA zone name.
    doubled_hour : {'bounded', 'null', 'first', 'second'}
        See `DOUBLED_HOUR_MEANING`. 'bounded' gives NULL, because this function does not know the record's other times.
    """
    return decided(instants(local, zone), "null" if doubled_hour == "bounded" else doubled_hour)


def decided(found: Instants, doubled_hour: str) -> pl.Series:
    """Return one instant per wall-clock time. If two are possible, return the first, the second, or NULL for 'null'."""
    if doubled_hour == "null":
        return found.earliest.set(found.doubtful, None)
    return found.latest if doubled_hour == "second" else found.earliest


def by_duration(first: Instants, last: Instants, seconds: pl.Series) -> tuple[Instants, Instants]:
    """Exclude the instants of two wall-clock times that contradict the recorded time between them.

    Parameters
    ----------
    first, last : Instants
        A start and an end.
    seconds : Series
        The time between start and end [s], in whole seconds, or NULL if unknown. If no pair of instants is this far
        apart, all instants are kept.
    """
    if not (first.doubtful.any() or last.doubtful.any()):
        return first, last
    fits = {
        (a, b): ((end - start).dt.total_microseconds() / 1e6 - seconds).abs().lt(1.0).fill_null(value=False)
        for a, start in enumerate(first)
        for b, end in enumerate(last)
    }
    return (
        _narrowed(first, fits[0, 0] | fits[0, 1], fits[1, 0] | fits[1, 1]),
        _narrowed(last, fits[0, 0] | fits[1, 0], fits[0, 1] | fits[1, 1]),
    )


def _narrowed(found: Instants, early: pl.Series, late: pl.Series) -> Instants:
    """Return the instants that remain if only the early or only the late instant is possible."""
    return Instants(
        found.earliest.zip_with(early | ~late, found.latest), found.latest.zip_with(late | ~early, found.earliest)
    )


def _series_to_utc(local: pl.Series, zone: str, doubled_hour: str) -> pl.Series:
    """Convert times to UTC. If all have the same UTC offset, subtract the offset, which is much faster."""
    ends = local.dt.epoch("us")  # as numbers: Python dates cover only the years 1 to 9999
    first_us, last_us = ends.min(), ends.max()
    if not (isinstance(first_us, int) and isinstance(last_us, int)) or last_us - first_us > _LONGEST_GRID_US:
        return _by_zone(local, zone, doubled_hour)
    if not _GRID_FIRST_US < first_us <= last_us < _GRID_LAST_US:
        return _by_zone(local, zone, doubled_hour)
    first, last = (_EPOCH + timedelta(microseconds=micros) for micros in (first_us, last_us))
    # A log is read in blocks, and in some zones all blocks have the same offset.
    begin, end = datetime(first.year, 1, 1), datetime(min(last.year, _GRID_LAST.year - 1) + 1, 1, 1)
    offset = _only_offset(begin - _HOUR, end + _HOUR, zone) if begin > _GRID_FIRST and last < end else None
    if offset is None:
        offset = _only_offset(first - _HOUR, last + _HOUR, zone)
    if offset is None:
        return _by_zone(local, zone, doubled_hour)
    shifted: pl.Series = local - offset
    return shifted


@lru_cache(maxsize=64)
def _only_offset(first: datetime, last: datetime, zone: str) -> timedelta | None:
    """Return the UTC offset between two wall-clock times, or None if it changes between them."""
    hours = pl.datetime_range(first, last, "1h", time_unit="us", eager=True)
    offsets = hours - _by_zone(hours, zone, "null")
    if offsets.null_count() or offsets.n_unique() > 1:
        return None
    only: timedelta = offsets[0]
    return only


def _by_zone(local: pl.Series, zone: str, doubled_hour: str) -> pl.Series:
    aware = local.dt.replace_time_zone(zone, ambiguous=_POLARS_WORD[doubled_hour], non_existent="null")
    return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def zone_note(zone: str, *, stated: bool) -> str:
    """Return a note that explains how times without a zone are read and how to change the zone."""
    if not stated:
        return ASSUMED_ZONE
    return f"read as {zone}, as set by the option; --option timezone=NAME changes it"


def require_zone(zone: str) -> None:
    """Check that the value of the timezone option is a time zone.

    Raises
    ------
    UsageError
        The zone does not exist.
    """
    if not is_zone(zone):
        hint = "give an IANA name such as Europe/Berlin"
        raise UsageError(f"'{zone}' is not a time zone", where="--option timezone", hint=hint)


def is_zone(zone: str) -> bool:
    """Return whether the zone exists and Polars can convert times with it."""
    if not is_known_zone(zone):
        return False
    try:
        pl.Series([], dtype=pl.Datetime("us")).dt.replace_time_zone(zone)
    except pl.exceptions.PolarsError:
        return False
    return True
