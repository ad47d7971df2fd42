"""Files of telemetry read by Spark's tasks: the Trace of one machine, or one line."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.both_ways import Heard, assert_same, both
from tests.ingest.telemetry.monitored import Cluster, series
from tests.spark.conftest import why_not
from tests.spark.processes import executors, javas
from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.ingest import ingest_logs, layout
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Generator

    from tracekit.characterize.engines import Engine
    from tracekit.workers import Workers

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def workers(spark: Engine) -> Workers:
    found = spark.workers()
    assert found is not None
    return found


def days_of_philly(folder: Path, days: int, rows: int) -> Path:
    """Write a job log and a file of GPU samples a day; the last rows of each day are in the next day's file too."""
    from philly_files import write_gpu_file, write_job_log  # which executors, who import this module, do not find

    folder.mkdir()
    write_job_log(folder / "cluster_job_log", 200)
    write_gpu_file(folder / "whole", days * rows, servers=40)
    header, *lines = (folder / "whole").read_bytes().splitlines(keepends=True)
    for day in range(days):
        part = lines[max(0, day * rows - 40) : (day + 1) * rows]
        (folder / f"cluster_gpu_util-2017-10-{day + 3:02}.csv").write_bytes(header + b"".join(part) + b"odd,line\n")
    (folder / "whole").unlink()
    return folder


def test_daily_files_are_read_and_cut_by_tasks_and_the_trace_is_the_same(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = days_of_philly(tmp_path / "logs", 4, 60_000)  # 40 machines by minutes: a file is one day and some hours
    monkeypatch.setattr(layout, "TASK_ROWS", 1)
    trace = both(logs, tmp_path, workers, partition="day")
    check = trace.manifest.checks["repeated_gpu_samples"]
    assert check.count > 3 * 40
    info = trace.manifest.tables["gpu_utilization"]
    assert (trace.manifest.rejected, info.rows) == (4, (check.of or 0) - check.count)
    assert len(info.partitions or []) == 5  # as many tasks


def test_answers_and_logs_of_monitors_are_read_by_tasks(tmp_path: Path, workers: Workers) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    one = [series("DCGM_FI_DEV_GPU_UTIL", {"10:05": 50, "10:06": 51}, Hostname="n1", gpu="0", hpc_job="1")]
    cluster.answer("a.json", one)
    cluster.answer("copy.json", one)
    (cluster.folder / "n1.csv").write_text("timestamp, index, utilization.gpu [%]\n2026/03/02 10:07:00, 0, 7 %\n")
    trace = both(cluster.folder, tmp_path, workers, options={"timezone": "UTC"})
    assert trace.manifest.tables["gpu_utilization"].rows == 3


def test_a_file_that_is_none_is_one_line(tmp_path: Path, workers: Workers) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    (cluster.folder / "b.json").write_text('{"status": "error", "errorType": "timeout", "error": "slow"}')
    with pytest.raises(SourceError, match=r"^b\.json: is a server error: [^\n]*$"):
        ingest_logs(cluster.folder, tmp_path / "trace", workers=workers)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_a_worker_that_may_not_write_more_is_one_line(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = days_of_philly(tmp_path / "logs", 2, 2000)

    class Small:
        """The same workers, each on a disk with room for 4 KiB."""

        start = workers.start

        def in_order(self, work: Any, items: Any) -> Generator[Any]:
            return workers.in_order(_Small(work), items)

    with pytest.raises(OutputError) as error:
        ingest_logs(logs, tmp_path / "trace", workers=Small())
    assert (
        str(error.value) == f"{tmp_path / 'trace'}: cannot write: File too large; choose another -o, or free its path"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


class _Small:
    """Work under a limit on the size of files."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def __call__(self, item: Any) -> Any:
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            return self.work(item)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


def test_no_more_is_done_ahead_than_twice_the_processors(workers: Workers, tmp_path: Path) -> None:
    found = workers.in_order(_Touch(tmp_path), range(12))
    assert next(found) == 0
    time.sleep(2)
    begun = len(list(tmp_path.iterdir()))
    found.close()
    assert 1 <= begun <= 5  # four of local[2], and one for the result that was taken


class _Touch:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, number: int) -> int:
        (self.place / str(number)).touch()
        return number


def test_an_error_that_is_not_a_file_s_is_reported_in_one_line(workers: Workers) -> None:
    with pytest.raises(UsageError, match=r"^--master local\[2\]: Spark failed: ZeroDivisionError: [^\n]*$"):
        list(workers.in_order(_divide, [0]))


def _divide(number: int) -> float:
    return 1 / number


@pytest.mark.slow
@pytest.mark.parametrize(("step", "after_s"), [(1, 1.0), (2, 0.1)])
def test_an_executor_that_is_killed_changes_nothing(
    tmp_path: Path, spark: Engine, monkeypatch: pytest.MonkeyPatch, step: int, after_s: float
) -> None:
    """While files are read, and (step 2) while partitions are written."""
    from tracekit.characterize.engines.spark import SparkEngine

    spark.stop()  # a process has one Spark; the next test starts it again

    logs = days_of_philly(tmp_path / "logs", 6, 40_000)
    monkeypatch.setattr(layout, "TASK_ROWS", 1)
    alone = ingest_logs(logs, tmp_path / "alone", partition="day")
    killed: list[int] = []

    def kill() -> None:
        time.sleep(after_s)
        pid = executors()[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    class Lossy:
        def __init__(self, workers: Workers) -> None:
            self.workers, self.step = workers, 0

        def start(self) -> None:
            self.workers.start()

        def in_order(self, work: Any, items: Any) -> Generator[Any]:
            self.step += 1
            thread = threading.Thread(target=kill)
            if self.step == step:
                thread.start()
            yield from self.workers.in_order(work, items)
            if self.step == step:
                thread.join()

    with SparkEngine("local-cluster[2,1,1024]", {"spark.driver.memory": "1g"}) as engine:
        inner = engine.workers()
        together = ingest_logs(logs, tmp_path / "together", workers=Lossy(inner), progress=Heard(), partition="day")
    assert len(killed) == 1
    assert_same(alone, together)


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_no_trace_and_no_java(tmp_path: Path) -> None:
    logs = days_of_philly(tmp_path / "logs", 6, 20_000)
    place = tmp_path / "place"
    child = subprocess.Popen(_words(logs, place / "trace", "local[2]"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(place.glob(".trace.partial-*/scratch/tasks/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    java = javas(child.pid)
    child.kill()
    child.wait()
    assert java
    (left,) = place.iterdir()  # hidden: no Trace has appeared
    assert left.name.startswith(".trace.partial-")
    while any(Path(f"/proc/{pid}").exists() for pid in java) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in java)
    again = ingest_logs(logs, place / "trace")
    assert [path.name for path in place.iterdir()] == ["trace"]
    assert_same(again, ingest_logs(logs, tmp_path / "alone"))


def _words(logs: Path, out: Path, master: str) -> list[str]:
    words = [sys.executable, "-m", "tracekit", "ingest", str(logs), "-o", str(out)]
    return [*words, "--engine", "spark", "--master", master]


def _asked(logs: Path, out: Path, master: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _words(logs, out, master),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_master_that_is_not_there_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"spark: NOT RUN, because {missing}")
    logs = days_of_philly(tmp_path / "logs", 1, 100)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
    done = _asked(logs, tmp_path / "trace", master)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("note: format philly")]
    assert line.startswith(f"tracekit: error: --master {master}: no Spark master answers: 127.0.0.1")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.slow
def test_the_command_says_what_it_says_without_spark(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"spark: NOT RUN, because {missing}")
    logs = days_of_philly(tmp_path / "logs", 2, 400)
    done = _asked(logs, tmp_path / "trace", "local[1]")
    alone = subprocess.run(_words(logs, tmp_path / "trace", "")[:-4], capture_output=True, text=True, check=False)
    assert alone.returncode != 0  # it is there
    shutil.move(tmp_path / "trace", tmp_path / "made")
    alone = subprocess.run(_words(logs, tmp_path / "trace", "")[:-4], capture_output=True, text=True, check=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, alone.stderr)
    assert_same(Trace.open(tmp_path / "made"), Trace.open(tmp_path / "trace"))


@pytest.mark.slow
def test_a_python_without_tracekit_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"spark: NOT RUN, because {missing}")
    logs, bare = days_of_philly(tmp_path / "logs", 1, 100), tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = _asked(logs, tmp_path / "trace", "local[1]", PYSPARK_PYTHON=str(bare / "bin" / "python"))
    assert done.returncode == 2
    assert "has no working tracekit" in done.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "logs"]
