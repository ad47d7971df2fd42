"""What a replay makes of a workload: waits under three policies, on machines and at a load that all workloads share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import TracekitError
from tracekit.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.fit.scores.figures import Figures
    from tracekit.trace import Trace

__all__ = ["Machines", "machines_for", "waits"]

POLICIES = ("fifo", "easy", "srtf")
"""Policies of the rows of waits."""
STATED_LOAD = 0.9
"""GPU time that jobs ask for over that of the machines, where the log's own machines are unknown or let nobody
wait."""
_NOBODY_S = 60.0
"""90th percentile of waits under FIFO below which so few wait that their waits say little [s]."""
_GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Machines:
    """What the workloads of a table run on."""

    file: Path | None
    """A cluster file; None for the machines of the Trace's tables."""
    cluster: str | None
    """Which cluster of several."""
    words: str


def waits(trace: Trace, machines: Machines, load: float = 1.0) -> dict[str, float]:
    """Return mean and 90th percentile of first start minus submission [s], by row; those that never start left out.

    Jobs come `load` times as fast. Empty where these jobs cannot be replayed there.
    """
    from tracekit.replay.api import scenario_of

    found: dict[str, float] = {}
    try:
        scenario = scenario_of(
            trace,
            cluster=machines.file,
            cluster_name=machines.cluster,
            partitioned=False,
            node_events=False,
            load=load,
            force=True,
        )
        for policy in POLICIES:
            outcome = scenario.run(policy).outcome
            started = outcome.first_start_ms >= 0
            waited = (outcome.first_start_ms - scenario.jobs.submit_ms)[started] / 1000
            if waited.size:
                found[f"wait_{policy}_mean_s"] = float(waited.mean())
                found[f"wait_{policy}_p90_s"] = float(np.quantile(waited, 0.9))
    except TracekitError:
        return {}
    return found


def machines_for(
    trace: Trace, figures: Figures, days: int, folder: Path, cluster: Path | None
) -> tuple[Machines, dict[str, float]]:
    """Return the machines on which workloads are compared, and the waits of the log's own jobs there.

    They are those of the log where they are known and one job in ten waits there, else nodes of 8 GPUs, as many as make
    the load `STATED_LOAD`.

    Parameters
    ----------
    trace : Trace
        The part of the log that is held out.
    figures : Figures
        Its own.
    folder : Path
        For a cluster file.
    cluster : Path or None
        A cluster file that is taken in any case.
    """
    from tracekit.replay.part import busiest_cluster

    name = busiest_cluster(trace)
    if cluster is not None:
        given = Machines(cluster, name, f"the cluster file {cluster.name}")
        return given, waits(trace, given)
    own = Machines(None, name, "the log's machines" + ("" if name is None else f" of {name}, its busiest cluster"))
    why = "its machines are not known"
    if trace.has("nodes") or trace.has("capacity"):
        found = waits(trace, own)
        if found.get("wait_fifo_p90_s", 0.0) >= _NOBODY_S:
            return own, found
        why = "hardly anybody waits on its own machines" if found else "its jobs cannot be replayed on its own machines"
    nodes = max(1, math.ceil(figures.gpu_hours / 24 / days / STATED_LOAD / _GPUS_PER_NODE))
    widest = figures.sizes["gpu_count"].max()
    if isinstance(widest, float):
        nodes = max(nodes, math.ceil(widest / _GPUS_PER_NODE))
    load = figures.gpu_hours / 24 / days / (nodes * _GPUS_PER_NODE)
    file = folder / "machines.toml"
    file.write_text(f'[[pool]]\nname = "all"\nnodes = {nodes}\ngpus_per_node = {_GPUS_PER_NODE}\n', encoding="utf-8")
    stated = Machines(file, name, f"{counted(nodes, 'nodes')} of 8 GPUs, a load of {load:.2f}, since {why}")
    return stated, waits(trace, stated)
