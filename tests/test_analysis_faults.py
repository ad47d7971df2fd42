"""An analysis of which one part fails: all others are made, and everything that is written says which part failed."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import tracekit
from tests.command import run
from tests.guidelines.planted import Log
from tests.guidelines.test_judging import PLAIN
from tracekit.analysis import analyze, analyze_many
from tracekit.characterize import list_queries
from tracekit.errors import OutputError, UsageError
from tracekit.guidelines.interface import Finding, Number, Trial
from tracekit.resources import folder
from tracekit.serve.trace import ServedTrace
from tracekit.trace import Trace

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

NAME = "overview/status"
REASON = "ZeroDivisionError: by <zero> & more"
BRIEF = ("--no-fit", "--replay-jobs", "0")
HOLDING = replace(PLAIN, find=lambda evidence: Finding({"share": Number(0.9, 40), "wait_s": Number(5, 40)}))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask few questions and judge by one guideline, which holds."""
    few = [q for q in list_queries() if q.name.startswith(("overview/", "queuing/cluster_timeline"))]
    monkeypatch.setattr("tracekit.characterize.list_queries", lambda: few)
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")
    judge_by(monkeypatch, HOLDING)


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    log = Log()
    log.nodes("ab", 8)
    for number in range(6):
        log.job(
            600.0 * number, 3600, gpus=2, queue_s=60, node="ab"[number % 2], status="failed" if number else "completed"
        )
    return make_trace(**log.tables)


def judge_by(monkeypatch: pytest.MonkeyPatch, *guidelines: Any) -> None:
    monkeypatch.setattr("tracekit.guidelines.run.all_guidelines", lambda: {one.id: one for one in guidelines})


def break_(monkeypatch: pytest.MonkeyPatch, where: str, only: str | None = None) -> None:
    """Have a function raise an error; with `only`, where that stands in one of its first arguments."""
    module, _, name = where.rpartition(".")
    works = getattr(importlib.import_module(module), name)

    def breaks(*args: Any, **more: Any) -> Any:
        if only is None or any(
            only in str(getattr(a, "name", a["name"] if isinstance(a, dict) and "name" in a else a)) for a in args[:3]
        ):
            raise ZeroDivisionError("by <zero> & more")
        return works(*args, **more)

    monkeypatch.setattr(where, breaks)


def asked(trace: Trace, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("analyze", trace.path, "-o", out, *BRIEF, *more)


PARTS = [
    ("tracekit.guidelines.evidence.answer_query", NAME, f"the answer to {NAME}"),
    ("tracekit.report.data.answer_info", NAME, f"the answer to {NAME}"),
    ("tracekit.report.answers.finding", NAME, f"the sentence of {NAME}"),
    ("tracekit.report.page.panels", NAME, f"the charts of {NAME}"),
    ("tracekit.report.page.table_view", NAME, f"the numbers of {NAME}"),
    ("tracekit.report.markdown._answer", NAME, f"the text of {NAME}"),
    ("tracekit.report.table_files.write_tables", NAME, f"the files of {NAME}"),
    ("tracekit.report.page.strip", None, "the strip through time"),
    ("tracekit.report.data.summary", None, "the first screen"),
    ("tracekit.report.data.headline", None, "the first numbers"),
    ("tracekit.characterize.capacity", None, "the number of GPUs"),
    ("tracekit.report.page.guidelines_view", None, "the guidelines"),
    ("tracekit.guidelines.run.judge_all", None, "the guidelines"),
    ("tracekit.guidelines.document._finding", None, "the text of the guideline plain"),
    ("tracekit.guidelines.markdown.effect_text", None, "the text of the guideline plain"),
    ("tracekit.report.guidelines.expected_text", None, "the text of the guideline plain"),
    ("tracekit.guidelines.markdown.markdown", None, "the file guidelines.md"),
    ("tracekit.report.write.markdown", None, "the file report.md"),
    ("tracekit.report.page._report_page", None, "the page"),
]


@pytest.mark.parametrize(
    ("where", "only", "part"), PARTS, ids=[where.removeprefix("tracekit.") for where, _, _ in PARTS]
)
def test_a_part_that_fails_is_named_and_all_others_are_made(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, only: str | None, part: str
) -> None:
    break_(monkeypatch, where, only)
    out = tmp_path / "out"
    done = asked(trace, out)
    sentence = f"{part[:1].upper()}{part[1:]} could not be made: {REASON}."
    assert done.returncode == 1
    assert done.stdout == f"report: {out / 'report.html'}\n"
    assert [line for line in done.stderr.splitlines() if "could not be made" in line] == [f"note: {sentence}"]
    data = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert data["faults"] == [{"part": part, "reason": REASON}]
    schema = json.loads((folder("schemas") / "report-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    page = unescape((out / "report.html").read_text(encoding="utf-8"))
    text = (out / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert sentence in page
    assert "could not be made: ZeroDivisionError: by <zero> & more." in text
    if part != "the page":
        assert f"1 part of this report could not be made: {part}." in page
        assert page.rstrip().endswith("</html>")
    assert Trace.open(out / "trace").validate() == []
    tables = {path.relative_to(out).as_posix() for path in (out / "tables").rglob("*.csv")}
    assert "tables/overview/job_size.csv" in tables
    assert (f"tables/{NAME}.csv" in tables) == (
        only is None or "page" in where or "report" in where and "files" not in where
    )
    assert (out / "guidelines.md").is_file() == (where != "tracekit.guidelines.run.judge_all")


def test_a_run_without_faults_ends_with_0_and_says_nothing_of_them(trace: Trace, tmp_path: Path) -> None:
    done = asked(trace, tmp_path / "out")
    assert done.returncode == 0
    for name in ("report.html", "report.md", "guidelines.md"):
        assert "could not be made" not in (tmp_path / "out" / name).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["faults"] == []
