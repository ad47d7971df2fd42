"""Alibaba PAI, cluster-trace-gpu-v2020: jobs, tasks, instances, their measured use, group tags and machines.

Origin: github.com/alibaba/clusterdata, CC BY 4.0. Study: Weng et al., MLaaS in the Wild, NSDI'22. Times are
seconds with a constant shift: calendar dates mean nothing, hours and weekdays hold in UTC+8.

A PAI job is a set of tasks (worker, parameter server, ...), each a gang of instances. A job's start_time is its
submission; when it got resources shows only in its instances. A job here is a PAI job, its request the sum over
tasks of instances times their plan; `--option unit=task` makes each task a job, as the study's figures count.

A job's group comes from the group tag table; where it has none, the group is unknown, although the published notebook
lets the user stand in. The same table tags about one instance in eleven with the model that it computes (bert, ctr,
graphlearn). That does not distinguish training from inference, so `workload` is derived only from a tag that is one of
the words training, inference and other; the tag itself is the job's `name`, which the source leaves free (with
unit=task the name is the task's, and the tag has no place). Of several tags for one alias the first in the file is
used.

Measured use (job_usage) is each worker's average over its life, CPU and GPU in percent of one core and one GPU. The use
of machines is stated over the lives of their workers only; it is offered as one DERIVED sample for each, at its start.

Known faults: waiting jobs have no times, running rows no end, most failed jobs no end either, so the ends come from
the instances; a worker that was retried has several rows, the last by (status, start, end) is its placement, as in
the published notebook, while a job starts and ends with the first and last of all rows; 0 as a start means unknown;
machines may be missing from the specification; fewer than half of the instances have a measured use.

Lost: which GPU of its machine a worker held, largest memory use, network traffic, GPU use and load of machines, the GPU
type that a group tag asks for (it is only compared).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.formats._pai_tables import PaiTables, instant, write_jobs
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


# PAI's machines: their specification, and their use over the lives of workers.


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
            "host_utilization is DERIVED: each sample is the mean CPU use of a machine over the life of one of "
            "its workers, "
            "dated at the start of that worker; the lives overlap and differ in length, so it is not a regular series"
        )
        run_checks(con, sink, _PAI_CHECKS)
        if len(machines):
            con.register("listed", machines.to_frame().to_arrow())
            run_checks(con, sink, (_UNLISTED,))


_PAI_CHECKS = (
    SqlCheck(
        "machine_metrics_without_sample",
        "intervals of machine use without the machine, the start or the CPU use; they make no sample",
        """SELECT coalesce(machine, 'unknown machine') || ' in line ' || line
        FROM metric ANTI JOIN sample USING (line)""",
        "metric",
    ),
    SqlCheck(
        "repeated_machine_metrics",
        "repeated intervals of machine use with the same start and machine; the last in the file is used",
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


# PAI's measured use of jobs: one row for each row of the sensor table.


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


TIMEZONE = "Asia/Shanghai"

_OF_JOBS = ("pai_task_table", "pai_instance_table", "pai_group_tag_table")
"""Tables that give rows only together with the job table."""


def _never(head: bytes) -> bool:  # noqa: ARG001 -- the files have no header to recognize
    return False


def _raw_table(key: str, title: str) -> RawFile:
    return RawFile(key, f"{title}, no header line", rf"{key}(\.csv)?", _never)


class AlibabaPaiFormat(Format):
    """The seven tables of the PAI release."""

    name = "alibaba-pai"
    title = "Alibaba PAI 2020 (cluster-trace-gpu-v2020)"
    raw_files = (
        _raw_table("pai_job_table", "jobs"),
        _raw_table("pai_task_table", "tasks of jobs"),
        _raw_table("pai_instance_table", "instances of tasks"),
        _raw_table("pai_sensor_table", "measured use of instances"),
        _raw_table("pai_group_tag_table", "group and model of jobs"),
        _raw_table("pai_machine_spec", "machines"),
        _raw_table("pai_machine_metric", "use of machines over the lives of instances"),
        RawFile("header", "column order of a table", r"pai_\w+\.header", _never),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "unit": Option("job", "what becomes a job: a PAI job, or each of its tasks", ("job", "task"))
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Copy the machines and their use, then join the other tables into jobs, attempts, placements and usage."""
        tables = PaiTables(found, sink)
        machines = write_machines(tables, sink)
        if tables.has("pai_machine_metric"):
            write_host_samples(tables, sink, machines)
        with sink.connect() as con:
            if tables.has("pai_job_table"):
                write_jobs(con, tables, sink)
            else:
                _read_for_the_account(tables, sink)
            if tables.has("pai_sensor_table"):
                write_usage(con, tables, sink)
        sink.note("PAI gives memory in GB; we read it as GiB, as the sizes of the machines (512, 768) suggest")
        return TimeFrame(
            "shifted", TIMEZONE, note="all times are shifted by a constant: only hours and weekdays are real"
        )


def _read_for_the_account(tables: PaiTables, sink: Sink) -> None:
    """Read the tables that give nothing without jobs, so that their records are counted."""
    alone = [key for key in _OF_JOBS if tables.has(key)]
    for key in alone:
        for _ in tables.rows(key):
            pass
    if alone:
        sink.note(f"pai_job_table is missing, so {', '.join(alone)} is checked but adds no jobs")


FORMAT = AlibabaPaiFormat()
