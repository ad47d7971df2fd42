"""The shape of report.json; report.html is drawn from nothing else."""

from __future__ import annotations

from typing import Any, TypedDict

from tracekit.answer import Kind, Row  # noqa: TC001 -- read where the schema is written

REPORT_SCHEMA_VERSION = "1"
"""Version of report.json's keys, of schemas/report-1.json; a change of their meaning raises it."""

ROW_LIMIT = 2000
"""Most rows of a result kept in report.json; tables/ holds all."""

WORKLOAD = "workload.json"
"""The fitted model's file, relative to the report."""


class ColumnInfo(TypedDict):
    """One column of a result."""

    name: str
    unit: str | None
    meaning: str


class ParamInfo(TypedDict):
    """One parameter of a query and the value used."""

    name: str
    value: Any
    meaning: str


class PublishedNumber(TypedDict):
    """A number that a paper or a release states, beside the measured one."""

    what: str
    column: str
    row: str
    """Conditions on the result's columns."""
    params: str
    """Parameters other than the defaults that the number needs; the measured one was made with them."""
    kind: str
    """number, about, range, above or below."""
    value: float | None
    low: float | None
    high: float | None
    unit: str
    """Of value, low, high, measured and difference."""
    as_printed: str
    measured: float | None
    difference: float | None
    """measured - published; 0 inside a range or bound, else from its nearest end."""
    relative: float | None
    """difference / published [1]."""
    artefact: str
    source: str
    confidence: str
    """A to E."""
    accuracy: str
    population_note: str
    """Which jobs the source counts, where they are not those of the release."""


class ReleaseInfo(TypedDict):
    """The public trace whose published numbers are shown."""

    title: str
    jobs: int
    public: bool
    """Whether the trace looks like it; published numbers are for orientation otherwise."""
    note: str


class IntervalInfo(TypedDict):
    """The confidence intervals of a column."""

    column: str
    method: str
    """proportion: exact for a share; median: between order statistics."""
    count: str
    """Column with the number of observations."""
    low: list[float | None]
    """One end for each of `rows`; null where nothing can be said."""
    high: list[float | None]


class AnswerInfo(TypedDict):
    """One question and what the trace says to it."""

    name: str
    group: str
    kind: Kind
    """Where the answer comes from: query, replay, fit, comparison of two periods, or bill."""
    title: str
    question: str
    paper: str
    finding: str | None
    """One sentence written from the rows; null when there is nothing true and useful to say."""
    columns: list[ColumnInfo]
    rows: list[Row]
    """At most `ROW_LIMIT` rows; the files in tables/ hold all."""
    row_count: int
    params: list[ParamInfo]
    notes: list[str]
    """Choices made and things left out, such as where a quota comes from."""
    coverage: dict[str, float | None]
    """For each capability that the answer needs, the share of the records that carry it; null if not known."""
    intervals: list[IntervalInfo]
    """95 % confidence intervals of some columns."""
    definition: str
    """The rules behind the numbers."""
    sql: str
    """Of a query; empty for other kinds."""
    commands: list[str]
    """Commands of the shell that compute the answer again, in turn, in the folder of the report."""
    files: list[str]
    """Where all rows are, relative to the report."""
    published: list[PublishedNumber]


class UnansweredInfo(TypedDict):
    """One question that this trace cannot answer."""

    name: str
    title: str
    question: str
    reasons: list[str]
    failed: bool
    """Whether an error is the reason; the trace may hold the answer."""


class FaultInfo(TypedDict):
    """One part of the report that could not be made, because of an error."""

    part: str
    """What could not be made, such as `the charts of queuing/queue_delay`."""
    reason: str
    """Kind and message of the error, one line."""


class Headline(TypedDict):
    """One number of the first screen."""

    name: str
    """Its column of overview/through_time; empty where it is not followed."""
    label: str
    value: float | None
    unit: str
    text: str
    """The value as printed."""
    note: str
    change: str | None
    """The same in the first half of the log and in the second, as printed; null where it is not followed."""
    series: list[float | None]
    """The same through time, in the spans of overview/through_time; empty where it is not followed."""


class SourceInfo(TypedDict):
    """The source that was analysed."""

    path: str
    name: str
    format: str
    options: dict[str, str]
    ingested: str
    clusters: list[str]


class TimeInfo(TypedDict):
    """The period of the trace."""

    base: str
    timezone: str
    first: str | None
    last: str | None
    last_submission: str | None
    """Time of the last submission; later times do not show the load, since the log has no later jobs."""
    span_s: float | None
    text: str
    """The period in words."""


class CapacityInfo(TypedDict):
    """The number of GPUs to which shares of the cluster refer."""

    requested: str
    used: str | None
    gpus: float | None
    alternatives: dict[str, float]
    note: str
    word: str
    """How the number is known: listed, stated, quotas, observed, or given in a file; '' where it is not known."""


class GpuTotal(TypedDict):
    """A number of GPUs that a part of the report uses."""

    gpus: float
    source: str
    """Where it comes from."""
    used_for: str
    """Which numbers of the report use it."""


class FileInfo(TypedDict):
    """The accounting of one source file."""

    path: str
    bytes: int
    sha256: str
    records: int
    kept: int
    rejected: int


class RejectInfo(TypedDict):
    """Records set aside for one reason."""

    column: str | None
    """The unusable part of the record; null when it was the whole."""
    reason: str
    count: int
    examples: list[str]


class CheckInfo(TypedDict):
    """One contradiction that was looked for."""

    name: str
    count: int
    of: int | None
    meaning: str
    examples: list[str]


class CapabilityInfo(TypedDict):
    """One capability of the trace, available or not."""

    name: str
    available: bool
    coverage: float | None
    window: list[str] | None
    note: str


class Quality(TypedDict):
    """The quality of the data: how far the numbers can be trusted."""

    files: list[FileInfo]
    file_count: int
    records: int
    kept: int
    rejected: int
    rejects: list[RejectInfo]
    checks: list[CheckInfo]
    capabilities: list[CapabilityInfo]
    notes: list[str]


class WorkloadInfo(TypedDict):
    """The workload model beside the report."""

    file: str | None
    """Relative to the report; null when the Trace could not be fitted."""
    reason: str | None
    """Why there is none."""
    seed: int
    bootstrap_replicates: int


class PartInfo(TypedDict):
    """Which cluster of several the tables of policies are of."""

    cluster: str
    others: list[str]
    """The other clusters, the first hundred."""
    waiting_share: float | None
    """Its share of the waiting hours of all clusters [0..1]; null where no job is known to have waited."""
    text: str
    """The same in words."""


class ReplayInfo(TypedDict):
    """The jobs, cluster and policies of the replays in the report."""

    reason: str | None
    """Why there are none; null when there are."""
    jobs: int
    """Jobs replayed."""
    limit: int | None
    """Most jobs that were asked for; null when none were."""
    cluster: dict[str, int] | None
    """nodes and gpus, and nodes_without_gpus, which are left out."""
    part: PartInfo | None
    """The cluster, of several, whose policies are shown; null where the trace has one."""
    without_effects: dict[str, str]
    """Clusters of which no effect of a change can be told, and why."""
    notes: list[str]
    """What was left out, and what the cluster cannot do."""
    skipped: dict[str, str]
    """Policies of the panel that cannot run here, and why."""


class SuggestedChange(TypedDict):
    """One thing to change, on the first screen."""

    id: str
    """Of the guideline, which has the rest."""
    title: str
    finding: str
    effect: str | None
    """The expected effect by replay; null where there is none."""
    no_effect: str | None
    """Why the record of the log supports no expected effect; null where it does, or where there is another reason."""


class Lack(TypedDict):
    """What the log lacks, and how to add it."""

    name: str
    """`gpus`, `devices`, `zone` or `telemetry`."""
    text: str
    """One line."""
    cure: str
    """The command or setting that adds it; empty where none is known."""


class Doubt(TypedDict):
    """One reason why the log may misrepresent the cluster."""

    text: str
    """One line."""
    more: str
    """What follows from it; empty where the line says all."""
    place: str
    """Id of the place in the page that shows it."""


class ChangedRow(TypedDict):
    """One measure of two periods, as the first screen has it."""

    what: str
    before: str
    after: str
    change: str
    """The difference, relative where it can be."""
    certainty: str
    """The 95 % interval, or why it cannot be told."""
    changed: bool
    """Whether the interval carries a change."""


class WhatChanged(TypedDict):
    """What a report with `--compare`, and a comparison of traces, open with."""

    heading: str
    text: str
    """Two or three sentences."""
    heads: list[str]
    """What the two sides are called."""
    rows: list[ChangedRow]
    """At most six."""
    periods: str
    """The two periods, one sentence; empty where they cannot be compared."""
    place: str
    """Id of the place in the page that has all of it; empty where there is none."""


class Summary(TypedDict):
    """The first screen."""

    changed: WhatChanged | None
    """What is different from another time; null where none was compared."""
    lacks: list[Lack]
    """What the log lacks, the first thing said."""
    about: str
    """What this cluster is, one sentence."""
    state: str
    """How long jobs wait and how full the cluster is, one sentence; empty where the trace does not tell."""
    heading: str
    """What the changes below it are."""
    changes: list[SuggestedChange]
    """At most three, the largest expected gain first."""
    verdict: str
    """How many guidelines hold, do not hold, and cannot be decided."""
    doubts: list[Doubt]
    """Caveats: what a reader must know about the log before relying on the rest."""


PartSums = dict[str, list[int | float]]
"""Columns of equal length: numbers of names and of spans, from 0 (-1: none of those), and what is summed."""


class PartsInfo(TypedDict):
    """Sums from which the first numbers of each part of the cluster and of the time follow (see overview/parts)."""

    edges: list[str]
    """Times [UTC] at which spans begin, and the end of the last one."""
    names: dict[str, list[str]]
    """What there is to choose, by dimension: cluster, vc (the tenant), partition, gpu_model, gpu_class, user."""
    sums: PartSums
    """By span and all dimensions but the user."""
    waits: list[PartSums]
    """Numbers of jobs by `bin`, the length of their wait, of `width` twentieths of a decade; by all dimensions and
    spans, or by some of them in turn."""
    user_sums: PartSums
    """By span, cluster and user; without rows where users cannot be chosen."""
    user_waits: list[PartSums]


class ReportSection(TypedDict):
    """A group of questions, in reading order."""

    name: str
    title: str
    lead: str
    """An explanation of its terms; empty where none is needed."""
    answers: list[AnswerInfo]


class TenantWords(TypedDict):
    """A tenant: what tells teams apart."""

    column: str
    """The column of jobs; vc is what was ingested."""
    one: str
    """The site's word for one."""
    many: str
    full: str
    """The word spelled out, where `one` is short for it; else empty."""


class TenantInfo(TypedDict):
    """The tenants of a report."""

    queries: TenantWords
    """Of queries, guidelines and comparisons: what the analysis chose. Their column is called after it."""
    replays: TenantWords
    """Of replays and fits: what was ingested."""


class Report(TypedDict):
    """Everything that report.json states."""

    schema_version: str
    tracekit_version: str
    versions: dict[str, str]
    """Of Python and of the libraries that numbers depend on."""
    created: str
    command: str
    title: str
    source: SourceInfo
    time: TimeInfo
    tenant: TenantInfo
    opening: Summary
    headline: list[Headline]
    """Five numbers, or as many as the trace has."""
    capacity: CapacityInfo
    gpu_totals: list[GpuTotal]
    """Which part of the report uses which number of GPUs."""
    release: ReleaseInfo | None
    """Null when nothing is published about traces of this format."""
    parts: PartsInfo | None
    """Null where there are no parts to choose."""
    sections: list[ReportSection]
    unanswered: list[UnansweredInfo]
    workload: WorkloadInfo | None
    """Null when no fit was asked for."""
    replay: ReplayInfo | None
    """Null when no replay was asked for."""
    guidelines: dict[str, Any] | None
    """The document of schemas/guidelines-1.json; null when the Trace was not judged."""
    quality: Quality
    faults: list[FaultInfo]
    """Parts that could not be made; the others are complete."""


class IndexEntry(TypedDict):
    """One source of several, as index.json states it."""

    name: str
    """Its folder."""
    source: str
    report: str | None
    """The page, relative to index.html; null when the source failed."""
    format: str | None
    period: str | None
    headline: list[Headline]
    faults: int
    """Parts of the report that could not be made."""
    error: str | None
    """Why there is no report; null when there is one."""
