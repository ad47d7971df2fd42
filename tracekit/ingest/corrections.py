"""What finished tables show to be repeated, not measured or out of date, whatever the format.

- Samples that come twice: one sample is one GPU for one sampling interval, so that a repeated one would weigh twice.
- Use of GPUs that a monitor reports as 0 because the GPU has no counter for it: it is unknown. Slurm writes
  gres/gpuutil=0 and gres/gpumem=0 where its plug-in cannot read a GPU, and monitors do alike. A job that leaves its GPU
  alone gives the same two zeros, so only the other jobs can tell: where no job of a GPU model shows anything, nothing
  was measured.
- Runs whose end a scheduler lost: what the log calls running, though it cannot run any more. Until when such a run
  counts is the view `open_attempts` of queries/views/, which this module reads as well: what is counted here is what
  the load, the digest and the hours held leave out.

`tracekit.ingest.table_times` does the same for times that contradict each other.
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
    """Shows while files are read that none of their samples repeats, without keeping the samples.

    That is certain as long as the times of each machine in a block are later than those in all blocks before, as in
    files ordered by time, by machine, or by both.

    Attributes
    ----------
    holds : bool
        Whether no sample so far repeats another; False when that is not certain.
    """

    def __init__(self) -> None:
        self.holds = True
        time = pl.Datetime("us")
        self._spans = pl.DataFrame(schema={"node_id": pl.String, "first": time, "last": time})

    def add(self, samples: pl.DataFrame) -> None:
        """Examine the next block of rows: `time` and `node_id`, one row for each sample of a machine."""
        if not self.holds:
            return
        # Different rows that share a hash only end the proof.
        keys = samples.select(pl.col("time").hash(seed=1) ^ pl.col("node_id").hash(seed=2)).to_series()
        if keys.n_unique() < len(keys):
            self.holds = False
            return
        self._follow(samples.group_by("node_id").agg(first=pl.col("time").min(), last=pl.col("time").max()))

    def told(self) -> pl.DataFrame:
        """Return what `follow` has to know of the samples of a file; with `holds` False, nothing more."""
        if self.holds:
            return self._spans.with_columns(holds=True)
        return pl.DataFrame({"holds": [False]})

    def follow(self, told: pl.DataFrame) -> None:
        """Examine the next file, whose own proof has told this."""
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
    """Keep one row for each time, machine and GPU in gpu_utilization, and count the others.

    The last in the file is kept, as in the notebook published with the Philly traces. Only rows that share a hash are
    compared, so that memory stays bounded.
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
"""Jobs of a partition or a node, all of them with zeros, that outweigh what is known of the GPU model elsewhere."""

_MEANING = (
    "jobs whose GPU use is unknown, although the log has 0: it has exactly 0 % and 0 memory for every job of their "
    "GPU model, or of their partition or node, so these GPUs probably lack such counters"
)

# The model as in the view job_gpu_models; a job that accepted several has none.
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
    """Set the use of GPUs to NULL where zeros stand for what was not measured: of jobs, and of samples."""
    _forget_use(sink)
    _forget_samples(sink)


def _forget_use(sink: Sink) -> None:
    """Set the stated use of GPUs to NULL where every job of the same GPUs is stated with zeros.

    A group is the jobs of a GPU model; of a partition or a node, where it has `LEAST_JOBS` jobs or their model is
    unknown (for a node, the partition too). Jobs without GPUs are in none.
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

# A machine that shows nothing at any time shows nothing for the jobs that it had; one without a job may be idle.
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
    """Set the samples of machines to NULL whose GPUs are stated with zeros for every job.

    All machines of a GPU model (or of an unknown one) have to show nothing while one of them had a job with GPUs; or
    one machine alone while it had `LEAST_JOBS` such jobs. One sample of each GPU is a glance at GPUs that may be idle.
    """
    if not sink.has("gpu_utilization"):
        return
    rows = sink.rows("gpu_utilization")
    with sink.connect() as con:
        # Statistics answer this where no memory was sampled, or it is never 0.
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

# A run that no longer runs, and has no end, says nothing about what else was held at its time.
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

# A machine has at least what one run held of it.
_MOST_OF_A_RUN = """
SELECT node_id, greatest(s.gpu_count, m.gpu_count) AS gpu_count FROM ({shown}) s FULL JOIN (
    SELECT node_id, ceil(max(gpu_count) - 1e-6)::BIGINT AS gpu_count FROM placements WHERE gpu_count > 0
    GROUP BY node_id) m USING (node_id)"""


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
    """Give machines that only jobs name the GPUs that telemetry shows on them, as far as jobs held them."""
    if sink.has("nodes", "placements"):
        shown = shown_gpus(sink.rows("placements"))
        with sink.connect() as con:
            sink.rewrite("nodes", con, _NODES.format(rows=sink.rows("nodes"), shown=shown))


def _make_views(con: duckdb.DuckDBPyConnection) -> None:
    """Create the shared views; tables that the log lacks are empty."""
    have = {row[0] for row in con.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    for table in set(_LOG_TABLES) - have:
        con.execute(f"CREATE VIEW {table} AS {no_rows(table)}")
    for view in ("trace_window", "open_attempts"):
        sql = (resources.folder("queries") / "views" / f"{view}.sql").read_text(encoding="utf-8")
        con.execute(f"CREATE VIEW {view} AS {sql}")
