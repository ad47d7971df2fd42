"""How long nodes were out of service, and how long until they were back: on paper, and recomputed another way."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.characterize.asking import Asking
from tests.effort import examples
from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

STATES = ("down", "drained", "maintenance", "degraded")


def hour(number: float | None) -> dt.datetime | None:
    return None if number is None else dt.datetime(2020, 1, 1) + dt.timedelta(hours=number)


def event(node: str, start: float, end: float | None, state: str = "down", cause: str | None = None) -> dict[str, Any]:
    return {"node_id": node, "start_time": hour(start), "end_time": hour(end), "state": state, "cause": cause}


def test_overlapping_events_count_once(make_trace: MakeTrace) -> None:
    events = [
        event("a", 0, 2),
        event("a", 1, 3, "drained"),
        event("a", 3, 4, "maintenance"),  # adjoins: one outage from 0 to 4
        event("a", 6, 7),
        event("b", 2, 9, "degraded"),  # still takes jobs
        event("c", 8, None),  # to the end
        event("c", 9, 9.5),  # inside it
    ]
    trace = make_trace(node_events=events, nodes=[{"node_id": name} for name in "ad"])
    answer = run_query(trace, "failures/node_availability")
    # From 0 to 9.5 hours: b's event ends at 9, the last time is that inside c's.
    assert answer.rows() == [
        ("a", 9.5, 5.0, 4, 2, pytest.approx(4.5 / 9.5)),
        ("c", 9.5, 1.5, 2, 1, pytest.approx(8 / 9.5)),
        ("b", 9.5, 0.0, 0, 0, 1.0),
        ("d", 9.5, 0.0, 0, 0, 1.0),
    ]


def test_jobs_widen_the_time_that_is_covered(make_trace: MakeTrace) -> None:
    jobs = [{"job_id": "j", "submit_time": hour(-2), "end_time": hour(8)}]
    attempts = [{"job_id": "j", "attempt": 0, "start_time": hour(0), "end_time": hour(8)}]
    trace = make_trace(jobs=jobs, attempts=attempts, node_events=[event("a", 0, 2), event("b", 4, None)])
    assert run_query(trace, "failures/node_availability").rows() == [
        ("b", 10.0, 4.0, 1, 1, 0.6),
        ("a", 10.0, 2.0, 1, 1, 0.8),
    ]


def test_no_time_has_no_share(make_trace: MakeTrace) -> None:
    trace = make_trace(node_events=[event("a", 1, 1)])
    assert run_query(trace, "failures/node_availability").rows() == [("a", 0.0, 0.0, 1, 1, None)]


def test_events_that_go_on_count_as_lasting_at_least_so_long(make_trace: MakeTrace) -> None:
    events = [
        *(event(f"n{end}", 0, end, cause="fan") for end in (1, 2, 4)),
        event("m", 8, None, cause="fan"),  # two hours so far, to the last time
        event("z", 9, 10, "degraded", "fan"),
        event("y", 9, 9.25, "maintenance"),
    ]
    answer = run_query(make_trace(node_events=events), "failures/repair_time")
    # 4 out at 1 h, 3 at 2 h (one ends, one leaves unknown), 1 at 4 h: 3/4, 1/2, 0.
    assert answer.rows() == [
        ("fan", "down", 4, 1, 2.0, 4.0, pytest.approx(7 / 3)),
        (None, "maintenance", 1, 0, 0.25, 0.25, 0.25),
    ]
    only = [event("a", 0, None), event("b", 3, None)]
    assert run_query(make_trace(node_events=only), "failures/repair_time").rows() == [
        (None, "down", 2, 2, None, None, None)
    ]


EVENT = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 30)),
    st.sampled_from(STATES),
    st.sampled_from(["fan", "nic"]),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENT, min_size=1, max_size=14, unique_by=lambda e: (e[0], e[1], e[3])))
def test_both_agree_with_another_computation(
    make_trace: MakeTrace, given_events: list[tuple[str, int, int | None, str, str]]
) -> None:
    times = [(n, s, None if w is None else s + w, state, cause) for n, s, w, state, cause in given_events]
    ask = Asking(make_trace(node_events=[event(n, s, e, state, cause) for n, s, e, state, cause in times]))
    first = min(s for _, s, *_ in times)
    last = max(max(s, e or s) for _, s, e, *_ in times)
    found = {row["node_id"]: row for row in ask("failures/node_availability").to_dicts()}
    assert set(found) == {n for n, *_ in times}
    for node, row in found.items():
        own = [(s, last if e is None else e) for n, s, e, state, _ in times if n == node and state != "degraded"]
        # Whole hours: those in which the node was away, one by one.
        away = {h for s, e in own for h in range(s, e)}
        assert row["down_h"] == pytest.approx(len(away))
        assert row["events"] == len(own)
        assert row["observed_h"] == last - first
        assert row["availability_share"] == (None if last == first else pytest.approx(1 - len(away) / (last - first)))
    repairs = ask("failures/repair_time").to_dicts()
    kept = [t for t in times if t[3] != "degraded"]
    assert sum(row["events"] for row in repairs) == len(kept)
    for row in repairs:
        own_times = [(e - s if e is not None else None, last - s) for n, s, e, state, cause in kept
                     if (state, cause) == (row["state"], row["cause"])]  # fmt: skip
        lengths: stats.CensoredData = stats.CensoredData(
            uncensored=[w for w, _ in own_times if w is not None], right=[c for w, c in own_times if w is None]
        )
        survival = stats.ecdf(lengths).sf
        for name, left in (("p50_h", 0.5), ("p90_h", 0.1)):
            over = survival.quantiles[np.asarray(survival.probabilities) <= left + 1e-12]
            assert row[name] == (None if not over.size else pytest.approx(over[0]))


def test_the_release_recomputed_by_hand(real_data: Callable[[str], Path], released_servers: Trace) -> None:
    answer = run_query(released_servers, "failures/node_availability")
    raw = pl.read_json(real_data("infinitehbd") / "fault_trace.json").with_columns(
        step=pl.when(pl.col("event_type") == "fault_start").then(1).otherwise(-1)
    )
    span = float(np.ptp(raw["event_time"].to_numpy()))
    down = 0.0
    for (_node,), own in raw.sort("event_time", "step", descending=[False, True]).group_by("node_id"):
        open_now = 0
        for (begin, step), (end, _) in itertools.pairwise(own.select("event_time", "step").iter_rows()):
            open_now += step
            down += (end - begin) * (open_now > 0)
    assert answer.height == 400
    assert answer["down_h"].sum() / 24 == pytest.approx(down, abs=0.01)
    assert answer["availability_share"].mean() == pytest.approx(1 - down / span / 400, abs=1e-6)
    assert answer.filter(pl.col("events") == 0).height == 400 - 231
