"""The steps of an analysis after ingestion: capacity, queries, replays and guidelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.faults import Fault
from tracekit.text import shorten

if TYPE_CHECKING:
    from typing import Any

    from tracekit.analysis.query_defaults import QueryDefaults
    from tracekit.answer import Answer, Unanswered
    from tracekit.calibration.twins import Twins
    from tracekit.characterize import Query
    from tracekit.faults import Faults
    from tracekit.guidelines.evidence import Evidence
    from tracekit.progress import Progress
    from tracekit.report.structure import CapacityInfo, ReplayInfo
    from tracekit.settings import AnalysisSettings
    from tracekit.trace import Trace

__all__ = ["AdviceResult", "advise", "ask", "capacity_of", "twins_of"]


def capacity_of(trace: Trace, requested: str, progress: Progress, faults: Faults) -> CapacityInfo:
    """Return the number of GPUs by the source asked for, or by the other one when the trace lacks it."""
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
            note = f"'{source}' is used, since {reasons[0]}: {note}"
            progress.note(f"capacity '{source}' is used, since {reasons[0]}")
        others = {k: float(v) for k, v in found.alternatives.items()}
        return {
            "requested": requested,
            "used": found.source,
            "gpus": float(found.gpus),
            "alternatives": others,
            "note": note,
            "word": shorten(found.word),
        }
    return _unknown_capacity(requested, "the trace shows no number of GPUs: no node list, no placements, no telemetry")


def ask(evidence: Evidence, progress: Progress, capacity: CapacityInfo, faults: Faults) -> list[Answer | Unanswered]:
    """Run every query; those about a whole cluster take its size from `capacity`."""
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
    """The results of replays and guidelines."""

    answers: list[Answer | Unanswered]
    """The comparison of the policies."""
    replay: ReplayInfo
    guidelines: dict[str, Any] | None
    """See `tracekit.guidelines.document`; None if it could not be made."""


def twins_of(trace: Trace, stated: str, settings: AnalysisSettings, progress: Progress) -> Twins | None:
    """Return the twins to replay in; None if no replay is asked for.

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
    _ = twins.given  # a file of another Trace ends the analysis here, not after the queries
    return twins


def advise(evidence: Evidence, name: str, twins: Twins | None, progress: Progress, faults: Faults) -> AdviceResult:
    """Replay the policies of the panel in the twins, and judge by the guidelines.

    `name` is the name of the source.
    """
    from tracekit.report.replay_answers import unreplayed_answers

    if twins is None:
        answers, info = unreplayed_answers("No replay was asked for (--replay-jobs 0).")
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
