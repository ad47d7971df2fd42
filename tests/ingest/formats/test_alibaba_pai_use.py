"""PAI: what becomes of its sensor, group tag and machine metric tables."""

from __future__ import annotations

import csv
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tracekit import schema
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

# One job with two workers and a parameter server, and a second job that nobody measures.
SOURCE = {
    "pai_job_table.csv": "j1,a1,u1,Terminated,1000.0,1700.0\nj2,a2,u2,Terminated,1500.0,1700.0\n",
    "pai_task_table.csv": (
        "j1,worker,2.0,Terminated,1000.0,1700.0,600.0,32.0,50.0,T4\n"
        "j1,ps,1.0,Terminated,1000.0,1700.0,200.0,8.0,,\n"
        "j2,tensorflow,1.0,Terminated,1500.0,1700.0,600.0,32.0,100.0,P100\n"
    ),
    "pai_instance_table.csv": (
        "j1,worker,i1,w1,a1,Terminated,1010.0,1700.0,m1\n"
        "j1,worker,i2,w2,a1,Terminated,1010.0,1700.0,m2\n"
        "j1,ps,i3,w3,a1,Terminated,1010.0,1700.0,m1\n"
        "j2,tensorflow,i4,w4,a2,Terminated,1510.0,1700.0,m1\n"
    ),
}
SENSOR = (
    "j1,ps,w3,a1,m1,,250.5,,4.5,9,,,1,2,3,4\n"
    "j1,worker,w2,a1,m2,/dev/nvidia0,140.0,16.0625,1.5,2.5,1.25,2.5,21.5,16.5,2.5,3.5\n"
    "j1,worker,w1,a1,m1,/dev/nvidia1,100.0,0.0,2.0,2.5,0.5,2.5,,,,\n"
)
USES = [
    {"task": "ps", "instance": "i3", "node_id": "m1", "cpu_pct": 250.5, "memory_gib": 4.5},
    {
        "task": "worker",
        "instance": "i2",
        "node_id": "m2",
        "gpu_util_pct": 16.0625,
        "gpu_memory_gib": 1.25,
        "cpu_pct": 140.0,
        "memory_gib": 1.5,
    },
    {
        "task": "worker",
        "instance": "i1",
        "node_id": "m1",
        "gpu_util_pct": 0.0,
        "gpu_memory_gib": 0.5,
        "cpu_pct": 100.0,
        "memory_gib": 2.0,
    },
]
TAGS = "a2,u2,,g7,\na1,u1,T4,g7,bert\n"
METRIC_END = "0.5,2.0,10.0,87.5,18.0,1000.5,5.5"


def metric(machine: str, start: str, cpu: str, *, end: str = "1700", worker: str = "w1") -> str:
    return f"{worker},{machine},{start},{end},{METRIC_END},{cpu}\n"


def with_sensor(sensor: str = SENSOR, **changed: str) -> dict[str, str]:
    return SOURCE | {"pai_sensor_table.csv": sensor} | {f"{name}.csv": text for name, text in changed.items()}


def tagged(tags: str) -> dict[str, str]:
    return SOURCE | {"pai_group_tag_table.csv": tags}


def account(trace: Trace, name: str) -> tuple[int, int, int]:
    """Return (records, kept, rejected) of one file, after comparing them with each other and the rejects table."""
    (found,) = (f for f in trace.manifest.files if f.path == name)
    assert found.records == found.kept + found.rejected
    return found.records, found.kept, found.rejected


def test_each_measured_use_is_a_row_with_the_name_of_its_instance(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(with_sensor())
    assert rows(trace, "job_usage") == [{"job_id": "j1"} | use for use in USES]
    assert found_checks(trace) == {}
    assert account(trace, "pai_sensor_table.csv") == (3, 3, 0)
    assert (
        "pai_sensor_table.csv: ignored columns: inst_id, gpu_name, max_mem, "
        "max_gpu_wrk_mem, read, write, read_count, write_count"
    ) in trace.manifest.notes


def test_measured_use_belongs_to_the_task_where_tasks_are_jobs(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    sensor = SENSOR + "j1,evaluator,w5,a1,m1,,1.0,,1.0,1.0,,,,,,\n"
    trace = ingest(with_sensor(sensor), options={"unit": "task"})
    assert rows(trace, "job_usage") == [{"job_id": f"j1/{use['task']}"} | use for use in USES]
    assert found_checks(trace) == {"sensor_rows_without_job": (1, 4), "sensor_rows_without_instance": (1, 4)}


def test_a_use_whose_job_is_absent_is_counted_and_kept_out(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(with_sensor("j9,worker,w9,a9,m1,,1.0,,1.0,1.0,,,,,,\n" + SENSOR))
    assert rows(trace, "job_usage") == [{"job_id": "j1"} | use for use in USES]
    assert found_checks(trace) == {"sensor_rows_without_job": (1, 4), "sensor_rows_without_instance": (1, 4)}
    assert account(trace, "pai_sensor_table.csv") == (4, 4, 0)


def test_when_no_use_has_a_job_there_is_no_table(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(with_sensor("j9,worker,w9,a9,m1,,1.0,,1.0,1.0,,,,,,\n"))
    assert not trace.has("job_usage")
    assert found_checks(trace)["sensor_rows_without_job"] == (1, 1)


def test_a_worker_that_the_instance_table_lacks_has_no_instance(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    sensor = "j1,worker,w8,a1,m1,,1.0,,1.0,1.0,,,,,,\nj1,worker,w4,a1,m1,,2.0,,1.0,1.0,,,,,,\n"
    trace = ingest(with_sensor(sensor))
    assert rows(trace, "job_usage") == [
        {"job_id": "j1", "task": "worker", "node_id": "m1", "cpu_pct": 1.0, "memory_gib": 1.0},
        {"job_id": "j1", "task": "worker", "node_id": "m1", "cpu_pct": 2.0, "memory_gib": 1.0},
    ]
    assert found_checks(trace) == {"sensor_rows_without_instance": (2, 2)}


def test_of_a_retried_worker_the_use_names_the_last_try(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    again = SOURCE["pai_instance_table.csv"] + "j1,worker,i0,w1,a1,Failed,1005.0,1009.0,m3\n"
    trace = ingest(with_sensor(SENSOR.splitlines(keepends=True)[2], pai_instance_table=again))
    assert rows(trace, "job_usage") == [{"job_id": "j1"} | USES[2]]
    assert found_checks(trace) == {"superseded_instance_rows": (1, 5)}


def test_two_uses_of_a_worker_are_both_kept(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    other = "j1,worker,w1,a1,m9,/dev/nvidia1,100.0,50.0,2.0,2.5,-0.5,2.5,,,,\n"
    trace = ingest(with_sensor(SENSOR + other))
    assert rows(trace, "job_usage")[3] == {"job_id": "j1"} | USES[2] | {
        "node_id": "m9",
        "gpu_util_pct": 50.0,
        "gpu_memory_gib": -0.5,
    }
    assert found_checks(trace) == {
        "repeated_sensor_rows": (1, 4),
        "sensor_machine_disagrees": (1, 4),
        "sensor_values_below_zero": (1, 4),
    }


def test_without_an_instance_table_measured_use_has_no_instances(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    files = with_sensor()
    del files["pai_instance_table.csv"]
    trace = ingest(files)
    expected = [{"job_id": "j1"} | {k: v for k, v in use.items() if k != "instance"} for use in USES]
    assert rows(trace, "job_usage") == expected
    assert "sensor_rows_without_instance" not in trace.manifest.checks


@pytest.mark.parametrize(("unit", "first"), [("job", "j1"), ("task", "j1/ps")])
def test_measured_use_alone_stands_under_its_own_names(ingest: Ingest, rows: Rows, unit: str, first: str) -> None:
    trace = ingest({"pai_sensor_table.csv": SENSOR}, options={"unit": unit})
    assert trace.tables == ("job_usage",)
    assert rows(trace, "job_usage")[0] == {
        "job_id": first,
        "task": "ps",
        "node_id": "m1",
        "cpu_pct": 250.5,
        "memory_gib": 4.5,
    }
    assert len(rows(trace, "job_usage")) == 3


def test_an_unusable_use_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    bad: list[tuple[str, str | None, str]] = [
        ("j1,worker,,a1,m1,,1.0,,1.0,1.0,,,,,,", "worker_name", "is missing"),
        ("j1,worker", None, "expected 16 fields, found 2"),
    ]
    source = with_sensor(SENSOR + "".join(f"{line}\n" for line, *_ in bad))
    trace = ingest(source, max_reject_share=0.9)
    found = sorted(rows(trace, "rejects"), key=lambda reject: reject["line"])
    for number, (reject, (line, column, reason)) in enumerate(zip(found, bad, strict=True), 4):
        assert (reject["source_file"], reject["line"], reject.get("column"), reject["raw"]) == (
            "pai_sensor_table.csv",
            number,
            column,
            line,
        )
        assert reason in reject["reason"]
    assert account(trace, "pai_sensor_table.csv") == (5, 3, 2)


def test_a_group_tag_gives_group_and_name(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(tagged(TAGS))
    assert [(j["job_id"], j["group"], j.get("name"), j.get("workload")) for j in rows(trace, "jobs")] == [
        ("j1", "g7", "bert", None),
        ("j2", "g7", None, None),
    ]
    assert found_checks(trace) == {}
    assert account(trace, "pai_group_tag_table.csv") == (2, 2, 0)
    assert any(
        note.endswith("they are used as the job's name, which the source does not record")
        for note in trace.manifest.notes
    )


def test_every_task_of_a_tagged_job_has_its_group(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tagged("a1,u1,,g7,inference\n"), options={"unit": "task"})
    assert [(j["job_id"], j.get("group"), j["name"], j.get("workload")) for j in rows(trace, "jobs")] == [
        ("j1/ps", "g7", "ps", "inference"),
        ("j1/worker", "g7", "worker", "inference"),
        ("j2/tensorflow", None, "tensorflow", None),
    ]
    assert any(note.endswith("with unit=task they are not used") for note in trace.manifest.notes)


def test_workload_is_known_only_where_the_tag_is_a_common_word(ingest: Ingest, rows: Rows) -> None:
    workloads = {"training": "training", "inference": "inference", "other": "other", "Inference": None, "ctr": None}
    tags = "".join(f"a{n},u1,,g7,{tag}\n" for n, tag in enumerate(workloads, 1))
    jobs = "".join(f"j{n},a{n},u1,Running,1000.0,\n" for n in range(1, 6))
    trace = ingest(tagged(tags) | {"pai_job_table.csv": jobs})
    assert {job["name"]: job.get("workload") for job in rows(trace, "jobs")} == workloads


def test_a_job_without_a_tag_has_no_group(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tagged("a1,u1,,,bert\n"))
    assert [j.get("group") for j in rows(trace, "jobs")] == [None, None]
    assert [j["user"] for j in rows(trace, "jobs")] == ["u1", "u2"]


def test_jobs_of_one_alias_share_its_tag(ingest: Ingest, rows: Rows) -> None:
    job = "j1,a1,u1,Running,1000.0,\nj2,a1,u1,Running,1500.0,\nj3,,u1,Running,1600.0,\n"
    trace = ingest(tagged(TAGS) | {"pai_job_table.csv": job})
    assert [(j["job_id"], j.get("group")) for j in rows(trace, "jobs")] == [("j1", "g7"), ("j2", "g7"), ("j3", None)]


def test_group_tags_that_contradict_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(tagged("a1,u9,P100,g1,\na9,u9,,g2,\na1,u1,T4,g3,nmt\na1,u1,T4,g4,\n"))
    assert [(j["job_id"], j["user"], j.get("group"), j.get("gpu_model")) for j in rows(trace, "jobs")] == [
        ("j1", "u1", "g1", "T4"),
        ("j2", "u2", None, "P100"),
    ]
    # j1/ps holds no GPU, so only j1/worker runs on another type than the tag says.
    assert found_checks(trace) == {
        "group_tags_without_job": (1, 2),
        "repeated_group_tags": (2, 4),
        "group_tag_user_disagrees": (1, 2),
        "gpu_type_spec_disagrees": (1, 3),
    }
    assert trace.manifest.checks["gpu_type_spec_disagrees"].examples == ["j1/worker"]


def test_a_tag_without_alias_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(tagged(TAGS + ",u1,,g7,ctr\n"))
    assert [(r["line"], r["column"]) for r in rows(trace, "rejects")] == [(3, "inst_id")]
    assert account(trace, "pai_group_tag_table.csv") == (3, 2, 1)


def test_tables_that_need_jobs_are_counted_and_said_without_them(ingest: Ingest) -> None:
    trace = ingest({"pai_group_tag_table.csv": TAGS, "pai_machine_spec.csv": "m1,T4,96,512,2\n"})
    assert trace.tables == ("nodes",)
    assert account(trace, "pai_group_tag_table.csv") == (2, 2, 0)
    assert "pai_job_table is missing, so pai_group_tag_table is checked but adds no jobs" in (trace.manifest.notes)


def test_each_interval_of_machine_use_is_a_sample_at_its_start(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    text = metric("m2", "1010", "20.5") + metric("m1", "1010.5", "12.5") + metric("m1", "1000", "0")
    trace = ingest({"pai_machine_metric.csv": text, "pai_machine_spec.csv": "m1,T4,96,512,2\nm2,T4,96,512,2\n"})
    assert rows(trace, "host_utilization") == [
        {"time": "1970-01-01 00:16:40", "node_id": "m1", "cpu_pct": 0.0},
        {"time": "1970-01-01 00:16:50", "node_id": "m2", "cpu_pct": 20.5},
        {"time": "1970-01-01 00:16:50.500000", "node_id": "m1", "cpu_pct": 12.5},
    ]
    assert found_checks(trace) == {}
    assert account(trace, "pai_machine_metric.csv") == (3, 3, 0)
    assert [note for note in trace.manifest.notes if note.startswith("host_utilization is DERIVED: ")]
    # Memory is not stated, so the Trace does not claim to tell the use of machines.
    assert not trace.capabilities["host_utilization"].available


def test_of_intervals_with_one_start_and_machine_the_last_in_the_file_stands(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    text = "".join(metric("m1", "1010", cpu, worker=f"w{cpu}") for cpu in ("30", "10", "20")) + metric(
        "m2", "1010", "5"
    )
    trace = ingest({"pai_machine_metric.csv": text + metric("m1", "1010", "")})
    assert rows(trace, "host_utilization") == [
        {"time": "1970-01-01 00:16:50", "node_id": "m1", "cpu_pct": 20.0},
        {"time": "1970-01-01 00:16:50", "node_id": "m2", "cpu_pct": 5.0},
    ]
    assert found_checks(trace) == {"machine_metrics_without_sample": (1, 5), "repeated_machine_metrics": (2, 4)}
    assert trace.manifest.checks["repeated_machine_metrics"].examples == ["m1 at 1010 s", "m1 at 1010 s"]


def test_intervals_that_contradict_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    text = (
        metric("m1", "1010", "104.5", end="1000")
        + metric("m1", "0", "1")
        + metric("", "1011", "1")
        + metric("m1", "", "1")
        + metric("m9", "1012", "-0.5", end="")
    )
    trace = ingest({"pai_machine_metric.csv": text, "pai_machine_spec.csv": "m1,T4,96,512,2\n"})
    assert [(r["node_id"], r["cpu_pct"]) for r in rows(trace, "host_utilization")] == [("m1", 104.5), ("m9", -0.5)]
    assert found_checks(trace) == {
        "machine_metrics_without_sample": (3, 5),
        "machine_metric_ends_before_start": (1, 5),
        "machine_cpu_out_of_range": (2, 5),
        "unlisted_machine_metrics": (1, 2),
    }
    assert trace.manifest.checks["machine_metrics_without_sample"].examples == [
        "m1 in line 2",
        "m1 in line 4",
        "unknown machine in line 3",
    ]


def test_intervals_without_a_single_sample_give_no_table(ingest: Ingest) -> None:
    trace = ingest({"pai_machine_metric.csv": metric("m1", "0", "1")})
    assert trace.tables == ()
    assert trace.manifest.checks["machine_metrics_without_sample"].count == 1


def test_an_impossible_interval_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    text = metric("m1", "1010", "1") + metric("m1", "1e18", "1") + metric("m1", "1011", "n/a")
    trace = ingest({"pai_machine_metric.csv": text}, max_reject_share=0.9)
    assert [(r["line"], r["column"]) for r in rows(trace, "rejects")] == [(2, "start_time")]
    assert account(trace, "pai_machine_metric.csv") == (3, 2, 1)
    assert trace.manifest.checks["unreadable_machine_cpu"].examples == ["n/a: is not a number"]


def test_the_released_headers_name_the_columns_in_the_schemas_order(real_data: Callable[[str], Path]) -> None:
    tables = ("job_table", "task_table", "instance_table", "sensor_table", "group_tag_table")
    for table in (*tables, "machine_spec", "machine_metric"):
        header = real_data(f"alibaba_pai/pai_{table}.header").read_text(encoding="ascii")
        assert tuple(header.strip().split(",")) == schema.source("alibaba-pai", f"pai_{table}").names, table


def sample_rows(folder: Path, table: str, width: int) -> list[list[str]]:
    """Return the rows of full length of one table of the sample, by the csv module."""
    plain = folder / f"{table}.csv"
    if plain.is_file():
        text = plain.read_text(encoding="ascii")
    else:
        with tarfile.open(folder / f"{table}.tar.gz") as archive:
            content = archive.extractfile(f"{table}.csv")
            assert content is not None
            text = content.read().decode("ascii")
    return [row for row in csv.reader(io.StringIO(text)) if len(row) == width]


def number(cell: str) -> float | None:
    return float(cell) if cell not in {"", "high"} else None


@pytest.mark.parametrize("unit", ["job", "task"])
def test_the_samples_use_follows_from_its_files(
    sample_source: Callable[[str], Path], sample_trace: Callable[[str], Trace], tmp_path: Path, unit: str
) -> None:
    folder = sample_source("alibaba-pai")
    if unit == "job":
        trace = sample_trace("alibaba-pai")
    else:
        trace = ingest_logs(folder, tmp_path / "trace", options={"unit": unit})
    instances = {(row[0], row[3]): row[2] for row in sample_rows(folder, "pai_instance_table", 9)}
    jobs = {row[0] for row in sample_rows(folder, "pai_job_table", 6)}
    expected = []
    for row in sample_rows(folder, "pai_sensor_table", 16):
        if row[0] in jobs:
            job_id = f"{row[0]}/{row[1]}" if unit == "task" else row[0]
            expected.append(
                (job_id, row[1], instances.get((row[0], row[2])), row[4], *(number(row[i]) for i in (7, 10, 6, 8)))
            )
    assert trace.scan("job_usage").drop("cpu_s").collect().rows() == expected
    assert len(expected) == 42
    assert trace.validate() == []


def test_the_samples_groups_and_machine_use_follow_from_its_files(
    sample_source: Callable[[str], Path], sample_trace: Callable[[str], Trace]
) -> None:
    folder = sample_source("alibaba-pai")
    trace = sample_trace("alibaba-pai")
    tags: dict[str, list[str]] = {}
    for row in sample_rows(folder, "pai_group_tag_table", 5):
        tags.setdefault(row[0], row[3:])
    aliases: dict[str, str] = {}
    for row in sample_rows(folder, "pai_job_table", 6):
        aliases.setdefault(row[0], row[1])
    found = trace.scan("jobs").select("job_id", "group", "name", "workload").collect().rows()
    assert {job: (group, name) for job, group, name, _ in found} == {
        job: tuple(cell or None for cell in tags.get(alias, ["", ""])) for job, alias in aliases.items()
    }
    assert {workload for *_, workload in found} == {None}
    samples = {}
    for row in sample_rows(folder, "pai_machine_metric", 12):
        if row[2] != "0" and row[11] not in {"", "n/a"}:
            samples[int(row[2]), row[1]] = float(row[11])
    hosts = trace.scan("host_utilization").select("time", "node_id", "cpu_pct").collect().rows()
    assert [(int((time - time.min.replace(year=1970)).total_seconds()), node, cpu) for time, node, cpu in hosts] == [
        (*key, cpu) for key, cpu in sorted(samples.items())
    ]
    assert len(samples) == 43


def test_the_samples_records_are_all_accounted_for(
    sample_trace: Callable[[str], Trace], found_checks: FoundChecks
) -> None:
    trace = sample_trace("alibaba-pai")
    assert {name: account(trace, f"{name}.csv") for name in ("pai_sensor_table", "pai_group_tag_table")} == {
        "pai_sensor_table": (44, 43, 1),
        "pai_group_tag_table": (124, 122, 2),
    }
    assert account(trace, "pai_machine_metric.csv") == (48, 47, 1)
    planted = {
        "machine_metrics_without_sample": (3, 47),
        "repeated_machine_metrics": (1, 44),
        "machine_metric_ends_before_start": (1, 47),
        "machine_cpu_out_of_range": (1, 47),
        "unlisted_machine_metrics": (1, 31),
        "group_tags_without_job": (1, 121),
        "repeated_group_tags": (1, 122),
        "group_tag_user_disagrees": (1, 400),
        "gpu_type_spec_disagrees": (1, 492),
        "sensor_rows_without_job": (1, 43),
        "sensor_rows_without_instance": (2, 43),
        "sensor_machine_disagrees": (1, 43),
        "repeated_sensor_rows": (2, 43),
    }
    found = found_checks(trace)
    assert {name: found.get(name) for name in planted} == planted
