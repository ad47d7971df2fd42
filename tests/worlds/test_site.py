"""The site simulator, on schedules worked by hand and against the laws of any schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import tracekit
from tests.worlds.kinds import DAYS, KNOWN, OUTSIDE, make_long_site, make_site
from tests.worlds.site import Job, Limit, Node, Outage, Reservation, Rules, Run, Site, changed, simulate, with_nodes
from tests.worlds.slurm_dump import START, write_logs

if TYPE_CHECKING:
    from pathlib import Path


def job(number: int, submit: int, run: int, gpus: int, limit: int | None = None, **more: object) -> Job:
    asked = {"user": "ann", "account": "vision", "partition": "gpu", **more}
    return Job(number, submit, run, limit or run, gpus=gpus, **asked)  # type: ignore[arg-type]  # the fields of a Job


def site(*jobs: Job, nodes: int = 1, rules: Rules | None = None, **more: object) -> Site:
    machines = [Node(f"n{k}", 8, 16, 100, ("gpu",)) for k in range(nodes)]
    return Site(machines, list(jobs), rules or Rules(), **more)  # type: ignore[arg-type]  # the fields of a Site


def starts(of: Site) -> list[int]:
    return [runs[0].start for runs in simulate(of)]


FULL = job(1, 0, 100, 6)
"""Leaves two GPUs of a node until 100 s."""


@pytest.mark.parametrize(
    ("backfill", "expected"),
    [
        ("strict", [0, 100, 200, 200]),  # the third and fourth wait behind the second
        ("passing", [0, 110, 2, 3]),  # both pass; the third keeps the second from starting at 100
        ("easy", [0, 100, 200, 3]),  # the third would end after 100 s, the second's promise; the fourth ends before
    ],
)
def test_later_jobs_start_first_as_the_rule_allows(backfill: str, expected: list[int]) -> None:
    jobs = FULL, job(2, 1, 100, 8), job(3, 2, 108, 1), job(4, 3, 50, 1)
    assert starts(site(*jobs, rules=Rules(backfill=backfill))) == expected


def test_easy_lets_a_long_job_use_what_the_promise_leaves() -> None:
    jobs = FULL, job(2, 1, 100, 4), job(3, 2, 500, 2), job(4, 3, 500, 2)
    # At 100 s eight GPUs are free, four are promised; of the others two are left after job 3.
    assert starts(site(*jobs, rules=Rules(backfill="easy"))) == [0, 100, 2, 100]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("arrival", [0, 100, 200, 300]), ("shortest", [0, 300, 100, 200]), ("fair", [0, 100, 300, 200])],
)
def test_the_order_decides_who_is_next(order: str, expected: list[int]) -> None:
    jobs = (
        job(1, 0, 100, 8),
        job(2, 1, 100, 8, limit=900, user="bob"),
        job(3, 2, 100, 8, limit=300),
        job(4, 3, 100, 8, limit=600, user="cy"),
    )
    if order == "fair":  # ann runs on a GPU of the other node all the time
        other = job(5, 0, 1000, 1, cpus=16)
        assert starts(site(*jobs, other, nodes=2, rules=Rules(order=order))) == [0, 100, 300, 200, 0]
    else:
        assert starts(site(*jobs, rules=Rules(order=order, backfill="strict"))) == expected


def test_partitions_share_their_common_nodes_and_tiers_are_served_first() -> None:
    nodes = [Node("a", 8, 16, 100, ("gpu",)), Node("b", 8, 16, 100, ("gpu", "rush"))]
    jobs = [job(1, 0, 100, 8), job(2, 0, 200, 8), job(3, 1, 10, 8), job(4, 2, 10, 8, partition="rush")]
    planted = Site(nodes, jobs, Rules(tiers={"rush": 10}))
    assert simulate(planted) == [
        [Run(0, 100, (0,), "completed")],
        [Run(0, 200, (1,), "completed")],
        [Run(100, 110, (0,), "completed")],
        [Run(200, 210, (1,), "completed")],
    ]


def test_cpus_and_memory_bind_as_gpus_do() -> None:
    jobs = job(1, 0, 100, 1, cpus=10), job(2, 1, 10, 1, cpus=7), job(3, 2, 10, 0, cpus=6), job(4, 3, 10, 1, memory=100)
    assert starts(site(*jobs)) == [0, 100, 2, 110]


def test_a_gang_takes_its_share_on_each_node() -> None:
    jobs = job(1, 0, 100, 1), job(2, 1, 10, 16, nodes=2), job(3, 2, 10, 8)
    assert simulate(site(*jobs, nodes=2, rules=Rules(backfill="strict")))[1:] == [
        [Run(100, 110, (0, 1), "completed")],
        [Run(110, 120, (0,), "completed")],
    ]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit("gpus", "user", 2), [0, 100, 2]),
        (Limit("gpus", "user", 2, only="bob"), [0, 1, 2]),
        (Limit("jobs", "user", 1), [0, 100, 2]),
        (Limit("jobs", "account", 1), [0, 100, 200]),
        (Limit("gpus", "partition", 3, partition="gpu"), [0, 100, 2]),
    ],
)
def test_a_job_at_a_limit_waits_and_blocks_nobody(limit: Limit, expected: list[int]) -> None:
    jobs = job(1, 0, 100, 2), job(2, 1, 100, 2), job(3, 2, 500, 1, user="bob")
    assert starts(site(*jobs, rules=Rules(backfill="strict", limits=(limit,)))) == expected


def test_an_array_has_its_throttle() -> None:
    tasks = [job(k, 0, 100, 1, array=1, array_most=2) for k in range(1, 5)]
    assert starts(site(*tasks, job(9, 1, 10, 1))) == [0, 0, 100, 100, 1]


def test_no_job_runs_into_a_reservation_of_others() -> None:
    kept = Reservation(100, 200, (0,), "bio")
    jobs = job(1, 0, 50, 1, limit=150), job(2, 0, 50, 1, limit=100), job(3, 0, 150, 1, account="bio")
    assert starts(site(*jobs, reservations=[kept])) == [200, 0, 0]


def test_a_node_that_fails_requeues_its_jobs() -> None:
    assert simulate(site(FULL, outages=[Outage(40, 60, 0)])) == [
        [Run(0, 40, (0,), "node_fail"), Run(60, 160, (0,), "completed")]
    ]


def test_preemption_stops_the_youngest_weaker_jobs() -> None:
    jobs = (
        job(1, 0, 100, 4, qos="low"),
        job(2, 1, 100, 4, qos="low"),
        job(3, 2, 50, 4, qos="high"),
        job(4, 3, 50, 8),
    )
    assert simulate(site(*jobs, rules=Rules(preempts={"high": ("low",)}))) == [
        [Run(0, 100, (0,), "completed")],
        [Run(1, 2, (0,), "preempted"), Run(52, 152, (0,), "completed")],
        [Run(2, 52, (0,), "completed")],
        [Run(152, 202, (0,), "completed")],
    ]


def test_rules_may_change() -> None:
    jobs = job(1, 0, 10, 4), job(2, 0, 10, 4), job(3, 50, 10, 4), job(4, 50, 10, 4)
    assert starts(site(*jobs, later=(50, Rules(limits=(Limit("gpus", "user", 4),))))) == [0, 0, 50, 60]


def test_a_limit_ends_a_job() -> None:
    assert simulate(site(job(1, 0, 100, 1, limit=60))) == [[Run(0, 60, (0,), "timeout")]]


def test_a_small_world_keeps_the_laws() -> None:
    planted = make_site("preemption", 5)
    check_laws(replace(planted, jobs=planted.jobs[:300]))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*KNOWN, *OUTSIDE])
def test_no_world_breaks_the_laws(kind: str) -> None:
    check_laws(make_site(kind, 5))


def check_laws(planted: Site) -> None:
    """Every job runs to its end on nodes of its partition, and no node gives more than it has."""
    runs = simulate(planted)
    changes: dict[int, list[tuple[int, int, list[int]]]] = {}
    for asked, ran in zip(planted.jobs, runs, strict=True):
        assert [r.how in ("completed", "timeout") for r in ran] == [False] * (len(ran) - 1) + [True]
        assert ran[0].start >= asked.submit
        assert ran[-1].end - ran[-1].start == min(asked.run, asked.limit)
        for r in ran:
            assert len(set(r.nodes)) == asked.nodes
            for n in r.nodes:
                assert asked.partition in planted.nodes[n].partitions
                changes.setdefault(n, []).append((r.start, 1, [-a for a in asked.need()]))
                changes.setdefault(n, []).append((r.end, 0, list(asked.need())))
    for n, of_node in changes.items():
        free = list(planted.nodes[n][1:4])
        for _, _, amounts in sorted(of_node):
            free = [f + a for f, a in zip(free, amounts, strict=True)]
            assert min(free) >= 0
        assert free == list(planted.nodes[n][1:4])


def test_a_change_is_the_same_site_under_other_rules() -> None:
    planted = make_site("rule change", 3)
    assert changed(planted, backfill="easy").rules == Rules(backfill="easy")
    assert changed(planted, backfill="easy").later is None
    assert planted.later is not None


def test_more_and_fewer_nodes_keep_partitions_outages_and_reservations() -> None:
    nodes = [Node("a", 8, 16, 100, ("gpu",)), Node("b", 8, 16, 100, ("rush",)), Node("c", 8, 16, 100, ("rush",))]
    planted = Site(nodes, [], outages=[Outage(1, 2, 1)], reservations=[Reservation(5, 6, (0, 1, 2))])
    more = with_nodes(planted, 3, "rush")
    assert [node.name for node in more.nodes] == ["a", "b", "c", "b-2", "c-2", "b-3"]
    assert [node.partitions for node in more.nodes] == [("gpu",), *[("rush",)] * 5]
    assert more.outages == [Outage(1, 2, 1), Outage(1, 2, 3), Outage(1, 2, 5)]
    assert sorted(more.reservations[0].nodes) == [0, 1, 2, 3, 4, 5]
    fewer = with_nodes(planted, -2, "rush")
    assert (fewer.nodes, fewer.outages, fewer.reservations[0].nodes) == (nodes[:1], [], (0,))
    assert with_nodes(planted, 0) == planted


def test_a_site_of_many_months_is_loaded_evenly_over_all_of_them() -> None:
    planted = make_long_site(0, 0.8, 3)
    assert max(j.submit for j in planted.jobs) == pytest.approx(3 * DAYS * 86_400, rel=0.01)
    # A tenth of the load is in the part of long jobs that is beyond three days and cut off.
    assert 0.7 < sum(j.gpus * j.run for j in planted.jobs) / (96 * 3 * DAYS * 86_400) < 0.8


def test_what_a_site_dumps_is_what_happened(tmp_path: Path) -> None:
    """Every run of every job is an attempt, with its times, nodes and end; the machines are complete."""
    planted = make_site("outages", 2)
    planted = replace(planted, jobs=planted.jobs[:300])
    runs = simulate(planted)
    write_logs(planted, runs, tmp_path / "logs")
    trace = tracekit.ingest_logs(tmp_path / "logs", tmp_path / "trace")
    seconds = "CAST(epoch(start_time) AS BIGINT) - ?, CAST(epoch(end_time) AS BIGINT) - ?"
    begin = int(START.timestamp())
    sql = f"SELECT job_id, {seconds}, gpu_count, status FROM attempts ORDER BY start_time, job_id"
    found = trace.connect().execute(sql, [begin, begin]).fetchall()
    jobs = [(j, r) for j, ran in zip(planted.jobs, runs, strict=True) for r in ran]
    expected = [(f"site/{j.number}", r.start, r.end, j.gpus, r.how) for j, r in jobs]
    assert sorted(found) == sorted(expected)
    nodes = trace.connect().execute("SELECT count(*), sum(gpu_count), sum(cpu_count) FROM nodes").fetchall()
    assert nodes == [(12, 96, 768)]
    assert any(len(ran) > 1 for ran in runs)
