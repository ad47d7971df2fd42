"""Philly: what becomes of each oddity of its job log, machine list and telemetry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query
from tracekit.errors import SourceError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

GPU_HEADER = "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8)) + "\n"
CPU_HEADER = "time,machine_id,cpu_util\n"
MEM_HEADER = "time,machine_id,mem_total,mem_free\n"


def attempt(start: object, end: object, *held: tuple[str, list[str]]) -> dict[str, Any]:
    detail = [{"ip": node, "gpus": gpus} for node, gpus in held]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(*attempts: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Return a job of the log, submitted at midnight in Pacific summer time, 07:00 UTC."""
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "app_1",
        "attempts": list(attempts),
        "submitted_time": "2017-10-03 00:00:00",
        "user": "ce2e13",
    } | changes


def log(*jobs: dict[str, Any]) -> dict[str, str]:
    return {"cluster_job_log": json.dumps(list(jobs), indent=4)}


HALF = attempt("2017-10-03 00:01:00", "2017-10-03 01:01:00", ("m1", ["gpu0", "gpu3"]), ("m2", ["gpu7"]))
WHOLE_JOB = {
    "job_id": "app_1",
    "cluster": "philly",
    "vc": "ee9e8c",
    "user": "ce2e13",
    "status": "completed",
    "source_status": "Pass",
    "submit_time": "2017-10-03 07:00:00",
    "start_time": "2017-10-03 07:01:00",
    "end_time": "2017-10-03 08:01:00",
    "queue_s": 60.0,
    "run_s": 3600.0,
    "gpu_count": 3.0,
    "node_count": 2,
    "attempt_count": 1,
}
WHOLE_ATTEMPT = {
    "job_id": "app_1",
    "attempt": 0,
    "start_time": "2017-10-03 07:01:00",
    "end_time": "2017-10-03 08:01:00",
    "run_s": 3600.0,
    "wait_s": 60.0,
    "gpu_count": 3.0,
    "node_count": 2,
    "status": "completed",
}


def test_a_job_gives_its_job_attempt_and_placements(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(log(job(HALF)))
    assert trace.tables == ("jobs", "attempts", "placements")
    assert rows(trace, "jobs") == [WHOLE_JOB]
    assert rows(trace, "attempts") == [WHOLE_ATTEMPT]
    times = {"start_time": "2017-10-03 07:01:00", "end_time": "2017-10-03 08:01:00"}
    assert rows(trace, "placements") == [
        {"job_id": "app_1", "attempt": 0, "node_id": "m1", "gpu_index": [0, 3], "gpu_count": 2.0} | times,
        {"job_id": "app_1", "attempt": 0, "node_id": "m2", "gpu_index": [7], "gpu_count": 1.0} | times,
    ]
    assert found_checks(trace) == {}
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "America/Los_Angeles")
    assert trace.capabilities["retries"].available


def on_own_nodes(number: int) -> dict[str, Any]:
    """Return the attempt HALF on two nodes that no other number has."""
    return HALF | {"detail": [{"ip": f"m{number}{place['ip']}", "gpus": place["gpus"]} for place in HALF["detail"]]}


def test_status_words_become_statuses(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    statuses = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed", "Asleep": "unknown"}
    trace = ingest(log(*(job(on_own_nodes(n), jobid=word, status=word) for n, word in enumerate(statuses))))
    assert rows(trace, "jobs") == [
        WHOLE_JOB | {"job_id": word, "status": status, "source_status": word} for word, status in statuses.items()
    ]
    assert rows(trace, "attempts") == [
        WHOLE_ATTEMPT | {"job_id": word, "status": status} for word, status in statuses.items()
    ]
    assert found_checks(trace) == {"unknown_status_word": (1, 4)}


def test_every_spelling_of_unknown_is_unknown(ingest: Ingest, rows: Rows) -> None:
    spellings = {"app_1": None, "app_2": "", "app_3": "None"}
    blank = (
        job(attempt(unknown, unknown, ("m1", ["gpu0"])), jobid=id_, submitted_time=unknown, user=unknown, vc=unknown)
        for id_, unknown in spellings.items()
    )
    trace = ingest(log(*blank, job(HALF, jobid="app_4")))
    known = {"status": "completed", "gpu_count": 1.0, "node_count": 1}
    of_job = {"cluster": "philly", "source_status": "Pass", "attempt_count": 1}
    assert rows(trace, "jobs")[:3] == [{"job_id": id_} | of_job | known for id_ in spellings]
    assert rows(trace, "attempts")[:3] == [{"job_id": id_, "attempt": 0} | known for id_ in spellings]


def test_absent_fields_are_unknown_too(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(log({"jobid": "app_1"}))
    assert rows(trace, "jobs") == [{"job_id": "app_1", "cluster": "philly", "attempt_count": 0}]
    assert trace.tables == ("jobs",)


def test_a_job_without_attempts_has_no_start_and_no_size(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    nones: dict[str, object] = {"app_1": [], "app_2": None, "app_3": "", "app_4": "None"}
    trace = ingest(log(*(job(jobid=id_, attempts=none, status="Killed") for id_, none in nones.items())))
    assert rows(trace, "jobs") == [
        {
            "job_id": id_,
            "cluster": "philly",
            "vc": "ee9e8c",
            "user": "ce2e13",
            "status": "cancelled",
            "source_status": "Killed",
            "submit_time": "2017-10-03 07:00:00",
            "attempt_count": 0,
        }
        for id_ in nones
    ]
    assert found_checks(trace) == {"jobs_without_attempts": (4, 4)}


def test_a_last_attempt_without_end_leaves_the_status_and_no_end(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(log(job(attempt("2017-10-03 00:01:00", None, ("m1", ["gpu0"])))))
    (row,) = rows(trace, "jobs")
    assert (row["status"], row.get("end_time"), row.get("run_s"), row["queue_s"]) == ("completed", None, None, 60.0)
    (tried,) = rows(trace, "attempts")
    assert (tried["status"], tried.get("end_time"), tried.get("run_s"), tried["wait_s"]) == (
        "completed",
        None,
        None,
        60.0,
    )
    assert found_checks(trace) == {
        "ended_status_without_end": (1, 1),
        "attempts_without_end": (1, 1),
        "completed_without_end": (1, 1),
    }


def test_an_unknown_end_in_the_middle_makes_the_next_wait_unknown(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        log(
            job(
                attempt("2017-10-03 00:00:30", "2017-10-03 00:10:00", ("m1", ["gpu0"])),
                attempt("2017-10-03 00:11:00", "", ("m1", ["gpu0"])),
                attempt("2017-10-03 00:20:00", "2017-10-03 00:30:00", ("m1", ["gpu0"])),
                attempt("2017-10-03 00:30:00", "2017-10-03 00:40:00", ("m1", ["gpu0"])),
            )
        )
    )
    assert [(a["attempt"], a.get("wait_s"), a.get("run_s"), a.get("status")) for a in rows(trace, "attempts")] == [
        (0, 30.0, 570.0, None),
        (1, 60.0, None, None),
        (2, None, 600.0, None),
        (3, 0.0, 600.0, "completed"),
    ]
    # From the first start 00:00:30 to the last end 00:40:00, gaps included.
    assert [(j["run_s"], j["attempt_count"]) for j in rows(trace, "jobs")] == [(2370.0, 4)]
    assert found_checks(trace) == {"attempts_without_end": (1, 4)}


def test_a_size_that_changes_between_attempts_is_counted_and_the_first_one_stands(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        log(
            job(
                attempt("2017-10-03 00:00:30", "2017-10-03 00:10:00", ("m1", ["gpu0", "gpu1"])),
                attempt(
                    "2017-10-03 00:11:00", "2017-10-03 00:20:00", ("m1", ["gpu0"]), ("m2", ["gpu0", "gpu1", "gpu2"])
                ),
            )
        )
    )
    assert [(j["gpu_count"], j["node_count"]) for j in rows(trace, "jobs")] == [(2.0, 1)]
    assert [(a["gpu_count"], a["node_count"]) for a in rows(trace, "attempts")] == [(2.0, 1), (4.0, 2)]
    assert found_checks(trace) == {"size_changes_between_attempts": (1, 1)}


def test_a_gpu_held_by_two_jobs_is_counted(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(log(job(HALF), job(HALF, jobid="app_2")))
    # app_1 and app_2 share GPUs on m1 and on m2, among 4 placements.
    assert found_checks(trace) == {"gpu_held_twice": (2, 4)}


@pytest.mark.parametrize(
    ("choice", "starts", "waits"),
    [
        ("bounded", "2017-11-05 08:30:00", 3600.0),
        ("null", None, None),
        ("first", "2017-11-05 08:30:00", 3600.0),
        ("second", "2017-11-05 09:30:00", 7200.0),
    ],
)
def test_a_start_in_the_doubled_hour_is_bounded_and_counted(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, choice: str, starts: str | None, waits: float | None
) -> None:
    source = log(
        job(
            attempt("2017-11-05 01:30:00", "2017-11-05 02:30:00", ("m1", ["gpu0"])),
            submitted_time="2017-11-05 00:30:00",
        )
    )
    trace = ingest(source, options={"doubled_hour": choice})
    # Submitted 00:30 PDT = 07:30 UTC; ended 02:30 PST = 10:30 UTC.
    (row,) = rows(trace, "attempts")
    assert (row.get("start_time"), row["end_time"], row.get("wait_s")) == (starts, "2017-11-05 10:30:00", waits)
    assert found_checks(trace)["ambiguous_local_time"] == (1, 3)
    assert rows(trace, "doubtful_times") == [
        {
            "source_file": "cluster_job_log",
            "line": 2,
            "job_id": "app_1",
            "attempt": 0,
            "column": "start_time",
            "value": "2017-11-05 01:30:00",
            "reason": "is a wall-clock time in the hour that a clock change repeats or skips",
            "earliest": "2017-11-05 08:30:00",
            "latest": "2017-11-05 09:30:00",
        }
    ]


def test_naive_times_are_taken_as_they_stand(ingest: Ingest, rows: Rows) -> None:
    source = log(
        job(
            attempt("2017-11-05 01:30:00", "2017-11-05 02:30:00", ("m1", ["gpu0"])),
            submitted_time="2017-11-05 00:30:00",
        )
    ) | {
        "cluster_gpu_util": GPU_HEADER
        + "2017-11-05 01:30:00 PDT,m1,50.0,,,,,,,,\n2017-11-05 01:30:00 PST,m1,60.0,,,,,,,,\n"
    }
    trace = ingest(source, options={"times": "naive"})
    (row,) = rows(trace, "attempts")
    assert (row["start_time"], row["end_time"], row["wait_s"], row["run_s"]) == (
        "2017-11-05 01:30:00",
        "2017-11-05 02:30:00",
        3600.0,
        3600.0,
    )
    assert [(s["time"], s["utilization_pct"]) for s in rows(trace, "gpu_utilization")] == [
        ("2017-11-05 01:30:00", 60.0),  # the second hour replaces the first, as in the published notebook
    ]
    assert trace.timezone == "UTC"


def test_a_job_of_a_wrong_shape_is_set_aside_with_its_column(ingest: Ingest, rows: Rows) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        (job(HALF, jobid=None), "jobid", "is missing"),
        (job(HALF, jobid=7), "jobid", "is not text"),
        (job(HALF), "jobid", "repeats the key of an earlier record"),
        (job(jobid="b", attempts={"a": 1}), "attempts", "is not a list"),
        (job(jobid="b", attempts=[3]), "attempts[0]", "is not an object"),
        (job({"start_time": 5}, jobid="b"), "attempts[0].start_time", "is not text"),
        (
            job(HALF, jobid="b", submitted_time="2017-10-33 00:00:00"),
            "submitted_time",
            "is not a time like %Y-%m-%d %H:%M:%S",
        ),
        (job(HALF, {"end_time": "soon"}, jobid="b"), "attempts[1].end_time", "is not a time like %Y-%m-%d %H:%M:%S"),
    ]
    for number, (bad, *_) in enumerate(cases):
        if bad.get("jobid") == "b":
            bad["jobid"] = f"b{number}"
    texts = [json.dumps(job(HALF)), *(json.dumps(bad) for bad, *_ in cases)]
    trace = ingest({"cluster_job_log": "[\n" + ",\n".join(texts) + "\n]\n"}, max_reject_share=0.99)
    assert rows(trace, "jobs") == [WHOLE_JOB]
    assert rows(trace, "attempts") == [WHOLE_ATTEMPT]
    assert sorted(rows(trace, "rejects"), key=lambda row: int(row["line"])) == [
        {"source_file": "cluster_job_log", "line": line, "column": column, "reason": reason, "raw": json.dumps(bad)}
        for line, (bad, column, reason) in enumerate(cases, 3)
    ]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(len(texts), 1, len(cases))]


UNREADABLE: list[tuple[dict[str, Any], str, set[str]]] = [
    ({"vc": ["x"]}, "vc: is not text", {"vc"}),
    ({"user": 5}, "user: is not text", {"user"}),
    ({"status": {}}, "status: is not text", {"status", "source_status"}),
    ({"detail": 5}, "attempts[0].detail: is not a list", {"gpu_count", "node_count"}),
    ({"detail": [5]}, "attempts[0].detail: is not an object", {"gpu_count", "node_count"}),
    ({"detail": [{"gpus": []}]}, "attempts[0].detail.ip: is missing", {"gpu_count", "node_count"}),
    (
        {"detail": [{"ip": "m", "gpus": ["gpu1"]}, {"ip": "n", "gpus": ["cpu0"]}]},
        "attempts[0].detail.gpus: is not a GPU like gpu0",
        {"gpu_count", "node_count"},
    ),
]


def test_an_optional_value_that_cannot_be_read_costs_itself(ingest: Ingest, rows: Rows) -> None:
    def damaged(number: int, fields: dict[str, Any]) -> dict[str, Any]:
        of_job = {key: value for key, value in fields.items() if key != "detail"}
        of_attempt = {key: value for key, value in fields.items() if key == "detail"}
        return job(on_own_nodes(number) | of_attempt, jobid=f"app_{number}", **of_job)

    trace = ingest(log(*(damaged(number, fields) for number, (fields, *_) in enumerate(UNREADABLE))))
    placed = {row["job_id"] for row in rows(trace, "placements")}
    examples: dict[str, list[str]] = {}
    for number, (row, (fields, example, unknown)) in enumerate(zip(rows(trace, "jobs"), UNREADABLE, strict=True)):
        known = {key: value for key, value in WHOLE_JOB.items() if key not in unknown}
        assert row == known | {"job_id": f"app_{number}"}, fields
        assert (f"app_{number}" in placed) is ("detail" not in fields), fields
        (column,) = fields
        examples.setdefault(column, []).append(example)
    for column, expected in examples.items():
        check = trace.manifest.checks[f"unreadable_{column}"]
        assert (check.count, sorted(check.examples)) == (len(expected), sorted(expected))


def test_an_attempt_on_a_node_without_gpus_has_no_known_size(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(log(job(attempt("2017-10-03 00:01:00", "2017-10-03 01:01:00", ("m1", [])))))
    assert [row.get("gpu_count") for row in rows(trace, "jobs")] == [None]
    assert [(row.get("gpu_count"), row["node_count"]) for row in rows(trace, "attempts")] == [(None, 1)]


def test_two_job_logs_are_refused(ingest: Ingest) -> None:
    text = log(job(HALF))["cluster_job_log"]
    with pytest.raises(
        SourceError, match=r"^several files contain cluster_job_log: cluster_job_log, cluster_job_log\.json"
    ):
        ingest({"cluster_job_log": text, "cluster_job_log.json": text})


def test_the_machine_list_has_blanks_and_gigabytes(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(
        {"cluster_machine_list": "machineId, number of GPUs, single GPU mem\nm1,2, 12GB\nm2, 8,24GB\nm3,4, many\n"}
    )
    assert rows(trace, "nodes") == [
        {"node_id": "m1", "cluster": "philly", "gpu_count": 2, "gpu_memory_gib": 12.0},
        {"node_id": "m2", "cluster": "philly", "gpu_count": 8, "gpu_memory_gib": 24.0},
        {"node_id": "m3", "cluster": "philly", "gpu_count": 4},
    ]


def test_a_list_that_contradicts_log_and_telemetry_is_counted(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(
        log(job(HALF))
        | {
            "cluster_machine_list": "machineId, number of GPUs, single GPU mem\nm1,2, 12GB\nm9,2, 12GB\n",
            "cluster_gpu_util": GPU_HEADER + "2017-10-03 00:01:00 PDT,m1,1,2,3,4,,,,,\n",
        }
    )
    assert found_checks(trace) == {
        "gpu_beyond_listed": (1, 2),
        "unlisted_nodes": (1, 2),
        "samples_beyond_listed": (1, 2),
        "nodes_without_telemetry": (1, 2),
    }
    assert trace.manifest.checks["gpu_beyond_listed"].examples == ["m1: listed 2, used 4"]
    assert trace.manifest.checks["samples_beyond_listed"].examples == ["m1: listed 2, seen 4"]


def test_gpu_samples_skip_na_and_empty_cells_with_and_without_the_final_comma(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        {
            "cluster_gpu_util": GPU_HEADER
            + "2017-10-03 00:00:00 PDT,m1,0.0,NA,55.5,100.0,,,,,\n"
            + "2017-10-03 00:01:00 PDT,m1,NA,NA,,,,,,7.0\n"
            + "2017-10-03 00:02:00 PDT,m1,NA,NA,,,,,,,\n"
        }
    )
    assert rows(trace, "gpu_utilization") == [
        {"time": "2017-10-03 07:00:00", "node_id": "m1", "gpu_index": 0, "utilization_pct": 0.0},
        {"time": "2017-10-03 07:00:00", "node_id": "m1", "gpu_index": 2, "utilization_pct": 55.5},
        {"time": "2017-10-03 07:00:00", "node_id": "m1", "gpu_index": 3, "utilization_pct": 100.0},
        {"time": "2017-10-03 07:01:00", "node_id": "m1", "gpu_index": 7, "utilization_pct": 7.0},
    ]
    # One NA in the first row, two in each of the others; the empty cells are no GPUs.
    assert found_checks(trace) == {"offline_gpu_cells": (5, None)}
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(3, 3, 0)]


def test_telemetry_in_the_doubled_hour_is_distinguished_by_its_zone(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        {
            "cluster_gpu_util": GPU_HEADER
            + "2017-11-05 01:30:00 PDT,m1,10,,,,,,,,\n"
            + "2017-11-05 01:30:00 PST,m1,20,,,,,,,,\n"
        }
    )
    assert [(s["time"], s["utilization_pct"]) for s in rows(trace, "gpu_utilization")] == [
        ("2017-11-05 08:30:00", 10.0),
        ("2017-11-05 09:30:00", 20.0),
    ]
    assert found_checks(trace) == {}


def test_of_a_repeated_gpu_sample_the_last_stands_and_the_others_are_counted(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    line = "2017-11-05 01:30:00 PDT,m1,{},,,,,,,,\n"
    trace = ingest({"cluster_gpu_util": GPU_HEADER + line.format(10) + line.format(20)})
    assert [s["utilization_pct"] for s in rows(trace, "gpu_utilization")] == [20.0]
    assert found_checks(trace) == {"repeated_gpu_samples": (1, 2)}


def test_gpu_samples_out_of_range_are_kept_and_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"cluster_gpu_util": GPU_HEADER + "2017-10-03 00:00:00 PDT,m1,-1,101,50,,,,,,\n"})
    assert [s["utilization_pct"] for s in rows(trace, "gpu_utilization")] == [-1.0, 101.0, 50.0]
    assert found_checks(trace) == {"gpu_utilization_out_of_range": (2, 3)}


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("2017-10-03 00:01:00 PDT,m1,1,2", None, "expected 10 fields, found 4"),
        ("2017-10-03 00:01:00 PDT,m1,1,2,3,4,5,6,7,8,,", None, "expected 10 fields, found 12"),
        (
            "2017-10-03 00:01:00 CET,m1,1,2,3,4,5,6,7,8,",
            "time",
            "is not a time like %Y-%m-%d %H:%M:%S with one of the zones PST, PDT",
        ),
        ("2017-10-03 00:01:00 PDT,,1,2,3,4,5,6,7,8,", "machineId", "is missing"),
    ],
)
def test_a_telemetry_row_that_cannot_be_used_is_set_aside(
    ingest: Ingest, rows: Rows, line: str, column: str | None, reason: str
) -> None:
    trace = ingest({"cluster_gpu_util": GPU_HEADER + "2017-10-03 00:00:00 PDT,m1,5,,,,,,,,\n" + line + "\n"})
    assert [s["utilization_pct"] for s in rows(trace, "gpu_utilization")] == [5.0]
    expected = {"source_file": "cluster_gpu_util", "line": 3, "column": column, "reason": reason, "raw": line}
    assert rows(trace, "rejects") == [{k: v for k, v in expected.items() if v is not None}]


def test_a_value_that_cannot_be_read_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"cluster_gpu_util": GPU_HEADER + "2017-10-03 00:00:00 PDT,m1,1,hot,3,,,,,,\n"})
    assert [(s["gpu_index"], s["utilization_pct"]) for s in rows(trace, "gpu_utilization")] == [(0, 1.0), (2, 3.0)]
    assert found_checks(trace) == {"unreadable_gpu1_util": (1, None)}


def test_cpu_and_memory_join_and_what_only_one_has_is_kept(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(
        {
            "cluster_cpu_util": CPU_HEADER
            + "2017-10-03 00:00:00 PDT,m1,25.5\n2017-10-03 00:01:00 PDT,m1,30\n2017-10-03 00:02:00 PDT,m1,NA,\n",
            # 512 GiB and 128 GiB in KiB.
            "cluster_mem_util": MEM_HEADER
            + "2017-10-03 00:00:00 PDT,m1,536870912,134217728\n2017-10-03 00:03:00 PDT,m1,536870912,NA\n",
        }
    )
    assert rows(trace, "host_utilization") == [
        {
            "time": "2017-10-03 07:00:00",
            "node_id": "m1",
            "cpu_pct": 25.5,
            "memory_used_gib": 384.0,
            "memory_total_gib": 512.0,
        },
        {"time": "2017-10-03 07:01:00", "node_id": "m1", "cpu_pct": 30.0},
        {"time": "2017-10-03 07:02:00", "node_id": "m1"},
        {"time": "2017-10-03 07:03:00", "node_id": "m1", "memory_total_gib": 512.0},
    ]


def test_memory_alone_is_enough_for_host_samples(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"cluster_mem_util": MEM_HEADER + "2017-10-03 00:00:00 PST,m1,1048576,1048576\n"})
    assert rows(trace, "host_utilization") == [
        {"time": "2017-10-03 08:00:00", "node_id": "m1", "memory_used_gib": 0.0, "memory_total_gib": 1.0}
    ]


def test_of_repeated_host_samples_the_last_one_stands(ingest: Ingest, rows: Rows) -> None:
    line = "2017-10-03 00:00:00 PDT,m1,{}\n"
    trace = ingest({"cluster_cpu_util": CPU_HEADER + line.format(10) + line.format(20)})
    assert [row["cpu_pct"] for row in rows(trace, "host_utilization")] == [20.0]
    blank = ingest({"cluster_cpu_util": CPU_HEADER + line.format(10) + line.format("NA")})
    assert [row.get("cpu_pct") for row in rows(blank, "host_utilization")] == [None]


def test_the_released_machine_list_has_552_machines_with_2490_gpus(
    real_data: Callable[[str], Path], tmp_path: Path, rows: Rows
) -> None:
    trace = ingest_logs(real_data("philly/cluster_machine_list"), tmp_path / "trace")
    sizes = [(row["gpu_count"], row["gpu_memory_gib"]) for row in rows(trace, "nodes")]
    assert (sizes.count((2, 12.0)), sizes.count((8, 24.0)), len(sizes)) == (321, 231, 552)
    assert sum(size for size, _ in sizes) == 2490
    assert trace.validate() == []


def test_host_memory_below_zero_is_unknown(ingest: Ingest, rows: Rows) -> None:
    times = [f"2017-10-03 00:0{minute}:00 PST,m1" for minute in range(4)]
    values = ["1048576,-1", "-1048576,0", "1048576,0", "1048576,0"]
    text = MEM_HEADER + "".join(f"{time},{value}\n" for time, value in zip(times, values, strict=True))
    trace = ingest({"cluster_mem_util": text})
    assert rows(trace, "rejects") == []
    assert [r.get("memory_used_gib") for r in rows(trace, "host_utilization")][-2:] == [1.0, 1.0]
    found = {name: check.count for name, check in trace.manifest.checks.items() if name.startswith("unreadable")}
    assert found == {"unreadable_mem_free": 1, "unreadable_mem_total": 1}


def test_naive_times_keep_both_hours_of_the_clock_change_in_host_samples(ingest: Ingest, rows: Rows) -> None:
    hours = "2017-11-05 01:30:00 PDT,m1,{}\n2017-11-05 01:30:00 PST,m1,{}\n"
    files = {
        "cluster_cpu_util": CPU_HEADER + hours.format(10, 30) + "2017-11-05 01:30:00 PST,m2,50\n",
        # 4 GiB in KiB, of which 3 are free in the first hour and 1 in the second.
        "cluster_mem_util": MEM_HEADER + hours.format("4194304,3145728", "4194304,1048576"),
    }
    naive = ingest(files, options={"times": "naive"})
    memory = {"memory_total_gib": 4.0}
    assert rows(naive, "host_utilization") == [
        {"time": "2017-11-05 01:30:00", "node_id": "m1", "cpu_pct": 10.0, "memory_used_gib": 1.0} | memory,
        {"time": "2017-11-05 01:30:00", "node_id": "m2", "cpu_pct": 50.0},
        {"time": "2017-11-05 01:30:00.000001", "node_id": "m1", "cpu_pct": 30.0, "memory_used_gib": 3.0} | memory,
    ]
    assert naive.validate() == []
    # Pooled over machines and minutes, whatever the clock says: CPU 10, 30, 50; memory 25 and 75 percent.
    expected = [("cpu", 3, 30.0), ("memory", 2, 50.0)]
    for trace in (naive, ingest(files)):
        assert run_query(trace, "utilization/host")["resource", "samples", "mean_pct"].rows() == expected


def test_naive_times_keep_a_host_sample_that_only_one_file_repeats(ingest: Ingest, rows: Rows) -> None:
    line = "2017-11-05 01:30:00 {},m1,{}\n"
    files = {
        "cluster_cpu_util": CPU_HEADER + line.format("PDT", 10) + line.format("PST", 30),
        "cluster_mem_util": MEM_HEADER + line.format("PST", "1048576,0"),
    }
    found = rows(ingest(files, options={"times": "naive"}), "host_utilization")
    assert [(row["cpu_pct"], row.get("memory_used_gib")) for row in found] == [(10.0, 1.0), (30.0, None)]
