"""The commands that a report states, run in its folder, give what it shows."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.command import run
from tests.report.asking import asking
from tracekit.analysis import analyze

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.analysis import Analysis
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def analysis(analyzed: Callable[[str], Analysis]) -> Analysis:
    """Return an analysis with replays, a plan and a fit."""
    return analyzed("slurm")


@pytest.fixture
def place(analysis: Analysis, tmp_path: Path) -> Path:
    """Return a copy of the folder of the analysis, in which commands write."""
    return shutil.copytree(analysis.folder, tmp_path / "out")


@pytest.fixture(scope="module")
def answers(analysis: Analysis) -> dict[str, dict[str, Any]]:
    report = json.loads(analysis.data.read_text())
    return {a["name"]: a for s in report["sections"] for a in s["answers"]}


def _again(place: Path, commands: list[str]) -> None:
    for line in commands:
        program, *words = shlex.split(line)
        assert program == "tracekit"
        done = run(*words, cwd=place)
        assert done.returncode == 0, done.stderr


def test_each_answer_has_a_command(answers: dict[str, dict[str, Any]]) -> None:
    assert {name for name, one in answers.items() if not one["commands"]} == set()
    assert {one["kind"] for one in answers.values()} == {"query", "replay", "fit"}


# One without tenants, one with them, one by a dimension of its own.
_FEW = ("overview/status", "queuing/queue_delay", "utilization/efficiency")


@pytest.mark.parametrize("asked", ["few", pytest.param("all", marks=pytest.mark.thorough)])
def test_queries(asked: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    with asking(*_FEW) if asked == "few" else contextlib.nullcontext():
        done = analyze(sample_trace("slurm").path, tmp_path / "out", by="account", fit=False, replay_jobs=0)
    report = json.loads(done.data.read_text())
    found = [a for s in report["sections"] for a in s["answers"] if a["kind"] == "query"]
    assert len(found) == len(_FEW) if asked == "few" else len(found) > 30
    for one in found:
        (line,) = one["commands"]
        _again(done.folder, [f"{line} -f parquet -o asked.parquet --force"])
        again, shown = (pl.read_parquet(p) for p in (done.folder / "asked.parquet", done.results[one["name"]]))
        # A question that has no tenants to choose is asked by the unit that was ingested, empty in this log.
        assert_frame_equal(
            again.rename({"vc": "account"}, strict=False),
            shown.select(again.rename({"vc": "account"}, strict=False).columns),
        )


def test_replays(analysis: Analysis, answers: dict[str, dict[str, Any]], place: Path) -> None:
    _again(place, answers["replay/policies"]["commands"])
    again = pl.read_parquet(place / "replayed" / "comparison.parquet")
    shown = pl.read_parquet(analysis.results["replay/policies"])
    both = ["policy", *(name for name in shown.columns if name in again.columns and shown[name].dtype.is_numeric())]
    assert {"avg_jct_s", "avg_queue_s", "policy_queue_s", "recorded_queue_s", "jobs"} <= set(both)
    assert_frame_equal(again.select(both), shown.select(both), check_dtypes=False)
    effects = {row["policy"]: row["expected_queue_s"] for row in answers["replay/effects"]["rows"]}
    assert answers["replay/effects"]["commands"] == answers["replay/policies"]["commands"]
    assert len(effects) > 10


@pytest.mark.thorough
def test_plan(answers: dict[str, dict[str, Any]], place: Path) -> None:
    _again(place, answers["plan/nodes"]["commands"])
    again = json.loads((place / "plan" / "plan.json").read_text())
    *drawn, recorded = answers["plan/nodes"]["rows"]
    assert len(drawn) > 5
    assert [{name: row[name] for name in row if name != "cluster"} for row in drawn] == [
        {name: row[name] for name in drawn[0] if name != "cluster"} for row in again["capacity"]
    ]
    assert again["recorded"]["mean_wait_s"] == recorded["mean_wait_s"]


def test_fit(answers: dict[str, dict[str, Any]], place: Path) -> None:
    _again(place, answers["fit/run_time"]["commands"])
    again, shown = (json.loads((place / name).read_text()) for name in ("fitted.json", "workload.json"))
    assert again == shown
