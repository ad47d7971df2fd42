"""Convert the jobs of `sacct --json` to the columns of `sacct --parsable2`, so the same rules apply to both.

Manual: slurm.schedmd.com/sacct.html (--json) and the OpenAPI schemas of Slurm's dbv plug-ins. Versions up to 22.05
write plain numbers. Later versions wrap them as `{"set": true, "infinite": false, "number": 5}` and write a state as a
list of words. Times are seconds since 1970, so no zone is assumed. A job with its steps is one object, and each object
counts as a record.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from tracekit.ingest.formats._records import at, items
from tracekit.ingest.formats._slurm_text import SacctRecords, layout_of
from tracekit.ingest.json_array import json_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.formats._slurm_text import SacctLayout
    from tracekit.ingest.sink import OpenedFile, Sink

Row = dict[str, str | None]

_COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "Submit", "Eligible", "Start", "End", "State", "ElapsedRaw", "Suspended",
    "TimelimitRaw", "AllocTRES", "ReqTRES", "NNodes", "NodeList", "NTasks", "Account", "Partition", "QOS", "User",
    "JobName", "Priority", "Reason", "Flags", "SubmitLine", "AdminComment", "TotalCPU", "MaxRSS", "TRESUsageInAve",
    "TRESUsageInTot", "Constraints",
)  # fmt: skip
"""Columns of the text format that are filled from a JSON object."""

_JOBS = re.compile(rb'"jobs"\s*:\s*\[')
_OF_SACCT = (b'"allocation_nodes"', b'"association"', b'"submission"', b"openapi\\/dbv", b"openapi/dbv", b'"sacct"')
_FLAGS = {
    "STARTED_ON_BACKFILL": "SchedBackfill",
    "STARTED_ON_SCHEDULE": "SchedMain",
    "STARTED_ON_SUBMIT": "SchedSubmit",
}
# sacct prints the first of these flags that is set, or else the base state.
_FLAG_STATES = (
    "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED",
    "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "STAGE_OUT",
)  # fmt: skip


def looks_like_json(head: bytes) -> bool:
    """Return whether a file begins like `sacct --json` output; `squeue --json` also prints a list of jobs."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"{") and _JOBS.search(text) is not None and any(word in text for word in _OF_SACCT)


def read_json(opened: OpenedFile, sink: Sink) -> Iterator[tuple[SacctLayout, SacctRecords]]:
    """Yield the records of one export in blocks, as text. Anything that is not a job is rejected.

    Raises
    ------
    SourceError
        There is no list of jobs, or the file ends inside it.
    """
    layout = layout_of([name.lower() for name in _COLUMNS], "|", opened.path, sink, trailing=False)
    count = 0
    for run in json_runs(opened.stream, opened.path, "jobs"):
        rows: list[Row] = []
        sources: list[int] = []
        opened.count(len(run.bad))
        for record in run.bad:
            opened.reject(record.line, None, record.reason, record.raw)
        for place, text in enumerate(run.texts):
            try:
                found = job_rows(orjson.loads(text))
            except ValueError as error:
                opened.count(1)
                opened.reject(int(run.lines[place]), None, f"is not JSON: {str(error)[:200]}", text)
                continue
            rows += found
            sources += [place] * len(found)
        opened.count(len(rows))
        if rows:
            table = pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String))
            lines = run.lines[np.array(sources, dtype=np.int64)]
            order = np.arange(count, count + len(rows), dtype=np.int64)
            raws = [run.texts[place] for place in sources]
            yield layout, SacctRecords(table.select(*layout.columns), lines, raws.__getitem__, order)
            count += len(rows)


def job_rows(job: dict[str, Any]) -> list[Row]:
    """Return one row for the job and one per step, with cells as sacct prints them."""
    raw = text_of(job.get("job_id")) or ""
    times, name = at(job, "time"), _job_id(job, raw)
    own: Row = {
        "JobID": name,
        "JobIDRaw": raw,
        "Cluster": text_of(job.get("cluster")),
        "Submit": _moment(at(times, "submission")),
        "Eligible": _moment(at(times, "eligible")),
        "State": state_of(at(job, "state", "current")),
        "TimelimitRaw": _limit(at(times, "limit")),
        "AllocTRES": _tres(at(job, "tres", "allocated"), "M"),
        "ReqTRES": _tres(at(job, "tres", "requested"), "M"),
        "NNodes": text_of(job.get("allocation_nodes")),
        "NodeList": text_of(job.get("nodes")),
        "Account": text_of(job.get("account")),
        "Partition": text_of(job.get("partition")),
        "QOS": text_of(job.get("qos")),
        "User": text_of(job.get("user")) or text_of(at(job, "association", "user")),
        "JobName": text_of(job.get("name")),
        "Priority": _whole(job.get("priority")),
        "Reason": text_of(at(job, "state", "reason")),
        "Constraints": text_of(job.get("constraints")),
        "Flags": ",".join(_FLAGS.get(flag, flag) for flag in words_of(job.get("flags"))),
        "SubmitLine": text_of(job.get("submit_line")),
        "AdminComment": text_of(at(job, "comment", "administrator")),
        **_span(times),
    }
    steps = job.get("steps")
    return [own, *(_step(step, name, raw, own) for step in (steps if isinstance(steps, list) else []))]


def _step(step: Any, name: str, raw: str, job: Row) -> Row:
    number = _step_id(at(step, "step", "id"))
    used = at(step, "tres", "requested")
    span = _span(at(step, "time"))
    return {
        "JobID": f"{name}.{number}",
        "JobIDRaw": f"{raw}.{number}",
        "Cluster": job["Cluster"],
        "Submit": span["Start"] or job["Submit"],
        "State": state_of(at(step, "state")),
        "AllocTRES": _tres(at(step, "tres", "allocated"), "M"),
        "NTasks": text_of(at(step, "tasks", "count")),
        "MaxRSS": next((_whole(e.get("count")) for e in items(used, "max") if e.get("type") == "mem"), None),
        "TRESUsageInAve": _tres(at(used, "average"), ""),
        "TRESUsageInTot": _tres(at(used, "total"), ""),
        **span,
    }


def _span(times: Any) -> Row:
    suspended, seconds = number_of(at(times, "suspended")), number_of(at(times, "total", "seconds"))
    rest = number_of(at(times, "total", "microseconds")) or 0
    return {
        "Start": _moment(at(times, "start")),
        "End": _moment(at(times, "end")),
        "ElapsedRaw": _whole(at(times, "elapsed")),
        "Suspended": None if suspended is None else f"00:{suspended:.0f}",
        "TotalCPU": None if seconds is None else f"00:{seconds:.0f}.{rest:06.0f}",
    }


def number_of(value: Any) -> float | int | None:
    """Return a number that may be wrapped, or None if it is not set or infinite."""
    if isinstance(value, dict):
        value = None if value.get("infinite") or not value.get("set", True) else value.get("number")
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def _whole(value: Any) -> str | None:
    number = number_of(value)
    return None if number is None else str(number if isinstance(number, int) else round(number))


def text_of(value: Any) -> str | None:
    """Return a string, or a number as text; None if the value is neither."""
    return value if isinstance(value, str) else _whole(value)


def words_of(value: Any) -> list[str]:
    """Return the strings of a list; none if the value is not a list."""
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _moment(value: Any) -> str | None:
    seconds = number_of(value)
    return None if not seconds else _whole(seconds)  # 0 means unknown


def _limit(value: Any) -> str | None:
    return "UNLIMITED" if at(value, "infinite") is True else _whole(value)


def state_of(value: Any) -> str | None:
    """Return a state as sacct prints it, from a word or a list of words."""
    words = words_of(value)
    return next((word for word in _FLAG_STATES if word in words), words[0]) if words else text_of(value)


def _tres(value: Any, memory_unit: str) -> str | None:
    """Convert a TRES array of `sacct --json` to the string that sacct prints, such as `cpu=4,gres/gpu:a100=2`.

    `memory_unit` is the memory suffix: 'M' for allocated memory [MiB], or '' for used memory [bytes]. Return None if
    the array has no amount.
    """
    parts = []
    for entry in items(value):
        kind, name, number = text_of(entry.get("type")) or "", text_of(entry.get("name")), _whole(entry.get("count"))
        if number is not None and not number.startswith("-"):
            parts.append(f"{kind}/{name}" if name else kind)
            parts[-1] += f"={number}{memory_unit if kind == 'mem' else ''}"
    return ",".join(parts) or None


def _job_id(job: dict[str, Any], raw: str) -> str:
    leader, array = number_of(at(job, "het", "job_id")), number_of(at(job, "array", "job_id"))
    task, waiting = _whole(at(job, "array", "task_id")), text_of(at(job, "array", "task"))
    if leader:
        return f"{leader}+{_whole(at(job, 'het', 'job_offset')) or 0}"
    if array and task is not None:
        return f"{array}_{task}"
    return f"{array}_[{waiting.strip('[]')}]" if array and waiting else raw


def _step_id(value: Any) -> str:
    """Return 'batch' or a number. Some versions write a step like this, others as `{"step_id": 0}` or '7.batch'."""
    if isinstance(value, dict) and "number" not in value:
        value = value.get("step_id")
    return (text_of(value) or "?").rpartition(".")[2]
