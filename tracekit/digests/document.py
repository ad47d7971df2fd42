"""A digest as one structure, as in digest.json and on the pages."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal, TypedDict

from tracekit import text
from tracekit.digests.weeks import COLUMNS
from tracekit.faults import Fault
from tracekit.text import level_percent
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from tracekit.digests.weeks import Week
    from tracekit.faults import Faults
    from tracekit.report.structure import FaultInfo


# Find figures that differ more from earlier weeks than these weeks differ from each other.

LEVEL = 0.05
"""Maximum share of pages that report a change if nothing has changed."""
FEWEST_WEEKS = 4
"""Minimum number of earlier weeks for a comparison."""
FEWEST_JOBS = 5
"""Minimum number of jobs per week behind a figure, in this week and on average in previous weeks."""
_COVERED = 0.5
"""Minimum share of each week's GPU-hours covered by telemetry to compare GPU use."""

RULE = (
    "A change is reported if the week is outside the range of all previous weeks, and outside the prediction "
    "interval for the next week: mean ± t s √(1 + 1/k) of k weeks, with Student's t. Amounts are compared on a log "
    "scale (after adding 1, or 60 s to a wait), and shares as the arcsine of their square root. s is at least the "
    "variation expected by chance for this number of jobs. Over all figures on a page, the level is"
    f" {level_percent(LEVEL)} (Bonferroni): if nothing has changed, at most {LEVEL * 100:.0f} pages in 100 report a"
    f" change. At least {FEWEST_WEEKS} weeks and {FEWEST_JOBS} jobs per week are needed."
)


@dataclass(frozen=True)
class Judged:
    """A figure that is compared with earlier weeks."""

    name: str
    words: str
    unit: Literal["jobs", "GPU-hours", "s", "share"]
    count: str
    """Name of the figure that gives the number of jobs behind this figure."""
    empty: float | None
    """The value in a week without jobs, or None if there is none."""

    @property
    def _shift(self) -> float:
        return 60.0 if self.unit == "s" else 1.0

    def scale(self, x: float) -> float:
        """Transform a value to the scale on which all weeks vary equally."""
        return (
            math.asin(math.sqrt(min(max(x, 0.0), 1.0))) if self.unit == "share" else math.log(max(x, 0.0) + self._shift)
        )

    def inverse(self, y: float) -> float:
        """Transform a point on this scale back to a value."""
        if self.unit == "share":
            return math.sin(min(max(y, 0.0), math.pi / 2)) ** 2
        return max(math.exp(min(y, 700.0)) - self._shift, 0.0)

    def chance(self, jobs: float) -> float:
        """Return the minimum variation on this scale for this number of jobs per week."""
        return (0.5 if self.unit == "share" else 1.0) / math.sqrt(jobs)

    def value(self, week: Mapping[str, float | None]) -> float | None:
        """Return the figure of a week."""
        found = week.get(self.name)
        return self.empty if found is None else float(found)

    def known(self, weeks: Iterable[Mapping[str, float | None]]) -> list[float]:
        """Return the known figures of the weeks."""
        return [value for week in weeks if (value := self.value(week)) is not None]


JUDGED = (
    Judged("jobs", "jobs submitted", "jobs", "jobs", 0.0),
    Judged("held_gpu_h", "GPU-hours allocated", "GPU-hours", "jobs", 0.0),
    Judged("wait_p50_s", "median wait", "s", "started", None),
    Judged("failed_share", "share of jobs that failed", "share", "ended", None),
    Judged("used_share", "share of GPU time used", "share", "started", None),
)
"""The figures that are compared."""


def changes(now: Mapping[str, float | None], before: Sequence[Mapping[str, float | None]]) -> list[ChangeInfo]:
    """Compare every figure of a week with earlier weeks.

    Parameters
    ----------
    now : mapping
        The figures of the week.
    before : sequence of mapping
        The figures of each earlier week. Figures may be missing for a week without jobs.
    """
    enough = [_comparable(figure, now, before) for figure in JUDGED]
    judged = sum(values is not None for values in enough)
    return [_change(figure, now, before, values, judged) for figure, values in zip(JUDGED, enough, strict=True)]


def _comparable(
    figure: Judged, now: Mapping[str, float | None], before: Sequence[Mapping[str, float | None]]
) -> list[float] | None:
    """Return the values of previous weeks, or None if there is too little data."""
    weeks = [week for week in before if figure.value(week) is not None]
    if figure.name == "used_share":
        weeks = [week for week in weeks if (week.get("coverage_share") or 0) >= _COVERED]
        if (now.get("coverage_share") or 0) < _COVERED:
            return None
    if figure.value(now) is None or len(weeks) < FEWEST_WEEKS:
        return None
    jobs = sum(week.get(figure.count) or 0 for week in weeks) / len(weeks)
    if jobs < FEWEST_JOBS or (figure.empty is None and (now.get(figure.count) or 0) < FEWEST_JOBS):
        return None
    return figure.known(weeks)


def _change(
    figure: Judged,
    now: Mapping[str, float | None],
    before: Sequence[Mapping[str, float | None]],
    comparable: list[float] | None,
    judged: int,
) -> ChangeInfo:
    value, values, verdict = figure.value(now), comparable or figure.known(before), "too few"
    low = high = None
    if comparable is not None and value is not None:
        jobs = max(sum(week.get(figure.count) or 0 for week in before) / len(before), 1.0)
        # An amount grows with the number of jobs. A share or wait varies more if there are fewer jobs than usual.
        own = jobs if figure.empty is not None else min(jobs, now.get(figure.count) or 1.0)
        low, high = _range(figure, values, (jobs, own), LEVEL / judged)
        verdict = "above" if value > max(high, *values) else "below" if value < min(low, *values) else "usual"
    return ChangeInfo(
        figure=figure.name,
        words=figure.words,
        unit=figure.unit,
        value=value,
        before=median(values) if values else None,
        usual_low=low,
        usual_high=high,
        verdict=verdict,
    )


def _range(figure: Judged, values: Sequence[float], jobs: tuple[float, float], level: float) -> tuple[float, float]:
    """Return the prediction range for the next value. `jobs` has the jobs per earlier week and in the next week."""
    from scipy.special import stdtrit

    scaled = [figure.scale(v) for v in values]
    k = len(scaled)
    mean = math.fsum(scaled) / k
    scatter = math.sqrt(math.fsum((y - mean) ** 2 for y in scaled) / (k - 1))
    of_mean, of_next = (max(scatter, figure.chance(n)) for n in jobs)
    reach = float(stdtrit(k - 1, 1 - level / 2)) * math.sqrt(of_next**2 + of_mean**2 / k)
    return figure.inverse(mean - reach), figure.inverse(mean + reach)


# Safe file names for users and accounts.

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", flags=re.ASCII)
_DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
"""Names that Windows reserves for devices."""


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a file name without an ending for each name. The file names are unique on any file system.

    A name of lower-case letters, digits, '-' and '_' is its own file name. Other file names consist of the name's
    allowed characters, a dot (which no plain name contains) and 16 digits of its SHA-256.

    Examples
    --------
    >>> file_names(["alice", "Alice", "../x"])["alice"]
    'alice'
    >>> file_names(["Alice"])["Alice"]
    'alice.3bc51062973c458d'
    """
    return {name: _file_name(name) for name in names}


def _file_name(name: str) -> str:
    if _PLAIN.fullmatch(name) and not _DEVICES.fullmatch(name):
        return name
    left = re.sub(r"[^a-z0-9]+", "-", name[:80].lower()).strip("-")[:24] or "x"
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{left}.{digits}"


Figures = dict[str, float | None]
"""The figures of a week, by name (see `COLUMNS`)."""


class ChangeInfo(TypedDict):
    """A figure compared with previous weeks."""

    figure: str
    words: str
    unit: str
    value: float | None
    before: float | None
    """Median of previous weeks."""
    usual_low: float | None
    usual_high: float | None
    verdict: str
    """above, below, usual or too few."""


class Part(TypedDict):
    """The week of one user or account, or of everyone."""

    name: str | None
    """None for everyone, and for jobs without a name in the log."""
    file: str | None
    """The path of its page, relative to the digest and without the ending."""
    figures: Figures
    changes: list[ChangeInfo]
    unmade: str | None
    """Why the changes could not be computed, or None if they were."""
    weeks: list[Figures]
    """Previous weeks, in the order of the digest's `weeks_before`."""


class Digest(TypedDict):
    """All data that the pages show."""

    tracekit_version: str
    trace: str
    week: str
    words: str
    """The days of the week in words."""
    since: str
    until: str
    timezone: str
    weeks_before: list[str]
    by: str
    jobs_are: str
    """The jobs that the figures count: 'GPU jobs', or 'jobs' if no job in the log has GPUs."""
    level: float
    rule: str
    columns: dict[str, str]
    """The meaning of each figure."""
    everyone: Part
    parts: list[Part]
    """One part for each user or account, with the most GPU-hours first."""
    nobody: Part | None
    """Jobs for which the log names no user or account."""
    notes: list[str]
    faults: list[FaultInfo]
    """Parts that failed because of an error. All other parts are complete."""


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
    """Build the digest of a week from the figures of `weekly_figures`. `faults` records changes that fail."""
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
    """Return a name as shown on pages."""
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
        changes=[] if isinstance(found, Fault) else found,
        unmade=found.remark if isinstance(found, Fault) else None,
        weeks=earlier,
    )


def whose(name: str | None, file: str | None) -> str:
    """Name the owner of the jobs in a part of a digest, for use in a sentence."""
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
"""Figures that are 0 in a week without jobs."""
