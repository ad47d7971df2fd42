"""Free GPUs of each cluster through time, and how scattered they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.answer import AnswerColumn
from tracekit.characterize.out_of_service import EVENTS
from tracekit.characterize.placeable import free_nodes
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.characterize.timelines.gpu_timeline import STEP, grid_us
from tracekit.characterize.timelines.wait_causes import CAPACITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    clusters, notes = free_nodes(con, str(params["capacity"]), events=params["events"] == "away")
    moments = grid_us(con, float(params["step_s"]), len(clusters))
    moments = moments[moments <= schema.LAST_US]
    parts = [_SHAPE]
    for cluster, nodes in clusters.items():
        free, whole, whole_gpus, gang = nodes.at_moments(moments)
        parts.append(
            pl.DataFrame(
                {
                    "time": pl.Series(moments, dtype=pl.Int64).cast(pl.Datetime("us")),
                    "cluster": pl.repeat(cluster, len(moments), dtype=pl.String, eager=True),
                    "free_gpus": free,
                    "whole_free_nodes": whole,
                    "whole_free_gpus": whole_gpus,
                    "largest_gang": gang,
                }
            )
        )
    return TimelineRows(pl.concat(parts), tuple(notes))


_SHAPE = pl.DataFrame(
    schema={
        "time": pl.Datetime("us"),
        "cluster": pl.String(),
        "free_gpus": pl.Float64(),
        "whole_free_nodes": pl.Int64(),
        "whole_free_gpus": pl.Float64(),
        "largest_gang": pl.Float64(),
    }
)

TIMELINE = TimelineTable(
    name="free_gpus",
    title="Free GPUs of each cluster through time, and how scattered they are",
    tables=("jobs", "attempts", "placements"),
    views=("node_gpus", "open_attempts", "trace_window"),
    also=("nodes", "gpu_utilization", "node_events"),
    by_cluster=True,
    params=(STEP, CAPACITY, EVENTS),
    columns=(
        AnswerColumn("time", "UTC", "a moment, every step_s"),
        AnswerColumn("cluster", "text", "the cluster"),
        AnswerColumn("free_gpus", "GPUs", "GPUs that no attempt holds"),
        AnswerColumn("whole_free_nodes", "nodes", "nodes of which no GPU is held"),
        AnswerColumn("whole_free_gpus", "GPUs", "the GPUs of these nodes"),
        AnswerColumn("largest_gang", "GPUs", "the largest gang that would fit on the fewest nodes that can hold it"),
    ),
    rule="""The state at each moment, changes at that moment included. A gang wants the fewest nodes that can hold it,
so the largest that fits fills all wholly free nodes and the best of the others. An attempt that still runs holds its
GPUs to the end of the trace. A node that node_events says is down, drained or in maintenance has no free GPU then
(events=ignored: as if it were there). Attempts with another unknown start or end hold nothing; so do placements on
nodes of unknown size, which a note counts.""",
    compute=_compute,
)
