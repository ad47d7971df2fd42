"""What a row costs, measured.

Every number is from benchmarks/scale.py: the slope of peaks and processor seconds of whole processes at three sizes,
rounded up. `tests/test_estimate.py` holds the estimates to all these figures, and to some processes that it runs.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COSTS", "HIGH", "MIB", "QUERIES", "SLOW_QUERIES", "SPILL", "START_MIB", "Cost"]

MIB = 2**20

HIGH = 1.25
"""By how much an estimate of memory is above the plane through what was measured: releases of DuckDB and Polars differ,
and so do logs."""

SPILL = 1.5
"""Bytes of disk for each byte of DuckDB's that has to go there, at most."""

START_MIB = 210.0
"""Memory of a process before the first row: Python, NumPy, Polars, DuckDB [MiB]."""


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


COSTS = {
    # A row of jobs, attempts or placements; the dearest of the ordinary queries.
    "query": Cost(0, 230, 0.8),
    # A sample of gpu_utilization, joined with attempts and placements.
    "samples": Cost(0, 8, 0.06),
    # A job.
    "replay": Cost(400, 0, 4),
    "calibrate": Cost(700, 0, 60),
    "fit": Cost(900, 0, 60),
    "generate": Cost(300, 0, 3),
    "export": Cost(0, 700, 7),
    # A byte of a raw log: blocks are read, parsed and written a few at a time, whatever the size of the file.
    "ingest": Cost(4, 2, 0.03, 400),
}

QUERIES = 20
"""Of the queries, about so many read a table that a Trace has."""

SLOW_QUERIES = {"queuing/expected_wait_backtest": 13.0, "queuing/delay_causes": 0.8, "utilization/jobs_to_look_at": 0.7}
"""Processor time of a row beyond that of other queries [us]: these follow the log job by job."""
