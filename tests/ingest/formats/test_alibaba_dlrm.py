"""Disaggregated DLRM: what becomes of each oddity of its instances."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from typing import TYPE_CHECKING, Any

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

FILE = "disaggregated_DLRM_trace.csv"
HEADER = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
)
SHAPE = "HN,app_7,14,14,1,1,30,30,112.0,112.0,512.0,700.0,6"
# Waits 10 s, runs 90 s.
LINE = f"i1,{SHAPE},100.0,110.0,200.0\n"
JOB = {
    "job_id": "i1",
    "cluster": "dlrm",
    "group": "app_7",
    "workload": "inference",
    "status": "completed",
    "submit_time": "1970-01-01 00:01:40",
    "start_time": "1970-01-01 00:01:50",
    "end_time": "1970-01-01 00:03:20",
    "queue_s": 10.0,
    "run_s": 90.0,
    "gpu_count": 1.0,
    "cpu_count": 14.0,
    "memory_gib": 112.0,
    "attempt_count": 1,
}
ATTEMPT = {
    "job_id": "i1",
    "attempt": 0,
    "start_time": "1970-01-01 00:01:50",
    "end_time": "1970-01-01 00:03:20",
    "run_s": 90.0,
    "wait_s": 10.0,
    "gpu_count": 1.0,
    "status": "completed",
}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in names}


def test_a_deleted_instance_gives_a_job_and_an_attempt(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: HEADER + LINE})
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "jobs") == [JOB]
    assert rows(trace, "attempts") == [ATTEMPT]
    assert found_checks(trace) == {}
    assert (trace.manifest.format, trace.manifest.time_base) == ("alibaba-dlrm", "relative")
    assert [trace.capabilities[n].available for n in ("calendar", "hour_of_day", "retries")] == [False, False, False]
    assert (
        "a Trace has no columns for RDMA, disk, limits and max_instance_per_node; they are ignored"
        in trace.manifest.notes
    )


def test_an_instance_alive_at_the_end_is_right_censored(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: HEADER + f"i1,{SHAPE},100.0,110.0,\n"})
    assert rows(trace, "jobs") == [without(JOB, "end_time", "run_s") | {"status": "running"}]
    assert rows(trace, "attempts") == [without(ATTEMPT, "end_time", "run_s") | {"status": "running"}]
    assert found_checks(trace) == {"cut_by_window_end": (1, 1)}


def test_an_instance_from_before_the_trace_is_left_censored(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest({FILE: HEADER + f"i1,{SHAPE},,,200.0\n"})
    assert rows(trace, "jobs") == [without(JOB, "submit_time", "start_time", "queue_s", "run_s")]
    assert rows(trace, "attempts") == [without(ATTEMPT, "start_time", "wait_s", "run_s")]
    assert found_checks(trace) == {"began_before_window": (1, 1)}


def test_an_instance_without_times_ran_all_along(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: HEADER + f"i1,{SHAPE},,,\n"})
    times = ("submit_time", "start_time", "end_time", "queue_s", "run_s", "wait_s")
    assert rows(trace, "jobs") == [without(JOB, *times) | {"status": "running"}]
    assert rows(trace, "attempts") == [without(ATTEMPT, *times) | {"status": "running"}]
    assert found_checks(trace) == {"began_before_window": (1, 1), "cut_by_window_end": (1, 1)}


def test_noise_in_the_last_digits_of_times_is_dropped(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({FILE: HEADER + f"i1,{SHAPE},100.0000000001,109.9999999999,200.25\n"})
    assert rows(trace, "jobs") == [JOB | {"end_time": "1970-01-01 00:03:20.250000", "run_s": 90.25}]


def test_a_cpu_part_holds_no_gpu_and_may_have_no_limit_per_node(ingest: Ingest, rows: Rows) -> None:
    line = "i1,CN,app_7,14,14,0,0,2,2,112.0,112.0,512.0,700.0,-1,100.0,110.0,200.0\n"
    assert rows(ingest({FILE: HEADER + line}), "jobs") == [JOB | {"gpu_count": 0.0}]


def test_contradictions_are_counted_and_kept(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    lines = (
        f"pending,{SHAPE},100,,\n"
        f"dropped,{SHAPE},100,,200\n"
        f"born,{SHAPE},,110,200\n"
        f"role,{SHAPE.replace('HN', 'XN')},100,110,200\n"
        f"gpus,{SHAPE.replace('HN', 'CN')},100,110,200\n"
        f"limit,{SHAPE.replace('14,14', '14,16')},100,110,200\n"
        f"back,{SHAPE},100,90,80\n"
    )
    trace = ingest({FILE: HEADER + lines})
    assert [(j["job_id"], j["status"], j["attempt_count"], j.get("queue_s")) for j in rows(trace, "jobs")] == [
        ("pending", "pending", 0, None),
        ("dropped", "unknown", 0, None),
        ("born", "completed", 1, None),
        ("role", "completed", 1, 10.0),
        ("gpus", "completed", 1, 10.0),
        ("limit", "completed", 1, 10.0),
        ("back", "completed", 1, None),
    ]
    assert [a["job_id"] for a in rows(trace, "attempts")] == ["born", "role", "gpus", "limit", "back"]
    assert found_checks(trace) == {
        "cut_by_window_end": (1, 7),
        "created_without_schedule": (2, 7),
        "scheduled_without_creation": (1, 7),
        "unknown_role": (1, 7),
        "gpus_against_role": (1, 7),
        "request_against_limit": (1, 7),
        "ends_before_start": (1, 6),
        "starts_before_queued": (1, 4),
        "completed_without_end": (1, 7),
    }
    assert [(t["line"], t["job_id"], t["column"], t["value"]) for t in rows(trace, "doubtful_times")] == [
        (8, "back", "start_time", "1970-01-01 00:01:30"),
        (8, "back", "end_time", "1970-01-01 00:01:20"),
    ]
    assert trace.manifest.checks["gpus_against_role"].examples == ["gpus"]


def test_an_impossible_record_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    bad: list[tuple[str, str | None, str]] = [
        (f",{SHAPE},1,2,3", "instance_sn", "is missing"),
        (f"i1,{SHAPE},1,2,3", "instance_sn", "repeats the key of an earlier record"),
        (f"i2,{SHAPE},1,soon,3", "scheduled_time", "is not a number"),
        (f"i2,{SHAPE},1,2", None, "expected 17 fields, found 16"),
    ]
    text = HEADER + LINE + "".join(f"{line}\n" for line, *_ in bad)
    trace = ingest({FILE: text}, max_reject_share=0.9)
    assert rows(trace, "jobs") == [JOB]
    found = [(r["source_file"], r["line"], r["raw"], r.get("column"), r["reason"]) for r in rows(trace, "rejects")]
    assert sorted(found) == [(FILE, number, *case) for number, case in enumerate(bad, 3)]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(5, 1, 4)]


def test_a_file_under_another_name_is_known_by_its_header(ingest: Ingest, rows: Rows) -> None:
    assert rows(ingest({"instances.txt": HEADER + LINE}), "jobs") == [JOB]


def test_the_sample_keeps_every_record_or_says_why(
    sample_trace: Callable[[str], Trace], rows: Rows, found_checks: FoundChecks
) -> None:
    trace = sample_trace("alibaba-dlrm")
    assert trace.validate() == []
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(303, 301, 2)]
    assert len(rows(trace, "jobs")) == 301
    planted = {
        "began_before_window",
        "cut_by_window_end",
        "created_without_schedule",
        "scheduled_without_creation",
        "unknown_role",
        "gpus_against_role",
        "request_against_limit",
    }
    assert planted <= set(found_checks(trace))


def test_the_release_keeps_every_instance(
    real_data: Callable[[str], Path], tmp_path: Path, rows: Rows, found_checks: FoundChecks
) -> None:
    file = real_data("alibaba_dlrm/disaggregated_DLRM_trace.csv.gz")
    with gzip.open(file, "rt", newline="") as handle:
        instances = list(csv.DictReader(handle))
    trace = ingest_logs(file, tmp_path / "trace")
    assert trace.validate() == []
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(23_871, 23_871, 0)]
    jobs = rows(trace, "jobs")
    roles = Counter(instance["role"] for instance in instances)
    assert roles == {"CN": 16_485, "HN": 7_386}
    assert Counter(job["gpu_count"] for job in jobs) == {0.0: roles["CN"], 1.0: roles["HN"]}
    assert len({job["group"] for job in jobs}) == len({i["app_name"] for i in instances}) == 156
    assert Counter(job["status"] for job in jobs) == {"completed": 23_871 - 8_878, "running": 8_878}
    blank = {
        ("submit_time", "start_time"): sum(not i["creation_time"] and not i["scheduled_time"] for i in instances),
        ("end_time",): sum(not i["deletion_time"] for i in instances),
        ("submit_time", "start_time", "end_time"): sum(
            not i["creation_time"] and not i["scheduled_time"] and not i["deletion_time"] for i in instances
        ),
    }
    assert list(blank.values()) == [7_280, 8_878, 4_677]
    assert [sum(not any(n in job for n in names) for job in jobs) for names in blank] == list(blank.values())
    delays = [round(float(i["scheduled_time"]) - float(i["creation_time"]), 6) for i in instances if i["creation_time"]]
    assert sorted(job["queue_s"] for job in jobs if "queue_s" in job) == sorted(delays)
    assert max(delays) == 238_116
    assert sorted(delays)[len(delays) // 2] == 0
    assert len(rows(trace, "attempts")) == 23_871
    assert found_checks(trace) == {"began_before_window": (7_280, 23_871), "cut_by_window_end": (8_878, 23_871)}
