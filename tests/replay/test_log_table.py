"""log.parquet: its columns by hand, and what an auditor who has nothing else finds in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.results.tables import log_table
from tracekit.replay.run_policies import engine_speed, run_policies
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def test_the_columns_of_two_jobs_by_hand() -> None:
    jobs = make_jobs([(0, 2, 10), (1, 1, 5)], job_id=["a", "b"])
    cluster = make_cluster([2], node_id=["host"])
    outcome = Scenario.make(jobs, cluster).run("srtf", log=True).outcome
    assert log_table(jobs, outcome, cluster).rows() == [
        # time_ms, kind, job_id, node, node_id, gpu, value
        (0, "submit", "a", None, None, None, 0),
        (0, "start", "a", None, None, None, 1_000_000),
        (0, "take", "a", 0, "host", None, 2000),
        (1000, "submit", "b", None, None, None, 0),
        (1000, "stop", "a", None, None, None, 0),
        (1000, "start", "b", None, None, None, 1_000_000),
        (1000, "take", "b", 0, "host", None, 1000),
        (6000, "finish", "b", None, None, None, 0),
        (6000, "start", "a", None, None, None, 1_000_000),
        (6000, "take", "a", 0, "host", None, 2000),
        (15_000, "finish", "a", None, None, None, 0),
    ]


def test_a_count_has_no_place_and_nodes_come_and_go() -> None:
    jobs, cluster = make_jobs([(0, 2, 10)], job_id=["a"]), make_cluster([2, 1], changes=[(3, 1, False)])
    table = log_table(jobs, Scenario.make(jobs, cluster).run("fifo,fit=count", log=True).outcome, cluster)
    assert table.filter(kind="take").rows() == [(0, "take", "a", None, None, None, 2000)]
    assert table.filter(kind="down").rows() == [(3000, "down", None, 1, cluster.node_id[1], None, 0)]


def rows_of(path: Path, jobs: Jobs, cluster: Cluster) -> Iterator[tuple[int, ...]]:
    """Give the rows of a file as the auditor reads them; names alone say which job and node it is."""
    places: dict[Any, int] = {name: place for place, name in enumerate(jobs.job_id)}
    nodes: dict[Any, int] = {name: place for place, name in enumerate(cluster.node_id)}
    for time, kind, job, _, node, gpu, value in pl.read_parquet(path).iter_rows():
        yield time, LOG_KINDS[kind], places.get(job, -1), nodes.get(node, -1), -1 if gpu is None else gpu, value


ON_GPUS = {
    "sjf-ffs": 2,
    "sjf-bsbf": 2,
    "hived": 1,
    **dict.fromkeys(("random", "dotproduct", "clustering", "packing", "bestfit", "fgd"), 1),
}
"""Policies that place on GPUs, and how many jobs may hold one at a time."""


@pytest.mark.parametrize("policy", ON_GPUS)
def test_nobody_holds_a_gpu_twice(policy: str, tmp_path: Path) -> None:
    rows = [(second // 2, (1, 2, 4, 8, 3)[second % 5], 7 + second % 13) for second in range(60)]
    jobs = make_jobs(rows, vc=["a" if second % 3 else "b" for second in range(60)])
    cluster = make_cluster([8, 8, 4], quota={"a": 12, "b": 8})
    run_policies(Scenario.make(jobs, cluster), [policy], tmp_path / "out", log=True)
    file = tmp_path / "out" / policy / "log.parquet"
    takes = pl.read_parquet(file).filter(kind="take")
    assert takes["gpu"].null_count() == 0
    assert len(takes) > 200
    gang = "rounded" if policy == "hived" else "exact"
    assert audit(jobs, cluster, rows_of(file, jobs, cluster), residents=ON_GPUS[policy], gang=gang) == []
    # The auditor does see it: every GPU moved to the first of its node is held by several.
    moved = ((*row[:4], min(row[4], 0), row[5]) for row in rows_of(file, jobs, cluster))
    assert audit(jobs, cluster, moved, residents=ON_GPUS[policy], gang=gang) != []


def test_buddy_names_the_gpus_of_its_blocks(tmp_path: Path) -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 3, 10), (0, 2, 10)]), make_cluster([8])
    run_policies(Scenario.make(jobs, cluster, placement="buddy"), ["fifo"], tmp_path / "out", log=True)
    takes = pl.read_parquet(tmp_path / "out" / "fifo" / "log.parquet").filter(kind="take")
    assert takes.group_by("job_id", maintain_order=True).agg("gpu")["gpu"].to_list() == [[0, 1], [4, 5, 6, 7], [2, 3]]


@pytest.mark.parametrize(
    ("jobs", "seconds", "words"),
    [(82_247, 0.5204, "0.52 s (158,000 jobs/s)"), (10, 12.34, "12.3 s (1 jobs/s)"), (3, 0.0, "0 s")],
)
def test_the_speed_of_the_engine_in_words(jobs: int, seconds: float, words: str) -> None:
    assert engine_speed(jobs, seconds) == words
