"""The intervals hold their share when the queue is long or grows, by queue length and size class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import tracekit
from tests.characterize.expected_wait.planted import rows
from tests.worlds.kinds import make_site
from tests.worlds.site import simulate
from tests.worlds.slurm_dump import write_logs
from tracekit.characterize.expected_wait.backtest import backtest
from tracekit.characterize.expected_wait.likeness import Lately, waiting_jobs
from tracekit.characterize.expected_wait.state import ROOM_TABLES, STATE, Room, with_states
from tracekit.characterize.session import Session

if TYPE_CHECKING:
    from pathlib import Path

_LENGTHS = (1, 5, 20, 100)
"""Bounds of the numbers of jobs ahead by which answers are grouped."""


def _last_half(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the answers that can be checked in the last half of a log."""
    found = backtest(jobs, Lately(), 0.8).rows.tail(jobs.height // 2).filter(pl.col("below").is_not_null())
    length = np.searchsorted(_LENGTHS, found["ahead_jobs"].to_numpy(), side="right")
    return found.select("gpu_class", length=pl.Series(length), covered=1 - pl.col("below") - pl.col("above"))


def _one_gpu(load: float) -> pl.DataFrame:
    """Return 1,200 jobs that take turns on one GPU, in order; their limits are 1.2 to 4 times their run times."""
    draw = np.random.default_rng(11)
    run = draw.lognormal(7, 1, 1200)
    since = np.sort(draw.uniform(0, run.sum() / load, 1200))
    start, end = np.zeros(1200), 0.0
    for i in range(1200):
        start[i] = max(since[i], end)
        end = start[i] + run[i]
    frame = rows(since, start, ["1"] * 1200, end=end).drop(STATE)
    limit, ended = run * draw.choice([1.2, 2.0, 4.0], 1200), ((start + run) * 1e6).astype(np.int64)
    return with_states(frame.with_columns(limit_s=pl.Series(limit), ended=pl.Series(ended)), Room())


def test_jobs_in_line_for_one_gpu() -> None:
    """The state makes the intervals hold at every length of the queue; without it, all queues count as equal."""
    jobs = _one_gpu(0.7)
    blind = jobs.with_columns(ahead_gpus=pl.lit(0.0), ahead_s=pl.lit(0.0))
    by_length = [_last_half(one).group_by("length").agg(pl.len(), pl.col("covered").mean()) for one in (jobs, blind)]
    held, missed = ({length: (n, share) for length, n, share in found.rows()} for found in by_length)
    assert {length: n for length, (n, _) in held.items()} == {0: 296, 1: 217, 2: 87}
    for n, share in held.values():
        # Independent answers at 80 % would lie within these bounds 999 times of 1000.
        assert binom.ppf(0.0005, n, 0.8) / n <= share <= binom.ppf(0.9995, n, 0.8) / n
    assert missed[0][1] > 0.95
    assert missed[1][1] < 0.72
    assert missed[2][1] < 0.6


@pytest.mark.thorough
def test_planted_sites(tmp_path: Path) -> None:
    """Of the groups with at least 100 answers, 80 % cover 75 to 85 %; answers in a group are not independent."""
    kinds = ("disjoint partitions", "outages", "hidden order", "overload, easy", "ramp, passing", "bursts, strict")
    parts = []
    for kind in kinds:
        site, logs = make_site(kind, 5), tmp_path / kind
        write_logs(site, simulate(site), logs)
        trace = tracekit.ingest_logs(logs, tmp_path / f"{kind} trace").divided
        with Session(trace).connect(ROOM_TABLES) as con:
            parts.append(_last_half(with_states(waiting_jobs(con)[0], Room.read(con))))
    groups = pl.concat(parts).group_by("length", "gpu_class").agg(pl.len(), pl.col("covered").mean())
    large = groups.filter(pl.col("len") >= 100).sort("length", "gpu_class")
    assert large.height >= 10
    held = large.select(pl.col("covered").is_between(0.75, 0.85).mean()).item()
    assert held >= 0.8, large
