"""Philly's job log: JSON records to jobs, attempts and placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.derived import in_seconds
from tracekit.ingest.formats._philly_records import read_records
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.localtime import instants
from tracekit.ingest.prefetch import prefetch
from tracekit.ingest.record_times import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.formats._philly_records import PhillyRecords, Refusal
    from tracekit.ingest.json_array import JsonRun
    from tracekit.ingest.lost_cells import LostValues
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["CLUSTER", "TIMEZONE", "read_jobs"]

CLUSTER = "philly"
TIMEZONE = "America/Los_Angeles"

_STATUS = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
_ATTEMPT_BITS = 32
_TIME = "%Y-%m-%d %H:%M:%S"
_SUBMITTED = TimeColumns({"submitted": "submit_time"})
_RUN = TimeColumns({"start": "start_time", "end": "end_time"}, attempt="attempt")


def read_jobs(file: SourceFile, sink: Sink) -> None:
    """Read the job log; the records that cannot be used are set aside."""
    seen: set[str] = set()
    times = RecordTimes(sink, file.path)
    with sink.opened(file) as opened:
        # One thread finds the objects, another parses them.
        for run, records, refused, lost in prefetch(
            (r, *read_records(r, seen)) for r in json_runs(opened.stream, file.path)
        ):
            opened.count(len(run.texts) + len(run.bad))
            for stray in run.bad:
                opened.reject(stray.line, None, stray.reason, stray.raw)
            _write_jobs(records, refused, lost, run, opened, times, sink)


def _write_jobs(
    records: PhillyRecords,
    refused: list[Refusal],
    lost: dict[int, LostValues],
    run: JsonRun,
    opened: OpenedFile,
    times: RecordTimes,
    sink: Sink,
) -> None:
    job, attempt, detail = records
    bad: dict[int, tuple[str, str]] = {}
    job = _timed(job, ["submitted"], bad)
    attempt = _timed(attempt, ["start", "end"], bad)
    for row, column, reason in [*refused, *((row, *bad[row]) for row in sorted(bad))]:
        opened.reject(int(run.lines[row]), column, reason, run.texts[row])
    for row, values in lost.items():
        if row not in bad:
            values.count(sink)
    usable = ~pl.col("row").is_in(list(bad))
    job, attempt, detail = (frame.filter(usable) for frame in (job, attempt, detail))
    job = job.with_columns(line=pl.Series(run.lines[job["row"].to_numpy()], dtype=pl.Int64))
    job, attempt = _possible(job, attempt, times, sink)
    attempts = _attempts(job, attempt)
    jobs = _jobs(job, attempts)
    _count_contradictions(jobs, attempts, sink)
    sink.write("jobs", jobs)
    sink.write(
        "attempts",
        attempts.select(
            "job_id", "attempt", "start_time", "end_time", "run_s", "wait_s", "gpu_count", "node_count", "status"
        ),
    )
    sink.write("placements", _placements(detail, attempts))


def _timed(frame: pl.DataFrame, columns: list[str], bad: dict[int, tuple[str, str]]) -> pl.DataFrame:
    """Parse the columns as times; rows with unusable ones are added to `bad` with column and reason."""
    parsed = frame.with_columns(
        pl.col(c).str.to_datetime(_TIME, strict=False, time_unit="us", cache=False) for c in columns
    )
    shown = {"submitted": "submitted_time", "start": "start_time", "end": "end_time"}
    for column in columns:
        unread = frame[column].is_not_null() & parsed[column].is_null()
        lost = frame.filter(unread)
        for row, *number in lost.select("row", *(["attempt"] if "attempt" in lost.columns else [])).iter_rows():
            place = f"attempts[{number[0]}].{shown[column]}" if number else shown[column]
            bad.setdefault(row, (place, f"is not a time like {_TIME}"))
    return parsed


def _possible(
    job: pl.DataFrame, attempt: pl.DataFrame, times: RecordTimes, sink: Sink
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both frames with times in UTC, impossible ones NULL: the attempts of a job follow each other."""
    utc, doubled_hour = sink.options["times"] == "utc", sink.options["doubled_hour"]
    job = times.dated(job, _SUBMITTED)
    if utc:
        job = times.from_wall_clock(job, _SUBMITTED, TIMEZONE, doubled_hour)
    own = job[_places(job, attempt)]
    attempt = times.dated(attempt.with_columns(own["job_id"], own["line"]), _RUN)
    if utc:
        first = attempt.with_columns(instants(attempt[name], TIMEZONE).earliest for name in _RUN.columns)
        before = _latest_before(first, own["submitted"])
        attempt = times.from_wall_clock(attempt, _RUN, TIMEZONE, doubled_hour, before=before)
    return job, times.ordered(attempt, _RUN, _latest_before(attempt, own["submitted"])).drop("job_id", "line")


def _latest_before(attempt: pl.DataFrame, submitted: pl.Series) -> pl.Series:
    """Return the latest time in the record of a job before each of its attempts."""
    own = pl.max_horizontal("start", "end")
    previous = own.cum_max().forward_fill().shift(1).over("row")
    return attempt.select(pl.max_horizontal(previous, submitted)).to_series()


def _attempts(job: pl.DataFrame, attempt: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts of the usable jobs, with `row`; both frames are ordered by it."""
    own = job[_places(job, attempt)]
    # Attempts of a job follow each other, so that the row above holds the one before.
    previous = pl.when(pl.col("attempt") == 0).then("submitted").otherwise(pl.col("end").shift(1))
    last = pl.col("attempt") == pl.col("attempts") - 1
    return attempt.with_columns(own["job_id"], own["submitted"], own["attempts"], own["status"]).select(
        "row",
        "job_id",
        "attempt",
        start_time="start",
        end_time="end",
        run_s=in_seconds(pl.col("end") - pl.col("start")),
        wait_s=in_seconds(pl.col("start") - previous),
        gpu_count="gpus",
        node_count="nodes",
        status=pl.when(last & pl.col("status").is_not_null()).then(_status(pl.col("status"))),
    )


def _places(jobs: pl.DataFrame, others: pl.DataFrame) -> NDArray[np.intp]:
    """Return the index in `jobs` of the job of each row of `others`; both are ordered by `row`."""
    return np.searchsorted(jobs["row"].to_numpy(), others["row"].to_numpy())


def _jobs(job: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    ends = attempts.group_by("row").agg(
        start_time=pl.col("start_time").sort_by("attempt").first(),
        end_time=pl.col("end_time").sort_by("attempt").last(),
        gpu_count=pl.col("gpu_count").sort_by("attempt").first(),
        node_count=pl.col("node_count").sort_by("attempt").first(),
    )
    return job.join(ends, on="row", how="left", maintain_order="left").select(
        "job_id",
        cluster=pl.lit(CLUSTER),
        vc="vc",
        user="user",
        status=pl.when(pl.col("status").is_not_null()).then(_status(pl.col("status"))),
        source_status="status",
        submit_time="submitted",
        start_time="start_time",
        end_time="end_time",
        queue_s=in_seconds(pl.col("start_time") - pl.col("submitted")),
        run_s=in_seconds(pl.col("end_time") - pl.col("start_time")),
        gpu_count="gpu_count",
        node_count="node_count",
        attempt_count="attempts",
    )


def _placements(detail: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Return what the attempts held; both frames are ordered by row and attempt."""
    key = attempts["row"].to_numpy() << _ATTEMPT_BITS | attempts["attempt"].to_numpy()
    place = np.searchsorted(key, detail["row"].to_numpy() << _ATTEMPT_BITS | detail["attempt"].to_numpy())
    own = attempts[place]
    return detail.select(
        "node_id", "gpu_index", own["job_id"], own["attempt"], own["start_time"], own["end_time"]
    ).select(
        "job_id",
        "attempt",
        "node_id",
        "gpu_index",
        "start_time",
        "end_time",
        gpu_count=pl.col("gpu_index").list.len().cast(pl.Float64),
    )


def _status(source: pl.Expr) -> pl.Expr:
    return source.replace_strict(_STATUS, default="unknown", return_dtype=pl.String)


def _count_contradictions(jobs: pl.DataFrame, attempts: pl.DataFrame, sink: Sink) -> None:
    ended = jobs["status"].is_in(["completed", "cancelled", "failed"])
    for name, found, meaning in (
        (
            "ended_status_without_end",
            ended & (jobs["attempt_count"] > 0) & jobs["end_time"].is_null(),
            "jobs with a final status whose last attempt has no end; the status stands, the end is unknown",
        ),
        (
            "unknown_status_word",
            jobs["status"] == "unknown",
            "records whose status word is not in the format's description; their status is 'unknown'",
        ),
        (
            "jobs_without_attempts",
            jobs["attempt_count"] == 0,
            "jobs that never got resources by the log; they count in statuses and in no time or size",
        ),
    ):
        sink.check_rows(name, found, meaning, jobs["job_id"])
    for side in ("start", "end"):
        meaning = f"attempts whose {side} is unknown; times that need it are unknown too"
        sink.check_rows(f"attempts_without_{side}", attempts[f"{side}_time"].is_null(), meaning, attempts["job_id"])
    known = attempts.drop_nulls("gpu_count")
    sizes = known.group_by("job_id").agg(n=pl.col("gpu_count").n_unique()).sort("job_id")
    sink.check_rows(
        "size_changes_between_attempts",
        sizes["n"] > 1,
        "jobs whose attempts hold different numbers of GPUs; the first attempt's number is the job's",
        sizes["job_id"],
    )
