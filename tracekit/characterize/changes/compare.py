"""Two periods side by side, measure by measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.changes.estimates import Resampled
from tracekit.characterize.changes.measures import CLASS_SHARE, MEASURES
from tracekit.characterize.changes.periods import read_day, read_period, split_period
from tracekit.characterize.changes.remarks import groups_of_days, remarks
from tracekit.characterize.changes.verdicts import adjusted, difference
from tracekit.characterize.intervals import FEW
from tracekit.damage import explain_damage
from tracekit.trace import Trace

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from tracekit.characterize.changes.estimates import Scoped
    from tracekit.characterize.changes.measures import PeriodMeasure
    from tracekit.characterize.changes.periods import Period

__all__ = [
    "ALL_JOBS",
    "GPU_JOBS",
    "VCS",
    "Changes",
    "changes",
    "changes_between",
    "changes_since",
    "compare_periods",
    "compare_since",
]

VCS = 50
"""Most virtual clusters that are compared, those with the most jobs."""

ALL_JOBS, GPU_JOBS = "all jobs", "GPU jobs"
"""Scopes of the rows that are of no size class and no virtual cluster."""

_LEVEL = 0.05
_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")

_SCHEMA: dict[str, type[pl.DataType]] = {
    "measure": pl.String,
    "of": pl.String,
    "scope": pl.String,
    "unit": pl.String,
    "before": pl.Float64,
    "after": pl.Float64,
    "difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "relative_change": pl.Float64,
    "relative_change_low": pl.Float64,
    "relative_change_high": pl.Float64,
    "n_before": pl.Int64,
    "n_after": pl.Int64,
    "days_before": pl.Int64,
    "days_after": pl.Int64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "verdict": pl.String,
}


@dataclass(frozen=True)
class Changes:
    """What changed, with notes on the comparison."""

    frame: pl.DataFrame
    """See `changes`."""
    notes: tuple[str, ...]
    """The two periods, choices made and things left out, one sentence each."""


def changes(
    before: Trace | str | Path, after: Trace | str | Path, *, memory_limit: str | None = None, seed: int = 0
) -> pl.DataFrame:
    """Return what differs between two Traces, one row a measure and scope.

    measure, unit
        See `measures.MEASURES`; unit is that of the next five columns.
    of, scope
        'all' and 'all jobs', or 'GPU jobs' where there are CPU jobs too, which are then a size class alone;
        'gpu_class' and a size class with at least 30 jobs in both periods, or in one of them for
        its share of the jobs; 'vc' and a virtual cluster with at least 30 jobs in both, of those the 50 with the
        most jobs.
    before, after, difference
        The values, and after - before.
    difference_low, difference_high
        Its 95 % interval by resampling whole days.
    relative_change, relative_change_low, relative_change_high
        difference / before [1] with its interval; NULL where before is 0.
    n_before, n_after
        Observations: jobs, waits or samples; for a sum by day, the jobs.
    days_before, days_after
        Days that the value is computed from: all calendar days for a sum by day, else the days with an observation.
    p_value, p_adjusted
        p-value of no difference [0..1]; adjusted for the number of rows by Benjamini and Hochberg.
    verdict
        changed, noise or too little data; see `verdicts.RULE`.

    Measures that one of the two Traces lacks have no row.

    Parameters
    ----------
    before, after : Trace, str or Path
        The two periods: Traces, or their folders.
    memory_limit : str, optional
        Most memory for joins before they spill to disk, such as '2GB'.
    seed : int
        Of the resampling; the same seed gives the same rows.

    Raises
    ------
    QueryError
        A Trace has no job with a time of submission.
    """
    return compare_periods(before, after, memory_limit=memory_limit, seed=seed).frame


def changes_since(
    trace: Trace | str | Path, day: str | dt.date, *, memory_limit: str | None = None, seed: int = 0
) -> pl.DataFrame:
    """Return what differs in a Trace since a day, as `changes` does.

    Parameters
    ----------
    trace : Trace, str or Path
        Both periods: a Trace, or its folder.
    day : str or date
        First day of the later period, in the Trace's time zone.
    memory_limit, seed
        As for `changes`.

    Raises
    ------
    UsageError
        There is no such day, or it leaves one period without a day.
    QueryError
        As for `changes`.
    """
    return compare_since(trace, day, memory_limit=memory_limit, seed=seed).frame


@explain_damage()
def compare_periods(
    before: Trace | str | Path, after: Trace | str | Path, *, memory_limit: str | None = None, seed: int = 0
) -> Changes:
    """Return the rows of `changes` with notes."""
    first = read_period(Trace.of(before), "before", memory_limit=memory_limit)
    return changes_between(first, read_period(Trace.of(after), "after", memory_limit=memory_limit), seed=seed)


@explain_damage()
def compare_since(
    trace: Trace | str | Path, day: str | dt.date, *, memory_limit: str | None = None, seed: int = 0
) -> Changes:
    """Return the rows of `changes_since` with notes."""
    date = read_day(day) if isinstance(day, str) else day
    return changes_between(
        *split_period(read_period(Trace.of(trace), memory_limit=memory_limit), date), seed=seed, split=True
    )


def changes_between(before: Period, after: Period, *, seed: int = 0, split: bool = False) -> Changes:
    """Return what differs between two periods; `split` says that both are parts of one Trace."""
    measures = [m for m in MEASURES if not (before.lacks(m) or after.lacks(m)) and _seen(m, before, after)]
    groups = groups_of_days(before, after)
    periods = [Resampled(before, groups[0], (seed, 0)), Resampled(after, groups[1], (seed, 1))]
    gpu_only = _mixed(before, after)
    every, gpu = ([period.scoped(gpu_only=only) for period in periods] for only in (False, True))
    rows = [
        # Users and samples of telemetry are no jobs of a size.
        _row(m, "all", GPU_JOBS, gpu) if gpu_only and m.by_class else _row(m, "all", ALL_JOBS, every)
        for m in measures
    ]
    if not (before.lacks(CLASS_SHARE) or after.lacks(CLASS_SHARE)):
        rows += _class_rows([m for m in measures if m.by_class], periods)
    vcs, left = _vcs(before, after)
    for vc in vcs:
        own = [period.scoped("vc", vc, gpu_only=gpu_only) for period in periods]
        rows += [_row(m, "vc", vc, own) for m in measures if m.by_vc]
    frame = _judged(rows)
    return Changes(frame, remarks(before, after, groups=len(groups[0]), vcs_left=left, split=split))


def _mixed(*periods: Period) -> bool:
    """Return whether there are jobs with GPUs and others: those with GPUs are then what is compared first."""
    classes = {name for period in periods for name in period.sums["gpu_class"].drop_nulls().unique()}
    return "0" in classes and len(classes) > 1


def _seen(measure: PeriodMeasure, *periods: Period) -> bool:
    return not measure.where_seen or any(period.sums[measure.top].sum() for period in periods)


def _class_rows(measures: Sequence[PeriodMeasure], periods: Sequence[Resampled]) -> list[dict[str, Any]]:
    rows = []
    for name in _CLASSES:
        own = [period.scoped("gpu_class", name) for period in periods]
        jobs = [scoped.jobs for scoped in own]
        if max(jobs) >= FEW:
            rows.append(_row(CLASS_SHARE, "gpu_class", name, own))
        if min(jobs) >= FEW:
            rows += [_row(m, "gpu_class", name, own) for m in measures if m.for_cpu_jobs or name != "0"]
    return rows


def _vcs(before: Period, after: Period) -> tuple[list[str], int]:
    """Return the virtual clusters to compare, most jobs first, and how many are left out."""
    if before.lacking.get("tenants") or after.lacking.get("tenants"):
        return [], 0
    old, new = (p.sums.drop_nulls("vc").group_by("vc").agg(pl.col("jobs").sum()) for p in (before, after))
    both = (
        old.join(new, on="vc", suffix="_after")
        .filter(pl.min_horizontal("jobs", "jobs_after") >= FEW)
        .sort(pl.col("jobs") + pl.col("jobs_after"), "vc", descending=[True, False])
    )
    return both["vc"].head(VCS).to_list(), max(0, both.height - VCS)


def _row(measure: PeriodMeasure, of: str, scope: str, periods: Sequence[Scoped]) -> dict[str, Any]:
    before, after = (period.estimate(measure) for period in periods)
    found = difference(before, after)
    few = measure.kind != "a day" and min(before.n, after.n) < FEW
    return {
        "measure": measure.name,
        "of": of,
        "scope": scope,
        "unit": measure.unit,
        "before": before.value,
        "after": after.value,
        "difference": found.value,
        "difference_low": found.low,
        "difference_high": found.high,
        "relative_change": found.relative,
        "relative_change_low": found.relative_low,
        "relative_change_high": found.relative_high,
        "n_before": before.n,
        "n_after": after.n,
        "days_before": before.days,
        "days_after": after.days,
        "p_value": None if few else found.p,
    }


def _apart(row: dict[str, Any]) -> bool:
    """Return whether the interval of a difference holds no 0; a p-value alone makes no change."""
    low, high = row["difference_low"], row["difference_high"]
    return bool(low is not None and high is not None and (low > 0 or high < 0))


def _judged(rows: list[dict[str, Any]]) -> pl.DataFrame:
    for row, p in zip(rows, adjusted([row["p_value"] for row in rows]), strict=True):
        row["p_adjusted"] = p
        row["verdict"] = "too little data" if p is None else "changed" if p <= _LEVEL and _apart(row) else "noise"
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    return frame.with_columns(pl.col("before", "after").fill_nan(None))
