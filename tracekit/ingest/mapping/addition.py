"""What a mapping file adds to a log of a known format: tables that the format does not fill.

Only rows of node_events, of telemetry and of the machines that a format takes from its jobs may come from both: events
and samples stand side by side, and of a machine the mapped columns count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import UsageError
from tracekit.ingest.mapping.lookups import with_lookups
from tracekit.ingest.mapping.model import load_mapping
from tracekit.ingest.mapping.sections import files_by_section
from tracekit.ingest.mapping.tables import read_mapped_table
from tracekit.ingest.mapping.telemetry import read_telemetry, telemetry_files

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import Format, TimeFrame
    from tracekit.ingest.mapping.model import LogMap
    from tracekit.ingest.sink import Sink

_SIDE_BY_SIDE = ("node_events", "gpu_utilization", "host_utilization")
_TELEMETRY = ("gpu_utilization", "host_utilization")


class MapAddition:
    """The part of a source that a mapping file reads beside a format.

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
        The files that the mapping does not name, for the format.

    Raises
    ------
    UsageError
        The mapping file is wrong, or a section of it names no files of its own.
    SourceError
        A section's files are not there.
    """

    def __init__(self, map_file: str, files: list[SourceFile]) -> None:
        self.file = map_file
        self._map: LogMap = load_mapping(map_file)
        for key, reading in self._map.readings.items():
            if reading.files == ("*",):
                raise UsageError(
                    "does not say which files it reads",
                    where=f"{self._map.file}, key {key}",
                    hint='with --format, each table names its own files: files = "nodes.csv"',
                )
        self._files = files_by_section(self._map, files)
        named = {file.path for found in self._files.values() for file in found}
        self.rest = [file for file in files if file.path not in named]

    @property
    def one_by_one(self) -> list[SourceFile]:
        """The files of samples, which are read one by one."""
        return telemetry_files(self._map, self._files)

    def read(self, form: Format, frame: TimeFrame, sink: Sink) -> None:
        """Read what the mapping names into the tables of the log.

        Raises
        ------
        UsageError
            The log has one of the tables already, or its times are of another kind.
        """
        if self._map.base != frame.base:
            raise UsageError(
                f"has {self._map.base} times, but the log in the format {form.name} has {frame.base} times",
                where=str(self._map.file),
                hint="set time_base in [source]",
            )
        sink.flush()
        sink.writer.drain()
        tables = {table.table for table in self._map.tables} | (set(_TELEMETRY) if self._map.telemetry else set())
        both = _SIDE_BY_SIDE + (("nodes",) if form.nodes_from_jobs else ())
        own: dict[str, Path] = {}
        for table in sorted(tables):
            path = sink.folder / f"{table}.parquet"
            if not path.is_file():
                continue
            if table not in both:
                raise UsageError(
                    f"the log in the format {form.name} already fills the table {table}",
                    where=f"{self._map.file}, key {table}",
                    hint="remove the section",
                )
            own[table] = path.rename(sink.writer.scratch / f"own-{table}.parquet")
        for mapped in with_lookups(self._map, self._files, sink).tables:
            read_mapped_table(mapped, self._files[mapped.key], self._map, sink)
        if self._map.telemetry:
            read_telemetry(self._map, self._files, sink)
        sink.flush()
        sink.writer.drain()
        for table, path in own.items():
            _unite(table, path, sink)
        added = ", ".join(sorted(table for table in tables if (sink.folder / f"{table}.parquet").is_file()))
        sink.note(f"{self._map.file.name} added to the log: {added or 'nothing'}")


def _unite(table: str, own: Path, sink: Sink) -> None:
    """Write the rows of the log and of the mapping into one table."""
    path = sink.folder / f"{table}.parquet"
    if not path.is_file():
        own.rename(path)
        return
    mapped = path.rename(sink.writer.scratch / f"mapped-{table}.parquet")
    left, right = (f"read_parquet({sql_text(file)})" for file in (own, mapped))
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
                "machines of jobs that the mapped list does not contain; their GPUs are the most allocated there "
                "at one time",
            )
        sink.writer.copy(table, con, query)
