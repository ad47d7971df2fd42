"""Times that contradict each other between records: the later one of a job is unknown."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest.sink import Sink
from tracekit.ingest.time_order import order_table_times
from tracekit.progress import Progress
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace


def test_the_start_of_a_run_that_overlaps_the_one_before_is_unknown(
    ingest: Callable[..., Trace], rows: Callable[[Trace, str], list[dict[str, Any]]]
) -> None:
    # Both runs of job 1 are whole by themselves, but the second starts before the first one ended.
    header = "JobID|Submit|Start|End|State|NodeList|AllocTRES\n"
    day = "2024-03-04T0"
    first = f"1|{day}0:00:00|{day}1:00:00|{day}3:00:00|NODE_FAIL|n1|gres/gpu=1\n"
    second = f"1|{day}0:00:01|{day}2:00:00|{day}4:00:00|COMPLETED|n1|gres/gpu=1\n"
    trace = ingest({"sacct.txt": header + first + second})
    found = [(a["attempt"], a.get("start_time"), a.get("end_time"), a.get("run_s")) for a in rows(trace, "attempts")]
    assert found == [
        (0, "2024-03-04 01:00:00", "2024-03-04 03:00:00", 7200.0),
        (1, None, "2024-03-04 04:00:00", None),
    ]
    (job,) = rows(trace, "jobs")
    assert (job["start_time"], job["end_time"]) == ("2024-03-04 01:00:00", "2024-03-04 04:00:00")
    (listed,) = rows(trace, "doubtful_times")
    assert listed == {
        "job_id": "slurm/1",
        "attempt": 1,
        "column": "start_time",
        "value": "2024-03-04 02:00:00",
        "reason": "is before an earlier time of its job",
    }
    assert trace.manifest.checks["starts_before_queued"].count == 1
    held = [(p["attempt"], p.get("start_time")) for p in rows(trace, "placements")]
    assert held == [(0, "2024-03-04 01:00:00"), (1, None)]


def test_a_first_attempt_before_the_submission_is_found_without_its_wait(tmp_path: Path) -> None:
    # No reader writes this: the start of the job is unknown, and so is the wait of its attempt.
    day = dt.datetime(2024, 3, 4)
    hours = [day + dt.timedelta(hours=h) for h in range(3)]
    with TraceWriter(tmp_path / "trace") as writer:
        sink = Sink(writer, {}, Progress())
        sink.write("jobs", pl.DataFrame({"job_id": ["a", "b"], "submit_time": [hours[1], hours[0]]}))
        sink.write(
            "attempts",
            pl.DataFrame({"job_id": ["a", "b"], "attempt": [0, 0], "start_time": [hours[0], hours[1]]}),
        )
        writer.drain()
        order_table_times(sink)
        attempts = pl.read_parquet(writer.folder / "attempts.parquet")
        listed = pl.read_parquet(writer.folder / "doubtful_times.parquet")
    assert attempts.select("job_id", "start_time").rows() == [("a", None), ("b", hours[1])]
    assert listed.select("job_id", "column", "value").rows() == [("a", "start_time", "2024-03-04 00:00:00")]
    assert sink.checks["starts_before_queued"].count == 1
