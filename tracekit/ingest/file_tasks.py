"""Read files one by one: here, or each in a task of other machines.

What a task makes of its file is kept beside the Trace until this process takes it over, in the order of the files
(`tracekit.ingest.recorded`), so that a Trace does not tell who has read what. The tasks write into the hidden folder in
which the Trace is made, which every machine has to see at the same path: it goes when the Trace appears, or with a run
that fails. A task that is begun again, since its machine was lost, writes under another name, and what it returns says
which one counts.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from tracekit.errors import OutputError, SourceError, TracekitError, UsageError
from tracekit.ingest.files import read_errors
from tracekit.ingest.recorded import RecordingSink, take_over
from tracekit.text import counted
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.sink import Sink

__all__ = ["SHARE", "read_each", "unfit"]

K = TypeVar("K")
T = TypeVar("T")

SHARE = "every machine has to see the files and the folder of -o at the same path"


def read_each(
    files: Sequence[tuple[K, SourceFile]], read: Callable[[K, SourceFile, Sink], Iterator[T]], sink: Sink
) -> Iterator[T]:
    """Yield what `read` yields for each file, in the order given.

    Parameters
    ----------
    files : sequence of (key, SourceFile)
        The files, each with what `read` has to know of it.
    read : function (key, file, sink) -> iterator
        Reads one file, knowing nothing of the others. It is pickled, with what it is bound to, and may use of the sink
        its options, `opened`, `write`, and what counts and notes. It yields frames or samples.

    Raises
    ------
    SourceError
        A file cannot be read.
    OutputError
        The disk is full where a task writes.
    """
    if sink.workers is None:
        for key, file in files:
            yield from read(key, file, sink)
        return
    inside = [file.path for _, file in files if not file.apart]
    if inside:
        sink.progress.note(
            f"read on this machine, since a task reads no archive: {counted(len(inside), 'files')} such as "
            f"{inside[0]}; unpack them before"
        )
    folder = sink.writer.scratch / "tasks"
    folder.mkdir(exist_ok=True)
    work = _FileTask(read, folder, sink.writer.target, sink.options, sink.memory_limit)
    given = [(key, file, _size(file)) for key, file in files if file.apart]
    with closing(sink.workers.in_order(work, given)) as done:
        for key, file in files:
            if not file.apart:
                yield from read(key, file, sink)
                continue
            sink.progress.stage(f"waiting for {file.path}, which a task reads")
            made = next(done)
            if isinstance(made, TracekitError):
                raise made
            sink.progress.stage(f"taking over {file.path}")
            yield from _taken(folder / made.name, made, sink)


def _size(file: SourceFile) -> int:
    with read_errors(file.path):
        return file.origin.stat().st_size


def unfit(version: str, folder: Path, shown: Path) -> TracekitError | None:
    """Return why this machine cannot work for one with this version, in this folder of a Trace; None where it can.

    Parameters
    ----------
    shown : Path
        The folder of the Trace, in the message.
    """
    host = socket.gethostname()
    if version != __version__:
        what = f"the executor on {host} has tracekit {__version__}, this is tracekit {version}"
        return UsageError(what, where="--engine", hint="install this version on every machine")
    if not folder.is_dir():
        return OutputError(f"the folder in which it is made is not there on {host}", where=shown, hint=SHARE)
    return None


@dataclass(frozen=True)
class _Made:
    """What a task has made of a file."""

    name: str
    size: int
    host: str


def _taken(path: Path, made: _Made, sink: Sink) -> Iterator[Any]:
    if not path.is_file() or path.stat().st_size != made.size:
        raise OutputError(f"what {made.host} wrote is not to be seen here", where=sink.writer.target, hint=SHARE)
    yield from take_over(path, sink)
    path.unlink()


@dataclass(frozen=True)
class _FileTask:
    """Reads one file, on any machine, and says where the result is; an error that is the file's is returned.

    An error that is raised would be tried again, and end as a stack of another machine's.
    """

    read: Callable[[Any, SourceFile, Sink], Iterator[Any]]
    folder: Path
    shown: Path
    """The folder of the Trace, in messages."""
    options: Mapping[str, str]
    memory_limit: str
    version: str = __version__

    def __call__(self, item: tuple[Any, SourceFile, int]) -> _Made | TracekitError:
        key, file, size = item
        host = socket.gethostname()
        if (fault := unfit(self.version, self.folder, self.shown)) is not None:
            return fault
        path = self.folder / uuid4().hex
        try:
            if not file.origin.is_file():
                return SourceError(f"there is no such file on {host}", where=file.origin, hint=SHARE)
            # A log that is still written may have grown; one that is shorter there is another one, or an old copy.
            if _size(file) < size:
                what = f"has {_size(file):,} bytes on {host}, and {size:,} here"
                return SourceError(what, where=file.origin, hint=SHARE)
            with RecordingSink(path, self.shown, self.options, self.memory_limit) as sink:
                for found in self.read(key, file, sink):
                    sink.keep(found)
            return _Made(path.name, path.stat().st_size, host)
        except TracekitError as error:
            return error
