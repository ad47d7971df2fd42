"""Errors are one printable line, keep their facts, and survive pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tracekit.errors import (
    EngineMissingError,
    MissingTableError,
    OutputError,
    QueryError,
    SchemaError,
    SourceError,
    TooManyRejectsError,
    TraceError,
    TracekitError,
    UnfinishedError,
    UnknownFormatError,
    UsageError,
    nearest,
)

ALL = (
    TracekitError,
    UsageError,
    SourceError,
    UnknownFormatError,
    TooManyRejectsError,
    SchemaError,
    TraceError,
    MissingTableError,
    QueryError,
    EngineMissingError,
    UnfinishedError,
    OutputError,
)


@pytest.mark.parametrize("kind", ALL)
def test_every_error_says_what_where_and_what_to_do(kind: type[TracekitError]) -> None:
    error = kind("is missing", where=Path("a") / "log.csv", line=3, column="vc", hint="add it")
    assert str(error) == "a/log.csv, line 3, column vc: is missing; add it"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_survives_pickling(kind: type[TracekitError]) -> None:
    error = kind("is missing", where="log.csv", line=3, column=4, hint="add it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.what, copy.where, copy.line, copy.column, copy.hint) == ("is missing", "log.csv", 3, 4, "add it")
    assert str(copy) == str(error)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "broke"),
        ({"where": "f"}, "f: broke"),
        ({"line": 2}, "line 2: broke"),
        ({"column": "a"}, "column a: broke"),
        ({"line": 2, "column": 1}, "line 2, column 1: broke"),
        ({"where": "f", "column": "a", "hint": "mend it"}, "f, column a: broke; mend it"),
    ],
)
def test_what_is_not_known_is_left_out(facts: dict[str, str], text: str) -> None:
    assert str(TracekitError("broke", **facts)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\r\tb\0", r"a\r\tb\x00"),
        ("\u202egpj", r"\u202egpj"),
        ("\udcff", r"\udcff"),
    ],
)
def test_a_hostile_name_stays_one_printable_line(name: str, shown: str) -> None:
    text = str(SourceError("is odd", where=name, hint=f"rename {name}"))
    assert text == f"{shown}: is odd; rename {shown}"
    assert text.isprintable()


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (UsageError, ValueError),
        (SourceError, ValueError),
        (UnknownFormatError, SourceError),
        (TooManyRejectsError, SourceError),
        (SchemaError, ValueError),
        (TraceError, ValueError),
        (MissingTableError, KeyError),
        (MissingTableError, TraceError),
        (QueryError, ValueError),
        (OutputError, OSError),
    ],
)
def test_errors_can_be_caught_by_their_builtin_kind(kind: type[TracekitError], base: type[Exception]) -> None:
    with pytest.raises(base, match=r"^broke$"):
        raise kind("broke")


@pytest.mark.parametrize(
    ("name", "choices", "hint"),
    [
        ("jbos", ["jobs", "nodes"], "did you mean 'jobs'?"),
        ("x", ["nodes", "jobs"], "choose one of: jobs, nodes"),
        ("x", [], "there is none"),
    ],
)
def test_the_hint_names_the_nearest_choice_or_all(name: str, choices: list[str], hint: str) -> None:
    assert nearest(name, choices) == hint
