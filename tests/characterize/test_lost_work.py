"""What is lost since the last checkpoint: a day on paper, and the same by other code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.characterize.asking import Asking
from tests.characterize.planted_faults import hour
from tests.effort import examples
from tracekit.characterize import run_query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

BAD = ("failed", "timeout", "node_fail", "out_of_memory")


def runs(*rows: tuple[str, int, float, float | None, str | None, str, float | None]) -> dict[str, Any]:
    """Return jobs, attempts and placements of (job, attempt, start, end, status, node, GPUs)."""
    jobs: dict[str, dict[str, Any]] = {}
    attempts, placements = [], []
    for job, attempt, start, end, status, node, gpus in rows:
        run = None if end is None else (end - start) * 3600
        times = {"start_time": hour(start), "end_time": hour(end), "run_s": run}
        jobs[job] = {"job_id": job, "submit_time": hour(0), "gpu_count": gpus, "status": status}
        attempts.append({"job_id": job, "attempt": attempt, "gpu_count": gpus, "status": status, **times})
        placements += [{"job_id": job, "attempt": attempt, "node_id": n} for n in node.split("+")]
    return {"jobs": list(jobs.values()), "attempts": attempts, "placements": placements}


def fault(node: str, start: float, cause: str | None, state: str = "down", end: float | None = None) -> dict[str, Any]:
    return {"node_id": node, "start_time": hour(start), "end_time": hour(end), "state": state, "cause": cause}


DAY = runs(
    ("a", 0, 0, 5, "failed", "n1", 2),  # 5 h of 2 GPUs
    ("a", 1, 6, 8, "completed", "n1", 2),
    ("b", 0, 0, 4, "node_fail", "n2+n3", 8),
    ("c", 0, 0, 3, "cancelled", "n4", 1),  # its node fails as it ends
    ("d", 0, 0, 3, "cancelled", "n5", 1),
    ("e", 0, 0, 7, "completed", "n6", 4),  # its node fails as it ends: it completed all the same
    ("f", 0, 0, 2.5, "preempted", "n7", 1),
    ("g", 0, 0, None, "running", "n7", 1),
    ("h", 0, 0, 1, None, "n8", 1),
    ("h", 1, 1, 2, "failed", "n8", 1),
    ("i", 0, 0, 9, "failed", "n9", 0),  # without GPUs
    ("k", 0, 0, 9, "failed", "n9", None),
)
FAULTS = [
    fault("n2", 4, None),
    fault("n3", 3.9, "nic", end=6),
    fault("n4", 3 + 4 / 60, "fan", "drained"),
    fault("n5", 3 + 6 / 60, "fan"),  # too late
    fault("n5", 2.8, "fan"),  # too early
    fault("n5", 3, "maintenance", "maintenance"),
    fault("n5", 3, None, "drained"),
    fault("n5", 3.01, "fan", end=2),  # ends before it begins
    fault("n6", 7, "fan"),
    fault("nowhere", 5, "power"),
]


def test_a_day_on_paper(make_trace: MakeTrace) -> None:
    failures = [
        {"job_id": "a", "attempt": 0, "time": hour(4.9), "reason": "x", "category": "user"},
        {"job_id": "a", "attempt": 0, "time": hour(5), "reason": "y", "category": "engine"},
        {"job_id": "b", "attempt": 0, "reason": "y", "category": "engine"},
        {"job_id": "h", "reason": "y", "category": "engine"},  # of the job: its last attempt
    ]
    trace = make_trace(**DAY, node_events=FAULTS, failures=failures)
    all_hours = 10 + 4 + 32 + 3 + 3 + 28 + 2.5 + 1 + 1
    assert run_query(trace, "failures/lost_work").rows() == [
        ("node_fail", "nic", 1, 32.0, 32.0, pytest.approx(32 / all_hours), 32.0, 0),
        ("failed", "user", 1, 10.0, 10.0, pytest.approx(10 / all_hours), 0.0, 0),
        ("cancelled", "fan", 1, 3.0, 3.0, pytest.approx(3 / all_hours), 0.0, 0),
        ("preempted", None, 1, 2.5, 2.5, pytest.approx(2.5 / all_hours), 0.0, 0),
        ("failed", "engine", 1, 1.0, 1.0, pytest.approx(1 / all_hours), 1.0, 0),
        ("failed", None, 1, None, None, None, None, 1),
    ]
    # Every two hours: 1 h of 5, none of 4, 1 of 3, half an hour of 2.5, all of the hour of h.
    every_two = run_query(trace, "failures/lost_work", checkpoint_h=2)
    assert dict(zip(every_two["status"], every_two["lost_gpu_hours"], strict=True)) == {
        "failed": None,
        "cancelled": 1.0,
        "preempted": 0.5,
        "node_fail": 0.0,
    }
    assert every_two["lost_gpu_hours"].to_list() == [2.0, 1.0, 1.0, 0.5, 0.0, None]
    # Nothing says how the first attempt of h ended, but that another followed.
    again = run_query(trace, "failures/lost_work", rule="retried")
    assert (None, None, 1, 1.0, 1.0, pytest.approx(1 / all_hours), 1.0, 0) in again.rows()


def test_without_events_and_placements_the_status_decides(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=DAY["jobs"], attempts=DAY["attempts"])
    found = run_query(trace, "failures/lost_work")
    assert found.select("status", "cause", "lost_gpu_hours").rows() == [
        ("node_fail", None, 32.0),
        ("failed", None, 11.0),
        ("preempted", None, 2.5),
    ]
    with pytest.raises(QueryError, match="checkpoint_h must be 0 or more"):
        run_query(trace, "failures/lost_work", checkpoint_h=-1)


RUN = st.tuples(
    st.sampled_from("wxyz"),
    st.integers(0, 8),
    st.integers(0, 6),
    st.sampled_from([*BAD, "completed", "cancelled", "preempted", "unknown"]),
    st.sampled_from(["m", "n", "m+n"]),
    st.sampled_from([0.5, 1, 8]),
)
FAULT = st.tuples(st.sampled_from("mn"), st.integers(0, 180), st.sampled_from(["fan", "nic", None]))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(RUN, min_size=1, max_size=10),
    st.lists(FAULT, max_size=6, unique_by=lambda f: f[:2]),
    st.sampled_from([0, 0.5, 1, 2.5]),
)
def test_other_code_agrees(make_trace: MakeTrace, drawn: list[Any], faults: list[Any], every: float) -> None:
    rows = [(f"{job}{k}", 0, s, s + w, status, node, gpus) for k, (job, s, w, status, node, gpus) in enumerate(drawn)]
    events = [fault(node, five / 12, cause) for node, five, cause in faults]
    trace = make_trace(**runs(*rows), node_events=events)
    lost: dict[tuple[str, str | None], float] = {}
    for _, _, start, end, status, node, gpus in rows:
        # In steps of five minutes: from two before the end to one after.
        near = sorted(
            (five, name, cause or "unknown")
            for name, five, cause in faults
            if name in node and start * 12 <= five and end * 12 - 2 <= five <= end * 12 + 1
        )
        if status in (*BAD, "preempted") or (near and status != "completed"):
            key = (status, near[0][2] if near else None)
            lost[key] = lost.get(key, 0) + gpus * ((end - start) % every if every else end - start)
    ask = Asking(trace)
    found = ask("failures/lost_work", checkpoint_h=every)
    assert {(s, c): h for s, c, h in found.select("status", "cause", "lost_gpu_hours").iter_rows()} == pytest.approx(
        lost
    )
    with ask.session.connect(["node_events"]) as con:
        assert con.execute("SELECT count(*) FROM attempt_interruptions").fetchall() == [(len(rows),)]
