"""The shared views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit import schema
from tracekit.characterize import list_views
from tracekit.characterize.query import Query
from tracekit.characterize.views import connect_with_views, order_views
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


def _view(name: str, *bases: str) -> Query:
    return Query(name=name, title="t", question="", columns=(), sql="SELECT 1", path=Path(f"{name}.sql"), views=bases)


def test_each_view_comes_after_those_it_stands_on() -> None:
    found = order_views([_view("c", "b", "a"), _view("b", "a"), _view("a")])
    assert [v.name for v in found] == ["a", "b", "c"]
    names = [v.name for v in list_views()]
    assert all(names.index(base) < names.index(v.name) for v in list_views() for base in v.views)


def test_views_in_a_circle_or_on_nothing_are_errors() -> None:
    with pytest.raises(QueryError, match=r"a\.sql: stands on itself"):
        order_views([_view("a", "b"), _view("b", "a")])
    with pytest.raises(QueryError, match=r"long\.sql: no view 'wait'; did you mean 'waits'"):
        order_views([_view("waits"), _view("long", "wait")])


def test_only_views_whose_tables_exist_are_created(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": "a"}])
    names = "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY view_name"
    with connect_with_views(trace) as con:
        assert [n for (n,) in con.execute(names).fetchall()] == ["job_classes", "jobs", "submissions_by_hour"]
    with connect_with_views(trace, also=["attempts"]) as con:
        assert con.execute("SELECT count(*) FROM waits").fetchall() == [(0,)]


def test_each_view_has_the_columns_that_its_header_names(make_trace: Callable[..., Trace]) -> None:
    with connect_with_views(make_trace(jobs=[{"job_id": "a"}]), also=schema.COMMON_TABLES) as con:
        for view in list_views():
            columns = [row[0] for row in con.execute(f"DESCRIBE {view.name}").fetchall()]
            described = [c.name for c in view.columns]
            assert columns[-len(described) :] == described, view.name
