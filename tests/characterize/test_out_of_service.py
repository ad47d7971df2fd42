"""GPUs of nodes that are out of service are no capacity: one day that fits on paper.

Two nodes, m and n, with 4 GPUs each. Hours from midnight: job a holds 2 GPUs of m from 0 to 4, job b 1 GPU of n from 9
to 10. n is down from 1 to 3, and drained from 2 to 4; m is drained from 3 to 6, while a runs on for an hour.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.characterize.asking import Asking
from tracekit.characterize import list_views, run_query
from tracekit.characterize.free_nodes import AWAY, away_spans
from tracekit.databases import connect_duckdb
from tracekit.replay.clusters.of_trace import AWAY as REPLAYED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def hour(number: float) -> dt.datetime:
    return dt.datetime(2020, 1, 1) + dt.timedelta(hours=number)


EVENTS = [
    {"node_id": node, "start_time": hour(start), "end_time": None if end is None else hour(end), "state": state}
    for node, start, end, state in (
        ("n", 1, 3, "down"),
        ("n", 2, 4, "drained"),
        ("m", 3, 6, "drained"),
        ("n", 5, 7, "degraded"),  # it works
        ("m", 9, None, "maintenance"),  # to the end of the trace
        ("elsewhere", 0, None, "down"),
    )
]


def tables(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"jobs": [], "attempts": [], "placements": []}
    for job, node, gpus, start, end in (("a", "m", 2, 0, 4), ("b", "n", 1, 9, 10)):
        times = {"start_time": hour(start), "end_time": hour(end), "run_s": (end - start) * 3600}
        found["jobs"].append(
            {
                "job_id": job,
                "cluster": "x",
                "gpu_count": gpus,
                "submit_time": hour(start),
                "status": "completed",
                **times,
            }
        )
        found["attempts"].append(
            {"job_id": job, "attempt": 0, "gpu_count": gpus, "wait_s": 0, "status": "completed", **times}
        )
        found["placements"].append({"job_id": job, "attempt": 0, "node_id": node, "gpu_count": gpus})
    found["nodes"] = [{"node_id": node, "cluster": "x", "gpu_count": 4} for node in "mn"]
    return found | more


CAPACITY = [8, 4, 4, 2, 4, 4, 8, 8, 8, 4]
"""In the fourth hour both are away, and a holds 2 GPUs."""


def test_capacity_is_what_is_there(make_trace: MakeTrace) -> None:
    ask = Asking(make_trace(**tables(node_events=EVENTS)))
    for name in ("queuing/cluster_timeline", "queuing/timeline"):
        answer = ask.answer(name, step_s=3600)
        assert answer.frame["capacity_gpus"].to_list() == CAPACITY
        assert any("2 nodes out of service" in note for note in answer.notes)
        ignored = ask(name, step_s=3600, events="ignored")
        assert ignored["capacity_gpus"].to_list() == [8] * 10
    assert sum(8 - gpus for gpus in CAPACITY) == 26
    assert any(
        note.startswith("26.0 GPU-hours of 2 nodes out of service do not count as capacity") for note in answer.notes
    )
    shares = ask("utilization/cluster_by_hour")["allocated_share"].to_list()
    held = [2, 2, 2, 2, 0, 0, 0, 0, 0, 1]
    assert shares == pytest.approx([h / c for h, c in zip(held, CAPACITY, strict=True)])


def test_no_gpu_is_free_on_a_node_that_is_away(make_trace: MakeTrace) -> None:
    trace = make_trace(**tables(node_events=EVENTS))
    found = run_query(trace, "locality/fragmentation", step_s=3600, capacity="listed")
    # At 4 o'clock a ends and n is back.
    assert found["free_gpus"].to_list() == [6, 2, 2, 0, 4, 4, 8, 8, 8, 3, 8]
    assert found["whole_free_nodes"].to_list() == [1, 0, 0, 0, 1, 1, 2, 2, 2, 0, 2]
    ignored = run_query(trace, "locality/fragmentation", step_s=3600, events="ignored")
    assert ignored["free_gpus"].to_list() == [6, 6, 6, 6, 8, 8, 8, 8, 8, 7, 8]


def test_without_events_nothing_changes(make_trace: MakeTrace) -> None:
    plain, degraded = (Asking(make_trace(**tables(**more))) for more in ({}, {"node_events": [EVENTS[3], EVENTS[5]]}))
    for name in ("queuing/cluster_timeline", "locality/fragmentation", "queuing/delay_causes", "queuing/out_of_order"):
        first, second = (ask.answer(name) for ask in (plain, degraded))
        assert first.frame.equals(second.frame)
        assert first.notes == second.notes


def test_what_takes_nodes_away(make_trace: MakeTrace) -> None:
    causes = [event | {"cause": "power" if event["node_id"] == "n" else None} for event in EVENTS]
    rows = run_query(make_trace(**tables(node_events=causes)), "failures/out_of_service").rows()
    assert rows == [
        (None, "drained", 1, 1, 0, 3.0, 12.0, 3.0, 3.0),
        ("power", "degraded", 1, 1, 0, 2.0, 8.0, 2.0, 2.0),
        ("power", "down", 1, 1, 0, 2.0, 8.0, 2.0, 2.0),
        ("power", "drained", 1, 1, 0, 2.0, 8.0, 2.0, 2.0),
        (None, "down", 1, 1, 1, None, None, None, None),
        (None, "maintenance", 1, 1, 1, None, None, None, None),
    ]


def test_replays_and_questions_take_the_same_states_away() -> None:
    assert AWAY == REPLAYED


@given(st.lists(st.tuples(st.sampled_from("mn"), st.integers(0, 30), st.none() | st.integers(0, 30))))
def test_times_out_of_service_are_the_union_of_events(events: list[tuple[str, int, int | None]]) -> None:
    rows = [(node, hour(a), None if b is None else hour(max(a, b))) for node, a, b in events]
    with connect_duckdb(None) as con:
        con.execute(
            "CREATE TABLE jobs AS SELECT TIMESTAMP '2020-01-01' AS submit_time, NULL::TIMESTAMP AS start_time, "
            "TIMESTAMP '2020-01-02 16:00' AS end_time"
        )
        con.execute("CREATE TABLE attempts AS SELECT start_time, end_time FROM jobs")
        (window,) = [view.sql for view in list_views() if view.name == "trace_window"]
        con.execute(f"CREATE VIEW trace_window AS {window}")
        con.execute(
            "CREATE TABLE node_events (node_id VARCHAR, start_time TIMESTAMP, end_time TIMESTAMP, state VARCHAR)"
        )
        if rows:
            con.executemany("INSERT INTO node_events VALUES (?, ?, ?, 'down')", rows)
        found = away_spans(con)
    origin = int(dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    away = {node: np.zeros(40, dtype=bool) for node in "mn"}
    for node, a, b in events:
        away[node][a : 40 if b is None else max(a, b)] = True
    ours = {node: np.zeros(40, dtype=int) for node in "mn"}
    for node, since, until in found.iter_rows():
        ours[node][(since - origin) // 3_600_000_000 : (until - origin) // 3_600_000_000] += 1
    for node in "mn":
        assert (ours[node] == away[node]).all()
