"""compare, digest and guidelines with a part that fails: the others are made, and what is written says which failed."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.command import run
from tests.digests.test_pages import jobs_of
from tests.guidelines.planted import Log
from tests.test_analysis_faults import HOLDING, REASON, break_, judge_by
from tracekit.errors import StoreError
from tracekit.guidelines.interface import Finding, Number

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

NAME = "overview/status"
OTHER = "overview/job_size"


@pytest.fixture(autouse=True)
def small_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    log = Log()
    log.nodes("ab", 8)
    for number in range(6):
        log.job(600.0 * number, 3600, gpus=2, queue_s=60, node="ab"[number % 2])
    return make_trace(manifest_overrides={"format": "philly"}, **log.tables)


@pytest.fixture(scope="module")
def history(make_trace: Callable[..., Trace]) -> Trace:
    jobs = [job for week in range(6) for user in ("ann", "bob") for job in jobs_of(user, 5, 7 * week)]
    same = ("job_id", "start_time", "end_time", "run_s", "gpu_count", "status")
    return make_trace(jobs=jobs, attempts=[{"attempt": 0, **{k: job[k] for k in same}} for job in jobs])


def sentence_of(part: str) -> str:
    return f"{part[:1].upper()}{part[1:]} could not be made: {REASON}."


def notes_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "could not be made" in line]


def break_once(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Have the first call of a function raise an error."""
    module, _, name = where.rpartition(".")
    works, calls = getattr(importlib.import_module(module), name), []

    def breaks(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise ZeroDivisionError("by <zero> & more")
        return works(*args, **more)

    monkeypatch.setattr(where, breaks)


def compared(trace: Trace, out: Path, *before: str) -> subprocess.CompletedProcess[str]:
    queries = ("--query", NAME, "--query", OTHER)
    return run(*before, "compare", f"one={trace.path}", f"two={trace.path}", "-o", out, *queries)


BOTH = (NAME, OTHER)
PARTS = [
    ("report.compare.finding", NAME, [f"the sentence of {NAME} for {name}" for name in ("one", "two")]),
    ("report.compare_page.compare_charts", None, [f"the charts of {query}" for query in BOTH]),
    ("report.compare_page._table_view", None, [f"the numbers of {query}" for query in BOTH]),
    ("report.compare.compared", NAME, [f"the answers to {NAME}"]),
    (
        "report.files.write_csv",
        None,
        [*(f"the file tables/{query}.csv" for query in BOTH), "the file published.csv"],
    ),
    (
        "characterize.published.compare_published",
        None,
        [f"the published numbers of {query} for {name}" for query in BOTH for name in ("one", "two")],
    ),
    ("report.compare_page.draw_page", None, ["the page"]),
]


@pytest.mark.parametrize(
    ("where", "only", "parts"),
    [pytest.param(*one, marks=() if "finding" in one[0] else pytest.mark.thorough) for one in PARTS],
    ids=[where for where, _, _ in PARTS],
)
def test_a_part_of_a_comparison_that_fails_is_named(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, only: str | None, parts: list[str]
) -> None:
    break_(monkeypatch, f"tracekit.{where}", only)
    out = tmp_path / "out"
    done = compared(trace, out)
    assert (done.returncode, done.stdout) == (1, f"comparison: {out / 'compare.html'}\n")
    assert notes_of(done) == [f"note: {sentence_of(part)}" for part in parts]
    data = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert data["faults"] == [{"part": part, "reason": REASON} for part in parts]
    page = unescape((out / "compare.html").read_text(encoding="utf-8"))
    assert all(sentence_of(part) in page for part in parts)
    assert page.rstrip().endswith("</html>")
    if parts != ["the page"]:
        number = "1 part" if len(parts) == 1 else f"{len(parts)} parts"
        assert f"{number} of this comparison could not be made" in page
    tables = {path.relative_to(out).as_posix() for path in out.rglob("*.csv")}
    expected = {f"tables/{NAME}.csv", f"tables/{OTHER}.csv", "published.csv"}
    gone = {"report.files.write_csv": expected, "characterize.published.compare_published": {"published.csv"}}
    assert tables == expected - gone.get(where, set())


def test_an_answer_of_one_trace_that_fails_leaves_the_others(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_once(monkeypatch, "tracekit.characterize.answer_query")
    monkeypatch.delenv("TRACEKIT_DEBUG", raising=False)
    done = compared(trace, tmp_path / "out", "--debug")
    assert done.returncode == 1
    assert notes_of(done) == [f"note: {sentence_of(f'the answer of one to {NAME}')}"]
    assert "in breaks" in done.stderr
    data = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    (answer, _) = data["sections"][0]["answers"]
    assert answer["unanswered"] == [{"trace": "one", "reasons": [f"Could not be made: {REASON}."]}]
    assert answer["row_counts"] == {"two": 1}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("tracekit.characterize.changes.compare_periods", "the comparison of two with one"),
        ("tracekit.report.changed.what_differs", "the differences between the traces"),
    ],
)
def test_differences_that_fail_leave_the_answers(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, part: str
) -> None:
    few = [query for query in tracekit.characterize.list_queries() if query.name in {NAME, OTHER}]
    monkeypatch.setattr("tracekit.characterize.list_queries", lambda: few)
    break_(monkeypatch, where)
    done = tracekit.compare([("one", trace), ("two", trace)], tmp_path / "out")
    assert [(fault.part, fault.reason) for fault in done.faults] == [(part, REASON)]
    assert sentence_of(part) in unescape(done.page.read_text(encoding="utf-8"))
    assert set(done.tables) == {NAME, OTHER}


def test_a_store_that_fails_ends_a_comparison(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any, **more: Any) -> Any:
        raise StoreError("cannot be reached")

    monkeypatch.setattr("tracekit.characterize.answer_query", breaks)
    with pytest.raises(StoreError):
        tracekit.compare([("one", trace), ("two", trace)], tmp_path / "out", queries=[NAME])
    assert list(tmp_path.iterdir()) == []


PAGES = ("users/ann", "users/bob", "index")
DIGEST_PARTS = [
    ("make.part_view", None, [f"the page {page}.{ending}" for page in PAGES for ending in ("html", "md")]),
    ("document.changes", None, [f"the changes of {whose}" for whose in ("ann", "bob", "the whole cluster")]),
    ("make.overview_row", "ann", ["the row of ann"]),
    ("make.draw_plain_page", None, [f"the page {page}.html" for page in PAGES]),
]


@pytest.mark.parametrize(("where", "only", "parts"), DIGEST_PARTS, ids=[where for where, _, _ in DIGEST_PARTS])
def test_a_part_of_a_digest_that_fails_is_named(
    history: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, only: str | None, parts: list[str]
) -> None:
    break_(monkeypatch, f"tracekit.digests.{where}", only)
    out = tmp_path / "out"
    done = run("digest", history.path, "-o", out)
    assert (done.returncode, done.stdout) == (1, f"digest of 2026-W14: {out / 'index.html'} (2 users)\n")
    assert notes_of(done) == [f"note: {sentence_of(part)}" for part in parts]
    made = json.loads((out / "digest.json").read_text(encoding="utf-8"))
    assert made["faults"] == [{"part": part, "reason": REASON} for part in parts]
    assert made["everyone"]["figures"]["jobs"] == 10
    files = {path.relative_to(out).as_posix() for path in out.rglob("*.*")}
    assert files >= {"index.html", "index.md", "users/ann.html", "users/ann.md", "users/bob.html", "users/bob.md"}
    for name, text in ((name, unescape((out / name).read_text(encoding="utf-8"))) for name in files):
        if f"the page {name}" in parts:
            assert sentence_of(f"the page {name}") in text.replace("\\", "")
        elif name.startswith("index."):
            assert all(sentence_of(part) in text.replace("\\", "") for part in parts)
        if name == "index.html" and "the page index.html" not in parts:
            number = "1 part" if len(parts) == 1 else f"{len(parts)} parts"
            assert f"{number} of this digest could not be made" in text
        if "changes" in where and name.endswith((".md", ".html")):
            assert f"Could not be made: {REASON}." in text.replace("\\", "")


def test_a_digest_that_hides_names_hides_them_in_what_failed(
    history: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_(monkeypatch, "tracekit.digests.document.changes")
    made = tracekit.digest(history, tmp_path / "out", anonymize=True)
    assert len(made["faults"]) == 3
    for fault in made["faults"]:
        assert fault["reason"].startswith("ZeroDivisionError (")
        assert not {"ann", "bob"} & set(fault["part"].split())


@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_a_guideline_that_cannot_be_written_leaves_the_others(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    judge_by(monkeypatch, HOLDING, replace(HOLDING, id="other", title="Another"))
    where = {"md": "markdown._advice", "json": "document._finding", "html": "page._advice"}[form]
    break_once(monkeypatch, f"tracekit.guidelines.{where}")
    done = run("guidelines", trace.path, "-f", form)
    assert done.returncode == 1
    assert notes_of(done) == [f"note: {sentence_of('the text of the guideline other')}"]
    text = unescape(done.stdout).replace("\\", "")
    assert text.count(f"Could not be made: {REASON}.") == 1
    assert "It is 90.0 %" in text


def test_a_number_that_json_lacks_costs_one_guideline(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Finding({"share": Number(0.9, 40), "wait_s": Number(5, 40)}, rows=({"n": 2**70},), rows_title="Rows")
    judge_by(monkeypatch, HOLDING, replace(HOLDING, id="odd", find=lambda evidence: odd))
    advice = tracekit.guidelines(trace)
    verdicts = {entry["id"]: entry["verdict"] for entry in json.loads(advice.json())["guidelines"]}
    assert verdicts == {HOLDING.id: "holds", "odd": "cannot tell"}
    assert [fault.part for fault in advice.faults.found] == ["the text of the guideline odd"]


def test_without_faults_nothing_is_said_of_them(trace: Trace, history: Trace, tmp_path: Path) -> None:
    assert compared(trace, tmp_path / "compared").returncode == 0
    assert run("digest", history.path, "-o", tmp_path / "digest").returncode == 0
    for path in tmp_path.rglob("*.*"):
        assert "could not be made" not in path.read_text(encoding="utf-8").lower(), path
