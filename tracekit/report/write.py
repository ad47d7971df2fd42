"""The files of a report: its data, its page, and the same as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.outputs import output_errors
from tracekit.report.data import write_json
from tracekit.report.markdown import markdown
from tracekit.report.page import render_report

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.report.structure import Report

__all__ = ["DATA", "PAGE", "TEXT", "write_report"]

DATA = "report.json"
PAGE = "report.html"
TEXT = "report.md"


def write_report(folder: Path, report: Report) -> None:
    """Write report.json, report.html and report.md.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written.
    """
    page, text = render_report(report), markdown(report)
    with output_errors(folder):
        write_json(folder / DATA, report)
        for name, content in ((PAGE, page), (TEXT, text)):
            (folder / name).write_text(content, encoding="utf-8", errors="backslashreplace", newline="\n")
