"""The shared views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tracekit import schema
from tracekit.characterize import list_views
from tracekit.characterize.query import Query, words_of
from tracekit.characterize.session import TraceDatabase, connect_with_views, order_views
from tracekit.characterize.timeline import all_timelines
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
    with pytest.raises(QueryError, match=r"a\.sql: depends on itself"):
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


def test_timelines_are_listed_by_their_names() -> None:
    assert [timeline.name for timeline in all_timelines().values()] == sorted(all_timelines())


@pytest.mark.parametrize("name", list(all_timelines()))
def test_a_timeline_reads_no_view_that_it_does_not_declare(sample_trace: Callable[[str], Trace], name: str) -> None:
    trace, timeline = sample_trace("slurm-outages"), all_timelines()[name]
    described = {"trace_tables", "trace_capabilities", "trace_zone", "trace_nodes", "trace_tenant"}
    known = {view.name for view in list_views()} | described
    asked: set[str] = set()

    class Noting:
        """A connection that notes what its SQL names."""

        def __init__(self, con: Any) -> None:
            self._con = con

        def sql(self, query: str, **more: Any) -> Any:
            asked.update(words_of(query) & known)
            return self._con.sql(query, **more)

        def execute(self, query: str, *more: Any) -> Any:
            asked.update(words_of(query) & known)
            return self._con.execute(query, *more)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self._con, attribute)

    chosen = {param.name: param.default for param in timeline.params}
    with TraceDatabase(trace, also=timeline.also).connect() as con:
        timeline.compute(cast("Any", Noting(con)), chosen)
    assert asked <= set(timeline.views)
