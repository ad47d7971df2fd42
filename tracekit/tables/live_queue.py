"""The jobs of a site at one moment, as a reader of a scheduler's queue returns them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

QUEUE = pl.Schema(
    {
        "partitions": pl.List(pl.String()),
        "gpu_count": pl.Float64(),
        "limit_s": pl.Float64(),
        "since": pl.Int64(),
        "waiting": pl.Boolean(),
        "nodes": pl.List(pl.String()),
        "node_gpus": pl.List(pl.Float64()),
    }
)
"""A row for each job: its partitions, its GPUs (NULL if unknown), its time limit (NULL if unknown or none), the time at
which it was submitted or, if it runs, started [us], and whether it waits. A running job has its nodes and its GPUs on
each of them."""


@dataclass(frozen=True)
class Queue:
    """The waiting and running jobs of a site at one moment, as its scheduler lists them."""

    jobs: pl.DataFrame
    """With the columns of `QUEUE`. Held jobs, for example with a dependency, are excluded."""
    asked_us: int
    """The moment [us]."""
    notes: tuple[str, ...] = ()
    """What could not be read, in sentences."""
