"""Executors and the driver are killed: an equal answer, or a clean absence of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.alike import difference
from tests.spark.conftest import why_not
from tests.spark.planted import plant
from tests.spark.processes import executors, javas
from tracekit.characterize import answer_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.characterize.engines.spark import SparkEngine
    from tracekit.trace import Trace

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkEngine]:
    """Return a Spark of two workers, each a process of its own."""
    missing = why_not()
    if missing:
        pytest.skip(f"spark: NOT RUN, because {missing}")
    from pyspark import SparkContext

    from tracekit.characterize.engines.spark import SparkEngine

    if SparkContext._active_spark_context is not None:
        pytest.skip("another Spark runs in this process; run this file alone")
    with SparkEngine("local-cluster[2,1,1024]", {"spark.sql.shuffle.partitions": "4"}, seconds=300) as engine:
        engine.start()
        yield engine


@pytest.mark.parametrize(
    "name",
    [
        "overview/summary",  # SQL
        "utilization/gpu_by_size_status",  # DuckDB in tasks, by day
        "queuing/timeline",  # a timeline by cluster
    ],
)
def test_an_executor_that_is_killed_costs_time_alone(
    name: str, cluster: SparkEngine, make_trace: Callable[..., Trace]
) -> None:
    trace = plant(make_trace)
    expected = answer_query(trace, name).frame
    before = set(executors())
    assert len(before) == 2
    killed: list[int] = []

    def kill() -> None:
        time.sleep(1.0)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    thread = threading.Thread(target=kill)
    thread.start()
    found = answer_query(trace, name, engine=cluster).frame
    thread.join()
    assert killed
    assert difference(expected, found) is None
    # Spark has started another one, and answers again.
    deadline = time.monotonic() + 120
    while len(executors()) < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert set(executors()) != before
    assert difference(expected, answer_query(trace, name, engine=cluster).frame) is None


def test_a_driver_that_is_killed_leaves_no_output_and_no_java(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    missing = why_not()
    if missing:
        pytest.skip(f"spark: NOT RUN, because {missing}")
    trace = plant(make_trace)
    out = tmp_path / "answer.csv"
    words = ["query", str(trace.path), "overview/summary", "--engine", "spark", "--master", "local[1]", "-f", "csv"]
    child = subprocess.Popen([sys.executable, "-m", "tracekit", *words, "-o", str(out)], start_new_session=True)
    deadline = time.monotonic() + 120
    while not (java := javas(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)
    child.kill()
    child.wait()
    assert java
    assert not out.exists()
    assert [file.name for file in tmp_path.iterdir()] == []
    while any(Path(f"/proc/{pid}").exists() for pid in java) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in java)
