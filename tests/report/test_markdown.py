"""report.md, a digest of the page, and guidelines.md: all findings as text, in which no name from a log is markup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tracekit.guidelines.markdown import escaped
from tracekit.report.markdown import markdown
from tracekit.report.unmade import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.analysis import Analysis
    from tracekit.report.structure import Report


def test_every_question_and_finding_of_the_report_is_in_it(report: Report) -> None:
    text = markdown(report)
    answers = [a for s in report["sections"] for a in s["answers"]]
    assert len(answers) > 20
    assert [a["name"] for a in answers if f"### {escaped(a['question'])}\n" not in text] == []
    assert [a["name"] for a in answers if a["finding"] and escaped(a["finding"]) not in text] == []
    assert all(escaped(in_words(reason)) in text for u in report["unanswered"] for reason in u["reasons"])
    assert all(escaped(file) in text for a in answers for file in a["files"][-1:])
    assert all(f["sha256"] in text for f in report["quality"]["files"] if f["sha256"])
    assert report["opening"]["about"] in text


def test_no_name_from_the_log_is_markup(report: Report, analysis: Analysis) -> None:
    for text in (markdown(report), (analysis.folder / "guidelines.md").read_text(encoding="utf-8")):
        assert re.findall(r"(?<!\\)<(?!/?$)[a-zA-Z/!]", text) == []
        assert not {"\u202e", "\u2028", "\x00"} & set(text)
        for line in text.splitlines():
            if line.startswith("|"):
                assert line.endswith(" |")
        widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
        assert widths


def test_the_file_is_what_the_data_give(report: Report, analysis: Analysis) -> None:
    assert (analysis.folder / "report.md").read_text(encoding="utf-8") == markdown(report)


def test_rows_of_a_table_have_as_many_cells_as_its_head(report: Report) -> None:
    width = None
    for line in markdown(report).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        if cells is not None and width is not None:
            assert cells == width, line
        width = cells


@pytest.mark.parametrize("name", ["philly", "slurm"])
def test_it_is_a_digest_that_people_read(analyzed: Callable[[str], Analysis], name: str) -> None:
    words = (analyzed(name).folder / "report.md").read_text(encoding="utf-8").split()
    assert 1500 < len(words) <= 4000
