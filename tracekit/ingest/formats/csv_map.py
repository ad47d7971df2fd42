"""Read any tabular log with a mapping file: delimited text, JSON lines or Parquet.

The mapping file (TOML, `tracekit.ingest.mapping`) defines which columns fill which tables (see docs/mapping.md). Such a
source cannot be identified by file names or first bytes, so it is read only on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.mapping import load_mapping
from tracekit.ingest.mapping.sources import files_by_section, read_mapped, samples_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class MappedLogFormat(Format):
    """A log in any layout, described by a mapping file."""

    name = "csv"
    title = "any CSV, TSV, JSON lines or Parquet log, with a mapping file"
    detected: ClassVar[bool] = False
    time_cure = "set time_format in the mapping file"
    raw_files = (RawFile("table", "a table that the mapping file names", r"(?s:.*)", lambda _: False),)
    options: ClassVar[Mapping[str, Option]] = {
        "map": Option("", "the mapping file (TOML), required; docs/mapping.md explains it", file=True),
        "tenant": Option("", "the site's word for the unit in vc, such as project or queue; pages use this word"),
    }

    def fill_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options. Check the mapping file before anything is read or written.

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

    def one_by_one(self, found: FoundFiles, options: Mapping[str, str]) -> list[SourceFile]:
        """Return the sample files named in the mapping."""
        log_map = load_mapping(options["map"])
        return samples_of(log_map, files_by_section(log_map, found.get("table")))

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the files named in the mapping."""
        log_map = load_mapping(sink.options["map"])
        read_mapped(log_map, files_by_section(log_map, found.get("table"), sink), sink)
        if log_map.source.time_base == "relative":
            return TimeFrame.relative("times count from the start of the trace")
        return TimeFrame("absolute", log_map.source.timezone)


FORMAT = MappedLogFormat()
