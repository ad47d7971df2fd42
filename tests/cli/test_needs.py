"""What commands say they will need, before they begin; and that they keep to --memory-limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.cli.test_commands import assert_one_line
from tests.command import run
from tracekit import estimate
from tracekit.cli import app, needs, sweep
from tracekit.errors import TracekitError, UsageError
from tracekit.estimate import Machine, Need
from tracekit.fit.api import fit_utilization

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

SAYING: dict[str, tuple[str, ...]] = {
    "query": ("TRACE", "overview/summary"),
    "efficiency": ("TRACE",),
    "digest": ("TRACE", "-o", "OUT"),
    "wait": ("TRACE", "--gpus", "1"),
    "validate": ("TRACE",),
    "guidelines": ("TRACE",),
    "serve": ("TRACE",),
    "compare": ("TRACE", "other=TRACE", "-o", "OUT"),
    "analyze": ("TRACE", "-o", "OUT"),
    "ingest": ("LOGS", "-o", "OUT"),
    "export": ("TRACE", "--to", "csv", "-o", "OUT"),
    "fit": ("TRACE", "-o", "OUT"),
    "generate": ("TRACE", "--days", "3", "-o", "OUT"),
    "replay": ("TRACE", "-o", "OUT"),
    "sweep": ("SWEEP", "-o", "OUT"),
    "calibrate": ("TRACE", "-o", "OUT"),
    "plan": ("TRACE", "--target", "p90<=1h", "-o", "OUT"),
}
"""The commands that work on rows, with what they need to begin."""

SILENT = {"info", "policies", "formats", "schema", "classify-logs", "datasets"}
"""Those that read a manifest, a model or a list; or a log of a job at a time."""


def test_every_command_says_what_it_needs_or_needs_nothing() -> None:
    import typer

    listed = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group, as Typer has it
    assert set(listed) == set(SAYING) | SILENT


@pytest.fixture
def words(sample_trace: Callable[[str], Trace], sample_source: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    trace = sample_trace("philly").path
    (tmp_path / "sweep.toml").write_text(f'traces = ["{trace}"]\npolicies = ["fifo", "srtf"]\n')
    return {
        "TRACE": str(trace),
        "other=TRACE": f"other={trace}",
        "LOGS": str(sample_source("philly")),
        "SWEEP": str(tmp_path / "sweep.toml"),
        "OUT": str(tmp_path / "out"),
    }


@pytest.mark.parametrize("command", SAYING)
def test_it_is_said_before_the_work_and_not_of_a_small_log(
    command: str, words: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Need] = []

    def stop(found: Need, memory_limit: str | None) -> None:
        del memory_limit
        said.append(found)
        raise TracekitError("enough is known")

    monkeypatch.setattr(needs, "_say", stop)
    done = run(command, *(words.get(word, word) for word in SAYING[command]))
    assert_one_line(done, "enough is known")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
    (found,) = said
    assert found.read > 0
    roomy = Machine(memory=2**40, free_disk=2**50, spill=tmp_path)
    assert estimate.sentences(found, roomy) == []


def test_a_note_goes_to_stderr_and_leaves_the_answer_alone(
    words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = run("query", words["TRACE"], "overview/summary", "-f", "json")
    monkeypatch.setattr(estimate, "LONG_S", 0.0)
    loud = run("query", words["TRACE"], "overview/summary", "-f", "json", "--memory-limit", "1GB")
    assert (loud.returncode, loud.stdout) == (0, quiet.stdout)
    (note,) = [line for line in loud.stderr.splitlines() if "reads" in line]
    assert note.startswith("note: reads ")
    assert "of memory" in note
    assert "reads" not in quiet.stderr


def test_a_sweep_counts_its_runs_and_workers(words: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    found: list[Need] = []
    monkeypatch.setattr(needs, "_say", lambda need, limit: found.append(need))
    sweep._say_need(Path(words["SWEEP"]), None, 1)
    sweep._say_need(Path(words["SWEEP"]), None, 2)
    needs.say_need(words["TRACE"], "replay")
    one, two, single = found
    assert one.cpu_s == pytest.approx(2 * single.cpu_s)
    assert (one.arrays, two.arrays) == (single.arrays, 2 * single.arrays)


def test_measurements_of_use_are_fitted_the_same_within_a_small_limit(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("philly")
    free = fit_utilization(trace)
    assert free["groups"]
    assert fit_utilization(trace, "40MB") == free


def test_measurements_beyond_the_limit_are_one_error(sample_trace: Callable[[str], Trace]) -> None:
    with pytest.raises(UsageError, match=r"rows of gpu_utilization ran out of memory.*raise --memory-limit"):
        fit_utilization(sample_trace("philly"), "1MB")


def test_a_fit_takes_the_limit(words: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str | None] = []

    def stop(trace: Trace, memory_limit: str | None) -> None:
        del trace
        given.append(memory_limit)
        raise TracekitError("enough is known")

    monkeypatch.setattr("tracekit.fit.api.fit_utilization", stop)
    for part in ("arrivals", "run_times", "failures", "node_failures"):
        monkeypatch.setattr(f"tracekit.fit.api.fit_{part}", lambda *_, **__: ([], {}))
    done = run("fit", words["TRACE"], "-o", tmp_path / "w", "--memory-limit", "123MB")
    assert_one_line(done, "enough is known")
    assert given == ["123MB"]


def test_a_copy_with_pseudonyms_keeps_to_the_limit(words: dict[str, str], tmp_path: Path) -> None:
    salted = ("--anonymize", "--salt-file", tmp_path / "salt", "-f", "json")
    ask = ("query", words["TRACE"], "failures/by_user", *salted)
    free, tight = run(*ask), run(*ask, "--memory-limit", "60MB")
    assert free.returncode == 0, free.stderr
    assert tight.stdout == free.stdout
    assert pl.DataFrame(json.loads(free.stdout)).height > 0
    assert_one_line(run(*ask, "--memory-limit", "much"), "not a memory size")
