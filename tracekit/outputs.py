"""Write files and folders completely or not at all, and replace nothing unless asked to.

Output is written next to its target under the hidden name `.NAME.partial-PID`, which the writing process locks. The
last step renames it. A folder to be replaced is first renamed to `.NAME.old-PID`, because no system replaces a nonempty
folder. If a killed run leaves hidden folders behind, the next run that writes or reads the target restores the old
folder or removes them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tracekit.errors import OutputError, TracekitError
from tracekit.interruption import register_cleanup, remove_folder, uninterrupted, unregister_cleanup
from tracekit.places import is_remote, place_of, refuse_remote
from tracekit.text import is_text, passed_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


SPILL = "tracekit-spill-"
"""Prefix, before the process number, of the folder where DuckDB keeps data that does not fit in memory."""

FREE = "free space there, or set TMPDIR to another folder"
"""Hint for a full temporary folder."""

_ANOTHER = "choose another -o"
_FORCE = "choose another -o, or add --force to replace it"
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR}
"""Error numbers raised when a folder is renamed to a name in use."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""Error numbers raised when a file cannot be given a second name."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Error numbers of a full disk, an exhausted user quota, or a file that may not grow."""
_OF_SYSTEM = re.compile(r"[\[(](?:errno|os error) (\d+)[\])]")
"""Pattern of operating system error numbers in the messages of libraries."""
_SPILL_LIMIT = "max_temp_directory_size"
"""The setting that DuckDB names if the disk is too full for its intermediate results."""
_WORDS = ("IO Error", "Out of Memory Error", "got external error: IO Error", "got external error: Out of Memory Error")
"""Prefixes of DuckDB errors about memory or disk."""
_PARTIAL = re.compile(r"^\.(.+)\.partial-\d+$")
_TRIES = 100
_SWAP_S = 2.0
"""How long a folder can be absent while another run replaces it with two renames [s]."""


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Raise a clear OutputError if writing below `path` fails."""
    import duckdb
    from polars.exceptions import ComputeError

    try:
        yield
    except OutputError:
        raise
    except (OSError, duckdb.IOException, ComputeError) as error:
        if isinstance(error, ComputeError) and not _OF_SYSTEM.search(str(error)):
            raise  # not an operating system error
        hint = "choose another -o, or free its path"
        raise _spilled(error) or OutputError(
            f"cannot write: {_reason(error)}", where=final_place(path), hint=hint
        ) from error


def final_place(path: Path) -> Path:
    """Return the final path of a file or folder that is being written under a hidden name.

    Examples
    --------
    >>> final_place(Path("reports/.monday.partial-4711/report.pdf"))
    PosixPath('reports/monday/report.pdf')
    """
    return Path(*(_PARTIAL.sub(r"\1", part) for part in path.parts))


def full_disk(error: BaseException) -> OutputError | None:
    """Return the OutputError if a full disk caused a failure in any library, or None if not."""
    import duckdb
    from polars.exceptions import ComputeError

    met: list[BaseException] = []  # an error that DuckDB passes on may be its own cause
    while isinstance(error, TracekitError):
        if isinstance(error, OutputError):
            return error
        if error.__cause__ is None or error in met:
            return None
        met.append(error)
        error = error.__cause__
    text = str(error)
    if isinstance(error, OSError):
        full = error.errno in _FULL or _number_of(text) in _FULL
    elif isinstance(error, ComputeError | duckdb.IOException | duckdb.OutOfMemoryException):
        # Polars also passes on DuckDB's messages. Messages of other errors may quote a log.
        quotes = isinstance(error, ComputeError) and not text.startswith(_WORDS)
        said = _SPILL_LIMIT in text or any(os.strerror(code) in text for code in _FULL)
        full = _number_of(text) in _FULL if quotes else said
    else:
        full = False
    if not full:
        return None
    name = getattr(error, "filename", None)
    place = final_place(Path(name)) if isinstance(name, str) else Path(tempfile.gettempdir())
    return _spilled(error) or OutputError(f"cannot write: {_reason(error)}", where=place, hint=FREE)


def _spilled(error: BaseException) -> OutputError | None:
    """Return the error for a temporary folder without enough space for DuckDB."""
    text = str(error)
    if _SPILL_LIMIT not in text and SPILL not in text:
        return None
    what = "cannot write data that does not fit in memory to disk"
    if _SPILL_LIMIT not in text:
        what += f": {_reason(error)}"
    return OutputError(what, where=tempfile.gettempdir(), hint=f"{FREE}, or raise --memory-limit")


def _reason(error: BaseException) -> str:
    """Return why a write failed, in the operating system's words if the library has them."""
    text = str(error)
    code = getattr(error, "errno", None) or _number_of(text)
    known = next((os.strerror(one) for one in sorted(_FULL) if os.strerror(one) in text), None)
    return os.strerror(code) if code else known or passed_on(text, 200)


def _number_of(text: str) -> int | None:
    """Return the operating system error number contained in a library's message."""
    found = _OF_SYSTEM.search(text)
    return int(found[1]) if found else None


class StagedFolder:
    """A folder that is given its final name only when it is complete.

    Parameters
    ----------
    target : Path
        Final path of the folder.
    force : bool
        Whether to replace an existing folder of the same kind.
    marker : str, optional
        File that identifies a folder of this kind, so that `force` never removes any other folder. Without it, the
        folder never gets the name `target`, which is the name of a file made in it.
    kind : str
        Name of the kind in messages.

    Raises
    ------
    OutputError
        The target exists already, another run is writing it, or it cannot be written.
    """

    def __init__(self, target: Path, *, force: bool, marker: str | None, kind: str) -> None:
        refuse_remote(target)
        self.target = Path(os.path.abspath(target))  # noqa: PTH100 -- resolve() would follow a link that is to be replaced
        self._marker, self._kind, self._force = marker, kind, force
        if not is_text(str(self.target)):
            what = "its path is not UTF-8, which Parquet writers require"
            raise OutputError(what, where=self.target, hint=_ANOTHER)
        with output_errors(self.target):
            if marker is not None:
                recover(self.target, marker)
                self._check_target(force)
                if self.target.is_symlink() and _is_empty(self.target):
                    self.target = Path(os.path.realpath(self.target))  # the link stays, its target becomes the folder
            self.target.parent.mkdir(parents=True, exist_ok=True)
            _clear_partials(self.target)
            with uninterrupted():  # an interruption finds either no folder or one that it can remove
                self.path, self._lock = _make_locked_folder(_hidden(self.target, "partial"))
                self._key = register_cleanup(lambda: remove_folder(self.path))

    def _check_target(self, force: bool) -> None:
        if not os.path.lexists(self.target) or _is_empty(self.target):
            return
        if self._marker is None or not (self.target / self._marker).is_file():
            raise OutputError(
                f"exists and is not {self._kind}, so it will not be replaced", where=self.target, hint=_ANOTHER
            )
        if not force:
            raise OutputError("exists already", where=self.target, hint=_FORCE)

    def commit(self) -> None:
        """Rename the folder to its final name.

        Raises
        ------
        OutputError
            Another run has written the target in the meantime and `force` is not set, or the target cannot be written.
        """
        with output_errors(self.target), uninterrupted():
            if self._force:
                self._replace()
            elif not _renamed(self.path, self.target):
                raise OutputError("another run wrote it in the meantime", where=self.target, hint=_FORCE)
        self._release()

    def _replace(self) -> None:
        for _ in range(_TRIES):
            old = None
            # The target may have changed since it was checked.
            self._check_target(force=True)
            try:
                with contextlib.suppress(FileNotFoundError):  # the folder may have been removed
                    old = _set_aside(self.target)
                if _renamed(self.path, self.target):
                    return
            finally:
                if old is not None and os.path.lexists(self.target):
                    _remove(old)
                elif old is not None:
                    old.rename(self.target)
        raise OutputError("other runs keep writing it", where=self.target, hint=_ANOTHER)

    def discard(self) -> None:
        """Remove everything that was written."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        unregister_cleanup(self._key)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class StagedFiles:
    """Files that get their final names only when all are complete; the first is renamed last.

    Use it as a context manager. Leaving the block without `commit` removes everything.

    Parameters
    ----------
    *targets : Path
        Final paths of the files, all in existing folders.
    force : bool
        Whether to replace existing files.

    Raises
    ------
    OutputError
        A target exists already, another run is writing it, or it cannot be written.
    """

    def __init__(self, *targets: Path, force: bool) -> None:
        self._targets, self._force = targets, force
        self._parts: dict[Path, Path] = {}
        self._locks: list[int] = []
        self._key = register_cleanup(self._remove_parts)
        try:
            check_files(*targets, force=force)
            for target in targets:
                with output_errors(target):
                    _clear_partials(target)
                    self._parts[target] = part = _hidden(target, "partial")
                    part.unlink(missing_ok=True)
                    part.touch(exist_ok=False)
                    lock = _lock_path(part)
                self._locks += [] if lock is None else [lock]
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def part(self, target: Path) -> Path:
        """Return the path at which a file is written until it is complete."""
        return self._parts[target]

    def commit(self) -> None:
        """Rename the files to their final names.

        Raises
        ------
        OutputError
            Another run has written one of the files in the meantime and `force` is not set, or a file cannot be
            written.
        """
        place_files([(self._parts[target], target) for target in reversed(self._targets)], force=self._force)

    def _end(self) -> None:
        self._remove_parts()
        unregister_cleanup(self._key)
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _remove_parts(self) -> None:
        for part in self._parts.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def check_files(*targets: Path, force: bool) -> None:
    """Check that files can be written, before long-running work.

    Raises
    ------
    OutputError
        A target exists and must not be replaced.
    """
    refuse_remote(*targets)
    for path in targets:
        if path.is_dir():
            raise OutputError("is a folder", where=path, hint=_ANOTHER)
        if path.exists() and not path.is_file():
            raise OutputError(
                "is not a regular file, so it will not be replaced", where=path, hint="choose another -o; '-' is stdout"
            )
        if os.path.lexists(path) and not force:
            raise OutputError("exists already", where=path, hint=_FORCE)


def place_files(pairs: list[tuple[Path, Path]], *, force: bool) -> None:
    """Rename complete files in the given order. Without `force`, rename all or none.

    Parameters
    ----------
    pairs : list of (Path, Path)
        Pairs of a complete file and its final name, which must be on the same file system.
    force : bool
        Whether to replace existing files.

    Raises
    ------
    OutputError
        A name is in use and `force` is not set, or a file cannot be written.
    """
    placed: list[Path] = []
    with uninterrupted():
        for part, target in pairs:
            try:
                with output_errors(target):
                    if force:
                        part.replace(target)
                        continue
                    if not _linked(part, target):
                        raise OutputError("another run wrote it in the meantime", where=target, hint=_FORCE)
            except BaseException:
                for path in placed:
                    path.unlink(missing_ok=True)
                raise
            placed.append(target)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that never changes a second name by a hard link, or a copy if there are no links.

    Symbolic links are followed: the result must stay complete after the source is removed.
    """
    try:
        os.link(real_path(source), target)
    except OSError:
        shutil.copyfile(source, target)


def real_path(path: Path) -> Path:
    """Return the path with links resolved. A loop of links is kept, so that opening it raises the error."""
    return place_of(path) if is_remote(path) else Path(os.path.realpath(path))


def recover(target: Path, *markers: str) -> None:
    """Restore a folder that a killed run was replacing, or remove it if the target exists.

    Parameters
    ----------
    *markers : str
        Marker files, one of which every complete folder contains.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100 -- the link itself instead of its target
    with contextlib.suppress(OSError):  # without write permission, the target is left unchanged
        if not (aside := _leftovers(target, "old")):
            return
        until = time.monotonic() + _SWAP_S
        while any(_is_locked(part) for part in _leftovers(target, "partial")):
            if os.path.lexists(target) or time.monotonic() > until:
                return  # another run is replacing it
            time.sleep(0.02)
        for old in sorted(aside, key=lambda path: path.lstat().st_mtime, reverse=True):
            if os.path.lexists(target):
                _remove(old)
            elif any((old / marker).is_file() for marker in markers):
                old.rename(target)


@contextlib.contextmanager
def lock_folder(folder: Path, *, shown: Path) -> Iterator[None]:
    """Lock a folder that only one run at a time may add to. Messages call it `shown`.

    Raises
    ------
    OutputError
        Another run has locked it.
    """
    lock = _lock_path(folder, wait=False)
    if lock is None and _is_locked(folder):
        raise OutputError("another run is writing it", where=shown, hint="wait for it, or choose another -o")
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _hidden(target: Path, what: str) -> Path:
    """Return the hidden name next to a target, cut if it would exceed the length limit of names."""
    name = target.name
    while len(os.fsencode(name)) > 200:
        name = name[:-1]
    return target.with_name(f".{name}.{what}-{os.getpid()}")


def _leftovers(target: Path, what: str) -> list[Path]:
    """Return the hidden paths for `what` next to a target, from both running and dead processes."""
    if not target.name or not target.parent.is_dir():
        return []
    pattern = re.compile(re.escape(_hidden(target, what).name.rpartition("-")[0]) + r"-\d+")
    with os.scandir(target.parent) as entries:
        return [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]


def _clear_partials(target: Path) -> None:
    """Remove unfinished output of dead runs.

    Raises
    ------
    OutputError
        Another run is writing the target.
    """
    for part in _leftovers(target, "partial"):
        if _is_locked(part):
            raise OutputError("another run is writing it", where=target, hint="wait for it, or choose another -o")
        if not _alive(part):
            _remove(part)


def _renamed(path: Path, target: Path) -> bool:
    """Rename a folder, or return False if the name is in use by anything except an empty folder."""
    try:
        path.rename(target)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _linked(part: Path, target: Path) -> bool:
    """Give a file a new name, and return whether the name was free."""
    try:
        os.link(part, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            target.touch(exist_ok=False)
        except FileExistsError:
            return False
        part.replace(target)
    return True


def _set_aside(target: Path) -> Path:
    old = _hidden(target, "old")
    _remove(old)
    target.rename(old)
    return old


def _remove(path: Path) -> None:
    """Remove a hidden folder, link or file."""
    if path.is_dir() and not path.is_symlink():
        # A partly removed folder must not look restorable.
        gone = path.with_name(path.name.replace(".old-", ".partial-")) if ".old-" in path.name else path
        with contextlib.suppress(OSError):
            path = path.rename(gone) if gone != path and not os.path.lexists(gone) else path
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _make_locked_folder(path: Path) -> tuple[Path, int | None]:
    """Make a folder and lock it for this process."""
    for _ in range(_TRIES):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        with contextlib.suppress(FileNotFoundError):  # another run may remove it before it is locked
            lock = _lock_path(path)
            if path.is_dir():
                return path, lock
            if lock is not None:
                os.close(lock)
    raise OSError(errno.EBUSY, "other runs remove the files of this run")


def _lock_path(path: Path, *, wait: bool = True) -> int | None:
    """Lock a file or folder until the returned descriptor is closed. Return None without support for locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(lock)
        return None
    return lock


def _is_locked(path: Path) -> bool:
    """Return whether a run has locked a file or folder, which is never so without support for locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(lock)


def _alive(path: Path) -> bool:
    """Return whether the process whose number is in a hidden name is running, unless it is this process."""
    number = int(path.name.rpartition("-")[2])
    if number == os.getpid():
        return False
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # the process is running and belongs to another user
        return True
    return True
