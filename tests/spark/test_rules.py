"""Each rule of the crossing, by the difference that it is for: Spark's answer with it is DuckDB's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.alike import alike, difference
from tracekit.characterize import answer_query
from tracekit.characterize.query import Query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.characterize.engines import Engine
    from tracekit.trace import Trace

pytestmark = pytest.mark.spark

NUMBERS = (
    "(VALUES ('a', 1, 2.5e0), ('a', 2, NULL), ('b', 3, 7.25e0), ('b', 4, 0.125e0), ('b', NULL, 9e0)) AS t(k, i, x)"
)

CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "percentile": (
        f"SELECT k, quantile_cont(x, 0.25) AS q FROM {NUMBERS} GROUP BY k ORDER BY k",
        [("a", 2.5), ("b", 3.6875)],
    ),
    "percentile of what a filter leaves": (
        "SELECT quantile_cont(x, 0.5) FILTER (WHERE k = 'b') AS q, quantile_cont(x, 0.5) FILTER (WHERE k = 'c') AS n"
        f" FROM {NUMBERS}",
        [(7.25, None)],
    ),
    "percentiles": (f"SELECT len(percentiles(x)) AS n, percentiles(x)[51] AS m FROM {NUMBERS}", [(101, 4.875)]),
    "groups_of_statuses": (
        "SELECT is_failed(s) AS f, is_unsuccessful(s) AS u FROM"
        " (VALUES (1, 'timeout'), (2, 'node_fail'), (3, 'completed'), (4, 'unknown'), (5, NULL)) AS t(i, s) ORDER BY i",
        [(False, True), (True, True), (False, False), (None, None), (None, None)],
    ),
    "list_length": ("SELECT len([3, 4, NULL]) AS n", [(3,)]),
    "microseconds": ("SELECT epoch_us(TIMESTAMP '1970-01-01 00:00:01.5') AS us", [(1_500_000,)]),
    "materialized": ("WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT x FROM a", [(1,)]),
    # A decimal quotient would have six places: 0.206302.
    "division": (
        "SELECT sum(CAST(x AS DECIMAL(38, 6))) / sum(CAST(y AS DECIMAL(38, 6))) AS q, 7 / 2 AS h"
        " FROM (VALUES (0.206302e0, 1.00000173e0)) AS t(x, y)",
        [(0.206302 / 1.000002, 3.5)],
    ),
    "mean_of_decimals": (
        "SELECT avg(CAST(x AS DECIMAL(38, 6))) AS m, avg(CAST(x AS DECIMAL(38, 6))) FILTER (WHERE x > 9) AS n"
        " FROM (VALUES (0.000001e0), (0.000001e0), (0.000002e0)) AS t(x)",
        [(4e-6 / 3, None)],
    ),
    "filtered_window": (
        f"SELECT i, count(*) FILTER (WHERE x > 1) OVER (ORDER BY i) AS n FROM {NUMBERS} WHERE i IS NOT NULL ORDER BY i",
        [(1, 1), (2, 1), (3, 2), (4, 2)],
    ),
    # By (x, i) NULL ranks last, and a NULL that would be chosen is left out.
    "least_by": (
        "SELECT arg_min(k, (x, i)) AS k, arg_min(k, -x) AS l FROM"
        " (VALUES ('never', NULL, 1), (NULL, 1, 1), ('first', 2, 1), ('second', 2, NULL), (NULL, 9, 1), ('last', 8, 1))"
        " AS t(k, x, i)",
        [("first", "last")],
    ),
    "distinct_list": ("SELECT len(list_distinct([1, NULL, 1, 2])) AS n", [(2,)]),
    "product": (
        "SELECT i, product(f) OVER (ORDER BY i ROWS UNBOUNDED PRECEDING) AS p"
        " FROM (VALUES (1, 0.5e0), (2, 0e0), (3, 3e0)) AS t(i, f) ORDER BY i",
        [(1, 0.5), (2, 0.0), (3, 0.0)],
    ),
    "most_frequent": (
        "SELECT mode(w ORDER BY w) AS m FROM (VALUES ('b'), ('a'), ('b'), ('a'), ('c'), (NULL), (NULL), (NULL)) t(w)",
        [("a",)],
    ),
    "formatted": (
        "SELECT printf('%.1f', x) AS w, printf('%,.1f', x) AS k, printf('%d of %,d: 5 %%', 2, 3000) AS d"
        " FROM (VALUES (0.25e0), (0.15e0), (0.35e0), (1e6), (NULL)) AS t(x)",
        [
            ("0.2", "0.2", "2 of 3,000: 5 %"),
            ("0.1", "0.1", "2 of 3,000: 5 %"),
            ("0.3", "0.3", "2 of 3,000: 5 %"),
            ("1000000.0", "1,000,000.0", "2 of 3,000: 5 %"),
            (None, None, "2 of 3,000: 5 %"),
        ],
    ),
    "series": (
        "SELECT unnest(generate_series(a, b)) AS n FROM (VALUES (2, 4), (4, 2), (NULL, 3)) AS t(a, b) ORDER BY n",
        [(2,), (3,), (4,)],
    ),
    "wide_integers": (
        "SELECT CAST(9000000000000000000 AS HUGEINT) * 10 // 7 AS n",
        [(12_857_142_857_142_857_142,)],
    ),
    # 10^6 times 33.4865205 is 33486520.499999996, and times 0.0000005 it is a half; whole and decimal numbers stay.
    "decimal_of_double": (
        "SELECT CAST(sum(CAST(x AS DECIMAL(38, 6))) AS DOUBLE) AS x,"
        " CAST(sum(CAST(i AS DECIMAL(38, 6))) AS DOUBLE) AS i, CAST(sum(CAST(d AS DECIMAL(38, 6))) AS DOUBLE) AS d"
        " FROM (VALUES (33.4865205e0, 7, 1.5), (NULL, 1, 2.25), (0.0000005e0, 1, 0), (-0.0000005e0, 1, 0),"
        " (1e15, 9000000000000000, 0)) AS t(x, i, d) GROUP BY t.x ORDER BY t.x",
        [(-0.000001, 1.0, 0.0), (0.000001, 1.0, 0.0), (33.48652, 7.0, 1.5), (1e15, 9e15, 0.0), (None, 1.0, 2.25)],
    ),
    # What sqlglot and Spark do rightly by themselves, and every answer rests on.
    "integer division": ("SELECT 7 // 2 AS a, -7 // 2 AS b, -7 % 3 AS c", [(3, -3, -1)]),
    "order of nulls": (f"SELECT x FROM {NUMBERS} ORDER BY x DESC", [(9.0,), (7.25,), (2.5,), (0.125,), (None,)]),
    "hours that come twice": (
        "SELECT CAST(extract(HOUR FROM t AT TIME ZONE 'UTC' AT TIME ZONE 'America/Los_Angeles') AS BIGINT) AS h FROM"
        " (VALUES (TIMESTAMP '2017-11-05 08:30:00'), (TIMESTAMP '2017-11-05 09:30:00'),"
        " (TIMESTAMP '2017-11-05 10:30:00')) AS t(t) ORDER BY t",
        [(1,), (1,), (2,)],
    ),
}


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(jobs=[{"job_id": "a"}])


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_duckdb_and_of_paper(name: str, trace: Trace, spark: Engine) -> None:
    sql, rows = CASES[name]
    query = Query.of_text(sql, Path("own"))
    mine, theirs = (answer_query(trace, query, engine=engine).frame for engine in ("duckdb", spark))
    assert difference(mine, theirs) is None
    for found, expected in zip(theirs.rows(), rows, strict=True):
        assert all(alike(a, b) for a, b in zip(found, expected, strict=True)), (found, expected)


def test_an_error_that_the_sql_raises_ends_the_query(trace: Trace, spark: Engine) -> None:
    query = Query.of_text("SELECT CASE WHEN job_id = 'a' THEN error('too large') END AS x FROM jobs", Path("own"))
    with pytest.raises(QueryError, match=r"Spark failed.*too large"):
        answer_query(trace, query, engine=spark)


def test_sql_that_has_no_words_in_spark_is_refused_by_name_and_says_which_engine_runs_it(
    trace: Trace, spark: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "own.sql"
    file.write_text(
        "SELECT quantile_disc(submit_time, 0.5) AS t, list_reduce([1, 2], lambda x, y: x + y) AS s FROM jobs"
    )
    with pytest.raises(QueryError, match=r"own\.sql: Spark cannot run this query: .*; --engine duckdb runs it"):
        answer_query(trace, file, engine=spark)


def test_sql_of_a_sandbox_is_refused(trace: Trace, spark: Engine, tmp_path: Path) -> None:
    file = tmp_path / "own.sql"
    file.write_text("SELECT count(*) AS n FROM jobs")
    with pytest.raises(QueryError, match="runs in the sandbox, which Spark does not have"):
        answer_query(trace, file, sandbox=True, engine=spark)
    found = answer_query(trace, file, engine=spark)
    assert found.frame.rows() == [(1,)]
    assert any("translated to Spark's dialect" in note for note in found.notes)
