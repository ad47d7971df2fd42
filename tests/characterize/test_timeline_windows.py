"""The timeline of a window of time is that of the whole where every job that is alive in it is among its rows."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tracekit.characterize import answer_query
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

COLUMNS = ("running_jobs", "pending_jobs", "running_gpus", "pending_gpus")
KEYS = ["time", "cluster", "vc"]
SQL = f"SELECT time, cluster, vc, {', '.join(COLUMNS)} FROM gpu_timeline ORDER BY time, cluster, vc"


def timeline(trace: Trace, folder: Path) -> pl.DataFrame:
    file = folder / "timeline.sql"
    file.write_text(SQL, encoding="utf-8")
    return answer_query(trace, file, {"step_s": 3600}).frame


def cut(trace: Trace, folder: Path, begin: dt.datetime, end: dt.datetime, *, carried: bool) -> Trace:
    """Write the part of a Trace of a window: jobs that overlap it, or without carried state are submitted in it."""
    jobs = trace.scan("jobs").collect()
    ends = pl.coalesce("end_time", pl.lit(dt.datetime.max.replace(microsecond=0)))
    since = pl.col("submit_time") >= begin if not carried else ends > begin
    jobs = jobs.filter(since & (pl.col("submit_time") < end))
    with TraceWriter(folder) as writer:
        for table in trace.tables:
            rows = trace.scan(table).collect()
            if "job_id" in rows.columns:
                rows = rows.join(jobs.select("job_id"), on="job_id", how="semi")
            writer.write(table, rows)
        writer.drain()
        manifest = trace.manifest
        manifest = type(manifest)(**{**manifest.__dict__, "tables": writer.tables()})
        return writer.commit(manifest)


@pytest.mark.parametrize("name", ["helios", "philly"])
def test_jobs_alive_at_its_begin_make_it_exact(name: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    whole = sample_trace(name)
    all_steps = timeline(whole, tmp_path)
    times = all_steps["time"].unique().sort()
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    inside = all_steps.filter((pl.col("time") >= begin) & (pl.col("time") < end))
    # The window shall have state to carry, or the test shows nothing.
    assert inside.filter(pl.col("time") == begin).select(COLUMNS).sum().sum_horizontal().item() > 0
    for carried in (True, False):
        part = timeline(cut(whole, tmp_path / f"cut-{carried}", begin, end, carried=carried), tmp_path)
        # A VC without a job in the window has no row in its part, and nothing runs or waits in it.
        found = inside.select(KEYS).join(part, on=KEYS, how="left", nulls_equal=True).fill_null(0.0).sort(KEYS)
        expected = inside.sort(KEYS)
        if carried:
            assert_frame_equal(found.select(COLUMNS), expected.select(COLUMNS), abs_tol=1e-9)
        else:
            assert not found.select(COLUMNS).equals(expected.select(COLUMNS))
