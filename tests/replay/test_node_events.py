"""Nodes that are away while the events of a Trace say so."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.replay.builders import make_jobs
from tracekit.replay.clusters.cluster import Node
from tracekit.replay.clusters.of_trace import AWAY, NO_END, _away, cluster_of_trace, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

JOBS = make_jobs([(0, 1, 1)])  # the first submission is 2020-01-01 00:00 UTC
NODES = [{"node_id": name, "gpu_count": 8} for name in ("n1", "n2")]
HOUR = 3_600_000


def event(node: str, start: str, end: str | None, state: str = "down") -> dict[str, Any]:
    """Return an event; times are clocks of 2020-01-01."""
    ended = None if end is None else f"2020-01-01 {end}"
    return {"node_id": node, "start_time": f"2020-01-01 {start}", "end_time": ended, "state": state}


def moves(cluster: Cluster) -> list[tuple[int, str, bool]]:
    """Return the changes of a cluster: time [ms], node, whether it joins."""
    rows = zip(cluster.change_ms.tolist(), cluster.change_node.tolist(), cluster.change_up.tolist(), strict=True)
    return [(at, cluster.node_id[node], bool(up)) for at, node, up in rows]


def test_a_node_is_away_while_it_is_down_drained_or_in_maintenance(make_trace: MakeTrace, golden: Golden) -> None:
    events = [
        event("n1", "01:00", "02:00", "down"),
        event("n1", "01:30", "03:00", "drained"),  # overlaps
        event("n1", "03:00", "04:00", "maintenance"),  # touches
        event("n1", "05:00", "06:00", "degraded"),  # takes jobs
        event("n2", "07:00", "07:00"),  # takes no time
        event("n2", "08:00", None),
        event("n2", "09:00", "10:00"),  # within the one that does not end
        event("n9", "01:00", "02:00"),  # of no node that is listed
    ]
    trace = make_trace(jobs=[{"job_id": "a"}], nodes=NODES, node_events=events)
    found = cluster_of_trace(trace, JOBS)
    assert moves(found) == [(1 * HOUR, "n1", False), (4 * HOUR, "n1", True), (8 * HOUR, "n2", False)]
    assert found.absent.tolist() == [0, 0]
    golden(found.origin)
    assert found.total_gpus == 16
    # Jobs that come twice as fast meet the same events.
    assert [at for at, _, _ in moves(cluster_of_trace(trace, JOBS, load=2))] == [HOUR // 2, 2 * HOUR, 4 * HOUR]
    # Copies are away when their originals are.
    assert [node for _, node, _ in moves(cluster_of_trace(trace, JOBS, gpus=2))] == ["n1", "n1-2"] * 2 + ["n2", "n2-2"]
    without = cluster_of_trace(trace, JOBS, events=False)
    assert (moves(without), without.origin) == ([], "nodes of the Trace")


def test_events_before_the_first_job_count_only_where_they_reach_it(make_trace: MakeTrace) -> None:
    events = [
        {"node_id": "n1", "start_time": "2019-12-30", "end_time": "2019-12-31", "state": "down"},
        {"node_id": "n1", "start_time": "2019-12-31", "end_time": "2020-01-01", "state": "down"},  # ends as it comes
        {"node_id": "n2", "start_time": "2019-12-31", "end_time": "2020-01-01 02:00", "state": "drained"},
    ]
    found = cluster_of_trace(make_trace(jobs=[{"job_id": "a"}], nodes=NODES, node_events=events), JOBS)
    assert found.absent.tolist() == [0, 1]
    assert moves(found) == [(2 * HOUR, "n2", True)]


def test_nodes_without_events_or_with_events_of_others_are_as_before(make_trace: MakeTrace) -> None:
    plain = make_trace(jobs=[{"job_id": "a"}], nodes=NODES)
    other = make_trace(jobs=[{"job_id": "a"}], nodes=NODES, node_events=[event("n9", "01:00", None)])
    for trace in (plain, other):
        found = cluster_of_trace(trace, JOBS)
        assert (moves(found), found.absent.tolist(), found.origin) == ([], [0, 0], "nodes of the Trace")


def test_estimated_quotas_are_shares_of_all_nodes(make_trace: MakeTrace) -> None:
    ran = {"submit_time": "2020-01-01", "start_time": "2020-01-01", "end_time": "2020-01-02", "gpu_count": 1}
    jobs = [{"job_id": f"j{vc}", "vc": vc, "attempt_count": 1, **ran} for vc in "ab"]
    held = {k: ran[k] for k in ("start_time", "end_time", "gpu_count")}
    tries = [{"job_id": f"j{vc}", "attempt": 0, **held} for vc in "ab"]
    trace = make_trace(jobs=jobs, attempts=tries, nodes=NODES, node_events=[event("n1", "00:00", "05:00")])
    found = cluster_of_trace(trace, JOBS)
    assert found.absent.tolist() == [1, 0]
    assert found.quota.tolist() == [[8, 8]]


# One node of 2 GPUs, which is down from 01:00 to 02:00. a holds both GPUs from 00:30 to 01:30 and goes on to its end; b
# comes at 01:10 and starts when the node is back. Without the event it starts when a ends.
@pytest.mark.parametrize(("events", "starts"), [(True, "02:00"), (False, "01:30")])
def test_two_jobs_on_a_node_that_is_down_for_an_hour(make_trace: MakeTrace, events: bool, starts: str) -> None:
    def ran(name: str, submitted: str, started: str, ended: str) -> dict[str, Any]:
        day = "2020-01-01 "
        times = {"submit_time": day + submitted, "start_time": day + started, "end_time": day + ended}
        return {"job_id": name, **times, "gpu_count": 2, "status": "completed"}

    jobs = [ran("a", "00:30", "00:30", "01:30"), ran("b", "01:10", "02:00", "02:20")]
    trace = make_trace(
        jobs=jobs, nodes=[{"node_id": "n1", "gpu_count": 2}], node_events=[event("n1", "01:00", "02:00")]
    )
    found = tracekit.replay(trace, policy="fifo", node_events=events).jobs()
    rows = found.sort("job_id").select("job_id", "first_start_time", "end_time").rows()
    clock = dt.datetime(2020, 1, 1)
    began = clock + dt.timedelta(hours=int(starts[:2]), minutes=int(starts[3:]))
    assert rows == [
        ("a", clock + dt.timedelta(minutes=30), clock + dt.timedelta(minutes=90)),
        ("b", began, began + dt.timedelta(minutes=20)),
    ]


@given(st.lists(st.tuples(st.integers(-5, 20), st.none() | st.integers(0, 10)), max_size=6))
def test_a_node_is_there_when_no_event_holds_it(spans: list[tuple[int, int | None]]) -> None:
    times = [(begin, NO_END if length is None else begin + length) for begin, length in spans]
    node = _away(Node("n", 8), joined(times))
    assert [at for at, _ in node.changes] == sorted({at for at, _ in node.changes})
    there = not node.absent
    changes = dict(node.changes)
    for at in range(40):
        if at in changes:
            assert changes[at] is not there, "a change changes something"
            there = changes[at]
        assert there is not any(begin <= at and (end is None or at < end) for begin, end in times)


def test_the_states_that_take_a_node_away_are_of_the_schema() -> None:
    from tracekit import schema

    assert {*AWAY, "degraded"} == set(schema.common("node_events").column("state").enum)
