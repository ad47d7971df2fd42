"""An installation without the extension: replays end in one line, everything else works and says what it leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tracekit.errors import EngineMissingError
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parent.parent.parent
MODULE = "tracekit.replay.kernel"
MISSING = "tracekit was installed without its replay engine"
LEFT_OUT = f"There are no replays: {MISSING}"
# A module that is None cannot be imported, as if its file were not there.
WITHOUT = f"import sys; sys.modules['{MODULE}'] = None; from tracekit.__main__ import main; main()"


def run_without(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


@pytest.fixture(scope="module")
def folder(sample_source: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what `analyze` writes without the engine, and check that it ends well and says what is left out."""
    out = tmp_path_factory.mktemp("without") / "out"
    done = run_without("analyze", sample_source("slurm"), "-o", out)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if "there are no replays" in line]
    assert len(notes) == 1
    assert notes[0].startswith(f"note: {LEFT_OUT[0].lower()}{LEFT_OUT[1:]}")
    return out


@pytest.mark.thorough
def test_analyze_without_the_engine_says_why_there_are_no_replays(folder: Path) -> None:
    report = orjson.loads((folder / "report.json").read_bytes())
    assert report["replay"]["jobs"] == 0
    assert report["replay"]["reason"].startswith(LEFT_OUT)
    assert LEFT_OUT in (folder / "report.md").read_text()


@pytest.mark.thorough
def test_analyze_without_the_engine_answers_fits_and_judges_all_the_same(folder: Path) -> None:
    tables = {path.relative_to(folder / "tables").parts[0] for path in folder.glob("tables/*/*.csv")}
    assert tables == {"failures", "fit", "locality", "overview", "queuing", "users", "utilization", "workload"}
    assert orjson.loads((folder / "workload.json").read_bytes())["arrivals"]
    advice = (folder / "guidelines.md").read_text()
    assert "### Backfill with estimates" in advice
    assert f"Cannot tell: {LEFT_OUT[0].lower()}{LEFT_OUT[1:]}" in advice


SWEEP = 'traces = ["trace"]\npolicies = ["fifo"]\n'


@pytest.mark.parametrize(
    "command",
    [
        "replay trace -p fifo -o out",
        *(
            pytest.param(c, marks=pytest.mark.thorough)
            for c in ("calibrate trace --report out", "sweep sweep.toml -o out")
        ),
    ],
)
def test_a_replay_without_the_engine_ends_in_one_line_and_writes_nothing(
    command: str, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    (tmp_path / "trace").symlink_to(sample_trace("slurm").path)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    done = run_without(*command.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tracekit: error: {MISSING}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("out/**/*.json"))


def test_policies_are_listed_without_the_engine() -> None:
    assert "srtf" in run_without("policies").stdout


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which Python looks for its headers, beside an extension that is not there."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.setattr(sysconfig, "get_path", {"include": str(tmp_path)}.get)
    return tmp_path


@pytest.mark.usefixtures("headers")
def test_the_error_names_the_package_with_the_headers_where_these_are_missing(golden: Golden) -> None:
    package = f"python3.{sys.version_info.minor}-dev"
    with pytest.raises(EngineMissingError) as found:
        kernel()
    golden(str(found.value).replace(package, "python3.x-dev"))


def test_the_error_leads_to_the_compiler_where_the_headers_are_there(headers: Path) -> None:
    (headers / "Python.h").touch()
    with pytest.raises(EngineMissingError, match=r"engine; install .* -v, which shows why it cannot be compiled$"):
        kernel()


def test_an_extension_that_cannot_be_loaded_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracekit.replay

    (tmp_path / "kernel.py").write_text("raise ImportError('of another machine')")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setattr(tracekit.replay, "__path__", [str(tmp_path)])
    with pytest.raises(EngineMissingError, match=r"^the replay engine cannot be loaded: of another machine; install "):
        kernel()
