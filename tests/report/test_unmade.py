"""Questions without an answer, by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.report.unmade import by_reason, in_words

if TYPE_CHECKING:
    from tracekit.report.structure import Report, UnansweredInfo


def _question(name: str, *reasons: str) -> UnansweredInfo:
    return {"name": name, "title": name, "question": f"{name}?", "reasons": list(reasons), "failed": False}


def test_each_set_of_reasons_stands_once_with_its_questions() -> None:
    found = by_reason([_question("a", "No x.", "No y."), _question("b", "No x."), _question("c", "No x.", "No y.")])
    assert [(reason, [q["name"] for q in questions]) for reason, questions in found] == [
        ("No x. No y.", ["a", "c"]),
        ("No x.", ["b"]),
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("The trace has no hour_of_day: dates are unknown.", "The trace has no hour of day: dates are unknown."),
        ("The trace has no gpu_index.", "The trace has no GPU index."),
        (
            "The trace has no table 'gpu_utilization' or 'job_usage'.",
            "The trace has no table 'GPU utilization' or 'job usage'.",
        ),
        ("The column my_gpu_index_2 is empty.", "The column my_gpu_index_2 is empty."),
    ],
)
def test_names_of_capabilities_and_tables_are_words(reason: str, words: str) -> None:
    assert in_words(reason) == words


def test_every_unanswered_question_of_a_report_is_there(report: Report, page: str) -> None:
    grouped = by_reason(report["unanswered"])
    assert sorted(q["name"] for _, questions in grouped for q in questions) == sorted(
        u["name"] for u in report["unanswered"]
    )
    section = page[page.index('<section id="unanswered"') : page.index('<section id="quality"')]
    assert section.count("<dt>") == len(grouped)
    assert all(f"({u['name']})" in section for u in report["unanswered"])
