"""Turn one source's logs into a report."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.answering import Named, answer_all
from tracekit.analysis.billing import find_prices
from tracekit.analysis.comparing import check_comparison, compare_with_other, reads_logs
from tracekit.analysis.hiding import HIDDEN_SOURCE, salt_of
from tracekit.analysis.part import copy_part
from tracekit.analysis.writing import write_analysis
from tracekit.anonymous import HiddenTrace, anonymous_trace
from tracekit.answer import Answer, Unanswered
from tracekit.damage import explain_damage, hidden_names
from tracekit.errors import UsageError
from tracekit.faults import Fault, Faults
from tracekit.outputs import StagedFolder, link_or_copy, output_errors, real_path
from tracekit.places import is_remote, place_of
from tracekit.progress import Progress
from tracekit.settings import AnalysisSettings, merge_settings
from tracekit.tables.window import EVERYTHING, Window, utc
from tracekit.tenant import INGESTED
from tracekit.trace import MANIFEST_NAME, Trace, is_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "REPORT_MARKER",
    "Analysis",
    "analysis_in",
    "analyze",
    "analyze_into",
    "check_replays",
    "copy_trace",
    "of_other",
    "open_whole",
    "part_of",
    "refuse_ingesting",
    "refuse_replacing_source",
    "settings_of",
    "trace_at",
]

REPORT_MARKER = "report.json"
"""File that identifies a report's folder."""


@dataclass(frozen=True)
class Analysis:
    """The output of `analyze`."""

    folder: Path
    report: Path
    """The page."""
    data: Path
    """report.json."""
    trace: Path
    """The Trace, complete on its own."""
    results: Mapping[str, Path]
    """The Parquet file of each answered query, by query name."""
    unanswered: Mapping[str, tuple[str, ...]]
    """The reasons why each of the other queries has no answer, by query name."""
    faults: tuple[Fault, ...] = ()
    """Parts that could not be made because of an error; the other parts are complete."""


@explain_damage()
def analyze(
    source: Trace | str | Path,
    out: str | Path,
    settings: AnalysisSettings | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **changes: Any,
) -> Analysis:
    """Read logs, answer every question that they support, fit, replay, advise, and write a report.

    A query that cannot run does not stop the others; the report lists it with the reason. If a part fails, such as a
    query, a chart, a guideline, a replay, the fit or a file, the other parts are still made. The report shows in its
    place that it could not be made, and `Analysis.faults` lists it. Only a damaged Trace, an invalid option or an
    output that cannot be written stops the analysis.

    Parameters
    ----------
    source : Trace, str or Path
        Raw logs (folder, file or archive), or a Trace or its folder, which is copied into the output. For a Trace, only
        the part it was opened with is used, with its tenant.
    out : str or Path
        Folder of the report.
    settings : AnalysisSettings, optional
        Settings of the analysis. If only one of the capacities 'listed' and 'observed' is available, that one is used
        and the report says so. Logs to compare with are read like the source, and their Trace is not kept.
    force : bool
        Whether to replace an existing report at `out`.
    progress : Progress, optional
        Shows the current step.
    **changes
        Settings by name, such as ``fit=False``.

    Raises
    ------
    OutputError
        `out` exists or cannot be written.
    SourceError
        The source cannot be read.
    UsageError
        An option is invalid, or the output would replace the source.
    """
    place = Path(out)
    chosen = merge_settings(AnalysisSettings, settings, changes)
    if isinstance(source, Trace):
        chosen = settings_of(source, chosen)
    given = source.path if isinstance(source, Trace) else place_of(source)
    refuse_replacing_source(given, place)
    with hidden_names(hide=chosen.anonymize):
        return analyze_into(given, place, chosen, shown=place, force=force, progress=progress or Progress())


def analyze_into(
    source: Path, out: Path, settings: AnalysisSettings, *, shown: Path, force: bool, progress: Progress
) -> Analysis:
    """Analyze one source into `out`; `shown` is the path at which the user will find that folder."""
    from tracekit.characterize.engines import engine_of
    from tracekit.report.pdf import find_browser

    salt, salt_note = salt_of(settings, out)
    check_replays(settings)
    check_comparison(settings.compare, shown)
    prices = find_prices(source, settings.prices, progress)
    if salt_note is not None:
        progress.note(salt_note)
    if settings.pdf:
        find_browser()  # check this before the work instead of after it
    engine = engine_of(settings.engine, settings.master)
    faults = Faults(progress, with_messages=not settings.anonymize)
    staged = StagedFolder(out, force=force, marker=REPORT_MARKER, kind="a report")
    try:
        engine.start()
        found_at = trace_at(staged.path / "trace", source, settings, progress, salt)
        asked = found_at.trace.by(settings.by)
        name, stated = (HIDDEN_SOURCE, HIDDEN_SOURCE) if settings.anonymize else (real_path(source).name, str(source))
        changed = compare_with_other(
            asked,
            staged.path,
            settings,
            lambda path, place: trace_at(place, path, of_other(path, settings), progress, salt).trace,
            progress,
            faults,
        )
        found = answer_all(
            found_at,
            settings,
            staged.path,
            Named(name, stated, settings.command(source, shown)),
            prices=prices,
            changed=changed,
            engine=engine,
            progress=progress,
            faults=faults,
        )
        progress.stage("writing the report")
        found = write_analysis(staged.path, found, pdf=settings.pdf, faults=faults, progress=progress)
        staged.commit()
        for lack in found.report["opening"]["lacks"]:
            progress.note(" Add it: ".join(filter(None, (lack["text"], lack["cure"]))))
    finally:
        engine.stop()
        staged.discard()
    return analysis_in(out, found.answers, found.faults)


def analysis_in(out: Path, answers: Iterable[Answer | Unanswered], faults: tuple[Fault, ...]) -> Analysis:
    """Return the files written to `out`."""
    answers = list(answers)
    return Analysis(
        folder=out,
        report=out / "report.html",
        data=out / REPORT_MARKER,
        trace=out / "trace",
        results={a.name: out / a.files[0] for a in answers if isinstance(a, Answer) and a.files},
        unanswered={u.name: u.reasons for u in answers if isinstance(u, Unanswered)},
        faults=faults,
    )


def settings_of(trace: Trace, settings: AnalysisSettings) -> AnalysisSettings:
    """Return settings with the part and the tenant that a Trace was opened with.

    Raises
    ------
    UsageError
        The Trace is already a part and the settings select another, or the part leaves out some jobs of its cluster.
    """
    part, tenant = trace.limits, trace.tenant_column
    if part.where:
        what = f"a report needs all jobs of a cluster, but the Trace has {part.words}"
        raise UsageError(what, where=trace.path, hint="use answer_query, or 'tracekit query --where'")
    if part and (settings.start, settings.end, settings.cluster) != (None, None, None):
        raise UsageError(
            f"the Trace is already a part: {part.words}", where=trace.path, hint="select the part only once"
        )
    if part:
        settings = replace(settings, start=part.start, end=part.end, cluster=part.cluster)
    return replace(
        settings,
        by=settings.by or (None if tenant == INGESTED else tenant),
        allow_missing=settings.allow_missing or trace.allow_missing,
    )


def check_replays(settings: AnalysisSettings) -> None:
    """Check the replay settings before any work.

    Raises
    ------
    UsageError
        The twin file is invalid, or the number of jobs is negative.
    """
    from tracekit.calibration.twin import check_twin_file

    if settings.replay_jobs < 0:
        raise UsageError("is below 0", where="replay_jobs", hint="give a number of jobs; 0 replays none")
    if settings.twin is not None:
        check_twin_file(settings.twin)


def trace_at(
    place: Path, source: Path, settings: AnalysisSettings, progress: Progress, salt: bytes | None
) -> HiddenTrace:
    """Return the Trace to analyze, ingested into or copied to `place`; with pseudonyms if there is a salt."""
    if salt is None:
        return HiddenTrace(_named_trace_at(place, source, settings, progress))
    named = _named_trace_at(place.with_name(f"{place.name}-named"), source, settings, progress)
    progress.stage("replacing names")
    hidden = anonymous_trace(named, place, salt, settings.memory_limit)
    shutil.rmtree(named.path)
    return hidden


def of_other(source: Path, settings: AnalysisSettings) -> AnalysisSettings:
    """Return the settings for the period to compare with, which is used in full; only servers get time bounds."""
    whole = replace(settings, cluster=None, allow_missing=False)
    return replace(whole, start=None, end=None, partition="auto") if is_trace(source) else whole


def _named_trace_at(place: Path, source: Path, settings: AnalysisSettings, progress: Progress) -> Trace:
    if is_trace(source):
        refuse_ingesting(settings)
        return copy_trace(source, place, part_of(settings), settings)
    if settings.cluster is not None or settings.allow_missing:
        option = "--allow-missing" if settings.cluster is None else "--cluster-name"
        raise UsageError(
            "applies only to a Trace, but the source is raw logs", where=option, hint="ingest the logs first"
        )
    from tracekit.estimate import need_of, sentences, this_machine
    from tracekit.ingest import ingest_logs

    trace = ingest_logs(source, place, settings, progress=progress)
    # Before this, only the size of the logs is known; the next steps take memory per job.
    for sentence in sentences(need_of(trace.manifest, "analyze"), this_machine(), settings.memory_limit):
        progress.note(f"the analysis {sentence}" if sentence.startswith("reads ") else sentence)
    return trace


def part_of(settings: AnalysisSettings) -> Window:
    """Return the selected part of a Trace."""
    return Window(utc(settings.start), utc(settings.end), settings.cluster)


def refuse_ingesting(settings: AnalysisSettings) -> None:
    """Reject ingest settings if the source is already a Trace.

    Raises
    ------
    UsageError
        An ingest setting is given.
    """
    if settings.partition != "auto":
        what = "the Trace of a report keeps the layout of its source"
        raise UsageError(
            what, where="--partition", hint="change the layout with 'tracekit ingest TRACE -o NEW --partition'"
        )
    if not reads_logs(settings.compare) and (settings.format_name is not None or settings.options):
        raise UsageError(
            "applies only to raw logs, but the source is a Trace",
            where="--format" if settings.format_name is not None else "--option",
            hint="leave it out",
        )


def refuse_replacing_source(source: Path, out: Path) -> None:
    """Reject an output that would replace its own source, except the copied Trace of an earlier report."""
    inner, outer = real_path(source), real_path(out)
    if (inner == outer or inner.is_relative_to(outer)) and not (is_trace(source) and inner == outer / "trace"):
        raise UsageError(
            "the source lies in the output folder, which is replaced", where=source, hint="choose another -o"
        )


def open_whole(source: Path, limits: Window, settings: AnalysisSettings) -> Trace:
    """Open a Trace, or its part in `limits`, and read all of it, so that damage is found before hours of work.

    Raises
    ------
    DamagedTraceError
        A table cannot be read.
    """
    found = Trace.open(source, limits=limits, allow_missing=settings.allow_missing)
    found.read_through()
    return found


def copy_trace(
    source: Path, place: Path, limits: Window = EVERYTHING, settings: AnalysisSettings | None = None
) -> Trace:
    """Copy the Trace `source`, or its part in `limits`, to `place` and return it.

    The tables of a whole Trace are hard-linked if the file system supports it.
    """
    chosen = settings or AnalysisSettings()
    found = open_whole(source, limits, chosen)
    if found.notes:
        return copy_part(found, place, chosen.memory_limit)
    with output_errors(place):
        place.mkdir()
        for table in found.tables:
            for path in found.files(table):
                target = place / path.relative_to(found.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                if is_remote(path):
                    with path.open("rb") as remote, target.open("wb") as local:
                        shutil.copyfileobj(remote, local, 1 << 20)
                else:
                    link_or_copy(path, target)  # tracekit never changes a table in place
        (place / MANIFEST_NAME).write_bytes((source / MANIFEST_NAME).read_bytes())
    return Trace.open(place)
