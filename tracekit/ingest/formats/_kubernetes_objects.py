"""Turn Pods and Workloads into rows with their job, their request, and what they record about the job.

A function raises a `Fault` if it cannot read a value. If it takes `lost`, it adds unreadable optional values there, and
they become unknown.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from tracekit.gpu_parts import has_profile, part_of_gpu
from tracekit.ingest.devices import WHOLE_GPUS, factor_of, is_extended_device
from tracekit.ingest.formats._records import Devices, Fault, at, items, optional, record, text
from tracekit.ingest.job_records import record_frame
from tracekit.ingest.json_array import json_items
from tracekit.ingest.time_faults import RecordTimes, TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import Sink


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
"""Columns of a row about a pod. `entity` is the NAMESPACE/NAME of its job. `uid` is the job's uid, if known."""

_NAMED_JOBS = (
    "kueue.x-k8s.io/pod-group-name",
    "ray.io/originated-from-cr-name",
    "jobset.sigs.k8s.io/jobset-name",
)
"""Labels that name a pod's job if the pod's owner is only part of that job."""
_GROUPS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "scheduling.k8s.io/group-name")
"""Labels and annotations that name a gang."""
_QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
_TASKS = ("training.kubeflow.org/replica-type", "volcano.sh/task-spec", "jobset.sigs.k8s.io/replicatedjob-name")
_RESERVATIONS = frozenset(
    f"{maker}-{what}" for maker in ("kai", "runai") for what in ("resource-reservation", "reservation", "scale-adjust")
)
"""Namespaces and app labels of pods that reserve a GPU for other pods."""
_PHASES = {"Pending": ("pending", 0), "Running": ("running", 1), "Succeeded": ("completed", 2), "Failed": ("failed", 2)}
_REASONS = {
    "OOMKilled": "out_of_memory",
    "DeadlineExceeded": "timeout",
    **dict.fromkeys(("Preempting", "Preempted", "PreemptionByScheduler", "PreemptionByKubeScheduler"), "preempted"),
    **dict.fromkeys(("NodeLost", "NodeShutdown", "Shutdown", "DeletionByTaintManager"), "node_fail"),
}
"""Job status for each Kubernetes failure reason that has a specific meaning."""
_REFUSALS = frozenset(
    {"UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "NodeName", "TopologyAffinityError", "InvalidNodeInfo"}
)
"""Reasons why a machine rejects a scheduled pod, besides lack of resources (OutOfcpu, OutOfpods, ...)."""
_FINISHED = {"Succeeded": "completed", "Failed": "failed"}
_EVICTED = {"Preempted": "preempted", **dict.fromkeys(("InactiveWorkload", "Deactivated"), "cancelled")}


class _Job(NamedTuple):
    name: str
    uid: str | None
    alone: bool
    """Whether the pod is a separate job."""


def read_objects(files: list[SourceFile], sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield frames to stage. The `kind` column distinguishes rows of pods from rows of Workloads."""
    number = 0
    devices = Devices(sink, "pods")
    for file in files:
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            for run in json_items(opened, "items"):
                pods: list[Row] = []
                loads: list[Row] = []
                others = reserved = 0
                for item in run:
                    number += 1
                    place = {"line": item.line, "ord": number}
                    with record(opened, item.line, item.raw) as lost:
                        kind = _kind(item.value)
                        if kind == "Pod" and _only_reserves(item.value):
                            reserved += 1
                        elif kind == "Pod":
                            pods.append(_pod(item.value, sink.options["user_label"], devices, lost) | place)
                        elif kind == "Workload":
                            loads.append(_workload(item.value, sink.options["cluster"], devices, lost) | place)
                        else:
                            others += 1
                sink.check("other_objects", others, len(run), "objects that are neither Pods nor Workloads; ignored")
                meaning = "pods that only reserve a shared GPU for KAI or Run:ai; only the pods that share it count"
                sink.check("reservation_pods", reserved, len(run), meaning)
                devices.count(len(pods) + len(loads))
                if pods or loads:
                    yield _frame(pods, loads, times)
    devices.report()


def _frame(pods: list[Row], loads: list[Row], times: RecordTimes) -> pl.DataFrame:
    frame = pl.DataFrame(pods, schema=POD)
    frame = frame.with_columns(clipped_seconds(pl.col(f"{name}_s")).alias(name) for name in _TIMES.columns)
    frame = times.possible(frame, _TIMES).drop("line", "began", "finished", *(f"{name}_s" for name in _TIMES.columns))
    records = record_frame(loads, times)
    # Both kinds get the same columns, so one file can store both.
    names = [*records.columns, *(name for name in frame.columns if name not in records.columns)]
    both = [part.with_columns(kind=pl.lit(kind)) for part, kind in ((records, "load"), (frame, "pod"))]
    return pl.concat(both, how="diagonal").select("kind", *names)


def _kind(value: dict[str, Any]) -> Any:
    """Return the kind of an object if it is given, or None for a Workload of another API."""
    kind = value.get("kind")
    if kind is None:
        return "Pod" if at(value, "spec", "podSets") is None else "Workload"
    return None if kind == "Workload" and "kueue" not in (text(value, "apiVersion") or "kueue") else kind


def _only_reserves(value: dict[str, Any]) -> bool:
    """Return whether a pod only reserves a GPU for the pods that share it."""
    app = at(value, "metadata", "labels", "app")
    return _names(value)[0] in _RESERVATIONS or (isinstance(app, str) and app in _RESERVATIONS)


def _names(value: dict[str, Any]) -> tuple[str, str]:
    namespace, name = (text(value, "metadata", key) for key in ("namespace", "name"))
    if namespace is None or name is None:
        raise Fault(f"metadata.{'name' if name is None else 'namespace'}", "is missing")
    return namespace, name


def _pod(value: dict[str, Any], user_label: str, devices: Devices, lost: LostValues) -> Row:
    namespace, name = _names(value)
    uid = text(value, "metadata", "uid")
    created = time_s(value, "metadata", "creationTimestamp")
    labels, notes = (at(value, "metadata", key) for key in ("labels", "annotations"))
    owner = next(iter(items(value, "metadata", "ownerReferences")), {})
    job = _job_of(name, uid, labels, notes, owner)
    asked = pod_resources(at(value, "spec"), notes, devices.factors, lost)
    node = optional(value, lost, "spec", "nodeName")
    status, word, level = _state(value, lost)
    ended = _end(value) if level > 1 else None
    scheduled = time_s(_condition(value, "PodScheduled"), "lastTransitionTime")
    if scheduled is None and (node is not None or "spec.nodeName" in lost):
        scheduled = time_s(value, "status", "startTime")
    if _refused(value, word):
        scheduled = None
    row: Row = {
        "pod_key": uid or f"{namespace}/{name}@{created}",
        "namespace": namespace,
        "pod": name,
        "entity": f"{namespace}/{job.name}",
        "uid": job.uid,
        "owner": text(owner, "name") if job.alone else _first(labels, (*_NAMED_JOBS, *_GROUPS)),
        "task": _first(labels, _TASKS, lost),
        "node": node,
        "status": status,
        "source_status": word,
        "gpu_model": asked.model,
        "queue": _first(labels, _QUEUES, lost) or _first(notes, _QUEUES, lost),
        "priority_class": optional(value, lost, "spec", "priorityClassName"),
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
    }
    devices.add(name, asked.devices)
    return row


def _whole(value: dict[str, Any], lost: LostValues, name: str) -> int | None:
    """Return an integer from a spec, or None if it is missing or unreadable."""
    found = at(value, "spec", name)
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 40):
        return found
    lost.add(f"spec.{name}", str(found), "is not a whole number")
    return None


def _refused(value: dict[str, Any], word: str | None) -> bool:
    """Return whether the machine rejected the pod, which then never used a GPU."""
    ran = any(items(value, "status", kind) for kind in ("containerStatuses", "initContainerStatuses"))
    return not ran and word is not None and (word in _REFUSALS or word.startswith("OutOf"))


def _first(held: Any, names: tuple[str, ...], lost: LostValues | None = None) -> str | None:
    """Return the first string under one of the names. With `lost`, the string is optional."""
    found = (text(held, name) if lost is None else optional(held, lost, name) for name in names)
    return next((word for word in found if word is not None), None)


def _job_of(name: str, uid: str | None, labels: Any, notes: Any, owner: dict[str, Any]) -> _Job:
    """Return a pod's job, by the rule in the format's documentation."""
    named = _first(labels, _NAMED_JOBS)
    if named is not None:
        return _Job(named, None, alone=False)
    kind, owner_name = text(owner, "kind") or "", text(owner, "name")
    if owner_name is not None and (kind.endswith("Job") or kind in ("JobSet", "RayCluster")):
        return _Job(owner_name, text(owner, "uid"), alone=False)
    gang = _first(labels, _GROUPS) or _first(notes, _GROUPS)
    return _Job(name, uid, alone=True) if gang is None else _Job(gang, None, alone=False)


def _condition(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the condition of this type if it is true, or {} if it is not."""
    return next(
        (c for c in items(value, "status", "conditions") if c.get("type") == name and c.get("status") == "True"),
        {},
    )


def _state(value: dict[str, Any], lost: LostValues) -> tuple[str, str | None, int]:
    """Return the status, the source's word for the status, and the pod's progress: 0 waiting, 1 running, 2 ended."""
    phase = text(value, "status", "phase")
    status, level = _PHASES.get(phase or "", ("unknown", 0))
    if status != "failed":
        return status, phase, level
    reasons = [
        optional(value, lost, "status", "reason"),
        optional(_condition(value, "DisruptionTarget"), lost, "reason"),
    ]
    for kind in ("containerStatuses", "initContainerStatuses"):
        reasons += [optional(c, lost, "state", "terminated", "reason") for c in items(value, "status", kind)]
    known = [reason for reason in reasons if reason in _REASONS]
    word = known[0] if known else next((reason for reason in reasons if reason not in (None, "Completed")), None)
    return _REASONS.get(word or "", "failed"), word or phase, level


def _end(value: dict[str, Any]) -> float | None:
    """Return when the last container of a finished pod ended, or when the pod was removed from its machine."""
    found = [
        time_s(c, "state", "terminated", "finishedAt")
        for kind in ("containerStatuses", "initContainerStatuses")
        for c in items(value, "status", kind)
    ]
    # If a container never ran, this time is in the year 1.
    known = [end for end in found if end is not None and end > 0]
    return max(known) if known else time_s(_condition(value, "DisruptionTarget"), "lastTransitionTime")


def _workload(value: dict[str, Any], cluster: str, devices: Devices, lost: LostValues) -> Row:
    namespace, name = _names(value)
    created = time_s(value, "metadata", "creationTimestamp")
    owner = next((o for o in items(value, "metadata", "ownerReferences") if o.get("kind") != "Pod"), {})
    job, uid = text(owner, "name") or name, text(owner, "uid")
    admitted = time_s(_condition(value, "Admitted"), "lastTransitionTime")
    finished, evicted = _condition(value, "Finished"), _condition(value, "Evicted")
    row: Row = {
        "job_id": f"{namespace}/{job}" + (f"@{uid[:8]}" if uid else ""),
        "cluster": cluster,
        "vc": namespace,
        "name": job,
        "partition": optional(value, lost, "spec", "queueName"),
        "qos": optional(value, lost, "spec", "priorityClassName")
        or optional(value, lost, "spec", "priorityClassRef", "name"),
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
    asked, unknown = _pod_sets(value, devices.factors, lost)
    row |= asked
    if finished:
        status = _finish(finished, lost)
        row |= {"end_s": time_s(finished, "lastTransitionTime"), "status": status, "run_status": status}
        row |= {"source_status": optional(finished, lost, "reason") or "Finished", "closes": admitted is None}
    elif evicted and (admitted is None or (time_s(evicted, "lastTransitionTime") or 0.0) >= admitted):
        # An evicted Workload already waits again, but keeps its admission until its pods are gone.
        reason = optional(evicted, lost, "reason") or "Evicted"
        row |= {"end_s": time_s(evicted, "lastTransitionTime"), "closes": admitted is None}
        row |= {"source_status": reason, "status": "pending"}
        row["run_status"] = _EVICTED.get(reason, "failed")
        if row["run_status"] == "cancelled":
            row["status"] = "cancelled"
        elif reason == "Preempted":
            row["wait_reason"] = reason
    elif admitted is None:
        waits = [c for c in items(value, "status", "conditions") if c.get("type") == "QuotaReserved"]
        row["wait_reason"] = optional(waits[0], lost, "reason") if waits else None
    row["told"] = max((t for t in (created, admitted, row.get("end_s")) if t is not None), default=0.0)
    devices.add(job, unknown)
    return row


def _finish(condition: dict[str, Any], lost: LostValues) -> str:
    reason, message = (optional(condition, lost, name) or "" for name in ("reason", "message"))
    message = message.lower()
    if reason in _FINISHED:
        return _FINISHED[reason]
    if "success" in message or "complete" in message:  # older versions show the outcome only in the message
        return "completed"
    return "failed" if "fail" in message else "unknown"


def _pod_sets(value: dict[str, Any], factors: Mapping[str, float], lost: LostValues) -> tuple[Row, set[str]]:
    """Return the total request of a Workload's pods, and the names of their unknown devices."""
    gpus = cpus = memory = 0.0
    count = 0
    models: set[str] = set()
    unknown: set[str] = set()
    for part in items(value, "spec", "podSets"):
        many = part.get("count", 1)
        if not isinstance(many, int) or isinstance(many, bool) or not 0 <= many < 1 << 24:
            lost.add("spec.podSets.count", str(many), "is not a number of pods")
            return {}, set()
        template = at(part, "template")
        notes, before = at(template, "metadata", "annotations"), len(lost)
        asked = pod_resources(at(template, "spec"), notes, factors, lost)
        count += many
        # If a value is unreadable for one pod, it is unknown for all.
        missing = math.nan if len(lost) > before else 0.0
        gpus += many * (missing if asked.gpus is None and not asked.devices else asked.gpus or 0.0)
        cpus += many * (missing if asked.cpus is None else asked.cpus)
        memory += many * (missing if asked.memory_gib is None else asked.memory_gib)
        unknown |= asked.devices if many else set()
        models |= {asked.model} if asked.model else set()
    if not count:
        return {}, set()
    row: Row = {
        "gpu_count": None if unknown or math.isnan(gpus) else gpus,
        "cpu_count": None if math.isnan(cpus) else cpus or None,
        "memory_gib": None if math.isnan(memory) else memory or None,
        "instance_count": count,
        "gpu_model": "|".join(sorted(models)) or None,
    }
    return row, unknown


# Resource requests of a pod's containers.

_QUANTITY = re.compile(
    r"([+-]?\d{1,18}(?:\.\d{0,12})?|\.\d{1,12})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII
)
_SCALE = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}  # fmt: skip
_MODELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name")
_LARGEST = 1e15
_FRACTION = re.compile(r"(?:0?\.\d{1,9}|1(?:\.0{1,9})?)", re.ASCII)


class Resources(NamedTuple):
    """The resource request of a pod."""

    gpus: float | None
    """GPUs, with parts of GPUs as fractions, or None if a device is unknown."""
    cpus: float | None
    memory_gib: float | None
    model: str | None
    devices: set[str]
    """Names of unknown devices."""


def time_s(value: Any, *path: str) -> float | None:
    """Return the time at a path, written like 2024-03-04T10:00:00Z, in s since 1970."""
    found = text(value, *path)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise Fault(".".join(path), "is not a time like 2024-03-04T10:00:00Z")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def quantity(value: Any) -> float:
    """Parse an amount such as 500m, 16Gi or 2, or raise a ValueError with the reason if it cannot be read."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    else:
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError("is not a quantity like 500m or 16Gi")
        found = float(match[1]) * (10.0 ** int(match[3]) if match[3] else _SCALE.get(match[2] or "", 1.0))
    if not 0 <= found <= _LARGEST:
        raise ValueError("is a quantity out of range")
    return found


def pod_resources(spec: Any, notes: Any, factors: Mapping[str, float] | None, lost: LostValues) -> Resources:
    """Return the total request of a pod's containers.

    An init container runs before the others, so it counts only if it needs more than all regular containers together,
    as in the scheduler. Init containers that keep running (restartPolicy Always) count with the regular containers.

    Parameters
    ----------
    spec : object
        The pod's spec.
    notes : object
        The pod's annotations, in which KAI and Run:ai request parts of GPUs.
    factors : mapping, optional
        GPUs per device from the gpu_resource option [GPUs].
    lost : LostValues
        Receives unreadable amounts. A total that includes one is unknown.
    """
    unread: set[str] = set()
    together = [*items(spec, "containers")]
    first: list[dict[str, Any]] = []
    for container in items(spec, "initContainers"):
        (together if container.get("restartPolicy") == "Always" else first).append(container)
    parts = [_of_container(container, lost, unread) for container in together]
    before = [_of_container(container, lost, unread) for container in first]
    names = {name for part in (*parts, *before) for name in part}
    whole = {
        name: max(sum(p.get(name, 0.0) for p in parts), *(b.get(name, 0.0) for b in before), 0.0) for name in names
    }
    selector = at(spec, "nodeSelector")
    models = {v for k in _MODELS if isinstance(v := at(selector, k), str) and v}
    gpus = 0.0
    unknown: set[str] = set()
    asked = {**whole, **_claims(spec, lost), **_fractions(notes)}
    for name, amount in sorted(asked.items()):
        share = _share(name, factors or {}, models)
        if amount and share is None:
            unknown.add(name)
        elif amount and share and has_profile(name):
            models.add("mig-" + name.lower().partition("/")[2].removeprefix("mig-").partition(".me")[0])
        gpus += amount * (share or 0.0)
    memory = None if "memory" in unread else whole.get("memory")
    # An unreadable amount may be a number of GPUs.
    unread_gpus = any(_share(name, factors or {}, models) != 0 for name in unread)
    return Resources(
        None if unknown or unread_gpus else gpus,
        None if "cpu" in unread else whole.get("cpu"),
        None if memory is None else memory / 2**30,
        "|".join(sorted(models)) or None,
        unknown,
    )


def _share(name: str, factors: Mapping[str, float], models: Iterable[str]) -> float | None:
    """Return the number of GPUs that one unit of a resource counts as [GPUs], or None if unknown."""
    factor = factor_of(factors, name)
    if factor is not None:
        return factor
    if name == _KAI_FRACTION:
        return 1.0
    if name in WHOLE_GPUS:
        # With MIG's single strategy, every slice is a device of its own, and the product name contains the profile.
        name = next((model for model in models if has_profile(model)), name)
    elif not has_profile(name):
        return None if is_extended_device(name) or name == _KAI_MEMORY else 0.0
    part = part_of_gpu(name)
    return None if part is None else part.compute


_KAI_FRACTION, _KAI_DEVICES, _KAI_MEMORY = "gpu-fraction", "gpu-fraction-num-devices", "gpu-memory"
"""Annotations for GPU sharing in KAI and Run:ai. Memory is in MiB, but the pod does not record the GPU's size."""


def _fractions(notes: Any) -> dict[str, float]:
    """Return the GPUs that annotations request. Anything but a readable fraction counts as an unknown device."""
    found = {}
    fraction, memory = at(notes, _KAI_FRACTION), at(notes, _KAI_MEMORY)
    devices = at(notes, _KAI_DEVICES) or "1"
    if isinstance(fraction, str) and fraction:
        valid = _FRACTION.fullmatch(fraction) and re.fullmatch(r"[1-9]\d{0,3}", str(devices), re.ASCII)
        found[_KAI_FRACTION if valid else f"{_KAI_FRACTION}/{fraction[:20]}"] = (
            float(fraction) * int(devices) if valid else 1.0
        )
    if isinstance(memory, str) and memory:
        found[_KAI_MEMORY] = float(memory) if re.fullmatch(r"\d{1,9}", memory, re.ASCII) else 1.0
    return found


def _claims(spec: Any, lost: LostValues) -> dict[str, float]:
    """Return the device claims (DRA) by name. Other objects describe the claimed devices."""
    found: dict[str, float] = {}
    for claim in items(spec, "resourceClaims"):
        named = (optional(claim, lost, key) for key in ("resourceClaimTemplateName", "resourceClaimName", "name"))
        name = f"resourceclaim/{next(filter(None, named), '')[:60]}"
        found[name] = found.get(name, 0.0) + 1.0
    return found


def _of_container(container: dict[str, Any], lost: LostValues, unread: set[str]) -> dict[str, float]:
    """Return the requests by resource. If only a limit is given, the limit is also the request."""
    found = {}
    for kind in ("limits", "requests"):
        stated = at(container, "resources", kind)
        for name, value in stated.items() if isinstance(stated, dict) else ():
            try:
                found[name] = quantity(value)
            except ValueError as error:
                lost.add(f"resources.{kind}.{name[:60]}", str(value), str(error))
                unread.add(name)
    return found
