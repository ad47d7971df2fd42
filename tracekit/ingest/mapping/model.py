"""Check the content of a mapping file as a whole before any log is opened (docs/mapping.md explains its keys).

A class whose name ends in Keys defines the keys that the file may contain; the class after it holds their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tracekit import resources, schema
from tracekit.decode import NonEmpty, Text, dotted
from tracekit.ingest.localtime import DOUBLED_HOUR
from tracekit.ingest.mapping.rules import (
    ColumnRule,
    Entry,
    Spot,
    checked_format,
    checked_regex,
    parse_rule,
    word_pairs,
    word_table,
)
from tracekit.ingest.mapping.values import zone_fault
from tracekit.schema import Column
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tracekit.manifest import TimeBase

TABLES = ("jobs", "nodes", "capacity", "job_usage", "node_events")
"""Common tables that a mapping fills one column at a time."""

GPU_METRICS = ("utilization_pct", "memory_used_gib", "power_w", "sm_active_pct", "tensor_active_pct")
HOST_METRICS = ("cpu_pct", "memory_used_gib", "memory_total_gib")

# These columns are derived rather than filled from a column of the log.
_DERIVED = ("status", "source_status", "attempt_count")
_SAMPLED = {
    "time": Column("time", "datetime", "", required=True),
    "node": Column("node_id", "string", "", required=True),
    "gpu": Column("gpu_index", "integer", "", required=True, minimum=0, maximum=10_000),
    "uuid": Column("uuid", "string", "", required=True),
    "metric": Column("metric", "string", "", required=True),
    "value": Column("value", "string", ""),
    "job": Column("job_id", "string", ""),
}
"""The column that each telemetry key fills."""
_LAYOUTS = {
    "long": ("time", "node", "gpu", "uuid", "metric", "value", "job"),
    "row": ("time", "node", "gpu", "uuid", "job"),
    "wide": ("time", "server"),
}
_REQUIRED = {
    "jobs": ("job_id",),
    "nodes": ("node_id",),
    "capacity": ("time", "gpu_count"),
    "job_usage": ("job_id",),
    "node_events": ("node_id", "start_time", "state"),
}


Texts = Text | Annotated[tuple[str, ...], NonEmpty()]
"""A single text means a list with one entry."""


@dataclass(frozen=True, kw_only=True)
class ReadingKeys:
    """Keys for the layout of files."""

    files: Texts | None = None
    type: Literal["csv", "jsonl", "parquet"] | None = None
    delimiter: Text | None = None
    header: bool | tuple[str, ...] | None = None
    comment: Text | None = None
    records: Text | None = None
    time_format: Text | None = None
    missing: Text | tuple[str, ...] | None = None
    doubled_hour: Text | None = None
    timezone: Text | None = None


@dataclass(frozen=True, kw_only=True)
class SourceKeys(ReadingKeys):
    """[source]: defaults for all files."""

    cluster: Text | None = None
    time_base: Literal["absolute", "relative"] = "absolute"


@dataclass(frozen=True)
class Reading:
    """The layout of the raw files of one table, from its own keys and those of [source]."""

    files: tuple[str, ...] = ("*",)
    """File name patterns such as jobs*.csv."""
    type: str | None = None
    """csv, jsonl or parquet; by default taken from the file name."""
    delimiter: str | None = None
    """Delimiter; by default a tab for .tsv files, otherwise a comma."""
    header: tuple[str, ...] = ()
    """Column names of files without a header line."""
    comment: str | None = None
    """Prefix of lines that are not read."""
    records: str | None = None
    """Path of the records in a JSON document: a dotted path, or '.' for the document itself."""
    time_format: str = "iso8601"
    missing: tuple[str, ...] = ()
    """Words for an unknown value, in addition to an empty cell."""
    doubled_hour: str = "bounded"
    timezone: str = "UTC"


@dataclass(frozen=True)
class Section:
    """A section of a mapping file: files with the same layout, and the columns that they fill."""

    key: str
    """Dotted key of the section."""
    reading: Reading
    rules: tuple[ColumnRule, ...]

    def rule(self, name: str) -> ColumnRule | None:
        """Return the rule for a column; None if the column is not filled."""
        return next((rule for rule in self.rules if rule.target.name == name), None)


@dataclass(frozen=True, kw_only=True)
class TableKeys(ReadingKeys):
    """Keys of a table whose columns are filled one by one."""

    columns: dict[str, Text | Entry]


@dataclass(frozen=True, kw_only=True)
class NodeKeys:
    """[jobs.nodes]: the column that names the nodes of a job."""

    column: Text
    separator: Text = ","
    pattern: Text | None = None
    expand: bool = False


@dataclass(frozen=True)
class NodeList:
    """How a column names the nodes of a job."""

    rule: ColumnRule
    separator: str
    pattern: str | None
    expand: bool = False
    """Whether ranges in brackets, such as gpu[01-03], are expanded."""


@dataclass(frozen=True, kw_only=True)
class JobKeys(TableKeys):
    """[jobs]."""

    status: dict[str, Text | tuple[str, ...]] | None = None
    """The keys column or columns, regex, when_missing, and the source's words for each status."""
    nodes: NodeKeys | None = None


@dataclass(frozen=True)
class StatusWords:
    """The common status for each status word of the source."""

    rule: ColumnRule
    words: dict[str, str]
    when_missing: str | None


@dataclass(frozen=True, kw_only=True)
class TableMap(Section):
    """The rules that fill one common table."""

    table: str
    status: StatusWords | None = None
    nodes: NodeList | None = None


@dataclass(frozen=True, kw_only=True)
class SampleKeys(ReadingKeys):
    """[telemetry.x]: GPU or host samples."""

    layout: Literal["long", "wide", "row"] | None = None
    time: Text | Entry | None = None
    node: Text | Entry | None = None
    gpu: Text | Entry | None = None
    uuid: Text | Entry | None = None
    metric: Text | Entry | None = None
    value: Text | Entry | None = None
    job: Text | Entry | None = None
    server: Text | None = None
    gpu_metrics: dict[str, Text | Entry] = field(default_factory=dict)
    host_metrics: dict[str, Text | Entry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TelemetryMap(Section):
    """The samples in one kind of file; its rules fill time, node_id, gpu_index or uuid, metric and value."""

    layout: Literal["long", "wide", "row"]
    metrics: dict[str, ColumnRule]
    """Rules by table and column, such as gpu_utilization.power_w; a rule's column is the source's metric name."""
    server: str | None = None
    """For wide files: pattern with the groups node and gpu that a column name must match."""


@dataclass(frozen=True, kw_only=True)
class GpuKeys(ReadingKeys):
    """[gpus]: the table of UUIDs."""

    uuid: Text | Entry
    node: Text | Entry
    gpu: Text | Entry


@dataclass(frozen=True, kw_only=True)
class LookupKeys(ReadingKeys):
    """[lookup.x]: the meaning of cells, given in the mapping itself or in a file of the source."""

    key: Text | None = None
    value: Text | None = None
    values: dict[str, str | int | float] | None = None


@dataclass(frozen=True, kw_only=True)
class Lookup(Section):
    """A table with the meaning of cells; for files, its rules fill the columns `key` and `value`."""

    name: str
    words: Mapping[str, str] | None = None
    """Content of the table, if it is in the mapping file."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole mapping file."""

    source: SourceKeys = SourceKeys()
    jobs: JobKeys | None = None
    nodes: TableKeys | None = None
    capacity: TableKeys | None = None
    job_usage: TableKeys | None = None
    node_events: TableKeys | None = None
    telemetry: dict[str, SampleKeys] = field(default_factory=dict)
    gpus: GpuKeys | None = None
    lookup: dict[str, LookupKeys] = field(default_factory=dict)


@dataclass(frozen=True)
class LogMap:
    """A whole mapping file."""

    file: Path
    base: TimeBase
    timezone: str
    cluster: str | None
    tables: tuple[TableMap, ...]
    telemetry: tuple[TelemetryMap, ...]
    gpus: Section | None
    """The table of UUIDs: uuid, node_id, gpu_index of each GPU."""
    lookups: tuple[Lookup, ...] = ()

    @property
    def sections(self) -> list[Section]:
        """Sections that read files."""
        gpus = [self.gpus] if self.gpus is not None and self.telemetry else []
        return [*self.tables, *self.telemetry, *gpus, *(one for one in self.lookups if one.words is None)]


def template() -> str:
    """Return a mapping file with every key explained, to start from."""
    return (resources.folder("schemas") / "sources" / "csv" / "template.toml").read_text(encoding="utf-8")


def load_mapping(file: Path | str) -> LogMap:
    """Read a mapping file.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has an unusable value; the error names the key.
    """
    text = TomlText(Path(file), "mapping", "see docs/mapping.md")
    document, top = text.decode(Document), Spot(text)
    source, base = document.source, document.source.time_base
    if base == "relative" and source.timezone is not None:
        raise top.below("source").error("relative times have no zone", "timezone", "remove it")
    standard = Reading(time_format="epoch_s") if base == "relative" else Reading()
    reading = _reading(top.below("source"), source, standard, base)
    lookups = tuple(_lookup(top.below("lookup", name), name, keys, reading) for name, keys in document.lookup.items())
    tables = tuple(
        _table(top.below(name), name, keys, reading, base, list(document.lookup))
        for name in TABLES
        if (keys := getattr(document, name)) is not None
    )
    telemetry = tuple(
        _telemetry(top.below("telemetry", name), keys, reading, base) for name, keys in document.telemetry.items()
    )
    if not tables and not telemetry:
        raise top.error("fills no table", hint=f"write [jobs.columns]; tables: {', '.join(TABLES)}, telemetry")
    gpus = None if document.gpus is None else _gpus(top.below("gpus"), document.gpus, reading)
    for name, sampled in zip(document.telemetry, telemetry, strict=True):
        if gpus is None and sampled.rule("uuid") is not None:
            what, hint = "names UUIDs and no table of GPUs", "add [gpus] with uuid, node and gpu"
            raise top.below("telemetry", name).error(what, hint=hint)
    return LogMap(text.path, base, reading.timezone, source.cluster, tables, telemetry, gpus, lookups)


def _reading(spot: Spot, keys: ReadingKeys, standard: Reading, base: TimeBase) -> Reading:
    zone, delimiter, header = keys.timezone, keys.delimiter, keys.header
    if zone is not None and (fault := zone_fault(zone)):
        raise spot.error(f"'{zone}' is not a time zone", "timezone", fault)
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\n\r'):
        raise spot.error("is not a single plain character", "delimiter", r'such as ",", ";", "|" or "\t"')
    if keys.records is not None and keys.type not in (None, "jsonl"):
        raise spot.error(f"finds records in JSON, not in {keys.type}", "records", "remove records or type")
    if header is False:
        raise spot.error("is not a list of column names", "header", 'without header line write ["a", "b", ...]')
    time_format = checked_format(spot, "time_format", keys.time_format, relative=base == "relative")
    given = {one.name: getattr(keys, one.name) for one in fields(Reading)} | {
        "files": _several(keys.files),
        "header": () if header is True else header,
        "time_format": time_format,
        "missing": _several(keys.missing),
        "doubled_hour": spot.choice("doubled_hour", keys.doubled_hour, DOUBLED_HOUR),
    }
    return replace(standard, **{name: value for name, value in given.items() if value is not None})


def _several(given: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    return (given,) if isinstance(given, str) else given


def _lookup(spot: Spot, name: str, keys: LookupKeys, standard: Reading) -> Lookup:
    if keys.values is not None:
        given = [key for key in ("files", "key", "value") if getattr(keys, key) is not None]
        if given:
            raise spot.error("has both values and the columns of a file", given[0], "keep either")
        words = {
            word: str(value).lower() if isinstance(value, bool) else str(value) for word, value in keys.values.items()
        }
        return Lookup(dotted(spot.place), standard, (), name=name, words=word_pairs(spot, words))
    if keys.files is None or keys.key is None or keys.value is None:
        raise spot.error(
            "does not give the meaning of cells",
            hint='write values = { "a" = "b" }, or files, key and value for two columns of a file',
        )
    rules = tuple(
        ColumnRule(Column(of, "string", ""), dotted((*spot.place, of)), spot.text.path, Entry(column=column))
        for of, column in (("key", keys.key), ("value", keys.value))
    )
    return Lookup(dotted(spot.place), _reading(spot, keys, standard, "absolute"), rules, name=name)


def _table(
    spot: Spot, table: str, keys: TableKeys, standard: Reading, base: TimeBase, lookups: Collection[str]
) -> TableMap:
    columns, given = spot.below("columns"), keys.columns
    known = {
        c.name: c
        for c in schema.common(table).columns
        if c.kind != "array" and (table != "jobs" or c.name not in _DERIVED)
    }
    if table == "jobs" and "status" in given:
        raise columns.error("is not mapped here", "status", "write [jobs.status] with column and lists of words")
    columns.only(given, known)
    for name in _REQUIRED[table]:
        if name not in given:
            raise columns.error(f"does not say what {name} is", hint=f'add {name} = "..."')
    relative = base == "relative"
    jobs = keys if isinstance(keys, JobKeys) else None
    rules = (
        parse_rule(columns.below(n), given[n], c, relative=relative, lookups=lookups)
        for n, c in known.items()
        if n in given
    )
    return TableMap(
        dotted(spot.place),
        _reading(spot, keys, standard, base),
        tuple(rules),
        table=table,
        status=None if jobs is None or jobs.status is None else _status(spot.below("status"), jobs.status),
        nodes=None if jobs is None or jobs.nodes is None else _nodes(spot.below("nodes"), jobs.nodes),
    )


def _status(spot: Spot, keys: Mapping[str, str | tuple[str, ...]]) -> StatusWords:
    words = schema.common("jobs").column("status").enum
    named = ("column", "regex", "when_missing")
    spot.only(keys, (*named, "columns", *words))
    column, regex, when_missing = (_single(spot, name, keys.get(name)) for name in named)
    columns = _several(keys.get("columns")) or ()
    if (column is None) == (not columns):
        raise spot.error(
            "needs either column or columns" if columns else "does not say which column holds the status",
            hint='add column = "..."' if not columns else "keep either",
        )
    checked_regex(spot, "regex", regex)
    entry = Entry(column=column, columns=columns or None, separator=",", regex=regex)
    target = Column("source_status", "string", "")
    rule = ColumnRule(target, dotted(spot.place), spot.text.path, entry, keep_empty=True)
    listed = {word: keys[word] for word in words if word in keys}
    return StatusWords(rule, word_table(spot, listed), spot.choice("when_missing", when_missing, words))


def _single(spot: Spot, name: str, given: str | tuple[str, ...] | None) -> str | None:
    if isinstance(given, tuple):
        raise spot.error("is not a text", name, 'write it in quotes: "..."')
    return given


def _nodes(spot: Spot, keys: NodeKeys) -> NodeList:
    rule = ColumnRule(Column("nodes", "string", ""), dotted(spot.place), spot.text.path, Entry(column=keys.column))
    pattern = checked_regex(spot, "pattern", keys.pattern, ("node", "gpu_index", "gpu_count"))
    return NodeList(rule, keys.separator, pattern, keys.expand)


def _telemetry(spot: Spot, keys: SampleKeys, standard: Reading, base: TimeBase) -> TelemetryMap:
    if keys.layout is None:
        raise spot.error(
            "has no layout",
            hint='write layout = "long" (one metric per record), "row" (all metrics of a server in one record) or '
            '"wide" (one column per server)',
        )
    given = {key: value for key in _SAMPLED if (value := getattr(keys, key)) is not None}
    spot.only([*given, *(["server"] if keys.server else [])], _LAYOUTS[keys.layout])
    relative = base == "relative"
    reading = _reading(spot, keys, standard, base)
    metrics = _metrics(spot.below("gpu_metrics"), keys.gpu_metrics, "gpu_utilization")
    metrics |= _metrics(spot.below("host_metrics"), keys.host_metrics, "host_utilization")
    if not metrics:
        raise spot.error("fills no metric", hint="write gpu_metrics = {...} or host_metrics = {...}")
    rules = tuple(
        parse_rule(spot.below(key), given[key], target, relative=relative)
        for key, target in _SAMPLED.items()
        if key in given
    )
    of_gpu = [name.startswith("gpu_utilization.") for name in metrics]
    server = None
    if keys.layout == "wide":
        server = _wide_server(spot, keys, rules, of_gpu)
    else:
        _check_sample_columns(spot, keys, given, of_gpu)
    return TelemetryMap(dotted(spot.place), reading, rules, layout=keys.layout, metrics=metrics, server=server)


def _wide_server(spot: Spot, keys: SampleKeys, rules: tuple[ColumnRule, ...], of_gpu: list[bool]) -> str | None:
    """Return the pattern for the columns of a wide file; `of_gpu` says for each metric whether it is a GPU metric."""
    if any(rule.entry.column is None for rule in rules):
        raise spot.error("a wide file has exactly one time column", "time", 'write time = "..."')
    if len(of_gpu) != 1:
        raise spot.error("a wide file contains exactly one metric", hint="write one section per file")
    server = checked_regex(spot, "server", keys.server, ("node", "gpu"))
    if of_gpu[0] and (server is None or "(?<gpu>" not in server.replace("(?P<", "(?<")):
        raise spot.error("does not name the GPUs", "server", "write a pattern with (?<node>...) (?<gpu>...)")
    return server


def _check_sample_columns(spot: Spot, keys: SampleKeys, given: Collection[str], of_gpu: list[bool]) -> None:
    """Check that a long or row file names the columns that its metrics need, and no others."""
    needed = ["time", *(["metric", "value"] if keys.layout == "long" else []), *([] if keys.uuid else ["node"])]
    for key in needed:
        if key not in given:
            raise spot.error(f"does not say which column is the {key}", hint=f'add {key} = "..."')
    if keys.uuid and (keys.gpu or keys.node):
        raise spot.error("a UUID replaces node and gpu", "uuid", "keep either")
    if any(of_gpu) and not (keys.gpu or keys.uuid):
        raise spot.error("does not say which column is the gpu", hint='add gpu = "..." or uuid = "..."')
    if not all(of_gpu) and (keys.gpu or keys.uuid):
        raise spot.error("host metrics have no GPU", "host_metrics", "put them in a section of their own")
    if not all(of_gpu) and keys.job:
        raise spot.error("host samples belong to no job", "job", "remove the key")


def _metrics(spot: Spot, given: Mapping[str, str | Entry], table: str) -> dict[str, ColumnRule]:
    """Return the rules for metrics, by table and column."""
    names = GPU_METRICS if table == "gpu_utilization" else HOST_METRICS
    spot.only(given, names)
    spec = schema.common(table)
    rules = [parse_rule(spot.below(name), given[name], spec.column(name)) for name in names if name in given]
    for rule in rules:
        if rule.entry.column is None or rule.entry.regex is not None or rule.entry.default is not None:
            raise spot.error("allows only column and unit", rule.target.name)
    return {f"{table}.{rule.target.name}": rule for rule in rules}


def _gpus(spot: Spot, keys: GpuKeys, standard: Reading) -> Section:
    rules = tuple(parse_rule(spot.below(key), getattr(keys, key), _SAMPLED[key]) for key in ("uuid", "node", "gpu"))
    return Section(dotted(spot.place), _reading(spot, keys, standard, "absolute"), rules)
