"""The capabilities of a Trace, measured on its tables: what it can answer, with coverage and usable window."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.manifest import CAPABILITIES, Capability

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.interface import TimeFrame

__all__ = ["measure_capabilities"]


class _Measure(NamedTuple):
    tables: tuple[str, ...]
    meaning: str
    query: str
    """Gives share of rows that carry the information, first time, last time."""


_NO_WINDOW = "NULL::TIMESTAMP, NULL::TIMESTAMP"


def _share(condition: str, table: str, window: str = _NO_WINDOW) -> str:
    return f"SELECT count(*) FILTER (WHERE {condition}) / nullif(count(*), 0), {window} FROM {table}"


_SUBMITTED = "min(submit_time), max(submit_time)"

_MEASURES = {
    "arrivals": _Measure(("jobs",), "when jobs were submitted", _share("submit_time IS NOT NULL", "jobs", _SUBMITTED)),
    "queueing": _Measure(("attempts",), "how long attempts waited", _share("wait_s IS NOT NULL", "attempts")),
    "run_time": _Measure(("jobs",), "how long jobs ran", _share("run_s IS NOT NULL", "jobs")),
    "gpu_count": _Measure(("jobs",), "how many GPUs jobs asked for", _share("gpu_count IS NOT NULL", "jobs")),
    "node_count": _Measure(("jobs",), "how many nodes jobs ran on", _share("node_count IS NOT NULL", "jobs")),
    "tenants": _Measure(("jobs",), "which VC a job belongs to", _share("vc IS NOT NULL", "jobs")),
    "users": _Measure(("jobs",), "who submitted a job", _share('"user" IS NOT NULL', "jobs")),
    "statuses": _Measure(("jobs",), "how jobs ended", _share("status IS NOT NULL AND status <> 'unknown'", "jobs")),
    "gpu_model": _Measure(("jobs",), "which GPU model a job had or asked for", _share("gpu_model IS NOT NULL", "jobs")),
    "nodes": _Measure(("nodes",), "which machines there are", _share("gpu_count IS NOT NULL", "nodes")),
    "capacity": _Measure(("capacity",), "GPUs of VCs through time", "SELECT 1.0, min(time), max(time) FROM capacity"),
    "placement": _Measure(
        ("attempts", "placements"),
        "which machines an attempt ran on",
        """SELECT (SELECT count(*) FROM (SELECT DISTINCT job_id, attempt FROM placements)) / nullif(count(*), 0),
           min(start_time), max(end_time) FROM attempts""",
    ),
    "gpu_index": _Measure(
        ("placements",), "which GPUs of a machine an attempt held", _share("gpu_index IS NOT NULL", "placements")
    ),
    "utilization": _Measure(
        ("gpu_utilization",),
        "GPU utilization through time",
        _share("utilization_pct IS NOT NULL", "gpu_utilization", "min(time), max(time)"),
    ),
    "host_utilization": _Measure(
        ("host_utilization",),
        "CPU and memory use of machines through time",
        _share("cpu_pct IS NOT NULL AND memory_used_gib IS NOT NULL", "host_utilization", "min(time), max(time)"),
    ),
    "failures": _Measure(("failures",), "why attempts failed", "SELECT 1.0, min(time), max(time) FROM failures"),
}


def measure_capabilities(
    con: duckdb.DuckDBPyConnection, tables: set[str], frame: TimeFrame, *, retries: bool
) -> dict[str, Capability]:
    """Return every capability of a Trace; `con` has its tables as views, `retries` is whether it has all attempts."""
    found = {name: _measured(con, measure, tables) for name, measure in _MEASURES.items()}
    recorded = "attempts" in tables and retries
    found["retries"] = Capability(
        recorded, note="" if recorded else "the source records no attempts; one is derived for each started job"
    )
    dated = frame.base == "absolute"
    found["calendar"] = Capability(dated, note="" if dated else frame.note)
    found["hour_of_day"] = Capability(frame.hour_of_day, note="" if frame.hour_of_day else frame.note)
    return {name: found[name] for name in CAPABILITIES}


def _measured(con: duckdb.DuckDBPyConnection, measure: _Measure, tables: set[str]) -> Capability:
    missing = [t for t in measure.tables if t not in tables]
    if missing:
        return Capability(available=False, note=f"the source does not state {measure.meaning}")
    share, first, last = con.execute(measure.query).fetchall()[0]
    if not share:
        return Capability(available=False, coverage=0.0, note=f"the source does not state {measure.meaning}")
    window = None if first is None or last is None else (first.isoformat(), last.isoformat())
    return Capability(available=True, coverage=min(1.0, round(float(share), 6)), window=window, note=measure.meaning)
