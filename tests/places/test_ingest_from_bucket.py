"""Raw logs and telemetry in a bucket become the Trace that the same files on disk become, account and all."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tests.ingest.both_ways import Pickled
from tracekit.errors import SourceError
from tracekit.ingest import ingest_logs
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.places.conftest import Store


def _same(one: Trace, other: Trace) -> None:
    """Hold two Traces to the same tables, byte by byte, and the same accounts."""
    assert one.tables == other.tables
    for table in one.tables:
        assert [p.read_bytes() for p in one.files(table)] == [p.read_bytes() for p in other.files(table)], table
    assert [(f.path, f.bytes, f.sha256, f.records, f.kept, f.rejected) for f in one.manifest.files] == [
        (f.path, f.bytes, f.sha256, f.records, f.kept, f.rejected) for f in other.manifest.files
    ]
    assert one.manifest.checks == other.manifest.checks


@pytest.mark.parametrize("name", ["philly", "helios"])
def test_a_folder_of_a_bucket_is_read_as_one_on_disk(
    name: str,
    sample_source: Callable[[str], Path],
    sample_trace: Callable[[str], Trace],
    store: Store,
    tmp_path: Path,
) -> None:
    address = store.upload(sample_source(name), f"raw/{name}")
    done = run("ingest", str(address), "-o", tmp_path / "trace")
    assert done.returncode == 0, done.stderr
    _same(Trace.open(tmp_path / "trace"), sample_trace(name))


def test_workers_read_a_bucket_themselves(sample_source: Callable[[str], Path], store: Store, tmp_path: Path) -> None:
    workers = Pickled()
    address = store.upload(sample_source("philly"), "raw/philly-by-workers")
    _same(
        ingest_logs(address, tmp_path / "together", workers=workers),
        ingest_logs(sample_source("philly"), tmp_path / "alone"),
    )
    assert [str(file.origin) for _, file, _ in workers.begun if file.name == "cluster_gpu_util"] == [
        f"{address}/cluster_gpu_util"
    ] * 2  # the first of each kind is begun twice


@pytest.mark.thorough
def test_archives_parts_and_compressed_files_are_read_as_on_disk(
    sample_source: Callable[[str], Path], store: Store, tmp_path: Path
) -> None:
    source = sample_source("helios")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(source, "helios")
    content = packed.getvalue()
    log = next(source.rglob("cluster_log.csv"))
    files = {
        "whole/logs.tar.gz": content,
        "split/logs.tar.gz.part0": content[:5000],
        "split/logs.tar.gz.part1": content[5000:],
        f"single/{log.parent.name}/cluster_log.csv.gz": gzip.compress(log.read_bytes(), mtime=0),
    }
    for name, data in files.items():
        store.put(f"packed/{name}", data)
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(data)
    for place in ("whole/logs.tar.gz", "split", "split/logs.tar.gz.part1", "single"):
        key = place.replace("/", "-").replace(".", "-")
        remote = ingest_logs(store.address(f"packed/{place}"), tmp_path / f"remote-{key}")
        _same(remote, ingest_logs(tmp_path / "here" / place, tmp_path / f"local-{key}"))


def test_telemetry_in_a_bucket_joins_a_log_on_disk(
    sample_source: Callable[[str], Path], sample_trace: Callable[[str], Trace], store: Store, tmp_path: Path
) -> None:
    log = sample_source("slurm")
    hosts = sample_trace("slurm").scan("nodes").collect()["node_id"].to_list()[:2]
    day = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    for host in hosts:
        for number in (1, 2):
            rows = "".join(f"2024/03/0{number} 10:00:0{s}.000, 0, {s} %, 10 MiB\n" for s in range(3))
            path = tmp_path / "telemetry" / f"2024-03-0{number}" / f"{host}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(day + rows)
    address = store.upload(tmp_path / "telemetry", "telemetry")
    traces = [
        ingest_logs(log, tmp_path / f"trace-{number}", telemetry=(str(place),))
        for number, place in enumerate((address, tmp_path / "telemetry"))
    ]
    _same(*traces)
    assert traces[0].manifest.tables["gpu_utilization"].rows == 12


@pytest.mark.thorough
def test_a_bucket_is_appended_day_by_day(store: Store, tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|State|User\n"
    for number in (1, 2):
        times = "|".join(f"2024-03-0{number}T{clock}:00" for clock in ("10:00", "10:01", "11:00"))
        store.put(f"daily/{number}/sacct.txt", f"{header}{number}|{times}|COMPLETED|ann\n".encode())
    for number in (1, 2, 2):
        done = run("ingest", str(store.address(f"daily/{number}")), "--append", "-o", tmp_path / "history")
        assert done.returncode == 0, done.stderr
    assert "already contains every file of the source, so nothing changes" in done.stderr
    assert Trace.open(tmp_path / "history").scan("jobs").collect()["job_id"].to_list() == ["slurm/1", "slurm/2"]


def test_a_place_without_files_is_refused(store: Store, tmp_path: Path, sample_trace: Callable[[str], Trace]) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        ingest_logs(store.address("no-such-folder"), tmp_path / "trace")
    trace = store.upload(sample_trace("slurm").path, "is-a-trace")
    with pytest.raises(SourceError, match="is-a-trace: is already a Trace; use it unchanged"):
        ingest_logs(trace, tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []
