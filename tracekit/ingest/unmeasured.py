"""Use of GPUs that a monitor reports as 0 because the GPU has no counter for it: it is unknown.

Slurm writes gres/gpuutil=0 and gres/gpumem=0 where its plug-in cannot read a GPU, and monitors do alike. A job that
leaves its GPU alone gives the same two zeros, so only the other jobs can tell: where no job of a GPU model
shows anything, nothing was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.databases import sql_text
from tracekit.ingest.telemetry._complete import attach_log

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

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
FROM {old} u LEFT JOIN unmeasured z USING (job_id) ORDER BY u.file_row_number"""


def forget_unmeasured(sink: Sink) -> None:
    """Set the use of GPUs to NULL where zeros stand for what was not measured: of jobs, and of samples."""
    _forget_use(sink)
    _forget_samples(sink)


def _forget_use(sink: Sink) -> None:
    """Set the stated use of GPUs to NULL where every job of the same GPUs is stated with zeros.

    A group is the jobs of a GPU model; of a partition or a node, where it has `LEAST_JOBS` jobs or their model is
    unknown
    (for a node, the partition too). Jobs without GPUs are in none.
    """
    path = sink.folder / "job_usage.parquet"
    if not path.is_file():
        return
    stated = f"read_parquet({sql_text(path)})"
    with sink.connect() as con:
        of = int(
            con.execute(f"SELECT count(DISTINCT job_id) FROM {stated} WHERE gpu_util_pct IS NOT NULL").fetchall()[0][0]
        )
        if not of:
            return
        attach_log(con, sink)
        con.execute(f"CREATE VIEW job_usage AS SELECT * FROM {stated}")
        con.execute(_ZEROS.format(least=LEAST_JOBS))
        count, examples = con.execute(
            "SELECT count(*), coalesce(list_sort(list(DISTINCT name))[:5], []) FROM unmeasured"
        ).fetchall()[0]
        sink.check("unmeasured_gpu_use", int(count), of, _MEANING, examples)
        if count:
            old = sink.writer.scratch / "stated_job_usage.parquet"
            path.replace(old)
            rows = f"read_parquet({sql_text(old)}, file_row_number = true)"
            sink.writer.copy("job_usage", con, _USE.format(old=rows))


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
    path = sink.folder / "gpu_utilization.parquet"
    if not path.is_file():
        return
    stated = f"read_parquet({sql_text(path)}, file_row_number = true)"
    with sink.connect() as con:
        # Statistics answer this where no memory was sampled, or it is never 0.
        if not con.execute(f"SELECT 1 FROM {stated} WHERE memory_used_gib = 0 LIMIT 1").fetchall():
            return
        attach_log(con, sink)
        most = "greatest(" + ", ".join(f"coalesce(abs({name}), 0)" for name in _MEASURES) + ")"
        con.execute(_SILENT.format(most=most, samples=stated, least=LEAST_JOBS))
        count, examples = con.execute(
            "SELECT count(*), coalesce(list_sort(list(node_id))[:5], []) FROM unmeasured_nodes"
        ).fetchall()[0]
        of = con.execute(f"SELECT count(DISTINCT node_id) FROM {stated}").fetchall()[0][0]
        sink.check("unmeasured_gpu_samples", int(count), int(of), _NOTHING_SAMPLED, examples)
        if count:
            old = sink.writer.scratch / "stated_gpu_utilization.parquet"
            path.replace(old)
            unknown = ", ".join(f"CASE WHEN z.node_id IS NULL THEN u.{name} END AS {name}" for name in _MEASURES)
            sink.writer.copy(
                "gpu_utilization",
                con,
                f"""SELECT u.* EXCLUDE (file_row_number) REPLACE ({unknown})
                FROM read_parquet({sql_text(old)}, file_row_number = true) u
                LEFT JOIN unmeasured_nodes z USING (node_id) ORDER BY u.file_row_number""",
            )
