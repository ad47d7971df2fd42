"""Telemetry coverage: the machines, attempts and times with samples, and sentences about them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tracekit.characterize import Query
from tracekit.characterize.session import Session
from tracekit.report.facts import NO_TELEMETRY, TelemetryCoverage
from tracekit.report.times import local, period_words, span_words
from tracekit.text import count

if TYPE_CHECKING:
    from tracekit.answer import Question
    from tracekit.report.structure import Quality, TimeInfo
    from tracekit.trace import Trace


_NODES = "SELECT count(DISTINCT node_id) FROM {table}"
_ATTEMPTS = """
WITH sampled AS (SELECT DISTINCT job_id, attempt FROM attempt_samples),

each AS (
    SELECT a.gpu_count, count(DISTINCT p.node_id) AS nodes
    FROM sampled AS s
    INNER JOIN attempts AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
    INNER JOIN placements AS p ON s.job_id = p.job_id AND s.attempt = p.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY p.job_id, p.attempt, a.gpu_count
)

SELECT gpu_count, nodes, count(*) AS attempts FROM each GROUP BY gpu_count, nodes
"""


def telemetry_coverage(trace: Trace, session: Session | None = None) -> TelemetryCoverage:
    """Count the machines and attempts with samples, as in the attempt_samples view.

    Attempts of unknown size are not counted.
    """
    tables = {"nodes": "nodes", "gpu_nodes": "gpu_utilization", "host_nodes": "host_utilization"}
    found = {key: table for key, table in tables.items() if trace.has(table)}
    if not {"gpu_nodes", "host_nodes"} & {*found}:
        return TelemetryCoverage()
    session = session or Session(trace)
    with session.connect() as con:
        numbers = {key: con.execute(_NODES.format(table=table)).fetchall()[0][0] for key, table in found.items()}
        placed = "gpu_nodes" in found and trace.has("placements") and trace.has("attempts")
        rows = con.execute(_ATTEMPTS).fetchall() if placed else []
    return TelemetryCoverage(**numbers, attempts={(float(gpus), nodes): number for gpus, nodes, number in rows})


_MOST = 0.9
"""Telemetry counts as complete if it covers this share of the trace and of its machines."""


def telemetry_note(
    question: Question, quality: Quality, times: TimeInfo, coverage: TelemetryCoverage = NO_TELEMETRY
) -> str | None:
    """Describe the coverage of the telemetry that a query uses, unless it covers nearly the whole trace."""
    if not isinstance(question, Query):
        return None
    capabilities = {"utilization", "host_utilization"} & {*question.needs}
    if "gpu_utilization" in (*question.also, *question.one_of) and question.name.startswith("utilization/"):
        capabilities.add("utilization")
    return telemetry_period(capabilities, quality, times, coverage)


def telemetry_period(
    capabilities: set[str], quality: Quality, times: TimeInfo, coverage: TelemetryCoverage = NO_TELEMETRY
) -> str | None:
    """Describe the coverage of 'utilization' or 'host_utilization', unless it covers nearly the whole trace.

    `quality` has the time window of each capability, and `coverage` the number of machines with samples.
    """
    windows = [
        c["window"] for c in quality["capabilities"] if c["name"] in capabilities and c["available"] and c["window"]
    ]
    if not windows:
        return None
    period = _period(windows[0], times)
    sampled = coverage.gpu_nodes if "utilization" in capabilities else coverage.host_nodes
    if sampled is None or not coverage.nodes or sampled >= _MOST * coverage.nodes:
        return period
    machines = f"{count(sampled)} of {count(coverage.nodes)} nodes"
    return f"{period}, on {machines}" if period else f"telemetry covers {machines}"


def _period(window: list[str], times: TimeInfo) -> str | None:
    if not times["span_s"]:
        return None
    begin, end = (datetime.fromisoformat(text) for text in window)
    covered = (end - begin).total_seconds()
    if covered >= _MOST * times["span_s"]:
        return None
    whole = span_words(times["span_s"])
    if times["base"] != "absolute":
        return f"telemetry covers {span_words(covered)} of the trace's {whole}"
    first, last = (local(text, times["timezone"]) for text in window)
    return f"telemetry covers only {period_words(first, last)}, {span_words(covered)} of the trace's {whole}"
