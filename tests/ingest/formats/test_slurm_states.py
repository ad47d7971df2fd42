"""The states of `sacct`, and whether a job of each state started and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.ingest.formats.sacct_rows import JOB, JOB_ROW, WAITING, numbered, sacct, the_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


STATUSES = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUED": "pending",
    "SPECIAL_EXIT": "unknown",
}


def test_every_state_has_its_status(ingest: Ingest, rows: Rows) -> None:
    found = rows(ingest(numbered({"State": word} for word in STATUSES)), "jobs")
    assert {row["source_status"]: row["status"] for row in found} == STATUSES
    for row in found:
        assert ("end_time" in row) is (row["status"] not in ("running", "pending"))


def test_a_state_may_name_a_user_or_be_cut(ingest: Ingest, rows: Rows) -> None:
    words = {"CANCELLED by 1000": "CANCELLED", "CANCELLED+": "CANCELLED", "OUT_OF_ME+": "OUT_OF_MEMORY"}
    found = rows(ingest(numbered({"State": state} for state in words)), "jobs")
    assert [(row["status"], row["source_status"]) for row in found] == [(STATUSES[w], w) for w in words.values()]


def test_a_job_cancelled_before_it_started_has_no_start(ingest: Ingest, rows: Rows) -> None:
    starts = ["None", "Unknown", "N/A", "", "2024-03-04T09:00:10"]
    trace = ingest(numbered({**WAITING, "Start": start, "State": "CANCELLED by 1000"} for start in starts))
    without = ("start_time", "queue_s", "run_s", "gpu_model")
    changed = {"status": "cancelled", "source_status": "CANCELLED", "attempt_count": 0}
    assert rows(trace, "jobs") == [
        {k: v for k, v in JOB_ROW.items() if k not in without} | changed | {"job_id": f"slurm/{n}"}
        for n in range(1, len(starts) + 1)
    ]
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "attempts") == []


def test_a_job_cancelled_in_its_first_second_ran_when_nodes_are_named(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({"Start": JOB["End"], "Elapsed": "00:00:00", "State": "CANCELLED"}))
    assert [(row["run_s"], row["attempt_count"]) for row in rows(trace, "jobs")] == [(0.0, 1)]


def test_the_end_of_a_running_job_is_not_used(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"State": "RUNNING"}))
    assert "end_time" not in the_job(trace, rows)
    assert found_checks(trace) == {"end_of_unfinished_job": (1, 1)}
