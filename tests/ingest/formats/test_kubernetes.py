"""Kubernetes: pods and Kueue Workloads of a few lines, and the rows that they must give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest.cells import LostValues
from tracekit.ingest.formats import _kubernetes_objects as cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Json = dict[str, Any]

JOB = "aaaaaaaa-0000-0000-0000-000000000000"


def moment(clock: str) -> str:
    return f"2024-03-04T{clock}:00Z"


def pod(name: str, created: str = "10:00", **given: Any) -> Json:
    """Return a pod; `scheduled` and `end` are clocks of 2024-03-04."""
    status: Json = {"phase": given.get("phase", "Pending"), "conditions": []}
    meta: Json = {"name": name, "namespace": "ml", "uid": f"{sum(name.encode()):08x}-{name}"}
    meta |= {"creationTimestamp": moment(created), "labels": given.get("labels", {})}
    limits = given.get("limits", {"nvidia.com/gpu": "2"})
    spec: Json = {"containers": [{"resources": {"limits": limits, "requests": {"cpu": "500m", "memory": "16Gi"}}}]}
    if "owner" in given:
        kind, owner = given["owner"]
        meta["ownerReferences"] = [{"kind": kind, "name": owner, "uid": given.get("owner_uid", JOB)}]
    if "scheduled" in given:
        spec["nodeName"] = given.get("node", "n1")
        when = moment(given["scheduled"])
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]
    if "why" in given:
        status["reason"] = given["why"]
    if "end" in given:
        done = {"finishedAt": moment(given["end"]), "exitCode": 1, "reason": given.get("reason", "Completed")}
        status["containerStatuses"] = [{"state": {"terminated": done}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def load(created: str, owner: str, *, uid: str = JOB, **conditions: tuple[str, str]) -> Json:
    listed = [
        {"type": kind, "status": "True", "lastTransitionTime": moment(clock), "reason": reason, "message": ""}
        for kind, (clock, reason) in conditions.items()
    ]
    meta = {"name": f"load-{owner}", "namespace": "ml", "uid": "x", "creationTimestamp": moment(created)}
    meta["ownerReferences"] = [{"kind": "PyTorchJob", "name": owner, "uid": uid}]  # type: ignore[assignment]  # a mixed object
    template = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]}}
    spec = {"queueName": "q", "priority": 5, "podSets": [{"count": 2, "template": template}]}
    api = "kueue.x-k8s.io/v1beta1"
    return {"apiVersion": api, "kind": "Workload", "metadata": meta, "spec": spec, "status": {"conditions": listed}}


def listing(*items: Json) -> str:
    return json.dumps(
        {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}, indent=1
    )


def test_the_pods_of_a_job_are_its_instances(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    pods = [
        pod(f"w-{i}", owner=("PyTorchJob", "w"), scheduled=f"10:0{i + 1}", end="11:00", phase="Succeeded", node=f"n{i}")
        for i in (0, 1)
    ]
    trace = ingest({"dump": listing(*pods)})
    assert rows(trace, "jobs") == [
        {
            "job_id": "ml/w@aaaaaaaa",
            "cluster": "kubernetes",
            "vc": "ml",
            "name": "w",
            "status": "completed",
            "source_status": "Succeeded",
            "submit_time": "2024-03-04 10:00:00",
            "start_time": "2024-03-04 10:01:00",
            "end_time": "2024-03-04 11:00:00",
            "queue_s": 60.0,
            "run_s": 3540.0,
            "gpu_count": 4.0,
            "cpu_count": 1.0,
            "memory_gib": 32.0,
            "node_count": 2,
            "instance_count": 2,
            "attempt_count": 1,
        }
    ]
    assert [(r["instance"], r["node_id"], r["gpu_count"], r["start_time"]) for r in rows(trace, "placements")] == [
        ("w-0", "n0", 2.0, "2024-03-04 10:01:00"),
        ("w-1", "n1", 2.0, "2024-03-04 10:02:00"),
    ]
    assert (rows(trace, "rejects"), found_checks(trace), trace.manifest.format) == ([], {}, "kubernetes")


def test_a_pod_made_after_the_others_ended_begins_an_attempt(ingest: Ingest, rows: Rows) -> None:
    first = pod("a", owner=("Job", "j"), scheduled="10:01", end="10:10", phase="Failed", reason="OOMKilled")
    second = pod("b", "10:11", owner=("Job", "j"), scheduled="10:12", phase="Running")
    trace = ingest({"dump": listing(first, second)})
    attempts = rows(trace, "attempts")
    assert [(r["attempt"], r["status"], r.get("run_s"), r["wait_s"]) for r in attempts] == [
        (0, "out_of_memory", 540.0, 60.0),
        (1, "running", None, 120.0),
    ]
    assert [(r["status"], r["gpu_count"], r["attempt_count"]) for r in rows(trace, "jobs")] == [("running", 2.0, 2)]


def test_pods_of_a_replica_set_are_jobs_and_a_label_names_a_gang(ingest: Ingest, rows: Rows) -> None:
    gang = {"scheduling.x-k8s.io/pod-group": "g"}
    pods = [
        pod("web-1", owner=("ReplicaSet", "web"), scheduled="10:01", phase="Running"),
        pod("web-2", owner=("ReplicaSet", "web"), scheduled="10:01", phase="Running"),
        *(pod(f"g-{i}", labels=gang, scheduled="10:01", phase="Running") for i in (1, 2)),
    ]
    jobs = {r["name"]: r for r in rows(ingest({"dump": listing(*pods)}), "jobs")}
    assert sorted(jobs) == ["g", "web-1", "web-2"]
    assert (jobs["web-1"]["group"], jobs["g"]["group"], jobs["g"]["instance_count"]) == ("web", "g", 2)
    assert jobs["g"]["job_id"] == "ml/g"


def test_later_snapshots_tell_more_of_the_same_pods(ingest: Ingest, rows: Rows) -> None:
    # The first snapshot of one pod is the last of the other.
    p, q = (
        (pod(name, scheduled="10:01", phase="Running"), pod(name, scheduled="10:01", end="10:30", phase="Succeeded"))
        for name in "pq"
    )
    trace = ingest({"1": listing(p[0], q[1]), "2": listing(p[1], q[0])})
    jobs = {r["name"]: (r["status"], r["run_s"]) for r in rows(trace, "jobs")}
    assert jobs == {"p": ("completed", 1740.0), "q": ("completed", 1740.0)}
    assert len(rows(trace, "placements")) == 2


def test_kueue_tells_the_wait_and_pods_where_a_job_ran(ingest: Ingest, rows: Rows) -> None:
    pods = [pod(f"w-{i}", "10:00", owner=("PyTorchJob", "w"), scheduled="10:01", end="11:00", phase="Succeeded",
                node=f"n{i}") for i in (0, 1)]  # fmt: skip
    waited = load("09:50", "w", QuotaReserved=("10:00", "x"), Admitted=("10:00", "x"), Finished=("11:01", "Succeeded"))
    job = rows(trace := ingest({"pods": listing(*pods), "loads": listing(waited)}), "jobs")[0]
    assert (job["queue_s"], job["run_s"], job["partition"], job["priority"]) == (600.0, 3660.0, "q", 5)
    assert (job["node_count"], job["gpu_count"], job["instance_count"]) == (2, 4.0, 2)
    assert [(r["attempt"], r["instance"]) for r in rows(trace, "placements")] == [(0, "w-0"), (0, "w-1")]


def test_a_pod_that_its_machine_refused_held_nothing(ingest: Ingest, rows: Rows) -> None:
    words = ["UnexpectedAdmissionError", "OutOfcpu", "NodeAffinity"]
    refused = (pod(f"refused-{why.lower()}", scheduled="10:01", phase="Failed", why=why) for why in words)
    # One whose containers ran was taken, whatever its reason says.
    ran = (
        pod(f"ran-{why.lower()}", scheduled="10:01", end="10:30", phase="Failed", why=why, node=f"of-{why.lower()}")
        for why in words
    )
    trace = ingest({"dump": listing(pod("p", scheduled="10:01", phase="Running"), *refused, *ran)})
    attempts = {r["job_id"]: r.get("run_s") for r in rows(trace, "attempts")}
    found = {r["name"]: (r["status"], r["attempt_count"], attempts.get(r["job_id"])) for r in rows(trace, "jobs")}
    assert found == {
        "p": ("running", 1, None),
        **{f"refused-{why.lower()}": ("failed", 0, None) for why in words},
        **{f"ran-{why.lower()}": ("failed", 1, 1740.0) for why in words},
    }
    nodes = {r["node_id"]: r["gpu_count"] for r in rows(trace, "nodes")}
    assert nodes == dict.fromkeys(("n1", *(f"of-{why.lower()}" for why in words)), 2)


def test_an_eviction_ends_the_run_though_the_workload_is_still_admitted(ingest: Ingest, rows: Rows) -> None:
    ends = {
        "PodsReadyTimeout": ("pending", "failed"),
        "Preempted": ("pending", "preempted"),
        "InactiveWorkload": ("cancelled", "cancelled"),
    }
    loads = []
    for number, reason in enumerate(ends):
        evicted = {"Admitted": ("10:00", "x"), "Evicted": ("10:30", reason)}
        again = {"Admitted": ("10:40", "x"), "Evicted": ("10:30", reason)}  # an admission after it is another run
        loads.append(load("09:50", f"{reason}", uid=f"{number}{JOB[1:]}", **evicted))
        loads.append(load("09:50", f"{reason} again", uid=f"b{number}{JOB[2:]}", **again))
    trace = ingest({"1": listing(*loads)})
    runs = {r["job_id"]: (r["status"], r.get("end_time"), r.get("run_s")) for r in rows(trace, "attempts")}
    found = {r["name"]: (r["status"], r["source_status"], runs[r["job_id"]]) for r in rows(trace, "jobs")}
    assert len(rows(trace, "attempts")) == len(found) == 6
    for reason, (status, run) in ends.items():
        assert found[reason] == (status, reason, (run, "2024-03-04 10:30:00", 1800.0))
        assert found[f"{reason} again"][2] == ("running", None, None), reason


def test_an_eviction_ends_an_attempt_that_an_earlier_file_shows(ingest: Ingest, rows: Rows) -> None:
    admitted = load("09:50", "w", Admitted=("10:00", "x"))
    evicted = load("09:50", "w", Evicted=("10:30", "Preempted"))
    again = load("09:50", "w", Admitted=("10:40", "x"), Finished=("11:00", "Succeeded"))
    trace = ingest({"1": listing(admitted), "2": listing(evicted), "3": listing(again)})
    assert [(r["attempt"], r["run_s"], r["wait_s"], r["status"]) for r in rows(trace, "attempts")] == [
        (0, 1800.0, 600.0, "preempted"),
        (1, 1200.0, 600.0, "completed"),
    ]
    assert rows(trace, "jobs")[0]["attempt_count"] == 2


def test_objects_may_stand_in_any_form(ingest: Ingest, rows: Rows) -> None:
    def pods(form: str) -> list[Json]:
        return [pod(f"{form}-a"), pod(f"{form}-b")]

    files = {
        "lines": "".join(json.dumps(p) + "\n" for p in pods("lines")),
        "array": json.dumps(pods("array")),
        "pretty": "\n".join(json.dumps(p, indent=1) for p in pods("pretty")),
    }
    trace = ingest(files)
    assert {r["name"] for r in rows(trace, "jobs")} == {f"{form}-{name}" for form in files for name in "ab"}
    assert rows(trace, "rejects") == []


@pytest.mark.parametrize(
    ("spec", "gpus", "cpus", "model"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "1500m"}}}]}, 0.0, 1.5, None),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-3g.40gb": 2}}}]}, 6 / 7, None, "mig-3g.40gb"),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-2g.12gb": 1}}}]}, 0.5, None, "mig-2g.12gb"),
        ({"containers": [{"resources": {"limits": {"amd.com/gpu": "8"}}}]}, 8.0, None, None),
        (
            {
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}] * 2,
                "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}],
                "nodeSelector": {"nvidia.com/gpu.product": "A100"},
            },
            4.0, None, "A100",
        ),
    ],
)  # fmt: skip
def test_what_a_pod_asks_for(spec: Any, gpus: float, cpus: float | None, model: str | None) -> None:
    asked = cell.pod_resources(spec, None, None, LostValues())
    assert asked.gpus == pytest.approx(gpus)
    assert (asked.cpus, asked.model) == (cpus, model)


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("16Gi", 16 * 2**30), ("1e3", 1000), ("2k", 2000), (3, 3)])
def test_quantities(text: Any, value: float) -> None:
    assert cell.quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["many", "-1", "", None, True, "1e99", "9" * 100])
def test_what_is_not_a_quantity_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^is "):
        cell.quantity(text)


def test_bad_objects_are_rejected_and_others_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    nameless = pod("x")
    del nameless["metadata"]["name"]
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}
    trace = ingest({"dump": listing(pod("good"), nameless, pod("odd", limits={"nvidia.com/gpu": "two"}), node)})
    assert [(r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        ("metadata.name", "is missing"),
    ]
    checks = found_checks(trace)
    assert (checks["other_objects"], checks["unreadable_resources_limits_nvidia_com_gpu"]) == ((1, 4), (1, None))
    assert [(j["job_id"].partition("@")[0], "gpu_count" in j) for j in rows(trace, "jobs")] == [
        ("ml/good", True), ("ml/odd", False),
    ]  # fmt: skip
