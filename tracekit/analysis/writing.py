"""The files of an analysis, but for the Trace that it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.outputs import output_errors
from tracekit.report.structure import WORKLOAD

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tracekit.analysis.answering import Answered
    from tracekit.report.structure import Report

__all__ = ["ADVICE", "BILL", "table_of", "write_analysis"]

ADVICE = "guidelines.md"
"""What to change, in full."""
BILL = "bill.csv"
"""The bill."""


def write_analysis(folder: Path, found: Answered) -> None:
    """Write the pages of a report and what stands beside them: tables, guidelines.md, bill.csv and workload.json.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written.
    """
    from tracekit.guidelines.markdown import markdown
    from tracekit.report.table_files import write_tables
    from tracekit.report.write import write_report
    from tracekit.spreadsheets import csv_safe

    with output_errors(folder):
        for answer in found.answers:
            if isinstance(answer, Answer):
                write_tables(folder, answer.name, table_of(answer, found.report))
        if found.report["guidelines"] is not None:
            text = markdown(found.report["guidelines"])
            (folder / ADVICE).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        if found.bill is not None:
            (folder / BILL).write_text(csv_safe(found.bill.frame).write_csv(), encoding="utf-8", newline="")
        if found.model is not None:
            found.model.write(folder / WORKLOAD, force=True)
    write_report(folder, found.report)


def table_of(answer: Answer, report: Report) -> pl.DataFrame:
    """Return all rows of an answer, in which tenants are called by their own name."""
    from tracekit.characterize.named_tenant import with_tenant
    from tracekit.report.site_words import tenant_of_words

    # Replays and fits keep the tenant that was ingested.
    words = report["tenant"]["replays" if answer.question.kind in {"replay", "fit"} else "queries"]
    return with_tenant(answer, tenant_of_words(words)).frame
