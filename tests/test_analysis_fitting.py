"""The fit of an analysis: beside the other steps where the Trace is large, with the same result."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.analysis.answering import Fitting
from tracekit.progress import Progress
from tracekit.settings import AnalysisSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


@pytest.fixture(autouse=True)
def few_queries() -> Iterator[None]:
    """Spare these tests most of the queries and all guidelines, which others look at."""
    with asking("overview/status", "overview/job_size", guidelines=()):
        yield


@pytest.fixture(scope="module")
def trace(make_trace: MakeTrace) -> Trace:
    jobs = [
        {
            "job_id": str(i),
            "submit_time": f"2020-03-{1 + i // 24:02} {i % 24:02}:00:00",
            "gpu_count": 1,
            "run_s": 10 + 7 * i,
            "status": "completed",
        }
        for i in range(240)
    ]
    return make_trace(jobs=jobs)


def _report(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {key: loaded[key] for key in ("workload", "unanswered", "sections")}


@pytest.mark.thorough
def test_a_process_of_its_own_gives_the_same_report(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    popen = subprocess.Popen

    def counted(*given: Any, **more: Any) -> Any:
        begun.append(given)
        return popen(*given, **more)

    monkeypatch.setattr("subprocess.Popen", counted)
    analyze(trace.path, tmp_path / "within", replay_jobs=0)
    assert begun == []
    monkeypatch.setattr("tracekit.analysis.answering.LARGE", 200)
    analyze(trace.path, tmp_path / "beside", replay_jobs=0)
    assert len(begun) == 1
    assert _report(tmp_path / "beside") == _report(tmp_path / "within")
    models = [(tmp_path / name / "workload.json").read_bytes() for name in ("within", "beside")]
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'note: so far so good' >&2; echo 'error: no space left, free some' >&2; exit 2",
            "no space left, free some",
        ),
        ("exit 3", "its process ended with status 3"),
        ("exit 0", "cannot be read: No such file or directory"),
    ],
)
def test_a_fit_that_fails_there_has_its_reason_in_the_report(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("tracekit.analysis.answering.LARGE", 200)
    monkeypatch.setattr(sys, "executable", str(program))
    done = analyze(trace.path, tmp_path / "out", replay_jobs=0)
    assert done.unanswered["fit/run_time"] == (f"The fit could not be made: {reason}.",)
    assert [fault.part for fault in done.faults] == ["the fit"]
    assert _report(done.folder)["workload"]["file"] is None
    assert not (done.folder / "workload.json").exists()


def test_the_process_ends_with_the_block(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("tracekit.analysis.answering.LARGE", 200)
    monkeypatch.setattr(sys, "executable", str(program))
    fitting = Fitting(trace, tmp_path, AnalysisSettings(), Progress())
    with fitting:
        process = fitting._process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None
