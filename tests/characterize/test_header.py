"""The header of an SQL file, and what is said when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.answer import AnswerColumn, Interval, Param
from tracekit.characterize import Query, find_query, list_queries
from tracekit.characterize.query import QUERY_PARTS, USER_PARTS, parse_query
from tracekit.errors import QueryError

WHOLE = """\
-- title: Run time: by job size
-- question: How long do jobs run?
-- paper: Philly Fig 2
-- tables: jobs, attempts
-- also: nodes
-- needs: run_time, gpu_count
-- param least: 0 | smallest job, in GPUs
-- param share: .5 | a share
-- param vc: all | tenant
-- param mode: clean {clean, notebook} | the rule
-- column gpu_class: class | size | class
-- column mean_s: s | mean
-- rule:
-- First line: with a colon.
--
-- Last line.
SELECT 1 -- title: not this
"""


def parse(text: str, parts: tuple[str, ...] = QUERY_PARTS) -> Query:
    return parse_query(text, Path("q.sql"), name="q", parts=parts)


def test_a_header_gives_all_its_parts() -> None:
    query = parse_query(WHOLE, Path("q.sql"), name="group/q", parts=QUERY_PARTS)
    assert (query.name, query.title, query.question) == ("group/q", "Run time: by job size", "How long do jobs run?")
    assert (query.paper, query.tables, query.also) == ("Philly Fig 2", ("jobs", "attempts"), ("nodes",))
    assert query.needs == ("run_time", "gpu_count")
    assert query.params == (
        Param("least", 0, "smallest job, in GPUs"),
        Param("share", 0.5, "a share"),
        Param("vc", "all", "tenant"),
        Param("mode", "clean", "the rule", ("clean", "notebook")),
    )
    assert query.columns == (AnswerColumn("gpu_class", "class", "size | class"), AnswerColumn("mean_s", "s", "mean"))
    assert query.rule == "First line: with a colon.\n\nLast line."
    assert query.sql == WHOLE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-- paper: Philly Fig 2", "-- papr: x", "q.sql, line 3: unknown header key 'papr'; did you mean 'paper'?"),
        ("-- paper: Philly Fig 2", "-- just words", "q.sql, line 3: not a header line"),
        ("-- paper: Philly Fig 2", "-- title: again", "q.sql, line 3: the header has 'title' twice"),
        ("-- paper: Philly Fig 2", "-- paper:", "q.sql, line 3: the header's 'paper' is empty"),
        ("-- paper: Philly Fig 2\n", "", "q.sql, line 1: the header lacks 'paper'"),
        ("-- paper: Philly", "-- paper of: Philly", "q.sql, line 3: misshapen 'paper' line"),
        ("-- column mean_s:", "-- column:", "q.sql, line 12: misshapen 'column' line"),
        ("-- tables: jobs", "-- tables: jops", "q.sql, line 4: 'jops' is unknown to 'tables'; did you mean 'jobs'?"),
        ("run_time, gpu_count", "runtime", "q.sql, line 6: 'runtime' is unknown to 'needs'; did you mean 'run_time'?"),
        ("0 | smallest job, in GPUs", "0", "q.sql, line 7: malformed param 'least'"),
        ("-- param least: 0 |", "-- param least: |", "q.sql, line 7: malformed param 'least'"),
        ("param least", "param 1st", "q.sql, line 7: '1st' cannot name a parameter"),
        ("param least", "param timezone", "q.sql, line 7: 'timezone' cannot name a parameter"),
        ("param share", "param least", "q.sql, line 8: the header has the param 'least' twice"),
        ("clean {", "dirty {", "q.sql, line 10: the default 'dirty' of 'mode' is not one of its choices"),
        ("s | mean", "mean", "q.sql, line 12: malformed column 'mean_s'"),
        ("-- rule:", "-- interval mean_s: median\n-- rule:", "q.sql, line 13: misshapen interval 'mean_s'"),
        ("-- rule:", "-- interval p: median of mean_s\n-- rule:", "q.sql, line 13: the interval names 'p', which is"),
        ("-- rule:", "-- interval mean_s: median of n\n-- rule:", "q.sql, line 13: the interval names 'n', which is"),
        ("column mean_s", "column gpu_class", "q.sql, line 12: the header has the column 'gpu_class' twice"),
    ],
)
def test_a_wrong_header_is_named_by_file_and_line(old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(QueryError) as caught:
        parse(WHOLE.replace(old, new, 1))
    assert str(caught.value).startswith(message)


def test_intervals_name_their_column_method_and_count() -> None:
    query = parse(WHOLE.replace("-- rule:", "-- interval mean_s: proportion of all gpu_class\n-- rule:", 1))
    assert query.intervals == (Interval("mean_s", "proportion", "gpu_class", pooled=True),)


def test_a_user_file_needs_no_header() -> None:
    query = parse_query("-- my notes\n-- more\nSELECT 1", Path("q.sql"), name="q", parts=USER_PARTS)
    assert (query.described, query.title, query.columns) == (False, "", ())


def test_a_user_file_that_opens_with_a_title_has_a_header() -> None:
    query = parse_query("\n-- title: Mine\nSELECT 1", Path("q.sql"), name="q", parts=USER_PARTS)
    assert (query.described, query.title) == (True, "Mine")
    with pytest.raises(QueryError, match="line 2: not a header line"):
        parse("-- title: Mine\n-- more\nSELECT 1", USER_PARTS)


def test_shipped_queries_are_described_and_named_by_place() -> None:
    queries = list_queries()
    assert [q.name for q in queries] == sorted(q.name for q in queries)
    for query in queries:
        assert query.path.as_posix().endswith(f"queries/{query.name}.sql")
        assert query.question.endswith("?")
        assert query.rule
        assert not query.views, "a query sees all views"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(QueryError, match="no query 'queuing/runtime'; did you mean 'queuing/run_time'"):
        find_query("queuing/runtime")
    with pytest.raises(QueryError, match="did you mean 'queuing/run_time'"):
        find_query("run_time")
    with pytest.raises(QueryError, match="no query 'views/waits'"):
        find_query("views/waits")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"none\.sql: cannot read the query: No such file"):
        find_query(str(tmp_path / "none.sql"))
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(QueryError, match=r"binary\.sql: is not UTF-8 text"):
        find_query(tmp_path / "binary.sql")
    (tmp_path / "huge.sql").write_bytes(b" " * (1 << 21))
    with pytest.raises(QueryError, match=r"huge\.sql: is too large"):
        find_query(tmp_path / "huge.sql")
