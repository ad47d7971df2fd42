"""A question takes no more time, rows, bytes and memory than it may, and says so in one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.command import run, run_alone
from tracekit.characterize import limits, run_query
from tracekit.characterize.limits import Limits, StoppedError
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    WriteSql = Callable[[str], Path]

ENDLESS = "SELECT count(*) FROM range(10000000000) a, range(1000) b WHERE hash(a.range + b.range) = 1"
MANY = "SELECT range AS x FROM range(400000000)"


@pytest.fixture
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(jobs=[{"job_id": "a"}])


@pytest.mark.parametrize("sandbox", [False, True])
def test_sql_that_takes_too_long_is_stopped(trace: Trace, write_sql: WriteSql, *, sandbox: bool) -> None:
    file = write_sql(ENDLESS)
    with pytest.raises(StoppedError) as caught:
        run_query(trace, file, sandbox=sandbox, time_limit_s=0.2)
    assert str(caught.value) == f"{file}: no answer within 0.2 s; ask for less, or raise --time-limit"


def test_a_question_within_its_time_is_answered(trace: Trace, write_sql: WriteSql) -> None:
    assert run_query(trace, write_sql("SELECT 1 AS x"), time_limit_s=60).rows() == [(1,)]


def test_the_sandbox_has_limits_by_default() -> None:
    assert Limits.of("1GB", None, sandbox=True) == Limits(60, 10_000_000, 1_000_000_000, sandbox=True)
    assert Limits.of("1GB", 5, sandbox=False) == Limits(5, None, 1_000_000_000)
    assert Limits.of(None, None, sandbox=False) == Limits()


def test_rows_are_limited_in_the_sandbox(trace: Trace, write_sql: WriteSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ROWS", 5000)
    assert run_query(trace, write_sql(f"{MANY} LIMIT 5000"), sandbox=True).height == 5000
    file = write_sql(f"{MANY} LIMIT 5001")
    assert run_query(trace, file).height == 5001
    with pytest.raises(QueryError, match="more than 5,000 rows"):
        run_query(trace, file, sandbox=True)


def test_bytes_are_limited_by_the_memory_limit(trace: Trace, write_sql: WriteSql) -> None:
    with pytest.raises(QueryError, match=r"more than 38\.1 MiB"):
        run_query(trace, write_sql(MANY), memory_limit="40MB")
    found = run_query(trace, write_sql(f"{MANY} LIMIT 4000000"), memory_limit="40MB")  # 8 bytes a row
    assert found["x"].sum() == 4_000_000 * 3_999_999 // 2


def test_all_rows_arrive_in_their_order_and_type_under_a_limit(trace: Trace, write_sql: WriteSql) -> None:
    columns = "i, 'n' || i AS name, [i] AS l, DATE '2020-01-01' + i::INT AS d"
    file = write_sql(f"SELECT {columns} FROM range(7000) t(i) ORDER BY -i")
    assert run_query(trace, file, memory_limit="1GB").equals(run_query(trace, file))
    empty = write_sql("SELECT 1 AS x, 'a' AS y WHERE false")
    assert run_query(trace, empty, memory_limit="1GB").schema == run_query(trace, empty).schema


def test_sql_that_runs_out_of_memory_says_so(trace: Trace, write_sql: WriteSql) -> None:
    file = write_sql("SELECT list(i) AS x FROM range(30000000) t(i)")
    with pytest.raises(QueryError) as caught:
        run_query(trace, file, memory_limit="60MB")
    assert str(caught.value) == f"{file}: ran out of memory; raise --memory-limit"


@pytest.mark.parametrize("limit", [None, "1GB"])
def test_an_error_in_a_late_row_is_one_line(trace: Trace, write_sql: WriteSql, limit: str | None) -> None:
    file = write_sql("SELECT CASE WHEN i = 900000 THEN error('boom') ELSE 'x' END AS x FROM range(1000000) t(i)")
    with pytest.raises(QueryError) as caught:
        run_query(trace, file, memory_limit=limit)
    assert str(caught.value) == f"{file}: Invalid Input Error: boom"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process here")
def test_what_functions_build_is_limited_in_the_process_of_a_command(trace: Trace, write_sql: WriteSql) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    file = write_sql("SELECT length(repeat('x', 4000000000)) AS n")
    result = run("query", trace.path, file, "--memory-limit", "50MB")
    assert result.stderr == f"tracekit: error: {file}: ran out of memory; raise --memory-limit\n"
    assert result.returncode == 2
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.thorough
def test_a_function_that_does_not_hear_of_its_end_ends_with_its_process(trace: Trace, write_sql: WriteSql) -> None:
    file = write_sql("SELECT list_reduce(range(200000000), lambda a, b: (a * 31 + b) % 1000003) AS x")
    result = run_alone("query", trace.path, file, "--time-limit", "0.2")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"tracekit: error: {file}: no answer within 0.2 s; ask for less, or raise --time-limit\n"
