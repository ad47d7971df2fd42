"""Batsim, Blox, OpenDC and Alibaba's simulators: their files, read with the plainest means."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from tracekit.errors import UsageError
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_batsim_has_jobs_and_a_profile_for_each_run_time(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "batsim", "small.json")
    workload = json.loads(path.read_text())
    first, *others = workload["jobs"]
    extra = json.loads(first.pop("extra_data"))
    assert first == {"id": "1", "subtime": 0.0, "res": 4, "profile": "100", "walltime": 3600.0}
    assert extra == {"job_id": "a", "cluster": "Earth", "vc": "red", "user": "ann", "gpu_model": "V100",
                     "cpu_count": 16.0, "memory_gib": 64.0}  # fmt: skip
    assert [(j["id"], j["subtime"], j["res"], j["profile"]) for j in others] == [
        ("2", 60.0, 8, "75"),
        ("3", 240.0, 1, "12"),
    ]
    assert workload["profiles"] == {str(s): {"type": "DelayProfile", "delay": s} for s in (12, 75, 100)}
    assert workload["nb_res"] == 12
    golden(done.log.notes)


def test_batsim_4_spells_profiles_and_extra_data_differently(small: Trace, run: Run) -> None:
    path, _ = run(small, "batsim", "small.json", version=4, walltimes="no", resources=64)
    workload = json.loads(path.read_text())
    assert workload["nb_res"] == 64
    job = {name: value for name, value in workload["jobs"][1].items() if value is not None}
    names = {"job_id": "b", "cluster": "Earth", "vc": "blue", "user": "bob"}
    assert job == {"id": "2", "subtime": 60.0, "res": 8, "profile": "75", **names}
    assert workload["profiles"]["75"] == {"type": "delay", "delay": 75}


def test_batsim_keeps_hostile_names_inside_their_text(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    name = '"}],\n"profiles": {} \u2028\\'
    jobs = [{"job_id": name, "user": name, "submit_time": "2020-01-01", "run_s": 5, "gpu_count": 1, "time_limit_s": 3}]
    path, done = run(make_trace(jobs=jobs), "batsim", "o.json")
    (job,) = json.loads(path.read_text())["jobs"]
    extra = json.loads(job["extra_data"])
    assert {k: v for k, v in extra.items() if v is not None} == {"job_id": name, "user": name}
    golden(done.log.notes)


def test_blox_reads_numbers_between_commas(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "blox", "small.trace", model="gnmt", seconds_per_iteration=0.5, sizes="any")
    assert path.read_text() == "0,gnmt,0.0,200,4\n1,gnmt,60.0,150,8\n2,gnmt,240.0,25,1\n"
    golden(done.log.notes)
    # The job of 8 GPUs stands for what no profile has; an iteration of res50 takes 0.78 s in Blox' profile.
    path, done = run(small, "blox", "own.trace")
    assert path.read_text() == "0,res50,0.0,128,4\n1,res50,240.0,16,1\n"
    assert (done.jobs, sum(done.log.left_out.values())) == (2, 5)
    left_out = [f"{jobs}: {why}" for why, jobs in done.log.left_out.items()]
    golden([*left_out, *done.log.settings], "without sizes that have no profile")


def test_blox_needs_a_size_that_has_a_profile(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "submit_time": "2020-01-01", "run_s": 5, "gpu_count": 8}])
    with pytest.raises(UsageError, match="no job can be exported"):
        export(trace, "blox", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_opendc_has_the_types_that_its_reader_wants(small: Trace, run: Run, golden: Golden) -> None:
    folder, done = run(small, "opendc", "small", cpu_mhz=1000, gpu_load=0.5)
    types = {f.name: (f.physical_type, f.max_definition_level) for f in pq.ParquetFile(folder / "tasks.parquet").schema}
    assert types == {
        "id": ("INT32", 0),
        "submission_time": ("INT64", 0),
        "duration": ("INT64", 0),
        "cpu_count": ("INT32", 0),
        "cpu_capacity": ("DOUBLE", 0),
        "mem_capacity": ("INT64", 0),
        "name": ("BYTE_ARRAY", 1),
        "gpu_count": ("INT32", 1),
        "gpu_capacity": ("DOUBLE", 1),
    }
    tasks = pl.read_parquet(folder / "tasks.parquet")
    assert tasks.drop("submission_time").rows() == [
        (1, 100_000, 16, 16_000.0, 68_719, "a", 4, 4_000.0),
        (2, 75_000, 1, 1_000.0, 0, "b", 8, 8_000.0),
        (3, 12_400, 1, 1_000.0, 0, "f", 1, 1_000.0),
    ]
    assert tasks["submission_time"].cast(pl.Int64).to_list() == [1585785600000 + ms for ms in (0, 60_000, 240_000)]
    assert pl.read_parquet(folder / "fragments.parquet").rows() == [
        (1, 100_000, 16_000.0, 2_000.0),
        (2, 75_000, 1_000.0, 4_000.0),
        (3, 12_400, 1_000.0, 500.0),
    ]
    golden(fill.sentence for fill in done.log.fills)


def test_pai_gets_instances_and_predictions_from_earlier_jobs(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    def job(n: int, user: str | None, group: str | None, run_s: float, gpus: float, **rest: Any) -> dict[str, Any]:
        times = {"submit_time": f"2020-01-01 00:00:{n:02}"}
        return {"job_id": f"j{n}", "user": user, "group": group, "run_s": run_s, "gpu_count": gpus, **times, **rest}

    jobs = [
        job(0, "u", "g", 10, 1, gpu_model="T4", cpu_count=6),
        job(1, "v", None, 40, 1, gpu_model="T4|P100"),
        job(2, "u", "g", 30, 8, instance_count=4, gpu_model="V100", cpu_count=6),
        job(3, "u", "h", 70, 1, node_count=2),
        job(4, None, None, 0.1, 0.25, gpu_model="T4"),
    ]
    path, done = run(make_trace(jobs=jobs), "alibaba-sim")
    found = rows(path)
    assert [tuple(r.values())[:9] for r in found] == [
        ("0", "u", "0", "10", "1", "1.0", "6.0", "T4", "g"),
        ("1", "v", "1", "40", "1", "1.0", "0.0", "MISC", "v"),
        ("2", "u", "2", "30", "4", "2.0", "1.5", "V100", "g"),
        ("3", "u", "3", "70", "2", "0.5", "0.0", "MISC", "h"),
        ("4", "unknown", "4", "1", "1", "0.25", "0.0", "T4", "unknown"),
    ]
    # Mean of the user's, the user's of as many GPUs, the group's, the group's of as many GPUs; else of all before.
    predicted = [tuple(r[c] for c in ("user_dur", "user_gpu_dur", "group_dur", "group_gpu_dur")) for r in found]
    assert predicted == [
        ("0.0", "0.0", "0.0", "0.0"),
        ("10.0", "10.0", "10.0", "10.0"),
        ("10.0", "25.0", "10.0", "25.0"),
        ("20.0", "10.0", "26.67", "26.67"),
        ("37.5", "37.5", "37.5", "37.5"),
    ]
    golden(done.log.sentences)


def test_openb_gets_pods_and_nodes(make_trace: Callable[..., Trace], run: Run, golden: Golden) -> None:
    jobs = [
        {"job_id": "a", "submit_time": "2020-01-01", "start_time": "2020-01-01 00:00:02", "run_s": 8, "gpu_count": 0.25,
         "end_time": "2020-01-01 00:00:10", "cpu_count": 1.5, "memory_gib": 2, "status": "completed",
         "gpu_model": "T4|P100", "preemptible": True},
        {"job_id": "b", "submit_time": "2020-01-01", "run_s": 8, "gpu_count": 2, "status": "cancelled"},
        {"job_id": "c", "submit_time": "2020-01-01", "run_s": 8, "gpu_count": 0, "cpu_count": 4},
    ]  # fmt: skip
    nodes = [
        {"node_id": "n2", "gpu_count": 8, "gpu_model": "G2", "cpu_count": 128, "memory_gib": 786},
        {"node_id": "n1", "gpu_count": 0},
        {"node_id": "n3", "gpu_count": 2},
    ]
    path, done = run(make_trace(jobs=jobs, nodes=nodes), "alibaba-sim", "pods.csv", layout="openb", jobs="all")
    assert path.read_text().splitlines() == [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "job-0000,1500,2048,1,250,T4|P100,BE,Succeeded,0,10,2",
        "job-0001,0,0,2,1000,,LS,Failed,0,,",
        "job-0002,4000,0,0,0,,LS,Running,0,,",
    ]
    assert path.with_name("pods.nodes.csv").read_text().splitlines() == [
        "sn,cpu_milli,memory_mib,gpu,model",
        "n1,96000,524288,0,",
        "n2,128000,804864,8,G2",
        "n3,96000,524288,2,V100M16",
    ]
    golden(done.log.notes)
    path, _ = run(make_trace(jobs=jobs), "alibaba-sim", "pods.csv", layout="openb", nodes=2, gpus_per_node=4)
    assert path.with_name("pods.nodes.csv").read_text().splitlines()[1:] == [
        "node-0000,96000,524288,4,V100M16",
        "node-0001,96000,524288,4,V100M16",
    ]


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("batsim", {"resources": "many"}),
        ("batsim", {"resources": "0"}),
        ("blox", {"seconds_per_iteration": "0"}),
        ("opendc", {"gpu_load": "1.5"}),
        ("opendc", {"cpus": "x"}),
        ("opendc", {"cpus": "1.5"}),
        ("alibaba-sim", {"cpus": "-1"}),
        ("alibaba-sim", {"node_cpus": "1e99"}),
        ("accasim", {"node_memory_gib": "much"}),
        ("accasim", {"nodes": "1.5"}),
    ],
)
def test_a_wrong_number_is_one_line(small: Trace, tmp_path: Path, target: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--option {next(iter(options))}: '"):
        export(small, target, tmp_path / "out", options=options)
    assert list(tmp_path.iterdir()) == []
