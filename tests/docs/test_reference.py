"""The reference pages say what the package says today, and name everything that it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import DOCS
from tools import reference
from tools.manual.commands import commands
from tools.manual.markdown import bullets, code, plain, table
from tracekit.characterize import list_queries
from tracekit.characterize.session import list_views
from tracekit.characterize.timeline import all_timelines
from tracekit.datasets import all_datasets
from tracekit.export.interface import TARGETS
from tracekit.guidelines.interface import GUIDELINES
from tracekit.ingest import all_formats
from tracekit.replay.registry import policies

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", reference.PAGES)
def test_it_is_up_to_date(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == reference.PAGES[page](), "run: python tools/reference.py"


def test_a_page_that_lacks_or_is_old_is_named(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    for name, make in reference.PAGES.items():
        (tmp_path / name).write_text(make(), encoding="utf-8")
    assert reference.stale(tmp_path) == []
    (tmp_path / "columns.md").unlink()
    (tmp_path / "reference" / "queries.md").write_text("# Queries\n", encoding="utf-8")
    assert reference.stale(tmp_path) == ["columns.md", "reference/queries.md"]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("commands", [name for name, _ in commands()]),
        ("datasets", list(all_datasets())),
        ("exports", list(TARGETS.all())),
        ("formats", list(all_formats())),
        ("guidelines", list(GUIDELINES.all())),
        ("policies", list(policies())),
        ("queries", [q.name for q in list_queries()] + [v.name for v in list_views()] + list(all_timelines())),
    ],
)
def test_everything_has_a_heading(page: str, names: list[str]) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^###? (.+)$", text, re.MULTILINE)
    assert len(names) >= 7
    assert set(names) <= set(headings), "write the pages again: 'just docs'"


def test_the_options_of_a_command_are_those_of_its_help() -> None:
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    section = text.partition("## tracekit datasets fetch\n")[2].partition("\n## ")[0]
    assert "tracekit datasets fetch NAME -o DIR [OPTIONS]" in section
    options = re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE)
    assert options == ["`-o`, `--output`", "`--file`", "`--mirror`", "`--force`", "`--timeout`"]


def test_text_is_not_taken_for_markup() -> None:
    assert plain("a*b of <C>, _p50_s & snake_case") == r"a\*b of &lt;C>, \_p50_s &amp; snake_case"
    assert plain("one `a*b` two") == "one `a*b` two"
    assert code("x`y") == "`` x`y ``"
    assert bullets(["a\n b"]) == ["", "- a b"]
    assert table(("x",), [("a|b",)]) == ["", "| x |", "|---|", r"| a\|b |"]
    assert table(("x",), []) == []
