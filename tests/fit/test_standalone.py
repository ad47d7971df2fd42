"""The sampler of docs/ reads a model with no tracekit."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import tracekit
from tests.fit.workloads import workload
from tracekit.fit.model import WorkloadModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.trace import Trace

THOROUGH = pytest.mark.thorough
SAMPLER = Path(__file__).parents[2] / "docs" / "sample_workload.py"


@pytest.mark.thorough
def test_the_standalone_sampler_draws_the_models_jobs(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(**workload(800))
    tracekit.fit(trace, replicates=0, scores=0).write(tmp_path / "w.json")
    done = subprocess.run(
        [sys.executable, SAMPLER, tmp_path / "w.json", "1000"], capture_output=True, check=True, cwd=tmp_path
    )
    drawn, known = pl.read_csv(done.stdout), trace.scan("jobs").collect()
    assert drawn.columns == ["submit_s", "gpus", "status", "run_s"]
    assert drawn.height == 1000
    assert (drawn["gpus"] == 8).mean() == pytest.approx((known["gpu_count"] == 8).mean(), abs=0.06)
    assert (drawn["status"] == "failed").mean() == pytest.approx((known["status"] == "failed").mean(), abs=0.06)
    for status in ("failed", "completed"):
        held = known.filter(pl.col("status") == status)["run_s"].to_numpy() - (50 if status == "failed" else 0)
        logs = np.log(drawn.filter(pl.col("status") == status)["run_s"].to_numpy() + 1)
        assert logs.mean() == pytest.approx(np.log(held + 1).mean(), abs=0.25)
    days = (known["submit_time"][-1] - known["submit_time"][0]).total_seconds() / 800
    assert drawn["submit_s"][-1] / 1000 == pytest.approx(days, rel=0.2)


PROCESSES: dict[str, dict[str, float]] = {
    "poisson": {},
    "gamma_renewal": {"a": 0.4, "scale": 2.5, "least": 0.01},
    "mmpp": {"quiet_rate": 0.5, "busy_rate": 5.0, "to_busy": 0.05, "to_quiet": 0.4},
}


@pytest.fixture(scope="module")
def fitted(make_trace: Callable[..., Trace]) -> WorkloadModel:
    """A model of every kind of run time: a family, one with a tail, quantiles, and pools."""
    tables = workload(1500)
    for job in tables["jobs"][:60]:
        job.update(gpu_count=16.0, status="completed")
    model: WorkloadModel = tracekit.fit(make_trace(**tables), replicates=0, scores=0)
    tailed = model.run_time(gpu_class="1", status="completed")
    counted = model.run_time(gpu_class="1", status="failed")
    assert tailed is not None
    assert counted is not None
    parameters = {"b": 0.6, "c": 100.0, "scale": 3000.0}
    truncated: dict[str, Any] = {
        "scipy": "truncpareto",
        "parameters": parameters,
        "standard_errors": None,
        "ends_above": 90,
    }
    truncated |= {"xmin_s": 3000.0, "share_above": 0.1, "bound_s": 300_000.0}
    tailed["tail"]["truncated"] = truncated | {"log_likelihood_gain": 20.0, "needed_gain": 7.0}
    tailed["drawn_from"] = "family+tail"
    model.document["source"]["longest_s"] = 300_000.0
    counted["drawn_from"] = "quantiles"
    return model


def distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return the two-sample Kolmogorov-Smirnov statistic."""
    return float(stats.ks_2samp(one, two).statistic)


@pytest.mark.thorough
@pytest.mark.parametrize("process", ["mmpp", *(pytest.param(p, marks=THOROUGH) for p in ("poisson", "gamma_renewal"))])
def test_it_draws_what_generate_draws(fitted: WorkloadModel, tmp_path: Path, process: str) -> None:
    """Two-sample distances of 20,000 jobs each; equal distributions are 0.016 apart once in 100 times."""
    candidate = {"process": process, "parameters": PROCESSES[process], "log_likelihood": 0.0, "aic": 0.0, "bic": 0.0}
    document = fitted.document | {"arrivals": fitted.document["arrivals"] | {"process": process}}
    document["arrivals"]["candidates"] = [candidate]
    document["arrivals"]["timezone"] = "America/New_York"
    model = WorkloadModel.checked(document)
    model.write(tmp_path / "w.json")
    command: list[str | Path] = [sys.executable, SAMPLER, tmp_path / "w.json", "20000", "1"]
    own = pl.read_csv(subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout)
    made = tracekit.generate(model, tmp_path / "t", jobs=20_000).scan("jobs").collect()
    seconds = made["submit_time"].dt.epoch("s")
    assert own["submit_s"][-1] == pytest.approx(seconds[-1] - document["arrivals"]["start"], rel=0.06)
    gaps = [np.diff(np.unique(times.to_numpy())).astype(float) for times in (own["submit_s"], seconds)]
    assert distance(*gaps) < 0.025
    assert gaps[0].std() / gaps[0].mean() == pytest.approx(gaps[1].std() / gaps[1].mean(), rel=0.06)
    for gpus in (1, 8, 16):
        assert (own["gpus"] == gpus).mean() == pytest.approx((made["gpu_count"] == gpus).mean(), abs=0.015)
    for gpus, status in ((1, "completed"), (1, "failed"), (8, "completed"), (16, "completed")):
        one = own.filter(gpus=gpus, status=status)["run_s"].drop_nulls().to_numpy()
        two = made.filter(gpu_count=gpus, status=status)["run_s"].drop_nulls().to_numpy()
        # Run times of a user's successive jobs hang together in `generate`.
        assert distance(one, two) < 0.02 + 1.63 * (1 / one.size + 1 / two.size) ** 0.5
        assert one.size == pytest.approx(two.size, rel=0.15)


def test_it_is_short_and_imports_no_tracekit() -> None:
    text = SAMPLER.read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 110
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    standard = {"__future__", "csv", "datetime", "json", "sys", "zoneinfo", "pathlib"}
    assert imported - standard == {"numpy", "scipy"}
