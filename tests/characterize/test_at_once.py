"""Failures that come together: on paper, pair by pair, and on logs in which it is known what belongs together."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.characterize.infinitehbd_by_hand import outages_by_hand
from tests.characterize.planted_faults import END, events_of, job_over, renewals
from tracekit.characterize import run_query
from tracekit.characterize.node_faults import (
    chance_of_a_pair,
    count_pairs,
    deal_anew,
    groups_of,
    pairs_possible,
    shift,
)
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

RACKS, PER_RACK = 10, 8


def racks() -> list[dict[str, Any]]:
    return [{"node_id": f"n{k}", "rack": f"r{k // PER_RACK}"} for k in range(RACKS * PER_RACK)]


def test_pairs_on_paper(make_trace: MakeTrace) -> None:
    times = {"a1": [10.0, 50.0], "a2": [10.5], "b1": [11.2]}
    nodes = [{"node_id": name, "rack": name[0]} for name in times]
    trace = make_trace(jobs=job_over(100), node_events=events_of(times), nodes=nodes)
    answer = run_query(trace, "failures/at_once", shuffles=9)
    wide, rack = answer.filter(cause="all", nodes_of="any"), answer.filter(cause="all", nodes_of="rack")
    # 10 and 10.5, 10.5 and 11.2 are within the hour. Of 4 failures there are 5 pairs of two nodes.
    chance = 2 * 0.01 - 0.01**2
    assert wide.drop("p_value").rows() == [
        ("all", "any", "times", 4, 2, pytest.approx(5 * chance), pytest.approx(2 / (5 * chance)), 1, 3, 3)
    ]
    # Within a there are 2 pairs of two nodes; of the 3 pairs of nodes one shares a rack.
    assert rack.drop("p_value", "ratio").rows() == [
        ("all", "rack", "times", 4, 1, pytest.approx(2 * chance), 1, 2, 2),
        ("all", "rack", "racks", 4, 1, pytest.approx(2 / 3), 1, 2, 2),
    ]
    assert answer["cause"].unique(maintain_order=True).to_list() == ["all", "fan"]
    exact = run_query(trace, "failures/at_once", window_min=30)
    assert exact.filter(cause="all", nodes_of="any")["pairs"].to_list() == [1]
    below = run_query(trace, "failures/at_once", window_min=29.99)
    assert below.filter(cause="all", nodes_of="any")["pairs"].to_list() == [0]
    assert below.filter(cause="all", nodes_of="any")["p_value"].to_list() == [1.0]


def test_clusters_with_equal_names_of_racks_are_distinguished(make_trace: MakeTrace) -> None:
    nodes = [{"node_id": f"{c}{k}", "cluster": c, "rack": "r1"} for c in "xy" for k in (1, 2)]
    nodes.append({"node_id": "loose", "cluster": "x"})
    times = {"x1": [10.0], "x2": [10.1], "y1": [10.2], "loose": [10.3], "unheard-of": [10.4]}
    trace = make_trace(jobs=job_over(100), node_events=events_of(times), nodes=nodes)
    found = run_query(trace, "failures/at_once", shuffles=1).filter(cause="all")
    assert dict(found.group_by("nodes_of").agg(pairs="pairs").select("nodes_of", "pairs").iter_rows()) == {
        "any": [10],
        "cluster": [3],
        "rack": [1, 1],
    }
    assert dict(found.select("nodes_of", "failures").iter_rows()) == {"any": 5, "cluster": 4, "rack": 3}


def test_a_window_or_a_number_that_cannot_be_is_an_error(make_trace: MakeTrace) -> None:
    trace = make_trace(node_events=events_of({"a": [1.0]}))
    with pytest.raises(QueryError, match="window_min must be 0 or more"):
        run_query(trace, "failures/at_once", window_min=-1)
    with pytest.raises(QueryError, match="shuffles 1 or more"):
        run_query(trace, "failures/at_once", shuffles=0)
    assert run_query(trace, "failures/at_once").row(0)[3:6] == (1, 0, 0.0)


FAILURES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=25)
GROUPS = st.lists(st.integers(-1, 2), min_size=6, max_size=6)


@given(FAILURES, GROUPS, st.integers(0, 20))
def test_pairs_counted_one_by_one(failures: list[tuple[int, int]], of_node: list[int], window: int) -> None:
    times, node = (np.array(values) for values in zip(*failures, strict=True))
    group = np.array(of_node)[node]
    alike = [
        (a, b) for a, b in combinations(range(len(failures)), 2) if node[a] != node[b] and group[a] == group[b] >= 0
    ]
    near = [(a, b) for a, b in alike if abs(times[a] - times[b]) <= window]
    assert pairs_possible(node, group) == len(alike)
    assert count_pairs(times, node, group, window) == len(near)
    # Groups by spreading from each failure to those near it, in one group of nodes.
    left, found = set(np.flatnonzero(group >= 0).tolist()), []
    while left:
        own, new = set(), {left.pop()}
        while new:
            own |= new
            new = {b for b in left for a in new if group[a] == group[b] and abs(times[a] - times[b]) <= window}
            left -= new
        found.append(own)
    together = [own for own in found if len({node[a] for a in own}) > 1]
    widest = max((len({node[a] for a in own}) for own in together), default=0)
    assert groups_of(times, node, group, window) == (len(together), widest, sum(map(len, together)))


def test_what_chance_gives_is_the_mean_of_random_worlds() -> None:
    rng = np.random.default_rng(2)
    times, node, length, window = rng.integers(0, 1000, 40), rng.integers(0, 8, 40), 1000, 30
    everywhere = np.zeros(40, np.int64)
    counts = [count_pairs(shift(times, node, length, rng), node, everywhere, window) for _ in range(4000)]
    expected = pairs_possible(node, everywhere) * chance_of_a_pair(window + 0.5, length)  # whole numbers: half a step
    assert np.mean(counts) == pytest.approx(expected, abs=4 * np.std(counts) / 4000**0.5 + 0.05)
    moved = shift(times, node, length, rng)
    for k in range(8):
        gaps = [np.sort(np.diff(np.append(own, own[0] + length))) for own in (
            np.sort(values[node == k]) for values in (times, moved))]  # fmt: skip
        assert (gaps[0] == gaps[1]).all()
    rack = np.array([0, 0, 0, 1, 1, -1, 2, -1])
    dealt = [deal_anew(rack, rng) for _ in range(50)]
    assert all((np.sort(d) == np.sort(rack)).all() and ((d < 0) == (rack < 0)).all() for d in dealt)
    assert chance_of_a_pair(5, 4) == 1


def by_racks(rng: np.random.Generator) -> dict[str, list[float]]:
    """Return failures of which a third take most of a rack away within minutes."""
    times = renewals(RACKS * PER_RACK, lambda r, _: r.exponential(4000), rng)
    for _ in range(12):
        rack, moment = int(rng.integers(RACKS)), float(rng.uniform(0, END))
        for k in rng.permutation(PER_RACK)[:5]:
            times[f"n{rack * PER_RACK + k}"].append(moment + float(rng.uniform(0, 0.1)))
    return times


def anywhere(rng: np.random.Generator) -> dict[str, list[float]]:
    """Return failures of which some take nodes of all racks away within minutes."""
    times = renewals(RACKS * PER_RACK, lambda r, _: r.exponential(4000), rng)
    for _ in range(12):
        moment = float(rng.uniform(0, END))
        for k in rng.permutation(RACKS * PER_RACK)[:5]:
            times[f"n{k}"].append(moment + float(rng.uniform(0, 0.1)))
    return times


def test_what_racks_share_is_distinguished_from_what_all_share(make_trace: MakeTrace) -> None:
    told = {}
    for name, plant in (("rack", by_racks), ("all", anywhere)):
        trace = make_trace(jobs=job_over(), node_events=events_of(plant(np.random.default_rng(5))), nodes=racks())
        found = run_query(trace, "failures/at_once").filter(cause="all")
        told[name] = {(r["nodes_of"], r["chance"]): r for r in found.to_dicts()}
    assert all(row["p_value"] == 1 / 200 for row in told["rack"].values())
    assert told["rack"]["rack", "racks"]["ratio"] > 5
    assert told["rack"]["rack", "times"]["largest_group"] >= 5
    assert told["all"]["any", "times"]["p_value"] == 1 / 200
    assert told["all"]["rack", "racks"]["p_value"] > 0.05


@pytest.mark.parametrize("worlds", [12, pytest.param(60, marks=pytest.mark.thorough)])
def test_independent_nodes_are_seldom_taken_for_others(make_trace: MakeTrace, worlds: int) -> None:
    p_values: dict[tuple[str, str], list[float]] = {}
    for seed in range(worlds):
        times = renewals(RACKS * PER_RACK, lambda r, _: r.exponential(3000), np.random.default_rng(seed))
        trace = make_trace(jobs=job_over(), node_events=events_of(times), nodes=racks())
        for row in run_query(trace, "failures/at_once", shuffles=99, window_min=600).filter(cause="all").to_dicts():
            p_values.setdefault((row["nodes_of"], row["chance"]), []).append(row["p_value"])
    assert len(p_values) == 3
    for values in p_values.values():
        # A quarter of the worlds is in the lowest quarter, within the binomial's 0.1 % ends.
        low, high = stats.binom(worlds, 0.25).ppf([0.001, 0.999])
        assert low <= sum(p <= 0.25 for p in values) <= high


def test_the_release_recomputed_by_hand(real_data: Callable[[str], Path], released_servers: Trace) -> None:
    outages, begin, end = outages_by_hand(real_data("infinitehbd"))
    failures = [(since, node) for node, own in outages.items() for since, _ in own]
    other = [(a, b) for a, b in combinations(failures, 2) if a[1] != b[1]]
    near = sum(abs(a[0] - b[0]) * 24 <= 1.0001 for a, b in other)
    share = 1 / 24 / (end - begin)
    row = run_query(released_servers, "failures/at_once", shuffles=19).to_dicts()[0]
    assert (row["failures"], row["pairs"]) == (len(failures), near)
    assert row["expected_pairs"] == pytest.approx(len(other) * (2 * share - share**2), rel=1e-6)
    assert row["p_value"] == 1 / 20
    # A server alone: which moments of the log are followed by a failure of it within a day.
    hit = run_query(released_servers, "failures/by_gang").filter(nodes=1)["hit_share"].item()
    steps = np.linspace(begin, end - 1, 200_001)
    alone = 0.0
    for own in outages.values():
        times = np.array([since for since, _ in own])
        following = np.append(times, np.inf)[np.searchsorted(times, steps, side="right")]
        alone += float((following <= steps + 1).mean())
    assert hit == pytest.approx(alone / 400, rel=1e-3)
