"""Runs whose end a scheduler lost: what the log calls running, though it cannot run any more.

Until when such a run counts is the view `open_attempts` of queries/views/, which this module reads as well: what is
counted here is what the load, the digest and the hours held leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import resources, schema
from tracekit.databases import sql_text
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.telemetry._complete import attach_log

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.interface import Format
    from tracekit.ingest.sink import Sink

LOST_END = (
    "runs that the log lists as running although they passed their time limit by more than an hour, or a later run "
    "uses their GPUs; they count up to that limit, or that run, and their end stays unknown (on Slurm, 'sacctmgr show "
    "runawayjobs' lists such records and offers to close them)"
)

_VIEWS = ("trace_window", "open_attempts")

# A run that no longer runs, and has no end, says nothing about what else was held at its time.
_CERTAIN = """
CREATE TABLE certain AS
SELECT p.* REPLACE (coalesce(p.end_time, CASE WHEN o.lost IS NOT NULL THEN make_timestamp(o.until_us) END) AS end_time)
FROM placements p LEFT JOIN attempts a USING (job_id, attempt) LEFT JOIN open_attempts o USING (job_id, attempt)
WHERE p.end_time IS NOT NULL OR a.end_time IS NOT NULL OR o.job_id IS NOT NULL"""

_ENDLESS = """
SELECT 1 FROM {placements} p LEFT JOIN {attempts} a USING (job_id, attempt)
WHERE p.gpu_count > 0 AND p.end_time IS NULL AND a.end_time IS NULL LIMIT 1"""

_DOUBTFUL = """
SELECT count(*) FROM placements p LEFT JOIN attempts a USING (job_id, attempt)
LEFT JOIN open_attempts o USING (job_id, attempt)
WHERE p.gpu_count > 0 AND p.end_time IS NULL AND a.end_time IS NULL AND (o.job_id IS NULL OR o.lost IS NOT NULL)"""

# A machine has at least what one run held of it.
_NODES = """
SELECT n.* REPLACE (
    CASE WHEN n.source IS NULL THEN coalesce(greatest(s.gpu_count, m.gpu_count), n.gpu_count) ELSE n.gpu_count END
    AS gpu_count)
FROM {old} n
LEFT JOIN ({shown}) s USING (node_id)
LEFT JOIN (
    SELECT node_id, ceil(max(gpu_count) - 1e-6)::BIGINT AS gpu_count FROM placements WHERE gpu_count > 0
    GROUP BY node_id) m USING (node_id)
ORDER BY n.file_row_number"""


def lost_runs(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the runs whose end was lost, with why: a text for each, in order."""
    # Most logs have none, and the view takes longer to make than to answer this.
    if not con.execute("SELECT 1 FROM attempts WHERE status = 'running' AND end_time IS NULL LIMIT 1").fetchall():
        return []
    _make_views(con)
    words = "CASE lost WHEN 'limit' THEN 'past its time limit' ELSE 'a later run has its GPUs' END"
    rows = con.execute(
        f"SELECT job_id || CASE WHEN attempt > 0 THEN ' attempt ' || attempt ELSE '' END || ': ' || {words} AS found "
        "FROM open_attempts WHERE lost IS NOT NULL ORDER BY found"
    ).fetchall()
    return [str(row[0]) for row in rows]


def forget_lost_runs(sink: Sink, form: Format) -> None:
    """Give machines that only jobs name the GPUs that jobs held there at once, without runs of unknown end.

    A run that still runs is taken to run on, and one that lost its end up to the bound of `open_attempts`. What is
    added to a Trace is looked at alone, so that its machines are the same in both layouts.
    """
    nodes, placements, attempts = (sink.folder / f"{name}.parquet" for name in ("nodes", "placements", "attempts"))
    if not (form.nodes_from_jobs and all(path.is_file() for path in (nodes, placements, attempts))):
        return
    old = sink.writer.scratch / "nodes_before_ends.parquet"
    with sink.connect() as con:
        files = {path.stem: f"read_parquet({sql_text(path)})" for path in (placements, attempts)}
        if not con.execute(_ENDLESS.format(**files)).fetchall():
            return
        attach_log(con, sink)
        _make_views(con)
        if not con.execute(_DOUBTFUL).fetchall()[0][0]:
            return
        con.execute(_CERTAIN)
        nodes.replace(old)
        rows = f"read_parquet({sql_text(old)}, file_row_number = true)"
        sink.writer.copy("nodes", con, _NODES.format(old=rows, shown=shown_gpus("certain")))


def _make_views(con: duckdb.DuckDBPyConnection) -> None:
    """Create the shared views; tables that the log lacks are empty."""
    have = {row[0] for row in con.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for table in ("jobs", "attempts", "placements", "nodes"):
        if table not in have:
            nothing = ", ".join(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in schema.common(table).columns)
            con.execute(f"CREATE VIEW {table} AS SELECT {nothing} WHERE false")
    for view in _VIEWS:
        sql = (resources.folder("queries") / "views" / f"{view}.sql").read_text(encoding="utf-8")
        con.execute(f"CREATE VIEW {view} AS {sql}")
