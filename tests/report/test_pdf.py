"""The page on paper, printed by a browser."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tracekit.analysis import analyze
from tracekit.errors import OutputError, TracekitError, UsageError
from tracekit.report.pdf import BROWSERS, find_browser, print_pdf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.analysis import Analysis
    from tracekit.trace import Trace


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_browser_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _program(tmp_path / "mine", "exit 0")
    monkeypatch.setenv("TRACEKIT_BROWSER", str(mine))
    assert find_browser() == mine


@pytest.mark.parametrize(("named", "what"), [("nowhere", "'nowhere' was not found"), ("", "no Chromium or Chrome")])
def test_without_a_browser_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, what: str
) -> None:
    monkeypatch.setenv("TRACEKIT_BROWSER", named)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=what):
        analyze(tmp_path / "logs", tmp_path / "out", pdf=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", ["echo no display >&2; exit 1", "echo no display >&2; exit 0"])
def test_a_browser_that_fails_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("TRACEKIT_BROWSER", str(_program(tmp_path / "bad", script)))
    page = tmp_path / "report.html"
    page.write_text("<p>hello")
    with pytest.raises(TracekitError, match="bad could not print: no display"):
        print_pdf(page, tmp_path / "report.pdf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "report.html"]


def test_the_page_is_printed_without_links_to_files_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "<script>var link = '<a href=\"tables/x.csv\">';</script>"
    links = (
        '<a class="file" href="tables/x.csv" download>x</a> <a href=\'report.md\'>y</a> <a\nhref="../z">z</a>'
        '<a href="#top">top</a> <a href="https://example.org/a">source</a>'
    )
    page = tmp_path / "report.html"
    page.write_text(f"{script}<p>{links}</p>{script}")
    copy = "for word; do case $word in --print-to-pdf=*) to=${word#*=};; file://*) from=${word#file://};; esac; done"
    monkeypatch.setenv("TRACEKIT_BROWSER", str(_program(tmp_path / "copier", f'{copy}; cp "$from" "$to"')))
    print_pdf(page, tmp_path / "report.pdf")
    left = (
        '<a class="file" download>x</a> <a>y</a> <a>z</a>'
        '<a href="#top">top</a> <a href="https://example.org/a">source</a>'
    )
    assert (tmp_path / "report.pdf").read_text() == f"{script}<p>{left}</p>{script}"


def test_a_browser_without_room_on_the_disk_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    line = "[1:2:1127/11.2:ERROR:components/x.cc:266] Failed to write file x.pdf: No space left on device (28)"
    monkeypatch.setenv("TRACEKIT_BROWSER", str(_program(tmp_path / "full", f"echo '{line}' >&2")))
    folder = tmp_path / ".monday.partial-1"
    folder.mkdir()
    (folder / "report.html").write_text("<p>hello")
    with pytest.raises(OutputError) as caught:
        print_pdf(folder / "report.html", folder / "report.pdf")
    assert caught.value.where == str(tmp_path / "monday" / "report.pdf")
    golden(f"{caught.value.what}; {caught.value.hint}")


@pytest.fixture
def chromium() -> None:
    if not any(map(shutil.which, BROWSERS)):
        if os.environ.get("TRACEKIT_REQUIRE_BROWSER") == "1":
            pytest.fail("no Chromium to print with")
        pytest.skip("no Chromium to print with: install chromium or google-chrome")


def _sheets(pdf: Path) -> int:
    body = pdf.read_bytes()
    assert body.startswith(b"%PDF-")
    return body.count(b"/Type /Page\n") + body.count(b"/Type /Page ")


@pytest.mark.thorough
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_the_page_becomes_a_pdf_of_several_sheets(analysis: Analysis, tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    print_pdf(analysis.report, target)
    assert _sheets(target) > 5
    assert b"file://" not in target.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.pdf"]


@pytest.mark.thorough
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_the_report_of_a_whole_trace_is_one_that_people_print(
    sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    done = analyze(sample_trace("philly").path, tmp_path / "out", pdf=True, fit=False)
    answers = done.report.read_text(encoding="utf-8").count("<article")
    assert answers > 30
    assert 15 < _sheets(done.folder / "report.pdf") <= 38
