"""Carries out what the log records."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Policy
from tracekit.replay.mechanisms import RecordedSchedule
from tracekit.text import counted, percent

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Recorded"]


class Recorded(Policy):
    """The recorded schedule."""

    card: ClassVar[Card] = Card(
        name="recorded",
        title="the recorded schedule: jobs start and end when the log says so",
        rule=(
            "Each job starts and ends when the log says so, at its first start and its last end. Only its nodes "
            "are chosen anew by the placement, anywhere among nodes of one GPU model if it does not fit closely. "
            "A job for which too few GPUs are free runs anyway, on no node. The schedule is checked against the "
            "cluster: violations.parquet lists when a node or domain would use more GPUs than it has. Jobs "
            "without a recorded start are left out and counted."
        ),
        equal_to=("With the cluster that the log ran on there are no violations, if the log is correct.",),
        sources=("The log.",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> RecordedSchedule:
        """Return the recorded starts and ends."""
        unknown = jobs.recorded_start_ms < 0
        endless = ~unknown & (jobs.recorded_end_ms < jobs.recorded_start_ms)
        early = ~unknown & ~endless & (jobs.recorded_start_ms < jobs.submit_ms)
        out = unknown | endless | early
        if out.all():
            raise UsageError(
                "no job has a recorded start and end",
                where="recorded",
                hint="a changed load makes them meaningless: use --load 1, or another policy",
            )
        gpu_ms = jobs.work_ms.astype(np.float64) * jobs.devices * jobs.milli
        notes = tuple(
            f"left out {what}: {counted(int(which.sum()), 'jobs')}, with "
            f"{percent(gpu_ms[which].sum() / max(gpu_ms.sum(), 1))} of the GPU-hours"
            for which, what in (
                (unknown, "without a recorded start"),
                (endless, "without a recorded end"),
                (early, "recorded as started before their submission"),
            )
            if which.any()
        )
        return RecordedSchedule(
            np.where(out, -1, jobs.recorded_start_ms), np.where(out, -1, jobs.recorded_end_ms), notes=notes
        )
