"""What a cluster held through time: step functions built from the intervals of attempts.

Times are whole microseconds, so that durations add up exactly. Intervals are half-open: who ends at t holds
nothing at t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["Steps", "group_codes", "held_gpus", "time_true", "window_us"]


@dataclass(frozen=True)
class Steps:
    """A function of time that is constant between its steps.

    Attributes
    ----------
    times : int64 array, shape (n,)
        Where it changes [us], strictly rising.
    values : array, shape (n + 1,)
        values[0] before the first step, values[i + 1] from times[i] on.
    """

    times: Ints
    values: Floats

    @classmethod
    def of_intervals(cls, starts: Ints, ends: Ints, weights: Floats) -> Steps:
        """Return the sum of the weights of the intervals [start, end) that hold each moment."""
        times = np.concatenate([starts, ends])
        changes = np.concatenate([weights, -weights])
        moments, index = np.unique(times, return_inverse=True)
        sums = np.bincount(index, weights=changes, minlength=len(moments))
        # Sums of GPU shares such as 0.1 leave dust behind, which would read as a GPU in use for ever.
        values = np.round(np.concatenate([[0.0], np.cumsum(sums)]), 6)
        return cls(moments, values)

    @classmethod
    def of_changes(cls, times: Ints, values: Floats, before: float) -> Steps:
        """Return the function that takes each value from its time on; of equal times the last counts."""
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        last = np.append(times[1:] != times[:-1], True) if len(times) else np.empty(0, dtype=bool)
        return cls(times[last], np.concatenate([[before], values[last]]))

    def at(self, moments: Ints) -> Floats:
        """Return the value at each moment, changes at that moment included."""
        found: Floats = self.values[np.searchsorted(self.times, moments, side="right")]
        return found

    def before(self, moments: Ints) -> Floats:
        """Return the value just before each moment."""
        found: Floats = self.values[np.searchsorted(self.times, moments, side="left")]
        return found

    def means(self, edges: Ints) -> Floats:
        """Return the mean over each interval between successive edges [us], weighted by time."""
        found: Floats = np.diff(self._integral(edges)) / np.diff(edges)
        return found

    def _integral(self, moments: Ints) -> Floats:
        """Return the integral from the first step, or from 0 where there is none, to each moment [value * us]."""
        if not len(self.times):
            flat: Floats = self.values[0] * moments
            return flat
        areas = np.concatenate([[0.0], np.cumsum(self.values[1:-1] * np.diff(self.times))])
        index = np.searchsorted(self.times, moments, side="right") - 1
        inside = np.maximum(index, 0)
        after = areas[inside] + self.values[inside + 1] * (moments - self.times[inside])
        before = self.values[0] * (moments - self.times[0])
        found: Floats = np.where(index >= 0, after, before)
        return found


def time_true(times: Ints, holds: Bools, moments: Ints) -> Ints:
    """Return for how long a condition held before each moment [us].

    Parameters
    ----------
    times : int64 array, shape (n,)
        Rising moments [us] at which the condition may change.
    holds : bool array, shape (n,)
        Whether it holds from each of them to the next; before the first it does not.
    moments : int64 array
        Up to when to count.
    """
    if not len(times):
        return np.zeros(len(moments), dtype=np.int64)
    lengths = np.where(holds[:-1], np.diff(times), 0)
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    index = np.searchsorted(times, moments, side="right") - 1
    inside = np.maximum(index, 0)
    found = sums[inside] + np.where(holds[inside], moments - times[inside], 0)
    return np.where(index >= 0, found, 0)


def window_us(con: duckdb.DuckDBPyConnection) -> tuple[int, int] | None:
    """Return the first and the last moment that the jobs and attempts of a trace name [us]; None without any."""
    first, last = con.execute(
        """SELECT epoch_us(min(t)), epoch_us(max(t)) FROM (
            SELECT unnest([min(submit_time), max(submit_time), max(start_time), max(end_time)]) AS t FROM jobs
            UNION ALL SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM attempts)"""
    ).fetchall()[0]
    return None if first is None else (int(first), int(last))


def held_gpus(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[str]]:
    """Return what each attempt held and when, and what had to be left out, one sentence each.

    An attempt that still runs holds its GPUs up to the last moment that the trace names. One that has ended at
    an unknown time, or ends before it starts, is left out.

    Returns
    -------
    frame : polars.DataFrame
        job_id, attempt, cluster, vc, gpu_count (above 0), start and end [us since 1970-01-01 UTC].
    notes : list of str
        Counts of what was left out.
    """
    window = window_us(con)
    found = con.sql(
        """SELECT a.job_id, a.attempt, j.cluster, j.vc, a.gpu_count, epoch_us(a.start_time) AS start,
                  CASE WHEN a.end_time IS NOT NULL THEN epoch_us(a.end_time)
                       WHEN a.status = 'running' THEN $last END AS "end"
           FROM attempts AS a INNER JOIN jobs AS j ON a.job_id = j.job_id
           WHERE a.start_time IS NOT NULL AND a.gpu_count > 0""",
        params={"last": None if window is None else window[1]},
    ).pl()
    usable = found.filter(pl.col("end") >= pl.col("start"))
    unknown = found["end"].null_count()
    backwards = found.height - unknown - usable.height
    notes = []
    if unknown:
        notes.append(f"{unknown:,} attempts whose end is unknown hold nothing here")
    if backwards:
        notes.append(f"{backwards:,} attempts that end before they start hold nothing here")
    return usable, notes


def group_codes(frame: pl.DataFrame, groups: pl.DataFrame) -> Ints:
    """Return the row of `groups` that each row of `frame` belongs to; NULL belongs to NULL.

    Parameters
    ----------
    frame : polars.DataFrame
        Has the columns of `groups`.
    groups : polars.DataFrame
        Distinct rows; those of `frame` are all among them.
    """
    numbered = groups.with_row_index("code")
    codes = frame.select(groups.columns).join(
        numbered, on=groups.columns, how="left", nulls_equal=True, maintain_order="left"
    )["code"]
    return codes.to_numpy().astype(np.int64)
