"""Workbenches of worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.replay.builders import make_cluster
from tracekit.calibration.workbench import Workbench

if TYPE_CHECKING:
    from tests.calibration.worlds import World
    from tracekit.replay.clusters.cluster import Cluster

__all__ = ["bench_of"]


def bench_of(world: World) -> Workbench:
    """Return what a log of a world and its nodes tell; with partitions the nodes go to the VCs in turn."""
    jobs, cluster = world.to_replay()

    def make(partitioned: bool) -> Cluster:
        if not partitioned:
            return cluster
        vcs = sorted(set(jobs.tenants))
        domain = [vcs[n % len(vcs)] for n in range(len(world.nodes))]
        quota = {f"vc{v}": q for v, q in enumerate(world.quota)} if world.quota else None
        return make_cluster(world.nodes, domain=domain, quota=quota)

    seen = jobs.submit_ms < 0.6 * jobs.submit_ms.max()
    return Workbench(jobs, {"stated": make}, seen)
