"""Read the raw PAI tables, and join them to jobs, attempts and placements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import SourceError
from tracekit.ingest.cells import LAST_SECOND, limited
from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.csv_table import header_columns, read_table
from tracekit.ingest.time_faults import RecordTimes, TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import FoundFiles
    from tracekit.ingest.sink import Sink
    from tracekit.schema import TableSchema

_LARGEST = dict.fromkeys(("inst_num", "plan_cpu", "plan_mem", "plan_gpu"), 1e9)
_OF_SAMPLES = dict.fromkeys(("start_time", "end_time"), LAST_SECOND)
_SUBMITTED = {"start_time": "submit_time", "end_time": "end_time"}
_RAN_TIMES = {"start_time": "start_time", "end_time": "end_time"}
_TIMES = {"pai_job_table": _SUBMITTED, "pai_task_table": _SUBMITTED, "pai_instance_table": _RAN_TIMES}
"""The Trace column for each time column of a table."""
_READ = {
    "pai_instance_table": (
        "job_name",
        "task_name",
        "inst_name",
        "worker_name",
        "status",
        "start_time",
        "end_time",
        "machine",
    ),
    "pai_sensor_table": (
        "job_name",
        "task_name",
        "worker_name",
        "machine",
        "cpu_usage",
        "gpu_wrk_util",
        "avg_mem",
        "avg_gpu_wrk_mem",
    ),
    "pai_machine_metric": ("machine", "start_time", "end_time", "machine_cpu"),
}
"""Columns to read, for tables with columns that the Trace does not use."""


class PaiTables:
    """The raw tables of one source, each read once.

    Raises
    ------
    SourceError
        Two files contain the same table, or a column is missing from a .header file.
    """

    def __init__(self, found: FoundFiles, sink: Sink) -> None:
        self._found = found
        self._sink = sink
        self._orders = dict(self._header(file) for file in found.get("header"))

    def _header(self, file: SourceFile) -> tuple[str, list[str]]:
        with self._sink.opened(file) as opened:
            line = opened.stream.read(65_536).partition(b"\n")[0]
        return file.name.removesuffix(".header"), header_columns(line)

    def has(self, key: str) -> bool:
        """Return whether the source contains the table."""
        return bool(self._found.get(key))

    def rows(self, key: str) -> Iterator[pl.DataFrame]:
        """Yield the usable rows of a table, like `read_table`, or nothing if the table is missing."""
        files = self._found.get(key)
        if len(files) > 1:
            raise SourceError(
                f"several files contain the table {key}: {files[0].path}, {files[1].path}", hint="keep one of them"
            )
        whole = schema.source("alibaba-pai", key)
        order = self._orders.get(key) or list(whole.names)
        spec = _narrowed(whole)
        for file in files:
            frames = read_table(self._sink, file, spec, columns=order)
            if key not in _TIMES:
                yield from frames
                continue
            times = RecordTimes(self._sink, file.path)
            for frame in frames:
                yield _possible(frame, times, _TIMES[key], by_task=self._sink.options["unit"] == "task")

    def stage(self, con: duckdb.DuckDBPyConnection, view: str, key: str) -> Path | None:
        """Read one table into a view with its columns and `line`, and return the file behind the view.

        If the table is missing, the view is empty and None is returned.
        """
        path = self._sink.stage(key, self.rows(key))
        if path is None:
            spec = _narrowed(schema.source("alibaba-pai", key))
            columns = ", ".join(f'NULL::{c.sql} AS "{c.name}"' for c in spec.columns)
            con.execute(f"CREATE VIEW {view} AS SELECT {columns}, NULL::BIGINT AS line WHERE false")
        else:
            con.execute(f"CREATE VIEW {view} AS SELECT * FROM read_parquet({sql_text(path)})")
        return path


def _narrowed(spec: TableSchema) -> TableSchema:
    read = _READ.get(spec.name, spec.names)
    largest = _LARGEST if spec.name in _TIMES else _LARGEST | _OF_SAMPLES
    return limited(replace(spec, columns=tuple(c for c in spec.columns if c.name in read)), largest)


def _possible(rows: pl.DataFrame, times: RecordTimes, columns: dict[str, str], *, by_task: bool) -> pl.DataFrame:
    """Return the rows with impossible times set to NULL, still in seconds. In the release, 0 means unknown."""
    known = rows.with_columns(pl.when(pl.col(name) != 0).then(name).alias(name) for name in columns)
    name = (
        pl.format("{}/{}", "job_name", "task_name") if by_task and "task_name" in rows.columns else pl.col("job_name")
    )
    dated = known.select(name.alias("job_id"), "line", *(clipped_seconds(pl.col(c)) for c in columns))
    found = times.possible(dated, TimeColumns(columns)).select(list(columns))
    return known.with_columns(known[c].set(found[c].is_null(), None) for c in columns)


def keep_one(con: duckdb.DuckDBPyConnection, view: str, rows: str, key: str, order: str) -> None:
    """Define `view` as `rows` with only the first row by `order` for each key.

    The other rows go to the `<view>_superseded` table, with their keys. Few keys have several rows, so only rows that
    share a hash are ranked.
    """
    con.execute(
        f"""CREATE TABLE {view}_superseded AS
        WITH hashed AS (SELECT *, hash({key}) AS hash FROM {rows}),
        repeated AS (SELECT hash FROM (SELECT hash({key}) AS hash FROM {rows}) GROUP BY hash HAVING count(*) > 1)
        SELECT line, {key} FROM hashed SEMI JOIN repeated USING (hash)
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) > 1"""
    )
    con.execute(f"CREATE VIEW {view} AS SELECT * FROM {rows} ANTI JOIN {view}_superseded USING (line)")


def instant(seconds: str) -> str:
    """Return SQL that converts seconds to times counted from 1970-01-01."""
    return f"make_timestamp(({seconds} * 1000000)::BIGINT)"


# Jobs, attempts and placements.

_STATUS = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "pending"}
_KNOWN_WORDS = ", ".join(f"'{word}'" for word in _STATUS)
_NO_PLACEMENT = -1.0
_BATCH = 131_072
_WORKLOAD = "CASE WHEN g.workload IN ('training', 'inference', 'other') THEN g.workload END"


def write_jobs(con: duckdb.DuckDBPyConnection, tables: PaiTables, sink: Sink) -> None:
    """Write jobs, attempts and placements, and count contradictions in them.

    Parameters
    ----------
    con : DuckDB connection
        Receives views and one table. The views are job, task, instance and tag_row with raw rows, try with instance
        rows whose unknown times are NULL, worker with one row per worker, and tag with one row per alias. The unit
        table has one row per job.
    """
    tables.stage(con, "job", "pai_job_table")
    tables.stage(con, "task", "pai_task_table")
    instances = tables.stage(con, "instance", "pai_instance_table")
    tables.stage(con, "tag_row", "pai_group_tag_table")
    con.execute(
        """CREATE VIEW try AS
        SELECT job_name, task_name, inst_name, worker_name, machine, status, line,
               nullif(start_time, 0) AS start_time, nullif(end_time, 0) AS end_time
        FROM instance"""
    )
    keep_one(
        con,
        "worker",
        "try",
        "worker_name",
        "status DESC NULLS FIRST, start_time DESC NULLS FIRST, end_time DESC NULLS FIRST, line DESC",
    )
    keep_one(con, "tag", "tag_row", "inst_id", "line")
    of_task = sink.options["unit"] == "task"
    con.execute(_RAN)
    con.execute(_GANG.format(nodes=", count(DISTINCT machine) AS node_count" if of_task else ""))
    con.execute(_RUN)
    _write_tables(con, sink)
    _write_placements(con, instances, sink)
    run_checks(con, sink, _CHECKS)
    if tables.has("pai_group_tag_table"):
        _note_tags(sink)
        run_checks(con, sink, _TAG_CHECKS)


def _note_tags(sink: Sink) -> None:
    sink.note("a job without a group tag has no group; the published notebook uses its user instead")
    place = (
        "with unit=task they are not used"
        if sink.options["unit"] == "task"
        else "they are used as the job's name, which the source does not record"
    )
    sink.note(
        "workload tags name models (bert, ctr), not the purpose of a job: workload is known only if the tag is "
        f"training, inference or other; {place}"
    )


def _unit_sql(unit: str) -> str:
    """Return a query for one row per job, with its key, names, status, times and requests."""
    if unit == "task":
        key = "t.job_name || '/' || t.task_name"
        return f"""
        SELECT {key} AS job_id, t.job_name, t.task_name, j.user AS "user", t.task_name AS name,
               g."group", {_WORKLOAD} AS workload,
               coalesce(w.status, t.status) AS source_status, nullif(t.start_time, 0) AS submit_s,
               w.start_s, w.end_s, w.node_count, t.gpus AS gpu_count, t.cpus AS cpu_count,
               t.memory AS memory_gib, t.inst_num AS instance_count,
               CASE WHEN t.gpus > 0 THEN t.gpu_type END AS gpu_model
        FROM request t JOIN job j USING (job_name) LEFT JOIN tag g ON g.inst_id = j.inst_id
        LEFT JOIN gang w USING (job_name, task_name)"""
    return f"""
        SELECT j.job_name AS job_id, j.job_name, NULL::VARCHAR AS task_name, j.user AS "user", g.workload AS name,
               g."group", {_WORKLOAD} AS workload,
               j.status AS source_status, nullif(j.start_time, 0) AS submit_s,
               w.start_s,
               coalesce(w.end_s, CASE WHEN NOT EXISTS (FROM instance) THEN nullif(j.end_time, 0) END) AS end_s,
               w.node_count, r.gpu_count, r.cpu_count, r.memory_gib, r.instance_count, r.gpu_model
        FROM job j LEFT JOIN tag g ON g.inst_id = j.inst_id
        LEFT JOIN run w USING (job_name)
        LEFT JOIN (SELECT job_name, sum(gpus) AS gpu_count, sum(cpus) AS cpu_count, sum(memory) AS memory_gib,
                          sum(inst_num) AS instance_count,
                          CASE WHEN count(DISTINCT gpu_type) FILTER (WHERE gpus > 0) = 1
                               THEN min(gpu_type) FILTER (WHERE gpus > 0) END AS gpu_model
                   FROM request GROUP BY job_name) r USING (job_name)"""


_RAN = """CREATE VIEW ran AS
    SELECT job_name, task_name, machine, status, start_time, end_time, 1 AS workers FROM worker
    UNION ALL
    SELECT job_name, task_name, NULL, NULL, start_time, end_time, 0 FROM try SEMI JOIN worker_superseded USING (line)"""
"""A job or task starts with the first and ends with the last of all its instance rows, including earlier tries. A
worker's machine and status come from its last row.
"""

_GANG = """CREATE TABLE gang AS
    SELECT job_name, task_name, sum(workers) AS workers, max(status) AS status, min(start_time) AS start_s,
           max(end_time) AS end_s{nodes}
    FROM ran GROUP BY job_name, task_name"""

_RUN = """CREATE TABLE run AS
    SELECT job_name, min(start_time) AS start_s, max(end_time) AS end_s, count(DISTINCT machine) AS node_count
    FROM ran GROUP BY job_name"""

# Decimal sums do not depend on row order.
_REQUEST = """CREATE VIEW request AS
    SELECT job_name, task_name, status, start_time, inst_num, gpu_type,
           CAST(inst_num * coalesce(plan_gpu, 0) / 100 AS DECIMAL(38, 6)) AS gpus,
           CAST(inst_num * plan_cpu / 100 AS DECIMAL(38, 6)) AS cpus,
           CAST(inst_num * plan_mem AS DECIMAL(38, 6)) AS memory
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
        f"""SELECT job_id, 'pai' AS cluster, "user", name, "group", workload, status, source_status,
            {instant("submit_s")} AS submit_time, {instant("start_s")} AS start_time,
            {instant("known_end_s")} AS end_time,
            start_s - submit_s AS queue_s, known_end_s - start_s AS run_s,
            gpu_count, cpu_count, memory_gib, gpu_model, nullif(node_count, 0) AS node_count, instance_count,
            CASE WHEN start_s IS NULL THEN 0 ELSE 1 END AS attempt_count
        FROM unit ORDER BY submit_s, job_id""",
    )
    sink.writer.copy(
        "attempts",
        con,
        f"""SELECT job_id, 0 AS attempt, {instant("start_s")} AS start_time, {instant("known_end_s")} AS end_time,
            known_end_s - start_s AS run_s, start_s - submit_s AS wait_s, gpu_count,
            nullif(node_count, 0) AS node_count, status
        FROM unit WHERE start_s IS NOT NULL ORDER BY submit_s, job_id""",
    )


def _write_placements(con: duckdb.DuckDBPyConnection, instances: Path | None, sink: Sink) -> None:
    """Write one placement per worker on a machine, in file order.

    The joins return only each line's GPUs. The names, which are most of the bytes, are streamed without a join.
    """
    import pyarrow.parquet as pq

    if instances is None:
        return
    of_task = sink.options["unit"] == "task"
    found = con.sql(
        f"""SELECT w.line, CASE WHEN t.job_name IS NOT NULL THEN coalesce(t.plan_gpu, 0) / 100 ELSE 'nan' END AS gpus
        FROM worker w JOIN unit u ON u.job_name = w.job_name {"AND u.task_name = w.task_name" if of_task else ""}
        LEFT JOIN task t ON t.job_name = w.job_name AND t.task_name = w.task_name
        WHERE w.machine IS NOT NULL"""
    ).pl()
    if not len(found):
        return
    gpus = np.full(int(found["line"].max()) + 1, _NO_PLACEMENT)
    gpus[found["line"].to_numpy()] = found["gpus"].to_numpy()
    del found
    job = pl.format("{}/{}", "job_name", "task_name") if of_task else pl.col("job_name")
    sink.progress.stage("writing placements")
    # Reading ahead would keep the blocks in memory.
    for batch in pq.ParquetFile(instances, pre_buffer=False).iter_batches(batch_size=_BATCH, use_threads=False):
        rows = pl.DataFrame(batch)
        line = rows["line"].to_numpy()
        held = np.where(line < len(gpus), gpus[np.minimum(line, len(gpus) - 1)], _NO_PLACEMENT)
        sink.write(
            "placements",
            rows.with_columns(held=held)
            .filter(pl.col("held") != _NO_PLACEMENT)
            .select(
                job_id=job,
                attempt=pl.lit(0, dtype=pl.Int64),
                task="task_name",
                instance="inst_name",
                node_id="machine",
                gpu_count=pl.col("held").fill_nan(None),
                start_time=_moment("start_time"),
                end_time=_moment("end_time"),
            ),
        )


def _moment(column: str) -> pl.Expr:
    """Convert seconds to times counted from 1970-01-01. 0 means unknown."""
    return pl.when(pl.col(column) != 0).then((pl.col(column) * 1_000_000).cast(pl.Int64).cast(pl.Datetime("us")))


_CHECKS = (
    SqlCheck(
        "tasks_without_job",
        "tasks whose job is not in the job table; ignored here",
        "SELECT job_name || '/' || task_name FROM task ANTI JOIN job USING (job_name)",
        "task",
    ),
    SqlCheck(
        "instances_without_task",
        "instances whose task is not in the task table; their request is unknown",
        """SELECT worker_name FROM worker SEMI JOIN (SELECT job_name, task_name FROM gang
            ANTI JOIN task USING (job_name, task_name)) USING (job_name, task_name)""",
        "worker",
    ),
    SqlCheck(
        "superseded_instance_rows",
        "rows replaced by another row of the same worker; the last in the order of status, start and end is used",
        "SELECT worker_name FROM worker_superseded",
        "instance",
    ),
    SqlCheck(
        "submission_disagrees",
        "jobs whose start_time is not their earliest task's; the job's start_time is used as the submission",
        """SELECT job_name FROM job JOIN (
            SELECT job_name, min(nullif(start_time, 0)) AS s FROM task GROUP BY job_name) USING (job_name)
        WHERE nullif(start_time, 0) <> s""",
        "job",
    ),
    SqlCheck(
        "job_end_disagrees",
        "jobs whose end_time is not their latest instance's; the instance's end_time is used",
        "SELECT job_name FROM job JOIN run USING (job_name) WHERE nullif(job.end_time, 0) <> run.end_s",
        "job",
    ),
    SqlCheck(
        "final_status_without_end",
        "jobs that failed or terminated without an end in the job table; the end comes from their instances",
        "SELECT job_name FROM job WHERE status IN ('Failed', 'Terminated') AND nullif(end_time, 0) IS NULL",
        "job",
    ),
    SqlCheck(
        "gangs_seen_in_part",
        "tasks with fewer instances than planned",
        "SELECT job_name || '/' || task_name FROM task JOIN gang USING (job_name, task_name) WHERE workers < inst_num",
        "task",
    ),
    SqlCheck(
        "workers_without_machine",
        "instances without a machine; they have no placement",
        "SELECT worker_name FROM worker WHERE machine IS NULL",
        "worker",
    ),
    SqlCheck(
        "unknown_status_word",
        "records with a status word that the format does not define; their status is 'unknown'",
        f"""SELECT job_name FROM job WHERE status NOT IN ({_KNOWN_WORDS})
        UNION ALL SELECT worker_name FROM instance WHERE status NOT IN ({_KNOWN_WORDS})""",
        "instance",
    ),
)

_TAG_CHECKS = (
    SqlCheck(
        "group_tags_without_job",
        "group tags whose inst_id belongs to no job; ignored",
        "SELECT inst_id FROM tag ANTI JOIN (SELECT inst_id FROM job) USING (inst_id)",
        "tag",
    ),
    SqlCheck(
        "repeated_group_tags",
        "repeated group tags of an inst_id; the first in the file is used",
        "SELECT inst_id FROM tag_superseded",
        "tag_row",
    ),
    SqlCheck(
        "group_tag_user_disagrees",
        "jobs whose group tag names another user; the job's user is used",
        "SELECT job_name FROM job JOIN tag USING (inst_id) WHERE job.user <> tag.user",
        "job",
    ),
    SqlCheck(
        "gpu_type_spec_disagrees",
        "GPU tasks whose GPU type differs from their job's group tag; the task's type is used",
        """SELECT job_name || '/' || task_name FROM request JOIN job USING (job_name) JOIN tag USING (inst_id)
        WHERE gpus > 0 AND gpu_type <> gpu_type_spec""",
        "task",
    ),
)
