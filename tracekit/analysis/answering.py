"""Compute all answers about one Trace and the content of its report, both for files and for notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tracekit.analysis.billing import bill_answers, find_prices
from tracekit.analysis.comparing import check_comparison, compare_with_other
from tracekit.analysis.source import of_other, trace_at
from tracekit.answer import Answer
from tracekit.errors import MissingTableError, TracekitError, UsageError
from tracekit.faults import Fault
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.outputs import real_path
from tracekit.report.structure import WORKLOAD
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tracekit.anonymous import HiddenTrace
    from tracekit.answer import Unanswered
    from tracekit.calibration.twins import Twins
    from tracekit.characterize import Query
    from tracekit.faults import Faults
    from tracekit.fit.model import WorkloadModel
    from tracekit.gpu_hours.bill import Bill
    from tracekit.guidelines.evidence import Evidence
    from tracekit.progress import Progress
    from tracekit.report.structure import CapacityInfo, ReplayInfo, Report, WorkloadInfo
    from tracekit.settings import AnalysisSettings
    from tracekit.trace import Trace


HIDDEN_SOURCE = "logs"
"""Name to show for the source if names are hidden."""


# Run the steps of an analysis after ingestion: capacity, queries, replays and guidelines.


def capacity_of(trace: Trace, requested: str, progress: Progress, faults: Faults) -> CapacityInfo:
    """Return the number of GPUs from the requested source, or from the other one if the trace lacks it."""
    found = faults.run("the number of GPUs", _capacity, trace, requested, progress)
    if isinstance(found, dict):
        return found
    note = found.remark if isinstance(found, Fault) else found
    return {"requested": requested, "used": None, "gpus": None, "alternatives": {}, "note": note, "word": ""}


def _capacity(trace: Trace, requested: str, progress: Progress) -> CapacityInfo | str:
    """Return the number of GPUs, or why it is unknown."""
    from tracekit.characterize import capacity as count_gpus

    named = ("listed", "observed")
    why = ""
    for source in dict.fromkeys((requested, *named)) if requested in named else (requested,):
        try:
            found = count_gpus(trace, source)
        except UsageError as error:
            if requested not in named:
                raise
            why = why or f"because {error.what}"
            continue
        if why:
            progress.note(f"the '{source}' capacity is used {why}")
        return {
            "requested": requested,
            "used": found.source,
            "gpus": float(found.gpus),
            "alternatives": {k: float(v) for k, v in found.alternatives.items()},
            "note": f"'{source}' is used {why}: {found.note}" if why else found.note,
            "word": shorten(found.word),
        }
    return "the trace does not show the number of GPUs (no node list, placements or telemetry)"


def ask(evidence: Evidence, progress: Progress, capacity: CapacityInfo, faults: Faults) -> list[Answer | Unanswered]:
    """Run every query. Queries about a whole cluster take its size from `capacity`."""
    from tracekit.analysis.query_defaults import QueryDefaults, parameters_of, query_defaults
    from tracekit.characterize import list_queries
    from tracekit.guidelines.interface import LackingError

    queries = list_queries()
    facts = faults.run_or(QueryDefaults(), "the choice of query parameters", query_defaults, evidence.trace, capacity)

    def asked(query: Query) -> Answer | Unanswered:
        try:
            params, why = parameters_of(query, facts)
            answer = evidence.query(query.name, **params)
        except LackingError as error:
            return query.unanswered(*error.sentences)
        return replace(answer, notes=(*answer.notes, *why))

    answers: list[Answer | Unanswered] = []
    progress.stage("asking", len(queries))
    for query in queries:
        found = faults.run(f"the answer to {query.name}", asked, query)
        answers.append(query.unanswered(found.remark, failed=True) if isinstance(found, Fault) else found)
        progress.advance(1)
    return answers


def twins_of(trace: Trace, stated: str, settings: AnalysisSettings, progress: Progress) -> Twins | None:
    """Return the twins in which to replay, or None if no replay is requested.

    `stated` is the source as the user named it.

    Raises
    ------
    UsageError
        The twin file belongs to another Trace.
    """
    from tracekit.calibration.twins import Twins

    if not settings.replay_jobs:
        return None
    twins = Twins(trace.ingested.divided, settings.replay_jobs, file=settings.twin, progress=progress, name=stated)
    _ = twins.given  # a twin file of another Trace stops the analysis here, not after the queries
    return twins


def advise(
    evidence: Evidence, name: str, twins: Twins | None, progress: Progress, faults: Faults
) -> tuple[list[Answer | Unanswered], ReplayInfo, dict[str, Any] | None]:
    """Replay the panel's policies in the twins, and judge the Trace by the guidelines.

    Returns
    -------
    tuple
        The comparison of the policies, a description of what was replayed, and the guidelines' document for the source
        `name`, or None if the document could not be made.
    """
    from tracekit.guidelines.run import judge_all
    from tracekit.report.replay_answers import replayed_answers, unreplayed_answers

    if twins is None:
        answers, info = unreplayed_answers("No replay was requested (--replay-jobs 0).")
    else:
        asked = twins

        def replayed() -> tuple[list[Answer | Unanswered], ReplayInfo]:
            asked.check()
            return replayed_answers(asked, faults)

        found = faults.run("the replays", replayed)
        if isinstance(found, Fault):
            found, twins = unreplayed_answers(found.sentence, failed=True), None
        answers, info = found
    document = faults.run(
        "the guidelines", lambda: judge_all(evidence, twins, progress=progress, faults=faults).document()
    )
    return answers, info, None if isinstance(document, Fault) else document | {"trace": shorten(name)}


# Fit the workload. For a large Trace, a separate process does this while the other steps run.

LARGE = 500
"""With at least this many jobs, a separate process saves time."""
_REPLICATES = 19
"""Number of samples that a report's bootstrap draws, which is enough for a p-value of 0.05."""
_SCORED = 1
"""Number of workloads per generator that a report scores."""


class Fitting:
    """A context that starts the fit of a Trace, and ends the fit's process if there is one.

    The process writes workload.json to the folder.
    """

    def __init__(self, trace: Trace, folder: Path, settings: AnalysisSettings, progress: Progress) -> None:
        self._trace, self._folder, self._settings, self._progress = trace, folder, settings, progress
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = ExitStack()
        self.model: WorkloadModel | None = None
        """The fitted workload, which is set after `answers` has been called."""

    def __enter__(self) -> Self:
        tables = self._trace.manifest.tables
        if self._settings.fit and sys.executable and "jobs" in tables and tables["jobs"].rows >= LARGE:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def answers(self, faults: Faults) -> tuple[list[Answer | Unanswered], WorkloadInfo]:
        """Return the answers for the report, or the reason why there is no fit. `faults` records a failed fit.

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
        return with_commands(fitted_answers(model, self._trace.tenant), [fit_command(_REPLICATES, _SCORED)]), model

    def _start(self) -> None:
        """Run `tracekit fit` from this package, regardless of Python's search path."""
        home = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        self._stderr = self._ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- `_ends` closes it
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
        self._ends.callback(unregister_cleanup, register_cleanup(partial(end_process, self._process.pid)))
        self._ends.callback(_end, self._process)

    def _model_of(self, process: subprocess.Popen[bytes]) -> WorkloadModel:
        """Return the model that the other process wrote.

        Raises
        ------
        TracekitError
            The process failed.
        """
        from tracekit.fit.model import WorkloadModel

        self._progress.stage("fitting")
        code = process.wait()
        if code:
            self._stderr.seek(0)
            last = "".join(self._stderr.read().decode("utf-8", "replace").strip().splitlines()[-1:])
            raise TracekitError(last.partition("error: ")[2] or last or f"its process ended with status {code}")
        try:
            return WorkloadModel.read(self._folder / WORKLOAD)
        except TracekitError as error:
            raise TracekitError(error.what) from error  # our own process wrote the file, so do not blame the user


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Answered:
    """The results of an analysis."""

    report: Report
    answers: list[Answer | Unanswered]
    model: WorkloadModel | None
    """The fitted workload, or None if it was not requested or could not be fitted."""
    bill: Bill | None
    """The bill, or None if there are no prices or no job can be billed."""
    faults: tuple[Fault, ...] = ()
    """Parts of the report that could not be made."""


def check_settings(source: Path, settings: AnalysisSettings, out: Path, progress: Progress) -> Path | None:
    """Check the replays, the comparison and the prices before any work, and return the price file, if any.

    Raises
    ------
    SourceError
        The period to compare with does not exist.
    UsageError
        The twin file or the price file is invalid, the number of jobs is negative, or `out` would replace the period to
        compare with.
    """
    from tracekit.calibration.twin import check_twin_file

    if settings.replay_jobs < 0:
        raise UsageError("is below 0", where="replay_jobs", hint="give a number of jobs, or 0 for no replays")
    if settings.twin is not None:
        check_twin_file(settings.twin)
    check_comparison(settings.compare, out)
    return find_prices(source, settings.prices, progress)


def answer_all(
    source: Path,
    settings: AnalysisSettings,
    folder: Path,
    opened: Callable[[], HiddenTrace],
    *,
    out: Path,
    prices: Path | None,
    salt: bytes | None = None,
    progress: Progress,
    faults: Faults,
) -> Answered:
    """Open the Trace of a source, answer every question, fit, replay and judge, and return the report's content.

    If a part fails, this is recorded, and the others are still made. Only temporary files are written.

    Parameters
    ----------
    source : Path
        The source as the user named it.
    settings : AnalysisSettings
        Settings of the analysis.
    folder : Path
        Folder for the Trace of the other period, and for the model from the process that fits a large Trace.
    opened : callable
        Returns the part of the Trace to analyze, with the tenant set at ingest.
    out : Path
        The report's folder in the command that makes the report again.
    prices : Path, optional
        Prices of GPU-hours.
    salt : bytes, optional
        Salt of the pseudonyms, or None if names are not replaced.
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
    from tracekit.characterize.engines import engine_of
    from tracekit.guidelines.evidence import Evidence
    from tracekit.report.bundle import start_bundle
    from tracekit.report.files import table_names

    engine = engine_of(settings.engine, settings.master)
    try:
        engine.start()
        trace = opened()
        changed = compare_with_other(
            trace.trace.by(settings.by),
            folder,
            settings,
            lambda path, place: trace_at(place, path, of_other(path, settings), progress, salt).trace,
            progress,
            faults,
        )
        name, stated = (HIDDEN_SOURCE,) * 2 if settings.anonymize else (real_path(source).name, str(source))
        asked = trace.trace.by(settings.by).divided
        twins = twins_of(asked, stated, settings, progress)
        start_bundle()  # takes a second while the queries run
        evidence = Evidence(asked, settings.memory_limit, engine)
        with Fitting(trace.trace, folder, settings, progress) as fitting:
            capacity = capacity_of(trace.trace, settings.capacity, progress, faults)
            answers = ask(evidence, progress, capacity, faults)
            bill_lines, bill = bill_answers(trace, prices, answers, evidence.session, faults, settings.by)
            replayed, replay, guidelines = advise(evidence, name, twins, progress, faults)
            # Import the page code only here: this takes long, and the fit may still be running.
            import_module("tracekit.report.page")
            from tracekit.report.data import build_report
            from tracekit.report.parts import PARTS

            fits, workload = fitting.answers(faults)
        # There are too many rows for a table, so the report shows their sums.
        parts = next((a for a in answers if a.name == PARTS and isinstance(a, Answer)), None)
        answers = [*(a for a in answers if a.name != PARTS), *bill_lines, *fits, *replayed, *changed]
        words = {"replay": asked.ingested_tenant, "fit": asked.ingested_tenant}
        answers = [a.of(words.get(a.question.kind, asked.tenant)) for a in answers]
        answers = [replace(a, files=tuple(table_names(a.name))) if isinstance(a, Answer) else a for a in answers]
        report = build_report(
            asked,
            answers,
            parts=parts,
            capacity=capacity,
            source=stated,
            command=settings.command(source, out),
            workload=workload,
            replay=replay,
            guidelines=guidelines,
            session=evidence.session,
            faults=faults,
        )
        return Answered(report, answers, fitting.model, bill, faults.found)
    finally:
        engine.stop()
