"""A Prometheus of our own with planted series, pulled live; skipped where it is not installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
STEP = 30
SAMPLES = 2880
RUN = 360
"""Samples of one job: three hours."""
NODES, GPUS = 3, 4

if not (shutil.which("prometheus") and shutil.which("promtool")):
    pytest.skip("Prometheus is not installed", allow_module_level=True)


def planted(node: int, gpu: int, number: int) -> tuple[float, str | None]:
    """Return utilization and job of a sample; every third run of a GPU is idle and has no job."""
    run = number // RUN
    job = None if (run + gpu) % 3 == 0 else str(1000 + node * 100 + gpu * 10 + run)
    return (0.0 if job is None else float((node * 31 + gpu * 17 + number) % 101)), job


def write_metrics(path: Path) -> None:
    with path.open("w") as file:
        file.write("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n")
        for node in range(NODES):
            for gpu in range(GPUS):
                for number in range(SAMPLES):
                    value, job = planted(node, gpu, number)
                    label = "" if job is None else f',hpc_job="{job}"'
                    time = BEGIN + STEP * number
                    file.write(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="n{node}"{label}}} {value} {time}\n')
        file.write("# EOF\n")


def write_log(folder: Path) -> None:
    folder.mkdir()
    lines = ["JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList"]
    for node in range(NODES):
        for gpu in range(GPUS):
            for run in range(SAMPLES // RUN):
                job = planted(node, gpu, run * RUN)[1]
                if job is not None:
                    start, end = (
                        datetime.fromtimestamp(BEGIN + STEP * RUN * at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
                        for at in (run, run + 1)
                    )
                    lines.append(f"{job}|{start}|{start}|{end}|COMPLETED|gres/gpu=1|1|n{node}")
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a server with at most `request.param` samples a query."""
    write_metrics(tmp_path / "day.om")
    data = tmp_path / "data"
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h",
         tmp_path / "day.om", data],
        check=True, capture_output=True,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text("scrape_configs: []\n")
    server = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
         "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}",
         f"--query.max-samples={request.param}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    place = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{place}/-/ready", timeout=5).close()
                break
            except (URLError, OSError):
                threading.Event().wait(0.1)
        yield place
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("address", [pytest.param(50_000_000, marks=pytest.mark.thorough), 5_000], indirect=True)
def test_every_planted_sample_comes_back_with_its_job(address: str, tmp_path: Path) -> None:
    """Also where the server gives out so little at once that the day has to be halved."""
    write_log(tmp_path / "logs")
    first, last = (datetime.fromtimestamp(t, UTC).replace(tzinfo=None) for t in (BEGIN, BEGIN + STEP * SAMPLES))
    trace = ingest_logs(
        tmp_path / "logs", tmp_path / "trace", options={"timezone": "UTC"}, telemetry=(address,),
        start=first, end=last,
    )  # fmt: skip
    found = {
        (row["node_id"], row["gpu_index"], int(row["time"].replace(tzinfo=UTC).timestamp())): (
            row["utilization_pct"],
            row["job_id"],
        )
        for row in trace.scan("gpu_utilization").collect().iter_rows(named=True)
    }
    expected = {}
    for node in range(NODES):
        for gpu in range(GPUS):
            for number in range(SAMPLES):
                value, job = planted(node, gpu, number)
                expected[f"n{node}", gpu, BEGIN + STEP * number] = (value, None if job is None else f"slurm/{job}")
    assert found == expected
    assert {name: c.count for name, c in trace.manifest.checks.items() if c.count and "telemetry" in name} == {}
