"""Compare two periods, measure by measure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.changes.differences import (
    FEWEST_DAYS,
    Estimate,
    adjusted,
    difference,
    draw_days,
    quantile,
    resampled_quantile,
)
from tracekit.characterize.changes.periods import CLASS_SHARE, MEASURES, read_day, read_period, split_period
from tracekit.characterize.intervals import FEW
from tracekit.damage import explain_damage
from tracekit.text import counted
from tracekit.trace import Trace

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.changes.differences import DayResamples
    from tracekit.characterize.changes.periods import Period, PeriodMeasure


# The value of a measure in one period, and in each resample of its days.

_TELEMETRY = frozenset({"busy_pct", "samples"})


class Resampled:
    """A period and the resamples of its days.

    Parameters
    ----------
    period : Period
        The period.
    groups : sequence of bool arrays, one value for each day
        Groups of days that may replace each other.
    seed : sequence of int
        Seed of the resamples.
    """

    def __init__(self, period: Period, groups: Sequence[Bools], seed: Sequence[int]) -> None:
        self.period = period
        self._seed = (*seed,)
        used = period.sums["day"].unique().sort()
        self.draws = draw_days(_ints(period.days), _ints(used), groups, (*seed, 0))

    @cached_property
    def telemetry(self) -> DayResamples:
        """Resamples of the days with telemetry, which can differ from the days with submissions."""
        days = _ints(self.period.telemetry["day"])
        return draw_days(days, days, [np.ones(len(days), dtype=np.bool_)], (*self._seed, 1))


class Scoped:
    """A selection of a period's jobs: all jobs or the jobs whose `of` column is `name`, optionally only GPU jobs."""

    def __init__(
        self, resampled: Resampled, of: str | None = None, name: str | None = None, *, gpu_only: bool = False
    ) -> None:
        self._resampled = resampled
        period = resampled.period
        own = pl.lit(True) if of is None else pl.col(of) == name
        if gpu_only:
            own &= pl.col("gpu_class") != "0"
        self._sums = period.sums.filter(own)
        self._values = period.values.lazy().filter(own)
        self._quantiles: dict[str, tuple[Ints, Floats]] = {}

    @property
    def jobs(self) -> int:
        """The number of selected jobs."""
        return int(self._sums["jobs"].sum())

    def estimate(self, measure: PeriodMeasure) -> Estimate:
        """Estimate a measure for the selected jobs."""
        if measure.kind == "quantile":
            return self._quantile(measure)
        draws = self._resampled.telemetry if measure.top in _TELEMETRY else self._resampled.draws
        top, tops = draws.sums(*self._column(measure.top))
        n = int(draws.sums(*self._column(measure.counts))[0])
        if measure.kind == "a day":
            return Estimate(top / draws.days, tops / draws.days, n, draws.days, draws.groups)
        days, parts = self._column(measure.bottom)
        bottom, bottoms = draws.sums(days, parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(bottoms > 0, tops / bottoms, np.nan)
        seen = len(np.unique(days[parts > 0]))
        return Estimate(top / bottom if bottom else np.nan, ratios, n, seen, draws.groups)

    def _quantile(self, measure: PeriodMeasure) -> Estimate:
        if measure.top not in self._quantiles:
            frame = self._values.select("day", measure.top).drop_nulls().collect()
            self._quantiles[measure.top] = (_ints(frame["day"]), frame[measure.top].to_numpy())
        days, values = self._quantiles[measure.top]
        draws = self._resampled.draws
        found = resampled_quantile(draws, days, values, measure.share)
        return Estimate(quantile(values, measure.share), found, len(values), len(np.unique(days)), draws.groups)

    def _column(self, name: str) -> tuple[Ints, Floats]:
        """Return the days and values of a column of daily sums. A day may occur several times."""
        period = self._resampled.period
        frame, column = self._sums, name
        if name == "all_jobs":
            frame, column = period.sums, "jobs"
        elif name == "users":
            frame = period.users
        elif name in _TELEMETRY:
            frame = period.telemetry
        return _ints(frame["day"]), frame[column].cast(pl.Float64).to_numpy()


def _ints(days: pl.Series) -> Ints:
    return days.cast(pl.Int64).to_numpy()


# The notes of a comparison: the periods, their weekdays and time zones, and the excluded data.

_ALIKE = 0.02
"""Maximum difference in the share of weekend days between two periods with the same mix of days."""


def groups_of_days(before: Period, after: Period) -> tuple[list[Bools], list[Bools]]:
    """Return, for each period, the groups of days within which days are resampled: weekdays and weekends, or all days.

    Two groups need five days of each kind in both periods, and about the same share of weekend days. If the shares
    differ, so do the sums, and the resamples must reflect this.
    """
    kinds = [_weekend(period) for period in (before, after)]
    apart = all(min(kind.sum(), (~kind).sum()) >= FEWEST_DAYS for kind in kinds)
    if apart and _dated(before, after) and abs(kinds[0].mean() - kinds[1].mean()) <= _ALIKE:
        return [~kinds[0], kinds[0]], [~kinds[1], kinds[1]]
    return [np.ones_like(kinds[0])], [np.ones_like(kinds[1])]


def _weekend(period: Period) -> Bools:
    weekend: Bools = (period.days.to_numpy() + 3) % 7 >= 5  # 1970-01-01 was a Thursday
    return weekend


def _dated(before: Period, after: Period) -> bool:
    """Return whether the days of the week are known."""
    return "relative" not in {before.time_base, after.time_base}


def remarks(before: Period, after: Period, *, groups: int, split: bool) -> Iterator[str]:
    """Yield the notes of a comparison, one sentence each without a full stop."""
    sides, bases = (before, after), {before.time_base, after.time_base}
    yield "; ".join(
        f"{name}: {period.dates}, {counted(len(period.days), 'days')}, {counted(period.jobs, 'jobs')}"
        for name, period in zip(("before", "after"), sides, strict=True)
    )
    if "relative" in bases:
        yield (
            "times count from the start of the trace (shown as 1970-01-01), so days are counted from there and "
            "weekdays are unknown"
        )
    if "shifted" in bases:
        yield "dates are shifted: hours and days of the week are correct, but the dates are not"
    if bases != {"absolute"} and not split:
        yield "the times do not show which period came first"
    if before.timezone != after.timezone:
        yield f"days are in the time zone {before.timezone} before and {after.timezone} after"
    mixes = [float(_weekend(period).mean()) for period in sides]
    if _dated(before, after) and groups > 1:
        yield "days are resampled within weekdays and within weekends"
    elif _dated(before, after) and abs(mixes[0] - mixes[1]) > _ALIKE:
        shares = " and ".join(f"{100 * mix:.1f} %" for mix in mixes)
        yield f"weekend days make up {shares} of the days before and after; this alone may change the numbers"
    if not split and bases == {"absolute"}:
        if before.days[0] > after.days[-1]:
            yield "the period called 'before' is the later one"
        elif before.days[-1] >= after.days[0]:
            yield "the two periods share days"
    yield from _left_out(before, after)


def _left_out(before: Period, after: Period) -> list[str]:
    """Return one note on missing measures for each reason."""
    reasons: dict[str, list[str]] = {}
    for measure in (*MEASURES, CLASS_SHARE):
        periods = [(name, period.lacks(measure)) for name, period in (("before", before), ("after", after))]
        lacking = [(name, why) for name, why in periods if why is not None]
        if not lacking or (measure.rare and len(lacking) == len(periods)):
            continue
        where = " and ".join(name for name, _ in lacking)
        reasons.setdefault(f"the trace {where} {lacking[0][1]}", []).append(measure.name)
    return [f"excluded: {', '.join(names)}, because {why}" for why, names in reasons.items()]


VCS = 50
"""Maximum number of virtual clusters to compare, starting with the most jobs."""

ALL_JOBS, GPU_JOBS = "all jobs", "GPU jobs"
"""Scopes of the rows that cover all size classes and virtual clusters."""

_LEVEL = 0.05
_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")

_C = AnswerColumn
COLUMNS = (
    _C("unit", "text", "unit of before, after and difference"),
    _C("before", "see unit", "value of the earlier period"),
    _C("after", "see unit", "value of the later period"),
    _C("difference", "see unit", "after - before"),
    _C("difference_low", "see unit", "lower end of its 95 % interval"),
    _C("difference_high", "see unit", "upper end of its 95 % interval"),
    _C("relative_change", "share", "difference / before; NULL if before is 0"),
    _C("relative_change_low", "share", "lower end of its 95 % interval"),
    _C("relative_change_high", "share", "upper end of its 95 % interval"),
    _C("n_before", "observations", "jobs, waits or samples before"),
    _C("n_after", "observations", "jobs, waits or samples after"),
    _C("days_before", "days", "days with data for the value before"),
    _C("days_after", "days", "days with data for the value after"),
    _C("p_value", "0 to 1", "probability of a difference at least this large if nothing changed"),
    _C("p_adjusted", "0 to 1", "p_value adjusted for the number of rows compared"),
    _C("verdict", "text", "changed, noise or too little data"),
)
"""The columns of a comparison, except those that name the measure and the jobs.

For a daily sum, the observations are jobs and all calendar days count. For other measures, only days with an
observation count.
"""

_TYPES: dict[str, type[pl.DataType]] = {"text": pl.String, "observations": pl.Int64, "days": pl.Int64}
_SCHEMA: dict[str, type[pl.DataType]] = {"measure": pl.String, "of": pl.String, "scope": pl.String}
_SCHEMA |= {c.name: _TYPES.get(c.unit, pl.Float64) for c in COLUMNS}


@dataclass(frozen=True)
class Changes:
    """The changes, and notes on the comparison."""

    frame: pl.DataFrame
    """See `changes`."""
    notes: tuple[str, ...]
    """The two periods, the choices made and the data excluded, one sentence each."""


def changes(
    before: Trace | str | Path, after: Trace | str | Path, *, memory_limit: str | None = None, seed: int = 0
) -> pl.DataFrame:
    """Return the differences between two Traces, one row for each measure and scope.

    measure
        See `periods.MEASURES`.
    of, scope
        'all' and 'all jobs', or 'GPU jobs' if there are also CPU jobs, which are then only a size class. 'gpu_class'
        and a size class with at least 30 jobs in both periods; one period suffices for its share of the jobs. 'vc' and
        a virtual cluster with at least 30 jobs in both periods, for the 50 with the most jobs.
    unit, before, after, ...
        See `COLUMNS`. Intervals are 95 % intervals from resampling whole days; `differences.RULE` defines the verdict.

    A measure that is missing from either Trace has no row.

    Parameters
    ----------
    before, after : Trace, str or Path
        The two periods: Traces, or their folders.
    memory_limit : str, optional
        Memory limit for joins before they spill to disk, such as '2GB'.
    seed : int
        Seed of the resampling; the same seed gives the same rows.

    Raises
    ------
    QueryError
        A Trace has no job with a submission time.
    """
    return compare_periods(before, after, memory_limit=memory_limit, seed=seed).frame


def changes_since(
    trace: Trace | str | Path, day: str | dt.date, *, memory_limit: str | None = None, seed: int = 0
) -> pl.DataFrame:
    """Return the changes within one Trace since a given day, in the form that `changes` returns.

    Parameters
    ----------
    trace : Trace, str or Path
        A Trace that covers both periods, or its folder.
    day : str or date
        First day of the later period, in the Trace's time zone.
    memory_limit, seed
        As for `changes`.

    Raises
    ------
    UsageError
        The day does not exist, or one of the periods has no days.
    QueryError
        As for `changes`.
    """
    return compare_since(trace, day, memory_limit=memory_limit, seed=seed).frame


@explain_damage()
def compare_periods(
    before: Trace | str | Path, after: Trace | str | Path, *, memory_limit: str | None = None, seed: int = 0
) -> Changes:
    """Return the rows of `changes`, with notes."""
    first = read_period(Trace.of(before), "before", memory_limit=memory_limit)
    return changes_between(first, read_period(Trace.of(after), "after", memory_limit=memory_limit), seed=seed)


@explain_damage()
def compare_since(
    trace: Trace | str | Path, day: str | dt.date, *, memory_limit: str | None = None, seed: int = 0
) -> Changes:
    """Return the rows of `changes_since`, with notes."""
    date = read_day(day) if isinstance(day, str) else day
    return changes_between(
        *split_period(read_period(Trace.of(trace), memory_limit=memory_limit), date), seed=seed, split=True
    )


def changes_between(before: Period, after: Period, *, seed: int = 0, split: bool = False) -> Changes:
    """Return the differences between two periods; `split` means that both are parts of one Trace."""
    measures = [m for m in MEASURES if not (before.lacks(m) or after.lacks(m)) and _seen(m, before, after)]
    groups = groups_of_days(before, after)
    periods = [Resampled(before, groups[0], (seed, 0)), Resampled(after, groups[1], (seed, 1))]
    gpu_only = _mixed(before, after)
    every, gpu = ([Scoped(period, gpu_only=only) for period in periods] for only in (False, True))
    rows = [
        # Measures of users and telemetry samples have no job size.
        _row(m, "all", GPU_JOBS, gpu) if gpu_only and m.by_class else _row(m, "all", ALL_JOBS, every)
        for m in measures
    ]
    if not (before.lacks(CLASS_SHARE) or after.lacks(CLASS_SHARE)):
        rows += _class_rows([m for m in measures if m.by_class], periods)
    vcs, left = _vcs(before, after)
    for vc in vcs:
        own = [Scoped(period, "vc", vc, gpu_only=gpu_only) for period in periods]
        rows += [_row(m, "vc", vc, own) for m in measures if m.by_vc]
    notes = tuple(remarks(before, after, groups=len(groups[0]), split=split))
    if left:
        notes += (f"{left} {after.tenant.spelled_many} with fewer jobs are excluded",)
    return Changes(_judged(rows), notes)


def _mixed(*periods: Period) -> bool:
    """Return whether there are jobs both with and without GPUs. If so, jobs with GPUs are compared first."""
    classes = {name for period in periods for name in period.sums["gpu_class"].drop_nulls().unique()}
    return "0" in classes and len(classes) > 1


def _seen(measure: PeriodMeasure, *periods: Period) -> bool:
    return not measure.where_seen or any(period.sums[measure.top].sum() for period in periods)


def _class_rows(measures: Sequence[PeriodMeasure], periods: Sequence[Resampled]) -> list[dict[str, Any]]:
    rows = []
    for name in _CLASSES:
        own = [Scoped(period, "gpu_class", name) for period in periods]
        jobs = [scoped.jobs for scoped in own]
        if max(jobs) >= FEW:
            rows.append(_row(CLASS_SHARE, "gpu_class", name, own))
        if min(jobs) >= FEW:
            rows += [_row(m, "gpu_class", name, own) for m in measures if m.for_cpu_jobs or name != "0"]
    return rows


def _vcs(before: Period, after: Period) -> tuple[list[str], int]:
    """Return the virtual clusters to compare, in decreasing order of jobs, and the number of excluded ones."""
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
    few = measure.kind != "a day" and min(before.n, after.n) < FEW
    row = {
        "measure": measure.name,
        "of": of,
        "scope": scope,
        "unit": measure.unit,
        "before": before.value,
        "after": after.value,
        **difference(before, after),
        "n_before": before.n,
        "n_after": after.n,
        "days_before": before.days,
        "days_after": after.days,
    }
    return row | {"p_value": None} if few else row


def _apart(row: dict[str, Any]) -> bool:
    """Return whether the interval of a difference excludes 0. A small p-value alone does not make a change."""
    low, high = row["difference_low"], row["difference_high"]
    return bool(low is not None and high is not None and (low > 0 or high < 0))


def _judged(rows: list[dict[str, Any]]) -> pl.DataFrame:
    for row, p in zip(rows, adjusted([row["p_value"] for row in rows]), strict=True):
        row["p_adjusted"] = p
        row["verdict"] = "too little data" if p is None else "changed" if p <= _LEVEL and _apart(row) else "noise"
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    return frame.with_columns(pl.col("before", "after").fill_nan(None))
