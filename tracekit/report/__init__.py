"""Reports: one structure that is report.json, and the page drawn from it."""

from __future__ import annotations

from tracekit.report.data import build_report, write_json
from tracekit.report.page import render_index, render_report
from tracekit.report.structure import Report
from tracekit.report.write import write_report

__all__ = ["Report", "build_report", "render_index", "render_report", "write_json", "write_report"]
