"""From logs to a report: ingest, ask every question that can be answered, write the pages.

    tracekit.analyze("logs/", "out")

writes, whole or not at all,

    out/report.html            one page that works offline
    out/report.json            everything that the page shows
    out/tables/<query>.parquet every result in full, as it is
    out/tables/<query>.csv     the same for spreadsheets: text that would run as a formula has a quote in front
    out/workload.json          the fitted workload (see `tracekit.fit`), where the Trace can be fitted
    out/trace/                 the Trace that the answers come from
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import OutputError, SourceError, TracekitError, UsageError
from tracekit.progress import Progress
from tracekit.trace import MANIFEST_NAME, Trace, is_trace
from tracekit.trace_writer import StagedFolder, output_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.characterize.run import SweepKey
    from tracekit.characterize.sweep import Swept
    from tracekit.report import Report
    from tracekit.report.data import Result
    from tracekit.report.structure import CapacityInfo, IndexEntry, WorkloadInfo

__all__ = ["Analysis", "analyze", "analyze_many"]

_REPORT_MARKER = "report.json"
_INDEX_MARKER = "index.json"
_FIT_REPLICATES = 19
"""Samples that a report's bootstrap draws: enough for a p-value of 0.05."""


@dataclass(frozen=True)
class Analysis:
    """What `analyze` wrote."""

    folder: Path
    report: Path
    """The page."""
    data: Path
    """report.json."""
    trace: Path
    """The Trace, complete in itself."""
    results: Mapping[str, Path]
    """The Parquet file of each answered query, by query name."""
    unanswered: Mapping[str, tuple[str, ...]]
    """Why each other query has no answer, by query name."""


def analyze(
    source: str | Path,
    out: str | Path,
    *,
    format_name: str | None = None,
    force: bool = False,
    options: Mapping[str, str] | None = None,
    max_reject_share: float = 0.5,
    max_inflation: float = 200,
    capacity: str = "listed",
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Read logs, answer every question that they can answer, and write a report.

    A query that cannot run, or whose run fails, does not stop the others: the report lists it with the reason.

    Parameters
    ----------
    source : str or Path
        Raw logs (folder, file or archive), or a Trace, which is carried into the output.
    out : str or Path
        Folder of the report.
    format_name : str, optional
        The source format; detected by default.
    force : bool
        Replace a report that stands at `out`.
    options : mapping of str to str, optional
        Options of the source format.
    max_reject_share : float
        Refuse a source when more than this share of a file's records is unusable [0..1].
    max_inflation : float
        Most bytes that one byte of a compressed file may become.
    capacity : str
        Where the number of GPUs comes from: 'listed', 'observed' or a CSV file. Where 'listed' or 'observed' is
        not available and the other is, that one is used and the report says so.
    memory_limit : str, optional
        Most memory for joins before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Told what is being done.

    Raises
    ------
    OutputError
        `out` exists or cannot be written.
    SourceError
        The source cannot be read.
    UsageError
        An option cannot be used, or the output would replace the source.
    """
    place = Path(out)
    _keep_source(Path(source), place)
    return _analyze(
        Path(source),
        place,
        shown=place,
        format_name=format_name,
        force=force,
        options=options,
        max_reject_share=max_reject_share,
        max_inflation=max_inflation,
        capacity=capacity,
        memory_limit=memory_limit,
        progress=progress or Progress(),
    )


def analyze_many(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    format_name: str | None = None,
    force: bool = False,
    options: Mapping[str, str] | None = None,
    max_reject_share: float = 0.5,
    max_inflation: float = 200,
    capacity: str = "listed",
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Analyse several sources, each into a folder of its own, and write a page that lists them.

    The folders are named after the sources. A source that fails is listed in OUT/index.html with its error and
    does not lose the others: everything else is written, and then the failure is raised. When every source
    fails, nothing is written.

    Returns
    -------
    Path
        OUT/index.html; OUT/index.json beside it states the same.

    Raises
    ------
    SourceError
        Some source failed; the message names the first. The others are in `out`, unless all failed.
    OutputError
        `out` exists or cannot be written.
    UsageError
        There is no source, or the output would replace one.
    """
    from tracekit.report import render_index, write_json

    progress = progress or Progress()
    paths, target = [Path(s) for s in sources], Path(out)
    if not paths:
        raise UsageError("no source was given", hint="name one or more sources")
    for path in paths:
        _keep_source(path, target)
    staged = StagedFolder(target, force=force, marker=_INDEX_MARKER, kind="a set of reports")
    entries: list[IndexEntry] = []
    try:
        for name, path in zip(_folder_names(paths), paths, strict=True):
            progress.note(f"source {path}")
            try:
                done = _analyze(
                    path,
                    staged.path / name,
                    shown=target / name,
                    format_name=format_name,
                    force=False,
                    options=options,
                    max_reject_share=max_reject_share,
                    max_inflation=max_inflation,
                    capacity=capacity,
                    memory_limit=memory_limit,
                    progress=progress,
                )
            except OutputError:
                raise  # a full disk fails the others too
            except TracekitError as error:
                progress.note(f"source {path} failed: {error}")
                entries.append(_failed(name, path, error))
            else:
                entries.append(_listed(name, path, done))
        failed = [e for e in entries if e["error"] is not None]
        if len(failed) < len(entries):
            with output_errors(target):
                write_json(staged.path / _INDEX_MARKER, {"reports": entries})
                (staged.path / "index.html").write_text(
                    render_index(entries), encoding="utf-8", errors="backslashreplace"
                )
            staged.commit()
    finally:
        staged.discard()
    if failed:
        rest = "nothing was written" if len(failed) == len(entries) else f"the others are in {target}"
        source, reason = failed[0]["source"], failed[0]["error"] or ""
        first = reason if source in reason else f"{source}: {reason}"
        raise SourceError(f"{len(failed)} of {len(entries)} sources failed, first {first}", hint=rest)
    return target / "index.html"


def _analyze(
    source: Path,
    out: Path,
    *,
    shown: Path,
    format_name: str | None,
    force: bool,
    options: Mapping[str, str] | None,
    max_reject_share: float,
    max_inflation: float,
    capacity: str,
    memory_limit: str | None,
    progress: Progress,
) -> Analysis:
    """Do what `analyze` says; `shown` is where the user will find the folder `out` in the end."""
    settings = {
        "--format": format_name,
        "--option": [f"{k}={v}" for k, v in (options or {}).items()],
        "--max-reject-share": None if max_reject_share == 0.5 else f"{max_reject_share:g}",
        "--max-inflation": None if max_inflation == 200 else f"{max_inflation:g}",
        "--capacity": None if capacity == "listed" else capacity,
        "--memory-limit": memory_limit,
    }
    staged = StagedFolder(out, force=force, marker=_REPORT_MARKER, kind="a report")
    try:
        place = staged.path / "trace"
        if is_trace(source):
            _refuse_ingest_options(format_name, options)
            trace = _carry_trace(source, place)
        else:
            from tracekit.ingest import ingest_logs

            trace = ingest_logs(
                source,
                place,
                format_name=format_name,
                options=options,
                max_reject_share=max_reject_share,
                max_inflation=max_inflation,
                memory_limit=memory_limit,
                progress=progress,
            )
        size = _capacity(trace, capacity, progress)
        results = _ask(trace, staged.path, memory_limit, progress)
        fits, workload = _fit(trace, staged.path, progress)
        results += fits
        progress.stage("writing the report")
        command = _command(source, shown, settings)
        _write_report(trace, results, size, workload, staged.path, source=source, command=command)
        staged.commit()
    finally:
        staged.discard()
    return Analysis(
        folder=out,
        report=out / "report.html",
        data=out / _REPORT_MARKER,
        trace=out / "trace",
        results={r.query.name: out / r.files[0] for r in results if r.frame is not None},
        unanswered={r.query.name: tuple(r.reasons) for r in results if r.frame is None},
    )


def _keep_source(source: Path, out: Path) -> None:
    """Refuse an output that would replace its own source; the Trace of an earlier report is carried over."""
    inner, outer = source.resolve(), out.resolve()
    if (inner == outer or inner.is_relative_to(outer)) and not (is_trace(source) and inner == outer / "trace"):
        raise UsageError(
            "the source lies in the output folder, which is replaced", where=source, hint="choose another -o"
        )


def _refuse_ingest_options(format_name: str | None, options: Mapping[str, str] | None) -> None:
    if format_name is not None or options:
        what = "--format" if format_name is not None else "--option"
        raise UsageError(
            "the source is a Trace already, so there is nothing to choose", where=what, hint="leave it out"
        )


def _carry_trace(source: Path, place: Path) -> Trace:
    """Make `place` a complete Trace with the tables of `source`, sharing their bytes where the disk allows."""
    found = Trace.open(source)
    with output_errors(place):
        place.mkdir()
        for table in found.tables:
            _link_or_copy(found.file(table), place / f"{table}.parquet")
        shutil.copyfile(source / MANIFEST_NAME, place / MANIFEST_NAME)
    return Trace.open(place)


def _link_or_copy(source: Path, target: Path) -> None:
    # tracekit never changes a table in place, so a shared file is safe. A symbolic link is followed: the output
    # has to stay complete when the source goes.
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _capacity(trace: Trace, requested: str, progress: Progress) -> CapacityInfo:
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
        }
    note = "the trace shows no number of GPUs: no node list, no placements, no telemetry"
    return {"requested": requested, "used": None, "gpus": None, "alternatives": {}, "note": note}


def _ask(trace: Trace, folder: Path, memory_limit: str | None, progress: Progress) -> list[Result]:
    """Run every query and write its tables."""
    from tracekit.characterize import answer_query, lacks, list_queries
    from tracekit.report.data import Result
    from tracekit.report.tables import write_tables

    queries = list_queries()
    results: list[Result] = []
    swept: dict[SweepKey, Swept] = {}
    progress.stage("asking", len(queries))
    for query in queries:
        reasons = lacks(query, trace)
        answer = None
        if not reasons:
            try:
                answer = answer_query(trace, query.name, memory_limit=memory_limit, swept=swept)
            except UsageError:
                raise  # the user's --memory-limit, not this query
            except TracekitError as error:
                reasons = [f"The query failed: {error.what}."]
                progress.note(f"{query.name} failed: {error}")
        if answer is None:
            results.append(Result(query, None, reasons=reasons))
        else:
            with output_errors(folder):
                files = write_tables(folder, query.name, answer.frame)
            results.append(Result(query, answer.frame, files=files, notes=answer.notes, intervals=answer.intervals))
        progress.advance(1)
    return results


def _fit(trace: Trace, folder: Path, progress: Progress) -> tuple[list[Result], WorkloadInfo]:
    """Fit the workload, write workload.json and its tables; a fit that fails has its reason instead."""
    from tracekit.fit.api import fit
    from tracekit.report.data import Result
    from tracekit.report.fitted import WORKLOAD, fitted_results, unfitted_results
    from tracekit.report.tables import write_tables

    workload: WorkloadInfo = {
        "file": None,
        "reason": None,
        "seed": 0,
        "bootstrap_replicates": _FIT_REPLICATES,
    }
    try:
        model = fit(trace, replicates=_FIT_REPLICATES, progress=progress)
        results = fitted_results(model)
    except Exception as error:  # noqa: BLE001 -- numbers that no fit foresaw must not cost the answers of the queries
        what = error.what if isinstance(error, TracekitError) else f"{type(error).__name__}: {error}"
        reason = workload["reason"] = f"The fit failed: {what}."
        progress.note(f"the workload could not be fitted: {what}")
        return unfitted_results(reason), workload
    done = []
    with output_errors(folder):
        model.write(folder / WORKLOAD)
        for result in results:
            files = [] if result.frame is None else write_tables(folder, result.query.name, result.frame)
            done.append(Result(result.query, result.frame, files=files, notes=result.notes, reasons=result.reasons))
    workload["file"] = WORKLOAD
    return done, workload


def _write_report(
    trace: Trace,
    results: list[Result],
    capacity: CapacityInfo,
    workload: WorkloadInfo,
    folder: Path,
    *,
    source: Path,
    command: str,
) -> None:
    from tracekit.report import build_report, render_report, write_json

    made = _now()
    report: Report = build_report(
        trace,
        results,
        capacity=capacity,
        source=str(source),
        command=command,
        created=made,
        workload=workload,
    )
    page = render_report(report)
    with output_errors(folder):
        write_json(folder / _REPORT_MARKER, report)
        (folder / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace", newline="\n")


def _now() -> datetime:
    """Return the time of creation; SOURCE_DATE_EPOCH fixes it for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)


def _command(source: Path, out: Path, settings: Mapping[str, str | list[str] | None]) -> str:
    words = ["tracekit", "analyze", str(source), "-o", str(out)]
    for option, given in settings.items():
        for value in given if isinstance(given, list) else [given] if given is not None else []:
            words += [option, value]
    return shlex.join(words)


_ARCHIVES = (".tar.gz", ".tgz", ".zip", ".tar", ".gz")


def _folder_names(paths: Sequence[Path]) -> list[str]:
    """Return a readable folder name for each source, no two alike even where case does not count.

    Sources of one name are told apart by the folder above them, then by a number.
    """
    stems = [_stem(p.resolve().name) for p in paths]
    names: list[str] = []
    used: set[str] = {"index.html", "index.json"}
    for path, stem in zip(paths, stems, strict=True):
        twins = sum(s.lower() == stem.lower() for s in stems) > 1
        name = f"{_stem(path.resolve().parent.name)}-{stem}" if twins else stem
        base, n = name, 1
        while name.lower() in used:
            n += 1
            name = f"{base}-{n}"
        used.add(name.lower())
        names.append(name)
    return names


def _stem(name: str) -> str:
    for ending in _ARCHIVES:
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
            break
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")
    return safe[:60] or "source"


def _listed(name: str, source: Path, done: Analysis) -> IndexEntry:
    import json

    report: Report = json.loads(done.data.read_text(encoding="utf-8"))
    return {
        "name": name,
        "source": str(source),
        "report": f"{name}/report.html",
        "format": report["source"]["format"],
        "period": report["time"]["text"],
        "headline": report["headline"],
        "error": None,
    }


def _failed(name: str, source: Path, error: TracekitError) -> IndexEntry:
    return {
        "name": name,
        "source": str(source),
        "report": None,
        "format": None,
        "period": None,
        "headline": [],
        "error": str(error),
    }
