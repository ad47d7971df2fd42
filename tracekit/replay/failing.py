"""Build a scenario whose nodes fail, as the settings request."""

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


def failing(scenario: Scenario, trace: Trace, settings: ReplaySettings) -> Scenario:
    """Return the scenario with the outages, checkpoints and spares that the settings request, or unchanged without any.

    Sampled outages replace the outages that the log recorded.

    Raises
    ------
    UsageError
        The request cannot be parsed, or this log cannot provide it.
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
        raise UsageError("the log has no preemptible job", where="--lend-spares", hint="leave it out")
    cluster = with_outages(cluster, outages, settings.spares, lend=settings.lend_spares)
    assignment = assign(scenario.jobs, cluster)
    return replace(scenario, cluster=cluster, assignment=assignment, outages=outages, saving=saving)
