"""The pools of a cluster: partitions that share nodes, and these nodes.

A job runs only on the nodes of its partition (queue), so a free GPU of one partition does not help a job of another
partition without common nodes. Partitions with a common node, directly or through others, form one pool. The list of
machines gives each node's partitions (`nodes.partitions`); without this record, they are the partitions whose jobs ran
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import duckdb

FEWEST_RUNS = 30
"""Observed pools are separate only if at least this many GPU jobs started in each of two (our choice): fewer jobs may
have used different nodes by chance."""
ENOUGH_JOBS = 150
"""Pools divide a cluster only if at least this many GPU jobs started in one of them (our choice). A smaller log has too
few jobs for a simulation of any pool (`calibration.workbench.FEWEST_JOBS`)."""


@dataclass(frozen=True)
class Pool:
    """Partitions of a cluster that share nodes."""

    name: str
    """Unique among the pools of a Trace: its partitions, joined with a plus, after the cluster if there are several."""
    cluster: str | None
    partitions: Mapping[str, tuple[str, ...]]
    """The nodes of each partition, both in alphabetical order."""
    values: tuple[str, ...]
    """Values of `jobs.partition` that belong to the pool; a waiting job may list several partitions."""
    observed: bool
    """Whether some of the nodes are known only from jobs that ran there."""
    apart: bool
    """Whether the pool is one part of its cluster, next to another pool with GPU jobs."""
    divides: bool
    """Whether the pool is separate and analyzed as its own cluster."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in alphabetical order."""
        return tuple(sorted({node for nodes in self.partitions.values() for node in nodes}))


_MEMBERS = """
SELECT cluster, unnest(partitions) AS part, node_id, false AS observed FROM nodes WHERE partitions IS NOT NULL
UNION ALL
SELECT DISTINCT j.cluster, j."partition", p.node_id, true
FROM placements AS p
JOIN jobs AS j ON p.job_id = j.job_id
LEFT JOIN nodes AS n ON p.node_id = n.node_id
WHERE n.partitions IS NULL AND j."partition" IS NOT NULL AND p.node_id IS NOT NULL
ORDER BY ALL"""
_JOBS = """
SELECT cluster, "partition", count(*) FILTER (WHERE gpu_count > 0 AND start_time IS NOT NULL)
FROM jobs WHERE "partition" IS NOT NULL GROUP BY ALL ORDER BY ALL"""


def find_pools(con: duckdb.DuckDBPyConnection) -> tuple[Pool, ...]:
    """Return the pools of all clusters, by cluster and name; empty if fewer than two partitions are known.

    Parameters
    ----------
    con : DuckDB connection
        A connection with jobs, nodes and placements; the last two may be empty.
    """
    runs: dict[str | None, dict[str, int]] = {}
    for cluster, partition, count in con.execute(_JOBS).fetchall():
        runs.setdefault(cluster, {})[partition] = count
    if max(map(len, runs.values()), default=0) < 2:
        return ()
    nodes: dict[str | None, dict[str, set[str]]] = {}
    guessed: dict[str | None, set[str]] = {}
    for cluster, partition, node, observed in con.execute(_MEMBERS).fetchall():
        nodes.setdefault(cluster, {}).setdefault(partition, set()).add(node)
        if observed:
            guessed.setdefault(cluster, set()).add(node)
    several = len(runs) > 1
    found: list[Pool] = []
    for cluster in sorted(runs, key=lambda name: (name is None, name)):
        own = nodes.get(cluster, {})
        groups = [
            _pool(cluster, several, group, own, runs[cluster], guessed.get(cluster, set()))
            for group in _connected({**dict.fromkeys(_single(runs[cluster]), frozenset[str]()), **own})
        ]
        jobs = {pool.name: sum(runs[cluster].get(value, 0) for value in pool.values) for pool in groups}
        # With few jobs, a pool of observed nodes may be separate by chance.
        with_jobs = [p for p in groups if p.nodes and jobs[p.name] >= (FEWEST_RUNS if p.observed else 1)]
        apart = len(with_jobs) > 1
        divides = apart and max(jobs.values()) >= ENOUGH_JOBS
        found += [replace(pool, apart=apart, divides=divides) for pool in groups]
    return tuple(found)


def _single(names: Iterable[str]) -> list[str]:
    """Return the values of jobs.partition that name one partition; a waiting job may list several, with commas."""
    return [name for name in names if "," not in name]


def _pool(
    cluster: str | None,
    several: bool,
    group: list[str],
    nodes: Mapping[str, set[str]],
    runs: Mapping[str, int],
    guessed: set[str],
) -> Pool:
    own = {name: tuple(sorted(nodes.get(name, ()))) for name in group}
    # A job that lists several partitions has not started; the first one decides.
    values = tuple(sorted({*group, *(name for name in runs if name.partition(",")[0] in own)}))
    label = "+".join(group)
    return Pool(
        f"{cluster}/{label}" if several else label,
        cluster,
        own,
        values,
        observed=any(node in guessed for held in own.values() for node in held),
        apart=False,
        divides=False,
    )


def _connected(nodes: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the partitions in groups: two partitions with a common node are in one group."""
    group = {name: {name} for name in nodes}
    owner: dict[str, str] = {}
    for name in sorted(nodes):
        for node in nodes[name]:
            first = owner.setdefault(node, name)
            if group[first] is not group[name]:
                group[first] |= group[name]
                for member in group[name]:
                    group[member] = group[first]
    return sorted({id(members): sorted(members) for members in group.values()}.values())
