"""Status words of Slurm, for its own accounting and for traces exported from it."""

from __future__ import annotations

import polars as pl

__all__ = ["SLURM_STATUS", "has_ended", "slurm_status"]

SLURM_STATUS = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUED": "pending",
}
"""The common status of each word of sacct's State."""


def slurm_status(state: pl.Expr) -> pl.Expr:
    """Return the common status of a state word: 'unknown' where the word is not Slurm's, NULL where there is none."""
    status = state.replace_strict(SLURM_STATUS, default="unknown", return_dtype=pl.String)
    return pl.when(state.is_not_null()).then(status)


def has_ended(status: pl.Expr) -> pl.Expr:
    """Return whether a job of this common status may have an end; an end beside another is a contradiction."""
    return (status.ne_missing("running")) & (status.ne_missing("pending"))
