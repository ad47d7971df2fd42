"""The jobs of a Trace as a replay runs them, in whole milliseconds and milli-GPUs, and a list of excluded jobs.

Times are rounded to the nearest millisecond, with halves up. The work of a job is its actual run time (D1), summed over
its attempts. Waits between attempts count neither as work nor as queueing that a policy could avoid. A replay that
stops jobs itself leaves out the attempts that were stopped in the log (see `Jobs.preempted_ms`).
"""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit import resources
from tracekit.errors import TraceError, UsageError
from tracekit.gpu_parts import create_shares
from tracekit.replay.jobs import Jobs, LeftOut, naive_utc
from tracekit.replay.part import checked_cluster

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    from tracekit.trace import Trace


# The jobs table as numbers: times in microseconds, run times, and columns of selected rows.
#
# The tables contain long strings that most rows of a replay do not need at once, so columns are read one by one.

LONGEST_YEARS = 100
"""A longer run time, or a longer span of submissions, is an error in the log [years of 365 days]."""

LONGEST_S = LONGEST_YEARS * 365 * 86_400
"""`LONGEST_YEARS` in seconds [s]."""

_HELD_CAP = 10**17
"""Largest GPU time of one attempt [milli-GPU * ms], 28 million GPU-hours, to keep sums within 63 bits."""


def read_numbers(trace: Trace) -> pl.DataFrame:
    """Return one row for each row of jobs, in the same order.

    The columns are row (0..), cluster, submit_us, start_us and end_us [us after 1970], gpu_count [GPUs],
    instance_count, open (running or pending, without an end), work_us (the sum of the attempts' known run times, or
    else run_s, or else end minus start [us]), and held (the job's GPU time in the log [milli-GPU * ms]).
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
            # A job with one attempt has the run time of this attempt. Only the other jobs need the larger table.
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
        # Few rows differ, so two columns are patched, because a join would copy the whole table.
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
    # Values beyond the limits are excluded later. Clipping only keeps them within 63 bits.
    return (pl.col(seconds).fill_nan(None).clip(-2 * LONGEST_S, 2 * LONGEST_S) * 1e6).round().cast(pl.Int64)


def _held(micros: str) -> pl.Expr:
    """Return GPU time as a whole number [milli-GPU * ms], because sums must not depend on the order of rows."""
    product = pl.col(micros).clip(lower_bound=0) * pl.col("gpu_count").fill_nan(None)
    return product.clip(0, _HELD_CAP).round().cast(pl.Int64)


def column(trace: Trace, name: str, rows: pl.Series, *, instead: str | None = None) -> pl.Series:
    """Return a column of jobs for the given rows, with NULL replaced by the column `instead`."""
    value = pl.col(name) if instead is None else pl.coalesce(name, instead)
    return trace.scan("jobs").select(value.alias(name)).collect().get_column(name).gather(rows)


def index_in(values: pl.Series, names: pl.Series) -> NDArray[np.int32]:
    """Return the index of each value in `names`, or -1 for NULL (n,)."""
    if names.is_empty():
        return np.full(len(values), -1, dtype=np.int32)
    return values.cast(pl.Enum(names)).to_physical().cast(pl.Int32).fill_null(-1).to_numpy().copy()


def scaled_column(
    trace: Trace, name: str, rows: pl.Series, scale: int, *, missing: int = -1, low: int = 0, high: int = 10**15
) -> NDArray[np.int64]:
    """Return a column times `scale` as whole numbers (halves up, clipped to the limits), or `missing` if unknown."""
    value = column(trace, name, rows).cast(pl.Float64).fill_nan(None) * scale
    return (value.clip(low, high) + 0.5).floor().cast(pl.Int64).fill_null(missing).to_numpy().copy()


# The jobs of a Trace that a replay can run, their requests, and the number of other jobs by reason.

MOST_GPUS = 1_000_000
"""A larger job is an error in the log [GPUs]."""

BEYOND_LIMIT = "beyond the limit of jobs"
"""The reason for excluding jobs beyond the limit."""

REASONS = (
    "of another cluster",
    "no submission time",
    "submitted outside the window",
    "no GPU count",
    "no GPUs (CPU only)",
    "still running or pending when the log ends",
    "no start and no run time",
    "no end and no run time",
    "negative run time",
    f"run time above {LONGEST_YEARS} years, or more than {MOST_GPUS:,} GPUs",
    BEYOND_LIMIT,
)
"""The reasons for excluding a job. The first that applies counts."""

IN_WINDOW = REASONS.index("no GPU count")
"""The first reason that applies to jobs inside the window."""

_MOST_GPU_TIME = 2**62
_SLICE = 100_000
_NEEDED = ("row", "submit_us", "start_us", "end_us", "work_us", "held", "devices", "milli", "reason")


def select_jobs(
    table: pl.DataFrame, *, cluster: str | None, since: int | None, until: int | None, limit: int | None
) -> pl.DataFrame:
    """Return the rows of `read_numbers` with each job's request and the reason why it is excluded.

    The columns row, submit_us, start_us, end_us, work_us and held are unchanged. The columns devices and milli
    [milli-GPU] are the request. The column reason is the index in `REASONS`, or NULL for a job that can run.

    Parameters
    ----------
    table : DataFrame
        The result of `read_numbers`.
    cluster : str, optional
        Exclude jobs of other clusters.
    since, until : int, optional
        Exclude jobs submitted outside [since, until) [us after 1970].
    limit : int, optional
        Exclude all but this many jobs, in order of submission.
    """
    reason = _reason(cluster, since, until).alias("reason")
    # Work slice by slice, to keep intermediate results small.
    parts = [p.with_columns(request_sizes()).with_columns(reason).select(_NEEDED) for p in table.iter_slices(_SLICE)]
    judged = pl.concat(parts) if parts else table.with_columns(request_sizes()).with_columns(reason).select(_NEEDED)
    if limit is None:
        return judged
    rows = judged.select("row", "submit_us", "reason").filter(pl.col("reason").is_null())
    late = rows.sort("submit_us", maintain_order=True)["row"].slice(limit)
    return judged.with_columns(judged["reason"].scatter(late, len(REASONS) - 1))


def request_sizes() -> tuple[pl.Expr, pl.Expr]:
    """Return the number of devices of a gang and its request per device [milli-GPU]."""
    gpus, instances = pl.col("gpu_count").clip(0, MOST_GPUS), pl.col("instance_count")
    whole = gpus == gpus.floor()
    split = (instances > gpus).fill_null(value=False) & (gpus > 1) & ~whole
    devices = pl.when(split).then(instances).otherwise(gpus.ceil()).cast(pl.Int64).clip(1, MOST_GPUS).cast(pl.Int32)
    milli = pl.when(whole & (gpus >= 1)).then(1000.0).otherwise((gpus * 1000 / devices + 0.5).floor())
    return devices.alias("devices"), milli.cast(pl.Int32).clip(1, 1000).alias("milli")


def _reason(cluster: str | None, since: int | None, until: int | None) -> pl.Expr:
    submit, gpus, work = pl.col("submit_us"), pl.col("gpu_count"), pl.col("work_us")
    gpu_time = pl.col("devices").cast(pl.Float64) * pl.col("milli") * (work / 1000)
    never = pl.lit(value=False)
    tests = (
        never if cluster is None else pl.col("cluster").cast(pl.String).ne_missing(cluster),
        submit.is_null(),
        (never if since is None else submit < since) | (never if until is None else submit >= until),
        gpus.is_null(),
        gpus <= 0,
        pl.col("open"),
        work.is_null() & pl.col("start_us").is_null(),
        work.is_null(),
        work < 0,
        # Products of milli-GPUs and milliseconds must also fit into 63 bits.
        (work > LONGEST_S * 1_000_000) | (gpus > MOST_GPUS) | (gpu_time > _MOST_GPU_TIME),
    )
    return pl.coalesce(
        pl.when(test.fill_null(value=False)).then(pl.lit(i, dtype=pl.Int8)) for i, test in enumerate(tests)
    )


def left_out_of(judged: pl.DataFrame) -> tuple[LeftOut, ...]:
    """Return the excluded jobs by reason, with their GPU-hours in the log.

    GPU-hours are summed over attempts if these are known. Otherwise, they are the job's run time times its GPUs. They
    are None if they are unknown for all jobs.
    """
    found = []
    for i, reason in enumerate(REASONS):
        here = (judged["reason"] == i).fill_null(value=False)
        held = judged["held"].filter(here)
        if held.len():
            # Sums over many jobs may exceed 63 bits, but sums of the two halves of each whole number are exact.
            high, low = int((held // 10**6).sum()), int((held % 10**6).sum())
            known = held.null_count() < held.len()
            found.append(LeftOut(reason, held.len(), (high * 10**6 + low) / 3.6e9 if known else None))
    return tuple(found)


# GPU utilization of each job, from the same views that the query utilization/idle_jobs reads.

_NO_PLACEMENTS = """
CREATE TEMP TABLE placements (
    job_id VARCHAR, attempt BIGINT, task VARCHAR, instance VARCHAR, gpu_count DOUBLE
)"""


def mean_utilization(trace: Trace, job_id: pl.Series, *, samples: bool = False) -> NDArray[np.float64]:
    """Return the mean GPU utilization of each job while it had its GPUs [0..1], or NaN if unknown.

    If `samples` is set and samples of gpu_utilization exist, the result is their mean, matched to all attempts of the
    job. Otherwise it is the utilization in job_usage, divided by the number of GPUs measured. Values above 1 (if the
    source counts more GPUs than the job requested) are set to 1.

    Parameters
    ----------
    trace : Trace
        The Trace with the measurements.
    job_id : Series of String, shape (n,)
        The jobs, without duplicates.
    samples : bool
        Whether to match the samples as well, which takes minutes for months of telemetry.

    Raises
    ------
    TraceError
        A table is damaged.
    """
    import duckdb

    found = np.full(len(job_id), np.nan)
    tables = {"attempts", "placements", "gpu_utilization"}
    with_samples = samples and tables <= set(trace.tables)
    if not (trace.has("job_usage") or with_samples):
        return found
    with trace.connect() as con:
        try:
            if trace.has("job_usage"):
                if not trace.has("placements"):
                    con.execute(_NO_PLACEMENTS)
                _fill(found, job_id, con, "job_reported_use")
            if with_samples:
                create_shares(con)
                _make_view(con, "attempt_samples")
                _fill(found, job_id, con, "job_sampled_use")
        except duckdb.Error as error:
            raise TraceError(
                f"the utilization of jobs cannot be read: {str(error).splitlines()[0]}",
                where=trace.path,
                hint="'tracekit validate TRACE' shows more",
            ) from error
    return found


def _fill(found: NDArray[np.float64], job_id: pl.Series, con: duckdb.DuckDBPyConnection, view: str) -> None:
    """Write the means of a view to `found`, job by job."""
    _make_view(con, view)
    means = pl.DataFrame(con.sql(f"SELECT job_id, mean_pct FROM {view}"))
    ids = job_id.alias("job_id").to_frame()
    share = ids.join(means, on="job_id", how="left", maintain_order="left")["mean_pct"] / 100
    known = share.is_not_null().to_numpy()
    found[known] = share.drop_nulls().clip(0, 1).to_numpy()


def _make_view(con: duckdb.DuckDBPyConnection, name: str) -> None:
    text = (resources.folder("queries") / "views" / f"{name}.sql").read_text(encoding="utf-8")
    con.execute(f"CREATE TEMP VIEW {name} AS {text}")


_EPOCH = dt.datetime(1970, 1, 1)


def jobs_of_trace(
    trace: Trace,
    *,
    cluster: str | None = None,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    load: float = 1.0,
    limit: int | None = None,
    samples: bool = False,
) -> Jobs:
    """Return the jobs of `trace` that a replay can run, and count the others.

    Every row of the jobs table is either in the result or in `left_out`, under the first reason that applies: of
    another cluster, no submission time, submitted outside the window, no GPU count, no GPUs, still running or pending
    when the log ends, no start and no run time, no end and no run time, negative run time, enormous (a run time above
    100 years, more than a million GPUs, or more GPU time than fits into 63 bits of milli-GPU * ms), or beyond `limit`.

    work_ms
        Sum of the known run times of the job's attempts, or the job's run_s if no attempt's run time is known, or end
        minus start if run_s is also unknown. Failed and killed jobs keep their actual run time.
    devices, milli
        A request for whole GPUs becomes that many whole GPUs, and a request for less than one GPU becomes one device. A
        larger request with a fraction is split evenly over the job's instances if each then requests less than one GPU,
        or otherwise over the fewest devices that can hold it (2.5 GPUs become three devices of 833 milli-GPUs). The
        minimum is 1 milli-GPU.
    utilization
        From job_usage, or from the samples of gpu_utilization if `samples` is set (see `mean_utilization`).

    Parameters
    ----------
    trace : Trace
        The Trace, which must have a jobs table.
    cluster : str, optional
        The cluster to replay, which is required if the Trace has several.
    start, end : datetime, optional
        Use only jobs submitted in [start, end). Times without a zone are in UTC.
    load : float
        Divide the times between submissions by this factor, by which the offered load grows. If it is not 1, recorded
        starts and ends are meaningless and become unknown.
    limit : int, optional
        Use only this many jobs, in order of submission.
    samples : bool
        Whether to also read the samples of GPU utilization, which can take minutes for a large Trace.

    Raises
    ------
    MissingTableError
        The Trace has no jobs table.
    UsageError
        An option is invalid, the Trace has several clusters and none is named, or no job is left.
    """
    since, until = _checked(start, end, load, limit)
    table = read_numbers(trace)
    checked_cluster(trace, sorted(table["cluster"].drop_nulls().unique().to_list()), cluster)
    table = select_jobs(table, cluster=cluster, since=since, until=until, limit=limit)
    left_out = left_out_of(table)
    selected = table.filter(pl.col("reason").is_null()).drop("reason", "held")
    if selected.is_empty():
        raise _nothing_left(trace, table, left_out, windowed=start is not None or end is not None)
    del table
    if not selected["submit_us"].is_sorted():
        # A stable sort, so that jobs submitted at the same time keep the order of the trace.
        selected = selected.sort("submit_us", maintain_order=True)
    return jobs_of_rows(trace, selected, left_out, load, samples=samples)


def _checked(
    start: dt.datetime | None, end: dt.datetime | None, load: float, limit: int | None
) -> tuple[int | None, int | None]:
    """Check the window, and return it in microseconds after 1970."""
    if not (math.isfinite(load) and load > 0):
        raise UsageError(f"the load must be a number above 0, not {load:g}", hint="1 keeps the recorded load")
    if limit is not None and limit < 1:
        raise UsageError(f"the limit must be at least 1 job, not {limit}")
    since, until = _after_1970(start), _after_1970(end)
    if since is not None and until is not None and since >= until:
        raise UsageError(f"the window is empty: it starts at {start} and ends at {end}", hint="swap the two times")
    return since, until


def _after_1970(time: dt.datetime | None) -> int | None:
    if time is None:
        return None
    return (naive_utc(time) - _EPOCH) // dt.timedelta(microseconds=1)


def _nothing_left(trace: Trace, judged: pl.DataFrame, left_out: tuple[LeftOut, ...], *, windowed: bool) -> UsageError:
    """Return the error for a Trace, or a window of it, that has no job to replay."""
    reason = judged["reason"].fill_null(IN_WINDOW)
    submits = judged["submit_us"].filter(reason > 0).drop_nulls()
    if windowed and len(submits) and not (reason >= IN_WINDOW).any():
        first, last = (_EPOCH + dt.timedelta(microseconds=v) for v in (submits.sort()[0], submits.sort()[-1]))
        return UsageError(
            "no job was submitted in the window", where=trace.path, hint=f"submissions run from {first} to {last}"
        )
    reasons = ", ".join(f"{r.jobs:,} {r.reason}" for r in left_out) or "the jobs table is empty"
    return UsageError(f"no job can be replayed: {reasons}", where=trace.path, hint="choose other jobs or another trace")


def jobs_of_rows(
    trace: Trace,
    selected: pl.DataFrame,
    left_out: tuple[LeftOut, ...] = (),
    load: float = 1.0,
    *,
    samples: bool = False,
    measured: bool = True,
) -> Jobs:
    """Return the jobs in some rows of `read_numbers`, which are in order of submission and have a request.

    The other parameters are those of `jobs_of_trace`. If `measured` is not set, the utilization is not read.
    """
    rows = selected["row"]
    micros = selected["submit_us"].to_numpy()
    first = int(micros[0])
    submit_ms = _scaled(micros - first, load)
    recorded: dict[str, Any] = {
        name: _after(selected[times], first) if load == 1 else np.full(len(rows), -1, dtype=np.int64)
        for name, times in (("recorded_start_ms", "start_us"), ("recorded_end_ms", "end_us"))
    }
    fields: dict[str, Any] = {}  # index arrays and lists of names
    for field, names, source in (
        ("tenant", "tenants", "vc"),
        ("user", "users", "user"),
        ("partition", "partitions", "partition"),
        ("model", "models", "gpu_model"),
        ("qos", "qoses", "qos"),
    ):
        fields[field], fields[names] = _indexed(column(trace, source, rows))
    job_id = column(trace, "job_id", rows)
    return Jobs(
        origin=_EPOCH + dt.timedelta(microseconds=first),
        job_id=job_id,
        submit_ms=submit_ms,
        work_ms=_milliseconds(selected["work_us"].to_numpy()),
        devices=selected["devices"].to_numpy().copy(),
        milli=selected["milli"].to_numpy().copy(),
        name=_numbered(column(trace, "name", rows, instead="group")),
        priority=scaled_column(trace, "priority", rows, 1, missing=0, low=-(2**31), high=2**31 - 1).astype(np.int32),
        preemptible=column(trace, "preemptible", rows).cast(pl.Int8).fill_null(-1).to_numpy().copy(),
        cpu_milli=scaled_column(trace, "cpu_count", rows, 1000),
        memory_mib=scaled_column(trace, "memory_gib", rows, 1024),
        limit_ms=scaled_column(trace, "time_limit_s", rows, 1000, high=LONGEST_S * 1000),
        utilization=(mean_utilization(trace, job_id, samples=samples) if measured else np.full(len(job_id), np.nan)),
        left_out=left_out,
        **recorded,
        **fields,
    )


def _milliseconds(micros: NDArray[np.int64]) -> NDArray[np.int64]:
    return (micros + 500) // 1000


def _scaled(micros: NDArray[np.int64], load: float) -> NDArray[np.int64]:
    """Convert submissions to milliseconds, compressed by the factor `load`."""
    span = float(micros[-1]) / 1000 / load
    if span > LONGEST_S * 1000:
        years = span / (LONGEST_S * 1000) * LONGEST_YEARS
        raise UsageError(
            f"the submissions span {years:,.0f} years, more than {LONGEST_YEARS}",
            hint="choose a window or a higher load",
        )
    if load == 1:
        return _milliseconds(micros)
    scaled: NDArray[np.int64] = np.floor(micros / (1000 * load) + 0.5).astype(np.int64)
    return scaled


def _after(times: pl.Series, first: int) -> NDArray[np.int64]:
    """Convert times to milliseconds after the first submission, or -1 if unknown or earlier."""
    later = (times - first + 500) // 1000
    return later.fill_null(-1).clip(lower_bound=-1).to_numpy().astype(np.int64)


def _indexed(values: pl.Series) -> tuple[NDArray[np.int32], list[str]]:
    """Return the index of each value in the sorted list of distinct values, or -1 for NULL, and that list."""
    names = values.drop_nulls().unique().sort()
    return index_in(values, names), names.to_list()


def _numbered(values: pl.Series) -> NDArray[np.int32]:
    """Return a number for each value, in order of first appearance and equal for equal values, or -1 for NULL."""
    return index_in(values, values.drop_nulls().unique(maintain_order=True))
