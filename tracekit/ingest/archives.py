"""List the members of tar and zip archives, reject unsafe members, and read the others as streams.

A tar archive is read once to list its members. Each member is then read from its position. In a gzipped archive, the
data before the member is not decompressed again (see `tracekit.streams.Marks`). .tar.bz2, .tar.xz and .tar.zst archives
are decompressed from the beginning for every member.
"""

from __future__ import annotations

import stat
import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from tracekit.errors import SourceError
from tracekit.streams import Inflated, Marks, Window, decoder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tracekit.streams import ByteStream

INFLATION_FLOOR = 64 * 1024 * 1024
"""A decompressed size up to this limit is always allowed, even for a tiny archive [bytes]."""

_BLOCK = 512
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}


@dataclass(frozen=True)
class Container:
    """A file on disk, or several joined files. The content may be compressed."""

    path: str
    """Path shown in messages."""
    size: int
    """Size on disk [bytes]."""
    max_inflation: float
    """Maximum number of decompressed bytes per byte on disk."""
    opener: Callable[[], ByteStream]
    """Opens the file on disk as an unbuffered, seekable stream."""

    @property
    def limit(self) -> float:
        """Maximum size of the decompressed content [bytes]."""
        return max(INFLATION_FLOOR, self.size * self.max_inflation)

    def refuse_bomb(self, inflated: int) -> None:
        """Reject content that is larger than allowed.

        Raises
        ------
        SourceError
            The content is larger than allowed.
        """
        if inflated > self.limit:
            raise SourceError(
                f"decompresses to {inflated:,} bytes, more than {self.max_inflation:g} times its size",
                where=self.path,
                hint="raise --max-inflation if you trust it",
            )


@dataclass(frozen=True)
class Member:
    """A file in an archive: its path in the archive, its size, and how to open it."""

    name: str
    size: int
    opener: Callable[[], AbstractContextManager[ByteStream]]


def tar_members(container: Container) -> list[Member]:
    """List the files in a tar archive, which may be compressed.

    Raises
    ------
    SourceError
        The archive is damaged or truncated, decompresses to too many bytes, or has an unsafe entry.
    """
    marks = Marks()
    found = []
    inflated = 0
    with _tar_content(container, marks) as content, tarfile.open(fileobj=cast("IO[bytes]", content), mode="r:") as tar:
        for entry in tar:
            if entry.isdir():
                continue
            if not entry.isfile() or entry.issparse():
                kind = "sparse" if entry.issparse() else "a link or a device"
                raise _refused(container, entry.name, f"is {kind}", "unpack it by hand")
            inflated += entry.size
            container.refuse_bomb(inflated)
            if isinstance(content, Inflated):
                content.mark()
            found.append(Member(entry.name, entry.size, partial(_tar_member, container, marks, entry)))
        _refuse_rest(content, tar.offset, container)
    return _safe(found, container)


@contextmanager
def _tar_content(container: Container, marks: Marks) -> Iterator[ByteStream]:
    with container.opener() as raw:
        head = raw.read(_BLOCK) or b""
        raw.seek(0)
        yield raw if decoder_of(head) is None else Inflated(raw, container.path, container.limit, marks)


@contextmanager
def _tar_member(container: Container, marks: Marks, entry: tarfile.TarInfo) -> Iterator[ByteStream]:
    with _tar_content(container, marks) as content:
        yield Window(content, entry.offset_data, entry.size)


def _refuse_rest(content: ByteStream, offset: int, container: Container) -> None:
    """Reject an archive without an end mark, because `tarfile` does not report all of them."""
    content.seek(offset)
    if len(content.read(_BLOCK) or b"") < _BLOCK:
        raise SourceError("the archive is damaged: its end is missing", where=container.path, hint="fetch it again")
    content.seek(offset)
    while rest := content.read(1 << 20):
        if rest.strip(b"\0"):
            what = f"the archive is damaged: no header can be read at byte {offset:,}"
            raise SourceError(what, where=container.path, hint="fetch it again")


def zip_members(container: Container) -> list[Member]:
    """List the files in a zip archive.

    Raises
    ------
    SourceError
        The archive is damaged or decompresses to too many bytes, or an entry is unsafe, encrypted or uses an
        unsupported compression method.
    """
    found = []
    inflated = 0
    with container.opener() as raw, zipfile.ZipFile(cast("IO[bytes]", raw)) as archive:
        for entry in archive.infolist():
            name = entry.filename.replace("\\", "/")
            if name.endswith("/"):
                continue
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in {0, stat.S_IFREG}:
                raise _refused(container, entry.filename, "is a link or a device", "unpack it by hand")
            if entry.flag_bits & 1:
                raise _refused(container, entry.filename, "is encrypted", "unpack it by hand")
            if entry.compress_type not in _ZIP_METHODS:
                what = f"uses compression method {entry.compress_type}, which is not supported"
                raise _refused(container, entry.filename, what, "pack it again with deflate")
            inflated += entry.file_size
            container.refuse_bomb(inflated)
            found.append(Member(name, entry.file_size, partial(_zip_member, container, entry)))
    return _safe(found, container)


@contextmanager
def _zip_member(container: Container, entry: zipfile.ZipInfo) -> Iterator[ByteStream]:
    with container.opener() as raw, zipfile.ZipFile(cast("IO[bytes]", raw)) as archive, archive.open(entry) as stream:
        yield cast("ByteStream", stream)


def _safe(members: list[Member], container: Container) -> list[Member]:
    """Return the members, after checking that every path stays inside the archive and is unique."""
    seen = set()
    for member in members:
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
            raise _refused(container, member.name, "points outside the archive", "do not trust this file")
        if path in seen:
            raise _refused(container, member.name, "occurs twice", "unpack it by hand and keep one")
        seen.add(path)
    return members


def _refused(container: Container, name: str, what: str, hint: str) -> SourceError:
    return SourceError(f"the archive entry '{name}' {what}", where=container.path, hint=hint)
