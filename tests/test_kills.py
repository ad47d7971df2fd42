"""The tool that kills commands tries every command that writes, and sees what a killed one may not leave."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.manual.commands import commands

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]


def tool(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return importlib.import_module(f"tools.{name}")


BEFORE = {"trace": "", "trace/jobs": "1", "tmp": "", "home": ""}
AFTER = BEFORE | {"out": "", "out/a": "2", "out/b": "3"}
WORK = BEFORE | {".out.partial-7": "", ".out.partial-7/a": "9"}


@pytest.mark.parametrize(
    ("name", "left", "fault"),
    [
        ("digest", BEFORE, []),
        ("digest", AFTER, []),
        ("digest", WORK, []),
        ("digest", AFTER | {".out.old-7": "", ".out.old-7/a": "1"}, []),
        ("digest", BEFORE | {"tmp/tracekit-scores-1": "", "tmp/tracekit-scores-1/x": "8"}, []),
        ("digest", BEFORE | {"out": "", "out/a": "2"}, ["half-written: ['out/b']"]),
        ("digest", AFTER | {"out/b": "4"}, ["half-written: ['out/b']"]),
        ("digest", BEFORE | {"trace/jobs": "4"}, ["half-written: ['trace/jobs']"]),
        ("digest", {"tmp": "", "home": ""}, ["half-written: ['trace', 'trace/jobs']"]),
        ("digest", {"tmp": "", "home": "", ".trace.old-7": "", ".trace.old-7/jobs": "1"}, []),
        ("digest", BEFORE | {".mine.partial-7": ""}, [".mine.partial-7 is left"]),
        ("digest", BEFORE | {".out.partial": ""}, ["half-written: ['.out.partial']"]),
        ("digest", BEFORE | {"tmp/x": "8"}, ["half-written: ['tmp/x']"]),
        ("digest", BEFORE | {"home/.cache": ""}, ["half-written: ['home/.cache']"]),
        ("sweep", BEFORE | {"out": "", "out/a": "2", "out/runs": "", "out/runs/1": "5"}, []),
        ("sweep", BEFORE | {"out": "", "out/a": "4"}, ["half-written: ['out/a']"]),
    ],
)
def test_what_a_killed_command_leaves_is_judged(name: str, left: dict[str, str], fault: list[str]) -> None:
    after = AFTER | ({"out/runs": "", "out/runs/1": "5"} if name == "sweep" else {})
    assert tool("kills").faults_of(name, BEFORE, left, after) == fault


def test_every_command_with_an_output_is_killed(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    names = tool("fuzzing.commands")
    place = names.Place(*(tmp_path / part for part in ("trace", "good", "logs", "logs", "out")))
    started = [" ".join(["tracekit", *command(place)]) for command in names.writing_commands("http://x").values()]
    for path, command in commands():
        if any("--output" in option.opts for option in command.params):
            assert any(f"{line} ".startswith(f"{path} ") for line in started), path


@pytest.mark.thorough
def test_the_tool_counts_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "kills.py"), "--kills", "2", "--command", "query"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {kind: int(number) for number, kind in map(str.split, done.stdout.split(" in ")[0].split(", "))}
    assert counts["killed"] == 2
    assert counts.keys() <= {"killed", "ended"}
