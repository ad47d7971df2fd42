"""From logs to a report: ingest, ask every question that can be answered, fit, replay, advise, write the pages.

    tracekit.analyze("logs/", "out")

writes, whole or not at all,

    out/report.html            one page that works offline
    out/report.json            everything that the page shows, see schemas/report-1.json
    out/report.md              the same as text
    out/guidelines.md          what to change, in full
    out/tables/<query>.parquet every result in full, as it is
    out/tables/<query>.csv     the same for spreadsheets: text that would run as a formula has a quote in front
    out/workload.json          the fitted workload (see `tracekit.fit`), where the Trace can be fitted
    out/trace/                 the Trace that the answers come from
"""

from __future__ import annotations

from tracekit.analysis.many import analyze_many
from tracekit.analysis.one import Analysis, analyze

__all__ = ["Analysis", "analyze", "analyze_many"]
