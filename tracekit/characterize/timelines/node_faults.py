"""Node failures in node_events: times between them, rates per node, coincidences, and affected gangs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.node_faults import (
    ALIKE,
    HOUR_US,
    chance_of_a_pair,
    count_pairs,
    deal_anew,
    exponential,
    gamma_rates,
    groups_of,
    intervals_between,
    kaplan_meier,
    pairs_possible,
    read_faults,
    share_hit,
    shift,
    two_kinds,
    weibull,
)
from tracekit.characterize.timeline import TimelineRows, timeline_of
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import duckdb

    from tracekit.array_types import Floats, Ints
    from tracekit.characterize.node_faults import Intervals, NodeFaults
    from tracekit.characterize.timeline import TimelineTable

_OF_NODE_EVENTS = partial(timeline_of, tables=("node_events",), views=(), also=("nodes", "jobs", "attempts"))
"""Makes a failure timeline with these tables and views. The other fields are given later."""

_SEED = 1

_PLACE = AnswerColumn("place", "number", "order of the causes, most frequent first")

LEAST_FAILURES = 20
"""Minimum number of failures for fitting distributions, as in `tracekit fit`."""

MARGIN = 4.0
"""Minimum AIC difference to prefer another law to the exponential. From 4, the law with the higher AIC has considerably
less support (Burnham and Anderson, Model Selection and Multimodel Inference, 2002)."""


def _times_between(con: duckdb.DuckDBPyConnection, _: Mapping[str, int | float | str]) -> TimelineRows:
    faults = read_faults(con)
    causes = faults.causes() if faults.nodes.height else []
    rows = [
        {"place": place, "cause": cause, "nodes": faults.nodes.height} | _laws(intervals_between(faults, cause))
        for place, cause in enumerate(causes)
    ]
    frame = _frame(rows, TIMES_BETWEEN_FAILURES, whole=("place", "nodes", "failed_nodes", "failures"))
    return TimelineRows(frame, faults.notes)


def _frame(rows: list[dict[str, Any]], timeline: TimelineTable, whole: Collection[str]) -> pl.DataFrame:
    """Return a timeline's rows as a frame; numbers are 64-bit floats, except in count columns."""
    kinds = {
        column.name: pl.String if column.unit == "text" else pl.Int64 if column.name in whole else pl.Float64
        for column in timeline.columns
    }
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _laws(found: Intervals) -> dict[str, Any]:
    own, worked = found.failures_by_node(), found.hours_by_node()
    number, total = int(own.sum()), float(worked.sum())
    p10, p50 = kaplan_meier(found.hours, found.failed, (0.1, 0.5)) if found.hours.size else (None, None)
    row: dict[str, Any] = {
        "failed_nodes": int((own > 0).sum()),
        "failures": number,
        "node_hours": total,
        "mean_h": total / number if number else None,
        "p10_h": p10,
        "p50_h": p50,
    }
    if number < LEAST_FAILURES:
        return row
    laws = {
        "exponential": exponential(found.hours, found.failed),
        "weibull": weibull(found.hours, found.failed),
        "gamma": gamma_rates(own, worked),
        "two_kinds": two_kinds(own, worked),
    }
    best = min(laws, key=lambda name: laws[name].aic)
    if laws[best].aic > laws["exponential"].aic - MARGIN:
        best = "exponential"
    shape, kinds = laws["gamma"].parameters["shape"], laws["two_kinds"].parameters
    never = kinds["good_rate"] * total < 0.5  # less than half a failure is expected on good nodes in the whole log
    return {
        **row,
        **{f"{name}_aic": law.aic for name, law in laws.items()},
        **{f"weibull_{name}": laws["weibull"].parameters[name] for name in ("shape", "shape_low", "shape_high")},
        "rate_spread": 0.0 if shape >= ALIKE else shape**-0.5,
        "bad_share": kinds["bad_share"],
        "bad_mean_h": 1 / kinds["bad_rate"],
        "good_mean_h": None if never else 1 / kinds["good_rate"],
        "preferred": best,
    }


TIMES_BETWEEN_FAILURES = _OF_NODE_EVENTS(
    "failures/time_between",
    name="times_between_failures",
    title="Distributions of the time between node failures",
    also_columns=(_PLACE,),
    compute=_times_between,
)


_PER = 24_000.0
"""Hours in 1,000 days."""

_RATES = ("failures_per_1000_d", "shrunk_per_1000_d", "shrunk_low", "shrunk_high", "probability")


def _node_rates(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    times = float(params["times"])
    if times <= 0:
        raise QueryError(f"times must be above 0, not {times:g}")
    faults = read_faults(con)
    found = intervals_between(faults)
    number, hours = found.failures_by_node(), found.hours_by_node()
    total = int(number.sum())
    own = np.divide(number * _PER, hours, out=np.full(hours.size, np.nan), where=hours > 0)
    unknown = np.full(hours.size, np.nan)
    rates = [own, *_shrunk(number, hours, times)] if total else [own, unknown, unknown, unknown, unknown]
    expected = hours * (total / hours.sum()) if hours.sum() > 0 else unknown
    frame = faults.nodes.select("node_id", "cluster", "rack").with_columns(
        pl.Series("failures", number, dtype=pl.Int64),
        pl.Series("worked_h", hours, dtype=pl.Float64),
        pl.Series("expected_failures", expected, dtype=pl.Float64, nan_to_null=True),
        *(pl.Series(name, v, dtype=pl.Float64, nan_to_null=True) for name, v in zip(_RATES, rates, strict=True)),
    )
    return TimelineRows(frame, faults.notes)


def _shrunk(number: Ints, hours: Floats, times: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return each node's mean rate, its 2.5 % and 97.5 % quantiles [1/1000 d], and P(rate > times * cluster rate)."""
    from scipy.special import gammaincc, gammaincinv

    law = gamma_rates(number, hours).parameters
    bar = times * number.sum() / hours.sum()
    if law["shape"] >= ALIKE:
        # The nodes do not measurably differ, so each has the cluster's rate.
        rate = np.full(hours.size, law["rate"])
        return rate * _PER, rate * _PER, rate * _PER, (rate > bar).astype(np.float64)
    shape, weight = law["shape"] + number, law["shape"] / law["rate"] + hours
    low, high = (gammaincinv(shape, q) / weight * _PER for q in (0.025, 0.975))
    above: Floats = gammaincc(shape, weight * bar).astype(np.float64)
    return shape / weight * _PER, low, high, above


NODE_RATES = _OF_NODE_EVENTS(
    "failures/lemon_nodes",
    name="node_rates",
    title="How often each node fails, shrunk towards the cluster's rate",
    without=("lemon", "least"),
    compute=_node_rates,
)


def _at_once(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    minutes, shuffles = float(params["window_min"]), int(params["shuffles"])
    if minutes < 0 or shuffles < 1:
        raise QueryError("window_min must be 0 or more, and shuffles 1 or more")
    faults = read_faults(con)
    labels = _labels(faults.nodes)
    rows = [
        row
        for place, cause in enumerate(faults.causes() if faults.failures.height else [])
        for row in _together(faults, place, cause, labels, (round(minutes * 60_000), shuffles))
    ]
    counts = ("place", "failures", "pairs", "groups", "largest_group", "grouped_failures")
    return TimelineRows(_frame(rows, FAULTS_AT_ONCE, whole=counts), faults.notes)


def _labels(nodes: pl.DataFrame) -> dict[str, Ints]:
    """Return the group of each node, by kind of group; a rack belongs to its cluster."""
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


def _together(
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
    """Return the same-rack pairs expected if racks are reassigned, and the probability of at least the observed."""
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


FAULTS_AT_ONCE = _OF_NODE_EVENTS(
    "failures/at_once",
    name="faults_at_once",
    title="Failures of several nodes that happen together",
    also_columns=(_PLACE,),
    without=("ratio",),
    compute=_at_once,
)


def _gang_hits(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    within, most = float(params["within_h"]), int(params["sets"])
    if within <= 0 or most < 1:
        raise QueryError("within_h must be above 0, and sets 1 or more")
    faults = read_faults(con)
    rows = _hits(faults, within, most, str(params["placed"]))
    return TimelineRows(_frame(rows, GANG_HITS, whole=("nodes", "sets")), faults.notes)


def _hits(faults: NodeFaults, within: float, most: int, placed: str) -> list[dict[str, Any]]:
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
    """Return orders of all nodes; the first nodes of each order form a set of neighbours or of random nodes."""
    number = min(most, count)
    first = [k * count // number for k in range(number)]
    if placed == "neighbours":
        return [np.roll(np.arange(count), -node) for node in first]
    # Each node is the first of the same number of sets, so single-node sets are the same as with placed=neighbours.
    rng = np.random.default_rng(_SEED)
    laps = most // count if number == count else 1
    others = [np.delete(np.arange(count), node) for node in first] * laps
    return [np.append(node, rng.permutation(rest)) for node, rest in zip(first * laps, others, strict=True)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


GANG_HITS = _OF_NODE_EVENTS(
    "failures/by_gang",
    name="gang_hits",
    title="Probability that a failure hits a multi-node job",
    compute=_gang_hits,
)
