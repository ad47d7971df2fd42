"""Choose the defaults of query parameters that depend on the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.published import list_published, release_of
from tracekit.characterize.timelines.gpus import ROUND_STEPS_S, fits, wide_step_s
from tracekit.gpu_hours.dimensions import first_known
from tracekit.report.structure import ROW_LIMIT
from tracekit.text import duration

if TYPE_CHECKING:
    from tracekit.characterize import Query
    from tracekit.report.structure import CapacityInfo
    from tracekit.trace import Trace

__all__ = ["QueryDefaults", "parameters_of", "query_defaults"]

_HOUR_S = 3600
_LEAST_INTERVALS = 20
"""Number of intervals for a log that is too long for hourly intervals, regardless of its number of VCs."""
_RETRIED = "retried"
_INDEPENDENT = "failures/by_node"
"""The test assumes independent attempts, but attempts of one job depend on each other, especially on one node."""
_FREE = "locality/fragmentation"
_TIMES = ("submit_time", "start_time", "end_time")


@dataclass(frozen=True)
class QueryDefaults:
    """Properties of a trace that determine the parameters of its queries."""

    gpus: float | None = None
    """Number of GPUs of the only cluster, if the report uses a different number than queries find."""
    word: str = ""
    """Source of the report's number of GPUs (see `CapacityInfo`)."""
    published: frozenset[str] = frozenset()
    """Queries for published numbers about this trace's release, by the published definition."""
    one_status: bool = False
    """Whether jobs have retries and the source does not record how their earlier attempts ended."""
    by: str = "user"
    """Column that splits GPU-hours, if users are unknown."""
    step_s: int | None = None
    """Shortest interval [s] for which the load of all VCs fits into a report, or None if no interval is long enough."""
    too_long: bool = False
    """Whether the log has too many hours for hourly averages of all VCs' use."""


def query_defaults(trace: Trace, capacity: CapacityInfo) -> QueryDefaults:
    """Determine the properties of a trace on which the parameters of its queries depend."""
    if not trace.has("jobs"):
        return QueryDefaults()
    first, last = pl.min_horizontal(pl.col(t).min() for t in _TIMES), pl.max_horizontal(pl.col(t).max() for t in _TIMES)
    found = trace.scan("jobs").select(
        clusters=pl.col("cluster").n_unique(), tenants=pl.struct("cluster", "vc").n_unique(), span=last - first
    )
    clusters, tenants, span = found.collect(engine="streaming").row(0)
    known = capacity["gpus"] if capacity["used"] != "listed" and clusters == 1 else None
    release = release_of(trace)
    numbers = list_published(trace.manifest.format) if release is not None and release.public else ()
    too_long = span is not None and not fits(span.total_seconds(), _HOUR_S, tenants)
    return QueryDefaults(
        known,
        "listed" if capacity["word"].startswith("stated by") else capacity["word"],
        frozenset(number.query for number in numbers),
        _one_status(trace),
        first_known(trace, "user", "account", "vc", "partition", "cluster"),
        None if span is None else _step(tenants, span.total_seconds(), too_long=too_long),
        too_long,
    )


def _one_status(trace: Trace) -> bool:
    if not trace.has("attempts"):
        return False
    attempts = trace.scan("attempts").select("job_id", "attempt", "status")
    last = attempts.group_by("job_id").agg(last=pl.col("attempt").max()).filter(pl.col("last") > 0)
    earlier = attempts.join(last, on="job_id").filter(pl.col("attempt") < pl.col("last"))
    known = pl.col("status").is_not_null() & (pl.col("status") != "unknown")
    number, stated = earlier.select(pl.len(), known.sum().alias("stated")).collect(engine="streaming").row(0)
    return bool(number and not stated)


def _step(tenants: int, span_s: float, *, too_long: bool) -> int | None:
    fitting = [s for s in ROUND_STEPS_S if s >= _HOUR_S and (span_s / s + 2) * tenants < ROW_LIMIT]
    if fitting or not too_long:
        return fitting[0] if fitting else None
    return wide_step_s(span_s, max(ROW_LIMIT // tenants - 1, _LEAST_INTERVALS))


def parameters_of(query: Query, shape: QueryDefaults) -> tuple[dict[str, float | str], list[str]]:
    """Return a query's parameters that differ from the defaults, with sentences for parameters that need a note.

    Queries about a whole cluster use its size, and count free GPUs on the machines that make up this size. Time after
    the last submission is neither idle nor used, except in a table next to published numbers that include this time.
    If a source records one status per job, retried attempts count as failed, as in the Philly authors' analysis. The
    VCs' load is averaged over intervals that are long enough for a report to show all VCs.
    """
    given: dict[str, float | str] = {}
    notes = []
    for param in query.params:
        if param.name == "gpus" and shape.gpus:
            given["gpus"] = shape.gpus
            notes.append(f"the number of GPUs is the same as in the rest of the report: {shape.word}")
        elif param.name == "until" and query.name not in shape.published:
            given["until"] = "last_submission"
        elif query.name == _FREE and param.name == "capacity" and shape.word in param.choices:
            given["capacity"] = shape.word
        elif param.name == "rule" and _RETRIED in param.choices and shape.one_status and query.name != _INDEPENDENT:
            given["rule"] = _RETRIED
            notes.append("retried runs count as failed, because the source does not record how they ended")
        elif query.name == "utilization/efficiency" and param.name == "by":
            given["by"] = shape.by
        elif query.name == "queuing/timeline" and param.name == "step_s" and shape.step_s:
            given["step_s"] = shape.step_s
        elif query.name == "utilization/vc" and param.name == "step_s" and shape.step_s and shape.too_long:
            given["step_s"] = shape.step_s
            notes.append(f"use is averaged over intervals of {duration(shape.step_s)}, because the log is long")
    return given, notes
