"""Results of runs. Each is named by a digest of its facts: everything that the result depends on.

A ledger is a folder that many processes, even on several machines, fill at the same time, or the memory of one process.
Code uses both in the same way: it names the runs, performs the missing ones, and gathers all results.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tracekit.errors import OutputError, UnfinishedError, UsageError
from tracekit.interruption import register_cleanup, unregister_cleanup
from tracekit.outputs import output_errors
from tracekit.places import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


_PACKAGE = Path(__file__).parents[1]


# Facts.


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Return a digest of facts that does not depend on the order of their keys."""
    return blake2b(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


@cache
def content_of(path: str) -> str:
    """Return the digest of a file's content, which is read once, or a string with the name of a missing file."""
    try:
        return blake2b(place_of(path).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return f"missing {path}"  # the run itself reports the error


def forget_files() -> None:
    """Forget cached file digests, because files may have changed."""
    content_of.cache_clear()


@cache
def code_of(*rooms: str, compiled: str = "") -> str:
    """Return a digest of the given packages and modules of this program.

    Parameters
    ----------
    *rooms : str
        Names of packages and modules, such as 'replay' or 'trace'.
    compiled : str
        The sources of the compiled engine (`kernel().SOURCES`).
    """
    found = blake2b(compiled.encode(), digest_size=16)
    for room in rooms:
        module = _PACKAGE / f"{room}.py"
        for path in [module] if module.is_file() else sorted((_PACKAGE / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


# Shards.

_MOST_SHARDS = 1_000_000
"""Maximum number of shards, which is the maximum number of runs in a sweep."""


class Shard(NamedTuple):
    """One of N parts of the work."""

    number: int
    """From 1 to N."""
    of: int
    """N."""

    @classmethod
    def named(cls, text: str) -> Shard:
        """Return the shard that a string I/N names.

        Raises
        ------
        UsageError
            The string does not have this form, or I is not between 1 and N.
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        hint = "write it as I/N, with I from 1 to N, such as 2/8"
        if match is None:
            raise UsageError(f"'{text[:60]}' is not a shard", where="--shard", hint=hint)
        number, of = int(match[1]), int(match[2])
        if not 1 <= number <= of <= _MOST_SHARDS:
            begins = "; I begins at 1 instead of 0" if number == 0 and of else ""
            more = f"; there may be up to {_MOST_SHARDS:,} shards" if of > _MOST_SHARDS else ""
            raise UsageError(f"there is no shard {number} of {of}{begins}{more}", where="--shard", hint=hint)
        return cls(number, of)

    @classmethod
    def asked(cls, shard: str | None, *, collect: bool) -> Shard | None:
        """Return the shard that the options select, if any.

        Raises
        ------
        UsageError
            `shard` does not have the form I/N, or both `shard` and `collect` are given.
        """
        if shard is not None and collect:
            hint = "run the shards first, then collect"
            raise UsageError("cannot be combined with --collect, which only merges results", where="--shard", hint=hint)
        return None if shard is None else cls.named(shard)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


WHOLE = Shard(1, 1)
"""All of the work."""


def dealt(kinds: Mapping[str, str], of: int) -> dict[str, int]:
    """Assign each run to a shard, numbered from 1.

    Runs are assigned round-robin, sorted by kind and then by digest. Shards therefore differ by at most one run in
    total, and by at most one run of each kind. The assignment depends only on the set of runs, not on their order or on
    file locations. A digest modulo N would not need the other runs, but some shards would get far more work than
    others: with 1,000 runs on 100 shards, every fifth shard gets 13 or more.

    Parameters
    ----------
    kinds : mapping
        The kind of each run by its digest. Runs of one kind take about equally long.
    of : int
        Number of shards.
    """
    ordered = sorted(kinds, key=lambda digest: (kinds[digest], digest))
    return {digest: place % of + 1 for place, digest in enumerate(ordered)}


def numbers_in_words(numbers: Iterable[int]) -> str:
    """Format numbers as for Slurm's --array, such as '1-3,7'."""
    ordered = sorted(set(numbers))
    breaks = [k + 1 for k, (a, b) in enumerate(pairwise(ordered)) if b != a + 1]
    parts = [ordered[a:b] for a, b in pairwise([0, *breaks, len(ordered)])]
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts if part)


# Results.

_SHARDS = "shards.json"


class RunFolder:
    """Results in a folder that many processes read and write at the same time.

    FOLDER/<digest>.json is one result, a JSON object with a 'check' digest of its other values. If the file is damaged,
    truncated or renamed, it is ignored and the run is repeated. FOLDER/<digest>.failed.json records in 'error' why a
    run failed. The run is retried, and a result next to this file wins. FOLDER/shards.json records the last number of
    shards. If two processes perform the same run, they write the same result, and the second file replaces the first.

    Parameters
    ----------
    folder : Path
        The folder, which is created if it does not exist.
    shown : Path
        The folder's name in messages.
    make : bool
        Whether to create the folder, and to remove unfinished files of dead processes of this machine.

    Raises
    ------
    OutputError
        The folder does not exist and must not be created, or it cannot be written.
    """

    def __init__(self, folder: Path, shown: Path, *, make: bool = True) -> None:
        self.folder, self.shown = folder, shown
        if not make:
            if not folder.is_dir():
                raise OutputError("contains no finished results", where=shown, hint="make them with --shard first")
            return
        with output_errors(shown):
            folder.mkdir(parents=True, exist_ok=True)
        remove_own_leftovers(folder)

    def read(self, digest: str, *, failed: bool = False) -> dict[str, Any] | None:
        """Return a result or the record of a failed run, or None if it is missing or damaged."""
        return self._read(digest, _name(digest, failed=failed))

    def write(self, digest: str, result: dict[str, Any], *, failed: bool = False) -> None:
        """Write a result or the record of a failed run.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        self._write(digest, _name(digest, failed=failed), result)

    @property
    def shards(self) -> int | None:
        """The last number of shards, or None if the work was not divided or the number is unknown."""
        found = self._read(_SHARDS, _SHARDS)
        number = None if found is None else found.get("shards")
        return number if isinstance(number, int) else None

    def note_shards(self, number: int) -> None:
        """Record the number of shards.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        if self.shards != number:
            self._write(_SHARDS, _SHARDS, {"shards": number})

    def _read(self, digest: str, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        check = found.pop("check", None)
        return found if check == _check(digest, found) else None

    def _write(self, digest: str, name: str, result: dict[str, Any]) -> None:
        text = json.dumps({**result, "check": _check(digest, result)}, indent=2)
        write_whole(self.folder / name, text.encode() + b"\n")


def _name(digest: str, *, failed: bool) -> str:
    return f"{digest}.failed.json" if failed else f"{digest}.json"


def _check(digest: str, result: dict[str, Any]) -> str:
    text = json.dumps(result, sort_keys=True, separators=(",", ":"))
    return blake2b(f"{digest} {text}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Ledger:
    """Results of runs. This process performs those of one shard.

    A shard performs its own runs first. If it `helps`, it then performs missing runs of other shards, because the next
    step may depend on all of them. So a shard that was lost or never started delays nobody. Each helper has its own
    order, so helpers rarely repeat a run, and if they do, they get the same result.
    """

    folder: RunFolder | None = None
    """Folder for the results, or None to keep them in the memory of this process."""
    shard: Shard | None = WHOLE
    """The shard to perform, or None to only gather results."""
    helps: bool = True
    """Whether this process also performs runs of other shards."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The facts that all runs have in common."""
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)

    @classmethod
    def opened(cls, runs: str | Path | None, shard: str | None, *, collect: bool) -> Ledger | None:
        """Return the ledger of a folder, or None if no folder is given and nothing is shared.

        Parameters
        ----------
        runs : path, optional
            The folder of finished results.
        shard : str, optional
            I/N. Without `shard` and `collect`, this process performs all missing runs.
        collect : bool
            Whether to only gather results.

        Raises
        ------
        UsageError
            The options contradict each other, or the folder is missing.
        OutputError
            The folder cannot be written, or `collect` is given and the folder does not exist.
        """
        asked = Shard.asked(shard, collect=collect)
        forget_files()
        if runs is None:
            if asked is not None or collect:
                raise UsageError("needs the folder shared by the shards", where="--shard", hint="set it with runs=")
            return None
        folder = RunFolder(Path(runs), Path(runs), make=not collect)
        if asked is not None:
            folder.note_shards(asked.of)
        return cls(folder, None if collect else asked or WHOLE)

    @property
    def made(self) -> int:
        """Number of results that this process produced."""
        return len(self._own)

    def about(self, **facts: Any) -> Ledger:
        """Return this ledger for runs that share further facts."""
        return replace(self, facts={**self.facts, **facts})

    def digest(self, **own: Any) -> str:
        """Return the digest of a run from its own facts and the shared facts, on which its result depends."""
        return digest_of_facts({**self.facts, **own})

    def get(self, digest: str) -> dict[str, Any] | None:
        """Return a result if it exists."""
        if digest not in self._known:
            found = None if self.folder is None else self.folder.read(digest)
            if found is None:
                return None
            self._known[digest] = found
        return self._known[digest]

    def put(self, digest: str, result: dict[str, Any]) -> None:
        """Store a result. With a folder, the result must be a JSON object.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        if self.folder is not None:
            self.folder.write(digest, result)
        self._known[digest] = result
        self._own.add(digest)

    def missing(self, kinds: Mapping[str, str]) -> Iterator[str]:
        """Yield the digests of the runs to perform, skipping runs that were finished in the meantime.

        Parameters
        ----------
        kinds : mapping
            The kind of each run by its digest (see `dealt`).
        """
        if self.shard is None:
            return
        number, owner = self.shard.number, dealt(kinds, self.shard.of)
        own = [digest for digest in kinds if owner[digest] == number]
        others = [digest for digest in kinds if owner[digest] != number] if self.helps else []
        others.sort(key=lambda digest: blake2b(f"{number} {digest}".encode(), digest_size=8).digest())
        for digest in (*own, *others):
            if self.get(digest) is None:
                yield digest

    def results(self, makers: Mapping[str, Callable[[], dict[str, Any]]], what: str) -> list[dict[str, Any]]:
        """Perform the missing runs, and return all results in the order of the runs.

        Parameters
        ----------
        makers : mapping
            The function that performs each run, by digest.
        what : str
            Name of the runs in messages, in the plural.

        Raises
        ------
        UnfinishedError
            Results are missing, and this process only gathers.
        OutputError
            The folder cannot be written, or is full.
        """
        for digest in self.missing(dict.fromkeys(makers, "")):
            self.put(digest, makers[digest]())
        return self.gather(makers, what)

    def gather(self, digests: Iterable[str], what: str) -> list[dict[str, Any]]:
        """Return the results of finished runs in the given order.

        Raises
        ------
        UnfinishedError
            Results are missing.
        """
        asked = list(digests)
        there = [one for one in map(self.get, asked) if one is not None]
        if len(there) < len(asked):
            assert self.folder is not None  # noqa: S101 -- results in memory are never missing
            shards = self.folder.shards
            again = "with --shard I/N" if shards is None else f"with --shard 1/{shards}, or any other of the {shards}"
            raise UnfinishedError(
                f"{len(asked) - len(there):,} of {len(asked):,} {what} are missing",
                where=self.folder.shown,
                hint=f"run the same command {again}, without --collect; each shard produces missing results",
            )
        return there


# Atomic writes to the folder, and removal of unfinished files. A file is written under a unique hidden name,
# `.NAME.partial-HOST-SPACE-PID-COUNT`, and then renamed, which atomically replaces an earlier file. HOST is the
# machine's name. SPACE identifies the machine's last boot and the container's process namespace, in which PID is
# unique. Locks and clocks are not used, because neither is reliable across machines.

_PARTIAL = re.compile(
    r"\.(?P<name>.+)\.partial-(?P<host>[A-Za-z0-9.-]*)-(?P<space>[0-9a-f]{12}|unknown)-(?P<pid>\d+)-\d+"
)
_LONGEST_HOST = 40
_UNKNOWN = "unknown"
_counter = count()


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: readers see either the old content or all of the new content.

    Raises
    ------
    OutputError
        The file cannot be written, or the disk is full. The old file is kept.
    """
    part = path.with_name(f".{path.name}.partial-{_host()}-{_space()}-{os.getpid()}-{next(_counter)}")
    key = register_cleanup(lambda: part.unlink(missing_ok=True))
    try:
        with output_errors(path):
            part.write_bytes(content)
            part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        unregister_cleanup(key)


def remove_own_leftovers(folder: Path) -> None:
    """Remove unfinished files of dead processes of this machine.

    Files of other machines, other containers and earlier boots stay, because this process cannot know whether their
    writers are alive.
    """
    if _space() == _UNKNOWN:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PARTIAL.fullmatch(entry.name)
            if match and match["space"] == _space() and not _is_alive(int(match["pid"])):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink(missing_ok=True)


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname())[:_LONGEST_HOST]


@cache
def _space() -> str:
    """Return an identifier of this process id space, or 'unknown' if the system provides none."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN
    return blake2b(started + os.fsencode(namespace), digest_size=6).hexdigest()


def _is_alive(pid: int) -> bool:
    """Return whether a process with this id runs here. Another process may have reused the id."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # the process belongs to another user
        return True
    return True
