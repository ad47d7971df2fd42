"""Published numbers beside measured ones.

`reports/published/<format>.csv` holds what papers and releases state about a public trace, one number a line, with
its source and how sure it is; `releases.toml` beside them says how many jobs each release has. The lines are made by
`tools/make_published.py`. Each names the cells of a query that measure the same number (see `published_value`), and

    cluster      '' the whole release; a name: a Trace of that cluster alone; '*': `row` or `params` names the cluster
    options      the source option that the Trace must have been made with (unit=task) or without (unit!=task)
    kind         number, about (an approximation), range (low to high), above (low), below (high)

The measured value always follows the rule of the published one: where a line names parameters, the query is run with
them.
"""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict

from tracekit import resources
from tracekit.characterize.published_cells import measure
from tracekit.characterize.published_value import PublishedValue, conditions
from tracekit.characterize.run import answer_query
from tracekit.errors import DamagedTraceError, TracekitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from tracekit.answer import Answer
    from tracekit.characterize.session import Session
    from tracekit.trace import Trace

__all__ = [
    "CONFIDENCE",
    "FACTOR",
    "PublishedComparison",
    "Release",
    "compare_published",
    "list_published",
    "release_of",
]

FACTOR = 1.25
"""A Trace is taken for the public one when its number of jobs is within this factor of the release's."""

CONFIDENCE = {
    "A": "read directly in the release, its code or the paper",
    "B": "through a transcription that was cross-checked",
    "C": "through one secondary mention; check it before quoting",
    "D": "read off a figure",
    "E": "arithmetic on other published numbers",
}
"""Meaning of the letters."""


@dataclass(frozen=True)
class Release:
    """The public release that a Trace is compared with."""

    title: str
    cluster: str
    """One of its clusters; empty for the whole."""
    jobs: int
    """Jobs of the release, or of the cluster."""
    public: bool
    """Whether the Trace has about as many jobs as the release."""
    note: str
    """The same in words."""


@dataclass(frozen=True)
class PublishedComparison:
    """A published number and the measured one."""

    published: PublishedValue
    measured: float | None
    """In the unit of the published number; None when the Trace lacks it."""

    @property
    def difference(self) -> float | None:
        """The measured number minus the published one; 0 inside a range or bound, else from its nearest end."""
        return None if self.measured is None else self.published.difference(self.measured)

    @property
    def relative(self) -> float | None:
        """The difference / the published number [1]; None for a range, a bound or a published 0."""
        value, found = self.published.value, self.difference
        return None if found is None or not value else found / abs(value)


class _Entry(TypedDict, total=False):
    """A release, as releases.toml states it."""

    title: str
    jobs: int
    clusters: dict[str, int]
    options: dict[str, int]


@cache
def list_published(format_name: str) -> tuple[PublishedValue, ...]:
    """Return the published numbers of a format's public trace; none when none are known."""
    path = resources.folder("reports") / "published" / f"{format_name}.csv"
    # The name stands in a manifest, which anybody can write.
    if format_name not in _releases() or not path.is_file():
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_published(line) for line in csv.DictReader(file))


def _published(line: dict[str, str]) -> PublishedValue:
    facts: dict[str, Any] = {**line}
    facts |= {name: float(line[name]) if line[name] else None for name in ("value", "low", "high")}
    return PublishedValue(**facts)


@cache
def _releases() -> dict[str, _Entry]:
    path = resources.folder("reports") / "published" / "releases.toml"
    found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return found


def release_of(trace: Trace) -> Release | None:
    """Return the release that a Trace's format belongs to, or None when nothing is published about it.

    A Trace with one cluster of the release is compared with the numbers of that cluster, any other with those of the
    whole. It is taken for the public one by its number of jobs; anything else, a sample or a cut, is compared all the
    same, and `note` says that the published numbers are for orientation.
    """
    entry = _releases().get(trace.manifest.format)
    if entry is None or not trace.has("jobs"):
        return None
    clusters, names = entry.get("clusters", {}), trace.clusters
    cluster = names[0] if len(names) == 1 and names[0] in clusters else ""
    jobs = clusters[cluster] if cluster else entry["jobs"]
    jobs = next((n for option, n in entry.get("options", {}).items() if _made_with(trace, option)), jobs)
    have = trace.manifest.tables["jobs"].rows
    public = jobs / FACTOR <= have <= jobs * FACTOR
    title = f"{entry['title']}, cluster {cluster}" if cluster else entry["title"]
    counts = f"{have:,} jobs here, {jobs:,} in {title}"
    note = f"Taken for the public trace: {counts}."
    if not public:
        note = f"Not the public trace ({counts}): published numbers shown for orientation."
    return Release(title, cluster, jobs, public, note)


def compare_published(trace: Trace, answer: Answer, session: Session | None = None) -> list[PublishedComparison]:
    """Return the published numbers that a query measures, each with the measured one.

    A number that needs other parameters has the query run once more, in `session` where one is given.
    """
    release = release_of(trace)
    if release is None:
        return []
    query = answer.question
    defaults = {p.name: p.default for p in query.params}
    used = {name: answer.params.get(name, default) for name, default in defaults.items()}
    frames: dict[str, pl.DataFrame | None] = {_spelled(used): answer.frame}
    clusters = set(trace.clusters)
    found = []
    for number in list_published(trace.manifest.format):
        if number.query != query.name or not _applies(number, release, trace, clusters):
            continue
        wanted = dict(pair.split("=", 1) for pair in number.params.split(";") if pair)
        key = _spelled({**defaults, **wanted})
        if key not in frames:
            frames[key] = _ask(trace, query.name, wanted, session)
        asked = frames[key]
        measured = None if asked is None else measure(asked, number)
        found.append(PublishedComparison(number, measured))
    return found


def _ask(trace: Trace, name: str, params: dict[str, str], session: Session | None) -> pl.DataFrame | None:
    try:
        return answer_query(trace, name, params, session=session).frame
    except DamagedTraceError:
        raise
    except TracekitError:
        return None


def _spelled(params: Mapping[str, object]) -> str:
    return ";".join(f"{name}={value}" for name, value in sorted(params.items()))


def _applies(number: PublishedValue, release: Release, trace: Trace, clusters: set[str]) -> bool:
    if number.options and not _made_with(trace, number.options):
        return False
    if number.cluster == "*":
        named = conditions(f"{number.row};{number.params}")
        return not {v for name, _, v in named if name == "cluster"}.isdisjoint(clusters)
    return number.cluster == release.cluster


def _made_with(trace: Trace, option: str) -> bool:
    """Return whether a Trace was made with an option ('unit=task'), or without it ('unit!=task')."""
    name, _, value = option.partition("=")
    if name.endswith("!"):
        return trace.manifest.options.get(name[:-1]) != value
    return trace.manifest.options.get(name) == value
