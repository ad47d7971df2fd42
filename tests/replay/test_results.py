"""The tables and files of a replay."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tracekit.replay.outcome import Timeline
from tracekit.replay.results.summary import summarize
from tracekit.replay.results.tables import jobs_table, summary_json, timeline_table, write_files

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

NIGHT = dt.datetime(2020, 1, 1)


def at(seconds: float) -> dt.datetime:
    return NIGHT + dt.timedelta(seconds=seconds)


def schedule() -> tuple[Jobs, Outcome]:
    """Return three jobs: a restarted one, one placed by count that never ended, and one that never ran."""
    jobs = make_jobs(
        [(0, 4, 100), (1.5, 1, 50), (2, 1, 50)], vc=["x", None, "y"], user=None, milli=[1000, 250, 1000], origin=NIGHT
    )
    outcome = make_outcome(
        jobs,
        [(20, 140), (30, 90), None],
        end_ms=[140_000, -1, -1],
        run_ms=[110_000, 60_000, 0],
        preemptions=[1, 0, 0],
        nodes_spanned=[2, 0, 0],
        timeline=Timeline(
            *(np.array(v, dtype=np.int64) for v in ([0, 20_000], [0, 1], [1, 2], [0, 4000], [8000, 4250], [0, 250]))
        ),
    )
    return jobs, outcome


def summary(jobs: Jobs, outcome: Outcome) -> dict[str, Any]:
    facts = {"policy": "fifo", "parameters": {}, "placement": "consolidate", "assumptions": []}
    return summarize(jobs, make_cluster((8,)), outcome, **facts)  # type: ignore[arg-type]  # facts are of mixed types


def test_the_table_of_jobs() -> None:
    expected = pl.DataFrame(
        {
            "job_id": ["j0", "j1", "j2"],
            "vc": ["x", None, "y"],
            "user": pl.Series([None, None, None], dtype=pl.String),
            "gpu_count": [4.0, 0.25, 1.0],
            "submit_time": [at(0), at(1.5), at(2)],
            "first_start_time": [at(20), at(30), None],
            "end_time": [at(140), None, None],
            "queue_s": [20.0, 28.5, None],
            "wait_s": [30.0, None, None],
            "run_s": [110.0, 60.0, None],
            "jct_s": [140.0, None, None],
            "preemptions": [1, 0, 0],
            "nodes_spanned": [2, None, None],
            "slowdown": [1.4, None, None],
        }
    )
    found = jobs_table(*schedule())
    assert found.schema == expected.schema
    assert found.equals(expected)


def test_the_table_of_the_timeline() -> None:
    assert timeline_table(*schedule()).rows(named=True) == [
        {
            "time": at(0),
            "running_jobs": 0,
            "pending_jobs": 1,
            "running_gpus": 0.0,
            "free_gpus": 8.0,
            "fragmented_gpus": 0.0,
        },
        {
            "time": at(20),
            "running_jobs": 1,
            "pending_jobs": 2,
            "running_gpus": 4.0,
            "free_gpus": 4.25,
            "fragmented_gpus": 0.25,
        },
    ]


def test_an_origin_with_a_zone_is_written_in_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    jobs = make_jobs([(60, 1, 5)], origin=dt.datetime(2020, 1, 1, 2, tzinfo=zone))
    assert jobs_table(jobs, make_outcome(jobs, [(60, 65)]))["submit_time"].to_list() == [at(60)]


def test_the_mean_of_the_column_is_the_figure_of_the_summary() -> None:
    jobs = make_jobs([(i, 1, 7 * i) for i in range(9)])
    outcome = make_outcome(jobs, [(3 * i, 10 * i) for i in range(9)])
    table, figures = jobs_table(jobs, outcome), summary(jobs, outcome)
    for column, key in (("slowdown", "avg_bounded_slowdown"), ("jct_s", "avg_jct_s"), ("queue_s", "avg_queue_s")):
        assert table[column].mean() == pytest.approx(figures[key])


def test_no_job_gives_empty_tables() -> None:
    jobs = make_jobs([])
    table = jobs_table(jobs, make_outcome(jobs, []))
    assert table.height == 0
    assert table.schema == jobs_table(*schedule()).schema
    assert summary(jobs, make_outcome(jobs, []))["by_vc"] == []


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    jobs, outcome = schedule()
    for name in ("one", "two"):
        write_files(tmp_path / name, jobs, outcome, summary(jobs, outcome))
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(
        ["one", "two", *(["summary.json", "jobs.parquet", "timeline.parquet"] * 2)]
    )
    for file in ("summary.json", "jobs.parquet", "timeline.parquet"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert pl.read_parquet(tmp_path / "one" / "jobs.parquet").equals(jobs_table(jobs, outcome))
    assert pl.read_parquet(tmp_path / "one" / "timeline.parquet").equals(timeline_table(jobs, outcome))
    written = json.loads((tmp_path / "one" / "summary.json").read_bytes())
    assert written["policy"] == "fifo"


def test_many_jobs_give_the_same_bytes(tmp_path: Path) -> None:
    jobs = make_jobs([(i, 1 + i % 7, i % 100) for i in range(150_000)], vc=["a", "b", None] * 50_000)
    outcome = make_outcome(jobs, [(i, i + 50) for i in range(150_000)])
    for name in ("one", "two"):
        write_files(tmp_path / name, jobs, outcome, {"policy": "x"})
    assert (tmp_path / "one" / "jobs.parquet").read_bytes() == (tmp_path / "two" / "jobs.parquet").read_bytes()


def test_json_keeps_the_order_and_has_no_nan() -> None:
    assert summary_json({"b": 1, "a": None}) == b'{\n  "b": 1,\n  "a": null\n}\n'
