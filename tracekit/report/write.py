"""The files of a report: its data, its page, and the same as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.faults import Fault, Faults
from tracekit.outputs import output_errors
from tracekit.report.data import fault_infos, write_json
from tracekit.report.markdown import markdown
from tracekit.report.page import render_report

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.report.structure import Report

__all__ = ["DATA", "PAGE", "TEXT", "write_report"]

DATA = "report.json"
PAGE = "report.html"
TEXT = "report.md"


def write_report(folder: Path, report: Report, faults: Faults | None = None) -> Report:
    """Write report.json, report.html and report.md, and return what report.json holds.

    A part that fails says so in its place, and `faults` records it.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written.
    """
    faults = Faults() if faults is None else faults
    while True:
        known = len(faults.found)
        page = render_report(report, faults=faults)
        made = faults.run(f"the file {TEXT}", markdown, report, faults)
        if len(faults.found) == known:
            break
        # The page counts the parts that fail, also those of the text.
    text = f"{made.sentence}\n" if isinstance(made, Fault) else made
    report = {**report, "faults": fault_infos(faults)}
    with output_errors(folder):
        write_json(folder / DATA, report)
        for name, content in ((PAGE, page), (TEXT, text)):
            (folder / name).write_text(content, encoding="utf-8", errors="backslashreplace", newline="\n")
    return report
