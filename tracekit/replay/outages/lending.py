"""Spares that are lent: until they are needed, jobs that may be stopped run on them.

A node that stands by has a row of its own in the cluster, which only these jobs may use, beside the row for when it
works. Never both are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.replay.clusters.cluster import Cluster

__all__ = ["lent_spans", "with_lent_rows"]

_RACK = "lent spares"


def lent_spans(
    standing_by: Sequence[tuple[int, set[int]]], changes: Iterable[tuple[int, int, bool, bool]]
) -> list[tuple[int, int, bool]]:
    """Return when nodes are lent (True) and no longer (False), as (time [ms], node, which).

    A node that was drained, and is back to stand by, may have a job on it still that runs to its end: it is lent only
    where what ran there was stopped since it left.

    Parameters
    ----------
    standing_by : sequence
        Nodes that stand by from a time on [ms], by time.
    changes : iterable
        Time [ms], node, whether it joins, whether what runs there stops.
    """
    left: dict[int, list[int]] = {}
    stopped: dict[int, list[int]] = {}
    for time, node, joins, stops in changes:
        if stops:
            stopped.setdefault(node, []).append(time)
        elif not joins:
            left.setdefault(node, []).append(time)
    found: list[tuple[int, int, bool]] = []
    lent: set[int] = set()
    before: set[int] = set()
    for time, now in standing_by:
        found += [(time, node, False) for node in sorted(lent - now)]
        lent &= now
        for node in sorted(now - before):
            last = max((at for at in left.get(node, ()) if at <= time), default=None)
            if last is None or any(last <= at <= time for at in stopped.get(node, ())):
                found.append((time, node, True))
                lent.add(node)
        before = now
    return found


def with_lent_rows(cluster: Cluster, nodes: Sequence[int]) -> tuple[Cluster, dict[int, int], dict[int, int]]:
    """Return a cluster with a row more for each of some nodes, away; and the rows of nodes, and of them when lent.

    Rows of lent nodes are groups of their own, the last of their domain and GPU model. Changes are left out.
    """
    picked = np.concatenate([np.arange(cluster.nodes), np.array(nodes, np.int64)])
    lent = np.arange(len(picked)) >= cluster.nodes
    rack = np.where(lent, len(cluster.racks), cluster.rack[picked]).astype(np.int32)
    order = np.lexsort((rack, cluster.model[picked], cluster.domain[picked]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = picked[order]
    columns = {name: getattr(cluster, name)[rows] for name in ("gpus", "model", "domain", "cpu_milli", "memory_mib")}
    made = replace(
        cluster,
        node_id=[cluster.node_id[row] for row in rows.tolist()],
        rack=rack[order],
        racks=[*cluster.racks, _RACK],
        absent=np.where(lent[order], 1, cluster.absent[rows]).astype(np.int8),
        lent=lent[order],
        **columns,
    )
    row_of = dict(enumerate(place[: cluster.nodes].tolist()))
    return made, row_of, dict(zip(nodes, place[cluster.nodes :].tolist(), strict=True))
