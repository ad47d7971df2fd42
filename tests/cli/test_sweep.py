"""`tracekit sweep` as a user meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.command import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]


def test_the_template_is_printed_and_a_file_is_needed() -> None:
    assert run("sweep", "--template").stdout.startswith("# A sweep:")
    missing = run("sweep")
    assert missing.returncode == 2
    assert "--template prints an example" in missing.stderr


@pytest.mark.thorough
def test_ctrl_c_keeps_finished_runs_and_the_same_command_goes_on(
    sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    (tmp_path / "t").symlink_to(sample_trace("philly").path)
    seeds = ", ".join(map(str, range(2000)))
    (tmp_path / "s.toml").write_text(f'traces = ["t"]\npolicies = ["fifo", "sjf"]\nseeds = [{seeds}]\n')
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tracekit", "sweep", "s.toml", "-o", "out", "--workers", "2"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    runs = tmp_path / "out" / "runs"
    for _ in range(6000):  # the first run may have to compile
        if runs.is_dir() and len(list(runs.glob("*.json"))) >= 3:
            break
        time.sleep(0.05)
    # As a terminal does it: every process of the group is told.
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "tracekit: interrupted; nothing was left half-written"
    assert "Traceback" not in told
    kept = {p.name: p.stat().st_mtime_ns for p in runs.iterdir()}
    assert 3 <= len(kept) < 4000
    assert all(name.endswith(".json") and not name.startswith(".") for name in kept)

    (tmp_path / "s.toml").write_text('traces = ["t"]\npolicies = ["fifo", "sjf"]\nseeds = [0, 1]\n')
    again = run("sweep", "s.toml", "-o", "out", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    table = pl.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert table.height == 4
    assert table["error"].is_null().all()
    assert {n: (runs / n).stat().st_mtime_ns for n in kept} == kept
    assert (tmp_path / "out" / "tradeoffs.svg").read_text().startswith("<svg")
