"""Tiresias: its job trace and cluster specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.export.loaders import read_cluster, read_tiresias
from tracekit.errors import UsageError
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]


def test_jobs_and_cluster_are_read_back(small: Trace, run: Run) -> None:
    path, done = run(small, "tiresias", "small.csv", model="vgg19", iterations_per_second=2)
    rest = {"model_name": "vgg19"}
    assert read_tiresias(path) == [
        {"job_id": 0, "num_gpu": 4, "submit_time": 0, "iterations": 200, "duration": 100, "interval": 60, **rest},
        {"job_id": 1, "num_gpu": 8, "submit_time": 60, "iterations": 150, "duration": 75, "interval": 180, **rest},
        {"job_id": 2, "num_gpu": 1, "submit_time": 240, "iterations": 25, "duration": 12, "interval": 0, **rest},
    ]
    # 4 + 8 GPUs were held at once: two nodes of 8.
    assert read_cluster(path.with_name("small.cluster.csv")) == {
        "num_switch": 1,
        "num_node_p_switch": 2,
        "num_gpu_p_node": 8,
        "num_cpu_p_node": 64,
        "mem_p_node": 256,
    }
    assert [f.field for f in done.log.fills] == ["model_name", "iterations"]


def test_a_run_of_no_length_takes_a_second(make_trace: Callable[..., Trace], run: Run, golden: Golden) -> None:
    jobs = [
        {"job_id": "a", "submit_time": "2020-01-01 00:00:00.400", "run_s": 0.0, "gpu_count": 1},
        {"job_id": "b", "submit_time": "2020-01-01 00:00:02.600", "run_s": 1.5, "gpu_count": 1},
    ]
    path, done = run(make_trace(jobs=jobs), "tiresias")
    assert [(j["submit_time"], j["duration"], j["interval"]) for j in read_tiresias(path)] == [(0, 1, 3), (3, 2, 0)]
    golden(done.log.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "bert"}, "'bert' is not a valid value of the option model"),
        ({"nodes": "0"}, "--option nodes: '0' is not a whole number from 1"),
        ({"nodes": "-3"}, "--option nodes"),
        ({"cpus_per_node": ""}, "--option cpus_per_node: is empty"),
        ({"iterations_per_second": "nan"}, "--option iterations_per_second: 'nan' is not a number"),
    ],
)
def test_a_wrong_option_is_one_line(small: Trace, tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export(small, "tiresias", tmp_path / "o.csv", options=options)


def test_the_name_has_to_tell_the_delimiter(small: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'jobs\.txt' does not end in \.csv"):
        export(small, "tiresias", tmp_path / "jobs.txt")
    assert list(tmp_path.iterdir()) == []
