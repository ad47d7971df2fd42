"""Define the keys of a mapping file (see docs/mapping.md), and check a file before any log is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from tracekit import resources, schema
from tracekit.decode import NonEmpty, Text, dotted
from tracekit.ingest.mapping.rules import (
    ColumnRule,
    Entry,
    Spot,
    check_format,
    check_patterns,
    check_regex,
    parse_rule,
    several,
    word_table,
)
from tracekit.ingest.mapping.values import TEXT_UNITS, zone_fault
from tracekit.schema import Column
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

TABLES = ("jobs", "nodes", "capacity", "job_usage", "node_events")
"""Common tables that a mapping fills one column at a time."""

_METRICS = {
    "gpu_utilization": ("utilization_pct", "memory_used_gib", "power_w", "sm_active_pct", "tensor_active_pct"),
    "host_utilization": ("cpu_pct", "memory_used_gib", "memory_total_gib"),
}

# These columns are derived rather than filled from a log column.
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

Given = Text | Entry | None
"""Where a column's values come from: the name of a log column, or a table with more keys."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The layout of files. A section without one of these keys uses the key of [source]."""

    files: Text | Annotated[tuple[str, ...], NonEmpty()] = ("*",)
    """File name patterns such as jobs*.csv."""
    type: Literal["csv", "jsonl", "parquet"] | None = None
    """By default, taken from the file name."""
    delimiter: Text | None = None
    """By default, a tab for .tsv files and a comma for others."""
    header: bool | tuple[str, ...] = True
    """Column names of files without a header line."""
    comment: Text | None = None
    """Prefix of lines to skip."""
    records: Text | None = None
    """Dotted path of the records in a JSON document, or '.' for the document itself."""
    time_format: Text = "iso8601"
    missing: Text | tuple[str, ...] = ()
    """Words for an unknown value, in addition to an empty cell."""
    doubled_hour: Literal["bounded", "null", "first", "second"] = "bounded"
    timezone: Text = "UTC"


@dataclass(frozen=True, kw_only=True)
class Source(Reading):
    """[source]: defaults for all files."""

    cluster: Text | None = None
    time_base: Literal["absolute", "relative"] = "absolute"


@dataclass(frozen=True, kw_only=True)
class Table(Reading):
    """A table whose columns are filled one by one."""

    columns: dict[str, Text | Entry]


@dataclass(frozen=True, kw_only=True)
class NodeList:
    """[jobs.nodes]: the column that names a job's nodes."""

    column: Text
    separator: Text = ","
    pattern: Text | None = None
    expand: bool = False
    """Whether ranges in brackets, such as gpu[01-03], are expanded."""


@dataclass(frozen=True, kw_only=True)
class Jobs(Table):
    """[jobs]."""

    status: dict[str, Text | tuple[str, ...]] | None = None
    """The keys `column` or `columns`, `regex` and `when_missing`, and the source's words for each status."""
    nodes: NodeList | None = None


@dataclass(frozen=True, kw_only=True)
class Telemetry(Reading):
    """[telemetry.x]: GPU or host samples."""

    layout: Literal["long", "wide", "row"] | None = None
    time: Given = None
    node: Given = None
    gpu: Given = None
    uuid: Given = None
    metric: Given = None
    value: Given = None
    job: Given = None
    server: Text | None = None
    """For wide files, a pattern with the groups node and gpu that a column name must match."""
    gpu_metrics: dict[str, Text | Entry] = field(default_factory=dict)
    host_metrics: dict[str, Text | Entry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Gpus(Reading):
    """[gpus]: the UUID table."""

    uuid: Text | Entry
    node: Text | Entry
    gpu: Text | Entry


@dataclass(frozen=True, kw_only=True)
class Lookup(Reading):
    """[lookup.x]: the meanings of cells, given in the mapping itself or in two columns of a file."""

    key: Text | None = None
    value: Text | None = None
    values: dict[str, str | int | float] | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole mapping file."""

    source: Source = Source()
    jobs: Jobs | None = None
    nodes: Table | None = None
    capacity: Table | None = None
    job_usage: Table | None = None
    node_events: Table | None = None
    telemetry: dict[str, Telemetry] = field(default_factory=dict)
    gpus: Gpus | None = None
    lookup: dict[str, Lookup] = field(default_factory=dict)


K_co = TypeVar("K_co", bound=Reading, covariant=True)


@dataclass(frozen=True)
class Section(Generic[K_co]):
    """A section of a mapping file, with the rules for the columns that its files fill."""

    key: str
    """Dotted key of the section."""
    keys: K_co
    """The section as written, completed with the layout keys of [source]."""
    rules: tuple[ColumnRule, ...]
    """Telemetry fills time, node_id, gpu_index or uuid, metric and value. A lookup file fills key and value."""
    metrics: Mapping[str, ColumnRule] = field(default_factory=dict)
    """Telemetry only: rules for the log's columns or metrics, by table and column, such as gpu_utilization.power_w."""
    status: ColumnRule | None = None
    """Jobs only: the status column. Its words give the common status, and its default is for unknown cells."""
    nodes: ColumnRule | None = None
    """Jobs only: the column that names the nodes."""

    def rule(self, name: str) -> ColumnRule | None:
        """Return the rule for a column, or None if the column is not filled."""
        return next((rule for rule in self.rules if rule.target.name == name), None)


@dataclass(frozen=True)
class LogMap:
    """A whole, checked mapping file."""

    file: Path
    source: Source
    tables: tuple[Section[Table], ...]
    telemetry: tuple[Section[Telemetry], ...]
    gpus: Section[Gpus] | None
    """The UUID table, with uuid, node_id and gpu_index of each GPU."""
    lookups: Mapping[str, Section[Lookup]]

    @property
    def sections(self) -> list[Section[Reading]]:
        """Sections that read files."""
        gpus = [self.gpus] if self.gpus is not None and self.telemetry else []
        return [*self.tables, *self.telemetry, *gpus, *(one for one in self.lookups.values() if one.rules)]


def template() -> str:
    """Return a mapping file that explains every key, to start from."""
    return (resources.folder("schemas") / "sources" / "csv" / "template.toml").read_text(encoding="utf-8")


def load_mapping(file: Path | str) -> LogMap:
    """Read a mapping file.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has an unusable value. The error names the key.
    """
    text = TomlText(Path(file), "mapping", "see docs/mapping.md")
    document, top = text.decode(Document, _inherited(text.data)), Spot(text)
    relative = document.source.time_base == "relative"
    if relative and "timezone" in text.data["source"]:
        raise top.below("source").error("relative times have no zone", "timezone", "remove it")
    _check_reading(top.below("source"), document.source, relative=relative)
    lookups = {name: _lookup(top.below("lookup", name), keys) for name, keys in document.lookup.items()}
    tables = tuple(
        _table(top.below(name), keys, lookups, relative=relative)
        for name in TABLES
        if (keys := getattr(document, name)) is not None
    )
    telemetry = tuple(
        _telemetry(top.below("telemetry", name), keys, relative=relative) for name, keys in document.telemetry.items()
    )
    if not tables and not telemetry:
        raise top.error("fills no table", hint=f"write [jobs.columns]; tables: {', '.join(TABLES)}, telemetry")
    gpus = None if document.gpus is None else _gpus(top.below("gpus"), document.gpus)
    for name, keys in document.telemetry.items():
        if gpus is None and keys.uuid is not None:
            what, hint = "names UUIDs but no table of GPUs", "add [gpus] with uuid, node and gpu"
            raise top.below("telemetry", name).error(what, hint=hint)
    return LogMap(text.path, document.source, tables, telemetry, gpus, lookups)


def _inherited(data: dict[str, Any]) -> dict[str, Any]:
    """Return a file's content, with every section completed with the layout keys of [source]."""
    source = data.get("source", {})
    if not isinstance(source, dict):
        return data
    common = {one.name: source[one.name] for one in fields(Reading) if one.name in source}
    if source.get("time_base") == "relative":
        common = {"time_format": "epoch_s"} | common

    def completed(section: Any) -> Any:
        if not isinstance(section, dict):
            return section
        # A file that is not JSON has no path to its records.
        is_json = section.get("type", "jsonl") == "jsonl"
        return {key: value for key, value in common.items() if is_json or key != "records"} | section

    found = {"source": completed(source)}  # first: an error must name the key of [source]
    for name, section in data.items():
        if name in ("telemetry", "lookup") and isinstance(section, dict):
            found[name] = {key: completed(one) for key, one in section.items()}
        elif name != "source":
            found[name] = completed(section)
    return found


def _check_reading(spot: Spot, keys: Reading, *, relative: bool = False) -> None:
    zone, delimiter = keys.timezone, keys.delimiter
    if fault := zone_fault(zone):
        raise spot.error(f"'{zone}' is not a time zone", "timezone", fault)
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\n\r'):
        raise spot.error("is not a single plain character", "delimiter", r'such as ",", ";", "|" or "\t"')
    if keys.records is not None and keys.type not in (None, "jsonl"):
        hint = "remove records, or remove type from this section or [source]"
        raise spot.error(f"finds records in JSON, not in {keys.type}", "records", hint)
    if keys.header is False:
        raise spot.error("is not a list of column names", "header", 'if there is no header line, write ["a", "b", ...]')
    check_format(spot, "time_format", keys.time_format, relative=relative)


def _text_rule(spot: Spot, name: str, entry: Entry, **more: Any) -> ColumnRule:
    return ColumnRule(Column(name, "string", ""), dotted(spot.place), spot.text.path, entry, **more)


def _lookup(spot: Spot, keys: Lookup) -> Section[Lookup]:
    if keys.values is not None:
        given = [key for key in ("files", "key", "value") if key in spot.data]
        if given:
            raise spot.error("has both values and the columns of a file", given[0], "keep either")
        check_patterns(spot, keys.values)
        return Section(dotted(spot.place), keys, ())
    if "files" not in spot.data or keys.key is None or keys.value is None:
        raise spot.error(
            "does not give the meaning of cells",
            hint='write values = { "a" = "b" }, or files, key and value for two columns of a file',
        )
    _check_reading(spot, keys)
    columns = {"key": keys.key, "value": keys.value}
    rules = (_text_rule(spot.below(of), of, Entry(column=column)) for of, column in columns.items())
    return Section(dotted(spot.place), keys, tuple(rules))


def _table(spot: Spot, keys: Table, lookups: Collection[str], *, relative: bool) -> Section[Table]:
    (table,) = spot.place
    columns, given = spot.below("columns"), keys.columns
    known = {
        c.name: c
        for c in schema.common(str(table)).columns
        if c.kind != "array" and (table != "jobs" or c.name not in _DERIVED)
    }
    if table == "jobs" and "status" in given:
        raise columns.error("cannot be mapped here", "status", "write [jobs.status] with column and lists of words")
    columns.only(given, known)
    for name in _REQUIRED[str(table)]:
        if name not in given:
            raise columns.error(f"does not define {name}", hint=f'add {name} = "..."')
    _check_reading(spot, keys, relative=relative)
    rules = tuple(
        parse_rule(columns.below(n), given[n], c, relative=relative, lookups=lookups)
        for n, c in known.items()
        if n in given
    )
    status = nodes = None
    if isinstance(keys, Jobs) and keys.status is not None:
        status = _status(spot.below("status"), keys.status)
    if isinstance(keys, Jobs) and keys.nodes is not None:
        below = spot.below("nodes")
        nodes = _text_rule(below, "nodes", Entry(column=keys.nodes.column))
        check_regex(below, "pattern", keys.nodes.pattern, ("node", "gpu_index", "gpu_count"))
    return Section(str(table), keys, rules, status=status, nodes=nodes)


def _status(spot: Spot, keys: Mapping[str, str | tuple[str, ...]]) -> ColumnRule:
    words = schema.common("jobs").column("status").enum
    spot.only(keys, ("column", "regex", "when_missing", "columns", *words))
    single: dict[str, str | None] = {}
    for name in ("column", "regex", "when_missing"):
        value = keys.get(name)
        if isinstance(value, tuple):
            raise spot.error("is not a string", name, 'write it in quotes: "..."')
        single[name] = value
    columns = several(keys.get("columns", ()))
    if (single["column"] is None) == (not columns):
        raise spot.error(
            "needs either column or columns" if columns else "does not name the status column",
            hint="keep either" if columns else 'add column = "..."',
        )
    check_regex(spot, "regex", single["regex"])
    found = word_table(spot, {word: keys[word] for word in words if word in keys})
    spot.choice("when_missing", single["when_missing"], words)
    entry = Entry(
        column=single["column"],
        columns=columns or None,
        separator=",",
        regex=single["regex"],
        default=single["when_missing"],
    )
    return _text_rule(spot, "source_status", entry, keep_empty=True, words=found)


def _telemetry(spot: Spot, keys: Telemetry, *, relative: bool) -> Section[Telemetry]:
    if keys.layout is None:
        raise spot.error(
            "has no layout",
            hint='write layout = "long" (one metric per record), "row" (all metrics of a server in one record) or '
            '"wide" (one column per server)',
        )
    given = {key: value for key in _SAMPLED if (value := getattr(keys, key)) is not None}
    spot.only([*given, *(["server"] if keys.server else [])], _LAYOUTS[keys.layout])
    _check_reading(spot, keys, relative=relative)
    metrics = {
        f"{table}.{rule.target.name}": rule
        for name, table in (("gpu_metrics", "gpu_utilization"), ("host_metrics", "host_utilization"))
        for rule in _metrics(spot.below(name), getattr(keys, name), table)
    }
    if not metrics:
        raise spot.error("fills no metric", hint="write gpu_metrics = {...} or host_metrics = {...}")
    rules = tuple(parse_rule(spot.below(key), given[key], _SAMPLED[key], relative=relative) for key in given)
    texts = [name for name, rule in metrics.items() if rule.entry.unit in TEXT_UNITS.values()]
    if texts and keys.layout == "long":
        name = texts[0].partition(".")[2]
        raise spot.error(f"in the long layout, {name} must be a number", hint="give its unit, or use the row layout")
    if keys.layout == "wide":
        _check_wide(spot, keys, rules, len(metrics))
    else:
        _check_columns(spot, keys, given)
    return Section(dotted(spot.place), keys, rules, metrics)


def _check_wide(spot: Spot, keys: Telemetry, rules: Iterable[ColumnRule], metrics: int) -> None:
    """Check that a wide file has one time column and one metric, and that its pattern names the servers."""
    if any(rule.entry.column is None for rule in rules):
        raise spot.error("a wide file has exactly one time column", "time", 'write time = "..."')
    if metrics != 1:
        raise spot.error("a wide file contains exactly one metric", hint="write one section per file")
    check_regex(spot, "server", keys.server, ("node", "gpu"))
    if keys.gpu_metrics and (keys.server is None or "(?<gpu>" not in keys.server.replace("(?P<", "(?<")):
        raise spot.error("does not name the GPUs", "server", "write a pattern with (?<node>...) (?<gpu>...)")


def _check_columns(spot: Spot, keys: Telemetry, given: Collection[str]) -> None:
    """Check that a long or row file names exactly the columns that its metrics need."""
    needed = ["time", *(["metric", "value"] if keys.layout == "long" else []), *([] if keys.uuid else ["node"])]
    for key in needed:
        if key not in given:
            raise spot.error(f"does not name the {key} column", hint=f'add {key} = "..."')
    if keys.uuid and (keys.gpu or keys.node):
        raise spot.error("a UUID replaces node and gpu", "uuid", "keep either")
    if keys.gpu_metrics and not (keys.gpu or keys.uuid):
        raise spot.error("does not name the gpu column", hint='add gpu = "..." or uuid = "..."')
    if keys.host_metrics and (keys.gpu or keys.uuid):
        raise spot.error("host metrics have no GPU", "host_metrics", "put them in a separate section")
    if keys.host_metrics and keys.job:
        raise spot.error("host samples belong to no job", "job", "remove the key")


def _metrics(spot: Spot, given: Mapping[str, str | Entry], table: str) -> list[ColumnRule]:
    spot.only(given, _METRICS[table])
    spec = schema.common(table)
    rules = [parse_rule(spot.below(name), given[name], spec.column(name)) for name in _METRICS[table] if name in given]
    for rule in rules:
        if rule.entry.column is None or rule.entry.regex is not None or rule.entry.default is not None:
            raise spot.error("allows only column and unit", rule.target.name)
    return rules


def _gpus(spot: Spot, keys: Gpus) -> Section[Gpus]:
    rules = tuple(parse_rule(spot.below(key), getattr(keys, key), _SAMPLED[key]) for key in ("uuid", "node", "gpu"))
    _check_reading(spot, keys)
    return Section(dotted(spot.place), keys, rules)
