"""Synthetic Traces: valid, repeatable, scaled as asked, and their own fit is the model again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy import signal

import tracekit
from tests.fit.workloads import workload
from tracekit.fit import job_draws
from tracekit.fit.closure import closure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.fit.model import WorkloadModel
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def model(make_trace: Callable[..., Trace]) -> WorkloadModel:
    tables = workload(1500)
    for job in tables["jobs"]:  # VC b runs longer, and all jobs of one user are alike
        if job["vc"] == "b":
            job["run_s"] *= 5
    kept = {j["job_id"] for j in tables["jobs"] if j["vc"] == "a"}
    tables["attempts"] = [a for a in tables["attempts"] if a["job_id"] in kept]
    nodes = [{"node_id": f"n{i}", "gpu_count": 8} for i in range(5)]
    capacity = [{"time": "2020-04-06", "vc": v, "gpu_count": 20} for v in ("a", "b")]
    fitted: WorkloadModel = tracekit.fit(make_trace(**tables, nodes=nodes, capacity=capacity), replicates=0, scores=0)
    return fitted


def test_a_synthetic_trace_is_valid_and_has_no_queue_times(model: WorkloadModel, tmp_path: Path) -> None:
    trace = tracekit.generate(model, tmp_path / "t", jobs=2000, seed=3)
    assert trace.validate() == []
    assert trace.tables == ("jobs", "attempts", "nodes", "capacity")
    jobs = trace.scan("jobs").collect()
    assert jobs.height == jobs["job_id"].n_unique() == 2000
    for column in ("start_time", "end_time", "queue_s", "name"):
        assert jobs[column].null_count() == 2000
    assert jobs["submit_time"].is_sorted()
    assert set(jobs["user"]) == {"u1", "u2", "u3", "u4"}
    assert not trace.capabilities["queueing"].available
    assert trace.manifest.time_base == "shifted"
    assert trace.manifest.options == {
        "jobs": "2000",
        "seed": "3",
        "method": "model",
        "rate": "mean",
        "scale_load": "1",
        "scale_gpus": "1",
    }


def test_attempts_share_the_run_time_of_their_job(model: WorkloadModel, tmp_path: Path) -> None:
    trace = tracekit.generate(model, tmp_path / "t", jobs=2000)
    jobs, attempts = trace.scan("jobs").collect(), trace.scan("attempts").collect()
    whole = attempts.group_by("job_id").agg(pl.sum("run_s").alias("sum"), pl.len().alias("number"))
    both = jobs.join(whole, on="job_id")
    assert both.height == 2000
    np.testing.assert_allclose(both["sum"], both["run_s"])
    assert both["number"].to_list() == both["attempt_count"].to_list()
    assert (attempts["run_s"] % 1 == 0).all()
    assert (attempts["run_s"] >= 0).all()
    last = attempts.filter(pl.col("status").is_not_null()).join(jobs, on="job_id", suffix="_of_job")
    assert last.height == 2000
    assert (last["status"] == last["status_of_job"]).all()


def test_the_same_seed_gives_the_same_tables(model: WorkloadModel, tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        tracekit.generate(model, tmp_path / name, jobs=500, seed=seed)
    files = [p.name for p in sorted((tmp_path / "a").iterdir())]
    assert files == ["attempts.parquet", "capacity.parquet", "jobs.parquet", "manifest.json", "nodes.parquet"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "jobs.parquet").read_bytes() != (tmp_path / "c" / "jobs.parquet").read_bytes()


@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.3, 0.99])
def test_chained_scores_are_those_of_an_autoregression(rho: float) -> None:
    noise = np.random.default_rng(1).standard_normal(5000)
    expected = signal.lfilter([1.0], [1.0, -rho], noise)
    np.testing.assert_allclose(job_draws._chained(noise, rho), expected, rtol=1e-9, atol=1e-12)


def test_load_and_machines_are_scaled(model: WorkloadModel, tmp_path: Path) -> None:
    def made(name: str, load: float, gpus: float) -> tuple[int, int, float]:
        trace = tracekit.generate(model, tmp_path / name, days=8, scale_load=load, scale_gpus=gpus)
        rows = trace.manifest.tables
        return rows["jobs"].rows, rows["nodes"].rows, float(trace.scan("capacity").collect()["gpu_count"].sum())

    once, nodes, capacity = made("one", 1.0, 1.0)
    twice, more_nodes, more_capacity = made("two", 2.0, 1.5)
    assert twice / once == pytest.approx(2, rel=0.15)
    assert (nodes, capacity) == (5, 40.0)
    assert (more_nodes, more_capacity) == (8, 60.0)


@pytest.mark.thorough
def test_its_own_fit_is_the_model_again(model: WorkloadModel, tmp_path: Path) -> None:
    again = tracekit.fit(tracekit.generate(model, tmp_path / "t", jobs=1500, seed=1), replicates=0, scores=0)
    rows = closure(model, again)
    assert len(rows) > 15
    assert [r for r in rows if not r.within] == []
    quantities = {r.quantity for r in rows}
    assert {"jobs_per_day", "run_time", "run_time_of_vc", "correlation", "size_class_share"} <= quantities


@pytest.mark.thorough
def test_closure_sees_another_workload(model: WorkloadModel, make_trace: Callable[..., Trace]) -> None:
    other = workload(1500)
    for job in other["jobs"]:
        job["run_s"] *= 3
    fitted = tracekit.fit(make_trace(jobs=other["jobs"]), replicates=0, scores=0)
    outside = {r.quantity for r in closure(model, fitted) if not r.within}
    assert "run_time" in outside
    assert "jobs_per_day" not in outside


@pytest.mark.parametrize(
    "name", [pytest.param("philly", marks=pytest.mark.thorough), pytest.param("helios", marks=pytest.mark.slow)]
)
def test_the_sample_traces_close(sample_trace: Callable[[str], Trace], tmp_path: Path, name: str) -> None:
    assert_closes(tracekit.fit(sample_trace(name), replicates=0, scores=0), tmp_path)


@pytest.mark.slow
def test_the_real_philly_jobs_close(philly_list: Trace, philly_model: WorkloadModel, tmp_path: Path) -> None:
    assert philly_list.manifest.tables["jobs"].rows == 52_849
    assert_closes(philly_model, tmp_path)


def assert_closes(model: WorkloadModel, folder: Path) -> None:
    made = tracekit.generate(model, folder / "made", jobs=model.document["source"]["jobs"], seed=1)
    assert made.validate() == []
    assert [r for r in closure(model, tracekit.fit(made, replicates=0, scores=0)) if not r.within] == []


def test_the_rate_is_that_of_the_log_unless_its_end_or_trend_is_asked_for(
    make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    """A log that doubles every seven days for four weeks: 20, 40, 80, 160 jobs a week at its beginning and end."""
    rng = np.random.default_rng(4)
    growth, days = np.log(2) / 7, 28.0
    # The time up to which a share of all jobs has come, by the inverse of the integral of exp(growth * t).
    at = np.log1p(rng.random(4000) * np.expm1(growth * days)) / growth
    jobs = [
        {"job_id": str(n), "run_s": 60, "gpu_count": 1, "status": "completed",
         "submit_time": str(np.datetime64("2021-03-01") + np.timedelta64(int(t * 86400), "s"))}
        for n, t in enumerate(at)
    ]  # fmt: skip
    model = tracekit.fit(make_trace(jobs=jobs), replicates=0, scores=0)
    rate = model.document["arrivals"]["rate"]
    assert rate["trend_per_day"] == pytest.approx(growth, rel=0.05)
    mean = 4000 / days
    assert rate["mean_per_hour"] * 24 == pytest.approx(mean, rel=0.02)

    def a_day(rate: str | None, days: int) -> float:
        trace = tracekit.generate(model, tmp_path / f"{rate} {days}", days=days, rate=rate)
        return trace.scan("jobs").collect().height / days

    # 180 days at the mean rate hold 26,000 jobs, whose number varies by 0.6 %; the fit itself by 1.6 %.
    assert a_day(None, 180) == pytest.approx(mean, rel=0.05)
    assert a_day("mean", 10) == pytest.approx(mean, rel=0.12)
    end = 4000 * growth * np.exp(growth * days) / np.expm1(growth * days)
    assert a_day("end", 100) == pytest.approx(end, rel=0.08)
    assert a_day("fitted", 28) == pytest.approx(mean, rel=0.08)
    assert a_day("fitted", 180) > 2 * mean
    # A file of a version without the mean rate has it by its trend.
    del rate["mean_per_hour"]
    assert a_day("mean", 180) == pytest.approx(mean, rel=0.05)
