"""Turn the JSON records of Philly's job log into jobs, attempts and placements."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json

from tracekit.ingest.cells import LostValues
from tracekit.ingest.derived import in_seconds
from tracekit.ingest.formats._records import Fault
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.localtime import instants
from tracekit.ingest.records import prefetch
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.json_array import JsonRun
    from tracekit.ingest.sink import OpenedFile, Sink


# Turn the JSON objects of Philly's job log into frames of jobs, attempts and placements.
#
# All objects of a run are parsed together. If one deviates from the documentation, each is examined first: equivalent
# spellings are changed to the documented ones, and unusable objects are rejected.

_UNKNOWN = (None, "", "None")
_GPUS = {f"gpu{number:0{width}}": number for width in (1, 2, 3) for number in range(10**width)}
_FIELDS = {"job_id": "jobid", "vc": "vc", "user": "user", "status": "status", "submitted": "submitted_time"}

_TEXT = pa.string()
_HELD = pa.list_(pa.struct([("ip", _TEXT), ("gpus", pa.list_(_TEXT))]))
_TRIED = pa.list_(pa.struct([("start_time", _TEXT), ("end_time", _TEXT), ("detail", _HELD)]))
_DOCUMENTED = pa.schema([*((name, _TEXT) for name in _FIELDS.values()), ("attempts", _TRIED)])
"""The documented form of the log's objects."""


class PhillyRecords(NamedTuple):
    """The usable objects of a run, whose times are still strings.

    `row` is the number of an object within its run, counted from 0.
    """

    jobs: pl.DataFrame
    """Columns row, job_id, vc, user, status, submitted, and the number of attempts as `attempts`."""
    attempts: pl.DataFrame
    """Columns row, attempt (from 0), start, end, gpus and nodes. The last two are counts, or NULL if not in the log."""
    details: pl.DataFrame
    """Columns row, attempt, node_id and gpu_index, which is a list, or NULL if the log does not record the indices."""


class Refusal(NamedTuple):
    """Why an object of a run is unusable."""

    row: int
    column: str | None
    reason: str


def read_records(run: JsonRun, seen: set[str]) -> tuple[PhillyRecords, list[Refusal], dict[int, LostValues]]:
    """Parse the objects of a run, and return the usable objects as frames and the faults of the others.

    `seen` contains the job ids found so far, and receives the ids of this run. The last part of the result maps an
    object's number to its unreadable optional values.
    """
    refused: list[Refusal] = []
    lost: dict[int, LostValues] = {}
    try:
        found = _records(run.texts, range(len(run.texts)), seen)
    except (pa.ArrowException, UnicodeDecodeError, Fault):
        usable: dict[int, bytes] = {}
        for row, text in enumerate(run.texts):
            try:
                values = LostValues()
                usable[row] = orjson.dumps(_as_documented(orjson.loads(text), seen, values))
                if len(values):
                    lost[row] = values
            except orjson.JSONDecodeError as error:
                refused.append(Refusal(row, None, f"is not valid JSON: {error.msg}"))
            except Fault as fault:
                refused.append(Refusal(row, fault.column, fault.reason))
        found = _records(list(usable.values()), list(usable), set())
    seen.update(found.jobs["job_id"])
    return found, refused, lost


def _records(texts: Sequence[bytes], rows: Sequence[int], seen: set[str]) -> PhillyRecords:
    """Read objects in the documented form. Raise an error if one deviates from it."""
    jobs = _frame(texts).with_columns(pl.Series("row", rows, dtype=pl.Int64))
    ids = jobs["job_id"]
    if ids.null_count() or ids.n_unique() < len(ids) or not seen.isdisjoint(ids):
        raise Fault("jobid", "is missing or repeats")
    tried = _elements(jobs.select("row", "attempts"), "attempts", "attempt")
    held = _elements(tried.select("row", "attempt", "detail"), "detail", "part").with_columns(_known("ip"))
    indices = held["gpus"].list.eval(pl.element().replace_strict(_GPUS, default=None, return_dtype=pl.Int64))
    if held["ip"].null_count() or indices.explode(empty_as_null=False, keep_nulls=False).null_count():
        raise Fault("detail", "lacks a node, or names no GPU like gpu0")
    gpus = pl.col("detail").list.eval(pl.element().struct.field("gpus").list.len()).list.sum()
    return PhillyRecords(
        jobs.select("row", *_FIELDS, pl.col("attempts").list.len().fill_null(0).cast(pl.Int64)),
        tried.select(
            "row",
            "attempt",
            start=_known("start_time"),
            end=_known("end_time"),
            gpus=_unless_zero(gpus.cast(pl.Float64)),
            nodes=_unless_zero(pl.col("detail").list.len().cast(pl.Int64)),
        ),
        held.select("row", "attempt", node_id="ip", gpu_index=pl.when(indices.list.len() > 0).then(indices)),
    )


def _frame(texts: Sequence[bytes]) -> pl.DataFrame:
    """Return objects in the documented form as rows, with our field names. `attempts` is unchanged."""
    text = b"\n".join(texts)
    if not text.isascii():
        text.decode("utf-8")  # Arrow does not check the encoding
    table = (
        pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=_DOCUMENTED, newlines_in_values=True, unexpected_field_behavior="error"
            ),
        )
        if texts
        else _DOCUMENTED.empty_table()
    )
    if table.num_rows != len(texts):
        raise Fault("", "is more or less than an object")
    return pl.DataFrame(table).select("attempts", **{ours: _known(name) for ours, name in _FIELDS.items()})


def _elements(frame: pl.DataFrame, lists: str, number: str) -> pl.DataFrame:
    """Return one row per list element, with its number from 0 and its fields as columns."""
    some = frame.filter(pl.col(lists).list.len() > 0)
    found = some.with_columns(pl.int_ranges(pl.col(lists).list.len()).alias(number)).explode(lists, number)
    if found[lists].null_count():
        raise Fault(lists, "is not an object")
    return found.unnest(lists)


def _known(column: str) -> pl.Expr:
    return pl.when(~pl.col(column).is_in(["", "None"])).then(pl.col(column)).alias(column)


def _unless_zero(number: pl.Expr) -> pl.Expr:
    # Philly ran no CPU jobs, so a job without GPUs in the log has an unknown number.
    return pl.when(number != 0).then(number)


def _as_documented(job: dict[str, Any], seen: set[str], lost: LostValues) -> dict[str, Any]:
    """Convert a job to the documented form. Add its id to `seen` and its unreadable optional values to `lost`.

    Raises
    ------
    Fault
        A value in the job makes it unusable.
    """
    job_id = _word(job, "jobid")
    if job_id is None:
        raise Fault("jobid", "is missing")
    if job_id in seen:
        raise Fault("jobid", "repeats the key of an earlier record")
    attempts = [_attempt(attempt, f"attempts[{number}]", lost) for number, attempt in enumerate(_list(job, "attempts"))]
    found: dict[str, Any] = {"attempts": attempts}
    found |= {name: _word(job, name) for name in ("jobid", "submitted_time")}
    for name in ("vc", "user", "status"):
        found[name] = _optional(lost, name, partial(_word, job, name))
    seen.add(job_id)
    return found


def _optional(lost: LostValues, column: str, read: Callable[[], Any]) -> Any:
    """Return an optional value, or None if it cannot be read."""
    try:
        return read()
    except Fault as fault:
        lost.add(column, str(fault.column), fault.reason)
        return None


def _attempt(attempt: object, place: str, lost: LostValues) -> dict[str, Any]:
    if not isinstance(attempt, dict):
        raise Fault(place, "is not an object")
    parts = _optional(lost, "detail", lambda: _list(attempt, "detail", place)) or []
    # If any part is unreadable, the numbers of GPUs and nodes are unknown.
    held = _optional(lost, "detail", lambda: [_node_and_gpus(part, f"{place}.detail") for part in parts])
    return {"detail": held or [], **{name: _word(attempt, name, place) for name in ("start_time", "end_time")}}


def _node_and_gpus(part: object, place: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise Fault(place, "is not an object")
    node = _word(part, "ip", place)
    if node is None:
        raise Fault(f"{place}.ip", "is missing")
    gpus = _list(part, "gpus", place)
    if not all(isinstance(name, str) and name in _GPUS for name in gpus):
        raise Fault(f"{place}.gpus", "is not a GPU like gpu0")
    return {"ip": node, "gpus": gpus}


def _list(record: dict[str, Any], name: str, place: str = "") -> list[Any]:
    value = record.get(name)
    if value in _UNKNOWN:
        return []
    if not isinstance(value, list):
        raise Fault(f"{place}.{name}".lstrip("."), "is not a list")
    return value


def _word(record: dict[str, Any], name: str, place: str = "") -> str | None:
    value = record.get(name)
    if value in _UNKNOWN:
        return None
    if not isinstance(value, str):
        raise Fault(f"{place}.{name}".lstrip("."), "is not text")
    return value


CLUSTER = "philly"
TIMEZONE = "America/Los_Angeles"

_STATUS = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
_ATTEMPT_BITS = 32
_TIME = "%Y-%m-%d %H:%M:%S"
_SUBMITTED = TimeColumns({"submitted": "submit_time"})
_RUN = TimeColumns({"start": "start_time", "end": "end_time"}, attempt="attempt")


def read_jobs(file: SourceFile, sink: Sink) -> None:
    """Read the job log, and reject unusable records."""
    seen: set[str] = set()
    times = RecordTimes(sink, file.path)
    with sink.opened(file) as opened:
        # One thread finds the objects, and another parses them.
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
    """Parse the columns as times, and add rows with unusable times to `bad`, with the column and the reason."""
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
    """Return both frames with times in UTC and impossible times NULL. A job's attempts must be in order."""
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
    """Return, for each attempt, the latest earlier time in its job's record."""
    own = pl.max_horizontal("start", "end")
    previous = own.cum_max().forward_fill().shift(1).over("row")
    return attempt.select(pl.max_horizontal(previous, submitted)).to_series()


def _attempts(job: pl.DataFrame, attempt: pl.DataFrame) -> pl.DataFrame:
    """Return the usable jobs' attempts, with `row`. Both frames are ordered by `row`."""
    own = job[_places(job, attempt)]
    # A job's attempts are adjacent, so the previous attempt is in the row above.
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
    """Return, for each row of `others`, the index of its job in `jobs`. Both are ordered by `row`."""
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
    """Return the placements of the attempts. Both frames are ordered by row and attempt."""
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
    ended = pl.col("status").is_in(["completed", "cancelled", "failed"])
    odd = jobs.select(
        ended_status_without_end=ended & (pl.col("attempt_count") > 0) & pl.col("end_time").is_null(),
        unknown_status_word=pl.col("status") == "unknown",
        jobs_without_attempts=pl.col("attempt_count") == 0,
    )
    sink.check_flags(odd, _OF_JOBS, jobs["job_id"])
    lacking = attempts.select(
        attempts_without_start=pl.col("start_time").is_null(), attempts_without_end=pl.col("end_time").is_null()
    )
    sink.check_flags(lacking, _OF_ATTEMPTS, attempts["job_id"])
    known = attempts.drop_nulls("gpu_count")
    sizes = known.group_by("job_id").agg(n=pl.col("gpu_count").n_unique()).sort("job_id")
    sink.check_rows(
        "size_changes_between_attempts",
        sizes["n"] > 1,
        "jobs whose attempts have different numbers of GPUs; the first attempt's number is used for the job",
        sizes["job_id"],
    )


_OF_JOBS = {
    "ended_status_without_end": "jobs with a final status whose last attempt has no end; the status is kept, and the "
    "end is unknown",
    "unknown_status_word": "records with a status word that the format does not define; their status is 'unknown'",
    "jobs_without_attempts": "jobs without attempts; they count in statuses but not in times or sizes",
}
_OF_ATTEMPTS = {
    f"attempts_without_{side}": f"attempts whose {side} is unknown; times that depend on the {side} are also unknown"
    for side in ("start", "end")
}
