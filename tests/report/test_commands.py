"""The commands that a report states, run in its folder, give what it shows."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.command import run
from tracekit.analysis import Analysis, analyze

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def analysis(sample_source: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analyze(sample_source("slurm"), tmp_path_factory.mktemp("again") / "out", by="account")


@pytest.fixture(scope="module")
def answers(analysis: Analysis) -> dict[str, dict[str, Any]]:
    report = json.loads(analysis.data.read_text())
    return {a["name"]: a for s in report["sections"] for a in s["answers"]}


def _again(analysis: Analysis, commands: list[str]) -> None:
    for line in commands:
        program, *words = shlex.split(line)
        assert program == "tracekit"
        done = run(*words, cwd=analysis.folder)
        assert done.returncode == 0, done.stderr


def test_each_answer_has_a_command(answers: dict[str, dict[str, Any]]) -> None:
    assert {name for name, one in answers.items() if not one["commands"]} == set()
    assert {one["kind"] for one in answers.values()} == {"query", "replay", "fit"}


def test_queries(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    asked = [one for one in answers.values() if one["kind"] == "query"]
    assert len(asked) > 30
    for one in asked:
        (line,) = one["commands"]
        _again(analysis, [f"{line} -f parquet -o asked.parquet --force"])
        again, shown = (pl.read_parquet(p) for p in (analysis.folder / "asked.parquet", analysis.results[one["name"]]))
        # A question that has no tenants to choose is asked by the unit that was ingested, empty in this log.
        assert_frame_equal(
            again.rename({"vc": "account"}, strict=False),
            shown.select(again.rename({"vc": "account"}, strict=False).columns),
        )


def test_replays(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["replay/policies"]["commands"])
    again = pl.read_parquet(analysis.folder / "replayed" / "comparison.parquet")
    shown = pl.read_parquet(analysis.results["replay/policies"])
    both = ["policy", *(name for name in shown.columns if name in again.columns and shown[name].dtype.is_numeric())]
    assert {"avg_jct_s", "avg_queue_s", "policy_queue_s", "recorded_queue_s", "jobs"} <= set(both)
    assert_frame_equal(again.select(both), shown.select(both), check_dtypes=False)
    effects = {row["policy"]: row["expected_queue_s"] for row in answers["replay/effects"]["rows"]}
    assert answers["replay/effects"]["commands"] == answers["replay/policies"]["commands"]
    assert len(effects) > 10


def test_plan(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["plan/nodes"]["commands"])
    again = json.loads((analysis.folder / "plan" / "plan.json").read_text())
    *drawn, recorded = answers["plan/nodes"]["rows"]
    assert len(drawn) > 5
    assert [{name: row[name] for name in row if name != "cluster"} for row in drawn] == [
        {name: row[name] for name in drawn[0] if name != "cluster"} for row in again["capacity"]
    ]
    assert again["recorded"]["mean_wait_s"] == recorded["mean_wait_s"]


def test_fit(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["fit/run_time"]["commands"])
    again, shown = (json.loads((analysis.folder / name).read_text()) for name in ("fitted.json", "workload.json"))
    assert again == shown
