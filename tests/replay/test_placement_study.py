"""`tracekit replay --inflate`: every task of a list takes part, whether or not it ever ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.command import run
from tracekit.errors import UsageError
from tracekit.replay.fractions.placement_study import placement_study
from tracekit.replay.workload.every_task import every_task
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODE = {"node_id": "n", "gpu_count": 4, "cpu_count": 4, "memory_gib": 64, "gpu_model": "T4"}
"""Four GPUs and four cores."""
WHOLE = {"job_id": "whole", "gpu_count": 4, "cpu_count": 1, "memory_gib": 1}
CPU_ONLY = {"job_id": "cpu", "gpu_count": 0, "cpu_count": 4, "memory_gib": 1}


def allocation(trace: Trace, seed: int = 0, load: float = 1.0) -> float:
    """Return the GPUs held when the last task has come [%]."""
    return float(placement_study(trace, ["bestfit"], load, seed=seed).table["gpu_allocation_ratio"][-1])


def test_a_task_without_gpus_takes_cores_that_others_need(make_trace: Callable[..., Trace]) -> None:
    # The task with all cores, or the one with all GPUs, has the node: whoever comes first.
    both = make_trace(jobs=[WHOLE, CPU_ONLY], nodes=[NODE])
    assert {allocation(both, seed) for seed in range(6)} == {0.0, 100.0}
    alone = make_trace(jobs=[WHOLE], nodes=[NODE])
    assert {allocation(alone, seed) for seed in range(6)} == {100.0}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": "pending", "submit_time": "2023-01-01"},
        {"status": "running", "submit_time": "2023-01-01", "start_time": "2023-01-02"},
        {"status": "failed", "submit_time": "2023-01-01", "start_time": "2023-01-02", "end_time": "2023-01-01"},
    ],
)
def test_no_time_is_needed(make_trace: Callable[..., Trace], fields: dict[str, Any]) -> None:
    trace = make_trace(jobs=[WHOLE | fields], nodes=[NODE])
    assert len(every_task(trace)) == 1
    assert allocation(trace) == 100.0


def test_requests_are_taken_as_they_are(make_trace: Callable[..., Trace]) -> None:
    asked = [0, 0.46, 1, 2.5, 8, None, -1, 1e7]
    trace = make_trace(jobs=[{"job_id": str(i), "gpu_count": gpus} for i, gpus in enumerate(asked)])
    tasks = every_task(trace)
    assert list(zip(tasks.devices.tolist(), tasks.milli.tolist(), strict=True)) == [
        (0, 0), (1, 460), (1, 1000), (3, 833), (8, 1000),
    ]  # fmt: skip
    assert [(part.reason, part.jobs) for part in tasks.left_out] == [
        ("a negative number of GPUs, or more than 1,000,000", 2),
        ("no GPU count", 1),
    ]
    assert every_task(trace, limit=2).job_id.to_list() == ["0", "1"]
    with pytest.raises(UsageError, match="the limit must be at least 1 job, not 0"):
        every_task(trace, limit=0)


def test_a_window_needs_times_and_a_cluster_its_name(make_trace: Callable[..., Trace]) -> None:
    rows = [
        {"job_id": "a", "gpu_count": 1, "cluster": "x", "submit_time": "2023-01-01"},
        {"job_id": "b", "gpu_count": 1, "cluster": "x", "submit_time": "2023-01-03"},
        {"job_id": "c", "gpu_count": 1, "cluster": "y", "submit_time": "2023-01-02"},
        {"job_id": "d", "gpu_count": 1, "cluster": "x"},
    ]
    trace = make_trace(jobs=rows)
    day = pl.datetime(2023, 1, 2)
    start = pl.select(day).item()
    assert every_task(trace, cluster="x", start=start).job_id.to_list() == ["b"]
    assert every_task(trace, cluster="x", end=start).job_id.to_list() == ["a"]
    assert every_task(trace, cluster="x").job_id.to_list() == ["a", "b", "d"]
    with pytest.raises(UsageError, match="no job has a known request: 4 of another cluster"):
        every_task(trace, cluster="z")


def pod_list(folder: Path, cpu_pods: int) -> Path:
    """Write a list without any time, of 60 pods with one GPU and some with cores alone, and a list of nodes."""
    folder.mkdir()
    pods = [f"gpu-{i},2000,1024,1,1000" for i in range(60)] + [f"cpu-{i},8000,1024,0,0" for i in range(cpu_pods)]
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    (folder / f"openb_pod_list_cpu{cpu_pods}.csv").write_text("\n".join([head, *pods, ""]))
    nodes = [f"node-{i},32000,65536,8,T4" for i in range(8)]
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *nodes, ""]))
    return folder


def test_lists_with_more_pods_without_gpus_fill_fewer_gpus(tmp_path: Path) -> None:
    held = {}
    for cpu_pods in (0, 10, 60):
        source, trace, out = (tmp_path / f"{word}{cpu_pods}" for word in ("source", "trace", "out"))
        assert run("ingest", pod_list(source, cpu_pods), "-o", trace).returncode == 0
        result = run("replay", trace, "--inflate", "1.3", "-p", "best-fit", "-o", out)
        assert result.returncode == 0, result.stderr
        assert f"note: {60 + cpu_pods} tasks, {cpu_pods} of them without GPUs, on 8 nodes with 64 GPUs" in result.stderr
        table = pl.read_parquet(out / "inflation.parquet")
        assert table["arrived_percent"][-1] == 130
        held[cpu_pods] = table["gpu_allocation_ratio"][-1]
    assert held[0] == 100.0  # 16 cores of a node's 32 for its 8 GPUs
    assert held[0] >= held[10] > held[60]


def test_a_list_of_requests_alone_is_studied(sample_source: Callable[[str], Path], tmp_path: Path) -> None:
    source = sample_source("alibaba-openb")
    trace = tmp_path / "trace"
    assert run("ingest", source, "--option", "list=multigpu20", "-o", trace).returncode == 0
    rows = Trace.open(trace).scan("jobs").collect()
    assert rows["submit_time"].null_count() == len(rows) > 500
    result = run("replay", trace, "--inflate", "1.3", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    without = rows.filter(pl.col("gpu_count") == 0).height
    assert re.search(rf"note: {rows.height:,} tasks, {without:,} of them without GPUs", result.stderr)
    table = pl.read_parquet(tmp_path / "out" / "inflation.parquet")
    assert table["policy"].n_unique() == 6
    assert table.equals(pl.read_csv(tmp_path / "out" / "inflation.csv", schema=table.schema))


def test_what_is_left_out_is_reported(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    rows = [WHOLE, {"job_id": "unknown"}, {"job_id": "wide", "gpu_count": 5, "cpu_count": 1, "memory_gib": 1}]
    trace = make_trace(jobs=rows, nodes=[NODE | {"memory_gib": None}])
    result = run("replay", trace.path, "--inflate", "3", "-p", "fgd", "-o", tmp_path / "out")
    notes = [line.removeprefix("note: ") for line in result.stderr.splitlines()]
    assert notes[1:] == [
        "1 job left out: no GPU count",
        "ignored because it is unknown for some nodes: memory",
        "never placed: 1 task with more GPUs than any node has",
    ]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--load", "2"), "a placement study has no arrival times"),
        (("--outages", "recorded"), "--outages: no task runs in a placement study, so none can fail"),
        (("--spares", "2"), "--spares: no task runs in a placement study"),
        (("--twin", "twin.toml"), "a placement study does not model time"),
        (("-p", "bestfitt"), "did you mean 'bestfit'?"),
        (("--cluster", "none.toml"), "none.toml"),
    ],
)
def test_a_mistake_is_one_line(
    make_trace: Callable[..., Trace], tmp_path: Path, arguments: tuple[str, str], part: str
) -> None:
    trace = make_trace(jobs=[WHOLE], nodes=[NODE])
    result = run("replay", trace.path, "--inflate", "1", *arguments, "-o", tmp_path / "out")
    assert result.returncode != 0
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
