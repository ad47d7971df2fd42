"""What a row costs, measured.

Every number is from benchmarks/scale.py: the slope of peaks and processor seconds of whole processes at three sizes,
rounded up. `tests/test_estimate.py` holds the estimates to all these figures, and to some processes that it runs.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COSTS", "HIGH", "MIB", "QUERIES", "QUERY_COSTS", "SPILL", "START_MIB", "Cost"]

MIB = 2**20

HIGH = 1.25
"""By how much an estimate of memory is above the plane through what was measured: releases of DuckDB and Polars differ,
and so do logs."""

SPILL = 1.5
"""Bytes of disk for each byte of DuckDB's that has to go there, at most."""

START_MIB = 270.0
"""Memory of a process before the first row: Python, NumPy, Polars, DuckDB, and what a query needs of its own [MiB]."""


class Cost(NamedTuple):
    """What a row, or a byte of a raw log, costs."""

    array_bytes: float
    """Memory that no limit bounds [bytes]."""
    table_bytes: float
    """Memory of DuckDB, which its limit bounds [bytes]."""
    cpu_us: float
    """Processor time [us]."""
    most_mib: float = float("inf")
    """Where the arrays stop growing [MiB]."""
    start_mib: float = START_MIB
    """Memory before the first row [MiB]."""


COSTS = {
    # A row of jobs, attempts or placements.
    "query": Cost(0, 130, 0.5),
    # A sample of gpu_utilization, joined with attempts and placements. Under a limit DuckDB fills all of it.
    "samples": Cost(0, 8, 0.1),
    # A row of any table, whose keys are looked at together.
    "validate": Cost(0, 100, 0.5),
    # A job.
    "replay": Cost(430, 0, 4),
    "calibrate": Cost(450, 0, 60),
    "fit": Cost(800, 0, 200),
    "generate": Cost(750, 0, 3),
    # Blocks of jobs wait to be written where the processor is busy elsewhere.
    "export": Cost(0, 700, 5, start_mib=START_MIB + 60),
    "analyze": Cost(1200, 0, 150, start_mib=555),
    # A byte of a raw log: blocks are read, parsed and written a few at a time, whatever the size of the file.
    "ingest": Cost(4, 2, 0.03, 400),
}

QUERY_COSTS = {
    "failures/by_user": Cost(0, 20, 0.2),
    "queuing/delay_causes": Cost(0, 130, 2),
    "queuing/expected_wait_backtest": Cost(850, 0, 28),
    "utilization/efficiency": Cost(0, 250, 1.3),
    "utilization/jobs_to_look_at": Cost(0, 250, 1.4),
}
"""A row of jobs, attempts or placements of queries that need much more, or less, than others."""

QUERIES = 20
"""Of the queries, about so many read a table that a Trace has."""
