"""The manifest of a Trace: its source, its tables, and contradictions in the source.

manifest.json documents the accounting law that, for each source file, records = kept + rejected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tracekit.decode import Count, MisfitError, abbreviated, decode
from tracekit.errors import TraceError
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.decode import Place


CAPABILITIES = (
    "arrivals",
    "queueing",
    "run_time",
    "gpu_count",
    "node_count",
    "retries",
    "placement",
    "gpu_index",
    "utilization",
    "host_utilization",
    "capacity",
    "nodes",
    "tenants",
    "users",
    "statuses",
    "failures",
    "gpu_model",
    "calendar",
    "hour_of_day",
)
"""Names of all capabilities. A manifest has an entry for each."""

ASSUMED_ZONE = "read as UTC, an assumption; --option timezone=NAME sets another zone"
"""End of the note for a log with local times, if neither the log nor the user gives the time zone."""

PROGRAM_ERRORS = "program_errors"
"""Name of the check that counts program calls that printed errors but exited with code 0."""

TimeBase = Literal["absolute", "shifted", "relative"]


@dataclass
class FileAccount:
    """How many records of a raw file were kept and rejected."""

    path: str
    """Path relative to the source. An archive member's path follows the archive's name."""
    bytes: Count = 0
    """Size of the content read, after decompression [bytes]."""
    sha256: str = ""
    """SHA-256 of the content read, after decompression."""
    records: Count = 0
    kept: Count = 0
    rejected: Count = 0


@dataclass
class Check:
    """A contradiction in the source, with the number of times it was found."""

    count: Count
    of: Count | None
    """Number of rows checked, or None if the check does not count rows."""
    meaning: str
    examples: list[str] = field(default_factory=list)
    """Examples of the rows found."""


@dataclass
class Capability:
    """A capability: information that a Trace may or may not contain."""

    available: bool
    coverage: float | None = None
    """Share of the rows that have the information [0..1]."""
    window: tuple[str, str] | None = None
    """First and last time covered by the information [UTC, ISO 8601]."""
    note: str = ""


@dataclass
class Partition:
    """One file of a partitioned table (see `tracekit.tables.partitions`)."""

    path: str
    """Path within the folder of the Trace, with '/' between folders."""
    cluster: str | None
    """Cluster, or None if unknown."""
    day: str | None
    """Day in UTC, such as 2017-10-03, or None if unknown."""
    rows: Count
    bytes: Count
    sha256: str

    @property
    def date(self) -> date | None:
        """The day as a date."""
        return None if self.day is None else date.fromisoformat(self.day)


@dataclass
class TableInfo:
    """Size of one table."""

    rows: Count
    bytes: Count
    columns: list[str]
    sha256: str | None = None
    """SHA-256 of the Parquet file. None for a Trace of an older version, and for a partitioned table, because each of
    its files has its own."""
    partitions: list[Partition] | None = None
    """The files of a partitioned table, in table order, or None for a table in one file."""


@dataclass
class Addition:
    """A newer export that was added to the Trace."""

    created: str
    """Time at which it was added."""
    tracekit_version: str
    files: list[str]
    """Paths of the export's files in the source, without files that had been read before."""
    jobs_added: Count
    """Number of jobs that were not yet in the Trace."""
    jobs_replaced: Count
    """Number of jobs in the Trace that were replaced by a newer record."""
    jobs_older: Count
    """Number of jobs in the Trace that were kept, because this export has an earlier state of them."""


@dataclass
class Manifest:
    """The content of manifest.json."""

    format: str
    files: list[FileAccount]
    tracekit_version: str
    schema_version: str
    time_base: TimeBase
    """What times mean: real dates (absolute), only real hours and weekdays (shifted), or seconds since the trace began
    (relative)."""
    timezone: str
    """Time zone for hours of the day."""
    created: str
    tables: dict[str, TableInfo] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    capabilities: dict[str, Capability] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Choices and assumptions made during ingest."""
    additions: list[Addition] = field(default_factory=list)
    """Newer exports added since the Trace was created, oldest first."""

    @property
    def records(self) -> int:
        """Total number of source records."""
        return sum(f.records for f in self.files)

    @property
    def rejected(self) -> int:
        """Total number of rejected source records."""
        return sum(f.rejected for f in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys and values of manifest.json."""
        raw = asdict(self)
        for info in raw["tables"].values():
            if info["partitions"] is None:
                del info["partitions"]  # keeps the file as earlier versions wrote it
        origin = {"format": raw.pop("format"), "files": raw.pop("files")}
        head = {"tracekit_version": raw.pop("tracekit_version"), "schema_version": raw.pop("schema_version")}
        return {**head, "source": origin, **raw}

    def to_json(self) -> bytes:
        """Return the bytes of manifest.json."""
        return orjson.dumps(self.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def read(cls, path: Path, versions: Sequence[str] = ()) -> Manifest:
        """Read a manifest.json.

        Parameters
        ----------
        versions : sequence of str
            Schema versions to accept, oldest first. If empty, all versions are accepted.

        Raises
        ------
        TraceError
            The file is missing or not JSON, has a missing or malformed part, or has another version.
        """
        hint = "ingest the source again"
        try:
            raw = orjson.loads(path.read_bytes())
            if not isinstance(raw, dict) or not isinstance(raw.get("source"), dict):
                raise MisfitError((), "it has no source with format and files")
            version = raw.get("schema_version")
            if isinstance(version, str) and versions and version not in versions:
                raise _other_version(path.parent, version, versions)  # its manifest may have a different shape
            origin = raw.pop("source")
            if set(origin) != {"format", "files"} or not origin.keys().isdisjoint(raw):
                raise MisfitError((), "its source is not a format and files")
            found = decode(cls, {**raw, **origin})
            for name, capability in found.capabilities.items():
                for text in capability.window or ():
                    _require_time(text, ("capabilities", name, "window"))
            for name, info in found.tables.items():
                for number, partition in enumerate(info.partitions or ()):
                    _require_day(partition.day, ("tables", name, "partitions", number, "day"))
        except OSError as error:
            raise TraceError(f"cannot read the manifest: {error.strerror}", where=path, hint=hint) from error
        except (orjson.JSONDecodeError, MisfitError) as error:
            raise TraceError(f"the manifest is damaged: {error}", where=path, hint=hint) from error
        return found


def _other_version(folder: Path, version: str, versions: Sequence[str]) -> TraceError:
    *others, newest = versions
    what = f"has schema version {shorten(version)}, but this tracekit reads {', '.join(others)} and {newest}"
    return TraceError(what, where=folder, hint="ingest the source again")


def _require_day(text: str | None, place: Place) -> None:
    try:
        well = text is None or date.fromisoformat(text).isoformat() == text
    except ValueError:
        well = False
    if not well:
        raise MisfitError(place, f"{abbreviated(text)} is not a day")


def _require_time(text: str, place: Place) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise MisfitError(place, f"{abbreviated(text)} is not a time") from None
