"""A page calls the tenant by the site's word, and can be narrowed to each of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.asking import asking
from tracekit.analysis import Analysis, analyze

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

_VC = re.compile(r"\b(VCs?|[Vv]irtual clusters?)\b")


_FEW = ("overview/status", "overview/parts", "overview/through_time", "queuing/queue_delay", "utilization/vc")


@pytest.fixture(scope="module", params=["few", pytest.param("all", marks=pytest.mark.thorough)])
def by_partition(
    request: pytest.FixtureRequest, sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory
) -> Analysis:
    """Return an analysis by partition, of a few questions or of all, replays included."""
    trace, out = sample_trace("slurm").path, tmp_path_factory.mktemp("by") / "out"
    if request.param == "all":
        return analyze(trace, out, by="partition", fit=False)
    with asking(*_FEW):
        return analyze(trace, out, by="partition", fit=False, replay_jobs=0)


def _texts(page: str) -> str:
    """Return a page without what draws it; the data of charts stay."""
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_a_page_by_partition_speaks_of_partitions_alone(by_partition: Analysis) -> None:
    page = _texts(by_partition.report.read_text(encoding="utf-8"))
    assert _VC.findall(page) == []
    assert "each partition" in page
    for name in ("report.md", "guidelines.md", "report.json"):
        assert _VC.findall((by_partition.folder / name).read_text(encoding="utf-8")) == [], name


def test_its_filter_chooses_a_partition(by_partition: Analysis) -> None:
    page = by_partition.report.read_text(encoding="utf-8")
    label = re.search(r"<label>(\w+) <select data-filter=\"vc\".*?</label>", page, flags=re.DOTALL)
    assert label is not None
    assert label[1] == "Partition"
    assert sorted(re.findall(r"<option value=\"\d+\">(\w+)</option>", label[0])) == ["a100", "cpu", "h100"]


def test_its_results_name_the_column(by_partition: Analysis) -> None:
    report: dict[str, Any] = json.loads(by_partition.data.read_text(encoding="utf-8"))
    assert report["tenant"]["queries"]["column"] == "partition"
    assert report["tenant"]["replays"] == {"column": "vc", "one": "account", "many": "accounts", "full": ""}
    answers = {a["name"]: a for s in report["sections"] for a in s["answers"]}
    waits = answers["queuing/queue_delay"]
    assert next(c["name"] for c in waits["columns"]) == "partition"
    assert {r["partition"] for r in waits["rows"]} == {"a100", "cpu", "h100"}
    assert "--by partition" in report["command"]
    head = (by_partition.folder / "tables" / "queuing" / "queue_delay.csv").read_text(encoding="utf-8")
    assert head.startswith("partition,")


def test_a_slurm_page_says_account_without_being_told(analyzed: Callable[[str], Analysis]) -> None:
    page = _texts(analyzed("slurm").report.read_text(encoding="utf-8"))
    assert _VC.findall(page) == []
    assert "account" in page
