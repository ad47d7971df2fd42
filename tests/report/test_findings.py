from __future__ import annotations

from typing import Any

from tracekit.report.sections.interface import finding


def _rows(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


def test_summary() -> None:
    rows = _rows(
        "metric value unit",
        ("jobs", 1200, "jobs"),
        ("users", 40, "users"),
        ("gpu_hours", 5000.4, "GPU-hours"),
        ("median_run_s", 204, "s"),
    )
    assert finding("overview/summary", rows) == (
        "The trace holds 1,200 jobs of 40 users, which took 5,000 GPU-hours;"
        " half of the jobs with a known run time ran for at most 3.4 min."
    )


def test_status_names_what_takes_most_time_beside_completed_jobs() -> None:
    rows = _rows(
        "status jobs jobs_share gpu_hours gpu_hours_share",
        ("cancelled", 20, 0.2, 50.0, 0.5),
        ("completed", 70, 0.7, 40.0, 0.4),
        ("failed", 10, 0.1, 10.0, 0.1),
    )
    expected = (
        "70.0 % of the jobs completed and took 40.0 % of the GPU time; cancelled jobs, 20.0 % of all, took 50.0 %."
    )
    assert finding("overview/status", rows) == expected


def test_status_without_gpu_time_speaks_of_jobs_only() -> None:
    rows = _rows("status jobs jobs_share gpu_hours gpu_hours_share", ("completed", 7, 1.0, None, None))
    assert finding("overview/status", rows) == "100 % of the jobs completed."


def test_job_size() -> None:
    columns = "gpu_class jobs jobs_share gpu_hours gpu_hours_share"
    apart = _rows(columns, ("1", 80, 0.8, 10.0, 0.1), (">8", 20, 0.2, 90.0, 0.9))
    assert finding("overview/job_size", apart) == (
        "1-GPU jobs are the most common, 80.0 % of all; the most GPU time, 90.0 %, goes to jobs of more than 8 GPUs,"
        " which are 20.0 % of the jobs."
    )
    alike = _rows(columns, ("<1", 80, 0.8, 10.0, 1.0))
    assert finding("overview/job_size", alike) == (
        "Jobs of less than 1 GPU are the most common, 80.0 % of all, and they also take the most GPU time, 100 %."
    )


def test_arrivals() -> None:
    rows = _rows("hour jobs", (0, 5), (15, 67), (23, 3))
    expected = (
        "The busiest hour is that between 15:00 and 16:00 (67 jobs), the quietest that between 23:00 and 00:00 (3),"
        " over all days together."
    )
    assert finding("overview/arrivals_by_hour", rows) == expected
    assert finding("overview/arrivals_by_hour", _rows("hour jobs", (0, 5), (1, 5))) is None


def test_run_time_states_how_few_jobs_it_rests_on() -> None:
    rows = _rows("gpu_class jobs p50_s p90_s", ("0", 9, 1.0, 2.0), ("1", 500, 60.0, 600.0), (">8", 7, 5400.0, 7200.0))
    expected = (
        "Half of the 1-GPU jobs ran for at most 1 min, half of the jobs of more than 8 GPUs for at most 1.5 h (n = 7)."
    )
    assert finding("queuing/run_time", rows) == expected
    assert finding("queuing/run_time", rows[1:2]) == (
        "Half of the 1-GPU jobs ran for at most 1 min; one in ten ran for 10 min or longer."
    )


_WAITS = "vc gpu_class waits mean_s p50_s p90_s"


def test_a_wait_of_nothing_is_called_no_wait() -> None:
    rows = _rows(
        _WAITS, ("a", "1", 500, 0.0, 0.0, 0.0), ("b", ">8", 40, 600.0, 0.0, 86400.0), ("b", "5-8", 2, 6.0, 9e9, 9e9)
    )
    assert finding("queuing/queue_delay", rows) == (
        "Jobs of b did 100 % of all the waiting, with 7.7 % of the starts. The longest tail of the groups with at least"
        " 30 waits is that of jobs of more than 8 GPUs in b: half did not wait, one in ten waited 1 d or longer. On"
        " average 1-GPU jobs waited 0 s (one in ten 0 s or longer), jobs of more than 8 GPUs 10 min (one in ten 1 d or"
        " longer)."
    )
    # A VC that waits as long as its part of the waits is no news, nor are rows that may be the first of many.
    even = _rows(_WAITS, ("a", "1", 50, 9.0, 0.0, 0.0), ("b", "1", 50, 9.0, 0.0, 0.0))
    assert "of all the waiting" not in (finding("queuing/queue_delay", even) or "")
    many = _rows(_WAITS, *((f"v{k}", "1", 1, 9.0, 0.0, 0.0) for k in range(1999)), ("b", "1", 1, 9e9, 0.0, 0.0))
    assert "of all the waiting" not in (finding("queuing/queue_delay", many) or "")


def test_waits_of_cpu_jobs_are_not_the_news_when_gpus_are_asked_for() -> None:
    rows = _rows(_WAITS, (None, "0", 9000, 1.0, 1.0, 2.0), (None, "1", 50, 9.0, 12.0, 60.0))
    expected = "Most starts, 50, are those of 1-GPU jobs: half waited 12 s or less, one in ten waited 1 min or longer."
    assert finding("queuing/queue_delay", rows) == expected


def test_spread() -> None:
    columns = "gpu_class node_count jobs p50_s"
    rows = _rows(columns, ("5-8", 1, 300, 10.0), ("5-8", 2, 40, 600.0), ("5-8", 4, 3, 9e9))
    expected = "The median wait of jobs of 5-8 GPUs was 10 s on 1 node and 10 min on 2 nodes."
    assert finding("locality/delay_by_spread", rows) == expected
    assert finding("locality/delay_by_spread", _rows(columns, ("1", 1, 9, 1.0))) == (
        "Every job ran on one node, so the trace cannot show an effect of spreading."
    )


def test_gpu_utilization_pools_samples() -> None:
    rows = _rows(
        "gpu_count status samples mean_pct",
        (1, "completed", 300, 40.0),
        (1, "failed", 100, 60.0),
        (8, "completed", 100, 70.0),
        (16, "completed", 1, 0.0),
    )
    expected = "Jobs of 1 GPU kept their GPUs least busy, 45.0 % on average, jobs of 8 GPUs most, 70.0 %."
    assert finding("utilization/gpu_by_size_status", rows) == expected
    assert finding("utilization/gpu_by_size_status", rows[:2]) is None


def test_host() -> None:
    rows = _rows("resource p50_pct p95_pct", ("cpu", 20.0, 40.0), ("memory", 70.25, 90.0))
    assert finding("utilization/host", rows) == (
        "Median use of the machines (95th percentile): CPU 20.0 % (40.0 %), memory 70.2 % (90.0 %)."
    )


def test_failed_share_by_size_leaves_out_sizes_with_few_jobs_and_says_so() -> None:
    rows = _rows(
        "gpu_class status jobs",
        ("1", "completed", 90),
        ("1", "failed", 10),
        ("2-4", "completed", 50),
        ("2-4", "failed", 30),
        ("2-4", "timeout", 20),
        ("2-4", "unknown", 190),
        (">8", "failed", 2),
        (None, "failed", 9),
    )
    assert finding("failures/status_by_size", rows) == (
        "50.0 % of the jobs of 2-4 GPUs whose end is known failed (30.0 %) or ran out of"
        " time (timeout, 20.0 %), the most of any size with at least 30 such jobs;"
        " the fewest among the 1-GPU jobs, 10.0 %."
    )


def test_sizes_are_not_compared_where_most_ends_are_unknown() -> None:
    rows = _rows(
        "gpu_class status jobs",
        ("1", "completed", 10),
        ("1", "failed", 40),
        ("1", "unknown", 150),
        ("<1", "failed", 40),
        ("<1", "running", 60),
    )
    assert finding("failures/status_by_size", rows) == (
        "How most jobs ended is not known, so that sizes cannot be compared. Known to have failed: 20.0 % of the 1-GPU"
        " jobs, 40.0 % of the jobs of less than 1 GPU."
    )


def test_sizes_that_chance_can_part_may_be_alike() -> None:
    columns = "gpu_class status jobs"
    # 20 of 100 against 12 of 40: chi-squared 1.62 with one degree of freedom, p = 0.20.
    rows = _rows(columns, ("1", "completed", 80), ("1", "failed", 20), ("2-4", "completed", 28), ("2-4", "failed", 12))
    assert finding("failures/status_by_size", rows) == (
        "Not beyond chance: 20.0 % of the 1-GPU jobs whose end is known failed, and 30.0 % of the jobs of 2-4 GPUs."
    )
    # Ten times as many: chi-squared 16.2.
    more = [{**r, "jobs": 10 * r["jobs"]} for r in rows]
    assert (finding("failures/status_by_size", more) or "").startswith("30.0 % of the jobs of 2-4 GPUs whose end")
    failed = _rows(columns, ("1", "failed", 80), ("2-4", "failed", 38), (">8", "completed", 5))
    assert finding("failures/status_by_size", failed) == (
        "All sizes fail alike: 100 % of the jobs whose end is known failed (sizes with at least 30 such jobs)."
    )
    assert finding("failures/status_by_size", failed[:1]) == "100 % of the 1-GPU jobs whose end is known failed."
    assert finding("failures/status_by_size", failed[2:]) == "None of the 5 jobs whose end is known failed."


def test_retries() -> None:
    columns = "gpu_class jobs mean_retries unsuccessful_share"
    rows = _rows(columns, ("1", 100, 0.1, 0.2), ("2-4", 50, 0.5, 0.25))
    expected = (
        "Jobs of 2-4 GPUs are tried again most often: 0.50 retries a job; in the end 25.0 % of them do not succeed."
    )
    assert finding("failures/retries", rows) == expected
    assert finding("failures/retries", _rows(columns, ("1", 100, 0.0, 0.2))) == "No job was tried again."


def test_gpu_request() -> None:
    rows = _rows("gpu_count jobs jobs_share gpu_hours_share", (0, 6, 0.6, None), (0.5, 1, 0.1, 0.1), (8, 3, 0.3, 0.9))
    expected = (
        "The commonest request is no GPU (60.0 % of the jobs of known size);"
        " the largest share of GPU time goes to requests for 8 GPUs (90.0 %)."
    )
    assert finding("workload/gpu_request", rows) == expected


def test_a_query_of_its_own_and_a_result_without_rows_have_no_finding() -> None:
    assert finding("mine/own", [{"x": 1}]) is None
    assert finding("overview/status", []) is None
