"""How Traces, replays, workloads and answers print: a few lines, small tables, and nothing that a name can do there."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tracekit
from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.fit.model import WorkloadModel
from tracekit.manifest import Capability, Check, FileAccount
from tracekit.notebook import Brief
from tracekit.trace import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

SCRIPT = "<script>alert(1)</script>"
ALLOWED = {"table", "caption", "tbody", "tr", "th", "td"}


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self._in: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in {"caption", "th", "td"}:
            self.cells.append("")
            self._in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = None

    def handle_data(self, data: str) -> None:
        if self._in:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    """Return three jobs of two accounts on one node of four GPUs; one of four records was set aside."""
    jobs = [
        {
            "job_id": name,
            "cluster": SCRIPT,
            "vc": "v",
            "account": account,
            "status": "completed",
            "submit_time": f"2020-01-01 0{hour}:00",
            "start_time": f"2020-01-01 0{hour}:00",
            "end_time": f"2020-01-01 0{hour + 1}:00",
            "queue_s": 0.0,
            "run_s": 3600.0,
            "gpu_count": 4.0,
        }
        for hour, (name, account) in enumerate((("a", "x"), ("b", "y"), ("c", "y")))
    ]
    facts = {
        "format": "csv",
        "files": [FileAccount("jobs.csv", records=4, kept=3, rejected=1)],
        "timezone": "Europe/Berlin",
        "checks": {"one": Check(2, 3, "odd"), "none": Check(0, 3, "even"), "other": Check(5, None, "odder")},
        "capabilities": {"placement": Capability(available=False), "retries": Capability(available=False)},
    }
    return make_trace(manifest_overrides=facts, jobs=jobs, nodes=[{"node_id": "n", "cluster": SCRIPT, "gpu_count": 4}])


def test_a_trace_prints_what_its_manifest_says(trace: Trace, golden: Golden) -> None:
    first, *rest = repr(trace).splitlines()
    assert first == f"Trace {trace.path}"
    golden("\n".join(rest))


def test_it_reads_no_table_for_that(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes((trace.path / "manifest.json").read_bytes())
    lines = repr(open_trace(tmp_path, check=False)).splitlines()
    assert lines[1:] == repr(trace).splitlines()[1:]


def test_a_part_and_another_tenant_are_reported_and_a_hostile_name_is_text(trace: Trace, golden: Golden) -> None:
    part = trace.window(cluster=SCRIPT).by("account")
    lines = repr(part).splitlines()
    assert len(lines) < 10
    golden("\n".join(lines[1:]))
    (asked,) = (line.removeprefix("  asked     ") for line in lines if line.startswith("  asked "))
    assert SCRIPT in asked
    shown = _Tags(part._repr_html_())
    assert shown.tags == ALLOWED
    assert asked in shown.cells


def test_every_sample_prints_below_ten_lines(sample_trace: Callable[[str], Trace]) -> None:
    for name in ("philly", "helios"):
        found = sample_trace(name)
        assert len(repr(found).splitlines()) < 10
        assert max(map(len, repr(found).splitlines())) <= 320
        assert _Tags(found._repr_html_()).tags == ALLOWED


def test_open_trace_is_open_under_another_name(trace: Trace, tmp_path: Path) -> None:
    assert tracekit.open_trace(trace.path) == trace
    with pytest.raises(tracekit.TracekitError, match="no such Trace"):
        tracekit.open_trace(tmp_path / "none")


def test_a_replay_prints_its_figures(trace: Trace, golden: Golden) -> None:
    """Each job has the node for an hour, one after the other."""
    found = tracekit.replay(trace, "fifo")
    golden(repr(found))
    assert _Tags(found._repr_html_()).tags == ALLOWED


def test_a_workload_prints_what_was_fitted(golden: Golden) -> None:
    groups = dict.fromkeys(("gpu_class", "status", "cluster", "vc"))
    whole = {"measure": "until_end", **groups, "chosen": "lognorm", "quantiles_s": [[0.25, 60.0], [0.5, 7200.0]]}
    document = {
        "source": {"jobs": 1200, "format": "<i>"},
        "arrivals": {"process": "poisson", "days": 2.25},
        "users": {"tenants": [{}, {}]},
        "run_times": [whole, {**whole, "gpu_class": "1"}],
        "scores": {"best": "resample"},
        "seed": 7,
    }
    found = WorkloadModel(document)
    golden(repr(found))
    assert _Tags(found._repr_html_()).tags == ALLOWED
    assert repr(WorkloadModel({"version": 1})) == "Workload"


def test_an_answer_prints_its_question_and_shows_its_rows(golden: Golden) -> None:
    columns = (AnswerColumn("vc", "text", "tenant"), AnswerColumn("jobs", "jobs", "how many"))
    question = Question(name="a/b", kind="query", title="t", question="How many <b>jobs</b>?", columns=columns)
    found = Answer(question, pl.DataFrame({"vc": [SCRIPT, "v"], "jobs": [1, 2]}), params={"rule": "clean"})
    golden(repr(found))
    shown = _Tags(found._repr_html_())
    assert shown.tags.isdisjoint({"script", "b"})
    assert f'"{SCRIPT}"' in shown.cells


def test_long_and_unprintable_text_is_cut_and_spelled_out() -> None:
    found = Brief.of("t" * 500, [("a", "x\ny\u202e"), ("b", "l" * 5000)])
    assert len(found.title) == 160
    assert found.lines[0] == ("a", "x\\ny\\u202e")
    assert len(found.lines[1][1]) == 300
    assert re.fullmatch(r"t+…\n  a  x\\ny\\u202e\n  b  l+…", str(found))
