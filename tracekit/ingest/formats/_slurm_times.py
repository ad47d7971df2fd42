"""The times of `sacct` rows: in each form that SLURM_TIME_FORMAT gives, decided by Elapsed, and after a resize.

`%s` makes sacct print seconds since 1970, `%FT%T%z` a wall clock with its offset. Both are instants in no need of a
zone; anything else is the wall clock of the machine.

A job whose size was changed has two rows: one in the state RESIZING, which ends at the change, and one that was
submitted at the change but has the start of the first. The second begins at the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest.derived import in_seconds
from tracekit.ingest.record_times import TimeColumns

if TYPE_CHECKING:
    from tracekit.ingest.record_times import RecordTimes

__all__ = ["ALL", "LIFE", "Resizes", "as_wall_clocks", "in_utc", "stated_seconds"]

LIFE = TimeColumns({"Submit": "submit_time", "Start": "start_time", "End": "end_time"}, names="JobID")
ALL = TimeColumns(
    {"Submit": "submit_time", "Eligible": "eligible_time", "Start": "start_time", "End": "end_time"}, names="JobID"
)
_INSTANT = r"^\d{1,12}$|^\d{4}-.*(?:Z|[+-]\d\d:?\d\d)$"
_WRITTEN = "%Y-%m-%dT%H:%M:%S"
_MOST_RESIZES = 1_000_000
"""Most resized jobs that are remembered."""


def as_wall_clocks(text: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.Series]]:
    """Return the cells with instants spelled as wall clocks of UTC, and where they were, as columns `<name>Instant`."""
    cells, where = [], []
    for name in ALL.columns:
        found = text[name].str.contains(_INSTANT).fill_null(value=False) if name in text.columns else None
        if found is None or not found.any():
            continue
        cell = pl.col(name)
        zoned = cell.str.replace(r"Z$", "+0000").str.replace(r"([+-]\d\d):(\d\d)$", "${1}${2}")
        instant = pl.coalesce(
            cell.str.to_integer(strict=False).clip(0, 10**10).mul(1_000_000).cast(pl.Datetime("us")),
            zoned.str.to_datetime(f"{_WRITTEN}%z", strict=False, time_unit="us", cache=False).dt.replace_time_zone(
                None
            ),
        )
        cells.append(pl.when(found).then(pl.coalesce(instant.dt.to_string(_WRITTEN), cell)).otherwise(cell).alias(name))
        where.append(found.alias(f"{name}Instant"))
    return text.with_columns(cells), where


def stated_seconds() -> pl.Expr:
    """Return the run time that a row states, without suspension [s]."""
    return pl.coalesce(pl.col("ElapsedRaw").cast(pl.Float64), "Elapsed")


def in_utc(frame: pl.DataFrame, times: RecordTimes, zone: str, doubled_hour: str) -> tuple[pl.DataFrame, bool]:
    """Return the rows with their times in UTC and the wall clocks as columns `<name>Local`, and whether any had none.

    Of the two instants that a wall clock can mean when clocks change, Elapsed decides where it can.
    """
    instants = [name for name in ALL.columns if f"{name}Instant" in frame.columns]
    told = frame.select(
        pl.any_horizontal(pl.col(n).is_not_null() & ~_is_instant(n, n in instants) for n in ALL.columns).any()
    ).item()
    clocks = None
    if instants:
        clocks = frame.select(
            pl.when(~_is_instant(name, name in instants)).then(name).alias(name) for name in ALL.columns
        )
    local = [
        pl.when(_is_instant(name, name in instants))
        .then(pl.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None))
        .otherwise(name)
        .alias(f"{name}Local")
        if name in instants
        else pl.col(name).alias(f"{name}Local")
        for name in ALL.columns
    ]
    frame = frame.with_columns(local)
    seconds = frame.select(stated_seconds() + pl.col("Suspended").fill_null(0.0)).to_series()
    frame = times.from_wall_clock(frame, ALL, zone, doubled_hour, clocks=clocks, lasted=("Start", "End", seconds))
    return frame, bool(told)


def _is_instant(name: str, known: bool) -> pl.Expr:
    return pl.col(f"{name}Instant") if known else pl.lit(value=False)


class Resizes:
    """Finds rows that go on a job whose size was changed; remembers the rows in the state RESIZING."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the start at the change, the start that they state, and whether it was moved.

        A start before the submission is that of the first row if that was seen, or if the stated run time counts from
        it; else it contradicts the submission.
        """
        key = pl.concat_str(
            pl.col("Cluster").fill_null(""),
            pl.coalesce("JobIDRaw", "JobID"),
            pl.col("StartLocal").dt.to_string(_WRITTEN),
            separator="/",
        )
        own = pl.col("step").is_null()
        resizing = frame.filter(own & (pl.col("word") == "RESIZING")).select(key).to_series().drop_nulls()
        if len(self._seen) < _MOST_RESIZES:
            self._seen.update(resizing)
        early = own & (pl.col("Start") < pl.col("Submit")) & (pl.col("End") >= pl.col("Submit")).fill_null(value=True)
        frame = frame.with_columns(resized=early.fill_null(value=False), StartStated="Start")
        if not frame["resized"].any():
            return frame
        rows = frame.filter("resized").with_columns(key=key).select(self._goes_on()).to_series()
        marks = frame["resized"].scatter(frame["resized"].arg_true(), rows)
        return frame.with_columns(marks).with_columns(_moved("Start", "Submit"), _moved("StartLocal", "SubmitLocal"))

    def _goes_on(self) -> pl.Expr:
        lasted = stated_seconds() + pl.col("Suspended").fill_null(0.0)
        whole, before = in_seconds(pl.col("End") - pl.col("Start")), in_seconds(pl.col("Submit") - pl.col("Start"))
        counted = pl.when(pl.col("End").is_null()).then(lasted >= before).otherwise((lasted - whole).abs() < 1.0)
        return pl.col("key").is_in(list(self._seen)).fill_null(value=False) | counted.fill_null(value=False)


def _moved(start: str, change: str) -> pl.Expr:
    return pl.when("resized").then(change).otherwise(start).alias(start)
