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
    may_be_empty,
    question_of,
    reading_order,
    section_lead,
    section_title,
    sections_in_order,
    why_empty,
)
from tracekit.report.structure import REPORT_SCHEMA_VERSION, ROW_LIMIT
from tracekit.report.telemetry import telemetry_note, telemetry_period
from tracekit.report.watched import watched
from tracekit.report.when import known_zone, local, span_words

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
    "time_info",
    "write_json",
]

_LIBRARIES = ("duckdb", "polars", "numpy", "scipy")
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
    facts = replace(
        facts,
        load=any(r.query.name == "queuing/cluster_timeline" and r.frame is not None for r in every),
        watched=watched(trace),
        retried=any(r.params.get("rule") == "retried" for r in every),
    )
    every = [_without_void(r, facts) for r in every]
    answers = [
        _answer(trace, r, facts, telemetry_note(r.query, told, when, facts.watched) or _span_note(r.query, when))
        for r in every
        if r.frame is not None
    ]
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
        "opening": opening(
            answers, guidelines, doubts_of(answers, capacity, told, guidelines, when), capacity, when, replay
        ),
        "headline": headline(answers, capacity, telemetry_period({"utilization"}, told, when, facts.watched), when),
        "capacity": capacity,
        "gpu_totals": gpu_totals(answers, capacity, replay),
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
    return Facts(
        vcs="tenants" in have,
        quotas="capacity" in have,
        dated=when["base"] != "relative",
        timezone=when["timezone"],
        last_submission=when["last_submission"],
    )


def _rows(query: Query, frame: pl.DataFrame, limit: int | None = ROW_LIMIT) -> list[Row]:
    sentences = {c.name for c in query.columns if c.unit == "sentence"}
    return [
        {k: text.cut(v, _SENTENCES) if k in sentences and isinstance(v, str) else text.plain(v) for k, v in row.items()}
        for row in (frame if limit is None else frame.head(limit)).iter_rows(named=True)
    ]


def _without_void(result: Result, facts: Facts) -> Result:
    """Return a result without its rows, and with the reason, where they answer nothing."""
    if result.frame is None or not may_be_empty(result.query.name):
        return result
    why = why_empty(result.query.name, _rows(result.query, result.frame), facts)
    return result if why is None else replace(result, frame=None, reasons=[why])


def _span_note(query: Query, when: TimeInfo) -> str | None:
    """Return how long the log is, beside the number of days in which jobs were submitted."""
    if query.name != "overview/summary" or not when["span_s"]:
        return None
    return f"days_covered runs from the first to the last submission; the log spans {span_words(when['span_s'])}"


def _answer(trace: Trace, result: Result, facts: Facts, remark: str | None) -> Answer:
    query, frame = result.query, result.frame
    assert frame is not None  # noqa: S101 -- the caller chose the results that have one
    described = {c.name: c for c in query.columns}
    rows = _rows(query, frame)
    group = query.name.rpartition("/")[0] or "other"
    return {
        "name": query.name,
        "group": group,
        "title": query.title,
        "question": question_of(query.name, query.question, facts),
        "paper": query.paper or "",
        # What a report makes itself is short enough to be read in full, also where it keeps the first rows only.
        "finding": finding(query.name, rows if query.sql else _rows(query, frame, None), facts),
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
        "notes": [text.cut(note, 1000) for note in [*result.notes, *filter(None, [remark])]],
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


_BASES = {
    "absolute": "{first:%-d %B %Y} to {last:%-d %B %Y}",
    "shifted": "{days} (dates are shifted; hours and weekdays hold)",
    "relative": "{days} (times count from the start of the trace)",
}


def time_info(trace: Trace) -> TimeInfo:
    """Return when it happened, in numbers and in words."""
    import polars as pl

    manifest = trace.manifest
    zone = known_zone(manifest.timezone) if manifest.time_base != "relative" else "UTC"
    first = last = submitted = None
    if trace.has("jobs"):
        times = ("submit_time", "start_time", "end_time")
        span = trace.scan("jobs").select(
            pl.min_horizontal(pl.col(t).min() for t in times).alias("first"),
            pl.max_horizontal(pl.col(t).max() for t in times).alias("last"),
            pl.col("submit_time").max(),
        )
        first, last, submitted = span.collect(engine="streaming").row(0)
    seconds = (last - first).total_seconds() if first is not None else None
    words = "no times"
    if first is not None and last is not None and seconds is not None:
        form = _BASES.get(manifest.time_base, _BASES["relative"])
        since, until = (local(end.isoformat(), zone) for end in (first, last))
        words = form.format(first=since, last=until, days=span_words(seconds))
    return {
        "base": manifest.time_base,
        "timezone": zone,
        "first": None if first is None else first.isoformat(),
        "last": None if last is None else last.isoformat(),
        "last_submission": None if submitted is None else submitted.isoformat(),
        "span_s": seconds,
        "text": words,
    }
