"""Fetch one file from the first of its URLs that has it: `download` loads it, pooch checks and places it."""

from __future__ import annotations

import hashlib
import logging
import shutil
from dataclasses import dataclass, replace
from glob import escape
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING

from tracekit.datasets.download import Partial, download
from tracekit.datasets.replies import PointerError, RefusedError
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
    """Fetch a file into `staging`, complete and checked.

    Parameters
    ----------
    urls : sequence of str
        Its addresses, in the order to try.
    timeout : float
        Longest silence of a server [s]; one that sends less than 1 KiB a second for so long is too slow.

    Returns
    -------
    str, RemoteFile
        The URL that had it, and the file with the checksum of a Git-LFS pointer, if another URL had one.

    Raises
    ------
    SourceError
        No URL has the file.
    OSError
        The file cannot be written.
    """
    failures = []
    for number, url in enumerate(urls, start=1):
        try:
            _retrieve(url, file, staging, timeout, progress)
        except RefusedError as error:
            failures.append(f"{url}: {error}")
            if number < len(urls):
                progress.note(f"{url}: {error}; trying the next source")
            if isinstance(error, PointerError) and error.pointer.sha256 and file.sha256 is None:
                # The next source must have the content that the pointer names.
                file = replace(
                    file, sha256=error.pointer.sha256, sha256_from="git-lfs", bytes=file.bytes or error.pointer.size
                )
        else:
            for leftover in staging.glob(f"{escape(file.name)}.{'[0-9a-f]' * 12}.part*"):
                leftover.unlink()  # of a source that failed
            return url, file
    raise SourceError(
        f"could not be fetched: {'; '.join(failures)}",
        where=file.name,
        hint="try again later (the download is kept), or name another source with --mirror",
    )


def _retrieve(url: str, file: RemoteFile, staging: Path, timeout: float, progress: Progress) -> None:
    import pooch

    # The library logs each step, which progress and errors report here.
    pooch.get_logger().setLevel(logging.CRITICAL)
    downloader = _Downloader(file, staging, timeout, progress)
    known = f"sha256:{file.sha256}" if file.sha256 else None
    for again in (False, True):
        try:
            pooch.retrieve(url, known, fname=file.name, path=staging, downloader=downloader)
        except ValueError as error:
            # The bytes of an earlier request may be wrong: download again from zero, once.
            if again or not downloader.resumed:
                why = ", twice: the server resumes with wrong bytes" if downloader.resumed else ""
                raise RefusedError(f"its SHA-256 is not {(file.sha256 or '')[:12]}...{why}") from error
            downloader.resumed = False
        else:
            return


@dataclass
class _Downloader:
    """The downloader that pooch calls; pooch checks the checksum."""

    file: RemoteFile
    staging: Path
    timeout: float
    progress: Progress
    resumed: bool = False
    """Whether the last download contains bytes of an earlier request."""

    def __call__(self, url: str, output_file: str, pooch: object) -> None:  # noqa: ARG002 -- pooch's signature
        """Download a URL, or all parts of one that ends in *, to `output_file`."""
        self.progress.stage(f"fetching {self.file.name}", total=self.file.bytes or self.file.about_bytes)
        if url.endswith("*"):
            partials = list(self._parts(url[:-1]))
            with open(output_file, "wb") as whole:  # noqa: PTH123 -- pooch gives text
                for partial in partials:
                    with partial.path.open("rb") as part:
                        shutil.copyfileobj(part, whole, 1 << 20)
        else:
            partials = [self._download(url, size=self.file.bytes)]
            partials[0].path.replace(output_file)
        for partial in partials:
            partial.delete()

    def _parts(self, stem: str) -> Iterator[Partial]:
        """Download the parts aa, ab, ... zz of a split file until its size is reached."""
        left, suffixes = self.file.bytes, product(ascii_lowercase, repeat=2)
        if left is None:
            raise RefusedError("its parts cannot be counted, since its size is not known")
        while left:
            suffix = "".join(next(suffixes, ()))
            if not suffix:
                raise RefusedError(f"{left:,} bytes are missing after the last part")
            try:
                partial = self._download(stem + suffix, most=left)
            except RefusedError as error:
                raise RefusedError(f"part {suffix}: {error}") from error
            if not partial.size():
                raise RefusedError(f"part {suffix} is empty")
            yield partial
            left -= partial.size()

    def _download(self, url: str, *, size: int | None = None, most: int | None = None) -> Partial:
        partial = Partial(self.staging / f"{self.file.name}.{hashlib.sha256(url.encode()).hexdigest()[:12]}.part")
        self.progress.advance(partial.size())
        checked, advance = self.file.sha256 is not None, self.progress.advance
        resumed = download(url, partial, size=size, most=most, checked=checked, timeout=self.timeout, advance=advance)
        self.resumed = self.resumed or resumed
        return partial
