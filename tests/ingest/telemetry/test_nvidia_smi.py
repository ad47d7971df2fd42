"""What nvidia-smi prints, with units and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

WITH_UNITS = """timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/03/02 10:05:00.000, 0, NVIDIA A100, 45 %, 1024 MiB, 250.50 W
2026/03/02 10:05:00.001, 1, NVIDIA A100, [N/A], 0 MiB, [Not Supported]
timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/03/02 10:06:00.000, 0, NVIDIA A100, 46 %, 2048 MiB, 251.00 W
yesterday, 0, NVIDIA A100, 46 %, 2048 MiB, 251.00 W
2026/03/02 10:07:00.000, none, NVIDIA A100, 46 %, 2048 MiB, 251.00 W
2026/03/02 10:08:00.000, 0
"""
WITHOUT_UNITS = """timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/03/02 10:05:00.000, 0, 45, 1024, 250.50
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "logs", zone="Europe/Berlin")


def test_units_empty_cells_and_repeated_headers_are_read(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 2, "n1"))
    (cluster.folder / "gpu-n1.csv").write_text(WITH_UNITS)
    trace = cluster.trace(max_reject_share=1)
    frame = trace.scan("gpu_utilization").collect().sort("time", "node_id", "gpu_index")
    clock = frame["time"].dt.strftime("%H:%M:%S.%3f").alias("time")
    columns = ("time", "node_id", "gpu_index", "utilization_pct", "memory_used_gib", "power_w", "job_id")
    assert frame.with_columns(clock).select(columns).rows() == [
        ("09:05:00.000", "n1", 0, 45.0, 1.0, 250.5, "slurm/1"),  # Berlin is an hour ahead
        ("09:05:00.001", "n1", 1, None, 0.0, None, "slurm/1"),
        ("09:06:00.000", "n1", 0, 46.0, 2.0, 251.0, "slurm/1"),
    ]
    account = {file.path: (file.records, file.rejected) for file in trace.manifest.files}
    assert account["gpu-n1.csv"] == (7, 3)
    assert trace.scan("rejects").select("line", "column").collect().rows() == [
        (8, None),
        (6, "timestamp"),
        (7, "index"),
    ]
    assert trace.manifest.checks["repeated_headers"].count == 1


def test_numbers_without_units_are_in_the_units_of_the_header(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    (cluster.folder / "n1").mkdir()
    (cluster.folder / "n1" / "smi.csv").write_text(WITHOUT_UNITS)
    frame = cluster.trace().scan("gpu_utilization").collect()
    assert frame.select("utilization_pct", "memory_used_gib", "power_w", "job_id").rows() == [
        (45.0, 1.0, 250.5, "slurm/1")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("smi.csv", "holds no machine of the log"), ("n1-n2.csv", "holds several machines of the log: n1, n2")],
)
def test_a_file_has_to_say_in_its_name_which_machine_it_is_of(cluster: Cluster, name: str, message: str) -> None:
    cluster.jobs(("1", "10:00", "10:10", 2, "n1,n2"))
    (cluster.folder / name).write_text(WITHOUT_UNITS)
    with pytest.raises(SourceError, match=message):
        cluster.trace()
