"""What outages took of a cluster, and when: on paper, and recomputed another way."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.characterize.asking import Asking
from tests.effort import examples
from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def hour(number: float | None) -> dt.datetime | None:
    return None if number is None else dt.datetime(2020, 1, 1) + dt.timedelta(hours=number)


def event(node: str, start: float, end: float | None, state: str = "down") -> dict[str, Any]:
    return {"node_id": node, "start_time": hour(start), "end_time": hour(end), "state": state, "cause": "fan"}


EVENTS = [
    event("a", 0, 2),
    event("a", 1, 3, "drained"),  # overlaps: one outage of 3 h
    event("b", 2, 4, "maintenance"),
    event("c", 4, 8, "degraded"),  # still takes jobs
    event("c", 6, None),  # goes on for 2 h, to the last time
]


def metrics(trace: Trace | Asking) -> dict[str, float | None]:
    ask = trace if isinstance(trace, Asking) else Asking(trace)
    return dict(ask("failures/cluster_availability").select("metric", "value").iter_rows())


def test_what_outages_took_of_a_cluster(make_trace: MakeTrace) -> None:
    nodes = [{"node_id": "a", "gpu_count": 8}, {"node_id": "b", "gpu_count": 4}, {"node_id": "d", "gpu_count": 2}]
    assert metrics(make_trace(node_events=EVENTS, nodes=nodes)) == {
        "nodes": 4,
        "observed_h": 8,
        "nodes_hit": 3,
        "outages": 3,
        "events": 4,
        "going_on": 1,
        "down_node_h": 3 + 2 + 2,
        "availability_share": pytest.approx(1 - 7 / 32),
        "known_gpu_nodes": 3,
        "down_gpu_h": 3 * 8 + 2 * 4,  # the GPUs of c are not known
        "outages_per_node_year": pytest.approx(3 * 8760 / 32),
        "most_down_at_once": 2,
    }


def test_what_the_trace_does_not_state_is_unknown(make_trace: MakeTrace) -> None:
    found = metrics(make_trace(node_events=[event("a", 1, 1), event("b", 1, 1, "degraded")]))
    assert (found["observed_h"], found["availability_share"], found["outages_per_node_year"]) == (0, None, None)
    assert (found["known_gpu_nodes"], found["down_gpu_h"], found["most_down_at_once"]) == (0, None, 0)
    fit = metrics(make_trace(node_events=[event("a", 0, 4, "degraded")], nodes=[{"node_id": "a", "gpu_count": 8}]))
    assert (fit["outages"], fit["availability_share"], fit["down_gpu_h"], fit["nodes_hit"]) == (0, 1, 0, 0)


def test_one_that_ends_as_another_begins_is_not_out_beside_it(make_trace: MakeTrace) -> None:
    assert metrics(make_trace(node_events=[event("a", 0, 2), event("b", 2, 3)]))["most_down_at_once"] == 1


def test_outages_through_time(make_trace: MakeTrace) -> None:
    trace = make_trace(node_events=EVENTS, nodes=[{"node_id": "d"}])
    answer = run_query(trace, "failures/availability_over_time", bins=2, worst=2)
    assert answer.select("node_id", "rank", "start_time", "span_h", "down_h", "nodes_down", "down_share").rows() == [
        (None, 0, hour(0), 4.0, 5.0, 1.25, 1.25 / 4),
        (None, 0, hour(4), 4.0, 2.0, 0.5, 0.5 / 4),
        ("a", 1, hour(0), 4.0, 3.0, 0.75, 0.75),
        ("b", 2, hour(0), 4.0, 2.0, 0.5, 0.5),  # as long as c, whose name comes later
    ]


def test_no_time_has_no_spans(make_trace: MakeTrace) -> None:
    assert run_query(make_trace(node_events=[event("a", 1, 1)]), "failures/availability_over_time").is_empty()


GIVEN = st.tuples(
    st.sampled_from("abcd"),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 30)),
    st.sampled_from(["down", "drained", "maintenance", "degraded"]),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(GIVEN, min_size=1, max_size=14, unique_by=lambda e: (e[0], e[1], e[3])), st.integers(1, 9))
def test_both_agree_with_a_count_of_hours(
    make_trace: MakeTrace, given_events: list[tuple[str, int, int | None, str]], bins: int
) -> None:
    times = [(n, s, None if w is None else s + w, state) for n, s, w, state in given_events]
    ask = Asking(make_trace(node_events=[event(*one) for one in times]))
    first, last = min(s for _, s, *_ in times), max(max(s, e or s) for _, s, e, _ in times)
    # Whole hours: those in which each node was away, one by one.
    away = {
        (n, h) for n, s, e, state in times if state != "degraded" for h in range(s, last if e is None else e)
    }  # fmt: skip
    found = metrics(ask)
    nodes = len({n for n, *_ in times})
    assert found["down_node_h"] == pytest.approx(len(away))
    at_once = max((sum(h == hours for _, h in away) for hours in range(first, last)), default=0)
    assert found["most_down_at_once"] == at_once
    assert found["availability_share"] == (
        None if last == first else pytest.approx(1 - len(away) / nodes / (last - first))
    )
    through = ask("failures/availability_over_time", bins=bins, worst=9)
    if last == first:
        assert through.is_empty()
        return
    whole = through.filter(through["node_id"].is_null())
    assert whole.height == bins
    assert whole["span_h"].sum() == pytest.approx(last - first)
    assert whole["down_h"].sum() == pytest.approx(len(away), abs=1e-6)
    for name in {n for n, _ in away}:
        own = through.filter(through["node_id"] == name)
        assert own["down_h"].sum() == pytest.approx(sum(n == name for n, _ in away), abs=1e-6)
        assert (own["down_share"] <= 1 + 1e-9).all()


def test_the_release_recomputed_by_hand(real_data: Callable[[str], Path], released_servers: Trace) -> None:
    found = metrics(released_servers)
    records = json.loads((real_data("infinitehbd") / "fault_trace.json").read_text())
    # Ends before begins at one time: one that ends as another begins is not out beside it.
    moments = sorted(records, key=lambda r: (r["event_time"], r["event_type"] == "fault_start"))
    faults: Counter[str] = Counter()
    down, most, before = 0.0, 0, moments[0]["event_time"]
    at = [r["event_time"] for r in moments]
    for number, record in enumerate(moments):
        down += sum(n > 0 for n in faults.values()) * (record["event_time"] - before)
        before = record["event_time"]
        faults[record["node_id"]] += 1 if record["event_type"] == "fault_start" else -1
        if number + 1 == len(moments) or at[number + 1] > at[number]:
            most = max(most, sum(n > 0 for n in faults.values()))
    assert (found["nodes"], found["nodes_hit"], found["events"], found["going_on"]) == (400, 231, 584, 0)
    assert found["down_node_h"] == pytest.approx(down * 24, abs=0.2)
    assert found["most_down_at_once"] == most
    assert found["availability_share"] == pytest.approx(1 - down / (at[-1] - at[0]) / 400, abs=1e-6)
