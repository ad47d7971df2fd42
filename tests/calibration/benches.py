"""Make workbenches of worlds and Traces of sites, and estimate effects in their twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tracekit
from tests.replay.builders import make_cluster
from tests.worlds.site import simulate
from tests.worlds.slurm_dump import write_logs
from tracekit.calibration.effect import effect_of_times, jobs_of
from tracekit.calibration.rules import Rules
from tracekit.calibration.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.calibration.worlds import World
    from tests.worlds.site import Site
    from tracekit.calibration.api import ClusterCalibration
    from tracekit.calibration.effect import TwinEffect
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.trace import Trace

__all__ = ["bench_of", "effect_of_change", "trace_of_site"]


def bench_of(world: World) -> Workbench:
    """Return the workbench of a world's log and nodes. With partitions, the nodes are assigned to the VCs in turn."""
    jobs, cluster = world.to_replay()

    def make(partitioned: bool, size: float) -> Cluster:
        nodes = world.nodes + world.nodes[: round((size - 1) * len(world.nodes))]
        if not partitioned:
            return cluster if size == 1 else make_cluster(nodes)
        vcs = sorted(set(jobs.tenants))
        domain = [vcs[n % len(vcs)] for n in range(len(nodes))]
        quota = {f"vc{v}": q for v, q in enumerate(world.quota)} if world.quota else None
        return make_cluster(nodes, domain=domain, quota=quota)

    seen = jobs.submit_ms < 0.6 * jobs.submit_ms.max()
    return Workbench(jobs, {"stated": make}, seen)


def effect_of_change(found: ClusterCalibration, change: str | Rules) -> TwinEffect | str:
    """Return a change's effect on the wait, from a new replay that uses no earlier replay."""
    if found.why_no_effect is not None:
        return found.why_no_effect
    if isinstance(change, Rules):
        changed, what = found.bench.times(found.settings._replace(rules=change)), change.words()
    else:
        changed, what = found.bench.times(found.settings, change), change
    return effect_of_times(found.name, what, "queue", jobs_of(found), changed)


def trace_of_site(site: Site, folder: Path, limits: Sequence[str | None] | None = None) -> Trace:
    """Return the Trace of a site's logs, which are written to a new folder (see `write_logs`)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_logs(site, simulate(site), folder / "logs", limits)
    return tracekit.ingest_logs(folder / "logs", folder / "trace")
