"""Every job asked in turn, from what was known when it began to wait, and whether its wait fell in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.expected_wait.adaptive import GAIN, Learner
from tracekit.characterize.expected_wait.distribution import waits_of
from tracekit.characterize.expected_wait.likeness import ALWAYS, likeness

if TYPE_CHECKING:
    from tracekit.characterize.expected_wait.likeness import Lately

__all__ = ["Backtest", "backtest"]

_AT_ONCE = 8192
"""Questions whose waits are sorted together: enough that numpy is fast, and few megabytes."""


@dataclass(frozen=True)
class Backtest:
    """What every job would have been told, and what was learned on the way."""

    rows: pl.DataFrame
    """Rows of `jobs` in their order: step, like_jobs, low_s, high_s, wait_s, below, above; see the timeline."""
    learner: Learner
    """As it stands after the last job; it still has to `learn` what became known later."""
    groups: dict[tuple[str | None, str | None], int]
    """The learner's number of each cluster and size class."""


def backtest(jobs: pl.DataFrame, lately: Lately, level: float, gain: float = GAIN) -> Backtest:
    """Ask for every job, in the order in which they began to wait.

    Parameters
    ----------
    jobs : polars.DataFrame
        Of `waiting_jobs`.
    lately : Lately
        Which earlier jobs are looked at.
    level : float
        Share of the waits that the intervals shall hold [0..1].
    gain : float
        How fast the ends learn; 0: not at all.
    """
    n = jobs.height
    since, until = jobs["since"].to_numpy(), jobs["until"].to_numpy()
    started = jobs["started"].to_numpy()
    keys = jobs.select(ALWAYS).rows()
    groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    group = [groups[key] for key in keys]
    alike = likeness(jobs, lately)
    told_rows = np.flatnonzero(alike.step >= 0)
    low, high, below, above = (np.full(n, np.nan) for _ in range(4))
    learner = Learner(level, gain)
    for begin in range(0, len(told_rows), _AT_ONCE):
        asked = told_rows[begin : begin + _AT_ONCE]
        waits = waits_of(alike.rows(asked, lately.most), since[asked], since, until, started)
        for row, job in enumerate(asked.tolist()):
            learner.learn(since[job])
            told = learner.tell(group[job], waits, row)
            low[job], high[job] = told.low_us, told.high_us
            wait = float(until[job] - since[job])
            if not started[job] and wait <= told.high_us:
                continue  # it may have waited on
            misses = told.misses(wait, waits.shares(row, wait))
            below[job], above[job] = misses
            known = since[job] + math.ceil(told.high_us) if wait > told.high_us else until[job]
            learner.expect(int(known), job, group[job], told, misses)
    rows = jobs.select("job_id", "gpu_class", "class_order").with_columns(
        step=pl.Series(alike.step),
        like_jobs=pl.Series(np.where(alike.step >= 0, alike.end - alike.first, 0)),
        low_s=_known(low / 1e6),
        high_s=_known(high / 1e6),
        wait_s=pl.Series((until - since) / 1e6),
        started=pl.Series(started),
        below=_known(below),
        above=_known(above),
    )
    return Backtest(rows, learner, groups)


def _known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pl.Series:
    """Return numbers with NULL for what is not finite."""
    return pl.Series([None if not math.isfinite(v) else v for v in values.tolist()], dtype=pl.Float64)
