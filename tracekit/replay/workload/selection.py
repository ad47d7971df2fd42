"""Which jobs of a Trace a replay can run, what they request, and how many it cannot run, by reason."""

from __future__ import annotations

import polars as pl

from tracekit.replay.jobs import LeftOut
from tracekit.replay.workload.trace_rows import LONGEST_S, LONGEST_YEARS

MOST_GPUS = 1_000_000
"""A larger job is an error of the log [GPUs]."""

BEYOND_LIMIT = "beyond the limit of jobs"
"""Why jobs beyond the limit are excluded."""

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
"""Why a job is excluded; the first reason that applies counts."""

IN_WINDOW = REASONS.index("no GPU count")
"""The first reason that applies to jobs inside the window."""

_MOST_GPU_TIME = 2**62
_SLICE = 100_000
_NEEDED = ("row", "submit_us", "start_us", "end_us", "work_us", "held", "devices", "milli", "reason")


def select_jobs(
    table: pl.DataFrame, *, cluster: str | None, since: int | None, until: int | None, limit: int | None
) -> pl.DataFrame:
    """Return the rows of `read_numbers` with each job's request and the reason why it is excluded.

    Columns: row, submit_us, start_us, end_us, work_us and held are unchanged; devices and milli [milli-GPU] are the
    request; reason is the index in `REASONS`, NULL for a job that can run.

    Parameters
    ----------
    table : DataFrame
        The result of `read_numbers`.
    cluster : str, optional
        Exclude jobs of other clusters.
    since, until : int, optional
        Exclude jobs submitted outside [since, until) [us after 1970].
    limit : int, optional
        Exclude all but this many jobs, the first by submission.
    """
    reason = _reason(cluster, since, until).alias("reason")
    # Slice by slice, so that intermediate results stay small.
    parts = [p.with_columns(request_sizes()).with_columns(reason).select(_NEEDED) for p in table.iter_slices(_SLICE)]
    judged = pl.concat(parts) if parts else table.with_columns(request_sizes()).with_columns(reason).select(_NEEDED)
    if limit is None:
        return judged
    rows = judged.select("row", "submit_us", "reason").filter(pl.col("reason").is_null())
    late = rows.sort("submit_us", maintain_order=True)["row"].slice(limit)
    return judged.with_columns(judged["reason"].scatter(late, len(REASONS) - 1))


def request_sizes() -> tuple[pl.Expr, pl.Expr]:
    """Return the number of devices of a gang and what it requests of each [milli-GPU]."""
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

    GPU-hours are summed over attempts if these are known; otherwise they are run time times GPUs of the job. They are
    None if they are unknown for all jobs.
    """
    found = []
    for i, reason in enumerate(REASONS):
        here = (judged["reason"] == i).fill_null(value=False)
        held = judged["held"].filter(here)
        if held.len():
            # Sums over many jobs may exceed 63 bits, but the two halves of a whole number add up exactly.
            high, low = int((held // 10**6).sum()), int((held % 10**6).sum())
            known = held.null_count() < held.len()
            found.append(LeftOut(reason, held.len(), (high * 10**6 + low) / 3.6e9 if known else None))
    return tuple(found)
