"""Failures of several nodes that come together, against what independent nodes would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.coincidence import (
    chance_of_a_pair,
    count_pairs,
    deal_anew,
    groups_of,
    pairs_possible,
    shift,
)
from tracekit.characterize.node_faults import read_faults
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb

    from tracekit.array_types import Ints
    from tracekit.characterize.node_faults import NodeFaults

_SEED = 1

_COLUMNS = (
    AnswerColumn("cause", "text", "'all', or the cause; unknown where none was given"),
    AnswerColumn("nodes_of", "text", "which two nodes make a pair: of one rack, of one cluster, or any"),
    AnswerColumn("chance", "text", "what it is compared with: times (moved at random) or racks (dealt out anew)"),
    AnswerColumn("failures", "failures", "failures of the nodes that can make such a pair"),
    AnswerColumn("pairs", "pairs", "failures of two such nodes that began within the window of each other"),
    AnswerColumn("expected_pairs", "pairs", "the same by chance"),
    AnswerColumn("p_value", "0..1", "chance of at least so many pairs"),
    AnswerColumn("groups", "groups", "times in which two such nodes or more failed together"),
    AnswerColumn("largest_group", "nodes", "nodes of the widest of them; 0 without one"),
    AnswerColumn("grouped_failures", "failures", "failures in them"),
)


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    minutes, shuffles = float(params["window_min"]), int(params["shuffles"])
    if minutes < 0 or shuffles < 1:
        raise QueryError("window_min must be 0 or more, and shuffles 1 or more")
    faults = read_faults(con)
    labels = _labels(faults.nodes)
    rows = [
        row
        for place, cause in enumerate(faults.causes() if faults.failures.height else [])
        for row in _rows(faults, place, cause, labels, (round(minutes * 60_000), shuffles))
    ]
    kinds: dict[str, type[pl.DataType]] = dict.fromkeys(("cause", "nodes_of", "chance"), pl.String)
    kinds |= dict.fromkeys(("expected_pairs", "p_value"), pl.Float64)
    schema = {"place": pl.Int64} | {column.name: kinds.get(column.name, pl.Int64) for column in _COLUMNS}
    return TimelineRows(pl.DataFrame(rows, schema=schema, orient="row"), faults.notes)


def _labels(nodes: pl.DataFrame) -> dict[str, Ints]:
    """Return the group of each node, by kind of group; a rack is one of its cluster."""
    found = {"any": np.zeros(nodes.height, np.int64)}
    if nodes["cluster"].n_unique() > 1:
        found["cluster"] = _codes(nodes.select("cluster"), nodes["cluster"])
    if nodes["rack"].count():
        found["rack"] = _codes(nodes.select("cluster", "rack"), nodes["rack"])
    return found


def _codes(keys: pl.DataFrame, known: pl.Series) -> Ints:
    codes = keys.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64) - 1).to_series()
    found: Ints = pl.select(pl.when(known.is_null()).then(-1).otherwise(codes)).to_series().to_numpy().astype(np.int64)
    return found


def _rows(
    faults: NodeFaults, place: int, cause: str, labels: Mapping[str, Ints], settings: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    window, shuffles = settings
    spans = faults.outages(cause)
    node = spans["node"].to_numpy()
    times = (spans["since"].to_numpy() - faults.begin) // 1000
    length = max((faults.end - faults.begin) // 1000, 1)
    observed = {name: count_pairs(times, node, label[node], window) for name, label in labels.items()}
    rng = np.random.default_rng(_SEED)
    as_many = dict.fromkeys(observed, 0)
    for _ in range(shuffles if any(observed.values()) else 0):
        moved = shift(times, node, length, rng)
        for name, label in labels.items():
            as_many[name] += count_pairs(moved, node, label[node], window) >= observed[name]
    for name, label in labels.items():
        together, widest, number = groups_of(times, node, label[node], window)
        row = {
            "place": place,
            "cause": cause,
            "nodes_of": name,
            "failures": int((label[node] >= 0).sum()),
            "pairs": observed[name],
            "groups": together,
            "largest_group": widest,
            "grouped_failures": number,
        }
        yield row | {
            "chance": "times",
            "expected_pairs": pairs_possible(node, label[node]) * chance_of_a_pair(window, length),
            "p_value": (1 + as_many[name]) / (1 + shuffles) if observed[name] else 1.0,
        }
        if name == "rack":
            expected, p_value = _racks_dealt(times, node, label, window, shuffles)
            yield row | {"chance": "racks", "expected_pairs": expected, "p_value": p_value}


def _racks_dealt(times: Ints, node: Ints, rack: Ints, window: int, shuffles: int) -> tuple[float, float]:
    """Return the expected pairs of one rack if racks were dealt out anew, and the chance of at least those observed."""
    sizes = np.bincount(rack[rack >= 0])
    nodes = int(sizes.sum())
    share = float((sizes * (sizes - 1)).sum()) / max(nodes * (nodes - 1), 1)
    any_two = count_pairs(times, node, np.where(rack >= 0, 0, -1)[node], window)
    observed = count_pairs(times, node, rack[node], window)
    if not observed:
        return any_two * share, 1.0
    rng = np.random.default_rng(_SEED)
    as_many = sum(count_pairs(times, node, deal_anew(rack, rng)[node], window) >= observed for _ in range(shuffles))
    return any_two * share, (1 + as_many) / (1 + shuffles)


TIMELINE = TimelineTable(
    name="faults_at_once",
    title="Failures of several nodes that come together",
    tables=("node_events",),
    views=(),
    also=("nodes", "jobs", "attempts"),
    params=(
        Param("window_min", 60, "longest time between the begins of two failures that come together, in minutes"),
        Param("shuffles", 199, "random worlds that the p-value is counted over"),
    ),
    columns=(AnswerColumn("place", "number", "order of the causes, the most frequent first"), *_COLUMNS),
    rule="""\
Failures are those of times_between_failures. expected_pairs of times is the number of pairs of failures of two nodes
times 2 * w - w^2, with w = window / length of the log: the chance that two independent times are so near. Its p-value
moves the failures of each node by a random offset. Of racks it is the number of pairs of any two nodes whose rack is
known times the share of pairs of nodes that share a rack; its p-value deals the racks out anew among these nodes.""",
    compute=_compute,
)
