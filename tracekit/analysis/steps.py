"""The steps of an analysis after ingestion: capacity, queries, replays and guidelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.errors import DamagedTraceError, OutputError, TracekitError, UsageError
from tracekit.outputs import full_disk
from tracekit.text import shorten

if TYPE_CHECKING:
    from typing import Any

    from tracekit.answer import Answer, Unanswered
    from tracekit.guidelines.evidence import Evidence
    from tracekit.progress import Progress
    from tracekit.report.structure import CapacityInfo, ReplayInfo
    from tracekit.settings import AnalysisSettings
    from tracekit.trace import Trace

__all__ = ["AdviceResult", "advise", "ask", "capacity_of", "error_text"]


def capacity_of(trace: Trace, requested: str, progress: Progress) -> CapacityInfo:
    """Return the number of GPUs by the source asked for, or by the other one when the trace lacks it."""
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
    note = "the trace shows no number of GPUs: no node list, no placements, no telemetry"
    return {"requested": requested, "used": None, "gpus": None, "alternatives": {}, "note": note, "word": ""}


def ask(evidence: Evidence, progress: Progress, capacity: CapacityInfo) -> list[Answer | Unanswered]:
    """Run every query; those about a whole cluster take its size from `capacity`."""
    from tracekit.analysis.query_defaults import parameters_of, query_defaults
    from tracekit.characterize import list_queries
    from tracekit.guidelines.interface import LackingError

    queries = list_queries()
    facts = query_defaults(evidence.trace, capacity)
    answers: list[Answer | Unanswered] = []
    progress.stage("asking", len(queries))
    for query in queries:
        try:
            params, why = parameters_of(query, facts)
            answer = evidence.query(query.name, **params)
        except LackingError as error:
            answers.append(query.unanswered(*error.sentences))
        except (DamagedTraceError, OutputError, UsageError):
            raise  # the Trace, the disk, or the user's --memory-limit, not this query
        except TracekitError as error:
            answers.append(query.unanswered(f"The query failed: {error.what}."))
            progress.note(f"{query.name} failed: {error}")
        else:
            answers.append(replace(answer, notes=(*answer.notes, *why)))
        progress.advance(1)
    return answers


def error_text(error: Exception) -> str:
    """Return the message of an error, short."""
    return error.what if isinstance(error, TracekitError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class AdviceResult:
    """The results of replays and guidelines."""

    answers: list[Answer | Unanswered]
    """The comparison of the policies."""
    replay: ReplayInfo
    guidelines: dict[str, Any]
    """See `tracekit.guidelines.document`."""


def advise(evidence: Evidence, source: tuple[str, str], settings: AnalysisSettings, progress: Progress) -> AdviceResult:
    """Replay the panel of policies, and judge by the guidelines.

    `source` is the name of what is analyzed, and the same as the user gave it.
    """
    from tracekit.calibration.twins import Twins
    from tracekit.guidelines.run import judge_all
    from tracekit.report.replay_answers import replayed_answers, unreplayed_answers

    name, stated = source
    twins: Twins | None = None
    if settings.replay_jobs:
        whole = evidence.trace.ingested
        twins = Twins(whole, settings.replay_jobs, file=settings.twin, progress=progress, name=stated)
    if twins is None:
        answers, info = unreplayed_answers("No replay was asked for (--replay-jobs 0).")
    else:
        twins.check()
        try:
            answers, info = replayed_answers(twins)
        except DamagedTraceError:
            raise
        except Exception as error:
            if full_disk(error):
                raise
            what = error_text(error)
            progress.note(f"the jobs could not be replayed: {what}")
            answers, info = unreplayed_answers(f"The replay failed: {what}.")
            twins = None
    document = judge_all(evidence, twins, progress=progress).document()
    document |= {"trace": shorten(name)}
    return AdviceResult(answers, info, document)
