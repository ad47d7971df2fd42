"""The files of a report: its data, its page, its text version, and each result's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.faults import Fault, Faults
from tracekit.outputs import output_errors
from tracekit.report.data import fault_infos, write_json
from tracekit.report.markdown import markdown
from tracekit.report.page import render_report
from tracekit.spreadsheets import csv_safe

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tracekit.report.structure import Report


DATA = "report.json"
PAGE = "report.html"
TEXT = "report.md"


def write_report(folder: Path, report: Report, faults: Faults | None = None) -> Report:
    """Write report.json, report.html and report.md, and return the content of report.json.

    If a part fails, a message replaces it in the report, and the error is added to `faults`.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written.
    """
    faults = Faults() if faults is None else faults
    # The page also counts failed parts of the text version.
    page, made = faults.settled(
        lambda: (render_report(report, faults=faults), faults.run(f"the file {TEXT}", markdown, report, faults))
    )
    text = f"{made.sentence}\n" if isinstance(made, Fault) else made
    report = {**report, "faults": fault_infos(faults)}
    with output_errors(folder):
        write_json(folder / DATA, report)
        for name, content in ((PAGE, page), (TEXT, text)):
            (folder / name).write_text(content, encoding="utf-8", errors="backslashreplace", newline="\n")
    return report


def write_csv(path: Path, frame: pl.DataFrame) -> None:
    """Write a result as CSV for spreadsheets, and create the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    csv_safe(frame).write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S%.f")


def write_tables(folder: Path, name: str, frame: pl.DataFrame) -> list[str]:
    """Write a result below `folder`, and return the files relative to the report."""
    parquet, csv = names = table_names(name)
    write_csv(folder / csv, frame)
    frame.write_parquet(folder / parquet, compression="zstd")
    return names


def table_names(name: str) -> list[str]:
    """Return the files of a result, relative to the report."""
    return [f"tables/{name}.parquet", f"tables/{name}.csv"]
