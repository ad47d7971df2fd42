"""From Pods and Workloads to rows: which job each belongs to, and what it says of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from tracekit.ingest.cells import LostValues
from tracekit.ingest.devices import UnknownDevices, device_factors
from tracekit.ingest.formats import _kubernetes_cells as cell
from tracekit.ingest.job_records import record_frame
from tracekit.ingest.json_array import json_items
from tracekit.ingest.record_times import RecordTimes, TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.records import Record
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["read_objects"]

_TIMES = TimeColumns({"created": "submit_time", "scheduled": "start_time", "ended": "end_time"}, names="pod")

POD = {
    "line": pl.Int64(),
    "ord": pl.Int64(),
    "pod_key": pl.String(),
    **dict.fromkeys(("namespace", "pod", "entity", "uid", "owner", "task", "node"), pl.String()),
    **dict.fromkeys(("status", "source_status", "gpu_model", "queue", "priority_class", "user_name"), pl.String()),
    **dict.fromkeys(("created_s", "scheduled_s", "ended_s"), pl.Float64()),
    **dict.fromkeys(("gpus", "cpus", "memory", "limit_s"), pl.Float64()),
    "priority_value": pl.Int64(),
    "level": pl.Int64(),
}
"""Columns of a row that tells of a pod. `entity` is NAMESPACE/NAME of its job, `uid` that job's, where known."""

_NAMED_JOBS = (
    "kueue.x-k8s.io/pod-group-name",
    "ray.io/originated-from-cr-name",
    "jobset.sigs.k8s.io/jobset-name",
)
"""Labels that name the job of a pod whose owner is a part of it."""
_GROUPS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "scheduling.k8s.io/group-name")
"""Labels and annotations that name a gang."""
_QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
_TASKS = ("training.kubeflow.org/replica-type", "volcano.sh/task-spec", "jobset.sigs.k8s.io/replicatedjob-name")
_RESERVATIONS = frozenset(
    f"{maker}-{what}" for maker in ("kai", "runai") for what in ("resource-reservation", "reservation", "scale-adjust")
)
"""Namespaces, and values of the label app, of pods that hold a GPU for others."""
_PHASES = {"Pending": ("pending", 0), "Running": ("running", 1), "Succeeded": ("completed", 2), "Failed": ("failed", 2)}
_REASONS = {
    "OOMKilled": "out_of_memory",
    "DeadlineExceeded": "timeout",
    **dict.fromkeys(("Preempting", "Preempted", "PreemptionByScheduler", "PreemptionByKubeScheduler"), "preempted"),
    **dict.fromkeys(("NodeLost", "NodeShutdown", "Shutdown", "DeletionByTaintManager"), "node_fail"),
}
"""Why a pod failed, where Kubernetes gives a reason with a meaning of its own."""
_REFUSALS = frozenset(
    {"UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "NodeName", "TopologyAffinityError", "InvalidNodeInfo"}
)
"""Why a machine refuses a pod that was scheduled to it; so does what it lacks (OutOfcpu, OutOfpods, ...)."""
_FINISHED = {"Succeeded": "completed", "Failed": "failed"}
_EVICTED = {"Preempted": "preempted", **dict.fromkeys(("InactiveWorkload", "Deactivated"), "cancelled")}


class _Job(NamedTuple):
    name: str
    uid: str | None
    alone: bool
    """Whether the pod is a job of its own."""


def read_objects(files: list[SourceFile], sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield frames to stage, with rows of pods and of Workloads, told apart by the column `kind`."""
    number = 0
    reader = _Reader(sink)
    for file in files:
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            for run in json_items(opened, "items"):
                pods: list[Row] = []
                loads: list[Row] = []
                others = reserved = 0
                unknown: list[tuple[str, str]] = []
                for item in run:
                    number += 1
                    row = reader.row(item, opened)
                    if row is None:
                        others += 1
                    elif "reserved" in row:
                        reserved += 1
                    elif row:
                        devices = row.pop("devices", None)
                        if devices is not None:
                            unknown.append((row.get("pod") or row["name"], devices))
                        (pods if "pod_key" in row else loads).append(row | {"line": item.line, "ord": number})
                sink.check("other_objects", others, len(run), "objects that are neither Pods nor Workloads; ignored")
                meaning = "pods that only reserve a shared GPU for KAI or Run:ai; only the pods that share it count"
                sink.check("reservation_pods", reserved, len(run), meaning)
                reader.unknown.add(unknown, len(pods) + len(loads))
                if pods or loads:
                    yield _frame(pods, loads, times)
    reader.unknown.report()


def _frame(pods: list[Row], loads: list[Row], times: RecordTimes) -> pl.DataFrame:
    frame = pl.DataFrame(pods, schema=POD)
    frame = frame.with_columns(clipped_seconds(pl.col(f"{name}_s")).alias(name) for name in _TIMES.columns)
    frame = times.possible(frame, _TIMES).drop("line", "began", "finished", *(f"{name}_s" for name in _TIMES.columns))
    records = record_frame(loads, times)
    # Both kinds in one shape, so that one file on disk holds them.
    names = [*records.columns, *(name for name in frame.columns if name not in records.columns)]
    both = [part.with_columns(kind=pl.lit(kind)) for part, kind in ((records, "load"), (frame, "pod"))]
    return pl.concat(both, how="diagonal").select("kind", *names)


class _Reader:
    """Makes rows of objects, by the options of the format.

    Attributes
    ----------
    unknown : UnknownDevices
        Counts devices that are not understood.
    """

    def __init__(self, sink: Sink) -> None:
        self.unknown = UnknownDevices(sink, "pods")
        self._options = sink.options
        self._factors = device_factors(sink.options["gpu_resource"])

    def row(self, item: Record, opened: OpenedFile) -> Row | None:
        """Return the row of an object, {} where it was rejected, None where it is of another kind."""
        value = item.value
        kind = value.get("kind")
        if kind is None:
            kind = "Workload" if "podSets" in (cell.at(value, "spec") or {}) else "Pod"
        lost = LostValues()
        try:
            row = None
            if kind == "Pod":
                row = _pod(value, self._options["user_label"], self._factors, lost)
            elif kind == "Workload" and "kueue" in (cell.text(value, "apiVersion") or "kueue"):
                row = _workload(value, self._options["cluster"], self._factors, lost)
        except ValueError as error:
            column, _, reason = str(error).partition(": ")
            opened.reject(item.line, column, reason, item.raw)
            return {}
        if row is not None:
            lost.count(opened.sink)
        return row


def _names(value: dict[str, Any]) -> tuple[str, str]:
    namespace, name = (cell.text(value, "metadata", key) for key in ("namespace", "name"))
    if namespace is None or name is None:
        raise ValueError(f"metadata.{'name' if name is None else 'namespace'}: is missing")
    return namespace, name


def _pod(value: dict[str, Any], user_label: str, factors: Mapping[str, float], lost: LostValues) -> Row:
    """Return the row of a pod; {"reserved": True} where it only holds a GPU for pods that share it."""
    namespace, name = _names(value)
    if namespace in _RESERVATIONS or cell.at(value, "metadata", "labels", "app") in _RESERVATIONS:
        return {"reserved": True}
    uid = cell.text(value, "metadata", "uid")
    created = cell.time_s(value, "metadata", "creationTimestamp")
    labels, notes = (cell.at(value, "metadata", key) for key in ("labels", "annotations"))
    owner = next(iter(cell.items(value, "metadata", "ownerReferences")), {})
    job = _job_of(name, uid, labels, notes, owner)
    asked = cell.pod_resources(cell.at(value, "spec"), notes, factors, lost)
    node = cell.optional(value, lost, "spec", "nodeName")
    status, word, level = _state(value, lost)
    ended = _end(value) if level > 1 else None
    scheduled = cell.time_s(_condition(value, "PodScheduled"), "lastTransitionTime")
    if scheduled is None and (node is not None or "spec.nodeName" in lost):
        scheduled = cell.time_s(value, "status", "startTime")
    if _refused(value, word):
        scheduled = None
    return {
        "pod_key": uid or f"{namespace}/{name}@{created}",
        "namespace": namespace,
        "pod": name,
        "entity": f"{namespace}/{job.name}",
        "uid": job.uid,
        "owner": cell.text(owner, "name") if job.alone else _first(labels, (*_NAMED_JOBS, *_GROUPS)),
        "task": _first(labels, _TASKS, lost),
        "node": node,
        "status": status,
        "source_status": word,
        "gpu_model": asked.model,
        "queue": _first(labels, _QUEUES, lost) or _first(notes, _QUEUES, lost),
        "priority_class": cell.optional(value, lost, "spec", "priorityClassName"),
        "user_name": _first(labels, (user_label,), lost) or _first(notes, (user_label,), lost) if user_label else None,
        "created_s": created,
        "scheduled_s": scheduled,
        "ended_s": ended,
        "gpus": asked.gpus,
        "cpus": asked.cpus,
        "memory": asked.memory_gib,
        "limit_s": float(limit) if (limit := _whole(value, lost, "activeDeadlineSeconds")) and limit > 0 else None,
        "priority_value": _whole(value, lost, "priority"),
        "level": level,
        "devices": asked.devices,
    }


def _whole(value: dict[str, Any], lost: LostValues, name: str) -> int | None:
    """Return a whole number of a spec, None where there is none."""
    found = cell.at(value, "spec", name)
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 40):
        return found
    lost.add(f"spec.{name}", str(found), "is not a whole number")
    return None


def _refused(value: dict[str, Any], word: str | None) -> bool:
    """Return whether the machine did not take the pod, which therefore never held a GPU."""
    ran = any(cell.items(value, "status", kind) for kind in ("containerStatuses", "initContainerStatuses"))
    return not ran and word is not None and (word in _REFUSALS or word.startswith("OutOf"))


def _first(held: Any, names: tuple[str, ...], lost: LostValues | None = None) -> str | None:
    """Return the first text there is under one of the names; with `lost` an object can be without it."""
    found = (cell.text(held, name) if lost is None else cell.optional(held, lost, name) for name in names)
    return next((text for text in found if text is not None), None)


def _job_of(name: str, uid: str | None, labels: Any, notes: Any, owner: dict[str, Any]) -> _Job:
    """Return the job that a pod belongs to; docs of the format state the rule."""
    named = _first(labels, _NAMED_JOBS)
    if named is not None:
        return _Job(named, None, alone=False)
    kind, owner_name = cell.text(owner, "kind") or "", cell.text(owner, "name")
    if owner_name is not None and (kind.endswith("Job") or kind in ("JobSet", "RayCluster")):
        return _Job(owner_name, cell.text(owner, "uid"), alone=False)
    gang = _first(labels, _GROUPS) or _first(notes, _GROUPS)
    return _Job(name, uid, alone=True) if gang is None else _Job(gang, None, alone=False)


def _condition(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the condition of that type that holds, {} where there is none."""
    return next(
        (c for c in cell.items(value, "status", "conditions") if c.get("type") == name and c.get("status") == "True"),
        {},
    )


def _state(value: dict[str, Any], lost: LostValues) -> tuple[str, str | None, int]:
    """Return the status, the source's word for it, and how far the pod has come: 0 waits, 1 runs, 2 ended."""
    phase = cell.text(value, "status", "phase")
    status, level = _PHASES.get(phase or "", ("unknown", 0))
    if status != "failed":
        return status, phase, level
    reasons = [
        cell.optional(value, lost, "status", "reason"),
        cell.optional(_condition(value, "DisruptionTarget"), lost, "reason"),
    ]
    for kind in ("containerStatuses", "initContainerStatuses"):
        reasons += [cell.optional(c, lost, "state", "terminated", "reason") for c in cell.items(value, "status", kind)]
    known = [reason for reason in reasons if reason in _REASONS]
    word = known[0] if known else next((reason for reason in reasons if reason not in (None, "Completed")), None)
    return _REASONS.get(word or "", "failed"), word or phase, level


def _end(value: dict[str, Any]) -> float | None:
    """Return when the last container of an ended pod ended, else when the pod was removed from its machine."""
    found = [
        cell.time_s(c, "state", "terminated", "finishedAt")
        for kind in ("containerStatuses", "initContainerStatuses")
        for c in cell.items(value, "status", kind)
    ]
    # A container that never ran has the year 1 there.
    known = [end for end in found if end is not None and end > 0]
    return max(known) if known else cell.time_s(_condition(value, "DisruptionTarget"), "lastTransitionTime")


def _workload(value: dict[str, Any], cluster: str, factors: Mapping[str, float], lost: LostValues) -> Row:
    namespace, name = _names(value)
    created = cell.time_s(value, "metadata", "creationTimestamp")
    owner = next((o for o in cell.items(value, "metadata", "ownerReferences") if o.get("kind") != "Pod"), {})
    job, uid = cell.text(owner, "name") or name, cell.text(owner, "uid")
    admitted = cell.time_s(_condition(value, "Admitted"), "lastTransitionTime")
    finished, evicted = _condition(value, "Finished"), _condition(value, "Evicted")
    row: Row = {
        "job_id": f"{namespace}/{job}" + (f"@{uid[:8]}" if uid else ""),
        "cluster": cluster,
        "vc": namespace,
        "name": job,
        "partition": cell.optional(value, lost, "spec", "queueName"),
        "qos": cell.optional(value, lost, "spec", "priorityClassName")
        or cell.optional(value, lost, "spec", "priorityClassRef", "name"),
        "submit_s": created,
        "start_s": admitted,
        "status": "pending" if admitted is None else "running",
        "source_status": "Pending" if admitted is None else "Admitted",
        "run_status": "running",
    }
    for key, path in (("priority", "priority"), ("time_limit_s", "maximumExecutionTimeSeconds")):
        number = _whole(value, lost, path)
        if number is not None:
            row[key] = number
    row |= _pod_sets(value, factors, lost)
    if finished:
        status = _finish(finished, lost)
        row |= {"end_s": cell.time_s(finished, "lastTransitionTime"), "status": status, "run_status": status}
        row |= {"source_status": cell.optional(finished, lost, "reason") or "Finished", "closes": admitted is None}
    elif evicted and (admitted is None or (cell.time_s(evicted, "lastTransitionTime") or 0.0) >= admitted):
        # An evicted Workload keeps its admission until its pods are gone; it waits again.
        reason = cell.optional(evicted, lost, "reason") or "Evicted"
        row |= {"end_s": cell.time_s(evicted, "lastTransitionTime"), "closes": admitted is None}
        row |= {"source_status": reason, "status": "pending"}
        row["run_status"] = _EVICTED.get(reason, "failed")
        if row["run_status"] == "cancelled":
            row["status"] = "cancelled"
        elif reason == "Preempted":
            row["wait_reason"] = reason
    elif admitted is None:
        waits = [c for c in cell.items(value, "status", "conditions") if c.get("type") == "QuotaReserved"]
        row["wait_reason"] = cell.optional(waits[0], lost, "reason") if waits else None
    row["told"] = max((t for t in (created, admitted, row.get("end_s")) if t is not None), default=0.0)
    return row


def _finish(condition: dict[str, Any], lost: LostValues) -> str:
    reason, message = (cell.optional(condition, lost, name) or "" for name in ("reason", "message"))
    message = message.lower()
    if reason in _FINISHED:
        return _FINISHED[reason]
    if "success" in message or "complete" in message:  # before there was a reason for each, the message told
        return "completed"
    return "failed" if "fail" in message else "unknown"


def _pod_sets(value: dict[str, Any], factors: Mapping[str, float], lost: LostValues) -> Row:
    """Return what all pods of a Workload ask for."""
    gpus = cpus = memory = 0.0
    count = 0
    models: set[str] = set()
    unknown: set[str] = set()
    for part in cell.items(value, "spec", "podSets"):
        many = part.get("count", 1)
        if not isinstance(many, int) or isinstance(many, bool) or not 0 <= many < 1 << 24:
            lost.add("spec.podSets.count", str(many), "is not a number of pods")
            return {}
        template = cell.at(part, "template")
        notes, before = cell.at(template, "metadata", "annotations"), len(lost)
        asked = cell.pod_resources(cell.at(template, "spec"), notes, factors, lost)
        count += many
        # What cannot be read of one pod is unknown of all.
        missing = math.nan if len(lost) > before else 0.0
        gpus += many * (missing if asked.gpus is None and not asked.devices else asked.gpus or 0.0)
        cpus += many * (missing if asked.cpus is None else asked.cpus)
        memory += many * (missing if asked.memory_gib is None else asked.memory_gib)
        unknown |= set(asked.devices.split("|")) if asked.devices and many else set()
        models |= {asked.model} if asked.model else set()
    if not count:
        return {}
    return {
        "gpu_count": None if unknown or math.isnan(gpus) else gpus,
        "cpu_count": None if math.isnan(cpus) else cpus or None,
        "memory_gib": None if math.isnan(memory) else memory or None,
        "instance_count": count,
        "gpu_model": "|".join(sorted(models)) or None,
        "devices": "|".join(sorted(unknown)) or None,
    }
