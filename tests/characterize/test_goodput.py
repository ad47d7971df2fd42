"""What held GPU-hours were good for: one day on paper, and parts that add up whatever the Trace."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.characterize.asking import Asking
from tests.characterize.planted_faults import hour
from tests.characterize.test_lost_work import fault, runs
from tests.effort import examples
from tracekit.characterize import find_query, run_query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

PARTS = ("queued", "start_up", "lost", "idle", "useful")


def told(trace: Trace | Asking, **params: Any) -> dict[str, tuple[float | None, ...]]:
    """Return held, and the five parts, by class."""
    ask = trace if isinstance(trace, Asking) else Asking(trace)
    rows = ask("failures/goodput", **params).to_dicts()
    return {r["gpu_class"]: tuple(r[f"{name}_gpu_hours"] for name in ("held", *PARTS)) for r in rows}


def samples(node: str, gpu: int, percents: dict[float, float]) -> list[dict[str, Any]]:
    return [
        {"time": hour(t), "node_id": node, "gpu_index": gpu, "utilization_pct": percent}
        for t, percent in percents.items()
    ]


DAY = runs(
    ("a", 0, 0, 10, "failed", "m", 2),
    ("b", 0, 0, 4, "completed", "n", 1),
    ("c", 0, 0, 3, None, "o", 16),
    ("d", 0, 0, None, "running", "p", 4),
    ("e", 0, 0, 5, "failed", "p", 0),
)


def test_a_day_on_paper(make_trace: MakeTrace) -> None:
    placements = [
        {"job_id": "a", "attempt": 0, "node_id": "m", "gpu_index": [0], "start_time": hour(0)},
        {"job_id": "a", "attempt": 0, "node_id": "m2", "gpu_index": [0], "start_time": hour(1)},  # an hour later
        {"job_id": "b", "attempt": 0, "node_id": "n", "gpu_index": [0]},
        {"job_id": "c", "attempt": 0, "node_id": "o"},
    ]
    # b: half an hour until its GPU is in use, then half used until its end.
    halves = {k / 2: 50.0 if k else 0.0 for k in range(8)}
    # a: both GPUs are sampled to the end; from 1 to 3 nothing runs, then all of one and none of the other.
    used = samples("n", 0, halves)
    used += samples("m", 0, {k / 2: 100.0 if k >= 6 else 0.0 for k in range(20)})
    used += samples("m2", 0, {k / 2: 0.0 for k in range(20)})
    trace = make_trace(jobs=DAY["jobs"], attempts=DAY["attempts"], placements=placements, gpu_utilization=used)
    ask = Asking(trace)
    found = told(ask, checkpoint_h=3, start_up_min=15)
    # a holds 20: 1 h in the queue, 2 h of start-up, 7 h of work, 1 h of them lost; of 12 left half are idle.
    # b holds 4: half an hour of start-up, and half of the rest idle. c has no samples: a quarter of an hour of 16.
    assert found == {
        "1": (4.0, None, 0.5, 0.0, 1.75, 1.75),
        "2-4": (20.0, 2.0, 4.0, 2.0, 6.0, 6.0),
        ">8": (48.0, None, 4.0, None, None, 44.0),
        "all": (72.0, 2.0, 8.5, 2.0, 7.75, 51.75),
    }
    row = ask("failures/goodput", checkpoint_h=3, start_up_min=15).row(-1, named=True)
    assert row["attempts"] == 3
    assert row["goodput_share"] == pytest.approx(51.75 / 72)
    assert row["idle_known_share"] == pytest.approx((3.5 + 12) / (3.5 + 12 + 44))
    assert row["end_unknown_share"] == pytest.approx(48 / 72)
    # Without checkpoints all the work of a is lost, and no start-up is known of c.
    assert told(ask)["2-4"] == (20.0, 2.0, 4.0, 14.0, None, 0.0)
    assert told(ask)[">8"] == (48.0, None, None, None, None, 48.0)
    with pytest.raises(QueryError, match="checkpoint_h must be 0 or more"):
        run_query(trace, "failures/goodput", checkpoint_h=-1)
    with pytest.raises(QueryError, match="start_up_min must be 0 or more"):
        run_query(trace, "failures/goodput", start_up_min=-1)


def test_samples_that_set_in_later_tell_no_start_up(make_trace: MakeTrace) -> None:
    day = runs(("a", 0, 0, 10, "completed", "m", 1))
    day["placements"][0]["gpu_index"] = [0]
    late = samples("m", 0, {k / 2: 0.0 if k < 8 else 100.0 for k in range(4, 20)})
    # From 2 o'clock on 2 h without use and 6 h with: a quarter of 8 h, since the first 2 h are unknown.
    assert told(make_trace(**day, gpu_utilization=late))["all"] == (10.0, None, None, 0.0, 2.0, 8.0)
    never = samples("m", 0, {k / 2: 0.0 for k in range(20)})
    assert told(make_trace(**day, gpu_utilization=never))["all"] == (10.0, None, 0.0, 0.0, 10.0, 0.0)


def test_means_of_jobs_represent_all_that_is_left(make_trace: MakeTrace) -> None:
    day = runs(("a", 0, 0, 10, "failed", "m", 2))
    trace = make_trace(**day, job_usage=[{"job_id": "a", "gpu_util_pct": 50.0}])
    # 50 % of one of two GPUs: a quarter is used of the 8 h until the last checkpoint.
    assert told(trace, checkpoint_h=4)["all"] == (20.0, None, None, 4.0, 12.0, 4.0)


def test_failures_of_nodes_lose_work_too(make_trace: MakeTrace) -> None:
    trace = make_trace(**runs(("a", 0, 0, 2.5, "cancelled", "m", 2)), node_events=[fault("m", 2.5, "fan")])
    assert told(trace, checkpoint_h=2)["all"] == (5.0, None, None, 1.0, None, 4.0)


RUN = st.tuples(
    st.floats(0, 3, allow_nan=False),
    st.floats(0, 4, allow_nan=False),
    st.sampled_from(["failed", "completed", "cancelled", "preempted", "unknown", None]),
    st.sampled_from([0.1, 1 / 3, 1, 2, 7, 64]),
    st.one_of(st.none(), st.floats(-1, 5, allow_nan=False)),
)
USE = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.0, 33.3, 100.0, 250.0])), max_size=20,
               unique_by=lambda u: u[0])  # fmt: skip


DRAWN = (
    st.lists(st.tuples(RUN, USE), min_size=1, max_size=6),
    st.tuples(
        st.sampled_from([0, 0.1, 1, 1.7]), st.sampled_from([0, 1 / 7, 30]), st.sampled_from(["stated", "retried"])
    ),
)


def assert_the_parts_add_up(make_trace: MakeTrace, drawn: list[Any], asked: tuple[float, float, str]) -> None:
    every, start_up, rule = asked
    rows = [(f"j{k}", 0, start, start + run, status, f"m{k}", gpus)
            for k, ((start, run, status, gpus, _), _) in enumerate(drawn)]  # fmt: skip
    tables = runs(*rows)
    for k, attempt in enumerate(tables["attempts"]):
        span = attempt["end_time"] - attempt["start_time"]
        attempt["run_s"] = span.total_seconds()
        late = drawn[k][0][4]
        tables["placements"][k] |= {"gpu_index": [0]} | ({} if late is None else {"start_time": hour(late)})
    used = [row for k, (_, use) in enumerate(drawn) for row in samples(f"m{k}", 0, {t / 10: p for t, p in use})]
    ask = Asking(make_trace(**tables, gpu_utilization=used))
    params = {"checkpoint_h": every, "start_up_min": start_up, "rule": rule}
    # Before they are turned into hours, the sums are decimal numbers.
    query = find_query("failures/goodput")
    head, _, _ = query.sql.partition("SELECT\n    gpu_class,\n    attempts,\n")
    with ask.session.connect(["node_events", "gpu_utilization", "job_usage"]) as con:
        exact = con.execute(
            head + "SELECT gpu_class, held, queued, start_up, lost, idle, useful FROM rest", params
        ).fetchall()
    for _, held, *parts in exact:
        assert sum(Fraction(part or 0) for part in parts) == Fraction(held)
        assert all(part is None or part >= 0 for part in parts)
    whole = {name: row for name, *row in exact}
    assert whole["all"][0] == sum(row[0] for name, row in whole.items() if name != "all")
    held = sum(Fraction(round(a["run_s"] * a["gpu_count"] * 10**6), 10**6) for a in tables["attempts"])
    assert abs(Fraction(whole["all"][0]) - held) <= Fraction(len(rows), 10**6)
    shown = told(ask, **params)
    assert set(shown) == set(whole)
    for name, row in shown.items():
        assert row[0] == pytest.approx(float(whole[name][0]) / 3600)
        assert sum(part or 0 for part in row[1:]) == pytest.approx(row[0])


@settings(max_examples=5)
@given(*DRAWN)
def test_the_parts_add_up_to_what_was_held(
    make_trace: MakeTrace, drawn: list[Any], asked: tuple[float, float, str]
) -> None:
    assert_the_parts_add_up(make_trace, drawn, asked)


@pytest.mark.thorough
@settings(max_examples=examples(60))
@given(*DRAWN)
def test_the_parts_of_many_traces_add_up_to_what_was_held(
    make_trace: MakeTrace, drawn: list[Any], asked: tuple[float, float, str]
) -> None:
    assert_the_parts_add_up(make_trace, drawn, asked)
