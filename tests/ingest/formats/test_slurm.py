"""What a job of `sacct` becomes, and which rows are one job: arrays, components, requeues, clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import ATTEMPT_ROW, JOB, JOB_ROW, PLACEMENT, WAITING, sacct, the_job
from tracekit.ingest.formats import _slurm_cells as text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


def test_a_job_gives_job_attempt_placements_and_nodes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({}))
    assert trace.tables == ("jobs", "attempts", "placements", "nodes")
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "attempts") == [ATTEMPT_ROW]
    assert rows(trace, "placements") == [PLACEMENT | {"node_id": "gpu01"}, PLACEMENT | {"node_id": "gpu02"}]
    node = {"cluster": "slurm", "gpu_count": 4, "gpu_model": "a100"}
    assert rows(trace, "nodes") == [{"node_id": "gpu01"} | node, {"node_id": "gpu02"} | node]
    assert found_checks(trace) == {}
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "UTC")
    assert not trace.capabilities["retries"].available
    assert [note.rpartition(",")[0] for note in trace.manifest.notes] == [
        "no job has several runs, so attempts are derived",
        "times have no zone and are read as UTC",
    ]


def test_array_tasks_are_jobs_of_one_group(ingest: Ingest, rows: Rows) -> None:
    waiting = {**WAITING, "JobID": "20_[8-20%4]", "State": "PENDING", "End": "Unknown"}
    for raw in (True, False):
        columns = [name for name in JOB if raw or name != "JobIDRaw"]
        trace = ingest(
            sacct({"JobID": "20_7", "JobIDRaw": "21"}, {**waiting, "JobIDRaw": "20"}, columns=columns),
        )
        found = {row["job_id"]: (row["group"], row["status"]) for row in rows(trace, "jobs")}
        waits = {f"slurm/20_{task}": ("20", "pending") for task in range(8, 21)}
        assert found == {"slurm/21" if raw else "slurm/20_7": ("20", "completed"), **waits}


def test_each_waiting_task_of_an_array_is_a_job(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    gpus = {"AllocTRES": "", "ReqTRES": "gres/gpu=4"}
    waiting = {**WAITING, **gpus, "State": "PENDING", "End": "Unknown"}
    trace = ingest(
        sacct(
            {**waiting, "JobID": "20_[1-9]", "JobIDRaw": "20"},  # shown again below, when task 1 and 3 had started
            {"JobID": "20_1", "JobIDRaw": "21"},
            {"JobID": "20_3", "JobIDRaw": "22"},
            {**waiting, "JobID": "20_[3-4,8-9%2]", "JobIDRaw": "20"},
            {**waiting, "JobID": "30_[7]", "JobIDRaw": "30"},  # the last task has the number of the array's row
            {**waiting, "JobID": "40_[1-3,...]", "JobIDRaw": "40"},
            {**waiting, "JobID": "50_[1-999999999]", "JobIDRaw": "50"},
        )
    )
    found = {row["job_id"].removeprefix("slurm/"): row["gpu_count"] for row in rows(trace, "jobs")}
    assert found == {"21": 8.0, "22": 8.0, **dict.fromkeys(("20_4", "20_8", "20_9", "30", "40", "50"), 4.0)}
    assert found_checks(trace) == {"superseded_rows": (1, 7), "waiting_arrays_as_one": (2, 6)}


@pytest.mark.parametrize(("tasks", "count"), [("[1,3,5-9:2]", 5), ("[0-9]", 10), ("[4]", 1), ("[1-3,...]", None)])
def test_waiting_array_tasks_are_counted(tasks: str, count: int | None) -> None:
    assert text_of.array_tasks(tasks).size == count


def test_a_job_that_another_cluster_started_is_left_out(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    ids = {"JobID": "67108901", "JobIDRaw": "67108901"}
    revoked = {**ids, **WAITING, "State": "REVOKED"}
    trace = ingest(
        sacct(
            {**ids, "Cluster": "alpha"},
            {**revoked, "Cluster": "beta", "State": "PENDING", "End": "Unknown"},
            {**revoked, "Cluster": "beta"},
            {**revoked, "Cluster": "gamma"},
        )
    )
    assert [(row["job_id"], row["status"]) for row in rows(trace, "jobs")] == [("alpha/67108901", "completed")]
    assert found_checks(trace) == {"superseded_rows": (1, 4), "revoked_siblings": (2, 4)}


def test_components_of_a_heterogeneous_job_are_one_job(ingest: Ingest, rows: Rows) -> None:
    second = {
        "JobID": "7+1",
        "JobIDRaw": "8",
        "AllocTRES": "cpu=6,gres/gpu:h100=1,gres/gpu=1,mem=8G,node=1",
        "NNodes": "1",
        "NodeList": "hgx1",
        "End": "2024-03-04T09:30:00",
        "Elapsed": "01:29:50",
        "Partition": "other",
    }
    trace = ingest(sacct({"JobID": "7+0"}, second))
    summed = {"gpu_count": 9.0, "node_count": 3}
    later = {"end_time": "2024-03-04 09:30:00", "run_s": 5390.0}
    total = {"cpu_count": 70.0, "memory_gib": 520.0, "gpu_model": "a100|h100"}
    assert rows(trace, "jobs") == [JOB_ROW | summed | later | total]
    assert rows(trace, "attempts") == [ATTEMPT_ROW | summed | later]
    assert [(row["task"], row["node_id"], row["gpu_count"]) for row in rows(trace, "placements")] == [
        ("0", "gpu01", 4.0),
        ("0", "gpu02", 4.0),
        ("1", "hgx1", 1.0),
    ]


def test_runs_of_a_requeued_job_are_its_attempts(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    again = {"Submit": "2024-03-04T09:00:10", "Start": "2024-03-04T09:02:10", "End": "2024-03-04T10:02:10"}
    again["Eligible"] = "2024-03-04T09:01:00"
    # The order of the rows does not matter.
    trace = ingest(sacct({**again, "State": "FAILED"}, {"State": "NODE_FAIL"}))
    job = {"status": "failed", "source_status": "FAILED", "end_time": "2024-03-04 10:02:10"}
    assert rows(trace, "jobs") == [JOB_ROW | job | {"run_s": 7320.0, "attempt_count": 2}]
    second = {"start_time": "2024-03-04 09:02:10", "end_time": "2024-03-04 10:02:10", "wait_s": 120.0}
    assert rows(trace, "attempts") == [
        ATTEMPT_ROW | {"status": "node_fail"},
        ATTEMPT_ROW | {"attempt": 1, "status": "failed"} | second,
    ]
    assert [row["attempt"] for row in rows(trace, "placements")] == [0, 0, 1, 1]
    assert trace.capabilities["retries"].available
    assert found_checks(trace) == {}


def test_a_job_that_waits_after_a_requeue_is_pending(ingest: Ingest, rows: Rows) -> None:
    waiting = {**WAITING, "Submit": JOB["End"], "End": "Unknown", "State": "PENDING"}
    trace = ingest(sacct({"State": "REQUEUED"}, waiting))
    row = the_job(trace, rows)
    assert (row["status"], row["attempt_count"], row["start_time"]) == ("pending", 1, JOB_ROW["start_time"])
    assert "end_time" not in row
    assert rows(trace, "attempts") == [ATTEMPT_ROW | {"status": "unknown"}]


def test_an_id_that_wrapped_around_is_another_job(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    def moved(day: int) -> dict[str, str]:
        return {name: JOB[name].replace("03-04", f"03-{day:02}") for name in ("Submit", "Eligible", "Start", "End")}

    step = {"JobID": "7.0", "JobIDRaw": "7.0", "MaxRSS": "1024M"}
    trace = ingest(sacct({}, moved(5), moved(9), {**moved(9), **step}))
    assert [(row["job_id"], row["attempt_count"]) for row in rows(trace, "jobs")] == [("slurm/7", 2), ("slurm/7#2", 1)]
    assert rows(trace, "job_usage") == [{"job_id": "slurm/7#2", "instance": "0", "memory_gib": 1.0}]
    assert found_checks(trace) == {"reused_job_ids": (1, 2)}


def test_a_run_listed_by_two_exports_counts_once(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    waiting = {**WAITING, "State": "PENDING", "End": "Unknown"}
    files = {
        "sacct-1.txt": sacct(waiting, {"State": "RUNNING", "End": "Unknown"})["sacct.txt"],
        "sacct-2.txt": sacct({}, columns=sorted(JOB))["sacct.txt"],
    }
    trace = ingest(files)
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "attempts") == [ATTEMPT_ROW]
    assert [(f.records, f.kept) for f in trace.manifest.files] == [(2, 2), (1, 1)]
    assert found_checks(trace) == {"superseded_rows": (2, 3)}


def test_clusters_keep_their_jobs_and_nodes_apart(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({"Cluster": "east"}, {"Cluster": "west"}))
    assert [(row["job_id"], row["cluster"]) for row in rows(trace, "jobs")] == [("east/7", "east"), ("west/7", "west")]
    assert [row["node_id"] for row in rows(trace, "nodes")] == ["east/gpu01", "east/gpu02", "west/gpu01", "west/gpu02"]


@pytest.mark.parametrize(("choice", "vc"), [("account", "vision"), ("partition", "long"), ("qos", "normal")])
def test_the_tenant_is_what_the_option_says(ingest: Ingest, rows: Rows, choice: str, vc: str) -> None:
    assert the_job(ingest(sacct({}), options={"vc": choice}), rows)["vc"] == vc


def test_the_sample_trace_keeps_all_but_the_unusable_records(
    sample_trace: Callable[[str], Trace], found_checks: FoundChecks
) -> None:
    trace = sample_trace("slurm")
    assert trace.validate() == []
    (account,) = trace.manifest.files
    assert (account.records, account.kept, account.rejected) == (300, 295, 5)
    assert {name: info.rows for name, info in trace.manifest.tables.items()} == {
        "jobs": 291,
        "attempts": 274,
        "placements": 297,
        "nodes": 12,
        "job_usage": 12,
        "rejects": 5,
    }
    assert set(found_checks(trace)) == {
        "unreadable_alloctres",
        "unreadable_nodelist",
        "delimiter_in_name",
        "rejected_gpu_hours",
        "running_past_limit",
        "duration_disagrees",
        "end_of_unfinished_job",
        "unknown_status_word",
        "node_count_disagrees",
        "typed_gpus_disagree",
        "shared_gpus_unknown",
        "superseded_rows",
        "reused_job_ids",
        "gpus_not_divisible",
    }
    assert trace.capabilities["retries"].available
