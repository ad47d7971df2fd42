"""Turn logs into a report: ingest, answer all questions that the log supports, fit, replay, advise and write pages.

    tracekit.analyze("logs/", "out")

writes the following files, either all or none of them:

    out/report.html            one page that works offline
    out/report.json            everything that the page shows (see schemas/report-1.json)
    out/report.md              the page as text
    out/guidelines.md          recommended changes, in full
    out/tables/<query>.parquet every complete result, unchanged
    out/tables/<query>.csv     the result for spreadsheets: text that would run as a formula has a leading quote
    out/workload.json          the fitted workload (see `tracekit.fit`), if the Trace can be fitted
    out/trace/                 the Trace that the answers come from
"""

from __future__ import annotations

from tracekit.analysis.many import analyze_many
from tracekit.analysis.one import Analysis, analyze

__all__ = ["Analysis", "analyze", "analyze_many"]
