"""Garbage in an optional cell changes no other cell.

Small files are damaged cell by cell: the first cell always, every one in the nightly run. The second tier reads one
file with a copy of the record for every cell and each piece of garbage.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    Tables = dict[str, list[dict[str, Any]]]

TABLES = ("jobs", "attempts", "placements", "nodes", "node_events", "job_usage")
GARBAGE_TEXT = ("?", "1e999")
GARBAGE_JSON: tuple[Any, ...] = ("?", [{}], -1e300)
PLACES = {"placements", "nodes", "node_count", "gpu_count", "cpu_count"}
"""Tables and columns that a list of nodes fills, or the lack of one changes."""


ID = "4242"
"""In the ids and node names of a record that can be copied; a copy has a number of its own in its place."""


class Text(NamedTuple):
    """A text file whose cells stand between braces, and what each optional one may change: columns, or whole tables."""

    text: str
    cells: dict[str, tuple[str, set[str]]]
    beside: dict[str, str] = {}  # noqa: RUF012 -- never changed
    format: str | None = None
    mapping: str = ""

    def files(self, cell: str | None = None, garbage: str = "") -> dict[str, str]:
        """Return the file, whole or with a damaged cell."""
        return self.beside | {"log": self._filled(self.text, cell, garbage)}

    def _filled(self, text: str, cell: str | None, garbage: str) -> str:
        values = {name: value for name, (value, _) in self.cells.items()}
        for name, value in (values | ({cell: garbage} if cell else {})).items():
            text = text.replace("{" + name + "}", value)
        return text

    def copies(self, damages: list[tuple[str | None, Any]]) -> dict[str, str]:
        """Return a file with a copy of the record for each damage."""
        lines = self.text.splitlines(keepends=True)
        record = next(line for line in lines if ID in line)
        damaged = (self._filled(record, *damage).replace(ID, numbered(n)) for n, damage in enumerate(damages))
        return {"log": "".join("".join(damaged) if line == record else line for line in lines)}


class Json(NamedTuple):
    """A JSON document, and what the values at some paths may change."""

    value: Any
    cells: dict[str, set[str]]
    name: str = "log.json"
    beside: dict[str, str] = {}  # noqa: RUF012 -- never changed
    format: str | None = None
    mapping: str = ""

    def files(self, cell: str | None = None, garbage: Any = "") -> dict[str, str]:
        """Return the file, whole or with a damaged value."""
        value = copy.deepcopy(self.value)
        if cell:
            *path, last = (int(key) if key.isdigit() else key.replace("~", "/") for key in cell.split("/"))
            place = value
            for key in path:
                place = place[key]
            place[last] = garbage
        return self.beside | {self.name: json.dumps(value, indent=1)}

    def copies(self, damages: list[tuple[str | None, Any]]) -> dict[str, str]:
        """Return a document with a copy of the record for each damage."""
        key = next(iter(self.cells)).partition("/")[0]
        records: list[Any] = []
        for number, damage in enumerate(damages):
            one = json.loads(self.files(*damage)[self.name].replace(ID, numbered(number)))
            records += one if key == "0" else one[key]
        whole = records if key == "0" else self.value | {key: records}
        return {self.name: json.dumps(whole, indent=1)}


def numbered(copy: int) -> str:
    """Return what a copy of the record has in the place of ID."""
    return str(int(ID) * 10_000 + copy)


SACCT = """JobID|JobIDRaw|Cluster|Submit|Start|End|State|AllocTRES|NNodes|NodeList|User|Timelimit|Priority
4242|4242|tk|2024-03-04T08:00:00|2024-03-04T08:00:10|2024-03-04T09:00:10|COMPLETED|{tres}|{nnodes}|{list}|u|{limit}|{priority}
8|8|tk|2024-03-04T08:00:00|2024-03-04T08:00:10|2024-03-04T10:00:10|COMPLETED|gres/gpu:a100=2,gres/gpu=2|1|n3|u|01:00:00|5
"""
WHOLE_SACCT = {"sacct.txt": SACCT.replace("{tres}", "gres/gpu=6").replace("{nnodes}", "2").replace("{list}", "n[1-2]")
               .replace("{limit}", "01:00:00").replace("{priority}", "7")}  # fmt: skip
AT = 1_700_000_000
POD = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "p-4242", "namespace": "ml", "uid": "4242-p", "creationTimestamp": "2024-03-04T10:00:00Z",
                 "labels": {"user": "ann", "kueue.x-k8s.io/queue-name": "q"}},
    "spec": {"nodeName": "n4242", "priority": 5, "activeDeadlineSeconds": 60, "priorityClassName": "high",
             "containers": [
                 {"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "4", "memory": "16Gi"}}}]},
    "status": {"phase": "Failed", "reason": "OOMKilled", "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-03-04T10:01:00Z"}],
        "containerStatuses": [
            {"state": {"terminated": {"finishedAt": "2024-03-04T11:00:00Z", "reason": "OOMKilled"}}}]},
}  # fmt: skip
LOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
    "metadata": {"name": "w-4242", "namespace": "ml", "uid": "x-4242", "creationTimestamp": "2024-03-04T10:00:00Z"},
    "spec": {"queueName": "q", "priority": 5, "priorityClassName": "high", "maximumExecutionTimeSeconds": 60,
             "podSets": [
        {"count": 2, "template": {"spec": {"containers": [{"resources": {"requests": {
            "nvidia.com/gpu": "2", "cpu": "4", "memory": "16Gi"}}}]}}}]},
    "status": {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2024-03-04T10:01:00Z"},
                              {"type": "Finished", "status": "True", "lastTransitionTime": "2024-03-04T11:01:00Z",
                               "reason": "Succeeded", "message": "done"}]},
}  # fmt: skip
ITEM, SPEC = "items/0/", "items/0/spec/"
CONTAINER = f"{SPEC}containers/0/resources/"
TEMPLATE = f"{SPEC}podSets/0/template/spec/containers/0/resources/requests/"
STATUS = {"status", "source_status"}
FLUX = [{
    "id": 4242,
    "eventlog": [{"timestamp": AT + at, "name": name, "context": context} for at, name, context in (
        (0, "submit", {"userid": 5}), (60, "alloc", {}), (660, "finish", {"status": 0}))],
    "R": {"execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0-1"}}], "nodelist": ["n4242-[0-1]"]}},
    "jobspec": {"attributes": {"system": {"duration": 60.0, "queue": "q", "bank": "b", "job": {"name": "x"}}}},
}]  # fmt: skip
NODE = {
    "kind": "Node",
    "metadata": {"name": "n4242", "labels": {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"}},
    "spec": {},
    "status": {"capacity": {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "4"}},
}
SLURM_NODE = {
    "name": "n1",
    "state": ["IDLE"],
    "gres": "gpu:a100:4",
    "cpus": 32,
    "real_memory": 512000,
    "cluster_name": "tk",
}
MAP = """
[source]
records = "jobs"
time_format = "epoch_s"
[jobs.columns]
job_id = { columns = ["cluster", "proc"] }
start_time = "start"
end_time = "end"
gpu_count = { expression = "nodes * gpus(queue)" }
gpu_model = { column = "queue", lookup = "models" }
cpu_count = { column = "ads.0.cpus", default = 1 }
time_limit_s = { column = "limit", unit = "min", missing = "0" }
user = { columns = ["first", "last"], separator = " " }
[lookup.gpus]
values = { "full-*" = 8, "one" = 1 }
[lookup.models]
values = { "full-a" = "A100" }
"""
MAPPED = {"jobs": [{"cluster": 4242, "proc": 0, "start": AT, "end": AT + 60, "nodes": 2, "queue": "full-a", "limit": 10,
                    "ads": [{"cpus": 4}], "first": "a", "last": "b"}]}  # fmt: skip

CASES: dict[str, Text | Json] = {
    "slurm": Text(
        SACCT,
        {
            "tres": ("gres/gpu=6", {"gpu_count", "gpu_model", "nodes", "placements"}),
            "nnodes": ("2", {"node_count"}),
            "list": ("n4242-[1-2]", PLACES),
            "limit": ("01:00:00", {"time_limit_s"}),
            "priority": ("7", {"priority"}),
        },
    ),
    "pbs": Text(
        f"03/04/2024 11:01:00;E;4242.srv;user=ann queue=gpu ctime={AT} etime={{etime}} start={AT + 60} end={AT + 660} "
        "exec_vnode={vnode} Resource_List.select={select} Resource_List.walltime={walltime} Resource_List.mem={mem} "
        "Exit_status={exit} resources_used.cput={cput} resources_used.mem={used}\n",
        {
            "etime": (str(AT + 1), {"eligible_time"}),
            "vnode": ("(n4242:ncpus=8:ngpus=2)", PLACES | {"gpu_model"}),
            "select": ("1:ncpus=8:ngpus=2", PLACES),
            "walltime": ("01:00:00", {"time_limit_s"}),
            "mem": ("16gb", {"memory_gib"}),
            "exit": ("0", STATUS),
            "cput": ("00:10:00", {"cpu_s"}),
            "used": ("1gb", {"memory_gib"}),
        },
    ),
    "bjobs": Json(
        {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{
            "JOBID": "4242", "STAT": "DONE", "QUEUE": "q", "USER": "u", "JOB_NAME": "x", "PROJ_NAME": "p",
            "SUBMIT_TIME": "Apr 12 17:00:00 2026", "START_TIME": "Apr 12 17:01:00 2026",
            "FINISH_TIME": "Apr 12 18:01:00 2026", "EXEC_HOST": "2*h4242", "GPU_NUM": "2", "GPU_ALLOC": "h4242:0,1",
            "EFFECTIVE_RESREQ": "rusage[ngpus_physical=2.00/host]"}]},
        {
            "RECORDS/0/QUEUE": {"vc", "partition"},
            "RECORDS/0/USER": {"user"},
            "RECORDS/0/JOB_NAME": {"name"},
            "RECORDS/0/PROJ_NAME": {"account"},
            "RECORDS/0/GPU_NUM": {"gpu_count"},
            "RECORDS/0/EXEC_HOST": PLACES,
            "RECORDS/0/EFFECTIVE_RESREQ": {"gpu_count"},
        },
    ),
    "pods": Json(
        {"apiVersion": "v1", "kind": "List", "items": [POD]},
        {
            f"{ITEM}metadata/labels/kueue.x-k8s.io~queue-name": {"partition"},
            f"{SPEC}nodeName": {"placements", "nodes", "node_count"},
            f"{SPEC}priority": {"priority"},
            f"{SPEC}activeDeadlineSeconds": {"time_limit_s"},
            f"{SPEC}priorityClassName": {"qos"},
            f"{CONTAINER}limits/nvidia.com~gpu": {"gpu_count", "nodes"},
            f"{CONTAINER}requests/cpu": {"cpu_count"},
            f"{CONTAINER}requests/memory": {"memory_gib"},
            f"{ITEM}status/reason": STATUS,
            f"{ITEM}status/containerStatuses/0/state/terminated/reason": STATUS,
        },
    ),
    "workloads": Json(
        {"apiVersion": "v1", "kind": "List", "items": [LOAD]},
        {
            f"{SPEC}queueName": {"partition"},
            f"{SPEC}priority": {"priority"},
            f"{SPEC}priorityClassName": {"qos"},
            f"{SPEC}maximumExecutionTimeSeconds": {"time_limit_s"},
            f"{SPEC}podSets/0/count": {"gpu_count", "cpu_count", "memory_gib", "instance_count"},
            f"{TEMPLATE}nvidia.com~gpu": {"gpu_count"},
            f"{TEMPLATE}cpu": {"cpu_count"},
            f"{TEMPLATE}memory": {"memory_gib"},
            f"{ITEM}status/conditions/1/reason": STATUS,
            f"{ITEM}status/conditions/1/message": set(),
        },
    ),
    "philly": Json(
        [{"status": "Pass", "vc": "v", "jobid": "app_4242", "user": "u", "submitted_time": "2017-10-03 00:00:00",
          "attempts": [{"start_time": "2017-10-03 00:01:00", "end_time": "2017-10-03 01:01:00",
                        "detail": [{"ip": "m4242", "gpus": ["gpu0", "gpu3"]}]}]}],
        {
            "0/vc": {"vc"},
            "0/user": {"user"},
            "0/status": STATUS,
            "0/attempts/0/detail": PLACES,
            "0/attempts/0/detail/0": PLACES,
            "0/attempts/0/detail/0/ip": PLACES,
            "0/attempts/0/detail/0/gpus": PLACES,
            "0/attempts/0/detail/0/gpus/1": PLACES,
        },
        name="cluster_job_log",
    ),
    "flux": Json(
        FLUX,
        {
            "0/R": PLACES,
            "0/R/execution/R_lite/0/rank": PLACES,
            "0/R/execution/R_lite/0/children/gpu": PLACES,
            "0/R/execution/nodelist/0": PLACES,
            "0/jobspec": {"vc", "account", "partition", "name", "time_limit_s"},
            "0/jobspec/attributes/system/duration": {"time_limit_s"},
            "0/jobspec/attributes/system/bank": {"vc", "account"},
            "0/jobspec/attributes/system/queue": {"partition"},
            "0/jobspec/attributes/system/job/name": {"name"},
            "0/eventlog/0/context": {"user"},
            "0/eventlog/2/context/status": STATUS,
        },
    ),
    "mapping": Json(
        MAPPED,
        {
            "jobs/0/nodes": {"gpu_count"},
            "jobs/0/queue": {"gpu_count", "gpu_model"},
            "jobs/0/limit": {"time_limit_s"},
            "jobs/0/ads/0/cpus": {"cpu_count"},
            "jobs/0/ads": {"cpu_count"},
            "jobs/0/first": {"user"},
        },
        format="csv",
        mapping=MAP,
    ),
    "scontrol": Text(
        "NodeName=n0 CPUTot=8\n   RealMemory=1024\n   State=IDLE\n\n"
        "NodeName=n1 CPUTot={cpus}\n   Gres={gres}\n   RealMemory={memory}\n   State=DOWN\n   CfgTRES={tres}\n"
        "   Reason=Xid 79 [root@{since}]\n",
        {
            "cpus": ("32", {"cpu_count"}),
            "gres": ("gpu:a100:4", {"gpu_count", "gpu_model", "source"}),
            "memory": ("512000", {"memory_gib"}),
            "tres": ("cpu=32,gres/gpu=4", set()),
            "since": ("2024-03-04T09:05:00", {"node_events"}),
        },
        beside=WHOLE_SACCT,
    ),
    "sinfo": Text(
        "NODELIST|STATE|GRES|CPUS|MEMORY|REASON|TIMESTAMP\nn1|drained|{gres}|{cpus}|{memory}|fan|{since}\n",
        {
            "gres": ("gpu:a100:4", {"gpu_count", "gpu_model", "source"}),
            "cpus": ("32", {"cpu_count"}),
            "memory": ("512000", {"memory_gib"}),
            "since": ("2024-03-04T07:00:00", {"node_events"}),
        },
        beside=WHOLE_SACCT,
    ),
    "slurm nodes": Json(
        {"nodes": [SLURM_NODE]},
        {
            "nodes/0/gres": {"gpu_count", "gpu_model", "source"},
            "nodes/0/cpus": {"cpu_count"},
            "nodes/0/real_memory": {"memory_gib"},
        },
        beside=WHOLE_SACCT,
    ),
    "kubernetes nodes": Json(
        {"kind": "NodeList", "items": [NODE]},
        {
            "items/0/status/capacity/cpu": {"cpu_count"},
            "items/0/status/capacity/memory": {"memory_gib"},
            "items/0/status/capacity/nvidia.com~gpu": {"gpu_count", "gpu_model", "source"},
            "items/0/metadata/labels/nvidia.com~gpu.memory": {"gpu_memory_gib"},
        },
        name="nodes.json",
        beside={"pods.json": json.dumps({"kind": "List", "items": [POD]})},
    ),
}  # fmt: skip


BESIDE = [name for name, case in CASES.items() if case.beside]
"""Lists of nodes beside a log, which says the same of all its jobs: these are damaged cell by cell."""


@pytest.mark.parametrize(
    ("name", "most", "ways"),
    [
        *(pytest.param(name, 1, 1, id=f"{name}-one cell") for name in CASES),
        *(
            pytest.param(
                name, 99, 9, id=f"{name}-every cell", marks=pytest.mark.thorough if name in BESIDE else pytest.mark.slow
            )
            for name in CASES
        ),
    ],
)
def test_garbage_in_an_optional_cell_of_a_file_changes_no_other(
    name: str, most: int, ways: int, tmp_path: Path, ingest: Ingest, rows: Rows
) -> None:
    case = CASES[name]
    options = options_of(case, tmp_path)
    whole = ingest(case.files(), **options)
    tables = {table: rows(whole, table) for table in TABLES}
    for cell, changes in list(may_change(case).items())[:most]:
        before = shown(tables, changes)
        assert any(before.values())
        for value in garbage(case)[:ways]:
            trace = ingest(case.files(cell, value), **options)
            assert rows(trace, "rejects") == [], (cell, value)
            assert shown({table: rows(trace, table) for table in TABLES}, changes) == before, (cell, value)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in CASES if name not in BESIDE])
def test_garbage_in_an_optional_cell_of_a_record_changes_no_other(
    name: str, tmp_path: Path, ingest: Ingest, rows: Rows
) -> None:
    case = CASES[name]
    changes = may_change(case)
    damages = [(None, ""), *((cell, value) for cell in changes for value in garbage(case))]
    trace = ingest(case.copies(damages), **options_of(case, tmp_path))
    assert rows(trace, "rejects") == []
    tables = {table: rows(trace, table) for table in TABLES}
    whole, *damaged = (copied(tables, number) for number in range(len(damages)))
    for (cell, value), found in zip(damages[1:], damaged, strict=True):
        assert cell is not None
        before = shown(whole, changes[cell])
        assert any(before.values())
        assert shown(found, changes[cell]) == before, (cell, value)


def options_of(case: Text | Json, folder: Path) -> dict[str, Any]:
    """Return the arguments of the ingest; a mapping is written to the folder."""
    options: dict[str, Any] = {"format_name": case.format} if case.format else {}
    if case.mapping:
        (folder / "map.toml").write_text(case.mapping)
        options["options"] = {"map": str(folder / "map.toml")}
    return options


def garbage(case: Text | Json) -> tuple[Any, ...]:
    return GARBAGE_JSON if isinstance(case, Json) else GARBAGE_TEXT


def may_change(case: Text | Json) -> dict[str, set[str]]:
    """Return what each optional cell may change."""
    cells: dict[str, Any] = case.cells
    return {cell: found if isinstance(found, set) else found[1] for cell, found in cells.items()}


def copied(tables: Tables, number: int) -> Tables:
    """Return the rows that a copy of the record gives, as the record itself would give them."""
    own = numbered(number)
    return {
        table: [json.loads(text.replace(own, ID)) for text in map(json.dumps, some) if own in text]
        for table, some in tables.items()
    }


def shown(tables: Tables, changes: set[str]) -> Tables:
    """Return the rows of all tables without the tables and columns that may change."""
    return {
        table: [{key: value for key, value in row.items() if key not in changes} for row in some]
        for table, some in tables.items()
        if table not in changes
    }
