"""The step of an analysis that compares the Trace with another period."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tracekit.errors import DamagedTraceError, SourceError, UsageError
from tracekit.outputs import full_disk, output_errors, real_path
from tracekit.places import place_of
from tracekit.trace import Trace, is_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.answer import Answer, Unanswered
    from tracekit.progress import Progress
    from tracekit.settings import AnalysisSettings

__all__ = ["check_comparison", "compare_with_other", "is_day", "reads_logs"]

_PLACE = "compared-with"
_OPTION = "--compare"


def is_day(other: str) -> bool:
    """Return whether the period to compare with is a day; a folder of such a name is written './2017-10-31'."""
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", other) is not None


def reads_logs(other: str | None) -> bool:
    """Return whether the period to compare with is given as logs, to which options of a source format apply."""
    return other is not None and not is_day(other) and _home(place_of(other)) is None


def _home(path: Path) -> Path | None:
    """Return the Trace at `path`, or that of a report there; None where there is none."""
    return next((home for home in (path, path / "trace") if is_trace(home)), None)


def check_comparison(other: str | None, out: Path) -> None:
    """Check the period to compare with before any work.

    Raises
    ------
    UsageError
        There is no such day, or the output would replace the other period.
    SourceError
        There is no such file or folder.
    """
    from tracekit.characterize.changes import read_day

    if other is None:
        return
    if is_day(other):
        read_day(other)
        return
    path = place_of(other)
    if not path.exists():
        raise SourceError(
            "no such file or folder to compare with", where=f"{_OPTION} {other}", hint="a day is written 2017-10-31"
        )
    if real_path(path).is_relative_to(real_path(out)):
        raise UsageError(
            "lies in the output folder, which is replaced", where=f"{_OPTION} {other}", hint="choose another -o"
        )


def compare_with_other(
    trace: Trace,
    folder: Path,
    settings: AnalysisSettings,
    ingest: Callable[[Path, Path], Trace],
    progress: Progress,
) -> list[Answer | Unanswered]:
    """Return what changed against another period; nothing where none was asked for.

    `ingest` reads the logs of another period at a path into a Trace at a second path, below `folder`, which is removed
    afterwards.

    Raises
    ------
    UsageError
        The day does not split the trace.
    SourceError, TraceError
        The other period cannot be read.
    """
    from tracekit.analysis.steps import error_text
    from tracekit.characterize.changes import compare_periods, compare_since
    from tracekit.report.change_answers import COMPARED, changed_answers

    other = settings.compare
    if other is None:
        return []
    place = folder / _PLACE
    before = None
    if not is_day(other):
        home = _home(place_of(other))
        named = home is not None and not settings.anonymize
        before = Trace.open(home) if home is not None and named else ingest(home or place_of(other), place)
    progress.stage("comparing with another time")
    limit = settings.memory_limit
    try:
        if before is None:
            found = compare_since(trace, other, memory_limit=limit)
        else:
            found = compare_periods(before.by(settings.by), trace, memory_limit=limit)
        answers = changed_answers(found)
    except (DamagedTraceError, UsageError):
        raise  # the Trace, or the day that the user gave, or --memory-limit
    except Exception as error:
        if full_disk(error):
            raise
        what = error_text(error)
        progress.note(f"the periods cannot be compared: {what}")
        answers = [question.unanswered(f"The periods cannot be compared: {what}.") for question in COMPARED]
    with output_errors(folder):
        if place.exists():
            shutil.rmtree(place)
    return answers
