"""Compare published numbers with measured ones.

`reports/published/<format>.csv` contains published numbers for a public trace, one per line, with source and
confidence. `releases.toml`, in the same folder, gives the number of jobs in each release. `tools/make_published.py`
writes the lines. Each line names the cells of a query that measure the same number (see `PublishedValue`), and

    cluster      '' for the whole release, a name for a Trace of only that cluster, '*' if `row` or `params` names it
    options      the source option with which (unit=task) or without which (unit!=task) the Trace was made
    kind         number, about (an approximation), range (low to high), above (low), below (high)

The measured value follows the published rule: if a line names parameters, the query runs with them.
"""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict, cast

import polars as pl

from tracekit import resources
from tracekit.characterize.run import answer_query
from tracekit.errors import DamagedTraceError, TracekitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.characterize.session import Session
    from tracekit.trace import Trace


# A published number: its value, the corresponding rows of the query, and its description in words.
#
# row          conditions on columns of the result, joined by ';', which must all hold: status=failed|timeout (one of
#              these words), gpu_class!=0, gpu_count<=4
# aggregate    '' for the only row; sum, max or mean over the rows; or share (the sum over `row` / the sum over `of`)
# weight       the column with the weights of a mean, or empty if all rows have the same weight

_CONDITION = re.compile(r"(?P<name>\w+)(?P<op><=|>=|!=|=|<|>)(?P<value>.*)")


def conditions(text: str) -> list[tuple[str, str, str]]:
    """Return conditions as (column, operator, value).

    Raises
    ------
    ValueError
        A condition is malformed.

    Examples
    --------
    >>> conditions("gpu_class=>8;gpu_count<=4")
    [('gpu_class', '=', '>8'), ('gpu_count', '<=', '4')]
    """
    found = []
    for part in filter(None, text.split(";")):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"not a condition: {part!r}")
        found.append((match["name"], match["op"], match["value"]))
    return found


@dataclass(frozen=True)
class PublishedValue:
    """A published number, and where a query measures it. The fields are the columns of the CSV files."""

    query: str
    params: str
    options: str
    cluster: str
    row: str
    of: str
    column: str
    aggregate: str
    weight: str
    kind: str
    value: float | None
    """The value in `unit`, or None for a range or a bound."""
    low: float | None
    high: float | None
    unit: str
    as_printed: str
    """The number and its unit as printed in the source."""
    artefact: str
    """The table, figure or file of the source."""
    source: str
    confidence: str
    """A key of `published.CONFIDENCE`."""
    accuracy: str
    """Precision of a number read from a figure; empty for a printed number."""
    population_note: str
    """The jobs that the source counts, if they differ from the jobs of the release."""

    @property
    def what(self) -> str:
        """Description of what the number counts."""
        text = words(self.row, self.of, self.column, self.aggregate, self.weight)
        return f"{text} ({self.params.replace(';', ', ')})" if self.params else text

    @property
    def cell(self) -> dict[str, str] | None:
        """The key of the row by column, or None unless the number is a single cell of the default result."""
        found = conditions(self.row)
        plain = not self.aggregate and not self.params and all(op == "=" and "|" not in v for _, op, v in found)
        return {name: value for name, _, value in found} if plain else None

    def difference(self, measured: float) -> float:
        """Return measured minus published, in `unit`; 0 within a range or bound, else the distance to its end."""
        low = self.value if self.value is not None else self.low
        high = self.value if self.value is not None else self.high
        if low is not None and measured < low:
            return measured - low
        if high is not None and measured > high:
            return measured - high
        return 0.0


_NAMES = {
    "gpu_class": "size",
    "gpu_count": "GPUs",
    "node_count": "nodes",
    "instance_count": "instances",
    "vc": "VC",
    "user_share": "share of users",
}
_OPERATORS = {"=": " ", "!=": " not ", "<=": " at most ", ">=": " at least ", "<": " below ", ">": " above "}
_AGGREGATES = {"": "", "sum": "sum of", "min": "smallest", "max": "largest", "mean": "mean", "share": "share of"}
_COLUMNS = {
    "p50": "median",
    "jobs_share": "share of jobs",
    "gpu_hours_share": "share of GPU-hours",
    "gpu_hours": "GPU-hours",
    "gpu_time_share": "share of GPU time",
    "cpu_time_share": "share of CPU time",
    "gpu_count": "number of GPUs",
    "node_count": "number of nodes",
    "instance_count": "number of instances",
    "allocated_share": "share of GPUs allocated",
}
_WHOLES = {
    "gpu_class!=0": "jobs with GPUs",
    "gpu_count>0": "jobs with GPUs",
}
_EVERYTHING = {"gpu_count>=0", "trials>0", "jobs>=1", "instance_count>0"}


def words(row: str, of: str, column: str, aggregate: str, weight: str = "") -> str:
    """Describe what a published number counts.

    Examples
    --------
    >>> words("status=failed|timeout", "", "jobs_share", "sum")
    'share of jobs: status failed or timeout'
    >>> words("metric=gpu_jobs", "", "value", "")
    'GPU jobs'
    >>> words("gpu_count>0;gpu_count<=4", "gpu_count>0", "jobs", "share")
    'share of jobs: GPUs at most 4, of jobs with GPUs'
    >>> words("gpu_class!=0", "", "max_s", "max")
    'max: jobs with GPUs'
    """
    said = conditions(row)
    metric = next((value for name, _, value in said if name == "metric"), None)
    if metric is not None:
        return _capitals(metric.removesuffix("_s").replace("_", " "))
    plain = column.removesuffix("_s").removesuffix("_pct")
    what = _COLUMNS.get(plain, re.sub(r"^p(\d+)$", r"\1th percentile", plain))
    what = _capitals(what.replace("_", " "))
    if weight and aggregate == "share":
        what += f" times {weight}"
    start = _AGGREGATES[aggregate]
    # 'sum of share of jobs' and 'largest max' are redundant.
    if (aggregate == "sum" and column.endswith("_share")) or plain.startswith(aggregate):
        start = ""
    if any(name == "user_share" for name, _, _ in said):
        start = ""
    if start == "share of" and what.startswith("share of"):
        start = ""
    whole = [c for c in conditions(of) if "".join(c) not in _EVERYTHING]
    parts = [_in_words(c) for c in said if "".join(c) not in _EVERYTHING and c not in whole]
    text = ": ".join(filter(None, [f"{start} {what}".strip(), ", ".join(parts)]))
    return f"{text}, of {', '.join(map(_in_words, whole))}" if whole else text


def _capitals(text: str) -> str:
    return re.sub(r"\b(gpu|cpu)", lambda m: m[1].upper(), text).replace("vcs", "VCs")


def _in_words(condition: tuple[str, str, str]) -> str:
    name, op, value = condition
    if "".join(condition) in _WHOLES:
        return _WHOLES["".join(condition)]
    one_of = " or ".join(value.replace("_", " ").split("|"))
    return f"{_NAMES.get(name, name.replace('_', ' '))}{_OPERATORS[op]}{one_of}"


# Find the number in a result that corresponds to a published one.


def measure(frame: pl.DataFrame, number: PublishedValue) -> float | None:
    """Return the measured value of a published number, or None if the result does not contain it."""
    rows = _where(frame, number.row) if number.column in frame.columns else None
    if rows is None:
        return None
    if number.aggregate == "share":
        whole = _where(frame, number.of)
        return None if whole is None else _ratio(_total(rows, number), _total(whole, number))
    if number.aggregate == "mean" and number.weight:
        known = rows.filter(pl.col(number.column).is_not_null())
        return _ratio(_total(known, number), float(known[number.weight].sum()))
    # If no row matches, the sum is 0, unless all values of the column are unknown.
    if number.aggregate == "sum" and frame[number.column].is_not_null().any():
        return _total(rows, number)
    return _one(rows[number.column].cast(pl.Float64), number.aggregate)


def _one(values: pl.Series, aggregate: str) -> float | None:
    """Return the only value or the plain mean, or None if no value is known or several remain without an aggregate."""
    known = values.drop_nulls()
    if not len(known) or aggregate == "sum" or (not aggregate and len(values) > 1):
        return None
    found = {"min": known.min(), "max": known.max(), "mean": known.mean()}.get(aggregate, known[0])
    return float(cast("float", found))


def _total(rows: pl.DataFrame, number: PublishedValue) -> float:
    values = rows[number.column].cast(pl.Float64)
    return float((values * rows[number.weight].cast(pl.Float64) if number.weight else values).sum())


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def _where(frame: pl.DataFrame, text: str) -> pl.DataFrame | None:
    """Return the rows that meet every condition, or None if a column is missing from the result."""
    asked = conditions(text)
    if any(name not in frame.columns for name, _, _ in asked):
        return None
    kept = [_condition(frame[name], op, value) for name, op, value in asked]
    return frame.filter(*kept) if kept else frame


_EQUAL = 1e-9
"""Shares such as 0.05 are compared with this tolerance."""


def _condition(column: pl.Series, op: str, value: str) -> pl.Series:
    if not column.dtype.is_numeric():
        one_of = column.cast(pl.String).is_in(value.split("|"))
        return ~one_of if op == "!=" else one_of
    numbers = column.cast(pl.Float64)
    if op in {"=", "!="}:
        near = [(numbers - float(v)).abs() < _EQUAL for v in value.split("|")]
        equal = near[0]
        for other in near[1:]:
            equal |= other
        return ~equal if op == "!=" else equal
    limit = float(value)
    return {"<=": numbers <= limit, ">=": numbers >= limit, "<": numbers < limit, ">": numbers > limit}[op]


FACTOR = 1.25
"""A Trace counts as the public one if its number of jobs is within this factor of the release's."""

CONFIDENCE = {
    "A": "read directly from the release, its code or the paper",
    "B": "from a cross-checked transcription",
    "C": "from a single secondary source; check it before quoting",
    "D": "read from a figure",
    "E": "computed from other published numbers",
}
"""The meaning of the confidence letters."""


@dataclass(frozen=True)
class Release:
    """The public release that a Trace is compared with."""

    title: str
    cluster: str
    """A cluster of the release, or empty for the whole release."""
    jobs: int
    """Number of jobs in the release, or in the cluster."""
    public: bool
    """Whether the Trace has about as many jobs as the release."""
    note: str
    """The comparison of job counts in words."""


@dataclass(frozen=True)
class PublishedComparison:
    """A published number and the corresponding measured one."""

    published: PublishedValue
    measured: float | None
    """The measured number in the unit of the published number, or None if the Trace does not have it."""

    @property
    def difference(self) -> float | None:
        """Measured minus published number: 0 within a range or bound, otherwise the distance to its nearest end."""
        return None if self.measured is None else self.published.difference(self.measured)

    @property
    def relative(self) -> float | None:
        """The difference / the published number [1], or None for a range, a bound or a published 0."""
        value, found = self.published.value, self.difference
        return None if found is None or not value else found / abs(value)


class _Entry(TypedDict, total=False):
    """A release in releases.toml."""

    title: str
    jobs: int
    clusters: dict[str, int]
    options: dict[str, int]


@cache
def list_published(format_name: str) -> tuple[PublishedValue, ...]:
    """Return the published numbers for a format's public trace; empty if none are known."""
    path = resources.folder("reports") / "published" / f"{format_name}.csv"
    # The name comes from an untrusted manifest.
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
    """Return the release that a Trace's format belongs to, or None if nothing is published about it.

    A Trace with a single cluster of the release is compared with the numbers for that cluster, and any other Trace with
    the numbers for the whole release. The number of jobs decides whether the Trace counts as the public one. Other
    Traces, such as samples, are also compared, but `note` warns that the published numbers are only a rough guide.
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
    note = f"This appears to be the public trace: {counts}."
    if not public:
        note = f"This is not the public trace ({counts}): published numbers are only a rough guide."
    return Release(title, cluster, jobs, public, note)


def compare_published(trace: Trace, answer: Answer, session: Session | None = None) -> list[PublishedComparison]:
    """Return the published numbers that a query measures, each with the measured number.

    For a number with other parameters, the query runs again, in `session` if given.
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
