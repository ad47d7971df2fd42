"""Fixtures of the log classifier's tests."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs import Classifier, load_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tracekit.characterize.joblogs import LogFinding

_TOOL = Path(__file__).parents[3] / "tools" / "score_classifier.py"


@pytest.fixture(scope="session")
def score_classifier() -> ModuleType:
    """Return tools/score_classifier.py as a module."""
    spec = importlib.util.spec_from_file_location("score_classifier", _TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["score_classifier"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    """Return a classifier with tracekit's own rules."""
    return Classifier(load_rules())


@pytest.fixture
def write_rules(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a rules file."""

    def write(text: str, name: str = "mine.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def classify(write_rules: Callable[[str], Path]) -> Callable[..., LogFinding]:
    """Return a function that classifies a log only by rules given as text."""

    def run(rules: str, log: bytes, chunk: int = 1 << 20) -> LogFinding:
        book = load_rules([write_rules(rules)], built_in=False)
        return Classifier(book).classify(io.BytesIO(log), chunk)

    return run
