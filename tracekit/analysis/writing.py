"""Write the files of an analysis, except for its Trace."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.faults import Fault, Faults
from tracekit.outputs import output_errors
from tracekit.report.structure import WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.analysis.answering import Answered
    from tracekit.progress import Progress
    from tracekit.report.structure import AnswerInfo, Report

ADVICE = "guidelines.md"
"""The recommended changes, in full."""
BILL = "bill.csv"
"""The bill."""
PDF = "report.pdf"
"""The printed page."""


def write_analysis(
    folder: Path, found: Answered, *, pdf: bool = False, faults: Faults | None = None, progress: Progress | None = None
) -> Answered:
    """Write a report's pages and the files next to them: tables, guidelines.md, bill.csv and workload.json.

    If a file cannot be made, the page and report.json show this as a fault, and the other files are still written.

    Parameters
    ----------
    folder : Path
        Existing folder of the report.
    found : Answered
        Results of the analysis.
    pdf : bool
        Whether to also print the page.
    faults : Faults, optional
        Records the files that fail. It already contains the faults in `found`.
    progress : Progress, optional
        Shows the current step.

    Returns
    -------
    Answered
        The results, with all faults and without the files that could not be made.

    Raises
    ------
    OutputError
        The disk is full, or the folder cannot be written.
    """
    from tracekit.report.files import PAGE, write_report
    from tracekit.report.pdf import print_pdf

    faults = Faults(progress, found.faults) if faults is None else faults
    with output_errors(folder):
        unwritten = _write_tables(folder, found, faults)
        no_model = _write_others(folder, found, faults)
    report = _without_files(found.report, unwritten)
    if no_model is not None and report["workload"] is not None:
        report = {**report, "workload": {**report["workload"], "file": None, "reason": no_model.sentence}}
    report = write_report(folder, report, faults)
    if pdf:
        if progress is not None:
            progress.stage("printing")
        if isinstance(faults.run(f"the file {PDF}", print_pdf, folder / PAGE, folder / PDF), Fault):
            report = write_report(folder, report, faults)
    answers = [replace(a, files=()) if isinstance(a, Answer) and a.name in unwritten else a for a in found.answers]
    return replace(found, report=report, answers=answers, faults=faults.found)


def _write_tables(folder: Path, found: Answered, faults: Faults) -> dict[str, Fault]:
    """Write the tables, and return the faults of tables that could not be made, by answer name."""
    from tracekit.report.files import write_tables

    def write(answer: Answer) -> None:
        with output_errors(folder):
            write_tables(folder, answer.name, answer.frame)

    unwritten = {}
    for answer in found.answers:
        if not isinstance(answer, Answer):
            continue
        made = faults.run(f"the files of {answer.name}", write, answer)
        if isinstance(made, Fault):
            unwritten[answer.name] = made
            for name in answer.files:
                (folder / name).unlink(missing_ok=True)
    return unwritten


def _write_others(folder: Path, found: Answered, faults: Faults) -> Fault | None:
    """Write guidelines.md, the bill and the fitted workload. Return the workload's fault if it could not be made."""
    from tracekit.guidelines.markdown import markdown
    from tracekit.spreadsheets import csv_safe

    document, bill, model = found.report["guidelines"], found.bill, found.model
    texts: dict[str, Callable[[], str]] = {}
    if document is not None:
        texts[ADVICE] = partial(markdown, document, faults)
    if bill is not None:
        texts[BILL] = lambda: csv_safe(bill.frame).write_csv()
    for name, make in texts.items():
        made = faults.run(f"the file {name}", make)
        if isinstance(made, Fault) and name == BILL:
            continue  # bill.csv is written only if there is a bill
        text = f"{made.sentence}\n" if isinstance(made, Fault) else made
        newline = "" if name == BILL else "\n"
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace", newline=newline)
    if model is not None:
        done = faults.run(f"the file {WORKLOAD}", output_errors(folder)(model.write), folder / WORKLOAD, force=True)
        if isinstance(done, Fault):
            (folder / WORKLOAD).unlink(missing_ok=True)  # the process that fitted it wrote this file
            return done
    return None


def _without_files(report: Report, unwritten: Mapping[str, Fault]) -> Report:
    """Return a report without the files of answers whose tables could not be made, with the reasons."""
    if not unwritten:
        return report

    def shown(answer: AnswerInfo) -> AnswerInfo:
        fault = unwritten.get(answer["name"])
        return answer if fault is None else {**answer, "files": [], "notes": [*answer["notes"], fault.sentence[:-1]]}

    sections = [{**s, "answers": [shown(a) for a in s["answers"]]} for s in report["sections"]]
    return {**report, "sections": sections}  # type: ignore[typeddict-item]  # the same keys
