"""`tracekit fidelity`: predicted against recorded queueing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from scipy import stats

from tests.command import run
from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.fidelity import measure_fidelity, nearest_policy
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.trace import Trace


ROOT = Path(__file__).parents[2]


def scenario(recorded_start_ms: Sequence[int]) -> Scenario:
    """Return jobs of a whole node each: first in, first out they wait 0, 90, 180 and 10 s."""
    jobs = make_jobs(
        [(0, 8, 100), (10, 8, 100), (20, 8, 10), (200, 1, 5)],
        vc=["a", "a", "b", "b"],
        recorded_start_ms=recorded_start_ms,
        recorded_end_ms=[10**6] * 4,
    )
    return Scenario.make(jobs, make_cluster((8,)))


def test_errors_by_hand() -> None:
    found = measure_fidelity(scenario([0, 50_000, 220_000, 200_000]), "fifo")
    rows = {(r["scope"], r["name"]): r for r in found.groups.to_dicts()}
    # Recorded 0, 40, 200, 0 s; predicted 0, 90, 180, 10 s.
    whole = rows["all", "all"]
    assert whole["jobs"] == 4
    assert (whole["recorded_mean_s"], whole["predicted_mean_s"]) == (60, 70)
    assert (whole["recorded_median_s"], whole["predicted_median_s"]) == (20, 50)
    assert (whole["mean_error_s"], whole["mean_abs_error_s"], whole["median_abs_error_s"]) == (10, 20, 15)
    assert whole["rank_correlation"] == pytest.approx(stats.spearmanr([0, 40, 200, 0], [0, 90, 180, 10]).statistic)
    # Up to 0 s it is 2 of 4 against 1 of 4; up to 89 s 3 against 2.
    assert whole["ks_distance"] == 0.25
    assert rows["vc", "a"]["mean_error_s"] == 25
    assert rows["vc", "b"]["mean_error_s"] == -5
    assert rows["gpu_class", "1"]["rank_correlation"] is None
    half = found.quantiles.filter(pl.col("scope") == "all", pl.col("quantile") == 0.5)
    assert half.select("recorded_s", "predicted_s").row(0) == (20, 50)
    assert found.verdict == "rough"


def test_a_perfect_prediction_is_close_and_a_wrong_one_poor() -> None:
    assert measure_fidelity(scenario([0, 100_000, 200_000, 210_000]), "fifo").verdict == "close"
    poor = measure_fidelity(scenario([5_000_000] * 4), "fifo")
    assert poor.verdict == "poor"
    assert "not as a forecast" in poor.sentences[2]


def test_jobs_without_a_recorded_start_are_counted() -> None:
    found = measure_fidelity(scenario([0, -1, 200_000, 210_000]), "fifo")
    assert found.groups["jobs"][0] == 3
    assert found.sentences[-1] == "not compared: 1 job without a recorded or a predicted start"
    with pytest.raises(UsageError, match="no job has a recorded start to compare with"):
        measure_fidelity(scenario([-1] * 4), "fifo")


def test_the_policy_follows_the_source() -> None:
    assert nearest_policy("helios")[0] == "fifo,scan=stop"
    assert nearest_policy("alibaba-pai")[0] == "fifo,scan=skip"
    assert nearest_policy("philly")[0] in ("philly", "fifo,scan=skip")


def test_the_command_writes_and_tells(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    trace = sample_trace("helios").path
    out = tmp_path / "out"
    result = run("fidelity", trace, "--cluster-name", "Venus", "-o", out)
    assert result.returncode == 0, result.stderr
    assert "replayed fifo: Helios ran first in, first out in each VC" in result.stdout
    assert {p.name for p in out.iterdir()} == {
        "fidelity.json", "fidelity.parquet", "fifo", "quantiles.parquet", "quantiles.svg",
    }  # fmt: skip
    facts = json.loads((out / "fidelity.json").read_text())
    assert facts["groups"] == pl.read_parquet(out / "fidelity.parquet").to_dicts()
    assert facts["verdict"] in ("close", "rough", "poor")
    assert (out / "quantiles.svg").read_text().startswith("<svg")
    wrong = run("fidelity", trace, "--cluster-name", "Venus", "-p", "fifoo", "-o", tmp_path / "x")
    assert wrong.returncode == 2
    assert "did you mean 'fifo'?" in wrong.stderr
    assert not (tmp_path / "x").exists()
