"""What a reader makes of one file, kept in a file of its own: as if it were read when that file is taken over.

A recording sink writes down each call of the reader in order: rows, records set aside, checks, notes, the account, and
what the reader yields. Taking it over makes the same calls again on another sink, so that this one cannot tell who has
read the file.

A record is its size, a head in JSON (kind, what is told, sizes of the blobs), and the blobs: frames as streams of
Arrow, samples as plain numbers.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from tracekit.errors import OutputError
from tracekit.ingest.sink import EXAMPLES, Sink
from tracekit.ingest.telemetry._series import Labels, Samples
from tracekit.manifest import FileAccount
from tracekit.outputs import output_errors
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.sink import OpenedFile

__all__ = ["RecordingSink", "take_over"]

_SIZE = 8
"""Bytes of the size of a head."""


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
            self._put("rows", [table], _stream(frame))

    def add_rejected(self, path: str, line: int, column: str | None, reason: str, text: str) -> None:
        """Write down a row of the rejects table."""
        self._put("reject", [path, line, column, reason, text])

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
            elif kind == "rows":
                sink.write(told[0], pl.read_ipc_stream(blobs[0]))
            elif kind == "reject":
                sink.add_rejected(*told)
            elif kind == "check":
                sink.check(*told)
            elif kind == "note":
                sink.note(*told)
            else:
                sink.accounts.append(FileAccount(**told))


def _next(file: IO[bytes], shown: Path) -> tuple[str, Any, list[bytes]]:
    def read(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise OutputError("what a worker wrote has no end", where=shown, hint="see that its disk is not full")
        return data

    kind, told, sizes = json.loads(read(int.from_bytes(read(_SIZE), "little")))
    return kind, told, [read(size) for size in sizes]
