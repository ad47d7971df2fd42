"""What runs, what is lacking, and how parameters and files of the user's own behave."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import tracekit.characterize
from tracekit.characterize import find_query, lacks, list_queries, run_query
from tracekit.characterize.query import RESERVED_PARAMS
from tracekit.characterize.timeline import timelines_in
from tracekit.errors import QueryError, UsageError
from tracekit.manifest import Capability

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]
    WriteSql = Callable[[str], Path]

JOB: dict[str, Any] = {"job_id": "a", "gpu_count": 2, "run_s": 60, "status": "completed", "submit_time": "2017-10-03"}


@pytest.fixture
def trace(make_trace: MakeTrace) -> Trace:
    return make_trace(jobs=[JOB], manifest_overrides={"timezone": "Asia/Shanghai", "time_base": "shifted"})


def test_a_query_that_has_all_it_needs_lacks_nothing(trace: Trace) -> None:
    assert lacks(find_query("queuing/run_time"), trace) == []


def test_missing_tables_and_capabilities_are_said_in_sentences(make_trace: MakeTrace) -> None:
    capabilities = {
        "queueing": Capability(available=False, note="no submission times."),
        "gpu_count": Capability(False),
    }
    trace = make_trace(jobs=[JOB], manifest_overrides={"capabilities": capabilities})
    query = find_query("queuing/queue_delay")
    assert lacks(query, trace) == [
        "The trace has no table 'attempts'.",
        "The trace has no queueing: no submission times.",
        "The trace has no gpu_count.",
    ]
    with pytest.raises(QueryError, match="'queuing/queue_delay' cannot run here: The trace has no table 'attempts'"):
        run_query(trace, "queuing/queue_delay")


@pytest.mark.parametrize("table", ["rejects", "doubtful_times"])
def test_a_clean_trace_has_no_row_of_what_is_wrong(trace: Trace, write_sql: WriteSql, table: str) -> None:
    assert not trace.has(table)
    assert run_query(trace, write_sql(f"SELECT count(*) AS n FROM {table}")).rows() == [(0,)]


def test_a_capability_that_the_manifest_does_not_name_is_lacking(trace: Trace) -> None:
    del trace.manifest.capabilities["run_time"]
    assert lacks(find_query("queuing/run_time"), trace) == ["The trace does not say whether it has run_time."]


def test_shipped_queries_declare_the_parameters_they_use() -> None:
    for query in list_queries():
        (statement,) = duckdb.extract_statements(query.sql)
        of_timelines = {p.name for timeline in timelines_in(query) for p in timeline.params}
        # The size of the cluster matters to this column alone.
        of_timelines -= set() if "cluster_gpus" in query.sql else {"gpus"}
        used = set(statement.named_parameters) - set(RESERVED_PARAMS) | of_timelines
        assert used == {p.name for p in query.params}, query.name


@pytest.mark.parametrize("limit", [None, "1GB"])
def test_a_shipped_query_gives_the_columns_of_its_header(trace: Trace, limit: str | None) -> None:
    frame = run_query(trace, "overview/status", memory_limit=limit)
    assert frame.columns == [c.name for c in find_query("overview/status").columns]


def test_a_memory_limit_that_is_not_a_size_is_an_error(trace: Trace) -> None:
    with pytest.raises(UsageError, match="'lots' is not a memory size"):
        run_query(trace, "overview/status", memory_limit="lots")


def test_unknown_and_ill_typed_parameters_are_errors(trace: Trace) -> None:
    with pytest.raises(QueryError, match="has no parameter 'gputime'; did you mean 'gpu_time'"):
        run_query(trace, "overview/status", gputime="attempts")
    with pytest.raises(QueryError, match="has no parameter 'timezone'; there is none"):
        run_query(trace, "overview/arrivals_by_hour", timezone="UTC")
    with pytest.raises(QueryError, match="'gpu_time' cannot be 'neither'; choose one of: attempts, with_gaps"):
        run_query(trace, "overview/status", gpu_time="neither")
    with pytest.raises(QueryError, match="'gpu_time' cannot be 3"):
        run_query(trace, "overview/status", gpu_time=3)


TYPED = """\
-- title: Mine
-- param least: 0 | a number
-- param name: it's | a text
SELECT $least AS least, $name AS name
"""


def test_parameters_are_bound_with_the_type_of_their_default(trace: Trace, write_sql: WriteSql) -> None:
    path = write_sql(TYPED)
    assert run_query(trace, path).rows() == [(0, "it's")]
    assert run_query(trace, path, least="2.5", name="'; DROP TABLE jobs; --").rows() == [
        (2.5, "'; DROP TABLE jobs; --")
    ]
    assert run_query(trace, path, name="7").rows() == [(0, "7")]
    for wrong in ("two", True, None, float("nan"), [1]):
        with pytest.raises(QueryError, match="'least'"):
            run_query(trace, path, least=wrong)
    with pytest.raises(QueryError, match="'name' is text, not 3; default: \"it's\""):
        run_query(trace, path, name=3)


def test_a_file_without_a_header_takes_the_parameters_it_uses(trace: Trace, write_sql: WriteSql) -> None:
    path = write_sql("-- $c in a comment\nSELECT $a + 1 AS a, $b AS b, '$d' AS d")
    assert run_query(trace, str(path), a="4", b="x").rows() == [(5, "x", "$d")]
    with pytest.raises(QueryError, match=r"mine\.sql: the parameter 'a' has no value"):
        run_query(trace, path, b="x")
    with pytest.raises(QueryError, match="has no parameter 'c'; choose one of: a, b"):
        run_query(trace, path, c=1)


def test_reserved_parameters_come_from_the_manifest(trace: Trace, write_sql: WriteSql) -> None:
    assert run_query(trace, write_sql("SELECT $timezone, $time_base")).rows() == [("Asia/Shanghai", "shifted")]


def test_a_user_file_sees_tables_views_and_what_the_trace_can_tell(trace: Trace, write_sql: WriteSql) -> None:
    sql = """SELECT gpu_class, (SELECT available FROM trace_capabilities WHERE name = 'retries') AS retries,
        (SELECT list(name) FROM trace_tables) AS tables FROM job_classes"""
    assert run_query(trace, write_sql(sql)).rows() == [("2-4", True, ["jobs"])]


def test_a_user_file_may_give_other_columns_than_its_header(trace: Trace, write_sql: WriteSql) -> None:
    assert run_query(trace, write_sql("-- title: Mine\n-- column a: s | a\nSELECT 1 AS b")).columns == ["b"]


def test_an_sql_error_is_one_line_with_the_line_of_the_file(trace: Trace, write_sql: WriteSql) -> None:
    path = write_sql("-- mine\nSELECT *\nFROM jobs WHERE\nGROUP BY 1")
    with pytest.raises(QueryError, match=r"mine\.sql, line 4: Parser Error: syntax error") as caught:
        run_query(trace, path)
    assert "\n" not in str(caught.value)
    with pytest.raises(QueryError, match=r"mine\.sql, line 2: Binder Error"):
        run_query(trace, write_sql("-- mine\nSELECT nothing FROM jobs"))
    with pytest.raises(
        QueryError, match=r"line 1: Catalog Error: .*placements does not exist.*; the trace has the tables jobs"
    ):
        run_query(trace, write_sql("SELECT * FROM placements"))
    with pytest.raises(QueryError, match="Conversion Error"):
        run_query(trace, write_sql("SELECT CAST(job_id AS INTEGER) FROM jobs"))


@pytest.mark.parametrize("sql", ["", "-- nothing", "SELECT 1; SELECT 2", "CREATE TABLE t (a INTEGER)"])
def test_a_file_is_one_select(trace: Trace, write_sql: WriteSql, sql: str) -> None:
    with pytest.raises(QueryError, match="write one SELECT statement per file"):
        run_query(trace, write_sql(sql))


def test_a_shipped_query_with_other_columns_is_an_error(
    trace: Trace, write_sql: WriteSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = find_query("overview/status")
    changed = type(query)(**{**vars(query), "sql": "SELECT 1 AS x"})
    monkeypatch.setattr("tracekit.characterize.run.find_query", lambda name: changed)
    with pytest.raises(QueryError, match="returns the columns x, but its header says status, jobs"):
        run_query(trace, "overview/status")


def test_public_names_are_sorted_and_there() -> None:
    names = tracekit.characterize.__all__
    assert names == sorted(names)
    assert all(hasattr(tracekit.characterize, name) for name in names)


def test_importing_loads_no_heavy_library() -> None:
    heavy = "{'duckdb', 'altair', 'scipy'}"
    code = f"import sys, tracekit.characterize; sys.exit(' '.join({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stderr.strip() == ""
