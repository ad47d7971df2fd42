"""Samples that a mapping reads, and pods of Kubernetes."""

from __future__ import annotations

import os
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import DAY, Cluster, series
from tracekit.databases import connect_duckdb
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from tracekit.trace import Trace

GENAI = Path(os.environ.get("TRACEKIT_SHARED") or Path(__file__).parents[4] / "shared") / "data/alibaba_genai"

JOBS = """
[source]
timezone = "UTC"
[jobs]
files = "jobs.csv"
columns.job_id = "id"
columns.vc = "space"
columns.name = "name"
columns.submit_time = "start"
columns.start_time = "start"
columns.end_time = "end"
columns.gpu_count = "gpus"
columns.cluster = "cluster"
nodes = { column = "nodes" }
"""


def mapped(folder: Path, mapping: str, files: dict[str, str], telemetry: tuple[str, ...] = ()) -> Trace:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "map.toml").write_text(mapping)
    options = {"map": str(folder / "map.toml")}
    return ingest_logs(folder, folder.parent / "trace", format_name="csv", options=options, telemetry=telemetry)


def held(trace: Trace) -> list[tuple[object, ...]]:
    frame = trace.scan("gpu_utilization").collect().sort("time", "node_id", "gpu_index")
    clock = frame["time"].dt.strftime("%H:%M").alias("clock")
    return frame.with_columns(clock).select("clock", "node_id", "gpu_index", "utilization_pct", "job_id").rows()


LOG = f"""id,space,name,start,end,gpus,cluster,nodes
a,x,one,{DAY}T10:00:00,{DAY}T10:10:00,2,c,n1
b,x,two,{DAY}T10:10:00,{DAY}T10:20:00,1,c,n1
"""


def test_mapped_samples_without_a_job_follow_the_rule_of_machines(tmp_path: Path) -> None:
    mapping = JOBS + (
        '[telemetry.x]\nfiles = "util.csv"\nlayout = "row"\ntime = "t"\nnode = "n"\ngpu = "g"\n'
        'gpu_metrics = { utilization_pct = "u" }\n'
    )
    clocks = ("10:05", "10:15", "10:25")
    rows = "".join(f"{DAY}T{clock}:00,n1,{gpu},150\n" for clock in clocks for gpu in (0, 1))
    trace = mapped(tmp_path / "logs", mapping, {"jobs.csv": LOG, "util.csv": "t,n,g,u\n" + rows})
    assert held(trace) == [
        (clock, "n1", gpu, 150.0, "c/a" if clock == "10:05" else None) for clock in clocks for gpu in (0, 1)
    ]
    counts = {name: check.count for name, check in trace.manifest.checks.items()}
    assert (counts["telemetry_ambiguous"], counts["telemetry_busy_and_free"]) == (2, 2)


@pytest.mark.parametrize("layout", ["long", "row"])
def test_a_mapped_column_names_the_job(tmp_path: Path, layout: str) -> None:
    metric = 'metric = "m"\nvalue = "u"\n' if layout == "long" else ""
    name = "util" if layout == "long" else "u"
    mapping = JOBS + (
        f'[telemetry.x]\nfiles = "util.csv"\nlayout = "{layout}"\ntime = "t"\nnode = "n"\ngpu = "g"\njob = "j"\n'
        f"{metric}"
        f'gpu_metrics = {{ utilization_pct = "{name}" }}\n'
    )
    rows = [("10:12", 0, 10, "b"), ("10:12", 1, 20, ""), ("10:25", 0, 30, "b"), ("10:25", 1, 40, "z")]
    text = "t,n,g,u,j,m\n" + "".join(f"{DAY}T{clock}:00,n1,{gpu},{u},{job},util\n" for clock, gpu, u, job in rows)
    trace = mapped(tmp_path / "logs", mapping, {"jobs.csv": LOG, "util.csv": text})
    assert held(trace) == [
        ("10:12", "n1", 0, 10.0, "c/b"),
        ("10:12", "n1", 1, 20.0, None),
        ("10:25", "n1", 0, 30.0, None),
        ("10:25", "n1", 1, 40.0, None),
    ]
    counts = {name: check.count for name, check in trace.manifest.checks.items()}
    assert (counts["telemetry_outside_its_job"], counts["telemetry_of_unknown_jobs"]) == (1, 1)


def test_pods_meet_jobs_by_namespace_and_name(tmp_path: Path) -> None:
    monitor = Cluster(tmp_path / "monitor")
    monitor.folder.mkdir()
    util = "DCGM_FI_DEV_GPU_UTIL"
    exporter = {"pod": "dcgm-exporter-x7", "namespace": "monitoring"}
    monitor.answer(
        "a.json",
        [
            series(util, {"10:05": 1}, Hostname="n1", gpu="0", exported_namespace="x", exported_pod="one", **exporter),
            series(util, {"10:05": 2}, Hostname="n1", gpu="1", namespace="x", pod="one"),
            series(util, {"10:06": 3}, Hostname="n1", gpu="0", exported_namespace="y", exported_pod="one", **exporter),
            series(util, {"10:15": 4}, Hostname="n1", gpu="0", **exporter),
        ],
    )
    trace = mapped(tmp_path / "logs", JOBS, {"jobs.csv": LOG}, (str(monitor.folder),))
    assert held(trace) == [
        ("10:05", "n1", 0, 1.0, "c/a"),
        ("10:05", "n1", 1, 2.0, "c/a"),
        ("10:06", "n1", 0, 3.0, None),
        ("10:15", "n1", 0, 4.0, None),
    ]
    assert trace.manifest.checks["telemetry_of_unknown_jobs"].examples == ["y/one"]


def test_a_job_of_several_pods_is_met_by_each() -> None:
    from tracekit.ingest.telemetry._holders import Holders

    with connect_duckdb() as con:
        con.execute("CREATE TABLE jobs AS SELECT 'train' AS job_id, 'x' AS vc, 'train' AS name, 'c' AS cluster")
        con.execute(
            """CREATE TABLE attempts AS SELECT 'train' AS job_id, 0 AS attempt,
            TIMESTAMP '2026-03-02 10:00:00' AS start_time, TIMESTAMP '2026-03-02 11:00:00' AS end_time"""
        )
        con.execute(
            """CREATE TABLE placements AS SELECT 'train' AS job_id, 0 AS attempt, 'n' || i AS node_id,
            'train-' || i AS instance, 2.0 AS gpu_count, NULL::BIGINT[] AS gpu_index, NULL::VARCHAR AS task
            FROM range(2) t(i)"""
        )
        con.execute("CREATE TABLE nodes AS SELECT 'n' || i AS node_id, 8.0 AS gpu_count FROM range(2) t(i)")
        con.execute(
            """CREATE TABLE place AS SELECT i + 1 AS place, 'n' || i AS node_id, 0 AS gpu_index,
            NULL::VARCHAR AS gpu_instance, 'c' AS cluster FROM range(2) t(i)"""
        )
        con.execute("CREATE TABLE placed AS SELECT node_id, 1 AS holder FROM place")
        con.execute(
            "CREATE TABLE holder AS FROM (VALUES (1, 'x/train-0'), (2, 'x/train-1'), (3, 'y/train-1')) t(holder, name)"
        )
        found = Holders(con).held.select("holder", "job_id").unique().sort("holder").rows()
    assert found == [(1, "train"), (2, "train")]


def test_real_series_of_gpus_are_read_through_a_mapping(tmp_path: Path) -> None:
    """Duty cycle by container, of servers that answer requests: no machine, no index, and no job is in the release."""
    if not GENAI.is_dir():
        pytest.skip("the data is not here")
    logs = tmp_path / "logs"
    logs.mkdir()
    with tarfile.open(GENAI / "pod_gpu_duty_cycle_anon.tar.gz") as archive:
        archive.extractall(logs, filter="data")
    (csv,) = logs.iterdir()
    (tmp_path / "map.toml").write_text(
        f'[source]\ntime_format = "epoch_s"\n[telemetry.duty]\nfiles = "{csv.name}"\nlayout = "row"\n'
        'time = "timestamp_anon"\nnode = "container_ip"\ngpu = { value = 0 }\n'
        'gpu_metrics = { utilization_pct = "value" }\n'
    )
    trace = ingest_logs(logs, tmp_path / "trace", format_name="csv", options={"map": str(tmp_path / "map.toml")})
    most: dict[tuple[str, float], float] = defaultdict(float)
    records = repeats = 0
    for line in csv.read_text().splitlines()[1:]:
        value, time, container = line.split(",")
        records += 1
        repeats += (container, float(time)) in most
        most[container, float(time)] = max(most[container, float(time)], float(value))
    frame = trace.scan("gpu_utilization").collect()
    assert (trace.manifest.files[0].records, trace.manifest.files[0].rejected) == (records, 0)
    assert trace.manifest.checks["repeated_gpu_utilization_values"].count == repeats
    found = dict(
        zip(zip(frame["node_id"], frame["time"].dt.epoch("s"), strict=True), frame["utilization_pct"], strict=True)
    )
    assert found == {(container, int(time)): value for (container, time), value in most.items()}
    assert frame["job_id"].null_count() == frame.height
