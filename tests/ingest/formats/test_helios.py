"""Helios: what becomes of each oddity of its job logs and quota tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query
from tracekit.errors import SourceError, TooManyRejectsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

LOG = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
# Waits 10 s from 08:00:00 in UTC+8, runs 90 s on 4 GPUs.
JOB = "1,u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:00:10,2020-04-02 08:01:40,90,10\n"
JOB_ROW = {
    "job_id": "Earth/1",
    "cluster": "Earth",
    "vc": "vcA",
    "user": "u1",
    "status": "completed",
    "source_status": "COMPLETED",
    "submit_time": "2020-04-02 00:00:00",
    "start_time": "2020-04-02 00:00:10",
    "end_time": "2020-04-02 00:01:40",
    "queue_s": 10.0,
    "run_s": 90.0,
    "gpu_count": 4.0,
    "cpu_count": 16.0,
    "node_count": 1,
    "attempt_count": 1,
}
ATTEMPT_ROW = {
    "job_id": "Earth/1",
    "attempt": 0,
    "start_time": "2020-04-02 00:00:10",
    "end_time": "2020-04-02 00:01:40",
    "run_s": 90.0,
    "wait_s": 10.0,
    "gpu_count": 4.0,
    "node_count": 1,
    "status": "completed",
}


def test_a_job_gives_one_job_and_one_attempt_in_utc(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB})
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "attempts") == [ATTEMPT_ROW]
    assert found_checks(trace) == {}
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "Asia/Shanghai")


def test_the_cluster_is_the_folder_or_the_prefix_of_the_file(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB, "data/Venus_cluster_log.csv": LOG + JOB})
    assert [(row["job_id"], row["cluster"]) for row in rows(trace, "jobs")] == [
        ("Earth/1", "Earth"),
        ("Venus/1", "Venus"),
    ]
    assert [row["job_id"] for row in rows(trace, "attempts")] == ["Earth/1", "Venus/1"]


def test_a_log_at_the_top_of_the_source_takes_the_source_folders_name(ingest: Ingest, rows: Rows) -> None:
    assert [row["cluster"] for row in rows(ingest({"cluster_log.csv": LOG + JOB}), "jobs")] == ["source-0"]


def test_two_logs_of_one_cluster_are_refused(ingest: Ingest) -> None:
    with pytest.raises(
        SourceError, match=r"^two files for the Earth cluster: Earth/cluster_log\.csv and Earth_cluster_log\.csv"
    ):
        ingest({"Earth/cluster_log.csv": LOG + JOB, "Earth_cluster_log.csv": LOG + JOB})


def test_a_job_cancelled_before_it_started_has_no_attempt(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    line = "2,u1,vcA,8,32,1,CANCELLED,2020-04-02 08:00:00,,2020-04-02 08:05:00,0,300\n"
    trace = ingest({"Earth/cluster_log.csv": LOG + line})
    assert rows(trace, "jobs") == [
        {
            "job_id": "Earth/2",
            "cluster": "Earth",
            "vc": "vcA",
            "user": "u1",
            "status": "cancelled",
            "source_status": "CANCELLED",
            "submit_time": "2020-04-02 00:00:00",
            "end_time": "2020-04-02 00:05:00",
            "gpu_count": 8.0,
            "cpu_count": 32.0,
            "node_count": 1,
            "attempt_count": 0,
        }
    ]
    assert rows(trace, "attempts") == []
    assert found_checks(trace) == {}


def test_a_duration_without_times_is_the_run_time_of_a_job_that_ended(ingest: Ingest, rows: Rows) -> None:
    lines = [f"{n},u1,vcA,8,32,1,{state},2020-04-02 08:00:00,,,{duration},\n" for n, state, duration in (
        (1, "COMPLETED", 90), (2, "CANCELLED", 0), (3, "RUNNING", 90), (4, "", 30),
    )]  # fmt: skip
    trace = ingest({"Earth/cluster_log.csv": LOG + "".join(lines)})
    assert [(r.get("run_s"), r["attempt_count"]) for r in rows(trace, "jobs")] == [
        (90, 1),
        (None, 0),
        (None, 0),
        (30, 1),
    ]
    assert [(r["job_id"], r["run_s"]) for r in rows(trace, "attempts")] == [("Earth/1", 90.0), ("Earth/4", 30.0)]


def test_every_spelling_of_an_unknown_time_is_unknown(ingest: Ingest, rows: Rows) -> None:
    blanks = ["", "None", "NULL"]
    cells = ("2020-04-02 08:00:00," + ",".join([blank] * 4) for blank in blanks)
    lines = (f"{n},u1,vcA,8,32,1,CANCELLED,{times}\n" for n, times in enumerate(cells, 1))
    jobs = rows(ingest({"Earth/cluster_log.csv": LOG + "".join(lines)}), "jobs")
    for blank, row in zip(blanks, jobs, strict=True):
        assert {"start_time", "end_time", "queue_s", "run_s"}.isdisjoint(row), blank


def test_the_end_of_a_job_that_still_runs_is_not_used(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB.replace("COMPLETED", "RUNNING")})
    changed = {"status": "running", "source_status": "RUNNING"}
    assert rows(trace, "jobs") == [{k: v for k, v in JOB_ROW.items() if k not in ("end_time", "run_s")} | changed]
    assert rows(trace, "attempts") == [
        {k: v for k, v in ATTEMPT_ROW.items() if k not in ("end_time", "run_s")} | {"status": "running"}
    ]
    assert found_checks(trace) == {"end_of_unfinished_job": (1, 1)}
    assert trace.manifest.checks["end_of_unfinished_job"].examples == ["Earth/1"]


def test_a_suspended_job_keeps_the_end_that_it_states(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    # The second runs 90 s on 4 GPUs: 0.1 GPU-hours. The third is still suspended.
    suspended = JOB.replace("COMPLETED", "SUSPENDED").replace("1,u1", "2,u1", 1)
    still = "3,u1,vcA,4,16,1,SUSPENDED,2020-04-02 08:00:00,2020-04-02 08:00:10,,,10\n"
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB + suspended + still})
    ended = {"job_id": "Earth/2", "status": "unknown"}
    open_row = {k: v for k, v in JOB_ROW.items() if k not in ("end_time", "run_s")}
    assert rows(trace, "jobs") == [
        JOB_ROW,
        JOB_ROW | ended | {"source_status": "SUSPENDED"},
        open_row | {"job_id": "Earth/3", "status": "running", "source_status": "SUSPENDED"},
    ]
    assert rows(trace, "attempts")[1] == ATTEMPT_ROW | ended
    assert found_checks(trace) == {"end_of_suspended_job": (1, 3)}
    assert trace.manifest.checks["end_of_suspended_job"].examples == ["Earth/2"]
    assert run_query(trace, "overview/status").rows() == [
        ("completed", 1, pytest.approx(1 / 3), pytest.approx(0.1), 0.5, 1, pytest.approx(1 / 3), None),
        ("running", 1, pytest.approx(1 / 3), None, None, 1, pytest.approx(1 / 3), None),
        ("unknown", 1, pytest.approx(1 / 3), pytest.approx(0.1), 0.5, 1, pytest.approx(1 / 3), None),
    ]


def test_a_suspended_job_gives_its_gpus_back_at_its_end(ingest: Ingest) -> None:
    # Both hold 4 GPUs from midnight UTC; one ends after an hour, the other after three, which is the last moment.
    lines = "".join(
        f"{n},u1,vcA,4,16,1,{state},2020-04-02 08:00:00,2020-04-02 08:00:00,2020-04-02 {end}:00:00,,\n"
        for n, state, end in ((1, "SUSPENDED", "09"), (2, "COMPLETED", "11"))
    )
    trace = ingest({"Earth/cluster_log.csv": LOG + lines})
    found = run_query(trace, "queuing/timeline", step_s=3600)
    assert found["running_gpus"].to_list() == [8.0, 4.0, 4.0]


def test_state_words_become_statuses(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    # An unknown word is kept and counted.
    statuses = {
        "COMPLETED": "completed",
        "CANCELLED": "cancelled",
        "FAILED": "failed",
        "TIMEOUT": "timeout",
        "NODE_FAIL": "node_fail",
        "OUT_OF_MEMORY": "out_of_memory",
        "PREEMPTED": "preempted",
        "EXPLODED": "unknown",
    }
    lines = (JOB.replace("COMPLETED", word).replace("1,u1", f"{n},u1", 1) for n, word in enumerate(statuses, 1))
    trace = ingest({"Earth/cluster_log.csv": LOG + "".join(lines)})
    assert rows(trace, "jobs") == [
        JOB_ROW | {"job_id": f"Earth/{n}", "status": status, "source_status": word}
        for n, (word, status) in enumerate(statuses.items(), 1)
    ]
    assert found_checks(trace) == {"unknown_status_word": (1, 8)}


def test_stated_durations_are_checked_and_the_times_used(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    agreeing = JOB.replace("1,u1", "2,u1", 1)
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB.replace(",90,10\n", ",91,11\n") + agreeing})
    assert rows(trace, "jobs") == [JOB_ROW, JOB_ROW | {"job_id": "Earth/2"}]
    assert found_checks(trace) == {"duration_disagrees": (1, 2), "queue_disagrees": (1, 2)}


def test_times_that_go_back_are_unknown_and_listed(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    line = "1,u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:20,2020-04-02 08:00:10,2020-04-02 08:00:00,-10,-10\n"
    trace = ingest({"Earth/cluster_log.csv": LOG + line})
    unknown = {"start_time", "end_time", "run_s", "queue_s", "wait_s"}
    assert rows(trace, "jobs") == [
        {k: v for k, v in JOB_ROW.items() if k not in unknown} | {"submit_time": "2020-04-02 00:00:20"}
    ]
    (attempt,) = rows(trace, "attempts")
    assert (attempt["job_id"], unknown & set(attempt)) == ("Earth/1", set())
    assert found_checks(trace) == {
        "ends_before_start": (1, 1),
        "starts_before_queued": (1, 1),
        "completed_without_end": (1, 1),
    }
    listed = {"source_file": "Earth/cluster_log.csv", "line": 2, "job_id": "Earth/1"}
    reason = "is before an earlier time of its record"
    assert rows(trace, "doubtful_times") == [
        listed | {"column": "start_time", "value": "2020-04-02 00:00:10", "reason": reason},
        listed | {"column": "end_time", "value": "2020-04-02 00:00:00", "reason": reason},
    ]


def test_an_end_at_no_date_of_the_log_is_unknown(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    ends = ["1970-01-01 00:00:00", "1970-01-01 08:00:00", "2038-01-19 11:14:07", "2199-01-01 00:00:00"]
    lines = (
        f"{n},u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:00:10,{end},-1,10\n"
        for n, end in enumerate(ends, 1)
    )
    trace = ingest({"Earth/cluster_log.csv": LOG + "".join(lines)})
    found = [{k: v for k, v in row.items() if k != "job_id"} for row in rows(trace, "jobs")]
    without_end = {k: v for k, v in JOB_ROW.items() if k not in ("job_id", "end_time", "run_s")}
    assert dict(zip(ends, found, strict=True)) == dict.fromkeys(ends, without_end)
    assert found_checks(trace) == {"impossible_dates": (4, 12), "completed_without_end": (4, 4)}
    doubts = [(t["line"], t["column"]) for t in rows(trace, "doubtful_times")]
    assert doubts == [(line, "end_time") for line in range(2, 6)]


def test_the_header_may_name_its_columns_in_any_order(ingest: Ingest, rows: Rows) -> None:
    names, cells = LOG.strip().split(","), JOB.strip().split(",")
    turned = ",".join(reversed(names)) + "\n" + ",".join(reversed(cells)) + "\n"
    assert rows(ingest({"Earth/cluster_log.csv": turned}), "jobs") == [JOB_ROW]


def test_an_extra_column_is_noted_and_not_read(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"Earth/cluster_log.csv": LOG.strip() + ",mood\n" + JOB.strip() + ",good\n"})
    assert rows(trace, "jobs") == [JOB_ROW]
    assert "Earth/cluster_log.csv: ignored columns: mood" in trace.manifest.notes


def test_a_missing_column_is_refused_in_one_line(ingest: Ingest) -> None:
    with pytest.raises(
        SourceError,
        match=r"^Earth/cluster_log\.csv, line 1: the column 'vc' is missing; the header has: job_id, user, gpu_num",
    ):
        ingest({"Earth/cluster_log.csv": LOG.replace("vc,", "") + JOB.replace("vcA,", "")})


def test_a_column_named_twice_is_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"line 1: the header names 'vc' twice; rename one of the columns$"):
        ingest({"Earth/cluster_log.csv": LOG.replace("user", "vc") + JOB})


def test_a_repeated_id_is_set_aside_within_a_cluster_only(ingest: Ingest, rows: Rows) -> None:
    out_of_order = JOB.replace("1,u1", "0,u1", 1)
    trace = ingest({"Earth/cluster_log.csv": LOG + JOB + out_of_order + JOB, "Venus/cluster_log.csv": LOG + JOB})
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["Earth/1", "Earth/0", "Venus/1"]
    assert rows(trace, "rejects") == [
        {
            "source_file": "Earth/cluster_log.csv",
            "line": 4,
            "column": "job_id",
            "reason": "repeats the key of an earlier record",
            "raw": JOB.strip(),
        }
    ]


def test_a_log_without_jobs_is_refused(ingest: Ingest) -> None:
    with pytest.raises(TooManyRejectsError, match=r"contains no records; check that the file is complete; with"):
        ingest({"Earth/cluster_log.csv": LOG})


def test_quotas_become_capacity_at_their_changes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(
        {
            "Earth/cluster_gpu_number.csv": "date,vcA,vcB,total\n"
            "2020-04-01,8,0,8\n2020-04-02,8,0,8\n2020-04-03,8,16,24\n2020-04-04,0,16,16\n"
        }
    )
    # Local midnight in UTC+8 is 16:00 of the day before.
    assert rows(trace, "capacity") == [
        {"time": "2020-03-31 16:00:00", "cluster": "Earth", "vc": "vcA", "gpu_count": 8.0},
        {"time": "2020-03-31 16:00:00", "cluster": "Earth", "vc": "vcB", "gpu_count": 0.0},
        {"time": "2020-03-31 16:00:00", "cluster": "Earth", "gpu_count": 8.0},
        {"time": "2020-04-02 16:00:00", "cluster": "Earth", "vc": "vcB", "gpu_count": 16.0},
        {"time": "2020-04-02 16:00:00", "cluster": "Earth", "gpu_count": 24.0},
        {"time": "2020-04-03 16:00:00", "cluster": "Earth", "vc": "vcA", "gpu_count": 0.0},
        {"time": "2020-04-03 16:00:00", "cluster": "Earth", "gpu_count": 16.0},
    ]
    assert found_checks(trace) == {}


def test_days_out_of_order_are_sorted(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"Earth/cluster_gpu_number.csv": "date,vcA,total\n2020-04-02,16,16\n2020-04-01,8,8\n"})
    assert [(row["time"], row.get("vc"), row["gpu_count"]) for row in rows(trace, "capacity")] == [
        ("2020-03-31 16:00:00", "vcA", 8.0),
        ("2020-03-31 16:00:00", None, 8.0),
        ("2020-04-01 16:00:00", "vcA", 16.0),
        ("2020-04-01 16:00:00", None, 16.0),
    ]


def test_a_total_that_is_not_a_sum_is_kept_and_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"Earth/cluster_gpu_number.csv": "date,vcA,vcB,total\n2020-04-01,8,8,17\n2020-04-02,8,8,16\n"})
    assert [row["gpu_count"] for row in rows(trace, "capacity")] == [8.0, 8.0, 17.0, 16.0]
    assert found_checks(trace) == {"quota_sum_disagrees": (1, 2)}
    assert trace.manifest.checks["quota_sum_disagrees"].examples == ["Earth 2020-04-01"]


def test_a_day_that_comes_twice_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"Earth/cluster_gpu_number.csv": "date,vcA,total\n2020-04-01,8,8\n2020-04-01,16,16\n"})
    assert [row["gpu_count"] for row in rows(trace, "capacity")] == [8.0, 8.0]
    assert [(row["line"], row["column"]) for row in rows(trace, "rejects")] == [(3, "date")]


def test_more_running_gpus_than_the_quota_are_counted(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(
        {
            "Earth/cluster_log.csv": LOG + JOB + JOB.replace("1,u1", "2,u1", 1),
            "Earth/cluster_gpu_number.csv": "date,vcA,total\n2020-04-01,4,4\n",
        }
    )
    # Both jobs hold 4 GPUs from the same second on: neither is the first, and together they exceed 4.
    assert found_checks(trace) == {"running_over_capacity": (2, 2)}
    assert trace.manifest.checks["running_over_capacity"].examples == ["Earth/1", "Earth/2"]


def test_a_cluster_without_a_gpu_job_is_never_over_its_quota(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(
        {
            "Earth/cluster_log.csv": LOG + JOB,
            "Earth/cluster_gpu_number.csv": "date,vcA,total\n2020-04-01,8,8\n",
            "Venus/cluster_gpu_number.csv": "date,vcA,total\n2020-04-01,8,8\n",
        }
    )
    assert found_checks(trace).get("running_over_capacity", (0, 1)) == (0, 1)


def test_jobs_that_follow_each_other_do_not_run_together(ingest: Ingest, found_checks: FoundChecks) -> None:
    later = "2,u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:01:40,2020-04-02 08:02:40,60,100\n"
    trace = ingest(
        {
            "Earth/cluster_log.csv": LOG + JOB + later,
            "Earth/cluster_gpu_number.csv": "date,vcA,total\n2020-04-01,4,4\n",
        }
    )
    assert found_checks(trace).get("running_over_capacity", (0, 2)) == (0, 2)


def test_the_released_quota_of_earth_adds_up(
    real_data: Callable[[str], Path], tmp_path: Path, rows: Rows, found_checks: FoundChecks
) -> None:
    import csv

    from tracekit.ingest import ingest_logs

    file = real_data("helios/Earth_cluster_gpu_number.csv")
    with file.open(newline="") as handle:
        header, *days = csv.reader(handle)
    assert (len(days), header[0], header[-1]) == (181, "date", "total")
    changes = sum(
        sum(day[i] != before[i] for i in range(1, len(header)))
        for before, day in zip([[""] * len(header), *days], days, strict=False)
    )
    trace = ingest_logs(file, tmp_path / "trace")
    capacity = rows(trace, "capacity")
    assert len(capacity) == changes
    assert {row["cluster"] for row in capacity} == {"Earth"}
    first = [row for row in capacity if row["time"] == "2020-03-31 16:00:00"]
    assert sum(row["gpu_count"] for row in first if "vc" in row) == 784
    assert [row["gpu_count"] for row in first if "vc" not in row] == [784]
    assert found_checks(trace) == {}
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(181, 181, 0)]
    assert trace.validate() == []
