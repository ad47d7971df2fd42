"""The power law in place of the upper end of a family: found where it is, not found where it is not, and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from scipy import special, stats

import tracekit
from tests.effort import examples
from tests.fit.workloads import workload
from tracekit.fit.choice import Effort, describe
from tracekit.fit.families import FAMILIES
from tracekit.fit.likelihood import Fitted, maximize
from tracekit.fit.sample import Sample
from tracekit.fit.splice import Splice, drawn_durations, fit_splice, spliced_quantiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.trace import Trace

BOUND = 1e7


def planted(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return lognormal durations, of which the upper 9 % are a power law from 20,000 s to 10,000,000 s with b = 1."""
    drawn: NDArray[np.float64] = stats.lognorm(s=1.5, scale=600).rvs(size, random_state=rng)
    low = drawn < 20_000
    body = np.where(low, drawn, rng.choice(drawn[low], size))
    tail = stats.truncpareto(b=1.0, c=BOUND / 20_000, scale=20_000).rvs(size, random_state=rng)
    return np.where(rng.random(size) < 0.09, tail, body)


def test_durations_of_a_hand_worked_power_law() -> None:
    # With b = 1 from 100 s to 10,000 s: 1 / x falls evenly with the share that is left, from 0.01 to 0.0001.
    splice = Splice(xmin=100, b=1.0, share=0.1, bound=10_000)
    found = splice.durations(np.array([1.0, 0.5, 0.0]))
    np.testing.assert_allclose(found, [100, 1 / (0.0001 + 0.5 * 0.0099), 10_000])


def test_a_planted_tail_is_found_and_drawn() -> None:
    rng = np.random.default_rng(3)
    durations = np.round(planted(10_000, rng))
    found = describe(Sample.make(durations, resolution_s=1), rng, Effort(replicates=0), bound_s=BOUND)
    assert found["drawn_from"] == "family+tail"
    tail = found["tail"]["truncated"]
    assert abs(tail["parameters"]["b"] - 1) < 4 * tail["standard_errors"]["b"]
    assert tail["share_above"] == pytest.approx((durations >= tail["xmin_s"]).mean())
    assert 15_000 < tail["xmin_s"] < 30_000
    assert tail["log_likelihood_gain"] > tail["needed_gain"]
    entry = {**found, "pooled_to": None}
    drawn = drawn_durations(entry, BOUND, rng.standard_normal(200_000))
    for share in (0.5, 0.9, 0.99, 0.999):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(durations, share), rel=0.25)
    assert drawn.max() <= BOUND


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_family_that_is_right_keeps_its_own_tail(seed: int) -> None:
    rng = np.random.default_rng(seed)
    durations = np.round(stats.lognorm(s=1.8, scale=900).rvs(5000, random_state=rng))
    found = describe(Sample.make(durations, resolution_s=1), rng, Effort(replicates=0), bound_s=durations.max())
    assert found["drawn_from"] == "family"
    assert "truncated" in found["tail"]


def test_the_gain_is_that_of_the_log_likelihoods_by_scipy() -> None:
    rng = np.random.default_rng(5)
    durations = np.round(planted(3000, rng)) + 200  # none so short that its rounding counts
    lognorm = maximize(FAMILIES["lognorm"], Sample.make(durations, resolution_s=1))
    splice = fit_splice(lognorm, Sample.make(durations, resolution_s=1), BOUND + 200)
    assert splice is not None
    body = stats.lognorm(s=lognorm.p[0], scale=lognorm.p[1])
    alone = (body.logpdf(durations) - body.logcdf(splice.bound)).sum()
    low, high = durations[durations < splice.xmin], durations[durations >= splice.xmin]
    assert high.size == splice.above
    assert high.size / 3000 == pytest.approx(splice.share)
    spliced = (body.logpdf(low) - body.logcdf(splice.xmin) + np.log1p(-splice.share)).sum()
    reach = splice.bound / splice.xmin
    power = stats.truncpareto(b=splice.b, c=reach, scale=splice.xmin)
    spliced += (power.logpdf(high) + np.log(splice.share)).sum()
    assert splice.gain == pytest.approx(spliced - alone, rel=1e-6)
    assert splice.needed == pytest.approx(1.5 * np.log(high.size))
    for other in (splice.b - 0.05, splice.b + 0.05):
        assert power.logpdf(high).sum() > stats.truncpareto(b=other, c=reach, scale=splice.xmin).logpdf(high).sum()


def test_censored_jobs_count_up_to_where_they_were_seen() -> None:
    """A third of the tail is cut off at random: b is found within its error, the share by Kaplan and Meier."""
    rng = np.random.default_rng(8)
    durations = planted(40_000, rng)
    cut = rng.exponential(200_000, durations.size)
    seen = durations <= cut
    sample = Sample.make(np.round(durations[seen]), cut[~seen], resolution_s=1)
    body = Fitted(FAMILIES["lognorm"], np.array([1.5, 600.0]), None, 0.0, sample.n)
    splice = fit_splice(body, sample, BOUND)
    assert splice is not None
    assert splice.error is not None
    assert 15_000 < splice.xmin < 30_000
    assert abs(splice.b - 1) < 3 * splice.error
    assert splice.share == pytest.approx((durations >= splice.xmin).mean(), rel=0.05)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.floats(0.01, 5), st.floats(0.001, 0.9), st.floats(10, 1e4), st.floats(1.5, 1e4),
    st.lists(st.floats(-6, 6), min_size=2, max_size=20),
)  # fmt: skip
def test_longer_at_every_higher_score_and_never_above_the_bound(
    b: float, share: float, xmin: float, reach: float, scores: list[float]
) -> None:
    splice = Splice(xmin, b, share, xmin * reach)
    at = np.sort(np.array(scores))
    found = spliced_quantiles(FAMILIES["lognorm"], np.array([1.5, 600.0]), splice, at)
    assert (np.diff(found) >= -1e-9 * found[1:]).all()
    assert (found <= splice.bound * (1 + 1e-9)).all()
    above = special.ndtr(-at) < share
    assert ((found >= xmin * (1 - 1e-6)) == above).all() or np.isclose(special.ndtr(-at), share, rtol=1e-3).any()


@pytest.mark.thorough
def test_generate_draws_the_tail_and_reads_files_that_do_not_say_so(
    make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    tables = workload(4000)
    held = np.round(planted(4000, np.random.default_rng(2)))
    for job, run_s in zip(tables["jobs"], held, strict=True):
        job.update(run_s=float(run_s), gpu_count=1.0, status="completed", end_time=None, start_time=None)
    model = tracekit.fit(make_trace(jobs=tables["jobs"]), replicates=0, scores=0)
    entry = model.run_time(gpu_class="1", status="completed")
    assert entry is not None
    assert entry["drawn_from"] == "family+tail"

    def upper(name: str) -> float:
        jobs = tracekit.generate(model, tmp_path / name, jobs=40_000).scan("jobs").select("run_s").collect()
        return float(jobs.select((pl.col("run_s") > np.quantile(held, 0.99)).mean()).item())

    with_tail = upper("tail")
    assert with_tail == pytest.approx(0.01, rel=0.25)
    for one in model.run_times:
        del one["drawn_from"]
    assert upper("family") != with_tail


def test_quantiles_are_drawn_where_no_family_fits() -> None:
    """Half of the jobs end at a limit of an hour or of a day, the others anywhere up to it."""
    rng = np.random.default_rng(2)
    limit = np.where(rng.random(3000) < 0.6, 3600.0, 86_400.0)
    durations = np.where(rng.random(3000) < 0.5, limit, np.round(rng.random(3000) * limit))
    sample = Sample.make(durations, resolution_s=1)
    found = describe(sample, rng, Effort(replicates=0), bound_s=86_400)
    assert found["drawn_from"] == "quantiles"
    drawn = np.round(drawn_durations({**found, "pooled_to": None}, 86_400, rng.standard_normal(100_000)))
    # Between quantiles 0.05 apart, a spike may lose as much.
    for at in (3600, 86_400):
        assert (drawn == at).mean() == pytest.approx((durations == at).mean(), abs=0.05)
    assert stats.ks_2samp(drawn, durations).statistic < 0.06
    # Jobs that still run hide the upper end: then the family stays.
    running = Sample.make(durations, [90_000.0] * 50, resolution_s=1)
    assert describe(running, rng, Effort(replicates=0), bound_s=900_000)["drawn_from"] != "quantiles"


def test_between_quantiles_the_logarithm_is_linear_and_zero_stays_zero() -> None:
    entry = {
        "drawn_from": "quantiles",
        "quantiles_s": [[0, 0.0], [0.25, 0.0], [0.5, 100.0], [1, 10_000.0]],
        "resolution_s": 1.0,
    }
    found = drawn_durations(entry, 10_000, special.ndtri([0.1, 0.25, 0.5, 0.75, 1 - 1e-12]))
    # Halfway from 100 to 10,000 on a logarithmic scale is 1,000; what is read as a quarter of a step is rounded to 0.
    np.testing.assert_allclose(found, [0.25, 0.25, 100, 1000, 10_000], rtol=1e-6)


def test_what_is_cut_at_a_shorter_bound_keeps_its_shape_below_it() -> None:
    quantiles = [[0, 1.0], [0.5, 100.0], [1, 10_000.0]]
    entry = {"drawn_from": "quantiles", "chosen": None, "quantiles_s": quantiles, "resolution_s": 1.0}
    # Half of the jobs are below 100 s: cut there, the median is the quartile, 10 s.
    np.testing.assert_allclose(drawn_durations(entry, 100, special.ndtri([0.5, 1 - 1e-12])), [10, 100], rtol=1e-6)
    rng = np.random.default_rng(3)
    found = describe(
        Sample.make(np.round(planted(10_000, rng)), resolution_s=1), rng, Effort(replicates=0), bound_s=BOUND
    )
    scores = rng.standard_normal(50_000)
    whole = drawn_durations(found, BOUND, scores)
    for bound in (5_000.0, 100_000.0):
        cut = drawn_durations(found, bound, scores)
        assert cut.max() <= bound * (1 + 1e-9)
        # Below xmin the share is that of the jobs below the bound; the power law is cut within its own share.
        expected = whole[whole <= bound]
        tolerance = 0.02 if bound < found["tail"]["truncated"]["xmin_s"] else 0.06
        assert stats.ks_2samp(cut, expected).statistic < tolerance
