"""The keys of a mapping file (docs/mapping.md explains them), the layout of files, and the errors that name keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from tracekit.decode import NonEmpty, Text
from tracekit.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.decode import Place
    from tracekit.errors import UsageError
    from tracekit.toml_text import TomlText

Texts = Text | Annotated[tuple[str, ...], NonEmpty()]
"""A single text means a list of one."""


@dataclass(frozen=True, kw_only=True)
class ReadingKeys:
    """The layout of files."""

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


@dataclass(frozen=True)
class Reading:
    """The layout of the raw files of one table, as its keys and those of [source] give it."""

    files: tuple[str, ...] = ("*",)
    """Name patterns such as jobs*.csv."""
    type: str | None = None
    """csv, jsonl or parquet; from the file's name by default."""
    delimiter: str | None = None
    """By default a tab for .tsv files, else a comma."""
    header: tuple[str, ...] = ()
    """Column names of files without header line."""
    comment: str | None = None
    """What a line begins with that is not read."""
    records: str | None = None
    """Where the records stand in a JSON document: a dotted path, or '.' for the document itself."""
    time_format: str = "iso8601"
    missing: tuple[str, ...] = ()
    """Spellings of an unknown value, besides nothing at all."""
    doubled_hour: str = "bounded"
    timezone: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class SourceKeys(ReadingKeys):
    """[source]: the defaults of all files."""

    cluster: Text | None = None
    time_base: Literal["absolute", "relative"] = "absolute"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where the values of a column come from."""

    column: Text | None = None
    columns: Annotated[tuple[Text, ...], NonEmpty()] | None = None
    expression: Text | None = None
    file: Text | None = None
    line: bool | None = None
    value: object = None
    default: object = None
    format: Text | None = None
    lookup: Text | None = None
    missing: Text | tuple[str, ...] | None = None
    regex: Text | None = None
    separator: str | None = None
    unit: Text | None = None
    words: dict[str, Text | tuple[str, ...]] | None = None


@dataclass(frozen=True, kw_only=True)
class TableKeys(ReadingKeys):
    """A table whose columns are filled one by one."""

    columns: dict[str, Text | Entry]


@dataclass(frozen=True, kw_only=True)
class NodeKeys:
    """[jobs.nodes]: the column that names the nodes of a job."""

    column: Text
    separator: Text = ","
    pattern: Text | None = None
    expand: bool = False


@dataclass(frozen=True, kw_only=True)
class JobKeys(TableKeys):
    """[jobs]."""

    status: dict[str, Text | tuple[str, ...]] | None = None
    """column or columns, regex, when_missing, and the source's words by status."""
    nodes: NodeKeys | None = None


@dataclass(frozen=True, kw_only=True)
class SampleKeys(ReadingKeys):
    """[telemetry.x]: samples of GPUs or hosts."""

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
class GpuKeys(ReadingKeys):
    """[gpus]: the table of UUIDs."""

    uuid: Text | Entry
    node: Text | Entry
    gpu: Text | Entry


@dataclass(frozen=True, kw_only=True)
class LookupKeys(ReadingKeys):
    """[lookup.x]: what a cell stands for, in the mapping itself or in a file of the source."""

    key: Text | None = None
    value: Text | None = None
    values: dict[str, str | int | float] | None = None


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


class Spot(NamedTuple):
    """A place in a mapping file."""

    text: TomlText
    place: Place = ()

    def below(self, *names: str) -> Spot:
        """Return a place inside this one."""
        return Spot(self.text, (*self.place, *names))

    def error(self, what: str, name: str | None = None, hint: str | None = None) -> UsageError:
        """Return the error to raise for a key here, or for the place itself."""
        return self.text.error(self.place if name is None else (*self.place, name), what, hint)

    def only(self, given: Iterable[str], allowed: Iterable[str]) -> None:
        """Refuse keys under other names.

        Raises
        ------
        UsageError
            There is one.
        """
        known = list(allowed)
        for name in given:
            if name not in known:
                raise self.error("no such key", name, nearest(name[:80], known))

    def choice(self, name: str, value: str | None, choices: Iterable[str]) -> str | None:
        """Return the value of a key, None when it is absent.

        Raises
        ------
        UsageError
            It is none of the choices.
        """
        known = list(choices)
        if value is not None and value not in known:
            raise self.error(f"'{value}' is not an allowed value", name, nearest(value[:80], known))
        return value
