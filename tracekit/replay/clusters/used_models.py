"""GPU models of nodes of which the source states none: those that most of the GPU-hours on them asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from tracekit.replay.clusters.nodes import Node
    from tracekit.trace import Trace

__all__ = ["with_used_models"]


def with_used_models(trace: Trace, nodes: list[Node]) -> tuple[list[Node], int]:
    """Return the nodes, and how many of them have the model of their use, since the source states none.

    Jobs that ask for one of several models, or for none, say nothing. Of two models with as many GPU-hours the one that
    comes first by name counts.
    """
    unknown = [node.name for node in nodes if not node.model]
    if not unknown or not all(trace.has(table) for table in ("placements", "jobs", "attempts")):
        return nodes, 0
    one = ~pl.col("gpu_model").str.contains("|", literal=True)
    asked = trace.scan("jobs").select("job_id", "gpu_model").filter(one)
    ran = trace.scan("attempts").select("job_id", "attempt", began="start_time", ended="end_time")
    start, end = (pl.coalesce(own, whole) for own, whole in (("start_time", "began"), ("end_time", "ended")))
    used = (
        trace.scan("placements")
        .filter(pl.col("node_id").is_in(unknown))
        .join(asked, on="job_id")
        .join(ran, on=["job_id", "attempt"], how="left")
        .group_by("node_id", "gpu_model")
        .agg((pl.col("gpu_count") * (end - start).dt.total_seconds()).clip(lower_bound=0).sum().alias("seconds"))
        .filter(pl.col("seconds") > 0)
        .sort("seconds", "gpu_model", descending=[True, False])
        .unique("node_id", keep="first", maintain_order=True)
        .collect()
    )
    models = dict(used.select("node_id", "gpu_model").iter_rows())
    return [replace(node, model=node.model or models.get(node.name, "")) for node in nodes], len(models)
