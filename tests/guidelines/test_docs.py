"""The page on guidelines names every guideline with its thresholds, and its example works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.guidelines.planted import DAY, Log
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import GUIDELINES
from tracekit.guidelines.run import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

PAGE = (Path(__file__).parents[2] / "docs" / "guidelines.md").read_text(encoding="utf-8")


def test_every_guideline_has_a_row() -> None:
    section = PAGE.partition("## The guidelines\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)
    assert rows == sorted(name for name, g in GUIDELINES.all().items() if g.find.__module__.startswith("tracekit."))


def test_the_guideline_of_ones_own_judges(make_trace: MakeTrace) -> None:
    code = re.search(r"<!-- test: my_guideline.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    made: dict[str, Any] = {}
    exec(code[1], made)
    log = Log()
    for day in range(10):
        for k in range(4):
            log.job(day * DAY + k, 60, status="failed" if k == 0 else "completed")
    found = judge(made["GUIDELINE"], Evidence(make_trace(**log.tables)))
    assert found.verdict == "holds"
    assert found.finding is not None
    assert found.finding.numbers["failed_share"].value == 0.25
    assert found.finding.rows[0]["failed_jobs"] == 10
