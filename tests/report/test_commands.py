"""The commands that a report states, run in its folder, give what it shows."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from command import run
from polars.testing import assert_frame_equal

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
        _again(analysis, [f"{line} -f parquet -o asked.parquet"])
        again, shown = pl.read_parquet(analysis.folder / "asked.parquet"), pl.read_parquet(analysis.results[one["name"]])
        assert_frame_equal(again, shown.select(again.columns))


def test_replays(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["replay/policies"]["commands"])
    again = pl.read_parquet(analysis.folder / "replayed" / "comparison.parquet")
    shown = pl.read_parquet(analysis.results["replay/policies"])
    print(again, shown)


def test_plan(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["plan/nodes"]["commands"])
    again = json.loads((analysis.folder / "plan" / "plan.json").read_text())
    print(again.keys(), answers["plan/nodes"]["rows"])


def test_fit(analysis: Analysis, answers: dict[str, dict[str, Any]]) -> None:
    _again(analysis, answers["fit/run_time"]["commands"])
    again, shown = (json.loads((analysis.folder / name).read_text()) for name in ("fitted.json", "workload.json"))
    print(set(again) ^ set(shown))
