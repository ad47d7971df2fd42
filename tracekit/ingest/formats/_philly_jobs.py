"""Philly's job log: JSON records to jobs, attempts and placements."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest.cells import FIRST_TIME, LAST_TIME
from tracekit.ingest.json_array import json_objects
from tracekit.ingest.localtime import count_unknown_instants, to_utc

if TYPE_CHECKING:
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.json_array import JsonObject
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["CLUSTER", "TIMEZONE", "read_jobs"]

CLUSTER = "philly"
TIMEZONE = "America/Los_Angeles"

_STATUS = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
_UNKNOWN = (None, "", "None")
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass
class _Extract:
    """The job log's records as columns, before their times are parsed."""

    job: dict[str, list[Any]] = field(
        default_factory=lambda: {k: [] for k in ("row", "job_id", "vc", "user", "status", "submitted", "attempts")}
    )
    attempt: dict[str, list[Any]] = field(
        default_factory=lambda: {k: [] for k in ("row", "attempt", "start", "end", "gpus", "nodes")}
    )
    detail: dict[str, list[Any]] = field(
        default_factory=lambda: {k: [] for k in ("row", "attempt", "node_id", "gpu_index")}
    )


class _Unusable(Exception):  # noqa: N818 -- not an error but a verdict on one record
    """A record of the job log cannot be used."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(column, reason)
        self.column = column
        self.reason = reason


def read_jobs(file: SourceFile, sink: Sink) -> None:
    """Read the job log; the records that cannot be used are set aside."""
    seen: set[str] = set()
    with sink.opened(file) as opened:
        for objects, bad in json_objects(opened.stream, file.path):
            opened.count(len(objects) + len(bad))
            for record in bad:
                opened.reject(record.line, None, record.reason, record.raw)
            _write_jobs(_extract(objects, opened, seen), objects, opened, sink)


def _extract(objects: list[JsonObject], opened: OpenedFile, seen: set[str]) -> _Extract:
    """Pull the fields out of the objects; records of a wrong shape are set aside."""
    extract = _Extract()
    for row, item in enumerate(objects):
        try:
            job_id = _word(item.value.get("jobid"), "jobid")
            if job_id is None:
                raise _Unusable("jobid", "is missing")
            if job_id in seen:
                raise _Unusable("jobid", "repeats the key of an earlier record")
            attempts, details = _attempt_rows(row, item.value.get("attempts"))
            fields = [_word(item.value.get(k), k) for k in ("vc", "user", "status", "submitted_time")]
        except _Unusable as verdict:
            opened.reject(item.line, verdict.column, verdict.reason, item.raw)
            continue
        seen.add(job_id)
        for values, value in zip(extract.job.values(), (row, job_id, *fields, len(attempts)), strict=True):
            values.append(value)
        for columns, rows in ((extract.attempt, attempts), (extract.detail, details)):
            for values, added in zip(columns.values(), zip(*rows, strict=True) if rows else (), strict=bool(rows)):
                values.extend(added)
    return extract


def _attempt_rows(row: int, attempts: object) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return (row, attempt, start, end, gpus, nodes) and (row, attempt, node, GPU indices) of a job's attempts."""
    if attempts in _UNKNOWN:
        return [], []
    if not isinstance(attempts, list):
        raise _Unusable("attempts", "is not a list")
    rows, details = [], []
    for number, attempt in enumerate(attempts):
        place = f"attempts[{number}]"
        if not isinstance(attempt, dict):
            raise _Unusable(place, "is not an object")
        parts = attempt.get("detail")
        held = [] if parts in _UNKNOWN else [_node_and_gpus(p, place) for p in _list(parts, f"{place}.detail")]
        times = (_word(attempt.get(k), f"{place}.{k}") for k in ("start_time", "end_time"))
        gpus = sum(len(g) for _, g in held)
        # Philly ran no CPU jobs: no GPUs in the log means that the log does not say.
        rows.append((row, number, *times, gpus or None, len(held) or None))
        details += [(row, number, node, gpus_held or None) for node, gpus_held in held]
    return rows, details


def _node_and_gpus(part: object, place: str) -> tuple[str, list[int]]:
    if not isinstance(part, dict):
        raise _Unusable(f"{place}.detail", "is not an object")
    node = _word(part.get("ip"), f"{place}.detail.ip")
    if node is None:
        raise _Unusable(f"{place}.detail.ip", "is missing")
    names = part.get("gpus")
    return node, [] if names in _UNKNOWN else [_gpu_index(n, place) for n in _list(names, f"{place}.detail.gpus")]


def _gpu_index(name: object, place: str) -> int:
    match = re.fullmatch(r"gpu(\d{1,3})", name) if isinstance(name, str) else None
    if match is None:
        raise _Unusable(f"{place}.detail.gpus", "is not a GPU like gpu0")
    return int(match[1])


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Unusable(place, "is not a list")
    return value


def _word(value: object, place: str) -> str | None:
    if value in _UNKNOWN:
        return None
    if not isinstance(value, str):
        raise _Unusable(place, "is not text")
    return value


def _write_jobs(extract: _Extract, objects: list[JsonObject], opened: OpenedFile, sink: Sink) -> None:
    naive = sink.options["times"] == "naive"
    times = pl.String
    job = pl.DataFrame(
        extract.job,
        schema={
            "row": pl.Int64,
            "job_id": times,
            "vc": times,
            "user": times,
            "status": times,
            "submitted": times,
            "attempts": pl.Int64,
        },
    )
    attempt = pl.DataFrame(
        extract.attempt,
        schema={
            "row": pl.Int64,
            "attempt": pl.Int64,
            "start": times,
            "end": times,
            "gpus": pl.Float64,
            "nodes": pl.Int64,
        },
    )
    detail = pl.DataFrame(
        extract.detail,
        schema={"row": pl.Int64, "attempt": pl.Int64, "node_id": pl.String, "gpu_index": pl.List(pl.Int64)},
    )
    bad: dict[int, tuple[str, str]] = {}
    job, submitted = _timed(job, ["submitted"], bad)
    attempt, instants = _timed(attempt, ["start", "end"], bad)
    for row in sorted(bad):
        opened.reject(objects[row].line, *bad[row], objects[row].raw)
    usable = ~pl.col("row").is_in(list(bad))
    job, attempt, detail = (frame.filter(usable) for frame in (job, attempt, detail))
    if not naive:
        job = _to_utc(job, submitted, sink)
        attempt = _to_utc(attempt, instants, sink, names=attempt.join(job, on="row", how="left")["job_id"])
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


def _timed(frame: pl.DataFrame, columns: list[str], bad: dict[int, tuple[str, str]]) -> tuple[pl.DataFrame, list[str]]:
    """Parse the columns as times; rows of unusable ones are entered in `bad` with column and reason."""
    parsed = frame.with_columns(pl.col(c).str.to_datetime(_TIME, strict=False, time_unit="us") for c in columns)
    shown = {"submitted": "submitted_time", "start": "start_time", "end": "end_time"}
    for column in columns:
        unread = frame[column].is_not_null() & parsed[column].is_null()
        far = ((parsed[column] < FIRST_TIME) | (parsed[column] > LAST_TIME)).fill_null(value=False)
        for mask, reason in ((unread, f"is not a time like {_TIME}"), (far, "is a date out of range")):
            lost = frame.filter(mask)
            for row, *number in lost.select("row", *(["attempt"] if "attempt" in lost.columns else [])).iter_rows():
                place = f"attempts[{number[0]}].{shown[column]}" if number else shown[column]
                bad.setdefault(row, (place, reason))
    return parsed, columns


def _to_utc(frame: pl.DataFrame, columns: list[str], sink: Sink, names: pl.Series | None = None) -> pl.DataFrame:
    utc = frame.select(to_utc(pl.col(c), TIMEZONE, sink.options["doubled_hour"]) for c in columns)
    strict = frame.select(to_utc(pl.col(c), TIMEZONE) for c in columns)
    count_unknown_instants(sink, frame.select(columns), strict, frame["job_id"] if names is None else names)
    return frame.with_columns(utc)


def _attempts(job: pl.DataFrame, attempt: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts of the usable jobs, with `row` for joins."""
    last = pl.col("attempt") == pl.col("attempts") - 1
    previous = (
        pl.when(pl.col("attempt") == 0)
        .then("submitted")
        .otherwise(pl.col("end").shift(1).over("row", order_by="attempt"))
    )
    return (
        attempt.join(
            job.select("row", "job_id", "submitted", "attempts", source="status"),
            on="row",
            how="inner",
            maintain_order="left",
        )
        .with_columns(previous=previous)
        .select(
            "row",
            "job_id",
            "attempt",
            start_time="start",
            end_time="end",
            run_s=_seconds(pl.col("end") - pl.col("start")),
            wait_s=_seconds(pl.col("start") - pl.col("previous")),
            gpu_count="gpus",
            node_count="nodes",
            status=pl.when(last & pl.col("source").is_not_null()).then(_status(pl.col("source"))),
        )
    )


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
        queue_s=_seconds(pl.col("start_time") - pl.col("submitted")),
        run_s=_seconds(pl.col("end_time") - pl.col("start_time")),
        gpu_count="gpu_count",
        node_count="node_count",
        attempt_count="attempts",
    )


def _placements(detail: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    times = attempts.select("row", "attempt", "job_id", "start_time", "end_time")
    return detail.join(times, on=["row", "attempt"], how="inner", maintain_order="left").select(
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


def _seconds(duration: pl.Expr) -> pl.Expr:
    return duration.dt.total_microseconds() / 1e6


def _count_contradictions(jobs: pl.DataFrame, attempts: pl.DataFrame, sink: Sink) -> None:
    ended = jobs["status"].is_in(["completed", "cancelled", "failed"]).fill_null(value=False)
    open_end = ended & (jobs["attempt_count"] > 0) & jobs["end_time"].is_null()
    sink.check(
        "ended_status_without_end",
        int(open_end.sum()),
        jobs.height,
        "jobs with a final status whose last attempt has no end; the status stands, the end is unknown",
        jobs["job_id"].filter(open_end),
    )
    unknown = (jobs["status"] == "unknown").fill_null(value=False)
    sink.check(
        "unknown_status_word",
        int(unknown.sum()),
        jobs.height,
        "records whose status word is not in the format's description; their status is 'unknown'",
        jobs["job_id"].filter(unknown),
    )
    without = (jobs["attempt_count"] == 0).fill_null(value=False)
    sink.check(
        "jobs_without_attempts",
        int(without.sum()),
        jobs.height,
        "jobs that never got resources by the log; they count in statuses and in no time or size",
        jobs["job_id"].filter(without),
    )
    for column, name in (("start_time", "attempts_without_start"), ("end_time", "attempts_without_end")):
        absent = attempts[column].is_null()
        sink.check(
            name,
            int(absent.sum()),
            attempts.height,
            f"attempts whose {column.split('_')[0]} is unknown; times that need it are unknown too",
            attempts["job_id"].filter(absent),
        )
    sizes = attempts.filter(pl.col("gpu_count").is_not_null()).group_by("job_id").agg(n=pl.col("gpu_count").n_unique())
    changed = sizes.filter(pl.col("n") > 1)["job_id"].sort()
    sink.check(
        "size_changes_between_attempts",
        len(changed),
        sizes.height,
        "jobs whose attempts hold different numbers of GPUs; the first attempt's number is the job's",
        changed,
    )
