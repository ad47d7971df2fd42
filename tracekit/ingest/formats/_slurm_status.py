"""Slurm's words for how a job stands, for its own accounting and for the traces exported from it."""

from __future__ import annotations

__all__ = ["SLURM_STATUS", "SLURM_UNFINISHED"]

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

SLURM_UNFINISHED = tuple(word for word, status in SLURM_STATUS.items() if status in ("running", "pending"))
"""Words of jobs that have not ended; an end beside one of them is a contradiction."""
