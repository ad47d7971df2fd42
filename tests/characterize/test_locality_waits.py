"""How much later a spread gang could have started on the fewest nodes: by hand, and against a look at every moment."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.characterize.asking import seeds
from tests.guidelines.planted import Log
from tracekit.characterize import answer_query
from tracekit.characterize.query import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

SQL = """
SELECT job_id, attempt, gpu_count, node_count, fewest_nodes, run_us / 1e6, extra_wait_us / 1e6, found
FROM locality_waits ORDER BY job_id, attempt
"""


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    return answer_query(trace, Query.of_text(SQL, trace.path)).frame.rows()


def held(log: Log, since: int, until: int, vc: str = "v", **nodes: float) -> str:
    """Add a job that holds so many GPUs of each node from one moment to another."""
    job = log.job(since, until - since, gpus=sum(nodes.values()), vc=vc)
    for node, gpus in nodes.items():
        log.add("placements", job_id=job, attempt=0, node_id=node, gpu_count=gpus)
    return job


def two_nodes() -> Log:
    log = Log()
    log.nodes("ab", 8)
    return log


def test_the_wait_ends_when_another_leaves_one_of_its_nodes(make_trace: MakeTrace) -> None:
    log = two_nodes()
    held(log, 0, 150, a=4)
    held(log, 0, 400, b=4)
    spread = held(log, 100, 500, a=4, b=4)
    # From 150 on node a has 4 free GPUs and the gang's own 4.
    assert rows(make_trace(**log.tables)) == [(spread, 0, 8, 2, 1, 400, 50, True)]


def test_who_takes_the_place_meanwhile_keeps_it(make_trace: MakeTrace) -> None:
    log = two_nodes()
    held(log, 0, 150, a=4)
    held(log, 150, 900, a=1)
    held(log, 0, 400, b=4)
    spread = held(log, 100, 500, a=4, b=4)
    assert rows(make_trace(**log.tables)) == [(spread, 0, 8, 2, 1, 400, 300, True)]


def test_a_place_that_is_there_at_the_start_costs_nothing(make_trace: MakeTrace) -> None:
    log = two_nodes()
    spread = held(log, 100, 500, a=2, b=2)
    assert rows(make_trace(**log.tables)) == [(spread, 0, 4, 2, 1, 400, 0, True)]


def test_a_wait_beyond_its_end_counts_with_its_run_time(make_trace: MakeTrace) -> None:
    log = two_nodes()
    held(log, 0, 500, a=4, b=4)
    spread = held(log, 100, 500, a=4, b=4)
    # The other has enough room for the first 100 s.
    assert rows(make_trace(**log.tables)) == [("j0", 0, 8, 2, 1, 500, 0, True), (spread, 0, 8, 2, 1, 400, 400, False)]


def test_a_gang_of_two_nodes_counts_those_that_become_whole_with_its_own(make_trace: MakeTrace) -> None:
    log = Log()
    log.nodes("abcd", 8)
    held(log, 0, 300, a=4)
    held(log, 0, 900, b=4)
    held(log, 0, 200, c=8)
    held(log, 0, 900, d=8)
    spread = held(log, 100, 700, a=4, b=4, vc="v")
    big = held(log, 1000, 1600, a=4, b=4, c=8)
    # The gang of 8 has all of c at 200. For that of 16 on three nodes two are free at once.
    assert rows(make_trace(**log.tables)) == [
        ("j4", 0, 8, 2, 1, 600, 100, True),
        (big, 0, 16, 3, 2, 600, 0, True),
    ]
    assert spread == "j4"


def test_nodes_on_which_the_tenant_never_ran_are_not_waited_for(make_trace: MakeTrace) -> None:
    log = two_nodes()
    log.nodes("c", 8)
    held(log, 0, 50, c=1, vc="w")
    held(log, 0, 150, a=4)
    held(log, 0, 400, b=4)
    spread = held(log, 100, 500, a=4, b=4)
    assert rows(make_trace(**log.tables)) == [(spread, 0, 8, 2, 1, 400, 50, True)]


def test_nodes_of_unknown_size_are_reported(make_trace: MakeTrace, golden: Golden) -> None:
    log = two_nodes()
    log.tables["nodes"] = [{"node_id": "a", "gpu_count": 8}]
    held(log, 100, 500, a=4, b=4)
    trace = make_trace(**log.tables)
    answer = answer_query(trace, Query.of_text("SELECT * FROM locality_waits", trace.path))
    assert len(answer.frame) == 1
    # By placements alone node b has 4 GPUs; the list alone does not know it.
    listed = answer_query(
        trace, Query.of_text("SELECT * FROM locality_waits WHERE $capacity <> ''", trace.path), {"capacity": "listed"}
    )
    assert listed.frame.is_empty()
    golden(listed.notes)


SIZE = 4


def first_place(jobs: list[tuple[int, int, dict[str, float]]], number: int, nodes: str) -> int | None:
    """Return the first second at which the fewest nodes have room, by a look at each of them."""
    since, until, own = jobs[number]
    gang = sum(own.values())
    for moment in range(since, until):
        free = dict.fromkeys(nodes, float(SIZE))
        for k, (begin, end, parts) in enumerate(jobs):
            if k != number and begin <= moment < end:
                for node, gpus in parts.items():
                    free[node] -= gpus
        best = sorted(free.values(), reverse=True)[: -int(-gang // SIZE)]
        whole = int(gang // SIZE)
        if sum(best) >= gang and all(f >= SIZE for f in best[:whole]):
            return moment
    return None


@pytest.mark.parametrize("seed", seeds(5, 15))
def test_it_is_what_a_look_at_every_second_finds(make_trace: MakeTrace, seed: int) -> None:
    rng = random.Random(seed)
    nodes = "abcd"
    log = Log()
    jobs: list[tuple[int, int, dict[str, float]]] = []
    log.nodes(nodes, SIZE)
    for _ in range(rng.randint(2, 25)):
        since = rng.randint(0, 60)
        until = since + rng.randint(1, 40)
        parts: dict[str, float] = {}
        for node in rng.sample(nodes, rng.randint(1, 4)):
            peak = max(sum(p.get(node, 0) for begin, end, p in jobs if begin <= t < end) for t in range(since, until))
            if peak < SIZE:
                parts[node] = rng.randint(1, int(SIZE - peak))
        if parts:
            jobs.append((since, until, parts))
            held(log, since, until, "v", **parts)
    expected = []
    for number, (since, until, parts) in enumerate(jobs):
        gang = sum(parts.values())
        fewest = -int(-gang // SIZE)
        if gang > 1 and len(parts) > fewest:
            first = first_place(jobs, number, "".join(sorted({n for _, _, p in jobs for n in p})))
            wait = (until if first is None else first) - since
            expected.append((f"j{number}", 0, gang, len(parts), fewest, until - since, wait, first is not None))
    assert rows(make_trace(**log.tables)) == sorted(expected)


@pytest.mark.parametrize("times", [(100, 100), (500, 100)])
def test_attempts_that_take_no_time_are_out(make_trace: MakeTrace, times: tuple[int, int]) -> None:
    log = two_nodes()
    held(log, *times, a=4, b=4)
    assert rows(make_trace(**log.tables)) == []
