"""The registry of what a report shows of each question: one entry, in one file, in reading order."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pkgutil import iter_modules

import tracekit.report.sections as home
from tracekit.characterize import list_queries
from tracekit.gpu_hours.bill import bill_question
from tracekit.report.changed import COMPARED
from tracekit.report.fit_answers import FITTED
from tracekit.report.replay_answers import REPLAY_QUESTIONS
from tracekit.report.sections.interface import Presentation, presentations

BILL = bill_question("account", "EUR")


def _entries() -> list[Presentation]:
    modules = [import_module(f"{home.__name__}.{m.name}") for m in iter_modules(home.__path__)]
    return [one for module in modules for one in getattr(module, "PRESENTATIONS", ())]


def test_what_is_shown_is_asked_and_has_one_entry() -> None:
    asked = {question.name for question in (*list_queries(), *REPLAY_QUESTIONS, *FITTED, *COMPARED, BILL)}
    entries = Counter(one.name for one in _entries())
    assert set(entries.values()) == {1}
    assert set(entries) <= asked
    # A query may be a file of SQL alone; what no SQL answers is there for its sentence.
    assert {question.name for question in (*REPLAY_QUESTIONS, *FITTED, *COMPARED, BILL)} <= set(entries)


def test_a_sentence_and_its_chart_stand_in_one_file() -> None:
    apart = [
        one.name for one in presentations().values() if one.chart and one.chart.__module__ != one.finding.__module__
    ]
    assert apart == []
