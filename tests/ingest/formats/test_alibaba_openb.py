"""openb: what becomes of each oddity of its pod and node lists."""

from __future__ import annotations

import csv
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
DEFAULT = "openb_pod_list_default.csv"


def test_a_pod_that_ended_gives_a_job_and_an_attempt(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({DEFAULT: PODS + "p1,1500,3072,1,250,,BE,Succeeded,100,400,160\n"})
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "jobs") == [
        {
            "job_id": "p1",
            "cluster": "openb",
            "group": "BE",
            "status": "completed",
            "source_status": "Succeeded",
            "submit_time": "1970-01-01 00:01:40",
            "start_time": "1970-01-01 00:02:40",
            "end_time": "1970-01-01 00:06:40",
            "queue_s": 60.0,
            "run_s": 240.0,
            "gpu_count": 0.25,
            "cpu_count": 1.5,
            "memory_gib": 3.0,
            "attempt_count": 1,
            "preemptible": True,
            "qos": "BE",
        }
    ]
    assert rows(trace, "attempts") == [
        {
            "job_id": "p1",
            "attempt": 0,
            "start_time": "1970-01-01 00:02:40",
            "end_time": "1970-01-01 00:06:40",
            "run_s": 240.0,
            "wait_s": 60.0,
            "gpu_count": 0.25,
            "status": "completed",
        }
    ]
    assert found_checks(trace) == {}
    assert trace.manifest.time_base == "relative"
    capabilities = trace.capabilities
    assert [capabilities[name].available for name in ("calendar", "hour_of_day", "retries")] == [False, False, False]


def test_a_pod_alive_at_the_end_of_the_trace_is_censored(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    lines = (
        "p1,1000,1024,2,1000,,LS,Running,12902000,12902960,12902060\n"
        "p2,1000,1024,2,1000,,LS,Running,12902000,12902959,12902060\n"
    )
    trace = ingest({DEFAULT: PODS + lines})
    jobs = rows(trace, "jobs")
    assert [(j["status"], j.get("end_time"), j.get("run_s"), j["gpu_count"]) for j in jobs] == [
        ("running", None, None, 2.0),
        ("unknown", "1970-05-30 08:09:19", 899.0, 2.0),
    ]
    assert [(a["status"], a.get("end_time")) for a in rows(trace, "attempts")] == [
        ("running", None),
        ("unknown", "1970-05-30 08:09:19"),
    ]
    assert found_checks(trace) == {"cut_by_window_end": (1, 2)}


def test_a_pending_pod_has_no_attempt(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({DEFAULT: PODS + "p1,1000,1024,8,1000,,Guaranteed,Pending,10,104,\n"})
    assert rows(trace, "jobs") == [
        {
            "job_id": "p1",
            "cluster": "openb",
            "group": "Guaranteed",
            "status": "pending",
            "source_status": "Pending",
            "submit_time": "1970-01-01 00:00:10",
            "end_time": "1970-01-01 00:01:44",
            "gpu_count": 8.0,
            "cpu_count": 1.0,
            "memory_gib": 1.0,
            "attempt_count": 0,
            "preemptible": False,
            "qos": "Guaranteed",
        }
    ]
    assert rows(trace, "attempts") == []


def test_contradictions_are_counted_and_kept(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    lines = (
        "ran,1000,1024,1,1000,,LS,Running,10,104,\n"
        "waited,1000,1024,1,1000,,LS,Pending,10,104,20\n"
        "odd,1000,1024,1,1000,,LS,Sleeping,10,104,20\n"
        "parts,1000,1024,2,500,,LS,Failed,10,104,20\n"
        "cpu,1000,1024,0,500,,LS,Failed,10,104,20\n"
        "light,1000,0,1,1000,,LS,Failed,10,104,20\n"
    )
    trace = ingest({DEFAULT: PODS + lines})
    assert [(j["job_id"], j["status"], j["gpu_count"], j["memory_gib"]) for j in rows(trace, "jobs")] == [
        ("ran", "unknown", 1.0, 1.0),
        ("waited", "pending", 1.0, 1.0),
        ("odd", "unknown", 1.0, 1.0),
        ("parts", "failed", 1.0, 1.0),
        ("cpu", "failed", 0.0, 1.0),
        ("light", "failed", 1.0, 0.0),
    ]
    assert found_checks(trace) == {
        "ran_without_schedule": (1, 6),
        "scheduled_but_pending": (1, 6),
        "unknown_status_word": (1, 6),
        "share_of_several_gpus": (1, 6),
        "share_without_gpu": (1, 6),
        "no_memory_asked": (1, 6),
    }


def test_a_model_named_twice_is_named_once(ingest: Ingest, rows: Rows) -> None:
    lines = (
        "p1,1,1,1,1000,T4|P100|T4,LS,Failed,1,4,2\np2,1,1,1,1000,G2,LS,Failed,1,4,2\np3,1,1,1,1000,,LS,Failed,1,4,2\n"
    )
    jobs = rows(ingest({DEFAULT: PODS + lines}), "jobs")
    assert [job.get("gpu_model") for job in jobs] == ["T4|P100", "G2", None]


def test_a_list_of_five_columns_has_requests_only(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(
        {"openb_pod_list_multigpu20.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,6000,18432,1,460\n"}
    )
    assert trace.tables == ("jobs",)
    assert rows(trace, "jobs") == [
        {
            "job_id": "p1",
            "cluster": "openb",
            "gpu_count": 0.46,
            "cpu_count": 6.0,
            "memory_gib": 18.0,
            "attempt_count": 0,
        }
    ]
    assert found_checks(trace) == {}


def test_of_several_pod_lists_the_default_one_is_read_and_said(ingest: Ingest, rows: Rows) -> None:
    lists = {
        DEFAULT: PODS + "p1,1,1,1,1000,,LS,Failed,1,4,2\n",
        "openb_pod_list_gpuspec33.csv": PODS + "p2,1,1,1,1000,,LS,Failed,1,4,2\n",
    }
    trace = ingest(lists)
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["p1"]
    assert [f.path for f in trace.manifest.files] == [DEFAULT]
    assert (
        "only one pod list is read: 'default', not gpuspec33 (choose with --option list=NAME)" in trace.manifest.notes
    )
    chosen = ingest(lists, options={"list": "gpuspec33"})
    assert [job["job_id"] for job in rows(chosen, "jobs")] == ["p2"]
    assert chosen.manifest.options == {"list": "gpuspec33"}


def test_a_pod_list_that_is_not_there_is_refused(ingest: Ingest) -> None:
    lists = dict.fromkeys((DEFAULT, "openb_pod_list_gpuspec33.csv"), PODS + "p1,1,1,1,1000,,LS,Failed,1,4,2\n")
    with pytest.raises(UsageError, match=r"the pod list 'gpuspec30' does not exist; did you mean 'gpuspec33'\?"):
        ingest(lists, options={"list": "gpuspec30"})


def test_the_larger_node_list_is_read_and_said(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(
        {
            "openb_node_list_all_node.csv": NODES + "n1,64000,262144,2,P100\nn2,96000,1024,0,\n",
            "openb_node_list_gpu_node.csv": NODES + "n1,64000,262144,2,P100\n",
        }
    )
    assert rows(trace, "nodes") == [
        {
            "node_id": "n1",
            "cluster": "openb",
            "gpu_count": 2,
            "gpu_model": "P100",
            "cpu_count": 64.0,
            "memory_gib": 256.0,
        },
        {"node_id": "n2", "cluster": "openb", "gpu_count": 0, "cpu_count": 96.0, "memory_gib": 1.0},
    ]
    chosen, left = "openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv"
    assert f"only the largest node list is read: {chosen}, not {left}" in trace.manifest.notes


@pytest.mark.parametrize(("cells", "check"), [("1,1001", "unreadable_gpu_milli"), ("-1,1000", "unreadable_num_gpu")])
def test_a_number_that_cannot_be_costs_itself(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, cells: str, check: str
) -> None:
    whole, damaged = (ingest({DEFAULT: f"{PODS}p0,1,1,{numbers},,LS,Failed,1,4,2\n"}) for numbers in ("1,1000", cells))
    (before,), (after,) = rows(whole, "jobs"), rows(damaged, "jobs")
    assert after == {k: v for k, v in before.items() if k != "gpu_count"}
    assert found_checks(damaged)[check] == (1, None)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        (",1,1,1,0,,LS,Failed,1,4,2", "name", "is missing"),
        ("p0,1,1,1,0,,LS,Failed,1,4,2", "name", "repeats the key of an earlier record"),
    ],
)
def test_an_impossible_cell_costs_its_record(ingest: Ingest, rows: Rows, line: str, column: str, reason: str) -> None:
    trace = ingest({DEFAULT: f"{PODS}p0,1,1,1,1000,,LS,Failed,1,4,2\n{line}\n"})
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["p0"]
    assert rows(trace, "rejects") == [
        {"source_file": DEFAULT, "line": 3, "column": column, "reason": reason, "raw": line}
    ]


def test_the_released_lists_keep_every_pod_and_node(
    real_data: Callable[[str], Path], tmp_path: Path, rows: Rows
) -> None:
    folder = real_data("alibaba_openb")
    with (folder / DEFAULT).open(newline="") as handle:
        pods = list(csv.DictReader(handle))
    with (folder / "openb_node_list_all_node.csv").open(newline="") as handle:
        nodes = list(csv.DictReader(handle))
    trace = ingest_logs(folder, tmp_path / "trace")
    assert trace.validate() == []
    jobs = rows(trace, "jobs")
    assert len(jobs) == len(pods) == 8152
    assert Counter(job["source_status"] for job in jobs) == {
        "Running": 5193,
        "Failed": 1870,
        "Pending": 897,
        "Succeeded": 192,
    }
    asked = sum(int(pod["num_gpu"]) * int(pod["gpu_milli"]) for pod in pods)
    assert round(sum(job["gpu_count"] for job in jobs) * 1000) == asked
    assert round(asked / 1000) == 6087
    waits = [int(pod["scheduled_time"]) - int(pod["creation_time"]) for pod in pods if pod["scheduled_time"]]
    assert [attempt["wait_s"] for attempt in rows(trace, "attempts")] == waits
    assert len(waits) == 8152 - 897
    assert sum("end_time" not in job for job in jobs) == sum(pod["deletion_time"] == "12902960" for pod in pods) == 34
    machines = rows(trace, "nodes")
    assert len(machines) == len(nodes) == 1523
    assert sum(node["gpu_count"] for node in machines) == sum(int(node["gpu"]) for node in nodes) == 6212
    assert sum("gpu_model" not in node for node in machines) == 310
