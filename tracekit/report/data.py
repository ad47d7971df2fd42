"""Build the content of report.json, which report.html shows."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from tracekit import text
from tracekit.answer import Answer, Unanswered
from tracekit.characterize.notes import OWNED
from tracekit.characterize.published import release_of
from tracekit.characterize.session import Session
from tracekit.faults import Fault, Faults
from tracekit.report.answers import answer_info, metrics, rows_of, unanswered_info
from tracekit.report.caveats import caveats, lacks_of
from tracekit.report.changed import what_changed
from tracekit.report.facts import NO_TELEMETRY, TraceFacts
from tracekit.report.headline import FIRST, headline, no_gpu_jobs
from tracekit.report.parts import parts_info
from tracekit.report.published import release_info
from tracekit.report.quality import quality
from tracekit.report.sections.interface import (
    reading_order,
    section_lead,
    section_title,
    sections_in_order,
    why_empty,
)
from tracekit.report.structure import REPORT_SCHEMA_VERSION, ROW_LIMIT
from tracekit.report.summary import summary
from tracekit.report.telemetry import telemetry_coverage, telemetry_note, telemetry_period
from tracekit.report.times import local, midnight_before, period_words, span_words
from tracekit.tenant import INGESTED, VC, Tenant
from tracekit.text import cut
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tracekit.answer import Question
    from tracekit.report.facts import TelemetryCoverage
    from tracekit.report.structure import (
        AnswerInfo,
        CapacityInfo,
        FaultInfo,
        GpuTotal,
        Headline,
        Quality,
        ReplayInfo,
        Report,
        ReportSection,
        Summary,
        TenantInfo,
        TimeInfo,
        WorkloadInfo,
    )
    from tracekit.trace import Trace


# The number of GPUs in a report, the other numbers that some parts use instead, and their sources.

REPLAYS = "replays"
"""Label for the number of GPUs used by replays."""

_LARGEST = "largest "
"""Prefix that describes a capacity that changes over time."""


def capacity_label(capacity: CapacityInfo) -> str:
    """Return a chart's label for the number of GPUs: 'owned', 'quotas' or 'observed at most'."""
    word = capacity["word"]
    return "observed at most" if word == "observed" else "quotas" if "quotas" in word else "owned"


def gpu_totals(answers: Mapping[str, Answer], capacity: CapacityInfo, replay: ReplayInfo | None) -> list[GpuTotal]:
    """Return the number of GPUs that the report uses, followed by the numbers that some parts use instead."""
    found: list[GpuTotal] = []
    gpus = capacity["gpus"]
    owned = metrics(answers, "queuing/gpu_time_held").get("owned_gpus")
    changing = capacity["word"].startswith(_LARGEST)
    if gpus is not None:
        moment = " (shares use the number at each point in time)" if changing else ""
        same = owned is not None and (changing or round(owned) == gpus)
        used_for = "shares of the whole cluster, over time and by hour" if same else "the cluster as a whole"
        found.append({"gpus": gpus, "source": capacity["note"] + moment, "used_for": used_for})
    if owned is not None and (gpus is None or not (changing or round(owned) == gpus)):
        # A note of the answer names the source of the clusters' capacity.
        notes = answers["queuing/gpu_time_held"].notes
        source = next((n.removeprefix(OWNED) for n in notes if n.startswith(OWNED)), "") + ", on average over time"
        used_for = "shares of the whole cluster, over time and by hour"
        found.append({"gpus": owned, "source": source, "used_for": used_for})
    if replay and replay["cluster"] and replay["cluster"]["gpus"] != gpus:
        rows = rows_of(answers, "replay/assumptions")
        origin = next((r["value"] for r in rows if r["id"] == "cluster"), None)
        source = "the cluster of the replays" + (f": {cut(origin)}" if origin else "")
        found.append({"gpus": float(replay["cluster"]["gpus"]), "source": source, "used_for": REPLAYS})
    return found


_LIBRARIES = ("duckdb", "polars", "numpy", "scipy")


def build_report(
    trace: Trace,
    answers: Iterable[Answer | Unanswered],
    *,
    parts: Answer | None = None,
    capacity: CapacityInfo,
    source: str,
    command: str = "",
    created: datetime | None = None,
    workload: WorkloadInfo | None = None,
    replay: ReplayInfo | None = None,
    guidelines: dict[str, Any] | None = None,
    session: Session | None = None,
    faults: Faults | None = None,
) -> Report:
    """Build the content of report.json for a Trace.

    If a part fails, a message replaces it in the report, and the other parts are still made.

    Parameters
    ----------
    trace : Trace
        The analysed Trace.
    answers : iterable of Answer or Unanswered
        Answers to all questions, including those that the Trace cannot answer.
    parts : Answer, optional
        The answer to `overview/parts`, which the page needs for its filters.
    capacity : CapacityInfo
        The number of GPUs that the report uses, and the alternatives to it.
    source : str
        The source as given by the user.
    command : str
        The command that makes this report again.
    created : datetime, optional
        When the report was made [UTC]. By default, now.
    workload : WorkloadInfo, optional
        Location of the workload model, or the reason why it is missing.
    replay : ReplayInfo, optional
        Inputs of the replays, or the reason why they are missing.
    guidelines : dict, optional
        The document of `tracekit.guidelines`.
    session : Session, optional
        A session of earlier queries of the Trace, to reuse.
    faults : Faults, optional
        Parts that could not be made. Parts that fail here are added.
    """
    from tracekit.version import __version__

    faults = Faults() if faults is None else faults
    tenant = _tenant_info(trace)
    manifest, session = trace.manifest, session or Session(trace)
    quality_info, times = quality(trace), time_info(trace)
    all_answers = list(answers)
    found = {a.name: a for a in all_answers if isinstance(a, Answer)}
    coverage = faults.run_or(NO_TELEMETRY, "the coverage of telemetry", telemetry_coverage, trace, session)
    facts = all_facts(trace, found, capacity, quality_info, times, coverage)
    infos: list[AnswerInfo] = []
    shown: list[Answer | Unanswered] = []
    for answer in sorted(all_answers, key=lambda a: reading_order(a.name)):
        part = f"the answer to {answer.name}"
        made = faults.run(part, _info_of, trace, answer, facts, quality_info, times, session, faults)
        if isinstance(made, Fault):
            shown.append(answer.question.unanswered(made.remark, failed=True))
        elif isinstance(made, Unanswered):
            shown.append(made)
        else:
            shown.append(answer)
            infos.append(made)
    order = {a.name: i for i, a in enumerate(all_answers)}
    unanswered = sorted((u for u in shown if isinstance(u, Unanswered)), key=lambda u: order[u.name])
    found = {a.name: a for a in shown if isinstance(a, Answer)}

    first = faults.run(
        "the first screen",
        lambda: summary(
            found,
            guidelines,
            faults.run_or([], "the caveats", caveats, found, capacity, quality_info, guidelines),
            capacity,
            times,
            replay,
            facts.tenant,
            faults.run_or(None, "what changed", what_changed, found, unanswered),
            faults.run_or([], "what is missing from the log", lacks_of, trace, found),
        ),
    )

    def numbers() -> list[Headline]:
        return headline(found, capacity, telemetry_period({"utilization"}, quality_info, times, facts.telemetry))

    name = source.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or source
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "tracekit_version": __version__,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        "created": creation_time(created),
        "command": command,
        "title": text.shorten(name, 80),
        "source": {
            "path": text.cut(source, 1000),
            "name": text.cut(name),
            "format": manifest.format,
            "options": dict(manifest.options),
            "ingested": manifest.created,
            "clusters": [text.cut(name) for name in trace.clusters[:100]],
            "by_pool": trace.by_pool,
        },
        "time": times,
        "tenant": tenant,
        "opening": _without_opening(first) if isinstance(first, Fault) else first,
        "headline": faults.run_or([], "the first numbers", numbers),
        "capacity": capacity,
        "gpu_totals": faults.run_or([], "the table of GPU numbers", gpu_totals, found, capacity, replay),
        "release": faults.run_or(None, "the published numbers", lambda: release_info(release_of(trace))),
        "parts": faults.run_or(None, "the choice of parts", parts_info, parts, found.get(FIRST), facts.tenant),
        "sections": _sections(infos, facts),
        "unanswered": [unanswered_info(u, facts) for u in unanswered],
        "workload": workload,
        "replay": replay,
        "guidelines": guidelines,
        "quality": quality_info,
        "faults": fault_infos(faults),
    }


def fault_infos(faults: Faults) -> list[FaultInfo]:
    """Return the parts that could not be made, in the format of report.json."""
    return [{"part": fault.part, "reason": fault.reason} for fault in faults.found]


def _info_of(
    trace: Trace,
    answer: Answer | Unanswered,
    facts: TraceFacts,
    quality_info: Quality,
    times: TimeInfo,
    session: Session,
    faults: Faults,
) -> AnswerInfo | Unanswered:
    """Convert an answer to the format of report.json. If its rows contain no information, it becomes unanswered."""
    if isinstance(answer, Unanswered):
        return answer
    question = answer.question
    if (why := why_empty(answer.name, answer.rows(ROW_LIMIT), facts)) is not None:
        return question.unanswered(why)
    remark = telemetry_note(question, quality_info, times, facts.telemetry) or _span_note(question, times)
    return answer_info(trace, answer, facts, remark, session=session, faults=faults)


def _without_opening(fault: Fault) -> Summary:
    """Return a first screen that only says why it could not be made."""
    return {
        "changed": None,
        "lacks": [],
        "about": fault.sentence,
        "state": "",
        "heading": "",
        "changes": [],
        "verdict": "",
        "doubts": [],
    }


def _tenant_info(trace: Trace) -> TenantInfo:
    return cast("TenantInfo", {"queries": asdict(trace.tenant), "replays": asdict(trace.ingested_tenant)})


def all_facts(
    trace: Trace,
    found: Mapping[str, Answer],
    capacity: CapacityInfo,
    quality_info: Quality,
    times: TimeInfo,
    telemetry: TelemetryCoverage,
) -> TraceFacts:
    """Collect the facts that sentences need, from the log and from the answers by name."""
    return replace(
        trace_facts(quality_info, times, _tenant_info(trace)),
        jobs=trace.has("jobs"),
        no_gpu_jobs=no_gpu_jobs(found),
        outages="failures/cluster_availability" in found,
        load="queuing/cluster_timeline" in found,
        telemetry=telemetry,
        capacity=capacity_label(capacity),
        last_submission=times["last_submission"],
        efficiency_by=str(found["utilization/efficiency"].params.get("by", "user"))
        if "utilization/efficiency" in found
        else "user",
        retried=any(a.params.get("rule") == "retried" for a in found.values()),
    )


def creation_time(created: datetime | None = None) -> str:
    """Return `created` or the current time in UTC. SOURCE_DATE_EPOCH sets the time for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return (created or now).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_json(path: Path, content: object) -> None:
    """Write `content` as JSON. Names that are not valid text are escaped."""
    body = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    path.write_text(body + "\n", encoding="utf-8", errors="backslashreplace", newline="\n")


def trace_facts(quality_info: Quality, times: TimeInfo, tenant: TenantInfo | None = None) -> TraceFacts:
    """Collect the facts about a trace that sentences and charts need."""
    have = {c["name"] for c in quality_info["capabilities"] if c["available"]}
    chosen, ingested = (VC, VC) if tenant is None else (Tenant(**tenant[of]) for of in ("queries", "replays"))
    return TraceFacts(
        tenant=chosen,
        ingested=ingested,
        vcs="tenants" in have,
        # Quotas belong to the source's tenant column.
        quotas="capacity" in have and chosen.column == INGESTED,
        dated=times["base"] == "absolute",
        day_zero=midnight_before(times["first"], times["timezone"])
        if times["base"] == "shifted" and times["first"] is not None
        else None,
        timezone=times["timezone"],
    )


def _span_note(question: Question, times: TimeInfo) -> str | None:
    """Return a note on the length of the log for the question that counts days with submissions."""
    if question.name != "overview/summary" or not times["span_s"]:
        return None
    return f"days_covered counts from the first to the last submission, but the log spans {span_words(times['span_s'])}"


def _sections(answers: list[AnswerInfo], facts: TraceFacts) -> list[ReportSection]:
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


_BASES = {
    "absolute": "{period}",
    "shifted": "{days} (dates are shifted, but hours and weekdays are real)",
    "relative": "{days} (times are counted from the start of the trace)",
}


def time_info(trace: Trace) -> TimeInfo:
    """Describe the period of a Trace in numbers and words. If it has no jobs, this is the period of its node events."""
    manifest = trace.manifest
    zone = known_zone(manifest.timezone) if manifest.time_base != "relative" else "UTC"
    first = last = submitted = None
    jobs = trace.has("jobs")
    if jobs or trace.has("node_events"):
        times = ("submit_time", "start_time", "end_time") if jobs else ("start_time", "end_time")
        span = trace.scan("jobs" if jobs else "node_events").select(
            pl.min_horizontal(pl.col(t).min() for t in times).alias("first"),
            pl.max_horizontal(pl.col(t).max() for t in times).alias("last"),
            pl.col("submit_time").max() if jobs else pl.lit(None, dtype=pl.Datetime("us")).alias("submit_time"),
        )
        first, last, submitted = span.collect(engine="streaming").row(0)
    seconds = (last - first).total_seconds() if first is not None else None
    words = "no times"
    if first is not None and last is not None and seconds is not None:
        form = _BASES.get(manifest.time_base, _BASES["relative"])
        since, until = (local(end.isoformat(), zone) for end in (first, last))
        words = form.format(period=period_words(since, until), days=span_words(seconds))
    return {
        "base": manifest.time_base,
        "timezone": zone,
        "first": None if first is None else first.isoformat(),
        "last": None if last is None else last.isoformat(),
        "last_submission": None if submitted is None else submitted.isoformat(),
        "span_s": seconds,
        "text": words,
    }
