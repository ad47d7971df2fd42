"""PAI: what becomes of each oddity of its job, task, instance and machine tables."""

from __future__ import annotations

import csv
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import SourceError, UnknownFormatError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

# Submitted at 1000 s, task and instances follow; two workers with half a GPU each and one parameter server.
JOB = "j1,alias,u1,Terminated,1000.0,1700.0\n"
TASKS = (
    "j1,worker,2.0,Terminated,1000.0,1700.0,600.0,32.0,50.0,T4\nj1,ps,1.0,Terminated,1001.0,1700.0,200.0,8.0,,V100\n"
)
INSTANCES = (
    "j1,worker,i1,w1,alias,Terminated,1010.0,1700.0,m1\n"
    "j1,worker,i2,w2,alias,Terminated,1020.0,1650.0,m2\n"
    "j1,ps,i3,w3,alias,Terminated,1015.0,1690.0,m1\n"
)
JOB_ROW = {
    "job_id": "j1",
    "cluster": "pai",
    "user": "u1",
    "status": "completed",
    "source_status": "Terminated",
    "submit_time": "1970-01-01 00:16:40",
    "start_time": "1970-01-01 00:16:50",
    "end_time": "1970-01-01 00:28:20",
    "queue_s": 10.0,
    "run_s": 690.0,
    "gpu_count": 1.0,
    "cpu_count": 14.0,
    "memory_gib": 72.0,
    "gpu_model": "T4",
    "node_count": 2,
    "instance_count": 3,
    "attempt_count": 1,
}
ATTEMPT_ROW = {
    "job_id": "j1",
    "attempt": 0,
    "start_time": "1970-01-01 00:16:50",
    "end_time": "1970-01-01 00:28:20",
    "run_s": 690.0,
    "wait_s": 10.0,
    "gpu_count": 1.0,
    "node_count": 2,
    "status": "completed",
}


def tables(job: str = JOB, task: str = TASKS, instance: str = INSTANCES) -> dict[str, str | bytes]:
    given = {"pai_job_table.csv": job, "pai_task_table.csv": task, "pai_instance_table.csv": instance}
    return {name: text for name, text in given.items() if text}


def archived(name: str, text: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def test_a_job_joins_its_tasks_and_instances(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(tables())
    assert trace.tables == ("jobs", "attempts", "placements")
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "attempts") == [ATTEMPT_ROW]
    assert rows(trace, "placements") == [
        {
            "job_id": "j1",
            "attempt": 0,
            "task": "worker",
            "instance": "i1",
            "node_id": "m1",
            "gpu_count": 0.5,
            "start_time": "1970-01-01 00:16:50",
            "end_time": "1970-01-01 00:28:20",
        },
        {
            "job_id": "j1",
            "attempt": 0,
            "task": "worker",
            "instance": "i2",
            "node_id": "m2",
            "gpu_count": 0.5,
            "start_time": "1970-01-01 00:17:00",
            "end_time": "1970-01-01 00:27:30",
        },
        {
            "job_id": "j1",
            "attempt": 0,
            "task": "ps",
            "instance": "i3",
            "node_id": "m1",
            "gpu_count": 0.0,
            "start_time": "1970-01-01 00:16:55",
            "end_time": "1970-01-01 00:28:10",
        },
    ]
    assert found_checks(trace) == {}
    assert (trace.manifest.time_base, trace.timezone) == ("shifted", "Asia/Shanghai")
    assert (trace.capabilities["calendar"].available, trace.capabilities["hour_of_day"].available) == (False, True)


def test_archives_and_plain_files_hold_the_same(ingest: Ingest, rows: Rows) -> None:
    packed = {
        name.replace(".csv", ".tar.gz"): archived(name, text)
        for name, text in tables().items()
        if isinstance(text, str)
    }
    trace = ingest(packed)
    assert rows(trace, "jobs") == [JOB_ROW]
    assert [f.path for f in trace.manifest.files] == [
        "pai_job_table.tar.gz/pai_job_table.csv",
        "pai_task_table.tar.gz/pai_task_table.csv",
        "pai_instance_table.tar.gz/pai_instance_table.csv",
    ]


def test_a_header_file_may_change_the_order_of_columns(ingest: Ingest, rows: Rows) -> None:
    turned = "".join(",".join(reversed(line.split(","))) + "\n" for line in JOB.splitlines())
    trace = ingest(tables(job=turned) | {"pai_job_table.header": "end_time,start_time,status,user,inst_id,job_name\n"})
    assert rows(trace, "jobs") == [JOB_ROW]
    assert [(f.path, f.records) for f in trace.manifest.files] == [
        ("pai_job_table.header", 0),
        ("pai_job_table.csv", 1),
        ("pai_task_table.csv", 2),
        ("pai_instance_table.csv", 3),
    ]


def test_a_header_line_inside_the_table_is_not_a_record(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(job="job_name,inst_id,user,status,start_time,end_time\n" + JOB))
    assert rows(trace, "jobs") == [JOB_ROW]
    assert trace.manifest.records == 1 + 2 + 3


def test_a_header_file_that_lacks_a_column_is_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"^pai_job_table\.csv, line 1: the column 'user' is missing"):
        ingest(tables() | {"pai_job_table.header": "job_name,inst_id,status,start_time,end_time\n"})


def test_a_task_without_plan_gpu_asks_for_none(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(task="j1,ps,3.0,Terminated,1000.0,,200.0,8.0,,\n", instance=""))
    assert [(j["gpu_count"], j["cpu_count"], j["instance_count"], j.get("gpu_model")) for j in rows(trace, "jobs")] == [
        (0.0, 6.0, 3, None)
    ]


def test_tasks_on_different_gpu_types_leave_the_model_unknown(ingest: Ingest, rows: Rows) -> None:
    models = {"T4": "T4", "P100": None, "": "T4"}
    jobs = "".join(f"j{n},a{n},u1,Running,1000.0,\n" for n in range(3))
    tasks = "".join(
        f"j{n},a,2.0,Running,1000.0,,,,100.0,T4\nj{n},b,1.0,Running,1000.0,,,,200.0,{other}\n"
        for n, other in enumerate(models)
    )
    found = [
        (row["gpu_count"], row.get("gpu_model")) for row in rows(ingest(tables(jobs, task=tasks, instance="")), "jobs")
    ]
    assert dict(zip(models, found, strict=True)) == {other: (4.0, model) for other, model in models.items()}


def test_a_start_of_0_is_unknown(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(instance="j1,worker,i1,w1,alias,Running,0,0,m1\n"))
    (row,) = rows(trace, "jobs")
    assert {"start_time", "end_time", "queue_s", "run_s"}.isdisjoint(row)
    assert row["attempt_count"] == 0
    assert rows(trace, "attempts") == []


def test_a_waiting_job_has_neither_times_nor_attempt(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(
        tables(job="j1,alias,u1,Waiting,,\n", task="j1,worker,1.0,Waiting,,,100.0,1.0,100.0,\n", instance="")
    )
    assert rows(trace, "jobs") == [
        {
            "job_id": "j1",
            "cluster": "pai",
            "user": "u1",
            "status": "pending",
            "source_status": "Waiting",
            "gpu_count": 1.0,
            "cpu_count": 1.0,
            "memory_gib": 1.0,
            "instance_count": 1,
            "attempt_count": 0,
        }
    ]
    assert rows(trace, "attempts") == []
    assert found_checks(trace) == {}


def test_a_running_job_has_no_end(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(job="j1,alias,u1,Running,1000.0,\n", instance="j1,worker,i1,w1,alias,Running,1010.0,,m1\n"))
    (row,) = rows(trace, "attempts")
    assert (row["status"], row["wait_s"], row.get("end_time"), row.get("run_s")) == ("running", 10.0, None, None)


def test_a_failed_job_without_end_takes_its_instances_end(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        tables(job="j1,alias,u1,Failed,1000.0,\n", instance="j1,worker,i1,w1,alias,Failed,1010.0,1060.0,m1\n")
    )
    (row,) = rows(trace, "jobs")
    assert (row["status"], row["end_time"], row["run_s"]) == ("failed", "1970-01-01 00:17:40", 50.0)
    assert found_checks(trace) == {"final_status_without_end": (1, 1), "gangs_seen_in_part": (1, 2)}


def test_a_jobs_end_that_disagrees_is_counted_and_the_instances_used(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(tables(job="j1,alias,u1,Terminated,999.0,1800.0\n"))
    (row,) = rows(trace, "jobs")
    assert (row["end_time"], row["queue_s"]) == ("1970-01-01 00:28:20", 11.0)
    assert found_checks(trace) == {"submission_disagrees": (1, 1), "job_end_disagrees": (1, 1)}


def test_without_an_instance_table_the_start_is_unknown_and_the_jobs_end_stands(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(instance=""))
    (row,) = rows(trace, "jobs")
    assert (row.get("start_time"), row["end_time"], row.get("run_s")) == (None, "1970-01-01 00:28:20", None)
    assert trace.tables == ("jobs", "attempts")


def test_of_a_retried_worker_the_last_row_by_status_start_and_end_counts(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    instance = (
        "j1,worker,i1,w1,alias,Terminated,1200.0,1300.0,m3\n"
        "j1,worker,i1,w1,alias,Failed,1500.0,1600.0,m1\n"
        "j1,worker,i1,w1,alias,Terminated,1100.0,1700.0,m2\n"
    )
    trace = ingest(tables(task="j1,worker,1.0,Terminated,1000.0,1700.0,,,100.0,T4\n", instance=instance))
    assert [(p["node_id"], p["start_time"], p["end_time"]) for p in rows(trace, "placements")] == [
        ("m3", "1970-01-01 00:20:00", "1970-01-01 00:21:40")
    ]
    # The job got its first resources at 1,100 s and gave up its last at 1,700 s, whichever try counts.
    assert [(j["queue_s"], j["run_s"], j["node_count"]) for j in rows(trace, "jobs")] == [(100.0, 600.0, 1)]
    assert found_checks(trace) == {"superseded_instance_rows": (2, 3)}


def test_a_task_starts_and_ends_with_all_tries_of_its_workers(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    # Worker w1 was tried twice, w2 once; the last row of w1 by (status, start, end) ran from 1,200 s to 1,300 s on m3.
    instance = (
        "j1,worker,i1,w1,alias,Terminated,1200.0,1300.0,m3\n"
        "j1,worker,i1,w1,alias,Failed,1050.0,1600.0,m1\n"
        "j1,worker,i2,w2,alias,Terminated,1100.0,1400.0,m3\n"
        "j1,ps,i3,w3,alias,Terminated,1010.0,1700.0,m1\n"
    )
    trace = ingest(tables(instance=instance), options={"unit": "task"})
    times = [
        ("j1/worker", "1970-01-01 00:17:30", "1970-01-01 00:26:40", 50.0, 550.0, 1, "Terminated"),
        ("j1/ps", "1970-01-01 00:16:50", "1970-01-01 00:28:20", 9.0, 690.0, 1, "Terminated"),
    ]
    keys = ("job_id", "start_time", "end_time", "queue_s", "run_s", "node_count", "source_status")
    assert [tuple(j[k] for k in keys) for j in rows(trace, "jobs")] == times
    attempts = [(a["job_id"], a["start_time"], a["end_time"], a["wait_s"], a["run_s"]) for a in rows(trace, "attempts")]
    assert attempts == [row[:5] for row in times]
    # Only the rows that stand have a place, and the gang is whole with the two workers that were planned.
    places = [(p["instance"], p["node_id"]) for p in rows(trace, "placements")]
    assert places == [("i1", "m3"), ("i2", "m3"), ("i3", "m1")]
    assert found_checks(trace) == {"superseded_instance_rows": (1, 4)}
    # The job that holds both tasks starts with the first try of any worker, whichever way it is read.
    (whole,) = rows(ingest(tables(instance=instance)), "jobs")
    assert (whole["queue_s"], whole["run_s"]) == (10.0, 690.0)


def test_what_belongs_to_nothing_is_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(
        tables(
            task=TASKS + "j9,worker,1.0,Running,1.0,,,,,\n",
            instance=INSTANCES
            + "j1,chief,i4,w4,alias,Terminated,1010.0,1020.0,m1\nj1,ps,i5,w5,alias,Paused,1010.0,1020.0,\n",
        )
    )
    assert rows(trace, "jobs") == [JOB_ROW]
    assert [(p["task"], p["instance"], p.get("gpu_count")) for p in rows(trace, "placements")] == [
        ("worker", "i1", 0.5),
        ("worker", "i2", 0.5),
        ("ps", "i3", 0.0),
        ("chief", "i4", None),
    ]
    assert found_checks(trace) == {
        "tasks_without_job": (1, 3),
        "instances_without_task": (1, 5),
        "workers_without_machine": (1, 5),
        "unknown_status_word": (1, 5),
    }


def test_machines_that_the_specification_lacks_are_counted(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(tables() | {"pai_machine_spec.csv": "m1,T4,96,512,2\nm0,CPU,96,768,0\n"})
    assert rows(trace, "nodes") == [
        {"node_id": "m1", "cluster": "pai", "gpu_count": 2, "gpu_model": "T4", "cpu_count": 96.0, "memory_gib": 512.0},
        {"node_id": "m0", "cluster": "pai", "gpu_count": 0, "cpu_count": 96.0, "memory_gib": 768.0},
    ]
    assert found_checks(trace) == {"unlisted_nodes": (1, 2)}
    assert trace.manifest.checks["unlisted_nodes"].examples == ["m2"]


def test_each_task_can_be_a_job(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tables(), options={"unit": "task"})
    assert rows(trace, "jobs") == [
        JOB_ROW | {"job_id": "j1/worker", "name": "worker", "cpu_count": 12.0, "memory_gib": 64.0, "instance_count": 2},
        {
            "job_id": "j1/ps",
            "cluster": "pai",
            "user": "u1",
            "name": "ps",
            "status": "completed",
            "source_status": "Terminated",
            "submit_time": "1970-01-01 00:16:41",
            "start_time": "1970-01-01 00:16:55",
            "end_time": "1970-01-01 00:28:10",
            "queue_s": 14.0,
            "run_s": 675.0,
            "gpu_count": 0.0,
            "cpu_count": 2.0,
            "memory_gib": 8.0,
            "node_count": 1,
            "instance_count": 1,
            "attempt_count": 1,
        },
    ]
    assert [(p["job_id"], p["instance"]) for p in rows(trace, "placements")] == [
        ("j1/worker", "i1"),
        ("j1/worker", "i2"),
        ("j1/ps", "i3"),
    ]


def test_an_impossible_cell_costs_its_record(ingest: Ingest, rows: Rows) -> None:
    bad = [
        ("j1,alias,u1,Running,1,", "job_name", "repeats the key of an earlier record"),
        ("j2,alias,u1,Running,inf,", "start_time", "is not a finite number"),
    ]
    trace = ingest(tables(job=JOB + "".join(f"{line}\n" for line, *_ in bad)), max_reject_share=0.9)
    assert rows(trace, "jobs") == [JOB_ROW]
    assert sorted(rows(trace, "rejects"), key=lambda reject: reject["line"]) == [
        {"source_file": "pai_job_table.csv", "line": number, "column": column, "reason": reason, "raw": line}
        for number, (line, column, reason) in enumerate(bad, 2)
    ]


def test_one_table_twice_is_refused(ingest: Ingest) -> None:
    twice = tables() | {"pai_job_table.tar.gz": archived("pai_job_table.csv", JOB)}
    with pytest.raises(SourceError, match=r"^several files contain the table pai_job_table: pai_job_table\.csv, "):
        ingest(twice)


def test_tables_without_header_are_not_recognized_by_their_content(ingest: Ingest) -> None:
    with pytest.raises(
        UnknownFormatError, match=r"contains no file of the format alibaba-pai; expected pai_job_table, "
    ):
        ingest({"jobs.csv": JOB}, format_name="alibaba-pai")


def test_the_released_specification_lists_1897_machines(
    real_data: Callable[[str], Path], tmp_path: Path, rows: Rows
) -> None:
    file = real_data("alibaba_pai/pai_machine_spec.tar.gz")
    with tarfile.open(file) as archive:
        content = archive.extractfile("pai_machine_spec.csv")
        assert content is not None
        machines = list(csv.reader(io.TextIOWrapper(content)))
    trace = ingest_logs(file, tmp_path / "trace")
    nodes = rows(trace, "nodes")
    assert len(nodes) == len(machines) == 1897
    assert [(n["node_id"], n.get("gpu_model", "CPU"), n["gpu_count"]) for n in nodes] == [
        (machine, model, int(gpus)) for machine, model, _, _, gpus in machines
    ]
    assert trace.validate() == []
