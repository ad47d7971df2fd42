"""Files that stand beside a scheduler's log and complete its Trace: machine lists, node events, GPU telemetry.

A kind of file is one module in `tracekit/ingest/machines/` or `tracekit/ingest/telemetry/` with an instance called
READER. It is recognized by its first bytes, so that it may have any name and lie in the same folder as the log.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import SourceError
from tracekit.ingest.files import source_files
from tracekit.places import place_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.settings import IngestSettings


class Companion(ABC):
    """A kind of file that completes a Trace."""

    name: ClassVar[str]
    """Identifies the kind."""
    title: ClassVar[str]
    """What it is and what prints it, a few words."""

    @abstractmethod
    def looks_right(self, name: str, head: bytes) -> bool:
        """Return whether a file of this name with these first bytes is of this kind."""


@dataclass(frozen=True)
class CompanionFiles:
    """The files of a source that stand beside its log."""

    machines: dict[str, list[SourceFile]] = field(default_factory=dict)
    """Lists of machines and of what happened to them, by the name of their kind."""
    telemetry: dict[str, list[SourceFile]] = field(default_factory=dict)
    """Samples of GPUs and hosts, by the name of their kind."""
    servers: list[str] = field(default_factory=list)
    """Addresses of servers that hold samples."""
    window: tuple[dt.datetime | None, dt.datetime | None] = (None, None)
    """From when and up to when the servers are asked, in UTC; None is as long as jobs ran."""

    @property
    def paths(self) -> set[str]:
        """Paths of all of them."""
        return {f.path for kinds in (self.machines, self.telemetry) for files in kinds.values() for f in files}


@cache
def companions(family: str) -> dict[str, Companion]:
    """Return the kinds of a family, 'machines' or 'telemetry', by name."""
    package = import_module(f"tracekit.ingest.{family}")
    found = [
        import_module(f"{package.__name__}.{info.name}")
        for info in iter_modules(package.__path__)
        if not info.name.startswith("_")
    ]
    readers: list[Companion] = [module.READER for module in found]
    return {reader.name: reader for reader in sorted(readers, key=lambda reader: reader.name)}


def all_companions() -> list[Companion]:
    """Return every kind of file that completes a log, machines first."""
    return [kind for family in ("machines", "telemetry") for kind in companions(family).values()]


def find_companions(files: Iterable[SourceFile]) -> CompanionFiles:
    """Return the files that complete a log, by their first bytes; what cannot be read is left to the log's format."""
    found = CompanionFiles()
    for file in files:
        try:
            head = file.head()
        except SourceError:
            continue
        for family, kinds in (("machines", found.machines), ("telemetry", found.telemetry)):
            name = next((n for n, r in companions(family).items() if r.looks_right(file.name, head)), None)
            if name is not None:
                kinds.setdefault(name, []).append(file)
                break
    return found


def named_telemetry(
    sources: Iterable[str], found: CompanionFiles, taken: set[str], settings: IngestSettings
) -> CompanionFiles:
    """Return `found` with the telemetry that a user names: files, folders, archives, and addresses of servers.

    Parameters
    ----------
    taken : set of str
        Paths of the files of the log, which no other file may have.

    Raises
    ------
    SourceError
        A source cannot be read, or contains no telemetry in a known format.
    """
    servers = [text for text in sources if is_address(text)]
    telemetry = {name: list(files) for name, files in found.telemetry.items()}
    used = set(taken)
    for text in (text for text in sources if text not in servers):
        where = place_of(text)
        files = source_files(where, settings.max_inflation)
        kinds = find_companions(files).telemetry
        if not kinds:
            raise SourceError(
                "contains no telemetry in a known format",
                where=where,
                hint=f"known formats: {'; '.join(reader.title for reader in companions('telemetry').values())}",
            )
        for name, members in kinds.items():
            for file in members:
                shown = file.path if file.path not in used else f"{where.name}/{file.path}"
                used.add(shown)
                telemetry.setdefault(name, []).append(replace(file, path=shown))
    return replace(found, telemetry=telemetry, servers=servers, window=(settings.start, settings.end))


def is_address(text: str) -> bool:
    """Return whether a source of telemetry is the address of a server."""
    return text.startswith(("http://", "https://"))


def answers_of(trace: Path) -> Path:
    """Return the folder beside a Trace in which the answers of servers are kept until it is whole."""
    return trace.with_name(f"{trace.name}.telemetry")


def discard_answers(trace: Path) -> None:
    """Remove what servers answered for a Trace."""
    shutil.rmtree(answers_of(trace), ignore_errors=True)
