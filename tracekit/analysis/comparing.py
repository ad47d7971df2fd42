"""The analysis step that compares the Trace with another period."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tracekit.errors import SourceError, UsageError
from tracekit.faults import Fault
from tracekit.outputs import output_errors, real_path
from tracekit.places import place_of
from tracekit.trace import Trace, home_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.answer import Answer, Unanswered
    from tracekit.characterize.changes import Changes
    from tracekit.faults import Faults
    from tracekit.progress import Progress
    from tracekit.settings import AnalysisSettings

__all__ = ["check_comparison", "compare_with_other", "is_day", "reads_logs"]

_PLACE = "compared-with"
_OPTION = "--compare"


def is_day(other: str) -> bool:
    """Return whether the period to compare with is a day. A folder with such a name is written './2017-10-31'."""
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", other) is not None


def reads_logs(other: str | None) -> bool:
    """Return whether the period to compare with is raw logs, to which the source format's options apply."""
    return other is not None and not is_day(other) and home_of(place_of(other)) is None


def check_comparison(other: str | None, out: Path) -> None:
    """Check the period to compare with before any work.

    Raises
    ------
    UsageError
        The day does not exist, or the output would replace the other period.
    SourceError
        The file or folder does not exist.
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
            "the file or folder to compare with does not exist",
            where=f"{_OPTION} {other}",
            hint="write a day as 2017-10-31",
        )
    if real_path(path).is_relative_to(real_path(out)):
        raise UsageError(
            "is in the output folder, which is replaced", where=f"{_OPTION} {other}", hint="choose another -o"
        )


def compare_with_other(
    trace: Trace,
    folder: Path,
    settings: AnalysisSettings,
    ingest: Callable[[Path, Path], Trace],
    progress: Progress,
    faults: Faults,
) -> list[Answer | Unanswered]:
    """Return the changes relative to another period, or nothing if no comparison was requested.

    `ingest` reads the other period's logs from one path into a Trace at a second path below `folder`. This Trace is
    removed afterwards. `faults` records a failed comparison.

    Raises
    ------
    UsageError
        The day does not split the trace.
    SourceError, TraceError
        The other period cannot be read.
    """
    from tracekit.characterize.changes import compare_periods, compare_since
    from tracekit.report.changed import COMPARED, changed_or_reason

    other = settings.compare
    if other is None:
        return []
    place = folder / _PLACE
    before = None
    if not is_day(other):
        home = home_of(place_of(other))
        named = home is not None and not settings.anonymize
        before = Trace.open(home) if home is not None and named else ingest(home or place_of(other), place)
    progress.stage("comparing with another period")

    def compare() -> Changes:
        if before is None:
            return compare_since(trace, other, memory_limit=settings.memory_limit)
        return compare_periods(before.by(settings.by), trace, memory_limit=settings.memory_limit)

    found = faults.run("the comparison with another period", changed_or_reason, compare, trace.tenant)
    if isinstance(found, Fault):
        found = [question.unanswered(found.remark, failed=True) for question in COMPARED]
    elif isinstance(found, str):
        progress.note(f"the periods cannot be compared: {found.removesuffix('.')}")
        found = [question.unanswered(f"The periods cannot be compared: {found}") for question in COMPARED]
    with output_errors(folder):
        if place.exists():
            shutil.rmtree(place)
    return found
