"""Acme: what becomes of each oddity of its job logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

SEREN, KALOS = "trace_seren.csv", "trace_kalos.csv"
SEREN_HEADER = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
)
KALOS_HEADER = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
    "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
)
DAY = "2023-05-02 "
# Waits 10 s from 08:00:00 in UTC+8, runs 90 s on 16 GPUs.
SEREN_LINE = (
    f"5,u1,2,16,256,Pretrain,COMPLETED,{DAY}08:00:00+08:00,{DAY}08:00:10+08:00,{DAY}08:01:40+08:00,90,10,1440\n"
)
KALOS_LINE = (
    f"dlc5,u1,2,16,256,800,100.5,Pretrain,COMPLETED,{DAY}00:00:00+00:00,{DAY}00:00:10+00:00,{DAY}00:01:40+00:00,,,"
    "90,10.0,1440\n"
)
JOB = {
    "job_id": "Seren/5",
    "cluster": "Seren",
    "user": "u1",
    "group": "Pretrain",
    "workload": "training",
    "status": "completed",
    "source_status": "COMPLETED",
    "submit_time": "2023-05-02 00:00:00",
    "start_time": "2023-05-02 00:00:10",
    "end_time": "2023-05-02 00:01:40",
    "queue_s": 10.0,
    "run_s": 90.0,
    "gpu_count": 16.0,
    "cpu_count": 256.0,
    "node_count": 2,
    "attempt_count": 1,
}
ATTEMPT = {
    "job_id": "Seren/5",
    "attempt": 0,
    "start_time": "2023-05-02 00:00:10",
    "end_time": "2023-05-02 00:01:40",
    "run_s": 90.0,
    "wait_s": 10.0,
    "gpu_count": 16.0,
    "node_count": 2,
    "status": "completed",
}
IN_KALOS = {"job_id": "Kalos/dlc5", "cluster": "Kalos"}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in names}


def seren(lines: Iterable[str]) -> dict[str, str]:
    """Return the log of Seren with these lines, whose jobs get the ids 1, 2 and so on."""
    return {SEREN: SEREN_HEADER + "".join(line.replace("5,u1", f"{n},u1", 1) for n, line in enumerate(lines, 1))}


def by_case(cases: Iterable[str], found: list[dict[str, Any]], name: str = "Seren/") -> dict[str, dict[str, Any]]:
    """Return the row of each case without the id of its job, which ends in the number of the case."""
    assert [row["job_id"] for row in found] == [f"{name}{n}" for n in range(1, len(found) + 1)]
    return {case: without(row, "job_id") for case, row in zip(cases, found, strict=True)}


ANY_JOB, ANY_ATTEMPT = without(JOB, "job_id"), without(ATTEMPT, "job_id")


def test_a_job_of_seren_gives_a_job_and_an_attempt_in_utc(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE})
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "jobs") == [JOB]
    assert rows(trace, "attempts") == [ATTEMPT]
    assert found_checks(trace) == {}
    assert (trace.manifest.format, trace.manifest.time_base, trace.timezone) == ("acme", "absolute", "Asia/Shanghai")
    assert [trace.capabilities[n].available for n in ("calendar", "hour_of_day", "tenants")] == [True, True, False]


def test_both_clusters_stand_side_by_side_at_the_same_instants(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE, KALOS: KALOS_HEADER + KALOS_LINE})
    assert rows(trace, "jobs") == [JOB, JOB | IN_KALOS]
    assert [a["job_id"] for a in rows(trace, "attempts")] == ["Seren/5", "Kalos/dlc5"]


def test_every_time_is_read_with_its_own_offset(ingest: Ingest, rows: Rows) -> None:
    times = ["08:00:10+08:00", "07:00:10+07:00", "00:00:10+00:00", "08:00:10.0+08:00", "08:00:10 +08:00"]
    trace = ingest(seren(SEREN_LINE.replace("08:00:10+08:00", time) for time in times))
    assert by_case(times, rows(trace, "jobs")) == dict.fromkeys(times, ANY_JOB)


def test_an_offset_may_lead_to_the_day_before(ingest: Ingest, rows: Rows) -> None:
    line = SEREN_LINE.replace("08:00:00+08:00", "01:00:00+08:00")
    (job,) = rows(ingest({SEREN: SEREN_HEADER + line}), "jobs")
    assert (job["submit_time"], job["queue_s"]) == ("2023-05-01 17:00:00", 7 * 3600 + 10.0)


def test_types_say_what_a_job_is_for(ingest: Ingest, rows: Rows) -> None:
    workloads = {
        "Pretrain": "training",
        "SFT": "training",
        "MLLM": "training",
        "Debug": "training",
        "Eval": "inference",
        "Other": "other",
    }
    trace = ingest(seren(SEREN_LINE.replace("Pretrain", kind) for kind in workloads))
    assert by_case(workloads, rows(trace, "jobs")) == {
        kind: ANY_JOB | {"group": kind, "workload": workload} for kind, workload in workloads.items()
    }


def test_unknown_words_are_kept_and_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    line = SEREN_LINE.replace("Pretrain", "Chat").replace("COMPLETED", "EXPLODED")
    trace = ingest({SEREN: SEREN_HEADER + line})
    assert rows(trace, "jobs") == [
        without(JOB, "workload") | {"group": "Chat", "status": "unknown", "source_status": "EXPLODED"}
    ]
    assert found_checks(trace) == {"unknown_status_word": (1, 1), "unknown_type_word": (1, 1)}


def test_state_words_become_statuses(ingest: Ingest, rows: Rows) -> None:
    statuses = {
        "CANCELLED": "cancelled",
        "FAILED": "failed",
        "TIMEOUT": "timeout",
        "NODE_FAIL": "node_fail",
        "OUT_OF_MEMORY": "out_of_memory",
        "PREEMPTED": "preempted",
    }
    trace = ingest(seren(SEREN_LINE.replace("COMPLETED", word) for word in statuses))
    assert by_case(statuses, rows(trace, "jobs")) == {
        word: ANY_JOB | {"status": status, "source_status": word} for word, status in statuses.items()
    }


def test_the_end_of_a_job_that_has_not_ended_is_not_used(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    states = ["SUSPENDED", "RUNNING"]
    trace = ingest(seren(SEREN_LINE.replace("COMPLETED", state) for state in states))
    job, attempt = (without(row, "end_time", "run_s") | {"status": "running"} for row in (ANY_JOB, ANY_ATTEMPT))
    assert by_case(states, rows(trace, "jobs")) == {state: job | {"source_status": state} for state in states}
    assert by_case(states, rows(trace, "attempts")) == dict.fromkeys(states, attempt)
    assert found_checks(trace) == {"end_of_unfinished_job": (2, 2)}


def test_a_job_cancelled_before_it_started_has_no_attempt(ingest: Ingest, rows: Rows) -> None:
    blanks = ["", "None", "NULL", "nan", "NaT"]
    line = SEREN_LINE.replace("COMPLETED", "CANCELLED")
    trace = ingest(seren(line.replace(f"{DAY}08:00:10+08:00", blank) for blank in blanks))
    changes = {"status": "cancelled", "source_status": "CANCELLED", "attempt_count": 0}
    job = without(ANY_JOB, "start_time", "queue_s", "run_s") | changes
    assert by_case(blanks, rows(trace, "jobs")) == dict.fromkeys(blanks, job)
    assert rows(trace, "attempts") == []


def test_a_job_without_gpus_is_a_cpu_job(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("2,16,256", "1,0,4").replace("1440", "0")})
    assert rows(trace, "jobs") == [JOB | {"gpu_count": 0.0, "cpu_count": 4.0, "node_count": 1}]
    assert found_checks(trace) == {}


def test_a_stated_duration_of_kalos_that_holds_the_wait_is_counted(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    right = KALOS_LINE.replace("dlc5", "dlc6")
    trace = ingest({KALOS: KALOS_HEADER + KALOS_LINE.replace("90,10.0,1440", "100,10.37,1600") + right})
    assert rows(trace, "jobs") == [JOB | IN_KALOS, JOB | IN_KALOS | {"job_id": "Kalos/dlc6"}]
    assert found_checks(trace) == {
        "duration_disagrees": (1, 2),
        "duration_includes_queue": (1, 2),
        "gpu_time_disagrees": (1, 2),
    }


def test_stated_spans_are_checked_and_the_times_used(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    right = SEREN_LINE.replace("5,u1", "6,u1")
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("90,10,1440", "92,12,1472") + right})
    assert rows(trace, "jobs") == [JOB, JOB | {"job_id": "Seren/6"}]
    assert found_checks(trace) == {
        "duration_disagrees": (1, 2),
        "queue_disagrees": (1, 2),
        "gpu_time_disagrees": (1, 2),
    }
    assert trace.manifest.checks["queue_disagrees"].examples == ["Seren/5"]


def counted(trace: Trace) -> dict[str, list[int]]:
    """Return the numbers of the cases that each check counts, of at most five."""
    return {
        name: [int(example.rpartition("/")[2].lstrip("dlc")) for example in check.examples]
        for name, check in trace.manifest.checks.items()
        if check.count
    }


def test_a_stated_span_that_is_a_second_off_disagrees(ingest: Ingest, found_checks: FoundChecks) -> None:
    # By its times the job runs 90 s and waits 10 s, on 16 GPUs.
    spans = [
        "90.999,10.999,1455.9", "89.001,9.001,1424.1", "91,10,1440", "89,10,1440", "90,11,1440", "90,9,1440",
        "90,10,1456", "90,10,1424",
    ]  # fmt: skip
    trace = ingest(seren(SEREN_LINE.replace("90,10,1440", stated) for stated in spans))
    assert counted(trace) == {"duration_disagrees": [3, 4], "queue_disagrees": [5, 6], "gpu_time_disagrees": [7, 8]}
    assert set(found_checks(trace).values()) == {(2, 8)}


def test_gpu_time_of_no_gpus_disagrees_from_a_second_on(ingest: Ingest, found_checks: FoundChecks) -> None:
    line = SEREN_LINE.replace("2,16,256", "1,0,4")
    trace = ingest(seren(line.replace("1440", gpu_time) for gpu_time in ("0", "0.9", "1")))
    assert counted(trace) == {"gpu_time_disagrees": [3]}
    assert found_checks(trace) == {"gpu_time_disagrees": (1, 3)}


def test_a_wait_of_a_second_tells_the_two_readings_of_the_duration_apart(ingest: Ingest) -> None:
    # The job waits 1 s: a duration of 91 s is that from its submission, one of 90 s is its run.
    line = SEREN_LINE.replace("08:00:00+08", "08:00:09+08")
    durations = ("90", "90.9", "91", "91.9", "92")
    trace = ingest(seren(line.replace("90,10,1440", f"{duration},1,1440") for duration in durations))
    assert counted(trace)["duration_includes_queue"] == [3, 4]


def test_times_of_failure_and_cancellation_are_compared_with_the_end(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    marks = [
        f"{DAY}00:01:40+00:00,", f",{DAY}00:01:40+00:00", f"{DAY}00:01:39+00:00,", f",{DAY}00:01:41+00:00",
    ]  # fmt: skip
    lines = (KALOS_LINE.replace(",,,90", f",{mark},90").replace("dlc5", f"dlc{n}") for n, mark in enumerate(marks, 1))
    trace = ingest({KALOS: KALOS_HEADER + "".join(lines)})
    job = ANY_JOB | {"cluster": "Kalos"}
    assert by_case(marks, rows(trace, "jobs"), "Kalos/dlc") == dict.fromkeys(marks, job)
    assert counted(trace) == {"fail_time_disagrees": [3], "stop_time_disagrees": [4]}
    assert found_checks(trace) == {"fail_time_disagrees": (1, 4), "stop_time_disagrees": (1, 4)}


def test_an_impossible_record_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    bad: list[tuple[tuple[str, str], str | None, str]] = [
        (("5,u1", ",u1"), "job_id", "is missing"),
        (("5,u1", "5,u1"), "job_id", "repeats the key of an earlier record"),
        (("5,u1,2,16,256,Pretrain", "6,u1"), None, "expected 13 fields, found 9"),
    ]
    lines = [SEREN_LINE.replace(*changes) for changes, *_ in bad]
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE + "".join(lines)}, max_reject_share=0.9)
    assert rows(trace, "jobs") == [JOB]
    found = [(r["source_file"], r["line"], r.get("column"), r["reason"], r["raw"]) for r in rows(trace, "rejects")]
    assert sorted(found) == [
        (SEREN, number, column, reason, line.strip())
        for number, (line, (_, column, reason)) in enumerate(zip(lines, bad, strict=True), 3)
    ]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(4, 1, 3)]


def test_a_number_that_cannot_be_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    cells = ["-16", "half"]
    trace = ingest(seren(SEREN_LINE.replace("5,u1,2,16", f"5,u1,2,{cell}") for cell in cells))
    assert by_case(cells, rows(trace, "jobs")) == dict.fromkeys(cells, without(ANY_JOB, "gpu_count"))
    assert found_checks(trace)["unreadable_gpu_num"] == (2, None)


def test_a_time_without_a_known_offset_costs_its_record(ingest: Ingest, rows: Rows) -> None:
    times = ["08:00:00", "08:00:00 CST", "08:00:00+08:30", "08:00:00Z"]
    source = seren([SEREN_LINE, *(SEREN_LINE.replace("08:00:00+08:00", time) for time in times)])
    trace = ingest(source, max_reject_share=0.9)
    assert rows(trace, "jobs") == [JOB | {"job_id": "Seren/1"}]
    _, _, *bad = source[SEREN].splitlines()
    found = [(r["line"], r["column"], r["raw"]) for r in rows(trace, "rejects")]
    assert found == [(number, "submit_time", line) for number, line in enumerate(bad, 3)]
    assert all(r["reason"].startswith("is not a time like %Y-%m-%d %H:%M:%S") for r in rows(trace, "rejects"))


def test_a_log_under_another_name_is_recognized_by_its_columns(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"a.csv": SEREN_HEADER + SEREN_LINE, "b.csv": KALOS_HEADER + KALOS_LINE}, format_name="acme")
    assert rows(trace, "jobs") == [JOB, JOB | IN_KALOS]
    assert {
        "a.csv has the columns of the Seren cluster; its name does not show the cluster",
        "b.csv has the columns of the Kalos cluster; its name does not show the cluster",
    } <= set(trace.manifest.notes)


def test_two_logs_of_one_cluster_are_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"^two files for the Seren cluster: a/trace_seren\.csv and b/trace_seren"):
        ingest({f"a/{SEREN}": SEREN_HEADER + SEREN_LINE, f"b/{SEREN}": SEREN_HEADER + SEREN_LINE})


def test_wide_utilization_files_are_noted_as_not_read(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(
        {SEREN: SEREN_HEADER + SEREN_LINE, "util/GPU_UTIL.csv": "Time,10.0.0.1\n2023-05-02 08:00:00+08:00,5\n"}
    )
    assert rows(trace, "jobs") == [JOB]
    assert "ignored files (format acme): util/GPU_UTIL.csv" in trace.manifest.notes


def test_the_sample_keeps_every_record_or_says_why(
    sample_trace: Callable[[str], Trace], rows: Rows, found_checks: FoundChecks
) -> None:
    trace = sample_trace("acme")
    assert trace.validate() == []
    assert [(f.path, f.records, f.kept, f.rejected) for f in trace.manifest.files] == [
        (SEREN, 124, 121, 3),
        (KALOS, 124, 121, 3),
    ]
    assert len(rows(trace, "jobs")) == 242
    assert len(rows(trace, "attempts")) == 238
    found = found_checks(trace)
    assert found["queue_disagrees"] == (2, 238)
    assert found["end_of_unfinished_job"] == (2, 242)
    assert found["unknown_status_word"] == found["unknown_type_word"] == (2, 242)
    assert (found["fail_time_disagrees"], found["stop_time_disagrees"]) == ((1, 121), (1, 121))
    assert found["duration_includes_queue"][0] > 100
    assert found.keys() == {
        "unreadable_gpu_num",
        "queue_disagrees",
        "end_of_unfinished_job",
        "unknown_status_word",
        "unknown_type_word",
        "fail_time_disagrees",
        "stop_time_disagrees",
        "duration_includes_queue",
        "duration_disagrees",
        "gpu_time_disagrees",
    }
