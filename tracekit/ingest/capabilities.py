"""Measure a Trace's capabilities: which questions its tables can answer, how completely, and for which time window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.manifest import CAPABILITIES, Capability

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.interface import TimeFrame
    from tracekit.tenant import Tenant


class _Measure(NamedTuple):
    tables: tuple[str, ...]
    """Tables that the capability needs. The share is measured over the rows of the first table."""
    meaning: str
    share: str
    """SQL for the share of rows that contain the information."""
    first: str = "NULL::TIMESTAMP"
    last: str = "NULL::TIMESTAMP"


def _known(condition: str) -> str:
    return f"count(*) FILTER (WHERE {condition}) / nullif(count(*), 0)"


_JOBS, _TIMES = ("jobs",), ("min(time)", "max(time)")

_MEASURES = {
    "arrivals": _Measure(
        _JOBS, "when jobs were submitted", _known("submit_time IS NOT NULL"), "min(submit_time)", "max(submit_time)"
    ),
    "queueing": _Measure(("attempts",), "how long attempts waited", _known("wait_s IS NOT NULL")),
    "run_time": _Measure(_JOBS, "how long jobs ran", _known("run_s IS NOT NULL")),
    "gpu_count": _Measure(_JOBS, "how many GPUs jobs asked for", _known("gpu_count IS NOT NULL")),
    "node_count": _Measure(_JOBS, "how many nodes jobs ran on", _known("node_count IS NOT NULL")),
    "tenants": _Measure(_JOBS, "which {tenant.one} a job belongs to", _known("vc IS NOT NULL")),
    "users": _Measure(_JOBS, "who submitted a job", _known('"user" IS NOT NULL')),
    "statuses": _Measure(_JOBS, "how jobs ended", _known("status IS NOT NULL AND status <> 'unknown'")),
    "gpu_model": _Measure(_JOBS, "which GPU model a job had or asked for", _known("gpu_model IS NOT NULL")),
    "nodes": _Measure(("nodes",), "which machines exist", _known("gpu_count IS NOT NULL")),
    "capacity": _Measure(("capacity",), "GPUs of {tenant.many} over time", "1.0", *_TIMES),
    "placement": _Measure(
        ("attempts", "placements"),
        "which machines an attempt ran on",
        "(SELECT count(*) FROM (SELECT DISTINCT job_id, attempt FROM placements)) / nullif(count(*), 0)",
        "min(start_time)",
        "max(end_time)",
    ),
    "gpu_index": _Measure(("placements",), "which GPUs of a machine an attempt used", _known("gpu_index IS NOT NULL")),
    "utilization": _Measure(
        ("gpu_utilization",), "GPU utilization over time", _known("utilization_pct IS NOT NULL"), *_TIMES
    ),
    "host_utilization": _Measure(
        ("host_utilization",),
        "CPU and memory use of machines over time",
        _known("cpu_pct IS NOT NULL AND memory_used_gib IS NOT NULL"),
        *_TIMES,
    ),
    "failures": _Measure(("failures",), "why attempts failed", "1.0", *_TIMES),
}


def measure_capabilities(
    con: duckdb.DuckDBPyConnection, tables: set[str], frame: TimeFrame, tenant: Tenant, *, retries: bool
) -> dict[str, Capability]:
    """Measure every capability of a Trace. The notes use the site's word for a tenant.

    Parameters
    ----------
    con : DuckDB connection
        Connection in which the tables of the Trace are views.
    tables : set of str
        Names of its tables.
    frame : TimeFrame
        How its times are interpreted.
    tenant : Tenant
        The column that separates teams, and the site's word for it.
    retries : bool
        Whether the source records all attempts.
    """
    can = {name: measure for name, measure in _MEASURES.items() if tables.issuperset(measure.tables)}
    read: dict[str, tuple[Any, ...]] = {}
    for table in dict.fromkeys(measure.tables[0] for measure in can.values()):
        of_table = {name: measure for name, measure in can.items() if measure.tables[0] == table}
        columns = ", ".join(part for m in of_table.values() for part in (m.share, m.first, m.last))
        row = con.execute(f"SELECT {columns} FROM {table}").fetchall()[0]
        read |= {name: row[3 * place : 3 * place + 3] for place, name in enumerate(of_table)}
    found = {name: _capability(read.get(name), tenant.fill(measure.meaning)) for name, measure in _MEASURES.items()}
    recorded = "attempts" in tables and retries
    found["retries"] = Capability(
        recorded, note="" if recorded else "the source records no attempts, so each started job gets one"
    )
    dated = frame.base == "absolute"
    found["calendar"] = Capability(dated, note="" if dated else frame.note)
    found["hour_of_day"] = Capability(frame.hour_of_day, note="" if frame.hour_of_day else frame.note)
    return {name: found[name] for name in CAPABILITIES}


def _capability(read: tuple[Any, ...] | None, meaning: str) -> Capability:
    """Build a capability from its measured share and window. `read` is None if it needs a table that is missing."""
    if read is None:
        return Capability(available=False, note=f"the source does not record {meaning}")
    share, first, last = read
    if not share:
        return Capability(available=False, coverage=0.0, note=f"the source does not record {meaning}")
    window = None if first is None or last is None else (first.isoformat(), last.isoformat())
    return Capability(available=True, coverage=min(1.0, round(float(share), 6)), window=window, note=meaning)
