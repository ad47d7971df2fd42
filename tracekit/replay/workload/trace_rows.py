"""Rows of the table jobs as numbers: times in microseconds, run times, and columns of selected rows.

The tables contain long text that most rows of a replay do not need at once, so columns are read one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.trace import Trace


LONGEST_YEARS = 100
"""A longer run time, or a longer span of submissions, is an error of the log [years of 365 days]."""

LONGEST_S = LONGEST_YEARS * 365 * 86_400
"""`LONGEST_YEARS` in seconds [s]."""

_HELD_CAP = 10**17
"""Largest GPU time of one attempt [milli-GPU * ms], 28 million GPU-hours, so that sums fit into 63 bits."""


def read_numbers(trace: Trace) -> pl.DataFrame:
    """Return one row for each row of jobs, in the same order.

    Columns: row (0..); cluster; submit_us, start_us, end_us [us after 1970]; gpu_count [GPUs]; instance_count; open
    (running or pending, without an end); work_us, the sum of the attempts' known run times, else run_s, else end minus
    start [us]; held, its GPU time in the log [milli-GPU * ms].
    """
    table = (
        trace.scan("jobs")
        .select(
            pl.col("cluster").cast(pl.Categorical),
            pl.col("submit_time").cast(pl.Int64).alias("submit_us"),
            pl.col("start_time").cast(pl.Int64).alias("start_us"),
            pl.col("end_time").cast(pl.Int64).alias("end_us"),
            _microseconds("run_s").alias("work_us"),
            pl.col("gpu_count").fill_nan(None),
            "instance_count",
            (pl.col("status").is_in(["running", "pending"]) & pl.col("end_time").is_null())
            .fill_null(value=False)
            .alias("open"),
            # A job with one attempt has the run time of this attempt; only the other jobs need the larger table.
            ((pl.col("attempt_count") != 1).fill_null(value=True) | pl.col("run_s").is_null()).alias("several"),
        )
        .with_row_index("row")
        .collect()
    )
    table = table.with_columns(pl.coalesce("work_us", pl.col("end_us") - pl.col("start_us")))
    table = table.with_columns(_held("work_us").alias("held"))
    several = table["row"].filter(table["several"])
    if trace.has("attempts") and len(several):
        sums = _sums_of_attempts(trace, several)
        sized = sums.filter(pl.col("sized") > 0)
        # Few rows differ, so two columns are patched; a join would copy the whole table.
        table = table.with_columns(
            table["work_us"].scatter(sums["row"], sums["sum_us"]),
            table["held"].scatter(sized["row"], sized["sum_held"]),
        )
    return table.drop("several")


def _sums_of_attempts(trace: Trace, rows: pl.Series) -> pl.DataFrame:
    ids = pl.DataFrame([rows, column(trace, "job_id", rows)])
    return (
        trace.scan("attempts")
        .select("job_id", "gpu_count", _microseconds("run_s").alias("us"))
        .filter(pl.col("us").is_not_null())
        .join(ids.lazy(), on="job_id")
        .group_by("row")
        .agg(
            pl.col("us").sum().alias("sum_us"),
            _held("us").sum().alias("sum_held"),
            pl.col("gpu_count").count().alias("sized"),
        )
        .collect(engine="streaming")
    )


def _microseconds(seconds: str) -> pl.Expr:
    # Values beyond the limits are excluded later; clipping only keeps them within 63 bits.
    return (pl.col(seconds).fill_nan(None).clip(-2 * LONGEST_S, 2 * LONGEST_S) * 1e6).round().cast(pl.Int64)


def _held(micros: str) -> pl.Expr:
    """Return GPU time [milli-GPU * ms], as a whole number so that sums do not depend on the order of rows."""
    product = pl.col(micros).clip(lower_bound=0) * pl.col("gpu_count").fill_nan(None)
    return product.clip(0, _HELD_CAP).round().cast(pl.Int64)


def column(trace: Trace, name: str, rows: pl.Series, *, instead: str | None = None) -> pl.Series:
    """Return a column of jobs for the given rows; NULL is replaced by the column `instead`."""
    value = pl.col(name) if instead is None else pl.coalesce(name, instead)
    return trace.scan("jobs").select(value.alias(name)).collect().get_column(name).gather(rows)


def index_in(values: pl.Series, names: pl.Series) -> NDArray[np.int32]:
    """Return the index of each value in `names`, -1 for NULL, shape (n,)."""
    if names.is_empty():
        return np.full(len(values), -1, dtype=np.int32)
    return values.cast(pl.Enum(names)).to_physical().cast(pl.Int32).fill_null(-1).to_numpy().copy()


def scaled_column(
    trace: Trace, name: str, rows: pl.Series, scale: int, *, missing: int = -1, low: int = 0, high: int = 10**15
) -> NDArray[np.int64]:
    """Return a column times `scale` as whole numbers (halves up, clipped to the limits); `missing` if unknown."""
    value = column(trace, name, rows).cast(pl.Float64).fill_nan(None) * scale
    return (value.clip(low, high) + 0.5).floor().cast(pl.Int64).fill_null(missing).to_numpy().copy()
