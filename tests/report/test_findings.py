from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.report.answering import told
from tracekit.report.sections.interface import finding

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _rows(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


def test_summary(golden: Golden) -> None:
    rows = _rows(
        "metric value unit",
        ("jobs", 1200, "jobs"),
        ("users", 40, "users"),
        ("gpu_hours", 5000.4, "GPU-hours"),
        ("median_run_s", 204, "s"),
    )
    golden(told(finding("overview/summary", rows), "1,200", "40", "5,000", "3.4 min"))


def test_status_names_what_takes_most_time_beside_completed_jobs(golden: Golden) -> None:
    rows = _rows(
        "status jobs jobs_share gpu_hours gpu_hours_share",
        ("cancelled", 20, 0.2, 50.0, 0.5),
        ("completed", 70, 0.7, 40.0, 0.4),
        ("failed", 10, 0.1, 10.0, 0.1),
    )
    golden(told(finding("overview/status", rows), "70.0 %", "40.0 %", "20.0 %", "50.0 %"))


def test_status_without_gpu_time_speaks_of_jobs_only(golden: Golden) -> None:
    rows = _rows("status jobs jobs_share gpu_hours gpu_hours_share", ("completed", 7, 1.0, None, None))
    golden(told(finding("overview/status", rows), "100 %"))


def test_job_size(golden: Golden) -> None:
    columns = "gpu_class jobs jobs_share gpu_hours gpu_hours_share"
    apart = _rows(columns, ("1", 80, 0.8, 10.0, 0.1), (">8", 20, 0.2, 90.0, 0.9))
    alike = _rows(columns, ("<1", 80, 0.8, 10.0, 1.0))
    golden(
        [
            told(finding("overview/job_size", apart), "1-GPU", "80.0 %", "90.0 %", "8", "20.0 %"),
            told(finding("overview/job_size", alike), "1", "80.0 %", "100 %"),
        ]
    )


def test_arrivals(golden: Golden) -> None:
    rows = _rows("hour jobs", (0, 5), (15, 67), (23, 3))
    golden(told(finding("overview/arrivals_by_hour", rows), "15:00", "16:00", "67", "23:00", "3"))
    assert finding("overview/arrivals_by_hour", _rows("hour jobs", (0, 5), (1, 5))) is None


def test_run_time_states_how_few_jobs_it_rests_on(golden: Golden) -> None:
    rows = _rows("gpu_class jobs p50_s p90_s", ("0", 9, 1.0, 2.0), ("1", 500, 60.0, 600.0), (">8", 7, 5400.0, 7200.0))
    golden(
        [
            told(finding("queuing/run_time", rows), "1-GPU", "1 min", "8", "1.5 h", "7"),
            told(finding("queuing/run_time", rows[1:2]), "1-GPU", "1 min", "10 min"),
        ]
    )


_WAITS = "vc gpu_class waits mean_s p50_s p90_s"


def test_a_wait_of_nothing_is_called_no_wait(golden: Golden) -> None:
    rows = _rows(
        _WAITS, ("a", "1", 500, 0.0, 0.0, 0.0), ("b", ">8", 40, 600.0, 0.0, 86400.0), ("b", "5-8", 2, 6.0, 9e9, 9e9)
    )
    golden(told(finding("queuing/queue_delay", rows), "100 %", "7.7 %", "30", "8", "1 d", "1-GPU", "0 s", "10 min"))
    # A VC that waits as long as its part of the waits is no news, nor are rows that may be the first of many.
    even = _rows(_WAITS, ("a", "1", 50, 9.0, 0.0, 0.0), ("b", "1", 50, 9.0, 0.0, 0.0))
    assert "of all the waiting" not in (finding("queuing/queue_delay", even) or "")
    many = _rows(_WAITS, *((f"v{k}", "1", 1, 9.0, 0.0, 0.0) for k in range(1999)), ("b", "1", 1, 9e9, 0.0, 0.0))
    assert "of all the waiting" not in (finding("queuing/queue_delay", many) or "")


def test_waits_of_cpu_jobs_are_not_the_news_when_gpus_are_asked_for(golden: Golden) -> None:
    rows = _rows(_WAITS, (None, "0", 9000, 1.0, 1.0, 2.0), (None, "1", 50, 9.0, 12.0, 60.0))
    golden(told(finding("queuing/queue_delay", rows), "50", "1-GPU", "12 s", "1 min"))


def test_spread(golden: Golden) -> None:
    columns = "gpu_class node_count jobs p50_s"
    rows = _rows(columns, ("5-8", 1, 300, 10.0), ("5-8", 2, 40, 600.0), ("5-8", 4, 3, 9e9))
    golden(
        [
            told(finding("locality/delay_by_spread", rows), "5-8", "10 s", "1", "10 min", "2"),
            told(finding("locality/delay_by_spread", _rows(columns, ("1", 1, 9, 1.0)))),
        ]
    )


def test_gpu_utilization_pools_samples(golden: Golden) -> None:
    rows = _rows(
        "gpu_count status samples mean_pct",
        (1, "completed", 300, 40.0),
        (1, "failed", 100, 60.0),
        (8, "completed", 100, 70.0),
        (16, "completed", 1, 0.0),
    )
    golden(told(finding("utilization/gpu_by_size_status", rows), "1", "45.0 %", "8", "70.0 %"))
    assert finding("utilization/gpu_by_size_status", rows[:2]) is None


def test_host(golden: Golden) -> None:
    rows = _rows("resource p50_pct p95_pct", ("cpu", 20.0, 40.0), ("memory", 70.25, 90.0))
    golden(told(finding("utilization/host", rows), "95th", "20.0 %", "40.0 %", "70.2 %", "90.0 %"))


def test_failed_share_by_size_leaves_out_sizes_with_few_jobs_and_says_so(golden: Golden) -> None:
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
    golden(told(finding("failures/status_by_size", rows), "50.0 %", "2-4", "30.0 %", "20.0 %", "30", "1-GPU", "10.0 %"))


def test_sizes_are_not_compared_where_most_ends_are_unknown(golden: Golden) -> None:
    rows = _rows(
        "gpu_class status jobs",
        ("1", "completed", 10),
        ("1", "failed", 40),
        ("1", "unknown", 150),
        ("<1", "failed", 40),
        ("<1", "running", 60),
    )
    golden(told(finding("failures/status_by_size", rows), "20.0 %", "1-GPU", "40.0 %", "1"))


def test_sizes_that_chance_can_part_may_be_alike(golden: Golden) -> None:
    columns = "gpu_class status jobs"
    # 20 of 100 against 12 of 40: chi-squared 1.62 with one degree of freedom, p = 0.20.
    rows = _rows(columns, ("1", "completed", 80), ("1", "failed", 20), ("2-4", "completed", 28), ("2-4", "failed", 12))
    # Ten times as many: chi-squared 16.2.
    more = [{**r, "jobs": 10 * r["jobs"]} for r in rows]
    failed = _rows(columns, ("1", "failed", 80), ("2-4", "failed", 38), (">8", "completed", 5))
    golden(
        [
            told(finding("failures/status_by_size", rows), "20.0 %", "1-GPU", "30.0 %", "2-4"),
            told(finding("failures/status_by_size", more), "30.0 %", "2-4"),
            told(finding("failures/status_by_size", failed), "100 %", "30"),
            told(finding("failures/status_by_size", failed[:1]), "100 %", "1-GPU"),
            told(finding("failures/status_by_size", failed[2:]), "5"),
        ]
    )


def test_retries(golden: Golden) -> None:
    columns = "gpu_class jobs mean_retries unsuccessful_share"
    rows = _rows(columns, ("1", 100, 0.1, 0.2), ("2-4", 50, 0.5, 0.25))
    golden(told(finding("failures/retries", rows), "Jobs of 2-4 GPUs", "2-4", "0.50", "25.0 %"))
    assert finding("failures/retries", _rows(columns, ("1", 100, 0.0, 0.2))) == "No job was retried."


def test_gpu_request(golden: Golden) -> None:
    rows = _rows("gpu_count jobs jobs_share gpu_hours_share", (0, 6, 0.6, None), (0.5, 1, 0.1, 0.1), (8, 3, 0.3, 0.9))
    golden(told(finding("workload/gpu_request", rows), "no GPU", "60.0 %", "8", "90.0 %"))


def test_a_query_of_its_own_and_a_result_without_rows_have_no_finding() -> None:
    assert finding("mine/own", [{"x": 1}]) is None
    assert finding("overview/status", []) is None
