"""Results of runs, each named by a digest of its facts: all that the result depends on.

A ledger is a folder that many processes, also of several machines, fill at the same time, or the memory of one process.
Work is written once for both: name the runs, make those that are missing, gather all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tracekit.errors import OutputError, UnfinishedError, UsageError
from tracekit.outputs import output_errors
from tracekit.places import place_of
from tracekit.runs.files import remove_own_leftovers, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_PACKAGE = Path(__file__).parents[1]


# Facts.


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Return a digest of facts, whatever the order of their keys."""
    return blake2b(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


@cache
def content_of(path: str) -> str:
    """Return the digest of a file's content, read once; a missing file has a digest too, of its name."""
    try:
        return blake2b(place_of(path).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return f"missing {path}"  # the work itself reports what is wrong


def forget_files() -> None:
    """Forget what was read of files, which may have changed since."""
    content_of.cache_clear()


@cache
def code_of(*rooms: str, compiled: str = "") -> str:
    """Return the digest of some packages and modules of this program.

    Parameters
    ----------
    *rooms : str
        Their names, such as 'replay' or 'trace'.
    compiled : str
        What the compiled engine was made of (`kernel().SOURCES`).
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
"""A sweep has no more runs."""


class Shard(NamedTuple):
    """One of N parts of some work."""

    number: int
    """From 1 to N."""
    of: int
    """N."""

    @classmethod
    def named(cls, text: str) -> Shard:
        """Return the shard that a text I/N names.

        Raises
        ------
        UsageError
            It is not of this form, or I is not from 1 to N.
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        hint = "write it like 2/8: I/N, with I from 1 to N"
        if match is None:
            raise UsageError(f"'{text[:60]}' is not a shard", where="--shard", hint=hint)
        number, of = int(match[1]), int(match[2])
        if not 1 <= number <= of <= _MOST_SHARDS:
            begins = "; I begins at 1, not at 0" if number == 0 and of else ""
            more = f"; there may be up to {_MOST_SHARDS:,} shards" if of > _MOST_SHARDS else ""
            raise UsageError(f"there is no shard {number} of {of}{begins}{more}", where="--shard", hint=hint)
        return cls(number, of)

    @classmethod
    def asked(cls, shard: str | None, *, collect: bool) -> Shard | None:
        """Return the shard that options ask for, if any.

        Raises
        ------
        UsageError
            It is not of the form I/N, or both it and `collect` are given.
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
    """Return the number of the shard that each run belongs to, from 1.

    Runs are dealt out like cards, in the order of their kind and then of their digest. So all shards have as many runs
    to within one, and as many of each kind to within one. Which shard has which run depends on the set of runs alone,
    not on their order, nor on where files are. A digest modulo N would do without knowing the other runs, but chance
    would give some shard twice the work of the mean: every fifth of 100 shards of 1,000 runs has 13 or more.

    Parameters
    ----------
    kinds : mapping
        The kind of each run by its digest. Runs of one kind take about as long.
    of : int
        How many shards there are.
    """
    ordered = sorted(kinds, key=lambda digest: (kinds[digest], digest))
    return {digest: place % of + 1 for place, digest in enumerate(ordered)}


def numbers_in_words(numbers: Iterable[int]) -> str:
    """Return numbers as Slurm's --array takes them, such as '1-3,7'."""
    ordered = sorted(set(numbers))
    breaks = [k + 1 for k, (a, b) in enumerate(pairwise(ordered)) if b != a + 1]
    parts = [ordered[a:b] for a, b in pairwise([0, *breaks, len(ordered)])]
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts if part)


# Results.

_SHARDS = "shards.json"


class RunFolder:
    """Results in a folder, which many processes read and write at the same time.

    FOLDER/<digest>.json is one result, a JSON object, with 'check', a digest of the rest: a file that is damaged, cut
    short or renamed is no result, and its run is made again. FOLDER/<digest>.failed.json says in 'error' why a run
    failed; it is tried again, and a result next to it counts. FOLDER/shards.json holds how many shards there were the
    last time. Two processes that make the same run write the same, and the last one replaces the other's file.

    Parameters
    ----------
    folder : Path
        Made if it is absent.
    shown : Path
        What messages call it.
    make : bool
        Whether it may be made, and what dead processes of this machine left in it be removed.

    Raises
    ------
    OutputError
        It is absent and may not be made, or cannot be written.
    """

    def __init__(self, folder: Path, shown: Path, *, make: bool = True) -> None:
        self.folder, self.shown = folder, shown
        if not make:
            if not folder.is_dir():
                raise OutputError("holds no finished results", where=shown, hint="make them with --shard first")
            return
        with output_errors(shown):
            folder.mkdir(parents=True, exist_ok=True)
        remove_own_leftovers(folder)

    def read(self, digest: str, *, failed: bool = False) -> dict[str, Any] | None:
        """Return a result, or that of a run that failed; None where there is none, or it is damaged."""
        return self._read(digest, _name(digest, failed=failed))

    def write(self, digest: str, result: dict[str, Any], *, failed: bool = False) -> None:
        """Write a result, or that of a run that failed.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        self._write(digest, _name(digest, failed=failed), result)

    @property
    def shards(self) -> int | None:
        """Into how many shards the work was divided the last time; None where it was not, or that is not known."""
        found = self._read(_SHARDS, _SHARDS)
        number = None if found is None else found.get("shards")
        return number if isinstance(number, int) else None

    def note_shards(self, number: int) -> None:
        """Write into how many shards the work is divided.

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
    """Results of runs, of which this process makes those of one shard.

    A shard makes its own runs first. Then, where it `helps`, those of the others that are still missing, in an order of
    its own, so that helpers seldom make the same one: the next step may depend on all of them, and a shard that was
    lost or never started delays nobody. Two that make the same run make the same result.
    """

    folder: RunFolder | None = None
    """Where results are kept; None keeps them in memory, for this process alone."""
    shard: Shard | None = WHOLE
    """None makes nothing, and only gathers."""
    helps: bool = True
    """Whether this process makes runs of other shards too."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What all runs have in common."""
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)

    @classmethod
    def opened(cls, runs: str | Path | None, shard: str | None, *, collect: bool) -> Ledger | None:
        """Return the ledger of a folder; None where no folder is given, so that nothing is shared.

        Parameters
        ----------
        runs : path, optional
            The folder of finished results.
        shard : str, optional
            I/N; without it, and without `collect`, this process makes all that is missing.
        collect : bool
            Make nothing.

        Raises
        ------
        UsageError
            The options contradict each other, or lack the folder.
        OutputError
            The folder cannot be written; or it is absent, and `collect` is given.
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
        """How many results this process made."""
        return len(self._own)

    def about(self, **facts: Any) -> Ledger:
        """Return this ledger for runs that have more facts in common."""
        return replace(self, facts={**self.facts, **facts})

    def digest(self, **own: Any) -> str:
        """Return the digest of a run by its own facts: with the common ones, all that its result depends on."""
        return digest_of_facts({**self.facts, **own})

    def get(self, digest: str) -> dict[str, Any] | None:
        """Return a result if it is there."""
        if digest not in self._known:
            found = None if self.folder is None else self.folder.read(digest)
            if found is None:
                return None
            self._known[digest] = found
        return self._known[digest]

    def put(self, digest: str, result: dict[str, Any]) -> None:
        """Keep a result, a JSON object where there is a folder.

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
        """Yield the digests of the runs that this process is to make, if nobody has made them until they are asked for.

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
        """Return the results of runs in their order, after making those that are missing.

        Parameters
        ----------
        makers : mapping
            What makes the result of each run, by its digest.
        what : str
            What the runs are, for messages, a plural.

        Raises
        ------
        UnfinishedError
            Some are missing, and this process makes none.
        OutputError
            The folder cannot be written, or is full.
        """
        for digest in self.missing(dict.fromkeys(makers, "")):
            self.put(digest, makers[digest]())
        return self.gather(makers, what)

    def gather(self, digests: Iterable[str], what: str) -> list[dict[str, Any]]:
        """Return the results of runs that were made, in their order.

        Raises
        ------
        UnfinishedError
            Some are missing.
        """
        asked = list(digests)
        there = [one for one in map(self.get, asked) if one is not None]
        if len(there) < len(asked):
            assert self.folder is not None  # noqa: S101 -- what is kept in memory was made before
            shards = self.folder.shards
            again = "with --shard I/N" if shards is None else f"with --shard 1/{shards}, or any other of the {shards}"
            raise UnfinishedError(
                f"{len(asked) - len(there):,} of {len(asked):,} {what} are missing",
                where=self.folder.shown,
                hint=f"run the same command {again}, without --collect: each run makes missing results",
            )
        return there
