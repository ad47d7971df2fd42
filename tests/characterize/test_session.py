"""Queries that share a session: one set-up, and nothing else that passes from one to the next."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tracekit.characterize import answer_query
from tracekit.characterize.query import Query
from tracekit.characterize.session import Session, TraceDatabase
from tracekit.databases import Database
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


@pytest.fixture
def trace(make_trace: MakeTrace) -> Trace:
    return make_trace(jobs=[{"job_id": "a", "gpu_count": 1, "status": "completed"}])


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Note the tables that are made empty, each time that a database is set up."""
    noted: list[list[str]] = []

    class Counted(TraceDatabase):
        def __init__(self, trace: Trace, *, also: list[str], **more: Any) -> None:
            noted.append(also)
            super().__init__(trace, also=also, **more)

    monkeypatch.setattr("tracekit.characterize.session.TraceDatabase", Counted)
    return noted


def _asked(trace: Trace, shared: Session, sql: str, **more: Any) -> list[tuple[Any, ...]]:
    return answer_query(trace, Query.of_text(sql, trace.path), session=shared, **more).frame.rows()


def test_queries_of_a_session_set_the_views_up_once(trace: Trace, set_up: list[list[str]]) -> None:
    shared = Session(trace)
    alone = answer_query(trace, "overview/status").frame
    assert len(set_up) == 1
    for _ in range(3):
        assert answer_query(trace, "overview/status", session=shared).frame.equals(alone)
    assert _asked(trace, shared, "SELECT job_id FROM jobs") == [("a",)]
    assert set_up[1:] == [["attempts", "doubtful_times", "rejects"], ["doubtful_times", "rejects"]]


def test_a_query_does_not_find_tables_that_another_one_has_empty(trace: Trace) -> None:
    shared = Session(trace)
    answer_query(trace, "overview/status", session=shared)  # reads attempts where there are any
    with pytest.raises(QueryError, match="attempts"):
        _asked(trace, shared, "SELECT count(*) FROM attempts")


def test_what_a_query_makes_for_a_moment_ends_with_it(trace: Trace) -> None:
    shared = Session(trace)
    with shared.connect() as con:
        con.execute("CREATE TEMP TABLE passing AS SELECT 1 AS x")
        con.execute("SET TimeZone = 'Asia/Shanghai'")
        con.register("rows_of_mine", con.sql("SELECT 2 AS x").to_arrow_table())
        with shared.connect() as other:
            names = other.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()
            assert names == []
            assert other.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
    for name in ("passing", "rows_of_mine"):
        with pytest.raises(QueryError, match=name):
            _asked(trace, shared, f"SELECT * FROM {name}")


def test_a_sandboxed_query_locks_itself_alone(trace: Trace) -> None:
    shared = Session(trace)
    assert _asked(trace, shared, "SELECT job_id FROM jobs", sandbox=True) == [("a",)]
    with shared.connect() as con:
        con.execute("SET threads = 1")  # refused in a locked database
    assert _asked(trace, shared, "SELECT job_id FROM jobs") == [("a",)]


def test_a_session_has_its_memory_limit(trace: Trace) -> None:
    with Session(trace, "100MB").connect() as con:
        assert con.execute("SELECT current_setting('memory_limit')").fetchall() == [("95.3 MiB",)]


def test_a_query_has_the_views_that_it_names_and_what_these_need(trace: Trace) -> None:
    shared = Session(trace)
    with shared.connect(["attempts"], "SELECT * FROM Waits -- not job_gpu_hours") as con:
        assert _made(con) == {"jobs", "attempts", "job_classes", "waits"}
        assert con.sql("SELECT count(*) FROM waits").fetchall() == [(0,)]
    with shared.connect(["attempts"], "SELECT percentiles(run_s) FROM jobs, trace_zone") as con:
        assert _made(con) == {"jobs", "attempts", "job_classes", "waits", "trace_zone"}
        assert len(con.sql("SELECT percentiles(1)").fetchall()[0][0]) == 101
    with shared.connect((), "SELECT is_failed(status), is_unsuccessful(status) FROM jobs") as con:
        words = ["timeout", "node_fail", "cancelled", "unknown", None]
        told = con.execute("SELECT is_failed(s), is_unsuccessful(s) FROM unnest($1) AS t(s)", [words]).fetchall()
        assert told == [(False, True), (True, True), (False, False), (None, None), (None, None)]
    # SQL that lists what there is finds everything.
    with shared.connect((), "SELECT * FROM duckdb_views()") as con:
        assert _made(con) >= {"job_classes", "submissions_by_hour", "trace_tables", "trace_tenant"}


def _made(con: duckdb.DuckDBPyConnection) -> set[str]:
    sql = """SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
             UNION ALL SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"""
    return {name for (name,) in con.execute(sql).fetchall()}


def test_sessions_in_one_instance_have_databases_of_their_own(trace: Trace, make_trace: MakeTrace) -> None:
    other = make_trace(jobs=[{"job_id": "b"}, {"job_id": "c"}])
    with Session(trace).connect() as first, Session(other).connect() as second:
        first.execute("CREATE TABLE mine AS SELECT 1 AS x")
        assert first.execute("SELECT job_id FROM jobs").fetchall() == [("a",)]
        assert second.execute("SELECT job_id FROM jobs ORDER BY ALL").fetchall() == [("b",), ("c",)]
        with pytest.raises(duckdb.CatalogException):
            second.execute("FROM mine")


def test_a_database_is_given_up_after_its_last_connection(trace: Trace) -> None:
    con = Session(trace).connect()  # the session is gone, its connection is not
    gc.collect()
    name = con.execute("SELECT current_database()").fetchall()[0][0]
    assert con.execute("SELECT job_id FROM jobs").fetchall() == [("a",)]
    del con
    gc.collect()
    with Database() as database, database.connect() as other:
        names = [row[0] for row in other.execute("SELECT database_name FROM duckdb_databases()").fetchall()]
    assert name.startswith("database_")
    assert name not in names
