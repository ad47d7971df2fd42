"""tracekit export: what it prints, and every way to call it wrongly."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tracekit.cli import app
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

JOBS = [
    {"job_id": "a", "submit_time": "2020-01-01", "run_s": 5, "gpu_count": 1, "user": "u"},
    {"job_id": "b", "submit_time": "2020-01-01", "gpu_count": 1},
]


@pytest.fixture(scope="module")
def folder(make_trace: Callable[..., Trace]) -> str:
    return str(make_trace(jobs=JOBS).path)


def tracekit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracekit", "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_was_left_out_and_filled_in_is_printed(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "o.trace"
    done = tracekit(folder, "--to", "gavel", "-o", out, "--option", "weight=3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1 of 2 jobs exported to gavel",
        f"gavel: {tmp_path / 'o.throughputs.json'}",
        f"gavel: {out}",
        (
            "to run: python simulate_scheduler_with_trace.py -t o.trace --throughputs_file o.throughputs.json -c 8:0:0 "
            "--num_gpus_per_server 8:8:8 -p max_min_fairness"
        ),
    ]
    assert done.stderr.splitlines() == [
        "note: 1 job left out: how long they ran is unknown, or they never did",
        "note: job type: tracekit, for 1 job where the Trace does not have it (option job_type)",
        "note: priority weight: 3, for 1 job where the Trace does not have it (option weight)",
        "note: throughputs are not in the Trace: one step a second on v100 (options throughputs, worker)",
        "note: GPUs of a node are not in the Trace: 8 (option gpus_per_node)",
        (
            "note: nodes are not in the Trace: 1, for the 1 GPU held at once, so that hardly a job waits and policies "
            "tie (--machines, --target-load)"
        ),
    ]


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["export", *arguments], env={"COLUMNS": "10000"})
    assert done.exit_code == 0
    return done.output


def test_the_list_teaches_targets_needs_and_defaults() -> None:
    listed = json.loads(shown("--list", "-f", "json"))
    assert [t["target"] for t in listed] == [
        "accasim", "alibaba-sim", "batsim", "blox", "csv", "gavel", "helios", "opendc", "swf", "tiresias",
    ]  # fmt: skip
    table = shown("--list")
    assert all(t["target"] in table and t["needs"] in table for t in listed)
    card = shown("--list", "--to", "tiresias")
    (facts,) = (t for t in listed if t["target"] == "tiresias")
    assert all(f["name"] in card and f["filled_from"] in card for f in facts["fields"])
    assert all(o["name"] in card and o["default"] in card for o in facts["options"])
    assert json.loads(shown("--list", "--to", "tiresias", "-f", "json")) == facts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["T", "-o", "x"], "--to: no target is named; 'tracekit export --list' shows them"),
        (["T", "--to", "gavle", "-o", "x"], "--to: unknown target 'gavle'; did you mean 'gavel'?"),
        (["T", "--to", "gavel"], "-o: no output is named; add -o FILE"),
        (["--to", "gavel", "-o", "x"], "no Trace is named; tracekit export TRACE --to NAME -o FILE"),
        (
            ["nowhere", "--to", "gavel", "-o", "x"],
            "nowhere: no such Trace; make one with 'tracekit ingest SRC -o TRACE'",
        ),
        (["T", "--to", "gavel", "-o", "x", "--option", "weight"], "--option: 'weight' is not NAME=VALUE"),
        (["T", "--to", "blox", "-o", "x", "--option", "model=bert"], "'bert' is not a value of the option model"),
        (["T", "--to", "blox", "-o", "x", "--memory-limit", "lots"], "'lots' is not a memory size"),
    ],
)
def test_a_mistake_is_one_line(folder: str, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["export", *(folder if word == "T" else word for word in arguments)])
    assert isinstance(done.exception, TracekitError)
    assert str(done.exception).startswith(message)
    assert "\n" not in str(done.exception)


def test_a_mistake_ends_with_exit_code_2(folder: str) -> None:
    done = tracekit(folder, "--to", "gavle", "-o", "x")
    assert done.returncode == 2
    assert done.stderr == "tracekit: error: --to: unknown target 'gavle'; did you mean 'gavel'?\n"
