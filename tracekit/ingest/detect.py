"""Detect a source's format, and reject printouts that look like logs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from tracekit.errors import UnknownFormatError, nearest
from tracekit.ingest.interface import Format, FoundFiles
from tracekit.plugins import modules

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import RawFile

_FORMATS = "tracekit.ingest.formats"
_GROUP = "tracekit.formats"
_HEADS = 4_096
"""Maximum number of files to open for their first bytes, enough for ten years of daily files."""
_PRINTOUTS = 64
"""Maximum number of files that are compared with known printouts."""


@dataclass(frozen=True)
class Detection:
    """A source's format and files, and why this format was chosen."""

    format: Format
    found: FoundFiles
    reasons: tuple[str, ...]


@cache
def all_formats() -> dict[str, Format]:
    """Return all formats by name: the modules of tracekit.ingest.formats, then installed plug-ins."""
    known: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in modules(_FORMATS)}
    for entry in metadata.entry_points(group=_GROUP):
        member = entry.load()
        known.setdefault(member.name, member)
    return dict(sorted(known.items()))


def find_format(name: str) -> Format:
    """Return the format called `name`.

    Raises
    ------
    UnknownFormatError
        No format has this name.
    """
    # Try the module with the format's name first: importing all formats is slow.
    module = name.replace("-", "_")
    if not module.startswith("_") and module in {info.name for info in iter_modules(import_module(_FORMATS).__path__)}:
        member: Format = import_module(f"{_FORMATS}.{module}").FORMAT
        if member.name == name:
            return member
    formats = all_formats()
    if name not in formats:
        raise UnknownFormatError(f"unknown format '{name}'", hint=nearest(name, formats))
    return formats[name]


def detect(source: Path, files: list[SourceFile], format_name: str | None = None) -> Detection:
    """Detect the format of a source, and find its files.

    Without `format_name`, try the file names first, then the files' first bytes.

    Raises
    ------
    UnknownFormatError
        No format matches, several match, or the requested format does not match.
    """
    if format_name is not None:
        member = find_format(format_name)
        found = _by_name(member, files) or _by_content(member, files)
        if not found:
            _refuse_printout(source, files)
            expected = ", ".join(kind.key for kind in member.raw_files)
            raise UnknownFormatError(
                f"contains no file of the format {member.name}", where=source, hint=f"expected {expected}"
            )
        return Detection(member, found, (f"--format {member.name}: {_listing(found)}",))
    for how, why in ((_by_name, "by name"), (_by_content, "by first bytes")):
        fits = [(f, found) for f in all_formats().values() if f.detected and (found := how(f, files))]
        if len(fits) > 1:
            names = ", ".join(f.name for f, _ in fits)
            raise UnknownFormatError(
                f"several formats match: {names}", where=source, hint="choose with --format, or name one folder"
            )
        if fits:
            return Detection(fits[0][0], fits[0][1], (f"{why}: {_listing(fits[0][1])}",))
    _refuse_printout(source, files)
    shown = ", ".join(f.path for f in files[:3]) + (" ..." if len(files) > 3 else "")
    raise UnknownFormatError(
        f"no known format matches these files ({shown})",
        where=source,
        hint=f"name one with --format: {', '.join(all_formats())}; 'tracekit formats' lists their files",
    )


@cache
def _printouts() -> tuple[tuple[re.Pattern[bytes], str, str], ...]:
    """Return printouts that no format reads: a pattern for the first bytes, the problem, and a better command.

    These printouts show one point in time, only totals, or too little for any analysis.
    """
    from tracekit.ingest.formats._slurm_text import COMMAND

    pods = "kubectl get pods,workloads -A -o json > pods.json"
    queue = "squeue shows only current jobs, without GPUs and waits"
    known = (
        (rb"^\s*JOBID\b[^\n]*(?:NODELIST\(REASON\)|\bREASON\b)", queue, f"write the history with: {COMMAND}"),
        (
            rb"- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \(\d+ secs\)|^Cluster\|Account\|Login\|Proper Name\|Used",
            "sreport prints totals for a period, not jobs",
            f"write the jobs with: {COMMAND}",
        ),
        (
            rb"\A(?:---\s+)?apiVersion: ?\S+",
            "kubectl printed YAML, which tracekit does not read",
            f"use -o json, as in: {pods}",
        ),
        (
            rb"\A(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS",
            "kubectl printed a human-readable table, without GPUs and times",
            f"print JSON: {pods}",
        ),
        (
            rb"^JOBID\s+USER\s+STAT\s+QUEUE\b",
            "bjobs printed a human-readable table, which truncates long cells",
            "write the history with: bhist -a -l -u all > bhist.txt",
        ),
        (
            rb"^Job id\s+Name\s+User\s+Time Use",
            "qstat shows only current jobs",
            "name the server's folder of accounting logs, $PBS_HOME/server_priv/accounting",
        ),
    )
    return tuple((re.compile(pattern, re.MULTILINE), what, cure) for pattern, what, cure in known)


def _refuse_printout(source: Path, files: list[SourceFile]) -> None:
    """Reject a source that contains a known printout, and name the command that writes a log."""
    for file in files[:_PRINTOUTS]:
        head = (file.peek(4_096) or b"").removeprefix(b"\xef\xbb\xbf")
        for pattern, what, cure in _printouts():
            if pattern.search(head):
                raise UnknownFormatError(f"{file.path}: {what}", where=source, hint=cure)


def _by_name(member: Format, files: list[SourceFile]) -> FoundFiles | None:
    """Return the files whose names fit the format. Kinds without a fixed name are recognized by their first bytes.

    A file is skipped if its first bytes fit another kind than its name.
    """
    named = [(f, kind) for f in files for kind in member.raw_files if kind.named(f.name)]
    # A mapping file names its own files.
    if len(named) > 1 and member.detected:
        named = [(f, kind) for f, kind in named if not _is_other(f, kind)]
    if not named:
        return None
    nameless = [kind for kind in member.raw_files if not kind.pattern]
    taken = {f.path for f, _ in named}
    rest = [f for f in files if f.path not in taken] if nameless else []
    return _found(
        member, [(f, kind.key) for f, kind in named] + [(f, kind.key) for f, kind in _by_head(rest, tuple(nameless))]
    )


def _is_other(file: SourceFile, kind: RawFile) -> bool:
    """Return whether a file's first bytes do not fit its kind but fit another format."""
    head = file.peek()
    if head is None or kind.looks_right(head):
        return False
    return any(other.looks_right(head) for f in all_formats().values() if f.detected for other in f.raw_files)


def _by_content(member: Format, files: list[SourceFile]) -> FoundFiles | None:
    return _found(member, [(f, kind.key) for f, kind in _by_head(files, member.raw_files)])


def _by_head(files: list[SourceFile], kinds: tuple[RawFile, ...]) -> list[tuple[SourceFile, RawFile]]:
    """Return the files whose first bytes fit one of the kinds, with the first kind that matches."""
    found = []
    for file in files[:_HEADS]:
        head = file.peek()
        found += [(file, kind) for kind in kinds if head is not None and kind.looks_right(head)][:1]
    return found


def _found(member: Format, matches: list[tuple[SourceFile, str]]) -> FoundFiles | None:
    by_key: dict[str, list[SourceFile]] = {kind.key: [] for kind in member.raw_files}
    for file, key in matches:
        by_key[key].append(file)
    kept = {key: files for key, files in by_key.items() if files}
    return FoundFiles(kept) if kept else None


def _listing(found: FoundFiles) -> str:
    names = [f.path for files in found.files.values() for f in files]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
