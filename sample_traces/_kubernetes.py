"""Write the synthetic Kubernetes snapshots: pods of two days and Kueue's Workloads, with planted faults.

The cluster, its users and its load are invented. Times are seconds since 1970.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_kubernetes"]

FOLDER = "kubernetes"
MONDAY, TUESDAY, LOADS = (f"{FOLDER}/{name}.json" for name in ("pods-monday", "pods-tuesday", "workloads"))
FIRST = 1709539200
"""2024-03-04 08:00:00 [s]."""
JOBS = 24
DAY = 24 * 3600
Json = dict[str, Any]


def write_kubernetes(folder: Path, seed: int) -> list[Quirk]:
    """Write two snapshots of the pods and one of the Workloads; return what was planted."""
    draw = Draw(seed, FOLDER)
    pods, loads = [], []
    for number in range(JOBS):
        made, load = _job(draw, number)
        pods += made
        loads.append(load)
    pods += _odd()
    cut = FIRST + DAY
    seen = [_as_of(pod, cut) for pod in pods if _seconds(pod) <= cut]
    bad: list[Any] = [
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "ml"}},
        _pod("bad-quantity", FIRST, cpu="many"),
        _pod("bad-time", FIRST) | {"metadata": {"name": "bad-time", "namespace": "ml", "creationTimestamp": "monday"}},
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "g1"}},
    ]
    for name, listed in ((MONDAY, seen), (TUESDAY, pods + bad), (LOADS, [*loads, *_odd_loads()])):
        text = json.dumps(
            {"apiVersion": "v1", "items": listed, "kind": "List", "metadata": {"resourceVersion": ""}}, indent=1
        )
        write_rows(folder / name, [text])
    return [
        Quirk(MONDAY, "pods of both days", "seen-twice", "pods that run on Monday and have ended on Tuesday"),
        Quirk(TUESDAY, "retry-a, retry-b", "retried", "a Job whose first pod ran out of memory"),
        Quirk(TUESDAY, "web-1", "replica-set", "a pod of a ReplicaSet is a job of its own"),
        Quirk(TUESDAY, "slice", "mig", "three sevenths of a GPU"),
        Quirk(TUESDAY, "shared", "shared-gpu", "a part of a GPU of unknown size"),
        Quirk(TUESDAY, "gang-0, gang-1", "pod-group", "a gang that a label names"),
        Quirk(TUESDAY, "waiting", "pending", "never scheduled"),
        Quirk(TUESDAY, "lost", "preempted", "DisruptionTarget, no container status"),
        Quirk(TUESDAY, "Node g1", "other-object", "neither a Pod nor a Workload"),
        Quirk(TUESDAY, "namespace ml", "no-name", "a pod without a name", usable=False),
        Quirk(TUESDAY, "bad-quantity", "unreadable-quantity", "cpu is the word many", usable=False),
        Quirk(TUESDAY, "bad-time", "unreadable-time", "created on the word monday", usable=False),
        Quirk(LOADS, "evicted", "evicted", "preempted, waits again"),
        Quirk(LOADS, "old-finish", "old-reason", "Finished with the reason JobFinished: the message tells"),
    ]


def _time(seconds: int) -> str:
    return stamp(seconds).replace(" ", "T") + "Z"


def _uid(name: str) -> str:
    """Return a name's own uid."""
    digits = hashlib.sha256(name.encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def _pod(
    name: str, created: int, *, namespace: str = "ml", owner: tuple[str, str] | None = None, node: str = "",
    scheduled: int = 0, end: int = 0, phase: str = "Pending", reason: str = "", gpus: Json | None = None,
    cpu: str = "4", labels: Json | None = None,
) -> Json:  # fmt: skip
    limits = {"nvidia.com/gpu": "1"} if gpus is None else gpus
    meta: Json = {"name": name, "namespace": namespace, "uid": _uid(name), "creationTimestamp": _time(created)}
    meta |= {"labels": labels or {}}
    if owner:
        kind, of = owner
        meta["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": kind, "name": of, "uid": _uid(of)}]
    spec: Json = {
        "containers": [{"name": "main", "resources": {"limits": limits, "requests": {"cpu": cpu, "memory": "16Gi"}}}]
    }
    status: Json = {"phase": phase, "conditions": []}
    if scheduled:
        spec["nodeName"] = node
        when = _time(scheduled)
        status["conditions"].append({"type": "PodScheduled", "status": "True", "lastTransitionTime": when})
        status["startTime"] = when
    if end:
        code = 0 if phase == "Succeeded" else 137 if reason else 1
        word = reason or ("Completed" if phase == "Succeeded" else "Error")
        done = {"startedAt": _time(scheduled), "finishedAt": _time(end), "exitCode": code, "reason": word}
        status["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"terminated": done}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def _seconds(pod: Json) -> int:
    made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return int(made.timestamp())


def _as_of(pod: Json, moment: int) -> Json:
    """Return a pod as a snapshot of an earlier moment shows it."""
    ends = [c["state"]["terminated"]["finishedAt"] for c in pod["status"].get("containerStatuses", ())]
    if not ends or ends[0] <= _time(moment):
        return pod
    status = {k: v for k, v in pod["status"].items() if k != "containerStatuses"} | {"phase": "Running"}
    return pod | {"status": status}


def _job(draw: Draw, number: int) -> tuple[list[Json], Json]:
    name, namespace = f"train-{number}", f"team-{number % 3}"
    made = FIRST + number * 5000 + draw.between(0, 2000)
    admitted = made + draw.between(1, 5000)
    run = draw.between(120, 40_000)
    workers, gpus = draw.pick((1, 1, 2, 4)), draw.pick((1, 2, 8))
    ok = draw.chance(0.8)
    end = admitted + 20 + run
    pods = [
        _pod(
            f"{name}-worker-{i}", admitted + 1, namespace=namespace, owner=("PyTorchJob", name),
            node=f"g{(number + i) % 5 + 1}", scheduled=admitted + 3 + i, end=end - i,
            phase="Succeeded" if ok else "Failed", gpus={"nvidia.com/gpu": str(gpus)},
            labels={"training.kubeflow.org/replica-type": "worker"},
        )
        for i in range(workers)
    ]  # fmt: skip
    finish = "Succeeded" if ok else "Failed"
    return pods, _load(name, namespace, made, admitted, end + 2, workers, pods[0]["spec"], finish)


def _load(name: str, namespace: str, made: int, admitted: int, end: int, count: int, spec: Json, reason: str) -> Json:
    conditions: list[Json] = []
    if admitted:
        conditions += [
            {"type": kind, "status": "True", "lastTransitionTime": _time(admitted), "reason": kind}
            for kind in ("QuotaReserved", "Admitted")
        ]
    if end:
        conditions.append(
            {"type": "Finished", "status": "True", "lastTransitionTime": _time(end), "reason": reason, "message": ""}
        )
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": _uid(name)}
    meta = {"name": f"pytorchjob-{name}", "namespace": namespace, "uid": _uid(f"load-{name}")}
    meta |= {"creationTimestamp": _time(made)}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": meta | {"ownerReferences": [owner]},
        "spec": {
            "queueName": "main",
            "priority": 100,
            "priorityClassName": "batch",
            "podSets": [{"name": "worker", "count": count, "template": {"spec": {"containers": spec["containers"]}}}],
        },
        "status": {"conditions": conditions},
    }


def _odd() -> list[Json]:
    t = FIRST + 3600
    lost = _pod("lost", t, node="g1", scheduled=t + 5, phase="Failed")
    lost["status"]["reason"] = "Preempting"
    lost["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
         "lastTransitionTime": _time(t + 900)}
    )  # fmt: skip
    gang = {"scheduling.x-k8s.io/pod-group": "gang"}
    return [
        _pod("retry-a", t, owner=("Job", "retry"), node="g1", scheduled=t + 5, end=t + 600, phase="Failed",
             reason="OOMKilled"),
        _pod("retry-b", t + 610, owner=("Job", "retry"), node="g2", scheduled=t + 615, end=t + 1600, phase="Succeeded"),
        _pod("web-1", t, owner=("ReplicaSet", "web"), node="g3", scheduled=t + 2, phase="Running", gpus={}),
        _pod("slice", t, node="g3", scheduled=t + 2, end=t + 700, phase="Succeeded",
             gpus={"nvidia.com/mig-3g.40gb": "1"}),
        _pod("shared", t, node="g3", scheduled=t + 2, end=t + 700, phase="Succeeded",
             gpus={"nvidia.com/gpu.shared": "1"}),
        *(_pod(f"gang-{i}", t, node=f"g{4 + i}", scheduled=t + 9 + i, end=t + 900, phase="Succeeded", labels=gang)
          for i in (0, 1)),
        _pod("waiting", t, gpus={"nvidia.com/gpu": "64"}),
        lost,
    ]  # fmt: skip


def _odd_loads() -> list[Json]:
    spec = _pod("x", FIRST)["spec"]
    evicted = _load("evicted", "ml", FIRST, 0, 0, 2, spec, "")
    evicted["status"]["conditions"] = [
        {"type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": _time(FIRST + 500)},
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", "lastTransitionTime": _time(FIRST + 500)},
    ]
    old = _load("old-finish", "ml", FIRST, FIRST + 60, FIRST + 900, 1, spec, "JobFinished")
    old["status"]["conditions"][-1]["message"] = "Job finished successfully"
    return [evicted, old]
