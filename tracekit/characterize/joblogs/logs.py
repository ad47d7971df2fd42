"""Find the logs in a folder and derive the trial of each log from its name."""

from __future__ import annotations

import math
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import SourceError, UsageError
from tracekit.outputs import real_path
from tracekit.streams import Inflated, decoder_of

if TYPE_CHECKING:
    import io

_SNIFFED = 4096
_BINARY_SHARE = 0.1
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_STREAM = r"(?:std)?(?:out|err)(?:put|or)?"
_END = rf"(?:\.(?:{_STREAM}|log|txt))"
_JOB = r"(?P<job_id>[A-Za-z0-9][\w.-]*?)"

_PATTERNS = (
    # slurm-123.out, slurm-123_4.err
    rf"(?:^|/)slurm-(?P<job_id>\d+(?:_\d+)?)(?:\.\w+)??{_END}?$",
    # JOB/attempt_1/stderr
    rf"(?:^|/){_JOB}/(?:attempt|try|retry|run)[_-]?(?P<attempt>\d+)/{_STREAM}{_END}?$",
    # JOB/1/stdout.txt below the folder given
    rf"/{_JOB}/(?P<attempt>\d+)/{_STREAM}{_END}?$",
    # JOB/stderr, JOB/stdout.log
    rf"(?:^|/){_JOB}/{_STREAM}{_END}?$",
    # 1/stdout.txt in the folder JOB, if no job is called 1
    rf"^{_JOB}/(?P<attempt>\d+)/{_STREAM}{_END}?$",
    # JOB.attempt1.err, JOB-attempt-1.log
    rf"(?:^|/){_JOB}[._-](?:attempt|try|retry)[_-]?(?P<attempt>\d+){_END}?$",
    # name.o123, name.e123
    r"(?:^|/)[^/]+\.[oe](?P<job_id>\d+)$",
    # JOB.err
    rf"(?:^|/){_JOB}{_END}$",
    # JOB_1.err, JOB.1.out
    rf"(?:^|/){_JOB}[._](?P<attempt>\d{{1,3}}){_END}$",
    # JOB
    rf"(?:^|/){_JOB}$",
)
"""Patterns of log names. With a Trace, the first pattern that gives one of its jobs is used."""

_ATTEMPT_FIRST = 8
"""The pattern that reads a number after '_' or '.' as the attempt. It is tried before the plain name."""


class Owner(NamedTuple):
    """The trial that a log belongs to, according to its name."""

    job_id: str
    attempt: int | None
    """Number of the attempt, from 0, or None if the name does not contain it."""


@dataclass(frozen=True)
class LogFile:
    """One log."""

    path: Path
    name: str
    """The path below the given folder, including the folder's name, with '/' between the parts."""
    owners: tuple[Owner, ...]
    """The trials that the log may belong to, most likely first."""
    bytes: int


@dataclass
class LogSet:
    """The logs found, and the number of other files skipped."""

    files: list[LogFile]
    passed_over: Counter[str] = field(default_factory=Counter)
    """Number of files skipped, by reason in words."""


class LogNames:
    """Reads the job and the attempt from log names.

    Parameters
    ----------
    pattern : str, optional
        A regular expression with the named group `job_id`, and optionally `attempt`. It is matched against the path
        below the given folder, without an ending such as .gz. By default tracekit's own patterns are used.

    Raises
    ------
    UsageError
        The pattern is not a regular expression, or the group is missing.
    """

    def __init__(self, pattern: str | None = None) -> None:
        if pattern is None:
            self._patterns = [re.compile(p, re.IGNORECASE) for p in _PATTERNS]
            self._guess = True
            return
        where = "--name-pattern"
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"is not a regular expression: {error}", where=where) from error
        if "job_id" not in compiled.groupindex:
            raise UsageError("has no group job_id", where=where, hint="write it like '(?P<job_id>[0-9]+)[.]err'")
        self._patterns = [compiled]
        self._guess = False

    def owners(self, name: str) -> tuple[Owner, ...]:
        """Return the trials that a log with this name may belong to, most likely first; empty if no pattern fits.

        Examples
        --------
        >>> LogNames().owners("slurm-77.out")[0]
        Owner(job_id='77', attempt=None)
        >>> LogNames().owners("a/job-5_1.err.gz")[0]
        Owner(job_id='job-5', attempt=1)
        """
        bare = _PACKED.sub("", name)
        found: list[Owner] = []
        for number, pattern in enumerate(self._patterns):
            match = pattern.search(bare)
            if match and match["job_id"]:
                number_text = match.groupdict().get("attempt")
                if number_text and not number_text.isascii():
                    continue
                attempt = int(number_text) if number_text and number_text.isdigit() else None
                owner = Owner(match["job_id"], attempt)
                if self._guess and number == _ATTEMPT_FIRST and found and found[-1].attempt is None:
                    found.insert(len(found) - 1, owner)
                else:
                    found.append(owner)
        return tuple(dict.fromkeys(found))


def find_logs(source: Path, names: LogNames) -> LogSet:
    """Return the logs at or below `source`, sorted by name.

    Links are not followed, so logs are not read twice, and only logs inside the folder are read.

    Raises
    ------
    SourceError
        The file or folder does not exist or cannot be read.
    """
    if not source.exists():
        raise SourceError("no such file or folder", where=source)
    if not source.is_dir():
        if not source.is_file():
            raise SourceError("is neither a file nor a folder", where=source)
        name = f"{source.absolute().parent.name}/{source.name}"
        return LogSet([LogFile(source, name, names.owners(name), source.stat().st_size)])
    found = LogSet([])
    _walk(source, f"{real_path(source).name}/", names, found)
    if not found.files and not found.passed_over:
        raise SourceError("contains no files", where=source)
    return found


def _walk(folder: Path, prefix: str, names: LogNames, found: LogSet) -> None:
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if prefix.count("/") == 1:
            raise SourceError(f"cannot be read: {error.strerror}", where=folder) from error
        found.passed_over["folders that cannot be read"] += 1
        return
    for entry in ordered:
        name = prefix + entry.name
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            found.passed_over["links, which are not followed"] += 1
        elif stat.S_ISDIR(info.st_mode):
            _walk(Path(entry.path), f"{name}/", names, found)
        elif not stat.S_ISREG(info.st_mode):
            found.passed_over["pipes, sockets and devices"] += 1
        else:
            found.files.append(LogFile(Path(entry.path), name, names.owners(name), info.st_size))


def open_log(path: Path) -> io.BufferedIOBase | io.RawIOBase | None:
    """Open a log, decompressing .gz, .bz2, .xz and .zst content, or return None if the file is not text.

    Raises
    ------
    OSError
        The file cannot be read.
    SourceError
        The compressed content turns out to be damaged or cut short while it is read.
    """
    raw = path.open("rb", buffering=0)
    try:
        head = raw.read(_SNIFFED)
        raw.seek(0)
        if decoder_of(head) is not None:
            return Inflated(raw, str(path), math.inf)
        if head.count(0) <= _BINARY_SHARE * len(head):
            return raw
    except BaseException:
        raw.close()
        raise
    raw.close()
    return None
