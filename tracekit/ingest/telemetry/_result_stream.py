"""The series inside an answer of Prometheus, one at a time, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import SourceError
from tracekit.ingest.json_array import json_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile

__all__ = ["ResultStream"]

_LONGEST_HEAD = 1 << 20


class ResultStream:
    """The text of an answer from its list of results on.

    Parameters
    ----------
    stream : stream of bytes
        The answer.
    path : str
        Names it in errors.

    Attributes
    ----------
    ended : bool
        Whether the list of series has ended: what follows tells about the answer, as VictoriaMetrics' `stats` does.

    Raises
    ------
    SourceError
        It has no list of series.
    """

    def __init__(self, stream: ByteReader, path: str) -> None:
        self._stream, self._path = stream, path
        self.ended = False
        self._rest = self._to_result()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        rest, self._rest = self._rest, b""
        return rest or self._stream.read(size)

    def objects(self, opened: OpenedFile) -> Iterator[tuple[bytes, int]]:
        """Yield each series as text, with its line; text between them that is none is set aside."""
        try:
            for run in json_runs(self, self._path):
                for bad in run.bad:
                    if bad.reason == "text after the end of the array" or bad.raw.lstrip().startswith(b"]"):
                        self.ended = True
                        continue
                    opened.count(1)
                    opened.reject(bad.line, None, bad.reason, bad.raw)
                yield from zip(run.texts, run.lines.tolist(), strict=True)
        except SourceError:
            if not self.ended:
                raise

    def _to_result(self) -> bytes:
        head = b""
        while len(head) < _LONGEST_HEAD:
            chunk = self._stream.read(65_536)
            head += chunk
            at = head.find(b'"result"')
            bracket = head.find(b"[", at) if at >= 0 else -1
            if bracket >= 0:
                kind = b"".join(head[:at].split())
                if b'"resultType":"matrix"' not in kind and b'"resultType"' in kind:
                    raise SourceError(
                        "is not a matrix of samples",
                        where=self._path,
                        hint="save the answer of query_range, or of METRIC[1d]",
                    )
                return head[bracket:]
            if not chunk:
                break
        said = head[:200].decode("utf-8", "replace")
        what = f"is an error of the server: {said}" if b'"error"' in head else "holds no list of series"
        raise SourceError(what, where=self._path, hint="ask the server again and save the answer")
