"""Read Prometheus metrics: saved responses of its HTTP API, and the text that exporters print at /metrics.

JSON responses come from `query_range`, or from `query` with raw samples such as METRIC[1d] (see
prometheus.io/docs/prometheus/latest/querying/api). Each series is a record of the file. Values are strings. 'NaN' marks
a time at which a series had no value, and is counted. `query_range` repeats values for 5 minutes after a series ends.
If the next series of the same GPU has begun by then, we use its samples.

In the text of an exporter (prometheus.io/docs/instrumenting/exposition_formats), a record is a line
`name{label="value"} number time`, with the time in milliseconds since 1970. Comments and blank lines are skipped. GPU
exporters print no time. A line such as `# time 1772445600`, written before each scrape by `echo "# time $(date +%s)"`,
gives the time of the lines below it. A record without a time is counted but not used. If no label names the machine,
the file name must contain it.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tracekit.errors import SourceError
from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.records import Joined, text_lines
from tracekit.ingest.telemetry._node_conditions import condition_of
from tracekit.ingest.telemetry._series import (
    METRICS,
    NO_VALUE,
    Samples,
    UnusedMetrics,
    gpu_metric,
    host_of,
    labels_of,
    rises,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile

_LONGEST_HEAD = 1 << 20
_FIRST, _LAST = 0.0, 253_000_000_000.0
"""Range of valid times [s since 1970]. The last is in the year 9987."""


class PrometheusReader(TelemetryReader):
    """Reads saved Prometheus responses."""

    name = "prometheus"
    title = "JSON responses of Prometheus to query_range or query"

    def looks_right(self, head: bytes) -> bool:
        """Return whether a file begins like a response from Prometheus."""
        start = b"".join(head[:4096].split())
        sorted_keys = start.startswith(b'{"data":{') and b'"metric":{' in start
        return sorted_keys or (
            start.startswith(b'{"status":') and (b'"resultType"' in start or b'"errorType"' in start)
        )

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:  # noqa: ARG002 -- a response contains zone and host
        """Yield the series in a response.

        Raises
        ------
        SourceError
            The response is a server error, is not a matrix, or is truncated.
        """
        unused = UnusedMetrics(opened)
        for text, line, ended in _results(opened):
            series, reason = _series(text)
            if series is None and ended and b'"metric"' not in text:
                continue  # information about the response after the list of series
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
    """Yield a response's objects from the list of series on, with text, line and whether the list has ended.

    Objects after the list describe the response, such as VictoriaMetrics' `stats`. Other text between series is
    rejected.

    Raises
    ------
    SourceError
        The response has no list of series.
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
    """Return the part of a response that was read so far, starting at the bracket of the list of series."""
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
                    hint="save the response to query_range, or to METRIC[1d]",
                )
            return head[bracket:]
        if not chunk:
            break
    said = head[:200].decode("utf-8", "replace")
    what = f"is a server error: {said}" if b'"error"' in head else "contains no list of series"
    raise SourceError(what, where=opened.path, hint="query the server again and save the response")


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
    """Return times [us] and values of the numeric samples, and the number of other samples."""
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


_LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(?P<value>\S+)'
    r"(?:[ \t]+(?P<time>-?\d{1,18}))?[ \t]*"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*|"[^"\\]*")\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPED = re.compile(r"\\(.)")
_TIME = re.compile(r"#\s*(?:time|TIME|date)[ =:]\s*(\d{9,11})(?:\.\d+)?\s*")
_UNDATED: Final = (
    "samples in an exporter's text that have no time; they are not used (write a line '# time SECONDS' before each "
    "scrape)"
)


class ExpositionReader(TelemetryReader):
    """Reads exporters' text format."""

    name = "exposition"
    title = "text printed by an exporter at /metrics, each scrape below a line '# time SECONDS'"

    def looks_right(self, head: bytes) -> bool:
        """Return whether a file begins like an exporter's text and declares a metric's type."""
        text = head[:65_536].decode("utf-8", "replace")
        first = text.lstrip("\ufeff\n").partition("\n")[0]
        begins = first.startswith(("# HELP ", "# TYPE ")) or _TIME.fullmatch(first) or _LINE.fullmatch(first)
        return (
            bool(begins)
            and re.search(r"(?m)^# TYPE \S+ (?:gauge|counter|untyped|summary|histogram)\s*$", text) is not None
        )

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str]) -> Iterator[Samples]:  # noqa: ARG002 -- an instant needs no zone
        """Yield the series of the file.

        Raises
        ------
        SourceError
            Neither the labels nor the file name identify a machine in the log.
        """
        scrapes = _Scrapes(UnusedMetrics(opened))
        for lines in text_lines(opened):
            for line in lines:
                if not scrapes.take(line.text):
                    opened.reject(line.number, None, "is not a metric with a value", line.raw)
        scrapes.unused.end()
        opened.sink.check("telemetry_without_time", scrapes.undated, scrapes.total, _UNDATED)
        opened.sink.check("telemetry_without_value", scrapes.no_value, scrapes.total, NO_VALUE)
        for key, (times, values) in scrapes.found.items():
            metric = scrapes.named[key] or {}
            labels = labels_of(metric)
            if labels.host is None:
                labels = labels._replace(host=host_of(opened.path, hosts))
            name = metric["__name__"]
            moments, numbers = rises(name, np.array(times, dtype=np.int64), np.array(values, dtype=np.float64))
            if len(moments):
                yield Samples(labels, name, moments, numbers)


class _Scrapes:
    """A file's samples, by the text of their series."""

    def __init__(self, unused: UnusedMetrics) -> None:
        self.unused = unused
        self.found: dict[str, tuple[array[int], array[float]]] = {}
        """Times [us since 1970] and values by series."""
        self.named: dict[str, dict[str, str] | None] = {}
        """Labels with the metric's name, or None if the series is not used."""
        self.undated = self.no_value = self.total = 0
        self._now: int | None = None

    def take(self, text: str) -> bool:
        """Process a line, and return whether it is a comment or a metric."""
        if text.startswith("#"):
            if stamp := _TIME.fullmatch(text):
                self._now = int(stamp[1]) * 1000
            return True
        match = _LINE.fullmatch(text)
        if match is None:
            return False
        key = text[: match.start("value")].rstrip()
        if key not in self.named:
            self.named[key] = _labels(match["name"], match["labels"] or "")
            if self.named[key] is None:
                self.unused.add(match["name"])
        if self.named[key] is not None:
            self._add(key, int(match["time"]) if match["time"] else self._now, _number(match["value"]))
        return True

    def _add(self, key: str, time: int | None, value: float | None) -> None:
        self.unused.any_used = True
        self.total += 1
        if time is None or not _FIRST < time / 1000 < _LAST:
            self.undated += 1
        elif value is None:
            self.no_value += 1
        else:
            times, values = self.found.setdefault(key, (array("q"), array("d")))
            times.append(time * 1000)
            values.append(value)


def _labels(name: str, text: str) -> dict[str, str] | None:
    """Return a used metric's labels, including its name, or None for any other metric."""
    if name not in METRICS:
        return None
    found = {label.strip('"'): _ESCAPED.sub(_unescaped, value) for label, value in _LABEL.findall(text)}
    found["__name__"] = name
    return found if gpu_metric(found) else None


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


READERS = (PrometheusReader(), ExpositionReader())
