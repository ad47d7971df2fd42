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
    logged,
    nearest,
    quoted,
    without_names,
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


def test_a_hint_of_many_choices_names_some_and_counts_the_rest() -> None:
    choices = [f"choice-{number:04}" for number in range(5000)]
    hint = nearest("x", choices)
    assert len(hint) < 450
    names = hint.removeprefix("choose one of: ").partition(" and ")[0].split(", ")
    assert names == choices[: len(names)]
    assert hint.endswith(f" and {5000 - len(names):,} more")
    assert nearest("x", ["y" * 5000]) == f"choose one of: {'y' * 5000}"


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("size", [1_999, 2_000, 2_001, 100_000])
def test_the_words_of_a_library_are_cut_and_the_hint_is_not(kind: type[TracekitError], size: int) -> None:
    error = kind("x" * size, where="a/log.csv", hint="fetch it again")
    shown = "x" * size if size <= 2_000 else "x" * 1_999 + "…"
    assert (error.what, str(error)) == (shown, f"a/log.csv: {shown}; fetch it again")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_names_of_a_log_are_hidden_in_a_block_alone() -> None:
    asked = ("alic", ["alice", "bob"])
    with without_names():
        hints = nearest(*asked, of_log=True), nearest("bo", ["bobby"], otherwise="it has bobby", of_log=True)
        assert logged("alice") == "(hidden)"
        assert quoted("'alice' isn't a time") == "(hidden) isn't a time"
        assert nearest(*asked) == "did you mean 'alice'?"
    assert hints[0] == hints[1]
    assert "--anonymize" in hints[0]
    assert quoted("'alice' isn't a time") == "'alice' isn't a time"
    assert (nearest(*asked, of_log=True), logged("alice")) == ("did you mean 'alice'?", "alice")
