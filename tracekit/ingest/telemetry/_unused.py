"""Metrics that a file of telemetry holds and that fill no column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.ingest.sink import Sink

_UNUSED = "series of metrics that tracekit does not read; ignored"
_SHOWN = 8


class UnusedMetrics:
    """Counts the series of one file that fill no column, and names their metrics where no other series does.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str, sink: Sink) -> None:
        self._path, self._sink = path, sink
        self._names: set[str] = set()
        self.any_used = False

    def add(self, metric: str) -> None:
        """Count a series."""
        self._sink.check("unused_telemetry_metrics", 1, None, _UNUSED, None if metric in self._names else [metric])
        self._names.add(metric)

    def end(self) -> None:
        """Note what the file holds, if nothing of it is used."""
        if self._names and not self.any_used:
            names = shown_names(self._names)
            self._sink.note(
                f"{self._path} has no metric that tracekit reads, only {names} (docs/telemetry.md lists the metrics)"
            )


def shown_names(names: Collection[str]) -> str:
    """Return the first names in their order, and how many more there are."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:80] for name in sorted(names)[:_SHOWN]) + rest
