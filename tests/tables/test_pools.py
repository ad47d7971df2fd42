"""Partitions with nodes of their own: how they are found, and a Trace that is divided by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis.reporting import report
from tracekit.characterize import run_query
from tracekit.errors import UsageError
from tracekit.tables.pools import ENOUGH_JOBS, FEWEST_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.answer import Row
    from tracekit.report.structure import Report
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]
    Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _few_jobs_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.tables.pools.ENOUGH_JOBS", 1)


def logged(runs: Iterable[tuple[str, str]], cluster: str | None = "c") -> dict[str, Rows]:
    """Return jobs of one GPU that ran for an hour, one after the other, each in a partition and on a node."""
    tables: dict[str, Rows] = {"jobs": [], "attempts": [], "placements": []}
    for n, (partition, node) in enumerate(runs):
        times = {"start_time": f"2024-03-{1 + n // 24:02} {n % 24:02}:00", "run_s": 3600.0}
        times["end_time"] = f"2024-03-{1 + n // 24:02} {n % 24:02}:59"
        name = f"{partition}-{n}"
        own = {"job_id": name, "gpu_count": 1.0}
        job = {**own, **times, "submit_time": times["start_time"], "queue_s": 0.0, "status": "completed"}
        tables["jobs"].append({**job, "cluster": cluster, "partition": partition, "vc": "lab"})
        tables["attempts"].append({**own, **times, "attempt": 0, "wait_s": 0.0, "status": "completed"})
        tables["placements"].append({**own, "attempt": 0, "node_id": node})
    return tables


def nodes(**partitions: list[str] | None) -> Rows:
    return [{"node_id": name, "cluster": "c", "gpu_count": 8, "partitions": own} for name, own in partitions.items()]


def found(trace: Trace) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(pool.name, pool.nodes, pool.divides) for pool in trace.pools]


def test_listed_partitions_without_a_common_node_divide_a_cluster(make_trace: MakeTrace) -> None:
    listed = nodes(a1=["a", "short"], a2=["a"], b1=["b"], b2=["b"])
    trace = make_trace(**logged([("a", "a1"), ("short", "a1"), ("b", "b1")]), nodes=listed)
    assert found(trace) == [("a+short", ("a1", "a2"), True), ("b", ("b1", "b2"), True)]
    assert [pool.observed for pool in trace.pools] == [False, False]
    assert trace.clusters == ("c",)
    divided = trace.divided
    assert divided.clusters == ("a+short", "b")
    assert divided.divided is divided
    with divided.connect() as con:
        assert con.sql("SELECT node_id, cluster FROM nodes ORDER BY ALL").fetchall() == [
            ("a1", "a+short"),
            ("a2", "a+short"),
            ("b1", "b"),
            ("b2", "b"),
        ]
        jobs = con.sql("SELECT job_id, cluster FROM jobs ORDER BY ALL").fetchall()
    assert jobs == [("a-0", "a+short"), ("b-2", "b"), ("short-1", "a+short")]
    assert divided.scan("jobs").select("job_id", "cluster").sort("job_id").collect().rows() == jobs


def test_partitions_that_share_nodes_are_one_pool(make_trace: MakeTrace) -> None:
    listed = nodes(n1=["a", "b"], n2=["b", "c"], n3=["c"])
    trace = make_trace(**logged([("a", "n1"), ("b", "n2"), ("c", "n3")]), nodes=listed)
    assert found(trace) == [("a+b+c", ("n1", "n2", "n3"), False)]
    assert trace.divided is trace


@pytest.mark.parametrize(("runs", "divides"), [(FEWEST_RUNS, True), (FEWEST_RUNS - 1, False)])
def test_observed_partitions_divide_a_cluster_only_after_enough_runs(
    make_trace: MakeTrace, runs: int, divides: bool
) -> None:
    log = logged([("a", "a1")] * runs + [("b", "b1")] * FEWEST_RUNS)
    trace = make_trace(**log)
    assert found(trace) == [("a", ("a1",), divides), ("b", ("b1",), divides)]
    assert all(pool.observed for pool in trace.pools)


@pytest.mark.parametrize(("runs", "divides"), [(ENOUGH_JOBS, True), (ENOUGH_JOBS - 1, False)])
def test_a_log_too_small_for_a_simulation_is_not_divided_but_its_partitions_are_apart(
    make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch, runs: int, divides: bool
) -> None:
    monkeypatch.setattr("tracekit.tables.pools.ENOUGH_JOBS", ENOUGH_JOBS)
    trace = make_trace(**logged([("a", "a1")] * runs + [("b", "b1")]), nodes=nodes(a1=["a"], b1=["b"]))
    assert [(pool.name, pool.apart, pool.divides) for pool in trace.pools] == [
        ("a", True, divides),
        ("b", True, divides),
    ]
    assert trace.window(where={"partition": "b"}).scan("nodes").collect()["node_id"].to_list() == ["b1"]


def test_one_observed_run_on_the_others_node_makes_one_pool(make_trace: MakeTrace) -> None:
    log = logged([("a", "a1")] * 40 + [("b", "b1")] * 40 + [("b", "a1")])
    assert found(make_trace(**log)) == [("a+b", ("a1", "b1"), False)]


def test_the_list_of_machines_counts_more_than_where_a_job_ran(make_trace: MakeTrace) -> None:
    log = logged([("a", "a1")] * 3 + [("b", "b1")] * 3 + [("b", "a1")])
    assert found(make_trace(**log, nodes=nodes(a1=["a"], b1=["b"]))) == [("a", ("a1",), True), ("b", ("b1",), True)]


def test_a_waiting_job_belongs_to_the_first_partition_that_it_lists(make_trace: MakeTrace) -> None:
    log = logged([("a", "a1"), ("b", "b1")])
    log["jobs"].append({**log["jobs"][0], "job_id": "waits", "partition": "b,a", "start_time": None, "end_time": None})
    log["jobs"].append({**log["jobs"][0], "job_id": "nowhere", "partition": None})
    divided = make_trace(**log, nodes=nodes(a1=["a"], b1=["b"])).divided
    clusters = dict(divided.scan("jobs").select("job_id", "cluster").collect().iter_rows())
    assert clusters == {"a-0": "a", "b-1": "b", "waits": "b", "nowhere": "c"}


def test_pools_of_several_clusters_begin_with_the_cluster(make_trace: MakeTrace) -> None:
    one, other = logged([("a", "a1"), ("b", "b1")]), logged([("a", "x1"), ("a", "x2")], "d")
    for rows in other["jobs"] + other["attempts"] + other["placements"]:
        rows["job_id"] = f"d/{rows['job_id']}"
    log = {table: one[table] + other[table] for table in one}
    elsewhere = [{"node_id": name, "cluster": "d", "gpu_count": 8, "partitions": ["a"]} for name in ("x1", "x2")]
    trace = make_trace(**log, nodes=nodes(a1=["a"], b1=["b"]) + elsewhere)
    assert found(trace) == [("c/a", ("a1",), True), ("c/b", ("b1",), True), ("d/a", ("x1", "x2"), False)]
    assert trace.divided.clusters == ("c/a", "c/b", "d")


def test_a_log_without_partitions_or_jobs_has_no_pools(make_trace: MakeTrace) -> None:
    log = logged([("a", "a1")] * 3)
    assert make_trace(**log).pools == ()
    assert make_trace(nodes=nodes(a1=["a"], b1=["b"])).pools == ()


def test_jobs_of_one_partition_come_with_its_own_nodes(make_trace: MakeTrace) -> None:
    listed = nodes(a1=["a"], b1=["b"], b2=["b"])
    events = [{"node_id": name, "start_time": "2024-03-01", "state": "down"} for name in ("a1", "b1")]
    quota = [{"time": "2024-03-01", "cluster": "c", "gpu_count": 24.0}]
    trace = make_trace(**logged([("a", "a1"), ("b", "b1")]), nodes=listed, node_events=events, capacity=quota)
    for part in (trace.window(where={"partition": "b"}), trace.window(cluster="b")):
        with part.connect() as con:
            for table, names in (("jobs", ["b-1"]), ("placements", ["b-1"])):
                assert [row[0] for row in con.sql(f"SELECT job_id FROM {table}").fetchall()] == names
            for table, names in (("nodes", ["b1", "b2"]), ("node_events", ["b1"])):
                assert [row[0] for row in con.sql(f"SELECT node_id FROM {table} ORDER BY 1").fetchall()] == names
                assert sorted(part.scan(table).collect()["node_id"]) == names
            assert con.sql("FROM capacity").fetchall() == []
        assert part.scan("capacity").collect().is_empty()
        (note,) = part.notes
        assert note.endswith("capacity: the partition's own 2 nodes")
    with pytest.raises(UsageError, match="no cluster 'd'"):
        trace.window(cluster="d")


def test_other_jobs_may_use_the_nodes_of_a_shared_partition(make_trace: MakeTrace) -> None:
    trace = make_trace(**logged([("a", "n1"), ("b", "n2")]), nodes=nodes(n1=["a", "b"], n2=["b"]))
    part = trace.window(where={"partition": "a"})
    assert part.scan("nodes").collect()["node_id"].to_list() == ["n1"]
    assert any("count as free" in note for note in part.notes)


def test_a_full_partition_next_to_an_idle_one_has_no_free_gpu_for_its_jobs(make_trace: MakeTrace) -> None:
    # Each job of h has the only node of h for an hour; all are submitted at once. Node a1 is always free.
    log = logged([("h", "h1")] * 4 + [("a", "a1")])
    for n, (job, run, place) in enumerate(zip(log["jobs"], log["attempts"], log["placements"], strict=True)):
        for row in (job, run, place):
            row["gpu_count"] = 8.0
        if n < 4:
            job |= {"submit_time": "2024-03-01 00:00", "queue_s": 3600.0 * n}
            run |= {"wait_s": 3600.0 * n, "end_time": f"2024-03-01 {n + 1:02}:00"}
            job["end_time"] = run["end_time"]
    trace = make_trace(**log, nodes=nodes(h1=["h"], a1=["a"]))
    (row,) = run_query(trace, "queuing/delay_causes", quota="capacity").to_dicts()
    assert (row["waits"], row["wait_s"], row["fragmentation_wait_s"]) == (3, 21_600.0, 21_600.0)
    rows = run_query(trace, "queuing/cluster_timeline", step_s=3600).to_dicts()
    assert {(r["cluster"], r["capacity_gpus"]) for r in rows} == {("a", 8.0), ("h", 8.0)}
    summary = dict(run_query(trace, "overview/summary").select("metric", "value").iter_rows())
    assert (summary["clusters"], summary["pools"], summary["vcs"]) == (1, 2, 1)


def test_a_free_node_outside_a_jobs_partition_is_of_no_use_to_it(make_trace: MakeTrace) -> None:
    # Partition s has node n1 only, which partition t has as well. Node n2 is free, and t's job could have run there.
    log = logged([("s", "n1"), ("s", "n1"), ("t", "n1")])
    for n, (job, run, place) in enumerate(zip(log["jobs"], log["attempts"], log["placements"], strict=True)):
        for row in (job, run, place):
            row["gpu_count"] = 8.0
        job |= {"submit_time": "2024-03-01 00:00", "queue_s": 3600.0 * n}
        run |= {"wait_s": 3600.0 * n, "end_time": f"2024-03-01 {n + 1:02}:00"}
        job["end_time"] = run["end_time"]
    trace = make_trace(**log, nodes=nodes(n1=["s", "t"], n2=["t"]))
    causes = trace.path.parent / "causes.sql"
    causes.write_text("SELECT job_id, fragmentation_us / 3600000000, other_us / 3600000000 FROM wait_causes ORDER BY 1")
    assert run_query(trace, causes, quota="capacity").rows() == [("s-0", 0, 0), ("s-1", 1, 0), ("t-2", 0, 2)]


def test_a_report_of_one_pool_covers_its_jobs_and_nodes(make_trace: MakeTrace) -> None:
    trace = make_trace(**logged([("a", "a1"), ("b", "b1")] * 3), nodes=nodes(a1=["a"], b1=["b"], b2=["b"]))
    data = report(trace.window(cluster="b")).data
    assert data["source"]["clusters"] == ["c"]
    assert data["capacity"]["gpus"] == 16
    (jobs,) = (row["value"] for row in rows_of(data, "overview/summary") if row["metric"] == "jobs")
    assert jobs == 3


def rows_of(data: Report, name: str) -> list[Row]:
    (answer,) = (answer for section in data["sections"] for answer in section["answers"] if answer["name"] == name)
    return answer["rows"]
