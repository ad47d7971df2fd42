"""Acme: what becomes of each oddity of its job logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize(
    "time", ["08:00:10+08:00", "07:00:10+07:00", "00:00:10+00:00", "08:00:10.0+08:00", "08:00:10 +08:00"]
)
def test_every_time_is_read_with_its_own_offset(ingest: Ingest, rows: Rows, time: str) -> None:
    assert rows(ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("08:00:10+08:00", time)}), "jobs") == [JOB]


def test_an_offset_may_lead_to_the_day_before(ingest: Ingest, rows: Rows) -> None:
    line = SEREN_LINE.replace("08:00:00+08:00", "01:00:00+08:00")
    (job,) = rows(ingest({SEREN: SEREN_HEADER + line}), "jobs")
    assert (job["submit_time"], job["queue_s"]) == ("2023-05-01 17:00:00", 7 * 3600 + 10.0)


@pytest.mark.parametrize(
    ("kind", "workload"),
    [
        ("Pretrain", "training"),
        ("SFT", "training"),
        ("MLLM", "training"),
        ("Debug", "training"),
        ("Eval", "inference"),
        ("Other", "other"),
    ],
)
def test_types_say_what_a_job_is_for(ingest: Ingest, rows: Rows, kind: str, workload: str) -> None:
    assert rows(ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("Pretrain", kind)}), "jobs") == [
        JOB | {"group": kind, "workload": workload}
    ]


def test_unknown_words_are_kept_and_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    line = SEREN_LINE.replace("Pretrain", "Chat").replace("COMPLETED", "EXPLODED")
    trace = ingest({SEREN: SEREN_HEADER + line})
    assert rows(trace, "jobs") == [
        without(JOB, "workload") | {"group": "Chat", "status": "unknown", "source_status": "EXPLODED"}
    ]
    assert found_checks(trace) == {"unknown_status_word": (1, 1), "unknown_type_word": (1, 1)}


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("CANCELLED", "cancelled"),
        ("FAILED", "failed"),
        ("TIMEOUT", "timeout"),
        ("NODE_FAIL", "node_fail"),
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("PREEMPTED", "preempted"),
    ],
)
def test_state_words_become_statuses(ingest: Ingest, rows: Rows, word: str, status: str) -> None:
    assert rows(ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("COMPLETED", word)}), "jobs") == [
        JOB | {"status": status, "source_status": word}
    ]


@pytest.mark.parametrize("state", ["SUSPENDED", "RUNNING"])
def test_the_end_of_a_job_that_has_not_ended_is_not_used(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, state: str
) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("COMPLETED", state)})
    assert rows(trace, "jobs") == [without(JOB, "end_time", "run_s") | {"status": "running", "source_status": state}]
    assert rows(trace, "attempts") == [without(ATTEMPT, "end_time", "run_s") | {"status": "running"}]
    assert found_checks(trace) == {"end_of_unfinished_job": (1, 1)}


@pytest.mark.parametrize("blank", ["", "None", "NULL", "nan", "NaT"])
def test_a_job_cancelled_before_it_started_has_no_attempt(ingest: Ingest, rows: Rows, blank: str) -> None:
    line = SEREN_LINE.replace("COMPLETED", "CANCELLED").replace(f"{DAY}08:00:10+08:00", blank)
    trace = ingest({SEREN: SEREN_HEADER + line})
    assert rows(trace, "jobs") == [
        without(JOB, "start_time", "queue_s", "run_s")
        | {"status": "cancelled", "source_status": "CANCELLED", "attempt_count": 0}
    ]
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


# By its times the job runs 90 s and waits 10 s, on 16 GPUs.
@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ("90.999,10.999,1455.9", []),
        ("89.001,9.001,1424.1", []),
        ("91,10,1440", ["duration_disagrees"]),
        ("89,10,1440", ["duration_disagrees"]),
        ("90,11,1440", ["queue_disagrees"]),
        ("90,9,1440", ["queue_disagrees"]),
        ("90,10,1456", ["gpu_time_disagrees"]),
        ("90,10,1424", ["gpu_time_disagrees"]),
    ],
)
def test_a_stated_span_that_is_a_second_off_disagrees(
    ingest: Ingest, found_checks: FoundChecks, spans: str, found: list[str]
) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("90,10,1440", spans)})
    assert found_checks(trace) == dict.fromkeys(found, (1, 1))


@pytest.mark.parametrize(("gpu_time", "found"), [("0", 0), ("0.9", 0), ("1", 1)])
def test_gpu_time_of_no_gpus_disagrees_from_a_second_on(
    ingest: Ingest, found_checks: FoundChecks, gpu_time: str, found: int
) -> None:
    line = SEREN_LINE.replace("2,16,256", "1,0,4").replace("1440", gpu_time)
    assert found_checks(ingest({SEREN: SEREN_HEADER + line})) == ({"gpu_time_disagrees": (1, 1)} if found else {})


# The job waits 1 s: a duration of 91 s is that from its submission, one of 90 s is its run.
@pytest.mark.parametrize(
    ("duration", "includes"), [("90", False), ("90.9", False), ("91", True), ("91.9", True), ("92", False)]
)
def test_a_wait_of_a_second_tells_the_two_readings_of_the_duration_apart(
    ingest: Ingest, found_checks: FoundChecks, duration: str, includes: bool
) -> None:
    line = SEREN_LINE.replace("08:00:00+08", "08:00:09+08").replace("90,10,1440", f"{duration},1,1440")
    assert ("duration_includes_queue" in found_checks(ingest({SEREN: SEREN_HEADER + line}))) is includes


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        (f"{DAY}00:01:40+00:00,", {}),
        (f",{DAY}00:01:40+00:00", {}),
        (f"{DAY}00:01:39+00:00,", {"fail_time_disagrees": (1, 1)}),
        (f",{DAY}00:01:41+00:00", {"stop_time_disagrees": (1, 1)}),
    ],
)
def test_times_of_failure_and_cancellation_are_compared_with_the_end(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, marks: str, found: dict[str, tuple[int, int]]
) -> None:
    trace = ingest({KALOS: KALOS_HEADER + KALOS_LINE.replace(",,,90", f",{marks},90")})
    assert rows(trace, "jobs") == [JOB | IN_KALOS]
    assert found_checks(trace) == found


@pytest.mark.parametrize(
    ("changes", "column", "reason"),
    [
        (("5,u1", ",u1"), "job_id", "is missing"),
        (("5,u1", "5,u1"), "job_id", "repeats the key of an earlier record"),
        (("5,u1,2,16,256,Pretrain", "6,u1"), None, "expected 13 fields, found 9"),
    ],
)
def test_an_impossible_record_is_set_aside(
    ingest: Ingest, rows: Rows, changes: tuple[str, str], column: str | None, reason: str
) -> None:
    line = SEREN_LINE.replace(*changes)
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE + line})
    assert rows(trace, "jobs") == [JOB]
    expected = {"source_file": SEREN, "line": 3, "column": column, "reason": reason, "raw": line.strip()}
    assert rows(trace, "rejects") == [{k: v for k, v in expected.items() if v is not None}]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(2, 1, 1)]


@pytest.mark.parametrize("cell", ["-16", "half"])
def test_a_number_that_cannot_be_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks, cell: str) -> None:
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE.replace("5,u1,2,16", f"5,u1,2,{cell}")})
    assert rows(trace, "jobs") == [{k: v for k, v in JOB.items() if k != "gpu_count"}]
    assert found_checks(trace)["unreadable_gpu_num"] == (1, None)


@pytest.mark.parametrize("time", ["08:00:00", "08:00:00 CST", "08:00:00+08:30", "08:00:00Z"])
def test_a_time_without_a_known_offset_costs_its_record(ingest: Ingest, rows: Rows, time: str) -> None:
    line = SEREN_LINE.replace("5,u1", "6,u1").replace("08:00:00+08:00", time)
    trace = ingest({SEREN: SEREN_HEADER + SEREN_LINE + line})
    assert rows(trace, "jobs") == [JOB]
    (reject,) = rows(trace, "rejects")
    assert (reject["line"], reject["column"], reject["raw"]) == (3, "submit_time", line.strip())
    assert reject["reason"].startswith("is not a time like %Y-%m-%d %H:%M:%S")


def test_a_log_under_another_name_is_recognized_by_its_columns(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"a.csv": SEREN_HEADER + SEREN_LINE, "b.csv": KALOS_HEADER + KALOS_LINE}, format_name="acme")
    assert rows(trace, "jobs") == [JOB, JOB | IN_KALOS]
    assert {
        "a.csv has the columns of the cluster Seren; its name does not show the cluster",
        "b.csv has the columns of the cluster Kalos; its name does not show the cluster",
    } <= set(trace.manifest.notes)


def test_two_logs_of_one_cluster_are_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"^two files for the cluster Seren: a/trace_seren\.csv and b/trace_seren"):
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
