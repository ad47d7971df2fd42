"""A digest as one structure, which digest.json holds and the pages show."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from tracekit import text
from tracekit.digests.changes import LEVEL, RULE, changes
from tracekit.digests.figures import COLUMNS
from tracekit.digests.names import file_names
from tracekit.faults import Fault
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from tracekit.digests.changes import Change
    from tracekit.digests.weeks import Week
    from tracekit.faults import Faults
    from tracekit.report.structure import FaultInfo

__all__ = ["ChangeInfo", "Digest", "Figures", "Part", "digest_document", "shown", "whose"]

Figures = dict[str, float | None]
"""The figures of a week by name; see `COLUMNS`."""


class ChangeInfo(TypedDict):
    """A figure beside the weeks before."""

    figure: str
    words: str
    unit: str
    value: float | None
    before: float | None
    """Median of the weeks before."""
    usual_low: float | None
    usual_high: float | None
    verdict: str
    """above, below, usual, or too few."""


class Part(TypedDict):
    """The week of one user or account, or of everyone."""

    name: str | None
    """None for everyone, and for jobs of nobody that the log names."""
    file: str | None
    """Its page without the ending, relative to the digest."""
    figures: Figures
    changes: list[ChangeInfo]
    unmade: str | None
    """Why the changes could not be made; None if they were."""
    weeks: list[Figures]
    """The weeks before, in the order of `weeks_before` of the digest."""


class Digest(TypedDict):
    """Everything that the pages show."""

    tracekit_version: str
    trace: str
    week: str
    words: str
    """Its days."""
    since: str
    until: str
    timezone: str
    weeks_before: list[str]
    by: str
    jobs_are: str
    """What the figures count: GPU jobs, or jobs where the log knows none."""
    level: float
    rule: str
    columns: dict[str, str]
    """What each figure means."""
    everyone: Part
    parts: list[Part]
    """The most GPU-hours first."""
    nobody: Part | None
    """Jobs of which the log does not say whose they are."""
    notes: list[str]
    faults: list[FaultInfo]
    """Parts that could not be made because of an error; the others are complete."""


def digest_document(
    figures: pl.DataFrame,
    week: Week,
    before: Sequence[Week],
    *,
    trace: str,
    by: str,
    gpu_only: bool,
    notes: Sequence[str],
    faults: Faults,
) -> Digest:
    """Return the digest of a week from the figures of `weekly_figures`; `faults` records changes that fail."""
    rows: dict[tuple[bool, str | None], dict[str, Figures]] = {}
    for row in figures.iter_rows(named=True):
        found = rows.setdefault((row["everyone"], row["name"]), {})
        found[row["week"]] = {name: row[name] for name in COLUMNS}
    names = [name for everyone, name in rows if not everyone and name is not None]
    files = file_names(name for name in names if week.name in rows[False, name])
    parts = [_part(rows[False, name], week, before, name, f"{by}s/{file}", faults) for name, file in files.items()]
    parts.sort(key=lambda part: (-(part["figures"]["held_gpu_h"] or 0), -(part["figures"]["jobs"] or 0)))
    nobody = rows.get((False, None), {})
    return Digest(
        tracekit_version=__version__,
        trace=trace,
        week=week.name,
        words=week.words,
        since=f"{week.since.isoformat()}Z",
        until=f"{week.until.isoformat()}Z",
        timezone=week.zone,
        weeks_before=[one.name for one in before],
        by=by,
        jobs_are="GPU jobs" if gpu_only else "jobs",
        level=LEVEL,
        rule=RULE,
        columns=dict(COLUMNS),
        everyone=_part(rows.get((True, None), {}), week, before, None, "index", faults),
        parts=parts,
        nobody=_part(nobody, week, before, None, None, faults) if week.name in nobody else None,
        notes=list(notes),
        faults=[],
    )


def shown(name: str | None) -> str:
    """Return a name as pages show it."""
    return "not named in the log" if name is None else text.shorten(name)


def _part(
    by_week: Mapping[str, Figures],
    week: Week,
    before: Sequence[Week],
    name: str | None,
    file: str | None,
    faults: Faults,
) -> Part:
    empty: Figures = dict.fromkeys(COLUMNS) | dict.fromkeys(_COUNTS, 0)
    now = by_week.get(week.name, empty)
    earlier = [by_week.get(one.name, empty) for one in before]
    found = faults.run(f"the changes of {whose(name, file)}", changes, now, earlier)
    return Part(
        name=None if name is None else text.cut(name),
        file=file,
        figures=now,
        changes=[] if isinstance(found, Fault) else [_info(change) for change in found],
        unmade=found.remark if isinstance(found, Fault) else None,
        weeks=earlier,
    )


def whose(name: str | None, file: str | None) -> str:
    """Return whose part of a digest it is, for a sentence."""
    return "the whole cluster" if file == "index" else f"jobs {shown(None)}" if name is None else shown(name)


_COUNTS = (
    "jobs",
    "held_gpu_h",
    "running_gpu_h",
    "failed_gpu_h",
    "timeout_gpu_h",
    "started",
    "waiting",
    "ended",
    "failed",
    "timeout",
)
"""Figures that are 0 in a week in which nothing happened."""


def _info(change: Change) -> ChangeInfo:
    return ChangeInfo(
        figure=change.figure.name,
        words=change.figure.words,
        unit=change.figure.unit,
        value=change.value,
        before=change.before,
        usual_low=change.low,
        usual_high=change.high,
        verdict=change.verdict,
    )
