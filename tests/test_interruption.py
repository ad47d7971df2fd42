"""An interrupted run ends at once, undoes what is unfinished, and says one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
LINE = "tracekit: interrupted; nothing was left half-written\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

PROGRAM = """
import contextlib, subprocess, sys, threading, time
from functools import partial
from pathlib import Path
from tracekit.interruption import end_process, handle_signals, register_cleanup, temporary_folder, uninterrupted
from tracekit.outputs import StagedFiles, StagedFolder

def ready():
    Path("ready").touch()

def duckdb_query():
    import duckdb
    con = duckdb.connect()
    ready()
    with contextlib.suppress(Exception):
        con.sql("SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range % 7 = b.range % 5").pl()

def duckdb_query_in_a_thread():
    thread = threading.Thread(target=duckdb_query)
    thread.start()
    thread.join()

def polars_collect():
    import polars as pl
    frame = pl.LazyFrame({"a": range(20000)})
    ready()
    with contextlib.suppress(Exception):
        cubed = frame.join(frame, how="cross", suffix="1").join(frame, how="cross", suffix="2")
        cubed.select(pl.sum_horizontal("a", "a1", "a2").sum()).collect(engine="streaming")

def where_everything_is_caught():
    ready()
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

def threads_that_write():
    def write(number):
        for i in range(1000000):
            with contextlib.suppress(OSError):
                (folder.path / f"{number}-{i}").touch()
    for number in range(4):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    time.sleep(0.1)
    ready()
    time.sleep(60)

def a_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    register_cleanup(partial(end_process, child.pid))
    Path("child").write_text(str(child.pid))
    ready()
    child.wait()

def a_temporary_folder():
    with temporary_folder("test") as path:
        (path / "x").touch()
        ready()
        time.sleep(60)

def a_commit():
    with uninterrupted():
        ready()
        time.sleep(0.5)
        (folder.path / "x").write_text("whole")
        folder.path.rename("whole")
    time.sleep(60)

with handle_signals():
    folder = StagedFolder(Path("out"), force=False, marker="mark", kind="a test")
    files = StagedFiles(Path("file"), force=False)
    globals()[sys.argv[1]]()
    print("went on", file=sys.stderr)
"""

MOMENTS = (
    "duckdb_query",
    "duckdb_query_in_a_thread",
    "polars_collect",
    "where_everything_is_caught",
    "threads_that_write",
    "a_child",
    "a_temporary_folder",
)


def interrupted(folder: Path, moment: str, number: signal.Signals) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM, moment]
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    wait_until((folder / "ready").exists, process)
    time.sleep(0.1)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    (folder / "ready").unlink()
    return process.returncode, said


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not happened() and process.poll() is None:
        time.sleep(0.005)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_ends_wherever_it_is(tmp_path: Path, moment: str) -> None:
    number = signal.SIGTERM if moment == "where_everything_is_caught" else signal.SIGINT
    assert interrupted(tmp_path, moment, number) == (130, LINE)
    if moment == "a_child":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "child").read_text()), 0)
        (tmp_path / "child").unlink()
    assert list(tmp_path.iterdir()) == []


def test_what_must_not_be_divided_is_finished(tmp_path: Path) -> None:
    assert interrupted(tmp_path, "a_commit", signal.SIGINT) == (130, LINE)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert (tmp_path / "whole" / "x").read_text() == "whole"


@pytest.mark.parametrize(
    "delay", [1.5, *(pytest.param(delay, marks=pytest.mark.thorough) for delay in (0.0, 0.3, 4.0))]
)
def test_an_analysis_is_interrupted_whatever_it_does(tmp_path: Path, delay: float) -> None:
    place = tmp_path / "place"
    place.mkdir()
    command = [sys.executable, "-m", "tracekit", "analyze", str(ROOT / "sample_traces" / "philly"), "-o"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, str(place / "out")], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: any(place.glob(".out.partial-*")), process)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    if process.returncode == 0:  # so fast a machine
        assert out.startswith("report: ")
        return
    lines = [line for line in said.splitlines(keepends=True) if not line.startswith("note: ")]
    assert (process.returncode, lines) == (130, [LINE])
    assert list(place.iterdir()) == []


LOADING = """
import os, signal, sys
from tracekit.__main__ import main

class Loading:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))

sys.meta_path.insert(0, Loading())
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["tracekit.interruption", "tracekit.cli", "typer"])
def test_a_signal_is_heard_while_the_commands_are_being_loaded(module: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", LOADING, module, str(int(number))]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", LINE)


def test_nothing_large_is_loaded_before_signals_are_heard() -> None:
    program = "import sys; before = set(sys.modules); import tracekit.__main__; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "tracekit" in loaded
    assert loaded - {"tracekit"} <= set(sys.stdlib_module_names)
