"""Times of `sacct`: zones, waits, eligibility, run times and time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import ATTEMPT_ROW, JOB, JOB_ROW, WAITING, numbered, sacct, the_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


@pytest.mark.parametrize(
    ("choice", "end"), [("bounded", "00:30:00"), ("null", None), ("first", "00:30:00"), ("second", "01:30:00")]
)
def test_times_are_wall_clocks_of_the_zone(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, choice: str, end: str | None
) -> None:
    # Clocks went back from 03:00 to 02:00 on that day.
    times = {"Submit": "2023-10-29T00:30:00", "Start": "2023-10-29T01:00:00", "End": "2023-10-29T02:30:00"}
    source = sacct({**times, "Eligible": "", "Elapsed": ""})
    trace = ingest(source, options={"timezone": "Europe/Berlin", "doubled_hour": choice})
    row = the_job(trace, rows)
    assert (row["submit_time"], row["start_time"]) == ("2023-10-28 22:30:00", "2023-10-28 23:00:00")
    assert row.get("end_time") == (end and f"2023-10-29 {end}")
    assert found_checks(trace)["ambiguous_local_time"] == (1, 3)
    assert trace.timezone == "Europe/Berlin"


def test_the_stated_run_time_is_a_check(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    suspended = {"JobID": "8", "JobIDRaw": "8", "Elapsed": "50:00", "Suspended": "00:10:00"}
    trace = ingest(sacct({"Elapsed": "02:00:00"}, suspended, {"JobID": "9", "JobIDRaw": "9", "Elapsed": "INVALID"}))
    assert [row["run_s"] for row in rows(trace, "jobs")] == [3600.0] * 3
    assert found_checks(trace) == {"duration_disagrees": (1, 2)}


def test_time_limits(ingest: Ingest, rows: Rows) -> None:
    cases = [
        ({"Timelimit": "10:30"}, 630.0),
        ({"Timelimit": "UNLIMITED"}, None),
        ({"Timelimit": "Partition_Limit"}, None),
        ({"Timelimit": "", "TimelimitRaw": "90"}, 5400.0),
        ({"Timelimit": "", "TimelimitRaw": "UNLIMITED"}, None),
    ]
    found = rows(ingest(numbered(changes for changes, _ in cases)), "jobs")
    assert [row.get("time_limit_s") for row in found] == [limit for _, limit in cases]


def test_a_wait_may_count_from_eligibility(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({}), options={"queue_from": "eligible"})
    assert the_job(trace, rows) == JOB_ROW | {"queue_s": 6.0}
    assert rows(trace, "attempts") == [ATTEMPT_ROW | {"wait_s": 6.0}]


NOT_ELIGIBLE = {k: v for k, v in JOB_ROW.items() if k != "eligible_time"}


def test_a_job_is_not_eligible_before_its_submission_or_after_its_start(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(numbered([{"Eligible": "2024-03-04T07:59:59"}, {}, {"Eligible": "2024-03-04T08:00:11"}]))
    known = {1: NOT_ELIGIBLE, 2: JOB_ROW, 3: NOT_ELIGIBLE}
    assert rows(trace, "jobs") == [job | {"job_id": f"slurm/{number}"} for number, job in known.items()]
    assert found_checks(trace) == {"eligible_out_of_order": (2, 3)}
    doubts = rows(trace, "doubtful_times")
    assert [(doubt["line"], doubt["job_id"], doubt["column"], doubt["value"]) for doubt in doubts] == [
        (2, "1", "eligible_time", "2024-03-04 07:59:59"),
        (4, "3", "eligible_time", "2024-03-04 08:00:11"),
    ]
    assert {doubt["reason"] for doubt in doubts} == {"is before the submission or after the start of its job"}


def test_a_job_may_be_eligible_at_its_submission_at_its_start_or_later_than_the_log(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    waiting = {**WAITING, "JobID": "9", "JobIDRaw": "9", "End": "Unknown", "State": "PENDING"}
    trace = ingest(
        sacct(
            {"Eligible": JOB["Submit"]},
            {"JobID": "8", "JobIDRaw": "8", "Eligible": JOB["Start"]},
            {**waiting, "Eligible": "2024-04-01T00:00:00"},
            {**waiting, "JobID": "10", "JobIDRaw": "10", "Eligible": "Unknown"},
        )
    )
    found = {row["job_id"].removeprefix("slurm/"): row.get("eligible_time") for row in rows(trace, "jobs")}
    assert found == {
        "7": "2024-03-04 08:00:00",
        "8": "2024-03-04 08:00:10",
        "9": "2024-04-01 00:00:00",
        "10": None,
    }
    assert found_checks(trace) == {}


def test_a_requeued_job_was_eligible_as_its_first_submission_says(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    # It waits for its begin time at 12:00 and is requeued at 09:00. Job 7 runs at once, which contradicts 12:00; job 8
    # runs later.
    first = {**WAITING, "Eligible": "2024-03-04T12:00:00", "End": "Unknown", "State": "PENDING"}
    again = {"Submit": "2024-03-04T09:00:00", "Eligible": "2024-03-04T09:00:00"}
    ran = {**again, "Start": "2024-03-04T09:00:10", "End": "2024-03-04T10:00:10"}
    late = {**again, "Start": "2024-03-04T13:00:00", "End": "2024-03-04T14:00:00"}
    other = {"JobID": "8", "JobIDRaw": "8"}
    trace = ingest(sacct(first, ran, {**first, **other}, {**late, **other}))
    assert [row.get("eligible_time") for row in rows(trace, "jobs")] == [None, "2024-03-04 12:00:00"]
    assert found_checks(trace) == {"eligible_out_of_order": (1, 4)}
    assert [row["value"] for row in rows(trace, "doubtful_times")] == ["2024-03-04 12:00:00"]


def test_components_are_eligible_together(ingest: Ingest, rows: Rows) -> None:
    def component(leader: int, place: int, eligible: str) -> dict[str, str]:
        return {"JobID": f"{leader}+{place}", "JobIDRaw": str(leader + place), "Eligible": eligible}

    early, late = "2024-03-04T08:00:04", "2024-03-04T08:00:08"
    trace = ingest(
        sacct(component(3, 0, early), component(3, 1, late), component(7, 0, early), component(7, 1, "Unknown"))
    )
    assert [row.get("eligible_time") for row in rows(trace, "jobs")] == ["2024-03-04 08:00:08", None]
