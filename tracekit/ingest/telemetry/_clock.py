"""Whether the clock of telemetry is that of the log.

With labels, the first sample of a job follows its start by no more than the time between samples; the median over jobs
of what lies between is the drift. Without labels, busy GPUs are held GPUs: the shift of half-hours at which most busy
samples fall into held times tells a wrong zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.telemetry._holders import LAST

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._holders import Holders
    from tracekit.ingest.telemetry._pivot import Wide

__all__ = ["BusySamples", "note_clock"]

_LEAST_JOBS = 5
_LEAST_SAMPLES = 100
_SLACK_S = 60.0
"""Drift that is not told: prologues and rounding take as long."""

_MOST_SAMPLES = 20_000
_BUSY_PCT = 10.0


class BusySamples:
    """A drawn sample of the times at which GPUs were busy, on machines that jobs held."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._nodes = holders.owned["node_id"].unique()
        self._draw = np.random.default_rng(0)
        self.drawn = pl.DataFrame(schema={"node_id": pl.String, "time": pl.Int64, "lot": pl.Float64})

    def add(self, rows: Wide) -> None:
        """Draw from the rows of a batch."""
        if "utilization_pct" not in rows.values:
            return
        nodes = self._holders.of_batch(rows.keys)["node_id"]
        busy = (rows.values["utilization_pct"] > _BUSY_PCT) & nodes.is_in(self._nodes.implode()).to_numpy()[rows.local]
        row = np.flatnonzero(busy)
        lot = self._draw.random(len(row))
        if len(lot) > _MOST_SAMPLES:
            lowest = np.argpartition(lot, _MOST_SAMPLES)[:_MOST_SAMPLES]
            row, lot = row[lowest], lot[lowest]
        found = pl.DataFrame({"node_id": nodes.gather(rows.local[row]), "time": rows.time[row], "lot": lot})
        self.drawn = pl.concat([self.drawn, found]).bottom_k(_MOST_SAMPLES, by="lot")


def note_clock(holders: Holders, spans: pl.DataFrame, busy: BusySamples, sink: Sink) -> None:
    """Tell a clock of the telemetry that differs from the log's; nothing is shifted by it.

    Parameters
    ----------
    spans : DataFrame
        First and last time of the samples of each holder [us since 1970].
    """
    jobs, first, last = _drift(holders, spans)
    shift = None
    if jobs >= _LEAST_JOBS and first is not None and last is not None:
        # Both ends move together when a clock is wrong; samples that begin late or end early move one of them.
        shift = first if abs(first - last) < max(abs(first), abs(last)) and abs(first) > _SLACK_S else 0.0
    elif jobs == 0:
        shift = _shift_of_busy_times(holders.owned, busy.drawn.select("node_id", "time"))
    if shift is None:
        return
    told = abs(shift) > _SLACK_S
    words = f"the telemetry's clock is {abs(shift):,.0f} s {'ahead of' if shift > 0 else 'behind'} the log's"
    sink.check(
        "telemetry_clock_differs",
        int(told),
        1,
        "1 where the clock or the zone of the telemetry differs from the log's, so that samples do not meet their jobs",
        [words] if told else None,
    )
    if told:
        sink.note(
            f"{words}: name the log's time zone (--option timezone=NAME), or export the telemetry with the right clock"
        )


def _drift(holders: Holders, spans: pl.DataFrame) -> tuple[int, float | None, float | None]:
    """Return how many jobs of one run have samples, and the medians of how late these begin and end [s]."""
    once = holders.held.filter(pl.col("cluster").is_null()).filter(pl.len().over("holder") == 1)
    both = spans.join(once.select("holder", "since", "until"), on="holder")
    ended = both.filter(pl.col("until") < LAST)
    first = both.select((pl.col("first") - pl.col("since")).median()).item()
    last = ended.select((pl.col("last") - pl.col("until")).median()).item()
    return len(both), None if first is None else first / 1e6, None if last is None else last / 1e6


def _shift_of_busy_times(owned: pl.DataFrame, busy: pl.DataFrame) -> float | None:
    """Return by how much busy times have to move to meet held times [s], negated; None where they cannot tell."""
    if len(busy) < _LEAST_SAMPLES:
        return None
    held = owned.select("node_id", "since", "until").sort("since")
    shares = {}
    for shift in range(-14 * 60, 14 * 60 + 1, 30):
        moved = busy.with_columns(pl.col("time") + shift * 60_000_000).sort("time")
        met = moved.join_asof(held, left_on="time", right_on="since", by="node_id", check_sortedness=False)
        shares[shift] = float(met.select((pl.col("until") > pl.col("time")).fill_null(value=False).mean()).item())
    best = max(shares, key=lambda shift: (shares[shift], -abs(shift)))
    return -60.0 * best if shares[best] >= 0.9 and shares[best] >= shares[0] + 0.1 else 0.0
