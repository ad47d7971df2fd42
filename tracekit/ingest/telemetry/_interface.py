"""What a kind of telemetry file gives: series of samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tracekit.ingest.companion import Companion
from tracekit.ingest.telemetry._series import Labels, Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["Labels", "Samples", "TelemetryReader"]


class TelemetryReader(Companion):
    """Reads one kind of telemetry file."""

    @abstractmethod
    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str], sink: Sink) -> Iterator[Samples]:
        """Yield the samples of a file, series by series or in parts of series.

        Parameters
        ----------
        frame : TimeFrame
            Wall clocks are in its zone.
        hosts : frozenset of str
            Machines that the log names, for files that say only in their name which machine they are of.

        Raises
        ------
        SourceError
            The file is not what it claims to be.
        """
