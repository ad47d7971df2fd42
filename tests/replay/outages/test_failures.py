"""Outages of a replay: those of the log, drawn from it, and at a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.test_node_events import event
from tracekit.errors import UsageError
from tracekit.replay.api import scenario_of
from tracekit.replay.clusters.of_trace import NO_END
from tracekit.replay.outages.away import with_outages
from tracekit.replay.outages.failures import Outages, drawn_at_rate, drawn_by_lot, recorded_outages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

HOUR = 3_600_000
JOBS = make_jobs([(0, 8, 10 * 3600)])  # the first submission is 2020-01-01 00:00 UTC
NODES = [{"node_id": f"n{number}", "gpu_count": 8} for number in range(3)]
EVENTS = [
    event("n0", "01:00", "02:00"),
    event("n0", "01:30", "03:00", "drained"),
    event("n1", "05:00", None),
    event("n1", "06:00", "06:30", "degraded"),  # it works
    event("n2", "07:00", "07:00"),  # no time at all
    event("n9", "01:00", "02:00"),  # of a node that the cluster has not
]
ONE_JOB = {
    "job_id": "a",
    "submit_time": "2020-01-01 00:00",
    "start_time": "2020-01-01 00:00",
    "end_time": "2020-01-01 10:00",
    "run_s": 36_000.0,
    "gpu_count": 8,
    "status": "completed",
}


def rows(outages: Outages) -> list[tuple[int, int, int, bool]]:
    """Return (node, begin [h], end [h], whether jobs stop)."""
    columns = (outages.node, outages.since_ms / HOUR, outages.until_ms / HOUR, outages.kills)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_recorded_outages_are_those_of_the_nodes_that_there_are(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES, node_events=EVENTS)
    found = recorded_outages(trace, make_cluster([8, 8, 8]), JOBS)
    assert rows(found) == [(0, 1, 2, True), (0, 1.5, 3, False), (1, 5, NO_END / HOUR, True)]
    assert (
        found.origin
        == "3 recorded absences; 1 more are excluded because this cluster lacks their nodes; 1 of 3 nodes have none"
    )
    # Two that stop jobs, of three nodes, from 0 to 5 o'clock, the last time that is known; one was away for an hour.
    assert found.rate_per_ms == pytest.approx(2 / ((3 * 5 - 1) * HOUR))
    twice = make_trace(jobs=[ONE_JOB], nodes=NODES, node_events=[*EVENTS, event("n0", "01:20", "01:40")])
    assert recorded_outages(twice, make_cluster([8, 8, 8]), JOBS).rate_per_ms == pytest.approx(2 / (14 * HOUR))


def test_a_replay_with_recorded_outages(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES[:1], node_events=EVENTS[:2])
    found = tracekit.replay(trace, "fifo", outages="recorded", checkpoint="interval=1800,restart=600")
    # The node is back at 3 o'clock; the first hour is saved, and nine are left.
    assert found.jobs()["jct_s"].to_list() == [3 * 3600 + 600 + 9 * 3600]
    assert found.summary["restarts"] == 1
    assert found.summary["lost_gpu_hours"] == 0
    assert found.summary["assumptions"]["outages"]["value"] == "2 recorded absences"
    none = tracekit.replay(trace, "fifo")
    assert none.jobs()["jct_s"].to_list() == [36_000]
    assert none.summary["restarts"] is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"outages": "recorded"}, "no recorded outage belongs to a node of this cluster"),
        ({"outages": "model"}, "the log has no outages to sample from"),
        ({"outages": "rate=0.1"}, "the log does not record how long outages last"),
        ({"checkpoint": "interval=60"}, "checkpoints and spares have no effect without outages"),
        ({"spares": 1}, "checkpoints and spares have no effect without outages"),
        ({"outages": "recorded", "node_events": False}, "--no-node-events: cannot be combined with --no-node-events"),
        (
            {"outages": "rate=1e9,repair=1e-9"},
            r"a rate of 1e\+09 would create about 3e\+08 outages, but at most 20,000,000 are possible",
        ),
        ({"outages": "rate=0.1,repair=1", "spares": 3}, "3 spares leave none of the 3 nodes for jobs"),
    ],
)
def test_what_cannot_be_is_an_error_of_one_line(make_trace: MakeTrace, options: dict[str, Any], error: str) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES)
    with pytest.raises(UsageError, match=error):
        scenario_of(trace, **options)


def test_a_gang_wider_than_what_is_ever_up_never_runs(make_trace: MakeTrace) -> None:
    wide = {**ONE_JOB, "job_id": "wide", "gpu_count": 24}
    trace = make_trace(jobs=[wide], nodes=NODES, node_events=[event("n1", "00:00", None)])
    found = tracekit.replay(trace, "fifo", outages="recorded")
    assert found.summary["unschedulable"] == 1
    assert found.summary["ettr"] is None


def test_drawn_by_lot_every_node_has_the_outages_of_one_of_the_log(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES, node_events=EVENTS[:3])
    drawn = [drawn_by_lot(trace, make_cluster([8] * 40), JOBS, np.random.default_rng(seed)) for seed in range(60)]
    # Of three nodes of the log one has none, and a third of those drawn.
    without = np.mean([40 - len(set(one.node.tolist())) for one in drawn]) / 40
    assert without == pytest.approx(1 / 3, abs=0.03)
    for one in drawn:
        # What the log ends in the midst of lasts to its end, here the very last moment, and so no time.
        lengths = np.round((one.until_ms - one.since_ms) / HOUR, 6)
        assert set(lengths.tolist()) <= {1.0, 1.5, 0.0}
        assert ((lengths == 1.0) == one.kills)[lengths > 0].all()
        # Nodes that have the same node's fail at the same moments, gone round the log of 5 hours.
        assert len(set((one.since_ms[lengths == 1.0] % (5 * HOUR)).tolist())) <= 1
    again = drawn_by_lot(trace, make_cluster([8] * 40), JOBS, np.random.default_rng(0))
    assert rows(again) == rows(drawn[0])


def test_at_a_rate_gaps_and_lengths_are_exponential() -> None:
    found = drawn_at_rate(0.5, 6.0, make_cluster([8] * 200), 400 * 24 * HOUR, np.random.default_rng(2))
    # A node works two days and is away a quarter of one: an outage each 2.25 days.
    assert len(found.node) == pytest.approx(200 * 400 / 2.25, rel=0.02)
    lengths = (found.until_ms - found.since_ms) / HOUR
    assert lengths.mean() == pytest.approx(6, rel=0.02)
    assert np.median(lengths) == pytest.approx(6 * np.log(2), rel=0.03)
    order = np.lexsort((found.since_ms, found.node))
    since, until, node = found.since_ms[order], found.until_ms[order], found.node[order]
    gaps = ((since[1:] - until[:-1]) / HOUR)[node[1:] == node[:-1]]
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(48, rel=0.03)
    assert np.median(gaps) == pytest.approx(48 * np.log(2), rel=0.03)
    assert not len(drawn_at_rate(0, 6.0, make_cluster([8]), HOUR, np.random.default_rng(2)).node)


def test_policies_of_one_comparison_have_the_same_outages(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES, node_events=EVENTS)
    one, other = (scenario_of(trace, outages="model", seed=3) for _ in range(2))
    assert one.outages is not None
    assert other.outages is not None
    assert rows(one.outages) == rows(other.outages)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.integers(1, 30), st.booleans()), max_size=25),
    st.integers(0, 3),
)
def test_who_works_is_who_is_there_and_not_a_spare(drawn: list[tuple[int, int, int, bool]], spares: int) -> None:
    table = np.array(drawn, np.int64).reshape(-1, 4)
    happened = Outages(
        table[:, 0].astype(np.int32), table[:, 1], table[:, 1] + table[:, 2], table[:, 3].astype(bool), 1.0, "drawn"
    )
    cluster = make_cluster([8] * 6, rack=["a", "a", "a", "b", "b", "b"])
    held = with_outages(cluster, happened, spares)
    working = (held.absent == 0).tolist()
    for time in range(-1, 90):
        for at, node, up in zip(held.change_ms, held.change_node, held.change_up, strict=True):
            if at == time:
                working[node] = bool(up)
        away = {node for node, since, length, _ in drawn if since <= max(time, 0) < since + length}
        assert not any(working[node] for node in away)
        assert sum(working) == min(6 - spares, 6 - len(away))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 30), st.booleans()), max_size=15),
    st.integers(1, 2),
)
def test_a_node_never_works_while_it_is_lent(drawn: list[tuple[int, int, int, bool]], spares: int) -> None:
    table = np.array(drawn, np.int64).reshape(-1, 4)
    happened = Outages(
        table[:, 0].astype(np.int32), table[:, 1], table[:, 1] + table[:, 2], table[:, 3].astype(bool), 1.0, "drawn"
    )
    cluster = make_cluster([8] * 4)
    held, plain = with_outages(cluster, happened, spares, lend=True), with_outages(cluster, happened, spares)
    assert held.lent is not None
    there = dict.fromkeys(range(held.nodes), False) | {row: not held.absent[row] for row in range(held.nodes)}
    for time in range(-1, 90):
        for at, node, up in zip(held.change_ms, held.change_node, held.change_up, strict=True):
            if at == time:
                there[int(node)] = bool(up)
        names = [held.node_id[row] for row, up in there.items() if up]
        assert len(names) == len(set(names))
        away = {f"n{node}" for node, since, length, _ in drawn if since <= max(time, 0) < since + length}
        assert not away & set(names)
    # Who works is not changed by lending.
    main = [(at, held.node_id[node], up) for at, node, up in held.effective_changes() if not held.lent[node]]
    assert main == [(at, plain.node_id[node], up) for at, node, up in plain.effective_changes()]


def test_a_job_that_outlives_the_drawn_outages_is_said(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[ONE_JOB], nodes=NODES[:1])
    found = tracekit.replay(trace, "fifo", outages="rate=30,repair=1", checkpoint="interval=none,restart=0")
    # Three times the ten hours of the job, in which it never had ten hours of peace.
    assert found.summary["makespan_s"] > 30 * 3600
    value = found.summary["assumptions"]["outages"]["value"]
    assert "; there are none after day 1.25, but the replay ends on day " in value
