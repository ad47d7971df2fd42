"""Which jobs are exported, in which order, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError
from tracekit.export import selection
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]


def blox(path: Path) -> list[tuple[int, float, int, int]]:
    """Return number, arrival, iterations (whole seconds) and GPUs of each job."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return [(int(n), float(at), int(steps), int(gpus)) for n, _, at, steps, gpus in rows]


def test_work_is_the_sum_of_attempts_and_parts_of_a_gpu_become_whole(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "blox", seconds_per_iteration=1, sizes="any")
    assert blox(path) == [(0, 0.0, 100, 4), (1, 60.0, 75, 8), (2, 240.0, 12, 1)]
    assert done.jobs == 3
    assert done.log.jobs == 7
    assert list(done.log.left_out.values()) == [1, 1, 1, 1]
    golden([*done.log.left_out, *done.log.sentences])


def test_every_job_is_written_or_counted(small: Trace, run: Run) -> None:
    for target in ("swf", "batsim", "gavel", "tiresias", "helios", "alibaba-sim", "blox", "opendc", "accasim", "csv"):
        log = run(small, target)[1].log
        assert log.written + sum(log.left_out.values()) == log.jobs == 7, target


def test_parts_of_a_gpu_can_be_left_out(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "blox", fractions="leave-out", sizes="any")
    assert [row[0] for row in blox(path)] == [0, 1]
    golden(f"{jobs}: {why}" for why, jobs in done.log.left_out.items())


def test_order_is_submission_then_id_however_the_table_is_ordered(make_trace: Callable[..., Trace], run: Run) -> None:
    times = {"z": "2020-01-01 00:00:05", "b": "2020-01-01 00:00:05", "a": "2020-01-01 00:00:09", "c": "2020-01-01"}
    jobs = [{"job_id": i, "submit_time": t, "run_s": 10 + k, "gpu_count": 1} for k, (i, t) in enumerate(times.items())]
    path, _ = run(make_trace(jobs=jobs), "blox", seconds_per_iteration=1)
    assert blox(path) == [(0, 0.0, 13, 1), (1, 5.0, 11, 1), (2, 5.0, 10, 1), (3, 9.0, 12, 1)]


def test_work_falls_back_to_run_s_and_to_the_times(make_trace: Callable[..., Trace], run: Run) -> None:
    at = {"submit_time": "2020-01-01", "gpu_count": 1}
    jobs = [
        {"job_id": "a", "run_s": 30, **at},
        {"job_id": "b", "start_time": "2020-01-01 00:00:10", "end_time": "2020-01-01 00:00:50", **at},
        {"job_id": "c", "run_s": 100, **at},
    ]
    attempts = [{"job_id": "a", "attempt": 0}, {"job_id": "c", "attempt": 0, "run_s": 7}, {"job_id": "c", "attempt": 1}]
    path, _ = run(make_trace(jobs=jobs, attempts=attempts), "blox", seconds_per_iteration=1)
    assert [row[2] for row in blox(path)] == [30, 40, 7]


def test_impossible_run_times_and_sizes_are_left_out(make_trace: Callable[..., Trace], run: Run) -> None:
    at = {"submit_time": "2020-01-01"}
    jobs = [
        {"job_id": "good", "run_s": 5, "gpu_count": 1, **at},
        {"job_id": "backwards", "run_s": -5, "gpu_count": 1, **at},
        {"job_id": "endless", "run_s": 1e300, "gpu_count": 1, **at},
        {"job_id": "no number", "run_s": float("nan"), "gpu_count": 1, **at},
        {"job_id": "huge", "run_s": 5, "gpu_count": 1e30, **at},
        {"job_id": "nan", "run_s": 5, "gpu_count": float("nan"), **at},
        {"job_id": "undated", "run_s": 5, "gpu_count": 1},
    ]
    for target in ("blox", "tiresias", "gavel", "batsim", "opendc", "accasim", "alibaba-sim", "helios"):
        options = {"jobs": "gpu"} if target == "helios" else {}
        _, done = run(make_trace(jobs=jobs), target, **options)
        assert (done.jobs, sorted(done.log.left_out.values())) == (1, [1, 1, 1, 1, 2]), target


def test_blocks_do_not_show_in_the_files(small: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = ("swf", "batsim", "gavel", "tiresias", "helios", "alibaba-sim", "blox", "accasim", "csv")
    whole = {to: export(small, to, tmp_path / "whole" / f"{to}.csv").files for to in targets}
    monkeypatch.setattr(selection, "_BLOCK", 2)
    for to in targets:
        parts = export(small, to, tmp_path / "parts" / f"{to}.csv").files
        assert [p.read_bytes() for p in parts] == [p.read_bytes() for p in whole[to]], to


def test_a_trace_without_fitting_jobs_is_refused_in_one_line(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no job can be exported \(2: their request \(gpus\) is unknown\)"):
        export(make_trace(jobs=[{"job_id": i, "submit_time": "2020-01-01"} for i in "ab"]), "gavel", tmp_path / "o")
    with pytest.raises(UsageError, match="the Trace has no table jobs"):
        export(make_trace(nodes=[{"node_id": "n"}]), "gavel", tmp_path / "o")
    assert list(tmp_path.iterdir()) == []


def test_the_cluster_is_as_large_as_what_jobs_held_at_once(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    # 4 GPUs from 0 to 100 s and 8 from 50 to 60 s by the log; 6 from 55 s on without a recorded start.
    jobs = [
        {"job_id": "a", "submit_time": "2020-01-01", "start_time": "2020-01-01", "end_time": "2020-01-01 00:01:40",
         "gpu_count": 4},
        {"job_id": "b", "submit_time": "2020-01-01", "start_time": "2020-01-01 00:00:50",
         "end_time": "2020-01-01 00:01:00", "gpu_count": 8},
        {"job_id": "c", "submit_time": "2020-01-01 00:00:55", "run_s": 10, "gpu_count": 6},
        {"job_id": "d", "submit_time": "2020-01-01 00:01:40", "run_s": 10, "gpu_count": 17},
    ]  # fmt: skip
    trace = make_trace(jobs=jobs)
    path, done = run(trace, "tiresias")
    assert path.with_name("out.cluster.csv").read_text().splitlines()[1] == "1,3,8,64,256"
    golden(done.log.notes)
    path, _ = run(trace, "tiresias", nodes=5, gpus_per_node=4, nodes_per_switch=2)
    assert path.with_name("out.cluster.csv").read_text().splitlines()[1] == "3,2,4,64,256"


def test_the_cluster_is_that_of_the_machine_list(make_trace: Callable[..., Trace], run: Run, golden: Golden) -> None:
    nodes = [{"node_id": f"n{i}", "gpu_count": gpus} for i, gpus in enumerate((8, 8, 2, 0))]
    trace = make_trace(jobs=[{"job_id": "a", "submit_time": "2020-01-01", "run_s": 9, "gpu_count": 1}], nodes=nodes)
    path, done = run(trace, "tiresias")
    assert path.with_name("out.cluster.csv").read_text().splitlines()[1] == "1,3,8,64,256"
    golden(done.log.notes)


def test_numbers_that_are_none_are_unknown_and_counted(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    numbers = (float("nan"), float("inf"), 1e300, 3.0, None)
    jobs = [
        {"job_id": str(i), "submit_time": "2020-01-01", "run_s": 5, "gpu_count": 1, "cpu_count": n, "memory_gib": n,
         "time_limit_s": n}
        for i, n in enumerate(numbers)
    ]  # fmt: skip
    trace = make_trace(jobs=jobs)
    said = []
    for target in ("swf", "accasim", "batsim", "helios", "opendc", "alibaba-sim"):
        _, done = run(trace, target)
        assert done.jobs == 5, target
        said += [f"{target}: {note}" for note in done.log.notes if "3 jobs" in note]
    golden(said)


def test_too_little_memory_is_one_line(small: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--memory-limit: is not enough; give more, or leave it out"):
        export(small, "swf", tmp_path / "o.swf", memory_limit="1KB")
    assert list(tmp_path.iterdir()) == []
