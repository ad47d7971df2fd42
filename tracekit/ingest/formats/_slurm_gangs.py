"""Where the runs of `sacct` held their GPUs.

sacct names the nodes of a run and its GPUs in all, not how these were divided: six on two nodes may be 4 + 2. The GPUs
on each node are known where a run had one node, or one GPU for each, or asked for a number on each node, or where it
filled its nodes: then each gave all that was ever held there. Elsewhere they are unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.derived import most_held

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["place_runs"]

_SPREAD = """
CREATE TABLE spread AS
SELECT ord, job_id, attempt, component::VARCHAR AS task, {name} AS node_id, cluster, gpu_model, submit_local,
       gpu_count AS total, nodes,
       CASE WHEN nodes = 1 THEN gpu_count
            WHEN gpu_count = 0 THEN 0
            WHEN gpu_count = nodes AND NOT sliced THEN 1
            WHEN abs(per_node_gpus * nodes - gpu_count) < 1e-9 THEN per_node_gpus END AS gpu_count,
       "start", "end"
FROM (SELECT *, len(node_list) AS nodes, unnest(node_list) AS node,
             coalesce(regexp_matches(gpu_model, '[1-9]g[._-]?[0-9]+gb', 'i'), false) AS sliced FROM part
      WHERE start_local IS NOT NULL AND len(node_list) > 0)"""

_EVEN = "gpu_count IS NULL AND total % nodes = 0"

# The most that a node ever gave: what was held there at once, as far as it is certain, or the even share of a gang.
_FILLED = f"""
CREATE TABLE filled AS
WITH even AS (SELECT ord, node_id, total / nodes AS share FROM spread WHERE {_EVEN}),
room AS (
    SELECT e.node_id, greatest(max(e.share), any_value(h.gpu_count)) AS gpus
    FROM even e LEFT JOIN ({most_held("spread", '"start"', '"end"')}) h USING (node_id) GROUP BY e.node_id)
SELECT ord, any_value(share) AS share FROM even JOIN room USING (node_id) GROUP BY ord
HAVING bool_and(share = gpus)"""

_PLACED = """
CREATE TABLE placed AS
SELECT s.* EXCLUDE (gpu_count), coalesce(s.gpu_count, f.share) AS gpu_count
FROM spread s LEFT JOIN filled f USING (ord)"""


def place_runs(con: duckdb.DuckDBPyConnection, sink: Sink) -> bool:
    """Create the table placed, one row for each node of each run, and return whether there is any."""
    clusters = con.execute(
        "SELECT count(DISTINCT cluster) FROM part WHERE start_local IS NOT NULL AND len(node_list) > 0"
    ).fetchall()[0][0]
    if not clusters:
        return False
    # Machines of two clusters may share their names.
    con.execute(_SPREAD.format(name="cluster || '/' || node" if clusters > 1 else "node"))
    if con.execute(f"SELECT 1 FROM spread WHERE {_EVEN} LIMIT 1").fetchall():
        con.execute(_FILLED)
        con.execute(_PLACED)
    else:
        con.execute("ALTER TABLE spread RENAME TO placed")
    run_checks(con, sink, _CHECKS)
    return True


_CHECKS = (
    SqlCheck(
        "gpus_not_divisible",
        "runs whose GPUs do not divide evenly among their nodes; the GPUs on each node are unknown",
        "SELECT job_id FROM part WHERE len(node_list) > 1 AND gpu_count % len(node_list) <> 0",
        "part WHERE len(node_list) > 0",
    ),
    SqlCheck(
        "gpus_per_node_unknown",
        "runs on several nodes that need not have held as many GPUs on each: they did not fill their nodes, and no "
        "request for each node is known; the GPUs on each node are unknown",
        f"SELECT DISTINCT job_id || ' attempt ' || attempt FROM placed WHERE {_EVEN}",
        "part WHERE len(node_list) > 0",
    ),
)
