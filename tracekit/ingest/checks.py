"""Find and count contradictions in the finished tables of every source, and correct three kinds.

Contradictions are counted and reported, never clipped or dropped. Formats run their own checks on the rows that they
stage. This module corrects:

- Repeated samples: a sample is one GPU's use during one sampling interval, so a repeated sample would count twice.
- Unmeasured GPU use: if a GPU has no counters, Slurm and monitors write zeros (gres/gpuutil=0 and gres/gpumem=0),
  although the use is unknown. An idle GPU gives the same two zeros, so we look at the other jobs. If no job on a GPU
  model shows any use, nothing was measured.
- Runs whose end the scheduler lost: the log lists them as running, although they have ended. The `open_attempts` view
  in queries/views/ determines how long these runs count. This module reads the same view, so it counts exactly the runs
  that the load, the digest and the allocated hours exclude.

`tracekit.ingest.time_order` handles contradictory times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit import resources
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.sink import no_rows
from tracekit.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.interface import Format
    from tracekit.ingest.sink import Sink

_LOG_TABLES = ("jobs", "attempts", "placements", "nodes")


class SqlCheck(NamedTuple):
    """A contradiction that a query finds."""

    name: str
    meaning: str
    """Meaning of a count above zero, in one sentence."""
    query: str | Callable[[duckdb.DuckDBPyConnection], list[str]]
    """SQL that returns one string per contradiction, or a function that does."""
    of: str
    """The rows to check, as SQL text after FROM. If there are no such rows, the query does not run."""
    tables: tuple[str, ...] = ()
    """Common tables that the check needs."""


def run_checks(con: duckdb.DuckDBPyConnection, sink: Sink, checks: Iterable[SqlCheck]) -> dict[str, int]:
    """Run checks, and record and return their counts by name."""
    sizes: dict[str, int] = {}
    found: dict[str, int] = {}
    for check in checks:
        sink.progress.stage(f"checking {check.name}")
        if check.of not in sizes:
            sizes[check.of] = con.execute(f"SELECT count(*) FROM {check.of}").fetchall()[0][0]
        found[check.name], examples = _found(con, check) if sizes[check.of] else (0, [])
        sink.check(check.name, found[check.name], sizes[check.of], check.meaning, examples)
    return found


def _found(con: duckdb.DuckDBPyConnection, check: SqlCheck) -> tuple[int, list[str]]:
    """Return the number of contradictions and up to five examples."""
    if isinstance(check.query, str):
        number, examples = con.execute(f"SELECT count(*), min(x, 5) FROM ({check.query}) AS found(x)").fetchall()[0]
        return number, examples
    rows = check.query(con)
    return len(rows), sorted(rows)[:5]


# Find job starts at which a cluster used more GPUs than it had.


def _starts_over_capacity(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the jobs whose start made their cluster use more GPUs than its recorded total.

    A job counts from its start until just before its end. A cluster's total is its row without a VC in the capacity
    table.
    """
    totals = pl.DataFrame(
        con.sql(
            "SELECT cluster, time, gpu_count FROM capacity WHERE vc IS NULL AND gpu_count IS NOT NULL ORDER BY time"
        )
    )
    if not len(totals):
        return []
    # If no job has a second attempt, the jobs table gives the same result without a join.
    retried = con.execute("SELECT 1 FROM attempts WHERE attempt > 0 LIMIT 1").fetchall()
    source = "(SELECT a.*, j.cluster FROM attempts a JOIN jobs j USING (job_id))" if retried else "jobs"
    rows = f"FROM {source} WHERE gpu_count > 0 AND run_s > 0"
    held = pl.DataFrame(con.sql(f"SELECT cluster, start_time, end_time, gpu_count {rows}"))
    over = np.zeros(len(held), dtype=bool)
    for (cluster,), total in totals.group_by("cluster"):
        own = held.select(pl.col("cluster").eq_missing(pl.lit(cluster, dtype=pl.String))).to_series()
        over[own.to_numpy()] = _over(held.filter(own), total)
    if not over.any():
        return []
    # Fetching the names of all jobs is slower than fetching their times, and the names are rarely needed.
    names: pl.Series = pl.DataFrame(con.sql(f"SELECT job_id {rows}"))["job_id"]
    return names.filter(pl.Series(over)).to_list()


def _over(held: pl.DataFrame, total: pl.DataFrame) -> NDArray[np.bool_]:
    """Return a mask of the intervals of one cluster that start while it uses more GPUs than its total."""
    if not len(held):
        return np.zeros(0, dtype=bool)
    # The times are integers, which NumPy sorts several times faster than dates.
    start, end = (held[name].to_physical().to_numpy() for name in ("start_time", "end_time"))
    gpus = held["gpu_count"].to_numpy()
    times = np.concatenate([start, end])
    order = np.argsort(times)
    running = np.cumsum(np.concatenate([gpus, -gpus])[order])
    # Compare the sum only after all events of the same time.
    rising = times[order]
    last = np.flatnonzero(np.append(rising[1:] != rising[:-1], True))
    after = np.empty(len(times))
    after[order] = np.repeat(running[last], np.diff(last, prepend=-1))
    at_start = after[: len(start)]
    row = np.searchsorted(total["time"].to_physical().to_numpy(), start, side="right") - 1
    # Before the first row, the total is unknown.
    over: NDArray[np.bool_] = (row >= 0) & (at_start > total["gpu_count"].to_numpy()[np.maximum(row, 0)] + 1e-6)
    return over


_LOST_END = (
    "runs that the log lists as running although they exceed their time limit by more than an hour or a later run "
    "uses their GPUs; they count until that limit or that run, and their end stays unknown (on Slurm, 'sacctmgr show "
    "runawayjobs' lists these records and can close them)"
)

# If a run has no recorded end, the log does not show how long it held its GPUs.
_CERTAIN = """
CREATE TABLE certain AS
SELECT p.* REPLACE (coalesce(p.end_time, CASE WHEN o.lost IS NOT NULL THEN make_timestamp(o.until_us) END) AS end_time)
FROM placements p LEFT JOIN attempts a USING (job_id, attempt) LEFT JOIN open_attempts o USING (job_id, attempt)
WHERE p.end_time IS NOT NULL OR a.end_time IS NOT NULL OR o.job_id IS NOT NULL"""

_ENDLESS = """
SELECT 1 FROM placements p LEFT JOIN attempts a USING (job_id, attempt)
WHERE p.gpu_count > 0 AND p.end_time IS NULL AND a.end_time IS NULL LIMIT 1"""

_DOUBTFUL = """
SELECT count(*) FROM placements p LEFT JOIN attempts a USING (job_id, attempt)
LEFT JOIN open_attempts o USING (job_id, attempt)
WHERE p.gpu_count > 0 AND p.end_time IS NULL AND a.end_time IS NULL AND (o.job_id IS NULL OR o.lost IS NOT NULL)"""

_NODES = """
SELECT n.* REPLACE (
    CASE WHEN n.source IS NULL THEN coalesce(s.gpu_count, n.gpu_count) ELSE n.gpu_count END AS gpu_count)
FROM {rows} n LEFT JOIN ({shown}) s USING (node_id) ORDER BY n.file_row_number"""

# A machine has at least as many GPUs as any one run used on it.
_MOST_OF_A_RUN = """
SELECT node_id, greatest(s.gpu_count, m.gpu_count) AS gpu_count FROM ({shown}) s FULL JOIN (
    SELECT node_id, ceil(max(gpu_count) - 1e-6)::BIGINT AS gpu_count FROM placements WHERE gpu_count > 0
    GROUP BY node_id) m USING (node_id)"""


def _lost_runs(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return a sorted list of the runs whose end was lost, each as one string with the reason."""
    # Most logs have no such run, and building the view is slower than this query.
    if not con.execute("SELECT 1 FROM attempts WHERE status = 'running' AND end_time IS NULL LIMIT 1").fetchall():
        return []
    _make_views(con)
    words = "CASE lost WHEN 'limit' THEN 'past its time limit' ELSE 'a later run uses its GPUs' END"
    rows = con.execute(
        f"SELECT job_id || CASE WHEN attempt > 0 THEN ' attempt ' || attempt ELSE '' END || ': ' || {words} AS found "
        "FROM open_attempts WHERE lost IS NOT NULL ORDER BY found"
    ).fetchall()
    return [str(row[0]) for row in rows]


def forget_lost_runs(sink: Sink, form: Format) -> None:
    """For machines that only jobs name, set the GPU count to the most GPUs used at once, ignoring runs of unknown end.

    A run that is still running is assumed to continue, and a run whose end was lost counts until the bound in
    `open_attempts`. An appended export is examined on its own, so its machines are the same in both layouts.
    """
    if not (form.nodes_from_jobs and sink.has("nodes", "placements", "attempts")):
        return
    with sink.connect() as con:
        sink.attach(con, *_LOG_TABLES)
        if not con.execute(_ENDLESS).fetchall():
            return
        _make_views(con)
        if not con.execute(_DOUBTFUL).fetchall()[0][0]:
            return
        con.execute(_CERTAIN)
        shown = _MOST_OF_A_RUN.format(shown=shown_gpus("certain"))
        sink.rewrite("nodes", con, _NODES.format(rows=sink.rows("nodes"), shown=shown))


def count_shown_gpus(sink: Sink) -> None:
    """For machines that only jobs name, set the GPU count to the number that telemetry shows in use by jobs."""
    if sink.has("nodes", "placements"):
        shown = shown_gpus(sink.rows("placements"))
        with sink.connect() as con:
            sink.rewrite("nodes", con, _NODES.format(rows=sink.rows("nodes"), shown=shown))


def _make_views(con: duckdb.DuckDBPyConnection) -> None:
    """Create the shared views. Tables missing from the log are empty."""
    have = {row[0] for row in con.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for table in set(_LOG_TABLES) - have:
        con.execute(f"CREATE VIEW {table} AS {no_rows(table)}")
    for view in ("trace_window", "open_attempts"):
        sql = (resources.folder("queries") / "views" / f"{view}.sql").read_text(encoding="utf-8")
        con.execute(f"CREATE VIEW {view} AS {sql}")


_COMMON = (
    SqlCheck(
        "completed_without_end",
        "completed jobs without an end",
        "SELECT job_id FROM jobs WHERE status = 'completed' AND end_time IS NULL",
        "jobs",
        ("jobs",),
    ),
    SqlCheck(
        "gpu_held_twice",
        "placements on a GPU that is still allocated to an earlier placement",
        """SELECT DISTINCT job_id || ' on ' || node_id FROM (
            SELECT job_id, node_id, start_time, max(end_time) OVER (
                PARTITION BY node_id, gpu ORDER BY start_time, end_time, job_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS held_until
            FROM (SELECT job_id, node_id, start_time, end_time, unnest(gpu_index) AS gpu FROM placements
                  WHERE start_time < end_time))
        WHERE held_until > start_time""",
        "placements WHERE gpu_index IS NOT NULL",
        ("placements",),
    ),
    SqlCheck(
        "gpu_beyond_listed",
        "machines that run jobs on more GPUs than the machine list shows",
        """SELECT node_id || ': listed ' || n.gpu_count || ', used ' || u.used FROM nodes n JOIN (
            SELECT node_id, max(list_max(gpu_index)) + 1 AS used FROM placements GROUP BY node_id) u USING (node_id)
        WHERE u.used > n.gpu_count""",
        "nodes",
        ("placements", "nodes"),
    ),
    SqlCheck(
        "unlisted_nodes",
        "machines that run jobs but are not in the machine list",
        "SELECT DISTINCT node_id FROM placements ANTI JOIN nodes USING (node_id)",
        "(SELECT DISTINCT node_id FROM placements)",
        ("placements", "nodes"),
    ),
    SqlCheck(
        "events_of_unlisted_nodes",
        "machines with events that are not in the machine list",
        "SELECT DISTINCT node_id FROM node_events ANTI JOIN nodes USING (node_id)",
        "(SELECT DISTINCT node_id FROM node_events)",
        ("node_events", "nodes"),
    ),
    SqlCheck(
        "node_fail_without_event",
        "runs that ended with a node failure although no event shows any of their nodes out of service or with an "
        "error within 10 minutes of the end; outages may be missing from the events",
        # Slurm sets a node down after SlurmdTimeout, 300 s by default (slurm.schedmd.com/slurm.conf.html). This is
        # twice that.
        """SELECT a.job_id || ' on ' || min(p.node_id) FROM attempts a JOIN placements p USING (job_id, attempt)
        LEFT JOIN node_events e ON e.node_id = p.node_id AND e.start_time <= a.end_time + INTERVAL 10 MINUTE
            AND (e.end_time IS NULL OR e.end_time >= a.end_time - INTERVAL 10 MINUTE)
        WHERE a.status = 'node_fail' AND a.end_time IS NOT NULL
        GROUP BY a.job_id, a.attempt HAVING count(e.node_id) = 0""",
        "attempts WHERE status = 'node_fail' AND end_time IS NOT NULL",
        ("attempts", "placements", "node_events"),
    ),
    SqlCheck(
        "samples_beyond_listed",
        "machines with more GPUs in telemetry than in the machine list",
        """SELECT node_id || ': listed ' || n.gpu_count || ', seen ' || u.seen FROM nodes n JOIN (
            SELECT node_id, max(gpu_index) + 1 AS seen FROM gpu_utilization GROUP BY node_id) u USING (node_id)
        WHERE u.seen > n.gpu_count""",
        "nodes",
        ("gpu_utilization", "nodes"),
    ),
    SqlCheck(
        "nodes_without_telemetry",
        "listed machines without any GPU sample",
        "SELECT node_id FROM nodes ANTI JOIN (SELECT DISTINCT node_id FROM gpu_utilization) USING (node_id)",
        "nodes",
        ("gpu_utilization", "nodes"),
    ),
    SqlCheck(
        "running_past_limit",
        _LOST_END,
        _lost_runs,
        "attempts WHERE status = 'running' AND end_time IS NULL AND start_time IS NOT NULL",
        ("attempts", "jobs"),
    ),
    SqlCheck(
        "running_over_capacity",
        "job starts at which the cluster uses more GPUs than the total in its quota table",
        _starts_over_capacity,
        "attempts WHERE gpu_count > 0 AND run_s > 0",
        ("attempts", "capacity", "jobs"),
    ),
)

COMMON_CHECKS = frozenset(check.name for check in _COMMON)
"""Names of the checks that run on the finished tables."""


_MUCH = 0.01
"""A note reports the rejected records' GPU-hours if they exceed this share of all GPU-hours."""


def run_common_checks(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Run the common checks whose tables exist. `con` has the tables as views."""
    run_checks(con, sink, [check for check in _COMMON if tables.issuperset(check.tables)])


def count_rejected_hours(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Count the rejected records' GPU-hours, and add a note if they exceed the share `_MUCH` of all GPU-hours.

    Only readers that can compute the GPU time of rejected records set `sink.rejected_gpu_s` [GPU*s].
    """
    name = "rejected_gpu_hours"
    earlier = sink.checks.pop(name, None)
    lost = sink.rejected_gpu_s / 3600 + (earlier.count if earlier else 0)
    if not lost:
        return
    used = 0.0
    if "attempts" in tables:
        query = "SELECT coalesce(sum(run_s * gpu_count), 0) / 3600 FROM attempts"
        used = float(con.execute(query).fetchall()[0][0])
    meaning = (
        "GPU-hours of rejected records that have a GPU count and a run time; no result includes them (see the table "
        "rejects)"
    )
    sink.check(name, round(lost), round(lost + used), meaning)
    if lost > _MUCH * (lost + used):
        sink.note(
            f"unreadable records account for at least {percent(lost / (lost + used))} of the GPU-hours, "
            f"{count(lost)} of {count(lost + used)}: all results leave them out (see the table rejects)"
        )


_REPEATED = "repeated GPU samples for the same time, machine and GPU; the last in the file is used"


class RepeatProof:
    """Proves, while files are read, that no sample repeats, without keeping the samples.

    The proof holds while each machine's times in a block are later than in all earlier blocks, as in files sorted by
    time, by machine, or by both.

    Attributes
    ----------
    holds : bool
        Whether no sample so far can repeat another.
    """

    def __init__(self) -> None:
        self.holds = True
        time = pl.Datetime("us")
        self._spans = pl.DataFrame(schema={"node_id": pl.String, "first": time, "last": time})

    def add(self, samples: pl.DataFrame) -> None:
        """Examine the next block of rows: samples of machines, with `time` and `node_id`."""
        if not self.holds:
            return
        # If different rows share a hash, the proof fails, which is safe.
        keys = samples.select(pl.col("time").hash(seed=1) ^ pl.col("node_id").hash(seed=2)).to_series()
        if keys.n_unique() < len(keys):
            self.holds = False
            return
        self._follow(samples.group_by("node_id").agg(first=pl.col("time").min(), last=pl.col("time").max()))

    def told(self) -> pl.DataFrame:
        """Return the summary of a file's samples for `follow`."""
        if self.holds:
            return self._spans.with_columns(holds=True)
        return pl.DataFrame({"holds": [False]})

    def follow(self, told: pl.DataFrame) -> None:
        """Examine the next file, given its summary from `told`."""
        self.holds &= bool(told["holds"].all())
        if self.holds:
            self._follow(told.drop("holds"))

    def _follow(self, spans: pl.DataFrame) -> None:
        before = spans.join(self._spans, on="node_id", how="full", coalesce=True, suffix="_before")
        later = before.select(((pl.col("first") > pl.col("last_before")) | pl.col("first").is_null()).all()).item()
        self.holds = bool(later)
        self._spans = before.select(
            "node_id", first=pl.min_horizontal("first", "first_before"), last=pl.max_horizontal("last", "last_before")
        )


def keep_last_samples(sink: Sink) -> None:
    """Keep one row per time, machine and GPU in gpu_utilization, and count the dropped rows.

    The last row in the file wins, as in the notebook published with the Philly traces. Only rows with the same hash are
    compared, which bounds the memory.
    """
    if not sink.has("gpu_utilization"):
        return
    if sink.distinct_samples:
        sink.check("repeated_gpu_samples", 0, sink.writer.tables()["gpu_utilization"].rows, _REPEATED)
        return
    sink.progress.stage("looking for repeated samples")
    rows = sink.rows("gpu_utilization")
    with sink.connect() as con:
        samples = f"(SELECT *, hash(time, node_id, gpu_index, gpu_instance) AS key FROM {rows})"
        con.execute(f"CREATE TABLE twice AS SELECT key FROM {samples} GROUP BY key HAVING count(*) > 1")
        con.execute(
            f"""CREATE TABLE repeated AS
            SELECT file_row_number, time, node_id, gpu_index, gpu_instance FROM {samples} SEMI JOIN twice USING (key)
            QUALIFY row_number() OVER (
                PARTITION BY time, node_id, gpu_index, gpu_instance ORDER BY file_row_number DESC) > 1"""
        )
        names = "SELECT node_id || ' gpu' || gpu_index || ' at ' || time FROM repeated"
        if run_checks(con, sink, [SqlCheck("repeated_gpu_samples", _REPEATED, names, rows)])["repeated_gpu_samples"]:
            kept = f"SELECT * FROM {rows} ANTI JOIN repeated USING (file_row_number) ORDER BY file_row_number"
            sink.rewrite("gpu_utilization", con, kept)


LEAST_JOBS = 10
"""With at least this many jobs, the zeros of a partition or node outweigh the use by other jobs on the same GPU
model."""

_MEANING = (
    "jobs whose GPU use is unknown although the log records 0: every job of their GPU model, partition or node has "
    "exactly 0 % and 0 memory, so these GPUs probably have no counters"
)

# The GPU model is as in the job_gpu_models view. A job that accepts several models has none.
_ZEROS = """
CREATE TABLE unmeasured AS
WITH used AS (
    SELECT u.job_id, j.cluster, j."partition", j.gpu_model,
           max(abs(u.gpu_util_pct)) = 0 AND coalesce(max(abs(u.gpu_memory_gib)) = 0, false) AS zero
    FROM job_usage u JOIN jobs j USING (job_id)
    WHERE j.gpu_count > 0 OR j.gpu_count IS NULL
    GROUP BY u.job_id, j.cluster, j."partition", j.gpu_model HAVING count(u.gpu_util_pct) > 0),
placed AS (
    SELECT DISTINCT p.job_id, p.node_id, n.gpu_model FROM placements p JOIN used USING (job_id)
    LEFT JOIN nodes n USING (node_id)),
ran AS (
    SELECT job_id, CASE WHEN min(gpu_model) = max(gpu_model) THEN min(gpu_model) END AS gpu_model
    FROM placed GROUP BY job_id),
known AS (
    SELECT u.* REPLACE (
        coalesce(CASE WHEN NOT contains(u.gpu_model, '|') THEN u.gpu_model END, r.gpu_model) AS gpu_model)
    FROM used u LEFT JOIN ran r USING (job_id)),
member AS (
    SELECT job_id, zero, 'model ' || gpu_model AS name, cluster, 1 AS least FROM known WHERE gpu_model IS NOT NULL
    UNION ALL
    SELECT job_id, zero, 'partition ' || "partition", cluster, CASE WHEN gpu_model IS NULL THEN 1 ELSE {least} END
    FROM known WHERE "partition" IS NOT NULL
    UNION ALL
    SELECT k.job_id, k.zero, 'node ' || p.node_id, k.cluster,
           CASE WHEN coalesce(k.gpu_model, k."partition") IS NULL THEN 1 ELSE {least} END
    FROM known k JOIN placed p USING (job_id)),
silent AS (
    SELECT name, cluster FROM member GROUP BY name, cluster HAVING bool_and(zero)
    AND count(DISTINCT job_id) >= max(least))
SELECT m.job_id, min(m.name) AS name FROM member m JOIN silent s
ON m.name = s.name AND m.cluster IS NOT DISTINCT FROM s.cluster GROUP BY m.job_id"""

_USE = """
SELECT u.* EXCLUDE (file_row_number) REPLACE (
    CASE WHEN z.job_id IS NULL THEN u.gpu_util_pct END AS gpu_util_pct,
    CASE WHEN z.job_id IS NULL THEN u.gpu_memory_gib END AS gpu_memory_gib)
FROM {rows} u LEFT JOIN unmeasured z USING (job_id) ORDER BY u.file_row_number"""


def forget_unmeasured(sink: Sink) -> None:
    """Set the GPU use of jobs and samples to NULL if their zeros mean that nothing was measured."""
    _forget_use(sink)
    _forget_samples(sink)


def _forget_use(sink: Sink) -> None:
    """Set the recorded GPU use of a group of jobs to NULL if it is 0 for all of them.

    The jobs on one GPU model are a group. So are the jobs of a partition or a node, if there are at least `LEAST_JOBS`
    of them or their model is unknown. For a node, the partition must be unknown as well. Jobs without GPUs belong to no
    group.
    """
    if not sink.has("job_usage"):
        return
    with sink.connect() as con:
        sink.attach(con, *_LOG_TABLES, "job_usage")
        of = con.execute("SELECT count(DISTINCT job_id) FROM job_usage WHERE gpu_util_pct IS NOT NULL").fetchall()[0][0]
        if not of:
            return
        con.execute(_ZEROS.format(least=LEAST_JOBS))
        number, examples = con.execute(
            "SELECT count(*), coalesce(list_sort(list(DISTINCT name))[:5], []) FROM unmeasured"
        ).fetchall()[0]
        sink.check("unmeasured_gpu_use", int(number), int(of), _MEANING, examples)
        if number:
            sink.rewrite("job_usage", con, _USE.format(rows=sink.rows("job_usage")))


_NOTHING_SAMPLED = (
    "machines whose samples are unknown although the monitor reports 0: every job of their GPU model, or every job "
    "of the machine, has exactly 0 % and 0 memory, so these GPUs probably have no counters"
)
_MEASURES = ("utilization_pct", "memory_used_gib", "sm_active_pct", "tensor_active_pct")

# If a machine never shows any use, neither do its jobs. A machine without jobs may be idle.
_SILENT = """
CREATE TABLE unmeasured_nodes AS
WITH shown AS (
    SELECT node_id, min(time) AS first, max(time) AS last,
           coalesce(max({most}), 0) = 0 AND max(memory_used_gib) IS NOT NULL AS zero,
           count(*) > count(DISTINCT (gpu_index, gpu_instance)) AS again
    FROM {samples} WHERE utilization_pct IS NOT NULL GROUP BY node_id),
had AS (
    SELECT s.node_id, count(DISTINCT p.job_id) AS jobs
    FROM shown s JOIN placements p USING (node_id) JOIN attempts a USING (job_id, attempt) JOIN jobs j USING (job_id)
    WHERE (j.gpu_count > 0 OR j.gpu_count IS NULL) AND a.start_time <= s.last
    AND (a.end_time IS NULL OR a.end_time > s.first)
    GROUP BY s.node_id),
known AS (
    SELECT s.node_id, s.zero, s.again, coalesce(h.jobs, 0) AS jobs, n.cluster, n.gpu_model
    FROM shown s LEFT JOIN had h USING (node_id) LEFT JOIN nodes n USING (node_id))
SELECT node_id FROM known
WINDOW model AS (PARTITION BY cluster, gpu_model)
QUALIFY zero AND bool_or(again) OVER model
AND (jobs >= {least} OR (bool_and(zero) OVER model AND sum(jobs) OVER model > 0))"""


def _forget_samples(sink: Sink) -> None:
    """Set the samples of a machine to NULL if the monitor reports zeros for every job on its GPUs.

    There are two cases: all machines of one GPU model, or of unknown model, show only zeros and at least one of them
    ran a job with GPUs; or one machine shows only zeros and ran at least `LEAST_JOBS` jobs with GPUs. One sample per
    GPU is not enough, because the GPUs may be idle.
    """
    if not sink.has("gpu_utilization"):
        return
    rows = sink.rows("gpu_utilization")
    with sink.connect() as con:
        # Parquet statistics answer this query alone if memory was never sampled or is never 0.
        if not con.execute(f"SELECT 1 FROM {rows} WHERE memory_used_gib = 0 LIMIT 1").fetchall():
            return
        sink.attach(con, *_LOG_TABLES)
        most = "greatest(" + ", ".join(f"coalesce(abs({name}), 0)" for name in _MEASURES) + ")"
        con.execute(_SILENT.format(most=most, samples=rows, least=LEAST_JOBS))
        name, of = "unmeasured_gpu_samples", f"(SELECT DISTINCT node_id FROM {rows})"
        check = SqlCheck(name, _NOTHING_SAMPLED, "SELECT node_id FROM unmeasured_nodes", of)
        if run_checks(con, sink, [check])[name]:
            unknown = ", ".join(f"CASE WHEN z.node_id IS NULL THEN u.{name} END AS {name}" for name in _MEASURES)
            sink.rewrite(
                "gpu_utilization",
                con,
                f"""SELECT u.* EXCLUDE (file_row_number) REPLACE ({unknown})
                FROM {rows} u LEFT JOIN unmeasured_nodes z USING (node_id) ORDER BY u.file_row_number""",
            )
