"""Write synthetic inference instances in the form of the Alibaba 2025 release, with their planted faults.

Shares of roles, blanks and delays follow the description of the release. Times are seconds from the start of the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_dlrm"]

FILE = "alibaba-dlrm/disaggregated_DLRM_trace.csv"
INSTANCES = 300
APPS = 12
WINDOW = 31 * 86_400
HEADER = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time"
)
SHAPES = {"CN": ((30, 2, 150), (45, 2, 225), (60, 30, 300)), "HN": ((14, 30, 112), (18, 30, 144), (28, 90, 224))}
"""CPU [cores], RDMA [percent] and memory [GiB] by role."""
DELAY: Table = ((0, 0), (0.8, 0), (0.9, 20), (0.99, 5000), (1, 200_000))
LIFE: Table = ((0, 600), (0.5, 90_000), (1, 1_200_000))
ROLE, GPU_LIMIT, LIMIT, CREATED, SCHEDULED, DELETED = 1, 6, 13, 14, 15, 16

Instance = list[str]


def write_dlrm(folder: Path, seed: int) -> list[Quirk]:
    """Write the instances below `folder` and return what was planted."""
    draw = Draw(seed, "dlrm")
    instances = [_instance(f"instance_{number}", draw) for number in range(INSTANCES)]
    quirks = _plant(instances)
    write_rows(folder / FILE, [HEADER, *_with_unusable(instances, quirks)])
    return quirks


def _instance(name: str, draw: Draw) -> Instance:
    role = draw.weighted((("CN", 0.69), ("HN", 0.31)))
    cpu, rdma, memory = draw.pick(SHAPES[role])
    gpus = int(role == "HN")
    disk = draw.pick((300, 512, 560))
    limit = draw.weighted(((-1, 0.5), (2, 0.28), (3, 0.15), (6, 0.07)))
    cells: list[object] = [cpu, cpu, gpus, gpus, rdma, rdma, f"{memory}.0", f"{memory}.0", f"{disk}.0", "700.0", limit]
    before, alive = draw.chance(0.3), draw.chance(0.37)
    created = draw.between(0, WINDOW - 300_000)
    scheduled = created + int(draw.quantile(DELAY))
    deleted = draw.between(1, WINDOW) if before else min(scheduled + int(draw.quantile(LIFE)), WINDOW)
    times = ["" if before else f"{created}.0", "" if before else f"{scheduled}.0", "" if alive else f"{deleted}.0"]
    return [name, role, f"app_{draw.between(0, APPS - 1)}", *(str(cell) for cell in cells), *times]


def _plant(instances: list[Instance]) -> list[Quirk]:
    """Change instances in place and return what was done or found."""
    quirks: list[Quirk] = []

    def note(instance: Instance, kind: str, what: str) -> None:
        quirks.append(Quirk(FILE, instance[0], kind, what))

    blanks = [(not i[CREATED], not i[DELETED]) for i in instances]
    for pattern, kind, what in (
        ((True, False), "before-the-trace", "no creation_time and no scheduled_time"),
        ((False, True), "alive-at-end", "no deletion_time"),
        ((True, True), "no-times", "all three times are blank"),
    ):
        note(instances[blanks.index(pattern)], kind, what)
    whole = [i for i in instances if i[CREATED] and i[DELETED]]
    whole[0][CREATED], whole[0][SCHEDULED] = "812345.0000000001", "812345.0000000001"
    whole[0][DELETED] = "1812345.0000000002"
    note(whole[0], "noisy-digits", "times that are not quite whole seconds")
    whole[1][CREATED], whole[1][SCHEDULED], whole[1][DELETED] = "100000.0", "338116.0", "900000.0"
    note(whole[1], "long-delay", "waits 238116 s")
    whole[2][SCHEDULED] = ""
    note(whole[2], "never-scheduled", "deleted, but never scheduled")
    whole[3][CREATED] = ""
    note(whole[3], "no-creation", "scheduled, but never created")
    whole[4][GPU_LIMIT] = "2"
    note(whole[4], "limit-differs", "gpu_limit is not gpu_request")
    whole[5][ROLE] = "XN"
    note(whole[5], "unknown-role", "role is neither CN nor HN")
    whole[6][ROLE] = "HN" if whole[6][ROLE] == "CN" else "CN"
    note(whole[6], "role-against-gpus", "role does not fit the GPUs")
    note(next(i for i in instances if i[LIMIT] == "-1"), "no-limit", "max_instance_per_node is -1")
    return quirks


def _with_unusable(instances: list[Instance], quirks: list[Quirk]) -> list[str]:
    """Return the rows with three more that no reader can keep."""
    rows = [",".join(instance) for instance in instances]
    model = instances[50]
    for place, row, record, kind, what in (
        (60, ",".join(["instance_9001", *model[1:3], "many", *model[4:]]), "instance_9001", "unreadable-number",
         "cpu_request is the word many"),
        (120, ",".join(["instance_9002", *model[1:9]]), "instance_9002", "few-fields", "nine fields"),
        (180, rows[40], instances[40][0], "repeated-name", "the same instance again"),
    ):  # fmt: skip
        rows.insert(place, row)
        quirks.append(Quirk(FILE, record, kind, what, usable=False))
    return rows
