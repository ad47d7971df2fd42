"""Philly's job log: JSON objects to frames of jobs, attempts and what they held.

A run of objects that all look as documented is taken apart by columns. In any other run each object is looked at by
itself, so that those which cannot be used are set aside with the reason. Both ways give the same frames.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.ingest.json_array import JsonRun
    from tracekit.ingest.sink import OpenedFile

__all__ = ["SHAPE", "Records", "read_records"]

_UNKNOWN = (None, "", "None")
_GPU = "^gpu([0-9]{1,3})$"
_FIELDS = {"vc": "vc", "user": "user", "status": "status", "submitted": "submitted_time"}

_Columns = dict[str, pl.DataType | type[pl.DataType]]

_JOB: _Columns = {"row": pl.Int64, "job_id": pl.String, **dict.fromkeys(_FIELDS, pl.String), "attempts": pl.Int64}
_ATTEMPT: _Columns = {
    "row": pl.Int64,
    "attempt": pl.Int64,
    "start": pl.String,
    "end": pl.String,
    "gpus": pl.Float64,
    "nodes": pl.Int64,
}
_DETAIL: _Columns = {"row": pl.Int64, "attempt": pl.Int64, "node_id": pl.String, "gpu_index": pl.List(pl.Int64)}

_TEXT = pa.string()
_HELD = pa.list_(pa.struct([("ip", _TEXT), ("gpus", pa.list_(_TEXT))]))
_TRIED = pa.list_(pa.struct([("start_time", _TEXT), ("end_time", _TEXT), ("detail", _HELD)]))
SHAPE = pa.schema([*((name, _TEXT) for name in ("jobid", *_FIELDS.values())), ("attempts", _TRIED)])
"""What the objects of the log look like by its documentation."""


class Records(NamedTuple):
    """The usable objects of a run, their times still text.

    `row` is the number of an object in its run, from 0.
    """

    jobs: pl.DataFrame
    """row, job_id, vc, user, status, submitted, attempts (their number)."""
    attempts: pl.DataFrame
    """row, attempt (from 0), start, end, gpus and nodes held (NULL where the log does not say)."""
    details: pl.DataFrame
    """row, attempt, node_id, gpu_index (list, NULL where the log does not say)."""


def read_records(run: JsonRun, opened: OpenedFile, seen: set[str]) -> Records:
    """Take the objects of a run apart; those that cannot be used are set aside.

    Parameters
    ----------
    run : JsonRun
        The objects.
    opened : OpenedFile
        Counts them, and gets those that are set aside.
    seen : set of str
        Job ids met so far; those of this run are added.
    """
    opened.count(len(run) + len(run.bad))
    for record in run.bad:
        opened.reject(record.line, None, record.reason, record.raw)
    try:
        if run.table is not None:
            return _by_columns(run.table, seen)
    except _Unusable:
        pass
    return _one_by_one(run, opened, seen)


class _Unusable(Exception):  # noqa: N818 -- not an error but a verdict on one record, or on a run
    """A record of the job log cannot be used."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(column, reason)
        self.column = column
        self.reason = reason


def _by_columns(table: pa.Table, seen: set[str]) -> Records:
    """Take a run apart by columns, unless something in it cannot be used."""
    count = table.num_rows
    jobs = pl.DataFrame(table.drop_columns("attempts")).with_columns(
        _known(name) for name in ("jobid", *_FIELDS.values())
    )
    ids = jobs["jobid"].to_list()
    if jobs["jobid"].null_count() or len(set(ids)) < count or not seen.isdisjoint(ids):
        raise _Unusable("jobid", "is missing or repeats")
    tried, tries = _elements(table["attempts"].combine_chunks(), "attempts")
    held, parts = _elements(tried.field("detail"), "detail")
    names, gpus = _elements(held.field("gpus"), "gpus")
    nodes = _frame_of(node_id=held.field("ip")).with_columns(_known("node_id")).to_series()
    if nodes.null_count():
        raise _Unusable("ip", "is missing")
    named = _frame_of(gpu=names).to_series()
    few = named.unique()
    index = named.replace_strict(few, few.str.extract(_GPU).cast(pl.Int64), return_dtype=pl.Int64)
    if index.null_count():
        raise _Unusable("gpus", "is not a GPU like gpu0")
    seen.update(ids)
    row = np.repeat(np.arange(count), tries)
    number = _numbered(tries)
    held_gpus = np.bincount(np.repeat(np.arange(len(parts)), parts), weights=gpus, minlength=len(parts))
    times = _frame_of(start=tried.field("start_time"), end=tried.field("end_time"))
    attempts = times.select(
        row=pl.Series(row, dtype=pl.Int64),
        attempt=pl.Series(number, dtype=pl.Int64),
        start=_known("start"),
        end=_known("end"),
        gpus=_unless_zero(held_gpus, pl.Float64),
        nodes=_unless_zero(parts, pl.Int64),
    )
    details = pl.DataFrame(
        {
            "row": np.repeat(row, parts),
            "attempt": np.repeat(number, parts),
            "node_id": nodes,
            "gpu_index": _frame_of(
                x=pa.LargeListArray.from_arrays(np.append(0, np.cumsum(gpus)), index.to_arrow())
            ).to_series(),
        },
        schema=_DETAIL,
    ).with_columns(pl.when(pl.col("gpu_index").list.len() > 0).then("gpu_index"))
    fields = {ours: pl.col(name) for ours, name in _FIELDS.items()}
    return Records(
        jobs.select(
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            job_id="jobid",
            **fields,
            attempts=pl.Series(tries, dtype=pl.Int64),
        ),
        attempts,
        details,
    )


def _frame_of(**columns: pa.Array) -> pl.DataFrame:
    """Return Arrow arrays as columns; by way of a table, since single arrays would import pyarrow.compute."""
    return pl.DataFrame(pa.table(columns))


def _elements(lists: pa.ListArray, place: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the elements of all lists and the length of each list; a list that is NULL has none."""
    # From the offsets: importing pyarrow.compute, which other ways need, would take longer than all that is done here.
    offsets = lists.offsets.to_numpy()
    lengths = np.diff(offsets).astype(np.int64)
    elements = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    if elements.null_count:
        raise _Unusable(place, "is not an object")
    return elements, lengths


def _numbered(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each element in its list, from 0."""
    begins = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(begins, lengths)


def _known(column: str) -> pl.Expr:
    words = [word for word in _UNKNOWN if word is not None]
    return pl.when(~pl.col(column).is_in(words)).then(pl.col(column)).alias(column)


def _unless_zero(values: NDArray[Any], dtype: type[pl.DataType]) -> pl.Series:
    series = pl.Series(values).cast(dtype)
    # Philly ran no CPU jobs: no GPUs in the log means that the log does not say.
    return series.set(series == 0, None)


def _one_by_one(run: JsonRun, opened: OpenedFile, seen: set[str]) -> Records:
    """Look at each object of a run by itself; those of a wrong shape are set aside."""
    jobs, attempts, details = [], [], []
    good, bad = run.objects()
    for record in bad:
        opened.reject(record.line, None, record.reason, record.raw)
    for item in good:
        try:
            job_id = _word(item.value.get("jobid"), "jobid")
            if job_id is None:
                raise _Unusable("jobid", "is missing")
            if job_id in seen:
                raise _Unusable("jobid", "repeats the key of an earlier record")
            tried, held = _attempt_rows(item.row, item.value.get("attempts"))
            fields = [_word(item.value.get(k), k) for k in _FIELDS.values()]
        except _Unusable as verdict:
            opened.reject(item.line, verdict.column, verdict.reason, item.raw)
            continue
        seen.add(job_id)
        jobs.append((item.row, job_id, *fields, len(tried)))
        attempts += tried
        details += held
    return Records(_frame(jobs, _JOB), _frame(attempts, _ATTEMPT), _frame(details, _DETAIL))


def _frame(rows: list[tuple[Any, ...]], columns: _Columns) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=columns, orient="row")


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
    match = re.fullmatch(_GPU, name) if isinstance(name, str) else None
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
