"""Rows of several traces side by side: keys, order, published cells, and the long table."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.characterize import find_query
from tracekit.characterize.published import PublishedComparison, PublishedValue
from tracekit.report.compare import MOMENT_LIMIT, ROW_LIMIT, compared, key_columns, long_table, shared_rows

STATUS = {"status": pl.String, "jobs": pl.Int64, "jobs_share": pl.Float64, "gpu_hours": pl.Float64}


def status(*rows: tuple[str | None, int, float]) -> pl.DataFrame:
    return pl.DataFrame([(s, n, share, None) for s, n, share in rows], schema=STATUS, orient="row")


def stated(column: str, value: float, *, row: str, artefact: str = "Table 1", **more: Any) -> PublishedComparison:
    facts = dict.fromkeys(PublishedValue.__dataclass_fields__, "")
    facts |= {"query": "overview/status", "kind": "number", "unit": "share", "low": None, "high": None}  # type: ignore[dict-item]
    facts |= {"column": column, "value": value, "row": row, "artefact": artefact, "confidence": "A", **more}  # type: ignore[dict-item]
    return PublishedComparison(PublishedValue(**facts), None)  # type: ignore[arg-type]  # facts of a test


ONE = status(("completed", 3, 0.75), ("failed", 1, 0.25))
ENDED = find_query("overview/status")
TWO = status(("cancelled", 1, 0.5), ("completed", 1, 0.5))


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        (["status", "jobs"], [("completed", 1)], ["status"]),
        (["gpu_class", "node_count", "jobs"], [("1", 1, 5)], ["gpu_class", "node_count"]),
        (["user", "jobs"], [("a", 1), ("b", 1)], ["user"]),
        (["name", "size", "x"], [("a", 1, 9), ("a", 2, 9)], ["name", "size"]),
        (["metric", "value", "unit"], [("jobs", 1, "jobs")], ["metric", "unit"]),
        (["x", "y"], [(1, 2)], ["x"]),
    ],
)
def test_the_key_is_as_many_first_columns_as_tell_rows_apart(
    columns: list[str], rows: list[tuple[Any, ...]], expected: list[str]
) -> None:
    assert key_columns([pl.DataFrame(rows, schema=columns, orient="row")]) == expected


def test_a_key_needs_a_result() -> None:
    with pytest.raises(ValueError, match="no frame"):
        key_columns([])


def test_rows_of_several_traces_are_joined_by_key() -> None:
    rows = {"a": ONE.to_dicts(), "b": TWO.to_dicts()}
    found = shared_rows(rows, ["status"], {})
    half = {"jobs": 1, "jobs_share": 0.5, "gpu_hours": None}
    assert [(row["key"]["status"], row["values"], row["published"]) for row in found] == [
        ("completed", {"a": {"jobs": 3, "jobs_share": 0.75, "gpu_hours": None}, "b": half}, {}),
        ("cancelled", {"a": None, "b": half}, {}),
        ("failed", {"a": {"jobs": 1, "jobs_share": 0.25, "gpu_hours": None}, "b": None}, {}),
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([">8", "1"], ["0", None], ["0", "1", ">8", None]),
        ([16, 1], [2.5, 1.0], [1, 2.5, 16]),
        (["zeta", "alpha"], ["beta"], ["zeta", "alpha", "beta"]),
        (["running", None], ["failed"], ["failed", "running", None]),
    ],
)
def test_rows_stand_in_the_order_of_sizes_statuses_and_numbers(
    first: list[Any], second: list[Any], expected: list[Any]
) -> None:
    rows = {"a": [{"k": v} for v in first], "b": [{"k": v} for v in second]}
    assert [row["key"]["k"] for row in shared_rows(rows, ["k"], {})] == expected


def test_a_text_and_a_number_are_two_keys_and_whole_numbers_are_one() -> None:
    rows: dict[str, list[dict[str, Any]]] = {"a": [{"k": 1}], "b": [{"k": 1.0}], "c": [{"k": "1"}]}
    found = shared_rows(rows, ["k"], {})
    assert [[name for name, v in row["values"].items() if v is not None] for row in found] == [["a", "b"], ["c"]]


def test_a_published_cell_stands_with_its_row_that_of_the_release_first() -> None:
    numbers = [
        stated("jobs_share", 0.6, row="status=completed", population_note="other jobs"),
        stated("jobs_share", 0.7, row="status=completed"),
        stated("jobs_share", 0.3, row="status=failed|timeout", aggregate="sum"),
        stated("jobs_share", 0.1, row="status=cancelled"),
    ]
    found = shared_rows({"a": ONE.to_dicts(), "b": []}, ["status"], {"a": numbers})
    assert [row["published"] for row in found] == [{"a": {"jobs_share": 0.7}}, {}]


def test_the_long_table_names_the_trace_first_and_ends_with_published_cells() -> None:
    published = [
        stated("jobs_share", 0.6, row="status=completed"),
        stated("jobs", 60.0, row="status=completed", unit="jobs"),
        stated("jobs_share", 0.9, row="status=completed", artefact="Fig 2"),
        stated("jobs_share", 0.5, row="", aggregate="max"),
    ]
    found = long_table({"a": Answer(ENDED, ONE), "c": Answer(ENDED, TWO)}, {"a": published})
    assert found.columns == ["trace", *ONE.columns]
    assert found.rows() == [
        ("a", "completed", 3, 0.75, None),
        ("a", "failed", 1, 0.25, None),
        ("c", "cancelled", 1, 0.5, None),
        ("c", "completed", 1, 0.5, None),
        ("a, published (Table 1)", "completed", 60, 0.6, None),
        ("a, published (Fig 2)", "completed", None, 0.9, None),
    ]


def test_the_long_table_keeps_the_unit_of_a_published_metric() -> None:
    frame = pl.DataFrame({"metric": ["jobs"], "value": [2.0], "unit": ["jobs"]})
    number = stated("value", 117.0, row="metric=jobs", unit="jobs", artefact="README")
    assert long_table({"a": Answer(find_query("overview/summary"), frame)}, {"a": [number]}).rows() == [
        ("a", "jobs", 2.0, "jobs"),
        ("a, published (README)", "jobs", 117.0, "jobs"),
    ]


def test_a_question_states_who_answers_what_and_who_does_not() -> None:
    found = compared(
        ENDED,
        {
            "a": Answer(ENDED, ONE.with_columns(gpu_hours_share=None), notes=("a choice",)),
            "b": ENDED.unanswered("The trace has no statuses."),
        },
        {},
        "tables/overview/status.csv",
    )
    assert (found["name"], found["group"], found["file"]) == (
        "overview/status",
        "overview",
        "tables/overview/status.csv",
    )
    assert found["findings"] == {"a": "75.0 % of the jobs completed."}
    assert [c["name"] for c in found["keys"]] == ["status"]
    assert [c["name"] for c in found["measures"]] == ["jobs", "jobs_share", "gpu_hours", "gpu_hours_share"]
    assert found["unanswered"] == [{"trace": "b", "reasons": ["The trace has no statuses."]}]
    assert found["row_counts"] == {"a": 2}
    assert found["notes"] == {"a": ["a choice"]}
    assert not found["shared"]


@pytest.mark.parametrize(("key", "limit"), [("k", ROW_LIMIT), ("time", MOMENT_LIMIT)])
def test_many_rows_are_cut_and_counted(key: str, limit: int) -> None:
    columns = (AnswerColumn(key, "text", "key"),)
    own = Question(name="mine/own", kind="query", title="Own", question="What?", columns=columns)
    frame = pl.DataFrame({key: [f"k{i}" for i in range(limit + 7)]})
    found = compared(own, {"a": Answer(own, frame), "b": Answer(own, frame.head(1))}, {}, "tables/mine/own.csv")
    assert (len(found["rows"]), found["row_counts"]) == (limit, {"a": limit + 7, "b": 1})
    assert found["shared"]
