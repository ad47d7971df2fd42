"""Addresses of objects in a store, which behave as paths for reading."""

from __future__ import annotations

import io
import re
import stat
from fnmatch import fnmatchcase
from os import stat_result
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, NoReturn

from tracekit.errors import OutputError, StoreError, UsageError
from tracekit.places.reader import ObjectReader
from tracekit.places.stores import entries, look

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Base = Path
else:
    _Base = type(Path())  # this system's path class: Path itself cannot be subclassed before Python 3.12


SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "hdfs": "hdfs",
}
"""The kind of store for each address scheme."""

_BEGIN = re.compile(rf"(?P<scheme>{'|'.join(SCHEMES)}):(?P<slashes>/+)(?P<rest>.*)", re.DOTALL | re.IGNORECASE)
_WRITE = "write to disk, and copy it with your store's own tool"
_DEFAULT = "default"
"""Host for hdfs:///path: the one in the Hadoop configuration."""
_MOST_FILES = 100_000
"""Maximum number of files in one source or folder."""


class Address(_Base):
    """The address of an object in a store, such as s3://bucket/key. `place_of` creates it.

    It supports all path operations on names (`name`, `parent`, `/`, ...), but of the file operations only reading.
    """

    listed: int | None = None
    """Size of the object in its folder's listing [bytes], or None for an address that was typed in."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Include the size: another process may read the object."""
        return _with_size, (self.parts, self.listed)

    @property
    def scheme(self) -> str:
        """The scheme as given, such as s3a."""
        return self.parts[0].removesuffix(":")

    @property
    def store(self) -> str:
        """The kind of store, which is s3, gs, az or hdfs."""
        return SCHEMES[self.scheme]

    @property
    def bucket(self) -> str:
        """Bucket, container (with the account after an @), or host of the store."""
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        """Name of the object within the bucket, or '' for the bucket itself."""
        return "/".join(self.parts[2:])

    def __str__(self) -> str:
        scheme, *names = self.parts or (".",)
        return f"{scheme}//{'/'.join(names)}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise StoreError(
            "is in an object store, but this needs a file on disk", where=str(self), hint="copy it to a disk"
        )

    def relative_to(self, *other: str | PurePath, **_: Any) -> Path:  # type: ignore[override]  # a relative path has no scheme
        """Return the relative path from a folder in the same store to this object. The result is not an address.

        Raises
        ------
        ValueError
            The object is not below the folder.
        """
        folder = place_of(Path(*other)).parts
        if self.parts[: len(folder)] != folder:
            raise ValueError(f"{self} is not below {'/'.join(folder)}")
        return Path(*self.parts[len(folder) :])

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether the object exists, or whether objects exist below this name."""
        del follow_symlinks  # stores have no links
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether an object with this name exists."""
        del follow_symlinks
        return bool(look(self).is_file)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether objects exist below this name."""
        del follow_symlinks
        return bool(look(self).type.name == "Directory")

    def is_symlink(self) -> bool:
        """Return False, because stores have no links."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> stat_result:
        """Return the object's size and the time of its last change.

        Raises
        ------
        StoreError
            The object does not exist, or the store does not respond.
        """
        del follow_symlinks
        found = look(self)
        if not found.is_file and found.type.name != "Directory":
            raise StoreError("no such object", where=str(self))
        mode = (stat.S_IFREG if found.is_file else stat.S_IFDIR) | 0o444
        changed = int(found.mtime.timestamp()) if found.mtime is not None else 0
        return stat_result((mode, 0, 0, 1, 0, 0, found.size or 0, changed, changed, 0))

    def iterdir(self) -> Iterator[Address]:  # type: ignore[override]  # a narrower type than Path's before 3.12
        """Yield the names directly below this name.

        Raises
        ------
        StoreError
            No object exists below this name, or the store does not respond.
        """
        yield from (_listed(self, entry) for entry in entries(self))

    def rglob(self, pattern: str, **_: Any) -> Iterator[Address]:  # type: ignore[override]  # as in iterdir
        """Yield the files below this name, including hidden ones, whose names match a pattern.

        Raises
        ------
        StoreError
            The store does not respond.
        """
        if not self.is_dir():
            return
        for entry in entries(self):
            if not entry.is_file:
                yield from (self / entry.base_name).rglob(pattern)
            elif fnmatchcase(entry.base_name, pattern):
                yield _listed(self, entry)

    def files_below(self) -> list[Address]:
        """Return all files below this name, except files hidden by a leading dot, folder by folder in name order.

        Raises
        ------
        StoreError
            The folder has more than 100,000 files, or the store does not respond.
        """
        found: list[Address] = []
        folders = [self]
        while folders:
            folder = folders.pop()
            below: list[Address] = []
            for entry in entries(folder):
                if not entry.base_name.startswith("."):
                    (found if entry.is_file else below).append(_listed(folder, entry))
            folders += reversed(below)
            if len(found) > _MOST_FILES:
                raise StoreError(f"has more than {_MOST_FILES:,} files", where=str(self), hint="name a deeper folder")
        return found

    def open(  # type: ignore[override]  # it opens files only for reading bytes
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the object for reading. Without `buffering`, return a raw stream that reads ahead.

        Raises
        ------
        StoreError
            The object does not exist, or the store does not respond. This can also happen while the stream is read.
        OutputError
            The mode is for writing.
        """
        if not set(mode) <= set("rbt"):
            refuse_remote(self)
        raw = ObjectReader(self, ahead=True)
        if buffering == 0:
            return raw  # type: ignore[return-value]  # a raw stream is an IO, although typeshed does not say so
        stream = io.BufferedReader(raw, 1 << 20)
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", errors, newline)

    def read_bytes(self) -> bytes:
        """Return the content of the object.

        Raises
        ------
        StoreError
            The object does not exist, or the store does not respond.
        """
        with self.open("rb") as stream:
            return bytes(stream.read())

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return the content of the object as text, which is UTF-8 by default."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as stream:
            return str(stream.read())

    def resolve(self, strict: bool = False) -> Address:
        """Return the address itself, because stores have no links."""
        del strict
        return self

    absolute = expanduser = resolve

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> NoReturn:
        """Raise an error, because addresses are read-only.

        Raises
        ------
        OutputError
            Always.
        """
        del mode, parents, exist_ok
        _refuse(self)


def _listed(folder: Address, entry: Any) -> Address:
    """Return the address of an entry in a folder's listing, given as a `pyarrow.fs.FileInfo`."""
    return _with_size((*folder.parts, entry.base_name), entry.size if entry.is_file else None)


def _with_size(parts: tuple[str, ...], size: int | None) -> Address:
    found = Address(*parts)
    found.listed = size
    return found


def is_remote(path: str | PurePath) -> bool:
    """Return whether a path is an address in a store, including pathlib's spelling s3:/bucket/key.

    Examples
    --------
    >>> is_remote("s3://bucket/key"), is_remote("logs/s3"), is_remote("https://host/file")
    (True, False, False)
    """
    return isinstance(path, Address) or _BEGIN.fullmatch(str(path)) is not None


def place_of(path: str | PurePath) -> Path:
    """Return the path on disk, or the address in a store, that a string or path refers to.

    Raises
    ------
    UsageError
        An address has no bucket, contains credentials, or is not a valid name in every store.

    Examples
    --------
    >>> place_of("s3://bucket/logs/"), str(place_of(Path("s3://bucket/logs") / "a.csv"))
    (Address('s3://bucket/logs'), 's3://bucket/logs/a.csv')
    """
    if isinstance(path, Address):
        return path
    match = _BEGIN.fullmatch(str(path))
    if match is None:
        return Path(path)
    scheme, rest = match["scheme"].lower(), match["rest"]
    if scheme == "hdfs" and match["slashes"] == "///":
        rest = f"{_DEFAULT}/{rest}"
    bucket, _, key = rest.partition("/")
    # A rejected address may contain a secret, so show no part of it.
    if "?" in rest:
        what = "an address cannot have parameters, because a store's settings come from the environment"
        raise UsageError(what, where=f"{scheme}://...", hint="leave out '?' and everything after it")
    account = scheme in {"abfs", "abfss"} and ":" not in bucket and bucket.count("@") == 1
    if "@" in bucket and not account:
        what = "an address cannot have credentials, which come from the environment"
        raise UsageError(what, where=f"{scheme}://...", hint="leave out the part before '@'")
    if not bucket:
        raise UsageError("has no bucket", where=f"{scheme}://", hint=f"write it as {scheme}://BUCKET/FOLDER")
    parts = key.rstrip("/").split("/") if key else []
    if any(part in {"", ".", ".."} for part in parts) or not f"{bucket}{key}".isprintable():
        what = "has an empty name, '.' or '..' between two slashes, or a nonprintable character"
        raise UsageError(what, where=f"{scheme}://{bucket}/{key}"[:200], hint="give the objects other names")
    return Address(f"{scheme}:", bucket, *parts)


def remote_form(text: str) -> str:
    """Return `text` in a form that is safe to show, that is, an address in a store without possible secrets.

    Examples
    --------
    >>> remote_form("s3://id:secret@bucket/key"), remote_form("my-trace"), remote_form("s3://bucket/key")
    ('s3://...', 'my-trace', 's3://bucket/key')
    """
    if not is_remote(text):
        return text
    try:
        return str(place_of(text))
    except UsageError:
        return f"{text.partition(':')[0]}://..."


def refuse_remote(*targets: Path) -> None:
    """Reject targets in a store.

    Raises
    ------
    OutputError
        A target is an address in a store.
    """
    for target in targets:
        if is_remote(target):
            _refuse(target)


def _refuse(target: Path) -> NoReturn:
    raise OutputError(
        "is in an object store, which tracekit can only read", where=remote_form(str(target)), hint=_WRITE
    )
