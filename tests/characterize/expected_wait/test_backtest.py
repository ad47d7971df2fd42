"""The backtest: nothing of the future is used, and the intervals hold what they shall, neither less nor more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from tests.characterize.expected_wait.planted import KINDS, planted, rows
from tracekit.characterize import run_query
from tracekit.characterize.expected_wait.backtest import backtest
from tracekit.characterize.expected_wait.likeness import Lately, likeness

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


def _covered(found: pl.DataFrame, level_of: str = "all") -> tuple[float, int]:
    """Return the share of waits inside in the last half, and of how many."""
    half = found.with_row_index().filter(pl.col("index") >= found.height / 2, pl.col("below").is_not_null())
    if level_of != "all":
        half = half.filter(pl.col("gpu_class") == level_of)
    return 1 - half.select((pl.col("below") + pl.col("above")).mean()).item(), half.height


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "per_day"), [(600, 50), pytest.param(4000, 500, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("level", [0.5, 0.8])
def test_intervals_hold_their_share_of_planted_waits(kind: str, n: int, per_day: float, level: float) -> None:
    share, told = _covered(backtest(planted(kind, n, per_day, seed=3), Lately(), level).rows)
    # Independent draws at the level would lie within these bounds 999 times of 1000.
    low, high = (binom.ppf(p, told, level) / told for p in (0.0005, 0.9995))
    assert max(low, level - 0.05) <= share <= min(high, level + 0.05)


def test_rare_gangs_are_held_among_themselves() -> None:
    found = backtest(planted("gangs", 20000, 2000, seed=5), Lately(), 0.8).rows
    share, told = _covered(found, ">8")
    assert told > 100
    assert 0.75 <= share <= 0.85


def test_without_learning_a_jump_is_missed() -> None:
    jobs = planted("jump up", 600, 5, seed=3)
    share, _ = _covered(backtest(jobs, Lately(), 0.8, gain=0).rows)
    assert share < 0.75


@pytest.mark.parametrize("kind", ["stationary", "never", "jump up"])
def test_no_interval_knows_of_what_came_later(kind: str) -> None:
    jobs = planted(kind, 300, 100, seed=1)
    whole = backtest(jobs, Lately(), 0.8).rows
    for job in (60, 150, 299):
        moment = jobs["since"][job]
        going_on = pl.col("until") > moment
        known = jobs.head(job + 1).with_columns(
            until=pl.min_horizontal("until", pl.lit(moment)), started=pl.col("started") & ~going_on
        )
        then = backtest(known, Lately(), 0.8).rows
        for end in ("low_s", "high_s"):
            told, again = whole[end][job], then[end][job]
            assert (told is None) == (again is None)
            assert told is None or told == pytest.approx(again)


def test_jobs_submitted_together_know_nothing_of_each_other() -> None:
    since = np.array([0.0] * 20 + [10.0] * 3)
    jobs = rows(since, since + 1, ["1"] * 23, end=100)
    alike = likeness(jobs, Lately(least=20))
    assert alike.step.tolist() == [-1] * 20 + [2] * 3  # account and time limit count only among 100 similar jobs
    assert (alike.end - alike.first).tolist()[20:] == [20, 20, 20]


def test_old_jobs_and_other_sizes_are_left_out() -> None:
    day = 86400.0
    since = np.array([0.0, *np.arange(1, 31) * day, 57 * day])
    jobs = rows(since, since + 1, ["1"] * 30 + ["2-4", "1"], end=100 * day)
    alike = likeness(jobs, Lately(least=5, days=56))
    # Of the 30 jobs before it, the one of day 0 is older than 56 days; those of day 1 on count.
    assert (alike.first[31], alike.end[31]) == (1, 30)
    assert alike.step[30] == -1


def test_what_is_given_up_comes_in_order() -> None:
    since = np.arange(41.0)
    jobs = rows(since, since + 1, ["1"] * 41, end=100).with_columns(
        place=pl.Series(["a"] * 20 + ["b"] * 20 + ["a"]), account=pl.Series(["x"] * 5 + ["y"] * 35 + ["x"])
    )
    assert likeness(jobs, Lately(least=20)).step[40] == 2  # its partition has 20 jobs, fewer than 100
    alike = likeness(jobs, Lately(least=20, most=20))
    assert alike.step[40] == 1  # its account has 5 jobs, its partition 20
    assert alike.rows(np.array([40]), 100)[0].tolist() == [*range(20), *([-1] * 80)]


@pytest.mark.parametrize(
    "name",
    [
        *("helios", "slurm"),
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("acme", "alibaba-dlrm", "alibaba-openb", "alibaba-pai", "philly", "swf")
        ),
    ],
)
def test_samples_are_held(name: str, sample_trace: Callable[[str], Trace]) -> None:
    found = run_query(sample_trace(name), "queuing/expected_wait_backtest").filter(pl.col("gpu_class") == "all")
    row = found.row(0, named=True)
    assert row["told"] > 70
    # Independent draws at 80 % would lie within the binomial bounds 999 times of 1000.
    low, high = (binom.ppf(p, row["told"], 0.8) / row["told"] for p in (0.0005, 0.9995))
    assert min(low, 0.75) <= row["covered_share"] <= max(high, 0.85)
    assert row["jobs"] == row["too_few"] + row["unknown"] + row["told"]
    # A point at 0 s holds all that start at once, at any level: 97 % of the jobs of helios, 88 % of slurm's.
    assert 0.7 <= row["inside_share"] <= {"helios": 0.99, "slurm": 0.95}.get(name, 0.9)


def test_query_counts_by_hand(make_trace: Callable[..., Trace]) -> None:
    # 24 jobs, an hour apart: 20 wait 60 s; then one 60 s, one 120 s, one still waits, one CPU job alone.
    times = [f"2024-01-01T{i % 24:02}:00:00" for i in range(24)]
    jobs: list[dict[str, Any]] = [
        {
            "job_id": f"{i:02}",
            "submit_time": time,
            "start_time": f"{time[:14]}0{2 if i == 21 else 1}:00",
            "end_time": f"{time[:14]}30:00",
            "gpu_count": 0 if i == 23 else 1,
            "status": "completed",
        }
        for i, time in enumerate(times)
    ]
    jobs[22] |= {"start_time": None, "end_time": None, "status": "pending"}
    found = run_query(make_trace(jobs=jobs), "queuing/expected_wait_backtest", judged_share=0.15).rows(named=True)
    by_class = {row["gpu_class"]: row for row in found}
    # The last 15 % of 24 are the last 3: 120 s (above), still waiting for 90 min (above), and too few CPU jobs.
    assert [by_class["all"][c] for c in ("jobs", "too_few", "unknown", "told")] == [3, 1, 0, 2]
    assert by_class["1"]["above_share"] == pytest.approx(1)
    assert by_class["1"]["low_p50_s"] == pytest.approx(60)
    assert by_class["0"]["told"] == 0
    assert by_class["0"]["covered_share"] is None
    assert math.isclose(by_class["all"]["covered_share"], 0)
