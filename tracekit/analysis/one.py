"""Turn one source's logs into a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.answering import answer_all, check_settings
from tracekit.analysis.source import refuse_replacing_source, trace_at
from tracekit.analysis.writing import write_analysis
from tracekit.anonymous import read_salt
from tracekit.answer import Answer, Unanswered
from tracekit.damage import explain_damage, hidden_names
from tracekit.errors import UsageError
from tracekit.faults import Fault, Faults
from tracekit.outputs import StagedFolder, real_path
from tracekit.places import place_of
from tracekit.progress import Progress
from tracekit.settings import AnalysisSettings, merge_settings
from tracekit.tenant import INGESTED
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["REPORT_MARKER", "Analysis", "analysis_in", "analyze", "analyze_into", "settings_of"]

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
    """The Trace, which is complete on its own."""
    results: Mapping[str, Path]
    """The Parquet file of each answered query, by query name."""
    unanswered: Mapping[str, tuple[str, ...]]
    """Why each of the other queries has no answer, by name."""
    faults: tuple[Fault, ...] = ()
    """Parts that failed because of an error. All other parts are complete."""


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
    """Read logs, answer every question that they support, fit, replay, advise and write a report.

    If a query cannot run, the report lists it with the reason, and all other queries still run. If a part fails, such
    as a query, a chart, a guideline, a replay, the fit or a file, the other parts are still made. The report shows a
    message in place of the failed part, and `Analysis.faults` lists the part. Only a damaged Trace, an invalid option
    or an output that cannot be written stops the analysis.

    Parameters
    ----------
    source : Trace, str or Path
        Raw logs (folder, file or archive), or a Trace or its folder, which is copied into the output. If a Trace was
        opened in part or with a tenant, only this part and this tenant are used.
    out : str or Path
        Folder of the report.
    settings : AnalysisSettings, optional
        Settings of the analysis. If only one of the capacities 'listed' and 'observed' is available, the analysis
        uses this capacity, and the report says so. Logs to compare with are read like the source, and their Trace is
        not kept.
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
    """Analyze one source into `out`. `shown` is the final path of this folder."""
    from tracekit.report.pdf import find_browser

    salt, salt_note = salt_of(settings, out)
    prices = check_settings(source, settings, shown, progress)
    if salt_note is not None:
        progress.note(salt_note)
    if settings.pdf:
        find_browser()  # check this before the work and not after it
    faults = Faults(progress, with_messages=not settings.anonymize)
    staged = StagedFolder(out, force=force, marker=REPORT_MARKER, kind="a report")
    try:
        found = answer_all(
            source,
            settings,
            staged.path,
            lambda: trace_at(staged.path / "trace", source, settings, progress, salt),
            out=shown,
            prices=prices,
            salt=salt,
            progress=progress,
            faults=faults,
        )
        progress.stage("writing the report")
        found = write_analysis(staged.path, found, pdf=settings.pdf, faults=faults, progress=progress)
        staged.commit()
        for lack in found.report["opening"]["lacks"]:
            progress.note(" Add it: ".join(filter(None, (lack["text"], lack["cure"]))))
    finally:
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
    """Return settings with the part and the tenant of an opened Trace.

    Raises
    ------
    UsageError
        The Trace is already a part and the settings select another part, or the part leaves out jobs of its cluster.
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
        pool = next((pool.name for pool in trace.pools if pool.values == part.partitions), part.cluster)
        settings = replace(settings, start=part.start, end=part.end, cluster=pool)
    return replace(
        settings,
        by=settings.by or (None if tenant == INGESTED else tenant),
        allow_missing=settings.allow_missing or trace.allow_missing,
    )


def salt_of(settings: AnalysisSettings, out: Path) -> tuple[bytes | None, str | None]:
    """Return the salt of the pseudonyms and a sentence for the user, or None for both if names are not replaced.

    Parameters
    ----------
    settings : AnalysisSettings
        Settings of the analysis.
    out : Path
        Folder of the report, which must not contain the salt.

    Raises
    ------
    UsageError
        The salt is invalid, or a file with names of machines or tenants is also given.
    """
    if not settings.anonymize:
        if settings.salt_file is not None:
            raise UsageError("works only with --anonymize", where="--salt-file", hint="add --anonymize")
        return None, None
    if settings.twin is not None:
        raise UsageError(
            "the twin contains cluster names, but --anonymize replaces them",
            where="--twin",
            hint="omit the twin; analyze makes one",
        )
    if settings.capacity not in {"listed", "observed"}:
        raise UsageError(
            "the file contains node names, but --anonymize replaces them",
            where="--capacity",
            hint="use listed or observed",
        )
    if settings.salt_file is not None and real_path(settings.salt_file).is_relative_to(real_path(out)):
        raise UsageError(
            "is in the output folder, which you are about to share",
            where=settings.salt_file,
            hint="keep it elsewhere",
        )
    return read_salt(settings.salt_file)
