"""Find files next to a scheduler's log that add to its Trace: machine lists, node events and GPU telemetry.

A module in `tracekit/ingest/machines/` or `tracekit/ingest/telemetry/` reads one or more kinds of files and lists their
readers in READERS. Files are recognized by their first bytes, so they may have any name and may be in the log's folder.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import SourceError
from tracekit.ingest.files import source_files
from tracekit.places import place_of
from tracekit.plugins import modules

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.mapping.sources import MapAddition
    from tracekit.ingest.sink import OpenedFile
    from tracekit.ingest.telemetry._series import Samples
    from tracekit.settings import IngestSettings


class Companion(ABC):
    """A kind of file that completes a Trace."""

    name: ClassVar[str]
    """Name of the kind."""
    title: ClassVar[str]
    """Short description of the file and the program that prints it."""

    @abstractmethod
    def looks_right(self, head: bytes) -> bool:
        """Return whether a file with these first bytes is of this kind."""


LISTS = ("scontrol", "sinfo", "kubernetes")
"""Values of `source` for events derived from states in machine lists."""


class TelemetryReader(Companion):
    """Reads one kind of telemetry file."""

    @abstractmethod
    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:
        """Yield the samples of a file, one (part of a) series at a time.

        Parameters
        ----------
        frame : TimeFrame
            Gives the zone of wall-clock times.
        hosts : frozenset of str
            Machines named in the log, for files that only have the machine in their file name.

        Raises
        ------
        SourceError
            The file is not of this kind.
        """


@dataclass(frozen=True)
class CompanionFiles:
    """The sources that complete a log: files next to the log, servers, and the files that a mapping file adds."""

    machines: dict[str, list[SourceFile]] = field(default_factory=dict)
    """Machine lists and machine event files, by the name of their kind."""
    telemetry: dict[str, list[SourceFile]] = field(default_factory=dict)
    """Files with GPU and host samples, by the name of their kind."""
    servers: list[str] = field(default_factory=list)
    """Addresses of servers to query for samples."""
    window: tuple[dt.datetime | None, dt.datetime | None] = (None, None)
    """Start and end of the time range to query, in UTC. By default, the time in which jobs ran."""
    added: MapAddition | None = None

    @property
    def paths(self) -> set[str]:
        """Paths of the files recognized by their first bytes."""
        return {f.path for kinds in (self.machines, self.telemetry) for files in kinds.values() for f in files}

    @property
    def one_by_one(self) -> list[SourceFile]:
        """The telemetry files, which are read one by one. Server responses are not included."""
        added = [] if self.added is None else self.added.one_by_one
        return [*added, *(file for files in self.telemetry.values() for file in files)]

    def with_named(self, settings: IngestSettings, taken: set[str]) -> CompanionFiles:
        """Return a copy that includes the telemetry files, folders, archives and addresses that the user names.

        Parameters
        ----------
        taken : set of str
            Paths of the log's files, which no telemetry file may have.

        Raises
        ------
        SourceError
            A source cannot be read, or contains no telemetry in a known format.
        """
        servers = [source for source in settings.telemetry if is_address(source)]
        telemetry = {name: list(files) for name, files in self.telemetry.items()}
        used = set(taken)
        for source in (place_of(source) for source in settings.telemetry if source not in servers):
            kinds = find_companions(source_files(source, settings.max_inflation)).telemetry
            if not kinds:
                raise SourceError(
                    "contains no telemetry in a known format",
                    where=source,
                    hint=f"known formats: {'; '.join(reader.title for reader in companions('telemetry').values())}",
                )
            for name, files in kinds.items():
                for file in files:
                    path = file.path if file.path not in used else f"{source.name}/{file.path}"
                    used.add(path)
                    telemetry.setdefault(name, []).append(replace(file, path=path))
        return replace(self, telemetry=telemetry, servers=servers, window=(settings.start, settings.end))


@cache
def companions(family: str) -> dict[str, Companion]:
    """Return the readers of a family, 'machines' or 'telemetry', by name."""
    readers: list[Companion] = [reader for module in modules(f"tracekit.ingest.{family}") for reader in module.READERS]
    return {reader.name: reader for reader in sorted(readers, key=lambda reader: reader.name)}


def all_companions() -> list[Companion]:
    """Return the readers of all files that complete a log, starting with readers of machine files."""
    return [kind for family in ("machines", "telemetry") for kind in companions(family).values()]


def find_companions(files: Iterable[SourceFile]) -> CompanionFiles:
    """Return the files that complete a log, judging by their first bytes. The log's format handles unreadable files."""
    found = CompanionFiles()
    for file in files:
        head = file.peek()
        if head is None:
            continue
        for family, kinds in (("machines", found.machines), ("telemetry", found.telemetry)):
            name = next((n for n, r in companions(family).items() if r.looks_right(head)), None)
            if name is not None:
                kinds.setdefault(name, []).append(file)
                break
    return found


def split_source(
    source: Path, files: list[SourceFile], settings: IngestSettings
) -> tuple[list[SourceFile], dict[str, str], CompanionFiles]:
    """Return the log's files, its format's options, and the files that complete it.

    Raises
    ------
    SourceError
        There is no log, or the given telemetry is unreadable or not in a known format.
    UsageError
        The mapping file is missing or wrong.
    """
    taken = {file.path for file in files}
    options = dict(settings.options or {})
    if settings.format_name == "csv":  # the mapping file names the log's files
        return files, options, CompanionFiles().with_named(settings, taken)
    added = None
    if settings.format_name is not None and "map" in options:
        from tracekit.ingest.mapping.sources import MapAddition

        added = MapAddition(options.pop("map"), files)
        files = added.rest
    found = replace(find_companions(files), added=added)
    log = [file for file in files if file.path not in found.paths]
    if not log:
        shown = ", ".join(sorted(found.paths)[:3])
        raise SourceError(
            f"contains no log, only companion files ({shown})",
            where=source,
            hint="put the scheduler's log into the same folder",
        )
    return log, options, found.with_named(settings, taken)


def is_address(text: str) -> bool:
    """Return whether a telemetry source is a server address."""
    return text.startswith(("http://", "https://"))


def answers_of(trace: Path) -> Path:
    """Return the folder next to a Trace that keeps server responses until the Trace is complete."""
    return trace.with_name(f"{trace.name}.telemetry")


def discard_answers(trace: Path) -> None:
    """Remove the saved server responses of a Trace."""
    shutil.rmtree(answers_of(trace), ignore_errors=True)
