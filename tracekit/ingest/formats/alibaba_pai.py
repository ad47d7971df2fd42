"""Alibaba PAI, cluster-trace-gpu-v2020: jobs, tasks, instances with their measured use, group tags and machines.

Origin: github.com/alibaba/clusterdata, CC BY 4.0. Study: Weng et al., MLaaS in the Wild, NSDI'22. Times are seconds
shifted by a constant, so calendar dates are meaningless, but hours and weekdays are valid in UTC+8.

A PAI job is a set of tasks (worker, parameter server, ...), each a gang of instances. A job's start_time is its
submission. Only its instances show when it received resources. By default, a job in the Trace is a PAI job, and its
request is the sum of instances times plan over its tasks. With `--option unit=task` each task becomes a job, as in the
study's figures.

A job's group comes from the group tag table. Without a tag, the group is unknown; the published notebook uses the user
instead. The same table tags about one instance in eleven with its model (bert, ctr, graphlearn). A model does not
distinguish training from inference, so `workload` is set only if the tag is training, inference or other. The tag
itself becomes the job's `name`, which the source does not record. With unit=task, the name is the task's, and the tag
is not used. If an alias has several tags, the first in the file is used.

Measured use (job_usage) is each worker's average over its life. CPU use is in percent of one core, and GPU use in
percent of one GPU. Machine use is recorded only over the lives of the machine's workers. Each interval becomes one
DERIVED sample at its start.

Known faults: waiting jobs have no times, and running rows and most failed jobs have no end, so ends come from the
instances. A worker that was retried has several rows. The last row in the order of status, start and end is its
placement, as in the published notebook. But a job starts with the first and ends with the last of all rows. A start of
0 means unknown. Machines may be missing from the specification. Fewer than half of the instances have a measured use.

The Trace does not include a worker's GPU index, largest memory use or network traffic, or a machine's GPU use and load.
The GPU type in a group tag is only used for a check.
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


# Read the specification of PAI's machines, and their use over the lives of workers.


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
    """Write host_utilization with one DERIVED sample per worker interval, at its start.

    `machines` are the machines in the specification, if there is one.
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
            "dated at the start of that worker; the lives overlap and differ in length, so the series is not regular"
        )
        run_checks(con, sink, _PAI_CHECKS)
        if len(machines):
            con.register("listed", machines.to_frame().to_arrow())
            run_checks(con, sink, (_UNLISTED,))


_PAI_CHECKS = (
    SqlCheck(
        "machine_metrics_without_sample",
        "intervals of machine use without a machine, a start or a CPU use; they give no sample",
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
        "intervals of machine use that end before they start; they are used like any other",
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


# PAI's measured use of jobs, with one row per row of the sensor table.


def write_usage(con: duckdb.DuckDBPyConnection, tables: PaiTables, sink: Sink) -> None:
    """Write job_usage from the sensor table, in file order.

    A row belongs to the job (with unit=task, the task) that it names. Without a job table, every row keeps that name.
    Its instance is the one with the same worker in the instance table, or NULL, because a worker's name is not an
    instance name.

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
    # Join superseded rows last: DuckDB overestimates their number and would otherwise keep the instances in memory
    # instead of the measured uses, which are fewer.
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
        f"measured uses whose {'task' if of_task else 'job'} is not in the source; they are left out of job_usage",
        f"SELECT worker_name FROM sensor ANTI JOIN unit USING ({key})",
        "sensor",
    )
    run_checks(con, sink, (unknown, *_CHECKS))
    if tables.has("pai_instance_table"):
        run_checks(con, sink, _INSTANCE_CHECKS)


def _copy(con: duckdb.DuckDBPyConnection, sink: Sink, rows: str) -> None:
    """Write job_usage, unless it would be empty."""
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
        "repeated measured uses of one worker; all are kept",
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
        "measured uses on a machine other than the worker's last; the measurement's machine is used",
        "SELECT worker_name FROM sensor SEMI JOIN (SELECT line FROM named WHERE moved) USING (line)",
        "sensor",
    ),
)


TIMEZONE = "Asia/Shanghai"

_OF_JOBS = ("pai_task_table", "pai_instance_table", "pai_group_tag_table")
"""Tables that give rows only if the job table is present."""


def _never(head: bytes) -> bool:  # noqa: ARG001 -- the files have no recognizable header
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
        "unit": Option("job", "what a job is: a PAI job, or each of its tasks", ("job", "task"))
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Copy the machines and their use, and join the other tables into jobs, attempts, placements and usage."""
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
        sink.note("PAI gives memory in GB; we read it as GiB, because the machines' sizes (512, 768) suggest it")
        return TimeFrame(
            "shifted", TIMEZONE, note="all times are shifted by a constant, so only hours and weekdays are real"
        )


def _read_for_the_account(tables: PaiTables, sink: Sink) -> None:
    """Read the tables that give no rows without jobs, to count their records."""
    alone = [key for key in _OF_JOBS if tables.has(key)]
    for key in alone:
        for _ in tables.rows(key):
            pass
    if alone:
        sink.note(f"pai_job_table is missing, so {', '.join(alone)} is checked but adds no jobs")


FORMAT = AlibabaPaiFormat()
