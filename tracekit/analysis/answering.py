"""Every answer about one Trace and what a report states of them, for a folder of files and for a notebook alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from tracekit.analysis.billing import bill_answers
from tracekit.analysis.fitting import Fitting
from tracekit.analysis.steps import advise, ask, capacity_of, twins_of
from tracekit.answer import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.anonymous import HiddenTrace
    from tracekit.answer import Unanswered
    from tracekit.characterize.engines import Engine
    from tracekit.faults import Fault, Faults
    from tracekit.fit.model import WorkloadModel
    from tracekit.gpu_hours.bill import Bill
    from tracekit.progress import Progress
    from tracekit.report.structure import Report
    from tracekit.settings import AnalysisSettings

__all__ = ["Answered", "Named", "answer_all"]


@dataclass(frozen=True)
class Named:
    """What a report calls the source, and the command that makes it."""

    name: str
    """Of the folder or file."""
    stated: str
    """As the user gave it."""
    command: str


@dataclass(frozen=True)
class Answered:
    """What an analysis found."""

    report: Report
    answers: list[Answer | Unanswered]
    model: WorkloadModel | None
    """The fitted workload; None where none was asked for, or none could be fitted."""
    bill: Bill | None
    """None where there are no prices, or nothing to bill."""
    faults: tuple[Fault, ...] = ()
    """Parts that could not be made."""


def answer_all(
    found_at: HiddenTrace,
    settings: AnalysisSettings,
    folder: Path,
    named: Named,
    *,
    prices: Path | None,
    changed: list[Answer | Unanswered],
    engine: Engine,
    progress: Progress,
    faults: Faults,
) -> Answered:
    """Ask every question, fit, replay, judge, and return what the report states; nothing of it is written here.

    A part that fails is recorded, and the others are made.

    Parameters
    ----------
    found_at : HiddenTrace
        The Trace, with the tenant of its ingest.
    settings : AnalysisSettings
        What is asked; which part of the Trace was settled before.
    folder : Path
        Where the process that fits a large Trace may leave its model.
    named : Named
        How the report speaks of the source.
    prices : Path, optional
        Prices of GPU-hours.
    changed : list of Answer or Unanswered
        What changed against another period.
    engine : Engine
        What runs the SQL; it has started.
    progress : Progress
        Shows the current step.
    faults : Faults
        Records the parts that fail.

    Raises
    ------
    DamagedTraceError
        A table cannot be read.
    UsageError
        An option cannot be used.
    """
    from tracekit.guidelines.evidence import Evidence
    from tracekit.report.bundle import start_bundle
    from tracekit.report.table_files import table_names

    trace = found_at.trace
    asked = trace.by(settings.by)
    twins = twins_of(asked, named.stated, settings, progress)
    start_bundle()  # which takes a second, while the queries run
    evidence = Evidence(asked, settings.memory_limit, engine)
    with Fitting(trace, folder, settings, progress) as fitting:
        capacity = capacity_of(trace, settings.capacity, progress, faults)
        answers = ask(evidence, progress, capacity, faults)
        billed = bill_answers(found_at, prices, answers, evidence.session, faults, settings.by)
        found = advise(evidence, named.name, twins, progress, faults)
        # What draws the page takes long to import, and the fit may still be running.
        import_module("tracekit.report.page")
        from tracekit.report.data import build_report
        from tracekit.report.parts import PARTS

        fits, workload = fitting.answers(faults)
    # Too long for a table to read; the report holds its sums.
    parts = next((a for a in answers if a.name == PARTS and isinstance(a, Answer)), None)
    answers = [a for a in answers if a.name != PARTS]
    answers += [*billed.answers, *fits, *found.answers, *changed]
    answers = [replace(a, files=tuple(table_names(a.name))) if isinstance(a, Answer) else a for a in answers]
    report: Report = build_report(
        asked,
        answers,
        parts=parts,
        capacity=capacity,
        source=named.stated,
        command=named.command,
        workload=workload,
        replay=found.replay,
        guidelines=found.guidelines,
        session=evidence.session,
        faults=faults,
    )
    return Answered(report, answers, fitting.model, billed.bill, faults.found)
