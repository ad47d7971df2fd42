"""report.md and guidelines.md: the same content as text, in which no name from a log is markup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.guidelines.markdown import escaped
from tracekit.report.markdown import markdown

if TYPE_CHECKING:
    from tracekit.analysis import Analysis
    from tracekit.report.structure import Report


def test_every_question_and_finding_of_the_report_is_in_it(report: Report) -> None:
    text = markdown(report)
    answers = [a for s in report["sections"] for a in s["answers"]]
    assert len(answers) > 20
    assert [a["name"] for a in answers if f"### {escaped(a['question'])}\n" not in text] == []
    assert [a["name"] for a in answers if a["finding"] and escaped(a["finding"]) not in text] == []
    assert all(escaped(u["question"]) in text for u in report["unanswered"])
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
