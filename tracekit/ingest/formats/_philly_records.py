"""Philly's job log: JSON objects to frames of jobs, attempts and what they held.

A run of objects is parsed at once. Where one of them is not as documented, each is examined first: equivalent spellings
are rewritten as the documented ones, and objects that cannot be used are set aside.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json

from tracekit.ingest.lost_cells import LostValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest.json_array import JsonRun

__all__ = ["PhillyRecords", "Refusal", "read_records"]

_UNKNOWN = (None, "", "None")
_GPUS = {f"gpu{number:0{width}}": number for width in (1, 2, 3) for number in range(10**width)}
_FIELDS = {"job_id": "jobid", "vc": "vc", "user": "user", "status": "status", "submitted": "submitted_time"}

_TEXT = pa.string()
_HELD = pa.list_(pa.struct([("ip", _TEXT), ("gpus", pa.list_(_TEXT))]))
_TRIED = pa.list_(pa.struct([("start_time", _TEXT), ("end_time", _TEXT), ("detail", _HELD)]))
_DOCUMENTED = pa.schema([*((name, _TEXT) for name in _FIELDS.values()), ("attempts", _TRIED)])
"""The objects of the log as documented."""


class PhillyRecords(NamedTuple):
    """The usable objects of a run, their times still text.

    `row` is the number of an object in its run, from 0.
    """

    jobs: pl.DataFrame
    """row, job_id, vc, user, status, submitted, attempts (their number)."""
    attempts: pl.DataFrame
    """row, attempt (from 0), start, end, gpus and nodes held (NULL where the log does not say)."""
    details: pl.DataFrame
    """row, attempt, node_id, gpu_index (list, NULL where the log does not say)."""


class Refusal(NamedTuple):
    """Why an object of a run cannot be used."""

    row: int
    column: str | None
    reason: str


class _Unusable(Exception):  # noqa: N818 -- not an error but a verdict on one record, or on a run
    """A record that cannot be used as it is; the arguments are the column and the reason."""


def read_records(run: JsonRun, seen: set[str]) -> tuple[PhillyRecords, list[Refusal], dict[int, LostValues]]:
    """Parse the objects of a run; return the usable ones as frames, and why the others cannot be used.

    `seen` has the job ids so far; those of this run are added. The last part of the answer has, by the number of an
    object, the values that cannot be read and cost themselves alone.
    """
    refused: list[Refusal] = []
    lost: dict[int, LostValues] = {}
    try:
        found = _records(run.texts, range(len(run.texts)), seen)
    except (pa.ArrowException, UnicodeDecodeError, _Unusable):
        usable: dict[int, bytes] = {}
        for row, text in enumerate(run.texts):
            try:
                values = LostValues()
                usable[row] = orjson.dumps(_as_documented(orjson.loads(text), seen, values))
                if len(values):
                    lost[row] = values
            except orjson.JSONDecodeError as error:
                refused.append(Refusal(row, None, f"is not valid JSON: {error.msg}"))
            except _Unusable as verdict:
                refused.append(Refusal(row, *verdict.args))
        found = _records(list(usable.values()), list(usable), set())
    seen.update(found.jobs["job_id"])
    return found, refused, lost


def _records(texts: Sequence[bytes], rows: Sequence[int], seen: set[str]) -> PhillyRecords:
    """Read objects that are as documented; fail if one is not."""
    jobs = _frame(texts).with_columns(pl.Series("row", rows, dtype=pl.Int64))
    ids = jobs["job_id"]
    if ids.null_count() or ids.n_unique() < len(ids) or not seen.isdisjoint(ids):
        raise _Unusable("jobid", "is missing or repeats")
    tried = _elements(jobs.select("row", "attempts"), "attempts", "attempt")
    held = _elements(tried.select("row", "attempt", "detail"), "detail", "part").with_columns(_known("ip"))
    indices = held["gpus"].list.eval(pl.element().replace_strict(_GPUS, default=None, return_dtype=pl.Int64))
    if held["ip"].null_count() or indices.explode(empty_as_null=False, keep_nulls=False).null_count():
        raise _Unusable("detail", "lacks a node, or names no GPU like gpu0")
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
    """Return documented objects as rows, their fields under our names; `attempts` is not changed."""
    text = b"\n".join(texts)
    if not text.isascii():
        text.decode("utf-8")  # Arrow does not look at it
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
        raise _Unusable("", "is more or less than an object")
    return pl.DataFrame(table).select("attempts", **{ours: _known(name) for ours, name in _FIELDS.items()})


def _elements(frame: pl.DataFrame, lists: str, number: str) -> pl.DataFrame:
    """Return a row for each element of the lists, with its number from 0 and its fields in columns."""
    some = frame.filter(pl.col(lists).list.len() > 0)
    found = some.with_columns(pl.int_ranges(pl.col(lists).list.len()).alias(number)).explode(lists, number)
    if found[lists].null_count():
        raise _Unusable(lists, "is not an object")
    return found.unnest(lists)


def _known(column: str) -> pl.Expr:
    return pl.when(~pl.col(column).is_in(["", "None"])).then(pl.col(column)).alias(column)


def _unless_zero(number: pl.Expr) -> pl.Expr:
    # Philly ran no CPU jobs: no GPUs in the log means that the log does not say.
    return pl.when(number != 0).then(number)


def _as_documented(job: dict[str, Any], seen: set[str], lost: LostValues) -> dict[str, Any]:
    """Return a job in the documented form; its id is added to `seen`, and what it can be without to `lost`.

    Raises
    ------
    _Unusable
        Something in it cannot be used.
    """
    job_id = _word(job, "jobid")
    if job_id is None:
        raise _Unusable("jobid", "is missing")
    if job_id in seen:
        raise _Unusable("jobid", "repeats the key of an earlier record")
    attempts = [_attempt(attempt, f"attempts[{number}]", lost) for number, attempt in enumerate(_list(job, "attempts"))]
    found: dict[str, Any] = {"attempts": attempts}
    found |= {name: _word(job, name) for name in ("jobid", "submitted_time")}
    for name in ("vc", "user", "status"):
        found[name] = _optional(lost, name, partial(_word, job, name))
    seen.add(job_id)
    return found


def _optional(lost: LostValues, column: str, read: Callable[[], Any]) -> Any:
    """Return a value that a record can be without, None where it cannot be read."""
    try:
        return read()
    except _Unusable as verdict:
        lost.add(column, str(verdict.args[0]), str(verdict.args[1]))
        return None


def _attempt(attempt: object, place: str, lost: LostValues) -> dict[str, Any]:
    if not isinstance(attempt, dict):
        raise _Unusable(place, "is not an object")
    parts = _optional(lost, "detail", lambda: _list(attempt, "detail", place)) or []
    # Where a part cannot be read, how many GPUs and nodes there were is not known.
    held = _optional(lost, "detail", lambda: [_node_and_gpus(part, f"{place}.detail") for part in parts])
    return {"detail": held or [], **{name: _word(attempt, name, place) for name in ("start_time", "end_time")}}


def _node_and_gpus(part: object, place: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise _Unusable(place, "is not an object")
    node = _word(part, "ip", place)
    if node is None:
        raise _Unusable(f"{place}.ip", "is missing")
    gpus = _list(part, "gpus", place)
    if not all(isinstance(name, str) and name in _GPUS for name in gpus):
        raise _Unusable(f"{place}.gpus", "is not a GPU like gpu0")
    return {"ip": node, "gpus": gpus}


def _list(record: dict[str, Any], name: str, place: str = "") -> list[Any]:
    value = record.get(name)
    if value in _UNKNOWN:
        return []
    if not isinstance(value, list):
        raise _Unusable(f"{place}.{name}".lstrip("."), "is not a list")
    return value


def _word(record: dict[str, Any], name: str, place: str = "") -> str | None:
    value = record.get(name)
    if value in _UNKNOWN:
        return None
    if not isinstance(value, str):
        raise _Unusable(f"{place}.{name}".lstrip("."), "is not text")
    return value
