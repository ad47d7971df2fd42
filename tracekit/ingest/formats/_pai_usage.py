"""PAI's measured use of jobs: one row for each row of the sensor table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.checks import SqlCheck, run_checks

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.formats._pai_staging import PaiTables
    from tracekit.ingest.sink import Sink

__all__ = ["write_usage"]


def write_usage(con: duckdb.DuckDBPyConnection, tables: PaiTables, sink: Sink) -> None:
    """Write job_usage from the sensor table, in file order.

    A row belongs to the job (or task, with unit=task) that it names itself; without a job table every row
    has that name. Its instance is the one of the same worker in the instance table, else NULL: a worker's name is no
    instance's name.

    With a job table, `con` has the views that `write_jobs` creates.
    """
    tables.stage(con, "sensor", "pai_sensor_table")
    of_task = sink.options["unit"] == "task"
    if not tables.has("pai_job_table"):
        own = "job_name || '/' || task_name" if of_task else "job_name"
        _copy(con, sink, f"SELECT {own} AS job_id, NULL AS instance, * FROM sensor")
        run_checks(con, sink, _CHECKS)
        return
    key = "job_name, task_name" if of_task else "job_name"
    # Superseded rows go last: their number is estimated far too high, and the instances would be held instead of the
    # measured uses, which are fewer.
    con.execute(
        """CREATE TABLE named AS
        SELECT f.line, f.inst_name, f.moved
        FROM (SELECT s.line, w.inst_name, w.machine <> s.machine AS moved, w.line AS instance_line
              FROM try w JOIN sensor s ON w.worker_name = s.worker_name AND w.job_name = s.job_name) f
        ANTI JOIN worker_superseded x ON f.instance_line = x.line"""
    )
    _copy(
        con,
        sink,
        f"""SELECT u.job_id, n.inst_name AS instance, s.*
        FROM sensor s JOIN (SELECT job_id, {key} FROM unit) u USING ({key}) LEFT JOIN named n ON n.line = s.line""",
    )
    unknown = SqlCheck(
        "sensor_rows_without_job",
        f"measured uses whose {'task' if of_task else 'job'} is not in the source; they are not in job_usage",
        f"SELECT worker_name FROM sensor ANTI JOIN unit USING ({key})",
        "sensor",
    )
    run_checks(con, sink, (unknown, *_CHECKS))
    if tables.has("pai_instance_table"):
        run_checks(con, sink, _INSTANCE_CHECKS)


def _copy(con: duckdb.DuckDBPyConnection, sink: Sink, rows: str) -> None:
    """Write job_usage, unless it would have no row."""
    if con.execute(f"SELECT 1 FROM ({rows}) LIMIT 1").fetchall():
        sink.writer.copy(
            "job_usage",
            con,
            f"""SELECT job_id, task_name AS task, instance, machine AS node_id, gpu_wrk_util AS gpu_util_pct,
                avg_gpu_wrk_mem AS gpu_memory_gib, cpu_usage AS cpu_pct, avg_mem AS memory_gib
            FROM ({rows}) ORDER BY line""",
        )


_CHECKS = (
    SqlCheck(
        "repeated_sensor_rows",
        "measured uses of a worker that an earlier row measures too; all are kept",
        """SELECT worker_name FROM (
            SELECT worker_name, hash(worker_name) AS hash, line FROM sensor) SEMI JOIN (
            SELECT hash FROM (SELECT hash(worker_name) AS hash FROM sensor) GROUP BY hash HAVING count(*) > 1)
        USING (hash)
        QUALIFY row_number() OVER (PARTITION BY worker_name ORDER BY line) > 1""",
        "sensor",
    ),
    SqlCheck(
        "sensor_values_below_zero",
        "measured uses with a value below 0; they are kept",
        "SELECT worker_name FROM sensor WHERE least(cpu_usage, gpu_wrk_util, avg_mem, avg_gpu_wrk_mem) < 0",
        "sensor",
    ),
)

_INSTANCE_CHECKS = (
    SqlCheck(
        "sensor_rows_without_instance",
        "measured uses whose worker is not among the instances of their job; their instance is unknown",
        "SELECT worker_name FROM sensor ANTI JOIN named USING (line)",
        "sensor",
    ),
    SqlCheck(
        "sensor_machine_disagrees",
        "measured uses on another machine than the worker's last one; their own machine is used",
        "SELECT worker_name FROM sensor SEMI JOIN (SELECT line FROM named WHERE moved) USING (line)",
        "sensor",
    ),
)
