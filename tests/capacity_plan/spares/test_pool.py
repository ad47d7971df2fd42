"""The nodes that can stand in for each other: counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capacity_plan.spares.worlds import HOUR, event, pool_of
from tests.effort import examples
from tracekit.capacity_plan.question import SpareQuestion
from tracekit.capacity_plan.spare_runs import NodePool
from tracekit.errors import MissingTableError, UsageError
from tracekit.replay.clusters.of_trace import NO_END

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.capacity_plan.spares.walk import Away
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

ASKED = SpareQuestion.of(8)


def test_what_the_log_tells_by_hand(make_trace: MakeTrace) -> None:
    """Ten hours: a is away 0-2 and 1-3 h, b from 8 h on, c works badly, d has other GPUs, e is not listed."""
    events = [
        event("a", 0, 2),
        event("a", 1, 3, "drained"),
        event("b", 8, None),
        event("b", 6, 5),  # ends before it begins
        event("c", 4, 10, "degraded"),
        event("d", 0, 10),
        event("e", 0, 10),
    ]
    nodes = [{"node_id": n, "gpu_count": 8, "gpu_model": "A100", "cluster": "x"} for n in "abc"]
    nodes += [{"node_id": "d", "gpu_count": 4, "gpu_model": "V100", "cluster": "y"}, {"node_id": "f"}]
    trace = make_trace(node_events=events, nodes=nodes)
    pool = NodePool.of(trace, ASKED)
    assert (pool.nodes, pool.gpus_per_node, pool.other_nodes, pool.span_ms) == (3, 8, 1, 10 * HOUR)
    rows = zip(pool.node.tolist(), pool.since_ms.tolist(), pool.until_ms.tolist(), pool.kills.tolist(), strict=True)
    assert list(rows) == [
        (0, 0, 2 * HOUR, True), (0, HOUR, 3 * HOUR, False), (1, 8 * HOUR, NO_END, True),
    ]  # fmt: skip
    assert pool.spans() == [(0, 0, 3 * HOUR), (1, 8 * HOUR, 10 * HOUR)]
    assert pool.availability() == pytest.approx(25 / 30)
    assert pool.rate_per_ms == pytest.approx(2 / (3 * 10 * HOUR))
    assert (pool.days, pool.most_up()) == (10 / 24, 3)
    other = NodePool.of(trace, SpareQuestion.of(4, model="V100"))
    assert (other.nodes, other.gpus_per_node) == (1, 4)
    other = NodePool.of(trace, SpareQuestion.of(4, cluster="x", model="A100"))
    assert (other.nodes, other.gpus_per_node) == (3, 8)
    with pytest.raises(UsageError, match="--model: no node is of GPU model 'V10'; did you mean 'V100'"):
        NodePool.of(trace, SpareQuestion.of(4, model="V10"))
    with pytest.raises(UsageError, match="--for: no node belongs to cluster 'z'"):
        NodePool.of(trace, SpareQuestion.of(4, cluster="z"))


def test_jobs_widen_the_time_that_the_log_covers(make_trace: MakeTrace) -> None:
    jobs = [{"job_id": "j", "submit_time": "2020-01-01", "end_time": "2020-01-03"}]
    pool = NodePool.of(make_trace(jobs=jobs, node_events=[event("a", 4, 10)]), ASKED)
    assert (pool.span_ms, pool.nodes, pool.gpus_per_node) == (48 * HOUR, 1, None)
    assert pool.since_ms.tolist() == [4 * HOUR]


def test_how_many_nodes_a_gang_takes(make_trace: MakeTrace) -> None:
    nodes = [{"node_id": n, "gpu_count": 8} for n in "abcd"]
    # From 2 to 3 h two are away, before and after it one: three at most are up at once.
    trace = make_trace(node_events=[event("a", 0, 10), event("b", 2, 3)], nodes=nodes)
    for gang, count in ((1, 1), (8, 1), (9, 2), (24, 3), ("3nodes", 3), ("1node", 1)):
        question = SpareQuestion.of(gang)
        assert NodePool.of(trace, question).nodes_of_gang(question) == count
    wide = SpareQuestion.of(25)
    what = "--gang: the job needs 4 nodes, but the log has 4 nodes, with at most 3 up at once"
    with pytest.raises(UsageError, match=what):
        NodePool.of(trace, wide).nodes_of_gang(wide)
    down = make_trace(node_events=[event(n, 0, 5) for n in "abcd"], nodes=nodes)
    one = SpareQuestion.of("1node")
    with pytest.raises(UsageError, match="the job needs 1 node, but the log has 4 nodes, with at most 0 up"):
        NodePool.of(down, one).nodes_of_gang(one)
    unknown = make_trace(node_events=[event(n, k, k + 5) for k, n in enumerate("abcd")])
    with pytest.raises(UsageError, match=r"does not record how many GPUs its nodes have; give .* --gang 32nodes"):
        NodePool.of(unknown, ASKED).nodes_of_gang(SpareQuestion.of(256))
    assert NodePool.of(unknown, ASKED).nodes_of_gang(SpareQuestion.of("3nodes")) == 3


def test_a_log_that_tells_nothing_is_refused(make_trace: MakeTrace) -> None:
    with pytest.raises(MissingTableError, match="the Trace has no table 'node_events'; docs"):
        NodePool.of(make_trace(nodes=[{"node_id": "a"}]), ASKED)
    with pytest.raises(UsageError, match="the log covers no time"):
        NodePool.of(make_trace(node_events=[event("a", 1, 1)]), ASKED)
    with pytest.raises(UsageError, match="so the clusters and GPU models of nodes are unknown"):
        NodePool.of(make_trace(node_events=[event("a", 1, 2)]), SpareQuestion.of(8, model="A100"))


AWAY = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 9), st.booleans())


@settings(max_examples=examples(50))
@given(rows=st.lists(AWAY, max_size=10))
def test_what_is_up_agrees_with_hours_looked_at_one_by_one(rows: list[Away]) -> None:
    pool = pool_of(4, 10 * HOUR, [(n, s * HOUR, (s + length) * HOUR, k) for n, s, length, k in rows])
    up = [sum(not any(m == n and s <= h < s + length for m, s, length, _ in rows) for n in range(4)) for h in range(10)]
    assert pool.availability() == pytest.approx(sum(up) / 40)
    assert pool.most_up() == max(up)


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"gang": "0"}, "--gang: '0' is not a job size"),
        ({"gang": "8 GPUs"}, "write a number of GPUs, such as 256, or of nodes, such as 32nodes"),
        ({"gang": 8, "ettr": 1.0}, "--ettr: the share of useful time must be above 0 and below 1, not 1"),
        ({"gang": 8, "ettr": 0.0}, "not 0; 0.95 means 95 % of the time"),
        ({"gang": 8, "ettr": float("nan")}, "not nan"),
        ({"gang": 8, "resamples": 4}, "--resamples: the number of resamples must be from 5 to 1,000, not 4"),
        ({"gang": 8, "checkpoint": "interval=0"}, "--checkpoint"),
        (
            {"gang": 8, "checkpoint": "interval=60,cost=61"},
            "--checkpoint: a checkpoint of 61 s after every 60 s of work",
        ),
    ],
)
def test_what_cannot_be_asked_ends_in_one_line(given_: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as failed:
        SpareQuestion.of(**given_)
    assert "\n" not in str(failed.value)
