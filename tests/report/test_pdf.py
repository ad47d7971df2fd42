"""The page on paper, printed by a browser."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tracekit.analysis import analyze
from tracekit.errors import TracekitError, UsageError
from tracekit.report.pdf import BROWSERS, find_browser, print_pdf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.analysis import Analysis


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_browser_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _program(tmp_path / "mine", "exit 0")
    monkeypatch.setenv("TRACEKIT_BROWSER", str(mine))
    assert find_browser() == mine


@pytest.mark.parametrize(("named", "what"), [("nowhere", "there is no 'nowhere'"), ("", "no Chromium or Chrome")])
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
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.pdf"]


@pytest.mark.thorough
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_the_report_of_a_whole_trace_is_one_that_people_print(
    sample_source: Callable[[str], Path], tmp_path: Path
) -> None:
    done = analyze(sample_source("philly"), tmp_path / "out", pdf=True)
    answers = done.report.read_text(encoding="utf-8").count("<article")
    assert answers > 30
    assert 15 < _sheets(done.folder / "report.pdf") <= 38
