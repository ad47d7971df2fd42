"""SWF and AccaSim: the lines, the header, and what a reader written from the format's definition makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]

FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "asked_processors", "asked_time", "asked_memory",
    "status", "user", "group", "executable", "queue", "partition", "before", "think",
)  # fmt: skip


def read_swf(path: Path) -> tuple[list[tuple[str, str]], list[dict[str, int]]]:
    """Read a log as the definition of version 2.2 says: a header of comments, then lines of 18 whole numbers."""
    header: list[tuple[str, str]] = []
    jobs: list[dict[str, int]] = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith(";"):
            assert not jobs, "comments stand before the first job"
            key, _, value = line[1:].partition(":")
            header.append((key.strip(), value.strip()))
        else:
            numbers = [int(word) for word in line.split(" ")]
            assert len(numbers) == 18
            jobs.append(dict(zip(FIELDS, numbers, strict=True)))
    submits = [job["submit"] for job in jobs]
    assert submits == sorted(submits)
    assert len({job["job"] for job in jobs}) == len(jobs)
    assert all(value >= -1 for job in jobs for value in job.values())
    assert all(job["status"] in (-1, 0, 1, 5) for job in jobs)
    return header, jobs


def known(job: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in job.items() if value != -1}


def test_each_job_becomes_one_line(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "swf", "small.swf")
    header, jobs = read_swf(path)
    # Users ann 1, bob 2, cat 3; VCs blue 1, red 2.
    assert [known(job) for job in jobs] == [
        {"job": 1, "submit": 0, "wait": 30, "run": 100, "processors": 4, "asked_processors": 4, "asked_time": 3600,
         "asked_memory": 16 * 1024**2, "status": 1, "user": 1, "queue": 2, "partition": 1},
        {"job": 2, "submit": 60, "wait": 0, "run": 100, "processors": 8, "asked_processors": 8, "status": 0, "user": 2,
         "queue": 1, "partition": 1},
        {"job": 3, "submit": 120, "wait": 20, "run": 0, "asked_processors": 1, "status": 5, "user": 3, "queue": 2,
         "partition": 1},
        {"job": 4, "submit": 180, "wait": 5, "processors": 1, "asked_processors": 1, "user": 1, "queue": 2,
         "partition": 1},
        {"job": 5, "submit": 240, "wait": 1, "run": 12, "processors": 1, "asked_processors": 1, "status": 0, "queue": 2,
         "partition": 1},
        {"job": 6, "submit": 240, "user": 1, "queue": 2, "partition": 1},
    ]  # fmt: skip
    assert header == [
        ("Version", "2.2"),
        ("Computer", "Earth"),
        ("Conversion", "tracekit"),
        ("MaxJobs", "6"),
        ("MaxRecords", "6"),
        ("UnixStartTime", "1585785600"),
        ("TimeZoneString", "UTC"),
        ("StartTime", "Thu Apr 02 00:00:00 UTC 2020"),
        ("MaxProcs", "12"),
        ("MaxQueues", "2"),
        ("Queue", "1 blue"),
        ("Queue", "2 red"),
        ("MaxPartitions", "1"),
        ("Partition", "1 Earth"),
        ("Note", "a processor is a GPU"),
        ("Note", "MaxProcs is the largest number of processors that jobs used at once"),
    ]
    assert list(done.log.left_out.values()) == [1]
    golden([*done.log.left_out, *done.log.notes])


def test_run_times_may_leave_out_the_gaps_between_attempts(small: Trace, run: Run) -> None:
    _, jobs = read_swf(run(small, "swf", run_time="attempts")[0])
    assert [job["run"] for job in jobs][:2] == [100, 75]


def test_processors_may_be_cpu_cores(small: Trace, run: Run) -> None:
    _, jobs = read_swf(run(small, "swf", processors="cpus", incomplete="leave-out")[0])
    assert [(job["submit"], job["processors"]) for job in jobs] == [(0, 16), (70, 2)]


def test_exact_times_and_parts_are_decimals(small: Trace, run: Run) -> None:
    path, _ = run(small, "swf", seconds="exact", fractions="keep")
    words = path.read_text().splitlines()[-2].split()
    assert words[:8] == ["5", "240", "1", "12.4", "0.5", "-1", "-1", "0.5"]


def test_numbers_that_are_numbers_already_are_kept(make_trace: Callable[..., Trace], run: Run) -> None:
    at = {"gpu_count": 1, "status": "completed"}
    jobs = [
        {"job_id": "70", "submit_time": "2020-01-01", "user": "12", "vc": "0", **at},
        {"job_id": "8", "submit_time": "2020-01-01 00:00:01", "user": "3", "vc": "4", **at},
    ]
    header, lines = read_swf(run(make_trace(jobs=jobs), "swf")[0])
    assert [(job["job"], job["user"], job["queue"]) for job in lines] == [(70, 12, 0), (8, 3, 4)]
    assert ("MaxQueues", "2") in header
    assert not [value for key, value in header if key == "Queue"]


@pytest.mark.parametrize("base", ["relative", "shifted"])
def test_a_trace_without_real_dates_says_so(make_trace: Callable[..., Trace], run: Run, base: str) -> None:
    jobs = [{"job_id": "1", "submit_time": "1970-01-01 00:00:50", "gpu_count": 1}]
    header, lines = read_swf(run(make_trace(jobs=jobs, manifest_overrides={"time_base": base}), "swf")[0])
    if base == "relative":
        assert lines[0]["submit"] == 50
        assert "UnixStartTime" not in dict(header)
    else:
        assert (lines[0]["submit"], dict(header)["UnixStartTime"]) == (0, "50")
        assert ("Note", "dates are shifted, so only hours and weekdays are real") in header


def test_hostile_names_stay_inside_their_comment(make_trace: Callable[..., Trace], run: Run) -> None:
    name = "x\n1 0 0 0 9 -1 -1 9 -1 -1 1 1 1 -1 1 1 -1 -1\r; Version: 9\x1b[31m\u2028" + "y" * 9000
    jobs = [{"job_id": name, "submit_time": "2020-01-01", "gpu_count": 1, "vc": name, "cluster": name, "user": name}]
    path, _ = run(make_trace(jobs=jobs), "swf")
    header, lines = read_swf(path)
    assert len(lines) == 1
    assert [value for key, value in header if key == "Version"] == ["2.2"]
    assert path.read_text().isprintable() is False  # line breaks
    assert all(line.isprintable() and len(line) < 300 for line in path.read_text().split("\n"))


def test_accasim_gets_no_unknown_numbers_and_its_system(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "accasim", "small.swf", nodes=3, gpus_per_node=4, node_memory_gib=1)
    _, jobs = read_swf(path)
    needed = ("submit", "run", "asked_processors", "asked_time", "asked_memory")
    assert [tuple(job[name] for name in needed) for job in jobs] == [
        (0, 100, 4, 3600, 16 * 1024**2),
        (60, 75, 8, 75, 0),
        (240, 12, 1, 12, 0),
    ]
    assert json.loads(path.with_name("small.config").read_text()) == {
        "system_name": "tracekit",
        "equivalence": {"processor": {"core": 1}},
        "groups": {"g0": {"core": 4, "mem": 1024**2}},
        "resources": {"g0": 3},
    }
    golden(fill.sentence for fill in done.log.fills)
    path, _ = run(small, "accasim", "other.swf", requested_time="-1")
    assert [job["asked_time"] for job in read_swf(path)[1]] == [3600, -1, -1]
