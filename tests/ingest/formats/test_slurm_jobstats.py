"""Summaries that Jobstats writes into AdminComment, and what else may stand there."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.sacct_rows import JOB, sacct
from tracekit.ingest.formats._slurm_cells import JobSummary, job_summary

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30


def comment(told: Any) -> str:
    """Return a summary as Jobstats stores it."""
    return packed(json.dumps(told).encode())


def packed(content: bytes) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(content, mtime=0)).decode()


def node(*gpus: tuple[float, int], cpu_s: float = 100.0, memory: int = 4 * GIB) -> dict[str, Any]:
    """Return a node from utilization [percent] and memory [bytes] of its GPUs."""
    found: dict[str, Any] = {"cpus": 8, "total_memory": 64 * GIB, "total_time": cpu_s, "used_memory": memory}
    if gpus:
        found["gpu_utilization"] = {str(index): gpu[0] for index, gpu in enumerate(gpus)}
        found["gpu_used_memory"] = {str(index): gpu[1] for index, gpu in enumerate(gpus)}
        found["gpu_total_memory"] = {str(index): 80 * GIB for index, _ in enumerate(gpus)}
    return found


TWO_NODES = {
    "nodes": {"n1": node((98.5, 2 * GIB), (1.5, GIB)), "n2": node((50.0, 3 * GIB), cpu_s=20.5)},
    "total_time": 3600,
    "gpus": 3,
}


def test_use_is_summed_over_gpus_and_nodes() -> None:
    assert job_summary(comment(TWO_NODES)) == JobSummary(150.0, 6.0, 8.0, 120.5)


def test_a_job_without_gpus_has_no_utilization() -> None:
    told = {"nodes": {"n1": node()}, "total_time": 60, "gpus": False}
    assert job_summary(comment(told)) == JobSummary(None, None, 4.0, 100.0)


def test_what_one_node_does_not_tell_is_unknown_in_the_sum() -> None:
    silent = node((10.0, GIB))
    del silent["total_time"], silent["gpu_used_memory"]
    told = {"nodes": {"n1": node((10.0, GIB)), "n2": silent}}
    assert job_summary(comment(told)) == JobSummary(20.0, None, 8.0, None)


@pytest.mark.parametrize("text", ["", "JS1:Short", "JS1:None", "fixed by hand", "js1:abc"])
def test_other_comments_are_not_summaries(text: str) -> None:
    assert job_summary(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "JS1:",
        "JS1:!!!",
        "JS1:é",
        "JS1:" + base64.b64encode(b"no gzip").decode(),
        comment(TWO_NODES)[:-8],
        packed(b"{"),
        packed(b"[" * 100_000),
        packed(b"[]"),
        packed(b'{"nodes": 5}'),
        packed(b'{"nodes": {"n1": 5}}'),
        packed(b'{"nodes": {"n1": {"gpu_utilization": [1]}}}'),
        packed(b'{"nodes": {"n1": {"total_time": "<script>"}}}'),
        packed(b'{"nodes": {"n1": {"total_time": -1}}}'),
        packed(b'{"nodes": {"n1": {"total_time": true}}}'),
        packed(b'{"nodes": {"n1": {"total_time": NaN}}}'),
        packed(b'{"nodes": {"n1": {"total_time": 1' + b"0" * 400 + b"}}}"),
        "JS1:" + "A" * 2_000_000,
    ],
)
def test_a_damaged_summary_is_unreadable(text: str) -> None:
    assert job_summary(text) == JobSummary(unreadable=True)


def test_a_bomb_is_not_unpacked() -> None:
    told = json.dumps(TWO_NODES).encode()
    room = 8 * 2**20 - len(told)
    assert job_summary(packed(told + b" " * (room - 1))) == JobSummary(150.0, 6.0, 8.0, 120.5)
    assert job_summary(packed(told + b" " * (room + 1))) == JobSummary(unreadable=True)


@given(st.text().map(lambda text: "JS1:" + text) | st.binary().map(packed))
def test_any_text_is_read_or_counted(text: str) -> None:
    found = job_summary(text)
    assert found is None or found.unreadable or found == JobSummary()


def test_summaries_fill_the_use_of_their_job(ingest: Callable[..., Any], rows: Callable[..., Any]) -> None:
    trace = ingest(
        sacct(
            {"AdminComment": comment(TWO_NODES), "MaxRSS": ""},
            {"JobID": "8", "JobIDRaw": "8", "AdminComment": "JS1:broken"},
            {"JobID": "9", "JobIDRaw": "9", "AdminComment": "JS1:Short"},
            {"JobID": "10", "JobIDRaw": "10", "AdminComment": comment(TWO_NODES)},
            {**JOB, "JobID": "10.batch", "JobIDRaw": "10.batch", "MaxRSS": "3G"},
        )
    )
    assert rows(trace, "job_usage") == [
        {"job_id": "slurm/10", "gpu_util_pct": 150.0, "gpu_memory_gib": 6.0, "cpu_s": 120.5},
        {"job_id": "slurm/10", "instance": "batch", "memory_gib": 3.0},
        {"job_id": "slurm/7", "gpu_util_pct": 150.0, "gpu_memory_gib": 6.0, "memory_gib": 8.0, "cpu_s": 120.5},
    ]
    check = trace.manifest.checks["unreadable_jobstats"]
    assert (check.count, check.of, check.examples) == (1, 3, ["8"])
