"""The mapping files of the documentation, on logs of their layout."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


EXAMPLES = Path(__file__).parents[3] / "docs" / "mapping"


def example(tmp_path: Path, name: str, files: dict[str, str]) -> Trace:
    source = tmp_path / "source"
    source.mkdir()
    for file, text in files.items():
        (source / file).write_text(text)
    trace = ingest_logs(source, tmp_path / "out", format_name="csv", options={"map": str(EXAMPLES / name)})
    assert trace.validate() == []
    return trace


def test_the_kubernetes_example(tmp_path: Path, rows: Rows, found_checks: FoundChecks) -> None:
    job = (
        '{"metadata": {"uid": "u1", "name": "bert", "namespace": "nlp", "creationTimestamp": "2024-05-01T10:00:00Z", '
        '"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}, "spec": {"parallelism": 2, "template": {"spec": {'
        '"nodeSelector": {"nvidia.com/gpu.product": "A100"}, "containers": [{"resources": {"limits": {'
        '"nvidia.com/gpu": "4"}}}]}}}, "status": {"startTime": "2024-05-01T10:01:00Z", '
        '"completionTime": "2024-05-01T11:01:00Z", "conditions": [{"type": "SuccessCriteriaMet"}, '
        '{"type": "Complete"}]}}\n'
    )
    running = '{"metadata": {"uid": "u2"}, "status": {"startTime": "2024-05-01T10:01:00Z"}}\n'
    node = (
        '{"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "A100"}}, "status": {"capacity": '
        '{"cpu": "96", "memory": "1048576Ki", "nvidia.com/gpu": "8"}}}\n{"metadata": {"name": "n2"}}\n'
    )
    trace = example(tmp_path, "kubernetes.toml", {"jobs.jsonl": job + running, "nodes.jsonl": node})
    assert rows(trace, "jobs") == [
        {
            "job_id": "u1",
            "cluster": "k8s",
            "vc": "team-a",
            "name": "bert",
            "group": "nlp",
            "status": "completed",
            "source_status": "Complete",
            "submit_time": "2024-05-01 10:00:00",
            "start_time": "2024-05-01 10:01:00",
            "end_time": "2024-05-01 11:01:00",
            "queue_s": 60.0,
            "run_s": 3600.0,
            "gpu_count": 8.0,
            "gpu_model": "A100",
            "instance_count": 2,
            "attempt_count": 1,
        },
        {
            "job_id": "u2",
            "cluster": "k8s",
            "status": "running",
            "start_time": "2024-05-01 10:01:00",
            "attempt_count": 1,
        },
    ]
    assert rows(trace, "nodes") == [
        {
            "node_id": "n1",
            "cluster": "k8s",
            "gpu_count": 8,
            "gpu_model": "A100",
            "cpu_count": 96.0,
            "memory_gib": 1.0,
        },
        {"node_id": "n2", "cluster": "k8s", "gpu_count": 0},
    ]
    assert found_checks(trace) == {}


def test_the_lsf_example(tmp_path: Path, rows: Rows, found_checks: FoundChecks) -> None:
    text = (
        "JOBID|USER|QUEUE|STAT|SUBMIT_TIME|START_TIME|FINISH_TIME|RUN_TIME|GPU_NUM|MEM|EXEC_HOST\n"
        "101|ann|gpu|DONE|Oct  3 17:00:00 2023|Oct  3 17:10:00 2023|Oct  3 18:10:00 2023|3600 second(s)|8|4 GiB|"
        "4*hostA:4*hostB\n"
        "102|bob|gpu|PEND|Oct 13 17:00:00 2023|-|-|0 second(s)|-|-|-\n"
    )
    trace = example(tmp_path, "lsf.toml", {"jobs.txt": text})
    common = {"cluster": "lsf", "vc": "gpu"}
    assert rows(trace, "jobs") == [
        {
            "job_id": "101",
            "user": "ann",
            "status": "completed",
            "source_status": "DONE",
            "submit_time": "2023-10-03 15:00:00",
            "start_time": "2023-10-03 15:10:00",
            "end_time": "2023-10-03 16:10:00",
            "queue_s": 600.0,
            "run_s": 3600.0,
            "gpu_count": 8.0,
            "memory_gib": 4.0,
            "node_count": 2,
            "attempt_count": 1,
            **common,
        },
        {
            "job_id": "102",
            "user": "bob",
            "status": "pending",
            "source_status": "PEND",
            "submit_time": "2023-10-13 15:00:00",
            "gpu_count": 0.0,
            "attempt_count": 0,
            **common,
        },
    ]
    assert [(r["job_id"], r["node_id"]) for r in rows(trace, "placements")] == [("101", "hostA"), ("101", "hostB")]
    assert found_checks(trace) == {}


def test_the_released_philly_jobs(tmp_path: Path, real_data: Callable[[str], Path]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(real_data("philly/philly_jobs_2017-09_10.csv.gz"), source)
    mapping = EXAMPLES / "philly_jobs.toml"
    trace = ingest_logs(source, tmp_path / "out", format_name="csv", options={"map": str(mapping)})
    assert trace.validate() == []
    jobs = trace.scan("jobs").collect()
    assert jobs.height == 52_849
    assert jobs["vc"].n_unique() >= 11
    assert jobs["job_id"][0] == "2"
    assert trace.manifest.records == 52_849


@pytest.mark.parametrize("name", ["philly_jobs_2017-09_10.csv", "philly.csv", "fifteen weeks.txt", "jobs.csv.gz"])
def test_the_philly_example_fits_any_list_of_its_layout(tmp_path: Path, rows: Rows, name: str) -> None:
    # Fifteen weeks, through the change from UTC-7 to UTC-8; the list ends with an empty line.
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-08-07 10:00:00,66.0,1,66.0,11cb48\n"
        "2017-11-05 03:00:00,30.0,2,60.0,6214e9\n2017-11-20 10:00:00,0.0,8,0.0,11cb48\n\n"
    )
    source = tmp_path / "source" / name
    source.parent.mkdir()
    source.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    common = {"cluster": "philly"}
    where = source if name == "philly.csv" else source.parent
    trace = ingest_logs(
        where, tmp_path / "trace", format_name="csv", options={"map": str(EXAMPLES / "philly_jobs.toml")}
    )
    assert trace.validate() == []
    kept = ("job_id", "cluster", "vc", "submit_time", "run_s", "gpu_count")
    assert [{k: v for k, v in row.items() if k in kept} for row in rows(trace, "jobs")] == [
        {"job_id": "2", "vc": "11cb48", "submit_time": "2017-08-07 17:00:00", "run_s": 66.0, "gpu_count": 1.0} | common,
        {"job_id": "3", "vc": "6214e9", "submit_time": "2017-11-05 11:00:00", "run_s": 30.0, "gpu_count": 2.0} | common,
        {"job_id": "4", "vc": "11cb48", "submit_time": "2017-11-20 18:00:00", "run_s": 0.0, "gpu_count": 8.0} | common,
    ]


def test_every_example_is_in_the_documentation() -> None:
    text = (EXAMPLES.parent / "mapping.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.toml"):
        assert re.search(rf"mapping/{re.escape(path.name)}", text)
