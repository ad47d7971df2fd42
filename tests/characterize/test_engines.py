"""Engines without Spark: names, what is refused, and how statements are cut to be merged."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

from tools.spark_answers import PAGE, rows_of_page
from tracekit.characterize import answer_query, list_queries, list_views, run_query
from tracekit.characterize.engines import engine_of
from tracekit.characterize.engines.duckdb import DuckdbEngine
from tracekit.characterize.engines.spark import starting
from tracekit.characterize.engines.spark.crossing import parsed, relations, spark_sql
from tracekit.characterize.engines.spark.merging import head, how_merged, read_again, tail, ways_of, with_merged
from tracekit.characterize.query import parse_query
from tracekit.characterize.session import Session, order_views
from tracekit.errors import QueryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.characterize.query import Query
    from tracekit.trace import Trace

TELEMETRY = {"gpu_utilization", "host_utilization"}
ALL = {query.name: query for query in (*list_views(), *list_queries())}


def test_an_engine_is_itself_or_that_of_its_name() -> None:
    own = DuckdbEngine()
    assert engine_of(own) is own
    assert engine_of().name == engine_of("duckdb").name == "duckdb"
    assert engine_of("spark", "local[2]").name == "spark"  # which starts with the first question
    with pytest.raises(UsageError, match="--engine: there is no engine 'sparc'; did you mean 'spark'"):
        engine_of("sparc")
    with pytest.raises(UsageError, match="--master: works only with Spark; add --engine spark"):
        engine_of("duckdb", "yarn")


def test_an_engine_of_a_session_answers_its_queries(make_trace: Callable[..., Trace]) -> None:
    asked: list[str] = []

    class Listening(DuckdbEngine):
        def check(self, query: Query, *, locked: bool) -> None:
            asked.append(query.name)

    trace = make_trace(jobs=[{"job_id": "a", "gpu_count": 1}])
    answer_query(trace, "overview/status", session=Session(trace, engine=Listening()))
    run_query(trace, "overview/job_size", engine=Listening())
    assert asked == ["overview/status", "overview/job_size"]


@pytest.mark.parametrize("name", ALL)
def test_every_statement_has_words_in_sparks_dialect(name: str) -> None:
    assert spark_sql(ALL[name].sql, ALL[name].path)


@pytest.mark.parametrize("name", [name for name, query in ALL.items() if query.merge])
def test_what_is_merged_groups_counts_and_adds_exactly(name: str) -> None:
    query = ALL[name]
    known: dict[str, str] = {}
    for table in query.merge:
        assert how_merged(query, table)
        assert not known or relations(parsed(head(query, table, known), query.path)) & set(known.values())
        known[table] = f"merged_{table}"
    rest = relations(tail(query, known))
    # The view whose rows are samples reads them besides.
    assert name == "attempt_samples" or not rest & TELEMETRY


def test_whatever_reads_telemetry_merges_it() -> None:
    for name, query in ALL.items():
        reads = relations(parsed(query.sql, query.path)) & (TELEMETRY | {"attempt_samples", "host_samples"})
        assert not reads or query.merge or name == "host_samples", name


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("SELECT k, sum(x) + 1 AS n FROM t GROUP BY k", "cannot be merged"),
        ("SELECT k, count(DISTINCT x) AS n FROM t GROUP BY k", "cannot be merged"),
        ("SELECT k, avg(x) AS n FROM t GROUP BY k", "cannot be merged"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k, h", "is grouped by 'h', which is not one of its columns"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 1", "does more than group"),
    ],
)
def test_what_does_not_merge_is_refused(table: str, why: str) -> None:
    query = _query(f"WITH a AS ({table}) SELECT * FROM a")
    with pytest.raises(QueryError, match=why):
        how_merged(query, "a")


def test_a_statement_is_cut_at_what_is_merged() -> None:
    query = _query(
        "WITH a AS (SELECT x FROM t),"
        " b AS (SELECT x, count(*) AS n, max(y) FILTER (WHERE y > 0) AS m FROM a GROUP BY x),"
        " c AS (SELECT sum(n) AS s FROM b) SELECT b.x, c.s FROM b CROSS JOIN c"
    )
    assert how_merged(query, "b") == {"x": None, "n": "sum", "m": "max"}
    assert head(query, "b", {}).startswith("WITH a AS (SELECT x FROM t), b AS")
    assert head(query, "b", {}).endswith("SELECT * FROM b")
    rest = tail(query, {"b": "kept"})
    assert [cte.alias for cte in rest.find_all(exp.CTE)] == ["b", "c"]
    assert relations(rest) == {"kept"}
    # b is read twice: by c, and at the end.
    assert [name for name, _ in read_again(rest)] == ["b"]
    assert relations(with_merged(rest, {"b": "other"})) == {"other"}


def test_views_are_ordered_with_their_merges() -> None:
    assert {view.name for view in order_views(list_views())} == {view.name for view in list_views()}


def test_the_page_tells_of_every_query_how_it_crosses() -> None:
    rows = rows_of_page(PAGE.read_text(encoding="utf-8"))
    assert [(row[0], row[1]) for row in rows] == [(query.name, ways_of(query)) for query in list_queries()]
    assert {row[2] for row in rows} <= {"exactly", "to 1e-9"}
    assert all(row[3] for row in rows)


def _query(sql: str) -> Query:
    return parse_query(sql, Path("own"), name="own", parts=(), shipped=False)


class TestStarting:
    """What is said within seconds, without a Java process."""

    def test_a_package_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match=r"pyspark is not installed; pip install 'gpu-tracekit\[spark\]'"):
            starting.start("local[1]", {}, 1)

    def test_no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(UsageError, match=r"no Java found in JAVA_HOME .*; install Java 17 or later"):
            starting.start("local[1]", {}, 1)

    @pytest.mark.parametrize("master", ["spark://127.0.0.1:{port}", "k8s://https://127.0.0.1:{port}"])
    def test_no_master(self, master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").touch()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # and does not listen
            with pytest.raises(UsageError, match=r"no Spark master answers: 127.*connection refused"):
                starting.start(master.format(port=held.getsockname()[1]), {}, 1)

    def test_a_word_that_is_no_master(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").touch()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(UsageError, match="--master: 'cluster' is not a Spark master; write it like"):
            starting.start("cluster", {}, 1)

    def test_a_release_that_was_not_tried_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not [note for note in starting.untried() if "sqlglot" in note]
        monkeypatch.setitem(starting.TRIED, "sqlglot", ("1.0",))
        assert any("under sqlglot 1.0, not under" in note for note in starting.untried())


def test_settings_of_spark_that_change_answers_are_refused_and_javas_stand_behind_ours(tmp_path: Path) -> None:
    java = "spark.driver.extraJavaOptions"
    found = starting._settings("local[2]", tmp_path, {java: "-Xss4m", "spark.executor.memory": "2g"})
    assert found[java].startswith("-Duser.timezone=UTC ")
    assert found[java].endswith(" -Xss4m")
    assert found["spark.executor.memory"] == "2g"
    assert (
        starting._settings("local[2]", tmp_path, {"spark.sql.ansi.enabled": "true"})["spark.sql.ansi.enabled"] == "true"
    )
    with pytest.raises(
        UsageError, match=r"spark.sql.session.timeZone=Asia/Tokyo would change the answers; .* sets UTC"
    ):
        starting._settings("local[2]", tmp_path, {"spark.sql.session.timeZone": "Asia/Tokyo"})
