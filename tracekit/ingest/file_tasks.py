"""Work that other machines can do in tasks, and the reading of files one by one, here or each in a task.

What a task makes of its file is kept next to the Trace until this process takes it over, in the order of the files, so
that a Trace does not depend on who has read what. The tasks write into the hidden folder in
which the Trace is made, which every machine has to see at the same path: it goes when the Trace appears, or with a run
that fails. A task that is begun again, since its machine was lost, writes under another name, and what it returns says
which one counts.
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


# What a reader makes of one file, kept in a file of its own: as if it were read when that file is taken over.
#
# A recording sink writes down each call of the reader in order: rows, records set aside, checks, notes, the account,
# and what the reader yields. Taking it over makes the same calls again on another sink, so that this one cannot tell
# who has read the file.
#
# A record is its size, a head in JSON (kind, what is told, sizes of the blobs), and the blobs: frames as streams of
# Arrow, samples as plain numbers.

_SIZE = 8
"""Bytes of the size of a head."""
_CALLS = frozenset({"add_rejected", "check", "note", "write"})
"""Methods of a sink whose calls are recorded."""


class RecordingSink(Sink):
    """Writes down what the reader of one file does; use it as a context.

    Parameters
    ----------
    path : Path
        Where it is written; removed when the context ends with an error.
    shown : Path
        The folder of the Trace, in messages.
    options, memory_limit
        As of the sink that takes it over.
    """

    def __init__(self, path: Path, shown: Path, options: Mapping[str, str], memory_limit: str | None) -> None:
        # A reader of one file writes rows through its sink alone.
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
                # What a full disk did not take is still to be written, and fails again.
                with suppress(OSError):
                    self._file.close()
                with suppress(OSError):
                    self._path.unlink()

    def keep(self, item: pl.DataFrame | Samples) -> None:
        """Write down what the reader yields."""
        if isinstance(item, pl.DataFrame):
            self._put("frame", [], _stream(item))
            return
        times = np.ascontiguousarray(item.times, dtype=np.int64)
        values = np.ascontiguousarray(item.values, dtype=np.float64)
        self._put("samples", [*item.labels, item.metric], times.tobytes(), values.tobytes())

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[OpenedFile]:
        """Open a raw file, and write down its account when it has been read."""
        with super().opened(file) as opened:
            yield opened
        account = self.accounts.pop()
        self._put("account", vars(account))

    def write(self, table: str, frame: pl.DataFrame) -> None:
        """Write down rows of a common table."""
        if frame.height:
            self._put("write", [table], _stream(frame))

    def add_rejected(self, path: str, line: int, column: str | None, reason: str, text: str) -> None:
        """Write down a row of the rejects table."""
        self._put("add_rejected", [path, line, column, reason, text])

    def check(
        self, name: str, count: int, of: int | None, meaning: str, examples: pl.Series | list[str] | None = None
    ) -> None:
        """Write down what is added to a check."""
        shown = [str(example) for example in list(examples[:EXAMPLES])] if examples is not None else None
        self._put("check", [name, int(count), None if of is None else int(of), meaning, shown])

    def note(self, text: str) -> None:
        """Write down a choice or an assumption."""
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
    """Do on `sink` what a reader did on a recording one, and yield what it yielded.

    Raises
    ------
    OutputError
        What is written there has no end.
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

SHARE = "every machine must see the files and the folder of -o at the same path"


@dataclass(frozen=True)
class Made(Generic[Result]):
    """What a task has made."""

    name: str
    """Of what it has written, in the folder of the tasks."""
    result: Result
    host: str


@dataclass(frozen=True)
class Task(ABC, Generic[Item, Result]):
    """Work for any machine, which says where its result is; an error that is no fault of the machine's is returned.

    An error that is raised would be tried again, and end as a stack of another machine's.
    """

    folder: Path
    """Where the tasks write."""
    shown: Path
    """The folder of the Trace, in messages."""
    memory_limit: str
    version: str = field(default_factory=lambda: __version__, init=False)
    """Of the process that gives the work, which every machine has to have."""

    @abstractmethod
    def work(self, item: Item, place: Path) -> Result:
        """Do the work for an item, and write to `place`, which nothing else writes to."""

    def __call__(self, item: Item) -> Made[Result] | TracekitError:
        """Return what was made for an item, or why nothing was."""
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
    """Return a folder for what tasks write; it goes with the folder in which the Trace is made."""
    folder = sink.writer.scratch / name
    folder.mkdir(exist_ok=True)
    return folder


def finished(workers: Workers, work: Task[Item, Result], items: Sequence[Item]) -> Generator[Made[Result]]:
    """Yield what the workers have made of each item, in the order given.

    Raises
    ------
    TracekitError
        That of a task.
    """
    with closing(workers.in_order(work, items)) as done:
        for made in done:
            if isinstance(made, TracekitError):
                raise made
            yield made


def require_seen(path: Path, size: int, host: str, shown: Path) -> None:
    """Refuse a result of a task that this machine does not see as it was written.

    Raises
    ------
    OutputError
        It is not there, or has another size.
    """
    if not path.is_file() or path.stat().st_size != size:
        raise OutputError(f"this machine cannot see the files that {host} wrote", where=shown, hint=SHARE)


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
    """Reads one file, and returns the size of what it has written."""

    read: Callable[[Any, SourceFile, Sink], Iterator[Any]]
    options: Mapping[str, str]

    def work(self, item: tuple[Any, SourceFile, int], place: Path) -> int:
        """Read a file, whose size this process knows."""
        key, file, size = item
        host = socket.gethostname()
        if not file.origin.is_file():
            raise SourceError(f"the file does not exist on {host}", where=file.origin, hint=SHARE)
        # A log that is still written may have grown; one that is shorter there is another one, or an old copy.
        if _size(file) < size:
            what = f"has {_size(file):,} bytes on {host}, and {size:,} here"
            raise SourceError(what, where=file.origin, hint=SHARE)
        with RecordingSink(place, self.shown, self.options, self.memory_limit) as sink:
            for found in self.read(key, file, sink):
                sink.keep(found)
        return place.stat().st_size
