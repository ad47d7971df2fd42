"""Build the structure that report.json holds and report.html shows."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tracekit import text
from tracekit.characterize.published import beside, release_of
from tracekit.report.doubts import doubts_of
from tracekit.report.gpu_totals import gpu_totals
from tracekit.report.headline import headline
from tracekit.report.opening import opening
from tracekit.report.published import published_number, release_info
from tracekit.report.quality import quality
from tracekit.report.sections import (
    Facts,
    finding,
    reading_order,
    section_lead,
    section_title,
    sections_in_order,
    why_empty,
)
from tracekit.report.structure import REPORT_SCHEMA_VERSION
from tracekit.report.when import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from tracekit.characterize import Query
    from tracekit.report.structure import (
        Answer,
        CapacityInfo,
        IntervalInfo,
        Quality,
        ReplayInfo,
        Report,
        Row,
        Section,
        TimeInfo,
        Unanswered,
        WorkloadInfo,
    )
    from tracekit.trace import Trace

__all__ = [
    "Result",
    "build_report",
    "facts_of",
    "telemetry_note",
    "telemetry_period",
    "time_info",
    "write_json",
]

_LIBRARIES = ("duckdb", "polars", "numpy", "scipy", "numba")
ROW_LIMIT = 2000
"""Most rows of a result kept in report.json; tables/ holds all."""
_SENTENCES = 2000
"""Most characters kept of a cell that holds sentences; a name is cut earlier."""


@dataclass(frozen=True)
class Result:
    """A query and what it gave."""

    query: Query
    frame: pl.DataFrame | None
    """None when the query could not run."""
    files: Sequence[str] = ()
    """Where all rows are, relative to the report."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The parameters given; the others have their defaults."""
    notes: Sequence[str] = ()
    """Choices made and things left out, one sentence each."""
    intervals: pl.DataFrame | None = None
    """<column>_low and <column>_high of the columns with a confidence interval, row by row."""
    reasons: Sequence[str] = ()
    """Why the query could not run, one sentence each."""


def build_report(
    trace: Trace,
    results: Iterable[Result],
    *,
    capacity: CapacityInfo,
    source: str,
    command: str = "",
    created: datetime | None = None,
    workload: WorkloadInfo | None = None,
    replay: ReplayInfo | None = None,
    guidelines: dict[str, Any] | None = None,
) -> Report:
    """Return everything that report.json states about a Trace.

    Parameters
    ----------
    trace : Trace
        What was analysed.
    results : iterable of Result
        Every query, those that could not run included.
    capacity : CapacityInfo
        The number of GPUs used and its alternatives.
    source : str
        What the user gave to analyse.
    command : str
        The command that makes this report again.
    created : datetime, optional
        When the report was made [UTC]; now by default.
    workload : WorkloadInfo, optional
        Where the workload model is, or why there is none.
    replay : ReplayInfo, optional
        What the replays were made of, or why there are none.
    guidelines : dict, optional
        The document of `tracekit.guidelines`.
    """
    from tracekit import __version__

    manifest = trace.manifest
    every = list(results)
    told, when = quality(trace), time_info(trace)
    facts = facts_of(told, when)
    every = [_without_void(r, facts) for r in every]
    answers = [_answer(trace, r, facts, telemetry_note(r.query, told, when)) for r in every if r.frame is not None]
    answers.sort(key=lambda a: reading_order(a["name"]))
    name = source.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or source
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "tracekit_version": __version__,
        "versions": _versions(),
        "created": (created or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command,
        "title": text.shorten(name, 80),
        "source": {
            "path": text.cut(source, 1000),
            "name": text.cut(name),
            "format": manifest.format,
            "options": dict(manifest.options),
            "ingested": manifest.created,
            "clusters": _clusters(trace),
        },
        "time": when,
        "opening": opening(answers, guidelines, doubts_of(answers, capacity, told)),
        "headline": headline(answers, capacity, telemetry_period({"utilization"}, told, when)),
        "capacity": capacity,
        "gpu_totals": gpu_totals(answers, capacity, replay, facts),
        "release": release_info(release_of(trace)),
        "sections": _sections(answers, facts),
        "unanswered": [_unanswered(r) for r in every if r.frame is None],
        "workload": workload,
        "replay": replay,
        "guidelines": guidelines,
        "quality": told,
    }


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def write_json(path: Path, content: object) -> None:
    """Write `content` as JSON text; a name that is not valid text is spelled out."""
    body = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    path.write_text(body + "\n", encoding="utf-8", errors="backslashreplace", newline="\n")


def facts_of(told: Quality, when: TimeInfo) -> Facts:
    """Return what sentences and charts must know of a trace."""
    have = {c["name"] for c in told["capabilities"] if c["available"]}
    dated = when["base"] != "relative"
    return Facts(vcs="tenants" in have, dated=dated, timezone=when["timezone"] if dated else "UTC")


def _rows(query: Query, frame: pl.DataFrame) -> list[Row]:
    sentences = {c.name for c in query.columns if c.unit == "sentence"}
    return [
        {k: text.cut(v, _SENTENCES) if k in sentences and isinstance(v, str) else text.plain(v) for k, v in row.items()}
        for row in frame.head(ROW_LIMIT).iter_rows(named=True)
    ]


def _without_void(result: Result, facts: Facts) -> Result:
    """Return a result without its rows, and with the reason, where they answer nothing."""
    why = None if result.frame is None else why_empty(result.query.name, _rows(result.query, result.frame), facts)
    return result if why is None else replace(result, frame=None, reasons=[why])


def _answer(trace: Trace, result: Result, facts: Facts, telemetry: str | None) -> Answer:
    query, frame = result.query, result.frame
    assert frame is not None  # noqa: S101 -- the caller chose the results that have one
    described = {c.name: c for c in query.columns}
    rows = _rows(query, frame)
    group = query.name.rpartition("/")[0] or "other"
    return {
        "name": query.name,
        "group": group,
        "title": query.title,
        "question": query.question,
        "paper": query.paper or "",
        "finding": finding(query.name, rows, facts),
        "columns": [
            {
                "name": name,
                "unit": described[name].unit if name in described else None,
                "meaning": described[name].meaning if name in described else "",
            }
            for name in frame.columns
        ],
        "rows": rows,
        "row_count": frame.height,
        "params": [
            {"name": p.name, "value": text.plain(result.params.get(p.name, p.default)), "meaning": p.meaning}
            for p in query.params
        ],
        "notes": [text.cut(note, 1000) for note in [*result.notes, *filter(None, [telemetry])]],
        "intervals": _intervals(result),
        "definition": query.rule,
        "sql": query.sql,
        "files": list(result.files),
        "published": [published_number(n) for n in beside(trace, query, frame, result.params)],
    }


def _intervals(result: Result) -> list[IntervalInfo]:
    if result.intervals is None:
        return []
    ends = result.intervals.head(ROW_LIMIT)
    return [
        {
            "column": interval.column,
            "method": interval.method,
            "count": interval.count,
            "low": ends[f"{interval.column}_low"].to_list(),
            "high": ends[f"{interval.column}_high"].to_list(),
        }
        for interval in result.query.intervals
    ]


def _unanswered(result: Result) -> Unanswered:
    query = result.query
    # A missing capability explains in words why a table is missing.
    told = [r for r in result.reasons if not r.startswith("The trace has no table")] or result.reasons
    return {
        "name": query.name,
        "title": query.title,
        "question": query.question,
        "reasons": [text.cut(r, 1000) for r in told],
    }


def _sections(answers: list[Answer], facts: Facts) -> list[Section]:
    groups = sections_in_order(a["group"] for a in answers)
    return [
        {
            "name": g,
            "title": section_title(g),
            "lead": section_lead(g, facts),
            "answers": [a for a in answers if a["group"] == g],
        }
        for g in groups
    ]


def _clusters(trace: Trace) -> list[str]:
    import polars as pl

    if not trace.has("jobs"):
        return []
    names = trace.scan("jobs").select(pl.col("cluster").drop_nulls().unique().sort()).collect().to_series().to_list()
    return [text.cut(str(n)) for n in names[:100]]


_MOST = 0.9
"""Part of the trace that telemetry covers from which on nothing is said of it."""


def telemetry_note(query: Query, told: Quality, when: TimeInfo) -> str | None:
    """Return which part of the trace the telemetry behind a query covers, where that is not nearly all of it."""
    behind = {"utilization", "host_utilization"} & {*query.needs}
    if "gpu_utilization" in (*query.also, *query.one_of) and query.name.startswith("utilization/"):
        behind.add("utilization")
    return telemetry_period(behind, told, when)


def telemetry_period(behind: set[str], told: Quality, when: TimeInfo) -> str | None:
    """Return which part of the trace the telemetry of these capabilities covers, where that is not nearly all of it."""
    windows = [c["window"] for c in told["capabilities"] if c["name"] in behind and c["available"] and c["window"]]
    if not windows or not when["span_s"]:
        return None
    begin, end = (datetime.fromisoformat(text) for text in windows[0])
    covered = (end - begin).total_seconds()
    if covered >= _MOST * when["span_s"]:
        return None
    whole = _days(when["span_s"])
    if when["base"] == "relative":
        return f"telemetry covers {_days(covered)} of the {whole} of the trace"
    first, last = (local(text, when["timezone"]) for text in windows[0])
    days = first.strftime("%Y-%m-%d") + ("" if first.date() == last.date() else f" to {last:%Y-%m-%d}")
    return f"telemetry covers {days} only, {_days(covered)} of the {whole} of the trace"


_BASES = {
    "absolute": "{first:%-d %B %Y} to {last:%-d %B %Y}",
    "shifted": "{days} (dates are shifted; hours and weekdays hold)",
    "relative": "{days} (times count from the start of the trace)",
}


def time_info(trace: Trace) -> TimeInfo:
    """Return when it happened, in numbers and in words."""
    import polars as pl

    manifest = trace.manifest
    first = last = None
    if trace.has("jobs"):
        times = ("submit_time", "start_time", "end_time")
        span = trace.scan("jobs").select(
            pl.min_horizontal(pl.col(t).min() for t in times).alias("first"),
            pl.max_horizontal(pl.col(t).max() for t in times).alias("last"),
        )
        first, last = span.collect(engine="streaming").row(0)
    seconds = (last - first).total_seconds() if first is not None else None
    words = "no times"
    if first is not None and last is not None and seconds is not None:
        form = _BASES.get(manifest.time_base, _BASES["relative"])
        since, until = (local(end.isoformat(), manifest.timezone) for end in (first, last))
        words = form.format(first=since, last=until, days=_days(seconds))
    return {
        "base": manifest.time_base,
        "timezone": manifest.timezone,
        "first": None if first is None else first.isoformat(),
        "last": None if last is None else last.isoformat(),
        "span_s": seconds,
        "text": words,
    }


def _days(seconds: float) -> str:
    days = seconds / 86400
    return f"{days:,.0f} days" if days >= 3 else f"{seconds / 3600:,.1f} hours"
