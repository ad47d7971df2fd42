"""tracekit export: what it prints, and every way to call it wrongly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.command import run, run_alone
from tracekit.cli import app
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

JOBS = [
    {"job_id": "a", "submit_time": "2020-01-01", "run_s": 5, "gpu_count": 1, "user": "u"},
    {"job_id": "b", "submit_time": "2020-01-01", "gpu_count": 1},
]


@pytest.fixture(scope="module")
def folder(make_trace: Callable[..., Trace]) -> str:
    return str(make_trace(jobs=JOBS).path)


def test_what_was_left_out_and_filled_in_is_printed(folder: str, tmp_path: Path, golden: Golden) -> None:
    out = tmp_path / "o.trace"
    done = run("export", folder, "--to", "gavel", "-o", out, "--option", "weight=3")
    assert done.returncode == 0, done.stderr
    assert str(out) in done.stdout
    golden(done.stdout.replace(str(tmp_path), "HERE"), "on stdout")
    golden(done.stderr, "on stderr")


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
        (["T", "-o", "x"], "--to: no format is given; 'tracekit export --list' shows them"),
        (["T", "--to", "gavle", "-o", "x"], "--to: unknown target 'gavle'; did you mean 'gavel'?"),
        (["T", "--to", "gavel"], "-o: no output is given; add -o FILE"),
        (["--to", "gavel", "-o", "x"], "no Trace is given; tracekit export TRACE --to NAME -o FILE"),
        (
            ["nowhere", "--to", "gavel", "-o", "x"],
            "nowhere: no such Trace; make one with 'tracekit ingest SRC -o TRACE'",
        ),
        (["T", "--to", "gavel", "-o", "x", "--option", "weight"], "--option: 'weight' is not NAME=VALUE"),
        (["T", "--to", "blox", "-o", "x", "--option", "model=bert"], "'bert' is not a valid value of the option model"),
        (["T", "--to", "blox", "-o", "x", "--memory-limit", "lots"], "'lots' is not a memory size"),
    ],
)
def test_a_mistake_is_one_line(folder: str, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["export", *(folder if word == "T" else word for word in arguments)])
    assert isinstance(done.exception, TracekitError)
    assert str(done.exception).startswith(message)
    assert "\n" not in str(done.exception)


def test_a_mistake_ends_with_exit_code_2(folder: str) -> None:
    done = run_alone("export", folder, "--to", "gavle", "-o", "x")
    assert done.returncode == 2
    assert done.stderr == "tracekit: error: --to: unknown target 'gavle'; did you mean 'gavel'?\n"
