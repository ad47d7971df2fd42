"""Work that shards have in common: who makes which results, and what is missing."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UnfinishedError, UsageError
from tracekit.shards.digests import forget_files
from tracekit.shards.results import FinishedResults
from tracekit.shards.shard import Shard, dealt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["SharedWork", "check_shard_options", "runs_beside"]


def check_shard_options(shard: str | None, *, collect: bool) -> Shard | None:
    """Return the shard that is asked for, if any.

    Raises
    ------
    UsageError
        It is not of the form I/N, or both it and `collect` are given.
    """
    if shard is not None and collect:
        hint = "run the shards first, then collect"
        raise UsageError("cannot be combined with --collect, which only merges results", where="--shard", hint=hint)
    return None if shard is None else Shard.named(shard)


def runs_beside(out: Path) -> Path:
    """Return the folder of finished results beside the file or folder that is made of them: OUT.runs."""
    return out.with_name(f"{out.name}.runs")


class SharedWork:
    """Items of one shard, or of none where finished results are only gathered.

    A shard makes its own items first. Then, where it `helps`, those of the others that are not there yet, in an order
    of its own, so that helpers seldom make the same one: what comes next may hang on all of them, and a shard that was
    lost or never started holds nobody up. Two that make the same item make the same result.

    Parameters
    ----------
    results : FinishedResults
    shard : Shard, optional
        None makes nothing.
    helps : bool
        Whether it makes items of other shards too.
    """

    def __init__(self, results: FinishedResults, shard: Shard | None, *, helps: bool = True) -> None:
        self.results, self.shard, self._helps = results, shard, helps
        self._found: dict[str, dict[str, Any]] = {}
        self.made = 0
        """Results that this process made."""

    @classmethod
    def opened(cls, runs: str | Path | None, shard: str | None, *, collect: bool) -> SharedWork | None:
        """Return the work in a folder; None where no folder is given, so that nothing is shared.

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
            The folder cannot be written; or it is not there, and `collect` is given.
        """
        asked = check_shard_options(shard, collect=collect)
        forget_files()
        if runs is None:
            if asked is not None or collect:
                raise UsageError("needs the folder shared by the shards", where="--shard", hint="set it with runs=")
            return None
        folder = Path(runs)
        if collect:
            return cls(FinishedResults(folder, folder, make=False), None)
        work = cls(FinishedResults(folder, folder), asked or Shard(1, 1))
        if asked is not None:
            work.results.note_shards(asked.of)
        return work

    def to_make(self, items: Mapping[str, str]) -> list[str]:
        """Return the digests of what this process is to make, in this order, of what is not there.

        Parameters
        ----------
        items : mapping
            The kind of each item by its digest (see `shard.dealt`).
        """
        if self.shard is None:
            return []
        number, owner = self.shard.number, dealt(items, self.shard.of)
        own = [digest for digest in items if owner[digest] == number]
        others = [digest for digest in items if owner[digest] != number] if self._helps else []
        others.sort(key=lambda digest: blake2b(f"{number} {digest}".encode(), digest_size=8).digest())
        return list(self.still_missing([*own, *others]))

    def still_missing(self, digests: Iterable[str]) -> Iterator[str]:
        """Yield those of which nobody has kept a result by the time when they are asked for."""
        for digest in digests:
            if self.find(digest) is None:
                yield digest

    def find(self, digest: str) -> dict[str, Any] | None:
        """Return a result if it is there."""
        if digest not in self._found:
            found = self.results.read(digest)
            if found is None:
                return None
            self._found[digest] = found
        return self._found[digest]

    def keep(self, digest: str, result: dict[str, Any]) -> None:
        """Keep a result, a JSON object, for all shards.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        self.results.write(digest, result)
        self._found[digest] = result
        self.made += 1

    def of(self, makers: Mapping[str, Callable[[], dict[str, Any]]], what: str) -> list[dict[str, Any]]:
        """Return the results of items in their order, after those that are missing were made.

        Parameters
        ----------
        makers : mapping
            What makes the result of each item, by its digest.
        what : str
            What the items are, for messages, a plural.

        Raises
        ------
        UnfinishedError
            Some are missing, and this process makes none.
        OutputError
            The folder cannot be written, or is full.
        """
        for digest in self.still_missing(self.to_make(dict.fromkeys(makers, ""))):
            self.keep(digest, makers[digest]())
        return self.gathered(makers, what)

    def gathered(self, digests: Iterable[str], what: str) -> list[dict[str, Any]]:
        """Return the results of items that were made, in their order.

        Raises
        ------
        UnfinishedError
            Some are missing.
        """
        asked = list(digests)
        found = [self.find(digest) for digest in asked]
        there = [one for one in found if one is not None]
        if len(there) < len(asked):
            shards = self.results.shards
            again = "with --shard I/N" if shards is None else f"with --shard 1/{shards}, or any other of the {shards}"
            raise UnfinishedError(
                f"{len(asked) - len(there):,} of {len(asked):,} {what} are missing",
                where=self.results.shown,
                hint=f"run the same command {again}, without --collect: each run makes missing results",
            )
        return there
