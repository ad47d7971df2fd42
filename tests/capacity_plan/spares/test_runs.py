"""Runs of a gang with spares: by hand, against a walk in plain Python, and against renewal theory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capacity_plan.spares.walk import Away, walked
from tests.capacity_plan.spares.worlds import DAY, HOUR, pool_of
from tests.effort import examples
from tracekit.capacity_plan.spare_runs import PARTS, GangRuns, Kind
from tracekit.replay.clusters.of_trace import NO_END
from tracekit.replay.outages.asked import CheckpointsAsked
from tracekit.replay.outages.theory import CheckpointRule, expected_ettr

RULE = CheckpointsAsked(2700.0, 900.0, 1800.0)


def test_a_gang_by_hand() -> None:
    """A gang of one node and a spare in 24 h: 45 min of work and 15 min of saving in turn, restarts of half an hour.

    Node 0 is away from 5:30 to 15:30, node 1 from 8:15 to 10:15. Begun on node 0: five hours count, half an hour is
    lost; on at once with node 1, restart to 6:00, two hours count, 15 min are lost; nobody from 8:15 to 10:15; restart
    to 10:45, 13 hours count, and 15 min are not saved at the end. Begun on node 1: eight hours count, 15 min are lost,
    and from 8:15 on all is the same.
    """
    away = [(0, int(5.5 * HOUR), int(15.5 * HOUR), True), (1, int(8.25 * HOUR), int(10.25 * HOUR), True)]
    values = GangRuns(pool_of(2, 24 * HOUR, away), 1, RULE, 5, 0)
    found = {tuple(np.round(24 * np.array(values._run("recorded", 1, RULE, n)["parts"]), 3).tolist()) for n in range(8)}
    assert found == {(15.0, 5.0, 1.0, 1.0, 2.0, 48.0), (15.75, 5.25, 0.5, 0.5, 2.0, 24.0)}


AWAY = st.tuples(st.integers(0, 4), st.integers(-5, 47), st.integers(1, 20), st.booleans())


@settings(max_examples=examples(60))
@given(
    rows=st.lists(AWAY, max_size=14),
    gang=st.integers(1, 5),
    period=st.sampled_from([1, 3, 7]),
    restart=st.integers(0, 3),
    seed=st.integers(0, 3),
)
def test_runs_agree_with_a_walk(rows: list[Away], gang: int, period: int, restart: int, seed: int) -> None:
    away = [(n, s * HOUR, (s + length) * HOUR, kills) for n, s, length, kills in rows]
    pool = pool_of(5, 48 * HOUR, away)
    rule = CheckpointsAsked(period * 3000.0, period * 600.0, restart * 3600.0)
    runs = GangRuns(pool, gang, rule, 5, seed)
    tried: list[tuple[Kind, int]] = [("recorded", 5 - gang), ("recorded", 0), ("model", 1)]
    for kind, spares in tried:
        found = runs._run(kind, spares, rule, 0)["parts"]
        own = runs.outages(kind, spares, 0)
        moves = zip(own.node.tolist(), own.since_ms.tolist(), own.until_ms.tolist(), own.kills.tolist(), strict=True)
        inside = [row for row in moves if row[1] < pool.span_ms]
        *parts, failures = walked(gang, gang + spares, inside, pool.span_ms, period * HOUR, 5 / 6, restart * HOUR)
        assert found[:5] == pytest.approx([part / pool.span_ms for part in parts], abs=2e-6)
        assert found[5] == pytest.approx(failures / 2)
        assert sum(found[:5]) == pytest.approx(1)


def test_the_outages_of_a_run() -> None:
    away = [(0, 10, 20, True), (1, 40, 70, False), (1, 90, NO_END, True)]
    runs = GangRuns(pool_of(3, 100, away), 2, CheckpointsAsked(), 5, 0)
    ends = [(n, 100, NO_END, True) for n in range(3)]

    def rows(kind: Kind, spares: int, number: int) -> list[tuple[int, int, int, bool]]:
        own = runs.outages(kind, spares, number)
        return list(
            zip(own.node.tolist(), own.since_ms.tolist(), own.until_ms.tolist(), own.kills.tolist(), strict=True)
        )

    for number in range(8):
        whole = rows("recorded", 1, number)
        assert sorted(row[1:] for row in whole) == sorted(
            [(10, 20, True), (40, 70, False), (90, 100, True), *(e[1:] for e in ends)]
        )
        # Fewer spares are the same nodes without the last.
        fewer = rows("recorded", 0, number)
        assert fewer == [row for row in whole if row[0] < 2]
        drawn = rows("model", 1, number)
        assert rows("model", 0, number) == [row for row in drawn if row[0] < 2]
        # Turned and gone round: as much time away, of each node, as that of the node that it stands for.
        for node in range(3):
            inside = sum(min(until, 100) - max(since, 0) for n, since, until, _ in drawn if n == node and since < 100)
            assert inside in {0, 10, 40}


def test_a_node_and_its_copy_are_away_at_different_times() -> None:
    # The log has one node, away for a tenth of the time; the gang and its eight spares are nine copies of it.
    runs = GangRuns(pool_of(1, 1000, [(0, 300, 400, True)]), 1, CheckpointsAsked(), 5, 0)
    for number in range(5):
        own = runs.outages("model", 8, number)
        inside = own.since_ms < 1000
        spans = list(zip(own.node[inside], own.since_ms[inside], own.until_ms[inside], strict=True))
        away = [sum(min(until, 1000) - max(since, 0) for n, since, until in spans if n == node) for node in range(9)]
        assert away == [100] * 9
        assert len({max(since for n, since, _ in spans if n == node) for node in range(9)}) == 9
        # Fewer spares are the same nodes at the same times.
        fewer = runs.outages("model", 2, number)
        assert fewer.since_ms[fewer.since_ms < 1000].tolist() == own.since_ms[inside & (own.node < 3)].tolist()


def test_without_waits_the_ettr_is_that_of_renewal_theory() -> None:
    """Four nodes fail without memory once in 5 days each, for a moment, over 3,000 days."""
    rng = np.random.default_rng(4)
    span = 3000 * DAY
    away: list[Away] = []
    for node in range(4):
        times = np.cumsum(rng.exponential(5 * DAY, 900)).astype(np.int64)
        away += [(node, t, t + 1, True) for t in times[times < span].tolist()]
    rule = CheckpointsAsked(3 * 3600.0, 600.0, 1200.0)
    found = dict(zip(PARTS, GangRuns(pool_of(4, span, away), 4, rule, 5, 0).of("recorded", 0)[0], strict=True))
    exact = expected_ettr(CheckpointRule(3 * 3600.0, 600.0, 1200.0), 4 / (5 * 86_400))
    # Some 2,400 failures, each of which costs some two hours: the standard error is below 0.1 %.
    assert found["ettr"] == pytest.approx(exact, abs=0.003)
    assert found["ettr"] != pytest.approx(exact, abs=1e-7)
    assert found["restarts_per_day"] == pytest.approx(0.8, rel=0.08)
