"""Sixty damaged Traces, three commands each: an answer or one clear error; and the judge sees what is wrong."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
CASES = 60
FIRST = 12
"""Cases that are tried each time; the others are thorough."""
SEVERAL = 3
RUN = 20_261
"""Number of the run; the tool makes the same cases with `--seed 20261 --several 3 --case NUMBER`."""


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tool("traces").Traces(tmp_path_factory.mktemp("good"))


def tool(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return importlib.import_module(f"tools.fuzzing.{name}")


@pytest.mark.parametrize(
    "number", [*range(FIRST), *(pytest.param(number, marks=pytest.mark.thorough) for number in range(FIRST, CASES))]
)
def test_a_damaged_trace_gives_an_answer_or_one_error(number: int, traces: Any, tmp_path: Path) -> None:
    case = tool("traces").make_case(number, RUN, traces, tmp_path / "case")
    for command in tool("commands").in_turn(number, SEVERAL):
        assert tool("traces").judge(case, command) == [], f"{command}: {'; '.join(case.how)}"


def test_the_first_cases_try_every_command() -> None:
    commands = tool("commands")
    tried = {name for number in range(FIRST) for name in commands.in_turn(number, SEVERAL)}
    assert tried == set(commands.COMMANDS)


@pytest.mark.parametrize(
    ("name", "code", "stderr", "fault"),
    [
        ("info", 0, "", None),
        ("info", 0, "note: a choice\n", None),
        ("info", 2, "tracekit: error: no such Trace\n", None),
        ("validate", 1, "", None),
        ("info", 1, "", "exit code 1"),
        ("info", 0, "tracekit: error: x\n", "1 error lines with exit code 0"),
        ("info", 2, "", "0 error lines with exit code 2"),
        ("info", 2, "thread 'x' panicked\ntracekit: error: x\n", "prints on stderr: thread 'x' panicked"),
        ("info", 2, "tracekit: error: KeyError: 'a'\n", "the error shows internals: tracekit: error: KeyError: 'a'"),
    ],
)
def test_an_ending_is_judged(name: str, code: int, stderr: str, fault: str | None) -> None:
    commands = tool("commands")
    assert commands.faults_of(name, commands.Ended(code, "", stderr)) == ([] if fault is None else [fault])


def test_what_a_failed_command_leaves_behind_is_a_fault(
    traces: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tool("commands")

    def fail() -> None:
        Path("out").mkdir()
        raise SystemExit(1)

    monkeypatch.setattr(commands.tracekit.cli, "main", fail)
    faults = commands.run("fit", traces.trace("swf"), traces.trace("swf"), traces.source("swf"), tmp_path / "place")
    assert faults == ["exit code 1", "left ['out'] behind"]
