"""The value of a measure in one period, and in each resample of its days."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.changes.resampling import draw_days, quantile, resampled_quantile
from tracekit.characterize.changes.verdicts import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.changes.measures import PeriodMeasure
    from tracekit.characterize.changes.periods import Period
    from tracekit.characterize.changes.resampling import DayResamples


__all__ = ["Resampled", "Scoped"]

_TELEMETRY = frozenset({"busy_pct", "samples"})


class Resampled:
    """A period and the resamples of its days.

    Parameters
    ----------
    period : Period
        The period.
    groups : sequence of bool arrays, one value for each day
        Days that may replace each other.
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
        """Draws of the days with telemetry, which need not be those with submissions."""
        days = _ints(self.period.telemetry["day"])
        return draw_days(days, days, [np.ones(len(days), dtype=np.bool_)], (*self._seed, 1))

    def scoped(self, of: str | None = None, name: str | None = None, *, gpu_only: bool = False) -> Scoped:
        """Return all jobs, or those whose column `of` is `name`; or of these the ones with GPUs."""
        return Scoped(self, of, name, gpu_only=gpu_only)


class Scoped:
    """Some jobs of a period: those whose column `of` is `name`, or all; or of these the ones with GPUs."""

    def __init__(self, resampled: Resampled, of: str | None, name: str | None, *, gpu_only: bool) -> None:
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
        """Their number."""
        return int(self._sums["jobs"].sum())

    def estimate(self, measure: PeriodMeasure) -> Estimate:
        """Return a measure of these jobs."""
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
        """Return the days and values of a column of sums; a day may occur several times."""
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
