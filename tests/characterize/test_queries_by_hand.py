"""Each query on a trace small enough to check on paper."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query
from tracekit.characterize.session import connect_with_views
from tracekit.manifest import Capability

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

# Four jobs. a: 1 GPU, two attempts of 1 h and 2 h with a gap of 1 h. b: 4 GPUs, one attempt of half an hour.
# c: CPU job of 2 h. d: of unknown size, never started.
JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "gpu_count": 1, "status": "failed", "run_s": 4 * 3600, "attempt_count": 2},
    {"job_id": "b", "gpu_count": 4, "status": "completed", "run_s": 1800, "attempt_count": 1},
    {"job_id": "c", "gpu_count": 0, "status": "completed", "run_s": 7200, "attempt_count": 1},
    {"job_id": "d", "status": None, "attempt_count": 0},
]
ATTEMPTS: list[dict[str, Any]] = [
    {"job_id": "a", "attempt": 0, "run_s": 3600, "gpu_count": 1, "wait_s": 10},
    {"job_id": "a", "attempt": 1, "run_s": 7200, "gpu_count": 1, "wait_s": 3600},
    {"job_id": "b", "attempt": 0, "run_s": 1800, "gpu_count": 4, "wait_s": 0},
    {"job_id": "c", "attempt": 0, "run_s": 7200, "gpu_count": 0, "wait_s": 5},
]


def rows(trace: Trace, name: str, **params: Any) -> list[tuple[Any, ...]]:
    return run_query(trace, name, **params).rows()


def approx(expected: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in expected]


def test_status_shares_jobs_over_all_and_gpu_hours_over_the_known(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # GPU-hours: a 1*1 + 2*1 = 3; b 0.5*4 = 2; c 0; d unknown. Sum 5. With GPUs: a failed, b completed; c has none.
    kinds = {"completed": (1, 0.5, 1.0), "failed": (1, 0.5, 0.0), None: (0, 0.0, 0.0)}
    assert rows(trace, "overview/status") == approx(
        [
            ("completed", 2, 0.5, 2.0, 0.4, *kinds["completed"]),
            ("failed", 1, 0.25, 3.0, 0.6, *kinds["failed"]),
            (None, 1, 0.25, None, None, *kinds[None]),
        ]
    )
    # With gaps: a 4*1 = 4; b 2; c 0. Sum 6.
    assert rows(trace, "overview/status", gpu_time="with_gaps") == approx(
        [
            ("completed", 2, 0.5, 2.0, 2 / 6, *kinds["completed"]),
            ("failed", 1, 0.25, 4.0, 4 / 6, *kinds["failed"]),
            (None, 1, 0.25, None, None, *kinds[None]),
        ]
    )


def test_status_without_attempts_knows_no_gpu_hours(make_trace: MakeTrace) -> None:
    assert rows(make_trace(jobs=JOBS[:1]), "overview/status") == [("failed", 1, 1.0, None, None, 1, 1.0, None)]


def test_job_size_shows_jobs_of_unknown_size(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    assert rows(trace, "overview/job_size") == approx(
        [
            ("0", 1, 0.25, 0.0, 0.0),
            ("1", 1, 0.25, 3.0, 0.6),
            ("2-4", 1, 0.25, 2.0, 0.4),
            (None, 1, 0.25, None, None),
        ]
    )


@pytest.mark.parametrize(
    ("gpu_count", "gpu_class"),
    [
        (0, "0"),
        (0.01, "<1"),
        (0.99, "<1"),
        (1, "1"),
        (1.5, "2-4"),
        (2, "2-4"),
        (4, "2-4"),
        (4.5, "5-8"),
        (8, "5-8"),
        (8.01, ">8"),
        (64, ">8"),
        (None, None),
    ],
)
def test_gpu_class_is_closed_above(make_trace: MakeTrace, gpu_count: float | None, gpu_class: str | None) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "gpu_count": gpu_count}])
    assert rows(trace, "overview/job_size") == [(gpu_class, 1, 1.0, None, None)]


def test_gpu_request_leaves_unknown_sizes_out(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    assert rows(trace, "workload/gpu_request") == approx(
        [(0.0, 1, 1 / 3, 0.0), (1.0, 1, 1 / 3, 0.6), (4.0, 1, 1 / 3, 0.4)]
    )


def test_gpu_request_of_one_instance_divides_the_gang(make_trace: MakeTrace) -> None:
    jobs = [
        {"job_id": "a", "gpu_count": 0.7, "instance_count": 7},  # seven times a tenth of a GPU
        {"job_id": "b", "gpu_count": 0.1, "instance_count": 1},
        {"job_id": "c", "gpu_count": 16, "instance_count": 2},
        {"job_id": "d", "gpu_count": 0, "instance_count": 3},
        {"job_id": "e", "gpu_count": 8},  # of how many instances is unknown
        {"job_id": "f", "instance_count": 2},
    ]
    attempts = [
        {"job_id": job, "attempt": 0, "run_s": run_s, "gpu_count": gpus}
        for job, run_s, gpus in (("a", 1000, 0.7), ("b", 3000, 0.1), ("c", 1000, 16), ("d", 9, 0), ("e", 1000, 8))
    ]
    trace = make_trace(jobs=jobs, attempts=attempts)
    # GPU time: 700 and 300 GPU*s of gangs that ask for a tenth each, 16,000 GPU*s, 0; together 17,000.
    assert rows(trace, "workload/gpu_request", rule="instance") == approx(
        [(0.0, 1, 1 / 4, 0.0), (0.1, 2, 1 / 2, 1 / 17), (8.0, 1, 1 / 4, 16 / 17)]
    )
    gangs = rows(trace, "workload/gpu_request")
    assert gangs == rows(trace, "workload/gpu_request", rule="gang")
    assert [row[:2] for row in gangs] == [(0.0, 1), (0.1, 1), (0.7, 1), (8.0, 1), (16.0, 1)]


def test_summary_has_every_metric_and_null_for_the_unknown(make_trace: MakeTrace) -> None:
    jobs = [
        {**JOBS[0], "user": "u", "vc": "v", "cluster": "x", "submit_time": "2017-10-03 00:00", "queue_s": 10},
        {**JOBS[1], "user": "u", "vc": "v", "cluster": "y", "submit_time": "2017-10-04 12:00", "queue_s": 0},
        {**JOBS[2], "user": "w", "cluster": "y"},
        JOBS[3],
    ]
    trace = make_trace(
        jobs=jobs,
        attempts=ATTEMPTS,
        nodes=[{"node_id": "n1", "gpu_count": 2}, {"node_id": "n2"}],
        placements=[{"job_id": "b", "attempt": 0, "node_id": "n1", "gpu_index": [0, 1, 2, 3], "gpu_count": 4}],
        doubtful_times=[
            _doubtful("a", "start_time", "2017-11-05 08:30", "2017-11-05 09:30", attempt=0),
            _doubtful("b", "end_time", "2017-11-05 08:30", "2017-11-05 09:00"),  # of the job, so of its first attempt
            _doubtful("b", "submit_time", "2017-11-05 08:30", "2017-11-05 09:30"),  # changes no run time
            _doubtful("c", "end_time", None, None),
        ],
    )
    assert rows(trace, "overview/summary") == approx(
        [
            ("jobs", 4.0, "jobs"),
            ("gpu_jobs", 2.0, "jobs"),
            ("cpu_jobs", 1.0, "jobs"),
            ("jobs_of_unknown_size", 1.0, "jobs"),
            ("users", 2.0, "users"),
            ("vcs", 2.0, "VCs"),  # v of x and v of y
            ("clusters", 2.0, "clusters"),
            ("attempts", 4.0, "attempts"),
            ("nodes", 2.0, "nodes"),
            ("gpus_listed", 2.0, "GPUs"),
            ("gpus_observed", 4.0, "GPUs"),  # GPU 3 of n1 was used
            ("gpu_hours", 5.0, "GPU-hours"),
            ("mean_run_s", (14400 + 1800 + 7200) / 3, "s"),
            ("median_run_s", 7200.0, "s"),
            ("mean_queue_s", 5.0, "s"),
            ("median_queue_s", 5.0, "s"),
            ("completed_share", 0.5, "share"),
            ("unknown_status_share", 0.25, "share"),
            ("days_covered", 1.5, "days"),
            ("impossible_times", 1.0, "times"),
            ("hour_in_doubt_times", 3.0, "times"),
            ("gpu_hours_in_doubt", 1 * 1.0 + 4 * 0.5, "GPU-hours"),
            # With GPUs: a (10 s, 4 h, failed) and b (0 s, 0.5 h, completed); c has none, the size of d is unknown.
            ("gpu_mean_queue_s", 5.0, "s"),
            ("gpu_median_queue_s", 5.0, "s"),
            ("gpu_median_run_s", (14400 + 1800) / 2, "s"),
            ("gpu_completed_share", 0.5, "share"),
            ("gpu_failed_share", 0.5, "share"),
            ("gpu_timeout_share", 0.0, "share"),
            ("gpu_unknown_status_share", 0.0, "share"),
            ("cpu_median_queue_s", None, "s"),
            ("cpu_median_run_s", 7200.0, "s"),
            ("cpu_completed_share", 1.0, "share"),
            ("pools", None, "pools"),
        ]
    )


def _doubtful(job: str, column: str, earliest: str | None, latest: str | None, **row: object) -> dict[str, object]:
    words = {"column": column, "value": "?", "reason": "?"}
    return {"job_id": job, **words, "earliest": earliest, "latest": latest, **row}


def test_summary_of_a_bare_trace_says_null_not_zero(make_trace: MakeTrace) -> None:
    capabilities = {
        name: Capability(available=False)
        for name in ("gpu_count", "users", "tenants", "run_time", "queueing", "statuses", "arrivals")
    }
    trace = make_trace(jobs=[{"job_id": "a", "user": "u"}], manifest_overrides={"capabilities": capabilities})
    found = {metric: value for metric, value, _ in rows(trace, "overview/summary")}
    assert {m: v for m, v in found.items() if v is not None} == {
        "jobs": 1.0,
        "jobs_of_unknown_size": 1.0,
        "impossible_times": 0.0,
        "hour_in_doubt_times": 0.0,
        "gpu_hours_in_doubt": 0.0,
    }
    assert len(found) == 33


def test_summary_takes_the_capacity_table_where_no_nodes_are_listed(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, capacity=[{"time": "2020-01-01", "cluster": "Earth", "gpu_count": 64}])
    found = {metric: value for metric, value, _ in rows(trace, "overview/summary")}
    assert (found["gpus_listed"], found["gpus_observed"], found["nodes"]) == (64.0, None, None)


def test_arrivals_are_read_in_the_zone_of_the_trace(make_trace: MakeTrace) -> None:
    # 2017-10-03 05:30 UTC is 22:30 on October 2 in Los Angeles; 2017-10-04 06:59 is 23:59 on October 3;
    # 2017-10-04 07:00 is 00:00 on October 4. Three local days, October 2 to 4.
    times = ["2017-10-03 05:30", "2017-10-04 06:59", "2017-10-04 07:00", "2017-10-04 07:59:59.5", None]
    jobs = [{"job_id": str(i), "submit_time": t, "gpu_count": i % 2} for i, t in enumerate(times)]
    trace = make_trace(jobs=jobs, manifest_overrides={"timezone": "America/Los_Angeles"})
    expected: dict[int, tuple[int, int]] = {0: (2, 1), 22: (1, 0), 23: (1, 1)}
    assert rows(trace, "overview/arrivals_by_hour") == approx(
        [(h, *expected.get(h, (0, 0)), expected.get(h, (0, 0))[0] / 3) for h in range(24)]
    )


def test_arrivals_without_sizes_or_times_are_null(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[{"job_id": "a"}])
    assert rows(trace, "overview/arrivals_by_hour") == [(h, 0, None, None) for h in range(24)]


def test_run_time_interpolates_between_jobs(make_trace: MakeTrace) -> None:
    jobs = [{"job_id": str(t), "gpu_count": 8, "run_s": t} for t in (0, 10, 20, 30, 40)]
    jobs += [{"job_id": "u", "run_s": 5}, {"job_id": "r", "gpu_count": 8}, {"job_id": "c", "gpu_count": 0, "run_s": 7}]
    # Rank of p among 5 is 4p: p10 0.4 -> 4, p25 1 -> 10, p90 3.6 -> 36, p95 3.8 -> 38, p99 3.96 -> 39.6.
    assert rows(make_trace(jobs=jobs), "queuing/run_time") == approx(
        [
            ("0", 1, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0),
            ("5-8", 5, 20.0, 4.0, 10.0, 20.0, 30.0, 36.0, 38.0, 39.6, 40.0),
        ]
    )


def test_queue_delay_counts_each_wait_zeros_too(make_trace: MakeTrace) -> None:
    jobs = [
        {"job_id": "a", "vc": "v", "gpu_count": 2},
        {"job_id": "b", "vc": "v", "gpu_count": 3},
        {"job_id": "c", "gpu_count": 1},
        {"job_id": "d", "vc": "v"},
    ]
    waits = [("a", 0, 0), ("a", 1, 100), ("a", 2, None), ("b", 0, 20), ("c", 0, 8), ("d", 0, 9)]
    attempts = [{"job_id": j, "attempt": k, "wait_s": w} for j, k, w in waits]
    # v, 2-4: waits 0, 20, 100. Rank of p among 3 is 2p: p75 1.5 -> 60, p90 1.8 -> 84, p95 1.9 -> 92, p99 98.4.
    assert rows(make_trace(jobs=jobs, attempts=attempts), "queuing/queue_delay") == approx(
        [
            ("v", "2-4", 3, 40.0, 20.0, 60.0, 84.0, 92.0, 98.4, 100.0),
            (None, "1", 1, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0),
        ]
    )


def test_queue_delay_as_the_notebook_counts_repeats_what_it_cannot_tell(make_trace: MakeTrace) -> None:
    # By job: the submission, then the start and the end of each attempt, in minutes. None is a missing time.
    plan: dict[str, tuple[int | None, list[tuple[int | None, int | None]]]] = {
        # Waits of 10 and 0 min; the third attempt has no start, so 0 stands again; the fourth waited since the end of
        # the second, 20 min, whatever the third's end says.
        "a": (0, [(10, 20), (20, 30), (None, 45), (50, 60)]),
        # The first wait is unknown and nothing can be repeated; then 30 min since the submission.
        "b": (0, [(None, 5), (30, 40)]),
        # 5 min; the end of the first is missing, so that 5 min count for both attempts that follow.
        "c": (0, [(5, None), (50, 60), (70, 80)]),
        # Without a submission no wait is ever known.
        "d": (None, [(5, 10), (20, 30)]),
    }

    def moment(minute: int | None) -> dt.datetime | None:
        return None if minute is None else dt.datetime(2017, 10, 3) + dt.timedelta(minutes=minute)

    jobs = [{"job_id": j, "vc": "v", "gpu_count": 1, "submit_time": moment(queued)} for j, (queued, _) in plan.items()]
    attempts = [
        {"job_id": j, "attempt": k, "start_time": moment(start), "end_time": moment(end)}
        for j, (_, tries) in plan.items()
        for k, (start, end) in enumerate(tries)
    ]
    trace = make_trace(jobs=jobs, attempts=attempts)
    with connect_with_views(trace) as con:
        sql = "SELECT job_id, list(notebook_wait_s / 60 ORDER BY attempt) FROM waits GROUP BY job_id ORDER BY job_id"
        assert con.execute(sql).fetchall() == [
            ("a", [10, 0, 0, 20]),
            ("b", [None, 30]),
            ("c", [5, 5, 5]),
            ("d", [None, None]),
        ]
    # Without zeros, in minutes: 5, 5, 5, 10, 20, 30; mean 12.5. Rank of p among 6 is 5p: p50 2.5 -> 7.5,
    # p75 3.75 -> 17.5, p90 4.5 -> 25, p95 4.75 -> 27.5, p99 4.95 -> 29.5.
    minutes = [12.5, 7.5, 17.5, 25, 27.5, 29.5, 30]
    expected = [("v", "1", 6, *(60 * value for value in minutes))]
    assert rows(trace, "queuing/queue_delay", rule="notebook") == approx(expected)
    # These attempts state no waits of their own, and only those count by default.
    assert rows(trace, "queuing/queue_delay") == rows(trace, "queuing/queue_delay", rule="clean") == []


def test_delay_by_spread_takes_the_first_wait(make_trace: MakeTrace) -> None:
    jobs = [
        {"job_id": "a", "gpu_count": 16, "node_count": 2},
        {"job_id": "b", "gpu_count": 16, "node_count": 2},
        {"job_id": "c", "gpu_count": 16, "node_count": 4},
        {"job_id": "d", "gpu_count": 0, "node_count": 1},
        {"job_id": "e", "gpu_count": 1},
    ]
    waits = [("a", 0, 30), ("a", 1, 900), ("b", 0, 50), ("c", 0, None), ("c", 1, 7), ("d", 0, 1), ("e", 0, 1)]
    attempts = [{"job_id": j, "attempt": k, "wait_s": w} for j, k, w in waits]
    # Only the first waits 30 and 50: mean 40, median 40, p90 30 + 0.9 * 20.
    assert rows(make_trace(jobs=jobs, attempts=attempts), "locality/delay_by_spread") == approx(
        [(">8", 2, 2, 40.0, 40.0, 48.0)]
    )


def _samples(node: str, gpu: int, values: dict[str, float | None]) -> list[dict[str, Any]]:
    return [
        {"time": f"2017-10-03 {t}", "node_id": node, "gpu_index": gpu, "utilization_pct": v} for t, v in values.items()
    ]


def test_gpu_by_size_status_pools_samples_of_half_open_intervals(make_trace: MakeTrace) -> None:
    # a: 1 GPU, 00:58:30 to 01:01:00: minutes 58, 59 and 00 count, 01:01 is the end and does not.
    # b: 1 GPU of its node, no end. c: of unknown size. d: 2 GPUs, one of which is offline at 00:01.
    jobs = [
        {"job_id": "a", "gpu_count": 1, "status": "completed"},
        {"job_id": "b", "gpu_count": 1, "status": "running"},
        {"job_id": "c", "status": "completed"},
        {"job_id": "d", "gpu_count": 2, "status": "failed"},
    ]
    spans = {"a": ("00:58:30", "01:01"), "b": ("00:00", None), "c": ("00:00", "02:00"), "d": ("00:00:59", "00:01:01")}
    attempts = [
        {"job_id": j, "attempt": 0, "start_time": f"2017-10-03 {s}", "end_time": e and f"2017-10-03 {e}"}
        for j, (s, e) in spans.items()
    ]
    gpus = {"a": [1, 1], "b": [0], "c": [1], "d": [0, 2]}
    placements = [{"job_id": j, "attempt": 0, "node_id": "n", "gpu_index": g} for j, g in gpus.items()]
    placements.append({"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [1]})
    utilization = [
        *_samples("n", 1, {"00:57": 1, "00:58": 10, "00:59": 20, "01:00": 60, "01:01": 99}),
        *_samples("n", 0, {"00:00": 40, "00:01": 80}),
        *_samples("n", 2, {"00:01": None}),
        *_samples("m", 1, {"00:59": 77}),
    ]
    trace = make_trace(jobs=jobs, attempts=attempts, placements=placements, gpu_utilization=utilization)
    # a: 10, 20, 60, each once although the GPU is named three times; rank of p among 3 is 2p: p5 0.1 -> 11,
    # p25 0.5 -> 15, p75 1.5 -> 40, p95 1.9 -> 56. d: 40 and 80; p5 42, p25 50, p75 70, p95 78.
    one = (1.0, "completed", 3, 30.0, 11.0, 15.0, 20.0, 40.0, 56.0)
    two = (2.0, "failed", 2, 60.0, 42.0, 50.0, 60.0, 70.0, 78.0)
    assert rows(trace, "utilization/gpu_by_size_status") == approx([one, two])
    assert rows(trace, "utilization/gpu_by_size_status", sizes="paper") == approx([one])
    samples, mean = one[2] + two[2], one[2] * one[3] + two[2] * two[3]
    assert rows(trace, "utilization/held_gpus") == approx(
        [("busy_share", mean / samples / 100, "share"), ("samples", float(samples), "samples")]
    )


def test_a_sample_that_two_attempts_claim_counts_for_each(make_trace: MakeTrace) -> None:
    keys = [("a", 0), ("a", 1)]
    trace = make_trace(
        jobs=[{"job_id": "a", "gpu_count": 1}],
        attempts=[
            {"job_id": j, "attempt": k, "start_time": "2017-10-03", "end_time": "2017-10-03 00:01"} for j, k in keys
        ],
        placements=[{"job_id": j, "attempt": k, "node_id": "n", "gpu_index": [0]} for j, k in keys],
        gpu_utilization=_samples("n", 0, {"00:00": 50}),
    )
    assert rows(trace, "utilization/gpu_by_size_status") == [(1.0, None, 2, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0)]


def test_an_attempt_far_longer_than_the_telemetry_costs_nothing(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "gpu_count": 1}],
        attempts=[{"job_id": "a", "attempt": 0, "start_time": "0001-01-01", "end_time": "9999-01-01"}],
        placements=[{"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0]}],
        gpu_utilization=_samples("n", 0, {"00:00": 50}),
    )
    assert rows(trace, "utilization/gpu_by_size_status")[0][2] == 1


def test_host_pools_machines_and_skips_empty_totals(make_trace: MakeTrace) -> None:
    data = [(0, 1, 10), (10, 2, 10), (20, 6, 10), (None, 5, 0), (None, None, 10), (50, 5, None)]
    host = [
        {"time": f"2017-10-03 00:0{i}", "node_id": "n", "cpu_pct": c, "memory_used_gib": u, "memory_total_gib": t}
        for i, (c, u, t) in enumerate(data)
    ]
    # cpu 0, 10, 20, 50: rank of p is 3p, median 15, p90 2.7 -> 41, p95 2.85 -> 45.5.
    # memory 10, 20, 60: rank is 2p, p90 1.8 -> 52, p95 1.9 -> 56.
    assert rows(make_trace(host_utilization=host), "utilization/host") == approx(
        [("cpu", 4, 20.0, 15.0, 41.0, 45.5), ("memory", 3, 30.0, 20.0, 52.0, 56.0)]
    )


def test_status_by_size_shares_sum_to_one_in_each_class(make_trace: MakeTrace) -> None:
    jobs = [*JOBS, {"job_id": "e", "gpu_count": 3, "status": "timeout"}, {"job_id": "f", "gpu_count": 2}]
    trace = make_trace(jobs=jobs, attempts=ATTEMPTS)
    assert rows(trace, "failures/status_by_size") == approx(
        [
            ("0", "completed", 1, 1.0, 0.0),
            ("1", "failed", 1, 1.0, 3.0),
            ("2-4", "completed", 1, 1 / 3, 2.0),
            ("2-4", "timeout", 1, 1 / 3, None),
            ("2-4", None, 1, 1 / 3, None),
        ]
    )


def test_retries_leave_out_jobs_that_never_started(make_trace: MakeTrace) -> None:
    facts = [
        ("failed", 3),
        ("timeout", 1),
        ("node_fail", 1),
        ("out_of_memory", 1),
        ("completed", 0),
        ("cancelled", None),
        ("unknown", 1),
        (None, 1),
    ]
    jobs = [{"job_id": str(i), "gpu_count": 1, "status": s, "attempt_count": n} for i, (s, n) in enumerate(facts)]
    jobs += [{"job_id": "x", "gpu_count": 16, "attempt_count": 0}, {"job_id": "y", "status": "failed"}]
    # Class 1: 6 jobs with an attempt, 2 retries in all; 4 unsuccessful of 6 with a known status, 1 of them timed out.
    assert rows(make_trace(jobs=jobs), "failures/retries") == approx(
        [("1", 8, 2 / 6, 4 / 6, 1 / 6), (">8", 1, None, None, None)]
    )
