"""Read metrics printed by an exporter at /metrics (the text that Prometheus scrapes), with times.

prometheus.io/docs/instrumenting/exposition_formats. A record is a line `name{label="value"} number time`, with the time
in milliseconds since 1970; comments and blank lines are skipped. GPU exporters print no time. A line such as `# time
1772445600`, written before each scrape by `echo "# time $(date +%s)"`, gives the time of the lines below it. A record
without a time is counted but not used.

If no label names the machine, the file name must contain it.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.records import text_lines
from tracekit.ingest.telemetry._metrics import METRICS
from tracekit.ingest.telemetry._series import NO_VALUE, Samples, UnusedMetrics, gpu_metric, host_of, labels_of, rises

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile

_LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(?P<value>\S+)'
    r"(?:[ \t]+(?P<time>-?\d{1,18}))?[ \t]*"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*|"[^"\\]*")\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPED = re.compile(r"\\(.)")
_TIME = re.compile(r"#\s*(?:time|TIME|date)[ =:]\s*(\d{9,11})(?:\.\d+)?\s*")
_FIRST, _LAST = 0, 253_000_000_000_000
"""Range of valid times [ms since 1970]."""
_UNDATED: Final = (
    "samples in the text of an exporter that have no time; they are not used: write a line '# time SECONDS' before "
    "each scrape"
)


class ExpositionReader(TelemetryReader):
    """Reads the text format of exporters."""

    name = "exposition"
    title = "text printed by an exporter at /metrics, each scrape below a line '# time SECONDS'"

    def looks_right(self, head: bytes) -> bool:
        """Return whether a file begins like such text and soon contains a GPU metric."""
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
            Neither the labels nor the file name identify a machine of the log.
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
    """The samples of a file, by series text."""

    def __init__(self, unused: UnusedMetrics) -> None:
        self.unused = unused
        self.found: dict[str, tuple[array[int], array[float]]] = {}
        """Times [us since 1970] and values by series."""
        self.named: dict[str, dict[str, str] | None] = {}
        """Labels with the metric's name; None if the series is not used."""
        self.undated = self.no_value = self.total = 0
        self._now: int | None = None

    def take(self, text: str) -> bool:
        """Process a line; return whether it is a comment or a metric."""
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
        if time is None or not _FIRST < time < _LAST:
            self.undated += 1
        elif value is None:
            self.no_value += 1
        else:
            times, values = self.found.setdefault(key, (array("q"), array("d")))
            times.append(time * 1000)
            values.append(value)


def _labels(name: str, text: str) -> dict[str, str] | None:
    """Return the labels of a used metric, including its name; None for any other metric."""
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


READERS = (ExpositionReader(),)
