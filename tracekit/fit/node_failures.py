"""Fit machine failures: the working time until a failure, by cause, and the time away after it.

An event in the node_events table is a failure if its state is down, or if its state is drained and its cause is a
fault. Maintenance in any state, degraded nodes that still work, and nodes drained for an unknown cause do not count as
failures. On each node, each cause is a separate process. Its clock starts when the log begins or the node returns from
the last such failure, and is censored at the end of the log. Nodes that never failed count for the whole log. The
nodes' ages at the start are unknown and assumed to be 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.fit.choice import describe
from tracekit.fit.families import FAMILIES
from tracekit.fit.run_times import seeded
from tracekit.fit.sample import Sample

if TYPE_CHECKING:
    from tracekit.fit.choice import Effort
    from tracekit.trace import Trace


LEAST_FAILURES = 20
"""Minimum number of failures for a separate fit of a cause; rarer causes are fitted together."""

# Two exponentials model new failures and recurring failures, such as those after an unsuccessful repair.
_UNTIL_FAILURE = {name: FAMILIES[name] for name in ("expon", "weibull_min", "hyperexpon_2")}
_AWAY = {"lognorm": FAMILIES["lognorm"]}
_NONE = "the Trace has no node_events table"
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Window:
    """The nodes, and the period over which their failures were observed [us since 1970]."""

    nodes: int
    begin: int
    end: int


@dataclass(frozen=True)
class FailureLog:
    """Node events, and whether each is a failure."""

    events: pl.DataFrame
    """node_id, state, cause (`unknown` if the log has none), since and until [us since 1970] (until is NULL while the
    event continues), planned (whether it is maintenance) and failed (whether it is a failure)."""
    window: Window

    @classmethod
    def of(cls, trace: Trace) -> FailureLog:
        """Return the events of a Trace that has a node_events table."""
        planned = (pl.col("state") == "maintenance") | (pl.col("cause") == "maintenance").fill_null(value=False)
        down = pl.col("state") == "down"
        by_fault = (pl.col("cause") != _UNKNOWN).fill_null(value=False)
        events = (
            trace.scan("node_events")
            .select(
                "node_id",
                "state",
                pl.col("cause").fill_null(_UNKNOWN),
                pl.col("start_time").dt.epoch("us").alias("since"),
                pl.col("end_time").dt.epoch("us").alias("until"),
                planned.alias("planned"),
                (~planned & (down | ((pl.col("state") == "drained") & by_fault))).alias("failed"),
            )
            .collect()
        )
        return cls(events, _window(trace, events))

    @property
    def failures(self) -> pl.DataFrame:
        """The events that are failures."""
        return self.events.filter("failed")

    def before(self, cut: int) -> FailureLog:
        """Return the events as known at a time [us since 1970]; events that were still going on have no end."""
        known = self.events.filter(pl.col("since") < cut)
        ended = known.with_columns(until=pl.when(pl.col("until") <= cut).then("until"))
        return FailureLog(ended, Window(self.window.nodes, self.window.begin, cut))


def fit_node_failures(trace: Trace, seed: int, effort: Effort) -> dict[str, Any]:
    """Return the times to failure and the times away, for all causes together and for each cause.

    `groups` is None, with a reason, if the Trace does not record failures.
    """
    if not trace.has("node_events"):
        return {"groups": None, "reason": _NONE}
    return fit_failure_log(FailureLog.of(trace), seed, effort)


def fit_failure_log(log: FailureLog, seed: int, effort: Effort) -> dict[str, Any]:
    """Do the same as `fit_node_failures`, for events that are already loaded."""
    events, window, failures = log.events, log.window, log.failures
    found: dict[str, Any] = {
        "events": events.height,
        "failures": failures.height,
        "maintenance": int(events["planned"].sum()),
        "nodes": window.nodes,
        "days": (window.end - window.begin) / 86_400e6,
    }
    if failures.is_empty():
        return {**found, "groups": None, "reason": "no event in node_events is a failure"}
    counts = failures["cause"].value_counts().sort("count", "cause", descending=[True, False]).rows()
    own = [cause for cause, number in counts if number >= LEAST_FAILURES]
    rare = [cause for cause, number in counts if number < LEAST_FAILURES]
    parts = [("all", failures)]
    parts += [(cause, failures.filter(cause=cause)) for cause in own]
    if rare:
        parts.append(("other", failures.filter(pl.col("cause").is_in(rare))))
    return {**found, "groups": [_group(name, part, window, seed, effort) for name, part in parts]}


def _window(trace: Trace, events: pl.DataFrame) -> Window:
    """Return the nodes of both tables, and the time from the first to the last event of a job or a node."""
    times = [bound for name in ("since", "until") for bound in (events[name].min(), events[name].max())]
    if trace.has("jobs"):
        own = [pl.col(name).dt.epoch("us") for name in ("submit_time", "start_time", "end_time")]
        jobs = trace.scan("jobs").select(own)
        ends = jobs.select(pl.min_horizontal(pl.all().min()), pl.max_horizontal(pl.all().max()).alias("last"))
        times += ends.collect().row(0)
    known = [t for t in times if isinstance(t, int)]
    names = [events["node_id"]]
    if trace.has("nodes"):
        names.append(trace.scan("nodes").select("node_id").collect()["node_id"])
    return Window(pl.concat(names).n_unique(), min(known, default=0), max(known, default=0))


def _group(name: str, events: pl.DataFrame, window: Window, seed: int, effort: Effort) -> dict[str, Any]:
    spans = times_away(events, window)
    until_failure, cut = _times_between(spans, window)
    away = spans.filter(~pl.col("open"))
    counts = events["cause"].value_counts().sort("count", "cause", descending=[True, False])
    exposure = float(until_failure.sum() + cut.sum())
    up = Sample.make(until_failure, cut)
    down = Sample.make(_seconds(away), _seconds(spans.filter("open")))
    times = describe(up, seeded(seed, f"node up {name}"), effort, families=_UNTIL_FAILURE, p_value=False)
    if times["chosen"] is not None:
        # The longest times belong to nodes that did not fail in the log, so quantiles would end there.
        times["drawn_from"] = "family"
    return {
        "group": name,
        "causes": dict(counts.rows()),
        "failures": spans.height,
        "nodes_failed": spans["node_id"].n_unique(),
        "down_share": int((spans["state"] == "down").sum()) / spans.height,
        "node_days": exposure / 86_400,
        "mean_until_failure_s": exposure / until_failure.size if until_failure.size else None,
        "until_failure": times,
        "away": describe(down, seeded(seed, f"node away {name}"), effort, families=_AWAY, p_value=False),
        "longest_away_s": float(_seconds(spans).max()),
    }


def times_away(events: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return the times away, merging overlapping or adjoining ones of a node. `open` ones continue beyond the log."""
    ended = events.with_columns(open=pl.col("until").is_null(), until=pl.col("until").fill_null(window.end))
    ordered = ended.sort("node_id", "since", "until", "state", "cause")
    before = pl.col("until").cum_max().shift(1).over("node_id")
    fresh = (before.is_null() | (pl.col("since") > before)).fill_null(value=True)
    return (
        ordered.with_columns(span=fresh.cum_sum())
        .group_by("span", maintain_order=True)
        .agg(
            pl.col("node_id").first(),
            pl.col("state").first(),
            pl.col("since").min(),
            pl.col("until").max(),
            pl.col("open").any(),
        )
    )


def _seconds(spans: pl.DataFrame) -> Any:
    return (spans["until"] - spans["since"]).to_numpy() / 1e6


def _times_between(spans: pl.DataFrame, window: Window) -> tuple[Any, Any]:
    """Return the times that ended with a failure [s], and the times cut off by the end of the log."""
    before = spans.with_columns(back=pl.col("until").shift(1).over("node_id").fill_null(window.begin))
    # If a node was already down when the log began, the time for which it had worked is unknown.
    seen = before.filter(pl.col("since") > window.begin)
    ended = (seen["since"] - seen["back"]).to_numpy() / 1e6
    last = spans.group_by("node_id", maintain_order=True).agg(pl.col("until").max(), pl.col("open").any())
    left = last.filter(~pl.col("open") & (pl.col("until") < window.end))
    never = np.full(window.nodes - last.height, (window.end - window.begin) / 1e6)
    return ended, np.concatenate([(window.end - left["until"].to_numpy()) / 1e6, never])
