"""Errors of GPUs (XID) as events of their node.

The metric holds the number of the last error, and keeps it until the driver is reset: an error is a change to another
number, not each sample that shows it. What the first sample of a GPU shows happened before, at an unknown time.
Numbers: docs.nvidia.com/deploy/xid-errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.databases import sql_text

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from tracekit.ingest.sink import Sink

__all__ = ["CAUSES", "write_gpu_errors"]

CAUSES = {
    "gpu memory": (48, 63, 64, 92, 94, 95),
    "gpu lost": (79,),
    "nvlink": (74,),
    "software": (13, 31, 43, 45, 68, 69),
}
"""The common word for the cause, by number: double-bit errors and remapped rows of memory, the bus that lost the GPU,
links between GPUs, faults of the program. All other numbers are 'xid'."""

_BEFORE = (
    "GPU errors (XID) that the first sample of a GPU shows already; when they happened is not known, and they are no "
    "events"
)


def write_gpu_errors(con: duckdb.DuckDBPyConnection, errors: pl.DataFrame, sink: Sink) -> None:
    """Add the errors to node_events: state degraded, at the moment in which a sample first shows them.

    Parameters
    ----------
    errors : DataFrame
        Errors where they change: place, time [us since 1970], xid, and whether the first sample showed it (old).
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
    sink.check(
        "xid_before_the_samples",
        old,
        total,
        _BEFORE,
        examples,
    )
    words = " ".join(f"WHEN xid IN ({', '.join(map(str, numbers))}) THEN '{word}'" for word, numbers in CAUSES.items())
    said = "string_agg('GPU ' || gpu_index || ': XID ' || xid, ', ' ORDER BY gpu_index)"
    events = f"""SELECT node_id, time AS start_time, time AS end_time, 'degraded' AS state,
               arg_min(CASE {words} ELSE 'xid' END, gpu_index) AS cause, {said} AS source_cause, 'xid' AS source
        FROM gpu_error WHERE NOT old GROUP BY node_id, time"""
    path = sink.folder / "node_events.parquet"
    if path.is_file():
        rest = sink.writer.scratch / "node_events_without_xid.parquet"
        path.replace(rest)
        events = f"SELECT * FROM read_parquet({sql_text(rest)}) UNION ALL BY NAME {events}"
    sink.writer.copy("node_events", con, f"SELECT * FROM ({events}) ORDER BY start_time, node_id, state, source")
