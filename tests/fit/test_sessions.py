"""Sessions of tenants: found with what was planted, not in independent arrivals, and drawn as they were fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import special, stats

import tracekit
from tracekit.errors import UsageError
from tracekit.fit.arrival_draws import _chained_within, _odds, jobs_in_sessions, session_gaps
from tracekit.fit.arrivals import Figures, fit_arrivals
from tracekit.fit.closure import closure
from tracekit.fit.generate import draw_arrivals
from tracekit.fit.job_draws import DrawnTenants
from tracekit.fit.jobs import read_jobs
from tracekit.fit.model import WorkloadModel
from tracekit.fit.sessions import share_with_error, sizes_entry, tenants_of, threshold_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

START = np.datetime64("2021-03-01")
DAYS = 60
SHARES = (0.6, 0.3, 0.1)
"""Of requests for 1, 2 and 8 GPUs."""


def planted(seed: int, *, tenant: str = "user", days: int = DAYS) -> list[dict[str, Any]]:
    """Return jobs of ten tenants in sessions.

    A session goes on after a failed job with probability 0.95, else with 0.75; a job fails with 0.3. The next is the
    same request with 0.9 after a failure and 0.6 else, and drawn anew otherwise. Normal scores of run times have a part
    of 0.7 of the variance from their session. Gaps inside are lognormal around 20 s.
    """
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    for begin in np.sort(days * 86_400 * rng.random(rng.poisson(days * 20))):
        who, at, shared = f"t{rng.integers(10)}", float(begin), rng.standard_normal()
        gpus = int(rng.choice([1, 2, 8], p=SHARES))
        while True:
            failed = bool(rng.random() < 0.3)
            score = np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.standard_normal()
            jobs.append(
                {
                    "job_id": str(len(jobs)),
                    tenant: who,
                    "gpu_count": gpus,
                    "status": "failed" if failed else "completed",
                    "run_s": float(np.round(np.exp((5.0 if failed else 7.0) + score))),
                    "submit_time": str(START + np.timedelta64(int(at), "s")),
                }
            )
            if rng.random() >= (0.95 if failed else 0.75):
                break
            if rng.random() >= (0.9 if failed else 0.6):
                gpus = int(rng.choice([1, 2, 8], p=SHARES))
            at += float(np.ceil(20 * np.exp(0.8 * rng.standard_normal()) * (0.5 if failed else 1)))
    return sorted(jobs, key=lambda j: str(j["submit_time"]))


NODES = [{"node_id": f"n{i}", "gpu_count": 8} for i in range(5)]


@pytest.fixture(scope="module")
def model(make_trace: Callable[..., Trace]) -> WorkloadModel:
    fitted: WorkloadModel = tracekit.fit(make_trace(jobs=planted(1), nodes=NODES), replicates=0, scores=0)
    return fitted


@pytest.fixture(scope="module")
def short(make_trace: Callable[..., Trace]) -> WorkloadModel:
    """Return the model of a log of 15 days."""
    fitted: WorkloadModel = tracekit.fit(make_trace(jobs=planted(1, days=15), nodes=NODES), replicates=0, scores=0)
    return fitted


@pytest.fixture(scope="module")
def again(model: WorkloadModel, tmp_path_factory: pytest.TempPathFactory) -> WorkloadModel:
    made = tracekit.generate(
        model, tmp_path_factory.mktemp("again") / "t", jobs=model.document["source"]["jobs"], seed=3
    )
    fitted: WorkloadModel = tracekit.fit(made, replicates=0, scores=0)
    return fitted


def near(found: float, error: float, truth: float, away: float = 4.0) -> bool:
    """Return whether a figure is within so many standard errors of the truth, and its error is not too large."""
    return abs(found - truth) < away * error < 0.2 * max(abs(truth), 0.5) * away


@pytest.mark.thorough
def test_planted_sessions_are_recovered(model: WorkloadModel) -> None:
    arrivals = model.document["arrivals"]
    found = arrivals["sessions"]
    assert arrivals["process"] == "sessions"
    assert "distance from the log" in arrivals["why"]
    assert found["by"] == "user"
    # Two gaps in a hundred of lognormal(20 s, 0.8) are above 100 s; a tenant's sessions are twelve hours apart.
    assert 60 < found["threshold_s"] < 1500
    # A job is the last with 0.3 * 0.05 + 0.7 * 0.25 = 0.19.
    assert near(found["size"]["mean"], found["size"]["standard_error"], 1 / 0.19)
    assert found["starts"]["rate"]["form"] == "constant"
    assert found["starts"]["process"] == "poisson"
    rate = found["starts"]["rate"]
    assert near(rate["mean_per_hour"] * found["starts"]["batch"]["mean"], rate["mean_standard_error"], 20 / 24)
    inside = found["run_times"]["inside"]
    assert near(inside["correlation"], inside["standard_error"], 0.7)
    assert abs(found["run_times"]["between"]["correlation"]) < 4 * found["run_times"]["between"]["standard_error"]
    again = found["resubmission"]
    chance = sum(s**2 for s in SHARES)
    for name, follows, copied in (("after_failure", 0.95, 0.9), ("after_others", 0.75, 0.6)):
        assert near(again[name]["follows"], again[name]["follows_standard_error"], follows)
        truth = copied + (1 - copied) * chance
        assert near(again[name]["same_request"], again[name]["same_request_standard_error"], truth)
    shift = again["after_others"]["mean_log_gap"] - again["after_failure"]["mean_log_gap"]
    assert shift == pytest.approx(np.log(2), abs=0.12)


@pytest.mark.thorough
def test_what_is_drawn_is_found_again(model: WorkloadModel, again: WorkloadModel) -> None:
    first, second = (m.document["arrivals"]["sessions"] for m in (model, again))
    assert again.document["arrivals"]["process"] == "sessions"

    def both(*place: str) -> tuple[float, float, float]:
        parts = [first, second]
        for name in place[:-1]:
            parts = [p[name] for p in parts]
        value, error = place[-1].split("|")
        return parts[0][value], parts[1][value], float(np.hypot(parts[0][error], parts[1][error]))

    for place in (
        ("size", "mean|standard_error"),
        ("gaps", "mean_log|mean_log_standard_error"),
        ("run_times", "inside", "correlation|standard_error"),
        ("requests", "same|standard_error"),
        ("resubmission", "after_failure", "follows|follows_standard_error"),
        ("resubmission", "after_others", "follows|follows_standard_error"),
        ("resubmission", "after_failure", "same_request|same_request_standard_error"),
        ("resubmission", "after_others", "same_request|same_request_standard_error"),
        ("resubmission", "after_failure", "mean_log_gap|mean_log_gap_standard_error"),
    ):
        one, other, error = both(*place)
        assert abs(one - other) < 4 * error, (place, one, other, error)
    assert [r for r in closure(model, again) if not r.within] == []


@pytest.mark.thorough
def test_arrivals_of_a_log_get_jobs_in_sessions(model: WorkloadModel) -> None:
    sessions = model.document["arrivals"]["sessions"]
    # Two users take turns: sessions of 20 jobs every day, 10 s apart.
    day = np.repeat(np.arange(1500), 20)
    seconds = day * 86_400 + np.tile(np.arange(20) * 10, 1500)
    who = DrawnTenants(
        np.arange(seconds.size) % 2,
        np.zeros(seconds.size, bool),
        [("u1", None, None), ("u2", None, None)],
        np.array([0.5, 0.5]),
        np.array([[0, 0, 0.6, 0.3, 0.1, 0, 0]] * 2),
    )
    drawn = jobs_in_sessions(model, seconds, who, np.random.default_rng(2))
    request, outcomes, scores = drawn.request, drawn.outcomes, drawn.scores
    assert scores is not None
    one = scores.reshape(1500, 20)[:, ::2]
    assert np.corrcoef(one[:, 0], one[:, 9])[0, 1] == pytest.approx(
        sessions["run_times"]["inside"]["correlation"], abs=0.06
    )
    assert abs(np.corrcoef(one[:, 0], scores.reshape(1500, 20)[:, 1])[0, 1]) < 0.1
    asked = request.reshape(1500, 20)[:, ::2]
    # Requests are for 1, 2 and 8 GPUs: the classes 1, 2-4 and 5-8.
    same = sessions["requests"]["copied"] + (1 - sessions["requests"]["copied"]) * sum(s**2 for s in SHARES)
    assert (asked[:, 1:] == asked[:, :-1]).mean() == pytest.approx(same, abs=0.02)
    assert outcomes.group.size == seconds.size


def test_drawn_sessions_scale_and_repeat(short: WorkloadModel, tmp_path: Path) -> None:
    once = tracekit.generate(short, tmp_path / "a", days=60, seed=5)
    twice = tracekit.generate(short, tmp_path / "b", days=60, seed=6, scale_load=2.0)
    rows = [t.manifest.tables["jobs"].rows for t in (once, twice)]
    # 1,200 sessions of 5.3 jobs: a standard deviation of 4 %.
    assert rows[0] == pytest.approx(60 * 20 / 0.19, rel=0.15)
    assert rows[1] == pytest.approx(2 * 60 * 20 / 0.19, rel=0.12)
    assert once.validate() == []
    jobs = once.scan("jobs").collect()
    assert jobs["submit_time"].is_sorted()
    assert np.ptp(jobs["submit_time"].dt.epoch("s").to_numpy()) < 60 * 86_400
    tracekit.generate(short, tmp_path / "c", days=60, seed=5)
    assert (tmp_path / "a" / "jobs.parquet").read_bytes() == (tmp_path / "c" / "jobs.parquet").read_bytes()
    loaded = tracekit.generate(short, tmp_path / "d", jobs=20_000, load=0.6)
    frame = loaded.scan("jobs").collect()
    span = frame["submit_time"].dt.epoch("s").to_numpy()
    asked = float((frame["gpu_count"] * frame["run_s"]).sum()) / float(span[-1] - span[0])
    assert asked / 40 == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("tenant", ["user", pytest.param("vc", marks=pytest.mark.thorough)])
def test_independent_arrivals_have_no_sessions(make_trace: Callable[..., Trace], tenant: str) -> None:
    rng = np.random.default_rng(7)
    jobs = planted(2, tenant=tenant)
    for job in jobs:
        job[tenant] = f"t{rng.integers(10)}"
        job["submit_time"] = str(START + np.timedelta64(int(DAYS * 86_400 * rng.random()), "s"))
    trace = make_trace(jobs=jobs)
    found = fit_arrivals(read_jobs(trace).frame, "UTC", rng)
    assert found["process"] == "poisson"
    assert found["sessions"] is None
    assert found["rate"]["form"] == "constant"


def test_bursts_of_all_tenants_are_not_sessions(make_trace: Callable[..., Trace]) -> None:
    rng = np.random.default_rng(8)
    jobs = planted(3)
    for job in jobs:
        job["user"] = f"t{rng.integers(10)}"
    found = fit_arrivals(read_jobs(make_trace(jobs=jobs)).frame, "UTC", rng)
    assert found["sessions"] is None
    assert "the same user's in" in found["sessions_reason"] or "times as frequent" in found["sessions_reason"]
    assert found["process"] != "sessions"


@pytest.mark.parametrize(("tenant", "by"), [("vc", "vc"), pytest.param("name", "nobody", marks=pytest.mark.thorough)])
def test_sessions_are_of_vcs_where_users_are_unknown_and_of_nobody_where_both_are(
    make_trace: Callable[..., Trace], tenant: str, by: str
) -> None:
    frame = read_jobs(make_trace(jobs=planted(4, tenant=tenant, days=15))).frame
    found = fit_arrivals(frame, "UTC", np.random.default_rng(0))
    assert found["sessions"]["by"] == by


def test_tenants_are_distinguished() -> None:
    frame = pl.DataFrame({"user": ["a", None, "b", "a", None], "cluster": ["x"] * 5, "vc": ["v", "v", "w", None, "w"]})
    by, code = tenants_of(frame)
    assert by == "user"
    assert code[0] == code[3]
    assert len(set(code.tolist())) == 4
    by, code = tenants_of(frame.with_columns(user=pl.lit(None, pl.String)))
    assert by == "vc"
    assert (code[0] == code[1], code[2] == code[4], len(set(code.tolist()))) == (True, True, 3)
    assert tenants_of(frame.select("user").with_columns(user=pl.lit(None, pl.String)))[0] == "nobody"


def test_the_threshold_is_where_two_kinds_of_gaps_meet() -> None:
    rng = np.random.default_rng(9)
    gaps = np.exp(np.concatenate([rng.normal(np.log(10), 0.5, 3000), rng.normal(np.log(10_000), 0.5, 3000)]))
    found = threshold_of(gaps, 1.0)
    assert found is not None
    # Equal weights and spreads: half way between the means of the logarithms, at sqrt(10 * 10,000).
    assert found.seconds == pytest.approx(np.sqrt(10 * 10_000), rel=0.1)
    assert found.parts["scale_1"] == pytest.approx(10, rel=0.05)
    assert threshold_of(gaps[:100], 1.0) is None
    coarse = threshold_of(gaps, 60.0)
    assert coarse is not None
    assert coarse.seconds == 300.0


def test_a_share_has_the_error_of_whole_groups() -> None:
    # Groups of 2 and 2: p = 0.75, sums of hits - p are 0.5 and -0.5; sqrt(0.5) / 4.
    found = share_with_error(np.array([True, True, True, False]), np.array([0, 0, 1, 1]))
    assert found == pytest.approx((0.75, np.sqrt(0.5) / 4))
    assert share_with_error(np.array([], bool), np.array([], int)) is None


def test_failures_fall_on_jobs_as_bayes_has_it() -> None:
    # Of 100 jobs 20 fail. 15 of these are followed, 12 by the same; of the others 40 are, 20 by the same.
    after = {
        "after_failure": {"jobs": 20, "follows": 0.75, "same_request": 0.8},
        "after_others": {"jobs": 80, "follows": 0.5, "same_request": 0.5},
    }
    # Failures among the 45 last ones are 5, among the 32 repeated 12, among the 23 others 3; by chance a fifth.
    assert _odds(after) == pytest.approx((5 / 45 / 0.2, 12 / 32 / 0.2, 3 / 23 / 0.2))


@pytest.mark.thorough
def test_large_sessions_are_of_their_vc_and_their_runs_are_short(
    make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    """Sessions of 30 jobs of VC a, that run for 60 s or so, and single jobs of VC b of very different run times."""
    rng = np.random.default_rng(11)
    jobs: list[dict[str, Any]] = []
    for who, number, sessions, spread in (("a", 30, 150, 0.2), ("b", 1, 3000, 3.0)):
        for begin in DAYS * 86_400 * rng.random(sessions):
            jobs += [
                {
                    "job_id": str(len(jobs) + i),
                    "vc": who,
                    "gpu_count": 1,
                    "status": "completed",
                    "run_s": float(np.ceil(60 * np.exp(spread * rng.standard_normal()))),
                    "submit_time": str(START + np.timedelta64(int(begin) + 5 * i, "s")),
                }
                for i in range(number)
            ]
    model = tracekit.fit(make_trace(jobs=sorted(jobs, key=lambda j: str(j["submit_time"]))), replicates=0, scores=0)
    sessions = model.document["arrivals"]["sessions"]
    assert model.document["arrivals"]["process"] == "sessions"
    kinds = {k["from_jobs"]: k for k in sessions["run_times"]["by_size"]}
    assert kinds[1]["vcs"][0]["vc"] == "b"
    assert kinds[21]["vcs"] == [{"cluster": None, "vc": "a", "share": 1.0}]
    made = tracekit.generate(model, tmp_path / "t", jobs=7500, seed=2).scan("jobs").collect()
    spreads = made.group_by("vc").agg(pl.col("run_s").clip(1.0).log().std()).sort("vc")["run_s"].to_list()
    assert spreads[0] < 0.6
    # Below one second times are cut: of a normal variable of deviation 3 around log 60 that leaves 2.75.
    assert spreads[1] == pytest.approx(2.75, rel=0.15)
    shares = made["vc"].value_counts(normalize=True).sort("vc")["proportion"].to_list()
    assert shares[0] == pytest.approx(0.6, abs=0.08)


def test_sizes_are_counted() -> None:
    found = sizes_entry(np.array([1, 1, 4]))
    assert (found["mean"], found["largest"], found["sizes"]) == (2.0, 4, [1, 4])
    assert found["shares"] == pytest.approx([2 / 3, 1 / 3])
    assert found["standard_error"] == pytest.approx(np.sqrt(2 / 3))
    # A job is in a session of (1 + 1 + 16) / 6 jobs.
    assert found["mean_of_a_job"] == 3.0
    assert len(sizes_entry(np.arange(1, 2000))["sizes"]) == 500


def test_gaps_are_of_their_quantiles_and_alike_in_a_session() -> None:
    gaps = {"zero_share": 0.2, "quantiles_s": [[0.0, 10.0], [1.0, 30.0]], "correlation": {"correlation": 0.6}}
    number = np.repeat(np.arange(4000), 4)
    drawn = session_gaps(gaps, number, np.random.default_rng(0)).reshape(-1, 4)
    assert (drawn[:, 0] == 0).all()
    later = drawn[:, 1:]
    assert (later == 0).mean() == pytest.approx(0.2, abs=0.02)
    assert stats.kstest(later[later > 0], stats.uniform(10, 20).cdf).statistic < 0.03
    scores = special.ndtri((stats.rankdata(later, method="ordinal").reshape(later.shape) - 0.5) / later.size)
    assert np.corrcoef(scores[:, 0], scores[:, 2])[0, 1] == pytest.approx(0.6, abs=0.08)


def test_chains_begin_anew_where_they_are_fresh() -> None:
    noise = np.random.default_rng(1).standard_normal(300)
    fresh = np.arange(300) % 7 == 0
    expected = np.empty(300)
    for i in range(300):
        expected[i] = noise[i] + (0.0 if fresh[i] else 0.8 * expected[i - 1])
    np.testing.assert_allclose(_chained_within(noise, fresh, 0.8), expected)


def test_the_distance_is_the_mean_of_four() -> None:
    one, other = Figures(2.0, 10.0, 0.5, 0.8), Figures(4.0, 5.0, 0.3, 0.7)
    assert one.distance(other) == pytest.approx((2 * np.log(2) + 0.2 + 0.1) / 4)


@pytest.mark.thorough
def test_submissions_alone_are_those_of_sessions(model: WorkloadModel) -> None:
    arrivals = model.document["arrivals"]
    seconds, batch = draw_arrivals(arrivals, np.random.default_rng(1), jobs=5000, days=None, load=1.0)
    assert (seconds.size, batch.size) == (5000, 5000)
    assert (np.diff(seconds) >= 0).all()
    assert ((np.diff(batch) == 0) == (np.diff(seconds) == 0)).all()
    # Of ten tenants the gaps between successive jobs of all are mostly those inside sessions.
    assert np.median(np.diff(seconds)) < 30
    assert (seconds[-1] - seconds[0]) / 86_400 == pytest.approx(5000 * 0.19 / 20, rel=0.2)


def test_one_job_and_hardly_a_day_can_be_drawn(short: WorkloadModel, tmp_path: Path) -> None:
    assert tracekit.generate(short, tmp_path / "one", jobs=1).manifest.tables["jobs"].rows == 1
    with pytest.raises(UsageError, match="no job arrives in such a short time"):
        tracekit.generate(short, tmp_path / "none", days=1e-6)
    with pytest.raises(UsageError, match="more than 200,000,000 jobs"):
        tracekit.generate(short, tmp_path / "many", days=36_000, scale_load=60.0)


def test_a_model_whose_sessions_are_missing_is_refused(short: WorkloadModel) -> None:
    arrivals = {**short.document["arrivals"], "sessions": None}
    with pytest.raises(UsageError, match="the process is 'sessions', but the sessions are missing"):
        WorkloadModel.checked({**short.document, "arrivals": arrivals})


@pytest.mark.thorough
def test_the_philly_list_comes_in_sessions_of_vcs(
    philly_list: Trace, philly_model: WorkloadModel, tmp_path: Path
) -> None:
    assert philly_model.document["arrivals"]["process"] == "sessions"
    assert philly_model.document["arrivals"]["sessions"]["by"] == "vc"

    def told(trace: Trace) -> tuple[float, float]:
        jobs = trace.scan("jobs").select("submit_time", "run_s").sort("submit_time").collect()
        gaps = np.diff(jobs["submit_time"].dt.epoch("us").to_numpy())
        return float(gaps.std() / gaps.mean()), float(stats.spearmanr(jobs["run_s"][1:], jobs["run_s"][:-1]).statistic)

    made = tracekit.generate(philly_model, tmp_path / "made", jobs=52_849, seed=1, rate="fitted")
    (real_gaps, real_runs), (gaps, runs) = told(philly_list), told(made)
    assert gaps == pytest.approx(real_gaps, rel=0.4)
    assert runs == pytest.approx(real_runs, abs=0.15)
