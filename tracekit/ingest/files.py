"""Read the raw files of a source (a folder, a file or an archive) as streams, without unpacking them to disk.

The parts of a split file are joined under the name of the whole file. Files ending in .gz, .bz2, .xz and .zst lose this
suffix, even inside an archive. An archive inside an archive is not opened.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import hashlib
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby, pairwise
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from tracekit.errors import SourceError, TracekitError, UsageError
from tracekit.ingest.archives import Container, tar_members, zip_members
from tracekit.places import Address
from tracekit.places.reader import forget
from tracekit.settings import IngestSettings
from tracekit.streams import Inflated, joined
from tracekit.text import readable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from tracekit.streams import ByteStream


# Find the parts of split files by their names, and check that none is missing.
#
# Public traces that exceed a host's size limit are split. The PAI tables, for example, are
# pai_instance_table.tar.gz.partaa, .partab and so on.

_NAMED = re.compile(r"(?P<whole>.+)(?P<link>\.part[-_.]?)(?P<index>\d+|(?!ial$)[a-z]{2,3})")
_ENDINGS = "gz|tgz|zip|bz2|xz|tar|csv|tsv|txt|json|jsonl|log|swf"
_BARE = re.compile(rf"(?P<whole>.+\.(?:{_ENDINGS}))(?P<link>\.)(?P<index>\d{{2,}}|(?!(?:{_ENDINGS})$)[a-z]{{2,3}})")
_ARCHIVE = re.compile(r".+\.(?:gz|tgz|zip|bz2|xz|tar)")


class _Piece(NamedTuple):
    path: Path
    whole: str
    style: tuple[str, bool]
    """The file name before the part number, and whether the number is written in letters."""
    number: int


def find_parts(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Find the split files in one folder, and return each file's parts in order, by the path of the whole file.

    A name with `.part` before the number or letters is always a part. A name that just ends in a number or letters
    (`log.csv.001`, `log.csv.aa`) is a part only if a usual suffix comes before and the first part is present. After an
    archive suffix, a number always marks a part. Parts next to the whole file are ignored.

    Raises
    ------
    SourceError
        A part is missing, or one file's parts follow two naming schemes.
    """
    paths = list(paths)
    names = {path.name for path in paths}
    groups: dict[str, dict[tuple[str, bool], list[_Piece]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        piece = _piece(path)
        if piece is not None and piece.whole not in names:
            groups[piece.whole][piece.style].append(piece)
    found = {}
    for whole, styles in groups.items():
        kept = [sorted(group, key=lambda p: (p.number, p.path.name)) for group in styles.values() if _is_meant(group)]
        if not kept:
            continue
        if len(kept) > 1:
            raise _two_ways(whole, kept[0][0], kept[1][0])
        _refuse_gaps(whole, kept[0])
        found[kept[0][0].path.with_name(whole)] = [piece.path for piece in kept[0]]
    return found


def _piece(path: Path) -> _Piece | None:
    match = _NAMED.fullmatch(path.name) or _BARE.fullmatch(path.name)
    if match is None:
        return None
    index = match["index"]
    letters = not index.isdecimal()
    number = reduce(lambda value, letter: value * 26 + ord(letter) - ord("a"), index, 0) if letters else int(index)
    return _Piece(path, match["whole"], (match["link"], letters), number)


def _is_meant(group: list[_Piece]) -> bool:
    """Return whether files with these names are parts. Names of rotated logs also end in numbers."""
    link, letters = group[0].style
    if link != "." or (not letters and _ARCHIVE.fullmatch(group[0].whole)):
        return True
    return min(piece.number for piece in group) <= (0 if letters else 1)


def _refuse_gaps(whole: str, group: list[_Piece]) -> None:
    if group[0].number > (0 if group[0].style[1] else 1):
        raise _missing(whole, group, f"the first one present is '{group[0].path.name}'")
    for before, after in pairwise(group):
        if before.number == after.number:
            raise _two_ways(whole, before, after)
        if before.number + 1 != after.number:
            raise _missing(whole, group, f"'{before.path.name}' is followed by '{after.path.name}'")


def _missing(whole: str, group: list[_Piece], why: str) -> SourceError:
    return SourceError(f"a part of '{whole}' is missing: {why}", where=group[0].path.parent, hint="fetch all its parts")


def _two_ways(whole: str, one: _Piece, other: _Piece) -> SourceError:
    return SourceError(
        f"the parts of '{whole}' have two naming schemes: '{one.path.name}' and '{other.path.name}'",
        where=one.path.parent,
        hint="keep the parts of only one file",
    )


_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_BUFFER = 1 << 20
_UTF_16 = {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
_DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class SourceFile:
    """One raw file of a source."""

    path: str
    """POSIX path relative to the source. The path of an archive member begins with the archive's name. Bytes that are
    not UTF-8 are escaped by `tracekit.text.readable_name`.
    """
    size: int
    """Size of the content, or of the compressed file if that is unknown [bytes]."""
    origin: Path
    """The file on disk that contains the raw file, or the first part of a split file."""
    opener: Callable[[], AbstractContextManager[ByteStream]]
    """Opens the content as an unbuffered stream."""
    note: str = ""
    """Note for the user about the file's origin, or '' if no note is needed."""
    apart: bool = True
    """Whether it is a file on disk outside any archive, which another process can read."""

    @property
    def name(self) -> str:
        """Last component of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> str:
        """Name of the folder that contains the file, or '' at the top level of the source."""
        return PurePosixPath(self.path).parent.name

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the content as a stream of bytes.

        Raises
        ------
        SourceError
            The file cannot be read, or its compressed data is damaged. This may also be raised later, while the stream
            is read.
        """
        with ExitStack() as stack:
            with read_errors(self.path):
                stream = stack.enter_context(self.opener())
            yield io.BufferedReader(_Checked(stream, self.path), _BUFFER)

    def head(self, size: int = 65_536) -> bytes:
        """Return the first bytes of the content.

        Raises
        ------
        SourceError
            The file cannot be read.
        """
        with self.open() as stream:
            return stream.read(size)

    def peek(self, size: int = 65_536) -> bytes | None:
        """Return the first bytes of the content, or None if it cannot be read (its reader will report why)."""
        try:
            return self.head(size)
        except SourceError:
            return None


class _Checked(io.RawIOBase):
    """A stream that turns read failures into SourceErrors. Other errors pass unchanged."""

    def __init__(self, stream: ByteStream, path: str) -> None:
        super().__init__()
        self._stream, self._path = stream, path
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader hands out no other kind
        with read_errors(self._path):
            count = self._stream.readinto(buffer) or 0
        if not self._begun and bytes(buffer[:2]) in _UTF_16 and count > 1:
            raise SourceError("is UTF-16 text", where=self._path, hint="convert it with 'iconv -f UTF-16 -t UTF-8'")
        self._begun = True
        return count


@contextmanager
def read_errors(path: str | Path) -> Iterator[None]:
    """Raise a clear SourceError if reading `path` fails."""
    try:
        yield
    except TracekitError:
        raise
    except PermissionError as error:
        raise SourceError("cannot be read: permission denied", where=path, hint="check its permissions") from error
    except _DAMAGE as error:
        # Some libraries put damaged bytes into their messages.
        raise SourceError(f"the archive is damaged: {str(error)[:200]}", where=path, hint="fetch it again") from error
    except NotImplementedError as error:
        raise SourceError(f"the archive cannot be read: {error}", where=path, hint="unpack it by hand") from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # a damaged archive that points outside itself
            what = "the archive is damaged: it points outside itself"
            raise SourceError(what, where=path, hint="fetch it again") from error
        raise SourceError(f"cannot be read: {error.strerror or error}", where=path, hint="check the disk") from error


def source_files(source: Path, max_inflation: float = IngestSettings.max_inflation) -> list[SourceFile]:
    """List the raw files of a source, ordered by path. Archives are replaced by their members.

    Parameters
    ----------
    source : Path
        A folder, a file, an archive, or one part of a split file, whose other parts are then also read.
    max_inflation : float
        Maximum number of decompressed bytes per compressed byte. Content below 64 MiB is always read.

    Raises
    ------
    SourceError
        The source does not exist, is empty, is incomplete, cannot be read, or contains a damaged or unsafe archive.
    UsageError
        `max_inflation` is below 1.
    """
    if not max_inflation >= 1:
        raise UsageError(f"{max_inflation} is too small", where="--max-inflation", hint="give a number of at least 1")
    if not source.exists():
        raise SourceError("no such file or folder", where=source)
    if isinstance(source, Address):
        forget(source)
    if source.is_file():
        found = _single(source, max_inflation)
    else:
        found = []
        for folder, paths in groupby(_walk(source), key=lambda path: path.parent):
            prefix = "" if folder == source else f"{folder.relative_to(source).as_posix()}/"
            found += _in_folder(list(paths), prefix, max_inflation)
    if not found:
        raise SourceError("contains no files", where=source, hint="name the folder with the raw log files")
    path, count = Counter(file.path for file in found).most_common(1)[0]
    if count > 1:
        raise SourceError(
            f"'{path}' occurs {count} times, with different compression", where=source, hint="keep one of them"
        )
    return sorted(found, key=lambda f: f.path)


def _walk(folder: Path) -> Iterator[Path]:
    if isinstance(folder, Address):
        yield from folder.files_below()
        return

    def refuse(error: OSError) -> None:
        raise SourceError(f"cannot be read: {error.strerror}", where=error.filename, hint="check its permissions")

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            if not name.startswith(".") and path.is_file():
                yield path


def _single(source: Path, max_inflation: float) -> list[SourceFile]:
    """Return the files of a source that is a single file, or one part of a split file."""
    if (piece := _piece(source)) is not None:
        with read_errors(source):
            neighbours = sorted(path for path in source.parent.iterdir() if path.is_file())
        same = [path for path in neighbours if (other := _piece(path)) is not None and other.whole == piece.whole]
        for whole, parts in find_parts(same).items():
            if source in parts:
                return _joined(whole.name, parts, max_inflation)
    return _whole(source.name, [source], max_inflation)


def _in_folder(paths: list[Path], prefix: str, max_inflation: float) -> list[SourceFile]:
    split = find_parts(paths)
    pieces = {piece for parts in split.values() for piece in parts}
    found = [f for whole, parts in split.items() for f in _joined(prefix + whole.name, parts, max_inflation)]
    return found + [f for p in paths if p not in pieces for f in _whole(prefix + p.name, [p], max_inflation)]


def _joined(path: str, parts: list[Path], max_inflation: float) -> list[SourceFile]:
    note = f"{path} is read from its {len(parts)} parts, {parts[0].name} to {parts[-1].name}"
    return [replace(file, note=note) for file in _whole(path, parts, max_inflation)]


def _whole(path: str, pieces: list[Path], max_inflation: float) -> list[SourceFile]:
    """Return the members of an archive, or the file itself. Both may be split into parts.

    `path` is relative to the source.
    """
    with read_errors(path):
        size = sum(piece.stat().st_size for piece in pieces)
    # Another process that reads the file may have another working directory.
    pieces = [piece.absolute() for piece in pieces]
    opener = partial(joined, pieces) if len(pieces) > 1 else partial(_plain, pieces[0])
    container = Container(path, size, max_inflation, opener)
    lower = path.lower()
    if lower.endswith((*_TAR, ".zip")):
        with read_errors(path):
            members = tar_members(container) if lower.endswith(_TAR) else zip_members(container)
        files = [
            SourceFile(readable_name(f"{path}/{member.name}"), member.size, pieces[0], member.opener, apart=False)
            for member in members
        ]
    else:
        files = [SourceFile(readable_name(path), size, pieces[0], opener)]
    return [_unpacked(file, container.limit) for file in files]


def _plain(path: Path) -> io.FileIO:
    return path.open("rb", buffering=0)


def _unpacked(file: SourceFile, limit: float) -> SourceFile:
    """Replace a compressed file by its content, named without the suffix. Return any other file unchanged."""
    stem, dot, ending = file.path.rpartition(".")
    if dot + ending.lower() not in _COMPRESSED or file.path.lower().endswith(_TAR):
        return file
    return replace(file, path=stem, opener=partial(_inflated, file.opener, file.path, limit))


@contextmanager
def _inflated(
    opener: Callable[[], AbstractContextManager[ByteStream]], path: str, limit: float
) -> Iterator[ByteStream]:
    with opener() as packed:
        yield Inflated(packed, path, limit)


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

    def read(self, size: int = _BUFFER) -> bytes:
        """Return the next bytes, or b'' at the end."""
        chunk = self._stream.read(size)
        if self._job is not None:
            self._job.result()
        self._job = self._pool.submit(self._hash.update, chunk)
        self.bytes += len(chunk)
        self._advance(len(chunk))
        return chunk

    def finish(self) -> str:
        """Read the rest, and return the SHA-256 of the whole content as hexadecimal text."""
        while self.read():
            pass
        self._pool.shutdown(wait=True)
        return self._hash.hexdigest()
