"""Define the interface of a source format: its raw files, its options, and how it fills the common tables.

Modules in `tracekit.ingest.formats` can import all types for their signatures from here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tracekit.ingest.files import SourceFile
from tracekit.ingest.merge_jobs import replace_jobs
from tracekit.ingest.sink import Sink
from tracekit.options import Option, fill_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import duckdb

    from tracekit.manifest import TimeBase

__all__ = ["Format", "FoundFiles", "Option", "RawFile", "Sink", "SourceFile", "TimeFrame"]


@dataclass(frozen=True)
class RawFile:
    """A kind of raw file that a format reads."""

    key: str
    """Name of the kind, such as 'cluster_log'."""
    title: str
    """Short description of the file."""
    pattern: str
    """Regular expression for the whole file name, or '' for files without a fixed name, which only their first bytes
    identify.
    """
    looks_right: Callable[[bytes], bool]
    """Tests whether a file's first bytes fit, for files whose name does not match."""

    def named(self, name: str) -> bool:
        """Return whether `name` fits this kind of file."""
        return bool(self.pattern) and re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True)
class TimeFrame:
    """How to interpret the times of a source."""

    base: TimeBase
    timezone: str
    hour_of_day: bool = True
    """Whether hours of the day are meaningful."""
    note: str = ""
    """Why calendar dates or hours of the day cannot be trusted."""

    @classmethod
    def relative(cls, note: str) -> TimeFrame:
        """Return the frame of times that count from the start of the source."""
        return cls("relative", "UTC", hour_of_day=False, note=note)


@dataclass(frozen=True)
class FoundFiles:
    """The raw files of one format in a source."""

    files: Mapping[str, list[SourceFile]] = field(default_factory=dict)
    """Files by the key of their kind, ordered by path."""

    def get(self, key: str) -> list[SourceFile]:
        """Return the files of one kind."""
        return self.files.get(key, [])


class Format(ABC):
    """A source format.

    To add a format, write one module in `tracekit/ingest/formats/` with an instance called FORMAT. A format outside
    this package registers an instance under the entry-point group `tracekit.formats`.
    """

    name: ClassVar[str]
    """Name of the format for --format."""
    title: ClassVar[str]
    """Who published the trace, with the year."""
    detected: ClassVar[bool] = True
    """Whether tracekit detects a source in this format. If not, it needs --format."""
    raw_files: ClassVar[tuple[RawFile, ...]]
    options: ClassVar[Mapping[str, Option]] = {}
    no_append: ClassVar[str] = ""
    """Why a newer export cannot be added to a Trace, or '' if an id means the same job in every export."""
    time_cure: ClassVar[str] = "a mapping can set the time format (--map FILE, docs/mapping.md)"
    """What to do if times are not written as the format expects."""
    gpu_cure: ClassVar[str] = "tracekit ingest LOGS -o TRACE --map FILE, with gpu_count in [jobs.columns]"
    """How to add the GPUs of jobs to a log without them."""
    no_gpus_cure: ClassVar[str] = ""
    """What to check if no job has GPUs, or '' if a log without GPUs is normal."""
    nodes_from_jobs: ClassVar[bool] = False
    """Whether machines come from the jobs. A machine then has as many GPUs as were ever in use at once, and is named
    CLUSTER/NAME if there are several clusters.
    """

    @abstractmethod
    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the raw files into the sink.

        Raises
        ------
        SourceError
            A file cannot be read in this format.
        """

    def one_by_one(self, found: FoundFiles, options: Mapping[str, str]) -> list[SourceFile]:  # noqa: ARG002 -- for formats that have some
        """Return the files that workers can read, each independently of the others. By default, none.

        `read` reads them with `tracekit.ingest.file_tasks.read_each`.
        """
        return []

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:  # noqa: ARG002 -- for formats that need them
        """Merge the jobs that are in both a Trace and a newer export. By default, the newer record replaces the older.

        Parameters
        ----------
        con : DuckDB connection
            Contains the tables of both. `tracekit.ingest.merge_jobs` describes their names and the tables to create.
        options : mapping
            The options with which both were read.
        """
        replace_jobs(con)

    def fill_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options with defaults filled in.

        Raises
        ------
        UsageError
            An option or a value does not exist.
        """
        return fill_options(self.options, given, f"the format {self.name}")
