"""The sampler of docs/ reads a model with no tracekit."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import tracekit
from tests.fit.workloads import workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

SAMPLER = Path(__file__).parents[2] / "docs" / "sample_workload.py"


def test_the_standalone_sampler_draws_the_models_jobs(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(**workload(1500))
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
    days = (known["submit_time"][-1] - known["submit_time"][0]).total_seconds() / 1500
    assert drawn["submit_s"][-1] / 1000 == pytest.approx(days, rel=0.2)


def test_it_is_short_and_imports_no_tracekit() -> None:
    text = SAMPLER.read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 45
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported == {"__future__", "csv", "json", "sys", "pathlib", "numpy", "scipy"}
