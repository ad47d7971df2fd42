"""The page on the classifier."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.characterize.joblogs import load_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType


def test_the_table_of_reasons_is_that_of_the_rules(score_classifier: ModuleType) -> None:
    page = score_classifier.PAGE.read_text(encoding="utf-8")
    assert page == score_classifier.page_with_table(page), "run: python tools/score_classifier.py --docs"


def test_the_rules_shown_as_example_can_be_used(score_classifier: ModuleType, write_rules: Callable[..., Path]) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", score_classifier.PAGE.read_text(encoding="utf-8"), re.DOTALL)
    book = load_rules([write_rules(example)])
    assert [rule.reason.name for rule in book.rules[:2]] == ["feature_store_down", "cpu_out_of_memory"]
    assert book.rules[1].reason.title == next(r.title for r in load_rules().reasons if r.name == "cpu_out_of_memory")
