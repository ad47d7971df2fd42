"""SQL in the sandbox reads the tables of its Trace, and no file, network, extension or variable beside."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.command import run
from tracekit.characterize import list_queries
from tracekit.characterize.run import answer_query, lacks, lock, run_query
from tracekit.errors import QueryError, TracekitError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOBS = [{"job_id": "a"}, {"job_id": "b"}]


@pytest.fixture
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(jobs=JOBS)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text("word\nxyzzy\n")
    return path


def asked(trace: Trace, folder: Path, sql: str, *, sandbox: bool | None = None) -> list[tuple[object, ...]]:
    file = folder / "mine.sql"
    file.write_text(sql)
    return run_query(trace, file, sandbox=sandbox).rows()


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{secret}')",
        "'{secret}'",
        "read_text('{secret}')",
        "read_blob('{secret}')",
        "sniff_csv('{secret}')",
        "glob('{folder}/*')",
        "read_parquet('{other}/jobs.parquet')",
        "'{other}/jobs.parquet'",
        "parquet_metadata('{other}/jobs.parquet')",
    ],
)
def test_files_are_read_outside_of_it_only(
    trace: Trace, make_trace: Callable[..., Trace], secret: Path, source: str
) -> None:
    other = make_trace(jobs=[{"job_id": "of another"}]).path
    sql = f"SELECT * FROM {source.format(secret=secret, folder=secret.parent, other=other)}"
    assert asked(trace, secret.parent, sql)
    with pytest.raises(QueryError, match=r"mine\.sql.*[Pp]ermission|does not exist") as caught:
        asked(trace, secret.parent, sql, sandbox=True)
    assert "\n" not in str(caught.value)
    assert "xyzzy" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("COPY jobs TO '{folder}/out.csv'", "no SELECT"),
        ("ATTACH '{folder}/new.db'", "no SELECT"),
        ("INSTALL httpfs", "no SELECT"),
        ("LOAD httpfs", "no SELECT"),
        ("SET enable_external_access = true", "no SELECT"),
        ("SELECT getenv('HOME')", "getenv"),
        ("SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')", "127.0.0.1"),
        ("SELECT * FROM name_of_a_variable", "name_of_a_variable"),
    ],
)
def test_everything_else_is_refused_in_one_line(trace: Trace, tmp_path: Path, sql: str, said: str) -> None:
    name_of_a_variable = trace.scan("jobs").collect()
    file = tmp_path / "mine.sql"
    file.write_text(sql.format(folder=tmp_path))
    before = sorted(tmp_path.iterdir())
    result = run("query", trace.path, file, "--sandbox")
    assert result.returncode == 2, name_of_a_variable
    assert result.stderr.startswith("tracekit: error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "statement",
    [
        "COPY jobs TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{trace}/out.csv'",
        "ATTACH '{folder}/new.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_directories = ['/']",
        "RESET enable_external_access",
        "CREATE TABLE t AS SELECT * FROM read_text('{folder}/secret.csv')",
    ],
)
def test_a_locked_connection_stands_every_statement(trace: Trace, secret: Path, statement: str) -> None:
    with trace.connect() as con:
        lock(con, trace)
        with pytest.raises(duckdb.Error):
            con.execute(statement.format(folder=secret.parent, trace=trace.path))
        assert con.sql("SELECT count(*) FROM jobs").fetchall() == [(2,)]
    assert [path.name for path in secret.parent.iterdir()] == ["secret.csv"]


def test_a_variable_of_the_program_is_not_a_table(trace: Trace) -> None:
    words = trace.scan("jobs").collect()
    with trace.connect() as con:
        assert con.sql("SELECT count(*) FROM words").fetchall() == [(len(words),)]
        lock(con, trace)
        with pytest.raises(duckdb.CatalogException, match="words"):
            con.sql("SELECT count(*) FROM words")


def test_the_tables_the_views_and_the_sweeps_are_there(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT count(*), (SELECT count(*) FROM trace_tables) FROM jobs"
    assert asked(trace, tmp_path, sql, sandbox=True) == [(2, 1)]
    # A path may lead there in any way.
    monkeypatch.chdir(trace.path.parent)
    assert asked(Trace.open(trace.path.name), tmp_path, sql, sandbox=True) == [(2, 1)]
    (tmp_path / "it's a link").symlink_to(trace.path)
    assert asked(Trace.open(tmp_path / "it's a link"), tmp_path, sql, sandbox=True) == [(2, 1)]


@pytest.mark.parametrize(
    ("name", "every"),
    [("slurm", 8), *(pytest.param(name, 1, marks=pytest.mark.thorough) for name in ("philly", "slurm"))],
)
def test_shipped_queries_answer_in_it_as_outside(sample_trace: Callable[[str], Trace], name: str, every: int) -> None:
    trace = sample_trace(name)
    for query in list_queries()[::every]:
        # What one trace answers need not be asked of two.
        if lacks(query, trace) or (name == "slurm" and every == 1 and not lacks(query, sample_trace("philly"))):
            continue
        try:
            outside = run_query(trace, query.name)
        except TracekitError:
            continue  # a parameter that has no default
        assert run_query(trace, query.name, sandbox=True).equals(outside), query.name


def test_sql_that_came_with_a_trace_runs_in_it(trace: Trace, make_trace: Callable[..., Trace], secret: Path) -> None:
    sql = f"SELECT * FROM read_csv('{secret}')"
    shared = make_trace(jobs=JOBS).path
    (shared / "queries").mkdir()
    for folder in (shared, shared / "queries"):
        inside = folder / "theirs.sql"
        inside.write_text(sql)
        # It is the other's, whatever Trace it is asked of, and by whatever name.
        for asked_of in (trace, Trace.open(shared)):
            with pytest.raises(QueryError, match="sandbox"):
                answer_query(asked_of, inside)
        link = secret.parent / "link.sql"
        link.unlink(missing_ok=True)
        link.symlink_to(inside)
        with pytest.raises(QueryError, match="sandbox"):
            answer_query(trace, link)
        assert answer_query(trace, inside, sandbox=False).frame.rows() == [("xyzzy",)]
    mine = secret.parent / "mine.sql"
    shutil.copyfile(inside, mine)
    assert answer_query(trace, mine).frame.rows() == [("xyzzy",)]
