"""Wall-clock times to UTC, without guessing where a wall clock is ambiguous."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import polars as pl

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

__all__ = ["DOUBLED_HOUR", "DoubledHour", "count_unknown_instants", "to_utc"]

DoubledHour = Literal["null", "first", "second"]

_HOUR = timedelta(hours=1)
_LONGEST_GRID = timedelta(days=3_660)
"""Longest span that is looked at hour by hour; the clock changes of a log lie further apart than that hour."""

DOUBLED_HOUR = ("null", "first", "second")
"""What may become of a wall-clock time that occurs twice when clocks go back."""

_POLARS_WORD: dict[str, Literal["null", "earliest", "latest"]] = {
    "null": "null",
    "first": "earliest",
    "second": "latest",
}


def to_utc(local: pl.Expr, zone: str, doubled_hour: str = "null") -> pl.Expr:
    """Return naive wall-clock times of `zone` as naive UTC.

    Parameters
    ----------
    local : polars.Expr
        Datetime without zone.
    zone : str
        IANA name.
    doubled_hour : {'null', 'first', 'second'}
        A time inside the hour that occurs twice names two instants: unknown by default, or the first or the
        second of them. A time inside the hour that is skipped names none and is always unknown.
    """
    return local.map_batches(
        lambda times: _series_to_utc(times, zone, doubled_hour), return_dtype=pl.Datetime("us"), is_elementwise=True
    )


def _series_to_utc(local: pl.Series, zone: str, doubled_hour: str) -> pl.Series:
    """Subtract the zone's offset where it is one and the same over all the times, which is much quicker."""
    first, last = local.min(), local.max()
    if not (isinstance(first, datetime) and isinstance(last, datetime)) or last - first > _LONGEST_GRID:
        return _by_zone(local, zone, doubled_hour)
    hours = pl.datetime_range(first - _HOUR, last + _HOUR, "1h", time_unit="us", eager=True)
    offsets = hours - _by_zone(hours, zone, "null")
    if offsets.null_count() or offsets.n_unique() > 1:
        return _by_zone(local, zone, doubled_hour)
    shifted: pl.Series = local - offsets[0]
    return shifted


def _by_zone(local: pl.Series, zone: str, doubled_hour: str) -> pl.Series:
    aware = local.dt.replace_time_zone(zone, ambiguous=_POLARS_WORD[doubled_hour], non_existent="null")
    return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def count_unknown_instants(sink: Sink, local: pl.DataFrame, utc: pl.DataFrame, names: pl.Series) -> None:
    """Count wall-clock times that name no single instant, as a check.

    Parameters
    ----------
    local, utc : polars.DataFrame
        The same columns of times before and after `to_utc`.
    names : Series of str, length of the frames
        What to show as examples.
    """
    for column in local.columns:
        lost = local[column].is_not_null() & utc[column].is_null()
        sink.check(
            "ambiguous_local_time",
            int(lost.sum()),
            local.height - local[column].null_count(),
            "wall-clock times inside the hour that a clock change doubles or skips; they name no single instant "
            "and are unknown",
            names.filter(lost),
        )
