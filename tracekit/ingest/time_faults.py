"""Find impossible and ambiguous times within a record.

Four rules apply to the records of every source:

- The epoch, the last second of 32 bits and dates more than 20 years from the rest of the log are impossible: logs
  contain them if a time is unknown.
- Submission, start and end must be in this order. If a time is before its predecessor, either may be wrong, and we
  reject the one that comes later in this order.
- A job cannot become eligible before its submission or after its start, so an eligible time outside this range is
impossible.
- A wall-clock time in the hour that a clock change repeats or skips means one of two instants an hour apart. The time
  is stored with these bounds.

The record is kept. An impossible time becomes NULL. Each doubtful time is counted in the manifest's checks and listed
with its file and line in the doubtful_times table. `tracekit.ingest.time_order` applies the second rule across records.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.ingest.cells import FIRST_TIME, LAST_TIME
from tracekit.ingest.localtime import Instants, by_duration, decided, instants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.sink import Sink


# Find dates that cannot belong to a log, namely the epoch, the last second of 32 bits, and dates far from other times.

FAR = timedelta(days=20 * 365.25)
"""Times further than this from the log's middle are impossible: no cluster has run that long."""

_NEAR = timedelta(days=2)
"""Larger than any zone's offset from UTC."""
_FUTURE = datetime(2100, 1, 1)
"""Estimates of the log's middle ignore later times."""
_LAST_32_BITS = datetime(2038, 1, 19, 3, 14, 7)
_MANY = 1_000
"""Minimum number of rows for a block to update the estimate of the log's middle. The first block always sets it."""


class LogDates:
    """Finds impossible dates in the blocks of one log."""

    def __init__(self) -> None:
        self._middle: datetime | None = None
        self._unread: pl.DataFrame | None = None
        """The newest block whose median estimates the log's middle. The median is computed only if a date needs it."""

    def impossible(self, times: pl.DataFrame) -> dict[str, pl.Series]:
        """Return a mask of the impossible dates for each column of a block that contains impossible dates.

        Parameters
        ----------
        times : polars.DataFrame
            Datetime columns, one row per record.
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
    """Return whether the times are so close together that none can be impossible, whatever their middle."""
    # Compared inside Polars, because Python has no dates before year 1 or after 9999.
    known = pl.all().cast(pl.Datetime("us"))
    first, last = pl.min_horizontal(known.min()), pl.max_horizontal(known.max())
    near_32_bits = (first < _LAST_32_BITS + _NEAR) & (last > _LAST_32_BITS - _NEAR)
    sure = (first >= FIRST_TIME) & (last <= _FUTURE) & (last - first <= FAR) & ~near_32_bits
    return bool(times.select(sure.alias("sure")).item())


def _median(times: pl.DataFrame) -> datetime | None:
    """Estimate a log's middle from a block of its times."""
    known = pl.concat([times[name].alias("time").cast(pl.Datetime("us")) for name in times.columns]).drop_nulls()
    held = known.filter(known.is_between(FIRST_TIME, _FUTURE))
    # If most times are the epoch, only the others belong to the log. If all times are near the epoch, they are relative
    # to it.
    later = held.filter(held > FIRST_TIME + _NEAR)
    middle = (later if len(later) else held).median()
    return middle if isinstance(middle, datetime) else None


_STATED = {"start_time": "began", "end_time": "finished"}

CHECKS = {
    "impossible_dates": "times that cannot be dates of this log (the epoch, the last second of 32 bits, or more than "
    "20 years from the other times); they become unknown, and doubtful_times lists them",
    "ends_before_start": "ends before the start or the submission; they become unknown, and doubtful_times lists them",
    "starts_before_queued": "starts before the submission or before the end of the previous attempt; they become "
    "unknown, and doubtful_times lists them",
    "eligible_out_of_order": "eligible times before the submission or after the start of their job; they become "
    "unknown, and doubtful_times lists them",
    "ambiguous_local_time": "wall-clock times in the hour that a clock change repeats or skips; each may be an hour "
    "off or becomes unknown, and doubtful_times lists them",
}
"""The meaning of a count above zero, by check name."""


class TimeColumns(NamedTuple):
    """Columns of a frame. A record's times must be in the order of the columns."""

    columns: Mapping[str, str]
    """Maps each column of the frame to its column in the Trace, earliest time first: {'Submit': 'submit_time', ...}."""
    names: str = "job_id"
    """Column with the job ids."""
    attempt: str | None = None
    """Column with the attempt number, if the times belong to an attempt."""


class RecordTimes:
    """Checks one raw file's times block by block, and writes checks and the doubtful_times table to the sink."""

    def __init__(self, sink: Sink, path: str) -> None:
        self._sink = sink
        self._path = path
        self._dates = LogDates()

    def from_wall_clock(
        self,
        frame: pl.DataFrame,
        sequence: TimeColumns,
        zone: str,
        doubled_hour: str = "bounded",
        *,
        clocks: pl.DataFrame | None = None,
        before: pl.Series | None = None,
        lasted: tuple[str, str, pl.Series] | None = None,
    ) -> pl.DataFrame:
        """Convert the wall-clock times of the sequence in `frame` to UTC.

        Parameters
        ----------
        doubled_hour : {'bounded', 'null', 'first', 'second'}
            See `tracekit.ingest.localtime.DOUBLED_HOUR_MEANING`.
        clocks : polars.DataFrame, optional
            The wall-clock times, with NULL for a time that is not a wall-clock time. If given, `frame` has all other
            times in UTC. By default, the times in `frame` are wall-clock times.
        before : Series of Datetime, optional
            For each record, the latest time [UTC] that must come before the sequence.
        lasted : tuple (str, str, Series), optional
            Two columns of the sequence and the recorded time between them [s], which decides between the instants of
            the two wall-clock times.
        """
        choices = {}
        for name in sequence.columns:
            if clocks is None:
                choices[name] = instants(frame[name], zone)
            elif name in clocks.columns:
                found = instants(clocks[name], zone)
                absolute = clocks[name].is_null()
                choices[name] = Instants(*(frame[name].zip_with(absolute, side) for side in found))
            else:
                choices[name] = Instants(frame[name], frame[name])
        if lasted is not None:
            start, end, seconds = lasted
            choices[start], choices[end] = by_duration(choices[start], choices[end], seconds)
        shown = frame if clocks is None else frame.with_columns(clocks)
        if doubled_hour == "bounded":
            choices = _in_order(choices, before)
        for name, column in sequence.columns.items():
            self._list_doubtful(shown, sequence, name, column, choices[name])
        return frame.with_columns(decided(found, doubled_hour).alias(name) for name, found in choices.items())

    def possible(self, frame: pl.DataFrame, sequence: TimeColumns) -> pl.DataFrame:
        """Return `frame` with impossible times of the sequence set to NULL, by `dated` and then `ordered`."""
        return self.ordered(self.dated(frame, sequence), sequence)

    def ordered(self, frame: pl.DataFrame, sequence: TimeColumns, before: pl.Series | None = None) -> pl.DataFrame:
        """Return `frame` with a time set to NULL if it is before an earlier time of its record.

        Parameters
        ----------
        before : Series of Datetime, optional
            For each record, the latest time that must come before the sequence.

        Returns
        -------
        polars.DataFrame
            The frame with two additional Boolean columns, `began` and `finished`. They are true if the source records a
            start and an end, even at an impossible time.
        """
        stated = [
            pl.col(name).is_not_null().alias(_STATED[column])
            for name, column in sequence.columns.items()
            if column in _STATED
        ]
        changed = []
        for name, column in sequence.columns.items():
            times = frame[name]
            if before is not None:
                early = times < before
                check = "ends_before_start" if column == "end_time" else "starts_before_queued"
                found, reason = (check, early, early.count()), "is before an earlier time of its record"
                wrong = self._doubt(frame, sequence, (name, column), found, reason)
                if wrong is not None:
                    times = times.set(wrong, None)
                    changed.append(times)
            before = _latest(before, times)
        return frame.with_columns(*stated, *changed)

    def eligible(self, frame: pl.DataFrame, sequence: TimeColumns, name: str, start: pl.Series) -> pl.DataFrame:
        """Return `frame` with an eligible time set to NULL if it is before the job's submission or after its start.

        Parameters
        ----------
        sequence : TimeColumns
            The sequence of times, whose first column is the submission.
        name : str
            The column with the eligible times.
        start : Series of Datetime
            The start of each job, or NULL if it did not start.
        """
        times, submit = frame[name], frame[next(iter(sequence.columns))]
        wrong = (times < submit).fill_null(value=False) | (times > start).fill_null(value=False)
        compared = times.is_not_null() & (submit.is_not_null() | start.is_not_null())
        found = ("eligible_out_of_order", wrong, int(compared.sum()))
        reason = "is before the submission or after the start of its job"
        late = self._doubt(frame, sequence, (name, "eligible_time"), found, reason)
        return frame if late is None else frame.with_columns(times.set(late, None))

    def spans(self, frame: pl.DataFrame, columns: Mapping[str, str], names: str) -> pl.DataFrame:
        """Return `frame` with negative waits and run times [s] set to NULL. `columns` maps to the Trace's columns."""
        for name, column in columns.items():
            check = "ends_before_start" if column == "run_s" else "starts_before_queued"
            below = frame[name] < 0
            found = (check, below, below.count())
            wrong = self._doubt(frame, TimeColumns(columns, names), (name, column), found, "is below zero")
            if wrong is not None:
                frame = frame.with_columns(frame[name].set(wrong, None))
        return frame

    def dated(self, frame: pl.DataFrame, sequence: TimeColumns) -> pl.DataFrame:
        """Return `frame` with a time of the sequence set to NULL if it cannot be a date of this log."""
        impossible = self._dates.impossible(frame.select(list(sequence.columns)))
        changed = []
        for name, column in sequence.columns.items():
            found = ("impossible_dates", impossible.get(name), frame[name].count())
            wrong = self._doubt(frame, sequence, (name, column), found, "cannot be a date of this log")
            if wrong is not None:
                changed.append(frame[name].set(wrong, None))
        return frame.with_columns(changed)

    def no_dates(self, frame: pl.DataFrame, columns: list[str]) -> dict[str, pl.Series]:
        """Return, for each of the columns, a mask of the times that cannot be dates of this log."""
        found = self._dates.impossible(frame.select(columns))
        none = pl.repeat(value=False, n=frame.height, eager=True)
        return {name: found[name].fill_null(value=False) if name in found else none for name in columns}

    def _doubt(
        self,
        frame: pl.DataFrame,
        sequence: TimeColumns,
        place: tuple[str, str],
        found: tuple[str, pl.Series | None, int],
        reason: str,
        *bounds: str,
    ) -> pl.Series | None:
        """Count and list wrong values of one column.

        Parameters
        ----------
        place : tuple (str, str)
            The column of the frame and the column of the Trace.
        found : tuple (str, Series of Boolean or None, int)
            The check, a mask of the rows found, and the number of rows checked.
        bounds : str
            Columns of the frame with the earliest and the latest possible time.

        Returns
        -------
        Series of Boolean or None
            The mask with NULL as False, or None if it selects no row.
        """
        check, where, of = found
        count = 0 if where is None else int(where.sum())
        if where is None or not count:
            self._sink.check(check, 0, of, CHECKS[check])
            return None
        where = where.fill_null(value=False)
        self._sink.check(check, count, of, CHECKS[check], frame[sequence.names].filter(where))
        listed = frame.filter(where).select(
            *bounds,
            source_file=pl.lit(self._path),
            line="line",
            job_id=pl.col(sequence.names).cast(pl.String),
            attempt=pl.lit(None, dtype=pl.Int64) if sequence.attempt is None else pl.col(sequence.attempt),
            column=pl.lit(place[1]),
            value=_as_text(frame.schema[place[0]], place[0]),
            reason=pl.lit(reason),
        )
        self._sink.write("doubtful_times", listed)
        return where

    def _list_doubtful(
        self, frame: pl.DataFrame, sequence: TimeColumns, name: str, column: str, found: Instants
    ) -> None:
        clocks = frame[name].count()
        certain = found.certain and found.earliest.count() == clocks
        two = None if certain else frame[name].is_not_null() & (found.doubtful | found.earliest.is_null())
        bounded = frame.with_columns(earliest=found.earliest, latest=found.latest)
        reason = "is a wall-clock time in the hour that a clock change repeats or skips"
        check = ("ambiguous_local_time", two, clocks)
        self._doubt(bounded, sequence, (name, column), check, reason, "earliest", "latest")


def _as_text(kind: pl.DataType, name: str) -> pl.Expr:
    if kind == pl.Datetime:
        return pl.col(name).dt.to_string("%Y-%m-%d %H:%M:%S%.f")
    return pl.col(name).cast(pl.String) + pl.lit(" s")


def clipped_seconds(seconds: pl.Expr) -> pl.Expr:
    """Convert seconds since 1970-01-01 to times. A value beyond all dates becomes a date that is out of range.

    Rounding to microseconds removes floating-point noise.
    """
    return (seconds.cast(pl.Float64).clip(-1e11, 1e11) * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us"))


def _in_order(choices: Mapping[str, Instants], before: pl.Series | None) -> dict[str, Instants]:
    """Narrow the possible instants: each time is between the earlier and the later times of its record.

    If neither instant fits, both are kept, and `possible` finds the contradiction.
    """
    if all(found.certain or not found.doubtful.any() for found in choices.values()):
        return dict(choices)
    earliest = {name: found.earliest for name, found in choices.items()}
    latest = {name: found.latest for name, found in choices.items()}
    for name in choices:
        if before is not None:
            late = ((earliest[name] < before) & (latest[name] >= before)).fill_null(value=False)
            earliest[name] = earliest[name].zip_with(~late, latest[name])
        before = _latest(before, earliest[name])
    behind: pl.Series | None = None
    for name in reversed(list(choices)):
        if behind is not None:
            early = ((latest[name] > behind) & (earliest[name] <= behind)).fill_null(value=False)
            latest[name] = latest[name].zip_with(~early, earliest[name])
        behind = latest[name] if behind is None else pl.select(pl.min_horizontal(behind, latest[name])).to_series()
    return {name: Instants(earliest[name], latest[name]) for name in choices}


def _latest(before: pl.Series | None, times: pl.Series) -> pl.Series:
    """Return the later of two times for each row, ignoring unknown times."""
    if before is None:
        return times
    return pl.select(pl.max_horizontal(before, times)).to_series()
