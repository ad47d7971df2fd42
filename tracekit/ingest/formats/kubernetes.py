"""Pods of Kubernetes and Workloads of Kueue, as kubectl prints them with -o json.

`kubectl get pods --all-namespaces -o json`, `kubectl get workloads -A -o json`, or both in one; as a List, an array, or
one object after the other; several files may show the same cluster at several times. Times are UTC. A pod that was
deleted is in no later file: what the last file that has it says is what is known, so take one often enough. Fields:
kubernetes.io/docs (Pod API), kueue.sigs.k8s.io/docs (Workload).

The pods of one job are its instances. The job of a pod is, in this order: the one that a label names
(kueue.x-k8s.io/pod-group-name, ray.io/originated-from-cr-name, jobset.sigs.k8s.io/jobset-name); its owner, where that
is a Job of any kind (Job, PyTorchJob, MPIJob, Volcano's Job, ...), a JobSet or a RayCluster; the gang that
scheduling.x-k8s.io/pod-group or scheduling.k8s.io/group-name names; else the pod is a job of its own, in the group of
its owner, as those of a ReplicaSet are. A job_id is NAMESPACE/NAME, then @ and the first letters of the uid where it is
known: names are used again. `vc` is the namespace and placements.instance the pod's name, so that telemetry joins by
both.

A pod holds its machine from the moment it was scheduled (PodScheduled) until its last container ended. Pods of a job
whose lives overlap are one attempt; one made after all others ended begins another. An attempt starts with its first
pod. GPUs of a job are the most that its pods asked for at once: nvidia.com/gpu, amd.com/gpu, MIG slices as parts of a
GPU (3g of 7, or of 4 on an A30), the annotation gpu-fraction of KAI and Run:ai, whose reservation pods are left out.
Any other resource with a slash in its name may be an accelerator, unless it is a known network or file: the GPUs of a
pod that asks for it, for a claim of devices (DRA, named resourceclaim/NAME) or for an amount of GPU memory are unknown.
It is counted by name, and the option gpu_resource says what it counts.

A pod that its machine refused (UnexpectedAdmissionError, OutOfcpu, ...) held nothing and has no attempt.

With Workloads, a job waits from the creation of its Workload until it is admitted, which begins an attempt, and an
eviction ends one, though the Workload still says Admitted until its pods are gone. A Workload tells its last admission
only: earlier ones are known from files of that time and from pods. Why it was evicted and how it finished are the
reasons of its conditions; a pod's own reason is finer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._kubernetes_objects import read_objects
from tracekit.ingest.formats._kubernetes_tables import combine_objects
from tracekit.ingest.formats._record_append import merge_records
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_tables import write_job_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

__all__ = ["FORMAT"]

_POD = re.compile(rb'"kind"\s*:\s*"Pod(?:List)?"|"containerStatuses"\s*:|"nodeName"\s*:')
_LOAD = re.compile(rb'"apiVersion"\s*:\s*"kueue\.x-k8s\.io/|"kind"\s*:\s*"Workload(?:List)?"')


def _json(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _looks_right(head: bytes) -> bool:
    """Return whether the first bytes are JSON with Pods or Workloads."""
    return _json(head) and b'"metadata"' in head and (_POD.search(head) or _LOAD.search(head)) is not None


class KubernetesFormat(Format):
    """Snapshots of a cluster's pods and Workloads."""

    name = "kubernetes"
    title = "Kubernetes pods and Kueue Workloads (kubectl -o json)"
    raw_files = (
        RawFile("objects", "Pods and Workloads, printed by kubectl get pods,workloads -A -o json", "", _looks_right),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("kubernetes", "name of the cluster"),
        "user_label": Option("", "label or annotation of pods that names the user; empty when there is none"),
        "gpu_resource": GPU_RESOURCE,
    }
    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine the attempts that both exports tell of."""
        merge_records(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every file of the source as one."""
        staged = sink.stage("objects", read_objects(found.get("objects"), sink))
        if staged is not None:
            with sink.connect() as con:
                combine_objects(con, staged, sink.options["cluster"], sink)
                write_job_tables(con, sink)
        sink.retries = True
        sink.note("a pod that was deleted while it ran is in no later file: its end is unknown")
        return TimeFrame("absolute", "UTC")


FORMAT = KubernetesFormat()
