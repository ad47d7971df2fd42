"""`generate --load`: the arrivals that offer a load to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit
from tests.fit.workloads import workload
from tracekit.errors import UsageError
from tracekit.fit.model import WorkloadModel
from tracekit.fit.offered_load import cluster_gpus, gpu_seconds_of_a_job, gpu_seconds_per_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace


def asked(trace: Trace) -> float:
    """Return GPU-seconds asked for in a second, by the definition of exports: from first to last submission."""
    jobs = trace.scan("jobs").collect()
    seconds = jobs["submit_time"].dt.epoch("us").to_numpy() / 1e6
    span = seconds.max() - seconds.min()
    held = trace.scan("attempts").group_by("job_id").agg(pl.sum("run_s")).collect()
    both = jobs.select("job_id", "gpu_count").join(held, on="job_id")
    return float((both["gpu_count"] * both["run_s"]).sum()) / float(span)


@pytest.mark.parametrize("scale_gpus", [1.0, 2.0])
def test_a_model_offers_the_load_that_is_asked_for(fitted: WorkloadModel, tmp_path: Path, scale_gpus: float) -> None:
    trace = tracekit.generate(fitted, tmp_path / "t", jobs=40_000, load=0.7, scale_gpus=scale_gpus)
    assert asked(trace) / (40 * scale_gpus) == pytest.approx(0.7, rel=0.05)
    drawn = trace.scan("jobs").select((pl.col("gpu_count") * pl.col("run_s")).mean()).collect().item()
    assert gpu_seconds_of_a_job(fitted) == pytest.approx(drawn, rel=0.03)
    assert trace.manifest.options["load"] == "0.7"


def test_a_resampled_log_offers_it_too(log: Trace, tmp_path: Path) -> None:
    trace = tracekit.generate(log, tmp_path / "t", days=120, load=0.5)
    # Users are left out or doubled for whole days, which makes some 5 % in 120 days.
    assert asked(trace) / 40 == pytest.approx(0.5, rel=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("hybrid", ["arrivals", "jobs"])
def test_hybrids_offer_it_too(log: Trace, fitted: WorkloadModel, tmp_path: Path, hybrid: str) -> None:
    trace = tracekit.generate(log, tmp_path / "t", days=120, load=0.5, hybrid=hybrid, model=fitted)
    assert asked(trace) / 40 == pytest.approx(0.5, rel=0.1)
    assert (trace.manifest.options["hybrid"], trace.manifest.options["load"]) == (hybrid, "0.5")


def test_the_load_of_three_jobs_by_hand() -> None:
    gpus, run_s = pl.Series([2.0, 1.0, None]), pl.Series([100.0, None, 50.0])
    assert gpu_seconds_per_s(gpus, run_s, None, 1) == pytest.approx(200 / 86_400)
    # The second job has two attempts of 30 s and 20 s.
    attempts = pl.Series([1, 2, 0]).to_numpy(), pl.Series([90.0, 30.0, 20.0]).to_numpy()
    assert gpu_seconds_per_s(gpus, run_s, attempts, 2) == pytest.approx((180 + 50) / 172_800)


def test_gpus_are_those_of_machines_or_else_of_quotas() -> None:
    kind = dict.fromkeys(("cluster", "vc", "gpu_model", "gpu_memory_gib", "cpu_count", "memory_gib"))
    nodes: list[dict[str, Any]] = [{**kind, "gpu_count": 8, "nodes": 3}]
    capacity = [{"cluster": None, "vc": "a", "gpu_count": 10.0}]
    assert cluster_gpus({"nodes": nodes, "capacity": capacity}) == 24
    assert cluster_gpus({"nodes": nodes, "capacity": capacity}, 1.4) == 32  # 4.2 machines are 4
    assert cluster_gpus({"nodes": [], "capacity": capacity}) == 10
    assert cluster_gpus({"nodes": [], "capacity": []}) == 0


def test_what_cannot_be_is_said(
    log: Trace, fitted: WorkloadModel, make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    model = WorkloadModel({**fitted.document, "cluster": {**fitted.document["cluster"], "nodes": [], "capacity": []}})
    sources: tuple[tuple[WorkloadModel | Trace, str], ...] = (
        (model, "the model"),
        (make_trace(**workload(200)), "the Trace"),
    )
    for source, what in sources:
        with pytest.raises(UsageError, match=f"{what} does not describe a cluster") as caught:
            tracekit.generate(source, tmp_path / "t", jobs=10, load=0.5)
        assert "or use --scale-load" in str(caught.value)
    with pytest.raises(UsageError, match="--load and --scale-load both set"):
        tracekit.generate(log, tmp_path / "t", jobs=10, load=0.5, scale_load=2.0)
    for wrong in (0.0, -1.0, float("nan"), 2000.0):
        with pytest.raises(UsageError, match="must be above 0 and at most 1,000"):
            tracekit.generate(log, tmp_path / "t", jobs=10, load=wrong)
    assert not (tmp_path / "t").exists()
