"""Impossible and ambiguous times of a record.

Four rules, for the records of every source:

- The epoch, the last second of 32 bits and dates more than FAR from the rest of the log are impossible: logs write them
  where a time is unknown.
- Times that follow each other (submission, start, end) do not go back: one before an earlier one of its record is
  impossible. Which of the two is wrong is not known, so the order decides.
- A job cannot have become eligible before it was submitted or after it started: such a time is impossible.
- A wall clock inside the hour that a clock change doubles or skips means one of two instants an hour apart: it is kept
  with its bounds.

The record stays. An impossible time is NULL; each doubtful time is counted in the checks of the manifest and listed by
file and line in the table doubtful_times. `tracekit.ingest.table_times` applies the second rule between records.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.ingest.cells import FIRST_TIME, LAST_TIME
from tracekit.ingest.localtime import Instants, decided, instants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.sink import Sink

__all__ = ["CHECKS", "FAR", "RecordTimes", "TimeColumns", "clipped_seconds"]

FAR = timedelta(days=20 * 365.25)
"""Times further than this from the middle of the log are impossible: no cluster has run for so long."""

_NEAR = timedelta(days=2)
"""Wall clocks of all zones are within this of UTC."""
_FUTURE = datetime(2100, 1, 1)
"""Later times are ignored when the middle of the log is estimated."""
_LAST_32_BITS = datetime(2038, 1, 19, 3, 14, 7)
_MANY = 1_000
"""A block of at least so many rows updates the estimated middle of the log; the first block always sets it."""

_STATED = {"start_time": "began", "end_time": "finished"}

CHECKS = {
    "impossible_dates": "times that are no dates of this log (the epoch, the last second of 32 bits, or more than 20 "
    "years from the others); they are unknown, and listed in doubtful_times",
    "ends_before_start": "ends before the start or the submission; they are unknown, and listed in doubtful_times",
    "starts_before_queued": "starts before the submission or before the previous attempt ended; they are unknown, and "
    "listed in doubtful_times",
    "eligible_out_of_order": "times from which a job could have been started that lie before its submission or after "
    "its start; they are unknown, and listed in doubtful_times",
    "ambiguous_local_time": "wall-clock times inside the hour that a clock change doubles or skips; each may be an "
    "hour off, or is unknown, as doubtful_times states",
}
"""Meaning of a count above zero, by the name of the check."""


class TimeColumns(NamedTuple):
    """Columns of a frame whose times follow each other."""

    columns: Mapping[str, str]
    """The Trace's column by the frame's, earliest first: {'Submit': 'submit_time', ...}."""
    names: str = "job_id"
    """Column with the job ids."""
    attempt: str | None = None
    """Column with the number of the attempt, where the times are an attempt's own."""


class RecordTimes:
    """Checks the times of one raw file, block by block; its checks and the table doubtful_times go to the sink."""

    def __init__(self, sink: Sink, path: str) -> None:
        self._sink = sink
        self._path = path
        self._middle: datetime | None = None

    def from_wall_clock(
        self,
        frame: pl.DataFrame,
        sequence: TimeColumns,
        zone: str,
        doubled_hour: str = "bounded",
        *,
        clocks: pl.DataFrame | None = None,
        before: pl.Series | None = None,
    ) -> pl.DataFrame:
        """Return `frame` with the wall clocks of the sequence converted to UTC.

        Parameters
        ----------
        doubled_hour : {'bounded', 'null', 'first', 'second'}
            See `tracekit.ingest.localtime.DOUBLED_HOUR_MEANING`.
        clocks : polars.DataFrame, optional
            The wall clocks, NULL where a time of the record is no wall clock; then `frame` has all other times in UTC.
            By default its times are the wall clocks.
        before : Series of Datetime, optional
            The latest time [UTC] of each record that comes before the sequence.
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
        shown = frame if clocks is None else frame.with_columns(clocks)
        if doubled_hour == "bounded":
            choices = _in_order(choices, before)
        for name, column in sequence.columns.items():
            self._list_doubtful(shown, sequence, name, column, choices[name])
        return frame.with_columns(decided(found, doubled_hour).alias(name) for name, found in choices.items())

    def possible(self, frame: pl.DataFrame, sequence: TimeColumns) -> pl.DataFrame:
        """Return `frame` with impossible times of the sequence NULL: `dated`, then `ordered`."""
        return self.ordered(self.dated(frame, sequence), sequence)

    def ordered(self, frame: pl.DataFrame, sequence: TimeColumns, before: pl.Series | None = None) -> pl.DataFrame:
        """Return `frame` with times NULL that are before an earlier one of their record.

        Parameters
        ----------
        before : Series of Datetime, optional
            The latest time of each record that comes before the sequence.

        Returns
        -------
        polars.DataFrame
            `began` and `finished` (Boolean) are added: whether the source states a start and an end, even an impossible
            one.
        """
        columns = []
        for name, column in sequence.columns.items():
            times = frame[name]
            if column in _STATED:
                columns.append(times.is_not_null().alias(_STATED[column]))
            if before is not None:
                early = (times < before).fill_null(value=False)
                compared = times.is_not_null() & before.is_not_null()
                self._count_order(frame, sequence, column, early, int(compared.sum()))
                self._list(frame, sequence, name, column, early, "lies before an earlier time of its record")
                times = _without(times, early)
            before = _latest(before, times)
            columns.append(times.alias(name))
        return frame.with_columns(columns)

    def eligible(self, frame: pl.DataFrame, sequence: TimeColumns, name: str, start: pl.Series) -> pl.DataFrame:
        """Return `frame` with times of eligibility NULL that are before the submission of their job or after its start.

        Parameters
        ----------
        sequence : TimeColumns
            Its first column is the submission.
        name : str
            The column with the times of eligibility.
        start : Series of Datetime
            When each job started, NULL where it did not.
        """
        times, submit = frame[name], frame[next(iter(sequence.columns))]
        wrong = (times < submit).fill_null(value=False) | (times > start).fill_null(value=False)
        compared = times.is_not_null() & (submit.is_not_null() | start.is_not_null())
        check = "eligible_out_of_order"
        examples = frame[sequence.names].filter(wrong)
        self._sink.check(check, int(wrong.sum()), int(compared.sum()), CHECKS[check], examples)
        reason = "lies before the submission or after the start of its job"
        self._list(frame, sequence, name, "eligible_time", wrong, reason)
        return frame.with_columns(_without(times, wrong))

    def spans(self, frame: pl.DataFrame, columns: Mapping[str, str], names: str) -> pl.DataFrame:
        """Return `frame` with negative waits and run times [s] NULL; `columns` maps to the columns of the Trace."""
        for name, column in columns.items():
            below = (frame[name] < 0).fill_null(value=False)
            check = "ends_before_start" if column == "run_s" else "starts_before_queued"
            stated = frame.height - frame[name].null_count()
            self._sink.check(check, int(below.sum()), stated, CHECKS[check], frame[names].filter(below))
            self._list(frame, TimeColumns({}, names), name, column, below, "is below zero")
            frame = frame.with_columns(_without(frame[name], below))
        return frame

    def dated(self, frame: pl.DataFrame, sequence: TimeColumns) -> pl.DataFrame:
        """Return `frame` with the times of the sequence NULL that are no dates of the log."""
        found = self.no_dates(frame, list(sequence.columns))
        columns = []
        for name, column in sequence.columns.items():
            times, wrong = frame[name], found[name]
            self._sink.check(
                "impossible_dates",
                int(wrong.sum()),
                frame.height - times.null_count(),
                CHECKS["impossible_dates"],
                frame[sequence.names].filter(wrong),
            )
            self._list(frame, sequence, name, column, wrong, "is no date of this log")
            columns.append(_without(times, wrong).alias(name))
        return frame.with_columns(columns)

    def no_dates(self, frame: pl.DataFrame, columns: list[str]) -> dict[str, pl.Series]:
        """Return where the times of some columns are no dates of the log."""
        self._learn_middle(frame, columns)
        return {name: self._no_date(frame[name]) for name in columns}

    def _learn_middle(self, frame: pl.DataFrame, columns: list[str]) -> None:
        """Estimate the middle of the log."""
        if self._middle is not None and frame.height < _MANY:
            return
        times = pl.concat([frame[name].alias("time").cast(pl.Datetime("us")) for name in columns]).drop_nulls()
        held = times.filter(times.is_between(FIRST_TIME, _FUTURE))
        # Where most times are the epoch, the others are the log's; where all are near it, times count from there.
        later = held.filter(held > FIRST_TIME + _NEAR)
        middle = (later if len(later) else held).median()
        if isinstance(middle, datetime):
            self._middle = middle

    def _no_date(self, times: pl.Series) -> pl.Series:
        wrong = ~times.is_between(FIRST_TIME, LAST_TIME)
        if self._middle is not None:
            wrong |= (times - self._middle).abs() > FAR
            if abs(self._middle - _LAST_32_BITS) > timedelta(days=366):
                wrong |= (times - _LAST_32_BITS).abs() < _NEAR
        return wrong.fill_null(value=False)

    def _count_order(self, frame: pl.DataFrame, sequence: TimeColumns, column: str, early: pl.Series, of: int) -> None:
        check = "ends_before_start" if column == "end_time" else "starts_before_queued"
        self._sink.check(check, int(early.sum()), of, CHECKS[check], frame[sequence.names].filter(early))

    def _list(
        self,
        frame: pl.DataFrame,
        sequence: TimeColumns,
        name: str,
        column: str,
        where: pl.Series,
        reason: str,
        *bounds: str,
    ) -> None:
        if not where.any():
            return
        self._sink.write(
            "doubtful_times",
            frame.filter(where).select(
                *bounds,
                source_file=pl.lit(self._path),
                line="line",
                job_id=pl.col(sequence.names).cast(pl.String),
                attempt=pl.lit(None, dtype=pl.Int64) if sequence.attempt is None else pl.col(sequence.attempt),
                column=pl.lit(column),
                value=_as_text(frame.schema[name], name),
                reason=pl.lit(reason),
            ),
        )

    def _list_doubtful(
        self, frame: pl.DataFrame, sequence: TimeColumns, name: str, column: str, found: Instants
    ) -> None:
        doubtful = frame[name].is_not_null() & (found.doubtful | found.earliest.is_null())
        self._sink.check(
            "ambiguous_local_time",
            int(doubtful.sum()),
            frame.height - frame[name].null_count(),
            CHECKS["ambiguous_local_time"],
            frame[sequence.names].filter(doubtful),
        )
        bounded = frame.with_columns(earliest=found.earliest, latest=found.latest)
        reason = "is a wall clock in the hour that a clock change doubles or skips"
        self._list(bounded, sequence, name, column, doubtful, reason, "earliest", "latest")


def _as_text(kind: pl.DataType, name: str) -> pl.Expr:
    if kind == pl.Datetime:
        return pl.col(name).dt.to_string("%Y-%m-%d %H:%M:%S%.f")
    return pl.col(name).cast(pl.String) + pl.lit(" s")


def clipped_seconds(seconds: pl.Expr) -> pl.Expr:
    """Return seconds as times from 1970-01-01 on; those beyond any date become a date that is out of range.

    Rounding to microseconds drops the noise that floating-point sums leave in the last digits.
    """
    return (seconds.cast(pl.Float64).clip(-1e11, 1e11) * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us"))


def _in_order(choices: Mapping[str, Instants], before: pl.Series | None) -> dict[str, Instants]:
    """Narrow what wall clocks can mean: each time is between the earlier and the later ones of its record.

    Where no instant fits, both remain; `possible` then finds the contradiction.
    """
    if not any(found.doubtful.any() for found in choices.values()):
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
    """Return the later of two times, row by row, unknown ones left out."""
    if before is None:
        return times
    return pl.select(pl.max_horizontal(before, times)).to_series()


def _without(times: pl.Series, where: pl.Series) -> pl.Series:
    return times.set(where, None) if where.any() else times
