"""The raw files of a source: a folder, a file, or an archive, read as streams and never unpacked to disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from tracekit.errors import SourceError, TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

__all__ = ["MAX_INFLATION", "HashingReader", "SourceFile", "source_files"]

MAX_INFLATION = 200
"""Most bytes that one compressed byte may become; text logs stay far below, bombs do not."""

_INFLATION_FLOOR = 64 * 1024 * 1024
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class SourceFile:
    """One raw file of a source.

    Attributes
    ----------
    path : str
        POSIX path relative to the source; a member of an archive follows the archive's name.
    size : int
        Bytes, of the content where that is known, else of the compressed file.
    origin : Path
        The file on disk that holds it.
    """

    path: str
    size: int
    origin: Path
    opener: Callable[[], AbstractContextManager[IO[bytes]]]

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> str:
        """Name of the folder that the file is in, '' at the top of the source."""
        return PurePosixPath(self.path).parent.name

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the content as a stream of bytes.

        Raises
        ------
        SourceError
            The file cannot be read, or its compression is damaged.
        """
        with read_errors(self.path), self.opener() as stream:
            yield stream

    def head(self, size: int = 65_536) -> bytes:
        """Return the first bytes of the content.

        Raises
        ------
        SourceError
            The file cannot be read.
        """
        with self.open() as stream:
            return stream.read(size)


@contextmanager
def read_errors(path: str | Path) -> Iterator[None]:
    """Turn the failures of reading `path` into one clear SourceError."""
    try:
        yield
    except TracekitError:
        raise
    except PermissionError as error:
        raise SourceError("cannot be read: permission denied", where=path, hint="check its permissions") from error
    except _DAMAGE as error:
        raise SourceError(f"the archive is damaged: {error}", where=path, hint="fetch it again") from error
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", where=path, hint="check the disk") from error


def source_files(source: Path) -> list[SourceFile]:
    """Return the raw files of a source, ordered by path; archives are listed by their members.

    Raises
    ------
    SourceError
        There is no such source, it is empty, cannot be read, or holds an archive that is damaged or unsafe.
    """
    if not source.exists():
        raise SourceError("no such file or folder", where=source)
    if source.is_file():
        found = _entries(source, source.name)
    else:
        found = []
        for path in _walk(source):
            found += _entries(path, path.relative_to(source).as_posix())
    if not found:
        raise SourceError("holds no files", where=source, hint="name the folder with the raw log files")
    return sorted(found, key=lambda f: f.path)


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise SourceError(f"cannot be read: {error.strerror}", where=error.filename, hint="check its permissions")

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            if not name.startswith(".") and path.is_file():
                yield path


def _entries(path: Path, shown: str) -> list[SourceFile]:
    lower = path.name.lower()
    with read_errors(shown):
        if lower.endswith(_TAR):
            return _tar_entries(path, shown)
        if lower.endswith(".zip"):
            return _zip_entries(path, shown)
        size = path.stat().st_size
    if lower.endswith(".gz"):
        return [SourceFile(shown[:-3], size, path, lambda: _limited(gzip.open(path, "rb"), size, shown))]
    return [SourceFile(shown, size, path, lambda: path.open("rb"))]


def _tar_entries(path: Path, shown: str) -> list[SourceFile]:
    found = []
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            if member.isdir():
                continue
            if not member.isfile():
                raise SourceError(
                    f"the archive entry '{member.name}' is a link or a device", where=shown, hint="unpack it by hand"
                )
            _refuse_climbing(member.name, shown)
            _refuse_bomb(member.size, path, shown)
            found.append(_tar_member(path, shown, member.name, member.size))
    return found


def _tar_member(path: Path, shown: str, name: str, size: int) -> SourceFile:
    @contextmanager
    def opener() -> Iterator[IO[bytes]]:
        with tarfile.open(path, "r:*") as archive:
            stream = archive.extractfile(name)
            if stream is None:
                raise SourceError(f"the archive entry '{name}' cannot be read", where=shown)
            with stream:
                yield stream

    return SourceFile(f"{shown}/{name}", size, path, opener)


def _zip_entries(path: Path, shown: str) -> list[SourceFile]:
    found = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            if (member.external_attr >> 16) & 0o170000 == 0o120000:
                raise SourceError(
                    f"the archive entry '{member.filename}' is a link", where=shown, hint="unpack it by hand"
                )
            if member.flag_bits & 1:
                raise SourceError(
                    f"the archive entry '{member.filename}' is encrypted", where=shown, hint="unpack it by hand"
                )
            _refuse_climbing(member.filename, shown)
            _refuse_bomb(member.file_size, path, shown)
            found.append(_zip_member(path, shown, member.filename, member.file_size))
    return found


def _zip_member(path: Path, shown: str, name: str, size: int) -> SourceFile:
    @contextmanager
    def opener() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
            yield stream

    return SourceFile(f"{shown}/{name}", size, path, opener)


def _refuse_climbing(name: str, shown: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or (parts and ":" in parts[0]):
        raise SourceError(
            f"the archive entry '{name}' climbs out of the archive", where=shown, hint="do not trust this file"
        )


def _refuse_bomb(inflated: int, path: Path, shown: str) -> None:
    allowed = max(_INFLATION_FLOOR, path.stat().st_size * MAX_INFLATION)
    if inflated > allowed:
        raise SourceError(
            f"inflates to {inflated:,} bytes, more than {MAX_INFLATION} times its size",
            where=shown,
            hint="unpack it by hand if you trust it",
        )


@contextmanager
def _limited(stream: IO[bytes] | gzip.GzipFile, compressed: int, shown: str) -> Iterator[IO[bytes]]:
    with stream:
        limit = max(_INFLATION_FLOOR, compressed * MAX_INFLATION)
        yield io.BufferedReader(_LimitedRaw(stream, limit, shown), 1 << 20)


class _LimitedRaw(io.RawIOBase):
    """Refuse to hand out more bytes than a compressed file may hold."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int, shown: str) -> None:
        super().__init__()
        self._stream, self._left, self._limit, self._shown = stream, limit, limit, shown

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise SourceError(
                f"inflates beyond {self._limit:,} bytes", where=self._shown, hint="unpack it by hand if you trust it"
            )
        buffer[: len(data)] = data
        return len(data)


class HashingReader:
    """Read a stream in chunks while a second thread computes its SHA-256.

    Attributes
    ----------
    bytes : int
        Bytes read so far.
    """

    def __init__(self, stream: IO[bytes], advance: Callable[[int], None]) -> None:
        self.bytes = 0
        self._stream = stream
        self._advance = advance
        self._hash = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tracekit-hash")
        self._job: Future[None] | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes, b'' at the end."""
        chunk = self._stream.read(size)
        if self._job is not None:
            self._job.result()
        self._job = self._pool.submit(self._hash.update, chunk)
        self.bytes += len(chunk)
        self._advance(len(chunk))
        return chunk

    def finish(self) -> str:
        """Read what is left, and return the SHA-256 of the whole content as hexadecimal text."""
        while self.read(1 << 20):
            pass
        self._pool.shutdown(wait=True)
        return self._hash.hexdigest()
