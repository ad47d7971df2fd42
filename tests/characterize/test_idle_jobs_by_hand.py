"""Jobs that leave their GPUs idle, on traces small enough to check on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import find_query, lacks, run_query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def rows(trace: Trace, **params: Any) -> list[tuple[Any, ...]]:
    found = run_query(trace, "utilization/idle_jobs", **params).rows()
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in found]


def job(name: str, gpus: float | None, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "gpu_count": gpus, "user": f"u{name}", "vc": "v", **more}


def attempt(name: str, hours: float | None, gpus: float | None, number: int = 0) -> dict[str, Any]:
    """Return an attempt that starts at the hour of its number; the telemetry reads its GPU n0 in the first minutes."""
    start = f"2017-10-03 0{number}:00"
    run = None if hours is None else hours * 3600
    return {
        "job_id": name,
        "attempt": number,
        "gpu_count": gpus,
        "run_s": run,
        "start_time": start,
        "end_time": None if hours is None else f"2017-10-03 0{number}:59",
    }


def usage(name: str, pct: float | None, task: str | None = None, instance: str | None = None) -> dict[str, Any]:
    return {"job_id": name, "task": task, "instance": instance, "gpu_util_pct": pct}


def test_a_job_is_idle_by_the_mean_of_its_samples_over_all_attempts(make_trace: MakeTrace) -> None:
    gpus = {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    values: dict[str, list[float | None]] = {
        "a": [2, 4, 12],
        "b": [0, 0, None],
        "c": [10, 10, 10],
        "d": [10.5, 10.5, 10.5],
        "e": [None, None, None],
    }
    trace = make_trace(
        jobs=[job("a", 2), job("b", 1), job("c", 4), job("d", 4), job("e", 4), job("f", 4)],
        attempts=[
            attempt("a", 1, 2),
            attempt("a", 2, 1, number=1),
            attempt("b", 0.5, 1),
            attempt("c", 1, 4),
            attempt("d", 9, 4),
            attempt("e", 9, 4),  # its GPU was offline: unknown, not idle
            attempt("f", 9, 4),  # never sampled
        ],
        placements=[
            {"job_id": j, "attempt": k, "node_id": "n", "gpu_index": [g]} for j, g in gpus.items() for k in (0, 1)
        ],
        gpu_utilization=[
            {"time": time, "node_id": "n", "gpu_index": gpus[j], "utilization_pct": v}
            for j, vs in values.items()
            for time, v in zip(("2017-10-03 00:00", "2017-10-03 00:01", "2017-10-03 01:00"), vs, strict=True)
            if j == "a" or time < "2017-10-03 01"
        ],
    )
    # a: mean of 2, 4, 12 is 6; 2 * 1 + 1 * 2 = 4 GPU-hours in 3 h; wasted 4 * 0.94. c: exactly 10, 4 GPU-hours * 0.9.
    # b ran for half an hour only; d is above 10.
    a, c = ("a", "ua", "v", 2.0, 10800.0, 6.0, 3.76), ("c", "uc", "v", 4.0, 3600.0, 10.0, 3.6)
    assert rows(trace) == [a, c]
    assert rows(trace, threshold_pct=6, min_run_s=0) == [a, ("b", "ub", "v", 1.0, 1800.0, 0.0, 0.5)]
    assert rows(trace, min_run_s=3601) == [a]


def test_measured_use_is_divided_by_the_gpus_of_what_was_measured(make_trace: MakeTrace) -> None:
    part = {"attempt": 0, "node_id": "n"}
    trace = make_trace(
        jobs=[job("a", 4), job("b", 4), job("c", 4), job("d", 8), job("e", 1), job("f", 0)],
        attempts=[attempt(j, 2, g) for j, g in zip("abcdef", (4, 4, 4, 8, 1, 0), strict=True)],
        placements=[
            {**part, "job_id": "a", "task": "w", "instance": "i1", "gpu_count": 2},
            {**part, "job_id": "a", "task": "w", "instance": "i2", "gpu_count": 2},
            {**part, "job_id": "b", "task": "w", "instance": "i1", "gpu_count": 2},
            {**part, "job_id": "b", "task": "ps", "instance": "i3", "gpu_count": 0},
            {**part, "job_id": "c", "gpu_count": 2},
            {**part, "job_id": "c", "gpu_count": 2, "node_id": "m"},
        ],
        job_usage=[
            usage("a", 8, "w", "i1"),  # one of two instances: 8 percent of 2 GPUs
            usage("b", 4, "w"),  # an instance that is not named has what those of its task have
            usage("b", 900, "ps", "i3"),  # no GPU there
            usage("b", None, "w", "i1"),
            usage("c", 4, None, "step 0"),  # steps of one job: the whole job's 4 GPUs each
            usage("c", 12, None, "step 1"),
            usage("d", 16),  # no placement: the whole job
            usage("f", 0),
        ],
    )
    # a: 8 / 2 = 4. b: 4 / 2 = 2. c: (4 + 12) / (4 + 4) = 2. d: 16 / 8 = 2. e was not measured, f has no GPU.
    assert [(row[0], row[5], row[6]) for row in rows(trace)] == [
        ("d", 2.0, 16 * 0.98),
        ("b", 2.0, 8 * 0.98),
        ("c", 2.0, 8 * 0.98),
        ("a", 4.0, 8 * 0.96),
    ]


def test_samples_go_before_measured_use(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("a", 1)],
        attempts=[attempt("a", 1, 1)],
        placements=[{"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 1}],
        gpu_utilization=[{"time": "2017-10-03", "node_id": "n", "gpu_index": 0, "utilization_pct": 1}],
        job_usage=[usage("a", 90)],
    )
    assert [row[5] for row in rows(trace)] == [1.0]


def test_more_than_the_gpu_that_was_asked_for_is_not_a_negative_waste(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("a", 0.25)], attempts=[attempt("a", 1, 0.25)], job_usage=[usage("a", 60)])
    assert rows(trace, threshold_pct=1000) == [("a", "ua", "v", 0.25, 3600.0, 240.0, 0.0)]


def test_time_of_unknown_length_is_not_wasted(make_trace: MakeTrace) -> None:
    attempts = [attempt("a", None, 1), attempt("b", 1, None), attempt("b", 1, 1, number=1)]
    trace = make_trace(jobs=[job("a", 1), job("b", 1)], attempts=attempts, job_usage=[usage(j, 0) for j in ("a", "b")])
    assert rows(trace) == [("b", "ub", "v", 1.0, 3600.0, 0.0, 1.0)]


def test_a_trace_needs_one_of_the_two_tables(make_trace: MakeTrace) -> None:
    bare = make_trace(jobs=[job("a", 1)], attempts=[attempt("a", 1, 1)])
    query = find_query("utilization/idle_jobs")
    assert lacks(query, bare) == ["The trace has no table 'gpu_utilization' or 'job_usage'."]
    with pytest.raises(QueryError, match="has no table 'gpu_utilization' or 'job_usage'"):
        rows(bare)
