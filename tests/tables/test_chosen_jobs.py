"""Some jobs of a Trace alone, by user, size and the like: which rows are left, and what cannot be asked."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.command import run
from tracekit.analysis.reporting import report
from tracekit.characterize import answer_query, list_views
from tracekit.characterize.session import STATUS_MACROS
from tracekit.errors import UsageError
from tracekit.ingest import ingest_logs
from tracekit.tables.window import SIZES, WHERE, chosen_jobs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

HOSTILE = "o'<script>\\"


def job(name: str, gpus: float | None, hour: int, **facts: Any) -> dict[str, Any]:
    times = {"submit_time": f"2020-01-01 {hour:02}:00", "start_time": f"2020-01-01 {hour:02}:30",
             "end_time": f"2020-01-01 {hour + 2:02}:30", "queue_s": 1800.0, "run_s": 7200.0}  # fmt: skip
    return {"job_id": name, "cluster": "A", "status": "completed", "gpu_count": gpus, **times, **facts}


JOBS = [
    job("a", 1, 1, user="alice", vc="ml", account="lab", partition="p", qos="high", gpu_model="V100"),
    job("b", 2, 2, user="alice", vc="ml", account="firm", partition="q", qos="low", gpu_model="T4"),
    job("c", 4, 3, user="bob", vc="db", account="lab", partition="p", qos="low", gpu_model="V100", cluster="B"),
    job("d", 8, 4, user=HOSTILE, vc="db", account="firm", partition="p", qos="high"),
    job("e", 0.5, 5, user="bob", vc="ml"),
    job("f", 9, 6, user=None, vc="ml"),
    job("g", 0, 7, user="bob"),
    job("h", None, 8, user="alice"),
    job("i", 4.5, 9, user="carol"),
]
TABLES: dict[str, list[dict[str, Any]]] = {
    "jobs": JOBS,
    "attempts": [
        {"job_id": j["job_id"], "attempt": 0, **{k: j[k] for k in ("start_time", "end_time", "run_s", "gpu_count")}}
        for j in JOBS
    ],
    "placements": [
        {"job_id": "a", "attempt": 0, "node_id": "n1", "gpu_index": [0], "gpu_count": 1},
        {"job_id": "c", "attempt": 0, "node_id": "n2", "gpu_index": [0, 1, 2, 3], "gpu_count": 4},
    ],
    "nodes": [{"node_id": "n1", "cluster": "A", "gpu_count": 8}, {"node_id": "n2", "cluster": "B", "gpu_count": 8}],
    "capacity": [{"time": "2019-12-01", "cluster": c, "gpu_count": 8} for c in "AB"],
    "gpu_utilization": [{"time": "2020-01-01 02:00", "node_id": n, "gpu_index": 0, "utilization_pct": 9.0}
                        for n in ("n1", "n2")],
    "node_events": [{"node_id": "n1", "start_time": "2020-01-01 00:00", "state": "down"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def layouts(make_trace: Callable[..., Trace], tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """Return the same Trace with its tables as files and in partitions."""
    plain = make_trace(**TABLES)
    return plain, ingest_logs(plain.path, tmp_path_factory.mktemp("parts") / "parts", partition="day")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"user": "alice"}, "abh"),
        ({"user": HOSTILE}, "d"),
        ({"vc": "ml"}, "abef"),
        ({"account": "lab"}, "ac"),
        ({"partition": "p"}, "acd"),
        ({"qos": "low"}, "bc"),
        ({"gpu_model": "V100"}, "ac"),
        ({"size": "0"}, "g"),
        ({"size": "<1"}, "e"),
        ({"size": "1"}, "a"),
        ({"size": "2-4"}, "bc"),
        ({"size": "5-8"}, "di"),
        ({"size": ">8"}, "f"),
        ({"user": "alice", "size": "2-4"}, "b"),
        ({"user": "bob", "vc": "ml", "size": "1"}, ""),
        ({}, "abcdefghi"),
    ],
)
def test_only_the_jobs_with_these_values_are_left_and_the_cluster_stays_whole(
    layouts: tuple[Trace, Trace], where: dict[str, str], expected: str
) -> None:
    for trace in layouts:
        part = trace.window(where=where)
        placed = [name for name in "ac" if name in expected]
        with part.connect() as con:
            for table, names in (("jobs", list(expected)), ("attempts", list(expected)), ("placements", placed)):
                assert sorted(part.scan(table).collect()["job_id"].to_list()) == names
                assert con.sql(f"SELECT job_id FROM {table} ORDER BY ALL").fetchall() == [(name,) for name in names]
            for table in ("nodes", "capacity", "gpu_utilization", "node_events"):
                assert con.sql(f"FROM {table}").fetchall() != []
                assert part.scan(table).collect().height == len(TABLES[table])


def test_time_cluster_and_values_hold_together(layouts: tuple[Trace, Trace]) -> None:
    begin = dt.datetime(2020, 1, 1, 2)
    asked = "from 2020-01-01 02:00:00 UTC on, before 2020-01-01 08:00:00 UTC, in the cluster A and with user bob"
    for trace in layouts:
        part = trace.window(begin, begin + dt.timedelta(hours=6), "A", {"user": "bob"})
        assert part.scan("jobs").collect()["job_id"].to_list() == ["e", "g"]
        assert part.scan("nodes").collect()["node_id"].to_list() == ["n1"]
        assert part.notes == (
            f"only jobs submitted {asked}, with all rows that belong to them",
            "GPUs allocated to other jobs count as free, because only these jobs were selected",
        )


def test_a_value_that_only_another_day_has_leaves_nothing_and_is_not_an_error(layouts: tuple[Trace, Trace]) -> None:
    for trace in layouts:
        part = trace.window(start=dt.datetime(2021, 1, 1), where={"user": "alice"})
        assert part.scan("jobs").collect().height == 0


def test_partitions_of_other_days_are_not_opened_for_a_value(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    later = {"submit_time": "2020-01-02 00:00", "job_id": "z", "cluster": "A", "user": "alice"}
    plain = make_trace(jobs=[*JOBS, later])
    parts = ingest_logs(plain.path, tmp_path / "parts", partition="day")
    for path in parts.path.rglob("day=2020-01-02/*.parquet"):
        path.write_bytes(b"nothing that can be read")
    part = parts.window(end=dt.datetime(2020, 1, 2), where={"user": "alice"})
    assert part.scan("jobs").collect()["job_id"].to_list() == ["a", "b", "h"]


def test_sizes_are_the_classes_of_the_queries(layouts: tuple[Trace, Trace]) -> None:
    view = next(view.sql for view in list_views() if view.name == "job_classes")
    trace = layouts[0]
    with trace.connect() as con:
        con.execute(STATUS_MACROS["is_unsuccessful"])
        for size in SIZES:
            expected = con.execute(
                f"SELECT job_id FROM ({view}) WHERE gpu_class = $size ORDER BY ALL", {"size": size}
            ).fetchall()
            got = trace.window(where={"size": size}).scan("jobs").collect()["job_id"].sort().to_list()
            assert got == [name for (name,) in expected] != []


def test_an_answer_about_some_jobs_is_that_of_plain_sql(layouts: tuple[Trace, Trace]) -> None:
    alone = "SELECT gpu_class, count(*) FROM job_classes WHERE \"user\" = 'alice' AND gpu_count > 0 GROUP BY ALL"
    view = next(view.sql for view in list_views() if view.name == "job_classes")
    for trace in layouts:
        answer = answer_query(trace.window(where={"user": "alice"}), "overview/job_size")
        shown = (
            answer.frame.filter(pl.col("gpu_class").is_not_null() & (pl.col("jobs") > 0))
            .select("gpu_class", "jobs")
            .rows()
        )
        with trace.connect() as con:
            con.execute(STATUS_MACROS["is_unsuccessful"])
            con.execute(f"CREATE VIEW job_classes AS {view}")
            assert sorted(shown) == sorted(con.sql(alone).fetchall()) == [("1", 1), ("2-4", 1)]
        assert "only jobs with user alice, with all rows that belong to them" in answer.notes


def test_the_tenant_of_a_trace_by_another_column_is_that_column(layouts: tuple[Trace, Trace]) -> None:
    by_account = layouts[0].by("account")
    part = by_account.window(where={"vc": "lab"})
    assert part.scan("jobs").collect()["job_id"].to_list() == ["a", "c"]
    assert part.by("vc").scan("jobs").collect()["vc"].to_list() == ["ml", "db"]
    with pytest.raises(UsageError, match="no job has two values of account, which is the tenant"):
        by_account.window(where={"vc": "lab", "account": "firm"})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"usr": "alice"}, "--where: jobs cannot be selected by 'usr'; did you mean 'user'?"),
        ({"job_id": "a"}, f"--where: jobs cannot be selected by 'job_id'; choose one of: {', '.join(sorted(WHERE))}"),
        ({"size": "3"}, "--where: '3' is not a size class; choose one of: 0, <1, 1, 2-4, 5-8, >8"),
        ({"user": "alicia"}, "--where: no job of the trace has the user 'alicia'; did you mean 'alice'?"),
        ({"account": "x"}, "--where: no job of the trace has the account 'x'; it has firm, lab"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_line_with_what_is_known(
    layouts: tuple[Trace, Trace], where: dict[str, str], said: str
) -> None:
    for trace in layouts:
        with pytest.raises(UsageError) as found:
            trace.window(where=where)
        assert str(found.value) == said
        words = [word for name, value in where.items() for word in ("--where", f"{name}={value}")]
        shown = run("query", trace.path, "queuing/run_time", *words)
        assert shown.returncode == 2
        assert shown.stderr.strip().removeprefix("tracekit: error: ") == said


def test_an_error_lists_at_most_ten_of_many_values(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": str(n), "user": f"u{n:02}"} for n in range(12)])
    with pytest.raises(UsageError, match=r"it has u00, u01, .*, u09 and 2 more$"):
        trace.window(where={"user": "somebody"})
    with pytest.raises(UsageError, match=r"it has no job with a known vc$"):
        trace.window(where={"vc": "somebody"})


def test_the_command_asks_about_some_jobs(layouts: tuple[Trace, Trace]) -> None:
    for trace in layouts:
        shown = run("query", trace.path, "overview/status", "--where", "user=alice", "--where", "size=1", "-f", "csv")
        assert shown.returncode == 0
        assert "note: only jobs with user alice and size 1, with all rows that belong to them\n" in shown.stderr
        assert "completed,1," in shown.stdout


NAMES = st.text(max_size=20).filter(lambda name: "\0" not in name)


USERS = st.lists(NAMES, min_size=1, max_size=5, unique=True)


@given(USERS)
@example([HOSTILE, "' OR 1=1 --", "$user", ""])
@settings(max_examples=3)
def test_a_value_may_be_any_text_and_is_never_sql(make_trace: Callable[..., Trace], users: list[str]) -> None:
    assert_each_finds_its_jobs(make_trace, users)


@pytest.mark.thorough
@given(USERS)
def test_many_values_may_be_any_text(make_trace: Callable[..., Trace], users: list[str]) -> None:
    assert_each_finds_its_jobs(make_trace, users)


def assert_each_finds_its_jobs(make_trace: Callable[..., Trace], users: list[str]) -> None:
    trace = make_trace(jobs=[{"job_id": str(n), "user": user} for n, user in enumerate(users)])
    for number, user in enumerate(users):
        part = trace.window(where={"user": user})
        assert part.scan("jobs").collect()["job_id"].to_list() == [str(number)]
        with part.connect() as con:
            assert con.sql("SELECT job_id FROM jobs").fetchall() == [(str(number),)]


@given(st.dictionaries(st.sampled_from([name for name in WHERE if name != "size"]), st.text(max_size=5)))
def test_conditions_have_one_order(where: dict[str, str]) -> None:
    assert chosen_jobs(where) == chosen_jobs(dict(reversed(where.items())))


def test_no_report_is_made_of_some_jobs_of_a_cluster(layouts: tuple[Trace, Trace]) -> None:
    with pytest.raises(
        UsageError, match=r"a report needs all jobs of a cluster, but the Trace has only jobs with user a"
    ):
        report(layouts[0].window(where={"user": "alice"}))
