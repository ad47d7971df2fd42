"""Turn `sacct` rows into jobs, attempts, placements, nodes and measured use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.databases import sql_text
from tracekit.errors import UsageError
from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.derived import machines_in, most_held, seconds_between
from tracekit.ingest.merge_jobs import REUSED_AFTER, SUFFIX, generations

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink


# Find the rows of each run, and the runs of each job.

# Several exports may have rows for the same run: we use the row with an end, or else the last one. A row without a
# start is out of date if a later row has the same submission.
_ALLOCATIONS = """
CREATE TABLE allocation AS
SELECT ord, cluster, key, component, submit_local, start_local, end_local FROM sacct WHERE step IS NULL
QUALIFY row_number() OVER (
        PARTITION BY cluster, key, component, submit_local, start_local ORDER BY (end_local IS NULL), ord DESC) = 1
    AND (start_local IS NOT NULL OR ord = max(ord) OVER (PARTITION BY cluster, key, component, submit_local))"""

_LIVES = generations(
    "allocation",
    key="cluster, key",
    order="submit_local, start_local NULLS LAST, ord",
    begun="submit_local",
    done="coalesce(end_local, 'infinity'::TIMESTAMP)",
)
_NUMBERED = f"""
CREATE TABLE numbered AS
SELECT ord, generation, cluster || '/' || key || {SUFFIX} AS job_id,
       row_number() OVER (
           PARTITION BY cluster, key, generation, component
           ORDER BY start_local NULLS LAST, submit_local, ord) - 1 AS attempt
FROM ({_LIVES})"""

# A federated job is submitted to several clusters. Clusters that do not start it list it as revoked.
_REVOKED = """
CREATE TABLE revoked AS
SELECT ord, cluster || '/' || key AS job_id FROM allocation JOIN (SELECT ord, word FROM sacct) USING (ord)
WHERE word = 'REVOKED' AND start_local IS NULL;
DELETE FROM allocation WHERE ord IN (SELECT ord FROM revoked)"""

_MOST_WAITING = 2_000_000
"""At most this many waiting array tasks, in all arrays together, become separate jobs."""

_WAITING = "instance_count > 1 AND len(task_ranges) > 0 AND status = 'pending' AND start_local IS NULL"
_PART = "CREATE TABLE part AS SELECT * FROM sacct JOIN numbered USING (ord)"

# An array's waiting tasks share one row, and each becomes a job. The last remaining task has the row's number.
_PART_WITH_TASKS = f"""
CREATE TABLE part AS
WITH own AS (SELECT * FROM sacct JOIN numbered USING (ord)),
waiting AS (
    SELECT * FROM own WHERE {_WAITING}
    QUALIFY sum(instance_count) OVER (ORDER BY ord) <= {_MOST_WAITING}),
stretch AS (SELECT * EXCLUDE (task), unnest(task_ranges) AS r FROM waiting),
each AS (SELECT * EXCLUDE (r), unnest(range(r[1], r[2] + 1, r[3])) AS task FROM stretch),
left_over AS (
    SELECT e.* FROM each e ANTI JOIN own o
    ON o.cluster = e.cluster AND o."array" = e."array" AND o.task = e.task AND o.submit_local >= e.submit_local
    QUALIFY row_number() OVER (PARTITION BY e.cluster, e."array", e.task, e.generation ORDER BY e.ord DESC) = 1)
SELECT * FROM own ANTI JOIN waiting USING (ord)
UNION ALL BY NAME
SELECT * REPLACE (
    "array" || '_' || task AS key, NULL::BIGINT AS instance_count,
    cluster || '/' || "array" || '_' || task || {SUFFIX} AS job_id)
FROM left_over"""

_RUN = """
CREATE VIEW run AS
SELECT job_id, attempt, cluster, vc, account, "partition", qos, "user", name, "array", status, word, submit,
       submit_local, origin, eligible, "start", start_local, "end", gpu_count, gpu_model, cpu_count, memory_gib,
       node_count, instance_count, priority, time_limit_s, reason, started_by, "constraint",
       suspended_s, resized
FROM part WHERE component IS NULL"""

# A heterogeneous job is the sum of its components. Values that cannot be added come from the first component. A sum is
# unknown if any component's value is.
_OF_FIRST = ", ".join(
    f'arg_min_null("{name}", component) AS "{name}"'
    for name in (
        "vc", "account", "partition", "qos", "user", "name", "array", "status", "word", "priority", "time_limit_s",
        "constraint",
    )
)  # fmt: skip
_OF_ALL = ", ".join(
    f'CASE WHEN count(*) = count("{name}") THEN {total}("{name}") END AS "{name}"'
    for total, names in (("max", ("eligible", "end", "suspended_s")), ("sum", ("gpu_count", "cpu_count", "memory_gib")))
    for name in names
)
_SUMS = f"""
UNION ALL BY NAME
SELECT job_id, attempt, any_value(cluster) AS cluster, {_OF_FIRST}, {_OF_ALL},
       min(submit) AS submit, min(submit_local) AS submit_local, min(origin) AS origin, min("start") AS "start",
       min(start_local) AS start_local,
       nullif(array_to_string(list_sort(list_distinct(string_split(string_agg(gpu_model, '|'), '|'))), '|'), '')
           AS gpu_model,
       CASE WHEN count(*) = count(node_count) THEN sum(node_count)::BIGINT END AS node_count,
       sum(instance_count)::BIGINT AS instance_count, arg_min(reason, component) AS reason,
       arg_min(started_by, component) AS started_by, bool_or(resized) AS resized
FROM part WHERE component IS NOT NULL GROUP BY job_id, attempt"""

_ROUTES = {
    # Most jobs have one row; only jobs with several rows need a sum. An export from before a job's start may show a
    # submission that a requeue has replaced since, so the latest state counts.
    "again": """
        SELECT job_id, min(submit) AS submit, min(origin) AS origin, count(start_local) AS attempts,
               arg_min_null(eligible, row(submit_local, attempt)) AS eligible,
               CASE WHEN count(*) = count(suspended_s) THEN sum(suspended_s) END AS suspended_s,
               count(start_local) FILTER (WHERE NOT resized) > 1 AS requeued,
               arg_max_null("end", attempt) FILTER (WHERE start_local IS NOT NULL) AS "end",
               arg_max_null(status, row(coalesce(start_local, submit_local), attempt)) AS status,
               arg_max_null(word, row(coalesce(start_local, submit_local), attempt)) AS word
        FROM run WHERE job_id IN (SELECT job_id FROM run WHERE attempt > 0) GROUP BY job_id""",
    "job": """
        SELECT r.* EXCLUDE (submit, origin, eligible, "end", status, word, suspended_s),
               CASE WHEN a.job_id IS NULL THEN r.submit ELSE a.submit END AS submit,
               CASE WHEN a.job_id IS NULL THEN r.origin ELSE a.origin END AS origin,
               CASE WHEN a.job_id IS NULL THEN r.eligible ELSE a.eligible END AS eligible,
               CASE WHEN a.job_id IS NULL THEN r.suspended_s ELSE a.suspended_s END AS suspended_s,
               coalesce(a.requeued, false) AS requeued,
               CASE WHEN a.attempts > 0 THEN a."end" ELSE r."end" END AS last_end,
               CASE WHEN a.job_id IS NULL THEN r.status ELSE a.status END AS status,
               CASE WHEN a.job_id IS NULL THEN r.word ELSE a.word END AS word,
               coalesce(a.attempts, (r.start_local IS NOT NULL)::BIGINT) AS attempt_count
        FROM run r LEFT JOIN again a USING (job_id) WHERE r.attempt = 0""",
}


# Find GPUs that the accounting database does not record.
#
# Without `AccountingStorageTRES=gres/gpu` in slurm.conf, AllocTRES lists no GPUs, and nothing in a record distinguishes
# a job on a GPU node from one without GPUs. Two signs remain: a command that requested GPUs, and a partition named
# after GPUs in a cluster that lists no GPUs at all. The GPUs of these runs are unknown unless the gpus_from option
# names a source.

_CURE = "set AccountingStorageTRES=gres/gpu in slurm.conf for future jobs"
_NAMED = "gpu|dgx|hgx|rtx|tesla|gh200|(^|[^a-z0-9])([abhpv][0-9]{2,3}|l40s?|mi[0-9]{3})([^a-z0-9]|$)"
"""Partitions named after GPUs."""

_UNLISTED = f"""
CREATE TABLE unlisted AS
SELECT ord, coalesce("partition", '') AS "partition", cluster, node_count, asked_gpus, gpu_count FROM part
WHERE has_tres AND start_local IS NOT NULL AND gpu_count = 0 AND (
    (asked_gpus > 0 AND component IS NULL)
    OR (regexp_matches("partition", '{_NAMED}', 'i')
        AND cluster NOT IN (SELECT cluster FROM part WHERE gpu_count > 0)))"""

# The typical GPU count of a partition's nodes is the most frequent count among the nodes on which its jobs ran.
# Single-node jobs show, without any assumption, how many of a node's GPUs were in use at once.
_TYPICAL = f"""
CREATE TABLE typical AS
WITH alone AS (
    SELECT cluster || '/' || node_list[1] AS node_id, gpu_count, "start", "end" FROM part
    WHERE len(node_list) = 1 AND gpu_count > 0),
held AS ({most_held("alone", '"start"', '"end"')}),
used AS (
    SELECT DISTINCT cluster, "partition", cluster || '/' || node AS node_id
    FROM (SELECT cluster, "partition", unnest(node_list) AS node FROM part WHERE start_local IS NOT NULL))
SELECT cluster, "partition", mode(gpu_count ORDER BY gpu_count) AS gpus FROM used JOIN held USING (node_id)
GROUP BY cluster, "partition" """


def check_gpus_from(text: str) -> dict[str, int] | None:
    """Parse the gpus_from option to GPUs per node by partition [GPUs], or return None for a named source.

    Raises
    ------
    UsageError
        The value is not 'listed', 'partition' or a list like gpu:4,dgx:8.
    """
    if text in {"listed", "partition"}:
        return None
    parts = [re.fullmatch(r"([^:,\s]+):(\d{1,4})", part) for part in text.split(",")]
    if not all(parts):
        hint = "give listed, partition, or the GPUs per node by partition, such as gpu:4,dgx:8"
        raise UsageError(f"'{text[:80]}' is not a source of GPU counts", where="--option gpus_from", hint=hint)
    return {match[1]: int(match[2]) for match in parts if match}


def _find_unlisted_gpus(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Set `gpu_count` [GPUs] for runs whose GPUs are missing from the database, and count these runs.

    With gpus_from=listed, the value is NULL. Otherwise, it is the number that the command requests or, without a
    request, the number of nodes times the partition's GPUs per node.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        Has the `part` table with one row per run, or per component of a run. This function updates it.
    sink : Sink
        Contains the options, and receives checks and notes.

    Raises
    ------
    UsageError
        The value of the gpus_from option is invalid.
    """
    con.execute(_UNLISTED)
    count = _one(con, "SELECT count(*) FROM unlisted")
    chosen = sink.options["gpus_from"]
    stated = check_gpus_from(chosen)
    if count and chosen != "listed":
        con.execute(_TYPICAL if stated is None else "CREATE TABLE typical (cluster TEXT, partition TEXT, gpus BIGINT)")
        if stated:
            con.executemany(
                "INSERT INTO typical SELECT DISTINCT cluster, ?, ? FROM part", [list(pair) for pair in stated.items()]
            )
        con.execute(
            """UPDATE unlisted SET gpu_count = coalesce(asked_gpus, node_count * (
                SELECT t.gpus FROM typical t WHERE t.cluster = unlisted.cluster AND t."partition" = unlisted."partition"
            ))"""
        )
    else:
        con.execute("UPDATE unlisted SET gpu_count = NULL")
    con.execute("UPDATE part SET gpu_count = u.gpu_count FROM unlisted u WHERE part.ord = u.ord")
    run_checks(con, sink, _GPU_CHECKS)
    if count:
        unknown = _one(con, "SELECT count(*) FROM unlisted WHERE gpu_count IS NULL")
        found = (
            f"{count - unknown} of them get the number in their command or, without one, whole nodes of their partition"
            if chosen != "listed"
            else "--option gpus_from=partition, or gpus_from=PARTITION:GPUS, counts the GPUs of the partition's nodes"
        )
        sink.note(
            f"{count} runs in GPU partitions list no GPUs, and the GPUs of {unknown} are unknown: {_CURE}; {found}"
        )


_GPU_CHECKS = (
    SqlCheck(
        "gpus_not_listed",
        f"runs that requested GPUs or ran in a GPU partition, but whose AllocTRES lists none; {_CURE}",
        "SELECT p.job_id FROM unlisted u JOIN part p USING (ord)",
        "part WHERE start_local IS NOT NULL",
    ),
    SqlCheck(
        "gpus_assumed",
        "runs without listed GPUs, whose GPU count comes from the command or the partition's nodes (option gpus_from)",
        "SELECT p.job_id FROM unlisted u JOIN part p USING (ord) WHERE u.gpu_count IS NOT NULL",
        "part WHERE start_local IS NOT NULL",
    ),
)


# Find how many GPUs each run in `sacct` had on each of its nodes.
#
# sacct lists a run's nodes and its total GPUs, but not how the GPUs were divided: six GPUs on two nodes may be 4 + 2.
# The GPUs on each node are known if a run had one node, had one GPU per node, requested a number per node, or filled
# its nodes (used all GPUs that were ever in use on each). Otherwise, they are unknown.

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

# The most GPUs ever in use on a node: the number certainly in use at once, or a multi-node run's even share.
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


_PLACE_CHECKS = (
    SqlCheck(
        "gpus_not_divisible",
        "runs whose GPUs do not divide evenly among their nodes; the GPUs on each node are unknown",
        "SELECT job_id FROM part WHERE len(node_list) > 1 AND gpu_count % len(node_list) <> 0",
        "part WHERE len(node_list) > 0",
    ),
    SqlCheck(
        "gpus_per_node_unknown",
        "runs on several nodes that did not fill their nodes and have no request per node; their GPUs on each node "
        "are unknown",
        f"SELECT DISTINCT job_id || ' attempt ' || attempt FROM placed WHERE {_EVEN}",
        "part WHERE len(node_list) > 0",
    ),
)


# The common tables.


def write_tables(con: duckdb.DuckDBPyConnection, rows: Path, sink: Sink) -> int:
    """Write all tables that the rows of `SacctReader` can fill, and return the number of requeued jobs."""
    con.execute(f"CREATE VIEW sacct AS SELECT * FROM read_parquet({sql_text(rows)})")
    for statement in (_ALLOCATIONS, _REVOKED, _NUMBERED):
        con.execute(statement)
    con.execute(_PART_WITH_TASKS if _any(con, f"sacct WHERE {_WAITING}") else _PART)
    _find_unlisted_gpus(con, sink)
    con.execute(_RUN + _SUMS if _any(con, "part WHERE component IS NOT NULL") else _RUN)
    for name, query in _ROUTES.items():
        con.execute(f"CREATE TABLE {name} AS {query}")
    _write_jobs(con, sink)
    _write_attempts(con, sink)
    _write_nodes(con, sink)
    _write_usage(con, sink)
    run_checks(con, sink, _CHECKS)
    return _one(con, "SELECT count(*) FROM job WHERE requeued")


def _any(con: duckdb.DuckDBPyConnection, rows: str) -> bool:
    return bool(con.execute(f"SELECT 1 FROM {rows} LIMIT 1").fetchall())


def _one(con: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(con.execute(query).fetchall()[0][0])


def _write_jobs(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    known_end = "CASE WHEN status NOT IN ('running', 'pending') OR status IS NULL THEN last_end END"
    sink.writer.copy(
        "jobs",
        con,
        f"""SELECT job_id, cluster, vc, "user", name, "array" AS "group", status, word AS source_status,
            submit AS submit_time, "start" AS start_time, {known_end} AS end_time,
            {seconds_between("origin", '"start"')} AS queue_s, {seconds_between('"start"', known_end)} AS run_s,
            gpu_count, cpu_count, memory_gib, gpu_model, node_count, instance_count, attempt_count, priority,
            time_limit_s, account, "partition", qos, eligible AS eligible_time, reason AS wait_reason, started_by,
            suspended_s, "constraint"
        FROM job ORDER BY submit_local, job_id""",
    )


def _write_attempts(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    # A requeued or resized run has ended but its job has not, so the run's status is unknown.
    sink.writer.copy(
        "attempts",
        con,
        f"""SELECT r.job_id, r.attempt, r."start" AS start_time, r."end" AS end_time,
            {seconds_between('r."start"', 'r."end"')} AS run_s,
            {seconds_between('CASE WHEN r.attempt = 0 THEN j.origin ELSE p."end" END', 'r."start"')} AS wait_s,
            r.gpu_count, r.node_count,
            CASE WHEN r.word IN ('REQUEUED', 'RESIZING') AND r."end" IS NOT NULL THEN 'unknown' ELSE r.status END
                AS status
        FROM run r JOIN job j USING (job_id)
        LEFT JOIN run p ON p.job_id = r.job_id AND p.attempt = r.attempt - 1 AND r.attempt > 0
        WHERE r.start_local IS NOT NULL ORDER BY j.submit_local, r.job_id, r.attempt""",
    )


def _write_nodes(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Write the placements of each attempt, and the machines named in them."""
    ran = "part WHERE start_local IS NOT NULL AND len(node_list) > 0"
    clusters = _one(con, f"SELECT count(DISTINCT cluster) FROM {ran}")
    if not clusters:
        return
    # Machines of different clusters may have the same name.
    con.execute(_SPREAD.format(name="cluster || '/' || node" if clusters > 1 else "node"))
    if _any(con, f"spread WHERE {_EVEN}"):
        con.execute(_FILLED)
        con.execute(_PLACED)
    else:
        con.execute("ALTER TABLE spread RENAME TO placed")
    run_checks(con, sink, _PLACE_CHECKS)
    sink.writer.copy(
        "placements",
        con,
        """SELECT job_id, attempt, task, node_id, gpu_count, "start" AS start_time, "end" AS end_time
        FROM placed ORDER BY submit_local, job_id, attempt, task NULLS FIRST, node_id""",
    )
    sink.writer.copy("nodes", con, machines_in("placed", '"start"', '"end"'))


_MEASURES = ("gpu_util_pct", "gpu_memory_used_gib", "memory_used_gib")
_STATED = " OR ".join(f"{name} IS NOT NULL" for name in ("cpu_s", *_MEASURES))

# If steps have recorded use, the whole job's use (AdminComment) is not added, or it would count twice.
_ONCE = ", ".join(
    f"CASE WHEN step IS NOT NULL OR count({name}) FILTER (step IS NOT NULL) OVER (PARTITION BY cluster, key) = 0 "
    f"THEN {name} END AS {name}"
    for name in _MEASURES
)

_BORN = """
CREATE TABLE born AS
SELECT cluster, key, job_id, generation,
       CASE WHEN generation = 0 THEN '-infinity'::TIMESTAMP ELSE min(submit_local) END AS since
FROM part GROUP BY cluster, key, job_id, generation"""

# A run's CPU time comes from its steps. Without steps, we use the run's own CPU time, unless it is 0: sacct prints 0
# when asked to leave out steps.
_USED = f"""
CREATE TABLE used AS
WITH step AS (
    SELECT * FROM sacct WHERE step IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY cluster, key, component, step, start_local ORDER BY (end_local IS NULL), ord DESC) = 1),
alone AS (
    SELECT p.ord FROM part p WHERE p.start_local IS NOT NULL AND p.cpu_s > 0 AND NOT EXISTS (
        SELECT 1 FROM step s WHERE s.cluster = p.cluster AND s.key = p.key AND s.cpu_s IS NOT NULL
        AND s.component IS NOT DISTINCT FROM p.component AND s.start_local >= p.start_local
        AND s.start_local <= coalesce(p.end_local, 'infinity'::TIMESTAMP))),
told AS (
    SELECT * FROM step
    UNION ALL BY NAME
    SELECT a.* REPLACE (CASE WHEN l.ord IS NOT NULL THEN a.cpu_s END AS cpu_s)
    FROM sacct a SEMI JOIN part p ON a.ord = p.ord LEFT JOIN alone l ON a.ord = l.ord)
SELECT * REPLACE ({_ONCE}), coalesce(start_local, submit_local, '-infinity'::TIMESTAMP) AS moment FROM told
WHERE {_STATED}"""


def _write_usage(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Write the measured use of steps, each assigned to the last job with its id that was submitted before it."""
    if not _any(con, f"sacct WHERE {_STATED}"):
        return
    con.execute(_USED)
    con.execute(_BORN)
    sink.writer.copy(
        "job_usage",
        con,
        """SELECT b.job_id, u.component::VARCHAR AS task, u.step AS instance, u.gpu_util_pct,
               u.gpu_memory_used_gib AS gpu_memory_gib, u.memory_used_gib AS memory_gib, u.cpu_s
        FROM used u ASOF JOIN born b ON u.cluster = b.cluster AND u.key = b.key AND u.moment >= b.since
        ORDER BY b.job_id, u.component NULLS FIRST, u.ord""",
    )


_CHECKS = (
    SqlCheck(
        "superseded_rows",
        "rows with an outdated state of a run that a later row replaces",
        """SELECT s.cluster || '/' || s.key FROM sacct s ANTI JOIN allocation a ON s.ord = a.ord
        ANTI JOIN revoked r ON s.ord = r.ord WHERE s.step IS NULL""",
        "sacct WHERE step IS NULL",
    ),
    SqlCheck(
        "reused_job_ids",
        f"jobs whose id belonged to a job that ended more than {REUSED_AFTER} earlier; their job_id ends in #2, #3, "
        f"...",
        "SELECT DISTINCT job_id FROM numbered WHERE generation > 0",
        "job",
    ),
    SqlCheck(
        "revoked_siblings",
        "jobs that another cluster of the federation started (REVOKED); they have no outcome on this cluster and "
        "are skipped",
        "SELECT job_id FROM revoked",
        "sacct WHERE step IS NULL",
    ),
    SqlCheck(
        "waiting_arrays_as_one",
        "arrays whose waiting tasks count as one job with one task's request, because sacct truncated the list or "
        "there are too many tasks",
        """SELECT job_id FROM part WHERE status = 'pending' AND start_local IS NULL AND task IS NULL
        AND "array" IS NOT NULL AND coalesce(instance_count, 2) > 1""",
        "part WHERE status = 'pending'",
    ),
    SqlCheck(
        "steps_without_job",
        "steps whose job is not in the source",
        """SELECT s.cluster || '/' || s.key || '.' || s.step FROM sacct s
        ANTI JOIN (SELECT DISTINCT cluster, key FROM part) p ON s.cluster = p.cluster AND s.key = p.key
        WHERE s.step IS NOT NULL""",
        "sacct WHERE step IS NOT NULL",
    ),
    SqlCheck(
        "cpu_time_disagrees",
        "jobs with one run whose TotalCPU is 1 s or more off the sum over their steps; the sum is used",
        """SELECT p.job_id FROM (
            SELECT *, count(*) OVER (PARTITION BY cluster, key) AS runs FROM part) p
        JOIN (SELECT cluster, key, sum(cpu_s) AS cpu_s FROM used WHERE step IS NOT NULL GROUP BY cluster, key) s
            ON p.cluster = s.cluster AND p.key = s.key
        WHERE p.runs = 1 AND p.cpu_s > 0 AND abs(p.cpu_s - s.cpu_s) >= 1""",
        "part WHERE cpu_s > 0",
    ),
)
