"""The tables nodes and node_events of a log with machine files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.machines._interface import LISTS
from tracekit.text import counted

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["attach_known", "write_events", "write_nodes"]

_NAMED = """SELECT node_id, min(cluster) AS cluster
FROM placements LEFT JOIN (SELECT job_id, cluster FROM jobs) USING (job_id) GROUP BY node_id"""

_CHECKS = (
    SqlCheck(
        "machines_not_listed",
        "jobs ran on machines that the list of machines lacks; each has the most GPUs that jobs held there at once",
        "SELECT node_id FROM known ANTI JOIN listed USING (node_id)",
        "known",
    ),
    SqlCheck(
        "jobs_above_listed",
        "machines on which jobs held more GPUs at one time than the list of machines gives them; the list counts "
        "(Slurm dates the end of a run that was requeued after it was over to the requeue: it overlaps later ones)",
        """SELECT node_id || ': listed ' || l.gpu_count || ', held ' || h.gpu_count
        FROM listed l JOIN most_held h USING (node_id) WHERE h.gpu_count > l.gpu_count""",
        "listed",
    ),
)

# A number that the list does not state is that of the log, or what jobs held.
_NODES = """SELECT node_id, coalesce(l.cluster, k.cluster, $only) AS cluster, k.vc,
       CASE WHEN l.gpu_count IS NOT NULL THEN l.gpu_count
            WHEN $from_jobs THEN h.gpu_count ELSE coalesce(k.gpu_count, h.gpu_count) END AS gpu_count,
       coalesce(l.gpu_model, k.gpu_model) AS gpu_model,
       coalesce(l.gpu_memory_gib, k.gpu_memory_gib) AS gpu_memory_gib,
       coalesce(l.cpu_count, k.cpu_count) AS cpu_count, coalesce(l.memory_gib, k.memory_gib) AS memory_gib,
       coalesce(l.rack, k.rack) AS rack, CASE WHEN l.gpu_count IS NULL THEN k.source ELSE l.source END AS source
FROM known k FULL JOIN listed l USING (node_id) LEFT JOIN most_held h USING (node_id)
ORDER BY k.row NULLS LAST, node_id"""


def attach_known(con: duckdb.DuckDBPyConnection, sink: Sink) -> pl.DataFrame:
    """Create views of the log's tables and the tables most_held and known; return node_id and cluster of the latter.

    Known are the machines of the log's table of nodes, and where it has none those on which its jobs ran.
    """
    for table in ("jobs", "placements", "nodes"):
        path = sink.folder / f"{table}.parquet"
        columns = ", ".join(f'NULL::{c.sql} AS "{c.name}"' for c in schema.common(table).columns)
        rows = f"SELECT * FROM read_parquet({sql_text(path)})" if path.is_file() else f"SELECT {columns} WHERE false"
        con.execute(f"CREATE VIEW {table} AS {rows}")
    con.execute(f"CREATE TABLE most_held AS {shown_gpus('placements')}")
    con.execute(
        f"""CREATE TABLE known AS SELECT *, row_number() OVER () AS row FROM nodes
        UNION ALL BY NAME
        SELECT *, NULL::BIGINT AS row FROM ({_NAMED}) ANTI JOIN nodes USING (node_id)"""
    )
    found: pl.DataFrame = pl.DataFrame(con.sql("SELECT node_id, cluster FROM known"))
    return found


def write_nodes(con: duckdb.DuckDBPyConnection, listed: pl.DataFrame, sink: Sink, *, from_jobs: bool) -> None:
    """Write the machines of the lists and those that only the log knows.

    Parameters
    ----------
    con : DuckDB connection
        See `attach_known`.
    listed : DataFrame
        A row for each node_id, with the columns of MACHINE and `source`; empty where there is no list.
    from_jobs : bool
        Whether the log lists no machines, so that those which jobs name have the most GPUs held there at once.
    """
    con.register("listed", listed)
    if listed.height:
        run_checks(con, sink, _CHECKS)
    clusters = [row[0] for row in con.execute("SELECT DISTINCT cluster FROM jobs WHERE cluster IS NOT NULL").fetchall()]
    con.execute("SET VARIABLE only_cluster = $1", [clusters[0] if len(clusters) == 1 else None])
    query = _NODES.replace("$only", "getvariable('only_cluster')").replace("$from_jobs", str(from_jobs))
    fresh = sink.writer.scratch / "nodes.parquet"
    sink.writer.copy("nodes", con, query, fresh)
    fresh.replace(sink.folder / "nodes.parquet")
    if listed.is_empty():
        return
    others = con.execute("SELECT count(*) FROM known ANTI JOIN listed USING (node_id)").fetchall()[0][0]
    sources = " and ".join(sorted(listed["source"].unique().to_list()))
    more = f", {others} more named by {'jobs' if from_jobs else 'the log'} only" if others else ""
    sink.note(f"{counted(listed.height, 'machines')} listed by {sources}{more}")


def write_events(happened: pl.DataFrame, sink: Sink) -> None:
    """Write the events of machine files and those that the log has itself, each once.

    Dumps overlap: of one event the row that has an end counts, and of several the last.

    Parameters
    ----------
    happened : DataFrame
        Columns of node_events, `kind` and `rank`, the number of the file among all.
    """
    path = sink.folder / "node_events.parquet"
    if path.is_file():
        own = pl.read_parquet(path).with_columns(rank=pl.lit(-1, dtype=pl.Int64))
        happened = pl.concat([own, happened], how="diagonal_relaxed")
    once = (
        happened.sort(pl.col("end_time").is_not_null(), "rank", maintain_order=True)
        .unique(["node_id", "start_time", "state"], keep="last", maintain_order=True)
        .sort("node_id", "start_time", "state", "source")
    )
    path.unlink(missing_ok=True)
    sink.write("node_events", once.select(schema.common("node_events").names))
    sink.writer.drain()
    still = once["end_time"].null_count()
    sources = " and ".join(sorted(once["source"].drop_nulls().unique().to_list()))
    on = once["node_id"].n_unique()
    going = f", {still} of which go on" if still else ""
    sink.note(f"{counted(once.height, 'events')} of {counted(on, 'machines')} told by {sources}{going}")


def still_shown(happened: pl.DataFrame, listed: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Return events without the states in lists of machines that a later list of the same kind no longer shows.

    When such a state ended is not known, only that it did.
    """
    newest = listed.group_by("kind", "node_id").agg(pl.col("rank").max().alias("newest"))
    shown = happened.join(newest, on=["kind", "node_id"], how="left", maintain_order="left").with_columns(
        last=pl.col("rank").max().over("kind", "node_id", "start_time", "state")
    )
    over = shown["source"].is_in(LISTS) & (shown["last"] < shown["newest"]).fill_null(value=False)
    if over.any():
        gone = shown.filter(over).unique(["node_id", "start_time", "state"], maintain_order=True)
        sink.check(
            "states_that_ended",
            gone.height,
            None,
            "states in lists of machines that a later list no longer shows; when they ended is not known, and they are "
            "left out: sacctmgr show event knows",
            gone["node_id"],
        )
    return shown.filter(~over).drop("newest", "last")
