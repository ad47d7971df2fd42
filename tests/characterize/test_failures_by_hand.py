"""The queries about failures on traces small enough to check on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query
from tracekit.characterize.run import answer_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Rows = list[tuple[Any, ...]]


def rows(trace: Trace, name: str, **params: Any) -> Rows:
    return run_query(trace, name, **params).rows()


def approx(expected: Rows) -> Rows:
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in expected]


# a failed at its third try; how the first two ended is unknown, as in Philly. b was taken away once and then
# completed. c timed out, as a job of unknown size. d runs. e fails on the CPU. f: only its first try is known to fail.
JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "user": "u", "gpu_count": 2, "status": "failed"},
    {"job_id": "b", "user": "u", "gpu_count": 2, "status": "completed"},
    {"job_id": "c", "user": "v", "status": "timeout"},
    {"job_id": "d", "user": "v", "gpu_count": 1, "status": "running"},
    {"job_id": "e", "gpu_count": 0, "status": "out_of_memory"},
    {"job_id": "f", "user": "v", "gpu_count": 1, "status": "unknown"},
]
ATTEMPTS: list[dict[str, Any]] = [
    {"job_id": "a", "attempt": 0, "run_s": 3600, "gpu_count": 2},
    {"job_id": "a", "attempt": 1, "run_s": None, "gpu_count": 2},
    {"job_id": "a", "attempt": 2, "run_s": 1800, "gpu_count": 2, "status": "failed"},
    {"job_id": "b", "attempt": 0, "run_s": 7200, "gpu_count": 2, "status": "preempted"},
    {"job_id": "b", "attempt": 1, "run_s": 7200, "gpu_count": 2, "status": "completed"},
    {"job_id": "c", "attempt": 0, "run_s": 9000, "status": "timeout"},
    {"job_id": "d", "attempt": 0, "gpu_count": 1, "status": "running"},
    {"job_id": "e", "attempt": 0, "run_s": 60, "gpu_count": 0, "status": "out_of_memory"},
    {"job_id": "f", "attempt": 0, "run_s": 360, "gpu_count": 1, "status": "node_fail"},
    {"job_id": "f", "attempt": 1, "run_s": 720, "gpu_count": 1, "status": "unknown"},
    {"job_id": "f", "attempt": 2, "run_s": 1080, "gpu_count": 1},
]


def test_run_time_to_failure_is_that_of_the_failed_attempts(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    assert rows(trace, "failures/run_time_to_failure") == approx(
        [
            ("0", 1, 60.0, 60.0, 60.0, 0.0, 0),
            ("1", 1, 360.0, 360.0, 360.0, 0.1, 0),
            ("2-4", 1, 1800.0, 1800.0, 1800.0, 1.0, 0),
        ]
    )


def test_an_attempt_of_unknown_end_that_was_tried_again_may_be_counted_as_failed(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # a: 3600 and 1800, the middle one of unknown length; b was preempted, and says so. f: 360 and 720, not the last.
    assert rows(trace, "failures/run_time_to_failure", rule="retried") == approx(
        [
            ("0", 1, 60.0, 60.0, 60.0, 0.0, 0),
            ("1", 2, 540.0, 684.0, 702.0, 0.3, 0),
            ("2-4", 2, 2700.0, 3420.0, 3510.0, 3.0, 0),
        ]
    )


def test_by_user_counts_failed_jobs_and_the_time_of_failed_attempts(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # v: c failed, d runs, f is not known; f lost a tenth of a GPU-hour, the size of c is unknown.
    expected = [("u", 2, 1, 0.5, 0, 1.0), ("v", 3, 1, 0.5, 1, 0.1), (None, 1, 1, 1.0, 0, 0.0)]
    assert rows(trace, "failures/by_user", jobs="all") == approx(expected)
    # Those with GPUs: c is of unknown size, and e has none. d runs, and how f ended is unknown.
    assert rows(trace, "failures/by_user") == approx([("u", 2, 1, 0.5, 0, 1.0), ("v", 2, 0, 0.0, 0, 0.1)])
    assert rows(trace, "failures/by_user", jobs="cpu") == approx([(None, 1, 1, 1.0, 0, 0.0)])
    lost = {row[0]: row[5] for row in rows(trace, "failures/by_user", rule="retried", jobs="all")}
    assert lost == {"u": pytest.approx(3.0), "v": pytest.approx(0.3), None: 0.0}


def test_by_user_without_attempts_knows_no_time(make_trace: MakeTrace) -> None:
    jobs = [
        {"job_id": "a", "user": "w"},
        {"job_id": "b", "user": "u", "status": "failed"},
        {"job_id": "c", "user": "v"},
    ]
    assert rows(make_trace(jobs=jobs), "failures/by_user") == [
        ("u", 1, 1, 1.0, 0, None),
        ("v", 1, 0, None, 0, None),
        ("w", 1, 0, None, 0, None),
    ]


def test_reasons_count_trials_jobs_users_and_the_time_they_cost(make_trace: MakeTrace) -> None:
    found = [
        ("a", 0, "CPU out of memory", "user"),
        ("a", 1, "CPU out of memory", "user"),
        ("a", 2, "CPU out of memory", "user"),
        ("a", 2, "CPU out of memory", "user"),  # the same trial, told twice
        ("f", 0, "MPI error", "infrastructure"),
        ("f", 1, "MPI error", "infrastructure"),
        ("e", 0, "No signature", None),
        ("gone", 0, "No signature", None),  # a job that the trace does not hold
    ]
    failures = [{"job_id": j, "attempt": k, "reason": r, "category": c, "signature": str(i)} for i, (j, k, r, c) in
                enumerate(found)]  # fmt: skip
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS, failures=failures)
    # Run times: a 3600, unknown, 1800 on 2 GPUs; f 360, 720 on 1 GPU; e 60 on none. GPU-hours 3 + 0.3 + 0.
    assert rows(trace, "failures/reasons") == approx(
        [
            ("CPU out of memory", "user", 3, 1, 1, 2700.0, 3420.0, 3510.0, 3.0, 3 / 3.3),
            ("MPI error", "infrastructure", 2, 1, 1, 540.0, 684.0, 702.0, 0.3, 0.3 / 3.3),
            ("No signature", None, 2, 2, None, 60.0, 60.0, 60.0, 0.0, 0.0),
        ]
    )


def test_reasons_alone_still_count_trials(make_trace: MakeTrace) -> None:
    trace = make_trace(failures=[{"job_id": "a", "attempt": 0, "reason": "Core dump", "category": "user"}])
    assert rows(trace, "failures/reasons") == [("Core dump", "user", 1, 1, None, None, None, None, None, None)]


def on_nodes(*facts: tuple[float, str, str, float | None]) -> dict[str, list[dict[str, Any]]]:
    """Return tables of one job a fact: its GPUs, status, nodes (one letter each) and run time [s]."""
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for number, (gpus, status, nodes, run_s) in enumerate(facts):
        name = f"j{number}"
        tables["jobs"].append({"job_id": name, "gpu_count": gpus, "status": status})
        tables["attempts"].append({"job_id": name, "attempt": 0, "gpu_count": gpus, "status": status, "run_s": run_s})
        tables["placements"] += [{"job_id": name, "attempt": 0, "node_id": n} for n in nodes]
    return tables


# n: two failures of three attempts, m: none of three. The attempt on both counts for both, and names n twice.
TWO_NODES = on_nodes(
    (1, "failed", "n", 3600),
    (1, "node_fail", "n", 3600),
    (1, "completed", "nnm", 7200),
    (1, "cancelled", "m", 7200),
    (1, "completed", "m", 14400),
    (1, "unknown", "m", 60),
    (1, "failed", "m", None),
    (1, "running", "n", None),
    (1, "failed", "m", -5),
)


def test_by_node_tells_how_likely_so_many_failures_are(make_trace: MakeTrace, golden: Golden) -> None:
    trace = make_trace(**TWO_NODES)
    # Of the 20 ways to place 2 failures on 6 attempts of 3 + 3 ... C(6, 2) = 15, C(3, 2) = 3 put both on n.
    assert rows(trace, "failures/by_node", exposure="sized_attempts") == approx(
        [
            ("n", 3, 2, 0, 2 / 3, 4.0, 2.0, 3, 2, 1.0, 0.2, 0.4, None, False),
            ("m", 3, 0, 0, 0.0, 8.0, None, 3, 0, 1.0, 1.0, 1.0, None, False),
        ]
    )
    golden(answer_query(trace, "failures/by_node").notes)


def test_by_node_can_go_by_hours(make_trace: MakeTrace) -> None:
    # n has 4 of 12 hours: expected 2 / 3, both failures there with a chance of 1 / 9.
    assert rows(make_trace(**TWO_NODES), "failures/by_node", exposure="node_hours") == approx(
        [
            ("n", 3, 2, 0, 2 / 3, 4.0, 2.0, 3, 2, 2 / 3, 1 / 9, 2 / 9, None, False),
            ("m", 3, 0, 0, 0.0, 8.0, None, 3, 0, 4 / 3, 1.0, 1.0, None, False),
        ]
    )


def test_by_node_can_count_what_the_source_blames_on_the_node(make_trace: MakeTrace) -> None:
    found = rows(make_trace(**TWO_NODES), "failures/by_node", failures="node_fail", exposure="sized_attempts")
    assert [(row[0], row[1], row[2], row[9], row[10]) for row in found] == approx(
        [("n", 3, 1, 0.5, 0.5), ("m", 3, 0, 0.5, 1.0)]
    )


def test_large_jobs_are_compared_with_large_jobs(make_trace: MakeTrace) -> None:
    # Jobs of 8 GPUs fail in 3 of 4 attempts, those of 1 GPU in 1 of 8; n has three of the large ones, m one.
    large = [(8, "failed", "n", 3600)] * 2 + [(8, "completed", "n", 3600), (8, "failed", "m", 3600)]
    small = [(1, "completed", "n", 3600), (1, "failed", "m", 3600)] + [(1, "completed", "m", 3600)] * 6
    trace = make_trace(**on_nodes(*large, *small))
    # By size: n expects 3/4 * 3 + 1/8 * 1. At least 2 of its 3 large ones fail always, since one attempt is elsewhere:
    # certain. m expects 3/4 + 7/8; both fail with 3/4 * 7/8.
    found = [(row[0], row[2], row[9], row[10]) for row in rows(trace, "failures/by_node", exposure="sized_attempts")]
    assert found == approx([("m", 2, 13 / 8, 21 / 32), ("n", 2, 19 / 8, 1.0)])
    # All alike: 4 of 12 fail. n has 4 attempts, at least 2 failed with (C(4,2) C(8,2) + C(4,3) C(8,1) + 1) / C(12,4);
    # m has 8, at most 1 failed with (C(4,3) C(8,1) + 1) / C(12,4).
    alike = [(row[0], row[9], row[10]) for row in rows(trace, "failures/by_node", exposure="attempts")]
    assert alike == approx([("n", 4 / 3, 201 / 495), ("m", 8 / 3, 1 - 33 / 495)])


def test_nodes_without_time_cannot_be_compared_by_the_hour(make_trace: MakeTrace) -> None:
    trace = make_trace(**on_nodes((1, "failed", "n", 0), (1, "completed", "m", 0)))
    assert rows(trace, "failures/by_node", exposure="node_hours") == [
        ("m", 1, 0, 0, 0.0, 0.0, None, 1, 0, None, None, None, None, False),
        ("n", 1, 1, 0, 1.0, 0.0, 0.0, 1, 1, None, None, None, None, False),
    ]


def test_a_trace_of_no_known_ends_has_no_nodes_to_list(make_trace: MakeTrace) -> None:
    trace = make_trace(**on_nodes((1, "unknown", "n", 60)))
    for exposure in ("sized_attempts", "attempts", "node_hours"):
        assert rows(trace, "failures/by_node", exposure=exposure) == []
