"""Answers of Prometheus' HTTP API (`query_range`, or `query` of raw samples such as METRIC[1d]), saved as JSON.

prometheus.io/docs/prometheus/latest/querying/api. A record of the file is a series. Values are text: 'NaN' marks a time
at which a series had no value, and is counted. `query_range` goes on for 5 minutes after a series ends; where the next
series of the same GPU has begun by then, its samples count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tracekit.errors import SourceError
from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.telemetry._metrics import METRICS
from tracekit.ingest.telemetry._node_conditions import condition_of
from tracekit.ingest.telemetry._series import Samples, UnusedMetrics, gpu_metric, labels_of, rises

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile, Sink


# The series inside an answer of Prometheus, one at a time, in bounded memory.

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
        what = f"is an error of the server: {said}" if b'"error"' in head else "contains no list of series"
        raise SourceError(what, where=self._path, hint="query the server again and save the answer")


_FIRST, _LAST = 0.0, 253_000_000_000.0
"""Times outside of this are no times [s since 1970]; the last is in the year 9987."""

_NO_VALUE = "samples that are not numbers (NaN, infinite, or invalid text); ignored"


class PrometheusReader(TelemetryReader):
    """Reads answers of Prometheus."""

    name = "prometheus"
    title = "samples as Prometheus answers query_range or query, in JSON"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- any name will do
        """Return whether it begins as an answer does."""
        start = b"".join(head[:4096].split())
        sorted_keys = start.startswith(b'{"data":{') and b'"metric":{' in start
        return sorted_keys or (
            start.startswith(b'{"status":') and (b'"resultType"' in start or b'"errorType"' in start)
        )

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str], sink: Sink) -> Iterator[Samples]:  # noqa: ARG002 -- an answer names zone and host
        """Yield the series of an answer.

        Raises
        ------
        SourceError
            It is an error of the server, no matrix, or ends in the middle.
        """
        stream, unused = ResultStream(opened.stream, opened.path), UnusedMetrics(opened.path, sink)
        for text, line in stream.objects(opened):
            series, reason = _series(text)
            if series is None and stream.ended and b'"metric"' not in text:
                continue  # what the server says about the answer, behind the list of series
            opened.count(1)
            if series is None:
                opened.reject(line, None, reason, text)
                continue
            metric, labels = gpu_metric(series["metric"]), None
            if (condition := condition_of(series["metric"])) is not None:
                metric, labels = condition
            elif metric is None:
                unused.add(str(series["metric"].get("__name__")))
                continue
            unused.any_used = True
            times, values, unread = _values(series["values"])
            sink.check(
                "telemetry_without_value", unread, len(series["values"]), _NO_VALUE, [str(metric)] if unread else None
            )
            if metric in METRICS:
                times, values = rises(metric, times, values)
            if len(times):
                yield Samples(labels or labels_of(series["metric"]), metric, times, values)
        unused.end()


def _series(text: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None, "is not JSON"
    if not isinstance(found, dict):
        return None, "is not a series with metric and values"
    if "histograms" in found and "values" not in found:
        return None, "is a histogram, which has no value"
    if not isinstance(found.get("metric"), dict) or not isinstance(found.get("values"), list):
        return None, "is not a series with metric and values"
    return found, ""


def _values(pairs: list[Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    """Return times [us] and values of the samples that are numbers, and how many are not."""
    try:
        table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    except (TypeError, ValueError):
        table = np.array([_pair(pair) for pair in pairs], dtype=np.float64).reshape(-1, 2)
    seconds, values = table[:, 0], table[:, 1]
    good = np.isfinite(values) & (seconds > _FIRST) & (seconds < _LAST)
    return np.rint(seconds[good] * 1e6).astype(np.int64), values[good], int(len(good) - good.sum())


def _pair(pair: Any) -> tuple[float, float]:
    try:
        time, value = pair
        return float(time), float(value)
    except (TypeError, ValueError):
        return np.nan, np.nan


READERS = (PrometheusReader(),)
