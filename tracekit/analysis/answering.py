"""Compute every answer about one Trace and the content of its report, both for files and for notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from tracekit.analysis.billing import bill_answers
from tracekit.answer import Answer
from tracekit.errors import MissingTableError, TracekitError, UsageError
from tracekit.faults import Fault
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.report.structure import WORKLOAD
from tracekit.text import shorten

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from tracekit.analysis.query_defaults import QueryDefaults
    from tracekit.anonymous import HiddenTrace
    from tracekit.answer import Unanswered
    from tracekit.calibration.twins import Twins
    from tracekit.characterize import Query
    from tracekit.characterize.engines import Engine
    from tracekit.faults import Faults
    from tracekit.fit.model import WorkloadModel
    from tracekit.gpu_hours.bill import Bill
    from tracekit.guidelines.evidence import Evidence
    from tracekit.progress import Progress
    from tracekit.report.structure import CapacityInfo, ReplayInfo, Report, WorkloadInfo
    from tracekit.settings import AnalysisSettings
    from tracekit.trace import Trace


# Run the steps of an analysis after ingestion: capacity, queries, replays and guidelines.


def capacity_of(trace: Trace, requested: str, progress: Progress, faults: Faults) -> CapacityInfo:
    """Return the number of GPUs from the requested source, or from the other source if the trace lacks it."""
    found = faults.run("the number of GPUs", _capacity, trace, requested, progress)
    return _unknown_capacity(requested, found.remark) if isinstance(found, Fault) else found


def _unknown_capacity(requested: str, note: str) -> CapacityInfo:
    return {"requested": requested, "used": None, "gpus": None, "alternatives": {}, "note": note, "word": ""}


def _capacity(trace: Trace, requested: str, progress: Progress) -> CapacityInfo:
    from tracekit.characterize import capacity as count_gpus

    named = ("listed", "observed")
    order = [requested, *(n for n in named if n != requested)] if requested in named else [requested]
    reasons = []
    for source in order:
        try:
            found = count_gpus(trace, source)
        except UsageError as error:
            if requested not in named:
                raise
            reasons.append(error.what)
            continue
        note = found.note
        if reasons:
            note = f"we use '{source}' because {reasons[0]}: {note}"
            progress.note(f"we use the capacity '{source}' because {reasons[0]}")
        others = {k: float(v) for k, v in found.alternatives.items()}
        return {
            "requested": requested,
            "used": found.source,
            "gpus": float(found.gpus),
            "alternatives": others,
            "note": note,
            "word": shorten(found.word),
        }
    return _unknown_capacity(
        requested, "the trace does not show the number of GPUs (no node list, placements or telemetry)"
    )


def ask(evidence: Evidence, progress: Progress, capacity: CapacityInfo, faults: Faults) -> list[Answer | Unanswered]:
    """Run every query; queries about a whole cluster take its size from `capacity`."""
    from tracekit.analysis.query_defaults import QueryDefaults, query_defaults
    from tracekit.characterize import list_queries

    queries = list_queries()
    facts = faults.run_or(
        QueryDefaults(), "the choice of parameters of queries", query_defaults, evidence.trace, capacity
    )
    answers: list[Answer | Unanswered] = []
    progress.stage("asking", len(queries))
    for query in queries:
        found = faults.run(f"the answer to {query.name}", _asked, query, evidence, facts)
        answers.append(query.unanswered(found.remark, failed=True) if isinstance(found, Fault) else found)
        progress.advance(1)
    return answers


def _asked(query: Query, evidence: Evidence, facts: QueryDefaults) -> Answer | Unanswered:
    from tracekit.analysis.query_defaults import parameters_of
    from tracekit.guidelines.interface import LackingError

    try:
        params, why = parameters_of(query, facts)
        answer = evidence.query(query.name, **params)
    except LackingError as error:
        return query.unanswered(*error.sentences)
    return replace(answer, notes=(*answer.notes, *why))


@dataclass(frozen=True)
class AdviceResult:
    """Results of the replays and guidelines."""

    answers: list[Answer | Unanswered]
    """Comparison of the policies."""
    replay: ReplayInfo
    guidelines: dict[str, Any] | None
    """Result of `tracekit.guidelines.document`; None if it could not be made."""


def twins_of(trace: Trace, stated: str, settings: AnalysisSettings, progress: Progress) -> Twins | None:
    """Return the twins to replay in, or None if no replay is requested.

    `stated` is the source as the user gave it.

    Raises
    ------
    UsageError
        The twin file belongs to another Trace.
    """
    from tracekit.calibration.twins import Twins

    if not settings.replay_jobs:
        return None
    twins = Twins(trace.ingested, settings.replay_jobs, file=settings.twin, progress=progress, name=stated)
    _ = twins.given  # a twin file of another Trace stops the analysis here instead of after the queries
    return twins


def advise(evidence: Evidence, name: str, twins: Twins | None, progress: Progress, faults: Faults) -> AdviceResult:
    """Replay the panel's policies in the twins and judge the Trace by the guidelines.

    `name` is the name of the source.
    """
    from tracekit.report.replay_answers import unreplayed_answers

    if twins is None:
        answers, info = unreplayed_answers("No replay was requested (--replay-jobs 0).")
    else:
        found = faults.run("the replays", _replayed, twins, faults)
        if isinstance(found, Fault):
            found, twins = unreplayed_answers(found.sentence, failed=True), None
        answers, info = found
    document = faults.run("the guidelines", _judged, evidence, twins, progress, faults)
    if isinstance(document, Fault):
        return AdviceResult(answers, info, None)
    return AdviceResult(answers, info, document | {"trace": shorten(name)})


def _replayed(twins: Twins, faults: Faults) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    from tracekit.report.replay_answers import replayed_answers

    twins.check()
    return replayed_answers(twins, faults)


def _judged(evidence: Evidence, twins: Twins | None, progress: Progress, faults: Faults) -> dict[str, Any]:
    from tracekit.guidelines.run import judge_all

    return judge_all(evidence, twins, progress=progress, faults=faults).document()


# Fit the workload; a large Trace is fitted in a separate process while the other steps run.

LARGE = 500
"""Number of jobs from which a separate process pays off."""
_REPLICATES = 19
"""Number of samples that a report's bootstrap draws; enough for a p-value of 0.05."""
_SCORED = 1
"""Number of workloads per generator that a report's scores judge."""


class Fitting:
    """A context that starts the fit of a Trace and ends its process, if it has one.

    The process writes workload.json to the folder.
    """

    def __init__(self, trace: Trace, folder: Path, settings: AnalysisSettings, progress: Progress) -> None:
        self._trace, self._folder, self._settings, self._progress = trace, folder, settings, progress
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._key: object = None
        self.model: WorkloadModel | None = None
        """The fitted workload; set after `answers` was called."""

    def __enter__(self) -> Self:
        tables = self._trace.manifest.tables
        if self._settings.fit and sys.executable and "jobs" in tables and tables["jobs"].rows >= LARGE:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        unregister_cleanup(self._key)
        if self._stderr is not None:
            self._stderr.close()

    def answers(self, faults: Faults) -> tuple[list[Answer | Unanswered], WorkloadInfo]:
        """Return the answers for the report, or the reason why there is no fit; `faults` records a failed fit.

        Raises
        ------
        DamagedTraceError
            A table cannot be read.
        """
        from tracekit.report.fit_answers import FITTED

        info: WorkloadInfo = {"file": None, "reason": None, "seed": 0, "bootstrap_replicates": _REPLICATES}
        if not self._settings.fit:
            reason = info["reason"] = "No fit was requested (--no-fit)."
            return [question.unanswered(reason) for question in FITTED], info
        found = faults.run("the fit", self._fitted)
        if isinstance(found, Fault | str):
            reason = info["reason"] = found if isinstance(found, str) else found.sentence
            return [question.unanswered(reason, failed=isinstance(found, Fault)) for question in FITTED], info
        info["file"] = WORKLOAD
        answers, self.model = found
        return answers, info

    def _fitted(self) -> tuple[list[Answer | Unanswered], WorkloadModel] | str:
        """Return the answers and the model, or the reason why the Trace cannot be fitted."""
        from tracekit.fit.scored import fit
        from tracekit.report.commands import fit_command, with_commands
        from tracekit.report.fit_answers import fitted_answers

        if self._process is None:
            limit = self._settings.memory_limit
            try:
                model = fit(
                    self._trace, replicates=_REPLICATES, scores=_SCORED, memory_limit=limit, progress=self._progress
                )
            except (UsageError, MissingTableError) as error:
                return f"The trace cannot be fitted: {error.what}."
        else:
            model = self._model_of(self._process)
        return with_commands(fitted_answers(model), [fit_command(_REPLICATES, _SCORED)]), model

    def _start(self) -> None:
        """Run `tracekit fit` from this package, regardless of Python's search path."""
        home = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- closed at the end of the block
        target, limit = self._folder / WORKLOAD, self._settings.memory_limit
        self._process = subprocess.Popen(  # noqa: S603 -- our own program, without a shell
            [
                *(sys.executable, "-P", "-m", "tracekit", "fit", str(self._trace.path.resolve())),
                *("-o", str(target.resolve()), "--bootstrap", str(_REPLICATES), "--scores", str(_SCORED)),
                *(() if limit is None else ("--memory-limit", limit)),
            ],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
        )
        self._key = register_cleanup(partial(end_process, self._process.pid))

    def _model_of(self, process: subprocess.Popen[bytes]) -> WorkloadModel:
        """Return the model written by the other process.

        Raises
        ------
        TracekitError
            The process failed.
        """
        from tracekit.fit.model import WorkloadModel

        self._progress.stage("fitting")
        code = process.wait()
        if code:
            raise TracekitError(self._last_error_line() or f"its process ended with status {code}")
        try:
            return WorkloadModel.read(self._folder / WORKLOAD)
        except TracekitError as error:
            raise TracekitError(error.what) from error  # the file was written by our own process, not given by the user

    def _last_error_line(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].partition("error: ")[2] or lines[-1] if lines else ""


@dataclass(frozen=True)
class Named:
    """The source's name in a report, and the command that makes the report."""

    name: str
    """Name of the folder or file."""
    stated: str
    """The source as the user gave it."""
    command: str


@dataclass(frozen=True)
class Answered:
    """The results of an analysis."""

    report: Report
    answers: list[Answer | Unanswered]
    model: WorkloadModel | None
    """The fitted workload; None if not requested or if it could not be fitted."""
    bill: Bill | None
    """The bill; None without prices or with nothing to bill."""
    faults: tuple[Fault, ...] = ()
    """Parts of the report that could not be made."""


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
    """Answer every question, fit, replay, judge, and return the content of the report without writing it.

    A part that fails is recorded, and the other parts are still made.

    Parameters
    ----------
    found_at : HiddenTrace
        The Trace, with the tenant from its ingest.
    settings : AnalysisSettings
        Settings of the analysis; the part of the Trace is already selected.
    folder : Path
        Folder in which the process that fits a large Trace may put its model.
    named : Named
        The source's name in the report.
    prices : Path, optional
        Prices of GPU-hours.
    changed : list of Answer or Unanswered
        Changes relative to another period.
    engine : Engine
        Engine that runs the SQL, already started.
    progress : Progress
        Shows the current step.
    faults : Faults
        Records the parts that fail.

    Raises
    ------
    DamagedTraceError
        A table cannot be read.
    UsageError
        An option is invalid.
    """
    from tracekit.guidelines.evidence import Evidence
    from tracekit.report.bundle import start_bundle
    from tracekit.report.files import table_names

    trace = found_at.trace
    asked = trace.by(settings.by)
    twins = twins_of(asked, named.stated, settings, progress)
    start_bundle()  # takes a second, while the queries run
    evidence = Evidence(asked, settings.memory_limit, engine)
    with Fitting(trace, folder, settings, progress) as fitting:
        capacity = capacity_of(trace, settings.capacity, progress, faults)
        answers = ask(evidence, progress, capacity, faults)
        billed = bill_answers(found_at, prices, answers, evidence.session, faults, settings.by)
        found = advise(evidence, named.name, twins, progress, faults)
        # Import the page code here, because that takes long and the fit may still be running.
        import_module("tracekit.report.page")
        from tracekit.report.data import build_report
        from tracekit.report.parts import PARTS

        fits, workload = fitting.answers(faults)
    # Too long for a readable table; the report has its sums.
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
