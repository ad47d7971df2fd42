"""Read the files named in a mapping, alone or next to a log in a known format, and fill their tables.

Next to a log, a mapping adds tables that the format does not fill. Only node_events, telemetry, and machines that a
format derives from jobs may have rows from both: events and samples are combined, and for a machine, the mapped columns
win.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import SourceError, UsageError
from tracekit.ingest.mapping.convert import usable_rows
from tracekit.ingest.mapping.model import load_mapping
from tracekit.ingest.mapping.rules import LookedUp, several
from tracekit.ingest.mapping.tables import read_mapped_table
from tracekit.ingest.mapping.telemetry import read_telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import Format, TimeFrame
    from tracekit.ingest.mapping.model import LogMap, Lookup, Section
    from tracekit.ingest.sink import Sink

_MOST_KEYS = 1_000_000
"""Maximum number of keys in a lookup table, which is kept in memory."""
_SIDE_BY_SIDE = ("node_events", "gpu_utilization", "host_utilization")
_TELEMETRY = ("gpu_utilization", "host_utilization")


def files_by_section(log_map: LogMap, files: list[SourceFile], sink: Sink | None = None) -> dict[str, list[SourceFile]]:
    """Return the files of each section of a mapping, by the section's key. A note lists the other files.

    A lookup table's file may also belong to another section that names it.

    Raises
    ------
    SourceError
        A section has no files.
    UsageError
        A file belongs to two sections.
    """
    owner: dict[str, str] = {}
    chosen: dict[str, list[SourceFile]] = {}
    lookups = {section.key for section in log_map.lookups.values()}
    asides = {
        file.path
        for section in log_map.sections
        if section.key in lookups
        for file in files
        if _named(file, several(section.keys.files))
    }
    for section in log_map.sections:
        key, patterns = section.key, several(section.keys.files)
        where = f"{log_map.file}, key {key}.files"
        every = patterns == ("*",)
        chosen[key] = [
            f
            for f in files
            if not f.name.lower().endswith(".toml") and _named(f, patterns) and not (every and f.path in asides)
        ]
        if not chosen[key]:
            shown = ", ".join(f.path for f in files[:6])
            raise SourceError(
                f"no file in the source matches {', '.join(patterns)}", where=where, hint=f"the source has: {shown}"
            )
        if key in lookups:
            continue
        for file in chosen[key]:
            if owner.setdefault(file.path, key) != key:
                raise UsageError(
                    f"{file.path} also belongs to {owner[file.path]}", where=where, hint="name each section's own files"
                )
    unread = [f.path for f in files if f.path not in owner and f.path not in asides]
    if unread and sink is not None:
        shown = ", ".join(unread[:6]) + (f" and {len(unread) - 6} more" if len(unread) > 6 else "")
        sink.note(f"ignored files that the mapping does not name: {shown}")
    return chosen


def _named(file: SourceFile, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in (file.name, file.path))


def samples_of(log_map: LogMap, files: Mapping[str, list[SourceFile]]) -> list[SourceFile]:
    """Return the sample files among `files`, whose keys are the sections' dotted keys."""
    return [file for section in log_map.telemetry for file in files[section.key]]


def read_mapped(log_map: LogMap, files: Mapping[str, list[SourceFile]], sink: Sink) -> None:
    """Read the files of all sections into the sink. The keys of `files` are the sections' dotted keys.

    Raises
    ------
    UsageError
        The mapping names a column that is missing from a file.
    SourceError
        A file cannot be read, or a lookup table has too many keys.
    """
    found = {name: _words(name, one, files.get(one.key, []), sink) for name, one in log_map.lookups.items()}
    for table in log_map.tables:
        rules = (replace(rule, tables={name: found[name] for name in rule.lookups}) for rule in table.rules)
        read_mapped_table(replace(table, rules=tuple(rules)), files[table.key], log_map, sink)
    if log_map.telemetry:
        read_telemetry(log_map, files, sink)


def _words(name: str, lookup: Section[Lookup], files: list[SourceFile], sink: Sink) -> LookedUp:
    if lookup.keys.values is not None:
        return LookedUp({word: str(value) for word, value in lookup.keys.values.items()}, exact=False)
    words: dict[str, str] = {}
    several: dict[str, None] = {}
    for file in files:
        for frame in usable_rows(lookup, file, sink):
            for word, value in frame.drop_nulls().iter_rows():
                if words.setdefault(word, value) != value:
                    several[word] = None
            if len(words) > _MOST_KEYS:
                raise SourceError(
                    f"has more than {_MOST_KEYS:,} keys for the lookup table {name}",
                    where=file.path,
                    hint="keep the rows that the log needs",
                )
    sink.check(
        f"several_values_in_lookup_{name}"[:80],
        len(several),
        len(words),
        f"keys of the lookup table {name} with several values, whose value is unknown",
        list(several),
    )
    return LookedUp({word: value for word, value in words.items() if word not in several}, exact=True)


class MapAddition:
    """The files of a source that a mapping reads in addition to a format.

    Parameters
    ----------
    map_file : str
        The mapping file.
    files : list of SourceFile
        All files of the source.

    Attributes
    ----------
    file : str
        The mapping file.
    rest : list of SourceFile
        The other files, which the format reads.

    Raises
    ------
    UsageError
        The mapping file is invalid, or one of its sections names no files.
    SourceError
        The files of a section are missing.
    """

    def __init__(self, map_file: str, files: list[SourceFile]) -> None:
        self.file = map_file
        self._map: LogMap = load_mapping(map_file)
        for section in self._map.sections:
            if several(section.keys.files) == ("*",):
                raise UsageError(
                    "does not name the files to read",
                    where=f"{self._map.file}, key {section.key}",
                    hint='with --format, each table names its own files, as in files = "nodes.csv"',
                )
        self._files = files_by_section(self._map, files)
        named = {file.path for found in self._files.values() for file in found}
        self.rest = [file for file in files if file.path not in named]

    @property
    def one_by_one(self) -> list[SourceFile]:
        """The sample files, which are read one by one."""
        return samples_of(self._map, self._files)

    def read(self, form: Format, frame: TimeFrame, sink: Sink) -> None:
        """Read the files named in the mapping into the log's tables.

        Raises
        ------
        UsageError
            The log already fills one of the tables, or its time base differs.
        """
        if self._map.source.time_base != frame.base:
            raise UsageError(
                f"has {self._map.source.time_base} times, but the log in the format {form.name} has {frame.base} times",
                where=str(self._map.file),
                hint="set time_base in [source]",
            )
        sink.flush()
        sink.writer.drain()
        tables = {table.key for table in self._map.tables} | (set(_TELEMETRY) if self._map.telemetry else set())
        both = _SIDE_BY_SIDE + (("nodes",) if form.nodes_from_jobs else ())
        own: dict[str, Path] = {}
        for table in filter(sink.has, sorted(tables)):
            if table not in both:
                raise UsageError(
                    f"the log in the format {form.name} already fills the table {table}",
                    where=f"{self._map.file}, key {table}",
                    hint="remove the section",
                )
            own[table] = sink.path(table).rename(sink.writer.scratch / f"own-{table}.parquet")
        read_mapped(self._map, self._files, sink)
        sink.flush()
        sink.writer.drain()
        for table, path in own.items():
            _unite(table, path, sink)
        added = ", ".join(filter(sink.has, sorted(tables)))
        sink.note(f"{self._map.file.name} added to the log: {added or 'nothing'}")


def _unite(table: str, own: Path, sink: Sink) -> None:
    """Write the rows from the log and the mapping into one table."""
    if not sink.has(table):
        own.rename(sink.path(table))
        return
    left, right = (f"read_parquet({sql_text(file)})" for file in (own, sink.path(table)))
    if table == "nodes":
        columns = ", ".join(
            f'coalesce(m."{c.name}", o."{c.name}") AS "{c.name}"' for c in schema.common("nodes").columns
        )
        query = f"SELECT {columns} FROM {left} o FULL JOIN {right} m USING (node_id) ORDER BY node_id"
    else:
        query = f"SELECT * FROM {left} UNION ALL BY NAME SELECT * FROM {right}"
    with sink.connect() as con:
        if table == "nodes":
            alone, all_of = con.execute(
                f"SELECT count(*) FILTER (WHERE m.node_id IS NULL), count(*) FROM {left} o "
                f"LEFT JOIN {right} m USING (node_id)"
            ).fetchall()[0]
            sink.check(
                "nodes_not_listed",
                int(alone),
                int(all_of),
                "machines with jobs that are missing from the mapped list; their GPU count is the largest number "
                "allocated at one time",
            )
        sink.rewrite(table, con, query)
