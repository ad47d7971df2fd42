"""Read Kubernetes Pods and Kueue Workloads, as printed by kubectl -o json.

The files come from `kubectl get pods --all-namespaces -o json`, `kubectl get workloads -A -o json`, or both in one
file. A file is a List, an array, or one object after another. Several files may show the same cluster at different
times. Times are UTC. A deleted pod is missing from later files, so the last file that contains it shows its final
state. Take snapshots often enough. Fields: kubernetes.io/docs (Pod API), kueue.sigs.k8s.io/docs (Workload).

The pods of one job are its instances. A pod's job is the first of the following that exists: the job named by a label
(kueue.x-k8s.io/pod-group-name, ray.io/originated-from-cr-name or jobset.sigs.k8s.io/jobset-name), the pod's owner, if
that is a Job of any kind (Job, PyTorchJob, MPIJob, Volcano's Job, ...), a JobSet or a RayCluster, and the gang named by
scheduling.x-k8s.io/pod-group or scheduling.k8s.io/group-name. Otherwise, the pod is a separate job in its owner's
group, like the pods of a ReplicaSet. A job_id is NAMESPACE/NAME, followed by @ and the first letters of the uid if
known, because names are reused. `vc` is the namespace, and placements.instance is the pod's name, so telemetry can be
joined on both.

A pod occupies its machine from the time it was scheduled (PodScheduled) until its last container ended. A job's pods
whose lives overlap are one attempt. A pod created after all others ended begins another attempt. An attempt starts with
its first pod. A job's GPUs are the most that its pods requested at once. The counted resources are nvidia.com/gpu,
amd.com/gpu, MIG slices as parts of a GPU (3g is 3 of 7, or 3 of 4 on an A30), and the gpu-fraction annotation of KAI
and Run:ai, whose reservation pods are ignored. Any other resource with a slash in its name may be an accelerator,
unless it is a known network or file resource. A pod's GPUs are unknown if it requests such a resource, a device claim
(DRA, named resourceclaim/NAME) or an amount of GPU memory. Notes list these resources, and the gpu_resource option sets
how many GPUs each counts as.

A pod that its machine rejected (UnexpectedAdmissionError, OutOfcpu, ...) used nothing and has no attempt.

With Workloads, a job waits from the creation of its Workload until its admission, which begins an attempt. An eviction
ends an attempt, even though the Workload shows Admitted until its pods are gone. A Workload shows only its last
admission; earlier ones are known from files of that time and from pods. Its conditions give the reasons for an eviction
and for its end. A pod's own reason is more specific.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from tracekit.databases import sql_text
from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._kubernetes_objects import read_objects
from tracekit.ingest.formats._records import RecordFormat, write_frames
from tracekit.ingest.interface import FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_records import FACTS, combine_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb


# Turn rows of pods and Workloads into jobs, attempts and placements.

# If several files show a pod, we use the last file with its latest state.
_PODS = """
CREATE TABLE shown AS
SELECT * FROM staged WHERE kind = 'pod'
QUALIFY row_number() OVER (PARTITION BY pod_key ORDER BY level DESC, (scheduled IS NULL), ord DESC) = 1"""

# A label names a job without its uid, and means the last job of that name created before the pod.
_POD_JOBS = """
CREATE TABLE pod AS
WITH known AS (
    SELECT substr(job_id, 1, length(job_id) - 9) AS entity, job_id, min(submit_time) AS since
    FROM fact WHERE contains(job_id, '@') AND submit_time IS NOT NULL GROUP BY job_id),
labelled AS (
    SELECT s.pod_key, arg_max(k.job_id, k.since) AS job_id
    FROM shown s JOIN known k ON s.entity = k.entity AND s.created >= k.since WHERE s.uid IS NULL GROUP BY s.pod_key)
SELECT s.* EXCLUDE (job_id), coalesce(l.job_id, s.entity || coalesce('@' || substr(s.uid, 1, 8), '')) AS job_id
FROM shown s LEFT JOIN labelled l USING (pod_key)"""

# Pods whose lives overlap are one attempt. A pod created after all others ended begins another attempt.
_LIVES = """
CREATE TABLE life AS
WITH ordered AS (
    SELECT *, max(coalesce(ended, 'infinity'::TIMESTAMP)) OVER (
        PARTITION BY job_id ORDER BY created NULLS FIRST, pod, pod_key
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until
    FROM pod)
SELECT *, 1 AS pods, sum(coalesce(created > busy_until, false)::INTEGER) OVER (
    PARTITION BY job_id ORDER BY created NULLS FIRST, pod, pod_key
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)::BIGINT AS island
FROM ordered"""


# The largest total that an attempt's pods requested at once.
_MOST = """
CREATE TABLE most AS
WITH event AS (
    SELECT job_id, island, coalesce(created, '-infinity'::TIMESTAMP) AS time, gpus, cpus, memory, pods FROM life
    UNION ALL SELECT job_id, island, ended, -gpus, -cpus, -memory, -pods FROM life WHERE ended IS NOT NULL),
step AS (
    SELECT job_id, island, time, sum(gpus) AS gpus, sum(cpus) AS cpus, sum(memory) AS memory, sum(pods) AS pods
    FROM event GROUP BY ALL),
running AS (
    SELECT job_id, island, sum(gpus) OVER so_far AS gpus, sum(cpus) OVER so_far AS cpus,
           sum(memory) OVER so_far AS memory, sum(pods) OVER so_far AS pods
    FROM step WINDOW so_far AS (PARTITION BY job_id, island ORDER BY time))
SELECT job_id, island, max(gpus) AS gpus, max(cpus) AS cpus, max(memory) AS memory, max(pods) AS pods
FROM running GROUP BY job_id, island"""

_ISLANDS = """
CREATE TABLE island AS
SELECT l.job_id, l.island, min(l.created) AS created, min(l.scheduled) AS start_time,
       CASE WHEN count(*) = count(l.ended) OR count(l.scheduled) = count(l.ended) FILTER (WHERE l.scheduled IS NOT NULL)
            THEN max(l.ended) FILTER (WHERE l.scheduled IS NOT NULL) END AS end_time,
       max(l.ended) AS gone_time,
       CASE WHEN count(*) FILTER (WHERE l.status = 'running') > 0 THEN 'running'
            WHEN count(*) FILTER (WHERE l.status = 'pending') > 0
                 THEN CASE WHEN count(l.scheduled) > 0 THEN 'running' ELSE 'pending' END
            ELSE coalesce(arg_min(l.status, coalesce(l.ended, 'infinity'::TIMESTAMP))
                              FILTER (WHERE l.status <> 'completed'), 'completed') END AS status,
       coalesce(arg_min(l.source_status, coalesce(l.ended, 'infinity'::TIMESTAMP))
                    FILTER (WHERE l.status NOT IN ('completed', 'running', 'pending')),
                min(l.source_status)) AS source_status,
       count(DISTINCT l.node) FILTER (WHERE l.scheduled IS NOT NULL) AS node_count,
       CASE WHEN count(l.gpus) = count(*) THEN any_value(m.gpus) END AS gpu_count, any_value(m.cpus) AS cpu_count,
       any_value(m.memory) AS memory_gib, any_value(m.pods)::BIGINT AS instance_count,
       nullif(string_agg(DISTINCT l.gpu_model, '|' ORDER BY l.gpu_model), '') AS gpu_model
FROM life l JOIN most m USING (job_id, island) GROUP BY l.job_id, l.island"""

# Kueue shows when a job got its quota. The pods at that time show where it ran.
_RUNS = """
CREATE TABLE joined AS
WITH covered AS (
    SELECT i.job_id, i.island, r.start_time AS admitted
    FROM (SELECT * FROM island WHERE start_time IS NOT NULL) i
    ASOF JOIN run r ON i.job_id = r.job_id AND i.start_time >= r.start_time
    WHERE r.end_time IS NULL OR i.start_time < r.end_time),
own AS (
    SELECT i.job_id, i.start_time, i.end_time, i.status, i.gpu_count, i.node_count, [i.island] AS islands
    FROM island i ANTI JOIN covered c USING (job_id, island) WHERE i.start_time IS NOT NULL),
quota AS (
    SELECT r.job_id, r.start_time, any_value(r.end_time) AS end_time,
           CASE WHEN any_value(r.status) IN ('failed', 'unknown')
                THEN coalesce(max(i.status) FILTER (WHERE i.status NOT IN ('running', 'pending', 'completed')),
                              any_value(r.status))
                ELSE any_value(r.status) END AS status,
           coalesce(any_value(r.gpu_count), max(i.gpu_count)) AS gpu_count,
           coalesce(max(i.node_count), any_value(r.node_count)) AS node_count,
           coalesce(list(c.island) FILTER (WHERE c.island IS NOT NULL), []) AS islands
    FROM run r LEFT JOIN covered c ON c.job_id = r.job_id AND c.admitted = r.start_time
    LEFT JOIN island i ON i.job_id = c.job_id AND i.island = c.island
    GROUP BY r.job_id, r.start_time),
every AS (SELECT * FROM own UNION ALL BY NAME SELECT * FROM quota)
SELECT *, row_number() OVER (PARTITION BY job_id ORDER BY start_time, islands) - 1 AS attempt FROM every"""

_PLACED = """
CREATE OR REPLACE TABLE place AS
SELECT l.job_id, j.attempt, l.task, l.pod AS instance, l.node AS node_id, NULL::BIGINT[] AS gpu_index,
       l.gpus AS gpu_count, l.scheduled AS start_time, l.ended AS end_time
FROM (SELECT job_id, attempt, unnest(islands) AS island FROM joined) j JOIN life l USING (job_id, island)
WHERE l.scheduled IS NOT NULL AND l.node IS NOT NULL"""

_OF_PODS = """
CREATE TABLE stated AS
SELECT l.job_id, min(l.created) AS submit_time, any_value(l.namespace) AS vc, min(l.queue) AS "partition",
       min(l.priority_class) AS qos, min(l.user_name) AS "user", min(l.owner) AS "group",
       max(l.priority_value) AS priority, max(l.limit_s) AS time_limit_s,
       arg_min(i.gpu_count, i.island) AS gpu_count, arg_min(i.cpu_count, i.island) AS cpu_count,
       arg_min(i.memory_gib, i.island) AS memory_gib, arg_min(i.instance_count, i.island) AS instance_count,
       min(i.gpu_model) AS gpu_model, arg_max(i.status, i.island) AS status,
       arg_max(i.source_status, i.island) AS source_status, max(i.gone_time) AS gone_time,
       regexp_replace(any_value(l.entity), '^[^/]*/', '') AS name
FROM life l JOIN island i USING (job_id, island) GROUP BY l.job_id"""

_SPECIAL = "('out_of_memory', 'timeout', 'node_fail', 'preempted')"


def combine_objects(con: duckdb.DuckDBPyConnection, staged: Path, sink: Sink) -> None:
    """Build the tables fact, run, place and usage (`tracekit.ingest.job_records`) from the staged rows."""
    con.execute(f"CREATE VIEW staged AS SELECT * FROM read_parquet({sql_text(staged)})")
    combine_records(con, staged, sink, "kind = 'load'")
    for statement in (_PODS, _POD_JOBS, _LIVES, _MOST, _ISLANDS, _RUNS, _PLACED, _OF_PODS):
        con.execute(statement)
    pods = {row[0] for row in con.execute("DESCRIBE stated").fetchall()}
    facts = ", ".join(
        f'coalesce(f."{name}", p."{name}") AS "{name}"' if name in pods else f'f."{name}"'
        for name in FACTS
        if name not in ("cluster", "node_count")
    )
    con.execute(
        f"""CREATE TABLE whole AS
        WITH ran AS (
            SELECT job_id, count(*) AS attempt_count, min(start_time) AS start_time,
                   arg_max(row(end_time), start_time) AS last_run, arg_min(node_count, start_time) AS node_count
            FROM joined GROUP BY job_id),
        told AS (
            SELECT coalesce(f.job_id, p.job_id) AS job_id, {sql_text(sink.options["cluster"])} AS cluster, {facts},
                   least(f.submit_time, p.submit_time) AS submit_time, NULL::TIMESTAMP AS eligible_time,
                   CASE WHEN f.status IS NULL OR f.status = 'unknown'
                             OR (f.status = 'failed' AND p.status IN {_SPECIAL})
                        THEN coalesce(p.status, f.status) ELSE f.status END AS status,
                   coalesce(f.source_status, p.source_status) AS source_status,
                   coalesce(f.last_end, p.gone_time) AS gone_time
            FROM fact f FULL JOIN stated p USING (job_id))
        SELECT t.* EXCLUDE (gone_time), coalesce(r.attempt_count, 0) AS attempt_count, r.start_time, r.node_count,
               CASE WHEN t.status IN ('running', 'pending') THEN NULL
                    WHEN r.job_id IS NULL THEN t.gone_time ELSE r.last_run[1] END AS last_end
        FROM told t LEFT JOIN ran r USING (job_id)"""
    )
    con.execute("CREATE OR REPLACE TABLE fact AS SELECT * FROM whole")
    con.execute("CREATE OR REPLACE TABLE run AS SELECT * EXCLUDE (islands) FROM joined")


_POD = re.compile(rb'"kind"\s*:\s*"Pod(?:List)?"|"containerStatuses"\s*:|"nodeName"\s*:')
_LOAD = re.compile(rb'"apiVersion"\s*:\s*"kueue\.x-k8s\.io/|"kind"\s*:\s*"Workload(?:List)?"')


def _looks_right(head: bytes) -> bool:
    """Return whether the first bytes are JSON with Pods or Workloads."""
    is_json = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    return is_json and b'"metadata"' in head and (_POD.search(head) or _LOAD.search(head)) is not None


class KubernetesFormat(RecordFormat):
    """Snapshots of a cluster's pods and Workloads."""

    name = "kubernetes"
    title = "Kubernetes pods and Kueue Workloads (kubectl -o json)"
    raw_files = (
        RawFile("objects", "Pods and Workloads, printed by kubectl get pods,workloads -A -o json", "", _looks_right),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("kubernetes", "name of the cluster"),
        "user_label": Option("", "pod label or annotation that names the user; empty if there is none"),
        "gpu_resource": GPU_RESOURCE,
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read all files of the source as one log."""
        write_frames(read_objects(found.get("objects"), sink), sink, combine_objects)
        sink.retries = True
        sink.note("a pod deleted while running is missing from later files, so its end is unknown")
        return TimeFrame("absolute", "UTC")


FORMAT = KubernetesFormat()
