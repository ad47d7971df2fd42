"""Spot GPU: what becomes of each oddity of its jobs and nodes."""

from __future__ import annotations

import csv
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

JOBS = "job_info_df.csv"
NODES = "node_info_df.csv"
HEADER = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
LINE = "j1,org-3,A10,12,2,4,60,3600,Spot\n"
JOB = {
    "job_id": "j1",
    "cluster": "spot",
    "vc": "org-3",
    "submit_time": "1970-01-01 00:01:00",
    "run_s": 3600.0,
    "gpu_count": 8.0,
    "cpu_count": 48.0,
    "gpu_model": "A10",
    "instance_count": 4,
    "priority": 0,
    "preemptible": True,
    "account": "org-3",
    "qos": "Spot",
}


def test_a_job_multiplies_its_requests_by_its_workers(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({JOBS: HEADER + LINE})
    assert trace.tables == ("jobs",)
    assert rows(trace, "jobs") == [JOB]
    assert found_checks(trace) == {}
    assert (trace.manifest.format, trace.manifest.time_base) == ("alibaba-spot", "relative")
    capabilities = trace.capabilities
    assert [capabilities[n].available for n in ("arrivals", "run_time")] == [True, True]
    assert [capabilities[n].available for n in ("queueing", "statuses", "calendar", "hour_of_day", "retries")] == [
        False
    ] * 5
    assert "the source has no starts, ends or outcomes of jobs; run_s is a job's listed work" in trace.manifest.notes


def test_a_job_of_high_priority_is_not_preemptible(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({JOBS: HEADER + LINE.replace("Spot", "HP")})
    assert rows(trace, "jobs") == [JOB | {"priority": 1, "preemptible": False, "qos": "HP"}]


def test_a_worker_may_ask_for_a_part_of_a_gpu(ingest: Ingest, rows: Rows) -> None:
    assert rows(ingest({JOBS: HEADER + LINE.replace("12,2,4", "12,0.25,2")}), "jobs") == [
        JOB | {"gpu_count": 0.5, "cpu_count": 24.0, "instance_count": 2}
    ]


def test_blank_cells_are_unknown(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({JOBS: HEADER + "j1,,,,,,60,,\n"})
    assert rows(trace, "jobs") == [{k: JOB[k] for k in ("job_id", "cluster", "submit_time")}]
    assert found_checks(trace) == {}


def test_contradictions_are_counted_and_kept(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    lines = (
        "type,o,A10,12,2,1,60,1,Batch\nnone,o,A10,12,2,0,60,1,HP\nmodel,o,A10,12,0,1,60,1,HP\nfine,o,,12,0,1,60,1,HP\n"
    )
    trace = ingest({JOBS: HEADER + lines})
    assert [(j["job_id"], j["gpu_count"], j.get("priority"), j.get("preemptible")) for j in rows(trace, "jobs")] == [
        ("type", 2.0, None, None),
        ("none", 0.0, 1, False),
        ("model", 0.0, 1, False),
        ("fine", 0.0, 1, False),
    ]
    assert found_checks(trace) == {
        "unknown_job_type": (1, 4),
        "job_without_workers": (1, 4),
        "model_without_gpu": (1, 4),
    }


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        (",o,A10,12,2,1,60,1,HP", "job_name", "is missing"),
        ("j1,o,A10,12,2,1,60,1,HP", "job_name", "repeats the key of an earlier record"),
        ("j2,o,A10,12,2,1,60,long,HP", "duration", "is not a number"),
        ("j2,o,A10", None, "expected 9 fields, found 3"),
    ],
)
def test_an_impossible_record_is_set_aside(
    ingest: Ingest, rows: Rows, line: str, column: str | None, reason: str
) -> None:
    trace = ingest({JOBS: HEADER + LINE + line + "\n"})
    assert rows(trace, "jobs") == [JOB]
    expected = {"source_file": JOBS, "line": 3, "column": column, "reason": reason, "raw": line}
    assert rows(trace, "rejects") == [{k: v for k, v in expected.items() if v is not None}]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(2, 1, 1)]


@pytest.mark.parametrize(
    ("cells", "check"),
    [("-2,1", "unreadable_gpu_request"), ("2,1.5", "unreadable_worker_num"), ("1e300,1", "unreadable_gpu_request")],
)
def test_a_number_that_cannot_be_costs_itself(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, cells: str, check: str
) -> None:
    trace = ingest({JOBS: f"{HEADER}j2,o,A10,12,{cells},60,1,HP\n"})
    (job,) = rows(trace, "jobs")
    assert ("gpu_count" in job, job["submit_time"], job["run_s"]) == (False, "1970-01-01 00:01:00", 1.0)
    assert found_checks(trace)[check] == (1, None)


@pytest.mark.parametrize(
    "text",
    [
        "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,96,7\n",
        "node_name,gpu_model,gpu_capacity_num,cpu_num\n7,A10,1,96\n",
    ],
)
def test_nodes_are_read_by_their_header(ingest: Ingest, rows: Rows, text: str) -> None:
    trace = ingest({NODES: text})
    assert trace.tables == ("nodes",)
    assert rows(trace, "nodes") == [
        {"node_id": "7", "cluster": "spot", "gpu_count": 1, "gpu_model": "A10", "cpu_count": 96.0}
    ]


def test_files_under_other_names_are_known_by_their_headers(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"a.txt": HEADER + LINE, "b.txt": "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,96,7\n"})
    assert trace.manifest.format == "alibaba-spot"
    assert trace.tables == ("jobs", "nodes")


def test_the_sample_keeps_every_record_or_says_why(
    sample_trace: Callable[[str], Trace], rows: Rows, found_checks: FoundChecks
) -> None:
    trace = sample_trace("alibaba-spot")
    assert trace.validate() == []
    assert [(f.path, f.records, f.kept, f.rejected) for f in trace.manifest.files] == [
        (JOBS, 303, 301, 2),
        (NODES, 47, 47, 0),
    ]
    assert set(found_checks(trace)) == {
        "unknown_job_type",
        "job_without_workers",
        "model_without_gpu",
        "impossible_dates",
    }
    assert Counter(job.get("preemptible") for job in rows(trace, "jobs"))[None] == 2


def test_the_released_nodes_are_all_kept(real_data: Callable[[str], Path], tmp_path: Path, rows: Rows) -> None:
    file = real_data("alibaba_spot/node_info_df.csv")
    with file.open(newline="") as handle:
        listed = list(csv.DictReader(handle))
    trace = ingest_logs(file, tmp_path / "trace")
    assert trace.validate() == []
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(4_278, 4_278, 0)]
    nodes = rows(trace, "nodes")
    assert len(nodes) == len(listed) == 4_278
    assert sum(node["gpu_count"] for node in nodes) == sum(int(n["gpu_capacity_num"]) for n in listed) == 10_412
    assert Counter(node["gpu_model"] for node in nodes) == Counter(node["gpu_model"] for node in listed)
    assert len({node["gpu_model"] for node in nodes}) == 6
    assert {node["node_id"] for node in nodes} == {node["node_name"] for node in listed}
