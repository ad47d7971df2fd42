"""The structure of report.json, which is the only input of report.html."""

from __future__ import annotations

from typing import Any, TypedDict

from tracekit.answer import Kind, Row  # noqa: TC001 -- needed at runtime to write the schema

REPORT_SCHEMA_VERSION = "1"
"""Version of report.json's keys and of schemas/report-1.json. It increases when the meaning of a key changes."""

ROW_LIMIT = 2000
"""Maximum number of rows of a result in report.json. tables/ contains all rows."""

WORKLOAD = "workload.json"
"""File with the fitted model, relative to the report."""


class ColumnInfo(TypedDict):
    """One column of a result."""

    name: str
    unit: str | None
    meaning: str


class ParamInfo(TypedDict):
    """One parameter of a query, and the value used."""

    name: str
    value: Any
    meaning: str


class PublishedNumber(TypedDict):
    """A number published in a paper or with a release, and its measured counterpart."""

    what: str
    column: str
    row: str
    """Conditions that select the result's row."""
    params: str
    """Non-default parameters that the number needs. The measured number also uses them."""
    kind: str
    """Kind of the published number: number, about, range, above or below."""
    value: float | None
    low: float | None
    high: float | None
    unit: str
    """Unit of value, low, high, measured and difference."""
    as_printed: str
    measured: float | None
    difference: float | None
    """measured - published. For a range or bound: 0 inside, otherwise the distance to the nearest end."""
    relative: float | None
    """difference / published [1]."""
    artefact: str
    source: str
    confidence: str
    """Confidence in the published number (A to E)."""
    accuracy: str
    population_note: str
    """The jobs that the source counts, if they differ from the jobs in the release."""


class ReleaseInfo(TypedDict):
    """The public trace whose published numbers are shown."""

    title: str
    jobs: int
    public: bool
    """Whether the trace looks like the public trace. If not, published numbers are only a rough guide."""
    note: str


class IntervalInfo(TypedDict):
    """The confidence intervals of a column."""

    column: str
    method: str
    """Method: `proportion` (exact, for a share) or `median` (from order statistics)."""
    count: str
    """Column with the number of observations."""
    low: list[float | None]
    """One lower end per row in `rows`, or null if the interval is unknown."""
    high: list[float | None]


class AnswerInfo(TypedDict):
    """One question and the trace's answer."""

    name: str
    group: str
    kind: Kind
    """Origin of the answer: a query, a replay, a fit, a comparison of two periods, or a bill."""
    title: str
    question: str
    paper: str
    finding: str | None
    """One sentence about the rows, or null if no sentence would be true and useful."""
    columns: list[ColumnInfo]
    rows: list[Row]
    """At most `ROW_LIMIT` rows. The files in tables/ contain all rows."""
    row_count: int
    params: list[ParamInfo]
    notes: list[str]
    """Notes on choices and omissions, such as the source of a quota."""
    coverage: dict[str, float | None]
    """For each capability that the answer needs, the share of records with it, or null if unknown."""
    intervals: list[IntervalInfo]
    """95 % confidence intervals of some columns."""
    definition: str
    """Rules for computing the numbers."""
    sql: str
    """Parameters of a query. Empty for other kinds of answers."""
    commands: list[str]
    """Shell commands that compute the answer again. Run them in order in the report's folder."""
    files: list[str]
    """Files with all rows, relative to the report."""
    published: list[PublishedNumber]


class UnansweredInfo(TypedDict):
    """One question that this trace cannot answer."""

    name: str
    title: str
    question: str
    reasons: list[str]
    failed: bool
    """Whether an error is the reason. The trace may still contain the answer."""


class FaultInfo(TypedDict):
    """One part of the report that could not be made because of an error."""

    part: str
    """Name of the part, such as `the charts of queuing/queue_delay`."""
    reason: str
    """Kind and message of the error, on one line."""


class Headline(TypedDict):
    """One number on the first screen."""

    name: str
    """Column of overview/through_time, or empty if the number has no time series."""
    label: str
    value: float | None
    unit: str
    text: str
    """The value as shown."""
    note: str
    change: str | None
    """Values in the first and second half of the log, as shown, or null if the number has no time series."""
    series: list[float | None]
    """Values in the spans of overview/through_time. Empty if the number has no time series."""


class SourceInfo(TypedDict):
    """The source that was analysed."""

    path: str
    name: str
    format: str
    options: dict[str, str]
    ingested: str
    clusters: list[str]
    by_pool: bool
    """Whether `clusters` are partitions with nodes of their own, or several that share nodes."""


class TimeInfo(TypedDict):
    """The period of the trace."""

    base: str
    timezone: str
    first: str | None
    last: str | None
    last_submission: str | None
    """Time of the last submission. Later times do not show the load, because the log has no later jobs."""
    span_s: float | None
    text: str
    """Description of the period in words."""


class CapacityInfo(TypedDict):
    """The number of GPUs that is the denominator of cluster shares."""

    requested: str
    used: str | None
    gpus: float | None
    alternatives: dict[str, float]
    note: str
    word: str
    """Source of the number: listed, stated, quotas, observed, or given in a file. '' if it is unknown."""


class GpuTotal(TypedDict):
    """A number of GPUs that a part of the report uses."""

    gpus: float
    source: str
    """Source of the number."""
    used_for: str
    """The numbers in the report that use this number."""


class FileInfo(TypedDict):
    """Record counts of one source file."""

    path: str
    bytes: int
    sha256: str
    records: int
    kept: int
    rejected: int


class RejectInfo(TypedDict):
    """Records set aside for one reason."""

    column: str | None
    """The unusable part of the record, or null if the whole record is unusable."""
    reason: str
    count: int
    examples: list[str]


class CheckInfo(TypedDict):
    """One check for contradictions."""

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
    """Data quality: how reliable the numbers are."""

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
    """The workload model stored with the report."""

    file: str | None
    """File relative to the report, or null if the Trace could not be fitted."""
    reason: str | None
    """Reason why there is no model, or null if there is a model."""
    seed: int
    bootstrap_replicates: int


class PartInfo(TypedDict):
    """The cluster that the policy tables cover, if there are several."""

    cluster: str
    others: list[str]
    """Names of at most a hundred other clusters."""
    waiting_share: float | None
    """Its share of the waiting hours of all clusters [0..1], or null if no wait is known."""
    text: str
    """Description of the cluster in words."""


class ReplayInfo(TypedDict):
    """The jobs, cluster and policies of the replays in the report."""

    reason: str | None
    """Reason why there are no replays, or null if there are replays."""
    jobs: int
    """Number of jobs replayed."""
    limit: int | None
    """Requested maximum number of jobs, or null if there is no limit."""
    cluster: dict[str, int] | None
    """Numbers of nodes, of GPUs, and of nodes without GPUs, which are left out."""
    part: PartInfo | None
    """The cluster whose policies are shown, or null if the trace has only one cluster."""
    without_effects: dict[str, str]
    """Clusters for which no effect of a change can be reported, with reasons."""
    notes: list[str]
    """Notes on jobs that were left out and on the limits of the cluster model."""
    skipped: dict[str, str]
    """Policies in the panel that cannot run here, with reasons."""


class SuggestedChange(TypedDict):
    """One suggested change on the first screen."""

    id: str
    """Id of the guideline, which contains the details."""
    title: str
    finding: str
    effect: str | None
    """Expected effect according to the replay, or null if it is unknown."""
    no_effect: str | None
    """Why the log does not support an expected effect. Null if it does, or if another reason applies."""


class Lack(TypedDict):
    """Something that is missing from the log, and how to add it."""

    name: str
    """`gpus`, `devices`, `zone` or `telemetry`."""
    text: str
    """The statement, on one line."""
    cure: str
    """Command or setting that adds it, or empty if none is known."""


class Doubt(TypedDict):
    """One reason why the log may misrepresent the cluster."""

    text: str
    """The statement, on one line."""
    more: str
    """Consequences, or empty if the statement needs none."""
    place: str
    """Anchor on the page that shows it."""


class ChangedRow(TypedDict):
    """One measure in two periods, as shown on the first screen."""

    what: str
    before: str
    after: str
    change: str
    """The difference (a relative change, if possible)."""
    certainty: str
    """The 95 % interval, or the reason why it is unknown."""
    changed: bool
    """Whether the interval shows a change."""


class WhatChanged(TypedDict):
    """First screen of a comparison, either in a report with `--compare` or of several traces."""

    heading: str
    text: str
    """Summary in two or three sentences."""
    heads: list[str]
    """Names of the two sides."""
    rows: list[ChangedRow]
    """At most six table rows."""
    periods: str
    """One sentence on the two periods, or empty if they cannot be compared."""
    place: str
    """Anchor of the full comparison on the page, or empty if there is none."""


class Summary(TypedDict):
    """The first screen."""

    changed: WhatChanged | None
    """Changes since an earlier period, or null if nothing was compared."""
    lacks: list[Lack]
    """What is missing from the log (shown first)."""
    about: str
    """A description of the cluster."""
    state: str
    """How long jobs wait and how full the cluster is, or empty if this is unknown."""
    heading: str
    """Heading of the suggested changes."""
    changes: list[SuggestedChange]
    """At most three changes, with the largest expected gain first."""
    verdict: str
    """One sentence on how many guidelines hold, do not hold, and cannot be decided."""
    doubts: list[Doubt]
    """Caveats that readers must know before they rely on the rest."""


PartSums = dict[str, list[int | float]]
"""Columns of equal length: indices of names and of spans (from 0, or -1 for none), and the summed values."""


class PartsInfo(TypedDict):
    """Sums for computing the first numbers of any part of the cluster and any period (see overview/parts)."""

    edges: list[str]
    """Start times of the spans [UTC], and the end of the last span."""
    names: dict[str, list[str]]
    """Choices by dimension: cluster, vc (the tenant), partition, gpu_model, gpu_class, user."""
    sums: PartSums
    """Sums by span and all dimensions except the user."""
    waits: list[PartSums]
    """Job counts by wait class `bin`, which is `width` twentieths of a decade wide: by all dimensions and spans, or by
    several subsets of them."""
    user_sums: PartSums
    """Sums by span, cluster and user. There are no rows if users cannot be selected."""
    user_waits: list[PartSums]


class ReportSection(TypedDict):
    """A group of questions, in reading order."""

    name: str
    title: str
    lead: str
    """Explanation of the group's terms, or empty if none is needed."""
    answers: list[AnswerInfo]


class TenantWords(TypedDict):
    """A tenant: the unit that separates teams."""

    column: str
    """Column of jobs. vc is the tenant set at ingest."""
    one: str
    """The site's word for a tenant."""
    many: str
    full: str
    """The full word if `one` is an abbreviation, otherwise empty."""


class TenantInfo(TypedDict):
    """The tenants of a report."""

    queries: TenantWords
    """Tenant of queries, guidelines and comparisons, as chosen for the analysis. Their column has its name."""
    replays: TenantWords
    """Tenant of replays and fits, as set at ingest."""


class Report(TypedDict):
    """Everything in report.json."""

    schema_version: str
    tracekit_version: str
    versions: dict[str, str]
    """Versions of Python and of the libraries that the numbers depend on."""
    created: str
    command: str
    title: str
    source: SourceInfo
    time: TimeInfo
    tenant: TenantInfo
    opening: Summary
    headline: list[Headline]
    """Five numbers, or fewer if some are missing from the trace."""
    capacity: CapacityInfo
    gpu_totals: list[GpuTotal]
    """GPU counts, with the parts of the report that use each of them."""
    release: ReleaseInfo | None
    """Null if nothing is published about traces of this format."""
    parts: PartsInfo | None
    """Null if no part can be selected on the page."""
    sections: list[ReportSection]
    unanswered: list[UnansweredInfo]
    workload: WorkloadInfo | None
    """Null if no fit was requested."""
    replay: ReplayInfo | None
    """Null if no replay was requested."""
    guidelines: dict[str, Any] | None
    """A document in the format of schemas/guidelines-1.json, or null if the guidelines were not evaluated."""
    quality: Quality
    faults: list[FaultInfo]
    """Parts that could not be made. All other parts are complete."""


class IndexEntry(TypedDict):
    """One of several sources in index.json."""

    name: str
    """Folder of its report."""
    source: str
    report: str | None
    """The page, relative to index.html, or null if the source failed."""
    format: str | None
    period: str | None
    headline: list[Headline]
    faults: int
    """Number of parts of the report that could not be made."""
    error: str | None
    """Reason why there is no report, or null if there is a report."""
