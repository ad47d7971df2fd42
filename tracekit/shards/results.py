"""A folder of finished results, each a file named by the digest of all that it hangs on."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tracekit.errors import OutputError
from tracekit.outputs import output_errors
from tracekit.shards.own_files import remove_own_leftovers, write_whole

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FinishedResults"]

_FAILED = "failed"
_SHARDS = "shards.json"


class FinishedResults:
    """Results in a folder that many processes, also of several machines, read and write at the same time.

    FOLDER/<digest>.json is one result, a JSON object, with 'check', a digest of the rest: what is damaged, cut short or
    stands under another's name is no result, and is made again. FOLDER/<digest>.failed.json says why one could not be
    made; it is tried again, and a result beside it holds. FOLDER/shards.json tells how many shards there were the last
    time. Two processes that make the same result write the same, and whoever is last replaces the other's file.

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
        It is not there and may not be made, or cannot be written.
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

    def read(self, digest: str) -> dict[str, Any] | None:
        """Return a result; None where there is none, or it is damaged."""
        return self._read(digest, f"{digest}.json")

    def failure(self, digest: str) -> str | None:
        """Return why a result could not be made the last time; None where that is not known."""
        found = self._read(digest, f"{digest}.{_FAILED}.json")
        return None if found is None else str(found.get("error"))

    def write(self, digest: str, result: dict[str, Any]) -> None:
        """Keep a result.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        self._write(digest, f"{digest}.json", result)

    def write_failure(self, digest: str, error: str) -> None:
        """Keep why a result could not be made.

        Raises
        ------
        OutputError
            The folder cannot be written, or is full.
        """
        self._write(digest, f"{digest}.{_FAILED}.json", {"error": error})

    @property
    def shards(self) -> int | None:
        """Into how many shards the work was divided the last time; None where it was not, or that is not known."""
        found = self._read(_SHARDS, _SHARDS)
        number = None if found is None else found.get("shards")
        return number if isinstance(number, int) else None

    def note_shards(self, number: int) -> None:
        """Keep into how many shards the work is divided.

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


def _check(digest: str, result: dict[str, Any]) -> str:
    text = json.dumps(result, sort_keys=True, separators=(",", ":"))
    return blake2b(f"{digest} {text}".encode(), digest_size=8).hexdigest()
