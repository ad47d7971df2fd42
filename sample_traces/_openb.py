"""Write the synthetic pod and node lists in the form of the Alibaba 2023 release, with their planted faults.

Shares of requests, phases and service classes follow Weng et al. (USENIX ATC 2023) and the released default list.
Times are whole seconds from the start of the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TRACE_END", "write_openb"]

TRACE_END = 12_902_960
"""Last second of the trace [s]; a pod deleted here was alive at the end."""
FIRST_SEEN = 9_960_000
PODS = 600
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"

REQUESTS = (((0, 0), 13.4), ((1, 1000), 48.0), ((1, 810), 13.2), ((1, 470), 9.2), ((1, 320), 4.0), ((1, 650), 3.1),
            ((1, 230), 1.7), ((1, 50), 0.6), ((2, 1000), 1.2), ((4, 1000), 1.0), ((8, 1000), 1.6))  # fmt: skip
"""(GPUs, thousandths of each) and weights; gangs are a little commoner than in the release."""
SHAPES = ((4000, 16384), (6000, 18432), (8000, 32768), (11400, 48128), (12000, 24576), (16000, 65536))
QOS = (("LS", 57.0), ("BE", 41.0), ("Burstable", 1.7), ("Guaranteed", 0.3))
PHASES = {
    "LS": (("Running", 83.0), ("Pending", 10.0), ("Failed", 4.0), ("Succeeded", 3.0)),
    "BE": (("Failed", 48.0), ("Running", 39.0), ("Pending", 13.0)),
    "Burstable": (("Failed", 40.0), ("Succeeded", 40.0), ("Running", 20.0)),
    "Guaranteed": (("Running", 1.0),),
}
WAIT: Table = ((0, 0), (0.4, 1), (0.5, 2), (0.9, 106), (0.95, 241), (0.99, 890), (1, 9000))
LIFE: Table = ((0, 5), (0.25, 150), (0.5, 616), (0.9, 7760), (0.99, 90_000), (1, 900_000))
SPECS = (("T4", 60.0), ("G2", 16.0), ("P100", 13.0), ("V100M16|V100M32", 7.0), ("G3", 4.0),
         ("P100|V100M16|V100M32", 5.0), ("V100M16|V100M32|V100M32", 3.0),
         ("A10|G2|T4|V100M16|V100M32", 2.0))  # fmt: skip
NODES = ((62, 64000, 262_144, 0, ""), (27, 64000, 262_144, 2, "P100"), (60, 96000, 524_288, 2, "T4"),
         (8, 96000, 393_216, 8, "G2"), (4, 128_000, 786_432, 8, "G3"), (6, 64000, 262_144, 4, "V100M16"),
         (4, 96000, 786_432, 8, "V100M32"), (1, 128_000, 1_048_576, 1, "A10"))  # fmt: skip
"""Number of nodes, CPU [milli], memory [MiB], GPUs and model."""

Pod = list[str]
SPEC, PHASE, CREATED, DELETED, SCHEDULED = 5, 7, 8, 9, 10
ALL = "alibaba-openb/openb_pod_list_default.csv"
GPUSPEC = "alibaba-openb/openb_pod_list_gpuspec33.csv"
MULTIGPU = "alibaba-openb/openb_pod_list_multigpu20.csv"


def write_openb(folder: Path, seed: int) -> list[Quirk]:
    """Write three pod lists and two node lists below `folder` and return what was planted."""
    draw = Draw(seed, "openb")
    pods = _pods(draw)
    quirks = _plant(pods)
    write_rows(folder / ALL, [HEADER, *_with_unusable(ALL, pods, quirks)])
    write_rows(folder / GPUSPEC, [HEADER, *_with_unusable(GPUSPEC, _with_specs(pods, draw, quirks), quirks)])
    write_rows(folder / MULTIGPU, _multigpu(draw, quirks))
    for name, nodes in (("all", NODES), ("gpu", NODES[1:])):
        file = f"alibaba-openb/openb_node_list_{name}_node.csv"
        write_rows(folder / file, [NODE_HEADER, *_nodes(nodes)])
    quirks.append(Quirk("alibaba-openb/openb_node_list_all_node.csv", "openb-node-0000 to openb-node-0061",
                        "blank-model", "no GPU, model is empty"))  # fmt: skip
    return quirks


def _pods(draw: Draw) -> list[Pod]:
    created = sorted(FIRST_SEEN + int(draw.share() * (TRACE_END - FIRST_SEEN - 5000)) for _ in range(PODS))
    created[:4] = [0, 427_000, 1_558_000, 2_690_000]  # survivors from the first weeks
    pods = [_pod(f"openb-pod-{number:04d}", time, draw) for number, time in enumerate(created)]
    for pod in pods[:4]:
        pod[PHASE], pod[SCHEDULED], pod[DELETED] = "Running", pod[CREATED], str(TRACE_END)
    return pods


def _pod(name: str, created: int, draw: Draw) -> Pod:
    gpus, milli = draw.weighted(REQUESTS)
    cpu, memory = draw.pick(SHAPES)
    qos = draw.weighted(QOS)
    phase = draw.weighted(PHASES[qos])
    scheduled = created + int(draw.quantile(WAIT))
    deleted = scheduled + int(draw.quantile(LIFE))
    if phase == "Pending":
        deleted = created + draw.between(20, 400)
    deleted = min(deleted, TRACE_END)
    start = "" if phase == "Pending" else str(min(scheduled, deleted))
    cells = [cpu * max(1, gpus // 2), memory, gpus, milli, "", qos, phase, created, deleted, start]
    return [name, *(str(cell) for cell in cells)]


def _plant(pods: list[Pod]) -> list[Quirk]:
    """Change pods of the default list in place and return what was done or found."""
    quirks: list[Quirk] = []

    def note(pod: Pod, kind: str, what: str) -> None:
        quirks.append(Quirk(ALL, pod[0], kind, what))

    ran = next(pod for pod in pods[100:] if pod[PHASE] == "Failed")
    ran[SCHEDULED] = ""
    note(ran, "never-scheduled", "phase Failed, yet scheduled_time is blank")
    pods[150][2] = "0"
    note(pods[150], "no-memory", "memory_mib is 0")
    note(next(pod for pod in pods if pod[PHASE] == "Pending"), "pending", "no scheduled_time but a deletion_time")
    for pod in pods:
        if pod[DELETED] == str(TRACE_END):
            note(pod, "alive-at-end", "deletion_time is the end of the trace")
    next(pod for pod in pods[500:] if pod[PHASE] == "Running")[6] = "Guaranteed"
    for qos in ("Burstable", "Guaranteed"):
        note(next(pod for pod in pods if pod[6] == qos), "rare-qos", f"qos {qos}")
    return quirks


def _with_specs(pods: list[Pod], draw: Draw, quirks: list[Quirk]) -> list[Pod]:
    """Return the pods with a GPU model demanded by about a third of those with a GPU."""
    result = [list(pod) for pod in pods]
    for pod in result:
        if pod[3] != "0" and draw.chance(0.33):
            pod[SPEC] = draw.weighted(SPECS)
    single = [pod for pod in result[100:] if pod[3] == "1"]
    single[0][SPEC], single[1][SPEC] = "V100M16|V100M32", "V100M16|V100M32|V100M32"
    for kind, what, spec in (
        ("model-list", "several models joined by |", "V100M16|V100M32"),
        ("repeated-model", "V100M32 twice in the list", "V100M16|V100M32|V100M32"),
    ):
        quirks.append(Quirk(GPUSPEC, next(pod[0] for pod in result if pod[SPEC] == spec), kind, what))
    return result


def _with_unusable(file: str, pods: list[Pod], quirks: list[Quirk]) -> list[str]:
    """Return the rows with three more that no reader can keep."""
    rows = [",".join(pod) for pod in pods]
    model = pods[300]
    bad = ["openb-pod-9001", *model[1:4], "half", *model[5:]]
    for place, row, record, kind, what in (
        (120, ",".join(bad), "openb-pod-9001", "unreadable-number", "gpu_milli is the word half"),
        (240, "," + ",".join(model[1:]), "line 242", "no-name", "name is empty"),
        (360, ",".join(["openb-pod-9002", *model[1:6]]), "openb-pod-9002", "few-fields", "six fields"),
    ):
        rows.insert(place, row)
        quirks.append(Quirk(file, record, kind, what, usable=False))
    return rows


def _multigpu(draw: Draw, quirks: list[Quirk]) -> list[str]:
    """Return a list of requests without times, where gangs hold a fifth of the GPUs."""
    requests = [(request, weight * (6 if request[0] > 1 else 1)) for request, weight in REQUESTS]
    rows = [",".join(HEADER.split(",")[:5])]
    for number in range(PODS):
        gpus, milli = draw.weighted(requests)
        cpu, memory = draw.pick(SHAPES)
        rows.append(f"openb-pod-{number:04d},{cpu},{memory},{gpus},{milli}")
    quirks.append(Quirk(MULTIGPU, "header", "five-columns", "no times, phases or classes in this list"))
    rows.insert(51, "openb-pod-9003,8000,32768,1")
    quirks.append(Quirk(MULTIGPU, "openb-pod-9003", "few-fields", "four fields", usable=False))
    return rows


def _nodes(groups: tuple[tuple[int, int, int, int, str], ...]) -> list[str]:
    shapes = [shape for count, *shape in groups for _ in range(count)]
    return [f"openb-node-{number:04d},{','.join(str(cell) for cell in shape)}" for number, shape in enumerate(shapes)]
