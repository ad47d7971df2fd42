"""Write gpu_utilization with each sample's job, and complete placements with the GPUs shown in labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.node_events import add_events
from tracekit.ingest.telemetry._holders import LAST, Holders
from tracekit.ingest.telemetry._pivot import batches
from tracekit.ingest.telemetry._series import XID, frame_of

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._holders import Matched
    from tracekit.ingest.telemetry._pivot import SampleFile, Wide


# Check whether the telemetry's clock agrees with the log's clock.
#
# With labels, a job's first sample comes at most one sampling interval after its start, and the drift is the median of
# this delay over jobs. Without labels, a busy GPU must have a job, so the shift in half-hours that moves the most busy
# samples into the times of jobs reveals a wrong time zone.

_LEAST_JOBS = 5
_LEAST_SAMPLES = 100
_SLACK_S = 60.0
"""Smaller drifts are not reported: prologs and rounding can cause them."""

_MOST_SAMPLES = 20_000
_CLOCK_BUSY_PCT = 10.0


class BusySamples:
    """A random sample of the times at which GPUs were busy, on machines with jobs."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._nodes = holders.owned["node_id"].unique()
        self._draw = np.random.default_rng(0)
        self.drawn = pl.DataFrame(schema={"node_id": pl.String, "time": pl.Int64, "lot": pl.Float64})

    def add(self, rows: Wide) -> None:
        """Add a random sample of a batch's rows."""
        if "utilization_pct" not in rows.values:
            return
        nodes = self._holders.of_batch(rows.keys)["node_id"]
        busy = (rows.values["utilization_pct"] > _CLOCK_BUSY_PCT) & nodes.is_in(self._nodes.implode()).to_numpy()[
            rows.local
        ]
        row = np.flatnonzero(busy)
        lot = self._draw.random(len(row))
        if len(lot) > _MOST_SAMPLES:
            lowest = np.argpartition(lot, _MOST_SAMPLES)[:_MOST_SAMPLES]
            row, lot = row[lowest], lot[lowest]
        found = pl.DataFrame({"node_id": nodes.gather(rows.local[row]), "time": rows.time[row], "lot": lot})
        self.drawn = pl.concat([self.drawn, found]).bottom_k(_MOST_SAMPLES, by="lot")


def note_clock(holders: Holders, spans: pl.DataFrame, busy: BusySamples, sink: Sink) -> None:
    """Report if the telemetry's clock differs from the log's clock. No times are shifted.

    Parameters
    ----------
    spans : DataFrame
        First and last sample time of each holder [us since 1970].
    """
    jobs, first, last = _drift(holders, spans)
    shift = None
    if jobs >= _LEAST_JOBS and first is not None and last is not None:
        # A wrong clock shifts both ends; samples that begin late or end early shift only one.
        shift = first if abs(first - last) < max(abs(first), abs(last)) and abs(first) > _SLACK_S else 0.0
    elif jobs == 0:
        shift = _shift_of_busy_times(holders.owned, busy.drawn.select("node_id", "time"))
    if shift is None:
        return
    differs = abs(shift) > _SLACK_S
    words = f"the telemetry's clock is {abs(shift):,.0f} s {'ahead of' if shift > 0 else 'behind'} the log's"
    sink.check(
        "telemetry_clock_differs",
        int(differs),
        1,
        "1 if the telemetry's clock or time zone differs from the log's, so that samples do not match their jobs",
        [words] if differs else None,
    )
    if differs:
        sink.note(
            f"{words}: set the log's time zone (--option timezone=NAME), or export the telemetry with the correct clock"
        )


def _drift(holders: Holders, spans: pl.DataFrame) -> tuple[int, float | None, float | None]:
    """Return the number of jobs with one run and samples, and the median delays of their first and last samples [s]."""
    once = holders.held.filter(pl.col("cluster").is_null()).filter(pl.len().over("holder") == 1)
    both = spans.join(once.select("holder", "since", "until"), on="holder")
    ended = both.filter(pl.col("until") < LAST)
    first = both.select((pl.col("first") - pl.col("since")).median()).item()
    last = ended.select((pl.col("last") - pl.col("until")).median()).item()
    return len(both), None if first is None else first / 1e6, None if last is None else last / 1e6


def _shift_of_busy_times(owned: pl.DataFrame, busy: pl.DataFrame) -> float | None:
    """Return the negated shift [s] that moves busy samples into the times of jobs, or None if it is unclear."""
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


# Write GPU errors (XID) as node events.
#
# The metric keeps the last error's number until the driver is reset, so only a change to another number is a new error.
# An error in a GPU's first sample happened earlier, at an unknown time. Numbers: docs.nvidia.com/deploy/xid-errors.

CAUSES = {
    "gpu memory": (48, 63, 64, 92, 94, 95),
    "gpu lost": (79,),
    "nvlink": (74,),
    "software": (13, 31, 43, 45, 68, 69),
}
"""XID numbers by common word for the cause: double-bit errors and remapped memory rows, a GPU lost from the bus, links
between GPUs, and program faults. All other numbers are 'xid'.
"""

_BEFORE = "GPU errors (XID) in a GPU's first sample; their time is unknown, so they have no event"


def write_gpu_errors(con: duckdb.DuckDBPyConnection, errors: pl.DataFrame, sink: Sink) -> None:
    """Add the errors to node_events, with the degraded state and the time of the first sample that shows them.

    Parameters
    ----------
    errors : DataFrame
        The errors at each change: place, time [us since 1970], xid, and whether the first sample showed it (old).
    """
    con.register("shown_error", errors.to_arrow())
    con.execute(
        """CREATE TABLE gpu_error AS
        SELECT g.node_id, g.gpu_index, make_timestamp(e.time) AS time, e.xid, e.old
        FROM shown_error e JOIN place g USING (place)"""
    )
    old, total, examples = con.execute(
        """SELECT count(*) FILTER (WHERE old), count(*),
                  coalesce(list(node_id || ' GPU ' || gpu_index || ': XID ' || xid ORDER BY node_id, gpu_index)
                           FILTER (WHERE old), [])[:5] FROM gpu_error"""
    ).fetchall()[0]
    if not total:
        return
    sink.check("xid_before_the_samples", old, total, _BEFORE, examples)
    words = " ".join(f"WHEN xid IN ({', '.join(map(str, numbers))}) THEN '{word}'" for word, numbers in CAUSES.items())
    said = "string_agg('GPU ' || gpu_index || ': XID ' || xid, ', ' ORDER BY gpu_index)"
    events = f"""SELECT node_id, time AS start_time, time AS end_time, 'degraded' AS state,
               arg_min(CASE {words} ELSE 'xid' END, gpu_index) AS cause, {said} AS source_cause, 'xid' AS source
        FROM gpu_error WHERE NOT old GROUP BY node_id, time"""
    add_events(con, sink, events)


_EXAMPLES = 5
_BUSY_PCT = 5.0

_MEANINGS = {
    "telemetry_of_unknown_jobs": "GPU samples whose labels name a job that is not in the log; they belong to no job",
    "telemetry_outside_its_job": "GPU samples whose labels name a job that did not run at that time, according to "
    "the log; they belong to no job",
    "telemetry_ambiguous": "GPU samples from a machine with several jobs, or with a job on some of its GPUs, where "
    "neither the labels nor the log show which job used which GPU; they belong to no job",
    "telemetry_busy_and_free": "GPU samples above 5 % utilization while no job in the log used a GPU of the machine",
}
_DIFFERENT = "placements whose number of GPUs differs between telemetry labels and log; the log's number is kept"

_PLACEMENTS = """
SELECT p.* REPLACE (
    CASE WHEN p.gpu_index IS NULL AND rows = 1 AND (p.gpu_count IS NULL OR p.gpu_count = len(s.gpu_index))
         THEN s.gpu_index ELSE p.gpu_index END AS gpu_index,
    CASE WHEN rows = 1 THEN coalesce(p.gpu_count, len(s.gpu_index)) ELSE p.gpu_count END AS gpu_count)
FROM (SELECT *, count(*) OVER (PARTITION BY job_id, attempt, node_id) AS rows FROM {rows}) p
LEFT JOIN shown s USING (job_id, attempt, node_id) ORDER BY file_row_number"""


class _Counts:
    """Counts how samples are matched to jobs."""

    def __init__(self) -> None:
        self.total = self.labelled = self.named = self.owned = 0
        self.found = dict.fromkeys(_MEANINGS, 0)
        self._examples: dict[str, set[str]] = {name: set() for name in _MEANINGS}

    def add(self, rows: Wide, matched: Matched, known: np.ndarray, holders: Holders, names: pl.Series) -> None:
        """Count a batch's rows. `known` are the holders found in the log, and `names` are their names."""
        labelled = rows.holder >= 0
        self.total += len(rows.key)
        self.labelled += int(labelled.sum())
        self.named += int((matched.named >= 0).sum())
        self.owned += int((~labelled & (matched.job >= 0)).sum())
        in_log = np.zeros(len(rows.key), dtype=bool)
        in_log[labelled] = known[rows.holder[labelled]]
        busy = rows.values.get("utilization_pct")
        masks = {
            "telemetry_of_unknown_jobs": labelled & ~in_log,
            "telemetry_outside_its_job": in_log & (matched.named < 0),
            "telemetry_ambiguous": matched.doubtful,
            "telemetry_busy_and_free": matched.free & (busy > _BUSY_PCT) if busy is not None else None,
        }
        for name, mask in masks.items():
            if mask is None or not mask.any():
                continue
            self.found[name] += int(mask.sum())
            if name in ("telemetry_of_unknown_jobs", "telemetry_outside_its_job"):
                shown = names.gather(np.unique(rows.holder[mask])).to_list()
            else:
                shown = holders.of_batch(rows.keys)["node_id"].gather(np.unique(rows.local[mask])).to_list()
            self._examples[name] = set(sorted(self._examples[name] | set(shown))[:_EXAMPLES])

    def report(self, sink: Sink) -> None:
        """Record the counts as checks, and add a note that summarizes them."""
        for name, count in self.found.items():
            of = self.labelled if "job" in name else self.total - self.labelled
            sink.check(name, count, of, _MEANINGS[name], sorted(self._examples[name]) if count else None)
        sink.note(
            f"{self.total:,} GPU samples in telemetry: {self.named:,} belong to the job in their labels, and "
            f"{self.owned:,} to the only job on their machine; if the log names a job's GPUs, its samples are "
            "matched by GPU and time"
        )


def write_samples(con: duckdb.DuckDBPyConnection, samples: SampleFile, sink: Sink) -> None:
    """Write gpu_utilization and GPU errors, after `place_series` has assigned each series to a GPU.

    The log's rows come first.
    """
    holders = Holders(con)
    names = frame_of(con, "SELECT holder, name FROM holder ORDER BY holder")
    by_number = pl.Series("name", [None, *names["name"]], dtype=pl.String)  # holders are numbered from 1
    known = np.zeros(len(by_number), dtype=bool)
    known[holders.held["holder"].to_numpy()] = True
    counts, busy = _Counts(), BusySamples(holders)
    shown: list[pl.DataFrame] = []
    errors: list[pl.DataFrame] = []
    for rows in batches(con, samples, sink):
        errors.append(rows.xids)
        if not len(rows.key):
            continue
        matched = holders.match(rows)
        busy.add(rows)
        counts.add(rows, matched, known, holders, by_number)
        places = holders.of_batch(rows.keys)
        sink.write("gpu_utilization", _frame(rows, matched, places, holders.jobs))
        if (matched.named >= 0).any():
            shown.append(_shown(rows, matched, places, holders.held))
    sink.writer.drain()
    if counts.total:
        note_clock(holders, _spans(con, samples), busy, sink)
        counts.report(sink)
    if shown:
        _complete_placements(con, pl.concat(shown), sink)
    if errors:
        write_gpu_errors(con, pl.concat(errors), sink)


def _frame(rows: Wide, matched: Matched, places: pl.DataFrame, jobs: pl.Series) -> pl.DataFrame:
    values = {name: pl.Series(column, nan_to_null=True) for name, column in rows.values.items()}
    job = pl.Series(np.where(matched.job >= 0, matched.job, len(jobs)))
    return places.select("node_id", "gpu_index", "gpu_instance")[rows.local].with_columns(
        pl.Series("time", rows.time).cast(pl.Datetime("us")),
        pl.concat([jobs, pl.Series("job_id", [None], dtype=pl.String)]).gather(job),
        **values,
    )


def _shown(rows: Wide, matched: Matched, places: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Return each attempt's GPUs according to the labels."""
    # Rows of one attempt and place are almost always adjacent, so comparing neighbours removes most repeats.
    first = np.diff(matched.named, prepend=-1) != 0
    first |= np.diff(rows.local, prepend=-1) != 0
    first &= matched.named >= 0
    found = pl.DataFrame({"number": matched.named[first], "local": rows.local[first]}).unique()
    whole = places.with_row_index("local").filter(pl.col("gpu_instance").is_null()).cast({"local": pl.Int64})
    return (
        found.join(whole, on="local")
        .join(held.select(pl.col("number").cast(pl.Int64), "job_id", "attempt"), on="number")
        .select("job_id", "attempt", "node_id", "gpu_index")
    )


def _spans(con: duckdb.DuckDBPyConnection, samples: SampleFile) -> pl.DataFrame:
    """Return the first and last sample time of each holder."""
    placed = frame_of(
        con,
        f"""SELECT series::BIGINT AS series, holder::BIGINT AS holder FROM placed
        WHERE holder IS NOT NULL AND "column" <> '{XID}'""",
    )
    both = samples.runs().join(placed, on="series")
    return both.group_by("holder").agg(pl.col("first").min(), pl.col("last").max())


def _complete_placements(con: duckdb.DuckDBPyConnection, gpus: pl.DataFrame, sink: Sink) -> None:
    shown = gpus.unique().group_by("job_id", "attempt", "node_id").agg(pl.col("gpu_index").sort())
    if not len(shown) or not sink.has("placements"):
        return
    con.register("shown", shown.to_arrow())
    rows = sink.rows("placements")
    count, examples = con.execute(
        f"""SELECT count(*), coalesce(list(p.job_id ORDER BY p.file_row_number)[:5], [])
        FROM {rows} p JOIN shown s USING (job_id, attempt, node_id) WHERE p.gpu_count <> len(s.gpu_index)"""
    ).fetchall()[0]
    sink.check("telemetry_shows_other_gpus", count, len(shown), _DIFFERENT, examples)
    sink.rewrite("placements", con, _PLACEMENTS.format(rows=rows))
