"""How much later each spread gang could have started on the fewest nodes that fit it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.free_nodes import CAPACITY, Packing, free_nodes
from tracekit.characterize.notes import noted
from tracekit.characterize.timeline import TimelineRows, TimelineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.characterize.free_nodes import FreeNodes

_HELD = """
CREATE TEMP TABLE gang_part AS
SELECT j.cluster, j.vc, j.gpu_model, a.job_id, a.attempt, a.gpu_count AS gang, p.node_id,
       epoch_us(a.start_time) AS since, epoch_us(a.end_time) AS until,
       sum(coalesce(p.gpu_count, len(p.gpu_index))) AS gpus
FROM placements AS p
INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
INNER JOIN jobs AS j ON p.job_id = j.job_id
WHERE a.end_time > a.start_time AND (len(p.gpu_index) > 0 OR p.gpu_count > 0) AND p.node_id IS NOT NULL
GROUP BY ALL
"""
_POOLS = "SELECT DISTINCT cluster, vc, gpu_model, node_id FROM gang_part ORDER BY ALL"
_SPREAD = """
SELECT cluster, vc, gpu_model, job_id, attempt, any_value(gang) AS gang, any_value(since) AS since,
       any_value(until) AS until, list(node_id ORDER BY node_id) AS nodes,
       list(CAST(gpus AS DOUBLE) ORDER BY node_id) AS parts
FROM gang_part
WHERE gang > 1
GROUP BY cluster, vc, gpu_model, job_id, attempt
HAVING count(*) > 1
ORDER BY cluster, vc, gpu_model, gang, job_id, attempt
"""
_POOL = ["cluster", "vc", "gpu_model"]


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    con.execute(_HELD)
    members = pl.DataFrame(con.sql(_POOLS)).partition_by(_POOL, as_dict=True)
    clusters, notes = free_nodes(con, str(params["capacity"]))
    # A node in several clusters is assigned to only one of them.
    where = {name: (cluster, k) for cluster, pool in clusters.items() for k, name in enumerate(pool.names)}
    parts = [LOCALITY_WAITS.no_rows()]
    unknown = 0
    for key, gangs in pl.DataFrame(con.sql(_SPREAD)).partition_by(_POOL, as_dict=True).items():
        pool = _pool(clusters, where, members[key]["node_id"].to_list())
        known = {} if pool is None else {name: k for k, name in enumerate(pool.names)}
        for (gang,), alike in gangs.partition_by("gang", as_dict=True, maintain_order=True).items():
            within = alike.filter(pl.col("nodes").list.eval(pl.element().is_in(list(known))).list.all())
            unknown += len(alike) - len(within)
            if pool is not None and len(within):
                parts.append(_of_size(pool, float(gang), within, known))
    return TimelineRows(pl.concat(parts), (*notes, *noted("GPUs unknown", unknown)))


def _pool(
    clusters: dict[str | None, FreeNodes], where: dict[str, tuple[str | None, int]], names: list[str]
) -> FreeNodes | None:
    """Return the named nodes in the cluster of the first known name, or None if no name is known."""
    found = [where[name] for name in names if name in where]
    if not found:
        return None
    cluster = found[0][0]
    return clusters[cluster].only(np.array([k for c, k in found if c == cluster]))


def _of_size(pool: FreeNodes, gang: float, attempts: pl.DataFrame, known: dict[str, int]) -> pl.DataFrame:
    """Return the rows for the attempts of one size that ran on more than the fewest nodes."""
    fewest = math.ceil(gang / pool.size - 1e-9)
    spread = attempts.filter(pl.col("nodes").list.len() > fewest)
    packing = Packing(pool, gang)
    firsts = [
        packing.first_place(since, until, [known[name] for name in nodes], parts)
        for since, until, nodes, parts in spread.select("since", "until", "nodes", "parts").iter_rows()
    ]
    place = pl.Series("place", firsts, dtype=pl.Int64)
    return spread.select(
        "job_id",
        "attempt",
        gpu_count=pl.col("gang").cast(pl.Float64),
        node_count=pl.col("nodes").list.len().cast(pl.Int64),
        fewest_nodes=pl.lit(fewest, dtype=pl.Int64),
        run_us=pl.col("until") - pl.col("since"),
        extra_wait_us=place.fill_null(spread["until"]) - pl.col("since"),
        found=place.is_not_null(),
    )


LOCALITY_WAITS = TimelineTable(
    name="locality_waits",
    title="How much later spread gangs could have started on the fewest nodes",
    tables=("jobs", "attempts", "placements"),
    views=("node_gpus", "open_attempts", "trace_window"),
    also=("nodes", "gpu_utilization", "node_events"),
    params=(CAPACITY,),
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("attempt", "number", "the attempt, which ran on more than the fewest nodes"),
        AnswerColumn("gpu_count", "GPUs", "its size"),
        AnswerColumn("node_count", "nodes", "nodes on which the attempt had GPUs"),
        AnswerColumn("fewest_nodes", "nodes", "the fewest nodes that fit the attempt"),
        AnswerColumn("run_us", "us", "the attempt's run time"),
        AnswerColumn(
            "extra_wait_us", "us", "from the attempt's start to the first moment when the fewest nodes had room for it"
        ),
        AnswerColumn(
            "found",
            "true or false",
            "whether such a moment came before the attempt's end; if not, extra_wait_us is run_us",
        ),
    ),
    rule="""\
One row for each attempt of a gang on more than the fewest nodes that fit its GPUs. extra_wait_us is the cost of waiting
for locality: the time from the attempt's start on spread nodes until the fewest nodes were free for it in the recorded
schedule, with its own GPUs counted as free. It is 0 if these nodes were free at the attempt's start. If there was no
such moment before the attempt's end, extra_wait_us is its run time, because it would have waited longer than it ran.
Nodes are considered if jobs of the same cluster, tenant and GPU model ever ran on them. The effect on other jobs is
unknown: some would have used the GPUs, others would have been delayed. The definition is ours, because the waits of
packed gangs do not show how long spread gangs would have waited. Attempts with an unknown start or end are excluded. So
are attempts on nodes of unknown size; a note counts these.""",
    compute=_compute,
)
