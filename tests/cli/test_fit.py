"""`tracekit fit` and `tracekit generate` as a user meets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_commands import assert_one_line
from tests.command import run
from tests.philly_by_hand import jobs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def trace(sample_trace: Callable[[str], Trace]) -> Path:
    return sample_trace("philly").path


@pytest.fixture(scope="module")
def model(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Return a model of the Trace, which no test may change, and what the command said as it made it."""
    path = tmp_path_factory.mktemp("model") / "w.json"
    return path, run("fit", trace, "-o", path, "--bootstrap", "9", "--scores", "0")


@pytest.mark.thorough
def test_fit_generate_fit(model: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    path, fitted = model
    assert fitted.returncode == 0, fitted.stderr
    for word in ("all jobs", "1 GPU, completed", "lognorm", "least AIC", "arrivals: ", "as gpu_class"):
        assert word in fitted.stdout
    # A run that began and has no end yet is known to be longer than what it had at the end of the log.
    unknown = sum(not job.attempts or job.attempts[0].start is None for job in jobs())
    assert f"note: {unknown} jobs without a known run time are excluded from the run time fits" in fitted.stderr
    assert json.loads(path.read_text())["version"] == 1
    made = run("generate", path, "--jobs", "300", "--seed", "2", "-o", tmp_path / "t")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"Trace: {tmp_path / 't'} (300 jobs, ")
    assert run("validate", tmp_path / "t").returncode == 0
    again = ("fit", tmp_path / "t", "-o", tmp_path / "again.json", "--bootstrap", "0", "--scores", "0")
    assert run(*again).returncode == 0


@pytest.mark.thorough
def test_generators_are_judged_where_nothing_else_is_asked(trace: Path, tmp_path: Path) -> None:
    done = run("fit", trace, "-o", tmp_path / "w.json", "--bootstrap", "0")
    assert done.returncode == 0, done.stderr
    assert "nearest to the log: " in done.stdout
    assert "5 draws each" in done.stdout


@pytest.mark.thorough
def test_pictures_of_a_model(model: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    path, _ = model
    done = run("fit", path, "--plots", tmp_path / "pictures", "--png")
    assert done.returncode == 0, done.stderr
    names = sorted(p.name for p in (tmp_path / "pictures").iterdir())
    assert names[:2] == ["arrivals.png", "arrivals.svg"]
    assert "run_time_all.svg" in names
    assert "run_time_class_2-4.svg" in names
    assert "note: no plot of 12 groups by status with fewer than 200 jobs" in done.stderr
    assert (tmp_path / "pictures" / "arrivals.png").read_bytes().startswith(b"\x89PNG")
    assert_one_line(run("fit", path, "--plots", tmp_path / "pictures"), "exists already")


def test_mistakes_are_one_line(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"format": "tracekit-workload", "version": 0}')
    assert_one_line(run("generate", tmp_path / "old.json", "--jobs", "5", "-o", tmp_path / "t"), "has version 0")
    assert_one_line(run("generate", tmp_path / "absent", "--jobs", "5", "-o", tmp_path / "t"), "cannot be read")
    assert_one_line(run("fit", tmp_path / "absent", "-o", tmp_path / "w.json"), "no such Trace")
    assert_one_line(run("fit", trace, "-o", trace, "--bootstrap", "0"), "is a folder")
    assert_one_line(run("fit", trace), "no output is given; give -o FILE, --plots OUT or both")
    assert_one_line(
        run("fit", trace, "-o", tmp_path / "w.json", "--png"), "--png: works only with --plots; add --plots OUT"
    )
    assert_one_line(run("fit", "w.json", "-o", tmp_path / "w.json"), "-o: cannot be combined with a fitted model")
