"""Rates that follow the week, tests against Poisson, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy import linalg, stats

from tracekit.fit import arrival_draws
from tracekit.fit.arrivals import fit_arrivals
from tracekit.fit.generate import draw_arrivals
from tracekit.fit.process import Modulated, fit_gamma, fit_modulated, modulated_log_likelihood
from tracekit.fit.rate import fit_level, hourly_counts, hours_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

MONDAY = 1_507_507_200  # 2017-10-09 00:00 UTC
WEEKS = 12


def jobs_at(seconds: NDArray[np.float64]) -> pl.DataFrame:
    times = np.sort(seconds)
    return pl.DataFrame(
        {
            "submit_us": (times * 1e6).astype(np.int64),
            "user": pl.Series([f"u{i % 7}" for i in range(times.size)], dtype=pl.Categorical),
            "gpu_count": np.ones(times.size),
        }
    )


def weekly(rng: np.random.Generator, per_hour: float, shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Poisson arrivals of 12 weeks whose rate follows 168 factors."""
    counts = rng.poisson(np.tile(per_hour * shape, WEEKS))
    hours = np.repeat(np.arange(counts.size), counts)
    return np.asarray(MONDAY + 3600 * (hours + rng.random(hours.size)), float)


def known_shape() -> NDArray[np.float64]:
    hour = np.arange(168)
    shape = 1 + 0.8 * np.sin(2 * np.pi * (hour % 24 - 9) / 24) * (hour < 120) - 0.5 * (hour >= 120)
    return np.asarray(shape / shape.mean(), float)


def test_a_known_week_is_recovered_and_poisson_accepted() -> None:
    rng = np.random.default_rng(1)
    found = fit_arrivals(jobs_at(weekly(rng, 40.0, known_shape())), "UTC", rng)
    assert found["rate"]["kind"] == "hour_of_week"
    assert found["rate"]["per_hour"] == pytest.approx(40, rel=0.03)
    # 480 arrivals are expected in a cell: a standard deviation is 4.6 %.
    np.testing.assert_allclose(found["rate"]["profile"], known_shape(), atol=0.25)
    away = np.abs(found["rate"]["profile"] - known_shape()) / np.sqrt(known_shape() / 480)
    assert (away < 3.5).all()
    errors = np.array(found["rate"]["profile_standard_errors"])
    np.testing.assert_allclose(errors, np.sqrt(known_shape() / 480), rtol=0.25)
    assert found["rate"]["form"] == "constant"
    assert (found["rate"]["trend_per_day"], found["rate"]["trend_standard_error"]) == (0.0, None)
    trend = next(f for f in found["rate"]["forms"] if f["form"] == "exponential")
    assert abs(trend["trend_per_day"]) < 3 * trend["trend_standard_error"]
    assert found["process"] == "poisson"
    assert found["tests"]["p_dispersion"] > 0.01
    assert found["why"].startswith("Poisson is not rejected")


def test_the_week_is_that_of_the_logs_own_zone() -> None:
    rng = np.random.default_rng(2)
    shape = np.where(np.arange(168) % 24 == 12, 6.0, 0.5)
    found = fit_arrivals(jobs_at(weekly(rng, 20.0, shape)), "Asia/Shanghai", rng)
    assert int(np.argmax(found["rate"]["profile"])) % 24 == 20


def test_a_trend_is_recovered() -> None:
    rng = np.random.default_rng(3)
    hours = np.arange(24 * 60)
    counts = rng.poisson(5 * np.exp(0.02 * hours / 24))
    times = MONDAY + 3600 * (np.repeat(hours, counts) + rng.random(counts.sum()))
    rate = fit_arrivals(jobs_at(np.asarray(times, float)), "UTC", rng)["rate"]
    assert abs(rate["trend_per_day"] - 0.02) < 3 * rate["trend_standard_error"]
    assert rate["per_hour"] == pytest.approx(5, rel=0.1)
    assert rate["kind"] == "constant"


def test_bursts_are_rejected_and_modelled_as_what_they_are() -> None:
    rng = np.random.default_rng(4)
    gamma = fit_arrivals(jobs_at(MONDAY + np.cumsum(rng.gamma(0.5, 2 * 600.0, 3000))), "UTC", rng)
    assert gamma["process"] == "gamma_renewal"
    assert gamma["candidates"][1]["parameters"]["a"] == pytest.approx(0.5, abs=0.05)
    state = np.repeat(np.arange(100) % 2, 30)
    gaps = rng.exponential(np.where(state == 1, 30.0, 1000.0))
    modulated = fit_arrivals(jobs_at(MONDAY + np.cumsum(gaps)), "UTC", rng)
    assert modulated["process"] == "mmpp"
    assert "Poisson is rejected" in modulated["why"]


def test_jobs_of_one_second_are_a_batch() -> None:
    rng = np.random.default_rng(5)
    alone = MONDAY + rng.permutation(400_000)[:900].astype(float)
    together = np.repeat(MONDAY + 400_000 + 1000.0 * np.arange(100), 4)
    jobs = jobs_at(np.concatenate([alone, together])).with_columns(
        user=pl.when(pl.col("submit_us") >= (MONDAY + 400_000) * 1_000_000)
        .then(pl.lit("script"))
        .otherwise(pl.col("user").cast(pl.String))
        .cast(pl.Categorical)
    )
    batch = fit_arrivals(jobs, "UTC", rng)["batch"]
    assert batch["sizes"] == [1, 4]
    assert batch["shares"] == [0.9, 0.1]
    assert (batch["largest"], batch["mean"]) == (4, 1.3)
    assert (batch["same_user_share"], batch["same_request_share"]) == (1.0, 1.0)


def test_fewer_than_two_times_are_not_a_process() -> None:
    rng = np.random.default_rng(6)
    for times in ([], [MONDAY], [MONDAY, MONDAY]):
        found = fit_arrivals(jobs_at(np.array(times, float)), "UTC", rng)
        assert found["process"] is None
        assert found["reason"] == "jobs with at least two submission times are needed"
    few = fit_arrivals(jobs_at(MONDAY + 1000 * np.arange(5.0)), "UTC", rng)
    assert few["process"] == "poisson"
    assert "5 arrivals are too few to distinguish" in few["why"]


def test_the_likelihood_of_modulated_arrivals_is_the_product_of_matrices() -> None:
    process = Modulated(0.4, 3.0, 0.05, 0.2)
    gaps = np.array([0.3, 2.0, 0.05, 0.7, 5.0])
    rates = np.diag([0.4, 3.0])
    changes = np.array([[-0.05, 0.05], [0.2, -0.2]])
    vector = np.array([0.2 * 0.4, 0.05 * 3.0])
    vector /= vector.sum()
    for gap in gaps:
        vector = vector @ linalg.expm((changes - rates) * gap) @ rates
    assert modulated_log_likelihood(gaps, process) == pytest.approx(np.log(vector.sum()))


def test_observed_hours_are_means_over_the_hours_that_the_log_holds_whole() -> None:
    # From Monday 00:30 to Tuesday 03:10: Monday 00 and Tuesday 03 are cut; 01 has three batches, Tuesday 02 one.
    minutes = [30, 61, 70, 119, 26 * 60 + 5, 27 * 60 + 10]
    found = fit_arrivals(jobs_at(np.array([MONDAY + 60.0 * m for m in minutes])), "UTC", np.random.default_rng(0))
    seen = found["observed_per_hour"]
    assert len(seen) == 168
    assert (seen[0], seen[1], seen[2], seen[26]) == (None, 3.0, 0.0, 1.0)
    assert seen[27:] == [None] * 141


@pytest.mark.parametrize("process", ["poisson", "gamma_renewal", "mmpp"])
def test_drawn_arrivals_are_of_the_process(process: str) -> None:
    parameters = {
        "poisson": {},
        "gamma_renewal": {"a": 0.5, "scale": 2.0, "least": 1e-6},
        "mmpp": {"quiet_rate": 0.4, "busy_rate": 4.0, "to_busy": 0.02, "to_quiet": 0.08},
    }[process]
    arrivals = {
        "process": process,
        "start": MONDAY,
        "days": 100.0,
        "step_s": 1.0,
        "timezone": "UTC",
        "rate": {"per_hour": 2.0, "profile": [1.0], "trend_per_day": 0.0},
        "batch": {"mean": 1.0, "sizes": [1], "shares": [1.0]},
        "candidates": [{"process": process, "parameters": parameters}],
    }
    rng = np.random.default_rng(7)
    seconds, batch = draw_arrivals(arrivals, rng, jobs=8000, days=None, load=1.0)
    assert (seconds.size, batch.size) == (8000, 8000)
    assert (np.diff(seconds) >= 0).all()
    gaps = np.diff(seconds) / 1800
    assert gaps.mean() == pytest.approx(1.0, rel=0.1)
    if process == "poisson":
        assert gaps.var() == pytest.approx(1.0, rel=0.1)
    elif process == "gamma_renewal":
        assert fit_gamma(gaps[gaps > 0], 1e-4)[0] == pytest.approx(0.5, rel=0.1)
    else:
        found = fit_modulated(gaps[gaps > 0])
        assert found is not None
        assert found[0].busy_rate / found[0].quiet_rate == pytest.approx(10, rel=0.3)
        assert found[0].busy_share == pytest.approx(0.2, abs=0.06)
    twice, _ = draw_arrivals(arrivals, np.random.default_rng(8), jobs=None, days=50.0, load=2.0)
    assert twice.size == pytest.approx(50 * 24 * 2 * 2, rel=0.1)
    assert twice[-1] < MONDAY + 50 * 86400


@pytest.mark.parametrize("least", [1e-6, 0.5, 8.0])
def test_gaps_of_a_renewal_process_are_above_the_least_one(least: float) -> None:
    # Of gamma(0.5, 1) the shares above are 0.999, 0.317 and 0.00006: drawn again, and by the inverse.
    times = arrival_draws._gamma(np.random.default_rng(9), 20_000, {"a": 0.5, "scale": 1.0, "least": least})
    gaps = np.diff(times, prepend=0.0)
    assert times.size == 20_000
    assert gaps.mean() == pytest.approx(1, rel=0.05)
    mean = stats.gamma(0.5).expect(lb=least, conditional=True)
    assert gaps.min() * mean > least * (1 - 1e-9)
    above = stats.gamma(0.5).sf(gaps * mean) / stats.gamma(0.5).sf(least)
    assert stats.kstest(above, "uniform").statistic < 1.63 / np.sqrt(20_000)


def test_the_error_of_a_trend_is_neither_too_small_nor_too_large() -> None:
    hours = hours_between(int(MONDAY), int(MONDAY + 28 * 86400), "UTC")
    away = []
    for seed in range(300):
        rng = np.random.default_rng([5, seed])
        seconds = 28 * 86400 * rng.random(rng.poisson(1500))
        counts = hourly_counts(np.unique(MONDAY + np.floor(seconds)), hours)
        rate = fit_level("hour_of_day", "exponential", counts, hours)
        assert rate.trend_error is not None
        away.append(abs(rate.trend_per_day) / rate.trend_error)
    # There is no trend. Of 300, 285 are expected within 1.96 errors and 205 within one; the binomial distribution has
    # fewer than 271 and 178, or more than 296 and 231, in one case of a thousand.
    assert 271 <= (np.array(away) < 1.96).sum() <= 296
    assert 178 <= (np.array(away) < 1).sum() <= 231
