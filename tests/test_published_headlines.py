"""The scenarios beside published headlines can be run, and the page's directions follow from the figures."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tracekit.replay.registry import named_policy

ROOT = Path(__file__).parents[1]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("tools.published_headlines")


def test_every_scenario_names_policies_and_samples_that_exist(module: Any) -> None:
    found = module.headlines()
    assert len(found) > 25
    for one in found:
        assert (ROOT / "sample_traces" / one.trace).is_dir(), one.system
        for text in (one.policy, *one.against):
            assert named_policy(text).card.name == text.partition(",")[0]


def test_the_page_has_a_row_for_each_of_them(module: Any) -> None:
    page = module.PAGE.read_text(encoding="utf-8")
    for one in module.headlines():
        assert f"| {one.system}: `{one.policy}` |" in page


@pytest.mark.parametrize(
    ("better", "figure", "baselines", "told"),
    [
        ("lower", 1.0, {"a": 2.0, "b": 3.0}, "holds"),
        ("higher", 1.0, {"a": 2.0, "b": 3.0}, "reversed"),
        ("lower", 1.0, {"a": 2.0, "b": 0.5}, "holds against `a`"),
        ("lower", 1.0, {"a": 1.0}, "equal"),
        ("lower", 1.0, {"a": None}, "no baseline runs"),
        ("lower", None, {"a": 1.0}, "cannot run"),
    ],
)
def test_a_direction_follows_from_the_figures(
    module: Any, better: str, figure: float | None, baselines: dict[str, float | None], told: str
) -> None:
    one = replace(module.headlines()[0], better=better)
    assert module.verdict(module.Seen(one, figure, baselines)) == told


def test_a_scenario_is_replayed(module: Any, tmp_path: Path) -> None:
    one = module.Headline("a", "sjf", "p", "s", ("fifo",), "philly", "avg_jct_s", "lower", "w", load=8.0)
    (seen,) = module.replayed([one], tmp_path)
    assert 0 < seen.figure < seen.baselines["fifo"]
    assert module.verdict(seen) == "holds"
