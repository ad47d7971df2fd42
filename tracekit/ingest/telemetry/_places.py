"""Which machine, GPU and job each series is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest.telemetry._metrics import DIVIDED, METRICS, OWN

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink


# A host may be named with or without its cluster, and with or without its domain; a name that fits several machines
# fits none of them.
_NODES = """
CREATE TABLE host_node AS
WITH known AS (SELECT node_id FROM nodes UNION SELECT node_id FROM placements),
spelled AS (
    SELECT node_id, unnest([node_id, split_part(node_id, '/', -1), split_part(split_part(node_id, '/', -1), '.', 1)])
        AS spelling, unnest([0, 1, 2]) AS distance FROM known),
host AS (SELECT DISTINCT host FROM label WHERE host IS NOT NULL),
fits AS (
    SELECT DISTINCT h.host, s.node_id, s.distance + (h.host <> s.spelling)::INT * 3 AS distance
    FROM host h JOIN spelled s ON s.spelling IN (h.host, split_part(h.host, '.', 1)))
SELECT host, any_value(node_id) AS node_id, count(DISTINCT node_id) AS nodes FROM (
    SELECT * FROM fits QUALIFY rank() OVER (PARTITION BY host ORDER BY distance) = 1)
GROUP BY host"""

_PLACED = f"""
CREATE TABLE placed AS
WITH gpu AS (
    SELECT uuid, any_value(gpu_index) AS gpu_index, any_value(host) AS host FROM label
    WHERE uuid IS NOT NULL AND gpu_index IS NOT NULL GROUP BY uuid),
named AS (
    SELECT l.series, coalesce(h.node_id, l.host, g.host) AS node_id, h.nodes = 1 AS known,
           coalesce(l.gpu_index, g.gpu_index) AS gpu_index, l.gpu_instance, m."column", m.factor, m.rank,
           coalesce(l.job, l.namespace || '/' || l.pod) AS name
    FROM label l JOIN metric m ON l.metric = m.name
    LEFT JOIN gpu g ON l.uuid = g.uuid
    LEFT JOIN host_node h ON h.host = coalesce(l.host, g.host))
SELECT * REPLACE (
           CASE WHEN "column" = '{DIVIDED.column}' AND rank = 0
                     AND count(gpu_instance) OVER (PARTITION BY node_id, gpu_index) > 0
                THEN {DIVIDED.rank} ELSE rank END AS rank),
       dense_rank() OVER (ORDER BY node_id, gpu_index, gpu_instance)::INTEGER AS place,
       CASE WHEN name IS NOT NULL THEN dense_rank() OVER (ORDER BY name)::INTEGER END AS holder
FROM named"""

_PLACES = """
CREATE TABLE place AS
SELECT DISTINCT p.place, p.node_id, p.gpu_index, p.gpu_instance, n.cluster
FROM placed p LEFT JOIN nodes n USING (node_id)"""

_UNPLACED = "telemetry series without a GPU or machine; ignored"
_UNKNOWN = "telemetry machines that the log does not name; their samples are kept, and belong to no job"
_SHARED_NAME = (
    "telemetry machines whose name matches several machines of the log; their samples are kept under their own name"
)


def place_series(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Create the table `placed`: machine, GPU and column of each series of the table `label`."""
    rows = [(name, m.column, m.factor, m.rank) for name, m in (METRICS | OWN).items()]
    frame = pl.DataFrame(rows, schema=["name", "column", "factor", "rank"], orient="row")
    con.register("metric_rows", frame.to_arrow())
    con.execute("CREATE TABLE metric AS SELECT * FROM metric_rows")
    con.execute(_NODES)
    con.execute(_PLACED)
    lost, series, examples = con.execute(
        """SELECT count(*) FILTER (WHERE node_id IS NULL OR gpu_index IS NULL), count(*),
                  coalesce(list("column" ORDER BY series) FILTER (WHERE node_id IS NULL OR gpu_index IS NULL), [])[:5]
        FROM placed"""
    ).fetchall()[0]
    sink.check("telemetry_without_gpu", lost, series, _UNPLACED, examples)
    con.execute("DELETE FROM placed WHERE node_id IS NULL OR gpu_index IS NULL")
    con.execute(_PLACES)
    con.execute("CREATE TABLE holder AS SELECT DISTINCT holder, name FROM placed WHERE holder IS NOT NULL")
    for name, condition, meaning in (
        ("telemetry_of_unknown_nodes", "known IS NULL", _UNKNOWN),
        ("telemetry_of_doubtful_nodes", "NOT known", _SHARED_NAME),
    ):
        count, of, examples = con.execute(
            f"""SELECT count(DISTINCT node_id) FILTER (WHERE {condition}), count(DISTINCT node_id),
                       coalesce(list_sort(list(DISTINCT node_id) FILTER (WHERE {condition})), [])[:5] FROM placed"""
        ).fetchall()[0]
        sink.check(name, count, of, meaning, examples)


def frame_of(con: duckdb.DuckDBPyConnection, query: str) -> pl.DataFrame:
    """Return the rows of a query; for tables of series, jobs and machines, not for samples."""
    return pl.DataFrame(pl.from_arrow(con.sql(query).to_arrow_table()))
