"""Devices in logs: parts of GPUs are parts, and what nobody knows makes the count unknown. Values worked by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tracekit.cli.options import pairs
from tracekit.errors import UsageError
from tracekit.gpu_parts import Part, cards, part_of_gpu, shares
from tracekit.ingest import ingest_logs
from tracekit.ingest.devices import device_factors, is_extended_device, is_gres_device
from tracekit.ingest.formats import _slurm_cells as slurm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

Json = dict[str, Any]

HEAD = "JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList|SubmitLine\n"
HOUR = "2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T09:00:00|COMPLETED"


def sacct(*jobs: tuple[str, str] | tuple[str, str, str]) -> str:
    """Return a dump of jobs of one hour, each with its AllocTRES, its node and its command."""
    lines = (f"{n}|{HOUR}|cpu=1,{tres},node=1|1|{node}|{' '.join(cmd)}" for n, (tres, node, *cmd) in enumerate(jobs, 1))
    return HEAD + "\n".join(lines) + "\n"


def test_a_profile_that_represents_several_parts_is_not_a_row_of_the_table_of_queries() -> None:
    found = shares()
    assert (found["1g.10gb"], found["3g.40gb"], found["2g.12gb"]) == (1 / 7, 3 / 7, 2 / 4)
    assert not found.keys() & {"1g.16gb", "1g.24gb", "2g.48gb"}
    assert all(
        part_of_gpu(name) == (share, part.memory) for name, share in found.items() if (part := part_of_gpu(name))
    )


@pytest.mark.parametrize(
    ("name", "compute", "memory"),
    [
        ("h100", 1, 1),
        ("nvidia_a100_80gb_pcie", 1, 1),
        ("1g.10gb", 1 / 7, 1 / 8),
        ("1g.10gb+me", 1 / 7, 1 / 8),
        ("nvidia_a100_80gb_pcie_2g.20gb", 2 / 7, 2 / 8),
        ("h200_3g.71gb", 3 / 7, 4 / 8),
        ("mig-1g.20gb", 1 / 7, 2 / 8),  # one compute slice with the memory of two
        ("a100-4g-40gb", 4 / 7, 4 / 8),
        ("7g.80gb", 1, 1),
        ("a30_2g.12gb", 2 / 4, 2 / 4),
        ("h100_1g.24gb", 1 / 7, 2 / 8),
        ("gh200_1g.24gb", 1 / 7, 2 / 8),
        ("rtx_pro_6000_1g.24gb", 1 / 4, 1 / 4),
        ("rtx_pro_6000_1g.24gb+gfx", 1 / 4, 1 / 4),
        ("rtx_pro_6000_2g.48gb", 2 / 4, 2 / 4),
        ("rtx_pro_5000_1g.24gb", 1 / 2, 1 / 2),
        ("rtx_pro_5000_2g.48gb", 1, 1),
        ("rtx_pro_4500_1g.16gb", 1 / 2, 1 / 2),
        ("h100_1g.16gb", 1 / 7, 2 / 8),  # the H100 with 64 GB
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.10gb", 1 / 7, 2 / 8),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 1 / 7, 1 / 8),
        ("a100_1g.10gb", 1 / 7, 1 / 8),  # either: the smaller memory
        ("NVIDIA-H200-NVL-MIG-1g.35gb", 1 / 7, 2 / 8),
        ("gb300_1g.35gb", 1 / 7, 1 / 8),
        ("1g.35gb", 1 / 7, 1 / 8),
        ("gb300_7g.278gb", 1, 1),
        ("b300_3g.135gb", 3 / 7, 4 / 8),
        ("gb200_1g.23gb", 1 / 7, 1 / 8),
        ("gb200_4g.93gb", 4 / 7, 4 / 8),
        ("gb200_7g.189gb", 1, 1),  # by early drivers
        ("gb200_1g.24gb", 1 / 7, 1 / 8),
        ("thor_2g.0gb", 2 / 3, 2 / 3),
        ("NVIDIA-GH200-144G-HBM3e-MIG-1g.36gb", 1 / 7, 2 / 8),
    ],
)
def test_a_profile_is_a_part_of_its_gpu(name: str, compute: float, memory: float) -> None:
    assert part_of_gpu(name) == pytest.approx(Part(compute, memory))


@pytest.mark.parametrize("name", ["5g.10gb", "1g.99gb", "mig-1g.24gb", "2g.48gb", "b200_1g.16gb"])
def test_a_profile_that_may_be_several_parts_or_none_is_unknown(name: str) -> None:
    assert part_of_gpu(name) is None


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ([], 0),
        ([(56, "1g.10gb")], 8),
        ([(7, "1g.10gb"), (2, "3g.40gb")], 2),
        ([(16, "3g.40gb")], 8),  # 16 * 3/7 = 6.9 by compute, but two fill the memory of a card
        ([(4, "h100"), (1, "1g.10gb")], 5),
    ],
)
def test_parts_need_the_fewest_cards_that_hold_them(parts: list[tuple[int, str]], count: int) -> None:
    assert cards((n, part_of_gpu(name) or Part(0, 0)) for n, name in parts) == count


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["h100", "1g.10gb", "1g.20gb", "3g.40gb", "7g.80gb"]))))
def test_cards_hold_all_that_their_parts_count(listed: list[tuple[int, str]]) -> None:
    parts = [(n, part_of_gpu(name) or Part(0, 0)) for n, name in listed]
    assert cards(parts) >= sum(n * part.compute for n, part in parts) - 1e-6
    assert cards(parts) <= sum(n for n, _ in parts)


@pytest.mark.parametrize(
    ("text", "gpus", "cards_", "model", "devices"),
    [
        ("gres/gpu:1g.10gb=1,gres/gpu=1", 1 / 7, 1, "1g.10gb", None),
        ("gres/gpu:a100_3g.40gb=2,gres/gpu=2", 6 / 7, 1, "a100_3g.40gb", None),
        ("gres/gpu:1g.10gb=7,gres/gpu=9", 3.0, 3, "1g.10gb", None),  # two more without a type
        ("gres/gpu:1g.10gb=2,gres/gpu=1", 1 / 7, 1, "1g.10gb", None),  # gres/gpu counts where they differ
        ("gres/gpu:7g.33gb=1,gres/gpu=1", None, None, None, "gpu:7g.33gb"),
        ("gres/npu:910b=8,gres/npu=8", None, None, None, "npu"),
        ("gres/gpu=2,gres/fpga=1", None, None, None, "fpga"),
        ("gres/npu=0,gres/gpu=2", 2.0, 2, None, None),
        ("gres/craynetwork=1,gres/tmpdisk=100G,license/ansys=2,gres/lscratch=50,gres/nvme=1", 0.0, 0, None, None),
        ("gres/shard=2", 0.0, 0, None, None),
    ],
)
def test_tres(text: str, gpus: float | None, cards_: int | None, model: str | None, devices: str | None) -> None:
    found = slurm.tres(text)
    assert found.gpus == pytest.approx(gpus)
    assert (found.cards, found.model, found.devices) == (cards_, model, devices)


@pytest.mark.parametrize(
    ("text", "gpus", "model", "devices"),
    [
        ("gpu:1g.10gb:7,gpu:a100_3g.40gb:2", 1 + 6 / 7, "1g.10gb|a100_3g.40gb", None),
        ("gpu:a100:4(S:0-1),lscratch:900", 4.0, "a100", None),
        ("npu:910b:8", None, None, "npu"),
        ("gpu:2,mps:50", 2.0, None, None),
        ("shard:4", None, None, "shard"),
        ("7565421:50", None, None, "mps"),
        ("(null)", 0.0, None, None),
        ("gpu:no_consume:2", 2.0, None, None),
    ],
)
def test_gres(text: str, gpus: float | None, model: str | None, devices: str | None) -> None:
    found = slurm.gres(text)
    assert found.gpus == pytest.approx(gpus)
    assert (found.model, found.devices) == (model, devices)


def test_a_factor_counts_a_device() -> None:
    factors = device_factors("npu, gpu:vgpu=0.25 ,gres/fpga=0")
    held = slurm.tres("gres/npu:910b=8,gres/npu=8,gres/fpga=1", factors)
    assert (held.gpus, held.cards, held.model, held.devices) == (8.0, 8.0, "910b", None)
    assert slurm.tres("gres/gpu:vgpu=2,gres/gpu=2", factors).gpus == 0.5
    assert slurm.gres("npu:4", factors).gpus == 4.0
    assert slurm.request("sbatch --gres=npu:4 x.sh", factors) == (4.0, None, None)


@pytest.mark.parametrize("text", ["npu=", "=1", "npu=-1", "npu=many", "npu=9999"])
def test_a_factor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--option gpu_resource: .*give NAME or NAME=FACTOR"):
        device_factors(text)


def test_the_option_may_be_given_several_times() -> None:
    given_ = ["gpu_resource=npu=1", "vc=qos", "gpu_resource=a.com/b"]
    assert pairs(given_, "--option") == {"gpu_resource": "npu=1,a.com/b", "vc": "qos"}
    with pytest.raises(UsageError, match="'vc' is given twice"):
        pairs(["vc=qos", "vc=account"], "--option")


@pytest.mark.parametrize("kind", ["npu", "dcu", "hpu", "mlu", "gcu", "fpga", "ve", "gpu_mem", "vram", "neuron"])
def test_what_may_be_an_accelerator(kind: str) -> None:
    assert is_gres_device(kind)


@pytest.mark.parametrize("name", ["cpu", "memory", "hugepages-2Mi", "rdma/hca_shared", "vpc.amazonaws.com/efa"])
def test_what_is_not_an_accelerator(name: str) -> None:
    assert not is_extended_device(name)


def test_slices_of_a_node_are_its_cards(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    nodes = (
        "NodeName=m1 CPUTot=8 RealMemory=1024 State=IDLE Gres=gpu:1g.10gb:56\n"
        "NodeName=m2 CPUTot=8 RealMemory=1024 State=IDLE Gres=gpu:2 CfgTRES=cpu=8,gres/gpu:a100_3g.40gb=2,gres/gpu=2\n"
        "NodeName=n1 CPUTot=8 RealMemory=1024 State=IDLE Gres=gpu:h100:4,nvme:1\n"
        "NodeName=o1 CPUTot=8 RealMemory=1024 State=IDLE Gres=npu:8\n"
    )
    jobs = sacct(("gres/gpu:1g.10gb=2,gres/gpu=2", "m1"), ("gres/gpu:1g.10gb=7,gres/gpu=7", "m1"), ("gres/gpu=1", "n1"))
    trace = ingest({"sacct.txt": jobs, "nodes.txt": nodes})
    assert [row["gpu_count"] for row in rows(trace, "jobs")] == pytest.approx([2 / 7, 1.0, 1.0])
    assert {row["node_id"]: row.get("gpu_count") for row in rows(trace, "nodes")} == {
        "m1": 8, "m2": 1, "n1": 4, "o1": None,
    }  # fmt: skip
    assert found_checks(trace) == {"unknown_devices_of_machines": (1, None)}
    alone = ingest({"sacct.txt": jobs})
    assert {row["node_id"]: row["gpu_count"] for row in rows(alone, "nodes")} == {"m1": 2, "n1": 1}


def test_slices_that_samples_show_are_parts_without_indices(ingest: Ingest, rows: Rows) -> None:
    sample = (
        "# 2024-03-04T08:30:00\nJobId=1 JobName=x\n   UserId=u(1) GroupId=u(1) StartTime=2024-03-04T08:00:00\n"
        "   Nodes=m1 CPU_IDs=0 Mem=0 GRES=gpu:a100_3g.40gb:1(IDX:5)\n   Command=x\n"
    )
    trace = ingest({"sacct.txt": sacct(("gres/gpu:a100_3g.40gb=1,gres/gpu=1", "m1")), "polls": sample})
    (place,) = rows(trace, "placements")
    assert place["gpu_count"] == pytest.approx(3 / 7)
    assert "gpu_index" not in place


def test_devices_that_nobody_knows_make_the_count_unknown(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    source = {
        "sacct.txt": sacct(
            ("gres/npu:910b=8,gres/npu=8", "n1"),
            ("gres/hpu=8", "h1"),
            ("mem=1G", "c1"),
            ("mem=1G", "c1", "sbatch --gres=dcu:4 x.sh"),  # AccountingStorageTRES lacks gres/dcu
            ("gres/gpu=2", "g1", "sbatch --gres=gpu:2,dcu:1 x.sh"),
            ("mem=1G", "c1", "sbatch --gres=lscratch:4 x.sh"),
        )
    }
    trace = ingest(source)
    assert [row.get("gpu_count") for row in rows(trace, "jobs")] == [None, None, 0.0, None, 2.0, 0.0]
    assert found_checks(trace) == {"unknown_devices_of_jobs": (3, 6)}
    (note,) = [note for note in trace.manifest.notes if "unknown devices of jobs" in note]
    assert "npu (1), hpu (1), dcu (1)" in note
    counted = ingest(source, options={"gpu_resource": "npu,hpu=1,dcu=0.5"})
    assert [row.get("gpu_count") for row in rows(counted, "jobs")] == [8.0, 8.0, 0.0, None, 2.0, 0.0]


def pod(name: str, limits: Json | None = None, *, team: str = "a", notes: Json | None = None, **spec: Any) -> Json:
    """Return a pod that ran from 8 to 12 o'clock on n1."""
    first, last = "2024-03-04T08:00:00Z", "2024-03-04T12:00:00Z"
    meta = {"name": name, "namespace": team, "uid": f"u-{name}", "creationTimestamp": first, "annotations": notes or {}}
    status = {
        "phase": "Succeeded",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": first}],
        "containerStatuses": [{"state": {"terminated": {"finishedAt": last, "exitCode": 0}}}],
    }
    containers = [{"name": "main", "resources": {"limits": limits or {}}}]
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "n1", "containers": containers, **spec},
        "status": status,
    }


def listed(*objects: Json) -> str:
    return json.dumps({"kind": "List", "items": list(objects)})


PODS: list[tuple[Json, float | None]] = [
    (pod("cpu", {"cpu": "4", "rdma/hca": 1, "hugepages-2Mi": "1Gi"}), 0.0),
    (pod("gpu", {"nvidia.com/gpu": "2"}), 2.0),
    (pod("mig", {"nvidia.com/mig-3g.40gb.me": "1"}), 3 / 7),
    (pod("odd-mig", {"nvidia.com/mig-3g.99gb": "1"}), None),
    (pod("single", {"nvidia.com/gpu": 2}, nodeSelector={"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}), 2 / 7),
    (pod("renamed", {"nvidia.com/a100-80gb": "4"}), None),
    (pod("ascend", {"huawei.com/Ascend910": "8"}), None),
    (pod("none", {"google.com/tpu": "0"}), 0.0),
    (pod("hami", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}), None),
    (pod("volcano", {"volcano.sh/vgpu-number": "2"}), None),
    (pod("shared", {"nvidia.com/gpu.shared": "1"}), None),
    (pod("claim", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "four"}]), None),
    (pod("half", notes={"gpu-fraction": "0.5"}), 0.5),
    (pod("halves", notes={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"}), 1.5),
    (pod("odd-half", notes={"gpu-fraction": "much"}), None),
    (pod("memory", notes={"gpu-memory": "4000"}), None),
]


def test_what_pods_of_other_devices_hold(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"pods.json": listed(*(held for held, _ in PODS))})
    found = {row["name"]: row.get("gpu_count") for row in rows(trace, "jobs")}
    assert found == {held["metadata"]["name"]: pytest.approx(gpus) for held, gpus in PODS}
    unknown = sum(gpus is None for _, gpus in PODS)
    assert found_checks(trace) == {"unknown_devices_of_pods": (unknown, len(PODS))}
    assert any("huawei.com/Ascend910 (1)" in note for note in trace.manifest.notes)


def test_devices_of_pods_that_the_option_counts(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    said = "huawei.com/ascend910,resourceclaim/four=4,volcano.sh/vgpu-number=0.25,nvidia.com/gpumem=0"
    chosen = [held for held, _ in PODS if held["metadata"]["name"] in {"ascend", "claim", "volcano", "hami"}]
    trace = ingest({"pods.json": listed(*chosen)}, options={"gpu_resource": said})
    assert {row["name"]: row["gpu_count"] for row in rows(trace, "jobs")} == {
        "ascend": 8.0, "hami": 1.0, "volcano": 0.5, "claim": 4.0,
    }  # fmt: skip
    assert found_checks(trace) == {}


def test_a_fraction_belongs_to_the_pod_that_asked_for_it(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(
        {
            "pods.json": listed(
                pod("x", team="a", notes={"gpu-fraction": "0.5"}),
                pod("y", team="b", notes={"gpu-fraction": "0.25"}),
                pod("gpu-reservation-n1", {"nvidia.com/gpu": 1}, team="kai-resource-reservation"),
                pod("runai-reservation-gpu", {"nvidia.com/gpu": 1}, team="runai-reservation"),
            )
        }
    )
    assert {row["vc"]: row["gpu_count"] for row in rows(trace, "jobs")} == {"a": 0.5, "b": 0.25}
    assert found_checks(trace) == {"reservation_pods": (2, 4)}


def node(name: str, capacity: Json, **labels: str) -> Json:
    meta = {"name": name, "labels": {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}}
    return {"kind": "Node", "metadata": meta, "status": {"capacity": {"cpu": "8", "rdma/hca": 9, **capacity}}}


def test_the_cards_of_nodes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    nodes = [
        node("mixed", {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"}),
        node("mixed-all", {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"}, count="8"),
        node("mixed-whole", {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"}, count="4"),
        node("single", {"nvidia.com/gpu": "56"}, product="A100-SXM4-80GB-MIG-1g.10gb", count="56"),
        node("sliced", {"nvidia.com/gpu": "32"}, count="8"),
        node("amd", {"amd.com/gpu": "8"}),
        node("cpu", {}),
        node("ascend", {"huawei.com/Ascend910": "8"}),
        node("volcano", {"volcano.sh/vgpu-number": "80"}, count="8"),
    ]
    trace = ingest({"pods.json": listed(pod("x", {"nvidia.com/gpu": 1})), "nodes.json": listed(*nodes)})
    assert {row["node_id"]: row.get("gpu_count") for row in rows(trace, "nodes") if row["node_id"] != "n1"} == {
        "mixed": 8, "mixed-all": 8, "mixed-whole": 8, "single": 8, "sliced": 8, "amd": 8, "cpu": 0, "ascend": None,
        "volcano": 8,
    }  # fmt: skip
    assert found_checks(trace)["unknown_devices_of_machines"] == (1, None)


NAMES = st.from_regex(r"[a-z]{2,12}", fullmatch=True)


def is_device(name: str) -> bool:
    """Return whether a name may be that of a device, which nothing else has."""
    return name != "gpu" and is_gres_device(name) and is_extended_device(f"{name}.example/{name}")


DEVICES = st.tuples(NAMES.filter(is_device), st.integers(1, 16))


@tried(1, 4, devices=st.lists(DEVICES, min_size=4, max_size=8))
def test_devices_under_unknown_names_are_unknown_everywhere(
    tmp_path_factory: pytest.TempPathFactory, devices: list[tuple[str, int]]
) -> None:
    """Each has a job on a machine of its own, and beside it stands a job of as many GPUs on a machine with GPUs."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "slurm").mkdir()
    known = [("gpu", amount) for _, amount in devices]
    nodes = [(f"{kind}{i}", *one) for kind, all_ in (("a", devices), ("b", known)) for i, one in enumerate(all_)]
    jobs = sacct(*((f"gres/{name}={amount}", node) for node, name, amount in nodes))
    (folder / "slurm" / "sacct.txt").write_text(jobs)
    listing = (f"NodeName={node} CPUTot=8 RealMemory=1024 State=IDLE Gres={name}:{n}\n" for node, name, n in nodes)
    (folder / "slurm" / "nodes.txt").write_text("".join(listing))
    slurm_trace = ingest_logs(folder / "slurm", folder / "trace")
    expected = [(name, None if name != "gpu" else amount) for _, name, amount in nodes]
    keys = {"jobs": "job_id", "attempts": "job_id", "placements": "node_id", "nodes": "node_id"}
    for table, key in keys.items():
        found = slurm_trace.scan(table).collect().sort(pl.col(key).str.len_chars(), key)
        assert [(name, n) for (_, name, _), n in zip(nodes, found["gpu_count"], strict=True)] == expected, table
    pods = [pod(f"x{i}", {f"{name}.example/{name}": str(amount)}) for i, (name, amount) in enumerate(devices)]
    (folder / "pods.json").write_text(listed(*pods))
    trace = ingest_logs(folder / "pods.json", folder / "pods")
    for table in ("jobs", "attempts", "placements"):
        found = trace.scan(table).collect().sort("job_id")
        assert [(name, n) for (name, _), n in zip(devices, found["gpu_count"], strict=True)] == [
            (name, None) for name, _ in devices
        ], table
