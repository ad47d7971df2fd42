"""What a kind of machine file gives: machines, events of machines, and the GPUs that attempts held."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest.companion import Companion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["EVENT", "HELD", "LISTS", "MACHINE", "MachineReader"]

MACHINE = {
    "host": pl.String(),
    "cluster": pl.String(),
    "gpu_count": pl.Int64(),
    "gpu_model": pl.String(),
    "gpu_memory_gib": pl.Float64(),
    "cpu_count": pl.Int64(),
    "memory_gib": pl.Float64(),
    "rack": pl.String(),
}
"""Columns of a listed machine; `host` is its name as the source has it, NULL what the source does not say."""

EVENT = {
    "host": pl.String(),
    "cluster": pl.String(),
    "start_time": pl.Datetime("us"),
    "end_time": pl.Datetime("us"),
    "state": pl.String(),
    "cause": pl.String(),
    "source_cause": pl.String(),
    "source": pl.String(),
}
"""Columns of an event; times are UTC, the words those of the table node_events.

A list of machines shows states at one moment: its events have no end, and `source` is one of LISTS.
"""

LISTS = ("scontrol", "sinfo", "kubernetes")
"""Sources of events that are states in lists of machines."""

HELD = {
    "job": pl.String(),
    "array_job": pl.String(),
    "task": pl.String(),
    "host": pl.String(),
    "time": pl.Datetime("us"),
    "gpu_count": pl.Float64(),
    "gpu_index": pl.List(pl.Int64()),
}
"""Columns of what a job held on a machine at a time.

`job` is the scheduler's number of it, `array_job` its name as a task of an array (JOB_TASK) where it is one, `task` the
component of a heterogeneous job.
"""


class MachineReader(Companion):
    """Reads one kind of machine file."""

    @abstractmethod
    def read(self, opened: OpenedFile, frame: TimeFrame, sink: Sink) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield frames, each named 'machine', 'event' or 'held', with the columns of MACHINE, EVENT or HELD.

        Wall clocks are in the zone of `frame`. Records that cannot be used are set aside in `opened`.

        Raises
        ------
        SourceError
            The file is not what it claims to be.
        """
