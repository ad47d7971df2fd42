"""Any tabular log with a mapping file: delimited text, JSON lines or Parquet.

The mapping file (TOML, `tracekit.ingest.mapping`) says which columns fill which tables; docs/mapping.md explains it.
Nothing in the name or the first bytes of a file identifies such a source, so it is read on request only.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import SourceError, UsageError
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.mapping import load_mapping
from tracekit.ingest.mapping.tables import read_mapped_table
from tracekit.ingest.mapping.telemetry import read_telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.mapping.model import LogMap
    from tracekit.ingest.mapping.reading import Reading

__all__ = ["FORMAT"]


class MappedLogFormat(Format):
    """A log in any layout, described by a mapping file."""

    name = "csv"
    title = "any CSV, TSV, JSON lines or Parquet log, with a mapping file"
    detected: ClassVar[bool] = False
    raw_files = (RawFile("table", "a table that the mapping file names", r"(?s:.*)", lambda _: False),)
    options: ClassVar[Mapping[str, Option]] = {
        "map": Option("", "the mapping file (TOML); docs/mapping.md explains it, and it is required", file=True)
    }

    def fill_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options; the mapping file is checked before anything is read or written.

        Raises
        ------
        UsageError
            An option does not exist, or the mapping file is missing or wrong.
        """
        filled = super().fill_options(given)
        if not filled["map"]:
            raise UsageError("the format csv needs a mapping file", where="--map", hint="see docs/mapping.md")
        load_mapping(filled["map"])
        return filled

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the files that the mapping names."""
        log_map = load_mapping(sink.options["map"])
        files = _files_by_section(log_map, found.get("table"), sink)
        for table in log_map.tables:
            read_mapped_table(table, files[table.table], log_map, sink)
        if log_map.telemetry:
            read_telemetry(log_map, files, sink)
        if log_map.base == "relative":
            note = "times count from the start of the trace"
            return TimeFrame("relative", "UTC", hour_of_day=False, note=note)
        return TimeFrame("absolute", log_map.timezone)


def _files_by_section(log_map: LogMap, files: list[SourceFile], sink: Sink) -> dict[str, list[SourceFile]]:
    """Return the files of each section of the mapping by its key."""
    readings: dict[str, Reading] = {table.table: table.reading for table in log_map.tables}
    readings |= {section.key: section.reading for section in log_map.telemetry}
    if log_map.gpus is not None and log_map.telemetry:
        readings[log_map.gpus.key] = log_map.gpus.reading
    owner: dict[str, str] = {}
    chosen: dict[str, list[SourceFile]] = {}
    for key, reading in readings.items():
        where = f"{log_map.file}, key {key}.files"
        chosen[key] = [f for f in files if not f.name.lower().endswith(".toml") and _named(f, reading.files)]
        if not chosen[key]:
            shown = ", ".join(f.path for f in files[:6])
            patterns = ", ".join(reading.files)
            raise SourceError(f"no file of the source is named {patterns}", where=where, hint=f"there are: {shown}")
        for file in chosen[key]:
            if owner.setdefault(file.path, key) != key:
                raise UsageError(
                    f"{file.path} also belongs to {owner[file.path]}", where=where, hint="name each section's own files"
                )
    unread = [f.path for f in files if f.path not in owner]
    if unread:
        shown = ", ".join(unread[:6]) + (f" and {len(unread) - 6} more" if len(unread) > 6 else "")
        sink.note(f"files that the mapping does not name: {shown}")
    return chosen


def _named(file: SourceFile, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in (file.name, file.path))


FORMAT = MappedLogFormat()
