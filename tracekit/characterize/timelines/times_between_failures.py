"""Which law the times between failures of nodes follow, and how often each node fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.failure_rates import ALIKE, exponential, gamma_rates, kaplan_meier, two_kinds, weibull
from tracekit.characterize.node_faults import intervals_between, read_faults
from tracekit.characterize.timeline import TimelineRows, TimelineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.characterize.node_faults import Intervals

LEAST_FAILURES = 20
"""Failures from which on laws are fitted, as `tracekit fit` does."""

MARGIN = 4.0
"""By how much less the AIC of another law than the exponential one has to be. From 4 on a law has considerably less
support (Burnham and Anderson, Model Selection and Multimodel Inference, 2002)."""

_COLUMNS = (
    AnswerColumn("cause", "text", "'all', or the cause; unknown where none was given"),
    AnswerColumn("nodes", "nodes", "nodes that were watched"),
    AnswerColumn("failed_nodes", "nodes", "those of them that failed"),
    AnswerColumn("failures", "failures", "failures after time in which the node worked"),
    AnswerColumn("node_hours", "hours", "time in which nodes worked, summed, also that which no failure ended"),
    AnswerColumn("mean_h", "hours", "node_hours / failures; NULL without a failure"),
    AnswerColumn("p10_h", "hours", "by which one in ten had failed, by Kaplan-Meier; NULL where so many did not"),
    AnswerColumn("p50_h", "hours", "the same for half of them"),
    AnswerColumn("exponential_aic", "AIC", "of one constant rate; NULL here and below with fewer than 20 failures"),
    AnswerColumn("weibull_aic", "AIC", "of a rate that falls or rises since the node came back"),
    AnswerColumn("weibull_shape", "1", "below 1 the rate falls, above 1 it rises"),
    AnswerColumn("weibull_shape_low", "1", "low end of its 95 % interval, by the profile likelihood"),
    AnswerColumn("weibull_shape_high", "1", "high end of its 95 % interval"),
    AnswerColumn("gamma_aic", "AIC", "of nodes whose constant rates are gamma distributed"),
    AnswerColumn("rate_spread", "1", "standard deviation of these rates / their mean; 0 where nodes are alike"),
    AnswerColumn("two_kinds_aic", "AIC", "of good and bad nodes, each with a constant rate"),
    AnswerColumn("bad_share", "share", "bad nodes / nodes"),
    AnswerColumn("bad_mean_h", "hours", "mean time between failures of a bad node"),
    AnswerColumn("good_mean_h", "hours", "mean time between failures of a good node; NULL where these never fail"),
    AnswerColumn("preferred", "text", "exponential, weibull, gamma or two_kinds"),
)


def _compute(con: duckdb.DuckDBPyConnection, _: Mapping[str, int | float | str]) -> TimelineRows:
    faults = read_faults(con)
    causes = faults.causes() if faults.nodes.height else []
    rows = [{"cause": cause, "nodes": faults.nodes.height} | _row(intervals_between(faults, cause)) for cause in causes]
    kinds: dict[str, type[pl.DataType]] = {"cause": pl.String, "preferred": pl.String}
    kinds |= dict.fromkeys(("nodes", "failed_nodes", "failures"), pl.Int64)
    schema = {column.name: kinds.get(column.name, pl.Float64) for column in _COLUMNS}
    return TimelineRows(pl.DataFrame(rows, schema=schema, orient="row").with_row_index("place"), faults.notes)


def _row(found: Intervals) -> dict[str, Any]:
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
    never = kinds["good_rate"] * total < 0.5  # not one failure in the whole log is to be expected of them
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


TIMELINE = TimelineTable(
    name="times_between_failures",
    title="Laws of the time between failures of nodes",
    tables=("node_events",),
    views=(),
    also=("nodes", "jobs", "attempts"),
    columns=(AnswerColumn("place", "number", "order of the causes, the most frequent first"), *_COLUMNS),
    rule="""\
A failure is an event whose state is down, or drained for a cause that is a fault: not maintenance, nor unknown. Those
of a node that overlap or adjoin are one. Each cause is a process of its own on every node: its clock starts with the
log, or when the node is back from the last failure by that cause, and is cut off by the end of the log.""",
    compute=_compute,
)
