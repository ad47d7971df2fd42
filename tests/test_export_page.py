"""The page on exports: its commands run, its Python runs, its target is used, and it names every target."""

from __future__ import annotations

import json
import re
import shlex
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tracekit.cli import app
from tracekit.export.api import export
from tracekit.export.interface import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tracekit.trace import Trace

PAGE = (Path(__file__).parent.parent / "docs" / "export.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def place(make_trace: Callable[..., Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the Trace and the throughputs that the page speaks of, and go there."""
    at = {"start_time": "2020-01-01 00:00:10", "end_time": "2020-01-01 00:00:40"}
    one = {"cluster": "Earth", "vc": "a", "run_s": 30, **at}
    jobs = [{"job_id": f"Earth/{n}", "gpu_count": n, "submit_time": f"2020-01-01 00:00:0{n}", **one} for n in (1, 2)]
    (tmp_path / "my-trace").symlink_to(make_trace(jobs=jobs).path)
    rates = {"v100": {f"('LM (batch size 5)', {n})": {"null": 10.0 * n} for n in (1, 2)}}
    (tmp_path / "rates.json").write_text(json.dumps(rates))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.thorough
def test_the_commands_of_the_page_run(place: Path) -> None:
    for command in filter(None, "\n".join(blocks("sh")).splitlines()):
        words = shlex.split(command, comments=True)
        assert words[0] == "tracekit"
        extra = ["--force"] if "-o" in words else []
        done = CliRunner().invoke(app, [*words[1:], *extra])
        assert done.exit_code == 0, (command, done.output, done.exception)
    assert (place / "my.trace").read_text().split("\t")[5] == "300"
    assert (place / "jobs.cluster.csv").is_file()
    assert (place / "again-helios" / "manifest.json").is_file()


def test_the_python_of_the_page_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("python")[0], {})
    assert capsys.readouterr().out.startswith("2 {}\njob type: tracekit for 2 jobs")


def test_the_target_of_the_page_is_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {}
    exec(blocks("python")[1], scope)
    entry = metadata.EntryPoint("lines", "mine:TARGET", "tracekit.exports")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda _: scope["TARGET"])
    vars(TARGETS).pop("_known", None)
    try:
        export("my-trace", "lines", place / "lines.csv")
    finally:
        vars(TARGETS).pop("_known", None)
    assert (place / "lines.csv").read_text() == "0.0,1.0,30.0\n1.0,2.0,30.0\n"


def test_the_page_names_every_target_and_its_files() -> None:
    for target in TARGETS.all().values():
        (line,) = re.findall(rf"^\| `{target.name}` \|.*$", PAGE, re.MULTILINE)
        assert all(f"*{end}" in line for end in target.companions), target.name
        assert ("folder" in line) == target.folder
