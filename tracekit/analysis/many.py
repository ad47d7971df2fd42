"""Analyze several sources, with a report for each source and a page that lists the reports."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analysis.answering import HIDDEN_SOURCE
from tracekit.analysis.one import analyze_into
from tracekit.analysis.source import refuse_replacing_source
from tracekit.damage import explain_damage, hidden_names
from tracekit.errors import OutputError, SourceError, TracekitError, UsageError
from tracekit.outputs import StagedFolder, output_errors, real_path
from tracekit.places import place_of
from tracekit.progress import Progress
from tracekit.settings import AnalysisSettings, merge_settings
from tracekit.text import passed_on
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.one import Analysis
    from tracekit.report.structure import IndexEntry, Report

__all__ = ["analyze_many"]

_INDEX_MARKER = "index.json"


@explain_damage()
def analyze_many(
    sources: Sequence[Trace | str | Path],
    out: str | Path,
    settings: AnalysisSettings | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **changes: Any,
) -> Path:
    """Analyze several sources into separate folders, and write a page that lists them.

    The folders are named after the sources. If a source fails, OUT/index.html lists it with its error. The other
    reports are still written, and then the failure is raised. If all sources fail, nothing is written. A report with
    failed parts is still written, and the page shows how many parts failed.

    Parameters
    ----------
    sources : sequence of Trace, str or Path
        As in `analyze`.
    out : str or Path
        Output folder of the reports.
    settings : AnalysisSettings, optional
        Settings of each analysis.
    force : bool
        Whether to replace an existing set of reports at `out`.
    progress : Progress, optional
        Shows the current step.
    **changes
        Settings by name.

    Returns
    -------
    Path
        OUT/index.html. OUT/index.json next to it has the same content.

    Raises
    ------
    SourceError
        A source failed. The message names the first failed source. The other reports are in `out`, unless all failed.
    OutputError
        `out` exists or cannot be written.
    UsageError
        No source is given, the output would replace a source, or several sources should be compared with another
        period.
    """
    from polars.exceptions import PanicException

    from tracekit.report.data import write_json
    from tracekit.report.page import render_index

    progress = progress or Progress()
    chosen = merge_settings(AnalysisSettings, settings, changes)
    paths, target = [s.path if isinstance(s, Trace) else place_of(s) for s in sources], Path(out)
    if not paths:
        raise UsageError("no source was given", hint="name one or more sources")
    if chosen.compare is not None and len(paths) > 1:
        raise UsageError(
            f"works with one source, not {len(paths)}",
            where="--compare",
            hint="analyze each source separately",
        )
    for path in paths:
        refuse_replacing_source(path, target)
    staged = StagedFolder(target, force=force, marker=_INDEX_MARKER, kind="a set of reports")
    entries: list[IndexEntry] = []
    try:
        named = [f"logs-{n}" for n, _ in enumerate(paths, 1)] if chosen.anonymize else _folder_names(paths)
        for name, path in zip(named, paths, strict=True):
            progress.note(f"source {path}")
            try:
                with hidden_names(hide=chosen.anonymize), explain_damage():
                    done = analyze_into(
                        path, staged.path / name, chosen, shown=target / name, force=False, progress=progress
                    )
            except OutputError:
                raise  # if the disk is full, the other sources will also fail
            except (Exception, PanicException) as error:  # noqa: BLE001 -- any error fails only one source
                why = str(error) if isinstance(error, TracekitError) else passed_on(f"{type(error).__name__}: {error}")
                progress.fault(f"source {path} failed: {why}", "".join(traceback.format_exception(error)))
                entries.append(_entry(name, path, chosen, error=why))
            else:
                entries.append(_entry(name, path, chosen, done))
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
        raise SourceError(f"{len(failed)} of {len(entries)} sources failed, starting with {first}", hint=rest)
    return target / "index.html"


_ARCHIVES = (".tar.gz", ".tgz", ".zip", ".tar", ".gz")


def _folder_names(paths: Sequence[Path]) -> list[str]:
    """Return a readable folder name for each source. The names are unique even if the file system ignores case.

    Repeated names are prefixed with the parent folder and, if that is not enough, numbered.
    """
    stems = [_stem(real_path(p).name) for p in paths]
    names: list[str] = []
    used: set[str] = {"index.html", "index.json"}
    for path, stem in zip(paths, stems, strict=True):
        twins = sum(s.lower() == stem.lower() for s in stems) > 1
        name = f"{_stem(real_path(path).parent.name)}-{stem}" if twins else stem
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


def _entry(
    name: str, source: Path, settings: AnalysisSettings, done: Analysis | None = None, error: str | None = None
) -> IndexEntry:
    """Return the entry for a source, without its name if names are hidden."""
    report: Report | None = json.loads(done.data.read_text(encoding="utf-8")) if done else None
    return {
        "name": name,
        "source": HIDDEN_SOURCE if settings.anonymize else str(source),
        "report": f"{name}/report.html" if report else None,
        "format": report["source"]["format"] if report else None,
        "period": report["time"]["text"] if report else None,
        "headline": report["headline"] if report else [],
        "faults": len(report["faults"]) if report else 0,
        "error": "it could not be analyzed" if error is not None and settings.anonymize else error,
    }
