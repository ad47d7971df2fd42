"""Alibaba PAI, cluster-trace-gpu-v2020: jobs, tasks, instances and machines.

Origin: github.com/alibaba/clusterdata, CC BY 4.0. Study: Weng et al., MLaaS in the Wild, NSDI'22. Times are
seconds with a constant shift: calendar dates mean nothing, hours and weekdays hold in UTC+8.

A PAI job is a set of tasks (worker, parameter server, ...), each a gang of instances. A job's start_time is its
submission; when it got resources shows only in its instances. A job here is a PAI job, its request the sum over
tasks of instances times their plan; `--option unit=task` makes each task a job, as the study's figures count.

Known faults: waiting jobs have no times, running rows no end, most failed jobs no end either, so the ends come from
the instances; a worker that was retried has several rows, the last by (status, start, end) is its placement, as in
the published notebook, while a job starts and ends with the first and last of all rows; 0 as a start means unknown;
machines may be missing from the specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.cells import LAST_SECOND, limited
from tracekit.ingest.csv_table import header_columns, read_table
from tracekit.ingest.interface import Format, Option, RawFile, TimeFrame
from tracekit.trace import sql_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb
    import polars as pl

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import Found
    from tracekit.ingest.sink import Sink

__all__ = ["FORMAT", "TIMEZONE"]

TIMEZONE = "Asia/Shanghai"

_STATUS = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "pending"}
_LARGEST = dict.fromkeys(("start_time", "end_time"), LAST_SECOND) | dict.fromkeys(
    ("inst_num", "plan_cpu", "plan_mem", "plan_gpu"), 1e9
)
_TABLES = {"job": "pai_job_table", "task": "pai_task_table", "instance": "pai_instance_table"}


def _never(head: bytes) -> bool:  # noqa: ARG001 -- the files have no header to tell them by
    return False


class AlibabaPai(Format):
    """The tables of the PAI release."""

    name = "alibaba-pai"
    title = "Alibaba PAI 2020 (cluster-trace-gpu-v2020)"
    raw_files = (
        RawFile("pai_job_table", "jobs, no header line", r"pai_job_table(\.csv)?", _never),
        RawFile("pai_task_table", "tasks of jobs, no header line", r"pai_task_table(\.csv)?", _never),
        RawFile("pai_instance_table", "instances of tasks, no header line", r"pai_instance_table(\.csv)?", _never),
        RawFile("pai_machine_spec", "machines, no header line", r"pai_machine_spec(\.csv)?", _never),
        RawFile("header", "column order of a table", r"pai_\w+\.header", _never),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "unit": Option("job", "what becomes a job: a PAI job, or each of its tasks", ("job", "task"))
    }

    def read(self, found: Found, sink: Sink) -> TimeFrame:
        """Stage the tables, join them into jobs, attempts and placements, and copy the machines."""
        headers = _headers(found.get("header"), sink)
        for file in found.get("pai_machine_spec"):
            _read_machines(file, headers, sink)
        with sink.connect() as con:
            for view, key in _TABLES.items():
                _stage(con, view, key, found, headers, sink)
            if found.get("pai_job_table"):
                _define_workers(con)
                _write_tables(con, sink)
                _count_contradictions(con, sink)
        sink.note("PAI states memory in GB; it is taken as GiB, as the machines' sizes (512, 768) suggest")
        return TimeFrame("shifted", TIMEZONE, note="times carry a constant shift: only hours and weekdays hold")


def _headers(files: list[SourceFile], sink: Sink) -> dict[str, list[str]]:
    """Return the column order by table, from the .header files."""
    orders = {}
    for file in files:
        with sink.opened(file) as opened:
            orders[file.name.removesuffix(".header")] = header_columns(opened.stream.read(65_536).partition(b"\n")[0])
    return orders


def _rows(files: list[SourceFile], key: str, headers: dict[str, list[str]], sink: Sink) -> Iterator[pl.DataFrame]:
    if len(files) > 1:
        raise SourceError(
            f"several files hold the table {key}: {files[0].path}, {files[1].path}", hint="keep one of them"
        )
    for file in files:
        yield from read_table(
            sink, file, limited(schema.source("alibaba-pai", key), _LARGEST), columns=headers.get(key)
        )


def _read_machines(file: SourceFile, headers: dict[str, list[str]], sink: Sink) -> None:
    import polars as pl

    for raw in _rows([file], "pai_machine_spec", headers, sink):
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


def _stage(
    con: duckdb.DuckDBPyConnection, view: str, key: str, found: Found, headers: dict[str, list[str]], sink: Sink
) -> None:
    """Read one table into a view with its schema's columns; a table that is absent gives an empty view."""
    path = sink.stage(key, _rows(found.get(key), key, headers, sink))
    spec = schema.source("alibaba-pai", key)
    if path is None:
        columns = ", ".join(f"NULL::{c.sql} AS {c.name}" for c in spec.columns)
        con.execute(f"CREATE VIEW {view} AS SELECT {columns}, NULL::BIGINT AS line WHERE false")
    else:
        con.execute(f"CREATE VIEW {view} AS SELECT * FROM read_parquet({sql_text(path)})")


def _define_workers(con: duckdb.DuckDBPyConnection) -> None:
    """Keep one row of each worker, and turn 0 and blanks into unknown times.

    Few workers have several rows, so only rows that share a hash are ranked; all others pass as they are.
    """
    con.execute(
        """CREATE VIEW try AS
        SELECT job_name, task_name, inst_name, worker_name, machine, status, line, hash(worker_name) AS worker,
               nullif(start_time, 0) AS start_time, nullif(end_time, 0) AS end_time
        FROM instance"""
    )
    con.execute(
        """CREATE TABLE repeated AS
        SELECT worker FROM (SELECT hash(worker_name) AS worker FROM instance) GROUP BY worker HAVING count(*) > 1"""
    )
    con.execute(
        """CREATE VIEW worker AS
        SELECT * FROM try ANTI JOIN repeated USING (worker)
        UNION ALL
        SELECT * FROM try SEMI JOIN repeated USING (worker)
        QUALIFY row_number() OVER (
            PARTITION BY worker_name
            ORDER BY status DESC NULLS FIRST, start_time DESC NULLS FIRST, end_time DESC NULLS FIRST, line DESC) = 1"""
    )


def _instant(seconds: str) -> str:
    """Return the SQL that lays seconds on 1970-01-01."""
    return f"make_timestamp(({seconds} * 1000000)::BIGINT)"


def _unit_sql(unit: str) -> str:
    """Return the query that gives one row for each job: its key, names, status, times and requests."""
    if unit == "task":
        key = "t.job_name || '/' || t.task_name"
        return f"""
        SELECT {key} AS job_id, t.job_name, t.task_name, j.user AS "user", t.task_name AS name,
               coalesce(w.status, t.status) AS source_status, nullif(t.start_time, 0) AS submit_s,
               w.start_s, w.end_s, w.node_count, t.gpus AS gpu_count, t.cpus AS cpu_count,
               t.memory AS memory_gib, t.inst_num AS instance_count,
               CASE WHEN t.gpus > 0 THEN t.gpu_type END AS gpu_model
        FROM request t JOIN job j USING (job_name)
        LEFT JOIN (SELECT job_name, task_name, max(status) AS status, min(start_time) AS start_s,
                          max(end_time) AS end_s, count(DISTINCT machine) AS node_count
                   FROM worker GROUP BY ALL) w USING (job_name, task_name)"""
    return """
        SELECT j.job_name AS job_id, j.job_name, NULL::VARCHAR AS task_name, j.user AS "user", NULL::VARCHAR AS name,
               j.status AS source_status, nullif(j.start_time, 0) AS submit_s,
               w.start_s,
               coalesce(w.end_s, CASE WHEN NOT EXISTS (FROM instance) THEN nullif(j.end_time, 0) END) AS end_s,
               n.node_count, r.gpu_count, r.cpu_count, r.memory_gib, r.instance_count, r.gpu_model
        FROM job j
        LEFT JOIN (SELECT job_name, min(start_time) AS start_s, max(end_time) AS end_s
                   FROM try GROUP BY job_name) w USING (job_name)
        LEFT JOIN (SELECT job_name, count(DISTINCT machine) AS node_count
                   FROM worker GROUP BY job_name) n USING (job_name)
        LEFT JOIN (SELECT job_name, sum(gpus) AS gpu_count, sum(cpus) AS cpu_count, sum(memory) AS memory_gib,
                          sum(inst_num) AS instance_count,
                          CASE WHEN count(DISTINCT gpu_type) FILTER (WHERE gpus > 0) = 1
                               THEN min(gpu_type) FILTER (WHERE gpus > 0) END AS gpu_model
                   FROM request GROUP BY job_name) r USING (job_name)"""


_REQUEST = """CREATE VIEW request AS
    SELECT job_name, task_name, status, start_time, inst_num, gpu_type,
           inst_num * coalesce(plan_gpu, 0) / 100 AS gpus,
           inst_num * plan_cpu / 100 AS cpus, inst_num * plan_mem AS memory
    FROM task"""


def _write_tables(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    con.execute(_REQUEST)
    words = " ".join(f"WHEN '{source}' THEN '{word}'" for source, word in _STATUS.items())
    con.execute(
        f"""CREATE TABLE unit AS
        SELECT *, CASE source_status {words} ELSE CASE WHEN source_status IS NOT NULL THEN 'unknown' END END AS status,
               CASE WHEN source_status NOT IN ('Running', 'Waiting') THEN end_s END AS known_end_s
        FROM ({_unit_sql(sink.options["unit"])})"""
    )
    sink.writer.copy(
        "jobs",
        con,
        f"""SELECT job_id, 'pai' AS cluster, "user", name, status, source_status,
            {_instant("submit_s")} AS submit_time, {_instant("start_s")} AS start_time,
            {_instant("known_end_s")} AS end_time,
            start_s - submit_s AS queue_s, known_end_s - start_s AS run_s,
            gpu_count, cpu_count, memory_gib, gpu_model, nullif(node_count, 0) AS node_count, instance_count,
            CASE WHEN start_s IS NULL THEN 0 ELSE 1 END AS attempt_count
        FROM unit ORDER BY submit_s, job_id""",
    )
    sink.writer.copy(
        "attempts",
        con,
        f"""SELECT job_id, 0 AS attempt, {_instant("start_s")} AS start_time, {_instant("known_end_s")} AS end_time,
            known_end_s - start_s AS run_s, start_s - submit_s AS wait_s, gpu_count,
            nullif(node_count, 0) AS node_count, status
        FROM unit WHERE start_s IS NOT NULL ORDER BY submit_s, job_id""",
    )
    of_task = "AND u.task_name = w.task_name" if sink.options["unit"] == "task" else ""
    placements = f"""FROM worker w JOIN unit u ON u.job_name = w.job_name {of_task}
        LEFT JOIN task t ON t.job_name = w.job_name AND t.task_name = w.task_name
        WHERE w.machine IS NOT NULL"""
    if con.execute(f"SELECT 1 {placements} LIMIT 1").fetchall():
        sink.writer.copy(
            "placements",
            con,
            f"""SELECT u.job_id, 0 AS attempt, w.task_name AS task, w.inst_name AS instance, w.machine AS node_id,
                CASE WHEN t.job_name IS NOT NULL THEN coalesce(t.plan_gpu, 0) / 100 END AS gpu_count,
                {_instant("w.start_time")} AS start_time, {_instant("w.end_time")} AS end_time
            {placements} ORDER BY w.line""",
        )


_KNOWN_WORDS = ", ".join(f"'{word}'" for word in _STATUS)

_CHECKS = (
    (
        "tasks_without_job",
        "tasks whose job is not in the job table; they are part of no job here",
        "SELECT job_name || '/' || task_name FROM task ANTI JOIN job USING (job_name)",
        "task",
    ),
    (
        "instances_without_task",
        "instances whose task is not in the task table; their request is unknown",
        "SELECT worker_name FROM worker ANTI JOIN task USING (job_name, task_name)",
        "worker",
    ),
    (
        "superseded_instance_rows",
        "rows of a worker that another row of the same worker replaces; the last by (status, start, end) counts",
        "SELECT worker_name FROM try SEMI JOIN repeated USING (worker) GROUP BY worker_name HAVING count(*) > 1",
        "instance",
    ),
    (
        "submission_disagrees",
        "jobs whose start_time is not their earliest task's; the job's own is taken as the submission",
        """SELECT job_name FROM job JOIN (
            SELECT job_name, min(nullif(start_time, 0)) AS s FROM task GROUP BY job_name) USING (job_name)
        WHERE nullif(start_time, 0) <> s""",
        "job",
    ),
    (
        "job_end_disagrees",
        "jobs whose end_time is not their latest instance's; the instance's is used",
        """SELECT job_name FROM job JOIN (
            SELECT job_name, max(end_time) AS e FROM try GROUP BY job_name) USING (job_name)
        WHERE nullif(job.end_time, 0) <> e""",
        "job",
    ),
    (
        "final_status_without_end",
        "jobs that failed or terminated without an end in the job table; the end comes from their instances",
        "SELECT job_name FROM job WHERE status IN ('Failed', 'Terminated') AND nullif(end_time, 0) IS NULL",
        "job",
    ),
    (
        "gangs_seen_in_part",
        "tasks of which fewer instances were seen than planned",
        """SELECT job_name || '/' || task_name FROM task JOIN (
            SELECT job_name, task_name, count(*) AS n FROM worker GROUP BY ALL) USING (job_name, task_name)
        WHERE n < inst_num""",
        "task",
    ),
    (
        "workers_without_machine",
        "instances that name no machine; they have no placement",
        "SELECT worker_name FROM worker WHERE machine IS NULL",
        "worker",
    ),
    (
        "unknown_status_word",
        "records whose status word is not in the format's description; their status is 'unknown'",
        f"""SELECT job_name FROM job WHERE status NOT IN ({_KNOWN_WORDS})
        UNION ALL SELECT worker_name FROM instance WHERE status NOT IN ({_KNOWN_WORDS})""",
        "instance",
    ),
)


def _count_contradictions(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    for name, meaning, query, table in _CHECKS:
        found = con.execute(f"SELECT count(*), list(x ORDER BY x)[1:5] FROM ({query}) AS found(x)").fetchall()[0]
        of = con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        sink.check(name, found[0], of, meaning, found[1])


FORMAT = AlibabaPai()
