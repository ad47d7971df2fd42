"""Logs of many jobs: which trials get a reason."""

from __future__ import annotations

import datetime as dt
import gzip
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs import Classification, LogNames, classify_logs
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError: 1\n'
FINE = "step 1\nstep 2\n"


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Return a function that writes logs into a folder."""

    def write(files: dict[str, str]) -> Path:
        folder = tmp_path / "logs"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    return write


@pytest.fixture
def trace(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace with jobs of every status."""

    def job(name: str, status: str | None) -> dict[str, object]:
        return {
            "job_id": name, "submit_time": "2020-01-01 00:00", "start_time": "2020-01-01 00:01",
            "end_time": "2020-01-01 01:00", "status": status,
        }  # fmt: skip

    statuses = ("failed", "completed", "cancelled", "timeout", "preempted", None)
    jobs = [job(status or "unknown", status) for status in statuses] + [job("twice", "failed"), job("mute", "failed")]
    attempts = [
        {"job_id": "twice", "attempt": 0, "start_time": "2020-01-01 00:01", "end_time": "2020-01-01 00:30"},
        {"job_id": "twice", "attempt": 1, "start_time": "2020-01-01 00:40", "end_time": "2020-01-01 00:50"},
    ]
    return make_trace(jobs=jobs, attempts=attempts)


def reasons(found: Classification) -> dict[tuple[str, int | None], str]:
    return {(f.trial.job_id, f.trial.attempt): f.reason.name for f in found.failures}


def test_without_a_trace_the_log_tells_whether_the_job_failed(logs: Callable[[dict[str, str]], Path]) -> None:
    folder = logs(
        {"a.err": OOM, "b.err": FINE, "c.err": FINE + "fatal: something went wrong\n", "d.err": "", "e.err": TRACEBACK}
    )
    found = classify_logs([folder])
    assert reasons(found) == {
        ("a", None): "gpu_out_of_memory",
        ("c", None): "no_signature",
        ("e", None): "traceback_from_crash",
    }
    assert (found.logs, found.trials, found.without_sign) == (5, 5, 2)


def test_stdout_and_stderr_of_a_trial_have_one_reason(logs: Callable[[dict[str, str]], Path]) -> None:
    folder = logs({"7/stderr": TRACEBACK, "7/stdout": FINE + OOM, "8/1/stderr": OOM, "8/2/stderr": TRACEBACK})
    found = classify_logs([folder])
    assert reasons(found) == {
        ("7", None): "gpu_out_of_memory",
        ("8", 1): "gpu_out_of_memory",
        ("8", 2): "traceback_from_crash",
    }
    first = found.failures[0]
    assert (first.log_file, first.line) == ("logs/7/stdout", 3)
    assert [(c.reason.name, c.trials, c.jobs) for c in found.counts()] == [
        ("gpu_out_of_memory", 2, 2),
        ("traceback_from_crash", 1, 1),
    ]
    assert sum(c.share for c in found.counts()) == pytest.approx(1)


def test_with_a_trace_its_statuses_count(logs: Callable[[dict[str, str]], Path], trace: Trace) -> None:
    folder = logs(
        {
            "failed.err": FINE,
            "completed.err": OOM,
            "cancelled.err": OOM,
            "timeout.err": FINE,
            "preempted.err": OOM,
            "unknown.err": FINE,
            "stranger.err": OOM,
        }
    )
    found = classify_logs([folder], trace=trace)
    assert reasons(found) == {
        ("failed", None): "no_signature",
        ("timeout", None): "job_timeout",
        ("preempted", None): "gpu_out_of_memory",
    }
    signatures = {f.trial.job_id: f.signature for f in found.failures}
    assert signatures["failed"] is None
    assert signatures["timeout"] == "status timeout"
    assert (found.not_failed, found.unknown_logs, found.without_sign) == (2, 1, 1)
    assert found.failed_without_log == 2  # twice and mute


def test_attempts_of_a_trace(logs: Callable[[dict[str, str]], Path], trace: Trace) -> None:
    folder = logs({"twice_0.err": OOM, "twice.err": TRACEBACK, "twice_7.err": OOM})
    found = classify_logs([folder], trace=trace)
    # A log without a number is the last attempt's; there is no attempt 7.
    assert reasons(found) == {("twice", 0): "gpu_out_of_memory", ("twice", 1): "traceback_from_crash"}
    assert found.unknown_logs == 1
    ends = found.frame()["time"].to_list()
    assert [end.replace(tzinfo=None) for end in ends] == [
        dt.datetime(2020, 1, 1, 0, 30),
        dt.datetime(2020, 1, 1, 0, 50),
    ]


def test_a_pattern_names_the_jobs(logs: Callable[[dict[str, str]], Path], trace: Trace) -> None:
    folder = logs({"x/run-failed-0.txt": OOM, "x/other.txt": OOM})
    found = classify_logs([folder], trace=trace, names=LogNames(r"run-(?P<job_id>[a-z]+)"))
    assert reasons(found) == {("failed", None): "gpu_out_of_memory"}
    assert found.unknown_logs == 1


def test_damaged_and_binary_files_are_reported_and_the_rest_is_read(logs: Callable[[dict[str, str]], Path]) -> None:
    folder = logs({"a.err": OOM})
    (folder / "b.err.gz").write_bytes(gzip.compress(OOM.encode() * 1000)[:-20])
    (folder / "c.err").write_bytes(b"\0\1\2\3" * 3000)
    found = classify_logs([folder])
    assert reasons(found) == {("a", None): "gpu_out_of_memory"}
    assert len(found.damaged) == 1
    assert found.damaged[0].startswith("logs/b.err.gz: ")
    assert found.passed_over == {"files that are not text": 1}
    with pytest.raises(SourceError, match="cannot be read"):
        classify_logs([folder / "b.err.gz"])


def test_a_single_log_and_a_folder_may_be_given_together(logs: Callable[[dict[str, str]], Path]) -> None:
    folder = logs({"one/a.err": OOM, "two/b.err": TRACEBACK})
    found = classify_logs([folder / "one" / "a.err", folder / "two"])
    assert reasons(found) == {("a", None): "gpu_out_of_memory", ("b", None): "traceback_from_crash"}
