"""Correct finished tables of every format: repeated samples, unmeasured use, and runs whose end was lost.

- Repeated samples: one sample stands for one GPU during one sampling interval, so a repeated one would count twice.
- GPU use that a monitor reports as 0 because the GPU has no counter for it: it is unknown. Slurm writes gres/gpuutil=0
  and gres/gpumem=0 if its plug-in cannot read a GPU, and monitors do the same. A job that leaves its GPU idle gives the
  same two zeros, so only other jobs can tell the two apart: if no job of a GPU model shows any use, nothing was
  measured.
- Runs whose end the scheduler lost: the log lists them as running, although they cannot be running any more. The view
  `open_attempts` in queries/views/ decides until when such a run counts. This module reads the same view, so it counts
  exactly what the load, the digest and the allocated hours leave out.

`tracekit.ingest.table_times` handles times that contradict each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit import resources
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.sink import no_rows

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.interface import Format
    from tracekit.ingest.sink import Sink

_LOG_TABLES = ("jobs", "attempts", "placements", "nodes")
_REPEATED = "repeated GPU samples of the same time, machine and GPU; the last in the file is used"


class RepeatProof:
    """Proves while files are read that no sample repeats, without keeping the samples.

    This is certain as long as each machine's times in a block are later than its times in all earlier blocks, as in
    files ordered by time, by machine, or by both.

    Attributes
    ----------
    holds : bool
        Whether it is certain that no sample so far repeats another.
    """

    def __init__(self) -> None:
        self.holds = True
        time = pl.Datetime("us")
        self._spans = pl.DataFrame(schema={"node_id": pl.String, "first": time, "last": time})

    def add(self, samples: pl.DataFrame) -> None:
        """Examine the next block of rows, with `time` and `node_id`; each row is one sample of a machine."""
        if not self.holds:
            return
        # If different rows share a hash, the only effect is that the proof fails.
        keys = samples.select(pl.col("time").hash(seed=1) ^ pl.col("node_id").hash(seed=2)).to_series()
        if keys.n_unique() < len(keys):
            self.holds = False
            return
        self._follow(samples.group_by("node_id").agg(first=pl.col("time").min(), last=pl.col("time").max()))

    def told(self) -> pl.DataFrame:
        """Return what `follow` needs to know about a file's samples; if `holds` is False, return only that."""
        if self.holds:
            return self._spans.with_columns(holds=True)
        return pl.DataFrame({"holds": [False]})

    def follow(self, told: pl.DataFrame) -> None:
        """Examine the next file, given what `told` returned for it."""
        self.holds &= bool(told["holds"].all())
        if self.holds:
            self._follow(told.drop("holds"))

    def _follow(self, spans: pl.DataFrame) -> None:
        before = spans.join(self._spans, on="node_id", how="full", coalesce=True, suffix="_before")
        later = before.select(((pl.col("first") > pl.col("last_before")) | pl.col("first").is_null()).all()).item()
        self.holds = bool(later)
        self._spans = before.select(
            "node_id",
            first=pl.min_horizontal("first", "first_before"),
            last=pl.max_horizontal("last", "last_before"),
        )


def keep_last_samples(sink: Sink) -> None:
    """Keep one row per time, machine and GPU in gpu_utilization, and count the rows dropped.

    The last row in the file is kept, as in the notebook published with the Philly traces. Only rows that share a hash
    are compared, so memory stays bounded.
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
        count, examples = con.execute(
            "SELECT count(*), min(node_id || ' gpu' || gpu_index || ' at ' || time, 5) FROM repeated"
        ).fetchall()[0]
        total = con.execute(f"SELECT count(*) FROM {rows}").fetchall()[0][0]
        sink.check("repeated_gpu_samples", count, total, _REPEATED, examples)
        if count:
            kept = f"SELECT * FROM {rows} ANTI JOIN repeated USING (file_row_number) ORDER BY file_row_number"
            sink.rewrite("gpu_utilization", con, kept)


LEAST_JOBS = 10
"""Jobs in a partition or on a node, all with zeros, that outweigh what other jobs show about the GPU model."""

_MEANING = (
    "jobs whose GPU use is unknown, although the log has 0: it has exactly 0 % and 0 memory for every job of their "
    "GPU model, or of their partition or node, so these GPUs probably lack such counters"
)

# The model as in the view job_gpu_models; a job that accepts several models has none.
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
    """Set the recorded GPU use to NULL for jobs on GPUs for which every job is recorded with zeros.

    A group is the jobs of one GPU model. The jobs of a partition or a node are also a group if there are at least
    `LEAST_JOBS` of them or their model is unknown (for a node: if their partition is unknown too). Jobs without GPUs
    are in no group.
    """
    if not sink.has("job_usage"):
        return
    with sink.connect() as con:
        sink.attach(con, *_LOG_TABLES, "job_usage")
        of = con.execute("SELECT count(DISTINCT job_id) FROM job_usage WHERE gpu_util_pct IS NOT NULL").fetchall()[0][0]
        if not of:
            return
        con.execute(_ZEROS.format(least=LEAST_JOBS))
        count, examples = con.execute(
            "SELECT count(*), coalesce(list_sort(list(DISTINCT name))[:5], []) FROM unmeasured"
        ).fetchall()[0]
        sink.check("unmeasured_gpu_use", int(count), int(of), _MEANING, examples)
        if count:
            sink.rewrite("job_usage", con, _USE.format(rows=sink.rows("job_usage")))


_NOTHING_SAMPLED = (
    "machines whose samples are unknown, although the monitor has 0: it has exactly 0 % and 0 memory for every job "
    "of their GPU model, or for every job of the machine, so these GPUs probably lack such counters"
)
_MEASURES = ("utilization_pct", "memory_used_gib", "sm_active_pct", "tensor_active_pct")

# If a machine never shows any use, it shows none for the jobs that ran on it; a machine without jobs may be idle.
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
    """Set the samples of machines to NULL whose GPUs are recorded with zeros for every job.

    Either all machines of a GPU model (or of an unknown model) show only zeros while at least one of them ran a job
    with GPUs, or a single machine does while it ran at least `LEAST_JOBS` such jobs. A single sample per GPU is not
    enough, because the GPUs may just be idle.
    """
    if not sink.has("gpu_utilization"):
        return
    rows = sink.rows("gpu_utilization")
    with sink.connect() as con:
        # Parquet statistics answer this if memory was never sampled or is never 0.
        if not con.execute(f"SELECT 1 FROM {rows} WHERE memory_used_gib = 0 LIMIT 1").fetchall():
            return
        sink.attach(con, *_LOG_TABLES)
        most = "greatest(" + ", ".join(f"coalesce(abs({name}), 0)" for name in _MEASURES) + ")"
        con.execute(_SILENT.format(most=most, samples=rows, least=LEAST_JOBS))
        count, examples = con.execute(
            "SELECT count(*), coalesce(list_sort(list(node_id))[:5], []) FROM unmeasured_nodes"
        ).fetchall()[0]
        of = con.execute(f"SELECT count(DISTINCT node_id) FROM {rows}").fetchall()[0][0]
        sink.check("unmeasured_gpu_samples", int(count), int(of), _NOTHING_SAMPLED, examples)
        if count:
            unknown = ", ".join(f"CASE WHEN z.node_id IS NULL THEN u.{name} END AS {name}" for name in _MEASURES)
            sink.rewrite(
                "gpu_utilization",
                con,
                f"""SELECT u.* EXCLUDE (file_row_number) REPLACE ({unknown})
                FROM {rows} u LEFT JOIN unmeasured_nodes z USING (node_id) ORDER BY u.file_row_number""",
            )


LOST_END = (
    "runs that the log lists as running although they passed their time limit by more than an hour, or a later run "
    "uses their GPUs; they count up to that limit, or that run, and their end stays unknown (on Slurm, 'sacctmgr show "
    "runawayjobs' lists such records and offers to close them)"
)

# A run that has stopped but has no recorded end does not show what else was allocated at the time.
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

# A machine has at least as many GPUs as one run held on it.
_MOST_OF_A_RUN = """
SELECT node_id, greatest(s.gpu_count, m.gpu_count) AS gpu_count FROM ({shown}) s FULL JOIN (
    SELECT node_id, ceil(max(gpu_count) - 1e-6)::BIGINT AS gpu_count FROM placements WHERE gpu_count > 0
    GROUP BY node_id) m USING (node_id)"""


def lost_runs(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return one text for each run whose end was lost, with the reason, in order."""
    # Most logs have no such run, and building the view takes longer than this query.
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
    """Set the GPU count of machines named only by jobs to the most GPUs held at once, ignoring runs of unknown end.

    A run that is still running is assumed to continue, and a run whose end was lost counts up to the bound in
    `open_attempts`. An export that is appended to a Trace is examined alone, so that its machines are the same in both
    layouts.
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
    """Set the GPU count of machines named only by jobs to what telemetry shows, as far as jobs held those GPUs."""
    if sink.has("nodes", "placements"):
        shown = shown_gpus(sink.rows("placements"))
        with sink.connect() as con:
            sink.rewrite("nodes", con, _NODES.format(rows=sink.rows("nodes"), shown=shown))


def _make_views(con: duckdb.DuckDBPyConnection) -> None:
    """Create the shared views; tables missing from the log are empty."""
    have = {row[0] for row in con.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for table in set(_LOG_TABLES) - have:
        con.execute(f"CREATE VIEW {table} AS {no_rows(table)}")
    for view in ("trace_window", "open_attempts"):
        sql = (resources.folder("queries") / "views" / f"{view}.sql").read_text(encoding="utf-8")
        con.execute(f"CREATE VIEW {view} AS {sql}")
