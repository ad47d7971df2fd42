"""What nvidia-smi prints, with units and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

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
    [("smi.csv", "matches no machine in the log"), ("n1-n2.csv", "matches several machines in the log: n1, n2")],
)
def test_a_file_has_to_say_in_its_name_which_machine_it_is_of(cluster: Cluster, name: str, message: str) -> None:
    cluster.jobs(("1", "10:00", "10:10", 2, "n1,n2"))
    (cluster.folder / name).write_text(WITHOUT_UNITS)
    with pytest.raises(SourceError, match=message):
        cluster.trace()


TIMES = ("2026/03/02 10:05:00.000", "2026/03/02 10:06:00.000")
UUID = "GPU-11111111-2222-3333-4444-55555555555"


def values(trace: Trace, *columns: str, node: str = "n1") -> list[tuple[object, ...]]:
    frame = trace.scan("gpu_utilization").filter(node_id=node).collect().sort("time", "gpu_index")
    return frame.select("gpu_index", *columns).rows()


def test_gpus_without_an_index_are_numbered_in_the_order_of_the_bus(cluster: Cluster) -> None:
    keys = {
        "pci.bus_id": ["00000000:0F:00.0", "00000000:07:00.0"],  # printed in another order than that of the bus
        "gpu_bus_id": ["00000000:0f:00.0", "00000000:07:00.0"],
        "gpu_uuid": [f"{UUID}2", f"{UUID}1"],
        "uuid": [f"{UUID}4", f"{UUID}3"],
    }
    cluster.jobs(*((str(n), "10:00", "10:10", 2, f"n{n}") for n in range(len(keys))))
    for n, (name, of_gpus) in enumerate(keys.items()):
        rows = [f"{time}, {key}, {use} %, 10 %" for time in TIMES for use, key in zip((20, 80), of_gpus, strict=True)]
        header = f"timestamp, {name}, utilization.gpu [%], utilization.memory [%]"
        (cluster.folder / f"n{n}.csv").write_text("\n".join([header, *rows]) + "\n")
    trace = cluster.trace()
    for n, name in enumerate(keys):
        uses = (80.0, 20.0) if "bus" in name else (20.0, 80.0)
        in_order = [(gpu, use, f"slurm/{n}") for gpu, use in enumerate(uses)]
        assert values(trace, "utilization_pct", "job_id", node=f"n{n}") == in_order * 2, name
    check = trace.manifest.checks["gpus_numbered_by_order"]
    assert (check.count, len(check.examples)) == (8, 5)


def test_a_uuid_whose_index_the_file_states_is_not_numbered(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    (cluster.folder / "n1.csv").write_text(
        f"timestamp, index, uuid, power.draw.instant [W]\n{TIMES[0]}, 3, {UUID}, 90 W\n"
    )
    assert values(cluster.trace(), "power_w") == [(3, 90.0)]


def test_without_a_header_the_cells_tell_the_columns(cluster: Cluster) -> None:
    expected = {
        f"{UUID}1, 45, 1024, 250.50": (45.0, 1.0, 250.5),
        f"{UUID}2, 1024, 45, 250.50": (45.0, 1.0, 250.5),
        "0, 45, 1024, 250.50": (45.0, 1.0, 250.5),
        "00000000:07:00.0, 45": (45.0, None, None),
        f"{UUID}3, 45 %, 250.50 W, 1024 MiB, 1980 MHz": (45.0, 1.0, 250.5),
        f"{UUID}4, 45 %, 10 %, 1024 MiB, 81920 MiB": (45.0, None, None),  # used and total, or total and used
        "0, NVIDIA A100, P0, [N/A], 250.50": (None, None, 250.5),
        "0, 45, 50, 1024, 90.5": (None, None, 90.5),  # more columns of whole numbers than two stay unknown
    }
    cluster.jobs(*((str(n), "10:00", "10:10", 1, f"n{n}") for n in range(len(expected))))
    for n, cells in enumerate(expected):
        (cluster.folder / f"n{n}.csv").write_text("".join(f"{time}, {cells}\n" for time in TIMES))
    trace = cluster.trace()
    columns = ("utilization_pct", "memory_used_gib", "power_w")
    found = {cells: values(trace, *columns, node=f"n{n}") for n, cells in enumerate(expected)}
    assert found == {cells: [(0, *numbers)] * 2 for cells, numbers in expected.items()}
    for n in range(len(expected)):
        assert any(f"n{n}.csv has no header" in note for note in trace.manifest.notes), n


def test_a_file_of_processes_is_not_used_and_names_what_it_has(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    header = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]"
    (cluster.folder / "n1.csv").write_text(f"{header}\n{TIMES[0]}, {UUID}, 7, /bin/python3, 520 MiB\n")
    trace = cluster.trace()
    assert not trace.has("gpu_utilization")
    assert any(
        "no metrics that tracekit reads, only pid, process_name, used_gpu_memory (" in note
        for note in trace.manifest.notes
    )


@pytest.mark.parametrize(
    ("form", "samples", "means"),
    [
        ("query_units.csv", 187, (50.855615, 33.682831, 302.369358)),
        ("query_nounits.csv", 373, (50.664879, 33.711474, 303.186434)),
    ],
)
def test_the_forms_that_were_logged_on_an_h200_agree(
    tmp_path: Path, real_data: Callable[[str], Path], form: str, samples: int, means: tuple[float, ...]
) -> None:
    """The means are those that awk gives of the columns."""
    cluster = Cluster(tmp_path / "logs")
    cluster.folder.mkdir()
    span = "2026-11-26T21:09:00|2026-11-26T21:09:00|2026-11-26T21:15:00|COMPLETED|gres/gpu=1,node=1|1|n1"
    header = "JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList"
    (cluster.folder / "sacct.txt").write_text(f"{header}\n1|{span}\n")
    (cluster.folder / "n1.csv").write_bytes(real_data(f"gpu_h200/{form}").read_bytes())
    frame = cluster.trace().scan("gpu_utilization").collect()
    assert frame["job_id"].unique().to_list() == ["slurm/1"]
    assert frame["gpu_index"].unique().to_list() == [0]
    assert frame.height == samples
    found = frame.select("utilization_pct", "memory_used_gib", "power_w").mean().row(0)
    assert found == pytest.approx(means, rel=1e-6)
