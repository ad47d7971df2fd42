"""Residuals, both statistics, the bootstrap, and the tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from tests.fit.drawing import KNOWN, censored, draw
from tracekit.fit.choice import (
    Effort,
    anderson_darling,
    bootstrap,
    censoring_times,
    describe,
    fit_tail,
    kolmogorov,
    residuals,
    tail_p_value,
)
from tracekit.fit.families import FAMILIES
from tracekit.fit.likelihood import maximize
from tracekit.fit.sample import Sample

if TYPE_CHECKING:
    from tests.reviewed import Golden


def test_kolmogorov_and_anderson_darling_are_the_textbooks() -> None:
    u = np.sort(np.random.default_rng(1).random(200))
    assert kolmogorov(u) == pytest.approx(stats.kstest(u, "uniform").statistic)
    # One residual at 0.5: -1 - (log 0.5 + log 0.5) = 2 log 2 - 1.
    assert anderson_darling(np.array([0.5])) == pytest.approx(2 * np.log(2) - 1)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_residuals_of_the_true_family_are_uniform_whatever_is_censored(share: float) -> None:
    rng = np.random.default_rng(3)
    sample = censored(draw("lognorm", 5000, rng), share, rng)
    u = residuals(FAMILIES["lognorm"], FAMILIES["lognorm"].vector(KNOWN["lognorm"]), sample, rng)
    assert u.size == 5000
    assert kolmogorov(u) < 1.63 / np.sqrt(5000)  # 1 % point of a fully known distribution


def test_the_bootstrap_accepts_the_true_family_and_rejects_a_wrong_one() -> None:
    rng = np.random.default_rng(5)
    sample = censored(draw("lognorm_mix_2", 2000, rng), 0.2, rng)
    right = bootstrap(maximize(FAMILIES["lognorm_mix_2"], sample), sample, rng, jobs=300, replicates=39)
    wrong = bootstrap(maximize(FAMILIES["expon"], sample), sample, rng, jobs=300, replicates=39)
    assert (right.jobs, right.replicates) == (300, 39)
    assert right.p_ks > 0.05
    assert (wrong.p_ks, wrong.p_ad) == (1 / 40, 1 / 40)


def test_censoring_times_follow_kaplan_meier() -> None:
    # At 10 one of three is cut, at 20 one ends, at 30 the last is cut: 1/3 are cut at 10, the rest at 30.
    sample = Sample.make([20.0], [10.0, 30.0], resolution_s=1e-6)
    found = censoring_times(sample, 6000, np.random.default_rng(1))
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [10, 30]
    assert counts[0] / 6000 == pytest.approx(1 / 3, abs=0.02)
    assert np.isinf(censoring_times(Sample.make([1.0, 2.0]), 3, np.random.default_rng(1))).all()


def test_a_power_law_tail_is_found_where_it_begins() -> None:
    rng = np.random.default_rng(6)
    body = rng.random(9000) * 1000
    tail = 1000 * (1 - rng.random(3000)) ** (-1 / 1.4)
    sample = Sample.make(np.concatenate([body, tail]), resolution_s=1e-6)
    found = fit_tail(sample)
    assert found is not None
    assert abs(found.b - 1.4) < 3 * found.error
    assert 900 < found.xmin < 2500
    p = tail_p_value(sample, rng, jobs=1000, replicates=19)
    assert p is not None
    assert p[0] > 0.05


def test_censored_jobs_count_in_the_tail_up_to_where_they_were_seen() -> None:
    rng = np.random.default_rng(7)
    durations = 100 * (1 - rng.random(6000)) ** (-1 / 1.2)
    ends = 100 * (1 - rng.random(6000)) ** (-1 / 0.6)
    seen = durations <= ends
    found = fit_tail(Sample.make(durations[seen], ends[~seen], resolution_s=1e-6))
    assert found is not None
    assert abs(found.b - 1.2) < 4 * found.error


def test_too_few_ends_have_no_tail() -> None:
    assert fit_tail(Sample.make(np.arange(1.0, 60.0))) is None
    assert fit_tail(Sample.make([5.0] * 1000)) is None


def test_a_description_tells_choice_and_failures(golden: Golden) -> None:
    rng = np.random.default_rng(9)
    found = describe(Sample.make(np.round(rng.exponential(5000, 3000)), resolution_s=1), rng, Effort(replicates=9))
    assert found["chosen"] == "expon"
    assert found["best_by"]["bic"] == "expon"
    assert [f["family"] for f in found["families"]] == list(FAMILIES)
    assert all("failed" in f or f["log_likelihood"] < 0 for f in found["families"])
    assert found["bootstrap"]["jobs"] == 500
    assert found["n"] == 3000
    same = describe(Sample.make([60.0] * 300), rng, Effort(replicates=9))
    assert same["chosen"] is None
    golden(same["reason"])
    assert dict(same["quantiles_s"])[0.5] == 60.0


def power_law(ends: int, distinct: int) -> Sample:
    """Return a body below 100 s and as many ends above, of so many values of a power law."""
    values = 100 * (1 - (np.arange(distinct) + 0.5) / distinct) ** (-1 / 1.2)
    return Sample.make(np.concatenate([np.linspace(1, 90, ends), np.resize(values, ends)]), resolution_s=1e-6)


def test_a_tail_needs_fifty_ends_of_ten_values_in_the_upper_half() -> None:
    for ends, distinct in ((50, 10), (50, 50), (60, 10)):
        assert fit_tail(power_law(ends, distinct)) is not None
    for ends, distinct in ((49, 49), (60, 9), (49, 10)):
        assert fit_tail(power_law(ends, distinct)) is None


def test_the_error_of_a_tail_is_its_slope_by_the_root_of_its_ends() -> None:
    found = fit_tail(power_law(400, 400))
    assert found is not None
    assert found.above == 400
    assert found.error == pytest.approx(found.b / 20)
