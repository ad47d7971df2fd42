"""How likely a gang of nodes is hit by a failure, measured on the recorded ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.coincidence import share_hit
from tracekit.characterize.node_faults import HOUR_US, intervals_between, read_faults
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Ints
    from tracekit.characterize.node_faults import NodeFaults

_SEED = 1

_COLUMNS = (
    AnswerColumn("nodes", "nodes", "nodes of the gang: 1, 2, 4 and so on"),
    AnswerColumn("gpus", "GPUs", "GPUs of these nodes, the mean over the sets; NULL where a node's are unknown"),
    AnswerColumn("sets", "sets", "sets of so many nodes that were looked at"),
    AnswerColumn("failures", "failures", "failures of a set in the log, the mean"),
    AnswerColumn("hit_share", "share", "moments after which a node of the set fails within the time, of all"),
    AnswerColumn("independent_share", "share", "the same if the nodes of the set failed independently of each other"),
    AnswerColumn("alike_share", "share", "the same if all nodes of the log failed alike and independently"),
    AnswerColumn("nodes_per_hit", "nodes", "nodes of the set that fail within the time, where one does"),
    AnswerColumn("independent_nodes_per_hit", "nodes", "the same if they failed independently of each other"),
)


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    within, most = float(params["within_h"]), int(params["sets"])
    if within <= 0 or most < 1:
        raise QueryError("within_h must be above 0, and sets 1 or more")
    faults = read_faults(con)
    kinds: dict[str, type[pl.DataType]] = dict.fromkeys(("nodes", "sets"), pl.Int64)
    schema = {column.name: kinds.get(column.name, pl.Float64) for column in _COLUMNS}
    rows = _rows(faults, within, most, str(params["placed"]))
    return TimelineRows(pl.DataFrame(rows, schema=schema, orient="row"), faults.notes)


def _rows(faults: NodeFaults, within: float, most: int, placed: str) -> list[dict[str, Any]]:
    count = faults.nodes.height
    spans = faults.outages()
    node = spans["node"].to_numpy()
    hours = (spans["since"].to_numpy() - faults.begin) / HOUR_US
    own = np.split(hours, np.searchsorted(node, np.arange(1, count))) if count else []
    known = within < faults.hours
    single = np.array([share_hit(times, faults.hours, within) if known else np.nan for times in own])
    number = np.array([times.size for times in own])
    gpus = faults.nodes["gpu_count"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    found = intervals_between(faults)
    rate = float(found.failed.sum()) / found.hours.sum() if found.hours.size else float("nan")
    orders = _orders(count, most, placed)
    rows = []
    for size in (2**k for k in range(count.bit_length()) if 2**k <= count):
        sets = [order[:size] for order in orders]
        row: dict[str, Any] = {
            "nodes": size,
            "sets": len(sets),
            "gpus": _known(float(np.mean([gpus[s].sum() for s in sets]))),
            "failures": float(np.mean([number[s].sum() for s in sets])),
        }
        if known:
            hit = np.mean([share_hit(np.sort(np.concatenate([own[i] for i in s])), faults.hours, within) for s in sets])
            alone = np.mean([1 - np.prod(1 - single[s]) for s in sets])
            nodes_hit = float(np.mean([single[s].sum() for s in sets]))
            row |= {
                "hit_share": float(hit),
                "independent_share": float(alone),
                "alike_share": _known(float(-np.expm1(-size * within * rate))),
                "nodes_per_hit": nodes_hit / float(hit) if hit > 0 else None,
                "independent_nodes_per_hit": nodes_hit / float(alone) if alone > 0 else None,
            }
        rows.append(row)
    return rows


def _orders(count: int, most: int, placed: str) -> list[Ints]:
    """Return orders of all nodes, of which a gang takes the first: neighbours, or any."""
    number = min(most, count)
    first = [k * count // number for k in range(number)]
    if placed == "neighbours":
        return [np.roll(np.arange(count), -node) for node in first]
    # Each node begins as many sets as any other, so that sets of one node are those of neighbours.
    rng = np.random.default_rng(_SEED)
    laps = most // count if number == count else 1
    others = [np.delete(np.arange(count), node) for node in first] * laps
    return [np.append(node, rng.permutation(rest)) for node, rest in zip(first * laps, others, strict=True)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


TIMELINE = TimelineTable(
    name="gang_hits",
    title="How likely a gang of nodes is hit by a failure",
    tables=("node_events",),
    views=(),
    also=("nodes", "jobs", "attempts"),
    params=(
        Param("within_h", 24, "how long the gang runs, in hours"),
        Param(
            "placed",
            "neighbours",
            "which sets of nodes are looked at: those side by side by cluster, rack and name, or random ones",
            ("neighbours", "random"),
        ),
        Param("sets", 400, "most sets of each size"),
    ),
    columns=_COLUMNS,
    rule="""\
Failures are those of times_between_failures. hit_share is the share of the moments, from which the time still lies in
the log, after which a failure of a node of the set begins within the time; the mean over the sets.""",
    compute=_compute,
)
