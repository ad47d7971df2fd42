"""Scores of generators: figures worked by hand, ranks, and planted logs that some meet and others do not."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tracekit
from tracekit.errors import UsageError
from tracekit.fit.model import WorkloadModel, score_rows, score_words
from tracekit.fit.scores.parts import figures_of, judged, split_of
from tracekit.fit.scores.table import _best, _ranks, machines_for, score
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

BEGIN = dt.datetime(2021, 3, 1)


def job(number: int, hours: float, run_s: float, gpus: float = 1.0, user: str = "u") -> dict[str, Any]:
    at = BEGIN + dt.timedelta(seconds=round(hours * 3600))
    return {
        "job_id": f"{number:06}", "submit_time": at, "run_s": run_s, "gpu_count": gpus, "user": user,
        "status": "completed",
    }  # fmt: skip


def test_figures_are_those_worked_by_hand(make_trace: Callable[..., Trace]) -> None:
    # Submissions at 1:00, 1:00, 3:00 and 5:00: gaps of 0, 2 and 2 hours, mean 4/3, deviation sqrt(8)/3.
    rows = [job(0, 1, 3600), job(1, 1, 3600, 2), job(2, 3, 7200, 2), job(3, 5, 36000, 4)]
    found = figures_of(make_trace(jobs=rows), 2)
    assert found.gaps.tolist() == pytest.approx([0, 1.5, 1.5])
    assert dict(found.sizes.rows()) == {1: 0.25, 2: 0.5, 4: 0.25}
    assert found.gpu_hours == 1 + 2 + 4 + 40
    values = found.values
    assert values["gap_variation"] == pytest.approx(math.sqrt(8) / 4)
    assert (values["jobs_per_day"], values["gpu_hours_per_day"]) == (2, 23.5)
    # From the first to the last, five hours have 2, 0, 1, 0 and 1 jobs: mean 4/5, mean square 6/5.
    assert values["hourly_variation"] == pytest.approx(math.sqrt(6 / 5 - 16 / 25) * 5 / 4)
    assert "run_time_p99_s" not in values  # 1 % of four jobs
    levels = np.log([3, 1, 2, 1, 2]) - math.log(12) / 5
    assert values["hourly_lag_1h"] == pytest.approx(float(levels[1:] @ levels[:-1] / (levels @ levels)))
    assert "hourly_lag_24h" not in values


def test_distances_are_those_worked_by_hand(make_trace: Callable[..., Trace]) -> None:
    one = figures_of(make_trace(jobs=[job(0, 0, 60), job(1, 1, 60), job(2, 2, 60, 2), job(3, 3, 60, 2)]), 1)
    other = figures_of(make_trace(jobs=[job(0, 0, 60), job(1, 1, 60), job(2, 4, 60, 8)]), 1)
    found = judged(one.with_waits({"wait_fifo_mean_s": 0.0}), other.with_waits({"wait_fifo_mean_s": 540.0}))
    # Gaps of 1, 1, 1 and of 1/2, 3/2 of the mean: half of the latter are below 1, none of the former.
    assert found["gap_distribution"].distance == pytest.approx(0.5)
    # Shares 1/2, 1/2, 0 and 2/3, 0, 1/3 of 1, 2 and 8 GPUs: (1/6 + 1/2 + 1/3) / 2.
    assert found["size_mix"].distance == pytest.approx(0.5)
    assert found["jobs_per_day"].distance == pytest.approx(math.log(4 / 3))
    assert found["gpu_hours_per_day"].distance == pytest.approx(math.log(10 / 6))
    assert found["wait_fifo_mean_s"].distance == pytest.approx(math.log(10))
    assert "gap_variation" not in found  # that of equal gaps is 0
    same = judged(one, one)
    assert {row: each.distance for row, each in same.items()} == dict.fromkeys(same, 0.0)


def test_the_order_of_sizes_changes_no_distance(make_trace: Callable[..., Trace]) -> None:
    # One job of each of sizes 1 to 20, and k jobs of size k: their shares are 1/20 and k/210.
    some = [job(k, k, 60, k + 1) for k in range(20)]
    many = [job(n, n, 60, size) for n, size in enumerate(size for size in range(1, 21) for _ in range(size))]
    one, two = (figures_of(make_trace(jobs=jobs), 9) for jobs in (some, many))
    found = set()
    for seed in range(30):
        sizes = two.sizes.sample(fraction=1, shuffle=True, seed=seed)
        found.add(
            judged(
                replace(one, sizes=one.sizes.sample(fraction=1, shuffle=True, seed=-seed % 7)),
                replace(two, sizes=sizes),
            )["size_mix"].distance
        )
    (distance,) = found
    assert distance == pytest.approx(sum(abs(1 / 20 - k / 210) for k in range(1, 21)) / 2)


def test_equal_distances_share_their_rank() -> None:
    assert _ranks({"a": 0.5, "b": 0.5, "c": 0.1}) == {"a": 2.5, "b": 2.5, "c": 1.0}


def test_of_scores_alike_that_which_keeps_more_of_the_log_is_taken() -> None:
    assert _best({"resample": 3.0, "hybrid_arrivals": 2.5, "model": 2.6}) == "resample"
    assert _best({"resample": 3.01, "hybrid_arrivals": 2.6, "model": 2.5}) == "hybrid_arrivals"
    assert _best({"resample": 3.1, "model": 2.5}) == "model"
    assert _best({}) is None


def test_the_cut_is_at_midnight_of_the_log(make_trace: Callable[..., Trace]) -> None:
    # Eleven days of 40 jobs in New York, of which the first and the last are not taken: 6 and 3 of 9 days remain.
    jobs = [job(n, 5 + 24 * (n // 40) + n % 40 / 40, 60) for n in range(440)]
    split = split_of(make_trace(jobs=jobs, manifest_overrides={"timezone": "America/New_York"}))
    assert not isinstance(split, str)
    assert (split.learned_days, split.days, split.learned_jobs, split.jobs) == (6, 3, 240, 120)
    first = int((BEGIN - dt.datetime(1970, 1, 1)).total_seconds()) * 10**6
    day, five = 86_400_000_000, 5 * 3_600_000_000
    assert (split.begin_us, split.cut_us, split.end_us) == (
        first + five,
        first + 7 * day + five,
        first + 10 * day + five,
    )
    assert split.starts_us == tuple(first + n * day + five for n in (1, 2, 3, 4))


def test_a_few_jobs_long_before_the_others_are_left_out(make_trace: Callable[..., Trace]) -> None:
    # On 12 of 40 days there is one job, then 100 on each; the first 11 days have 0.4 % of the 2,812 jobs, and with the
    # twelfth 12 jobs are still less than 1 %.
    daily = [1] * 13 + [100] * 29
    jobs = [job(0, 24 * day + n * 24 / number, 60) for day, number in enumerate(daily) for n in range(number)]
    split = split_of(make_trace(jobs=[{**one, "job_id": f"{n}"} for n, one in enumerate(jobs)]))
    assert not isinstance(split, str)
    assert (split.learned_days, split.days, split.learned_jobs, split.jobs) == (20, 8, 2000, 800)


def test_short_logs_are_not_scored_and_say_why(make_trace: Callable[..., Trace]) -> None:
    for jobs, why in (
        (
            [job(n, n / 10, 60) for n in range(600)],
            "the log has 3 whole days of at most 100,000 jobs, but 7 are needed",
        ),
        ([job(n, 4 * n, 60) for n in range(90)], "the first 9 days have 54 jobs and the last 4 have 24: 100 of each"),
    ):
        found = score(make_trace(jobs=jobs), 1, Progress())
        assert why in str(found["reason"])
        assert (found["best"], found["hybrid"]) == (None, None)
    assert score(make_trace(jobs=[job(0, 1, 60)]), 0, Progress())["reason"] == "not requested"
    with pytest.raises(UsageError, match="at least 0"):
        tracekit.fit(make_trace(jobs=[job(0, 1, 60)]), scores=-1)


def test_machines_are_those_of_the_log_where_jobs_wait_there(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    jobs = [job(n, n, 7200, 4) for n in range(96)]  # 8 GPUs in use through four days
    few, many = ([{"node_id": f"n{i}", "gpu_count": 4} for i in range(number)] for number in (1, 50))
    for nodes, words in (
        (few, "the log's machines"),
        (many, "2 nodes of 8 GPUs with a load of 0.50, because hardly any job waits on its own machines"),
        ([], "2 nodes of 8 GPUs with a load of 0.50, because its machines are not known"),
    ):
        trace = make_trace(jobs=jobs, **({"nodes": nodes} if nodes else {}))
        machines, found = machines_for(trace, figures_of(trace, 4), 4, tmp_path)
        assert machines.words == words
        # On one node of 4 GPUs a job starts when that before it ends: job n waits n hours.
        assert found["wait_fifo_mean_s"] == (47.5 * 3600 if nodes is few else 0)


def bursts(seed: int) -> list[dict[str, Any]]:
    """Return five weeks of campaigns: a user sends 15 jobs alike within ten minutes, five times on working days."""
    rng = np.random.default_rng(seed)
    jobs = []
    for day in range(35):
        for _ in range(5 if day % 7 < 5 else 1):
            at, gpus, run_s = 24 * day + rng.uniform(8, 18), float(rng.choice([1, 2, 4, 8])), 60 * rng.integers(1, 600)
            user = f"u{rng.integers(6)}"
            jobs += [job(0, at + rng.uniform(0, 1 / 6), float(run_s), gpus, user) for _ in range(15)]
    jobs.sort(key=lambda one: one["submit_time"])
    return [{**one, "job_id": f"{n:06}"} for n, one in enumerate(jobs)]


@pytest.mark.parametrize(
    "seeds", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.thorough)]
)
def test_campaigns_are_met_by_days_of_the_log(make_trace: Callable[..., Trace], tmp_path: Path, seeds: int) -> None:
    model = tracekit.fit(make_trace(jobs=bursts(1)), replicates=0, scores=seeds)
    scores = model.document["scores"]
    rank = {each["generator"]: each["mean_rank"] for each in scores["totals"]}
    assert scores["best"] == "resample"
    assert rank["resample"] < min(rank["poisson_jobs"], rank["poisson_lognormal"]) - 0.5
    rows = {row["row"]: {each["generator"]: each for each in row["generators"]} for row in scores["rows"]}
    # Within a campaign gaps are of a minute, between campaigns of hours: no Poisson process has this.
    assert rows["gap_distribution"]["resample"]["distance"] < 0.1
    assert rows["gap_distribution"]["poisson_jobs"]["distance"] > 0.3
    # Fifteen jobs alike at once wait longer than as many one by one.
    assert rows["wait_fifo_mean_s"]["resample"]["distance"] < rows["wait_fifo_mean_s"]["poisson_jobs"]["distance"]
    path = model.write(tmp_path / "w.json")
    assert WorkloadModel.read(path).to_json() == model.to_json()  # by the schema
    table = score_rows(model)
    assert [row["workload"] for row in table][:3] == ["the log, held-out part", "model", "resample"]
    assert len(table) == 8
    assert score_words(model).startswith("nearest to the log: resample; fitted to ")


@pytest.mark.thorough
def test_the_same_log_has_the_same_scores(make_trace: Callable[..., Trace]) -> None:
    one, other = (score(make_trace(jobs=bursts(1)), 1, Progress()) for _ in range(2))
    assert one == other


@pytest.mark.thorough
def test_independent_jobs_are_met_by_independent_jobs(make_trace: Callable[..., Trace]) -> None:
    rng = np.random.default_rng(2)
    hours = np.sort(rng.uniform(0, 24 * 28, 2800))
    jobs = [job(n, at, float(rng.exponential(3600)), float(rng.choice([1, 2]))) for n, at in enumerate(hours)]
    found = score(make_trace(jobs=jobs), 2, Progress())
    rows = {row["row"]: {each["generator"]: each for each in row["generators"]} for row in found["rows"]}
    # Of 800 and 800 gaps; the 99.9 % point of the distance of two samples of one distribution is 1.95 / sqrt(400).
    for name in ("model", "resample", "poisson_jobs"):
        assert rows["gap_distribution"][name]["distance"] < 1.95 / 400**0.5
        assert rows["size_mix"][name]["distance"] < 0.1
    assert rows["gap_variation"]["poisson_jobs"]["distance"] < 0.12
    rank = {each["generator"]: each["mean_rank"] for each in found["totals"]}
    assert rank["poisson_jobs"] <= min(rank.values()) + 1.5
