"""Which files of a source belong to which section of a mapping file."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tracekit.errors import SourceError, UsageError

if TYPE_CHECKING:
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.mapping.model import LogMap
    from tracekit.ingest.sink import Sink


def files_by_section(log_map: LogMap, files: list[SourceFile], sink: Sink | None = None) -> dict[str, list[SourceFile]]:
    """Return the files of each section of a mapping by its key; `sink` is told which files no section names.

    A file of a lookup table may be one of another section too, if that names it.

    Raises
    ------
    SourceError
        There are no files for a section.
    UsageError
        A file belongs to two sections.
    """
    owner: dict[str, str] = {}
    chosen: dict[str, list[SourceFile]] = {}
    lookups = {lookup.key for lookup in log_map.lookups}
    asides = {
        file.path
        for key, reading in log_map.readings.items()
        if key in lookups
        for file in files
        if _named(file, reading.files)
    }
    for key, reading in log_map.readings.items():
        where = f"{log_map.file}, key {key}.files"
        every = reading.files == ("*",)
        chosen[key] = [
            f
            for f in files
            if not f.name.lower().endswith(".toml") and _named(f, reading.files) and not (every and f.path in asides)
        ]
        if not chosen[key]:
            shown = ", ".join(f.path for f in files[:6])
            patterns = ", ".join(reading.files)
            raise SourceError(f"no file of the source matches {patterns}", where=where, hint=f"there are: {shown}")
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
