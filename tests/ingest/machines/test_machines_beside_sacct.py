"""Machine files beside a sacct dump: what becomes of each, worked by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import capacity
from tracekit.errors import SourceError, TooManyRejectsError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

# Job 7 has 6 GPUs on two nodes: 3 and 3 if they were split evenly. Job 8 holds 2 GPUs of n3.
SACCT = """JobID|JobIDRaw|Cluster|Submit|Start|End|State|AllocTRES|NNodes|NodeList|User
7|7|tk|2024-03-04T08:00:00|2024-03-04T08:00:10|2024-03-04T09:00:10|COMPLETED|gres/gpu:a100=6,gres/gpu=6|2|n[1-2]|u
8|8|tk|2024-03-04T08:00:00|2024-03-04T08:00:10|2024-03-04T10:00:10|COMPLETED|gres/gpu:a100=2,gres/gpu=2|1|n3|u
"""
SINFO = """NODELIST|STATE|STATE|GRES|CPUS|MEMORY|REASON|TIMESTAMP|USER|PARTITION
n[1-2]|idle|idle|gpu:a100:4(S:0-1)|32|512000|none|Unknown|Unknown|gpu*
n1|idle|idle|gpu:a100:4(S:0-1)|32|512000|none|Unknown|Unknown|debug
cpu1|drained*|drain|(null)|64|1024|swap fan | soon|2024-03-04T07:00:00|root|cpu
"""
EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|
tk||2024-03-01T00:00:00|Unknown||Cluster Registered TRES||
tk|n1|2024-03-04T09:00:00|2024-03-04T09:30:00|DOWN+DRAIN|NVLink fault, ticket 7|root(0)|
tk|n2|2024-03-04T09:10:00|Unknown|MAINT||root(0)|
tk|n2|2024-03-04T09:15:00|2024-03-04T09:16:00|IDLE|back|root(0)|
"""
NODES = """NodeName=n1 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=6.38
   AvailableFeatures=a100,nvlink,old
   ActiveFeatures=nvlink,a100
   Gres=gpu:a100:8
   Partitions=gpu,debug
   OS=Linux 6.1 #1 SMP
   RealMemory=512000 AllocMem=0
   State=DOWN*+DRAIN ThreadsPerCore=1
   CfgTRES=cpu=32,mem=500G,billing=32,gres/gpu=8
   Reason=Xid 79: GPU has fallen off the bus [root@2024-03-04T09:05:00]

NodeName=n2 CoresPerSocket=16
   CPUAlloc=0 CPUTot=32
   Gres=(null)
   RealMemory=1024
   State=IDLE
   CfgTRES=cpu=32,mem=1G,gres/gpu=2,gres/gpu:h100=2
"""
NODE_ROW = {"cluster": "tk", "gpu_count": 4, "gpu_model": "a100", "cpu_count": 32.0, "memory_gib": 500.0}
"""What SINFO says of n1 and n2."""


def held(*lines: str, stamp: str = "# 2024-03-04T08:30:00\n", job: str = "JobId=7") -> str:
    nodes = " ".join(f"  Nodes={line} MinMemoryNode=0" for line in lines)
    return (
        f"{stamp}{job} JobName=x y UserId=u(1) GroupId=u(1) JobState=RUNNING RunTime=00:29:50 "
        f"StartTime=2024-03-04T08:00:10 EndTime=2024-03-05T08:00:10 NodeList=n[1-2] JOB_GRES=gpu:a100:6 {nodes} "
        "Command=(null)\n"
    )


def test_a_sinfo_table_lists_machines(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"sacct.txt": SACCT, "whatever": SINFO})
    assert rows(trace, "nodes") == [
        # Sinfo prints a row for each partition of a node, and a star at the default partition.
        {"node_id": "n1", **NODE_ROW, "source": "sinfo", "partitions": ["debug", "gpu"]},
        {"node_id": "n2", **NODE_ROW, "source": "sinfo", "partitions": ["gpu"]},
        {"node_id": "n3", "cluster": "tk", "gpu_count": 2, "gpu_model": "a100"},
        {
            "node_id": "cpu1",
            "cluster": "tk",
            "gpu_count": 0,
            "cpu_count": 64.0,
            "memory_gib": 1.0,
            "source": "sinfo",
            "partitions": ["cpu"],
        },
    ]
    assert rows(trace, "node_events") == [
        {
            "node_id": "cpu1",
            "start_time": "2024-03-04 07:00:00",
            "state": "drained",
            "cause": "fan",
            "source_cause": "swap fan | soon",
            "source": "sinfo",
        }
    ]
    assert found_checks(trace) == {"machines_not_listed": (1, 3)}
    assert "3 machines listed by sinfo, 1 more named only by jobs" in trace.manifest.notes
    assert [(f.path, f.records, f.kept) for f in trace.manifest.files if f.path == "whatever"] == [("whatever", 3, 3)]
    found = capacity(trace)
    assert (found.gpus, found.word) == (10, "stated by sinfo")
    assert found.note == "the node list from sinfo, 4 nodes; 1 of them only in the log"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            (
                "NODELIST   NODES PARTITION  STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT GRES AVAIL_FE REASON\n"
                "n[1-2]  2  gpu*  mixed-  32 2:16:1 512000 0 1 gpu:a100:4 (null) no reason at all\n"
            ),
            {"partitions": ["gpu"], "features": []},
        ),
        (
            (
                "Mon Mar 04 10:00:00 2024\nNODELIST STATE CPUS(A/I/O/T) MEMORY GRES\n"
                "n[1-2] idle 0/32/0/32 512000 gpu:a100:4\n"
            ),
            {},
        ),
        (
            "NODELIST;STATE;GRES;CPUS;MEMORY;ACTIVE_FEATURES\r\nn[1-2];alloc;gpu:a100:4;32;512000;nvlink,a100\r\n",
            {"features": ["a100", "nvlink"]},
        ),
    ],
)
def test_sinfo_is_read_in_columns_and_with_other_delimiters(
    ingest: Ingest, rows: Rows, text: str, where: dict[str, list[str]]
) -> None:
    nodes = rows(ingest({"sacct.txt": SACCT, "nodes.txt": text}), "nodes")
    assert nodes[:2] == [{"node_id": node, **NODE_ROW, "source": "sinfo", **where} for node in ("n1", "n2")]


def test_scontrol_lists_machines_and_their_states(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"sacct.txt": SACCT, "nodes.txt": NODES})
    assert rows(trace, "nodes") == [
        {
            "node_id": "n1",
            **NODE_ROW,
            "gpu_count": 8,
            "source": "scontrol",
            "partitions": ["debug", "gpu"],
            "features": ["a100", "nvlink"],
        },
        # Scontrol prints no such field for a node that is in no partition.
        {
            "node_id": "n2",
            **NODE_ROW,
            "gpu_count": 2,
            "gpu_model": "h100",
            "memory_gib": 1.0,
            "source": "scontrol",
            "partitions": [],
        },
        {"node_id": "n3", "cluster": "tk", "gpu_count": 2, "gpu_model": "a100"},
    ]
    assert rows(trace, "node_events") == [
        {
            "node_id": "n1",
            "start_time": "2024-03-04 09:05:00",
            "state": "down",
            "cause": "gpu lost",
            "source_cause": "Xid 79: GPU has fallen off the bus",
            "source": "scontrol",
        }
    ]
    # Jobs held 3 GPUs of n2 by an even split; the list counts.
    assert found_checks(trace) == {"machines_not_listed": (1, 3), "jobs_above_listed": (1, 2)}
    flat = " ".join(NODES.partition("\n\n")[0].split()) + "\n"
    assert rows(ingest({"sacct.txt": SACCT, "o": flat}), "nodes")[0]["gpu_count"] == 8


def test_events_of_the_accounting(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    later = EVENTS.replace("Unknown|MAINT", "2024-03-04T10:00:00|MAINT")
    files = {"sacct.txt": SACCT, "sacctmgr-event-1.psv": later, "sacctmgr-event-2.psv": EVENTS, "nodes": NODES}
    trace = ingest(files)
    down = {"node_id": "n1", "start_time": "2024-03-04 09:00:00", "end_time": "2024-03-04 09:30:00", "state": "down"}
    maint = {"node_id": "n2", "start_time": "2024-03-04 09:10:00", "end_time": "2024-03-04 10:00:00"}
    assert rows(trace, "node_events") == [
        {**down, "cause": "nvlink", "source_cause": "NVLink fault, ticket 7", "source": "slurm"},
        {**maint, "state": "maintenance", "cause": "maintenance", "source": "slurm"},
    ]
    assert found_checks(trace)["events_of_fit_nodes"] == (2, 6)
    assert [note for note in trace.manifest.notes if "sacctmgr" in note] == [
        "states in machine lists are ignored (1), because sacctmgr lists the events"
    ]


def test_wall_clocks_are_of_the_log_and_others_are_taken_as_they_are(ingest: Ingest, rows: Rows) -> None:
    events = (
        "NodeName|TimeStart|TimeEnd|State\n"
        "n1|2024-03-04T09:00:00|2024-03-04T09:30:00+0000|DOWN\n"
        "n2|1709539200|Unknown|DRAIN\n"
        "n9|2024-03-04T09:00:00|Unknown|FAIL\n"
    )
    trace = ingest({"sacct.txt": SACCT, "e": events}, options={"timezone": "Europe/Berlin"})
    found = [(e["node_id"], e["start_time"], e.get("end_time"), e["state"]) for e in rows(trace, "node_events")]
    assert found == [
        ("n1", "2024-03-04 08:00:00", "2024-03-04 09:30:00", "down"),
        ("n2", "2024-03-04 08:00:00", None, "drained"),
        ("n9", "2024-03-04 08:00:00", None, "drained"),
    ]
    assert trace.manifest.checks["events_of_unlisted_nodes"].count == 1


def test_json_of_old_and_new_slurm(ingest: Ingest, rows: Rows) -> None:
    node = {"name": "n1", "gres": "gpu:a100:4", "cpus": 32, "real_memory": 512000, "slurmd_version": "22.05.8"}
    node |= {"partitions": ["gpu", "debug"], "active_features": ["a100", "nvlink"]}
    down = {"state": "down", "state_flags": ["DRAIN"], "reason": "psu failed", "reason_changed_at": 1709539200}
    old = {"meta": {"nodes": 1}, "errors": [], "nodes": [node | down]}
    new = {
        "sinfo": [
            {
                "nodes": {"nodes": ["n1", "n2"]},
                "node": {"state": ["IDLE"]},
                "cpus": {"minimum": 32, "maximum": 32},
                "memory": {"minimum": 512000, "maximum": 512000},
                "gres": {"total": "gpu:a100:4"},
                "weight": {"minimum": 1, "maximum": 1},
                "partition": {"name": "gpu"},
                "features": {"total": "a100,nvlink,old", "active": "a100,nvlink"},
            }
        ],
        "errors": [],
    }
    new["sinfo"].append(new["sinfo"][0] | {"partition": {"name": "debug"}})
    scontrol = {"nodes": [node | {"state": ["IDLE"], "reason_changed_at": {"set": False, "number": 0}}]}
    for value in (old, new, scontrol):
        trace = ingest({"sacct.txt": SACCT, "sinfo.json": json.dumps(value, indent=2)})
        known = {"partitions": ["debug", "gpu"], "features": ["a100", "nvlink"]}
        assert rows(trace, "nodes")[0] == {"node_id": "n1", **NODE_ROW, "source": "sinfo", **known}
        events = [(e["node_id"], e["start_time"], e["state"], e["cause"]) for e in rows(trace, "node_events")]
        assert events == ([("n1", "2024-03-04 08:00:00", "down", "power")] if value is old else [])


def test_kubernetes_nodes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "81920",
        "topology.kubernetes.io/zone": "z1",
    }
    status = {"capacity": {"nvidia.com/gpu": "16", "cpu": "96", "memory": "1048576Ki"}}
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2024-03-04T08:30:00Z"}
    ready |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    items = [
        {
            "kind": "Node",
            "metadata": {"name": "n1.example.org", "labels": labels},
            "status": status | {"conditions": [ready]},
        },
        {
            "kind": "Node",
            "metadata": {"name": "n2"},
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "node.kubernetes.io/unschedulable", "timeAdded": "2024-03-04T09:00:00Z"}],
            },
            "status": {"capacity": {"cpu": "8", "memory": "1Gi"}},
        },
        {"kind": "Node", "metadata": {"name": "n3"}, "spec": {"unschedulable": True}, "status": {"capacity": {}}},
    ]
    trace = ingest({"sacct.txt": SACCT, "k": json.dumps({"apiVersion": "v1", "items": items, "kind": "List"})})
    assert rows(trace, "nodes")[0] == {
        "node_id": "n1",
        "cluster": "tk",
        "gpu_count": 4,
        "gpu_model": "NVIDIA-A100-SXM4-80GB",
        "gpu_memory_gib": 80.0,
        "cpu_count": 96.0,
        "memory_gib": 1.0,
        "rack": "z1",
        "source": "kubernetes",
    }
    assert [(e["node_id"], e["state"], e["start_time"], e.get("cause")) for e in rows(trace, "node_events")] == [
        ("n1", "down", "2024-03-04 08:30:00", "software"),
        ("n2", "drained", "2024-03-04 09:00:00", None),
    ]
    assert found_checks(trace)["states_without_time"] == (1, None)


def test_samples_tell_how_a_gang_was_laid_out(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    polls = held("n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:4(IDX:0-3)", "n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:1,3)")
    trace = ingest({"sacct.txt": SACCT, "polls": polls + held("n3 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)", job="JobId=9")})
    found = [(p["node_id"], p["gpu_count"], p.get("gpu_index")) for p in rows(trace, "placements")]
    assert found == [("n1", 4.0, [0, 1, 2, 3]), ("n2", 2.0, [1, 3]), ("n3", 2.0, None)]
    assert found_checks(trace) == {"gpus_split_unevenly": (2, 2), "samples_without_run": (1, 3)}


@pytest.mark.parametrize("index", ["x-y", "3-1", "0-99999", "0,-1"])
def test_an_index_that_cannot_be_read_costs_itself(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, index: str
) -> None:
    polls = held(f"n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:4(IDX:{index})", "n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:1,3)")
    trace = ingest({"sacct.txt": SACCT, "polls": polls})
    found = [(p["node_id"], p["gpu_count"], p.get("gpu_index")) for p in rows(trace, "placements")]
    assert found[:2] == [("n1", 4.0, None), ("n2", 2.0, [1, 3])]
    assert trace.manifest.rejected == 0
    assert found_checks(trace)["unreadable_gres"] == (1, None)


def test_an_index_that_cannot_be_read_may_cost_the_number_of_its_node(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    polls = held("n1 CPU_IDs=0 Mem=0 GRES=gpu:a100(IDX:x)", "n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:N/A)")
    trace = ingest({"sacct.txt": SACCT, "polls": polls})
    found = {p["node_id"]: (p["gpu_count"], p.get("gpu_index")) for p in rows(trace, "placements")}
    assert found["n1"] == (3.0, None)  # its half of the gang: the poll gives no number
    assert found["n2"] == (2.0, None)
    assert found_checks(trace)["unreadable_gres"] == (1, None)


@pytest.mark.parametrize("text", ["one", "lines", "no stamp"])
def test_samples_in_every_layout(ingest: Ingest, rows: Rows, text: str) -> None:
    node = "n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:a100:3(CNT:3)"
    poll = held(node, stamp="" if text == "no stamp" else "# 2024-03-04T08:30:00\n")
    if text == "lines":
        poll = (
            poll.replace(" UserId", "\n   UserId")
            .replace("  Nodes", "\n     Nodes")
            .replace(" Command", "\n   Command")
        )
    trace = ingest({"sacct.txt": SACCT, "polls": poll})
    assert [p["gpu_count"] for p in rows(trace, "placements")] == [3.0, 3.0, 2.0]
    assert trace.manifest.checks["samples_without_run"].count == 0
    assert trace.manifest.checks["samples_without_run"].of == 2


def test_machines_found_by_most_held_follow_the_samples(ingest: Ingest, rows: Rows) -> None:
    polls = held("n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:4(IDX:0-3)", "n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:1,3)")
    listed = "NODELIST|STATE|CPUS\nn1|idle|32\n"  # it states no GPUs
    nodes = rows(ingest({"sacct.txt": SACCT, "polls": polls, "s": listed}), "nodes")
    assert [(n["node_id"], n["gpu_count"], n.get("source")) for n in nodes] == [
        ("n1", 4, None),
        ("n2", 4, None),  # the GPU with the index 3 is its fourth
        ("n3", 2, None),
    ]


def test_a_history_keeps_what_a_list_stated_and_ends_events(tmp_path: Path, write_source: Any, rows: Rows) -> None:
    out = tmp_path / "trace"
    ingest_logs(write_source({"sacct.txt": SACCT, "s": SINFO, "e": EVENTS}), out)
    new = SACCT.splitlines()[0] + (
        "\n9|9|tk|2024-03-05T08:00:00|2024-03-05T08:00:10|2024-03-05T09:00:10|COMPLETED|gres/gpu=8|1|n1|u\n"
    )
    ended = EVENTS.replace("Unknown|MAINT", "2024-03-04T10:00:00|MAINT")
    trace = ingest_logs(write_source({"sacct-2.txt": new, "e-2": ended}), out, append=True)
    assert [(n["node_id"], n["gpu_count"], n.get("source")) for n in rows(trace, "nodes")] == [
        ("n1", 4, "sinfo"),
        ("n2", 4, "sinfo"),
        ("n3", 2, None),
        ("cpu1", 0, "sinfo"),
    ]
    assert [e.get("end_time") for e in rows(trace, "node_events")] == ["2024-03-04 09:30:00", "2024-03-04 10:00:00"]
    assert trace.validate() == []
    # An older dump, appended late, does not open the event again.
    again = ingest_logs(write_source({"sacct-3.txt": new, "e-3": EVENTS}), out, append=True)
    assert [e.get("end_time") for e in rows(again, "node_events")] == ["2024-03-04 09:30:00", "2024-03-04 10:00:00"]


def test_a_state_that_a_newer_list_no_longer_shows_is_over(tmp_path: Path, write_source: Any, rows: Rows) -> None:
    out = tmp_path / "trace"
    ingest_logs(write_source({"sacct.txt": SACCT, "s": SINFO}), out)
    fit = SINFO.replace("drained*|drain", "idle|idle")
    trace = ingest_logs(write_source({"sacct.txt": SACCT + "\n", "s": fit}), out, append=True)
    # It was last seen when the older export ended.
    assert [e.get("end_time") for e in rows(trace, "node_events")] == ["2024-03-04 10:00:10"]


def test_of_two_lists_the_last_counts(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    files = {
        "sacct.txt": SACCT,
        "sinfo-1": SINFO,
        "sinfo-2": SINFO.replace("a100:4", "a100:8").replace("drained*|drain", "idle|idle"),
    }
    trace = ingest(files)
    assert [n["gpu_count"] for n in rows(trace, "nodes")] == [8, 8, 2, 0]
    assert found_checks(trace)["machine_lists_differ"] == (2, 3)
    assert found_checks(trace)["states_that_ended"] == (1, None)
    assert rows(trace, "node_events") == []


def test_machines_of_several_clusters(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    sacct = SACCT + SACCT.partition("\n")[2].replace("|tk|", "|b|").replace("n[1-2]", "m[1-2]")
    events = EVENTS + "b|n3|2024-03-04T09:00:00|Unknown|DOWN|x|root(0)|\n"
    trace = ingest(
        {"sacct.txt": sacct, "s": SINFO + "n3|idle|idle|gpu:4|8|1024|none|Unknown|Unknown|gpu\n", "e": events}
    )
    counts = {n["node_id"]: n["gpu_count"] for n in rows(trace, "nodes")}
    # n3 is a machine of both clusters, and sinfo does not say of which.
    assert counts == {"b/m1": 3, "b/m2": 3, "b/n3": 2, "tk/n1": 4, "tk/n2": 4, "tk/n3": 2, "cpu1": 0}
    assert {e["node_id"] for e in rows(trace, "node_events")} == {"tk/n1", "tk/n2", "b/n3"}
    assert found_checks(trace)["ambiguous_machines"][0] == 1


LOOK_ALIKES = {
    "slurm.conf": "NodeName=n[1-2] CPUs=32 Gres=gpu:a100:4 RealMemory=512000 State=UNKNOWN\n",
    "squeue": "PARTITION|STATE|NODELIST|CPUS\ngpu|RUNNING|n1|4\n",
    "squeue.txt": "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n7 gpu x u R 1:00 2 n[1-2]\n",
    "assoc.psv": "Cluster|Account|User|Partition|Share|\ntk|root||||\n",
    "pods.json": '{"apiVersion": "v1", "items": [{"kind": "Pod", "metadata": {"name": "Node"}}], "kind": "List"}',
    "squeue.json": '{"meta": {}, "jobs": [{"nodes": [{"real_memory": 1, "gres": ""}]}]}',
    "other.json": '{"nodes": [{"name": "n1", "state": "idle"}]}',
    "steps": "JobId=7 ArrayJobId=7\n",
    "empty": "",
}


def test_look_alikes_are_left_alone(ingest: Ingest, rows: Rows) -> None:
    plain = ingest({"sacct.txt": SACCT})
    trace = ingest({"sacct.txt": SACCT, **LOOK_ALIKES}, format_name="slurm")
    assert [f.path for f in trace.manifest.files] == ["sacct.txt"]
    assert rows(trace, "nodes") == rows(plain, "nodes")
    assert not trace.has("node_events")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"sinfo.json": '{"nodes": [{"name": "n1", "gres": "", "real_memory": 1, "state": "id'}, "truncated"),
        ({"e": "NodeName|TimeStart|State\nn1|2024-03-04T08:00:00|DOWN\n"}, "the column 'timeend' is missing"),
    ],
)
def test_files_that_are_cut_or_lack_a_column_end_in_one_line(ingest: Ingest, files: dict[str, str], words: str) -> None:
    with pytest.raises(SourceError, match=words) as error:
        ingest({"sacct.txt": SACCT, **files})
    assert "\n" not in str(error.value)


def test_records_that_cannot_be_used_are_set_aside(ingest: Ingest, rows: Rows) -> None:
    long = "x" * 10_000_000
    events = EVENTS + (
        f"tk|n1|2024-03-04T09:00:00|Unknown|DOWN|{long}|u|\n"
        "tk|n1|yesterday|Unknown|DOWN||u|\n"
        "tk|n1|2024-03-04T09:00:00|2024-03-04T08:00:00|DOWN||u|\n"
        "tk|n[1-9999999999]|2024-03-04T09:00:00|Unknown|DOWN||u|\n"
        "tk|n1|2024-03-04T09:00:00\n"
    )
    nodes = (
        NODES
        + "NodeName=n5 CPUTot=8\n   State=IDLE\n"
        + "\nNodeName=n6 CPUTot=8 RealMemory=1 State=IDLE Gres=gpu:99999\n"
    )
    trace = ingest({"sacct.txt": SACCT, "e": events, "n": nodes}, max_reject_share=0.9)
    assert {f.path: (f.records, f.rejected) for f in trace.manifest.files if f.path != "sacct.txt"} == {
        "e": (9, 5),
        "n": (4, 1),
    }
    reasons = [(r["source_file"], r["line"], r["reason"]) for r in rows(trace, "rejects")]
    assert reasons == [
        ("n", 19, "has no RealMemory: the record may be truncated"),
        ("e", 6, "is longer than 1048576 bytes"),
        ("e", 7, "is not a time like 2024-03-04T08:00:00"),
        ("e", 8, "TimeEnd is before TimeStart"),
        ("e", 9, "names more than 65536 nodes"),
        ("e", 10, "expected 8 cells, found 3"),
    ]
    assert trace.manifest.checks["unreadable_gres"].examples == [
        "gpu:99999: has 99999 GPUs, more than any real machine"
    ]
    assert [r.get("gpu_count") for r in rows(trace, "nodes") if r["node_id"] == "n6"] == [None]
    with pytest.raises(TooManyRejectsError, match="e: 5 of 9 records"):
        ingest({"sacct.txt": SACCT, "e": events})


def test_a_folder_with_a_mapping_is_untouched(ingest: Ingest, write_source: Any, tmp_path: Path) -> None:
    mapping = tmp_path / "map.toml"
    mapping.write_text('[jobs]\nfiles = "*.csv"\n[jobs.columns]\njob_id = "id"\nsubmit_time = "at"\n')
    source = write_source({"jobs.csv": "id,at\n1,2024-03-04 08:00:00\n", "sinfo.txt": SINFO, "e.psv": EVENTS})
    trace = ingest_logs(source, tmp_path / "mapped", format_name="csv", options={"map": str(mapping)})
    assert [f.path for f in trace.manifest.files] == ["jobs.csv"]
    assert not trace.has("nodes")


def test_the_real_dumps(ingest: Ingest, rows: Rows, real_data: Callable[[str], Path]) -> None:
    folder = real_data("slurm_services")
    names = ("sacct-more.txt", "sacctmgr-event.psv", "sinfo-N.psv", "scontrol-nodes.txt", "sinfo.json")
    files = {name: (folder / name).read_bytes() for name in (*names, "scontrol-show-job-d-samples.txt.gz")}
    trace = ingest(files)
    assert [(n["node_id"], n["gpu_count"], n["gpu_model"], n["memory_gib"]) for n in rows(trace, "nodes")] == [
        (f"node{number}", 4, "a100", 500.0) for number in (1, 2, 3, 4)
    ]
    found = [
        (e["node_id"], e["state"], e["cause"], e["start_time"][11:], e["end_time"][11:])
        for e in rows(trace, "node_events")
    ]
    assert found == [
        ("node1", "down", "nvlink", "14:44:55", "14:44:55"),
        ("node3", "down", "host", "14:45:02", "14:45:10"),
        ("node4", "drained", "gpu memory", "14:44:27", "14:45:00"),
        ("node4", "down", "host", "14:48:22", "14:51:30"),
    ]
    # Jobs 9 and 10 have GPUs that do not divide evenly among their nodes.
    parts = {
        (p["job_id"], p["node_id"]): (p["gpu_count"], p["gpu_index"])
        for p in rows(trace, "placements")
        if "gpu_index" in p
    }
    assert parts["tk/9", "node2"] == (2.0, [0, 1])
    assert parts["tk/9", "node4"] == (3.0, [0, 1, 2])
    assert parts["tk/10", "node3"] == (3.0, [1, 2, 3])
    for kind in ("sinfo-N.psv", "scontrol-nodes.txt", "sinfo.json"):
        alone = ingest({name: files[name] for name in ("sacct-more.txt", kind)})
        assert [(n["node_id"], n["gpu_count"]) for n in rows(alone, "nodes")] == [(f"node{i}", 4) for i in (1, 2, 3, 4)]


def test_a_source_without_a_log_is_one_clear_error(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"contains no log, only companion files \(e.psv, sinfo\)"):
        ingest({"sinfo": SINFO, "e.psv": EVENTS})


def test_relative_times_and_machine_files_do_not_compare(ingest: Ingest, rows: Rows) -> None:
    swf = "; UnixStartTime: 0\n1 0 5 10 4 -1 -1 4 20 -1 1 1 1 1 1 1 -1 -1\n"
    trace = ingest({"log.swf": swf, "e.psv": EVENTS, "sinfo": SINFO})
    assert trace.manifest.time_base == "relative"
    assert not trace.has("node_events")
    assert [n["node_id"] for n in rows(trace, "nodes")] == ["cpu1", "n1", "n2"]
    assert any("we ignore the times in machine files" in note for note in trace.manifest.notes)


def test_a_run_that_ended_by_a_node_failure_is_not_an_outage_but_is_held_to_the_events(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    head = "JobID|Submit|Start|End|State|NodeList|AllocTRES\n"
    run = "{}|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T{}|{}|{}|gres/gpu=2\n"
    sacct = head + "".join(
        run.format(*one)
        for one in (
            (1, "09:05:00", "NODE_FAIL", "n[1-2]"),  # n1 was set down 5 minutes before
            (2, "08:50:00", "NODE_FAIL", "n1"),  # on the edge: 10 minutes before n1 was set down
            (3, "08:49:59", "NODE_FAIL", "n1"),  # a second too early
            (4, "09:05:00", "NODE_FAIL", "n2"),  # n2 has no event
            (5, "09:40:00", "NODE_FAIL", "n1"),  # on the edge: 10 minutes after n1 was back
            (6, "09:40:01", "NODE_FAIL", "n1"),
            (7, "11:00:00", "FAILED", "n2"),
        )
    )
    events = "NodeName|TimeStart|TimeEnd|State\nn1|2024-03-04T09:00:00|2024-03-04T09:30:00|DOWN\n"
    trace = ingest({"sacct.txt": sacct, "e": events})
    assert [(e["node_id"], e["state"]) for e in rows(trace, "node_events")] == [("n1", "down")]
    assert found_checks(trace)["node_fail_without_event"] == (3, 6)
    examples = trace.manifest.checks["node_fail_without_event"].examples
    assert [text.rpartition("/")[2] for text in examples] == ["3 on n1", "4 on n2", "6 on n1"]
    # Without any events nothing contradicts anything.
    assert "node_fail_without_event" not in ingest({"sacct.txt": sacct}).manifest.checks


def test_a_run_with_all_gpus_of_its_nodes_has_those_that_the_list_shows(ingest: Ingest, rows: Rows) -> None:
    # Job 9 overlaps job 7 on n1, as after a clock change, so sacct alone does not show that job 7 filled its nodes.
    sacct = SACCT.replace("gres/gpu:a100=6,gres/gpu=6", "gres/gpu:a100=12,gres/gpu=12")
    times = "2024-03-04T08:00:00|2024-03-04T08:30:00|2024-03-04T09:30:00"
    sacct += f"9|9|tk|{times}|COMPLETED|gres/gpu:a100=7,gres/gpu=7|1|n1|u\n"
    lists = {False: SINFO, True: SINFO.replace("n[1-2]|idle|idle|gpu:a100:4", "n[1-2]|idle|idle|gpu:a100:6")}
    for whole, sinfo in lists.items():
        trace = ingest(
            {"sacct.txt": sacct, "sinfo": sinfo.replace("\nn1|idle|idle|gpu:a100:4", "\nn1|idle|idle|gpu:a100:6")}
        )
        placed = {r["node_id"]: r.get("gpu_count") for r in rows(trace, "placements") if r["job_id"] == "tk/7"}
        assert placed == ({"n1": 6.0, "n2": 6.0} if whole else {"n1": None, "n2": None})
