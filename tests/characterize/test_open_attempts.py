"""Until when a run without an end counts: days that fit on paper, and what nodes can hold at all.

A node has 8 GPUs. Hours from midnight; `ghost` is a run that the log calls running.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.characterize import run_query
from tracekit.characterize.session import Session
from tracekit.digests.make import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

MONDAY = dt.datetime(2025, 3, 3)

Run = tuple[str, dict[str, float], float, float | None, float | None]
"""Name, GPUs by node, hours of start and end (None: running), and time limit [h]."""


def hour(number: float) -> dt.datetime:
    return MONDAY + dt.timedelta(hours=number)


def trace_of(make_trace: MakeTrace, runs: Sequence[Run], nodes: dict[str, int] | None = None) -> Trace:
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for name, held, start, end, limit in runs:
        status = "running" if end is None else "completed"
        times = {"start_time": hour(start), "end_time": None if end is None else hour(end)}
        run = {"job_id": name, "gpu_count": sum(held.values()), "status": status, **times}
        run["run_s"] = None if end is None else (end - start) * 3600
        tables["jobs"].append(
            {"cluster": "x", "user": name[0], "submit_time": hour(start), "queue_s": 0.0, "attempt_count": 1}
            | {"time_limit_s": None if limit is None else limit * 3600, **run}
        )
        tables["attempts"].append({"attempt": 0, "wait_s": 0.0, **run})
        tables["placements"] += [
            {"job_id": name, "attempt": 0, "node_id": node, "gpu_count": gpus} for node, gpus in held.items()
        ]
    sizes = {"n": 8} if nodes is None else nodes
    listed = [{"node_id": node, "cluster": "x", "gpu_count": gpus} for node, gpus in sizes.items()]
    return make_trace(**tables, nodes=listed)


def ends(trace: Trace) -> dict[str, tuple[float, str | None]]:
    """Return until when each run without an end counts [h], and why not longer."""
    with Session(trace).connect(("nodes",)) as con:
        rows = con.execute("SELECT job_id, until_us, lost FROM open_attempts").fetchall()
    begin = MONDAY.replace(tzinfo=dt.UTC).timestamp()
    return {job: (round((until / 1e6 - begin) / 3600, 6), lost) for job, until, lost in rows}


def done(name: str, gpus: float, start: float, end: float, node: str = "n") -> Run:
    return (name, {node: gpus}, start, end, None)


def ghost(gpus: float, start: float, limit: float | None = None, name: str = "ghost", node: str = "n") -> Run:
    return (name, {node: gpus}, start, None, limit)


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        (5, (5, "limit")),
        (8.99, (8.99, "limit")),
        (9, (10, None)),
        (20, (10, None)),
        (None, (10, None)),
        (0, (10, None)),
    ],
)
def test_a_run_that_passed_its_limit_by_more_than_an_hour_ends_there(
    make_trace: MakeTrace, limit: float | None, found: tuple[float, str | None]
) -> None:
    # The log goes on to 10. With a limit of 9 hours the run may be over it by an hour.
    trace = trace_of(make_trace, [ghost(2, 0, limit), done("a", 4, 9, 10)])
    assert ends(trace)["ghost"] == found


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        # 4 + 4 fit; at 5 another 4 need those of the ghost.
        ([done("a", 4, 1, 9), done("b", 4, 5, 10)], (5, "excluded")),
        ([done("a", 4, 1, 5), done("b", 4, 5, 10)], (10, None)),  # one after the other
        ([done("a", 8, -2, 3), done("b", 4, 5, 10)], (10, None)),  # too many, but not because of a later run
        ([done("a", 8, 5, 6, "m"), done("b", 4, 5, 10)], (10, None)),  # another node
        ([done("a", 8, 0, 4), done("b", 1, 5, 10)], (10, None)),  # no later run: both begin at once
        ([done("a", 4.5, 2, 4), done("b", 1, 5, 10)], (2, "excluded")),
    ],
)
def test_a_later_run_that_needs_the_gpus_ends_it(
    make_trace: MakeTrace, runs: list[Run], found: tuple[float, str | None]
) -> None:
    trace = trace_of(make_trace, [ghost(4, 0), *runs], {"n": 8, "m": 8})
    assert ends(trace)["ghost"] == found


def test_what_comes_first_ends_it(make_trace: MakeTrace) -> None:
    later = done("a", 8, 5, 10)
    assert ends(trace_of(make_trace, [ghost(4, 0, 3), later]))["ghost"] == (3, "limit")
    assert ends(trace_of(make_trace, [ghost(4, 0, 7), later]))["ghost"] == (5, "excluded")


def test_of_several_the_first_is_lost_first(make_trace: MakeTrace) -> None:
    # At 3 there are 3 + 3 + 3 GPUs: the first must be over; at 6 only one of 3 fits beside 5.
    runs = [ghost(3, 0, name="g1"), ghost(3, 1, name="g2"), ghost(3, 3, name="g3"), done("a", 5, 6, 10)]
    assert ends(trace_of(make_trace, runs)) == {"g1": (3, "excluded"), "g2": (6, "excluded"), "g3": (10, None)}


def test_a_gang_ends_on_all_nodes_at_once(make_trace: MakeTrace) -> None:
    # The gang loses m at 2, so that at 4 all of n is free for b.
    gang: Run = ("gang", {"m": 8, "n": 8}, 0, None, None)
    trace = trace_of(make_trace, [gang, done("a", 8, 2, 5, "m"), done("b", 8, 4, 6)], {"m": 8, "n": 8})
    assert ends(trace) == {"gang": (2, "excluded")}
    held = {row["metric"]: row["value"] for row in run_query(trace, "queuing/gpu_time_held").iter_rows(named=True)}
    assert held["running_gpu_hours"] == pytest.approx(2 * 16)
    assert held["held_gpu_hours"] == pytest.approx(2 * 16 + 3 * 8 + 2 * 8)


def test_a_node_that_shows_more_gpus_than_are_listed_has_them(make_trace: MakeTrace) -> None:
    # 4 GPUs are listed, but a run held 8 of them: 4 and 4 fit.
    runs = [ghost(4, 0), done("a", 4, 2, 4), done("b", 8, -5, -4)]
    assert ends(trace_of(make_trace, runs, {"n": 4}))["ghost"] == (4, None)
    # Nothing is known of a node without a number.
    tables = trace_of(make_trace, [ghost(4, 0), done("a", 8, 2, 4)], {})
    assert ends(tables)["ghost"] == (4, None)


@pytest.mark.parametrize("limit", [None, 24.0])
def test_all_that_is_said_of_load_agrees(make_trace: MakeTrace, limit: float | None) -> None:
    # A run of 8 GPUs since Sunday 12:00. The others hold all 8 from 12:00 to 18:00 each day. With a limit it ends at
    # Monday 12:00, else when the first of them begins, which is the same.
    runs = [done(f"a{day}", 8, 24 * day + 12, 24 * day + 18) for day in range(8)]
    trace = trace_of(make_trace, [ghost(8, -12, limit), *runs])
    assert ends(trace)["ghost"][0] == 12
    held = {row["metric"]: row["value"] for row in run_query(trace, "queuing/gpu_time_held").iter_rows(named=True)}
    assert held["running_gpu_hours"] == 24 * 8
    assert held["held_gpu_hours"] == pytest.approx(24 * 8 + 8 * 6 * 8)
    assert held["held_share"] <= 1
    parts = run_query(trace, "overview/parts").filter(pl.col("kind") == "held", ~pl.col("by_user"))
    last = run_query(trace, "queuing/gpu_time_held").filter(pl.col("metric") == "held_gpus")["value"][0]
    assert parts["amount"].sum() / 3600 <= 24 * 8 + 8 * 6 * 8
    assert last <= 8
    free = run_query(trace, "locality/fragmentation", step_s=3600)
    at = {(time - MONDAY).total_seconds() / 3600: gpus for time, gpus in free.select("time", "free_gpus").iter_rows()}
    assert (at[11], at[12], at[18]) == (0, 0, 8)
    week = digest_of(trace, week="2025-W10")
    # 12 h of the run without an end, and 6 h on each of seven days.
    assert week["everyone"]["figures"]["held_gpu_h"] == pytest.approx(12 * 8 + 7 * 6 * 8)
    assert any("runawayjobs" in note for note in week["notes"])


@st.composite
def schedules(draw: st.DrawFn) -> tuple[dict[str, int], list[Run]]:
    """Draw runs that nodes can hold, some of which lost their ends."""
    sizes = draw(st.dictionaries(st.sampled_from("mno"), st.integers(1, 8), min_size=1))
    runs: list[Run] = []
    for number in range(draw(st.integers(1, 14))):
        start = draw(st.integers(0, 160))
        end = start + draw(st.integers(1, 100))
        busy = {
            node: sum(held.get(node, 0) for _, held, since, until, _ in runs if since < end and (until or 0) > start)
            for node in sizes
        }
        free = {node: size - busy[node] for node, size in sizes.items() if size > busy[node]}
        chosen = [node for node in free if draw(st.booleans())]
        if chosen:
            held = {node: float(draw(st.integers(1, int(free[node])))) for node in chosen}
            runs.append((f"{'ab'[number % 2]}{number}", held, start, end, None))
    lost = [draw(st.booleans()) for _ in runs]
    limits = [draw(st.none() | st.integers(1, 120)) for _ in runs]
    return sizes, [
        (name, held, start, None if gone else end, limit)
        for (name, held, start, end, _), gone, limit in zip(runs, lost, limits, strict=True)
    ]


@pytest.mark.thorough
@given(schedules())
def test_no_week_holds_more_than_there_is(make_trace: MakeTrace, schedule: tuple[dict[str, int], list[Run]]) -> None:
    sizes, runs = schedule
    if not runs:
        return
    trace = trace_of(make_trace, runs, sizes)
    gpus = sum(sizes.values())
    load = run_query(trace, "queuing/cluster_timeline", step_s=7 * 86_400.0)
    assert max(load["running_gpus"]) <= gpus * (1 + 1e-9)
    assert max(run_query(trace, "queuing/cluster_timeline", step_s=3600.0)["running_gpus"]) <= gpus * (1 + 1e-9)
    shown = {row["metric"]: row["value"] for row in run_query(trace, "queuing/gpu_time_held").iter_rows(named=True)}
    assert (shown["held_share"] or 0) <= 1 + 1e-9
    first, last = min(run[2] for run in runs), max(run[3] or run[2] for run in runs)
    for number in range(int(first) // 168, int(last) // 168 + 1):
        week = digest_of(trace, week=f"2025-W{10 + number}")
        assert (week["everyone"]["figures"]["held_gpu_h"] or 0) <= gpus * 168 * (1 + 1e-9)
    free = run_query(trace, "locality/fragmentation", step_s=3600.0)
    assert min(free["free_gpus"]) >= 0
