"""A scenario whose nodes fail, as settings ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.outages.away import with_outages, without_absences
from tracekit.replay.outages.failures import outages_for
from tracekit.replay.outages.texts import read_checkpoints, read_outages

if TYPE_CHECKING:
    from tracekit.replay.scenario import Scenario
    from tracekit.settings import ReplaySettings
    from tracekit.trace import Trace

__all__ = ["failing"]


def failing(scenario: Scenario, trace: Trace, settings: ReplaySettings) -> Scenario:
    """Return a scenario with the outages, checkpoints and spares that settings ask for; itself where they ask for none.

    Drawn outages take the place of those that the log recorded of its nodes.

    Raises
    ------
    UsageError
        What is asked for cannot be read, or cannot be had from this log.
    """
    if settings.outages is None:
        if settings.checkpoint is not None or settings.spares or settings.lend_spares:
            raise UsageError("checkpoints and spares have no effect without outages", hint="add --outages recorded")
        return scenario
    if settings.outages == "recorded" and not settings.node_events:
        raise UsageError(
            "cannot be combined with --no-node-events", where="--no-node-events", hint="leave one of them out"
        )
    asked, saving, cluster = read_outages(settings.outages), read_checkpoints(settings.checkpoint), scenario.cluster
    if trace.has("node_events"):
        known = set(trace.scan("node_events").select(pl.col("node_id").unique()).collect()["node_id"])
        cluster = without_absences(cluster, np.array([name in known for name in cluster.node_id]))
    outages = outages_for(asked, trace, cluster, scenario.jobs, settings.load, settings.seed)
    if settings.lend_spares and not settings.spares:
        raise UsageError("needs spares to lend", where="--lend-spares", hint="add --spares N")
    if settings.lend_spares and not (scenario.jobs.preemptible == 1).any():
        raise UsageError("the log has no job that may be stopped", where="--lend-spares", hint="leave it out")
    cluster = with_outages(cluster, outages, settings.spares, lend=settings.lend_spares)
    assignment = assign(scenario.jobs, cluster)
    return replace(scenario, cluster=cluster, assignment=assignment, outages=outages, saving=saving)
