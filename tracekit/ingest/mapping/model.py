"""What a mapping file says, read and checked as a whole before any log is opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracekit import resources, schema
from tracekit.ingest.localtime import DOUBLED_HOUR
from tracekit.ingest.mapping.document import Section, read_document
from tracekit.ingest.mapping.rules import Rule, checked_format, checked_regex, parse_rule, word_table
from tracekit.ingest.mapping.times import zone_fault
from tracekit.schema import Column

if TYPE_CHECKING:
    from tracekit.manifest import TimeBase

__all__ = [
    "GpuTable",
    "LogMap",
    "NodeList",
    "Reading",
    "StatusWords",
    "TableMap",
    "TelemetryMap",
    "load_mapping",
    "template",
]

TABLES = ("jobs", "nodes", "capacity", "job_usage")
"""Common tables that a mapping fills column by column."""

GPU_METRICS = ("utilization_pct", "memory_used_gib", "power_w")
HOST_METRICS = ("cpu_pct", "memory_used_gib", "memory_total_gib")

_TYPES = ("csv", "jsonl", "parquet")
_READING = ("files", "type", "delimiter", "header", "time_format", "missing", "doubled_hour", "timezone")
_SOURCE = (*_READING, "cluster", "time_base")
# What the file derives itself is not to be filled from a column.
_DERIVED = ("status", "source_status", "attempt_count")
_REQUIRED = {
    "jobs": ("job_id",),
    "nodes": ("node_id",),
    "capacity": ("time", "gpu_count"),
    "job_usage": ("job_id",),
}


@dataclass(frozen=True)
class Reading:
    """How the raw files of one table are laid out."""

    files: tuple[str, ...] = ("*",)
    """Name patterns such as jobs*.csv."""
    type: str | None = None
    """csv, jsonl or parquet; from the file's name by default."""
    delimiter: str | None = None
    """By default a tab for .tsv files, else a comma."""
    header: tuple[str, ...] = ()
    """Column names of files without header line."""
    time_format: str = "iso8601"
    missing: tuple[str, ...] = ()
    """Spellings of an unknown value, besides nothing at all."""
    doubled_hour: str = "bounded"
    timezone: str = "UTC"


@dataclass(frozen=True)
class StatusWords:
    """How the source's status words are to be read."""

    rule: Rule
    words: dict[str, str]
    when_missing: str | None


@dataclass(frozen=True)
class NodeList:
    """How a column names the nodes of a job."""

    rule: Rule
    separator: str
    pattern: str | None


@dataclass(frozen=True)
class TableMap:
    """How one common table is filled."""

    table: str
    key: str
    reading: Reading
    rules: tuple[Rule, ...]
    status: StatusWords | None = None
    nodes: NodeList | None = None

    def rule(self, name: str) -> Rule | None:
        """Return the rule of a column, None when it is not filled."""
        return next((rule for rule in self.rules if rule.target.name == name), None)


@dataclass(frozen=True)
class TelemetryMap:
    """How samples are laid out in a kind of file."""

    name: str
    key: str
    reading: Reading
    layout: Literal["long", "wide", "row"]
    rules: tuple[Rule, ...]
    """Long and row: time, node_id, gpu_index or uuid; long also metric and value."""
    metrics: tuple[Rule, ...]
    """One for each metric; its column is the source's name of the metric."""
    of_gpu: tuple[bool, ...]
    """Whether each metric belongs to a GPU or to a host."""
    server: str | None = None
    """Wide: pattern with the groups node and gpu that a column's name must match."""


@dataclass(frozen=True)
class GpuTable:
    """Where UUIDs of GPUs are told: uuid, node_id, gpu_index."""

    key: str
    reading: Reading
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class LogMap:
    """A whole mapping file."""

    file: Path
    base: TimeBase
    timezone: str
    cluster: str | None
    tables: tuple[TableMap, ...]
    telemetry: tuple[TelemetryMap, ...]
    gpus: GpuTable | None


def template() -> str:
    """Return a mapping file with every key explained, to start from."""
    return (resources.folder("schemas") / "sources" / "csv" / "template.toml").read_text(encoding="utf-8")


def load_mapping(file: Path | str) -> LogMap:
    """Read a mapping file.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or says something that cannot be; one line with the key.
    """
    document = read_document(Path(file))
    document.only(("source", *TABLES, "telemetry", "gpus"))
    source = document.section("source") or Section({}, document.file, "source")
    source.only(_SOURCE)
    base: TimeBase = "relative" if source.choice("time_base", ("absolute", "relative")) == "relative" else "absolute"
    if base == "relative" and "timezone" in source.data:
        raise source.error("relative times have no zone", "timezone", "remove it")
    standard = Reading(time_format="epoch_s") if base == "relative" else Reading()
    reading = _reading(source, standard, base)
    tables = tuple(_table(found, name, reading, base) for name in TABLES if (found := document.section(name)))
    samples = document.section("telemetry")
    telemetry = tuple(_telemetry(samples, name, reading, base) for name in samples.data) if samples else ()
    if not tables and not telemetry:
        raise document.error("maps no table", hint=f"write [jobs.columns]; tables: {', '.join(TABLES)}, telemetry")
    gpus = _gpus(document.section("gpus"), reading)
    for sampled in telemetry:
        if gpus is None and any(rule.target.name == "uuid" for rule in sampled.rules):
            raise document.error("names UUIDs and no table of GPUs", sampled.key, "add [gpus] with uuid, node and gpu")
    return LogMap(document.file, base, reading.timezone, source.text("cluster"), tables, telemetry, gpus)


def _reading(section: Section, standard: Reading, base: TimeBase) -> Reading:
    zone = section.text("timezone")
    if zone is not None and (fault := zone_fault(zone)):
        raise section.error(f"'{zone}' is not a time zone", "timezone", fault)
    delimiter = section.text("delimiter")
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\n\r'):
        raise section.error("is not one plain character", "delimiter", r'such as ",", ";", "|" or "\t"')
    header = section.data.get("header", standard.header)
    if header is True:
        header = ()
    elif header is False or not isinstance(header, list | tuple):
        raise section.error("is not a list of column names", "header", 'without header line write ["a", "b", ...]')
    given = {
        "files": section.texts("files"),
        "type": section.choice("type", _TYPES),
        "delimiter": delimiter,
        "header": section.texts("header") if header else header,
        "time_format": checked_format(section, "time_format", relative=base == "relative"),
        "missing": section.texts("missing"),
        "doubled_hour": section.choice("doubled_hour", DOUBLED_HOUR),
        "timezone": zone,
    }
    return replace(standard, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


def _table(section: Section, table: str, standard: Reading, base: TimeBase) -> TableMap:
    parts = ("columns", "status", "nodes") if table == "jobs" else ("columns",)
    section.only((*_READING, *parts))
    columns = section.section("columns")
    if columns is None:
        raise section.error("has no columns", hint=f"write [{section.key('columns')}]")
    spec = schema.common(table)
    known = [c for c in spec.columns if c.kind != "array" and (table != "jobs" or c.name not in _DERIVED)]
    if table == "jobs" and "status" in columns.data:
        raise columns.error("is not mapped here", "status", "write [jobs.status] with column and lists of words")
    columns.only(c.name for c in known)
    for name in _REQUIRED[table]:
        if name not in columns.data:
            raise columns.error(f"does not say what {name} is", hint=f'add {name} = "..."')
    rules = [parse_rule(columns, c.name, c, relative=base == "relative") for c in known if c.name in columns.data]
    status, nodes = section.section("status"), section.section("nodes")
    return TableMap(
        table,
        section.path,
        _reading(section, standard, base),
        tuple(rules),
        None if status is None else _status(status),
        None if nodes is None else _nodes(nodes),
    )


def _status(section: Section) -> StatusWords:
    words = schema.common("jobs").column("status").enum
    section.only(("column", "regex", "when_missing", *words))
    if section.text("column") is None:
        raise section.error("does not say which column holds the status", hint='add column = "..."')
    rule = Rule(
        Column("source_status", "string", ""),
        section.path,
        section.file,
        column=section.text("column"),
        regex=checked_regex(section, "regex"),
    )
    return StatusWords(rule, word_table(section, words), section.choice("when_missing", words))


def _nodes(section: Section) -> NodeList:
    section.only(("column", "separator", "pattern"))
    if section.text("column") is None:
        raise section.error("does not say which column holds the nodes", hint='add column = "..."')
    rule = Rule(Column("nodes", "string", ""), section.path, section.file, column=section.text("column"))
    pattern = checked_regex(section, "pattern", ("node", "gpu_index", "gpu_count"))
    return NodeList(rule, section.text("separator") or ",", pattern)


def _telemetry(  # noqa: C901 -- one look at each key
    parent: Section, name: str, standard: Reading, base: TimeBase
) -> TelemetryMap:
    section = parent.section(name)
    assert section is not None  # noqa: S101 -- the name comes from the parent
    layout = section.choice("layout", ("long", "wide", "row"))
    if layout is None:
        raise section.error(
            "has no layout",
            hint='write layout = "long" (one metric a record), "row" (all metrics of a server a record) or '
            '"wide" (a column for each server)',
        )
    keys = {"long": ("time", "node", "gpu", "uuid", "metric", "value"), "row": ("time", "node", "gpu", "uuid")}
    section.only((*_READING, "layout", "gpu_metrics", "host_metrics", *keys.get(layout, ("time", "server"))))
    relative = base == "relative"
    time = Column("time", "datetime", "", required=True)
    reading = _reading(section, standard, base)
    metrics = [
        (rule, gpu)
        for table, gpu in (("gpu_metrics", True), ("host_metrics", False))
        for rule in _metrics(section, table, gpu=gpu)
    ]
    if not metrics:
        raise section.error("maps no metric", hint="write gpu_metrics = {...} or host_metrics = {...}")
    if layout == "wide":
        if len(metrics) != 1:
            raise section.error("a wide file holds one metric", hint="write one section for each file")
        server = checked_regex(section, "server", ("node", "gpu"))
        if metrics[0][1] and (server is None or "(?<gpu>" not in server.replace("(?P<", "(?<")):
            raise section.error(
                "does not tell the GPUs apart", "server", "write a pattern with (?<node>...) (?<gpu>...)"
            )
        first = (parse_rule(section, "time", time, relative=relative),) if "time" in section.data else ()
        return TelemetryMap(name, section.path, reading, "wide", first, (metrics[0][0],), (metrics[0][1],), server)
    targets = {
        "time": time,
        "node": Column("node_id", "string", "", required=True),
        "gpu": Column("gpu_index", "integer", "", required=True, minimum=0, maximum=10_000),
        "uuid": Column("uuid", "string", "", required=True),
        "metric": Column("metric", "string", "", required=True),
        "value": Column("value", "string", ""),
    }
    has_gpu, has_uuid = "gpu" in section.data, "uuid" in section.data
    needed = ["time", *(["metric", "value"] if layout == "long" else []), *([] if has_uuid else ["node"])]
    for key in needed:
        if key not in section.data:
            raise section.error(f"does not say which column is the {key}", hint=f'add {key} = "..."')
    if has_uuid and (has_gpu or "node" in section.data):
        raise section.error("a UUID stands for node and gpu", "uuid", "keep either")
    if any(gpu for _, gpu in metrics) and not (has_gpu or has_uuid):
        raise section.error("does not say which column is the gpu", hint='add gpu = "..." or uuid = "..."')
    rules = tuple(parse_rule(section, key, t, relative=relative) for key, t in targets.items() if key in section.data)
    if any(not gpu for _, gpu in metrics) and (has_gpu or has_uuid):
        raise section.error("host metrics have no gpu", "host_metrics", "put them into a section of their own")
    return TelemetryMap(
        name,
        section.path,
        reading,
        "long" if layout == "long" else "row",
        rules,
        tuple(m for m, _ in metrics),
        tuple(g for _, g in metrics),
    )


def _metrics(section: Section, table: str, *, gpu: bool) -> list[Rule]:
    metrics = section.section(table)
    if metrics is None:
        return []
    names = GPU_METRICS if gpu else HOST_METRICS
    metrics.only(names)
    spec = schema.common("gpu_utilization" if gpu else "host_utilization")
    rules = [parse_rule(metrics, name, spec.column(name)) for name in names if name in metrics.data]
    for rule in rules:
        if rule.column is None or rule.regex is not None or rule.default is not None:
            raise metrics.error("takes column and unit only", rule.target.name)
    return rules


def _gpus(section: Section | None, standard: Reading) -> GpuTable | None:
    if section is None:
        return None
    section.only((*_READING, "uuid", "node", "gpu"))
    targets = {
        "uuid": Column("uuid", "string", "", required=True),
        "node": Column("node_id", "string", "", required=True),
        "gpu": Column("gpu_index", "integer", "", required=True, minimum=0, maximum=10_000),
    }
    for key in targets:
        if key not in section.data:
            raise section.error(f"does not say which column is the {key}", hint=f'add {key} = "..."')
    rules = tuple(parse_rule(section, key, target) for key, target in targets.items())
    return GpuTable(section.path, _reading(section, standard, "absolute"), rules)
