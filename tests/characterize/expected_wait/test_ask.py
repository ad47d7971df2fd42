"""One question about a wait, from Python and from the command line."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.command import run
from tracekit.errors import QueryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def history(make_trace: Callable[..., Trace]) -> Trace:
    """Return 45 jobs, ten minutes apart: 24 of partition a that wait 10 s, 20 s, ... 240 s, 20 of b, one of c."""
    jobs: list[dict[str, Any]] = []
    for i in range(45):
        wait = 10 * (i + 1) if i < 24 else 0
        hour, minute = divmod(10 * i, 60)
        at = f"2024-01-01T{hour:02}:{minute:02}"
        jobs.append(
            {
                "job_id": f"{i:02}",
                "submit_time": f"{at}:00",
                "start_time": f"2024-01-01T{hour:02}:{minute + wait // 60:02}:{wait % 60:02}",
                "end_time": f"2024-01-01T{hour:02}:{minute + 5:02}:00",
                "gpu_count": 1,
                "partition": "a" if i < 24 else "b" if i < 44 else "c",
                "gpu_model": "A100",
                "status": "completed",
            }
        )
    return make_trace(jobs=jobs)


def test_quantiles_by_hand(history: Trace) -> None:
    found = tracekit.expected_wait(history, 1, partition="a")
    # Nobody ever waited ahead of these jobs, so all states are equal, and the latest 20 count.
    assert (found.jobs, found.waiting, found.given_up) == (20, 0, ())
    assert found.at_once_share == 0
    low = found.low_s
    assert low is not None
    # The waits are 50, 60, ..., 240, so that a share p from 1/21 on lies at 40 + 210 p. Each was longer than all before
    # it: the upper end has learned to lie at the share 1, beyond the longest, and the quantiles move with the ends. The
    # lower end has learned from the jobs of b, which started at once, and lies between 0 and the first wait.
    share = low / 50 / 21
    assert found.quantiles_s == pytest.approx(
        {
            0.1: low,
            **{p: 40 + 210 * (share + (1 - share) * (p - 0.1) / 0.8) for p in (0.25, 0.5, 0.75)},
            0.9: 240,
        }
    )
    assert (found.high_s, low < 50) == (240, True)


def test_quantiles_agree_with_an_interval_that_begins_at_zero(make_trace: Callable[..., Trace]) -> None:
    """Half of the jobs start at once, the others wait longer and longer."""
    jobs = [
        {
            "job_id": f"{i:03}",
            "submit_time": f"2024-01-{1 + i // 24:02}T{i % 24:02}:00:00",
            "start_time": f"2024-01-{1 + i // 24:02}T{i % 24:02}:{i // 4 if i % 2 else 0:02}:00",
            "end_time": f"2024-01-{1 + i // 24:02}T{i % 24:02}:59:00",
            "gpu_count": 1,
            "status": "completed",
        }
        for i in range(200)
    ]
    found = tracekit.expected_wait(make_trace(jobs=jobs), 1)
    told = [value for value in found.quantiles_s.values() if value is not None]
    assert found.low_s == 0
    assert told == sorted(told)
    assert found.high_s is not None
    assert told[3] <= found.high_s <= told[4]  # 75 %, 80 %, 90 %


def test_partition_with_too_few_is_given_up(history: Trace) -> None:
    found = tracekit.expected_wait(history, 1, partition="c", gpu_model="a100")
    assert found.given_up == ("number of GPUs", "GPU model", "partition or VC")
    assert found.same == ("size class",)
    assert found.jobs == 22  # half of 45


def test_interval_is_a_point_where_all_start_at_once(history: Trace, golden: Golden) -> None:
    found = tracekit.expected_wait(history, 1, partition="b")
    assert (found.low_s, found.high_s, found.at_once_share) == (0, 0, 1)
    golden(found.sentences())


def test_too_few_like_it(history: Trace, golden: Golden) -> None:
    found = tracekit.expected_wait(history, 16)
    assert not found.enough
    assert (found.low_s, found.high_s, found.jobs) == (None, None, 0)
    golden(found.sentences())


def test_job_still_waiting_is_at_least_so_long(make_trace: Callable[..., Trace], golden: Golden) -> None:
    def jobs(last: dict[str, Any]) -> Trace:
        some = [
            {
                "job_id": f"{i:02}",
                "submit_time": f"2024-01-01T{i:02}:00:00",
                "start_time": f"2024-01-01T{i:02}:01:00",
                "end_time": f"2024-01-01T{i:02}:02:00",
                "gpu_count": 1,
            }
            for i in range(20)
        ]
        pending = [
            {"job_id": f"p{i}", "submit_time": f"2024-01-01T20:0{i}:00", "gpu_count": 1, "status": "pending"}
            for i in range(5)
        ]
        return make_trace(jobs=[*some, *pending, last])

    end = {"job_id": "z", "submit_time": "2024-01-02T00:00:00", "gpu_count": 1, "status": "pending"}
    found = tracekit.expected_wait(jobs(end), 1)
    # Of the 26 jobs, the 20 that met the most similar queue: the six that wait, and the latest 14 that started.
    assert (found.ahead_jobs, found.ahead_gpus, found.jobs, found.waiting) == (6, 6, 20, 6)
    # One GPU was in use at most, and without limits a job counts for an hour: 6 h of work are ahead. The jobs that
    # started met none, so their minute counts (6 h + 10 min) / 10 min = 37 times. The last job has waited for 0 s,
    # which leaves 19: 14 of these have started. The place of 70 % of 21 is 14.7, and 20 * 14 / 19 is 14.74.
    assert found.quantiles_s[0.25] == pytest.approx(60 * 37)
    assert found.quantiles_s[0.75] is None
    assert found.high_s is None
    golden(found.sentences())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": 1, "partition": "aa"}, "no job has the partition or VC 'aa'; did you mean 'a'?"),
        ({"gpus": 1, "gpu_model": "H100"}, "no job has the GPU model 'H100'"),
        ({}, "is missing, but the log records the GPUs of jobs"),
        ({"gpus": -1}, "-1 is not a number of GPUs"),
        ({"gpus": 1, "level": 1.0}, "1 is not a share of the jobs"),
        ({"gpus": 1, "time_limit_s": 0}, "0 s is not a time limit"),
    ],
)
def test_mistakes_are_reported(history: Trace, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        tracekit.expected_wait(history, **options)


def test_several_clusters_need_a_name(sample_trace: Callable[[str], Trace]) -> None:
    with pytest.raises(UsageError, match="several clusters; name one of: Earth, Venus"):
        tracekit.expected_wait(sample_trace("helios"), 1)
    assert tracekit.expected_wait(sample_trace("helios"), 1, cluster="earth").enough


def test_log_without_waits(sample_trace: Callable[[str], Trace]) -> None:
    with pytest.raises(QueryError, match="does not record how long jobs waited"):
        tracekit.expected_wait(sample_trace("alibaba-spot"), 1)


def test_command_prints_the_same_row(history: Trace, golden: Golden) -> None:
    options = ("wait", history.path, "--gpus", "1", "--partition", "a", "--time-limit", "8h")
    row = tracekit.expected_wait(history, 1, partition="a", time_limit_s=28800).row()
    assert json.loads(run(*options, "-f", "json").stdout) == row
    (told,) = csv.DictReader(io.StringIO(run(*options, "-f", "csv").stdout))
    assert float(told["p50_s"]) == pytest.approx(row["p50_s"])
    assert told["given_up"] == row["given_up"] == "time limit class"
    shown = run(*options)
    assert shown.returncode == 0
    assert re.findall(r"(?m)^ *(\d+ ?%) {2}", shown.stdout) == [f"{p} %" for p in (80, 10, 25, 50, 75, 90)]
    golden(line for line in shown.stdout.splitlines() if line.endswith("."))


@pytest.mark.parametrize("limit", ["8 parsecs", "-1h", "1e9h", ""])
def test_time_limits_that_are_none(history: Trace, limit: str) -> None:
    told = run("wait", history.path, "--gpus", "1", "--time-limit", limit)
    assert told.returncode == 2
    assert "is not a time; write it like 30min, 8h or 2d" in told.stderr


def test_command_reads_a_queue(history: Trace, tmp_path: Path, golden: Golden) -> None:
    now = 1_704_096_000  # 2024-01-01 08:00, half an hour after the end of the history
    job = {"partition": "a", "node_count": 1, "submit_time": now - 60, "time_limit": 60, "state_reason": "Priority"}
    waiting = [{**job, "job_state": ["PENDING"], "tres_req_str": f"cpu=1,gres/gpu={gpus}"} for gpus in (1, 2, 5)]
    queue = tmp_path / "queue.json"
    queue.write_text(json.dumps({"jobs": waiting, "last_update": now}))
    shown = run("wait", history.path, "--gpus", "1", "--partition", "a", "--queue", queue, "-f", "json")
    row = json.loads(shown.stdout)
    assert (row["ahead_jobs"], row["ahead_gpus"], row["asked"]) == (3, 8, "2024-01-01T08:00:00Z")
    assert row["extrapolated"]
    # The log records no limits, so GPU-hours are unknown, and no nodes, so free GPUs are.
    assert (row["ahead_gpu_hours"], row["free_gpus"], row["fits"]) == (None, None, None)
    told = run("wait", history.path, "--gpus", "1", "--partition", "a", "--queue", queue).stdout
    golden(line for line in told.splitlines() if line.endswith("."))


def test_command_rejects_another_file(history: Trace, tmp_path: Path) -> None:
    queue = tmp_path / "queue.json"
    queue.write_text("JOBID PARTITION NAME")
    told = run("wait", history.path, "--gpus", "1", "--queue", queue)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "is not JSON" in told.stderr
