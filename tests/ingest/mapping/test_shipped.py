"""The mapping files of docs/mapping for other schedulers, each on a small file of the scheduler's own layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Shipped = Callable[[str, dict[str, str]], Trace]

EXAMPLES = Path(__file__).parents[3] / "docs" / "mapping"


@pytest.fixture
def shipped(ingest: Callable[..., Trace]) -> Shipped:
    """Return a function that ingests files with a mapping of the documentation."""
    return lambda name, files: ingest(files, format_name="csv", options={"map": str(EXAMPLES / name)})


def jobs(trace: Trace, rows: Rows, *names: str) -> list[tuple[object, ...]]:
    """Return some columns of the jobs, in their order."""
    return [tuple(row.get(name) for name in names) for row in rows(trace, "jobs")]


def test_accounting_of_grid_engine(shipped: Shipped, rows: Rows, found_checks: FoundChecks) -> None:
    used = "0.0:0.0:1000.0:0:0:0:0:10:0:0:0.0:1:0:0:0:1:1:NONE:defaultdepartment"
    end = "0.0:NONE:1000000.0:0:0"

    def line(head: str, submit: int, start: int, stop: int, ending: str, pe: str, task: int, asked: str) -> str:
        wall = max(0, stop - start)
        return f"{head}:sge:0:{submit}:{start}:{stop}:{ending}:{wall}:{used}:{pe}:{task}:7000.5:1.0:0.0:{asked}:{end}\n"

    at = 1_700_000_000
    text = (
        "# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"
        + line("gpu.q:gn01:labA:ana:train:7001", at, at + 100, at + 7300, "0:0", "smp:8", 0, "-l gpu=2,h_rt=86400")
        + line("gpu.q:gn02:labB:ben:arr:7002", at + 10, at + 200, at + 3800, "0:1", "NONE:1", 1, "-l gpu=1")
        + line("gpu.q:gn02:labB:ben:arr:7002", at + 10, at + 300, at + 3900, "100:137", "NONE:1", 2, "-l gpu=1")
        + line("all.q:cn01:labC:cyd:cpu:7003", at + 10, 0, 0, "25:0", "NONE:1", 0, "-l xgpu=1")
        + line("gpu.q:gn01:labC:cyd:long:7004", at, at, at + 60, "37:137", "NONE:1", 0, "-l gpu=1,h_rt=60")
    )  # fmt: skip
    trace = shipped("gridengine.toml", {"accounting": text})
    assert jobs(trace, rows, "job_id", "vc", "user", "status", "run_s", "gpu_count", "time_limit_s") == [
        ("7001", "labA", "ana", "completed", 7200.0, 2.0, 86400.0),
        ("7002.1", "labB", "ben", "failed", 3600.0, 1.0, None),
        ("7002.2", "labB", "ben", "failed", 3600.0, 1.0, None),
        ("7003", "labC", "cyd", "preempted", None, 0.0, None),
        ("7004", "labC", "cyd", "timeout", 60.0, 1.0, 60.0),
    ]  # fmt: skip
    assert [row["source_status"] for row in rows(trace, "jobs")] == ["0,0", "0,1", "100,137", "25,0", "37,137"]
    assert len(rows(trace, "attempts")) == 4
    # Its host is where a job of several slots began, which says nothing of the others.
    assert rows(trace, "placements") == []


def test_accounting_of_univa(shipped: Shipped, rows: Rows) -> None:
    at = 1_700_000_000_000
    used = "0.0:0.0:1000.0:0:0:0:0:10:0:0:0.0:1:0:0:0:1:1:NONE:defaultdepartment:NONE:1:0:7000.5:1.0:0.0"

    def line(job: int, ending: str, qdel: str) -> str:
        head = f"gpu.q:gn01:lab:ana:train:{job}:sge:0:{at}:{at + 100_500}:{at + 7_300_500}:{ending}:7200000"
        end = f"0.0:NONE:1000000:0:0:NONE:{qdel}:1:2:login1:/home/ana:qsub x:7200.0:12:NONE"
        return f"{head}:{used}:-l gpu=2,h_rt=86400:{end}\n"

    text = line(1, "0:0", "NONE") + line(2, "100:137", "ana@login1") + line(3, "100:137", "NONE")
    trace = shipped("univa.toml", {"accounting": text})
    assert jobs(trace, rows, "job_id", "status", "queue_s", "run_s", "gpu_count", "time_limit_s") == [
        ("1", "completed", 100.5, 7200.0, 2.0, 86400.0),
        ("2", "cancelled", 100.5, 7200.0, 2.0, 86400.0),
        ("3", "failed", 100.5, 7200.0, 2.0, 86400.0),
    ]


def test_history_of_htcondor(shipped: Shipped, rows: Rows, found_checks: FoundChecks) -> None:
    at = 1_700_000_000
    common: dict[str, Any] = {
        "Owner": "ana",
        "QDate": at,
        "RequestCpus": 4,
        "RequestMemory": 8192,
        "JobPrio": 0,
        "AllowedJobDuration": 86400,
        "MyType": "Job",
    }
    ran: dict[str, Any] = {"JobCurrentStartDate": at + 60, "LastRemoteHost": "slot1_2@gpu01.example.org"}
    ads: list[dict[str, Any]] = [
        {"ClusterId": 11, "ProcId": 0, "JobStatus": 4, "ExitCode": 0, "ExitBySignal": False, "RequestGPUs": 2,
         "CompletionDate": at + 660, "EnteredCurrentStatus": at + 660, "RemoteWallClockTime": 600.0} | ran,
        {"ClusterId": 11, "ProcId": 1, "JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9,
         "RequestGPUs": "/Expr(ifThenElse(x,1,2))/",
         "EnteredCurrentStatus": at + 660, "RemoteWallClockTime": 900.0} | ran,
        {"ClusterId": 12, "ProcId": 0, "JobStatus": 3, "CompletionDate": 0,
         "EnteredCurrentStatus": at + 30, "RemoteWallClockTime": 0.0},
        {"ClusterId": 13, "ProcId": 0, "JobStatus": 4, "ExitCode": 3, "EnteredCurrentStatus": at + 660} | ran,
    ]  # fmt: skip
    text = "[\n" + "\n,\n".join(json.dumps(common | ad, indent=2) for ad in ads) + "\n]\n"
    trace = shipped("htcondor.toml", {"history.json": text})
    shown = ("job_id", "status", "source_status", "run_s", "gpu_count", "memory_gib", "attempt_count")
    assert {row["time_limit_s"] for row in rows(trace, "jobs")} == {86400.0}
    assert jobs(trace, rows, *shown) == [
        ("11.0", "completed", "4,0", 600.0, 2.0, 8.0, 1),
        ("11.1", "failed", "4,", 600.0, None, 8.0, 1),
        ("12.0", "cancelled", "3,", 0.0, 0.0, 8.0, 0),
        ("13.0", "failed", "4,3", 600.0, 0.0, 8.0, 1),
    ]  # fmt: skip
    assert {row["node_id"] for row in rows(trace, "placements")} == {"gpu01.example.org"}
    checks = found_checks(trace)
    assert (checks["duration_disagrees"], checks["unreadable_requestgpus"][0]) == ((1, 3), 1)


def test_jobs_of_cobalt(shipped: Shipped, rows: Rows) -> None:
    head = (
        "JOB_NAME,COBALT_JOBID,MACHINE_NAME,QUEUED_TIMESTAMP,QUEUED_DATE_ID,START_TIMESTAMP,START_DATE_ID,END_TIMESTAMP,"
        "END_DATE_ID,USERNAME_GENID,PROJECT_NAME_GENID,QUEUE_NAME,WALLTIME_SECONDS,RUNTIME_SECONDS,NODES_USED,"
        "NODES_REQUESTED,CORES_USED,CORES_REQUESTED,LOCATION,EXIT_STATUS\n"
    )
    times = "2021-03-01 10:00:00.000000,20210301,2021-03-01 10:10:00,20210301,2021-03-01 11:10:00,20210301"
    text = head + "".join(
        f'"{number}.cobalt",{number},thetagpu,{times},u{number},p1,{queue},7200.0,3600.0,{nodes}.0,{nodes}.0,128.0,128.0,x,{code}\n'
        for number, queue, nodes, code in (
            (10000001, "full-node", 2, "0"),
            (10000002, "single-gpu", 1, "-11"),
            (10000003, "backfill-new", 4, "0.0"),
        )
    )
    trace = shipped("cobalt.toml", {"ANL-ALCF-DJC-THETAGPU_20210101_20211231.csv": text})
    shown = ("job_id", "cluster", "status", "queue_s", "run_s", "gpu_count", "node_count", "time_limit_s")
    assert jobs(trace, rows, *shown) == [
        ("THETAGPU/10000001", "THETAGPU", "completed", 600.0, 3600.0, 16.0, 2, 7200.0),
        ("THETAGPU/10000002", "THETAGPU", "failed", 600.0, 3600.0, 1.0, 1, 7200.0),
        ("THETAGPU/10000003", "THETAGPU", "completed", 600.0, 3600.0, None, 4, 7200.0),
    ]  # fmt: skip
    assert trace.manifest.checks["unreadable_nodes_used_queue_name"].examples[0].endswith("lookup table gpus_per_node")


def test_jobs_of_oar(shipped: Shipped, rows: Rows) -> None:
    at = 1_700_000_000
    trace = shipped("oar.toml", {"jobs.csv": oar_export(at)})
    assert jobs(trace, rows, "job_id", "status", "run_s", "gpu_count", "gpu_model", "node_count", "time_limit_s") == [
        ("1", "completed", 3600.0, 3.0, "Tesla V100", 2, 7200.0),
        ("2", "failed", 60.0, 1.0, "Tesla V100", 1, 7200.0),
        ("3", "cancelled", None, None, None, None, 7200.0),
        ("4", "pending", None, None, None, None, 3600.0),
        ("5", "running", None, 0.0, None, 1, 3600.0),
        ("6", "timeout", 3600.0, 1.0, "Tesla V100", 1, 3600.0),
        ("7", "preempted", 60.0, 1.0, "Tesla V100", 1, 3600.0),
        ("8", "cancelled", None, None, None, None, 3600.0),
    ]
    assert [(row["job_id"], row["node_id"], row.get("gpu_count")) for row in rows(trace, "placements")][:4] == [
        ("1", "gemini-1", None), ("1", "gemini-2", None), ("2", "gemini-1", 1.0), ("5", "dahu-3", 0.0),
    ]  # fmt: skip


def oar_export(at: int) -> str:
    """Return what the query in the mapping's remarks gives, asked of tables like those of OAR."""
    remark = (EXAMPLES / "oar.toml").read_text().partition('--csv -c "')[2].partition('" > jobs.csv')[0]
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE jobs (job_id INT, job_user TEXT, job_name TEXT, project TEXT, queue_name TEXT, "
        "submission_time INT, start_time INT, stop_time INT, state TEXT, exit_code INT, assigned_moldable_job INT);"
        "CREATE TABLE moldable_job_descriptions (moldable_id INT, moldable_walltime INT);"
        "CREATE TABLE assigned_resources (moldable_job_id INT, resource_id INT);"
        "CREATE TABLE resources (resource_id INT, network_address TEXT, gpu INT, gpu_model TEXT);"
        "CREATE TABLE job_state_logs (job_id INT, job_state TEXT); CREATE TABLE event_logs (job_id INT, type TEXT);"
        "INSERT INTO resources VALUES (1, 'gemini-1', 11, 'Tesla V100'), (2, 'gemini-1', 12, 'Tesla V100'),"
        "(3, 'gemini-1', 12, 'Tesla V100'), (4, 'gemini-2', 21, 'Tesla V100'), (5, 'dahu-3', 0, '')"
    )
    listed: list[tuple[int, int, int, str, int | None, int, tuple[int, ...], tuple[str, ...]]] = [
        (1, at + 60, at + 3660, "Terminated", 0, 7200, (1, 2, 3, 4), ()),
        (2, at + 60, at + 120, "Terminated", 256, 7200, (1,), ()),
        (3, 0, at + 5, "Error", None, 7200, (), ("FRAG_JOB_REQUEST",)),
        (4, at + 9000, 0, "Waiting", None, 3600, (), ()),  # a reservation
        (5, at + 60, 0, "Running", None, 3600, (5,), ()),
        (6, at, at + 3600, "Error", None, 3600, (2,), ("FRAG_JOB_REQUEST", "WALLTIME")),
        (7, at, at + 60, "Error", None, 3600, (2,), ("BESTEFFORT_KILL", "FRAG_JOB_REQUEST")),
        (8, at + 9000, at + 9000, "Error", None, 3600, (), ("FRAG_JOB_REQUEST",)),  # a reservation that never ran
    ]
    for job, start, stop, state, code, limit, resources, events in listed:
        con.execute(
            "INSERT INTO jobs VALUES (?, 'ana', NULL, 'nlp', 'default', ?, ?, ?, ?, ?, ?)",
            [job, at, start, stop, state, code, job + 100],
        )
        con.execute("INSERT INTO moldable_job_descriptions VALUES (?, ?)", [job + 100, limit])
        for resource in resources:
            con.execute("INSERT INTO assigned_resources VALUES (?, ?)", [job + 100, resource])
        for event in events:
            con.execute("INSERT INTO event_logs VALUES (?, ?)", [job, event])
        for known in ("toLaunch", "Running") if resources else ("Waiting",):
            con.execute("INSERT INTO job_state_logs VALUES (?, ?)", [job, known])
    answer = con.execute("\n".join(line.removeprefix("#") for line in remark.splitlines()))
    names = [column[0] for column in answer.description]
    return "".join(",".join("" if c is None else str(c) for c in row) + "\n" for row in [names, *answer.fetchall()])


def test_jobs_of_flux_have_no_gpus(shipped: Shipped, rows: Rows) -> None:
    at = 1_700_000_000.5
    common = {"username": "ana", "bank": "ml", "queue": "batch", "urgency": 16, "priority": 16, "ncores": 32}
    listed = [
        {"id": 1_234_567, "state": "INACTIVE", "result": "COMPLETED", "t_submit": at, "t_run": at + 60,
         "t_cleanup": at + 660, "duration": 3600.0, "nnodes": 2, "nodelist": "gpu[01-02]"},
        {"id": 1_234_568, "state": "INACTIVE", "result": "CANCELED", "t_submit": at, "t_cleanup": at + 5},
        {"id": 1_234_569, "state": "INACTIVE", "result": "TIMEOUT", "t_submit": at, "t_run": at, "t_cleanup": at + 60,
         "duration": 60.0, "nodelist": "gpu03"},
        {"id": 1_234_570, "state": "RUN", "result": "", "t_submit": at, "t_run": at + 1, "duration": 0,
         "nodelist": "gpu04"},
        {"id": 1_234_571, "state": "SCHED", "t_submit": at, "duration": 60.0, "priority": 0},  # held
    ]  # fmt: skip
    trace = shipped("flux.toml", {"jobs.json": json.dumps({"jobs": [common | job for job in listed]})})
    assert jobs(trace, rows, "job_id", "status", "queue_s", "run_s", "gpu_count", "node_count", "time_limit_s") == [
        ("1234567", "completed", 60.0, 600.0, None, 2, 3600.0),
        ("1234568", "cancelled", None, None, None, None, None),
        ("1234569", "timeout", 0.0, 60.0, None, 1, 60.0),
        ("1234570", "running", 1.0, None, None, 1, None),
        ("1234571", "pending", None, None, None, None, 60.0),
    ]
    assert [row["priority"] for row in rows(trace, "jobs")] == [16.0, 16.0, 16.0, 16.0, 0.0]
