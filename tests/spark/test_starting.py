"""Masters and executors that are not what they should be: one line, within a bounded time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import why_not
from tracekit.characterize.engines.spark import starting
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.characterize.engines.spark import SparkEngine
    from tracekit.trace import Trace

pytestmark = pytest.mark.spark


def test_executors_of_another_version_are_named_and_spark_starts_again(
    spark: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever test comes next finds a Spark that was given up while it started."""
    spark.stop()
    with monkeypatch.context() as patch:
        patch.setattr(starting, "__version__", "9.9")
        with pytest.raises(
            UsageError, match=r"the executor on \S+ has tracekit .*, this machine has tracekit 9\.9; install this"
        ):
            spark.start()
    spark.start()
    session = spark._spark()
    session.udf.register("twice", lambda number: 2 * number, "int")
    assert session.sql("SELECT twice(21) AS answer").collect() == [(42,)]


def test_executors_that_do_not_answer_are_not_waited_for(spark: SparkEngine) -> None:
    with pytest.raises(UsageError, match=r"no executor took a task within 0 s"):
        starting._require_workers(spark._spark(), "local[2]", 0)


def _asked(*words: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], float]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "query", *words, "--engine", "spark"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    return done, time.monotonic() - begun


@pytest.mark.slow
def test_the_terminal_has_the_answer_and_nothing_of_spark(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "status": "completed"}])
    done, _ = _asked(str(trace.path), "overview/status", "-f", "csv", "--master", "local[1]")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("completed,1,1.0")
    assert done.stderr == ""


@pytest.mark.slow
def test_a_python_without_tracekit_is_named(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    trace = make_trace(jobs=[{"job_id": "a", "status": "completed"}])
    done, _ = _asked(
        str(trace.path), "overview/status", "--master", "local[1]", PYSPARK_PYTHON=str(bare / "bin" / "python")
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "has no working tracekit" in done.stderr


@pytest.mark.slow
def test_a_master_that_listens_and_says_nothing_is_given_up(make_trace: Callable[..., Trace]) -> None:
    if missing := why_not():
        pytest.skip(f"spark: NOT RUN, because {missing}")
    trace = make_trace(jobs=[{"job_id": "a", "status": "completed"}])
    code = (
        "import sys\nfrom tracekit import run_query\nfrom tracekit.characterize.engines.spark import SparkEngine\n"
        "run_query(sys.argv[1], 'overview/status', engine=SparkEngine(sys.argv[2], seconds=20))"
    )
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code, str(trace.path), master],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert time.monotonic() - begun < 60
    last = done.stderr.strip().splitlines()[-1]
    assert "UsageError" in last
    assert "within 20 s" in last or "Spark did not start" in last


@pytest.mark.slow
def test_one_process_starts_spark_again_after_it_ended(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "status": "completed"}, {"job_id": "b", "status": "failed"}])
    script = f"""
from tracekit import run_query
from tracekit.characterize.engines.spark import SparkEngine
for _ in range(2):
    with SparkEngine("local[1]", {{"spark.driver.memory": "1g"}}) as engine:
        print(run_query({str(trace.path)!r}, "overview/status", engine=engine)["jobs"].to_list())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == ["[1, 1]", "[1, 1]"], done.stderr
