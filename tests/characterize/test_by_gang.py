"""How likely a gang is hit: on paper, moment by moment, and on logs whose nodes fail independently or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.characterize.planted_faults import END, events_of, job_over, renewals
from tests.characterize.test_at_once import by_racks, racks
from tracekit.characterize import run_query
from tracekit.characterize.node_faults import share_hit
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def test_two_nodes_on_paper(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=job_over(100),
        node_events=events_of({"a": [30.0], "b": [35.0]}),
        nodes=[{"node_id": "a", "gpu_count": 8}, {"node_id": "b", "gpu_count": 4}],
    )
    rows = run_query(trace, "failures/by_gang", within_h=10).rows()
    # Of 90 hours from which ten more lie in the log, a hits those from 20 to 30, b from 25 to 35: together 15.
    alone, both = 10 / 90, 15 / 90
    worked = 198 / 2
    assert rows == [
        (1, 6.0, 2, 1.0, *map(pytest.approx, (alone, alone, 1 - np.exp(-10 / worked), 1.0, 1.0))),
        (2, 12.0, 2, 2.0, *map(pytest.approx, (both, 1 - (80 / 90) ** 2, 1 - np.exp(-20 / worked), 20 / 15,
                                               (20 / 90) / (1 - (80 / 90) ** 2)))),
    ]  # fmt: skip
    assert run_query(trace, "failures/by_gang", within_h=100).rows() == [
        (1, 6.0, 2, 1.0, *[None] * 5),
        (2, 12.0, 2, 2.0, *[None] * 5),
    ]
    with pytest.raises(QueryError, match="within_h must be above 0"):
        run_query(trace, "failures/by_gang", within_h=0)
    with pytest.raises(QueryError, match="sets 1 or more"):
        run_query(trace, "failures/by_gang", sets=0)


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 49))
def test_moments_counted_one_by_one(times: list[int], within: int) -> None:
    # Between whole hours nothing changes, so that the middle of each stands for it.
    moments = np.arange(50 - within) + 0.5
    hit = [any(m < t <= m + within for t in times) for m in moments]
    assert share_hit(np.array(sorted(times), float), 50.0, float(within)) == pytest.approx(np.mean(hit))


def test_neighbours_go_by_cluster_rack_and_number(make_trace: MakeTrace) -> None:
    # n2 and n10 fail together: side by side in their rack, though not in the order of letters.
    nodes = [{"node_id": n, "rack": r} for n, r in (("n1", "b"), ("n2", "a"), ("n10", "a"), ("n3", "b"))]
    trace = make_trace(jobs=job_over(100), node_events=events_of({"n2": [50.0], "n10": [50.0]}), nodes=nodes)
    pair = run_query(trace, "failures/by_gang", within_h=10, sets=2).to_dicts()[1]
    # The two sets are n2 with n10, and n1 with n3.
    assert pair["failures"] == 1.0
    assert (pair["hit_share"], pair["nodes_per_hit"]) == (pytest.approx(10 / 90 / 2), pytest.approx(2.0))


def rows_of(make_trace: MakeTrace, times: dict[str, list[float]], **params: Any) -> list[dict[str, Any]]:
    trace = make_trace(jobs=job_over(), node_events=events_of(times), nodes=racks())
    return run_query(trace, "failures/by_gang", **params).to_dicts()


@pytest.mark.parametrize("placed", ["neighbours", "random"])
@pytest.mark.parametrize("within", [1, 24, 168])
def test_independent_nodes_are_hit_as_the_binomial_says(make_trace: MakeTrace, placed: str, within: int) -> None:
    times = renewals(80, lambda rng, _: rng.exponential(3000), np.random.default_rng(4))
    rows = rows_of(make_trace, times, within_h=within, placed=placed)
    alone = rows[0]["hit_share"]
    assert [row["nodes"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    for row in rows:
        share = 1 - (1 - alone) ** row["nodes"]
        # Times farther apart than `within`, and nodes of other sets, are independent trials of the binomial.
        trials = END / within * 80 / row["nodes"]
        reach = 3 * (share * (1 - share) / trials) ** 0.5
        assert row["hit_share"] == pytest.approx(share, abs=reach)
        assert row["independent_share"] == pytest.approx(share, rel=0.04)
        assert row["alike_share"] == pytest.approx(share, rel=0.05)
        assert row["nodes_per_hit"] == pytest.approx(row["independent_nodes_per_hit"], rel=reach / share)


def test_gangs_of_a_rack_are_hit_less_often_and_by_more_nodes(make_trace: MakeTrace) -> None:
    times = by_racks(np.random.default_rng(5))
    beside, anywhere = (rows_of(make_trace, times, within_h=24, placed=name) for name in ("neighbours", "random"))
    whole, strewn = beside[3], anywhere[3]
    assert whole["nodes"] == strewn["nodes"] == 8
    # Five nodes of a rack at once are one hit, where five nodes apart would be five.
    assert whole["hit_share"] < 0.9 * whole["independent_share"]
    assert whole["nodes_per_hit"] > 1.1 * whole["independent_nodes_per_hit"]
    assert whole["hit_share"] < strewn["hit_share"]
    assert strewn["hit_share"] == pytest.approx(strewn["independent_share"], rel=0.05)


def test_sizes_of_nodes_that_are_unknown_leave_gpus_unknown(make_trace: MakeTrace) -> None:
    trace = make_trace(node_events=events_of({"a": [1.0], "b": [9.0]}), nodes=[{"node_id": "a", "gpu_count": 8}])
    assert run_query(trace, "failures/by_gang", within_h=1)["gpus"].to_list() == [None, None]
