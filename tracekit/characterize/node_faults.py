"""Failures of nodes in the node_events table, and the times between them.

An event is a failure if its state is down, or drained because of a fault. Maintenance in any state is not a failure,
nor is a degraded node that still works, or a node drained for an unknown cause. `tracekit fit` uses the same events.
Failures of one node that overlap or adjoin count as one.

All distributions of the time between failures are fitted by maximum likelihood to the same observations: each period in
which a node worked, and whether a failure ended this period. Their AICs can therefore be compared (Akaike, 1974). A
node with rate r and k failures in T hours has the likelihood r^k * exp(-r * T).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.notes import noted

if TYPE_CHECKING:
    import duckdb

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.notes import Note

ALL = "all"
"""Name of the row that covers all causes."""

UNKNOWN = "unknown"
"""The cause of events that name no cause."""

HOUR_US = 3_600_000_000

FAILED = f"""coalesce(cause, '{UNKNOWN}') <> 'maintenance'
    AND (state = 'down' OR (state = 'drained' AND coalesce(cause, '{UNKNOWN}') <> '{UNKNOWN}'))"""
"""SQL condition for the rows of node_events that are failures."""

_WINDOW = """SELECT epoch_us(min(t)), epoch_us(max(t)) FROM (
    SELECT unnest([min(submit_time), max(submit_time), min(start_time), max(start_time), max(end_time)]) AS t FROM jobs
    UNION ALL SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM attempts
    UNION ALL SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM node_events)"""

_FAILURES = f"""SELECT node_id, coalesce(cause, '{UNKNOWN}') AS cause, epoch_us(start_time) AS since,
       epoch_us(end_time) AS until
FROM node_events WHERE {FAILED} ORDER BY ALL"""

_NODES = """SELECT k.node_id, n.cluster, n.rack, n.gpu_count, n.node_id IS NOT NULL AS listed
FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events) AS k
LEFT JOIN nodes AS n ON k.node_id = n.node_id"""


@dataclass(frozen=True)
class NodeFaults:
    """The nodes of a Trace, the time that the Trace covers, and the failures in it."""

    nodes: pl.DataFrame
    """node_id, cluster, rack, gpu_count; ordered by cluster, rack and name, with numbers in names ordered by value."""
    failures: pl.DataFrame
    """node (row of `nodes`), cause, since, until [us since 1970]; until is NULL for a failure without an end."""
    begin: int
    """The first time in the Trace [us since 1970]."""
    end: int
    """The last time in the Trace [us since 1970]."""
    notes: tuple[Note, ...]
    """Notes on data that was excluded or may be missing."""

    @property
    def hours(self) -> float:
        """The time that the Trace covers [h]."""
        return (self.end - self.begin) / HOUR_US

    def causes(self) -> list[str]:
        """Return 'all' and the causes, most frequent first."""
        counts = self.failures["cause"].value_counts().sort("count", "cause", descending=[True, False])
        return [ALL, *counts["cause"]]

    def outages(self, cause: str = ALL) -> pl.DataFrame:
        """Return the failures with one cause or any cause, combining a node's overlapping and adjoining failures.

        Returns
        -------
        DataFrame
            node, since, until [us], open (whether the failure has no end); ordered by node and since.
        """
        own = self.failures if cause == ALL else self.failures.filter(pl.col("cause") == cause)
        ended = own.select(
            "node", "since", open=pl.col("until").is_null(), until=pl.col("until").fill_null(self.end)
        ).sort("node", "since", "until", "open")
        latest = pl.col("until").cum_max().shift(1).over("node")
        fresh = (latest.is_null() | (pl.col("since") > latest)).fill_null(value=True)
        return (
            ended.with_columns(outage=fresh.cum_sum())
            .group_by("outage", maintain_order=True)
            .agg(pl.col("node").first(), pl.col("since").min(), pl.col("until").max(), pl.col("open").any())
            .drop("outage")
        )


@dataclass(frozen=True)
class Intervals:
    """Intervals in which nodes worked: until a failure, or until the end of the log."""

    node: Ints
    """Row of the node."""
    hours: Floats
    """Length [h], above 0."""
    failed: Bools
    """Whether a failure, rather than the end of the log, ended the interval."""
    count: int
    """Total number of nodes."""

    def failures_by_node(self) -> Ints:
        """Count the intervals of each node that ended with a failure."""
        return np.bincount(self.node, weights=self.failed, minlength=self.count).astype(np.int64)

    def hours_by_node(self) -> Floats:
        """Return the total time in which each node worked [h]."""
        found: Floats = np.bincount(self.node, weights=self.hours, minlength=self.count).astype(np.float64)
        return found


def read_faults(con: duckdb.DuckDBPyConnection) -> NodeFaults:
    """Return the nodes, the failures and the covered time of a Trace.

    Parameters
    ----------
    con : DuckDB connection
        A connection with node_events, nodes, jobs and attempts, which may be empty.
    """
    begin, end = con.execute(_WINDOW).fetchall()[0]
    frame = pl.DataFrame(con.sql(_NODES))
    order = sorted(range(frame.height), key=lambda row: _place(*frame.row(row)[:3]))
    nodes = frame[order] if order else frame
    rows = pl.DataFrame(con.sql(_FAILURES))
    backwards = rows.filter(pl.col("until") < pl.col("since")).height
    place = nodes.select("node_id").with_row_index("node").with_columns(pl.col("node").cast(pl.Int64))
    failures = (
        rows.filter(pl.col("until").is_null() | (pl.col("until") >= pl.col("since")))
        .join(place, on="node_id")
        .select("node", "cause", "since", "until")
        .sort("node", "since", "until", "cause")
    )
    notes = (*noted("backwards", backwards), *noted("unlisted", nodes.height - int(nodes["listed"].sum())))
    return NodeFaults(nodes.drop("listed"), failures, begin or 0, end or 0, notes)


def intervals_between(faults: NodeFaults, cause: str = ALL) -> Intervals:
    """Return the times between failures with one cause or any cause.

    The clock of a node starts with the log, or when the node is back from the last such failure, and stops at the end
    of the log. For a failure at the first moment of the log, the previous working time is unknown.
    """
    spans = faults.outages(cause)
    back = spans.select(pl.col("until").shift(1).over("node").fill_null(faults.begin))["until"].to_numpy()
    since, node = spans["since"].to_numpy(), spans["node"].to_numpy()
    seen = since > back
    last = spans.group_by("node", maintain_order=True).agg(pl.col("until").last(), pl.col("open").last())
    left = last.filter(~pl.col("open") & (pl.col("until") < faults.end))
    never = np.setdiff1d(np.arange(faults.nodes.height), node) if faults.end > faults.begin else np.zeros(0, np.int64)
    lengths = [
        (since - back)[seen],
        faults.end - left["until"].to_numpy(),
        np.full(never.size, faults.end - faults.begin),
    ]
    return Intervals(
        np.concatenate([node[seen], left["node"].to_numpy(), never]).astype(np.int64),
        np.concatenate(lengths).astype(np.float64) / HOUR_US,
        np.arange(sum(map(len, lengths))) < int(seen.sum()),
        faults.nodes.height,
    )


def _place(node: str, cluster: str | None, rack: str | None) -> tuple[list[tuple[int, int, str]], ...]:
    return _natural(cluster), _natural(rack), _natural(node)


def _natural(name: str | None) -> list[tuple[int, int, str]]:
    """Return a sort key that puts n2 before n10, and missing names last."""
    if name is None:
        return [(2, 0, "")]
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts]


# Find failures that happen together.


def count_pairs(times: Ints, node: Ints, group: Ints, window: int) -> int:
    """Count the failure pairs on two nodes of the same group that began within `window` of each other.

    Parameters
    ----------
    times : array of int, shape (failures,)
        Start of each failure [ms], not negative.
    node, group : array of int, shape (failures,)
        The node of each failure, and the node's group, from 0, or negative if it has no group.
    window : int
        Maximum time between the two failures of a pair [ms].
    """
    within = group >= 0
    times, node, group = times[within], node[within], group[within]
    return _alike(times, group, window) - _alike(times, node, window)


def _alike(times: Ints, label: Ints, window: int) -> int:
    """Count the pairs with the same label within the window; labels are shifted apart in time."""
    if times.size < 2:
        return 0
    line = np.sort(times + label * (int(times.max()) + window + 1))
    return int((np.searchsorted(line, line + window, side="right") - np.arange(1, line.size + 1)).sum())


def pairs_possible(node: Ints, group: Ints) -> int:
    """Count the failure pairs on two nodes of the same group, at any times."""
    within = group >= 0
    of_groups, of_nodes = (np.bincount(label[within]).astype(np.int64) for label in (group, node))
    return int((of_groups**2).sum() - (of_nodes**2).sum()) // 2


def chance_of_a_pair(window: float, length: float) -> float:
    """Return the probability that two independent times, uniform over `length`, are at most `window` apart [0..1].

    This is 2 * w - w^2, where w is the window in units of the length.
    """
    share = min(window / length, 1.0)
    return share * (2 - share)


def shift(times: Ints, node: Ints, length: int, rng: np.random.Generator) -> Ints:
    """Shift the times by an offset for each node, wrapping around at the end of the log.

    This keeps the number of each node's failures and, except for the gap at the end, the times between them.
    """
    offset = rng.integers(0, length, int(node.max(initial=0)) + 1)
    return (times + offset[node]) % length


def deal_anew(rack: Ints, rng: np.random.Generator) -> Ints:
    """Reassign racks at random among the nodes with a known rack."""
    found = rack.copy()
    found[rack >= 0] = rng.permutation(rack[rack >= 0])
    return found


def groups_of(times: Ints, node: Ints, group: Ints, window: int) -> tuple[int, int, int]:
    """Count the node groups that failed together, the nodes in the largest group, and the failures in all groups.

    Failures belong together if each begins within the window of the previous one. Failures of a single node do not form
    a group.
    """
    within = group >= 0
    if not within.any():
        return 0, 0, 0
    order = np.lexsort((node[within], times[within], group[within]))
    times, node, group = (values[within][order] for values in (times, node, group))
    fresh = np.append(True, (np.diff(times) > window) | (np.diff(group) != 0))
    chain = np.cumsum(fresh) - 1
    failures = np.bincount(chain)
    nodes = np.bincount(np.unique(np.stack([chain, node]), axis=1)[0])
    together = nodes > 1
    return int(together.sum()), int(nodes[together].max(initial=0)), int(failures[together].sum())


def share_hit(times: Floats, length: float, within: float) -> float:
    """Return the share of moments at least `within` before the end of the log with a failure within `within`.

    Parameters
    ----------
    times : array of float
        Times at which failures begin, counted from the start of the log, in increasing order.
    length, within : float
        Length of the log, and the look-ahead time, in the same unit; `within` is less than `length`.
    """
    last = length - within
    low = np.maximum(np.maximum(times - within, np.append(0.0, times[:-1])), 0.0)
    return float(np.maximum(np.minimum(times, last) - low, 0.0).sum() / last)


# Fit distributions of the time between failures.


ALIKE = 1e4
"""Gamma shape from which nodes count as equal: their rates differ by 1 % or less."""

_CHI2 = 3.841458820694124
"""95 % quantile of chi-squared with one degree of freedom."""


@dataclass(frozen=True)
class Law:
    """A fitted law."""

    log_likelihood: float
    free: int
    """Number of fitted parameters."""
    parameters: dict[str, float]

    @property
    def aic(self) -> float:
        """Akaike's criterion: 2 * parameters - 2 * log-likelihood; lower is better."""
        return 2 * self.free - 2 * self.log_likelihood


def kaplan_meier(hours: Floats, failed: Bools, shares: tuple[float, ...]) -> list[float | None]:
    """Return the time after which each share had failed [h], or None if fewer failed.

    Source: Kaplan and Meier, Journal of the American Statistical Association 53 (1958). A period cut off by the end of
    the log counts as at risk up to its own length.
    """
    times, where = np.unique(hours, return_inverse=True)
    over = np.bincount(where, weights=failed, minlength=times.size)
    leaving = np.bincount(where, minlength=times.size)
    at_risk = leaving[::-1].cumsum()[::-1]
    left = np.cumprod(1 - over / at_risk)
    found: list[float | None] = []
    for share in shares:
        reached = np.flatnonzero(left <= 1 - share + 1e-12)
        found.append(float(times[reached[0]]) if reached.size else None)
    return found


def exponential(hours: Floats, failed: Bools) -> Law:
    """Return the law with one constant rate for all nodes, `rate` [1/h] = failures / hours."""
    number, total = int(failed.sum()), float(hours.sum())
    rate = number / total
    return Law(number * np.log(rate) - number, 1, {"rate": rate})


def weibull(hours: Floats, failed: Bools) -> Law:
    """Return the law whose rate falls (shape below 1) or rises (above 1) after a node comes back, for all nodes.

    Its parameters are `shape`, `shape_low` and `shape_high` (95 %, by the profile likelihood) and `scale` [h].
    """
    from scipy.optimize import brentq, minimize_scalar

    number = int(failed.sum())
    unit = float(hours.max())
    logs = np.log(hours / unit)
    own = float(logs[failed].sum())

    def profile(log_shape: float) -> float:
        shape = np.exp(log_shape)
        power = float(np.exp(shape * logs).sum()) / number
        return float(number * (log_shape - np.log(power) - 1) + (shape - 1) * own)

    best = minimize_scalar(lambda u: -profile(u), bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    top, at = -float(best.fun), float(best.x)
    ends = []
    for far in (-7.0, 7.0):
        outside = top - profile(far) > _CHI2 / 2
        ends.append(brentq(lambda u: top - profile(u) - _CHI2 / 2, at, far) if outside else far)
    shape = np.exp(at)
    scale = unit * (np.exp(shape * logs).sum() / number) ** (1 / shape)
    return Law(
        top - number * np.log(unit),
        2,
        {
            "shape": float(shape),
            "shape_low": float(np.exp(ends[0])),
            "shape_high": float(np.exp(ends[1])),
            "scale": float(scale),
        },
    )


def gamma_rates(number: Ints, hours: Floats) -> Law:
    """Return the law of nodes with gamma distributed constant rates, with their `shape` and mean `rate` [1/h].

    The number of failures of a node is then negative binomial (Greenwood and Yule, 1920). If all nodes are equal, the
    shape has no upper limit and is at least `ALIKE`.

    Parameters
    ----------
    number : array of int, shape (nodes,)
        Number of failures of each node.
    hours : array of float, shape (nodes,)
        Time in which each node worked [h].
    """
    from scipy.optimize import minimize, minimize_scalar
    from scipy.special import digamma, gammaln

    worked = hours > 0
    k, t = number[worked].astype(np.float64), hours[worked]
    mean = k.sum() / t.sum()

    def loss(at: Floats) -> float:
        log_shape, log_rate = float(at[0]), float(at[1])
        shape = np.exp(log_shape)
        each = gammaln(shape + k) - gammaln(shape) + k * (log_rate - log_shape)
        return -float((each - (shape + k) * np.log1p(np.exp(log_rate) * t / shape)).sum())

    middle, most = float(np.log(mean)), float(np.log(2 * ALIKE))

    def slope(at: Floats) -> Floats:
        shape = np.exp(at[0])
        ratio = np.exp(at[1]) * t / shape
        lost = (shape + k) * ratio / (1 + ratio)
        by_shape = shape * (digamma(shape + k) - digamma(shape) - np.log1p(ratio)) - k + lost
        return -np.array([by_shape.sum(), (k - lost).sum()])

    first = minimize_scalar(lambda u: loss(np.array([u, middle])), bounds=(-5, most), method="bounded")
    found = minimize(
        loss,
        np.array([float(first.x), middle]),
        method="L-BFGS-B",
        jac=slope,
        options={"ftol": 1e-15, "gtol": 1e-9},
        bounds=[(-7.0, most), (middle - 5, middle + 5)],
    )
    shape, rate = np.exp(found.x)
    return Law(-float(found.fun), 2, {"shape": float(shape), "rate": float(rate)})


def two_kinds(number: Ints, hours: Floats) -> Law:
    """Return the law of good and bad nodes, each with a constant rate: `bad_share`, `bad_rate`, `good_rate` [1/h].

    It is fitted by expectation-maximization (Dempster, Laird and Rubin, 1977) from several starting points; the result
    with the highest likelihood is returned.

    Parameters
    ----------
    number : array of int, shape (nodes,)
        Number of failures of each node.
    hours : array of float, shape (nodes,)
        Time in which each node worked [h].
    """
    worked = hours > 0
    k, t = number[worked].astype(np.float64), hours[worked]
    mean = float(k.sum() / t.sum())
    ends = [_climb(k, t, share, times * mean, mean) for share, times in ((0.05, 8.0), (0.2, 4.0), (0.5, 2.0))]
    return max(ends, key=lambda law: law.log_likelihood)


def _climb(k: Floats, t: Floats, share: float, bad: float, mean: float) -> Law:
    # A class without failures has rate 0, whose logarithm is infinite.
    least = 1e-9 * mean
    good = max((mean - share * bad) / (1 - share), 0.1 * mean)
    before = -np.inf
    for _ in range(2000):
        logs = np.stack([np.log(s) + k * np.log(r) - r * t for s, r in ((share, bad), (1 - share, good))])
        each = np.logaddexp(logs[0], logs[1])
        now = float(each.sum())
        if now - before < 1e-9 * max(1.0, abs(now)):
            break
        before = now
        is_bad = np.exp(logs[0] - each)
        share = float(np.clip(is_bad.mean(), 1e-9, 1 - 1e-9))
        bad = max(float((is_bad * k).sum() / max((is_bad * t).sum(), 1e-300)), least)
        good = max(float(((1 - is_bad) * k).sum() / max(((1 - is_bad) * t).sum(), 1e-300)), least)
    if bad < good:
        share, bad, good = 1 - share, good, bad
    return Law(now, 3, {"bad_share": share, "bad_rate": bad, "good_rate": good})
