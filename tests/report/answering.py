"""Make answers from rows, as a query would, and check sentences about them."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from tracekit.answer import Answer, Question, Unanswered


def answer_of(name: str, *rows: dict[str, Any], notes: tuple[str, ...] = (), **params: float) -> Answer:
    """Return the answer with these rows to the question of this name."""
    question = Question(name=name, kind="query", title="", question="", columns=())
    return Answer(question, pl.DataFrame(list(rows), infer_schema_length=None), params=params, notes=notes)


def answers_of(**rows: list[dict[str, Any]]) -> dict[str, Answer]:
    """Return answers by name, with two underscores for a name's slash."""
    named = {name.replace("__", "/", 1): of for name, of in rows.items()}
    return {name: answer_of(name, *of) for name, of in named.items()}


def answered(found: Answer | Unanswered) -> Answer:
    """Return the result after checking that it is an answer."""
    assert isinstance(found, Answer)
    return found


def why(found: Answer | Unanswered) -> tuple[str, ...]:
    """Return why a question has no answer, after checking that it has none."""
    assert isinstance(found, Unanswered)
    return found.reasons


def told(text: str | None, *facts: str) -> str:
    """Return a text after checking that it exists and contains these facts. `golden` checks its wording."""
    assert text is not None
    lacking = [fact for fact in facts if not re.search(rf"(?<![\w.,]){re.escape(fact)}(?![\w%]|[.,]\d)", text)]
    assert lacking == [], text
    return text
