"""Dates that cannot be a log's own: the epoch, the last second of 32 bits, and those far from its other times."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from tracekit.ingest.cells import FIRST_TIME, LAST_TIME

__all__ = ["FAR", "LogDates"]

FAR = timedelta(days=20 * 365.25)
"""Times further than this from the middle of the log are impossible: no cluster has run for so long."""

_NEAR = timedelta(days=2)
"""Wall clocks of all zones are within this of UTC."""
_FUTURE = datetime(2100, 1, 1)
"""Later times are ignored when the middle of the log is estimated."""
_LAST_32_BITS = datetime(2038, 1, 19, 3, 14, 7)
_MANY = 1_000
"""A block of at least so many rows updates the estimated middle of the log; the first block always sets it."""


class LogDates:
    """Finds impossible dates in the blocks of one log."""

    def __init__(self) -> None:
        self._middle: datetime | None = None
        self._unread: pl.DataFrame | None = None
        """The newest block whose median would be the middle of the log, where no date needed it yet."""

    def impossible(self, times: pl.DataFrame) -> dict[str, pl.Series]:
        """Return where the times of a block are no dates of the log: a mask for each column that has such a time.

        Parameters
        ----------
        times : polars.DataFrame
            Columns of Datetime, one row for each record.
        """
        estimates = times.height >= _MANY or (self._middle is None and self._unread is None)
        if estimates and _surely_possible(times):
            self._unread = times
            return {}
        if self._unread is not None:
            self._middle, self._unread = _median(self._unread), None
        if estimates:
            self._middle = _median(times) or self._middle
        masks = {name: self._far(times[name]) for name in times.columns}
        return {name: mask for name, mask in masks.items() if mask.any()}

    def _far(self, times: pl.Series) -> pl.Series:
        wrong = ~times.is_between(FIRST_TIME, LAST_TIME)
        if self._middle is not None:
            wrong |= (times - self._middle).abs() > FAR
            if abs(self._middle - _LAST_32_BITS) > timedelta(days=366):
                wrong |= (times - _LAST_32_BITS).abs() < _NEAR
        return wrong.fill_null(value=False)


def _surely_possible(times: pl.DataFrame) -> bool:
    """Return whether all times are so near each other that none can be impossible, wherever their middle is."""
    # Compared where they are: dates of the year 0 and after 9999 are none of Python's.
    known = pl.all().cast(pl.Datetime("us"))
    first, last = pl.min_horizontal(known.min()), pl.max_horizontal(known.max())
    near_32_bits = (first < _LAST_32_BITS + _NEAR) & (last > _LAST_32_BITS - _NEAR)
    sure = (first >= FIRST_TIME) & (last <= _FUTURE) & (last - first <= FAR) & ~near_32_bits
    return bool(times.select(sure.alias("sure")).item())


def _median(times: pl.DataFrame) -> datetime | None:
    """Return the middle of a log, as far as a block of its times shows it."""
    known = pl.concat([times[name].alias("time").cast(pl.Datetime("us")) for name in times.columns]).drop_nulls()
    held = known.filter(known.is_between(FIRST_TIME, _FUTURE))
    # Where most times are the epoch, the others are the log's; where all are near it, times count from there.
    later = held.filter(held > FIRST_TIME + _NEAR)
    middle = (later if len(later) else held).median()
    return middle if isinstance(middle, datetime) else None
