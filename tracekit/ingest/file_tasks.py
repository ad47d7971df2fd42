"""Run tasks on other machines, and read files one by one, in this process or as one task per file.

A task's result is stored next to the Trace until this process takes it over, in file order. So the Trace does not
depend on which machine read which file. Tasks write into the hidden folder where the Trace is built, which every
machine must see at the same path. It is removed when the Trace is finished or the run fails. A task that restarts after
its machine was lost writes under another name, and its return value shows which output counts.
"""

from __future__ import annotations

import io
import json
import socket
from abc import ABC, abstractmethod
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import uuid4

import numpy as np
import polars as pl

from tracekit.errors import OutputError, SourceError, TracekitError, UsageError
from tracekit.ingest.files import read_errors
from tracekit.ingest.sink import EXAMPLES, Sink
from tracekit.ingest.telemetry._series import Labels, Samples
from tracekit.manifest import FileAccount
from tracekit.outputs import output_errors
from tracekit.progress import Progress
from tracekit.text import counted
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.sink import OpenedFile
    from tracekit.workers import Workers


# Store what a reader makes of one file in another file. `take_over` then has the same effect as reading the raw file.
#
# A recording sink stores every call of the reader in order: rows, rejected records, checks, notes, the file's record
# counts, and the items that the reader yields. `take_over` makes the same calls on another sink, as if this process had
# read the file.
#
# A record consists of its size, a JSON head (kind, arguments, blob sizes), and the blobs. Frames are stored as Arrow
# streams and samples as plain numbers.

_SIZE = 8
"""Number of bytes used for the size of a head."""
_CALLS = frozenset({"add_rejected", "check", "note", "write"})
"""Methods of a sink whose calls are recorded."""


class RecordingSink(Sink):
    """Records the output of one file's reader. It is a context manager.

    Parameters
    ----------
    path : Path
        The output file, which is removed if the context ends with an error.
    shown : Path
        Folder of the Trace, shown in messages.
    options, memory_limit
        As in the sink that receives the output.
    """

    def __init__(self, path: Path, shown: Path, options: Mapping[str, str], memory_limit: str | None) -> None:
        # A file's reader writes rows only through its sink.
        nothing: Any = None
        super().__init__(nothing, options, Progress(), memory_limit)
        self._path, self._shown = path, shown
        with output_errors(shown):
            self._file = path.open("xb")
        self._whole = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._put("end", [])
                with output_errors(self._shown):
                    self._file.close()
                self._whole = True
        finally:
            if not self._whole:
                # On a full disk, closing tries to write the rest and fails again.
                with suppress(OSError):
                    self._file.close()
                with suppress(OSError):
                    self._path.unlink()

    def keep(self, item: pl.DataFrame | Samples) -> None:
        """Record an item that the reader yields."""
        if isinstance(item, pl.DataFrame):
            self._put("frame", [], _stream(item))
            return
        times = np.ascontiguousarray(item.times, dtype=np.int64)
        values = np.ascontiguousarray(item.values, dtype=np.float64)
        self._put("samples", [*item.labels, item.metric], times.tobytes(), values.tobytes())

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[OpenedFile]:
        """Open a raw file, and record its counts after it was read."""
        with super().opened(file) as opened:
            yield opened
        account = self.accounts.pop()
        self._put("account", vars(account))

    def write(self, table: str, frame: pl.DataFrame) -> None:
        """Record rows of a common table."""
        if frame.height:
            self._put("write", [table], _stream(frame))

    def add_rejected(self, path: str, line: int, column: str | None, reason: str, text: str) -> None:
        """Record a row of the rejects table."""
        self._put("add_rejected", [path, line, column, reason, text])

    def check(
        self, name: str, count: int, of: int | None, meaning: str, examples: pl.Series | list[str] | None = None
    ) -> None:
        """Record an addition to a check."""
        shown = [str(example) for example in list(examples[:EXAMPLES])] if examples is not None else None
        self._put("check", [name, int(count), None if of is None else int(of), meaning, shown])

    def note(self, text: str) -> None:
        """Record a choice or an assumption."""
        self._put("note", [text])

    def _put(self, kind: str, told: Any, *blobs: bytes) -> None:
        head = json.dumps([kind, told, [len(blob) for blob in blobs]]).encode()
        with output_errors(self._shown):
            self._file.write(len(head).to_bytes(_SIZE, "little"))
            for part in (head, *blobs):
                self._file.write(part)


def _stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4", compat_level=pl.CompatLevel.newest())
    return buffer.getvalue()


def take_over(path: Path, sink: Sink) -> Iterator[Any]:
    """Repeat on `sink` the calls that a reader made on a recording sink, and yield the reader's items.

    Raises
    ------
    OutputError
        The recording is incomplete.
    """
    shown = sink.writer.target
    with path.open("rb") as file:
        while True:
            with output_errors(shown):
                kind, told, blobs = _next(file, shown)
            if kind == "end":
                return
            if kind == "frame":
                yield pl.read_ipc_stream(blobs[0])
            elif kind == "samples":
                times, values = blobs
                yield Samples(
                    Labels(*told[:-1]), told[-1], np.frombuffer(times, np.int64), np.frombuffer(values, np.float64)
                )
            elif kind == "account":
                sink.accounts.append(FileAccount(**told))
            elif kind not in _CALLS:
                raise OutputError(f"the output of a worker has a record of the unknown kind '{kind[:40]}'", where=shown)
            else:
                getattr(sink, kind)(*told, *map(pl.read_ipc_stream, blobs))


def _next(file: IO[bytes], shown: Path) -> tuple[str, Any, list[bytes]]:
    def read(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise OutputError(
                "the output of a worker is incomplete", where=shown, hint="check that its disk is not full"
            )
        return data

    kind, told, sizes = json.loads(read(int.from_bytes(read(_SIZE), "little")))
    return kind, told, [read(size) for size in sizes]


K = TypeVar("K")
T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

SHARE = "every machine must see the files and the -o folder at the same path"


@dataclass(frozen=True)
class Made(Generic[Result]):
    """The result of a task."""

    name: str
    """Name of the task's output in the folder of the tasks."""
    result: Result
    host: str


@dataclass(frozen=True)
class Task(ABC, Generic[Item, Result]):
    """Work that any machine can do. It returns the name of its result, or an error that is not the machine's fault.

    Raising the error would retry the task and then fail with another machine's traceback.
    """

    folder: Path
    """Folder to which the tasks write."""
    shown: Path
    """Folder of the Trace, shown in messages."""
    memory_limit: str
    version: str = field(default_factory=lambda: __version__, init=False)
    """tracekit version of the process that distributes the work. Every machine needs this version."""

    @abstractmethod
    def work(self, item: Item, place: Path) -> Result:
        """Do the work for an item, and write to `place`, which no other task uses."""

    def __call__(self, item: Item) -> Made[Result] | TracekitError:
        """Return the result for an item, or the error that prevented it."""
        host = socket.gethostname()
        if self.version != __version__:
            what = f"the executor on {host} has tracekit {__version__}, this machine has tracekit {self.version}"
            return UsageError(what, where="--engine", hint="install this version on every machine")
        if not self.folder.is_dir():
            return OutputError(f"its temporary folder does not exist on {host}", where=self.shown, hint=SHARE)
        place = self.folder / uuid4().hex
        try:
            return Made(place.name, self.work(item, place), host)
        except TracekitError as error:
            return error


def task_folder(sink: Sink, name: str) -> Path:
    """Return a folder for the output of tasks. It is removed with the folder in which the Trace is built."""
    folder = sink.writer.scratch / name
    folder.mkdir(exist_ok=True)
    return folder


def finished(workers: Workers, work: Task[Item, Result], items: Sequence[Item]) -> Generator[Made[Result]]:
    """Yield the workers' result for each item, in the items' order.

    Raises
    ------
    TracekitError
        A task returned this error.
    """
    with closing(workers.in_order(work, items)) as done:
        for made in done:
            if isinstance(made, TracekitError):
                raise made
            yield made


def require_seen(path: Path, size: int, host: str, shown: Path) -> None:
    """Check that this machine sees the complete result of a task.

    Raises
    ------
    OutputError
        The result is missing or has another size.
    """
    if not path.is_file() or path.stat().st_size != size:
        raise OutputError(f"this machine cannot see the files that {host} wrote", where=shown, hint=SHARE)


def read_each(
    files: Sequence[tuple[K, SourceFile]], read: Callable[[K, SourceFile, Sink], Iterator[T]], sink: Sink
) -> Iterator[T]:
    """Yield the items that `read` yields for each file, in the files' order.

    Parameters
    ----------
    files : sequence of (key, SourceFile)
        The files, each with the key that `read` needs.
    read : function (key, file, sink) -> iterator
        Reads one file independently of the others and yields frames or samples. The function is pickled with its
        object. Of the sink, it may use only the options, `opened`, `write`, and the methods that count and add notes.

    Raises
    ------
    SourceError
        A file cannot be read.
    OutputError
        The disk to which a task writes is full.
    """
    if sink.workers is None:
        for key, file in files:
            yield from read(key, file, sink)
        return
    inside = [file.path for _, file in files if not file.apart]
    if inside:
        sink.progress.note(
            f"read on this machine, because tasks cannot read archives: {counted(len(inside), 'files')} such as "
            f"{inside[0]}; unpack them first"
        )
    work = _FileTask(task_folder(sink, "tasks"), sink.writer.target, sink.memory_limit, read, sink.options)
    given = [(key, file, _size(file)) for key, file in files if file.apart]
    with closing(finished(sink.workers, work, given)) as done:
        for key, file in files:
            if not file.apart:
                yield from read(key, file, sink)
                continue
            sink.progress.stage(f"waiting for {file.path}, which a task reads")
            made = next(done)
            sink.progress.stage(f"taking over {file.path}")
            path = work.folder / made.name
            require_seen(path, made.result, made.host, work.shown)
            yield from take_over(path, sink)
            path.unlink()


def _size(file: SourceFile) -> int:
    with read_errors(file.path):
        return file.origin.stat().st_size


@dataclass(frozen=True)
class _FileTask(Task[tuple[Any, "SourceFile", int], int]):
    """Reads one file and returns the size of the output."""

    read: Callable[[Any, SourceFile, Sink], Iterator[Any]]
    options: Mapping[str, str]

    def work(self, item: tuple[Any, SourceFile, int], place: Path) -> int:
        """Check that a file has the size that the calling process found, then read it."""
        key, file, size = item
        host = socket.gethostname()
        if not file.origin.is_file():
            raise SourceError(f"the file does not exist on {host}", where=file.origin, hint=SHARE)
        # A log that is still written may have grown. A shorter file on this host is another file or an old copy.
        if _size(file) < size:
            what = f"has {_size(file):,} bytes on {host}, but {size:,} here"
            raise SourceError(what, where=file.origin, hint=SHARE)
        with RecordingSink(place, self.shown, self.options, self.memory_limit) as sink:
            for found in self.read(key, file, sink):
                sink.keep(found)
        return place.stat().st_size
