"""The queue of `squeue --json`, in the shapes of several versions of Slurm, and files that are something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import SourceError
from tracekit.ingest.squeue import read_squeue

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.tables.live_queue import Queue

_NOW = 1_700_000_000


def _wrapped(number: float, **more: bool) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number, **more}


def _read(folder: Path, document: Any) -> Queue:
    path = folder / "queue.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return read_squeue(path)


def _old(**more: Any) -> dict[str, Any]:
    """Return a job as Slurm 21.08 prints it."""
    return {
        "job_id": 7,
        "job_state": "PENDING",
        "partition": "gpu",
        "tres_req_str": "cpu=8,mem=64G,node=1,billing=8,gres/gpu=4",
        "node_count": 1,
        "time_limit": 90,
        "submit_time": _NOW - 600,
        "eligible_time": _NOW - 600,
        "start_time": 0,
        "state_reason": "Priority",
        "array_task_string": "",
        "nodes": "",
        **more,
    }


def _new(**more: Any) -> dict[str, Any]:
    """Return a job as Slurm 23.11 and later print it."""
    changed = {
        "job_state": ["PENDING"],
        "node_count": _wrapped(1),
        "time_limit": _wrapped(90),
        "submit_time": _wrapped(_NOW - 600),
        "eligible_time": _wrapped(_NOW - 600),
        "start_time": _wrapped(_NOW + 3600),
    }
    return _old(**{**changed, **more})


@pytest.mark.parametrize("job", [_old(), _new()])
def test_waiting_job(job: dict[str, Any], tmp_path: Path) -> None:
    found = _read(tmp_path, {"jobs": [job], "last_update": _wrapped(_NOW)})
    assert (found.asked_us, found.notes) == (_NOW * 1_000_000, ())
    assert found.jobs.rows(named=True) == [
        {
            "partitions": ["gpu"],
            "gpu_count": 4.0,
            "limit_s": 5400.0,
            "since": (_NOW - 600) * 1_000_000,
            "waiting": True,
            "nodes": [],
            "node_gpus": [],
        }
    ]


def test_running_job_with_the_gpus_of_each_node(tmp_path: Path) -> None:
    job = _new(
        job_state=["RUNNING"],
        nodes="g[01-02]",
        start_time=_wrapped(_NOW - 60),
        tres_alloc_str="cpu=8,node=2,gres/gpu=12,gres/gpu:a100=12",
        time_limit={"set": True, "infinite": True, "number": 0},
        gres_detail=["gpu:a100:8(IDX:0-7)", "gpu:a100:4(IDX:0-3)"],
    )
    (row,) = _read(tmp_path, {"jobs": [job], "last_update": _wrapped(_NOW)}).jobs.rows(named=True)
    assert (row["gpu_count"], row["limit_s"], row["waiting"]) == (12, None, False)
    assert (row["nodes"], row["node_gpus"]) == (["g01", "g02"], [8, 4])
    (even,) = _read(tmp_path, {"jobs": [job | {"gres_detail": []}]}).jobs.rows(named=True)
    assert even["node_gpus"] == [6, 6]


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"tres_req_str": "", "tres_per_node": "gres:gpu:a100:2", "node_count": _wrapped(3)}, 6),
        ({"tres_req_str": "", "tres_per_node": "gres/gpu:2", "node_count": 2}, 4),
        ({"tres_req_str": "", "tres_per_job": "gres/gpu:5"}, 5),
        ({"tres_req_str": "cpu=8,mem=64G,node=1"}, None),
        ({"tres_req_str": ""}, None),
    ],
)
def test_gpus_in_other_fields(more: dict[str, Any], gpus: float | None, tmp_path: Path) -> None:
    found = _read(tmp_path, {"jobs": [_new(**more)], "last_update": _NOW})
    (row,) = found.jobs.rows(named=True)
    assert row["gpu_count"] == (0 if more["tres_req_str"] else gpus)
    assert len(found.notes) == (row["gpu_count"] is None)


def test_array_counts_as_its_tasks(tmp_path: Path) -> None:
    jobs = _read(tmp_path, {"jobs": [_new(array_task_string="3-6,9%2")], "last_update": _NOW}).jobs
    assert jobs.height == 5


@pytest.mark.parametrize(
    "more",
    [
        {"state_reason": "Dependency"},
        {"state_reason": "DependencyNeverSatisfied"},
        {"state_reason": "JobHeldUser"},
        {"state_reason": "BeginTime"},
        {"eligible_time": _wrapped(_NOW + 60)},
        {"job_state": ["COMPLETED"]},
        {"job_state": ["PENDING", "REQUEUE_HOLD"]},
    ],
)
def test_job_that_may_not_start_is_not_ahead(more: dict[str, Any], tmp_path: Path) -> None:
    assert _read(tmp_path, {"jobs": [_new(**more), _new()], "last_update": _NOW}).jobs.height == 1


def test_several_partitions_and_no_own_time(tmp_path: Path) -> None:
    running = _old(job_state="RUNNING", nodes="g1", start_time=_NOW - 5, tres_alloc_str="cpu=1,gres/gpu=1")
    found = _read(tmp_path, {"jobs": [_old(partition="gpu,debug"), running]})
    assert found.jobs["partitions"].to_list() == [["gpu", "debug"], ["gpu"]]
    assert found.asked_us == (_NOW - 5) * 1_000_000


def test_unreadable_jobs_are_counted(tmp_path: Path) -> None:
    jobs = [_new(), _new(tres_req_str="gres/gpu=many"), _new(array_task_string="9-3"), 5, _new(partition=["x"])]
    found = _read(tmp_path, {"jobs": jobs, "last_update": _NOW})
    assert found.jobs.height == 2
    assert found.jobs["partitions"].to_list() == [["gpu"], []]
    assert [note.split()[0] for note in found.notes] == ["3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("JOBID PARTITION", "is not JSON"),
        ('{"jobs": [', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has no list of jobs"),
        ('{"jobs": {}}', "has no list of jobs"),
        ('{"jobs": []}', "neither jobs with times nor its own time"),
        ('{"jobs": [{"job_id": 1}]}', "is not the output of squeue"),
        ('{"jobs": [{"job_state": {}}], "last_update": {"number": "x"}}', "neither jobs with times"),
    ],
)
def test_other_files_are_rejected(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=words):
        read_squeue(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_squeue(tmp_path / "none.json")
