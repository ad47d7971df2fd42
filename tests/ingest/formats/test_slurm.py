"""Slurm: what becomes of each form that sacct prints."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.errors import SourceError, TooManyRejectsError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.formats import _slurm_devices as devices_of
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

# Waits 10 s, runs an hour on 4 GPUs of each of two nodes.
JOB = {
    "JobID": "7",
    "JobIDRaw": "7",
    "Submit": "2024-03-04T08:00:00",
    "Eligible": "2024-03-04T08:00:04",
    "Start": "2024-03-04T08:00:10",
    "End": "2024-03-04T09:00:10",
    "State": "COMPLETED",
    "Elapsed": "01:00:00",
    "Suspended": "00:00:00",
    "Timelimit": "1-02:03:04",
    "AllocTRES": "billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=512G,node=2",
    "ReqTRES": "billing=64,cpu=64,gres/gpu=8,mem=512G,node=2",
    "NNodes": "2",
    "NodeList": "gpu[01-02]",
    "Account": "vision",
    "Partition": "long",
    "QOS": "normal",
    "User": "u1",
    "JobName": "train",
    "Priority": "4000",
}
JOB_ROW = {
    "job_id": "slurm/7",
    "cluster": "slurm",
    "vc": "vision",
    "user": "u1",
    "name": "train",
    "status": "completed",
    "source_status": "COMPLETED",
    "submit_time": "2024-03-04 08:00:00",
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
    "queue_s": 10.0,
    "run_s": 3600.0,
    "gpu_count": 8.0,
    "cpu_count": 64.0,
    "memory_gib": 512.0,
    "gpu_model": "a100",
    "node_count": 2,
    "attempt_count": 1,
    "priority": 4000,
    "time_limit_s": 93_784.0,
    "suspended_s": 0.0,
    "account": "vision",
    "partition": "long",
    "qos": "normal",
    "eligible_time": "2024-03-04 08:00:04",
}
ATTEMPT_ROW = {
    "job_id": "slurm/7",
    "attempt": 0,
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
    "run_s": 3600.0,
    "wait_s": 10.0,
    "gpu_count": 8.0,
    "node_count": 2,
    "status": "completed",
}
PLACEMENT = {
    "job_id": "slurm/7",
    "attempt": 0,
    "gpu_count": 4.0,
    "start_time": "2024-03-04 08:00:10",
    "end_time": "2024-03-04 09:00:10",
}
WAITING = {"Start": "Unknown", "Elapsed": "00:00:00", "AllocTRES": "", "NodeList": "None assigned"}


def sacct(*rows: dict[str, str], columns: Iterable[str] = (), trailing: bool = False) -> dict[str, str]:
    """Return a source of one file; each row is the job above with changes."""
    names = list(columns) or list(dict.fromkeys([*JOB, *itertools.chain(*rows)]))
    end = "|\n" if trailing else "\n"
    lines = [names, *([{**JOB, **row}.get(name, "") for name in names] for row in rows)]
    return {"sacct.txt": "".join("|".join(line) + end for line in lines)}


def numbered(changes: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return a source of one file with a job for each item: the job above with these changes, and ids from 1."""
    return sacct(*({"JobID": str(n), "JobIDRaw": str(n), **change} for n, change in enumerate(changes, 1)))


def the_job(trace: Trace, rows: Rows) -> dict[str, Any]:
    (row,) = rows(trace, "jobs")
    return row


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
    assert [note.partition(",")[0] for note in trace.manifest.notes] == [
        "no job has several runs: attempts are derived",
        "times carry no zone and are read as UTC",
    ]


@pytest.mark.parametrize(
    ("trailing", "newline"),
    [
        (False, "\n"),
        (True, "\r\n"),
        pytest.param(True, "\n", marks=pytest.mark.thorough),
        pytest.param(False, "\r\n", marks=pytest.mark.thorough),
    ],
)
def test_the_order_of_columns_does_not_matter(ingest: Ingest, rows: Rows, trailing: bool, newline: str) -> None:
    for columns in (sorted(JOB), sorted(JOB, reverse=True)):
        (text,) = sacct({}, {"JobID": "8", "JobIDRaw": "8"}, columns=columns, trailing=trailing).values()
        trace = ingest({"sacct.txt": text.replace("\n", newline)})
        assert rows(trace, "jobs") == [JOB_ROW, JOB_ROW | {"job_id": "slurm/8"}]
        assert rows(trace, "placements")[0] == PLACEMENT | {"node_id": "gpu01"}


def test_five_columns_are_enough(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({}, columns=["JobID", "Submit", "Start", "End", "State"]))
    known = ("job_id", "cluster", "status", "source_status", "submit_time", "start_time", "end_time", "queue_s")
    assert rows(trace, "jobs") == [{k: JOB_ROW[k] for k in (*known, "run_s", "attempt_count")}]
    assert trace.tables == ("jobs", "attempts")


@pytest.mark.parametrize("name", ["sacct-2024.csv", "my_sacct.psv", "SACCT.log", "anything.dat"])
def test_an_export_is_found_by_name_or_by_first_bytes(ingest: Ingest, name: str) -> None:
    assert ingest({name: sacct({})["sacct.txt"]}).manifest.format == "slurm"


def test_a_file_without_header_line_is_refused(ingest: Ingest) -> None:
    text = sacct({})["sacct.txt"].partition("\n")[2]
    with pytest.raises(SourceError, match=r"line 1: has no header line .*sacct --parsable2 .*--format=JobID,"):
        ingest({"sacct.txt": text})


def test_an_empty_file_is_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"is empty"):
        ingest({"sacct.txt": ""})


def test_a_needed_column_that_is_missing_is_named(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"the column 'End' is missing"):
        ingest(sacct({}, columns=["JobID", "Submit", "Start", "State"]))


def test_a_name_may_hold_the_delimiter_and_quotes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    for trailing in (False, True):
        trace = ingest(
            sacct({"JobName": 'a|"b|c'}, {"JobID": "8", "JobIDRaw": "8", "JobName": '5" x'}, trailing=trailing)
        )
        assert sorted((row["job_id"], row["name"]) for row in rows(trace, "jobs")) == [
            ("slurm/7", 'a|"b|c'),
            ("slurm/8", '5" x'),
        ]
        assert found_checks(trace) == {"delimiter_in_name": (1, None)}


def test_an_unusable_key_costs_its_row(ingest: Ingest, rows: Rows) -> None:
    cases = [
        ({"JobID": "total"}, "JobID", "is not a job id"),
        ({"JobIDRaw": "x"}, "JobIDRaw", "is not a job id"),
        ({"JobID": ""}, "JobID", "is missing"),
        ({"Submit": "Unknown"}, "Submit", "is missing"),
        ({"Start": "2024-02-30T00:00:00"}, "Start", "is not a time like %Y-%m-%dT%H:%M:%S"),
        ({"JobID": "7_[9-8]"}, "JobID", "is not a list of array tasks"),
    ]
    trace = ingest(numbered([{}, *(changes for changes, *_ in cases)]), max_reject_share=0.99)
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["slurm/1"]
    found = [(row["line"], row["column"], row["reason"]) for row in rows(trace, "rejects")]
    assert found == [(line, column, reason) for line, (_, column, reason) in enumerate(cases, 3)]


@pytest.mark.parametrize(
    ("changes", "lost", "reason"),
    [
        ({"Elapsed": "soon"}, {}, "is not a duration like 1-02:03:04"),
        ({"Suspended": "soon"}, {"suspended_s"}, "is not a duration like 1-02:03:04"),
        ({"Timelimit": "99999999999-00"}, {"time_limit_s"}, "is not a duration like 1-02:03:04"),
        ({"NodeList": "gpu[1-99999999]"}, {}, "names more than 65536 nodes"),
        ({"NodeList": "gpu[1-"}, {}, "is not a node list"),
        ({"Priority": "high"}, {"priority"}, "is not a whole number"),
        ({"Eligible": "at noon"}, {"eligible_time"}, "is not a time like %Y-%m-%dT%H:%M:%S"),
    ],
)
def test_any_other_cell_that_cannot_be_read_costs_itself(
    changes: dict[str, str], lost: set[str], reason: str, ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(sacct(changes))
    assert rows(trace, "jobs") == [{k: v for k, v in JOB_ROW.items() if k not in lost}]
    ((column, text),) = changes.items()
    assert found_checks(trace) == {f"unreadable_{column.lower()}": (1, None)}
    (check,) = (check for check in trace.manifest.checks.values() if check.count)
    assert check.examples == [f"{text}: {reason}"]
    assert bool(rows(trace, "placements")) == (column != "NodeList")
    assert any(f"most cells of the column '{column}' cannot be read" in note for note in trace.manifest.notes)


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"AllocTRES": "cpu"}, 8.0),  # what was asked for
        ({"AllocTRES": "cpu=x", "ReqTRES": ""}, None),
        ({"AllocTRES": "cpu=x", "ReqTRES": "cpu=1"}, None),
        ({"AllocTRES": "", "ReqTRES": "?"}, None),
        ({"AllocTRES": "cpu=1", "ReqTRES": "?"}, 0.0),
    ],
)
def test_gpus_are_unknown_where_their_list_cannot_be_read(
    changes: dict[str, str], gpus: float | None, ingest: Ingest, rows: Rows
) -> None:
    assert [job.get("gpu_count") for job in rows(ingest(sacct(changes)), "jobs")] == [gpus]


@pytest.mark.parametrize("text", ["UNLIMITED", "inf", "4294967295", "[]", "Partition_Limit"])
def test_no_limit_is_unknown_without_being_counted(
    text: str, ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(sacct({"Timelimit": text, "Priority": "4294967295"}))
    (job,) = rows(trace, "jobs")
    assert {"time_limit_s", "priority"}.isdisjoint(job)
    assert found_checks(trace) == {}


def test_a_source_without_usable_rows_is_refused(ingest: Ingest) -> None:
    with pytest.raises(TooManyRejectsError, match=r"line 2, column JobID: is not a job id"):
        ingest(sacct({"JobID": "total"}))


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


def test_gpus_are_counted_once(ingest: Ingest, rows: Rows) -> None:
    cases: list[tuple[dict[str, str], float | None, str | None]] = [
        ({"AllocTRES": "cpu=4,gres/gpu:a100=4"}, 4.0, "a100"),
        ({"AllocTRES": "cpu=4,gres/gpu=4"}, 4.0, None),
        ({"AllocTRES": "cpu=4,gres/gpu:a100=2,gres/gpu:h100=2,gres/gpu=4"}, 4.0, "a100|h100"),
        ({"AllocTRES": "cpu=4,gres/gpu:a100_1g.5gb=2"}, 2 / 7, "a100_1g.5gb"),
        ({"AllocTRES": "gres/gpu=1.5K"}, 1536.0, None),
        ({"AllocTRES": "cpu=4,mem=1G"}, 0.0, None),
        ({"AllocTRES": "", "ReqTRES": "cpu=4,gres/gpu:h100=2"}, 2.0, "h100"),
        ({"AllocTRES": "", "ReqTRES": "", "AllocGRES": "gpu:a100:6"}, 6.0, "a100"),
        ({"AllocTRES": "", "ReqTRES": "", "AllocGRES": "gpu:6", "ReqGRES": "gpu:3"}, 6.0, None),
        ({"AllocTRES": "", "ReqTRES": "", "AllocGRES": "gpu:3", "ReqGRES": "gpu:3"}, 6.0, None),
        ({"AllocTRES": "", "ReqTRES": "", "ReqGRES": "PER_NODE:gpu:2(S:0-1),mps:50"}, 4.0, None),
        ({"AllocTRES": "", "ReqTRES": "", "ReqGRES": "gpu:0"}, 0.0, None),
        ({"AllocTRES": "", "ReqTRES": ""}, None, None),
    ]
    of_columns: dict[frozenset[str], list[tuple[dict[str, str], float | None, str | None]]] = defaultdict(list)
    for case in cases:
        of_columns[frozenset(case[0].keys() - JOB.keys())].append(case)  # a column without a word tells something too
    assert len(of_columns) == 4
    for alike in of_columns.values():
        found = rows(ingest(numbered(changes for changes, *_ in alike)), "jobs")
        assert [(row.get("gpu_count"), row.get("gpu_model")) for row in found] == [tuple(rest) for _, *rest in alike]


def test_a_blank_gres_column_of_an_older_version_means_no_gpus(ingest: Ingest, rows: Rows) -> None:
    columns = ["JobID", "Submit", "Start", "End", "State", "NodeList", "ReqGRES"]
    assert the_job(ingest(sacct({}, columns=columns)), rows)["gpu_count"] == 0.0


def test_typed_entries_that_do_not_add_up_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"AllocTRES": "gres/gpu:a100=2,gres/gpu=4"}))
    assert the_job(trace, rows)["gpu_count"] == 4.0
    assert found_checks(trace) == {"typed_gpus_disagree": (1, 1)}


def test_shards_are_fractions_only_when_their_size_is_known(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    source = sacct({"AllocTRES": "cpu=4,gres/shard=2", "NNodes": "1", "NodeList": "gpu01"})
    unknown = ingest(source)
    assert "gpu_count" not in the_job(unknown, rows)
    assert found_checks(unknown) == {"shared_gpus_unknown": (1, 1)}
    known = ingest(source, options={"shards_per_gpu": "8"})
    assert the_job(known, rows)["gpu_count"] == 0.25
    assert [row["gpu_count"] for row in rows(known, "placements")] == [0.25]
    assert found_checks(known) == {}


def test_memory(ingest: Ingest, rows: Rows) -> None:
    allocated = {"1.5T": 1536.0, "512M": 0.5, "1048576K": 1.0}
    found = rows(ingest(numbered({"AllocTRES": f"cpu=4,mem={amount}"} for amount in allocated)), "jobs")
    assert [row["memory_gib"] for row in found] == list(allocated.values())
    cases = [
        ({"AllocTRES": "cpu=4", "ReqMem": "4096Mc"}, 16.0),
        ({"AllocTRES": "cpu=4", "ReqMem": "4Gn"}, 8.0),
        ({"AllocTRES": "cpu=4", "ReqMem": "256G"}, 256.0),
        ({"AllocTRES": "cpu=4", "ReqMem": "2048"}, 2.0),
        ({"AllocTRES": "cpu=4", "ReqMem": "0n"}, None),
    ]
    found = rows(ingest(numbered(changes for changes, _ in cases)), "jobs")
    assert [row.get("memory_gib") for row in found] == [gib for _, gib in cases]


def test_an_uneven_gang_has_no_gpus_per_node(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"AllocTRES": "gres/gpu=7"}))
    assert [row.get("gpu_count") for row in rows(trace, "placements")] == [None, None]
    assert [row.get("gpu_count") for row in rows(trace, "nodes")] == [None, None]
    assert found_checks(trace) == {"gpus_not_divisible": (1, 1)}


def test_a_node_has_the_most_gpus_held_there_at_once(ingest: Ingest, rows: Rows) -> None:
    one = {"AllocTRES": "gres/gpu=2", "NNodes": "1", "NodeList": "gpu01"}
    hours = ((8, 10), (9, 11), (10, 12), (11, 12))
    jobs = [
        {
            **one,
            "JobID": f"{n}",
            "JobIDRaw": f"{n}",
            "Start": f"2024-03-04T{a:02}:00:00",
            "End": f"2024-03-04T{b}:00:00",
        }
        for n, (a, b) in enumerate(hours)
    ]
    assert rows(ingest(sacct(*jobs)), "nodes") == [{"node_id": "gpu01", "cluster": "slurm", "gpu_count": 4}]


def test_nnodes_that_contradict_the_list_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"NNodes": "3"}))
    assert the_job(trace, rows)["node_count"] == 3
    assert found_checks(trace) == {"node_count_disagrees": (1, 1)}


def test_steps_give_measured_use_and_no_jobs(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    steps = (
        {"JobID": "7.batch", "JobIDRaw": "7.batch", "MaxRSS": "1048576K"},
        {
            "JobID": "7.0",
            "JobIDRaw": "7.0",
            "TRESUsageInAve": "cpu=00:00:01,gres/gpumem=2048M,gres/gpuutil=90,mem=3G",
            "NTasks": "2",
        },
        {"JobID": "7.extern", "JobIDRaw": "7.extern", "State": "FAILED"},
        {"JobID": "9.0", "JobIDRaw": "9.0", "MaxRSS": "5"},
    )
    trace = ingest(sacct({}, *steps))
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "job_usage") == [
        {"job_id": "slurm/7", "instance": "batch", "memory_gib": 1.0},
        {"job_id": "slurm/7", "instance": "0", "gpu_util_pct": 180.0, "gpu_memory_gib": 4.0, "memory_gib": 3.0},
    ]
    (account,) = trace.manifest.files
    assert (account.records, account.kept, account.rejected) == (5, 5, 0)
    assert found_checks(trace) == {"steps_without_job": (1, 4)}


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


@pytest.mark.parametrize(("tasks", "count"), [("[1,3,5-9:2]", 5), ("[0-9]", 10), ("[4]", 1), ("[1-3,...]", None)])
def test_waiting_array_tasks_are_counted(tasks: str, count: int | None) -> None:
    assert text_of.array_tasks(tasks).size == count


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
    assert not ingest(sacct({})).capabilities["retries"].available


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


def test_an_option_needs_its_column(ingest: Ingest) -> None:
    columns = ["JobID", "Submit", "Start", "End", "State"]
    for options, name in (({"vc": "qos"}, "QOS"), ({"queue_from": "eligible"}, "Eligible")):
        with pytest.raises(SourceError, match=rf"the column '{name}' is missing"):
            ingest(sacct({}, columns=columns), options=options)


def test_a_wait_may_count_from_eligibility(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({}), options={"queue_from": "eligible"})
    assert the_job(trace, rows) == JOB_ROW | {"queue_s": 6.0}
    assert rows(trace, "attempts") == [ATTEMPT_ROW | {"wait_s": 6.0}]


NOT_ELIGIBLE = {k: v for k, v in JOB_ROW.items() if k != "eligible_time"}


@pytest.mark.parametrize("eligible", ["2024-03-04T07:59:59", "2024-03-04T08:00:11"])
def test_a_job_is_not_eligible_before_its_submission_or_after_its_start(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, eligible: str
) -> None:
    trace = ingest(sacct({"Eligible": eligible}, {"JobID": "8", "JobIDRaw": "8"}))
    assert rows(trace, "jobs") == [NOT_ELIGIBLE, JOB_ROW | {"job_id": "slurm/8"}]
    assert found_checks(trace) == {"eligible_out_of_order": (1, 2)}
    (doubt,) = rows(trace, "doubtful_times")
    assert (doubt["line"], doubt["job_id"], doubt["column"]) == (2, "7", "eligible_time")
    assert (doubt["value"], doubt["reason"]) == (
        eligible.replace("T", " "),
        "lies before the submission or after the start of its job",
    )
    assert trace.validate() == []


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
    # It waits for its begin time at 12:00 and is requeued at 09:00. Either it runs at once, which contradicts 12:00.
    first = {**WAITING, "Eligible": "2024-03-04T12:00:00", "End": "Unknown", "State": "PENDING"}
    again = {"Submit": "2024-03-04T09:00:00", "Eligible": "2024-03-04T09:00:00"}
    ran = {**again, "Start": "2024-03-04T09:00:10", "End": "2024-03-04T10:00:10"}
    assert "eligible_time" not in the_job(trace := ingest(sacct(first, ran)), rows)
    assert found_checks(trace) == {"eligible_out_of_order": (1, 2)}
    assert rows(trace, "doubtful_times")[0]["value"] == "2024-03-04 12:00:00"
    assert trace.validate() == []
    # Or it runs later.
    late = {**again, "Start": "2024-03-04T13:00:00", "End": "2024-03-04T14:00:00"}
    assert the_job(ingest(sacct(first, late)), rows)["eligible_time"] == "2024-03-04 12:00:00"


def test_components_are_eligible_together(ingest: Ingest, rows: Rows) -> None:
    first, second = {"JobID": "7+0"}, {"JobID": "7+1", "JobIDRaw": "8", "Eligible": "2024-03-04T08:00:08"}
    assert the_job(ingest(sacct(first, second)), rows)["eligible_time"] == "2024-03-04 08:00:08"
    unknown = {**second, "Eligible": "Unknown"}
    assert "eligible_time" not in the_job(ingest(sacct(first, unknown)), rows)


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


@pytest.mark.parametrize("options", [{"timezone": "Mars/Base"}, {"timezone": "../x"}, {"shards_per_gpu": "many"}])
def test_an_option_without_meaning_is_refused(ingest: Ingest, options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=rf"--option {name}"):
        ingest(sacct({}), options=options)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login", ["login"]),
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("n[8-11],x[098-100]-ib", ["n8", "n9", "n10", "n11", "x098-ib", "x099-ib", "x100-ib"]),
        ("a1,a[1-2]", ["a1", "a2"]),
    ],
)
def test_node_lists(text: str, nodes: list[str]) -> None:
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "a[", "a]", "a[1-2", "a[b]", "a[3-1]", "a[[1]]", "a,,b", "a b", "a[]"])
def test_what_is_no_node_list(text: str) -> None:
    with pytest.raises(ValueError, match="is not a node list"):
        expand_nodes(text)


def test_an_absurd_node_list_is_never_expanded() -> None:
    for text in ("a[1-999999999999]", "a[1-9999]b[1-9999]c[1-9999]"):
        with pytest.raises(ValueError, match="names more than 65536 nodes"):
            expand_nodes(text)


def compressed(names: Iterable[str]) -> str:
    """Return names like rack2n07 as a node list, one bracket group for each prefix and width."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?)(\d+)", name)
        assert match
        groups.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    parts = []
    for (prefix, width), numbers in groups.items():
        items = []
        rest = sorted(numbers)
        while rest:
            end = 1
            while end < len(rest) and rest[end] == rest[0] + end:
                end += 1
            first, last = f"{rest[0]:0{width}d}", f"{rest[end - 1]:0{width}d}"
            items.append(first if end == 1 else f"{first}-{last}")
            rest = rest[end:]
        parts.append(f"{prefix}[{','.join(items)}]")
    return ",".join(parts)


@given(
    st.lists(st.tuples(st.sampled_from(["gpu", "r1-n", "c"]), st.integers(1, 4), st.integers(0, 9999)), min_size=1).map(
        lambda parts: {f"{prefix}{number % 10**width:0{width}d}" for prefix, width, number in parts}
    )
)
def test_node_lists_survive_the_round_trip(names: set[str]) -> None:
    expanded = expand_nodes(compressed(names))
    assert sorted(expanded) == sorted(names)
    assert len(set(expanded)) == len(expanded)


@given(st.integers(0, 10**9), st.booleans())
def test_durations_survive_the_round_trip(seconds: int, short: bool) -> None:
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    text = (
        f"{m:02}:{s:02}" if short and not hours else f"{days}-{h:02}:{m:02}:{s:02}" if days else f"{h:02}:{m:02}:{s:02}"
    )
    assert text_of.duration_s(text) == seconds
    assert text_of.duration_s(text + ".250") == seconds + 0.25


PARSERS: list[Callable[[str], object]] = [
    text_of.duration_s,
    text_of.limit_s,
    text_of.count,
    text_of.memory,
    text_of.used_gib,
    devices_of.tres,
    text_of.usage,
    devices_of.gres,
    text_of.state,
    text_of.array_tasks,
    expand_nodes,
]


def reason(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


@given(st.sampled_from(PARSERS), st.text(max_size=30) | st.text("0123456789-:,[]=.KMGcn%+ ", max_size=30))
def test_no_cell_breaks_a_parser(parse: Callable[[str], object], text: str) -> None:
    assert re.match(r"is not a|is a duration out|names more than", reason(parse, text) or "is not a")


ORDERS = st.permutations(["JobID", "Submit", "Start", "End", "State", "JobName", "AllocTRES", "NodeList"])


@given(order=ORDERS)
@settings(max_examples=2)
def test_any_order_of_columns_gives_the_same_rows(order: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_same_rows_in(order, tmp_path_factory.mktemp("order"))


@pytest.mark.thorough
@given(order=ORDERS)
def test_many_orders_of_columns_give_the_same_rows(order: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_same_rows_in(order, tmp_path_factory.mktemp("order"))


def assert_same_rows_in(order: list[str], folder: Path) -> None:
    (folder / "sacct.txt").write_text(sacct({"JobName": "a|b"}, {"JobID": "8"}, columns=order)["sacct.txt"])
    trace = ingest_logs(folder / "sacct.txt", folder / "trace")
    names = ("job_id", "name", "gpu_count", "node_count", "run_s")
    assert trace.scan("jobs").select(names).collect().rows() == [
        ("slurm/7", "a|b", 8.0, 2, 3600.0),
        ("slurm/8", "train", 8.0, 2, 3600.0),
    ]


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
