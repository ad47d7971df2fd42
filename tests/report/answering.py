"""Answers made of rows, as a query would give them, and what is told of them."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from tracekit.answer import Answer, Question, Unanswered


def answer_of(name: str, *rows: dict[str, Any], notes: tuple[str, ...] = (), **params: float) -> Answer:
    """Return the answer to a question of this name with these rows."""
    question = Question(name=name, kind="query", title="", question="", columns=())
    return Answer(question, pl.DataFrame(list(rows), infer_schema_length=None), params=params, notes=notes)


def answers_of(**rows: list[dict[str, Any]]) -> dict[str, Answer]:
    """Return answers by name; two underscores stand for the slash of a name."""
    named = {name.replace("__", "/", 1): of for name, of in rows.items()}
    return {name: answer_of(name, *of) for name, of in named.items()}


def answered(found: Answer | Unanswered) -> Answer:
    """Return what must be an answer."""
    assert isinstance(found, Answer)
    return found


def why(found: Answer | Unanswered) -> tuple[str, ...]:
    """Return why a question must have none."""
    assert isinstance(found, Unanswered)
    return found.reasons


def told(text: str | None, *facts: str) -> str:
    """Return a text that must be there and state these numbers and names; `golden` knows its wording."""
    assert text is not None
    lacking = [fact for fact in facts if not re.search(rf"(?<![\w.,]){re.escape(fact)}(?![\w%]|[.,]\d)", text)]
    assert lacking == [], text
    return text
