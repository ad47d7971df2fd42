"""Read answers of Prometheus' HTTP API (`query_range`, or `query` of raw samples such as METRIC[1d]) saved as JSON.

prometheus.io/docs/prometheus/latest/querying/api. Each series is a record of the file. Values are text: 'NaN' marks a
time at which a series had no value, and is counted. `query_range` repeats values for 5 minutes after a series ends; if
the next series of the same GPU has begun by then, its samples are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tracekit.errors import SourceError
from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.records import Joined
from tracekit.ingest.telemetry._metrics import METRICS
from tracekit.ingest.telemetry._node_conditions import condition_of
from tracekit.ingest.telemetry._series import NO_VALUE, Samples, UnusedMetrics, gpu_metric, labels_of, rises

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile


_LONGEST_HEAD = 1 << 20
_FIRST, _LAST = 0.0, 253_000_000_000.0
"""Range of valid times [s since 1970]; the last is in the year 9987."""


class PrometheusReader(TelemetryReader):
    """Reads saved answers of Prometheus."""

    name = "prometheus"
    title = "JSON answers of Prometheus to query_range or query"

    def looks_right(self, head: bytes) -> bool:
        """Return whether a file begins like an answer of Prometheus."""
        start = b"".join(head[:4096].split())
        sorted_keys = start.startswith(b'{"data":{') and b'"metric":{' in start
        return sorted_keys or (
            start.startswith(b'{"status":') and (b'"resultType"' in start or b'"errorType"' in start)
        )

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:  # noqa: ARG002 -- an answer contains zone and host
        """Yield the series of an answer.

        Raises
        ------
        SourceError
            The answer is a server error, is not a matrix, or is truncated.
        """
        unused = UnusedMetrics(opened)
        for text, line, ended in _results(opened):
            series, reason = _series(text)
            if series is None and ended and b'"metric"' not in text:
                continue  # information about the answer after the list of series
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
            opened.sink.check(
                "telemetry_without_value", unread, len(series["values"]), NO_VALUE, [str(metric)] if unread else None
            )
            if metric in METRICS:
                times, values = rises(metric, times, values)
            if len(times):
                yield Samples(labels or labels_of(series["metric"]), metric, times, values)
        unused.end()


def _results(opened: OpenedFile) -> Iterator[tuple[bytes, int, bool]]:
    """Yield each object of an answer from its list of series on: text, line, and whether the list has ended.

    Objects after the list describe the answer, such as VictoriaMetrics' `stats`. Other text between series is rejected.

    Raises
    ------
    SourceError
        The answer has no list of series.
    """
    ended = False
    try:
        for run in json_runs(Joined(_to_result(opened), opened.stream), opened.path):
            for bad in run.bad:
                if bad.reason == "text after the end of the array" or bad.raw.lstrip().startswith(b"]"):
                    ended = True
                    continue
                opened.count(1)
                opened.reject(bad.line, None, bad.reason, bad.raw)
            for text, line in zip(run.texts, run.lines.tolist(), strict=True):
                yield text, line, ended
    except SourceError:
        if not ended:
            raise


def _to_result(opened: OpenedFile) -> bytes:
    """Return the part of an answer read so far, starting at the bracket of its list of series."""
    head = b""
    while len(head) < _LONGEST_HEAD:
        chunk = opened.stream.read(65_536)
        head += chunk
        at = head.find(b'"result"')
        bracket = head.find(b"[", at) if at >= 0 else -1
        if bracket >= 0:
            kind = b"".join(head[:at].split())
            if b'"resultType":"matrix"' not in kind and b'"resultType"' in kind:
                raise SourceError(
                    "is not a matrix of samples",
                    where=opened.path,
                    hint="save the answer of query_range, or of METRIC[1d]",
                )
            return head[bracket:]
        if not chunk:
            break
    said = head[:200].decode("utf-8", "replace")
    what = f"is a server error: {said}" if b'"error"' in head else "contains no list of series"
    raise SourceError(what, where=opened.path, hint="query the server again and save the answer")


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
    """Return times [us] and values of the numeric samples, and the number of the others."""
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
