"""PAI's machines: their specification, and their use over the lives of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.formats._pai_staging import instant

if TYPE_CHECKING:
    from tracekit.ingest.formats._pai_staging import PaiTables
    from tracekit.ingest.sink import Sink

__all__ = ["write_host_samples", "write_machines"]


def write_machines(tables: PaiTables, sink: Sink) -> pl.Series:
    """Write nodes from the specification and return the names of the machines."""
    names = [pl.Series("machine", [], dtype=pl.String)]
    for raw in tables.rows("pai_machine_spec"):
        names.append(raw["machine"])
        sink.write(
            "nodes",
            raw.select(
                node_id="machine",
                cluster=pl.lit("pai"),
                gpu_count="cap_gpu",
                gpu_model=pl.when(pl.col("gpu_type") != "CPU").then("gpu_type"),
                cpu_count="cap_cpu",
                memory_gib="cap_mem",
            ),
        )
    return pl.concat(names)


def write_host_samples(tables: PaiTables, sink: Sink, machines: pl.Series) -> None:
    """Write host_utilization: one DERIVED sample for each worker's interval, at its start.

    `machines` are those of the specification; empty where there is none.
    """
    with sink.connect() as con:
        tables.stage(con, "metric", "pai_machine_metric")
        con.execute(
            """CREATE VIEW sample AS
            SELECT nullif(start_time, 0) AS start_s, machine, machine_cpu, line FROM metric
            WHERE start_s IS NOT NULL AND machine IS NOT NULL AND machine_cpu IS NOT NULL"""
        )
        con.execute(
            """CREATE TABLE standing AS
            SELECT start_s, machine, max_by(machine_cpu, line) AS machine_cpu, count(*) AS rows
            FROM sample GROUP BY start_s, machine"""
        )
        if con.execute("SELECT 1 FROM standing LIMIT 1").fetchall():
            sink.writer.copy(
                "host_utilization",
                con,
                f"""SELECT {instant("start_s")} AS time, machine AS node_id, machine_cpu AS cpu_pct
                FROM standing ORDER BY start_s, machine""",
            )
        sink.note(
            "host_utilization is DERIVED: each sample is a machine's mean CPU use over the life of one of its workers, "
            "laid at that worker's start; the lives overlap and differ in length, so it is not a regular series"
        )
        run_checks(con, sink, _CHECKS)
        if len(machines):
            con.register("listed", machines.to_frame().to_arrow())
            run_checks(con, sink, (_UNLISTED,))


_CHECKS = (
    SqlCheck(
        "machine_metrics_without_sample",
        "intervals of machine use that lack the machine, the start or the CPU use; they give no sample",
        """SELECT coalesce(machine, 'unknown machine') || ' in line ' || line
        FROM metric ANTI JOIN sample USING (line)""",
        "metric",
    ),
    SqlCheck(
        "repeated_machine_metrics",
        "intervals of machine use that another with the same start and machine follows; the last in the file is used",
        """SELECT machine || ' at ' || start_s::BIGINT || ' s'
        FROM standing, range(rows - 1) WHERE rows > 1""",
        "sample",
    ),
    SqlCheck(
        "machine_metric_ends_before_start",
        "intervals of machine use that end before they start; they count like any other",
        "SELECT machine || ' in line ' || line FROM metric WHERE nullif(end_time, 0) < start_time",
        "metric",
    ),
    SqlCheck(
        "machine_cpu_out_of_range",
        "intervals of machine use with a CPU use below 0 or above 100 percent; they are kept",
        "SELECT machine || ' in line ' || line FROM metric WHERE machine_cpu NOT BETWEEN 0 AND 100",
        "metric",
    ),
)

_UNLISTED = SqlCheck(
    "unlisted_machine_metrics",
    "machines with measured use that are not in the machine list",
    "SELECT DISTINCT machine FROM sample ANTI JOIN listed USING (machine)",
    "(SELECT DISTINCT machine FROM sample)",
)
