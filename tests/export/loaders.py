"""Requirements of each simulator's loader, written as schemas and short readers.

Each reader fails at input on which its loader would fail or that its loader would misread. It returns the jobs as the
loader sees them, with arrival, run time and number of processors. The targets name the sources of these rules.
"""

from __future__ import annotations

import ast
import csv
import datetime as dt
import itertools
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["LOADERS", "GavelJob", "Loaded", "read_cluster", "read_gavel", "read_throughputs", "read_tiresias"]

JobKind = tuple[str, int]


class Loaded(NamedTuple):
    """A job as a simulator sees it."""

    submit: float
    """Seconds since the first submission."""
    run: float
    """Seconds."""
    size: float
    """Number of GPUs or cores."""


class GavelJob(NamedTuple):
    kind: str
    steps: int
    scale: int
    weight: float
    arrival: float


def read_gavel(path: Path) -> list[GavelJob]:
    """Read ten fields per line: type, command, folder, argument, data flag, steps, scale, weight, SLO, arrival."""
    jobs = []
    for line in path.read_bytes().decode().split("\n")[:-1]:
        kind, command, folder, argument, data, steps, scale, weight, slo, arrival = line.split("\t")
        assert command
        assert folder
        assert argument.startswith("-")
        assert int(data) in (0, 1)
        assert int(scale) >= 1
        assert int(steps) >= 1
        assert float(slo) == -1
        jobs.append(GavelJob(kind, int(steps), int(scale), float(weight), float(arrival)))
    assert [j.arrival for j in jobs] == sorted(j.arrival for j in jobs)
    return jobs


def read_throughputs(path: Path) -> dict[str, dict[JobKind, dict[str | JobKind, Any]]]:
    """Read steps per second by GPU and (type, scale), alone ('null') or next to another (type, scale)."""
    return {
        worker: {
            ast.literal_eval(kind): {
                other if other == "null" else ast.literal_eval(other): rate for other, rate in rates.items()
            }
            for kind, rates in kinds.items()
        }
        for worker, kinds in json.loads(path.read_text()).items()
    }


def load_gavel(path: Path) -> list[Loaded]:
    """Load Gavel's jobs, which run for their steps divided by their type's throughput on as many GPUs."""
    rates = read_throughputs(path.with_name(f"{path.stem}.throughputs.json"))["v100"]
    return [Loaded(j.arrival, j.steps / rates[j.kind, j.scale]["null"], j.scale) for j in read_gavel(path)]


_TIRESIAS_MODELS = {
    "vgg19", "vgg16", "vgg11", "alexnet", "resnet50", "resnet101", "resnet152", "inception3", "inception4",
}  # fmt: skip


def read_tiresias(path: Path) -> list[dict[str, Any]]:
    """Read a job trace in CSV with one header line, whole numbers, and times in seconds from 0 on."""
    jobs: list[dict[str, Any]] = [
        {name: int(text) if text.isdigit() else text for name, text in row.items()} for row in _table(path)
    ]
    for job in jobs:
        assert job["model_name"] in _TIRESIAS_MODELS
        assert all(type(job[name]) is int for name in job if name != "model_name")
        assert job["num_gpu"] > 0
        assert job["duration"] > 0
    for job, following in itertools.pairwise(jobs):
        assert job["submit_time"] + job["interval"] == following["submit_time"]
    assert jobs[0]["submit_time"] == 0
    return jobs


def read_cluster(path: Path) -> dict[str, int]:
    """Read a cluster specification of Tiresias, which has one line below the header."""
    (row,) = _table(path)
    return {name: int(text) for name, text in row.items()}


def load_tiresias(path: Path) -> list[Loaded]:
    """Load Tiresias's jobs. A job with more GPUs than the cluster would wait forever."""
    jobs = read_tiresias(path)
    cluster = read_cluster(path.with_name(f"{path.stem}.cluster.csv"))
    gpus = cluster["num_switch"] * cluster["num_node_p_switch"] * cluster["num_gpu_p_node"]
    assert max(job["num_gpu"] for job in jobs) <= gpus
    return [Loaded(job["submit_time"], job["duration"], job["num_gpu"]) for job in jobs]


_NUMBER = re.compile(r"-?[0-9]+")
_TEXT_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _swf_lines(path: Path) -> list[list[float]]:
    """Read lines of 18 numbers, where lines that begin with a semicolon are comments."""
    rows = []
    for line in path.read_text().splitlines():
        if line.startswith(";"):
            assert re.fullmatch(r"; ?.*", line)
            continue
        fields = line.split()
        assert len(fields) == 18
        assert all(_TEXT_NUMBER.fullmatch(field) for field in fields)
        rows.append([float(field) for field in fields])
    assert len({row[0] for row in rows}) == len(rows)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert all(value >= -1 for row in rows for value in row)
    assert all(row[10] in (-1, 0, 1, 2, 3, 4, 5) for row in rows)
    return rows


def load_swf(path: Path) -> list[Loaded]:
    """Load SWF: submission (field 2), run time (4), processors allocated (5) and requested (8), or -1 if unknown."""
    rows = _swf_lines(path)
    return [Loaded(row[1] - rows[0][1], row[3], row[4] if row[4] > 0 else row[7]) for row in rows]


def load_accasim(path: Path) -> list[Loaded]:
    """Load AccaSim's jobs: whole numbers, known requests for processors and memory, and a system that fits each job."""
    assert all(_NUMBER.fullmatch(f) for line in path.read_text().splitlines() if line[0] != ";" for f in line.split())
    system = json.loads(path.with_suffix(".config").read_text())
    assert set(system) == {"system_name", "equivalence", "groups", "resources"}
    assert system["groups"].keys() == system["resources"].keys()
    for group in system["groups"].values():
        assert set(group) == set(system["equivalence"]["processor"]) | {"mem"}
    rows = _swf_lines(path)
    assert all(row[7] > 0 and row[9] >= 0 for row in rows)
    assert max(row[7] for row in rows) <= sum(
        group["core"] * system["resources"][kind] for kind, group in system["groups"].items()
    )
    return [Loaded(row[1], row[3], row[7]) for row in rows]


_POSITIVE = {"type": "integer", "minimum": 1}
_BATSIM = {
    "type": "object",
    "required": ["nb_res", "jobs", "profiles"],
    "properties": {
        "nb_res": _POSITIVE,
        "jobs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "subtime", "res", "profile"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[^!]+$"},
                    "subtime": {"type": "number", "minimum": 0},
                    "res": _POSITIVE,
                    "walltime": {"type": "number", "exclusiveMinimum": 0},
                    "profile": {"type": "string"},
                    "extra_data": {"type": "string"},
                },
                "additionalProperties": False,
            },
        },
        "profiles": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["type", "delay"],
                "properties": {"type": {"const": "DelayProfile"}, "delay": {"type": "number", "exclusiveMinimum": 0}},
                "additionalProperties": False,
            },
        },
    },
}


def load_batsim(path: Path) -> list[Loaded]:
    """Load Batsim's jobs: every profile exists, ids are distinct, and no job needs more than the platform has."""
    workload = json.loads(path.read_text())
    jsonschema.Draft202012Validator(_BATSIM).validate(workload)
    jobs = workload["jobs"]
    assert len({job["id"] for job in jobs}) == len(jobs)
    assert {job["profile"] for job in jobs} == set(workload["profiles"])
    assert max(job["res"] for job in jobs) <= workload["nb_res"]
    return [Loaded(j["subtime"], workload["profiles"][j["profile"]]["delay"], j["res"]) for j in jobs]


_BLOX_ITERATION_S = 0.78
"""Values of res50 in Blox's profiles."""


def load_blox(path: Path) -> list[Loaded]:
    """Load Blox's jobs: no header, five values per line, and a profile for each number of GPUs."""
    jobs = []
    for number, line in enumerate(path.read_text().splitlines()):
        job, model, arrival, iterations, gpus = line.split(",")
        assert int(job) == number
        assert model == "res50"
        assert int(gpus) in (1, 2, 4, 12, 16)
        jobs.append(Loaded(float(arrival), int(iterations) * _BLOX_ITERATION_S, int(gpus)))
    return jobs


_HELIOS_STATES = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "UNKNOWN", "",
}  # fmt: skip


def load_helios(folder: Path) -> list[Loaded]:
    """Load Helios's jobs: GPU jobs since April 2020 by submission, and VCs with whole 8-GPU nodes on each day."""
    begin = dt.datetime(2020, 4, 1)
    jobs = []
    for log in sorted(folder.glob("*/cluster_log.csv")):
        days = _table(log.with_name("cluster_gpu_number.csv"))
        assert [day["date"] for day in days] == sorted({day["date"] for day in days})
        dates = {day["date"] for day in days}
        numbers = set()
        for row in _table(log):
            assert row["state"] in _HELIOS_STATES
            assert row["vc"] in days[0]
            numbers.add(int(row["job_id"]))
            int(row["cpu_num"] or 0)
            submitted = dt.datetime.strptime(row["submit_time"], "%Y-%m-%d %H:%M:%S")
            assert submitted >= begin
            assert row["submit_time"][:10] in dates
            nodes = max(int(day[row["vc"]]) for day in days) // 8
            assert int(row["gpu_num"]) <= nodes * 8
            jobs.append(((submitted - begin).total_seconds(), int(row["duration"]), int(row["gpu_num"])))
        assert len(numbers) == len(_table(log))
    first = min(job[0] for job in jobs)
    return sorted(Loaded(submit - first, run, size) for submit, run, size in jobs)


def load_pai(path: Path) -> list[Loaded]:
    """Load PAI's jobs from columns that its reader converts to numbers, with GPUs counted per instance."""
    jobs = []
    for number, row in enumerate(_table(path)):
        assert int(row["job_id"]) == number
        assert row["gpu_type"]
        assert row["group"]
        assert row["user"]
        instances = int(row["num_inst"])
        assert instances >= 1
        assert int(row["duration"]) >= 1
        for name in ("num_cpu", "wait_time", "user_dur", "user_gpu_dur", "group_dur", "group_gpu_dur"):
            assert float(row[name]) >= 0
        jobs.append(Loaded(int(row["submit_time"]), int(row["duration"]), float(row["num_gpu"]) * instances))
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    return jobs


def _arrow(name: str, kind: pa.DataType, *, required: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=not required)


_OPENDC_TASKS = pa.schema(
    [
        _arrow("id", pa.int32()),
        _arrow("submission_time", pa.timestamp("ms", tz="UTC")),
        _arrow("duration", pa.int64()),
        _arrow("cpu_count", pa.int32()),
        _arrow("cpu_capacity", pa.float64()),
        _arrow("mem_capacity", pa.int64()),
        _arrow("name", pa.string(), required=False),
        _arrow("gpu_count", pa.int32(), required=False),
        _arrow("gpu_capacity", pa.float64(), required=False),
    ]
)
_OPENDC_FRAGMENTS = pa.schema(
    [
        _arrow("id", pa.int32()),
        _arrow("duration", pa.int64()),
        _arrow("cpu_usage", pa.float64()),
        _arrow("gpu_usage", pa.float64(), required=False),
    ]
)


def load_opendc(folder: Path) -> list[Loaded]:
    """Load OpenDC's tasks: its schemas' types, fragments as long as their task, and no request above the capacity."""
    assert pq.read_schema(folder / "tasks.parquet").equals(_OPENDC_TASKS)
    assert pq.read_schema(folder / "fragments.parquet").equals(_OPENDC_FRAGMENTS)
    tasks = pq.read_table(folder / "tasks.parquet").to_pylist()
    used = {f["id"]: f for f in pq.read_table(folder / "fragments.parquet").to_pylist()}
    assert set(used) == {task["id"] for task in tasks}
    first = min(task["submission_time"] for task in tasks)
    jobs = []
    for task in tasks:
        part = used[task["id"]]
        assert part["duration"] == task["duration"] > 0
        assert 0 < part["cpu_usage"] <= task["cpu_capacity"]
        assert 0 <= part["gpu_usage"] <= task["gpu_capacity"]
        submit = (task["submission_time"] - first).total_seconds()
        jobs.append(Loaded(submit, task["duration"] / 1000, task["gpu_count"]))
    return jobs


def load_csv(path: Path) -> list[Loaded]:
    """Load our own table: GPU jobs with known run times, and a mapping that names existing columns."""
    rows = _table(path)
    mapping = tomllib.loads(path.with_name(f"{path.stem}.map.toml").read_text())
    named = {c if isinstance(c, str) else c["column"] for c in mapping["jobs"]["columns"].values()}
    assert named <= set(rows[0])
    found = [
        Loaded(_seconds(row["submit_time"]), float(row["run_s"]), float(row["gpu_count"]))
        for row in rows
        if row["submit_time"] and row["run_s"]
        if float(row["gpu_count"] or 0) > 0 and row["status"] not in ("running", "pending")
    ]
    first = min(job.submit for job in found)
    return [job._replace(submit=job.submit - first) for job in found]


def _seconds(time: str) -> float:
    """Return a date as seconds since 1970, or the seconds in a log without dates."""
    return float(time) if _TEXT_NUMBER.fullmatch(time) else dt.datetime.fromisoformat(time).timestamp()


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


LOADERS: dict[str, Callable[[Path], list[Loaded]]] = {
    "swf": load_swf,
    "batsim": load_batsim,
    "accasim": load_accasim,
    "gavel": load_gavel,
    "tiresias": load_tiresias,
    "blox": load_blox,
    "helios": load_helios,
    "alibaba-sim": load_pai,
    "opendc": load_opendc,
    "csv": load_csv,
}
