"""What a source format is: the raw files it knows, its options, and how it fills the common tables.

A module in `tracekit.ingest.formats` can import from here what its signatures name.
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
    """Names the kind: 'cluster_log'."""
    title: str
    """What it is, a few words."""
    pattern: str
    """Regular expression that the file's name must match as a whole; '' for files without a name of their own, which
    are found by their first bytes alone."""
    looks_right: Callable[[bytes], bool]
    """Whether a file's first bytes fit, for files under another name."""

    def named(self, name: str) -> bool:
        """Return whether `name` is a name of this kind of file."""
        return bool(self.pattern) and re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True)
class TimeFrame:
    """What the times of a source mean."""

    base: TimeBase
    timezone: str
    hour_of_day: bool = True
    """Whether hours of the day mean anything."""
    note: str = ""
    """Why calendar dates or hours of the day are not to be trusted."""


@dataclass(frozen=True)
class FoundFiles:
    """The raw files of one format in a source."""

    files: Mapping[str, list[SourceFile]] = field(default_factory=dict)
    """By the key of their kind, ordered by path."""

    def get(self, key: str) -> list[SourceFile]:
        """Return the files of one kind."""
        return self.files.get(key, [])


class Format(ABC):
    """A source format.

    A new format is one module in `tracekit/ingest/formats/` with an instance called FORMAT; a format outside this
    package registers an instance under the entry-point group `tracekit.formats`.
    """

    name: ClassVar[str]
    """What --format takes."""
    title: ClassVar[str]
    """Whose trace it is, with the year."""
    detected: ClassVar[bool] = True
    """Whether a source in this format can be recognized; otherwise it is read on request only."""
    raw_files: ClassVar[tuple[RawFile, ...]]
    options: ClassVar[Mapping[str, Option]] = {}
    no_append: ClassVar[str] = ""
    """Why a newer export cannot be added to a Trace; empty where an id means the same job in every export."""
    time_cure: ClassVar[str] = "a mapping can state how times are written (--map FILE, docs/mapping.md)"
    """What to do where times are not written as the format has them."""
    gpu_cure: ClassVar[str] = "tracekit ingest LOGS -o TRACE --map FILE, with gpu_count in [jobs.columns]"
    """What adds the GPUs of jobs to a log without them."""
    no_gpus_cure: ClassVar[str] = ""
    """What to look at where no job has GPUs; empty where such a log is nothing unusual."""
    nodes_from_jobs: ClassVar[bool] = False
    """Whether machines are those that jobs name: with the most GPUs held there at once, and named CLUSTER/NAME as soon
    as there are several clusters."""

    @abstractmethod
    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the raw files into the sink.

        Raises
        ------
        SourceError
            A file cannot be read as what it claims to be.
        """

    def one_by_one(self, found: FoundFiles, options: Mapping[str, str]) -> list[SourceFile]:  # noqa: ARG002 -- for formats that have some
        """Return the files that are read one by one, knowing nothing of the others, so that workers can: none, usually.

        `read` takes them by `tracekit.ingest.file_tasks.read_each`.
        """
        return []

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:  # noqa: ARG002 -- for formats that need them
        """Merge the jobs that are in a Trace and in a newer export: by default the newer record replaces the older.

        Parameters
        ----------
        con : DuckDB connection
            Has the tables of both; `tracekit.ingest.merge_jobs` says under which names, and which tables to create.
        options : mapping
            The options that both were read with.
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
