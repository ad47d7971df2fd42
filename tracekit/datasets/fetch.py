"""Fetch a public trace into a folder. Unfinished files have other names, and nothing is replaced without `force`."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from glob import escape
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tracekit.datasets.catalog import find_dataset
from tracekit.datasets.download import Partial, PointerError, RefusedError, download
from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.interruption import cleanup_on_interrupt
from tracekit.outputs import lock_folder, output_errors
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.datasets.catalog import Dataset, RemoteFile


# Fetch one file from the first of its URLs that provides it, and check its SHA-256.


def fetch_file(
    file: RemoteFile, urls: Sequence[str], staging: Path, *, timeout: float, progress: Progress
) -> tuple[str, RemoteFile]:
    """Fetch a complete file into `staging` and check it.

    Parameters
    ----------
    urls : sequence of str
        URLs of the file, in the order to try.
    timeout : float
        Longest silence of a server [s]. A server that sends less than 1 KiB per second for this long is too slow.

    Returns
    -------
    str, RemoteFile
        The URL that provided the file, and the file, with the checksum of a Git-LFS pointer if another URL sent one.

    Raises
    ------
    SourceError
        No URL provides the file.
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
                leftover.unlink()  # left by a source that failed
            return url, file
    raise SourceError(
        f"could not be fetched: {'; '.join(failures)}",
        where=file.name,
        hint="try again later (the download is kept), or give another source with --mirror",
    )


def _retrieve(url: str, file: RemoteFile, staging: Path, timeout: float, progress: Progress) -> None:
    """Download a URL, or all parts of a URL that ends in *, to its name in `staging`, and check its SHA-256."""
    whole = staging / file.name
    if whole.exists() and _is_right(whole, file):
        return  # complete, but an earlier run ended before moving the file into place
    for again in (False, True):
        progress.stage(f"fetching {file.name}", total=file.bytes or file.about_bytes)
        found = list(_partials(url, file, staging, timeout, progress))
        partials, resumed = [partial for partial, _ in found], any(old for _, old in found)
        joined = staging / f"{file.name}.whole"
        if url.endswith("*"):
            try:
                with joined.open("wb") as target:
                    for partial in partials:
                        with partial.path.open("rb") as part:
                            shutil.copyfileobj(part, target, 1 << 20)
            except BaseException:
                joined.unlink(missing_ok=True)
                raise
        else:
            partials[0].path.replace(joined)
        for partial in partials:
            partial.delete()
        if _is_right(joined, file):
            joined.replace(whole)
            return
        joined.unlink()
        # Bytes from an earlier request may be wrong, so download again from zero, once.
        if again or not resumed:
            why = ", twice: the server resumes with the wrong bytes" if resumed else ""
            raise RefusedError(f"its SHA-256 is not {(file.sha256 or '')[:12]}...{why}")


def _is_right(path: Path, file: RemoteFile) -> bool:
    """Return whether a downloaded file has the known SHA-256, if one is known."""
    if file.sha256 is None:
        return True
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def _partials(
    url: str, file: RemoteFile, staging: Path, timeout: float, progress: Progress
) -> Iterator[tuple[Partial, bool]]:
    """Download a URL, or the parts aa, ab, ... zz of a URL that ends in * until the file's size is reached.

    Yield each partial file, and whether it contains bytes from an earlier request.
    """

    def load(url: str, *, size: int | None = None, most: int | None = None) -> tuple[Partial, bool]:
        partial = Partial(staging / f"{file.name}.{hashlib.sha256(url.encode()).hexdigest()[:12]}.part")
        progress.advance(partial.size())
        checked, advance = file.sha256 is not None, progress.advance
        return partial, download(url, partial, size=size, most=most, checked=checked, timeout=timeout, advance=advance)

    if not url.endswith("*"):
        yield load(url, size=file.bytes)
        return
    left, suffixes = file.bytes, product(ascii_lowercase, repeat=2)
    if left is None:
        raise RefusedError("its size is unknown, so its parts cannot be counted")
    while left:
        suffix = "".join(next(suffixes, ()))
        if not suffix:
            raise RefusedError(f"{left:,} bytes are missing after the last part")
        try:
            partial, resumed = load(url[:-1] + suffix, most=left)
        except RefusedError as error:
            raise RefusedError(f"part {suffix}: {error}") from error
        if not partial.size():
            raise RefusedError(f"part {suffix} is empty")
        yield partial, resumed
        left -= partial.size()


# Keep a record of dataset, license and checksums next to the fetched files.

RECORD_NAME = "tracekit-dataset.json"


@dataclass(frozen=True)
class FileRecord:
    """One fetched file."""

    url: str
    """Its URL, or '' if the file existed before the first run."""
    bytes: int
    sha256: str
    checked: str
    """Origin of the SHA-256 used to check the file: 'publisher', 'git-lfs', 'recorded' or 'nothing'."""
    fetched: str
    """Time at which the file was fetched or first found in the folder, in UTC."""


class DatasetRecord:
    """The record of the files in one folder.

    Raises
    ------
    UsageError
        The folder contains another dataset.
    OutputError
        The folder's record cannot be read.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self._path = folder / RECORD_NAME
        self._dataset = dataset
        self.files: dict[str, FileRecord] = {}
        if not self._path.exists():
            return
        try:
            facts = json.loads(self._path.read_text(encoding="utf-8"))
            owner = str(facts["dataset"])
            self.files = {str(name): FileRecord(**file) for name, file in facts["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputError(
                "is not a record of fetched files", where=self._path, hint="remove it, or choose another folder"
            ) from error
        if owner != dataset.name:
            raise UsageError(
                f"already contains the dataset {owner}", where=folder, hint="use a separate folder for each dataset"
            )

    def add(self, name: str, file: FileRecord, staging: Path) -> None:
        """Add a file and write the record immediately, through a folder on the same disk."""
        self.files[name] = file
        facts: dict[str, Any] = {
            "dataset": self._dataset.name,
            "title": self._dataset.title,
            "licence": self._dataset.licence,
            "citation": self._dataset.citation,
            "paper": self._dataset.paper,
            "origin": self._dataset.origin,
            "files": {name: asdict(file) for name, file in sorted(self.files.items())},
        }
        unfinished = staging / RECORD_NAME
        unfinished.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(self._path)


STAGING_NAME = ".tracekit-fetch"
"""Hidden folder for unfinished files inside the output folder. Readers of raw logs skip it."""


@dataclass(frozen=True)
class FetchedFile:
    """A complete file of a dataset."""

    path: Path
    bytes: int
    sha256: str
    checked: str
    """Origin of the SHA-256 used to check the file: 'publisher', 'git-lfs', 'recorded' or 'nothing'."""
    was_there: bool
    """Whether an earlier run had already fetched the file."""


def fetch_dataset(
    dataset: str | Dataset,
    folder: str | Path,
    *,
    only: Sequence[str] = (),
    mirror: str | None = None,
    force: bool = False,
    timeout: float = 60.0,
    progress: Progress | None = None,
) -> list[FetchedFile]:
    """Fetch the files of a public trace.

    Each file is downloaded into a hidden folder, checked, and then moved into place. After an interruption, the next
    run resumes the download if the server allows it. An existing file is not fetched again if it has the known SHA-256,
    or the one from an earlier run.

    Parameters
    ----------
    dataset : str or Dataset
        Name of a dataset, or a `Dataset` of your own.
    folder : path
        Output folder, which is created if it does not exist.
    only : sequence of str
        Patterns for the names of the files to fetch, such as '*.csv'. The default is all files.
    mirror : str, optional
        URL of a folder with files of the same names, which is tried first.
    force : bool
        Replace existing files whose content differs.
    timeout : float
        Longest silence of a server [s]. A server that sends less than 1 KiB per second for this long is too slow.
    progress : Progress, optional
        Receives progress updates.

    Returns
    -------
    list of FetchedFile
        The files in catalog order.

    Raises
    ------
    UsageError
        The dataset does not exist, no file matches `only`, the mirror is not a URL, or the folder contains another
        dataset.
    SourceError
        A file could not be fetched from any source.
    OutputError
        The folder cannot be written, or it contains a different file of the same name.
    """
    chosen = find_dataset(dataset) if isinstance(dataset, str) else dataset
    files, folder, progress = choose_files(chosen, only), Path(folder), progress or Progress()
    if mirror is not None and (urlsplit(mirror).scheme not in ("http", "https") or not urlsplit(mirror).hostname):
        raise UsageError(f"'{mirror}' is not an http or https address", where="--mirror")
    with output_errors(folder), _staging(folder) as staging:
        record = DatasetRecord(folder, chosen)
        found = []
        for file in files:
            urls = ([f"{mirror.rstrip('/')}/{file.name}"] if mirror else []) + list(file.urls)
            there = _already(file, folder, record, force=force, progress=progress)
            found.append(there or _fetch(file, urls, folder, staging, record, timeout, progress))
            if there and file.name not in record.files:
                record.add(file.name, FileRecord("", there.bytes, there.sha256, there.checked, _now()), staging)
    return found


def choose_files(dataset: Dataset, only: Sequence[str] = ()) -> list[RemoteFile]:
    """Return the files of a dataset whose names match a pattern, or all files if no pattern is given.

    Raises
    ------
    UsageError
        A pattern matches no file.
    OutputError
        A file name points outside the output folder.
    """
    for file in dataset.files:
        if Path(file.name).name != file.name or "\\" in file.name or file.name.startswith("."):
            raise OutputError("the file name points outside the folder", where=file.name)
    for pattern in only:
        if not any(fnmatchcase(file.name, pattern) for file in dataset.files):
            names = ", ".join(file.name for file in dataset.files)
            raise UsageError(f"no file of {dataset.name} matches '{pattern}'", where="--file", hint=f"it has {names}")
    return [file for file in dataset.files if not only or any(fnmatchcase(file.name, p) for p in only)]


def _already(
    file: RemoteFile, folder: Path, record: DatasetRecord, *, force: bool, progress: Progress
) -> FetchedFile | None:
    """Return the file if it exists and is known to be complete."""
    path, earlier = folder / file.name, record.files.get(file.name)
    if not path.exists():
        return None
    if path.is_dir():
        raise OutputError("is a folder", where=path, hint="choose another folder with -o")
    known = file.sha256 or (earlier.sha256 if earlier else None)
    size = file.bytes or (earlier.bytes if earlier else None)
    fits = known is not None and size in (None, path.stat().st_size)
    if known is not None and fits and _sha256(path, progress) == known:
        checked = file.sha256_from or (earlier.checked if earlier else "nothing")
        return FetchedFile(path, path.stat().st_size, known, checked, was_there=True)
    if force:
        return None
    raise OutputError(
        "exists with different content" if known else "exists, but there is no checksum to compare it with",
        where=path,
        hint="--force replaces it, or choose another folder with -o",
    )


def _fetch(
    file: RemoteFile,
    urls: Sequence[str],
    folder: Path,
    staging: Path,
    record: DatasetRecord,
    timeout: float,
    progress: Progress,
) -> FetchedFile:
    url, file = fetch_file(file, urls, staging, timeout=timeout, progress=progress)
    path, whole = folder / file.name, staging / file.name
    size, checked = whole.stat().st_size, file.sha256_from or "nothing"
    sha256 = file.sha256 or _sha256(whole, progress)
    # Write the record first: it is what makes a file without a known SHA-256 acceptable.
    record.add(file.name, FileRecord(url, size, sha256, checked, _now()), staging)
    whole.replace(path)
    return FetchedFile(path, size, sha256, checked, was_there=False)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _sha256(path: Path, progress: Progress) -> str:
    progress.stage(f"checking {path.name}", total=path.stat().st_size)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            progress.advance(len(chunk))
    return digest.hexdigest()


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Make and lock the hidden folder for unfinished files, and remove it at the end if it is empty."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / STAGING_NAME
    if staging.is_symlink():
        raise OutputError("is a link, which may point outside the folder", where=staging, hint="remove it")
    staging.mkdir(exist_ok=True)
    with lock_folder(staging, shown=folder):
        for path in staging.iterdir():
            # A killed run may leave joined parts or a record that it did not move into place. Pooch left tmp* and lock.
            if path.name.endswith(".whole") or path.name.startswith("tmp") or path.name in {RECORD_NAME, "lock"}:
                path.unlink()
        try:
            with cleanup_on_interrupt(lambda: _leave(staging, made)):
                yield staging
        finally:
            _leave(staging, made)


def _leave(staging: Path, made: bool) -> None:
    """Remove the hidden folder if it is empty, and then the output folder if it is empty and new."""
    if not any(staging.iterdir()):
        staging.rmdir()
        if made and not any(staging.parent.iterdir()):
            staging.parent.rmdir()
