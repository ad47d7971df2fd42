"""How often each node fails, drawn towards the others by as much as its own record is thin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.failure_rates import ALIKE, gamma_rates
from tracekit.characterize.node_faults import intervals_between, read_faults
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Floats, Ints

_PER = 24_000.0
"""Hours in 1,000 days."""

_RATES = ("failures_per_1000_d", "shrunk_per_1000_d", "shrunk_low", "shrunk_high", "probability")


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
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
    """Return mean, 2.5 % and 97.5 % quantile of each node's rate [1/1000 d], and P(rate > times * the cluster's)."""
    from scipy.special import gammaincc, gammaincinv

    law = gamma_rates(number, hours).parameters
    bar = times * number.sum() / hours.sum()
    if law["shape"] >= ALIKE:
        # The record does not tell nodes apart: each has the cluster's rate.
        rate = np.full(hours.size, law["rate"])
        return rate * _PER, rate * _PER, rate * _PER, (rate > bar).astype(np.float64)
    shape, weight = law["shape"] + number, law["shape"] / law["rate"] + hours
    low, high = (gammaincinv(shape, q) / weight * _PER for q in (0.025, 0.975))
    above: Floats = gammaincc(shape, weight * bar).astype(np.float64)
    return shape / weight * _PER, low, high, above


TIMELINE = TimelineTable(
    name="node_rates",
    title="How often each node fails, shrunk towards the cluster's rate",
    tables=("node_events",),
    views=(),
    also=("nodes", "jobs", "attempts"),
    params=(Param("times", 2, "how many times the cluster's rate a lemon exceeds"),),
    columns=(
        AnswerColumn("node_id", "text", "the node"),
        AnswerColumn("cluster", "text", "its cluster"),
        AnswerColumn("rack", "text", "its rack; NULL when unknown"),
        AnswerColumn("failures", "failures", "failures after time in which the node worked"),
        AnswerColumn("worked_h", "hours", "that time"),
        AnswerColumn("expected_failures", "failures", "worked_h * the cluster's rate"),
        AnswerColumn("failures_per_1000_d", "1/1000 d", "failures / worked_h; NULL where it never worked"),
        AnswerColumn("shrunk_per_1000_d", "1/1000 d", "mean of the node's rate, given the record of all nodes"),
        AnswerColumn("shrunk_low", "1/1000 d", "low end of the 95 % interval of that rate"),
        AnswerColumn("shrunk_high", "1/1000 d", "high end of it"),
        AnswerColumn("probability", "0..1", "that the node's rate is above `times` times the cluster's"),
    ),
    rule="""\
Failures and the time between them are those of times_between_failures, by all causes together. Rates of nodes are gamma
distributed, with shape a and mean m by maximum likelihood over all nodes; given k failures in T hours, a node's rate is
gamma distributed with shape a + k and mean (a + k) / (a / m + T) (empirical Bayes; Robbins, 1956). The cluster's rate
is all failures / all hours.""",
    compute=_compute,
)
