"""Write the table in docs/workload.md that compares predicted with actual node failures.

    python tools/node_failure_scores.py [--data FOLDER]

Every node continues from its current state. A working node fails from each cause at a time drawn from the fit, given
how long it has already worked. A node that is out of service returns at a time drawn from the fit, given how long it
has been out. As in the fit, nodes and causes fail independently, so the intervals do not cover correlated faults. They
do cover the uncertainty of the fit, because some of the draws use fits of logs whose nodes are resampled with
replacement.

The log is the InfiniteHBD release next to the repository (../shared/data/infinitehbd, or --data FOLDER). If it is
missing, nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from threadpoolctl import threadpool_limits  # noqa: E402 -- found through the line above

from tracekit import ingest_logs  # noqa: E402 -- found through the path set above
from tracekit.errors import UsageError  # noqa: E402 -- found through the path set above
from tracekit.fit.choice import Effort  # noqa: E402 -- found through the path set above
from tracekit.fit.node_failures import FailureLog, fit_failure_log, times_away  # noqa: E402 -- found through the path set above
from tracekit.fit.run_times import seeded  # noqa: E402 -- found through the path set above
from tracekit.fit.synthetic import drawn_away, drawn_until_failure  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.array_types import Floats, Ints
    from tracekit.trace import Trace

PAGE = ROOT / "docs" / "workload.md"
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
_BEGIN, _END = "<!-- node failure scores -->\n", "<!-- end of node failure scores -->\n"


FIGURES = ("outages", "node_hours_away", "availability_share")
"""Three figures. The first is the number of outages that begin in the forecast period, after merging a node's
overlapping or adjacent outages. The second is the number of node-hours out of service in this period, including nodes
that are out at its start. The third is 1 - these hours / all node-hours.
"""

_CANDIDATES = 2_000
"""Number of outage durations sampled to find one longer than the time that a node has already been out."""
_SHARE = 0.95


@dataclass(frozen=True)
class Spans:
    """Outages (m,) of several draws."""

    draw: Ints
    node: Ints
    since: Floats
    """Begin from the start of the forecast period [s], negative if the node was already out of service."""
    until: Floats
    """End [s], infinite if unknown."""


@dataclass(frozen=True)
class Interval:
    """A predicted figure."""

    middle: float
    """Median of the draws."""
    low: float
    high: float
    """Lower and upper end of the interval that contains 95 % of the draws."""


@dataclass(frozen=True)
class HeldOut:
    """The last part of a log, both predicted from the first part and recorded."""

    nodes: int
    learned_days: float
    days: float
    """Number of days in the last part."""
    failures: int
    """Number of failures in the first part, where overlapping failures count separately."""
    predicted: dict[str, Interval]
    """Predicted and recorded values by name in `FIGURES`."""
    came: dict[str, float]


def held_out_failures(trace: Trace, share: float = 0.7, *, seed: int = 0, draws: int = 1000, fits: int = 20) -> HeldOut:
    """Predict the node failures in the last part of a log from those in the first part.

    Parameters
    ----------
    trace : Trace
        A Trace with the node_events table.
    share : float
        Share of the time to learn from, between 0 and 1.
    seed : int
    draws : int
        Number of draws of the last part.
    fits : int
        Number of fits that share the draws. One is the fit of the first part; the others use nodes drawn with
        replacement.

    Raises
    ------
    UsageError
        The share is not between 0 and 1, or the first part has too few failures for a fit.
    """
    if not 0 < share < 1:
        raise UsageError(f"the part of the log must be between 0 and 1, not {share:g}")
    log = FailureLog.of(trace)
    window = log.window
    cut = window.begin + round(share * (window.end - window.begin))
    first, span_s = log.before(cut), (window.end - cut) / 1e6
    rng = seeded(seed, "held-out failures")
    found = []
    for number in range(fits):
        model = fit_failure_log(first if number == 0 else _resampled(first, rng), seed, Effort(replicates=0))
        groups = [g for g in model["groups"] or [] if g["group"] != "all"]
        if number == 0 and not any(g["until_failure"]["chosen"] for g in groups):
            raise UsageError("the first part of the log has too few failures to fit", where=trace.path)
        size = len(range(number, draws, fits))
        found.append(figures_of(_drawn(groups, first, span_s, size, rng), size, window.nodes, span_s))
    every = {name: np.concatenate([one[name] for one in found]) for name in FIGURES}
    ends = ((1 - _SHARE) / 2, (1 + _SHARE) / 2)
    return HeldOut(
        window.nodes,
        (cut - window.begin) / 86_400e6,
        span_s / 86_400,
        first.failures.height,
        {name: Interval(float(np.median(v)), *(float(np.quantile(v, q)) for q in ends)) for name, v in every.items()},
        {name: float(v[0]) for name, v in figures_of(_recorded(log, cut), 1, window.nodes, span_s).items()},
    )


def figures_of(spans: Spans, draws: int, nodes: int, length_s: float) -> Mapping[str, Floats]:
    """Return the `FIGURES` of each draw (draws,).

    Parameters
    ----------
    spans : Spans
        Outages. Those that begin after the end or end before the start do not count.
    draws, nodes : int
        Number of draws and of nodes.
    length_s : float
        Length of the forecast period [s].
    """
    inside = (spans.since < length_s) & (spans.until >= 0)
    key = (spans.draw * nodes + spans.node)[inside]
    since, until = spans.since[inside], np.minimum(spans.until[inside], length_s)
    order = np.lexsort((until, since, key))
    key, since, until = key[order], since[order], until[order]
    # Each node in each draw has its own range of values, so one running maximum works for all.
    lift = key * (2.0 * length_s)
    latest = np.maximum.accumulate(until + lift) - lift if key.size else until
    same = np.append(False, key[1:] == key[:-1])
    before = np.where(same, np.append(0.0, latest[:-1]), -np.inf)
    draw = key // nodes
    begins = ((since > before) & (since >= 0)).astype(np.float64)
    away = np.maximum(until - np.maximum(np.maximum(since, before), 0.0), 0.0)
    number: Floats = np.bincount(draw, begins, draws).astype(np.float64)
    hours: Floats = np.bincount(draw, away, draws) / 3600
    return {
        "outages": number,
        "node_hours_away": hours,
        "availability_share": 1 - hours / (nodes * length_s / 3600),
    }


def _recorded(log: FailureLog, cut: int) -> Spans:
    spans = log.failures
    names = spans["node_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
    until = spans["until"].fill_null(log.window.end).to_numpy()
    return Spans(np.zeros(len(names), np.int64), names, (spans["since"].to_numpy() - cut) / 1e6, (until - cut) / 1e6)


def _resampled(log: FailureLog, rng: np.random.Generator) -> FailureLog:
    """Return a log with the same number of nodes, drawn with replacement. A node drawn twice counts as two."""
    names = log.events["node_id"].unique().sort()
    drawn = rng.integers(0, max(log.window.nodes, 1), log.window.nodes)
    copies = pl.DataFrame({"number": np.arange(drawn.size), "place": drawn}).filter(pl.col("place") < len(names))
    named = copies.with_columns(node_id=names.gather(copies["place"])).join(log.events, on="node_id", how="inner")
    events = named.with_columns(node_id=pl.format("{}", "number")).select(log.events.columns)
    return replace(log, events=events)


def _drawn(groups: list[dict[str, Any]], log: FailureLog, span_s: float, draws: int, rng: np.random.Generator) -> Spans:
    """Return every node's outages in the time after a log, for all causes."""
    parts: list[tuple[Ints, Ints, Floats, Floats]] = []
    names = log.events["node_id"].unique().sort()
    for group in groups:
        age, away = _state(group, log, names)
        node = np.tile(np.arange(log.window.nodes), draws)
        draw = np.repeat(np.arange(draws), log.window.nodes)
        out = ~np.isnan(away)
        back = np.zeros((draws, log.window.nodes))
        for place in np.flatnonzero(out).tolist():
            back[:, place] = _back(group, float(away[place]), draws, rng)
            parts.append((np.arange(draws), np.full(draws, place), np.full(draws, -1.0), back[:, place]))
        now, worked = back.ravel(), np.tile(np.where(out, 0.0, age), draws)
        while group["until_failure"]["chosen"] is not None and node.size:
            begins = now < span_s
            node, draw, now, worked = node[begins], draw[begins], now[begins], worked[begins]
            since = now + drawn_until_failure(group["until_failure"], worked, rng)
            begins = since < span_s
            node, draw, since = node[begins], draw[begins], since[begins]
            now, worked = since + drawn_away(group, node.size, rng), np.zeros(node.size)
            parts.append((draw, node, since, now))
    if not parts:
        none = np.empty(0)
        return Spans(none.astype(np.int64), none.astype(np.int64), none, none)
    draw, node, since, until = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Spans(draw, node, since, until)


def _state(group: dict[str, Any], log: FailureLog, names: pl.Series) -> tuple[Floats, Floats]:
    """Return how long each node has worked since its last failure from the group's causes, or has been out [s].

    Nodes without events come last. The time worked is 0 s for a node out of service. The time out is NaN for a node in
    service.
    """
    end = log.window.end
    age = np.full(log.window.nodes, (end - log.window.begin) / 1e6)
    away = np.full(log.window.nodes, np.nan)
    mine = log.failures.filter(pl.col("cause").is_in(list(group["causes"])))
    last = times_away(mine, log.window).group_by("node_id").agg(pl.all().sort_by("since").last()).sort("node_id")
    place = names.search_sorted(last["node_id"]).to_numpy()
    age[place] = (end - last["until"].to_numpy()) / 1e6
    out = last["open"].to_numpy()
    away[place[out]] = (end - last["since"].to_numpy()[out]) / 1e6
    return age, away


def _back(group: dict[str, Any], away_s: float, draws: int, rng: np.random.Generator) -> Floats:
    """Return when a node that has been out for `away_s` returns [s] (draws,), infinite if no outage was that long."""
    lengths = drawn_away(group, _CANDIDATES, rng)
    longer = lengths[lengths > away_s]
    return rng.choice(longer, draws) - away_s if longer.size else np.full(draws, np.inf)


def table(found: list[HeldOut]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| learned from | judged on | outages | node-hours away | availability [%] |"
    yield "|---|---|---|---|---|"
    for one in found:
        cells = [_cell(one, name) for name in FIGURES]
        yield f"| {one.learned_days:.0f} days, {one.failures} failures | {one.days:.0f} days | {' | '.join(cells)} |"


def _cell(one: HeldOut, name: str) -> str:
    figure, came = one.predicted[name], one.came[name]

    def text(value: float) -> str:
        return f"{100 * value:.1f}" if name == "availability_share" else f"{value:,.0f}"

    shown = f"**{text(came)}**" if figure.low <= came <= figure.high else text(came)
    return f"{text(figure.middle)} ({text(figure.low)} to {text(figure.high)}); came {shown}"


def within_page(page: str, lines: list[str]) -> str:
    """Insert the table between its markers in the page."""
    head, _, rest = page.partition(_BEGIN)
    return head + _BEGIN + "\n" + "\n".join(lines) + "\n\n" + _END + rest.partition(_END)[2]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "infinitehbd")
    given = parser.parse_args()
    if not given.data.is_dir():
        sys.exit(f"{given.data}: does not exist")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(limits=1, user_api="blas"):
        trace = ingest_logs(given.data, Path(name) / "trace")
        lines = list(table([held_out_failures(trace, share) for share in SHARES]))
    PAGE.write_text(within_page(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")


if __name__ == "__main__":
    main()
