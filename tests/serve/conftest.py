"""A small Trace of two clusters with hostile names, and the server for it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from tests.report.conftest import browser, own_cache  # noqa: F401 -- fixtures
from tracekit.analysis.reporting import report
from tracekit.ingest import ingest_logs
from tracekit.serve.app import made_app
from tracekit.serve.run import Gate
from tracekit.serve.trace import ServedTrace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

HOSTILE = "</script><img src=x onerror=alert(1)>"
CLIMBING = "../../etc/passwd"
TOKEN = "a-token-of-thirty-two-characters"


def _at(hour: float) -> dt.datetime:
    return dt.datetime(2020, 5, 3) + dt.timedelta(hours=hour)


def job(
    name: str, user: str | None, gpus: float, submit: float, wait: float, run: float, **facts: Any
) -> dict[str, Any]:
    """Return a job, with times in hours since 3 May 2020."""
    return {
        "job_id": name, "user": user, "cluster": "A", "vc": "ml", "status": "completed", "gpu_count": gpus,
        "node_count": 1, "attempt_count": 1, "submit_time": _at(submit), "start_time": _at(submit + wait),
        "end_time": _at(submit + wait + run), "queue_s": wait * 3600, "run_s": run * 3600, **facts,
    }  # fmt: skip


# alice waits 1, 2 and 3 hours; bob shares node n1 with a1 from 4:00 to 5:00.
JOBS = [
    job("a1", "alice", 2, 0, 1, 4),
    job("a2", "alice", 4, 24, 2, 2, status="failed"),
    job("a3", "alice", 1, 7 * 24, 3, 1),
    job("b1", "bob", 4, 4, 0, 2, vc="db"),
    job("b2", "bob", 8, 30, 0, 10, cluster="B", vc="db"),
    job(HOSTILE, HOSTILE, 1, 40, 0.5, 1),
    job(CLIMBING, "..", 1, 50, 0, 1),
    job("c1", "carol", 0, 60, 0, 1),
    *(job(f"d{i}", "dan", 1, 5 * i, 0.1 * i, 1) for i in range(30)),
]
NODES = {"a1": "n1", "b1": "n1", "a2": "n1", "b2": "m1", "a3": "n2"}


def _tables() -> dict[str, list[dict[str, Any]]]:
    attempts, placements, samples = [], [], []
    for one in JOBS:
        shared = {k: one[k] for k in ("job_id", "start_time", "end_time", "gpu_count")} | {"attempt": 0}
        attempts.append({
            **shared, "run_s": one["run_s"], "wait_s": one["queue_s"], "node_count": 1, "status": one["status"]
        })  # fmt: skip
        node = NODES.get(one["job_id"])
        if node is None:
            continue
        first = 4 if one["job_id"] == "b1" else 0
        gpus = [first + i for i in range(int(one["gpu_count"])) if first + i < 8]
        placements.append({**shared, "node_id": node, "gpu_index": gpus})
        minutes = int(one["run_s"] // 60)
        samples += [
            {"time": one["start_time"] + dt.timedelta(minutes=m), "node_id": node, "gpu_index": gpu,
             "utilization_pct": 20.0 if gpu % 2 else 60.0}
            for m in range(0, minutes, 10) for gpu in gpus
        ]  # fmt: skip
    return {
        "jobs": JOBS,
        "attempts": attempts,
        "placements": placements,
        "gpu_utilization": samples,
        "nodes": [{"node_id": n, "cluster": c, "gpu_count": 8, "gpu_model": "V100"}
                  for n, c in (("n1", "A"), ("n2", "A"), ("m1", "B"))],
        "node_events": [{"node_id": "n1", "start_time": _at(100), "end_time": _at(102), "state": "down"}],
    }  # fmt: skip


@pytest.fixture(scope="session")
def trace(make_trace: Callable[..., Trace], once: Callable[[str, Callable[[Path], Any]], Any]) -> Trace:
    made: Trace = once("served-trace", lambda _: make_trace(**_tables()))
    return made


@pytest.fixture(scope="session")
def parts(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the same Trace in partitions."""
    return ingest_logs(trace.path, tmp_path_factory.mktemp("served") / "parts", partition="day")


@pytest.fixture(scope="session")
def served(trace: Trace, once: Callable[[str, Callable[[Path], Any]], Any]) -> ServedTrace:
    return ServedTrace(trace, once("served-report", lambda _: report(trace)))


@pytest.fixture(scope="session")
def client(served: ServedTrace) -> TestClient:
    """Return a browser on this machine, without a token."""
    gate = Gate(made_app(served), names={"localhost"}, local=True)
    return TestClient(gate, base_url="http://localhost", follow_redirects=False)


@pytest.fixture
def guarded(served: ServedTrace) -> TestClient:
    """Return a browser on another machine, which has no token yet."""
    gate = Gate(made_app(served), names={"host.example"}, local=False, token=TOKEN, port=80)
    return TestClient(gate, base_url="http://host.example", follow_redirects=False)
