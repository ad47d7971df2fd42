"""Fetch one file from the first of its URLs that gives it: pooch checks and places it, a `Part` lets it go on."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from dataclasses import dataclass, replace
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING

from tracekit.datasets.replies import RefusedError
from tracekit.datasets.transfer import Part, PointerError, transfer
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tracekit.datasets.catalog import RemoteFile
    from tracekit.progress import Progress

__all__ = ["fetch_file"]


def fetch_file(
    file: RemoteFile, urls: Sequence[str], staging: Path, *, timeout: float, progress: Progress
) -> tuple[str, RemoteFile]:
    """Fetch a file into `staging`, whole and checked.

    Parameters
    ----------
    urls : sequence of str
        Where to look, in this order.
    timeout : float
        Longest silence of a server [s].

    Returns
    -------
    str, RemoteFile
        The URL that gave it, and the file with what was learned of its checksum on the way.

    Raises
    ------
    SourceError
        No URL gave the file.
    OSError
        The disk does not take it.
    """
    failures = []
    for number, url in enumerate(urls, start=1):
        try:
            _from(url, file, staging, timeout, progress)
        except RefusedError as error:
            failures.append(f"{url}: {error}")
            if number < len(urls):
                progress.note(f"{url}: {error}; trying the next source")
            if isinstance(error, PointerError) and error.pointer.sha256 and file.sha256 is None:
                # The pointer names the very content that the next source must have.
                file = replace(
                    file, sha256=error.pointer.sha256, sha256_from="git-lfs", bytes=file.bytes or error.pointer.size
                )
        else:
            _clean(file.name, staging)
            return url, file
    raise SourceError(
        f"could not be fetched: {'; '.join(failures)}",
        where=file.name,
        hint="try again later (what came is kept), or name another source with --mirror",
    )


def _from(url: str, file: RemoteFile, staging: Path, timeout: float, progress: Progress) -> None:
    import pooch

    # The library tells each step by itself; here the progress and the errors do.
    pooch.get_logger().setLevel(logging.CRITICAL)
    download = _Download(file, staging, timeout, progress)
    known = f"sha256:{file.sha256}" if file.sha256 else None
    try:
        pooch.retrieve(url, known, fname=file.name, path=staging, downloader=download)
    except ValueError as error:
        if not download.resumed:
            raise _wrong_sum(file) from error
    else:
        return
    # The earlier run's bytes may be the wrong ones: once more, all of it.
    download.resumed = False
    try:
        pooch.retrieve(url, known, fname=file.name, path=staging, downloader=download)
    except ValueError as error:
        raise _wrong_sum(file) from error


def _wrong_sum(file: RemoteFile) -> RefusedError:
    return RefusedError(f"what came does not have the SHA-256 {(file.sha256 or '')[:12]}...")


@dataclass
class _Download:
    """What pooch calls to bring a URL to a path.

    Attributes
    ----------
    resumed : bool
        Whether bytes of an earlier run are in what was brought last.
    """

    file: RemoteFile
    staging: Path
    timeout: float
    progress: Progress
    resumed: bool = False

    def __call__(self, url: str, output_file: str, pooch: object) -> None:  # noqa: ARG002 -- pooch's signature
        self.progress.stage(f"fetching {self.file.name}", total=self.file.bytes or self.file.about_bytes)
        if url.endswith("*"):
            self._join(url[:-1], output_file)
            return
        part = self._bring(url, size=self.file.bytes, most=None)
        part.path.replace(output_file)
        part.drop()

    def _join(self, stem: str, output_file: str) -> None:
        if self.file.bytes is None:
            raise RefusedError("its parts cannot be counted, since its size is not known")
        left, parts, suffixes = self.file.bytes, [], _suffixes()
        while left:
            suffix = next(suffixes, None)
            if suffix is None:
                raise RefusedError(f"{left:,} bytes are missing after the last part")
            try:
                part = self._bring(stem + suffix, size=None, most=left)
            except RefusedError as error:
                raise RefusedError(f"part {suffix}: {error}") from error
            if not part.size():
                raise RefusedError(f"part {suffix} is empty")
            parts.append(part)
            left -= part.size()
        with open(output_file, "wb") as whole:  # noqa: PTH123 -- pooch gives text
            for part in parts:
                with part.path.open("rb") as piece:
                    shutil.copyfileobj(piece, whole, 1 << 20)
        for part in parts:
            part.drop()

    def _bring(self, url: str, *, size: int | None, most: int | None) -> Part:
        part = Part(self.staging / f"{self.file.name}.{hashlib.sha256(url.encode()).hexdigest()[:12]}.part")
        self.progress.advance(part.size())
        resumed = transfer(
            url,
            part,
            size=size,
            most=most,
            checked=self.file.sha256 is not None,
            timeout=self.timeout,
            advance=self.progress.advance,
        )
        self.resumed = self.resumed or resumed
        return part


def _suffixes() -> Iterator[str]:
    """Return aa, ab, ... zz: how files that were split are named."""
    return (a + b for a, b in product(ascii_lowercase, repeat=2))


def _clean(name: str, staging: Path) -> None:
    """Remove what came of the file from other sources."""
    unfinished = re.compile(re.escape(name) + r"\.[0-9a-f]{12}\.part")
    for path in list(staging.iterdir()):
        if unfinished.fullmatch(path.name.removesuffix(".json")):
            path.unlink()
