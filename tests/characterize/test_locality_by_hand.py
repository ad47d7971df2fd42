"""The queries about locality and dedicated nodes on traces small enough to check on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Rows = list[tuple[Any, ...]]


def rows(trace: Trace, name: str, **params: Any) -> Rows:
    return run_query(trace, name, **params).rows()


def approx(expected: Rows) -> Rows:
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in expected]


def attempt(job: str, start: str | None, end: str | None, *, gpus: float | None, number: int = 0) -> dict[str, Any]:
    day = "2017-10-03 "
    times = {"start_time": start and day + start, "end_time": end and day + end}
    return {"job_id": job, "attempt": number, "gpu_count": gpus, **times}


def held(job: str, node: str, gpus: list[int] | None, *, number: int = 0, count: float | None = None) -> dict[str, Any]:
    if count is None and gpus is not None:
        count = len(gpus)
    return {"job_id": job, "attempt": number, "node_id": node, "gpu_index": gpus, "gpu_count": count}


def samples(node: str, gpu: int, values: dict[str, float | None]) -> list[dict[str, Any]]:
    return [
        {"time": f"2017-10-03 {t}", "node_id": node, "gpu_index": gpu, "utilization_pct": v} for t, v in values.items()
    ]


def minutes(values: Sequence[float | None]) -> dict[str, float | None]:
    """Return values by minute, the first at 00:58, so that the hour turns between the second and the third."""
    return dict(zip(("00:58", "00:59", "01:00", "01:01", "01:02"), values, strict=False))


def test_utilization_by_spread_goes_by_the_size_and_nodes_of_the_attempt(make_trace: MakeTrace) -> None:
    attempts = [
        attempt("a", "00:58", "01:00", gpus=2),
        attempt("b", "00:58", "00:59", gpus=2),
        attempt("b", "01:01", "01:02", gpus=1, number=1),
        attempt("c", "00:58", "01:02", gpus=None),
    ]
    placements = [
        held("a", "n", [0, 1]),
        held("b", "n", [2]),
        held("b", "m", [0]),
        held("b", "k", [], count=0),  # a parameter server without a GPU is not a node of the gang
        held("b", "n", [2], number=1),
        held("c", "m", [1]),
    ]
    utilization = [
        *samples("n", 0, minutes([10, 20, 99])),
        *samples("n", 1, minutes([30, None])),
        *samples("n", 2, minutes([50, 99, 99, 5])),
        *samples("m", 0, minutes([70, 99])),
        *samples("m", 1, minutes([99, 99])),
    ]
    trace = make_trace(attempts=attempts, placements=placements, gpu_utilization=utilization)
    # a: 10, 20, 30; the rank of p is 2p: p90 1.8 -> 28, p95 1.9 -> 29. b: 50, 70 on two nodes, then 5 alone.
    assert rows(trace, "locality/utilization_by_spread") == approx(
        [
            (1.0, 1, 1, 5.0, 5.0, 5.0, 5.0),
            (2.0, 1, 3, 20.0, 20.0, 28.0, 29.0),
            (2.0, 2, 2, 60.0, 60.0, 68.0, 69.0),
        ]
    )


# a holds a GPU on each of n and m for four minutes; b comes to n in the middle of the second minute, whose sample then
# belongs to b too, and leaves as the fourth begins. c is on m, but nothing says until when.
COLOCATED: dict[str, list[dict[str, Any]]] = {
    "attempts": [
        attempt("a", "00:58", "01:02", gpus=2),
        attempt("b", "00:59:30", "01:01", gpus=1),
        attempt("c", "00:58", None, gpus=1),
    ],
    "placements": [held("a", "n", [0]), held("a", "m", [0]), held("b", "n", [1]), held("c", "m", [1])],
    "gpu_utilization": [
        *samples("n", 0, minutes([10, 20, 30, 40])),
        *samples("m", 0, minutes([11, 21, 31, 41])),
        *samples("n", 1, minutes([99, 50, 60, 99])),
    ],
}


def test_colocation_is_judged_sample_by_sample_on_all_nodes_of_the_attempt(make_trace: MakeTrace) -> None:
    # Alone 10, 11, 40, 41: rank of p is 3p, p90 2.7 -> 40.7, p95 2.85 -> 40.85. Shared 20, 21, 30, 31.
    assert rows(make_trace(**COLOCATED), "locality/utilization_by_colocation") == approx(
        [
            (1.0, True, 2, 55.0, 55.0, 59.0, 59.5),
            (2.0, False, 4, 25.5, 25.5, 40.7, 40.85),
            (2.0, True, 4, 25.5, 25.5, 30.7, 30.85),
        ]
    )


def test_colocation_on_the_same_node_leaves_the_other_nodes_alone(make_trace: MakeTrace) -> None:
    # Alone 10, 11, 21, 31, 40, 41: rank of p is 5p, p50 2.5 -> 26, p90 4.5 -> 40.5, p95 4.75 -> 40.75. Shared 20, 30.
    assert rows(make_trace(**COLOCATED), "locality/utilization_by_colocation", rule="same_node") == approx(
        [
            (1.0, True, 2, 55.0, 55.0, 59.0, 59.5),
            (2.0, False, 6, 154 / 6, 26.0, 40.5, 40.75),
            (2.0, True, 2, 25.0, 25.0, 29.0, 29.5),
        ]
    )


@pytest.mark.parametrize("rule", ["any_node", "same_node"])
def test_a_job_is_not_a_neighbour_of_itself_nor_of_one_that_left_as_it_came(make_trace: MakeTrace, rule: str) -> None:
    trace = make_trace(
        attempts=[
            attempt("a", "00:58", "01:00", gpus=1),
            attempt("a", "00:58", "01:01", gpus=1, number=1),  # overlaps the first, against all reason
            attempt("b", "01:01", "01:02", gpus=1),
            attempt("d", "00:58", "01:02", gpus=0),
        ],
        placements=[held("a", "n", [0]), held("a", "n", [1], number=1), held("b", "n", [2]), held("d", "n", None)],
        gpu_utilization=[*samples("n", 0, minutes([1, 1])), *samples("n", 2, minutes([9, 9, 9, 2]))],
    )
    assert [row[:4] for row in rows(trace, "locality/utilization_by_colocation", rule=rule)] == [
        (1.0, False, 3, pytest.approx(4 / 3))
    ]


def test_a_sample_is_counted_once_however_many_neighbours_there_are(make_trace: MakeTrace) -> None:
    others = [("b", "00:58", "01:01"), ("c", "00:59", "01:02"), ("d", "00:58", "01:02")]
    trace = make_trace(
        attempts=[attempt("a", "00:58", "01:02", gpus=2), *(attempt(j, s, e, gpus=1) for j, s, e in others)],
        placements=[
            *(held("a", node, [0]) for node in "nm"),
            *(held(j, node, [g]) for g, (j, _, _) in enumerate(others, 1) for node in "nm"),
        ],
        gpu_utilization=[*samples("n", 0, minutes([1, 2, 3, 4])), *samples("m", 0, minutes([5, 6, 7, 8]))],
    )
    for rule in ("any_node", "same_node"):
        found = rows(trace, "locality/utilization_by_colocation", rule=rule)
        assert [row[:4] for row in found] == [(2.0, True, 8, 4.5)]


@pytest.mark.parametrize("rule", ["any_node", "same_node"])
def test_the_last_minute_of_telemetry_counts_for_who_starts_within_it(make_trace: MakeTrace, rule: str) -> None:
    trace = make_trace(
        attempts=[attempt(job, "00:58:30", "01:02", gpus=1) for job in "ab"],
        placements=[held("a", "n", [0]), held("b", "n", [1])],
        gpu_utilization=[*samples("n", 0, minutes([7])), *samples("n", 1, minutes([9]))],
    )
    assert [row[:4] for row in rows(trace, "locality/utilization_by_colocation", rule=rule)] == [(1.0, True, 2, 8.0)]


def test_relaxation_is_nodes_over_the_fewest_that_could_hold_the_job(make_trace: MakeTrace) -> None:
    facts = [
        ("a", 8, 1),
        ("b", 8, 2),
        ("c", 8, 2),
        ("d", 17, 4),
        ("e", 0.5, 1),
        ("f", 0, 1),
        ("g", 8, None),
        ("h", 3, 1),
    ]
    jobs = [{"job_id": j, "gpu_count": g, "node_count": n} for j, g, n in facts]
    waits = [("a", 0, 600), ("a", 1, 9), ("b", 0, 10), ("c", 0, 30), ("d", 0, None), ("h", 0, 0)]
    attempts = [{"job_id": j, "attempt": k, "wait_s": w} for j, k, w in waits]
    trace = make_trace(jobs=jobs, attempts=attempts)
    assert rows(trace, "locality/relaxation") == approx(
        [
            ("<1", 1.0, 1, 1.0, None, 0),
            ("2-4", 1.0, 1, 1.0, 0.0, 1),
            ("5-8", 1.0, 1, 1 / 3, 600.0, 1),
            ("5-8", 2.0, 2, 2 / 3, 20.0, 2),
            (">8", 4 / 3, 1, 1.0, None, 0),  # 17 GPUs need 3 nodes of 8
        ]
    )
    assert [row[:2] for row in rows(trace, "locality/relaxation", gpus_per_node=4)] == approx(
        [("<1", 1.0), ("2-4", 1.0), ("5-8", 0.5), ("5-8", 1.0), (">8", 4 / 5)]
    )


# n has 2 GPUs by its list, m 8 by the telemetry of gpu7, k 4 by what was held there.
DEDICATED: dict[str, list[dict[str, Any]]] = {
    "jobs": [
        {"job_id": j, "gpu_count": g} for j, g in (("a", 2), ("b", 8), ("c", 8), ("d", 8), ("e", 16), ("f", None))
    ],
    "nodes": [{"node_id": "n", "gpu_count": 2}],
    "attempts": [
        attempt("a", "00:58", "01:00", gpus=2),
        attempt("b", "00:58", "00:59", gpus=8),
        attempt("c", "01:00", "01:01", gpus=6),
        attempt("d", "01:00", "01:01", gpus=8),
        attempt("e", "01:01", "01:02", gpus=10),
        attempt("f", "01:01", "01:02", gpus=2),
    ],
    "placements": [
        held("a", "n", [0, 1]),
        held("b", "m", [0, 1, 2, 3]),
        held("b", "m", [4, 5, 6, 7]),
        held("c", "k", [0, 1, 2, 3]),
        held("c", "m", [0, 1]),
        held("d", "m", [2, 3, 4]),
        held("e", "m", [0, 1, 2, 3, 4, 5, 6, 7]),
        held("e", "n", [0, 1]),
        held("f", "k", [0, 1]),
    ],
    "gpu_utilization": [
        *samples("n", 0, minutes([10, 20, 99, 40])),
        *samples("m", 7, minutes([30, 99, 99, 50])),
        *samples("m", 2, minutes([70, 99, 80])),
        *samples("k", 0, minutes([99, 99, 60, 99])),
    ],
}


def test_dedicated_attempts_hold_every_gpu_of_every_node(make_trace: MakeTrace) -> None:
    trace = make_trace(**DEDICATED)
    # a: all of n, 10 and 20. b: all of m in two parts, 30 and 70. c: all of k, two of m: out. d: three of m: out.
    # e: all of m and of n, 50 and 40. f: of unknown size.
    assert rows(trace, "utilization/dedicated") == approx(
        [
            (2.0, 2, 15.0, 15.0, 19.0, 19.5),
            (8.0, 2, 50.0, 50.0, 66.0, 68.0),
            (16.0, 2, 45.0, 45.0, 49.0, 49.5),
        ]
    )


def test_the_notebook_calls_attempts_on_few_nodes_dedicated(make_trace: MakeTrace) -> None:
    trace = make_trace(**DEDICATED)
    # On at most 8 / 8 = 1 node: b, and d with 80, although d leaves five GPUs of m to others. c is on two. e: 2 of 2.
    b_and_d = (8.0, 3, 60.0, 70.0, 78.0, 79.0)
    assert rows(trace, "utilization/dedicated", rule="notebook") == approx([b_and_d, (16.0, 2, 45.0, 45.0, 49.0, 49.5)])
    assert [row[0] for row in rows(trace, "utilization/dedicated", sizes="paper")] == [8.0, 16.0]


def test_gpus_without_an_index_count_as_held_where_the_others_are_named(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "gpu_count": 4}],
        attempts=[attempt("a", "00:58", "00:59", gpus=4)],
        placements=[held("a", "n", [0, 1]), held("a", "n", None, count=2)],
        nodes=[{"node_id": "n", "gpu_count": 4}],
        gpu_utilization=samples("n", 0, minutes([7])),
    )
    assert [row[:3] for row in rows(trace, "utilization/dedicated")] == [(4.0, 1, 7.0)]
